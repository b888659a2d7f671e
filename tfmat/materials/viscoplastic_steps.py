"""Viscoplastic specimens side by side: their growth of plastic strain step by step, and its derivatives."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.history import Array

# Newton's steps converge quadratically: after one of this relative size the error is below rounding.
_LAST_STEP = 1e-7
# The fraction of a step that each of two stages is implicit over: 1 - 1/√2 makes them of second order and L-stable.
_STAGE = 1.0 - 0.5**0.5
# What is driven is held where it moves by no more than this share of its value.
_HELD = 1e-6


class Specimens:
    """The state of specimens side by side, and its derivatives by the parameters.

    Attributes:
      most_steps: of Newton's method for one implicit step.
      last_change: what the last of them changed, [specimens].
    """

    most_steps = 100

    def __init__(self, columns: Array, drives_strain: bool, differentiate: list[int] | None):
        """Columns are those of the equations, [6, specimens]; derivatives are by those in `differentiate`."""
        self._columns = columns
        self._chosen = differentiate
        self._driven: Array = np.zeros(columns.shape[1])
        self._drives_strain = drives_strain
        self._plastic = np.zeros(columns.shape[1])
        self._path = np.zeros(columns.shape[1])  # length of the plastic strain's path, p
        # Where the searches begin; None leaves it to the equation.
        self._log_speed: Array = np.full(columns.shape[1], np.inf)
        self._log_growth: Array | None = None
        self.last_change: Array = np.zeros(columns.shape[1])
        self._derivatives = np.zeros((2, *columns.shape)) if differentiate else None

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.blocks.Specimens`; the stress or the strain, or its derivatives."""
        self.move(increment, duration)
        driven, modulus = self._driven, self._columns[0]
        if self._derivatives is None:
            if self._drives_strain:
                return np.asarray(modulus * (driven - self._plastic))
            return np.asarray(driven / modulus + self._plastic)
        by_parameter = self._derivatives[1].copy()
        if self._drives_strain:
            by_parameter *= -modulus
            by_parameter[0] += driven - self._plastic
        else:
            by_parameter[0] -= driven / modulus**2
        return by_parameter[self._chosen]

    def move(self, increment: Array, duration: Array) -> None:
        """Takes the specimens on by a further `increment` of what is driven, in `duration` seconds."""
        driven = self._driven + increment
        held = is_held(increment, driven)
        in_two = ~held & self._is_loaded(driven, duration)
        if in_two.any():
            between = self._driven + _STAGE * (driven - self._driven)
            self._grow(between, np.where(in_two, _STAGE * duration, 0.0), held, 1.0 / _STAGE - 1.0)
        self._grow(driven, np.where(in_two, _STAGE * duration, duration), held, 1.0)
        self._driven = driven

    @property
    def state(self) -> Array:
        """Path of the plastic strain, and the plastic strain: [2, specimens]."""
        return np.stack([self._path, self._plastic])

    @state.setter
    def state(self, state: Array) -> None:
        self._path, self._plastic = state

    def _is_loaded(self, driven: Array, duration: Array) -> NDArray[np.bool_]:
        """Whether the specimen is loaded faster than it flows now: only then two stages cannot overshoot."""
        flow, rise = self._flow_and_rise(driven, duration)
        return np.asarray(flow <= rise)

    def _flow_and_rise(self, driven: Array, duration: Array) -> tuple[Array, Array]:
        """What stress flow as now would take in this time, and what the driven value adds, MPa."""
        modulus, first_yield, gain, saturation, drag, exponent = self._columns
        stress, rise = self._driven, driven - self._driven
        stiffness = np.zeros_like(modulus)
        if self._drives_strain:
            stress, rise, stiffness = modulus * (stress - self._plastic), modulus * rise, modulus
        left = gain * np.exp(-saturation * self._path)
        over = np.maximum(np.abs(stress) - (first_yield + gain - left), 0.0)
        flow = (over / drag) ** exponent * duration * (stiffness + left * saturation)
        return flow, np.where(stress == 0.0, np.abs(rise), np.sign(stress) * rise)

    def _grow(self, driven: Array, duration: Array, held: NDArray[np.bool_], times: float) -> None:
        """Adds `times` the growth of one implicit step to the state, and likewise its derivatives."""
        step = self._step(driven, duration, held)
        if self._derivatives is not None:
            self._differentiate(driven, step, times)
        self._path = self._path + times * step.growth
        self._plastic = self._plastic + times * step.sign * step.growth

    def _step(self, driven: Array, duration: Array, held: NDArray[np.bool_]) -> "Step":
        modulus, first_yield, gain, saturation, _, exponent = self._columns
        tried = modulus * (driven - self._plastic) if self._drives_strain else driven
        left = gain * np.exp(-saturation * self._path)
        over = np.abs(tried) - (first_yield + gain - left)
        flows = (over > 0.0) & (duration > 0.0)
        step = Step(
            sign=np.sign(tried),
            flows=flows,
            holds=held,
            over=np.where(flows, over, 1.0),
            duration=np.where(flows, duration, 1.0),
            stiffness=modulus if self._drives_strain else np.zeros_like(modulus),
            left=left,
        )
        if not step.holds.all():
            self._log_speed = self._euler(step)
            step.growth = step.duration * np.exp(exponent * self._log_speed)
        if step.holds.any():
            decayed = np.exp(self._decayed(step))
            step.growth = decayed if held.all() else np.where(held, decayed, step.growth)
        step.growth = np.where(flows, step.growth, 0.0)
        step.flows = step.growth > 0.0
        return step

    def _euler(self, step: "Step") -> Array:
        """ln x, where x^n is the rate at the end of the step: K x + M w + R(p + w) - R(p) = f with w = x^n duration.

        f is the overstress that an elastic step would leave, and M the modulus, or 0 where the stress is driven.
        Newton on the logarithms of both sides, kept between the x at which the largest of the three terms alone is f
        (it is no larger) and that at which each is f/3.
        """
        _, _, _, saturation, drag, exponent = self._columns
        over, left, duration = step.over, step.left, step.duration
        stiffness = step.stiffness * duration
        high = np.minimum(np.log(over / drag), np.log(over / stiffness) / exponent)
        each = over / 3.0
        low = np.minimum(
            np.log(each / drag),
            np.log(each / np.maximum(stiffness, left * saturation * duration)) / exponent,
        )
        tried = np.clip(self._log_speed, low, high)
        for _ in range(self.most_steps):
            viscous, power = drag * np.exp(tried), np.exp(exponent * tried)
            rest = np.exp(-saturation * duration * power)
            total = viscous + stiffness * power + left * (1.0 - rest)
            hardening = left * saturation * duration * rest
            slope = viscous + exponent * power * (stiffness + hardening)
            high = np.where(total >= over, tried, high)
            low = np.where(total <= over, tried, low)
            moved = tried - np.log(total / over) * total / slope
            inside = (moved >= low) & (moved <= high)
            moved = np.where(inside, moved, 0.5 * (low + high))
            change = np.abs(moved - tried)
            tried = moved
            if (change <= _LAST_STEP).all():
                break
        self.last_change = change
        return tried

    def _decayed(self, step: "Step") -> Array:
        """ln w of a hold: the overstress s follows ds/dt = -M (s/K)^n from f, with the step's mean M.

        In closed form w = duration (f/K)^n ψ(A), A = (n - 1) M duration f^(n-1)/K^n and
        ψ = (n - 1) (1 - (1 + A)^(-1/(n-1)))/A; M = E + (R(p + w) - R(p))/w, without E where the stress is driven.
        Newton on ln w: A falls with w, so that the left side less the right rises with a slope of at least 1.
        """
        drag, exponent = self._columns[4:]
        first = np.log(step.duration) + exponent * np.log(step.over / drag)
        tried = first if self._log_growth is None else np.minimum(self._log_growth, first)
        for _ in range(self.most_steps):
            growth = np.exp(tried)
            mean, change, scale = self._mean_stiffness(step, growth)
            logarithm, by_share, _ = _mean_rate(scale * mean, exponent - 1.0)
            error = tried - first - logarithm
            moved = tried - error / (1.0 - by_share * scale * (change - mean))
            tried = moved
            if (np.abs(error) <= _LAST_STEP).all():
                break
        self.last_change = np.abs(error)
        return np.asarray(tried)

    def _mean_stiffness(self, step: "Step", growth: Array) -> tuple[Array, Array, Array]:
        """M of a step that grows by w, the same at its end, and A/M."""
        saturation, drag, exponent = self._columns[3:]
        gained = -step.left * np.expm1(-saturation * growth)
        end = step.stiffness + (step.left - gained) * saturation
        power = (step.over / drag) ** (exponent - 1.0) / drag
        mean = step.stiffness + np.where(growth > 0.0, gained / growth, step.left * saturation)
        return mean, end, (exponent - 1.0) * step.duration * power

    def _differentiate(self, driven: Array, step: "Step", times: float) -> None:
        """The step's total differential by the parameters, from those of the state before it."""
        assert self._derivatives is not None
        modulus, _, _, saturation, drag, exponent = self._columns
        path_by, plastic_by = self._derivatives
        growth, left = step.growth, step.left
        # By the state and the parameters at fixed growth: the overstress f, and what the growth takes of it.
        over_by = -saturation * left * path_by
        if self._drives_strain:
            over_by -= step.sign * modulus * plastic_by
            over_by[0] += step.sign * (driven - self._plastic)
        over_by[1] -= 1.0
        over_by[2] -= 1.0 - np.exp(-saturation * self._path)
        over_by[3] -= self._path * left
        rest = np.exp(-saturation * growth)
        taken_by = -saturation * left * (1.0 - rest) * path_by
        taken_by[0] += growth * (step.stiffness > 0.0)
        taken_by[2] += np.exp(-saturation * self._path) * (1.0 - rest)
        taken_by[3] += left * ((self._path + growth) * rest - self._path)
        speed_log = (np.log(np.where(step.flows, growth, 1.0)) - np.log(step.duration)) / exponent
        viscous = drag * np.exp(speed_log)
        end = step.stiffness + left * saturation * rest
        change = over_by - taken_by
        change[4] -= viscous / drag
        change[5] += viscous * speed_log / exponent
        change /= viscous / exponent + end * growth
        if step.holds.any():
            held = self._differentiated_hold(step, over_by, taken_by)
            change = np.where(step.holds, held, change)
        change *= times * growth
        change[:, ~step.flows] = 0.0
        path_by += change
        plastic_by += step.sign * change

    def _differentiated_hold(self, step: "Step", over_by: Array, taken_by: Array) -> Array:
        """d ln w / d parameter of a hold, from the equation of `_decayed`."""
        drag, exponent = self._columns[4:]
        mean, end, scale = self._mean_stiffness(step, step.growth)
        _, by_share, by_exponent = _mean_rate(scale * mean, exponent - 1.0)
        relative = over_by / step.over
        ratio = np.log(step.over / drag)
        first = exponent * relative
        first[4] -= exponent / drag
        first[5] += ratio + by_exponent
        # The logarithm of A/M, and M.
        scaled = (exponent - 1.0) * relative
        scaled[4] -= exponent / drag
        scaled[5] += ratio + 1.0 / (exponent - 1.0)
        mean_by = taken_by / np.where(step.flows, step.growth, 1.0)
        first += by_share * scale * (mean * scaled + mean_by)
        return np.asarray(first / (1.0 - by_share * scale * (end - mean)))


@dataclasses.dataclass
class Step:
    """One step of specimens side by side, [specimens] each.

    Attributes:
      sign: of the stress.
      flows: whether the specimen flows; over and duration are 1 where it does not.
      holds: whether the driven value is held.
      over: f, the overstress of an elastic step, MPa.
      duration: s.
      stiffness: what stress the growth takes beside hardening: the modulus, or 0 where the stress is driven.
      left: hardening that is left to come, Q exp(-b p), MPa.
      growth: w, the growth of p.
    """

    sign: Array
    flows: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    over: Array
    duration: Array
    stiffness: Array
    left: Array
    growth: Array = dataclasses.field(default_factory=lambda: np.zeros(0))


def is_held(increment: Array, driven: Array) -> NDArray[np.bool_]:
    """Whether what is driven, to `driven` by `increment`, is held."""
    return np.asarray(np.abs(increment) <= _HELD * np.abs(driven))


def _mean_rate(share: Array, power: Array) -> tuple[Array, Array, Array]:
    """ln ψ(A) with k = n - 1, and its derivatives by A and k; see `Specimens._decayed`."""
    small = share < 1e-6
    share = np.where(small, 1.0, share)
    grown = np.log1p(share)
    lost = -np.expm1(-grown / power)
    kept = 1.0 - lost
    logarithm = np.log(power * lost / share)
    by_share = kept / (power * (1.0 + share) * lost) - 1.0 / share
    by_power = 1.0 / power - kept * grown / (power**2 * lost)
    return (
        np.where(small, 0.0, logarithm),
        np.where(small, -0.5 - 0.5 / power, by_share),
        np.where(small, 0.0, by_power),
    )

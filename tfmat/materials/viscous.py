"""Viscoplastic laws: rate, relaxation and creep. NumPy only."""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import HELD_METAL, Array, History, HistoryLaw, Parameter
from tfmat.materials.numerics import in_steps

# --------------------------------------------------------------------------------------------------
# Viscoplastic specimens side by side: their growth of plastic strain step by step, and its derivatives.


# Newton's steps converge quadratically: after one of this relative size the error is below rounding.
_LAST_STEP = 1e-7
# _ROUNDING: of a logarithm. Where the viscous term is all there is, the answer lies at the end of what is searched.
_ROUNDING = 1e-12
# The fraction of a step that each of two stages is implicit over: 1 - 1/√2 makes them of second order and L-stable.
_STAGE = 1.0 - 0.5**0.5
# _HELD, _SLOW: a hold may move, by noise or drift, by no more than this share of itself, and of the overstress at which
# a specimen would flow as fast. Implicit steps lose 6 MPa of some 50 that decay there.
_HELD, _SLOW = 3e-3, 0.05


class Specimens:
    """The state of specimens side by side, and its derivatives by the parameters.

    Attributes:
      most_steps: of Newton's method for one implicit step.
    """

    most_steps = 100

    def __init__(self, columns: Array, drives_strain: bool, differentiate: list[int] | None):
        """Columns are the equations' parameters, [6, specimens]; derivatives are by the ones in `differentiate`."""
        self._columns = columns
        self._chosen = differentiate
        self._driven: Array = np.zeros(columns.shape[1])
        self._drives_strain = drives_strain
        self._plastic = np.zeros(columns.shape[1])
        self._path = np.zeros(columns.shape[1])  # length of the plastic strain's path, p
        # Where a search begins.
        self._log_speed: Array = np.full(columns.shape[1], np.inf)
        self._derivatives = np.zeros((2, *columns.shape)) if differentiate else None

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.numerics.Specimens`; stress or strain, and then its derivatives if asked."""
        self.move(increment, duration)
        by_parameter = None if self._derivatives is None else self._derivatives[1]
        return _answer(
            self._columns, self._drives_strain, self._driven, self._plastic, by_parameter
        )[[0, *(1 + column for column in self._chosen or ())]]

    def move(self, increment: Array, duration: Array) -> None:
        """Takes the specimens on by a further `increment` of what is driven, in `duration` seconds."""
        driven = self._driven + increment
        held = is_held(self._columns, self._drives_strain, driven, increment, duration)
        in_two = ~held & self._is_loaded(driven, duration)
        if in_two.any():
            between = self._driven + _STAGE * (driven - self._driven)
            self._grow(between, np.where(in_two, _STAGE * duration, 0.0), held, 1.0 / _STAGE - 1.0)
        # The little that a hold moves comes half before the decay and half after it (Strang's splitting).
        middle = np.where(held, self._driven + 0.5 * increment, driven)
        self._grow(middle, np.where(in_two, _STAGE * duration, duration), held, 1.0)
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
        """The stress that flow as now would take in this time, and the stress that the driven value adds, MPa."""
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
        modulus, first_yield, gain, saturation = self._columns[:4]
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
        step.growth = np.where(flows, self._solved(step), 0.0)
        step.flows = step.growth > 0.0
        return step

    def _solved(self, step: "Step") -> Array:
        """The growth of specimens that flow."""
        growth = np.zeros_like(step.over)
        if not step.holds.all():
            self._log_speed = self._euler(step)
            growth = step.duration * np.exp(self._columns[5] * self._log_speed)
        if step.holds.any():
            growth = np.where(step.holds, np.exp(self._decayed(step)), growth)
        return growth

    def _euler(self, step: "Step") -> Array:
        """ln x, where x^n is the rate at the end of the step: K x + M w + R(p + w) - R(p) = f with w = x^n duration.

        f is the overstress that an elastic step would leave, and M the modulus, or 0 where the stress is driven.
        Newton on the logarithms of both sides, kept between two bounds of x: at the upper one the largest of the three
        terms alone is f, at the lower one each term is at most f/3.
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
        asked = step.flows & ~step.holds
        for _ in range(self.most_steps):
            viscous, power = drag * np.exp(tried), np.exp(exponent * tried)
            rest = np.exp(-saturation * duration * power)
            total = viscous + stiffness * power + left * (1.0 - rest)
            hardening = left * saturation * duration * rest
            slope = viscous + exponent * power * (stiffness + hardening)
            high = np.where(total >= over, tried, high)
            low = np.where(total <= over, tried, low)
            moved = tried - np.log(total / over) * total / slope
            inside = (moved >= low) & (moved <= high + _ROUNDING)
            moved = np.where(inside, moved, 0.5 * (low + high))
            change = np.abs(moved - tried)
            tried = moved
            # Overflow ends a search too; specimens that do not flow are not searched for.
            if not ((change > _LAST_STEP) & asked).any():
                break
        return tried

    def _decayed(self, step: "Step") -> Array:
        """ln w of a hold: the overstress s follows ds/dt = -M (s/K)^n from f, with the step's mean M.

        In closed form w = duration (f/K)^n ψ(A), A = (n - 1) M duration f^(n-1)/K^n and
        ψ = (n - 1) (1 - (1 + A)^(-1/(n-1)))/A; M = E + (R(p + w) - R(p))/w, without E where the stress is driven.
        Newton on ln w: A falls with w, so that the left side less the right rises with a slope of at least 1.
        """
        drag, exponent = self._columns[4:]
        first = np.log(step.duration) + exponent * np.log(step.over / drag)
        tried = first
        asked = step.flows & step.holds
        for _ in range(self.most_steps):
            growth = np.exp(tried)
            mean, change, scale = self._mean_stiffness(step, growth)
            logarithm, by_share, _ = _mean_rate(scale * mean, exponent - 1.0)
            error = tried - first - logarithm
            tried = tried - error / (1.0 - by_share * scale * (change - mean))
            if not ((np.abs(error) > _LAST_STEP) & asked).any():
                break
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
        """The step's total differential by the parameters, from the differentials of the state before it."""
        assert self._derivatives is not None
        modulus, _, _, saturation, drag, exponent = self._columns
        path_by, plastic_by = self._derivatives
        growth, left = step.growth, step.left
        # Derivatives by state and parameters at fixed growth: the overstress f, and what the growth takes of it.
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


def is_held(
    columns: Array, drives_strain: bool, driven: Array, increment: Array, duration: Array
) -> NDArray[np.bool_]:
    """Whether what is driven, to `driven` by `increment` in `duration` seconds, is held but for noise or drift."""
    held = increment == 0.0
    moves_little = ~held & (np.abs(increment) <= _HELD * np.abs(driven))
    if not moves_little.any():
        return np.asarray(held)
    modulus, drag, exponent = columns[0], columns[4], columns[5]
    rise = np.abs(increment) * (modulus if drives_strain else 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        steady = drag * (rise / (modulus * duration)) ** (1.0 / exponent)
    return np.asarray(held | (moves_little & (rise <= _SLOW * steady)))


def _mean_rate(share: Array, power: Array) -> tuple[Array, Array, Array]:
    """ln ψ(A) with k = n - 1, and its derivatives by A and k; see `Specimens._decayed`."""
    small = share < 1e-6 * np.minimum(power, 1.0)
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


# --------------------------------------------------------------------------------------------------
# Few viscoplastic specimens, one by one.


# _FEW: so many specimens are gone through one by one, which takes a millisecond each. Of more, the two hundred short
# NumPy calls of each point take less.
_FEW = 64
_LARGEST_LOGARITHM = 700.0
# _FROM_ONE: exponents so near to 1 count as 1 plus it, which moves a response by a few times as much.
_FROM_ONE = 1e-7


def _columns(chosen: Sequence[int], count: int, parameters: Array) -> Array:
    """Parameters [specimens, chosen] among the `count` columns of the equations, [count, specimens]; others are 0."""
    columns = np.zeros((count, len(parameters)))
    columns[chosen] = np.asarray(parameters).T
    # The closed form of a hold divides by n - 1.
    off = columns[5] - 1.0
    columns[5] = np.where(np.abs(off) < _FROM_ONE, 1.0 + _FROM_ONE, columns[5])
    return columns


def _answer(
    columns: Array, strains: bool, driven: Array, plastic: Array, by_parameter: Array | None
) -> Array:
    """The response, and behind it its derivatives if asked: [1 + columns, ...] or [1, ...].

    Args:
      by_parameter: derivatives of the plastic strain by the columns and, possibly, more; None asks for none.
    """
    modulus, elastic = columns[0], driven - plastic if strains else driven / columns[0]
    response = np.asarray(modulus * elastic if strains else elastic + plastic)[None]
    if by_parameter is None:
        return response
    slopes = by_parameter[: len(columns)] * (-modulus if strains else 1.0)
    slopes[0] += elastic if strains else -elastic / modulus
    return np.concatenate([response, slopes])


def _few(history: History, columns: Array, differentiate: bool) -> Array:
    """What `Specimens` answer to a history, for few of them: [1 + columns or 1, points, specimens]."""
    assert history.time is not None
    strains = history.strain is not None
    driven, time = (array.T.astype(np.float64) for array in (history.driven, history.time))
    increments = np.diff(driven, axis=0, prepend=0.0)
    durations = np.diff(time, axis=0, prepend=time[:1])
    columns = columns[:, None]
    held = is_held(columns, strains, driven, increments, durations)
    parts = np.broadcast_arrays(increments, durations, held, columns[0])[:3]
    of_each = zip(columns[:, 0].T.tolist(), *(part.T.tolist() for part in parts), strict=True)
    alone = [_one_alone(column, strains, *of_one) for column, *of_one in of_each]
    path, plastic, *growths, in_two = np.array(alone).transpose(2, 1, 0)
    if not differentiate:
        return _answer(columns, strains, driven, plastic, None)
    points = _Points(columns, strains, driven - increments, np.stack([path, plastic]))
    by_parameter = points.differentiated(increments, durations, growths, in_two > 0.0)
    return _answer(columns, strains, driven, plastic, by_parameter)


def _one_alone(
    columns: list[float],
    strains: bool,
    increments: list[float],
    durations: list[float],
    held: list[bool],
) -> list[tuple[float, ...]]:
    """Path and plastic strain of one specimen at all points, as `Specimens` find them, and what it grew by on the way.

    The growth is that of the first of two stages (0 where there is one), and that of the last one; whether there are
    two comes behind them.

    For one number NumPy's calls take twenty times as long as Python's own arithmetic. `Specimens` has the equations.
    """
    modulus, first_yield, gain, saturation, drag, exponent = columns
    stiffness = modulus if strains else 0.0
    path = plastic = driven = 0.0
    log_speed = log_growth = math.inf

    def grown(driven: float, duration: float, is_held: bool, times: float) -> float:
        nonlocal path, plastic, log_speed, log_growth
        tried = modulus * (driven - plastic) if strains else driven
        left = gain * math.exp(-saturation * path)
        over = abs(tried) - (first_yield + gain - left)
        if not (over > 0.0 and duration > 0.0):
            return 0.0
        if is_held:
            log_growth = _decayed_alone(
                log_growth, over, duration, left, stiffness, saturation, drag, exponent
            )
            growth = _exp(log_growth)
        else:
            log_speed = _euler_alone(
                log_speed, over, duration, left, stiffness, saturation, drag, exponent
            )
            growth = duration * _exp(exponent * log_speed)
        path += times * growth
        plastic += math.copysign(times * growth, tried)
        return growth

    states: list[tuple[float, ...]] = []
    try:
        for increment, duration, is_held in zip(increments, durations, held, strict=True):
            first, in_two = 0.0, False
            if is_held:
                last = grown(driven + 0.5 * increment, duration, True, 1.0)
            else:
                stress, rise = driven, increment
                if strains:
                    stress, rise = modulus * (driven - plastic), modulus * increment
                rise = abs(rise) if stress == 0.0 else math.copysign(1.0, stress) * rise
                left = gain * math.exp(-saturation * path)
                over = abs(stress) - (first_yield + gain - left)
                flow = 0.0
                if over > 0.0:
                    rate = _exp(exponent * math.log(over / drag))
                    flow = rate * duration * (stiffness + left * saturation)
                in_two = flow <= rise
                if in_two:
                    duration *= _STAGE
                    between = driven + _STAGE * increment
                    first = grown(between, duration, False, 1.0 / _STAGE - 1.0)
                last = grown(driven + increment, duration, False, 1.0)
            driven += increment
            states.append((path, plastic, first, last, in_two))
    except (ArithmeticError, ValueError):
        # Overflow: there is no answer from here on.
        states += [(math.nan,) * 5] * (len(held) - len(states))
    return states


def _euler_alone(
    tried: float,
    over: float,
    duration: float,
    left: float,
    stiffness: float,
    saturation: float,
    drag: float,
    exponent: float,
) -> float:
    """See `Specimens._euler`."""
    stiffness *= duration
    hardening = left * saturation * duration
    exp, log, rate = math.exp, math.log, saturation * duration
    high, low = log(over / drag), log(over / (3.0 * drag))
    most = log(over / stiffness) if stiffness > 0.0 else _LARGEST_LOGARITHM
    high = min(high, most / exponent)
    if max(stiffness, hardening) > 0.0:
        low = min(low, log(over / (3.0 * max(stiffness, hardening))) / exponent)
    tried = min(max(tried, low), high)
    for _ in range(Specimens.most_steps):
        viscous, power = drag * exp(tried), exp(exponent * tried)
        rest = exp(-rate * power)
        total = viscous + stiffness * power + left * (1.0 - rest)
        slope = viscous + exponent * power * (stiffness + hardening * rest)
        if total >= over:
            high = tried
        if total <= over:
            low = tried
        moved = tried - log(total / over) * total / slope
        if not low <= moved <= high + _ROUNDING:
            moved = 0.5 * (low + high)
        change, tried = abs(moved - tried), moved
        if change <= _LAST_STEP:
            break
    return tried


def _decayed_alone(
    tried: float,
    over: float,
    duration: float,
    left: float,
    stiffness: float,
    saturation: float,
    drag: float,
    exponent: float,
) -> float:
    """See `Specimens._decayed` and `_mean_rate`."""
    ratio, power = math.log(over / drag), exponent - 1.0
    first = math.log(duration) + exponent * ratio
    scale = power * duration * _exp(power * ratio) / drag
    tried = min(tried, first)
    for _ in range(Specimens.most_steps):
        growth = _exp(tried)
        gained = -left * math.expm1(-saturation * growth)
        end = stiffness + (left - gained) * saturation
        mean = stiffness + (gained / growth if growth > 0.0 else left * saturation)
        share = scale * mean
        logarithm, by_share = 0.0, -0.5 - 0.5 / power
        if share >= 1e-6 * min(power, 1.0):
            lost = -math.expm1(-math.log1p(share) / power)
            logarithm = math.log(power * lost / share)
            by_share = (1.0 - lost) / (power * (1.0 + share) * lost) - 1.0 / share
        error = tried - first - logarithm
        tried -= error / (1.0 - by_share * scale * (end - mean))
        if not abs(error) > _LAST_STEP:
            break
    return tried


def _exp(value: float) -> float:
    """The exponential, of very large values as good as infinite."""
    return math.exp(min(value, _LARGEST_LOGARITHM))


def _recurrence(slopes: Array, change: Array) -> Array:
    """x of the recurrence x[i] = change[i] + slopes[i] x[i - 1]: [2, columns, points, specimens].

    Stretches of points are gone through side by side, each as if it began at 0, and then joined.

    Args:
      slopes: [2, 2, points, specimens]; change: [2, columns, points, specimens].
    """
    _, columns, points, specimens = change.shape
    length = math.isqrt(points - 1) + 1
    stretches = -(-points // length)
    matrices = np.zeros((stretches * length, specimens, 2, 2))
    matrices[:points] = slopes.transpose(2, 3, 0, 1)
    # The last two columns are what a stretch makes of the state before it.
    found = np.zeros((stretches * length, specimens, 2, columns + 2))
    found[:points, :, :, :columns] = change.transpose(2, 3, 0, 1)
    matrices = matrices.reshape(stretches, length, specimens, 2, 2)
    found = found.reshape(stretches, length, specimens, 2, columns + 2)
    found[:, 0, :, :, columns:] = matrices[:, 0]
    for i in range(1, length):
        found[:, i] += matrices[:, i] @ found[:, i - 1]
    states = found[..., :columns]
    for i in range(1, stretches):
        states[i] += found[i, ..., columns:] @ states[i - 1, -1]
    joined = states.reshape(stretches * length, specimens, 2, columns)[:points]
    return joined.transpose(2, 3, 0, 1)


class _Points(Specimens):
    """Points of histories side by side, [points, specimens], each with the state of the point before it."""

    def __init__(self, columns: Array, drives_strain: bool, driven: Array, states: Array):
        """Columns [columns, 1, specimens]; `driven` before each point; states [2, points, specimens] behind it."""
        super().__init__(columns, drives_strain, None)
        self._driven = driven
        self.state = np.concatenate([np.zeros_like(states[:, :1]), states[:, :-1]], axis=1)
        # By the columns, and by the state before.
        self._derivatives = np.zeros((2, len(columns) + 2, *states.shape[1:]))
        self._derivatives[0, -2] = self._derivatives[1, -1] = 1.0

    def differentiated(
        self,
        increments: Array,
        durations: Array,
        growths: Sequence[Array],
        in_two: NDArray[np.bool_],
    ) -> Array:
        """Derivatives of the plastic strain by the columns, [columns, points, specimens], for known growths."""
        self._growths, self._in_two = list(growths), in_two
        if not in_two.any():
            del self._growths[0]
        self.move(increments, durations)
        assert self._derivatives is not None
        return _recurrence(self._derivatives[:, -2:], self._derivatives[:, :-2])[1]

    def _is_loaded(self, driven: Array, duration: Array) -> NDArray[np.bool_]:
        return self._in_two

    def _solved(self, step: Step) -> Array:
        return self._growths.pop(0)


# --------------------------------------------------------------------------------------------------
# Metals that flow with time: relaxation, creep, and tension at a rate.


# The parameters that the equations have, in the order of their columns.
_NAMES = ("E", "sigma0", "Q", "b", "K", "n")

_MODULUS = Parameter("E", "MPa", 35e3, 230e3, "log", "Young's modulus")
_DRAG = "overstress for a rate of 1/s"


class Perzyna(HistoryLaw):
    """Flow under the stress above a hardening yield stress; a specimen rests at any lower stress.

    Driven strain is answered by stress (relaxation, tension at a rate), driven stress by strain (creep). From point to
    point the plastic strain follows by two implicit stages of second order (R. Alexander, SIAM J. Numer. Anal. 14
    (1977) 1006-1021) while the specimen is loaded faster than it flows, else by an implicit Euler step; both are stable
    at any length and exact in steady flow. While strain or stress are held, but for noise and drift, the overstress
    decays as its differential equation does in closed form, with the step's mean hardening. So the first point of a
    hold may come long after most of the overstress is gone.
    """

    name = "perzyna"
    title = "Perzyna 1966, with hardening after Voce"
    formula = (
        "dεp/dt = ⟨(|σ| − R)/K⟩ⁿ·sign σ,  R = σ0 + Q·(1 − exp(−b·p)),  dp = |dεp|,  σ = E·(ε − εp)"
    )
    source = (
        "P. Perzyna, Fundamental problems in viscoplasticity, Adv. Appl. Mech. 9 (1966) 243-377; "
        "J. Lemaitre, J.-L. Chaboche, Mechanics of Solid Materials, Cambridge (1990), chapter 6"
    )
    parameters: tuple[Parameter, ...] = (
        _MODULUS,
        Parameter("sigma0", "MPa", 0.0, 400.0, "linear", "initial yield stress σ0"),
        Parameter("Q", "MPa", 0.0, 300.0, "linear", "stress gained until saturation"),
        Parameter("b", "-", 1.0, 300.0, "log", "rate of saturation with plastic strain"),
        Parameter("K", "MPa s^(1/n)", 20.0, 1000.0, "log", _DRAG),
        Parameter("n", "-", 2.0, 20.0, "log", "exponent of the overstress"),
    )
    strain_measure = "true"
    stress_measure = "true"
    noise_mpa = 1.0
    rupture_strain = 0.2
    laboratory = HELD_METAL
    solves = True
    tests: ClassVar[tuple[str, ...]] = ("relaxation", "creep", "tension_at_rate", "tension_at_rate")
    # Columns of the parameters among the equations' columns; the others are 0.
    _columns_of: ClassVar[tuple[int, ...]] = (0, 1, 2, 3, 4, 5)

    def respond(self, history: History, parameters: Array) -> Array:
        return self._stepped(history, parameters, False)[..., 0]

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact derivatives of every step."""
        return self.expanded(history, parameters)[..., 1:]

    def expanded(self, history: History, parameters: Array) -> Array:
        """See `Law.expanded`; the derivatives' steps are the response's."""
        return self._stepped(history, parameters, True)

    def _stepped(self, history: History, parameters: Array, differentiate: bool) -> Array:
        self._told(history)
        chosen = list(self._columns_of)
        if len(parameters) <= _FEW:
            columns = _columns(chosen, len(_NAMES), parameters)
            with np.errstate(all="ignore"):
                found = _few(history, columns, differentiate).T
            return found[..., [0, *(1 + column for column in chosen)]] if differentiate else found

        def specimens(parameters: Array) -> Specimens:
            columns = _columns(chosen, len(_NAMES), parameters)
            return Specimens(columns, history.strain is not None, chosen if differentiate else None)

        trailing = (1 + len(chosen) if differentiate else 1,)
        return in_steps(specimens, history, parameters, trailing)

    def _told(self, history: History) -> None:
        if history.time is None:
            raise InputError(f"law {self.name} asks for the time of every point of a test")


class Norton(Perzyna):
    """Flow at every stress: secondary creep. Perzyna's law without a yield stress."""

    name = "norton"
    title = "Norton 1929"
    formula = "dεp/dt = (|σ|/K)ⁿ·sign σ,  σ = E·(ε − εp)"
    source = "F. H. Norton, The Creep of Steel at High Temperatures, McGraw-Hill (1929)"
    parameters = (
        _MODULUS,
        Parameter("K", "MPa s^(1/n)", 200.0, 20e3, "log", "stress for a creep rate of 1/s"),
        Parameter("n", "-", 2.0, 12.0, "log", "creep exponent"),
    )
    tests = ("relaxation", "creep")
    _columns_of = (0, 4, 5)

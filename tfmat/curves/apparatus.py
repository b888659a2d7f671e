"""What stands between a specimen and its record: slack, a machine that gives way, correlated noise, points left out.

Whole blocks of curves or tests at a time, as arrays [rows, points].
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array, History

# Of the specimen's strain in series with a machine: an error as a share of the largest strain, and the most steps.
_TOLERANCE, _MOST_STEPS = 1e-6, 60
# Steps of the strain below this share of the largest are a hold: their stress says nothing of stiffness.
_HOLD = 1e-3


def log_uniform(limits: tuple[float, float], uniform: Array) -> Array:
    """Uniform numbers in 0-1 -> numbers whose logarithm is uniform between the logarithms of `limits`."""
    low, high = limits
    return np.asarray(low * (high / low) ** uniform)


def drawn_offset(
    limits: tuple[float, float] | None, random: np.random.Generator, rows: int
) -> Array | None:
    """Normal numbers [rows], each with a standard deviation drawn log-uniformly from `limits`."""
    if limits is None:
        return None
    size = log_uniform(limits, random.random(rows))
    return np.asarray(size * random.standard_normal(rows))


def rises_from_zero(strain: Array) -> NDArray[np.bool_]:
    """Which rows begin at zero and never turn, to either side: [rows, points] -> [rows]."""
    rising = np.diff(strain * np.sign(strain[:, -1:]), axis=1)
    return np.asarray((rising >= 0.0).all(axis=1) & (strain[:, 0] == 0.0))


def after_toe(strain: Array, slack: Array) -> Array:
    """The specimen's strain [rows, points] under a measured one that takes up `slack` [rows] first.

    |e| - s (1 - exp(-|e| / s)): a parabola e² / 2s that runs into the line e - s. So a test that toe compensation
    (ASTM D638, annex A1) is made for looks: the line through its elastic part meets zero stress at the slack.
    """
    size = np.abs(strain)
    taken_up = slack[:, None] * -np.expm1(-size / slack[:, None])
    return np.asarray(np.sign(strain) * (size - taken_up))


def _secants(strain: Array, stress: Array) -> Array:
    """Slope of a curve from each point's neighbour before it, not below zero; where it is held, the largest."""
    steps = np.diff(strain, axis=1, prepend=0.0)
    size = np.abs(steps)
    moves = size > _HOLD * size.max(axis=1, keepdims=True)
    slope = np.diff(stress, axis=1, prepend=0.0) / np.where(moves, steps, 1.0)
    slope = np.maximum(np.where(moves, slope, 0.0), 0.0)
    return np.where(moves, slope, slope.max(axis=1, keepdims=True))


def specimen_strain(respond: Callable[[Array], Array], strain: Array, stiffness: Array) -> Array:
    """The specimen's part e of a strain that a machine in series with it shares: e + respond(e) / stiffness = strain.

    By the secant method at every point on its own, begun with the slope of the curve there, so that laws that remember
    are solved whole histories at a time: some ten answers of the law where the specimen is as stiff as the machine.

    Args:
      respond: strain of the specimens -> stress (MPa), both [rows, points].
      strain: [rows, points]; stiffness: apparent modulus of the machine, [rows], MPa.

    Raises:
      InputError: the machine is so much softer than the specimen that no solution was found.
    """
    found, stiffness = strain, stiffness[:, None]
    allowed = _TOLERANCE * np.abs(strain).max(axis=1, keepdims=True)
    stress = respond(found)
    slope, step, before = _secants(strain, stress), np.zeros_like(strain), np.zeros_like(strain)
    stiffest = 1.0 + slope.max(axis=1, keepdims=True) / stiffness
    slope = 1.0 + slope / stiffness
    for _ in range(_MOST_STEPS):
        missing = strain - found - stress / stiffness
        if (np.abs(missing) <= allowed).all():
            return found
        moved = np.abs(step) > 1e-9 * allowed
        slope = np.where(moved, (before - missing) / np.where(moved, step, 1.0), slope)
        slope = np.clip(slope, 1.0, 2.0 * stiffest)
        step, before = missing / slope, missing
        found = found + step
        try:
            stress = respond(found)
        except InputError:
            # Out of where the law is defined, which the measured strain was not.
            break
    raise InputError(
        f"a machine stiffness of {float(stiffness.min()):g} MPa is too soft for some of the specimens, which would "
        "jump; give a larger --config.data.machine_stiffness"
    )


@dataclasses.dataclass(frozen=True)
class Apparatus:
    """What the tests of some specimens are driven and read by; [tests] each, None where it is ideal.

    Attributes:
      strain_offset: what the specimen's strain is beyond the driven one (-).
      stress_offset: what the measured stress is beyond the specimen's, or the specimen's beyond the driven one (MPa).
      slack: of a strain that rises from zero (-), see `after_toe`.
      stiffness: apparent modulus (MPa), see `specimen_strain`.
    """

    strain_offset: Array | None = None
    stress_offset: Array | None = None
    slack: Array | None = None
    stiffness: Array | None = None

    def answer(self, history: History, respond: Callable[[History], Array]) -> Array:
        """What the specimens answer (MPa or -) to a history as it is recorded, [tests, points]."""
        if history.strain is None:
            assert history.stress is not None
            if self.stress_offset is not None:
                moved = history.stress + self.stress_offset[:, None]
                history = dataclasses.replace(history, stress=moved)
            return respond(history)
        strain = history.strain
        if self.slack is not None:
            rises = rises_from_zero(strain)[:, None]
            strain = np.where(rises, after_toe(strain, self.slack), strain)
        if self.strain_offset is not None:
            strain = strain + self.strain_offset[:, None]
        if self.stiffness is not None:
            strain = specimen_strain(
                lambda found: respond(dataclasses.replace(history, strain=found)),
                strain,
                self.stiffness,
            )
        return respond(dataclasses.replace(history, strain=strain))

    def shown(self, history: History, answer: Array) -> Array:
        """What is measured of the specimens' answer, but for noise: [tests, points]."""
        if history.strain is not None:
            if self.stress_offset is None:
                return answer
            return np.asarray(answer + self.stress_offset[:, None])
        if self.stiffness is None:
            return answer
        assert history.stress is not None
        return np.asarray(answer + history.stress / self.stiffness[:, None])


def correlated(normal: Array, correlation: Array) -> Array:
    """A first-order autoregression of variance 1 and the same law at every point, made of white noise.

    z[i] = ρ z[i-1] + sqrt(1 - ρ²) n[i], z[0] = n[0] (G. E. P. Box, G. M. Jenkins, Time Series Analysis (1970), 3.2.3):
    the correlation of points i and j is ρ^|i-j|.

    Args:
      normal: independent standard normal numbers, [rows, points]; correlation: ρ, [rows], 0 up to below 1.
    """
    columns = np.array(normal.T, np.float64)
    fresh = np.sqrt(1.0 - correlation**2)
    for i in range(1, len(columns)):
        columns[i] = correlation * columns[i - 1] + fresh * columns[i]
    return np.ascontiguousarray(columns.T)


def thinned(
    history: History, counts: NDArray[np.int64], random: np.random.Generator
) -> tuple[History, NDArray[np.bool_]]:
    """The histories at `counts` [rows] of their points, drawn at random; ends and turning points are always kept.

    Returns:
      Histories of as many points as before, the last that is there repeated, and which are there, [rows, points].
    """
    driven = history.driven
    rows, points = driven.shape
    direction = np.sign(np.diff(driven, axis=1))
    kept = np.ones((rows, points), np.bool_)
    kept[:, 1:-1] = direction[:, 1:] != direction[:, :-1]
    counts = np.clip(counts, kept.sum(axis=1), points)
    order = np.argsort(np.where(kept, -1.0, random.random((rows, points))), axis=1)
    chosen = np.zeros((rows, points), np.bool_)
    np.put_along_axis(chosen, order, np.arange(points) < counts[:, None], axis=1)
    slots = np.arange(points)
    place = np.argsort(~chosen, axis=1, kind="stable")
    last = np.take_along_axis(place, counts[:, None] - 1, axis=1)
    valid = slots < counts[:, None]
    place = np.where(valid, place, last)

    def change(array: Array) -> Array:
        full = array.shape[1] == points
        return np.take_along_axis(np.broadcast_to(array, driven.shape), place, 1) if full else array

    return history.changed(change), valid

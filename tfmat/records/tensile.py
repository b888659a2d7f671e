"""The elastic part of a curve, its toe and its noise; what a tension test of a metal tells without any law."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array

# --------------------------------------------------------------------------------------------------
# The elastic part of a curve, and what lies before it: a toe, or a preload at which the strain was set to zero.
#
# A toe is what slack and seating leave at the start of a curve: it rises slowly, then as steeply as the material. The
# remedy of ASTM D638 and E111: the elastic part is drawn on to zero stress, and strain counts from there.


Indices = NDArray[np.intp]
# STIFFEST: modulus that no metal has, MPa.
STIFFEST = 450e3

# The elastic part is looked for in windows that rise by this share of the maximum stress, or so many times the noise
# where that is more, and that start below another share of it.
_WINDOW_RISE, _RISE_OVER_NOISE, _LATEST_START = 0.12, 20.0, 0.30
_FEWEST_POINTS = 5
# A densely measured curve is averaged to this many points below the end of the last window.
_MOST_POINTS = 150
# A toe must be less steep than this share of the elastic part, and shift it by so many standard errors.
_TOE_SLOPE, _SIGNIFICANT = 0.85, 4.0
# _CHORD_RISE: share of the maximum stress by which a chord rises.
_CHORD_RISE = 0.06
# _LATEST_CHORD: share of the maximum stress; no chord starts above it.
_LATEST_CHORD = 0.5
# _CHORD_ERRORS: standard errors by which chords must differ, as the steepest of many is taken.
_CHORD_ERRORS = 3.0
# _LEAST_TOE: share of the elastic strain; a shorter toe hardly moves a modulus. A clear one may be shorter.
_LEAST_TOE, _LEAST_CLEAR_TOE = 0.15, 0.10
# _BEGINS_BELOW: share of the largest stress at which a test that begins within its toe begins at most.
_BEGINS_BELOW = 0.15
# _HIGHEST_PRELOAD: share of the largest stress; a clear elastic part may be drawn back from there.
_HIGHEST_PRELOAD = 0.30
# _METALS: moduli of metals, MPa; a plastic strain, which begins at the yield stress, rises more slowly.
_METALS = (20e3, STIFFEST)
# _STRAIGHT: ratio of the slopes of both halves of a part that is straight.
_STRAIGHT = 0.85
# _LONGEST_TOE: share of the strain at maximum stress; a longer "toe" is the material's own shape.
_LONGEST_TOE = 0.15
# _SAME_VALUE: share of the largest value; what differs by less is the same but for the computer's rounding.
_SAME_VALUE = 1e-9
# _REPEATED: share of the rows; with fewer equal to the row before, a step is finer than what differs between rows.
_REPEATED = 0.1
# _EVEN: share of the rows; where more are as far from the row before as that is from its own, points are even.
_EVEN = 0.8
# _OF_STEP: share of a rounding's error that the mean of many rows at one step keeps at least, as they are not even.
_OF_STEP = 0.2
# _FEWEST_STEPS: distances between neighbouring levels; fewer show no step.
_FEWEST_STEPS = 6
# _WHOLE: a distance is a whole number of steps to this share of itself, but not of more steps than `_MOST_STEPS`.
_WHOLE, _MOST_STEPS = 2e-3, 100.0
# _MOSTLY: share of the distances that are whole numbers of steps.
_MOSTLY = 0.95
# _BY_CHANCE: noise by differences of another order is smaller by this over the root of the points in one case of a
# hundred where all are right: the ratio of both has a standard deviation of 0.85 over that root.
_BY_CHANCE = 2.0
# Neighbouring points whose scatter is compared with other points' where the noise of the strain is looked for.
_NOISE_WINDOW = 12


@dataclasses.dataclass(frozen=True)
class ElasticLine:
    """A straight line through the steepest early part of a curve.

    Attributes:
      slope: MPa; slope_error: its standard error.
      origin: strain at which the line meets zero stress; origin_error: its standard error.
      start: strain at which the part begins; end_stress: stress at which it ends, MPa.
      slope_before: slope of the curve before `start`, MPa, and its standard error; NaN with fewer than 3 points there.
    """

    slope: float
    slope_error: float
    origin: float
    origin_error: float
    start: float
    end_stress: float
    slope_before: float
    slope_before_error: float


def elastic_line(strain: Array, stress_mpa: Array) -> ElasticLine | None:
    """The steepest part of the start of a curve, by least squares over windows; None where it has too few points.

    Args:
      strain: [points], rising; stress_mpa: [points].
    """
    top = float(stress_mpa.max())
    noise = noise_of(stress_mpa)
    rise = max(_WINDOW_RISE * top, _RISE_OVER_NOISE * noise)
    reached = np.flatnonzero(stress_mpa >= _LATEST_START * top + rise)
    if not len(reached):
        return None
    group = -(-(reached[0] + 1) // _MOST_POINTS)
    e, s = _averaged(strain[: reached[0] + 1], stress_mpa[: reached[0] + 1], group)
    noise /= np.sqrt(group)
    best: tuple[float, int, int] | None = None
    highest = np.maximum.accumulate(s)
    for first in range(len(e) - _FEWEST_POINTS + 1):
        if s[first] > _LATEST_START * top:
            break
        end = int(np.searchsorted(highest, s[first] + rise)) + 1
        end = max(end, first + _FEWEST_POINTS)
        if end > len(e):
            break
        slope, error = _slope(e[first:end], s[first:end], noise)
        # The lower end of its interval, or a few noisy points would win.
        if best is None or slope - 2 * error > best[0]:
            best = slope - 2 * error, first, end
    if best is None or best[0] <= 0:
        return None
    return _line(e, s, best[1], best[2], noise)


@dataclasses.dataclass(frozen=True)
class StartShift:
    """How the start of a curve shifts its strain.

    Attributes:
      shift: to take off the strain, -.
      kind: `toe`, `preload`, or nothing.
      size: of a toe, -, counted from the first point.
      is_sure: the toe is clear and short enough to be taken off.
    """

    shift: float = 0.0
    kind: str = ""
    size: float = 0.0
    is_sure: bool = True


def toe_shift(
    strain: Array, stress_mpa: Array, line: ElasticLine | None, strain_error: float = 0.0
) -> StartShift:
    """The shift to take off the strain, and why; `strain_error`: standard deviation of a point, -."""
    is_chord = line is None
    line = line or steepest_chord(strain, stress_mpa, strain_error)
    if line is None:
        return StartShift()
    top = int(stress_mpa.argmax())
    largest = float(stress_mpa[top])
    first_stress = float(np.mean(stress_mpa[:2]))
    noise = noise_of(stress_mpa)
    toe = line.origin - float(strain[0])
    # It counts from the first point, which has the noise of the strain.
    of_first = max(noise_of(strain, orders=(2, 3, 4, 5)), strain_error)
    least = max(
        _SIGNIFICANT * math.hypot(line.origin_error, of_first),
        _LEAST_CLEAR_TOE * line.end_stress / line.slope,
    )
    if (
        abs(first_stress) < 0.05 * largest + 2 * noise
        and toe > least
        and line.slope_before + 2 * line.slope_before_error < _TOE_SLOPE * line.slope
    ):
        longest = _LONGEST_TOE * float(strain[top] - strain[0])
        if toe < longest:
            return StartShift(line.origin, "toe", toe)
    # A load at the start that the strain does not know of: strain was set to zero under a preload, or under the force
    # of the grips.
    # The second point may lie far from the start: the line leads back from it.
    start = float(strain[0])
    at_start = first_stress - line.slope * (float(np.mean(strain[:2])) - start)
    if is_chord:
        at_start = float(stress_mpa[0])
    expected = at_start / line.slope
    starts_low = line.start <= strain[0] + 0.1 * (strain[top] - strain[0])
    if (
        starts_low
        and max(0.02 * largest, 5 * noise) < min(abs(at_start), abs(float(stress_mpa[0])))
        and (abs(at_start) < 0.15 * largest or _is_elastic(strain, stress_mpa, line, largest))
        and float(stress_mpa[0]) * np.sign(at_start) > 0.5 * abs(at_start)
        and abs(start) < 0.3 * abs(expected)
        and abs(start - expected) > _SIGNIFICANT * strain_error
        and line.slope_error < 0.1 * line.slope
    ):
        return StartShift(start - expected, "preload")
    size = _visible_toe(strain, stress_mpa, strain_error)
    return StartShift(kind="toe", size=size, is_sure=False) if size else StartShift()


def _is_elastic(strain: Array, stress: Array, line: ElasticLine, largest: float) -> bool:
    """Whether a curve that begins under a high load begins elastically: straight, and as steep as a metal."""
    part = np.arange(len(stress)) <= int((stress >= line.end_stress).argmax())
    halves = np.array_split(np.flatnonzero(part), 2)
    if len(halves[1]) < 2 or float(stress[0]) > _HIGHEST_PRELOAD * largest:
        return False
    first, second = (_slope(strain[half], stress[half], 0.0)[0] for half in halves)
    return _METALS[0] < line.slope < _METALS[1] and second > _STRAIGHT * first


def elastic_part(strain: Array, stress_mpa: Array) -> ElasticLine | None:
    """The elastic line of a curve, or its steepest chord where a line has too few points; None where neither is."""
    return elastic_line(strain, stress_mpa) or steepest_chord(strain, stress_mpa)


def steepest_chord(
    strain: Array, stress_mpa: Array, strain_error: float = 0.0
) -> ElasticLine | None:
    """The steepest chord of the start of a curve, where an elastic line has too few points; None where none is.

    Args:
      strain: [points], rising; stress_mpa: [points].
      strain_error: standard deviation of a point's strain, as far as the points do not show it, -.
    """
    found = _chords(strain, stress_mpa, strain_error)
    if found is None:
        return None
    first, end, slope, error = found
    best = int(np.argmax(slope * (1.0 - _CHORD_ERRORS * error)))
    e, s, m = float(strain[first[best]]), float(stress_mpa[first[best]]), float(slope[best])
    end_stress = float(stress_mpa[end[best]])
    return ElasticLine(
        slope=m,
        slope_error=float(error[best]) * m,
        origin=e - s / m,
        origin_error=float(error[best]) * end_stress / m,
        start=e,
        end_stress=end_stress,
        slope_before=np.nan,
        slope_before_error=np.nan,
    )


def _chords(
    strain: Array, stress: Array, strain_error: float
) -> tuple[Indices, Indices, Array, Array] | None:
    """First and last points of early chords, their slopes (MPa) and relative errors; the first begins at point 0."""
    top = int(stress.argmax())
    largest, noise = float(stress[top]), noise_of(stress)
    e, s = strain[: top + 1], stress[: top + 1]
    rise = max(_CHORD_RISE * largest, _RISE_OVER_NOISE * noise)
    first = np.flatnonzero(s <= _LATEST_CHORD * largest)
    end = np.searchsorted(np.maximum.accumulate(s), s[first] + rise)
    held = end < len(s)
    held[held] = e[end[held]] > e[first[held]]
    first, end = first[held], end[held]
    if not len(first) or first[0] != 0:
        return None
    width, height = e[end] - e[first], s[end] - s[first]
    error = np.sqrt(2.0) * np.hypot(noise / height, max(noise_of(strain), strain_error) / width)
    return first, end, height / width, error


def _visible_toe(strain: Array, stress: Array, strain_error: float) -> float:
    """Size of a toe that is seen in chords, where few points or a long bend leave no sure elastic part; or 0."""
    found = _chords(strain, stress, strain_error)
    steepest = steepest_chord(strain, stress, strain_error)
    largest = float(stress.max())
    if found is None or steepest is None:
        return 0.0
    first = float(stress[0])
    # A test may begin within its toe: its first strain is then ahead of its load.
    is_ahead = 0.0 < first < _BEGINS_BELOW * largest and strain[0] > first / (
        _TOE_SLOPE * steepest.slope
    )
    if not is_ahead and abs(first) > 0.05 * largest + 2.0 * noise_of(stress):
        return 0.0
    _, _, slope, error = found
    sure = steepest.slope - _CHORD_ERRORS * steepest.slope_error
    if slope[0] * (1.0 + _CHORD_ERRORS * error[0]) > _TOE_SLOPE * sure:
        return 0.0
    size = steepest.origin - (0.0 if is_ahead else float(strain[0] - first / steepest.slope))
    elastic = steepest.end_stress / steepest.slope
    longest = _LONGEST_TOE * float(strain[int(stress.argmax())] - strain[0])
    return size if _LEAST_TOE * elastic < size < longest else 0.0


def noise_of(
    values: Array, turns: Sequence[int] = (), orders: Sequence[int] = (2,), fewest: int = 5
) -> float:
    """Standard deviation of the noise of a smooth curve, as its differences show it (their median: robust).

    Second differences of a curve with few points hold its bends too: differences of a further order count where they
    are smaller by more than chance. Noise that is alike at neighbouring points shows less than it is. Values in coarse
    steps, which stay the same from row to row, are off by the standard deviation of their rounding at least.

    Args:
      values: [points]; turns: points between branches, across which nothing is smooth.
      orders: of the differences, the first one at least.
      fewest: points; fewer show no noise.
    """
    if len(values) < fewest:
        return 0.0
    branches = np.split(values, turns)
    noise = 0.0
    for order in orders:
        parts = [np.diff(branch, order) for branch in branches if len(branch) > order]
        if parts:
            middle = float(np.median(np.abs(np.concatenate(parts))))
            found = 1.4826 * middle / np.sqrt(math.comb(2 * order, order))
            by_chance = _BY_CHANCE / np.sqrt(len(values))
            noise = found if order == orders[0] or found < (1.0 - by_chance) * noise else noise
    return float(max(noise, resolution_of(values) / np.sqrt(12.0)))


def resolution_of(values: Array, repeated: float = _REPEATED) -> float:
    """The step that values [points] are whole numbers of apart, as rounding makes it; 0 where there is none.

    Its values have an error of step / sqrt(12).

    Args:
      repeated: the share of the values that are equal to those before, at least; where a step is fine, few are.
    """
    moved = np.diff(values)
    if len(moved) < 2 * _FEWEST_STEPS or np.count_nonzero(moved == 0.0) < repeated * len(moved):
        return 0.0
    size = float(np.nanmax(np.abs(values), initial=0.0))
    way = np.abs(moved)
    even = np.abs(np.diff(way)) <= _WHOLE * np.nanmedian(way)
    if even.mean() > _EVEN and np.mean(way == 0.0) < 1.0 - _MOSTLY:
        return 0.0  # even points, also in pieces, at places that need no rounding
    levels, rows = np.unique(values[np.isfinite(values)], return_counts=True)
    apart = np.diff(levels)
    apart = apart[apart > _SAME_VALUE * size]
    if len(apart) < _FEWEST_STEPS:
        return 0.0
    least = float(apart.min())
    # No two neighbouring levels may be one step apart.
    for parts in (1, 2, 3):
        multiples = apart * parts / least
        whole = np.abs(multiples - np.rint(multiples)) < _WHOLE * np.maximum(multiples, 1.0)
        some = multiples < _MOST_STEPS
        if np.count_nonzero(some) >= _FEWEST_STEPS and whole[some].mean() > _MOSTLY:
            return least / parts
    # Steps of what the values were calculated from, such as a true strain of an engineering one.
    return float(np.median(apart)) if np.median(rows) > 1 else 0.0


@dataclasses.dataclass(frozen=True)
class StrainError:
    """The error of the strain of a curve's points, as far as the rows that were measured tell it.

    Attributes:
      deviation: standard deviation of each point, -.
      step: by rounding: the step, -; 0 where it is fine.
      shift: standard deviation of what points share, -.
    """

    deviation: float = 0.0
    step: float = 0.0
    shift: float = 0.0

    @classmethod
    def of_rounding(cls, strain: Array) -> "StrainError":
        """From strains [points] as they were measured, in their order."""
        step = resolution_of(strain, repeated=0.0)
        if step == 0.0:
            return cls()
        # Rows at one step stand all over it, though not evenly: their mean is off by a part of it.
        rows = len(strain) / (1 + np.count_nonzero(np.diff(strain)))
        deviation = step / np.sqrt(12.0) * max(1.0 / rows, _OF_STEP)
        return cls(deviation, step, deviation)


def noise_of_both(strain: Array, stress_mpa: Array) -> tuple[float, float]:
    """Standard deviations of the noise of the stress (MPa) and of the strain, 0 where the points show none of it.

    Where a curve is steep noise of the strain is noise of the stress too: a variance slope² sigma_strain² more. It is
    told from the variances about steep and flat parts, each about the chord of its two neighbours.

    Args:
      strain: [points], rising; stress_mpa: [points].
    """
    windows = len(strain) // _NOISE_WINDOW
    stress_noise = noise_of(stress_mpa)
    if windows < 3 or np.any(np.diff(strain) <= 0.0):
        return stress_noise, 0.0
    share = (strain[1:-1] - strain[:-2]) / (strain[2:] - strain[:-2])
    off = stress_mpa[1:-1] - (1.0 - share) * stress_mpa[:-2] - share * stress_mpa[2:]
    off /= np.sqrt(1.0 + share**2 + (1.0 - share) ** 2)
    slopes, found = np.empty(windows), np.empty(windows)
    parts = np.arange(windows + 1) * (len(strain) - 2) // windows
    for i, (a, b) in enumerate(itertools.pairwise(parts)):
        slopes[i] = _slope(strain[a : b + 2], stress_mpa[a : b + 2], 0.0)[0] ** 2
        found[i] = (1.4826 * float(np.median(np.abs(off[a:b])))) ** 2
    steep, flat = slopes > 0.5 * slopes.max(), slopes < 0.05 * slopes.max()
    if not steep.any() or not flat.any():
        return stress_noise, 0.0
    above, below = float(np.median(found[steep])), float(np.median(found[flat]))
    # Medians of n normal numbers tell a variance as well as 0.37 n squares do.
    counts = _NOISE_WINDOW * np.array([steep.sum(), flat.sum()])
    chance = 3.0 * np.sqrt((2.0 / (0.37 * counts)).sum())
    if not above > below * np.exp(chance):
        return stress_noise, 0.0
    return float(np.sqrt(below)), float(np.sqrt(np.median((found - below)[steep] / slopes[steep])))


def _line(e: Array, s: Array, first: int, end: int, noise: float) -> ElasticLine:
    slope, error = _slope(e[first:end], s[first:end], noise)
    mean_e, mean_s = float(e[first:end].mean()), float(s[first:end].mean())
    spread = max(float(np.std(s[first:end] - mean_s - slope * (e[first:end] - mean_e))), noise)
    origin_error = np.hypot(spread / slope / np.sqrt(end - first), mean_s / slope**2 * error)
    before, before_error = (
        _slope(e[: first + 1], s[: first + 1], noise) if first >= 3 else (np.nan, np.nan)
    )
    return ElasticLine(
        slope=slope,
        slope_error=error,
        origin=mean_e - mean_s / slope,
        origin_error=float(origin_error),
        start=float(e[first]),
        end_stress=float(s[end - 1]),
        slope_before=before,
        slope_before_error=before_error,
    )


def _slope(e: Array, s: Array, noise: float) -> tuple[float, float]:
    """Slope of the regression line and its standard error; a few points cannot say that they have less than `noise`."""
    de, ds = e - e.mean(), s - s.mean()
    square = float(de @ de)
    if square == 0:
        return 0.0, np.inf
    slope = float(de @ ds) / square
    residual = ds - slope * de
    spread = max(float(np.sqrt(residual @ residual / max(len(e) - 2, 1))), noise)
    return slope, spread / np.sqrt(square)


def _averaged(strain: Array, stress_mpa: Array, group: int) -> tuple[Array, Array]:
    """Means of `group` neighbouring points each."""
    if group == 1:
        return strain, stress_mpa
    starts = np.arange(0, len(strain), group)
    count = np.diff([*starts, len(strain)])
    return np.add.reduceat(strain, starts) / count, np.add.reduceat(stress_mpa, starts) / count


# --------------------------------------------------------------------------------------------------
# Properties that a tension test of a metal tells without any law: modulus, proof stress, strength and elongations.


# ISO 6892-1, annex G: the modulus is the slope between these shares of Rp0.2; where few points lie there, between the
# wider ones, and else the chord between two interpolated points.
_CHORDS = ((0.10, 0.40), (0.05, 0.50), (0.0, 0.50))
# A line is preferred to a chord between two points where its standard error is below this share of its slope, and
# where it ends below this share of Rp0.2.
_SURE_LINE, _ELASTIC = 0.1, 0.6
_OFFSET = 0.002
# _STIFFEST: MPa; no metal is (tungsten: 411 GPa), so that the line of such a modulus meets a curve before its own does.
_STIFFEST = 518e3
# _FAR_STEP: share of Rp0.2; the line of 0.2 % that meets the curve within a longer step of the stress tells a bound.
_FAR_STEP = 0.05
_NEIGHBOURS, _FEWEST_NEIGHBOURS = 2e-4, 12
# Shares of the strength: a load that falls by less after its maximum does not show that this was the maximum; one that
# falls below the second shows fracture, at a step of the third, or else at the end of the record.
_CLEAR_FALL, _BROKEN, _BREAK = 0.005, 0.3, 0.1

# _SURE_FALL: share of the strength; a fall by which a maximum is known whatever the rows without a strain hold.
_SURE_FALL = 0.05

# Field of `TensileProperties` -> its symbol and unit.
SYMBOLS = {
    "modulus_mpa": ("E", "MPa"),
    "proof_stress_mpa": ("Rp0.2", "MPa"),
    "upper_yield_strength_mpa": ("ReH", "MPa"),
    "lower_yield_strength_mpa": ("ReL", "MPa"),
    "tensile_strength_mpa": ("Rm", "MPa"),
    "uniform_elongation": ("Ag", "-"),
    "total_uniform_elongation": ("Agt", "-"),
    "elongation_after_fracture": ("A", "-"),
    "total_elongation": ("At", "-"),
}
# _ELONGATIONS: the fields among them that need the strain at the maximum load.
_ELONGATIONS = [name for name, (_, unit) in SYMBOLS.items() if unit == "-"]
# An upper yield point: the load falls by a share of it within this strain, and stays there for as much again.
_LATEST_YIELD, _YIELD_DROP, _LEAST_YIELD_DROP, _DEEPEST_YIELD_DROP = 0.03, 0.005, 0.02, 0.35
# The upper yield strength (ISO 6892-1): the load falls by this share of it, and by so many standard deviations of the
# noise, at no more than so much plastic strain: serrations of a flowing metal begin later.
_FALL, _SURELY, _EARLY = 0.005, 5.0, 0.003
# Strain behind it: means over the first length have no noise, the first of them is the initial transient; the load
# stays below it for the second length.
_WINDOW, _PLATEAU = 0.0005, 0.002
# Share of the fall by which the plateau may still fall; more is a neck.
_LEVEL = 0.5
# _ROUNDED: share of the largest value to which running means are rounded.
_ROUNDED = 1e-9
LARGEST_TRUE_STRAIN, _SMALLEST_STRETCH = 100.0, 1e-3


@dataclasses.dataclass(frozen=True)
class Property:
    """One property of a test.

    Attributes:
      value: in the unit of its field, or None where the record cannot tell it.
      how: the way it was got, or why there is none.
      at_least: the record ends too early: the property is this or more.
    """

    value: float | None
    how: str
    at_least: bool = False


@dataclasses.dataclass(frozen=True)
class TensileProperties:
    """The properties of one tension test, in engineering stress and strain.

    Attributes:
      modulus_mpa: chord modulus E, MPa.
      proof_stress_mpa: Rp0.2, the stress at 0.2 % plastic extension, MPa.
      upper_yield_strength_mpa, lower_yield_strength_mpa: ReH, ReL, MPa, where the load falls as yielding begins.
      tensile_strength_mpa: Rm, the stress at maximum load, MPa.
      uniform_elongation: Ag, plastic strain at maximum load, -; total_uniform_elongation: Agt, the total strain there.
      elongation_after_fracture: A, plastic strain at the end, -; total_elongation: At, the total strain there.
    """

    modulus_mpa: Property
    proof_stress_mpa: Property
    upper_yield_strength_mpa: Property
    lower_yield_strength_mpa: Property
    tensile_strength_mpa: Property
    uniform_elongation: Property
    total_uniform_elongation: Property
    elongation_after_fracture: Property
    total_elongation: Property

    def to_json(self) -> dict[str, Any]:
        """Field -> its symbol, value, unit, how it was got, and `at_least` where it is only a bound."""
        content = {}
        for name, (symbol, unit) in SYMBOLS.items():
            found: Property = getattr(self, name)
            content[name] = {
                "symbol": symbol,
                "value": found.value,
                "unit": unit,
                "how": found.how,
            } | ({"at_least": True} if found.at_least else {})
        return content


def tensile_properties(
    strain: Array, stress_mpa: Array, beyond: Array | None = None
) -> TensileProperties:
    """The properties of a tension test, from its whole record.

    Args:
      strain: [points], -, engineering, rising, zero where the load begins; stress_mpa: [points], MPa, engineering. Both
        beyond the maximum load too, where the record goes on.
      beyond: [rows], MPa, engineering stress of later rows, in which the strain was not measured; NaN where
        it is not known.
    """
    modulus, origin, proof = _modulus_and_proof(strain, stress_mpa)
    upper, lower = _yield_strengths(strain, stress_mpa, modulus, origin)
    known = {
        "modulus_mpa": modulus,
        "proof_stress_mpa": proof,
        "upper_yield_strength_mpa": upper,
        "lower_yield_strength_mpa": lower,
    }
    top = index_of_maximum_load(strain, stress_mpa, stress_mpa)
    strength = float(stress_mpa[top])
    smooth = running_mean(stress_mpa)
    later = np.empty(0) if beyond is None else running_mean(beyond[np.isfinite(beyond)])
    unknown = beyond is not None and len(later) < len(beyond)
    # A load that swings, by hum or serrations, has fallen as far before.
    late = smooth[:top][strain[:top] > 0.5 * strain[top]]
    swing = float(np.max(np.maximum.accumulate(late) - late, initial=0.0))
    fall = max(_CLEAR_FALL * strength, 3.0 * noise_of(stress_mpa), swing)
    highest = float(smooth.max())
    if len(later) and later.max() > highest + fall:
        return _without_strain_at_maximum(strain, np.concatenate([stress_mpa, later]), known)
    least = float(smooth[top:].min())
    if unknown:
        fall = max(fall, _SURE_FALL * strength)
    elif later.max(initial=0.0) < highest - fall:
        least = min(least, float(later.min(initial=np.inf)))
    reached = least < strength - fall
    too_early = "" if reached else f"; the record ends at strain {strain[-1]:.4g} without a maximum"
    where = "at the largest stress" if reached else "at the largest stress of the record"
    uniform = float(strain[top]) - origin
    return TensileProperties(
        **known,
        tensile_strength_mpa=Property(
            strength,
            f"largest engineering stress, at strain {strain[top]:.4g}{too_early}",
            not reached,
        ),
        uniform_elongation=_plastic(uniform, strength, modulus, f"{where}{too_early}", not reached),
        total_uniform_elongation=Property(uniform, f"total strain {where}{too_early}", not reached),
        **_elongations(
            strain, stress_mpa, top, origin, modulus, beyond is not None and len(beyond) > 0
        ),
    )


def _without_strain_at_maximum(
    strain: Array, stress: Array, known: dict[str, Property]
) -> TensileProperties:
    """The strength from all rows; no elongation where the strain was not measured to the maximum load."""
    none = Property(
        None,
        f"the strain was measured to {strain[-1]:.4g} only, before the maximum load",
    )
    top = int(stress.argmax())
    fall = max(_CLEAR_FALL * float(stress[top]), 3.0 * noise_of(stress))
    reached = bool(running_mean(stress)[top:].min() < stress[top] - fall)
    return TensileProperties(
        **known,
        tensile_strength_mpa=Property(
            float(stress[top]),
            f"largest engineering stress of the record, {top + 1 - len(strain)} points after the measured strain ends"
            f"{'' if reached else '; the record ends without a maximum'}",
            not reached,
        ),
        **dict.fromkeys(_ELONGATIONS, none),
    )


def with_capped_load(properties: TensileProperties, cap: float) -> TensileProperties:
    """The properties of a test whose load stayed at a limit (MPa): the strength is more, where it was is not known."""
    none = Property(None, f"the load was not measured beyond {cap:.4g} MPa")
    how = "the limit of the load cell, at which the load stays"
    return dataclasses.replace(
        properties,
        tensile_strength_mpa=Property(cap, how, at_least=True),
        **dict.fromkeys(_ELONGATIONS, none),
    )


def _modulus_and_proof(strain: Array, stress: Array) -> tuple[Property, float, Property]:
    """Modulus, the strain at which its line meets zero stress, and Rp0.2; each share of Rp0.2 needs Rp0.2: twice."""
    line = elastic_line(strain, stress)
    if line is None:
        reason = "too few points in the elastic part"
        return Property(None, reason), 0.0, Property(None, reason)
    slope, origin, how, is_bound = line.slope, line.origin, "", False
    for _ in range(3):
        proof, _ = _offset_stress(strain, stress, slope, origin)
        reference = float(stress.max()) if proof is None else proof
        slope, origin, how, is_bound = _chord(strain, stress, reference, line)
    proof, step = _offset_stress(strain, stress, slope, origin)
    share = "Rp0.2" if proof is not None else "the largest stress, as the record has no Rp0.2"
    modulus = Property(slope, f"{how} of {share}", is_bound)
    said = f"0.2 % offset from the line of slope {slope / 1e3:.4g} GPa through strain {origin:.3g}"
    if is_bound:
        start = float(strain[0] - stress[0] / _STIFFEST)
        proof, step = _offset_stress(strain, stress, _STIFFEST, start)
        said = f"hardly a point is elastic: 0.2 % offset from a line of {_STIFFEST / 1e3:.0f} GPa"
    if proof is None:
        reason = f"the record ends at strain {strain[-1]:.4g}, before 0.2 % plastic strain"
        return modulus, origin, Property(None, reason)
    # A curve bends above the line between two points that are far apart.
    return modulus, origin, Property(proof, said, is_bound or step > _FAR_STEP * proof)


def _chord(
    strain: Array, stress: Array, reference: float, line: ElasticLine
) -> tuple[float, float, str, bool]:
    """Slope, origin, their description, and whether it is a lower bound, as hardly a point is elastic.

    Between shares of a stress; where few points lie there, of the line.
    """
    rising = np.arange(len(stress)) <= int(np.argmax(stress >= 0.6 * reference))
    for low, high in _CHORDS:
        held = rising & (stress >= low * reference) & (stress <= high * reference)
        e, s = strain[held], stress[held]
        if len(e) >= _FEWEST_POINTS and np.ptp(s) > 0.5 * (high - low) * reference:
            fitted = float(np.polyfit(e - e.mean(), s, 1)[0])
            if fitted > 0:
                how = (
                    f"least squares through {len(e)} points from {s.min():.3g} to {s.max():.3g} MPa"
                )
                shares = f"{100 * low:.0f} to {100 * high:.0f} %"
                return fitted, float(e.mean() - s.mean() / fitted), f"{how}, {shares}", False
    low, high = _CHORDS[0]
    steepest = "few points from 10 to 40 %: least squares over the steepest early part, up to"
    how = f"{steepest} {line.end_stress:.3g} MPa or {100 * line.end_stress / reference:.0f} %"
    if line.slope_error < _SURE_LINE * line.slope and line.end_stress < _ELASTIC * reference:
        return line.slope, line.origin, how, False
    highest = np.maximum.accumulate(stress)
    bottom, top = max(low * reference, float(stress[0])), high * reference
    ends = np.interp([bottom, top], highest[rising], strain[rising])
    if ends[1] > ends[0] and top > bottom:
        fitted = (top - bottom) / float(ends[1] - ends[0])
        few = "uncertain, as few points lie there: chord between two interpolated points at"
        how = f"{few} {100 * bottom / reference:.0f} and {100 * high:.0f} %"
        is_between = not np.any((strain > ends[0]) & (strain < ends[1]))
        return fitted, float(ends[0] - bottom / fitted), how, is_between
    return line.slope, line.origin, how, True


def _offset_stress(
    strain: Array, stress: Array, slope: float, origin: float
) -> tuple[float | None, float]:
    """The stress at which the curve meets the line of 0.2 % plastic strain, or None, and its step there, MPa."""
    above = stress - slope * (strain - origin - _OFFSET)
    crossed = np.flatnonzero((above[1:] <= 0) & (above[:-1] > 0))
    if not len(crossed):
        return None, 0.0
    i = int(crossed[0])
    # In a dense record the noise of single points lets the first crossing come early: a line through its neighbours.
    near = np.abs(strain - strain[i]) < _NEIGHBOURS
    if np.count_nonzero(near) >= _FEWEST_NEIGHBOURS:
        tangent = float(np.polyfit(strain[near] - strain[near].mean(), stress[near], 1)[0])
        ahead = float(np.mean(above[near])) / (slope - tangent)
        return slope * (float(strain[near].mean()) + ahead - origin - _OFFSET), 0.0
    share, step = float(above[i] / (above[i] - above[i + 1])), float(stress[i + 1] - stress[i])
    return float(stress[i]) + share * step, step


def _yield_strengths(
    strain: Array, stress: Array, modulus: Property, origin: float
) -> tuple[Property, Property]:
    """ReH and ReL: the largest stress before the load falls at yielding, and the lowest of the plateau behind it."""
    none = Property(None, "the load does not fall as yielding begins")
    highest = np.maximum.accumulate(stress)
    fall = np.maximum(_FALL * highest, _SURELY * noise_of(stress))
    fallen = np.flatnonzero(highest - stress > fall)
    if not len(fallen) or modulus.value is None:
        return none, none
    top = int(stress[: fallen[0]].argmax())
    upper, start = float(stress[top]), float(strain[top])
    early = start < _LATEST_YIELD and start - origin - upper / modulus.value < _EARLY
    behind = strain >= start
    # Strains in a mistaken unit may make more windows than memory holds: only windows with points count.
    windows, which = np.unique((strain[behind] - start) // _WINDOW, return_inverse=True)
    means = np.bincount(which, stress[behind]) / np.bincount(which)
    at = start + _WINDOW * windows
    plateau = means[(at > start) & (at < start + _PLATEAU)]
    if not early or not len(plateau) or plateau.max() > upper - fall[top]:
        return none, none
    drop = upper - float(plateau.mean())
    lowest = upper - (1.0 + _LEVEL) * drop
    # The plateau ends where the load rises above its first maximum, at another maximum, or with the record.
    after = means[1 + len(plateau) :]
    above = np.flatnonzero(after > upper)
    level = after[len(plateau) :].max(initial=-np.inf) > lowest
    end = len(after)
    if len(above):
        end = int(above[0])
    elif level and after[-1] < lowest:
        end = int(after.argmax())
    lower = float(means[1 : 1 + len(plateau) + end].min())
    if not level or lower < (1.0 - _DEEPEST_YIELD_DROP) * upper:
        return none, none
    return (
        Property(upper, f"largest stress before the load first falls, at strain {start:.4g}"),
        Property(lower, f"lowest mean over {_WINDOW:.2%} of strain behind it, but for the first"),
    )


def _plastic(
    total: float, stress: float, modulus: Property, where: str, at_least: bool = False
) -> Property:
    if modulus.value is None:
        return Property(None, f"without a modulus the plastic part is not known ({modulus.how})")
    return Property(total - stress / modulus.value, f"total less elastic strain {where}", at_least)


def _elongations(
    strain: Array, stress: Array, top: int, origin: float, modulus: Property, goes_on: bool
) -> dict[str, Property]:
    """Elongation at fracture, total and plastic, where the record holds the fracture.

    Args:
      goes_on: the strain was not measured to the end.
    """
    if goes_on:
        none = Property(
            None, f"the strain was measured to {strain[-1]:.4g} only, not to the fracture"
        )
        return {"elongation_after_fracture": none, "total_elongation": none}
    strength = float(stress[top])
    steps = -np.diff(stress[top:])
    if not len(steps) or stress[-1] > _BROKEN * strength:
        none = Property(
            None,
            f"the record ends at strain {strain[-1]:.4g} with {100 * stress[-1] / strength:.0f} % of the maximum load, "
            "without a fracture",
        )
        return {"elongation_after_fracture": none, "total_elongation": none}
    breaks = steps.max() > _BREAK * strength
    last = top + int(steps.argmax()) if breaks else len(strain) - 1
    where = (
        "at the last point before the load breaks down" if breaks else "at the end of the record"
    )
    where += f" ({stress[last]:.3g} MPa), over the gauge length of the strain"
    total = float(strain[last] - origin)
    return {
        "elongation_after_fracture": _plastic(total, float(stress[last]), modulus, where),
        "total_elongation": Property(total, f"total strain {where}"),
    }


def engineering_stress(strain: Array, stress: Array, measures: tuple[str, str]) -> Array:
    """Load over the first cross-section, [points], of a curve in these measures, at constant volume."""
    if measures[1] == "engineering":
        return stress
    return stress / stretch_of(strain, measures[0])


def stretch_of(strain: Array, measure: str) -> Array:
    """Length over first length, [points]; within what is finite, for strains in another unit than they seem to be."""
    if measure == "true":
        return np.exp(np.clip(strain, -LARGEST_TRUE_STRAIN, LARGEST_TRUE_STRAIN))
    return np.maximum(1.0 + strain, _SMALLEST_STRETCH)


def index_of_maximum_load(strain: Array, load: Array, smooth: Array) -> int:
    """The point of maximum load; an upper yield point, from which the load falls to a plateau, is none (ISO 6892-1).

    Args:
      strain, load: [points], in the order in which they were measured; smooth: the load without its noise, [points].
    """
    top = int(load.argmax())
    end = strain[top] + _YIELD_DROP
    later = np.flatnonzero((strain > end) & (np.arange(len(strain)) > top))
    if strain[top] > _LATEST_YIELD or not len(later):
        return int(smooth.argmax())
    plateau = load[later[strain[later] < end + _YIELD_DROP]]
    fall = load[top] - plateau[0] if len(plateau) else 0.0
    drops = _LEAST_YIELD_DROP * load[top] < fall < _DEEPEST_YIELD_DROP * load[top]
    if drops and np.abs(plateau - plateau[0]).max() < 0.25 * fall:
        return int(later[smooth[later].argmax()])
    return int(smooth.argmax())


def running_mean(values: Array) -> Array:
    """Running means over a hundredth of the points, [points]; the ends as they are."""
    half = len(values) // 200
    if not half:
        return values
    smooth = values.copy()
    sums, width = np.cumsum(np.append(0.0, values)), 2 * half + 1
    # Means of a plateau stay equal: they are rounded by more than the sums are.
    unit = _ROUNDED * float(np.abs(values).max()) or 1.0
    means = (sums[width:] - sums[:-width]) / width
    smooth[half : len(values) - half] = np.round(means / unit) * unit
    return smooth

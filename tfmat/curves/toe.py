"""The elastic part of a curve, and what lies before it: a toe, or a preload at which the strain was set to zero.

A toe is what slack and seating leave at the start of a curve: it rises slowly, then as steeply as the material. The
remedy of ASTM D638 and E111: the elastic part is drawn on to zero stress, and strain counts from there.
"""

import dataclasses

import numpy as np

from tfmat.materials.law import Array

# The elastic part is looked for in windows that rise by this share of the maximum stress, or so many times the noise
# where that is more, and that start below another share of it.
_WINDOW_RISE, _RISE_OVER_NOISE, _LATEST_START = 0.12, 20.0, 0.30
_FEWEST_POINTS = 5
# A densely measured curve is averaged to this many points below the end of the last window.
_MOST_POINTS = 150
# A toe must be less steep than this share of the elastic part, and shift it by so many standard errors.
_TOE_SLOPE, _SIGNIFICANT = 0.75, 4.0
# Of the strain at maximum stress: a longer "toe" is the material's own shape.
_LONGEST_TOE = 0.15


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


def toe_shift(strain: Array, stress_mpa: Array, line: ElasticLine | None) -> tuple[float, str]:
    """What to take off the strain, and why: `toe`, `preload`, or 0 and nothing where there is neither."""
    if line is None:
        return 0.0, ""
    top = int(stress_mpa.argmax())
    largest = float(stress_mpa[top])
    first_stress = float(np.mean(stress_mpa[:2]))
    noise = noise_of(stress_mpa)
    toe = line.origin - float(strain[0])
    if (
        abs(first_stress) < 0.05 * largest + 2 * noise
        and _SIGNIFICANT * line.origin_error < toe < _LONGEST_TOE * (strain[top] - strain[0])
        and line.slope_before + 2 * line.slope_before_error < _TOE_SLOPE * line.slope
    ):
        return line.origin, "toe"
    # A load at the start that the strain does not know of: strain was set to zero under a preload.
    expected, first_strain = first_stress / line.slope, float(np.mean(strain[:2]))
    starts_low = line.start <= strain[0] + 0.1 * (strain[top] - strain[0])
    if (
        starts_low
        and max(0.02 * largest, 5 * noise) < first_stress < 0.15 * largest
        and abs(first_strain) < 0.3 * expected
        and line.slope_error < 0.1 * line.slope
    ):
        return first_strain - expected, "preload"
    return 0.0, ""


def noise_of(values: Array) -> float:
    """Standard deviation of the noise of a smooth curve, from its second differences (their median: robust)."""
    if len(values) < 5:
        return 0.0
    return float(1.4826 * np.median(np.abs(np.diff(values, 2))) / np.sqrt(6.0))


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

"""How a real test departs from its law: noise, a smooth misfit, a wrong zero, few recorded points."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array
from tfmat.records.settings import (
    OBSERVATION,
    CurveSettings,
    after_toe,
    checked_observation,
    correlated,
    drawn_offset,
    log_uniform,
    not_negative,
    positive_pair,
    refused,
    specimen_strain,
)

# --------------------------------------------------------------------------------------------------
# What a laboratory adds to curves that hold no noise and follow no law that is known here.


@dataclasses.dataclass(frozen=True)
class Laboratory:
    """Options of the same names and meanings as in `CurveSettings`; InputError names the one that is wrong.

    Attributes:
      max_strain: range that the end of a copy is drawn from, never beyond the curve's own; None is the curve's own.
    """

    noise_mpa: float = 0.0
    noise_relative: float = 0.0
    max_strain: tuple[float, float] | None = None
    noise_of_maximum: tuple[float, float] | None = None
    noise_correlation: tuple[float, float] | None = None
    measured_points: tuple[int, int] | None = None
    strain_offset: tuple[float, float] | None = None
    stress_offset: tuple[float, float] | None = None
    toe: tuple[float, float] | None = None
    machine_stiffness: tuple[float, float] | None = None
    misfit: tuple[float, float] | None = None
    yield_spread: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        checked = checked_observation({name: getattr(self, name) for name in OBSERVATION})
        for name in ("noise_mpa", "noise_relative"):
            checked[name] = not_negative(f"data.{name}", getattr(self, name))
        if checked["noise_relative"] >= 1:
            raise refused("data.noise_relative", self.noise_relative, "a fraction below 1")
        if self.max_strain is not None:
            checked["max_strain"] = positive_pair("data.max_strain", self.max_strain, "0.01,0.05")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Laboratory":
        """A laboratory with the given options; InputError for one that there is not."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                raise InputError(f"a laboratory has no '{name}'{nearest(name, known)}")
        return cls(**options)

    def to_json(self) -> dict[str, Any]:
        """The options that are in use."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v}


# --------------------------------------------------------------------------------------------------
# How a real test departs from its law: a rounded knee, a smooth misfit, a wrong zero, noise, few recorded points.
#
# Each is an option of `CurveSettings`, drawn log-uniformly for every curve. Whole blocks of curves at a time, as
# arrays. What tests have of it too is in `apparatus`: a slack start, a machine that gives way, noise of neighbours
# that is alike.
#
# The knee. Grains yield one after the other: elements in parallel, alike but for their yield stress, which is spread
# evenly on a log scale (the overlay model: G. Masing, Proc. 2nd Int. Congress of Applied Mechanics (1926) 332-335; J.
# F. Besseling, J. Applied Mechanics 25 (1958) 529-536). An element whose yield stress is e^-x times the law's bears
# stress(ε e^x) e^-x, so that the secant modulus of the whole is the mean of the law's over a window of ln ε. The
# window is moved so that a curve that no longer hardens keeps its stress: modulus and plateau stay those of the
# parameters.
#
# The misfit. A factor 1 + g(ln ε) on the stress, g a stationary Gaussian process nearly: a sum of few cosines with
# random frequencies (A. Rahimi, B. Recht, Random features for large-scale kernel machines, NeurIPS 2007).
#
# The record. A machine records so many points; between them, `resampling.resample` draws straight lines, and averages
# where they are dense. `resample_rows` does the same for many curves at once.


# The deviation of neighbouring strains ε, e ε is correlated by exp(-1/2).
MISFIT_LENGTH = 1.0
COSINES = 4
# Strain goes as (j / N) ** p at the record's points j = 1 ... N; a test that begins slowly has p > 1.
RECORD_SPACING = (1.0, 3.0)
# Of the table of secant moduli over ln ε: its spacing, and where it begins as a share of the largest strain.
_TABLE_STEP, _TABLE_START = 0.05, 2e-5

# Streams of random numbers, after those that `simulate` draws from.
_NOISE_LEVEL, _RECORD, _MISFIT, _YIELD_SPREAD, _STRAIN_OFFSET = range(4, 9)
_CORRELATION, _STRESS_OFFSET, _TOE, STIFFNESS_STREAM = range(9, 13)

LawStress = Callable[[Array, Array], Array]


@dataclasses.dataclass
class Observation:
    """What the observation model draws once a curve, [curves]; None where it is off."""

    settings: CurveSettings | Laboratory
    noise: Array | None
    counts: NDArray[np.int64] | None
    spacing: Array | None
    strain_offset: Array | None
    deviation: Array | None
    normal: Array
    phase: Array
    yield_spread: Array | None
    correlation: Array | None
    stress_offset: Array | None
    toe: Array | None
    stiffness: Array | None

    @classmethod
    def draw(
        cls,
        settings: CurveSettings | Laboratory,
        generator_of: Callable[[int], np.random.Generator],
        curves: int,
    ) -> "Observation":
        """Draws for so many curves; each thing comes from the generator of its own stream."""
        counts = spacing = None
        if settings.measured_points is not None:
            record = generator_of(_RECORD)
            low, high = settings.measured_points
            # Each whole number stands for the half below and above it.
            drawn = log_uniform((low - 0.5, high + 0.5), record.random(curves))
            counts = np.clip(np.rint(drawn), low, high).astype(np.int64)
            spacing = record.uniform(*RECORD_SPACING, curves)
        misfit = generator_of(_MISFIT)
        deviation = settings.misfit and log_uniform(settings.misfit, misfit.random(curves))

        def one_each(limits: tuple[float, float] | None, stream: int) -> Array | None:
            return limits and log_uniform(limits, generator_of(stream).random(curves))

        normal, phase = misfit.standard_normal((curves, COSINES)), misfit.random((curves, COSINES))
        return cls(
            settings=settings,
            noise=one_each(settings.noise_of_maximum, _NOISE_LEVEL),
            counts=counts,
            spacing=spacing,
            strain_offset=drawn_offset(
                settings.strain_offset, generator_of(_STRAIN_OFFSET), curves
            ),
            deviation=deviation,
            normal=normal,
            phase=phase,
            yield_spread=one_each(settings.yield_spread, _YIELD_SPREAD),
            correlation=one_each(settings.noise_correlation, _CORRELATION),
            stress_offset=drawn_offset(
                settings.stress_offset, generator_of(_STRESS_OFFSET), curves
            ),
            toe=one_each(settings.toe, _TOE),
            stiffness=one_each(settings.machine_stiffness, STIFFNESS_STREAM),
        )

    def stress(
        self,
        law_stress: LawStress,
        strain: Array,
        parameters: Array,
        chosen: NDArray[np.int64],
        generator: np.random.Generator,
        grid: Array,
    ) -> Array:
        """The stress that a test shows, [rows, points], MPa.

        Args:
          law_stress: of the law, (strain [rows, points], parameters) -> MPa.
          strain: [rows, points], as shares `grid` [points] of the largest; parameters: [rows, parameters].
          chosen: [rows], which of the curves these are.
          generator: of the noise of single points.
        """
        counts, at = None, strain
        if self.counts is not None and self.spacing is not None:
            counts = self.counts[chosen]
            at = recorded_strain(strain[:, -1], counts, self.spacing[chosen])

        def answer(strained: Array) -> Array:
            strained = np.maximum(strained, 0.0)
            if self.yield_spread is None:
                return law_stress(strained, parameters)
            return rounded_stress(law_stress, strained, parameters, self.yield_spread[chosen])

        strained = at if self.toe is None else after_toe(at, self.toe[chosen])
        if self.strain_offset is not None:
            # A record counts from (0, 0), whatever its zero is worth.
            strained = np.maximum(strained + self.strain_offset[chosen, None], 0.0) * (at > 0.0)
        if self.stiffness is not None:
            strained = specimen_strain(answer, strained, self.stiffness[chosen])
        stress = answer(strained)
        noise_free = stress
        if self.deviation is not None:
            shape = smooth_deviation(at, self.normal[chosen], self.phase[chosen])
            stress = stress * (1.0 + self.deviation[chosen, None] * shape)
        absolute = np.full(len(chosen), self.settings.noise_mpa or 0.0)
        if self.noise is not None:
            absolute = np.hypot(absolute, self.noise[chosen] * np.abs(noise_free).max(axis=1))
        deviation = np.hypot(absolute[:, None], self.settings.noise_relative * noise_free)
        normal = generator.standard_normal(stress.shape, np.float32)
        if self.correlation is not None:
            normal = correlated(normal, self.correlation[chosen])
        stress = stress + deviation * normal
        if self.stress_offset is not None:
            stress = stress + self.stress_offset[chosen, None]
        return stress if counts is None else resample_rows(at, stress, counts, grid)


def before_break(stress: Array, strength: Array) -> NDArray[np.bool_]:
    """True up to and with the first point whose stress exceeds the curve's strength; [curves, points]."""
    exceeds = stress > strength[:, None]
    points = stress.shape[1]
    last = np.where(exceeds.any(axis=1), exceeds.argmax(axis=1), points)
    return np.arange(points) <= last[:, None]


def recorded_strain(end: Array, counts: NDArray[np.int64], spacing: Array) -> Array:
    """Strains at which a machine recorded: [curves, largest count]; beyond a curve's own count its last one.

    Args:
      end: largest strain, [curves]; counts: points, [curves]; spacing: see RECORD_SPACING, [curves].
    """
    share = np.arange(1, int(counts.max()) + 1) / counts[:, None]
    np.minimum(share, 1.0, out=share)
    return end[:, None] * share ** spacing[:, None]


def rounded_stress(stress: LawStress, strain: Array, parameters: Array, spread: Array) -> Array:
    """Stress of elements whose yield stresses are spread, see above.

    Args:
      stress: of the law, (strain [curves, points], parameters) -> MPa.
      strain: [curves, points], its largest in the last place; parameters: [curves, parameters].
      spread: half the range of ln(yield stress), [curves], positive.

    Returns:
      [curves, points], MPa.
    """
    shift = np.log(np.sinh(spread) / spread)
    last = float((spread + shift).max())
    size = int(np.ceil((last - np.log(_TABLE_START)) / _TABLE_STEP)) + 2
    log_strain = np.log(_TABLE_START) + _TABLE_STEP * np.arange(size)
    table_strain = strain[:, -1:] * np.exp(log_strain)
    secant = stress(table_strain, parameters) / table_strain
    integral = np.zeros_like(secant)
    np.cumsum(0.5 * _TABLE_STEP * (secant[:, 1:] + secant[:, :-1]), axis=1, out=integral[:, 1:])
    # In steps of the table; below it the curve is elastic, and its secant modulus is that of the first entry.
    ratio = np.maximum(strain / strain[:, -1:], 1e-30)
    place = (np.log(ratio) - np.log(_TABLE_START)) / _TABLE_STEP
    above, below = (
        _antiderivative(secant, integral, place + ((shift + sign * spread) / _TABLE_STEP)[:, None])
        for sign in (1.0, -1.0)
    )
    return strain * (above - below) / (2.0 * spread[:, None])


def _antiderivative(values: Array, integral: Array, place: Array) -> Array:
    """Integral to `place` [rows, points], in steps, of lines between values [rows, table]; constant before it."""
    rows, size = values.shape
    index = np.clip(place.astype(np.int64), 0, size - 2)
    inside = place - index
    start = index + size * np.arange(rows)[:, None]
    first = values.ravel()[start]
    slope = np.where(place < 0.0, 0.0, values.ravel()[start + 1] - first)
    return integral.ravel()[start] + _TABLE_STEP * inside * (first + 0.5 * inside * slope)


def smooth_deviation(strain: Array, normal: Array, phase: Array) -> Array:
    """A smooth random function of ln ε with mean 0 and variance 1 over the draws: [curves, points].

    Args:
      strain: [curves, points], not negative.
      normal: [curves, COSINES], standard normal; phase: [curves, COSINES], uniform in 0-1.
    """
    log_strain = np.log(np.maximum(strain, 1e-9)).astype(np.float32)
    total = np.zeros_like(log_strain)
    for frequency, turn in zip((normal / MISFIT_LENGTH).T, (2 * np.pi * phase).T, strict=True):
        total += np.cos(
            log_strain * frequency[:, None].astype(np.float32) + turn[:, None].astype(np.float32)
        )
    return total * np.sqrt(2.0 / COSINES)


def resample_rows(strain: Array, stress: Array, counts: NDArray[np.int64], grid: Array) -> Array:
    """`resampling.resample` for many curves at once: measured points -> stress at the grid's points.

    Args:
      strain, stress: [curves, most points]; of each row the first `counts` are measured, strain rising from above 0.
      counts: [curves].
      grid: [points], rising from 0 to 1: places of the curve's points as shares of its largest strain.

    Returns:
      Stress, [curves, points], MPa.
    """
    rows, points = len(strain), len(grid)
    end = strain[np.arange(rows), counts - 1][:, None]
    share = strain / end
    measured = np.arange(strain.shape[1]) < counts[:, None]
    row = np.broadcast_to(np.arange(rows)[:, None], strain.shape)[measured]
    share, stress = share[measured], stress[measured]
    cell = row * points + np.searchsorted((grid[1:] + grid[:-1]) / 2, share)
    size = rows * points
    count = np.bincount(cell, minlength=size)
    held = count > 0
    mean_share = np.bincount(cell, share, size)[held] / count[held]
    mean_stress = np.bincount(cell, stress, size)[held] / count[held]
    # Of every row: (0, 0), its means, and the line through its last two means drawn on to its end. One call of
    # `interp` for all: row i stands at 2 i to 2 i + 1.
    of_row = np.flatnonzero(held) // points
    knots = np.bincount(of_row, minlength=rows)
    begin = np.concatenate([[0], np.cumsum(knots + 2)[:-1]])
    x, y = np.zeros(len(of_row) + 2 * rows), np.zeros(len(of_row) + 2 * rows)
    place = np.arange(len(of_row)) + 1 + 2 * of_row
    x[place], y[place] = mean_share, mean_stress
    last = begin + knots
    slope = (y[last] - y[last - 1]) / (x[last] - x[last - 1])
    x[last + 1], y[last + 1] = 1.0, y[last] + slope * (1.0 - x[last])
    x += 2.0 * np.repeat(np.arange(rows), knots + 2)
    targets = grid + 2.0 * np.arange(rows)[:, None]
    return np.interp(targets.ravel(), x, y).reshape(rows, points)

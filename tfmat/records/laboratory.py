"""How a real test departs from its law: noise, slack, a machine that gives way, a smooth misfit, few points."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array, History

# --------------------------------------------------------------------------------------------------
# Checks of single settings of a simulation; what is refused names the flag.


# FEWEST_POINTS, _MOST_MEASURED: points that a simulated machine may record.
FEWEST_POINTS = 8
_MOST_MEASURED = 10_000
# Options of the observation model, stored only where they are used: an example, and the most that each may be.
_LIMITS: dict[str, tuple[str, float]] = {
    "noise_of_maximum": ("0.0005,0.005", 0.5),
    "noise_correlation": ("0.2,0.9", 0.999),
    "strain_offset": ("5e-6,2e-4", 0.01),
    "stress_offset": ("0.1,2", math.inf),
    "toe": ("1e-4,2e-3", 0.1),
    "machine_stiffness": ("5e4,5e5", math.inf),
    "misfit": ("0.001,0.02", 0.5),
    "yield_spread": ("0.05,0.7", 2.0),
}
OBSERVATION = (*_LIMITS, "measured_points")
# MORE_THAN_NOISE: options that are no independent noise.
MORE_THAN_NOISE = tuple(name for name in _LIMITS if name != "noise_of_maximum")


def refused(name: str, value: object, expected: str) -> InputError:
    return InputError(f"--config.{name} is {value!r}; give {expected}")


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def number(name: str, value: Any) -> float:
    try:
        found = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise refused(name, value, "a number")
    return found


def not_negative(name: str, value: Any) -> float:
    found = number(name, value)
    if found < 0:
        raise refused(name, value, "0 (none) or a positive number")
    return found


def pair(name: str, value: Any) -> tuple[float, float]:
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise refused(name, value, f"two numbers, --config.{name}=LOW,HIGH")
    return number(name, value[0]), number(name, value[1])


def positive_pair(name: str, value: Any, example: str) -> tuple[float, float]:
    low, high = pair(name, value)
    if not 0 < low <= high:
        raise refused(name, value, f"0 < low <= high, e.g. --config.{name}={example}")
    return low, high


def checked_observation(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the observation model, name -> None or a checked pair."""
    checked: dict[str, Any] = {"measured_points": None}
    for name, (example, most) in _LIMITS.items():
        checked[name] = None
        if (limits := given[name]) is not None:
            checked[name] = positive_pair(f"data.{name}", limits, example)
            if checked[name][1] > most:
                raise refused(f"data.{name}", limits, f"{most:g} at most, e.g. {example}")
    if (limits := given["measured_points"]) is not None:
        low, high = positive_pair("data.measured_points", limits, "15,400")
        whole = low == int(low) and high == int(high)
        if not whole or low < FEWEST_POINTS or high > _MOST_MEASURED:
            raise refused(
                "data.measured_points",
                limits,
                f"whole numbers from {FEWEST_POINTS} to {_MOST_MEASURED}, e.g. 15,400",
            )
        checked["measured_points"] = int(low), int(high)
    return checked


# --------------------------------------------------------------------------------------------------
# The way from a specimen to its record: slack, a machine that gives way, correlated noise, points left out.
#
# Whole blocks of curves or tests at a time, as arrays [rows, points].


# _TOLERANCE: error of a specimen's strain in series with a machine, as a share of the largest strain.
_TOLERANCE = 1e-6
# _MOST_STEPS: steps of the search for it.
_MOST_STEPS = 60
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
    """Rows that begin at zero and never turn, to either side: [rows, points] -> [rows]."""
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

    The secant method works at every point on its own and begins with the slope of the curve there. Laws that remember
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
    """The errors by which tests of some specimens are driven and read; [tests] each, None where there is none.

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
        """The specimens' answer (MPa or -) to a history that was recorded, [tests, points]."""
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
        """The measured part of the specimens' answer, but for noise: [tests, points]."""
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


# --------------------------------------------------------------------------------------------------
# The options of a laboratory, which adds to curves that hold no noise and follow no law that is known here.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Laboratory:
    """Options of what tests and their records add to a law. Checked on creation, InputError names the flag.

    Attributes:
      noise_mpa: standard deviation of the Gaussian stress noise; 0 is none.
      noise_relative: standard deviation as a fraction of the point's own stress, added in quadrature.
      max_strain: range that the end of a copy is drawn from, never beyond the curve's own; None is the curve's own.

    Real tests differ in more than their parameters. Each of these is drawn log-uniformly from (low, high) for every
    curve, and None leaves it out:
      noise_of_maximum: further noise in quadrature, standard deviation as a fraction of the curve's largest stress.
      noise_correlation: of the noise of neighbouring points, which is a first-order autoregression then.
      measured_points: points that the machine records. A curve's go onto its points as a measured file's do.
        A test's stand in its record themselves, and the rest is padding.
      strain_offset: standard deviation of an error of the strain's zero, as seating and preload leave it; of tests that
        drive the strain.
      stress_offset: standard deviation of an error of the stress's zero, MPa.
      toe: slack (-) that a strain which rises from zero takes up first.
      machine_stiffness: apparent modulus (MPa) of what gives way beside the specimen: the strain that is measured is
        the specimen's and stress / stiffness.
      misfit: standard deviation of a smooth deviation from the law, as a fraction of the stress.
      yield_spread: half the range of ln(yield stress) within the specimen: it rounds the knee.
    """

    noise_mpa: float | None = 0.0
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
        for name, value in self._checked().items():
            object.__setattr__(self, name, value)

    def _checked(self) -> dict[str, Any]:
        """Option -> its checked value; InputError names the one that is wrong."""
        checked = checked_observation({name: getattr(self, name) for name in OBSERVATION})
        for name in ("noise_mpa", "noise_relative"):
            if getattr(self, name) is not None:
                checked[name] = not_negative(f"data.{name}", getattr(self, name))
        if checked["noise_relative"] >= 1:
            raise refused(
                "data.noise_relative", self.noise_relative, "a fraction below 1, 0.01 for 1 %"
            )
        if self.max_strain is not None:
            checked["max_strain"] = positive_pair("data.max_strain", self.max_strain, "0.01,0.05")
        return checked

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
# Each is an option of `Laboratory`, drawn log-uniformly for every curve. Whole blocks of curves at a time, as arrays.
# Errors that tests have too are above: a slack start, a machine that gives way, noise of neighbours that is alike.
#
# The knee. Grains yield one after the other: elements in parallel, alike but for their yield stress, which is spread
# evenly on a log scale (the overlay model: G. Masing, Proc. 2nd Int. Congress of Applied Mechanics (1926) 332-335; J.
# F. Besseling, J. Applied Mechanics 25 (1958) 529-536). An element whose yield stress is e^-x times the law's bears
# stress(ε e^x) e^-x, so that the secant modulus of the whole is the mean of the law's over a window of ln ε. The
# window is moved so that a curve that no longer hardens keeps its stress: modulus and plateau stay as the
# parameters say.
#
# The misfit. A factor 1 + g(ln ε) on the stress, g a stationary Gaussian process nearly: a sum of few cosines with
# random frequencies (A. Rahimi, B. Recht, Random features for large-scale kernel machines, NeurIPS 2007).
#
# The record. A machine records so many points; between them, `record.resample` draws straight lines, and averages
# where they are dense. `resample_rows` does the same for many curves at once.


# The deviation of neighbouring strains ε, e ε is correlated by exp(-1/2).
MISFIT_LENGTH = 1.0
COSINES = 4
# Strain goes as (j / N) ** p at the record's points j = 1 ... N; a test that begins slowly has p > 1.
RECORD_SPACING = (1.0, 3.0)
# _TABLE_STEP: spacing of the table of secant moduli over ln ε.
_TABLE_STEP = 0.05
# _TABLE_START: where it begins, as a share of the largest strain.
_TABLE_START = 2e-5

# Streams of random numbers, after those that `simulate` draws from.
_NOISE_LEVEL, _RECORD, _MISFIT, _YIELD_SPREAD, _STRAIN_OFFSET = range(4, 9)
_CORRELATION, _STRESS_OFFSET, _TOE, STIFFNESS_STREAM = range(9, 13)

LawStress = Callable[[Array, Array], Array]


@dataclasses.dataclass
class Observation:
    """Draws of the observation model, one a curve: [curves]; None where an option is off."""

    settings: Laboratory
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
        settings: Laboratory,
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
    # In steps of the table; below it the curve is elastic, and its secant modulus is the first entry.
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
    """`record.resample` for many curves at once: measured points -> stress at the grid's points.

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
    # Each row: (0, 0), its means, and the line through its last two means drawn on to its end. One call of
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

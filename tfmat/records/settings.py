"""What makes a set of simulated records: the law, its ranges, and how a test is imagined to go."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError, nearest
from tfmat.materials import DEFAULT_LAW, HistoryLaw, Law, find_law
from tfmat.materials.law import Array, History, Scale
from tfmat.materials.registry import check_trusted, file_digest, is_file, law_class
from tfmat.records.programmes import Monotonic, Programme, file_digests, find_programmes

# --------------------------------------------------------------------------------------------------
# What stands between a specimen and its record: slack, a machine that gives way, correlated noise, points left out.
#
# Whole blocks of curves or tests at a time, as arrays [rows, points].


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


# --------------------------------------------------------------------------------------------------
# Checks of single settings of a simulation; what is refused names the flag.


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
# Of these, what is not independent noise.
MORE_THAN_NOISE = tuple(name for name in _LIMITS if name != "noise_of_maximum")
# Histories of a programme that are looked at.
_LOOKED_AT = 32


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


def contradiction(given: Mapping[str, Any], programmes: "Sequence[Programme]") -> str | None:
    """What the settings of a simulation say against each other or against the tests; None where nothing."""
    if given["noise_told"] and not programmes:
        return "--config.data.noise_told is for tests; a curve of rising strain has no channel for it: leave it out"
    if given["noise_told"] and given["noise_of_maximum"] is None:
        return (
            "--config.data.noise_told has nothing to tell, since the noise of all records is of one size; draw it with "
            "--config.data.noise_of_maximum=0.0005,0.005"
        )
    is_silent = given["noise_mpa"] == 0 and not given["noise_relative"]
    is_silent &= given["noise_of_maximum"] is None
    if given["noise_correlation"] is not None and is_silent:
        return "--config.data.noise_correlation is of noise, and there is none; leave it out, or noise_mpa=0"
    if given["toe"] is not None and programmes:
        points = given["num_points"]
        drawn = (
            one.draw(np.random.default_rng(0), _LOOKED_AT, points).strain for one in programmes
        )
        if not any(strain is not None and rises_from_zero(strain).mean() > 0.5 for strain in drawn):
            names = " and ".join(programme.name for programme in programmes)
            return (
                f"--config.data.toe is of tests whose strain rises from zero and does not turn, and {names} does not; "
                "leave it out"
            )
    return None


# --------------------------------------------------------------------------------------------------
# What makes a set of simulated curves: the law, its ranges, and how a test is imagined to go.


# In the JSON form only: tells data of an edited user law from those of the law before.
_DIGEST_KEY = "law_file_sha256"
# What is drawn on a log scale today and was drawn evenly when settings were first stored: what is stored without
# `scales` was drawn evenly.
_ONCE_LINEAR = {
    "voce": ("E", "sigma0", "max_strain"),
    "swift": ("E", "K", "max_strain"),
    "ramberg_osgood": ("E", "sigma02", "max_strain"),
}
# MONOTONIC: the test of a law of one rising loading, whose settings are those of the curve.
MONOTONIC = Monotonic.name
# _OF_TESTS: settings that say nothing of one rising loading.
_OF_TESTS = ("tests", "test_ranges", "missing_tests", "noise_strain")


@dataclasses.dataclass(frozen=True)
class CurveSettings:
    """Settings of a simulation; with a seed they fix every curve. Checked on creation, InputError names the flag.

    Attributes:
      law: registered name or `path/to/file.py:ClassName`.
      ranges: parameter name -> (low, high) in its unit, in place of the law's own range.
      fixed: parameter name -> known value in its unit; it is no label then.
      max_strain: range that the end of a curve is drawn from; None is the law's own.
      strength_mpa: range of the stress at which a curve breaks off; None is the law's own, which may be no cut-off.
      strength_cut_off: False never cuts, whatever `strength_mpa` says.
      noise_mpa: standard deviation of the Gaussian stress noise; None is the law's own, 0 is none.
      noise_relative: standard deviation as a fraction of the point's own stress, added in quadrature.
      num_points: points of a curve.
      scales: parameter name, or max_strain, -> `linear` or `log`: it is drawn evenly on that, not on the law's own.

    Real tests differ from curve to curve in more than their parameters; each of these is drawn log-uniformly from
    (low, high) for every curve (see `tfmat.records.laboratory`, of tests `records.simulation`), and None leaves it out:
      noise_of_maximum: further noise in quadrature, standard deviation as a fraction of the curve's largest stress.
      noise_correlation: of the noise of neighbouring points, which is a first-order autoregression then.
      measured_points: points that the machine records. They go onto the curve's points as a measured file's do; of a
        test they stand in the record as they are, no more than its points, and the rest is padding.
      strain_offset: standard deviation of an error of the strain's zero, as seating and preload leave it; of tests that
        drive the strain.
      stress_offset: standard deviation of an error of the stress's zero, MPa.
      toe: slack (-) that a strain which rises from zero takes up first.
      machine_stiffness: apparent modulus (MPa) of what gives way beside the specimen: the strain that is measured is
        the specimen's and stress / stiffness.
      misfit: standard deviation of a smooth deviation from the law, as a fraction of the stress.
      yield_spread: half the range of ln(yield stress) within the specimen: it rounds the knee.
    Beside them stand
      noise_told: the record tells the standard deviation of each test's noise, in a channel of its own.
      laboratory: those options that are None are those of the law's family (`Law.laboratory`).

    A material may be tested in several ways, or through a loading history (see `tfmat.records.programmes`):
      tests: names of the programmes, `path/to/file.py:ClassName` of one's own among them; none: the law's own.
      test_ranges: setting of the programmes, or `programme_setting`, -> (low, high) in place of its own range.
      missing_tests: probability that a test of several is missing in a record; one is always there.
      noise_strain: standard deviation of the strain's noise where a test drives the stress; None is the law's own.
    """

    law: str = DEFAULT_LAW
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    max_strain: tuple[float, float] | None = None
    strength_mpa: tuple[float, float] | None = None
    strength_cut_off: bool = True
    noise_mpa: float | None = None
    noise_relative: float = 0.0
    num_points: int = 200
    scales: Mapping[str, Scale] = dataclasses.field(default_factory=dict)
    noise_of_maximum: tuple[float, float] | None = None
    measured_points: tuple[int, int] | None = None
    strain_offset: tuple[float, float] | None = None
    misfit: tuple[float, float] | None = None
    yield_spread: tuple[float, float] | None = None
    noise_correlation: tuple[float, float] | None = None
    stress_offset: tuple[float, float] | None = None
    toe: tuple[float, float] | None = None
    machine_stiffness: tuple[float, float] | None = None
    noise_told: bool = False
    laboratory: bool = False
    tests: tuple[str, ...] = ()
    test_ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    missing_tests: float = 0.0
    noise_strain: float | None = None

    def __post_init__(self) -> None:
        ranges = {name: pair(f"ranges.{name}", limits) for name, limits in self.ranges.items()}
        fixed = {name: number(f"fixed.{name}", value) for name, value in self.fixed.items()}
        checked: dict[str, Any] = {"ranges": ranges, "fixed": fixed}
        if self.max_strain is not None:
            checked["max_strain"] = positive_pair("data.max_strain", self.max_strain, "0.01,0.05")
        if self.strength_mpa is not None:
            checked["strength_mpa"] = positive_pair(
                "data.strength_mpa", self.strength_mpa, "60,140"
            )
        if self.noise_mpa is not None:
            checked["noise_mpa"] = not_negative("data.noise_mpa", self.noise_mpa)
        checked["noise_relative"] = not_negative("data.noise_relative", self.noise_relative)
        if checked["noise_relative"] >= 1:
            raise refused(
                "data.noise_relative", self.noise_relative, "a fraction below 1, 0.01 for 1 %"
            )
        if not is_integer(self.num_points) or self.num_points < FEWEST_POINTS:
            raise refused(
                "data.num_points", self.num_points, f"a whole number of at least {FEWEST_POINTS}"
            )
        if not isinstance(self.strength_cut_off, bool):
            raise refused("data.strength_cut_off", self.strength_cut_off, "true or false")
        checked["scales"] = dict(self.scales)
        for name, scale in self.scales.items():
            if scale not in ("linear", "log"):
                raise InputError(f"scale of {name} is {scale!r}; give linear or log")
        checked |= self._checked_observation()
        checked["tests"] = () if tuple(self.tests) == (MONOTONIC,) else tuple(self.tests)
        checked["test_ranges"] = {
            name: pair(f"test_ranges.{name}", limits) for name, limits in self.test_ranges.items()
        }
        if self.noise_strain is not None:
            checked["noise_strain"] = not_negative("data.noise_strain", self.noise_strain)
        checked["missing_tests"] = not_negative("data.missing_tests", self.missing_tests)
        if checked["missing_tests"] >= 1:
            raise refused("data.missing_tests", self.missing_tests, "a probability below 1")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        law = self.build_law()
        programmes = self.programmes()
        if programmes:
            self._check_tests(law, programmes)
        if (wrong := contradiction(vars(self), programmes)) is not None:
            raise InputError(wrong)

    def _checked_observation(self) -> dict[str, Any]:
        """The options of the observation model, each None or a checked pair, the law's family's written out."""
        for name in ("noise_told", "laboratory"):
            if not isinstance(getattr(self, name), bool):
                raise refused(f"data.{name}", getattr(self, name), "true or false")
        given = {name: getattr(self, name) for name in OBSERVATION}
        if self.laboratory:
            own = law_class(self.law).laboratory
            if not own:
                raise InputError(
                    f"law {self.law} has no defaults of a laboratory; leave --config.data.laboratory out and give "
                    "the options that you want, e.g. --config.data.noise_of_maximum=0.0005,0.005"
                )
            for name in own:
                if name not in OBSERVATION:
                    raise InputError(
                        f"law {self.law}: laboratory has '{name}'{nearest(name, OBSERVATION)}"
                    )
            given = {name: own.get(name) if one is None else one for name, one in given.items()}
            is_curve = tuple(self.tests or law_class(self.law).tests) == (MONOTONIC,)
            for name in ("noise_mpa",) if is_curve else ("noise_mpa", "noise_strain"):
                if getattr(self, name) is None and given["noise_of_maximum"] is not None:
                    given[name] = 0.0
        return {**given, **checked_observation(given), "laboratory": False}

    @property
    def is_observed(self) -> bool:
        """Whether curves differ from the law by more than noise of one known size."""
        return any(getattr(self, name) is not None for name in OBSERVATION)

    @property
    def max_strain_scale(self) -> Scale:
        """What the end of a curve is drawn evenly on."""
        return self.scales.get("max_strain", self.build_law().max_strain_scale)

    def build_law(self) -> Law:
        """The law with these ranges, scales and fixed values."""
        scales = {name: scale for name, scale in self.scales.items() if name != "max_strain"}
        return find_law(self.law, ranges=self.ranges, fixed=self.fixed, scales=scales)

    def programmes(self) -> tuple[Programme, ...]:
        """The tests of a record, in the order of its points; empty for one curve of rising strain."""
        names = self.tests or law_class(self.law).tests
        return () if names == (MONOTONIC,) else find_programmes(names, self.test_ranges)

    def _check_tests(self, law: Law, programmes: tuple[Programme, ...]) -> None:
        for programme in programmes:
            if not isinstance(law, HistoryLaw):
                raise InputError(
                    f"law {law.name} is for one curve of rising strain; leave tests={programme.name} out"
                )
            if programme.mode not in law.modes:
                raise InputError(
                    f"test {programme.name} is {programme.mode}; law {law.name} answers {' and '.join(law.modes)} tests"
                )
        for name in ("max_strain", "yield_spread"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"data.{name} is for one curve of rising strain; law {law.name} has tests: leave it out, and "
                    "set their ranges with --config.test_ranges.NAME=LOW,HIGH"
                )

    def resolved(self) -> "CurveSettings":
        """The same curves with everything that the law decides written out: ranges, strains, strength, noise, tests."""
        law = self.build_law()
        tests = self.programmes()
        strength = (self.strength_mpa or law.strength_mpa) if self.strength_cut_off else None
        return dataclasses.replace(
            self,
            ranges={
                parameter.name: (parameter.low, parameter.high) for parameter in law.identified
            },
            max_strain=None if tests else self.max_strain or law.max_strain,
            strength_mpa=strength,
            strength_cut_off=strength is not None,
            noise_mpa=law.noise_mpa if self.noise_mpa is None else self.noise_mpa,
            scales={
                **{parameter.name: parameter.scale for parameter in law.identified},
                **({} if tests else {"max_strain": self.max_strain_scale}),
            },
            tests=(self.tests or law.tests) if tests else (),
            noise_strain=law.noise_strain
            if tests and self.noise_strain is None
            else self.noise_strain,
        )

    def to_json(self) -> dict[str, Any]:
        """The resolved settings as plain JSON values; equal for equal curves, whatever was left to the law."""
        resolved = self.resolved()
        content: dict[str, Any] = {
            field.name: getattr(resolved, field.name) for field in dataclasses.fields(resolved)
        }
        content["ranges"] = {name: list(pair) for name, pair in resolved.ranges.items()}
        content["fixed"] = dict(sorted(resolved.fixed.items()))
        for name in ("max_strain", "strength_mpa", *OBSERVATION):
            content[name] = None if content[name] is None else list(content[name])
        # What old settings do not say is left out where it is as it was then: their form stays the same.
        for name in (*OBSERVATION, "noise_told"):
            if not content[name]:
                del content[name]
        del content["laboratory"]
        if not content["tests"]:
            for name in _OF_TESTS:
                del content[name]
        else:
            content["tests"] = list(content["tests"])
            content["test_ranges"] = {n: list(p) for n, p in sorted(self.test_ranges.items())}
            content["test_files"] = file_digests(resolved.tests)
        before = _scales_before(self.law, self.fixed)
        content["scales"] = {n: s for n, s in resolved.scales.items() if s != before.get(n)}
        if not content["scales"]:
            del content["scales"]
        if is_file(self.law):
            content[_DIGEST_KEY] = file_digest(self.law)
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "CurveSettings":
        """The settings that `to_json` wrote, perhaps somebody else's.

        Raises:
          InputError: they have a key that it does not write, or name a file that this user has not named.
        """
        digests = (_DIGEST_KEY, "test_files")
        content = {name: value for name, value in content.items() if name not in digests}
        known = [field.name for field in dataclasses.fields(cls)]
        for name in content:
            if name not in known:
                raise InputError(f"curve settings have no '{name}'{nearest(name, known)}")
        check_trusted(content.get("law", DEFAULT_LAW), "law")
        for test in content.get("tests") or ():
            check_trusted(test, "test")
        before = _scales_before(content.get("law", DEFAULT_LAW), content.get("fixed", {}))
        return cls(**{**content, "scales": {**before, **content.get("scales", {})}})


def _scales_before(law: str, fixed: Mapping[str, float]) -> dict[str, Scale]:
    """The scales that stored settings mean where they say nothing."""
    known = law_class(law)
    scales = {p.name: p.scale for p in known.parameters if p.name not in fixed}
    if known.tests == (MONOTONIC,):
        scales["max_strain"] = known.max_strain_scale
    return {**scales, **{name: "linear" for name in _ONCE_LINEAR.get(law, ()) if name in scales}}

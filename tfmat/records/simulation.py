"""Simulated records: each is a pure function of its settings, seed and number. Their settings and their form."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.errors import InputError, nearest
from tfmat.materials.law import MODES, Array, History, Law, Scale, TestSet
from tfmat.materials.numerics import rows_in_block
from tfmat.materials.registry import (
    DEFAULT_LAW,
    file_digest,
    find_law,
    is_file,
    law_class,
    stored_spec,
)
from tfmat.records.laboratory import (
    COSINES,
    FEWEST_POINTS,
    MORE_THAN_NOISE,
    OBSERVATION,
    STIFFNESS_STREAM,
    Apparatus,
    Laboratory,
    LawStress,
    Observation,
    before_break,
    correlated,
    drawn_offset,
    is_integer,
    log_uniform,
    not_negative,
    number,
    pair,
    positive_pair,
    refused,
    rises_from_zero,
    smooth_deviation,
    thinned,
)
from tfmat.records.programmes import (
    Monotonic,
    Programme,
    check_answers,
    file_digests,
    find_programmes,
    try_law,
)

# --------------------------------------------------------------------------------------------------
# Settings that make a set of simulated curves: the law, its ranges, and how a test is imagined to go.


# _LOOKED_AT: histories of a programme that show whether it rises from zero.
_LOOKED_AT = 32
# _tried: laws of users that passed their checks in this process, with their ranges and tests.
_tried: set[str] = set()
# _DIGEST_KEY: in the JSON form only; an edited law of a user makes other data.
_DIGEST_KEY = "law_file_sha256"
# _ONCE_LINEAR: drawn on a log scale today, and evenly when settings were first stored, which was without `scales`.
_ONCE_LINEAR = {
    "voce": ("E", "sigma0", "max_strain"),
    "swift": ("E", "K", "max_strain"),
    "ramberg_osgood": ("E", "sigma02", "max_strain"),
}
# MONOTONIC: the test of a law of one rising loading, whose settings belong to the curve.
MONOTONIC = Monotonic.name
# _OF_TESTS: settings that say nothing of one rising loading.
_OF_TESTS = ("tests", "test_ranges", "missing_tests", "noise_strain")


@dataclasses.dataclass(frozen=True)
class CurveSettings(Laboratory):
    """Settings of a simulation; with a seed they fix every curve. Checked on creation, InputError names the flag.

    Attributes:
      law: registered name or `path/to/file.py:ClassName`.
      ranges: parameter name -> (low, high) in its unit, in place of the law's own range.
      fixed: parameter name -> known value in its unit; it is no label then.
      max_strain: range that the end of a curve is drawn from; None is the law's own.
      strength_mpa: range of the stress at which a curve breaks off; None is the law's own, which may be no cut-off.
      strength_cut_off: False never cuts, whatever `strength_mpa` says.
      noise_mpa: see `Laboratory`; None is the law's own, 0 is none.
      num_points: points of a curve.
      scales: parameter name, or max_strain, -> `linear` or `log`: it is drawn evenly on that, not on the law's own.
      noise_told: the record tells the standard deviation of each test's noise, in a channel of its own.
      laboratory: those options of a laboratory that are None are those of the law's family (`Law.laboratory`).

    A material may be tested in several ways, or through a history (see `tfmat.records.programmes`):
      tests: names of the programmes, `path/to/file.py:ClassName` of one's own among them; none: the law's own.
      test_ranges: setting of the programmes, or `programme_setting`, -> (low, high) instead of its own range.
      missing_tests: probability that a test of several is missing in a record; one is always there. noise_strain:
      standard deviation of the strain's noise where a test drives the stress; None is the law's own.
    """

    law: str = DEFAULT_LAW
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    strength_mpa: tuple[float, float] | None = None
    strength_cut_off: bool = True
    noise_mpa: float | None = dataclasses.field(default=None, kw_only=True)
    num_points: int = 200
    scales: Mapping[str, Scale] = dataclasses.field(default_factory=dict)
    noise_told: bool = False
    laboratory: bool = False
    tests: tuple[str, ...] = ()
    test_ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    missing_tests: float = 0.0
    noise_strain: float | None = None

    def _checked(self) -> dict[str, Any]:
        for name in ("strength_cut_off", "noise_told", "laboratory"):
            if not isinstance(getattr(self, name), bool):
                raise refused(f"data.{name}", getattr(self, name), "true or false")
        if not is_integer(self.num_points) or self.num_points < FEWEST_POINTS:
            raise refused(
                "data.num_points", self.num_points, f"a whole number of at least {FEWEST_POINTS}"
            )
        for name, scale in self.scales.items():
            if scale not in ("linear", "log"):
                raise InputError(f"scale of {name} is {scale!r}; give linear or log")
        if self.laboratory:
            self._take_laboratory_of_law()
        checked = super()._checked() | {
            "fixed": {n: number(f"fixed.{n}", value) for n, value in self.fixed.items()},
            "scales": dict(self.scales),
            "tests": () if tuple(self.tests) == (MONOTONIC,) else tuple(self.tests),
            "missing_tests": not_negative("data.missing_tests", self.missing_tests),
        }
        for name in ("ranges", "test_ranges"):
            given = getattr(self, name).items()
            checked[name] = {n: pair(f"{name}.{n}", limits) for n, limits in given}
        if self.strength_mpa is not None:
            limits = positive_pair("data.strength_mpa", self.strength_mpa, "60,140")
            checked["strength_mpa"] = limits
        if self.noise_strain is not None:
            checked["noise_strain"] = not_negative("data.noise_strain", self.noise_strain)
        if checked["missing_tests"] >= 1:
            raise refused("data.missing_tests", self.missing_tests, "a probability below 1")
        return checked

    def __post_init__(self) -> None:
        super().__post_init__()
        law, programmes = self.build_law(), self.programmes()
        if programmes:
            self._check_tests(law, programmes)
        if (wrong := self._contradiction(programmes)) is not None:
            raise InputError(wrong)
        if is_file(self.law):
            self._try_out(law, programmes)

    def _try_out(self, law: Law, programmes: Sequence[Programme]) -> None:
        """InputError where a law of the user's own fails a check; a law that passed is not tried again."""
        tests = [(one.name, one.settings) for one in programmes]
        key = repr((file_digest(self.law), self.law, law.parameters, tests))
        if key in _tried:
            return
        with np.errstate(all="ignore"):  # what is not finite is told in words
            findings = try_law(law, programmes, quick=True)
        for finding in findings:
            if not finding.passed:
                raise InputError(
                    f"law {self.law} is wrong: {finding.check}: {finding.detail}; mend it, or narrow its ranges "
                    f"(`tfmat laws {self.law}` tries it out)"
                )
        _tried.add(key)

    def _take_laboratory_of_law(self) -> None:
        """Writes out the options of the law's family that are not given."""
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
        taken: dict[str, Any] = {n: v for n, v in own.items() if getattr(self, n) is None}
        is_curve = tuple(self.tests or law_class(self.law).tests) == (MONOTONIC,)
        if (taken.get("noise_of_maximum") or self.noise_of_maximum) is not None:
            noises = ("noise_mpa",) if is_curve else ("noise_mpa", "noise_strain")
            taken |= {name: 0.0 for name in noises if getattr(self, name) is None}
        for name, value in (taken | {"laboratory": False}).items():
            object.__setattr__(self, name, value)

    def _contradiction(self, programmes: Sequence[Programme]) -> str | None:
        """A contradiction between the settings, or to the tests; None where there is none."""
        if self.noise_told and not programmes:
            return "--config.data.noise_told is for tests; a curve of rising strain has no channel for it: leave it out"
        if self.noise_told and self.noise_of_maximum is None:
            return (
                "--config.data.noise_told has nothing to tell, since the noise of all records is of one size; draw it "
                "with --config.data.noise_of_maximum=0.0005,0.005"
            )
        is_silent = self.noise_mpa == 0 and not self.noise_relative
        if self.noise_correlation is not None and is_silent and self.noise_of_maximum is None:
            return "--config.data.noise_correlation is of noise, and there is none; leave it out, or noise_mpa=0"
        if self.toe is None or not programmes:
            return None
        random = np.random.default_rng
        drawn = (one.draw(random(0), _LOOKED_AT, self.num_points).strain for one in programmes)
        if any(strain is not None and rises_from_zero(strain).mean() > 0.5 for strain in drawn):
            return None
        names = " and ".join(programme.name for programme in programmes)
        return (
            f"--config.data.toe is of tests whose strain rises from zero and does not turn, and {names} does not; "
            "leave it out"
        )

    @property
    def is_observed(self) -> bool:
        """Whether curves differ from the law by more than noise of one known size."""
        return any(getattr(self, name) is not None for name in OBSERVATION)

    @property
    def max_strain_scale(self) -> Scale:
        """The scale on which the end of a curve is drawn evenly."""
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
            check_answers(law, programme)
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
        # Keys that old settings lack are left out where they say the same: the form of old settings stays.
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
    def from_json(
        cls, content: Mapping[str, Any], folder: str | os.PathLike | None = None
    ) -> "CurveSettings":
        """The settings that `to_json` wrote, perhaps somebody else's.

        Args:
          folder: of the run or data set that they are of; the files that they name are looked for from there upwards.

        Raises:
          InputError: they have a key that it does not write, or name a file that is not found or that this user has not
            named.
        """
        digest_of_law, digests = content.get(_DIGEST_KEY), iter(content.get("test_files") or ())
        content = {n: v for n, v in content.items() if n not in (_DIGEST_KEY, "test_files")}
        known = [field.name for field in dataclasses.fields(cls)]
        for name in content:
            if name not in known:
                raise InputError(f"curve settings have no '{name}'{nearest(name, known)}")
        content["law"] = stored_spec(content.get("law", DEFAULT_LAW), digest_of_law, "law", folder)
        content["tests"] = tuple(
            stored_spec(test, next(digests, None) if is_file(test) else None, "test", folder)
            for test in content.get("tests") or ()
        )
        before = _scales_before(content.get("law", DEFAULT_LAW), content.get("fixed", {}))
        return cls(**{**content, "scales": {**before, **content.get("scales", {})}})


def _scales_before(law: str, fixed: Mapping[str, float]) -> dict[str, Scale]:
    """The scales that stored settings mean where they say nothing."""
    known = law_class(law)
    scales = {p.name: p.scale for p in known.parameters if p.name not in fixed}
    if known.tests == (MONOTONIC,):
        scales["max_strain"] = known.max_strain_scale
    return {**scales, **{name: "linear" for name in _ONCE_LINEAR.get(law, ()) if name in scales}}


# --------------------------------------------------------------------------------------------------
# The form of a record: how the tests of one material stand in an array of points and channels, and back.
#
# One curve of rising strain is [points, 3]. A record of several tests, or of a history, has the points of its
# tests one after the other, and further channels where its programmes tell the time, the rate or the temperature.


# Channels that every record begins with: strain (-), stress (MPa), flag (1 where the point is padding).
STRAIN, STRESS, FLAG = range(3)
_FURTHER = ("time", "rate", "temperature", "noise")

Flags = NDArray[np.bool_]


def features_of(strain: Array, stress: Array, valid: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Strain (-), stress (MPa) and valid, each [curves, points] -> [curves, points, 3]; padding is zero with flag 1."""
    features = np.empty((*strain.shape, 3), np.float32)
    features[:, :, 0] = np.where(valid, strain, 0.0)
    features[:, :, 1] = np.where(valid, stress, 0.0)
    features[:, :, 2] = ~valid
    return features


def split_features(features: NDArray[np.floating]) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The inverse of `features_of`: strain (-) and stress (MPa), both float64, and valid, each [curves, points]."""
    strain, stress, padded = np.moveaxis(np.asarray(features, np.float64), 2, 0)
    return np.ascontiguousarray(strain), np.ascontiguousarray(stress), padded == 0


@dataclasses.dataclass(frozen=True)
class RecordForm:
    """The points and channels of a record.

    Attributes:
      points: of one test.
      programmes: the tests in their order; empty for one curve of rising strain.
      noise_told: None, or a channel tells the standard deviation of each test's noise, in the unit of its response;
        it is drawn within these shares of the test's largest.
      as_recorded: a test stands in the record at the points that were measured, and padding fills the rest.
      more_than_noise: records depart from their law by more than independent noise, so that what fits leave tells.
    """

    points: int
    programmes: tuple[Programme, ...] = ()
    noise_told: tuple[float, float] | None = None
    as_recorded: bool = False
    more_than_noise: bool = False

    @classmethod
    def of(cls, settings: CurveSettings) -> "RecordForm":
        """The form of the records that these settings make."""
        programmes = settings.programmes()
        return cls(
            settings.num_points,
            programmes,
            settings.noise_of_maximum if settings.noise_told else None,
            bool(programmes) and settings.measured_points is not None,
            any(getattr(settings, name) is not None for name in MORE_THAN_NOISE),
        )

    @property
    def num_tests(self) -> int:
        return max(1, len(self.programmes))

    @property
    def num_points(self) -> int:
        """Points of the whole record."""
        return self.points * self.num_tests

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels, those that all records have first."""
        told = {name for programme in self.programmes for name in programme.channels}
        if self.noise_told:
            told.add("noise")
        return ("strain", "stress", "flag", *(name for name in _FURTHER if name in told))

    @property
    def shape(self) -> tuple[int, int]:
        """(points, channels) of a record."""
        return self.num_points, len(self.channels)

    @property
    def modes(self) -> NDArray[np.float32]:
        """How each test loads its specimen, and whether it drives the stress: [tests, modes + 1], zeros and ones."""
        tokens = np.zeros((self.num_tests, len(MODES) + 1), np.float32)
        for i, programme in enumerate(self.programmes):
            tokens[i, MODES.index(programme.mode)] = 1.0
            tokens[i, -1] = programme.drives == "stress"
        return tokens

    def network(self) -> dict[str, Any]:
        """Arguments of `tfmat.networks.build_model` that a record decides."""
        tokens = self.modes.tolist() if self.num_tests > 1 else ()
        return {
            "num_points": self.num_points,
            "channels": self.channels,
            "tokens": tokens,
            "more_than_noise": self.more_than_noise,
        }

    def part(self, test: int) -> slice:
        """The points of one test."""
        return slice(test * self.points, (test + 1) * self.points)

    def write(
        self,
        features: NDArray[np.float32],
        test: int,
        history: History,
        response: Array,
        valid: Flags,
        noise: Array | float = 0.0,
    ) -> None:
        """Writes a test's driven history, its response and which points are there into features [records, ...].

        `noise` [records, 1] is written where the form tells it.
        """
        part = features[:, self.part(test)]
        driven, answer = (
            (STRAIN, STRESS) if self.programmes[test].drives == "strain" else (STRESS, STRAIN)
        )
        part[:, :, driven] = np.where(valid, history.driven, 0.0)
        part[:, :, answer] = np.where(valid, response, 0.0)
        part[:, :, FLAG] = ~valid
        for channel, name in enumerate(self.channels[3:], start=3):
            told = noise if name == "noise" else getattr(history, name)
            part[:, :, channel] = 0.0 if told is None else np.where(valid, told, 0.0)

    def split(self, features: NDArray[np.floating]) -> tuple[TestSet, Array, Flags]:
        """The inverse of `write` for whole records [records, points, channels] of tests.

        Returns:
          The histories (padded points stay at the last that is there), the responses [records, points], and which
          points are there, [records, points].
        """
        features = np.asarray(features, np.float64)
        valid = features[:, :, FLAG] == 0
        histories, responses = [], []
        for test, programme in enumerate(self.programmes):
            part = features[:, self.part(test)]
            last = np.maximum(valid[:, self.part(test)].sum(axis=1) - 1, 0)
            held = np.minimum(np.arange(self.points), last[:, None])
            filled = np.take_along_axis(part, held[:, :, None], axis=1)
            strain_driven = programme.drives == "strain"
            told: dict[str, Any] = {}
            for name in programme.channels:
                values = filled[:, :, self.channels.index(name)]
                if name != "time":
                    values = values[:, :1]
                    values = np.where(
                        valid[:, self.part(test)][:, :1], values, _typical(programme, name)
                    )
                told[name] = values
            driven = filled[:, :, STRAIN if strain_driven else STRESS]
            told["strain" if strain_driven else "stress"] = driven
            histories.append(History(programme.mode, **told))
            responses.append(part[:, :, STRESS if strain_driven else STRAIN])
        return TestSet(tuple(histories)), np.concatenate(responses, axis=1), valid

    def noise(self, settings: CurveSettings) -> Array:
        """Standard deviation of the noise of each point's response that does not depend on it: [points], MPa or -."""
        settings = settings.resolved()
        of_test = [
            settings.noise_mpa if programme.drives == "strain" else settings.noise_strain
            for programme in self.programmes
        ]
        return np.repeat(np.array(of_test, np.float64), self.points)


def _typical(programme: Programme, setting: str) -> float:
    """The middle of a setting's range, which stands for a test that is missing."""
    found = next((one for one in programme.settings if one.name == setting), None)
    return float(found.from_unit_interval(0.5)) if found else 1.0


def observed(
    settings: CurveSettings, features: NDArray[np.floating]
) -> tuple[Array | TestSet, Array, NDArray[np.bool_]]:
    """The driven values, the response, and the points that are there, as fits and likelihoods take them.

    Args:
      features: records as simulated with these settings, [curves, points, channels].

    Returns:
      Strain (-), stress (MPa) and valid, each [curves, points]. For tests: a test set, its responses in units of their
      noise, which are what is told of it, or near it where it is drawn and not told, and valid.
    """
    form = RecordForm.of(settings)
    if not form.programmes:
        return split_features(features)
    tests, response, valid = form.split(features)
    unit = form.noise(settings)
    if form.noise_told is not None:
        unit = np.asarray(features[:, :, form.channels.index("noise")], np.float64)
    elif settings.noise_of_maximum is not None:
        # As near as one comes without knowing the noise: the middle of its range.
        largest = np.abs(response).reshape(len(response), form.num_tests, -1).max(axis=2)
        middle = np.sqrt(np.prod(settings.noise_of_maximum))
        unit = np.hypot(unit, middle * np.repeat(largest, form.points, axis=1))
    unit = np.where(unit > 0, unit, 1.0)
    return dataclasses.replace(tests, unit=unit), response / unit, valid


# --------------------------------------------------------------------------------------------------
# Records of tests, simulated: each test's history drawn, the law's response to it, and what a laboratory makes of it.
#
# Whole blocks of records at a time. Every test draws from streams of its own, so that a further test leaves those
# before it as they were.


# Streams of random numbers, after the ones in `laboratory`: which tests are missing, what the tests of a record share,
# and from there on each test's own.
(
    _MISSING_OF_TESTS,
    _STIFFNESS_OF_TESTS,
    _CORRELATION_OF_TESTS,
    _FIRST_TEST_OF_TESTS,
    _STREAMS_OF_TESTS,
) = 16, 17, 18, 24, 8
(
    _HISTORY_OF_TESTS,
    _NOISE_OF_TESTS,
    _MISFIT_OF_TESTS,
    _OFFSET_OF_TESTS,
    _STRESS_OFFSET_OF_TESTS,
    _TOE_OF_TESTS,
    _PLACES_OF_TESTS,
) = range(7)

Generators = Callable[[int], np.random.Generator]


def fill_tests(
    settings: CurveSettings,
    form: RecordForm,
    generator_of: Generators,
    respond: Callable[[History], Array],
    strength: Array | None,
    features: NDArray[np.float32],
) -> None:
    """Writes records into features [records, points, channels].

    Args:
      settings: resolved.
      form: of the records.
      generator_of: stream of random numbers -> its generator for this block.
      respond: the law with the records' parameters.
      strength: stress at which each record's specimens break, [records], MPa; None where they never do.
    """
    records = len(features)
    rupture_strain = settings.build_law().rupture_strain
    there = _present(
        generator_of(_MISSING_OF_TESTS), records, form.num_tests, settings.missing_tests
    )
    # One machine, and one way of recording, for all tests of a material.
    stiffness, correlation = (
        limits and log_uniform(limits, generator_of(number).random(records))
        for limits, number in (
            (settings.machine_stiffness, _STIFFNESS_OF_TESTS),
            (settings.noise_correlation, _CORRELATION_OF_TESTS),
        )
    )
    for test, programme in enumerate(form.programmes):
        first = _FIRST_TEST_OF_TESTS + test * _STREAMS_OF_TESTS

        def stream(number: int, first: int = first) -> np.random.Generator:
            return generator_of(first + number)

        history = programme.draw(stream(_HISTORY_OF_TESTS), records, form.points)
        if history.driven.shape != (records, form.points):
            raise InputError(
                f"test {programme.name}: history() drives an array of shape {history.driven.shape}, expected "
                f"{(records, form.points)}"
            )
        valid = np.broadcast_to(there[:, test, None], history.driven.shape)
        if settings.measured_points is not None:
            history, recorded = _recorded(
                settings.measured_points, history, stream(_PLACES_OF_TESTS)
            )
            valid = valid & recorded
        apparatus = Apparatus(
            strain_offset=drawn_offset(settings.strain_offset, stream(_OFFSET_OF_TESTS), records),
            stress_offset=drawn_offset(
                settings.stress_offset, stream(_STRESS_OFFSET_OF_TESTS), records
            ),
            slack=settings.toe and log_uniform(settings.toe, stream(_TOE_OF_TESTS).random(records)),
            stiffness=stiffness,
        )
        answer = apparatus.answer(history, respond)
        if strength is not None:
            stress = answer if programme.drives == "strain" else history.driven
            valid = valid & before_break(np.abs(stress), strength)
        if programme.drives == "stress":
            # Not up to and with the first strain that is too large: of a fast creep that may be any number.
            valid = valid & (np.maximum.accumulate(np.abs(answer), axis=1) < rupture_strain)
        if settings.misfit is not None:
            answer = answer * (
                1.0 + _misfit(settings.misfit, history.driven, stream(_MISFIT_OF_TESTS))
            )
        shown = apparatus.shown(history, answer)
        random = stream(_NOISE_OF_TESTS)
        noise = _noise(settings, programme.drives, shown, valid, random)
        whole = np.hypot(noise, settings.noise_relative * shown)
        normal = random.standard_normal(shown.shape, np.float32)
        if correlation is not None:
            normal = correlated(normal, correlation)
        form.write(features, test, history, shown + whole * normal, valid, noise)


def _present(
    random: np.random.Generator, records: int, tests: int, missing: float
) -> NDArray[np.bool_]:
    """The tests of each record that are there, one at least: [records, tests]."""
    chosen = random.integers(0, tests, records)
    there = random.random((records, tests)) >= (missing if tests > 1 else 0.0)
    there[np.arange(records), chosen] = True
    return there


def _recorded(
    limits: tuple[int, int], history: History, random: np.random.Generator
) -> tuple[History, NDArray[np.bool_]]:
    """The history at as many of its points as the machine records, and which are there; see `thinned`."""
    low, high = limits
    # Each whole number stands for the half below and above it.
    drawn = log_uniform((low - 0.5, high + 0.5), random.random(len(history)))
    return thinned(history, np.clip(np.rint(drawn), low, high).astype(np.int64), random)


def _misfit(limits: tuple[float, float], driven: Array, random: np.random.Generator) -> Array:
    """A smooth deviation from the law, as a fraction of the response, over the way that was driven."""
    records = len(driven)
    size = log_uniform(limits, random.random(records))
    normal, phase = random.standard_normal((records, COSINES)), random.random((records, COSINES))
    way = np.cumsum(np.abs(np.diff(driven, axis=1, prepend=0.0)), axis=1)
    share = way / np.maximum(way[:, -1:], 1e-300)
    return np.asarray(size[:, None] * smooth_deviation(share, normal, phase))


def _noise(
    settings: CurveSettings,
    drives: str,
    shown: Array,
    valid: NDArray[np.bool_],
    random: np.random.Generator,
) -> Array:
    """Standard deviation of the noise of each test that is the same at all its points: [records, 1], MPa or -."""
    absolute = settings.noise_mpa if drives == "strain" else settings.noise_strain
    deviation = np.full(len(shown), absolute or 0.0)
    if settings.noise_of_maximum is not None:
        drawn = log_uniform(settings.noise_of_maximum, random.random(len(shown)))
        largest = np.abs(shown).max(axis=1, where=valid, initial=0.0)
        deviation = np.hypot(deviation, drawn * largest)
    return np.asarray(deviation[:, None])


# --------------------------------------------------------------------------------------------------
# Simulated curves: curve i is a pure function of (law, settings, seed, i), however many are made and by whom.


# Goes up with every change that makes another curve i from the same settings and seed.
SIMULATION_VERSION = 1
# Curves of a block share their random generators and are always made together.
BLOCK = 1024
# One generator for each thing that is drawn, so that more noise, say, leaves everything else as it was.
# `Observation` has more, and so have tests.
_PARAMETERS, MAX_STRAIN_STREAM, _STRENGTH, _NOISE = range(4)

Float32Array = NDArray[np.float32]


@dataclasses.dataclass
class SimulatedCurves:
    """Curves with their labels.

    Attributes:
      features: [curves, points, 3] float32: strain (-), noisy stress (MPa), flag (1 where the point is padding); for
        tests of other kinds see `tfmat.records.simulation`.
      labels: [curves, identified parameters] float32, 0-1.
      parameters: [curves, all parameters] float64, in their units.
    """

    features: Float32Array
    labels: Float32Array
    parameters: Array


@dataclasses.dataclass
class _Draws:
    """Values that are drawn once a curve, for a whole block; [BLOCK] or [BLOCK, parameters]."""

    labels: Array
    parameters: Array
    max_strain: Array | None
    strength: Array | None


class Simulator:
    """Makes the curves of some settings and a seed. Threads may share one."""

    def __init__(self, settings: CurveSettings, seed: int):
        """Raises InputError on a negative seed."""
        if seed < 0:
            raise InputError(f"--seed is {seed}; give 0 or a positive whole number")
        self.settings = settings.resolved()
        self.seed = seed
        self.law: Law = self.settings.build_law()
        self.form = RecordForm.of(self.settings)
        spacing = self.law.strain_spacing
        self._grid = np.linspace(0.0, 1.0, self.settings.num_points) ** spacing
        self._identified = [
            i for i, parameter in enumerate(self.law.parameters) if parameter.fixed is None
        ]

    def curves(self, start: int, stop: int) -> SimulatedCurves:
        """Curves number `start` to `stop` - 1."""
        count = stop - start
        features = np.empty((count, *self.form.shape), np.float32)
        labels = np.empty((count, len(self._identified)), np.float32)
        self.fill(start, stop, features, labels)
        return SimulatedCurves(features, labels, self.parameters(start, stop))

    def parameters(self, start: int, stop: int) -> Array:
        """The parameters of these curves alone: [stop - start, all parameters] float64, in their units."""
        parameters = np.empty((stop - start, len(self.law.parameters)))
        for block, inside, outside in blocks_of(start, stop):
            parameters[outside] = self._draw(block).parameters[inside]
        return parameters

    def fill(self, start: int, stop: int, features: Float32Array, labels: Float32Array) -> None:
        """Writes curves number `start` to `stop` - 1 into given arrays; whole blocks of BLOCK cost no copy.

        Args:
          features: [stop - start, points, 3] float32, C-contiguous or not.
          labels: [stop - start, identified parameters] float32.

        Raises:
          InputError: the law gave stresses that are not finite.
        """
        for block, inside, outside in blocks_of(start, stop):
            draws = self._draw(block)
            labels[outside] = draws.labels[inside]
            if inside == slice(0, BLOCK):
                self._fill_block(block, draws, features[outside])
            else:
                whole = np.empty((BLOCK, *features.shape[1:]), np.float32)
                self._fill_block(block, draws, whole)
                features[outside] = whole[inside]

    def _generator(self, stream: int, block: int) -> np.random.Generator:
        return generator_of(self.seed, block, stream)

    def _draw(self, block: int) -> _Draws:
        # Fixed parameters are drawn too, and not used: fixing one leaves the others as they were.
        drawn = self._generator(_PARAMETERS, block).random((BLOCK, len(self.law.parameters)))
        labels = self.law.sorted_labels(drawn[:, self._identified])
        max_strain = self._draw_ends(block) if self.settings.max_strain else None
        strength = None
        if self.settings.strength_mpa is not None:
            strength = self._generator(_STRENGTH, block).uniform(*self.settings.strength_mpa, BLOCK)
        return _Draws(labels, self.law.from_labels(labels), max_strain, strength)

    def _draw_ends(self, block: int) -> Array:
        """The largest strain of each curve, [BLOCK]."""
        assert self.settings.max_strain is not None
        low, high = self.settings.max_strain
        ends = self._generator(MAX_STRAIN_STREAM, block)
        if self.settings.max_strain_scale == "log":
            return log_uniform((low, high), ends.random(BLOCK))
        return ends.uniform(low, high, BLOCK)

    def _fill_block(self, block: int, draws: _Draws, features: Float32Array) -> None:
        """Writes a whole block, a few rows at a time so that the working set stays in the cache."""
        if self.form.programmes:
            self._fill_tests(block, draws, features)
            return
        assert draws.max_strain is not None
        if self.settings.is_observed:
            fill_observed(
                self.settings,
                functools.partial(generator_of, self.seed, block),
                self._stress,
                draws.max_strain,
                draws.parameters,
                draws.strength,
                self._grid,
                features,
            )
            return
        noise = self._generator(_NOISE, block)
        rows = rows_in_block(self.settings.num_points)
        for first in range(0, BLOCK, rows):
            part = slice(first, min(first + rows, BLOCK))
            strain = draws.max_strain[part, None] * self._grid
            stress = self._stress(strain, draws.parameters[part])
            valid = None if draws.strength is None else before_break(stress, draws.strength[part])
            _write(features[part], strain, self._noisy(stress, noise), valid)

    def _fill_tests(self, block: int, draws: _Draws, features: Float32Array) -> None:
        """Writes a whole block of records of one or several tests."""

        def respond(history: History) -> Array:
            answer = self.law.respond(history, draws.parameters)
            return self._checked(answer, history.driven.shape, "respond()", draws.parameters)

        fill_tests(
            self.settings,
            self.form,
            lambda stream: self._generator(stream, block),
            respond,
            draws.strength,
            features,
        )

    def _stress(self, strain: Array, parameters: Array) -> Array:
        """The law's stress, checked."""
        stress = self.law.stress(strain, parameters)
        return self._checked(stress, strain.shape, "stress()", parameters)

    def _checked(
        self, answer: ArrayLike, shape: tuple[int, ...], method: str, parameters: Array
    ) -> Array:
        """The law's answer, since laws may be a user's own: a NaN here would spoil a training much later."""
        stress = np.asarray(answer)
        if stress.shape != shape:
            raise InputError(
                f"law {self.settings.law}: {method} returned shape {stress.shape} for strain of shape {shape}"
            )
        if not np.isfinite(stress.sum()):
            worst = parameters[~np.isfinite(stress).all(axis=1)][0]
            values = ", ".join(
                f"{parameter.name}={value:g}"
                for parameter, value in zip(self.law.parameters, worst, strict=True)
            )
            raise InputError(
                f"law {self.settings.law} gives a stress that is not finite at {values}; narrow its ranges"
            )
        return stress

    def _noisy(self, stress: Array, generator: np.random.Generator) -> Float32Array:
        """Stress with this block's next noise; the same normal numbers whatever their standard deviation."""
        absolute, relative = self.settings.noise_mpa or 0.0, self.settings.noise_relative
        noisy = stress.astype(np.float32)
        if absolute == 0.0 and relative == 0.0:
            return noisy
        normal = generator.standard_normal(stress.shape, np.float32)
        if relative == 0.0:
            normal *= np.float32(absolute)
        else:
            normal *= np.hypot(np.float32(absolute), np.float32(relative) * noisy)
        noisy += normal
        return noisy


def generator_of(seed: int, block: int, stream: int) -> np.random.Generator:
    """The random numbers of one thing that is drawn, for one block of curves."""
    seeds = np.random.SeedSequence(seed, spawn_key=(stream, block))
    return np.random.Generator(np.random.SFC64(seeds))


def fill_observed(
    settings: Laboratory,
    generator: Callable[[int], np.random.Generator],
    stress: LawStress,
    ends: Array,
    parameters: Array,
    strength: Array | None,
    grid: Array,
    features: Float32Array,
) -> None:
    """Writes a whole block with the observation model: curves of similarly many recorded points go together.

    Args:
      settings: options of the observation model.
      generator: of a stream of random numbers.
      stress: (strain [rows, points], parameters [rows, p]) -> MPa.
      ends: largest strain of each curve, [BLOCK]; parameters: [BLOCK, p].
      strength: stress at which each curve breaks off, [BLOCK], MPa; None for never.
      grid: places of a curve's points as shares of its largest strain, [points].
      features: [BLOCK, points, 3], written to.
    """
    noise = generator(_NOISE)
    observation = Observation.draw(settings, generator, BLOCK)
    order, points = np.arange(BLOCK), len(grid)
    if observation.counts is not None:
        order = np.argsort(observation.counts, kind="stable")
        points = max(points, int(observation.counts.max()))
    rows = rows_in_block(points)
    for first in range(0, BLOCK, rows):
        chosen = order[first : first + rows]
        strain = ends[chosen, None] * grid
        valid = None
        if strength is not None:
            valid = before_break(stress(strain, parameters[chosen]), strength[chosen])
        part = np.empty((len(chosen), *features.shape[1:]), np.float32)
        observed = observation.stress(stress, strain, parameters[chosen], chosen, noise, grid)
        _write(part, strain, observed.astype(np.float32), valid)
        features[chosen] = part


def _write(
    features: Float32Array, strain: Array, stress: Float32Array, valid: NDArray[np.bool_] | None
) -> None:
    """Writes strain, stress and flag, each [curves, points], into features [curves, points, 3]; None is all valid."""
    if valid is None:
        features[:, :, 0] = strain
        features[:, :, 1] = stress
        features[:, :, 2] = 0.0
        return
    # Products, since masked assignment takes four times as long; adding 0.0 turns -0.0 into 0.0.
    np.multiply(strain, valid, out=features[:, :, 0], casting="same_kind")
    masked = stress * valid
    masked += np.float32(0.0)
    features[:, :, 1] = masked
    np.logical_not(valid, out=features[:, :, 2], casting="unsafe")


def blocks_of(start: int, stop: int) -> list[tuple[int, slice, slice]]:
    """Every block that [start, stop) touches: its number, the rows wanted of it, and where they go."""
    if not 0 <= start <= stop:
        raise ValueError(f"curves {start} to {stop} do not exist")
    pieces = []
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first, last = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
        if first < last:
            inside = slice(first - block * BLOCK, last - block * BLOCK)
            pieces.append((block, inside, slice(first - start, last - start)))
    return pieces


# --------------------------------------------------------------------------------------------------
# Noisy copies of curves that hold no noise, such as finite-element runs give: cheap where runs are not.


class NoisyCopies:
    """Rows that are copies of curves; row i is a pure function of (curves, laboratory, seed, i).

    Threads may share one.
    """

    def __init__(
        self,
        strain: Array,
        stress: Array,
        of_row: NDArray[np.int64],
        laboratory: Laboratory,
        *,
        seed: int,
        num_points: int,
    ):
        """
        Args:
          strain, stress: [curves, points], - and MPa, strain rising; NaN beyond the end of a curve.
          of_row: [rows], which curve each row copies.
          laboratory: what it adds.
          num_points: of a copy.
        """
        self._laboratory, self._of_row, self._seed = laboratory, of_row, seed
        self._grid = np.linspace(0.0, 1.0, num_points)
        valid = ~(np.isnan(strain) | np.isnan(stress))
        last = valid.sum(axis=1) - 1
        self._ends = strain[np.arange(len(strain)), last]
        self._strain, self._stress = _continued(strain, stress, last)

    def fill(self, start: int, stop: int, features: Float32Array) -> None:
        """Writes rows `start` to `stop` - 1 into features [rows, points, 3] float32: strain, stress (MPa), flag.

        Raises:
          InputError: a machine is so soft that a specimen would jump.
        """
        for block, inside, outside in blocks_of(start, stop):
            whole = np.empty((BLOCK, *features.shape[1:]), np.float32)
            # Rows beyond the last are made and not used.
            rows = np.arange(block * BLOCK, (block + 1) * BLOCK) % len(self._of_row)
            curves = self._of_row[rows]
            generator = functools.partial(generator_of, self._seed, block)
            ends: Array = self._ends[curves]
            compliance: Array = np.zeros(BLOCK)
            if (limits := self._laboratory.max_strain) is not None:
                ends = np.minimum(ends, generator(MAX_STRAIN_STREAM).uniform(*limits, BLOCK))
            if (limits := self._laboratory.machine_stiffness) is not None:
                compliance = 1.0 / log_uniform(limits, generator(STIFFNESS_STREAM).random(BLOCK))
            fill_observed(
                # The curve with its machine is exact here, where the observation model would have to search.
                dataclasses.replace(self._laboratory, machine_stiffness=None),
                generator,
                self._answer,
                ends,
                np.stack([curves, compliance], axis=1),
                None,
                self._grid,
                whole,
            )
            features[outside] = whole[inside]

    def _answer(self, strain: Array, parameters: Array) -> Array:
        """Stress (MPa) at strains [rows, points] of a curve and its machine: lines between points.

        Args:
          parameters: [rows, 2], the curve and the machine's strain over stress (1/MPa).
        """
        number = parameters[:, 0].astype(np.int64)
        stress = self._stress[number]
        both = self._strain[number] + parameters[:, 1:] * stress
        if (np.diff(both, axis=1) <= 0.0).any():
            raise InputError(
                f"a machine stiffness of {1 / parameters[:, 1].max():g} MPa is too soft for some of the curves, whose "
                "specimens would jump; give a larger --config.data.machine_stiffness"
            )
        first, span = both[:, :1], both[:, -1:] - both[:, :1]
        # One call of `interp` for all: row i stands at 2 i to 2 i + 1.
        row = 2.0 * np.arange(len(strain))[:, None]
        place = np.clip((strain - first) / span, 0.0, 1.0) + row
        found = np.interp(place.ravel(), ((both - first) / span + row).ravel(), stress.ravel())
        return found.reshape(strain.shape)


def _continued(strain: Array, stress: Array, last: NDArray[np.int64]) -> tuple[Array, Array]:
    """The curves with their first line drawn on to zero strain, and their last beyond the end: no NaN is left.

    Args:
      strain, stress: [curves, points]; last: of each curve the place of its end, [curves].

    Returns:
      Strain and stress, [curves, points + 2]; strain rises.
    """
    rows = np.arange(len(strain))
    end, answer = strain[rows, last], stress[rows, last]
    slope = (answer - stress[rows, last - 1]) / (end - strain[rows, last - 1])
    # Twice the end, in as many steps as there are places left.
    step = np.arange(1, strain.shape[1] + 2) / (strain.shape[1] + 1)
    beyond = end[:, None] * (1.0 + step)
    places = np.arange(strain.shape[1] + 1)
    inside = places <= last[:, None]
    index = np.where(inside, 0, places - last[:, None] - 1)
    beyond = np.take_along_axis(beyond, index, axis=1)
    pad = ((0, 0), (0, 1))
    strains = np.where(inside, np.pad(strain, pad, constant_values=np.nan), beyond)
    drawn_on = answer[:, None] + slope[:, None] * (beyond - end[:, None])
    stresses = np.where(inside, np.pad(stress, pad, constant_values=np.nan), drawn_on)
    first_slope = (stress[:, 1] - stress[:, 0]) / (strain[:, 1] - strain[:, 0])
    # A curve that begins at zero gets a point that no strain reaches.
    zero = np.where(strain[:, 0] > 0.0, 0.0, strain[:, 0] - end)
    begin = stress[:, 0] + first_slope * (zero - strain[:, 0])
    return np.column_stack([zero, strains]), np.column_stack([begin, stresses])

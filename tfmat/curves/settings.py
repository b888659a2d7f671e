"""What makes a set of simulated curves: the law, its ranges, and how a test is imagined to go."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfmat.curves.programme import Programme
from tfmat.curves.programmes import Monotonic, file_digests, find_programmes
from tfmat.curves.setting_checks import (
    FEWEST_POINTS,
    OBSERVATION,
    checked_observation,
    contradiction,
    is_integer,
    not_negative,
    number,
    pair,
    positive_pair,
    refused,
)
from tfmat.errors import InputError, nearest
from tfmat.materials import DEFAULT_LAW, HistoryLaw, Law, find_law
from tfmat.materials.law import Scale
from tfmat.materials.registry import check_trusted, file_digest, is_file, law_class

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
    (low, high) for every curve (see `tfmat.curves.observation`, of tests `simulated_tests`), and None leaves it out:
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

    A material may be tested in several ways, or through a loading history (see `tfmat.curves.programmes`):
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

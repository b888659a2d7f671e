"""Tests that a law knows and a specimen did not have: candidates for the next one, and what is to be predicted."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.programme import Programme
from tfmat.curves.programmes import programme_class
from tfmat.curves.record_files import refusal, takes_tests
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError, nearest
from tfmat.identification.likelihood import unknown_likelihood
from tfmat.materials.law import Array, History, Law, Parameter, TestSet
from tfmat.materials.registry import LAWS

_POINTS = 60
# Settings that a test may be repeated with another value of.
_VARIED = ("rate", "temperature", "hold", "stress", "strain")
# Cycles of constant amplitude about zero are the ones that people ask for.
_PLAIN = {"first": 1.0, "irregularity": 0.0, "mean": 0.0}
# Settings that tell nobody which test is meant.
_UNTOLD = (*_PLAIN, "ramp", "unloading")
# Where in its range a test that was not done may end: early and late, beside the middle.
_EARLY_AND_LATE = (0.25, 0.9)


@dataclasses.dataclass(frozen=True)
class FurtherTest:
    """A test that was not done.

    Attributes:
      text: it in words, `a test of equibiaxial tension (equibiaxial=FILE)`.
      programme, settings: what kind of test it is, and the value of each setting.
      told: names of those settings that tell it from others of its kind.
    """

    text: str
    programme: Programme
    settings: Mapping[str, float]
    told: tuple[str, ...] = ()

    def history(self, points: int = _POINTS) -> History:
        """What the machine would do, as one row."""
        row = np.array([[self.settings[s.name] for s in self.programme.settings]])
        return self.programme.history(row, points, np.random.default_rng(0))

    def tests(self) -> TestSet:
        """The test alone."""
        return TestSet((self.history(),))

    @property
    def name(self) -> str:
        """As it is asked for: `equibiaxial:max_strain=1`."""
        told = ",".join(f"{name}={self.settings[name]:.4g}" for name in self.told)
        return self.programme.name + (f":{told}" if told else "")

    @property
    def title(self) -> str:
        """The test and what tells it, in words: `equibiaxial tension, max_strain 1`."""
        units = {s.name: "" if s.unit == "-" else f" {s.unit}" for s in self.programme.settings}
        told = [f"{name} {self.settings[name]:.4g}{units[name]}" for name in self.told]
        return ", ".join([self.programme.title, *told])


def other_tests(law: Law, record: MeasuredRecord) -> Iterator[FurtherTest]:
    """Tests of the law that were not done, and those that were done with one other setting."""
    done = {test.programme.name: test for test in record.tests}
    for name in dict.fromkeys(law.tests):
        programme = programme_class(name)()
        told, middle = _told(programme), middle_of(programme)
        test = done.get(name)
        if test is None or ("cycles" in middle and not test.turns):
            text = f"a test of {programme.title} ({name}=FILE)"
            yield FurtherTest(text, programme, middle, told)
            continue
        settings = middle | test.settings
        for setting in programme.settings:
            place = _place(setting, settings[setting.name])
            if setting.name in _VARIED:
                # Half-way to the end of the range that is further away.
                other = float(setting.from_unit_interval(0.5 * (place + (place < 0.5))))
                unit = "" if setting.unit == "-" else f" {setting.unit}"
                text = f"a test at another {setting.name}, such as {other:.3g}{unit},"
            elif setting.name in ("max_strain", "amplitude") and place < 0.8:
                other = setting.high
                text = f"a test to a larger strain, such as {other:.3g},"
            else:
                continue
            yield FurtherTest(text, programme, settings | {setting.name: other}, told)


def candidates(law: Law, record: MeasuredRecord) -> list[FurtherTest]:
    """A handful of tests that could come next: those that were done, others, and others to more or less strain."""
    found = []
    for test in record.tests:
        settings = middle_of(test.programme) | test.settings
        told = tuple(name for name in _told(test.programme) if name in test.settings)
        found.append(FurtherTest("the same test again", test.programme, settings, told))
    done = {test.programme.name for test in record.tests}
    for other in other_tests(law, record):
        other = dataclasses.replace(other, settings=_plain(other.settings))
        found.append(other)
        ends = [s for s in other.programme.settings if s.name in ("max_strain", "amplitude")]
        if other.programme.name in done:
            continue
        for setting in ends:
            for place in _EARLY_AND_LATE:
                value = float(f"{float(setting.from_unit_interval(place)):.2g}")
                settings = {**other.settings, setting.name: value}
                found.append(dataclasses.replace(other, settings=settings))
    return list({candidate.name: candidate for candidate in found}.values())


def asked_for(text: str, law: Law, flag: str) -> FurtherTest:
    """The test that `TEST:SETTING=VALUE,...` names; what is not given is in the middle of its range.

    Args:
      text: `equibiaxial:max_strain=1`, say.
      flag: that it was given with.

    Raises:
      InputError: there is no such test, the law does not answer it, or it has no such setting.
    """
    name, _, given = text.partition(":")
    programme = programme_class(name)()
    why = refusal(programme, law)
    if why is not None:
        raise InputError(f"--{flag}={text}: law {law.name} does not answer test {name}: {why}")
    known = {setting.name: setting for setting in programme.settings}
    settings = _plain(middle_of(programme))
    told = []
    for part in filter(None, given.split(",")):
        key, _, number = part.partition("=")
        if key not in known:
            raise InputError(
                f"--{flag}={text}: test {name} has no setting '{key}'{nearest(key, known)}"
            )
        try:
            settings[key] = float(number)
        except ValueError:
            settings[key] = np.nan
        if not np.isfinite(settings[key]) or (known[key].low > 0 and settings[key] <= 0):
            raise InputError(f"--{flag}={text}: {key} is '{number}'; give {_example(known[key])}")
        told.append(key)
    return FurtherTest(f"a test {text}", programme, settings, tuple(told))


def check_next_test(
    law: Law | None,
    settings: CurveSettings | None,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
) -> None:
    """InputError, in one line, where a law has no other tests, no likelihood, or not the tests that are named."""
    if law is None or settings is None:
        raise InputError(
            "the network is of no known law: nothing tells which test to do next (--next_test)"
        )
    if not takes_tests(law):
        others = [name for name, one in LAWS.items() if takes_tests(one())]
        raise InputError(
            f"law {law.name} knows one test, a curve of rising strain: there is no other to do next (--next_test); "
            f"laws of several tests: {', '.join(others)}"
        )
    # Which points a machine records says nothing of the material.
    why = unknown_likelihood(dataclasses.replace(settings.resolved(), measured_points=None))
    if why is not None:
        raise InputError(f"--next_test needs the law's likelihood: {why}")
    for flag, texts in (("predict", predict), ("candidate", candidate)):
        for text in texts:
            asked_for(text, law, flag)


def predictions(law: Law, record: MeasuredRecord) -> list[FurtherTest]:
    """What a user wants to know by default: the end of each kind of test that was not done, half as far as was tested.

    Where all kinds were done, it is their end half-way.
    """
    done = {test.programme.name for test in record.tests}
    names = [name for name in dict.fromkeys(law.tests) if name not in done] or list(
        dict.fromkeys(law.tests)
    )
    found = []
    for name in names:
        programme = programme_class(name)()
        settings = _plain(middle_of(programme)) | half_way(programme, record)
        found.append(FurtherTest("", programme, settings, _told(programme)))
    return found


def half_way(programme: Programme, record: MeasuredRecord) -> dict[str, float]:
    """Half of the largest strain of a record as the end of a test, within its range; {} of one that has no such end."""
    largest = max(float(np.abs(test.curve.strain).max()) for test in record.tests)
    limits = next((s for s in programme.settings if s.name == "max_strain"), None)
    if limits is None:
        return {}
    low, high = sorted((limits.low, limits.high))
    return {"max_strain": min(max(0.5 * largest, low), high)}


def middle_of(programme: Programme) -> dict[str, float]:
    """Every setting in the middle of its range."""
    return {s.name: float(s.from_unit_interval(0.5)) for s in programme.settings}


def last_answer(law: Law, test: FurtherTest, labels: Array) -> Array:
    """The response at the end of a test for labels [k, p]: [k], MPa or -."""
    return np.asarray(law.label_stress(test.tests(), labels)[:, -1])


def _told(programme: Programme) -> tuple[str, ...]:
    """The settings that tell tests of a kind apart."""
    return tuple(s.name for s in programme.settings if s.name not in _UNTOLD)


def _plain(settings: Mapping[str, float]) -> dict[str, float]:
    return {name: _PLAIN.get(name, value) for name, value in settings.items()}


def _example(setting: Parameter) -> str:
    unit = "" if setting.unit == "-" else f" in {setting.unit}"
    return f"a number{unit}, such as {float(setting.from_unit_interval(0.5)):.3g}"


def _place(setting: Parameter, value: float) -> float:
    """Where a value lies in the setting's range, 0-1."""
    if setting.low == setting.high or (setting.scale == "log" and value <= 0):
        return 0.0
    return float(np.clip(setting.to_unit_interval(value), 0.0, 1.0))

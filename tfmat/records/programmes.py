"""Test programmes: how a laboratory loads a specimen, and what tests of each kind of material show."""

import abc
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array, Finding, History, HistoryLaw, Law, Mode, Parameter, check_law
from tfmat.materials.registry import file_digest, is_file, user_class

# --------------------------------------------------------------------------------------------------
# The ways that tests go: from one turning point to the next, or up a ramp and on.


# Share of the points that lie on the ramp of a test with a ramp and a hold.
_RAMP_SHARE = 0.3
# _FEWEST_POINTS: of a history that a law is tried over; enough for every cycle of the longest.
_FEWEST_POINTS = 200
# _TRIAL_POINTS: of a history by which it is found whether a law answers a test at all.
_TRIAL_POINTS = 64


def along_path(turning: Array, points: int) -> Array:
    """Points of the path from 0 through turning points, evenly along the way and with every turning point among them.

    Args:
      turning: [records, turns]; a turning point that repeats the one before adds nothing.
      points: of each record, at least twice the turns and two more.

    Returns:
      [records, points]; the first point is 0, the last the last turning point.
    """
    records, turns = turning.shape
    if points < 2 * turns + 2:
        raise InputError(
            f"{points} points are too few for a history that turns {turns} times; give --config.data.num_points at "
            f"least {2 * turns + 2}"
        )
    knots = np.concatenate([np.zeros((records, 1)), turning], axis=1)
    length = np.abs(np.diff(knots, axis=1))
    place = np.concatenate([np.zeros((records, 1)), np.cumsum(length, axis=1)], axis=1)
    total = np.maximum(place[:, -1:], 1e-300)
    # Every branch with a length takes at least one interval; the rest are shared out by length.
    held = length > 1e-9 * total
    spare = points - 1 - held.sum(axis=1, keepdims=True)
    ends = np.cumsum(held, axis=1) + np.rint(spare * place[:, 1:] / total)
    ends = ends.astype(np.int64)
    # The branch of each point: how many branches ended before it.
    row = np.arange(records)[:, None]
    begun = np.bincount((row * (points + 1) + ends + 1).ravel(), minlength=records * (points + 1))
    branch = np.cumsum(begun[: records * (points + 1)].reshape(records, -1)[:, :points], axis=1)
    branch = np.minimum(branch, turns - 1) + row * turns
    starts = np.concatenate([np.zeros((records, 1), np.int64), ends[:, :-1]], axis=1)
    slope = np.diff(knots, axis=1) / np.maximum(ends - starts, 1)
    base = knots[:, :-1] - slope * starts
    path = base.ravel()[branch] + slope.ravel()[branch] * np.arange(points)
    # The turning points exactly, and not up to rounding.
    path[row, ends] = turning
    return np.asarray(path)


def ramp_and_hold(
    driven: str, level: Array, ramp: Array, hold: Array, points: int
) -> dict[str, Array]:
    """The arrays of a history, [records, points], that rises evenly to `level` in `ramp` seconds and stays there."""
    rising = max(2, round(_RAMP_SHARE * points))
    up = np.linspace(0.0, 1.0, rising)
    rest = np.linspace(0.0, 1.0, points - rising + 1)[1:]
    # From a thousandth of the hold on, evenly in ln t.
    held = hold * 1e-3 ** (1.0 - rest)
    time = np.concatenate([ramp * up, ramp + held], axis=1)
    value = np.concatenate([level * up, np.broadcast_to(level, held.shape)], axis=1)
    return {driven: value, "time": time}


# --------------------------------------------------------------------------------------------------
# A programme: settings that are drawn for every record, and the history that they mean.


class Programme(abc.ABC):
    """One kind of test; a subclass sets the attributes and defines `history`.

    Attributes:
      name: as in `--config.tests=cyclic`.
      title: for people, a few words.
      mode: how the specimen is loaded.
      settings: what is drawn for every record, each within its range.
      channels: what the record tells beside strain and stress: any of `time`, `rate`, `temperature`.
      drives: what the machine drives: `strain` or `stress`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    mode: ClassVar[Mode] = "uniaxial"
    settings: tuple[Parameter, ...]
    channels: ClassVar[tuple[str, ...]] = ()
    drives: ClassVar[str] = "strain"

    def __init__(self, ranges: Mapping[str, tuple[float, float]] | None = None):
        """`ranges` (setting -> (low, high), equal ones give a value) replace the programme's own."""
        ranges = dict(ranges or {})
        known = [setting.name for setting in type(self).settings]
        for name in ranges:
            if name not in known:
                raise InputError(f"test {self.name} has no setting '{name}'{nearest(name, known)}")
        self.settings = tuple(
            _within(setting, ranges[setting.name], self.name) if setting.name in ranges else setting
            for setting in type(self).settings
        )

    def draw(self, random: np.random.Generator, count: int, points: int) -> History:
        """Histories of `count` records of `points` points, whose settings are drawn with `random`."""
        return self.history(self.draw_settings(random, count), points, random)

    def draw_settings(self, random: np.random.Generator, count: int) -> Array:
        """[count, settings], in their units."""
        drawn = random.random((count, len(self.settings)))
        columns = [
            setting.from_unit_interval(drawn[:, i])
            if setting.low < setting.high
            else np.full(count, setting.low)
            for i, setting in enumerate(self.settings)
        ]
        return np.stack(columns, axis=1)

    @abc.abstractmethod
    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """The histories that these settings [records, settings] mean: [records, points].

        `random` is for what no setting says, such as the amplitude of each single cycle.
        """


def _within(setting: Parameter, limits: tuple[float, float], programme: str) -> Parameter:
    """The setting with a user's range, or with his value where both limits are equal."""
    low, high = limits
    floor = 0.0 if setting.scale == "log" else -np.inf
    if not floor < low <= high < np.inf:
        raise InputError(
            f"range of {setting.name} (test {programme}) is {low:g} to {high:g} {setting.unit}; give "
            f"{'0 < ' if setting.scale == 'log' else ''}low <= high, e.g. "
            f"--config.test_ranges.{setting.name}={setting.low:g},{setting.high:g}"
        )
    return dataclasses.replace(setting, low=low, high=high)


# --------------------------------------------------------------------------------------------------
# Test programmes: how a laboratory loads a specimen, and within which limits that is drawn for simulated records.
#
# A programme is one class, here or in a user's own file. Its settings are drawn for every record; what it makes of
# them is a history. Strain is the law's own measure: true for metals, engineering (stretch - 1) for rubber.


# Most cycles of a cyclic record by default; its points must hold all turning points.
MOST_CYCLES = 12
# Each departure from cycles of constant amplitude about zero is left out of this share of the records.
_PLAIN_SHARE = 0.5


class Monotonic(Programme):
    """One rising loading: tension of a metal, or shear of a ply, up to where it fails or necks."""

    name = "monotonic"
    title = "one rising loading"
    settings = (Parameter("max_strain", "-", 0.005, 0.6, "log", "largest strain"),)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; points are dense where the material yields."""
        return History(self.mode, strain=settings * np.linspace(0.0, 1.0, points) ** 2)


class Cyclic(Programme):
    """Strain cycles of a metal: of constant, growing or irregular amplitude, about zero or a mean strain."""

    name = "cyclic"
    title = "cyclic tension and compression"
    settings = (
        Parameter("amplitude", "-", 0.003, 0.03, "log", "largest strain, of either sign"),
        Parameter("cycles", "-", 1.0, MOST_CYCLES, "log", "number of cycles"),
        Parameter("first", "-", 0.2, 1.0, "linear", "first amplitude over the largest"),
        Parameter(
            "irregularity",
            "-",
            0.0,
            1.0,
            "linear",
            "how far turning points stray; 1: anywhere in the range",
        ),
        Parameter("mean", "-", -0.5, 0.5, "linear", "mean strain over the amplitude"),
    )

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the turning points are points of the history."""
        records = len(settings)
        amplitude, cycles, first, irregularity, mean = settings.T[:, :, None]
        plain = random.random((3, records, 1)) < _PLAIN_SHARE
        first = np.where(plain[0], 1.0, first)
        irregularity = np.where(plain[1], 0.0, irregularity)
        mean = np.where(plain[2], 0.0, mean)
        turns = np.maximum(np.rint(2.0 * cycles), 1.0)
        (most,) = (setting.high for setting in self.settings if setting.name == "cycles")
        number = np.arange(max(1, round(2.0 * most)))
        share = first + (1.0 - first) * number / np.maximum(turns - 1.0, 1.0)
        side = np.where(random.random((records, 1)) < 0.5, 1.0, -1.0) * (-1.0) ** number
        astray = 1.0 - 2.0 * irregularity * random.random((records, len(number)))
        strain = amplitude * (mean + side * share * astray) / (1.0 + np.abs(mean))
        last = np.take_along_axis(strain, turns.astype(int) - 1, axis=1)
        strain = np.where(number < turns, strain, last)
        return History(self.mode, strain=along_path(strain, points))


class CyclicShear(Programme):
    """Shear of a ply in cycles of loading and unloading whose peaks grow to the largest strain."""

    name = "cyclic_shear"
    title = "shear with unloading"
    mode = "shear"
    settings = (
        Parameter("max_strain", "-", 0.02, 0.10, "log", "largest engineering shear strain"),
        Parameter("cycles", "-", 1.0, 6.0, "linear", "number of loadings"),
        Parameter(
            "unloading",
            "-",
            0.1,
            1.0,
            "linear",
            "share of the peak strain that each unloading takes back",
        ),
    )

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the last loading is not unloaded."""
        largest, cycles, unloading = settings.T[:, :, None]
        cycles = np.rint(cycles)
        number = 1.0 + np.arange(int(np.rint(self.settings[1].high)))
        peaks = largest * np.minimum(number / cycles, 1.0)
        valleys = np.where(number < cycles, peaks * (1.0 - unloading), peaks)
        turning = np.stack([peaks, valleys], axis=2).reshape(len(settings), -1)
        return History(self.mode, strain=along_path(turning, points))


class Uniaxial(Programme):
    """Tension of a strip of rubber to a largest stretch."""

    name = "uniaxial"
    title = "uniaxial tension"
    settings = (Parameter("max_strain", "-", 0.5, 7.0, "log", "largest stretch - 1"),)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`."""
        return History(self.mode, strain=settings * np.linspace(0.0, 1.0, points))


class Equibiaxial(Uniaxial):
    """Equal tension along two axes of a sheet of rubber."""

    name = "equibiaxial"
    title = "equibiaxial tension"
    mode = "equibiaxial"
    settings = (Parameter("max_strain", "-", 0.3, 4.0, "log", "largest stretch - 1"),)


class Planar(Uniaxial):
    """Tension of a wide, short strip of rubber, which keeps its width; also called pure shear."""

    name = "planar"
    title = "planar tension"
    mode = "planar"
    settings = (Parameter("max_strain", "-", 0.3, 5.0, "log", "largest stretch - 1"),)


class Compression(Uniaxial):
    """Compression of rubber between lubricated plates."""

    name = "compression"
    title = "uniaxial compression"
    settings = (Parameter("max_strain", "-", -0.7, -0.1, "linear", "stretch - 1 at the end"),)


class RateAndTemperature(Programme):
    """Tension at a constant true strain rate and a constant temperature."""

    name = "rate_and_temperature"
    title = "tension at a rate and a temperature"
    settings = (
        Parameter("max_strain", "-", 0.05, 0.5, "log", "largest true strain"),
        Parameter("rate", "1/s", 1e-4, 1e4, "log", "true strain rate"),
        Parameter("temperature", "°C", 20.0, 800.0, "linear", "of the specimen"),
    )
    channels = ("rate", "temperature")

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; points are dense where the metal yields."""
        largest, rate, temperature = settings.T[:, :, None]
        strain = largest * np.linspace(0.0, 1.0, points) ** 2
        return History(self.mode, strain=strain, rate=rate, temperature=temperature)


class TensionAtRate(Programme):
    """Tension at a constant strain rate."""

    name = "tension_at_rate"
    title = "tension at a rate"
    settings = (
        Parameter("max_strain", "-", 0.01, 0.1, "log", "largest strain"),
        Parameter("rate", "1/s", 1e-6, 1e-1, "log", "strain rate"),
    )
    channels = ("time",)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; points are dense where the metal yields."""
        largest, rate = settings.T[:, :, None]
        strain = largest * np.linspace(0.0, 1.0, points) ** 2
        return History(self.mode, strain=strain, time=strain / rate)


class Relaxation(Programme):
    """A strain, reached at a constant rate and held: the stress relaxes."""

    name = "relaxation"
    title = "stress relaxation"
    settings = (
        Parameter("strain", "-", 0.002, 0.02, "log", "strain that is held"),
        Parameter("rate", "1/s", 1e-4, 1e-1, "log", "strain rate of the ramp"),
        Parameter("hold", "s", 100.0, 1e5, "log", "how long the strain is held"),
    )
    channels = ("time",)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the times of the hold are even on a log scale."""
        strain, rate, hold = settings.T[:, :, None]
        return History(self.mode, **ramp_and_hold("strain", strain, strain / rate, hold, points))


class Creep(Programme):
    """A stress, reached at a constant rate and held: the strain creeps."""

    name = "creep"
    title = "creep"
    settings = (
        Parameter("stress", "MPa", 10.0, 400.0, "log", "stress that is held"),
        Parameter("ramp", "s", 1.0, 100.0, "log", "how long the ramp takes"),
        Parameter("hold", "s", 100.0, 1e6, "log", "how long the stress is held"),
    )
    channels = ("time",)
    drives = "stress"

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the times of the hold are even on a log scale."""
        stress, ramp, hold = settings.T[:, :, None]
        return History(self.mode, **ramp_and_hold("stress", stress, ramp, hold, points))


PROGRAMMES: dict[str, type[Programme]] = {
    programme.name: programme
    for programme in (
        Cyclic, CyclicShear, Uniaxial, Equibiaxial, Planar, Compression, RateAndTemperature, TensionAtRate,
        Relaxation, Creep,
    )
}  # fmt: skip


def programme_class(spec: str) -> type[Programme]:
    """The class of a registered name (`cyclic`) or of `path/to/file.py:ClassName`; InputError if there is none."""
    if is_file(spec):
        guide = "docs/adding_a_law.md shows a complete one"
        found: type[Programme] = user_class(spec, Programme, "test", "--config.tests", guide)
        if found.name in PROGRAMMES and found is not PROGRAMMES[found.name]:
            raise InputError(
                f"test {spec}: its name is '{found.name}', which is a test that comes with tfmat; give it another name"
            )
        return found
    if spec not in PROGRAMMES:
        raise InputError(
            f"there is no test '{spec}'{nearest(spec, PROGRAMMES)} "
            "(`tfmat laws --tests` lists them; path/to/file.py:ClassName is one of your own)"
        )
    return PROGRAMMES[spec]


def find_programmes(
    specs: Sequence[str], ranges: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Programme, ...]:
    """The programmes that `specs` name.

    Args:
      specs: registered names, or `path/to/file.py:ClassName`.
      ranges: `setting`, for every programme that has it, or `programme_setting` for one -> (low, high).

    Raises:
      InputError: no such programme, a range that no programme has, or one that is none.
    """
    classes = [programme_class(spec) for spec in specs]
    names = [[setting.name for setting in one.settings] for one in classes]
    known = {
        key
        for one, settings in zip(classes, names, strict=True)
        for name in settings
        for key in (name, f"{one.name}_{name}")
    }
    ranges = dict(ranges or {})
    for key in ranges:
        if key not in known:
            raise InputError(f"no test of this record has a setting '{key}'{nearest(key, known)}")
    found = []
    for one, settings in zip(classes, names, strict=True):
        chosen = {n: ranges[n] for n in settings if n in ranges}
        chosen |= {n: ranges[f"{one.name}_{n}"] for n in settings if f"{one.name}_{n}" in ranges}
        found.append(one(chosen))
    return tuple(found)


def takes_tests(law: Law | None) -> bool:
    """Whether a law is identified from tests, and not from a curve of rising strain."""
    return law is not None and law.tests != (Monotonic.name,)


def refusal(programme: Programme, law: Law) -> str | None:
    """Why a law does not answer a programme; None where it does."""
    if isinstance(programme, Monotonic) or not takes_tests(law):
        both = isinstance(programme, Monotonic) and not takes_tests(law)
        return None if both else "it is identified from one curve of rising strain"
    if programme.mode not in law.modes:
        return f"it answers {' and '.join(law.modes)} tests, and this is {programme.mode}"
    if programme.name in PROGRAMMES and programme.name not in law.tests:
        # Other tests of what the law's own ones tell: compression beside tension, all that is told over time.
        told = {name for own in law.tests for name in programme_class(own).channels}
        beside = programme.name == "compression" and "uniaxial" in law.tests
        if not beside and not (programme.channels and told.issuperset(programme.channels)):
            unknown = [name for name in programme.channels if name not in told]
            return (
                f"it knows no {' and no '.join(unknown)}" if unknown else "it is tested otherwise"
            )
    random = np.random.default_rng(0)
    parameters = law.from_labels(np.full((1, len(law.identified)), 0.5))
    try:
        with np.errstate(all="ignore"):
            law.respond(programme.draw(random, 1, _TRIAL_POINTS), parameters)
    except InputError as error:
        return str(error)
    except Exception as error:  # a user's own law may fail in any way on what it does not know
        return f"{type(error).__name__}: {error}"
    return None


def check_answers(law: Law, programme: Programme) -> None:
    """InputError where the law does not answer such tests."""
    if not isinstance(law, HistoryLaw):
        raise InputError(
            f"law {law.name} is for one curve of rising strain; leave tests={programme.name} out"
        )
    if programme.mode not in law.modes:
        raise InputError(
            f"test {programme.name} is {programme.mode}; law {law.name} answers {' and '.join(law.modes)} tests"
        )


def try_law(
    law: Law, programmes: Sequence[Programme] | None = None, quick: bool = False
) -> list[Finding]:
    """The checks of the law (`check_law`) over a rising strain, or over each of `programmes`, by default its own."""
    if programmes is None:
        programmes = () if law.tests == (Monotonic.name,) else find_programmes(law.tests)
    if not programmes:
        return check_law(law, quick=quick)

    def draw(programme: Programme, curves: int, points: int) -> History:
        return programme.draw(np.random.default_rng(0), curves, max(points, _FEWEST_POINTS))

    return [
        dataclasses.replace(finding, check=f"{name}, {finding.check}")
        for name, programme in {one.name: one for one in programmes}.items()
        for finding in check_law(law, functools.partial(draw, programme), quick)
    ]


def file_digests(specs: Sequence[str]) -> list[str]:
    """Digests that tell the files of a user's own programmes from edited ones; empty without any."""
    return [file_digest(spec) for spec in specs if is_file(spec)]


# --------------------------------------------------------------------------------------------------
# Usual moduli, strengths and strains in tests of the materials that a law is for.


# _SAMPLES: materials, random ones beside the corners, from which the largest response is taken.
_SAMPLES = 512


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Usual results of tests of a kind of material.

    Attributes:
      name: of the material and test; modulus_mpa, strength_mpa: usual ranges; strain: range of the records' ends, -.
      elastic_strain: the largest strength over modulus of any such material, -.
    """

    name: str
    modulus_mpa: tuple[float, float]
    strength_mpa: tuple[float, float]
    strain: tuple[float, float]
    elastic_strain: float

    def distance(self, modulus: float, strength: float, end: float) -> float:
        """How far outside of the ranges a curve lies: the sum of the logarithms; 0 inside.

        Strength is measured well and counts three times; the modulus hangs on a few points and on the machine.
        """
        return sum(
            weight * max(math.log(low / value), math.log(value / high), 0.0)
            for weight, value, (low, high) in (
                (1.0, modulus, self.modulus_mpa),
                (3.0, strength, self.strength_mpa),
                (1.0, end, self.strain),
            )
        )


# METAL: aluminium, magnesium with the tolerance, to steel and nickel; aluminium and tin when hot to hardened steel.
# Strength over modulus: 0.01 at the upper end of the metals in Ashby's chart of strength and modulus (M. F. Ashby,
# Materials Selection in Mechanical Design), 0.013 of maraging steel, 0.016 of music wire, 0.02 of metallic glasses.
METAL = Expectation("a metal", (55e3, 230e3), (8.0, 2500.0), (0.002, 2.0), 0.02)
# SHEAR: plies of unidirectional and woven laminates in their plane, and the polymers between them. Strength over
# modulus: 0.1 at the upper end of the polymers in the same chart.
SHEAR = Expectation("a laminate in shear", (1.5e3, 10e3), (15.0, 300.0), (0.002, 0.5), 0.1)
# CONCRETE: normal to ultra-high strength. Strength over the modulus at the start: half the strain at the peak of a
# parabola, which is 0.002 to 0.003 (fib Model Code 2010, table 5.1-8), with as much again.
CONCRETE = Expectation("concrete", (10e3, 60e3), (5.0, 250.0), (0.001, 0.02), 0.003)
# POSSIBLE: beyond the usual range by this factor a modulus is still possible, for a machine that gives way takes two.
POSSIBLE = 2.25
# RARE: moduli of no common metal at room temperature, MPa: between tin and aluminium, and between beryllium copper and
# ductile iron (ASM Handbook, volumes 1 and 2). A steel's or an aluminium's with a third of the strain added is one.
RARE = ((52e3, 64e3), (137e3, 160e3))
# STIFF: above this modulus, MPa, are molybdenum, tungsten, rhenium and few more metals; cobalt alloys are the stiffest
# of the common ones (the same volumes). A steel over too long a gauge length has more.
STIFF = 240e3
# HOT: temperature, °C, from which on a modulus may be any: a steel has 5 % less at 150 °C (EN 1993-1-2, table 3.1).
HOT = 150.0
# STRONG: stress over modulus of the strongest alloys with moduli below, MPa: magnesium and tin, aluminium (the same
# volumes). A steel whose strain holds the machine's own has more.
STRONG = ((52e3, 0.0095), (78e3, 0.011))
# First parameter, measure of the strain, and whether the law is for compression: the material of the law.
_BY_FIRST_PARAMETER = {
    ("E", "true", False): METAL,
    ("G0", "engineering shear", False): SHEAR,
    ("fc", "engineering", True): CONCRETE,
}
_AT_START = np.array([1e-5])


def expectation_of(law: Law) -> Expectation | None:
    """The materials of a law of metals or of shear, by its measures and its range; None for any other law."""
    stiffness = float(
        np.median(law.stress(_AT_START[None], sampled_parameters(law))[:, 0] / _AT_START[0])
    )
    expectation = SHEAR if law.strain_measure == "engineering shear" else METAL
    low, high = expectation.modulus_mpa
    return expectation if low / 2 < stiffness < 2 * high and not law.compression else None


def check_answer(
    law: Law, parameters: Array, largest_mpa: float, celsius: float = 20.0
) -> tuple[str, str, bool] | None:
    """The implausible part of an answer, a sentence with its numbers, and whether no material is like that.

    None where all of it is usual.

    A modulus and a strength may both be possible, but not in one material: a strain that includes the machine's gives a
    modulus that is too low for the strength.

    Args:
      parameters: [all], in the parameters' units; a modulus that was given is not judged.
      largest_mpa: the largest stress of the test.
      celsius: its temperature; a hot metal is softer.
    """
    first, modulus = law.parameters[0], float(parameters[0])
    key = first.name, law.strain_measure, law.compression
    expectation = _BY_FIRST_PARAMETER.get(key)
    if expectation is None or first.fixed is not None:
        return None
    if expectation is CONCRETE:
        modulus = float(law.stress(_AT_START[None], parameters[None])[0, 0] / _AT_START[0])
    low, high = expectation.modulus_mpa
    said = f"its modulus, {modulus / 1e3:.3g} GPa,"
    if not low / POSSIBLE <= modulus <= high * POSSIBLE:
        usual = f"{low / 1e3:.3g} to {high / 1e3:.3g} GPa"
        return (
            "implausible modulus",
            f"{said} is far from the usual of {expectation.name}, {usual}",
            True,
        )
    ratio = largest_mpa / modulus
    if ratio > expectation.elastic_strain:
        most = f"for {expectation.name} at most {expectation.elastic_strain:g}"
        said += f" does not go with a stress of {largest_mpa:.4g} MPa: their ratio is {ratio:.2g}, {most}"
        return "implausible modulus for the strength", said, True
    if expectation is METAL and modulus > STIFF:
        said += " is of hardly any metal: of molybdenum, tungsten, rhenium and few more"
        return "rare modulus", said, False
    if expectation is METAL and celsius < HOT and any(low <= modulus <= high for low, high in RARE):
        return "rare modulus", f"{said} is of hardly any metal at room temperature", False
    if expectation is METAL and any(modulus < below and ratio > most for below, most in STRONG):
        said += f" is of hardly any metal with a stress of {largest_mpa:.4g} MPa"
        return "rare modulus", said, False
    return None


def secant_range(law: Law, strain: Array) -> tuple[float, float]:
    """The smallest and the largest secant modulus (MPa) of the law at a strain [1], over its ranges."""
    stress = law.stress(strain[None], sampled_parameters(law))[:, 0]
    secants = stress / strain[0]
    return float(secants.min()), float(secants.max())


def sampled_parameters(law: Law) -> Array:
    """Parameters that fill the ranges, corners included: [samples, all]."""
    random = np.random.default_rng(0)
    count = len(law.identified)
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * min(count, 6)), -1).reshape(-1, min(count, 6))
    labels = random.uniform(size=(_SAMPLES, count))
    if count <= 6:
        labels = np.concatenate([corners, labels])
    return law.from_labels(labels)

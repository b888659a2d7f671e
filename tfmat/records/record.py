"""The measured tests of one material: how each was driven, and how they stand in the records that a network takes."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array, History, Law, TestSet
from tfmat.records.programmes import Creep, Monotonic, Programme, Relaxation, Uniaxial, along_path
from tfmat.records.reading import RawCurve, temperature_of
from tfmat.records.simulation import FLAG, CurveSettings, RecordForm
from tfmat.records.tables import MINIMUM_POINTS
from tfmat.records.tensile import StrainError, TensileProperties, noise_of

# --------------------------------------------------------------------------------------------------
# A curve, and reasons to be careful with it.


@dataclasses.dataclass(frozen=True)
class Caveat:
    """One reason to be careful with the answer for one curve.

    Attributes:
      kind: a few words that are the same for every curve it is true of, e.g. "necking"; a batch is summed up by them.
      text: one sentence with the numbers of this curve, without a full stop.
      advice: what to do about it, the same for every curve of this kind; empty where nothing can be done.
      blocks: the answer must not be used.
    """

    kind: str
    text: str
    advice: str = ""
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}" if self.advice else self.text


# ONE_TRUE: kind of the warning where one column is called true, and the other does not say its measure.
ONE_TRUE = "one column called true"
# _IN_DOUBT: advice where a file tells something in two ways, by the kind of the warning.
_IN_DOUBT = {
    "two areas": "give the one that holds with --area=MM2",
    "preload set to zero?": "add the preload to the load, and its elastic strain to the strain, if it was",
    "travel over a gauge length": "--gauge_length=MM takes another length",
    "two gauge lengths": "correct the strain, or the line in the head",
    "engineering or true?": "say --strain_measure=true --stress_measure=true if they are true values",
    ONE_TRUE: "say --strain_measure=true or --strain_measure=engineering",
    "name and numbers differ": "say which holds with --strain_measure, --stress_measure",
}


# ENGINEERING_COLUMNS: assumed of a test whose columns say nothing of their measure.
ENGINEERING_COLUMNS = "engineering columns"


def reasons_not_to_use(caveats: Iterable[Caveat]) -> list[str]:
    """The kinds of those that forbid the use of the answer, each once and in order; empty where it can be used."""
    return list(dict.fromkeys(caveat.kind for caveat in caveats if caveat.blocks))


# --------------------------------------------------------------------------------------------------
# The way that a test was driven: turning points, measured points averaged along it, the settings of its programme.
#
# A place is how far the machine has gone: the sum of the driven changes, on which noise takes no part. Settings are
# amplitude, cycles, rate, temperature, hold, and such, as a record shows them.


# _TURN: share of the largest stress; a fall or rise by less turns no load.
_TURN = 0.25
# _COMPRESSION: share of the largest stress; a stress that far below zero is compression.
_COMPRESSION = 0.15


def turning_points(stress_mpa: Array, share: float = _TURN) -> list[int]:
    """The points where the load turns: alternating maxima and minima, the beginning and the end left out.

    Args:
      stress_mpa: [points], in the order in which they were measured; or a driven strain.
      share: of the largest value; a rise or fall by less is none.
    """
    least = share * float(np.abs(stress_mpa).max())
    turns: list[int] = []
    highest = lowest = 0
    direction = 0
    for i, stress in enumerate(stress_mpa):
        if stress > stress_mpa[highest]:
            highest = i
        if stress < stress_mpa[lowest]:
            lowest = i
        if direction >= 0 and stress < stress_mpa[highest] - least:
            if direction or highest:
                turns.append(highest)
            direction, lowest = -1, i
        elif direction <= 0 and stress > stress_mpa[lowest] + least:
            if direction or (lowest and stress_mpa[lowest] < -_COMPRESSION * least / _TURN):
                turns.append(lowest)
            direction, highest = 1, i
        else:
            continue
        highest = lowest = i
    return turns


# The driven value turns where it goes back by this share of the largest value; by more where noise would then turn it
# so often that fewer points than this lie between two turns.
_LEAST_TURN, _FEWEST_BETWEEN = 0.01, 5
# A test with a ramp and a hold: the ramp ends where the driven value first comes this near to its last one.
_REACHED = 0.98
# Half cycles whose amplitudes differ by less than this share are alike; so many in a row tell of a drift, where the
# slope of their middles is so many times its standard error: 1 % of irregular histories then seem to drift.
_ALIKE, _FEWEST_HALVES, _CLEARLY = 0.2, 5, 3.0
# Where a ramp ends on the scale of places; the hold takes the rest, evenly in ln t from this share of its length on.
_RAMP_SHARE, _EARLIEST = 0.3, 1e-3


def turns_of(driven: Array) -> list[int]:
    """The points where the driven value [points] turns, the beginning and the end left out."""
    if not np.any(driven):
        return []
    share = _LEAST_TURN
    while (turns := turning_points(driven, share)) and len(driven) < _FEWEST_BETWEEN * len(turns):
        share *= 2.0
    return turns


def places_on_path(driven: Array, turns: list[int]) -> Array:
    """How far the driven value has gone at each point, [points], not falling; noise does not count as a way."""
    places = np.empty(len(driven))
    ends = [0, *turns, len(driven) - 1]
    gone = 0.0
    for first, last in itertools.pairwise(ends):
        branch = driven[first : last + 1]
        side = 1.0 if branch[-1] >= branch[0] else -1.0
        way = np.clip(side * (branch - branch[0]), 0.0, abs(float(branch[-1] - branch[0])))
        places[first : last + 1] = gone + np.maximum.accumulate(way)
        gone = float(places[last])
    return places


def end_of_ramp(driven: Array) -> int:
    """The point from which on a test with a hold holds its value."""
    reached = np.abs(driven) >= _REACHED * abs(
        float(np.median(driven[-max(len(driven) // 4, 1) :]))
    )
    return int(reached.argmax())


def places_in_time(driven: Array, time: Array) -> Array:
    """Places of a test with a ramp and a hold, [points], 0-1: the ramp evenly, the hold evenly in ln t."""
    end = end_of_ramp(driven)
    begun, hold = float(time[end]), max(float(time[-1] - time[end]), 1e-300)
    ramp = max(begun - float(time[0]), 1e-300)
    share = np.log(np.maximum((time - begun) / hold, _EARLIEST) / _EARLIEST) / -np.log(_EARLIEST)
    held = _RAMP_SHARE + (1.0 - _RAMP_SHARE) * share
    return np.where(np.arange(len(time)) <= end, _RAMP_SHARE * (time - time[0]) / ramp, held)


# _HELD: share of the largest strain from which a strain is held.
_HELD = 0.98
# _MOST: share of the time that a relaxation test holds its strain, at the least.
_MOST = 0.5
# _FALLEN: share of the largest stress that is left at its end, at the most.
_FALLEN = 0.97
# _SLOWER: factor between the rates of strain at the loading and of creep.
_SLOWER = 10.0
# _ABOVE: factor by which noise may raise the stress behind the ramp.
_ABOVE = 1.02


def holds_strain(time: Array, strain: Array, stress: Array) -> bool:
    """Whether a strain [points] is held for most of the time while the stress falls."""
    held = np.flatnonzero(strain >= _HELD * strain.max())
    if len(held) < 2 or not time[-1] > time[0]:
        return False
    first = held[0]
    share = (time[-1] - time[first]) / (time[-1] - time[0])
    stays = bool((strain[first:] >= _HELD * strain.max()).all())
    falls = (
        stress[-1] < _FALLEN * stress.max()
        and stress[first:].max() <= _ABOVE * stress[: first + 1].max()
    )
    return bool(stays and share > _MOST and falls)


def holds_stress(time: Array, strain: Array, stress: Array) -> bool:
    """Whether a stress [points] is held for most of the time while the strain grows far slower than at the loading."""
    held = stress >= _HELD * stress.max()
    first = int(held.argmax())
    loading, hold = float(time[first] - time[0]), float(time[-1] - time[first])
    grown = float(strain[-1] - strain[first])
    # A metal that hardly hardens is stretched as fast behind its yield point.
    slower = abs(float(strain[first])) * hold > _SLOWER * grown * loading
    return bool(held[first:].all() and grown > 0.0 and hold > _MOST * (hold + loading) and slower)


@dataclasses.dataclass(frozen=True)
class Cells:
    """The measured points that stand for each new place: means where they are dense, lines between elsewhere.

    Attributes:
      at: new places, [new], rising; places: of the measured points, [points], not falling.
      kept: (index of a new place, measured point) pairs that are taken as they are.
    """

    at: Array
    places: Array
    kept: tuple[tuple[int, int], ...] = ()

    @property
    def _cell(self) -> NDArray[np.intp]:
        """The new place that each measured point is nearest to, [points]."""
        return np.asarray(np.searchsorted((self.at[1:] + self.at[:-1]) / 2, self.places), np.intp)

    def sums(self, values: Array) -> Array:
        """The sums of a quantity [points] over the points of each new place: [new]."""
        return np.asarray(np.bincount(self._cell, values, len(self.at)))

    def of(self, values: Array) -> Array:
        """A measured quantity [points] at the new places: [new]."""
        cell = self._cell
        count = np.bincount(cell, minlength=len(self.at))
        held = count > 0
        places = np.bincount(cell, self.places, len(self.at))[held] / count[held]
        means = np.bincount(cell, values, len(self.at))[held] / count[held]
        # Cells without a point lie between their neighbours; turning points are no means.
        for new, old in self.kept:
            i = int(np.searchsorted(places, self.at[new]))
            inside = i < len(places) and places[i] == self.at[new]
            if inside:
                means[i] = values[old]
            else:
                places = np.insert(places, i, self.at[new])
                means = np.insert(means, i, values[old])
        return np.interp(self.at, places, means)


def thinned(places: Array, turns: list[int], most: int) -> Cells:
    """Cells of at most `most` points, shared out among the branches by their length, each turning point one."""
    ends = [0, *turns, len(places) - 1]
    length = np.diff(places[ends])
    total = max(float(length.sum()), 1e-300)
    spare = max(most - 1 - len(length), 0)
    steps = np.where(length > 0, 1 + np.floor(spare * length / total), 0).astype(np.int64)
    at = [places[:1]]
    for first, last, count in zip(places[ends[:-1]], places[ends[1:]], steps, strict=True):
        at.append(np.linspace(first, last, count + 1)[1:])
    kept = tuple(zip(np.concatenate([[0], np.cumsum(steps)]).tolist(), ends, strict=True))
    return Cells(np.concatenate(at), places, tuple(dict(kept).items()))


def drift_of_middle(driven: Array, turns: list[int]) -> tuple[float, float]:
    """How far the middle of cycles moves while their amplitude is constant, and the amplitude; 0, 0 without such.

    A programme whose amplitude changes moves the middle by itself. So only blocks of cycles of nearly one amplitude
    count: the moves of the middle in each are added up, where it clearly moves along a line.
    """
    ends = driven[turns]
    middle, half = (ends[1:] + ends[:-1]) / 2, np.abs(ends[1:] - ends[:-1]) / 2
    moved, sizes, first = 0.0, [], 0
    while first < len(half):
        last = first + 1
        while last < len(half) and _alike(half[first : last + 1]):
            last += 1
        if last - first >= _FEWEST_HALVES:
            (slope, _), covariance = np.polyfit(
                np.arange(last - first), middle[first:last], 1, cov=True
            )
            if slope**2 > _CLEARLY**2 * covariance[0, 0]:
                moved += float(slope * (last - first - 1))
            sizes.append(float(np.median(half[first:last])))
        first = last
    return (moved, float(np.mean(sizes))) if sizes else (0.0, 0.0)


def _alike(half: Array) -> bool:
    return bool(np.ptp(half) <= _ALIKE * np.median(half))


def half_cycles(turns: Sequence[int]) -> int:
    """How many half cycles a test with these turning points has: the first and the last loading count."""
    return len(turns) + 1


# A setting may lie so far beyond its range, of its width on its scale, without anyone caring.
_BEYOND_RANGE = 0.02


def measured_settings(
    programme: Programme,
    driven: Array,
    time: Array | None,
    turns: Sequence[int],
    rate: float | None,
    temperature: float | None,
) -> dict[str, float]:
    """Setting of its programme -> value, as far as a record tells it.

    Args:
      driven: strain (-) or stress (MPa), [points]; time: [points], s, or None.
      turns: points where the driven value turns.
    """
    largest = float(driven[np.abs(driven).argmax()])
    found = {
        "amplitude": abs(largest),
        "max_strain": largest,
        "cycles": max(half_cycles(turns) / 2.0, 1.0),
    }
    if programme.mode == "shear" and turns:
        peaks, valleys = driven[list(turns)[::2]], driven[list(turns)[1::2]]
        both = min(len(peaks), len(valleys))
        if both:
            back = 1.0 - valleys[:both] / np.where(peaks[:both] == 0, 1.0, peaks[:both])
            found["unloading"] = float(np.mean(back))
        found["cycles"] = len(valleys) + 1.0
    if rate is not None:
        found["rate"] = rate
    if temperature is not None:
        found["temperature"] = temperature
    if time is not None:
        end = end_of_ramp(driven)
        held = float(np.median(driven[end:]))
        found |= {"strain": abs(held), "stress": abs(held), "hold": float(time[-1] - time[end])}
        found["ramp"] = float(time[end] - time[0])
        if found["ramp"] > 0:
            found["rate"] = abs(float(driven[end] - driven[0])) / found["ramp"]
    return {s.name: found[s.name] for s in programme.settings if s.name in found}


def settings_beyond(programme: Programme, settings: Mapping[str, float]) -> list[str]:
    """Settings outside of a programme's ranges, each in words: `amplitude 0.08 (0.003 to 0.03)`."""
    found = []
    for setting in programme.settings:
        value = settings.get(setting.name)
        if value is None:
            continue
        if setting.scale == "log" and value <= 0:
            place = -np.inf
        elif setting.low == setting.high:
            place = 0.0 if np.isclose(value, setting.low, rtol=_BEYOND_RANGE) else np.inf
        else:
            place = float(setting.to_unit_interval(value))
        if not -_BEYOND_RANGE <= place <= 1.0 + _BEYOND_RANGE:
            unit = "" if setting.unit == "-" else f" {setting.unit}"
            found.append(
                f"{setting.name} {value:.3g}{unit} ({setting.low:.3g} to {setting.high:.3g}{unit})"
            )
    return found


# --------------------------------------------------------------------------------------------------
# Measured tests of one material: each a file or arrays, made into the history and the response of a law.
#
# A law of one rising loading is identified from a record with one test, a curve. A law that takes tests is given all of
# them, through the very histories that the machine drove.


# A longer test is averaged along its path, or over ln t.
MOST_POINTS = 2000


@dataclasses.dataclass
class MeasuredTest:
    """One test as it was measured, in the law's measures.

    Attributes:
      name: for reports.
      strain: [points], -, in the order of measurement; of one rising loading rising, within the trained range.
      stress_mpa: [points], MPa.
      programme: what kind of test it is.
      steps: what was done to it, in words, in order.
      warnings: what should make the reader of an answer careful; one that blocks forbids the use of any answer.
      assumed: what was assumed and not read, in short ("stress in MPa"), to be shown wherever the answer is.
      conditions: what head and file name say of the test: `specimen`, `temperature`, `direction`, `rate`, and such.
      tensile: the properties of a tension test of a metal that need no law; None for other tests.
      toe: strain that slack or seating adds before the elastic part, -; 0 where none was found.
      toe_removed: the toe was taken off the strain.
      slope_of_toe: of the part that was taken for a toe, and its standard error, MPa; NaN where it is not known.
      strain_error: of the points, where the strain is coarse or noisy.
      load_in_doubt: the stress at the start, MPa, which is a load or a zero that is off; 0 where nothing is in doubt.
      time: [points], s, from the first point on; None where the law asks for none.
      rate: 1/s; temperature: °C; None where the law asks for none.
      turns: points where the driven strain or stress turns, the beginning and the end left out.
    """

    name: str
    strain: Array
    stress_mpa: Array
    programme: Programme = dataclasses.field(default_factory=Monotonic)
    steps: list[str] = dataclasses.field(default_factory=list)
    warnings: list[Caveat] = dataclasses.field(default_factory=list)
    assumed: list[str] = dataclasses.field(default_factory=list)
    conditions: dict[str, str] = dataclasses.field(default_factory=dict)
    tensile: TensileProperties | None = None
    toe: float = 0.0
    toe_removed: bool = False
    slope_of_toe: tuple[float, float] = (np.nan, np.nan)
    strain_error: StrainError = dataclasses.field(default_factory=StrainError)
    load_in_doubt: float = 0.0
    time: Array | None = None
    rate: float | None = None
    temperature: float | None = None
    turns: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, raw: RawCurve) -> "MeasuredTest":
        """A test as it was read, before anything is done to it."""
        return cls(
            raw.name,
            np.asarray(raw.strain),
            np.asarray(raw.stress_mpa),
            steps=list(raw.steps),
            assumed=list(raw.assumed),
            conditions=dict(raw.conditions),
            warnings=[Caveat(kind, text, _IN_DOUBT[kind]) for kind, text in raw.in_doubt.items()],
        )

    def __len__(self) -> int:
        return len(self.strain)

    @property
    def celsius(self) -> float | None:
        """The temperature that its file says, °C; None where it says none that is understood."""
        said = self.conditions.get("temperature")
        with contextlib.suppress(InputError):
            return None if said is None else temperature_of(said)[0]
        return None

    @property
    def driven(self) -> Array:
        """The strain (-) or the stress (MPa) that the machine drove, [points]."""
        return self.strain if self.programme.drives == "strain" else self.stress_mpa

    @property
    def response(self) -> Array:
        """The stress (MPa) or the strain (-) that answered, [points]."""
        return self.stress_mpa if self.programme.drives == "strain" else self.strain

    @property
    def history(self) -> History:
        """The loading by the machine, as one row."""
        told: dict[str, Any] = {self.programme.drives: self.driven[None]}
        for name in ("rate", "temperature"):
            if (value := getattr(self, name)) is not None:
                told[name] = np.array([[value]])
        if self.time is not None:
            told["time"] = self.time[None]
        return History(self.programme.mode, **told)

    @property
    def settings(self) -> dict[str, float]:
        """The programme's settings as they were measured, as far as a record tells them."""
        return measured_settings(
            self.programme, self.driven, self.time, self.turns, self.rate, self.temperature
        )

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of the points, in the unit of the response."""
        return noise_of(self.response, self.turns, orders=(2, 3, 4), fewest=3)

    @property
    def places(self) -> Array:
        """Where each point stands on the way of the test, [points]: along its path, or over ln t."""
        if self.time is not None and isinstance(self.programme, Relaxation | Creep):
            return places_in_time(self.driven, self.time)
        return places_on_path(self.driven, self.turns)

    @property
    def shares(self) -> Array:
        """How much each point counts, [points], one in the mean.

        The points of a test that turns count by the strain that they stand for: a slow or a paused machine writes many
        points at one place. Points of other tests count alike.
        """
        if not self.turns:
            return np.ones(len(self))
        way = np.diff(self.places)
        shares = (np.concatenate([way[:1], way]) + np.concatenate([way, way[-1:]])) / 2
        return np.asarray(np.maximum(shares / shares.mean(), 1e-3))


@dataclasses.dataclass
class MeasuredRecord:
    """The tests of one material, which are identified together.

    Attributes:
      name: for reports.
      tests: at least one.
      warnings: of the whole; those of the tests come with them.
    """

    name: str
    tests: list[MeasuredTest]
    own_steps: list[str] = dataclasses.field(default_factory=list)
    own_warnings: list[Caveat] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, test: MeasuredTest) -> "MeasuredRecord":
        """The record of one test."""
        return cls(test.name, [test])

    def noted(self, steps: Sequence[str], warnings: Sequence[Caveat]) -> "MeasuredRecord":
        """The record with more steps and warnings of the whole."""
        return dataclasses.replace(
            self,
            own_steps=[*self.own_steps, *steps],
            own_warnings=[*self.own_warnings, *warnings],
        )

    @property
    def curve(self) -> MeasuredTest | None:
        """The only test of a record of one rising loading; None for other records."""
        (first, *others) = self.tests
        return first if isinstance(first.programme, Monotonic) and not others else None

    @property
    def tensile(self) -> TensileProperties | None:
        """Properties that need no law, where the record is one rising loading in tension."""
        return None if self.curve is None else self.curve.tensile

    @property
    def test_set(self) -> TestSet:
        """The histories of all tests, of one material."""
        return TestSet(tuple(test.history for test in self.tests))

    @property
    def driven(self) -> Array | TestSet:
        """The strains of one rising loading, [1, points], or the histories of all tests."""
        return self.test_set if self.curve is None else self.curve.strain[None]

    @property
    def response(self) -> Array:
        """The measured responses, one test after the other, [points]: MPa, or - of a driven stress."""
        return np.concatenate([test.response for test in self.tests])

    def deviation(self, law: Law) -> Array | None:
        """The standard deviation of each point up to a factor, [points]; None where all points count alike.

        Tests that turn count alike, however many points each has.
        """
        turning = [len(test) for test in self.tests if test.turns]
        mean = float(np.mean(turning)) if turning else 1.0
        parts = []
        for test in self.tests:
            noise = law.noise_mpa if test.programme.drives == "strain" else law.noise_strain
            weight = test.shares * (mean / len(test) if test.turns else 1.0)
            parts.append(noise / np.sqrt(weight))
        found = np.concatenate(parts)
        return None if np.ptp(found) == 0 else found

    def split(self, joined: Array) -> list[Array]:
        """An array [points] of all tests -> one of each test."""
        return np.split(joined, np.cumsum([len(test) for test in self.tests])[:-1])

    @property
    def steps(self) -> list[str]:
        """The steps of cleaning, in words; of several tests each with its name."""
        of_tests = [self._said(test, step) for test in self.tests for step in test.steps]
        return [*of_tests, *self.own_steps]

    @property
    def warnings(self) -> list[Caveat]:
        """Reasons to be careful; of several tests each with its name."""
        of_tests = [
            dataclasses.replace(caveat, text=self._said(test, caveat.text))
            for test in self.tests
            for caveat in test.warnings
        ]
        return [*of_tests, *self.own_warnings]

    def _said(self, test: MeasuredTest, text: str) -> str:
        return f"{test.name}: {text}" if len(self.tests) > 1 else text

    @property
    def assumed(self) -> list[str]:
        """Assumptions about what was not read, each once."""
        return list(dict.fromkeys(text for test in self.tests for text in test.assumed))

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions that all tests say alike."""
        first, *others = (test.conditions for test in self.tests)
        return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}

    @property
    def strain(self) -> Array:
        """The strain of all tests, one after the other, [points]."""
        return np.concatenate([test.strain for test in self.tests])

    @property
    def stress_mpa(self) -> Array:
        """The stress of all tests, one after the other, [points]."""
        return np.concatenate([test.stress_mpa for test in self.tests])

    @property
    def largest_mpa(self) -> float:
        """The largest stress of all tests, of either sign."""
        return float(np.abs(self.stress_mpa).max())

    @property
    def noise_percent(self) -> Array:
        """The noise of each test over its largest response, [tests], %."""
        shares = [test.noise / np.abs(test.response).max() for test in self.tests]
        return 100.0 * np.array(shares)

    @property
    def num_points(self) -> int:
        return sum(map(len, self.tests))


def with_elastic_strain(record: MeasuredRecord, modulus_mpa: float | None) -> MeasuredRecord:
    """Creep tests whose strain was zeroed under their stress, with the elastic strain of a modulus that was given."""
    tests = []
    for test in record.tests:
        elastic = float(test.stress_mpa[0]) / modulus_mpa if modulus_mpa else 0.0
        if isinstance(test.programme, Creep) and abs(test.strain[0]) < 0.5 * abs(elastic):
            said = f"added the elastic strain of {test.stress_mpa[0]:.4g} MPa, {elastic:.4g}: it begins without"
            test = dataclasses.replace(
                test,
                strain=test.strain + elastic,
                steps=[*test.steps, said],
                warnings=[each for each in test.warnings if each.kind != "loaded at the start"],
            )
        tests.append(test)
    return dataclasses.replace(record, tests=tests)


def without_excess(test: MeasuredTest) -> MeasuredTest:
    """A test of at most `MOST_POINTS` points."""
    if len(test) <= MOST_POINTS:
        return test
    found = at_points(test, MOST_POINTS)
    said = f"averaged {len(test)} points to {len(found)} along the way of the test; turning points are kept"
    return dataclasses.replace(found, steps=[*test.steps, said])


def at_points(test: MeasuredTest, most: int) -> MeasuredTest:
    """The same test on at most `most` points along its way.

    Neighbours of one rising loading are averaged, as many at each point.
    """
    if isinstance(test.programme, Monotonic):
        starts = np.arange(0, len(test), -(-len(test) // most))
        count = np.diff([*starts, len(test)])
        strain, stress = (
            np.add.reduceat(values, starts) / count for values in (test.strain, test.stress_mpa)
        )
        return dataclasses.replace(test, strain=strain, stress_mpa=stress, time=None, turns=[])
    cells = cells_of(test, most)
    return dataclasses.replace(
        test,
        strain=cells.of(test.strain),
        stress_mpa=cells.of(test.stress_mpa),
        time=None if test.time is None else cells.of(test.time),
        turns=[new for new, old in cells.kept if old in set(test.turns)],
    )


def cells_of(test: MeasuredTest, most: int) -> Cells:
    """The points of a test that stand for which of at most `most` points along its way."""
    return thinned(test.places, test.turns, most)


def coarse(tests: Sequence[MeasuredTest], most: int) -> list[MeasuredTest]:
    """The same tests, each on at most `most` points, for searches that need not see all of them."""
    return [at_points(test, most) if len(test) > most else test for test in tests]


# --------------------------------------------------------------------------------------------------
# A cleaned curve put on the points that a model's training curves have.


@dataclasses.dataclass(frozen=True)
class CurveTarget:
    """The form of the curves that a model was trained on.

    Attributes:
      num_points: points a curve.
      strain_spacing: point i of n stands at max_strain * (i / (n - 1)) ** strain_spacing.
      max_strain: range of the trained curves' ends (-), or None where nothing is known of them.
      max_stress_mpa: the largest strength at which a trained curve broke off, or None without a cut-off.
      strain_measure, stress_measure: the law's own (see Law), or None where there is no law: nothing is converted.
      law: with the trained ranges; what is implausible for it is warned about. None checks nothing.
    """

    num_points: int
    strain_spacing: float = 1.0
    max_strain: tuple[float, float] | None = None
    max_stress_mpa: float | None = None
    strain_measure: str | None = None
    stress_measure: str | None = None
    law: Law | None = None

    @classmethod
    def of(cls, settings: CurveSettings, law: Law) -> "CurveTarget":
        """The form of the curves that these settings make."""
        settings = settings.resolved()
        form = cls(
            num_points=settings.num_points,
            strain_spacing=law.strain_spacing,
            max_strain=settings.max_strain,
            max_stress_mpa=settings.strength_mpa[1] if settings.strength_mpa else None,
        )
        if law.strain_measure == "nominal":
            return form
        return dataclasses.replace(
            form, strain_measure=law.strain_measure, stress_measure=law.stress_measure, law=law
        )

    @classmethod
    def of_tests(cls, law: Law) -> "CurveTarget":
        """The form of tests as they are measured, for a law that takes tests."""
        return cls(2, strain_measure=law.strain_measure, stress_measure=law.stress_measure, law=law)


def resample(
    strain: Array, stress_mpa: Array, target: CurveTarget
) -> tuple[Array, Array, np.ndarray]:
    """Puts a cleaned curve on the points of the trained curves.

    A grid cell reaches half-way to the neighbouring grid points. Measured points that share a cell become their mean
    strain and mean stress, so the noise of a densely measured curve falls as it should. Cells
    without a point are bridged by straight lines. The curve begins at (0, 0) and is drawn on straight from its last two
    means to its very end. A curve that ends before the shortest trained one is padded.

    Returns:
      strain [num_points], -; stress [num_points], MPa; valid [num_points], bool, False where padded.
    """
    end = float(strain[-1])
    low, high = target.max_strain or (end, end)
    grid = (
        min(max(end, low), high) * np.linspace(0.0, 1.0, target.num_points) ** target.strain_spacing
    )
    valid = grid <= end * (1 + 1e-12)
    if np.count_nonzero(valid) < MINIMUM_POINTS:
        raise InputError(
            f"it ends at strain {end:.3g}, far before {low:.3g} where the shortest trained curves end; "
            "measure further or choose a model for smaller strains"
        )
    cell = np.searchsorted((grid[1:] + grid[:-1]) / 2, strain)
    count = np.bincount(cell, minlength=len(grid))
    held = count > 0
    strain = np.bincount(cell, strain, len(grid))[held] / count[held]
    stress = np.bincount(cell, stress_mpa, len(grid))[held] / count[held]
    if strain[0] > 0:
        strain, stress = np.insert(strain, 0, 0.0), np.insert(stress, 0, 0.0)
    slope = (stress[-1] - stress[-2]) / (strain[-1] - strain[-2]) if len(strain) > 1 else 0.0
    strain, stress = (
        np.append(strain, end),
        np.append(stress, stress[-1] + slope * (end - strain[-1])),
    )
    return np.where(valid, grid, 0.0), np.where(valid, np.interp(grid, strain, stress), 0.0), valid


# --------------------------------------------------------------------------------------------------
# Measured tests put on the points and into the channels that a network's records have.


# A test whose first driven value is below this share of its largest begins at rest.
_AT_REST = 1e-3


def record_features(
    record: MeasuredRecord, form: RecordForm
) -> tuple[NDArray[np.float32] | None, list[Caveat]]:
    """A record as the network takes it, [1, points, channels], missing tests flagged; and what it was not trained for.

    Returns:
      None in place of the features where the network knows none of the tests.
    """
    features = np.zeros((1, *form.shape), np.float32)
    features[:, :, FLAG] = 1.0
    free = list(range(len(form.programmes)))
    caveats: list[Caveat] = []
    for test in record.tests:
        slot = next((i for i in free if form.programmes[i].name == test.programme.name), None)
        if slot is None:
            caveats.append(
                Caveat(
                    "test unknown to the network",
                    f"the network has no place for {test.name}, a test {test.programme.name}",
                    "its answer does not know of that test; take that of least squares",
                )
            )
            continue
        try:
            if form.as_recorded and len(test) < form.points:
                history, response, valid = as_recorded(test, form.points)
            else:
                history, response = onto_points(test, form.programmes[slot], form.points)
                valid = np.ones(response.shape, bool)
        except InputError as error:
            caveats.append(Caveat("beyond the trained tests", f"{test.name}: {error}"))
            continue
        free.remove(slot)
        beyond = settings_beyond(form.programmes[slot], test.settings)
        noise = 0.0
        if form.noise_told is not None:
            largest = float(np.abs(test.response).max())
            low, high = (limit * largest for limit in form.noise_told)
            found = test.noise / np.sqrt(max(1.0, len(test) / form.points))
            # More than there is, rather than less than the network ever saw.
            noise = max(found, low)
            if noise > high:
                beyond.append(f"noise of {100 * noise / largest:.2g} % of the largest response")
        form.write(features, slot, history, response, valid, np.array([[noise]]))
        if isinstance(test.programme, Uniaxial) and test.driven.min() * test.driven.max() < 0.0:
            beyond.append("it saw the larger side only, and not both tension and compression")
        if beyond:
            caveats.append(
                Caveat(
                    "beyond the trained tests",
                    f"{test.name} is unlike the tests that the network was trained on: {', '.join(beyond)}",
                    "take the values of least squares, or train with wider --config.test_ranges",
                )
            )
    return (features if len(free) < len(form.programmes) else None), caveats


def as_recorded(test: MeasuredTest, points: int) -> tuple[History, Array, NDArray[np.bool_]]:
    """The history and the response of a test at its own points, the last repeated, and which are there: [1, points].

    A record begins at rest: where its first point does not, and no time says when that was, the zero is put before it.
    """
    history, response = test.history, test.response[None]
    if test.time is None and abs(test.driven[0]) > _AT_REST * np.abs(test.driven).max():
        zero = np.zeros((1, 1))
        begun: dict[str, Any] = {
            test.programme.drives: np.concatenate([zero, history.driven], axis=1)
        }
        history = dataclasses.replace(history, **begun)
        response = np.concatenate([zero, response], axis=1)
    held = np.minimum(np.arange(points), response.shape[1] - 1)
    valid = (np.arange(points) < response.shape[1])[None]
    filled = history.changed(lambda array: array[:, held] if array.shape[1] > 1 else array)
    return filled, response[:, held], valid


def onto_points(test: MeasuredTest, programme: Programme, points: int) -> tuple[History, Array]:
    """The history and the response [1, points] of a test on the points of a programme's records.

    Points of a test that turns are even along its path, with the turning points among them. Points of another test
    stand where its programme, with the settings that were measured, puts them. Means are taken where the test is
    denser.

    Raises:
      InputError: it turns too often for so many points.
    """
    if test.turns:
        ends = np.array([*test.turns, len(test) - 1])
        if points < 2 * len(ends) + 2:
            raise InputError(
                f"it turns {len(test.turns)} times, too often for the {points} points that the network takes"
            )
        path = along_path(test.driven[ends][None], points)
        at = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(path[0])))])
        # The specimen was at rest at zero, where a path begins.
        places = test.places + abs(float(test.driven[0]))
        turns = np.searchsorted(at, places[ends[:-1]] - 1e-12 * at[-1])
        pairs = tuple(zip(turns.tolist(), ends[:-1].tolist(), strict=True))
        return _told(test, History(test.programme.mode, **{programme.drives: path})), Cells(
            at, places, pairs
        ).of(test.response)[None]
    middle = {s.name: float(s.from_unit_interval(0.5)) for s in programme.settings}
    settings = middle | test.settings
    if isinstance(programme, Uniaxial):
        (limits,) = programme.settings
        low, high = sorted((limits.low, limits.high))
        reached = float(test.driven[np.abs(test.driven).argmax()])
        settings["max_strain"] = min(max(reached, low), high)
        if abs(settings["max_strain"]) > abs(reached):
            settings["max_strain"] = reached
    row = np.array([[settings[s.name] for s in programme.settings]])
    history = programme.history(row, points, np.random.default_rng(0))
    if test.time is not None and history.time is not None and "hold" in settings:
        at = places_in_time(history.driven[0], history.time[0])
        return history, Cells(_rising(at), places_in_time(test.driven, test.time)).of(
            test.response
        )[None]
    # Elastic at rest: what lies before the first point is a line from zero.
    side = np.sign(history.driven[0, -1])
    way = np.concatenate([[0.0], side * test.driven])
    order = np.argsort(way, kind="stable")
    order = order[way[order] >= 0.0]
    response = np.concatenate([[0.0], test.response])[order]
    cells = Cells(np.abs(history.driven[0]), way[order])
    return _told(test, history), cells.of(response)[None]


def _rising(at: Array) -> Array:
    return np.asarray(np.maximum.accumulate(at))


def _told(test: MeasuredTest, history: History) -> History:
    """The history with what was measured of rate and temperature."""
    told: dict[str, Any] = {
        name: np.array([[value]])
        for name in ("rate", "temperature")
        if (value := getattr(test, name)) is not None
    }
    return dataclasses.replace(history, **told)

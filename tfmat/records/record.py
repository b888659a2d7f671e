"""Measured tests of one material: each a file or arrays, made into the loading history and the response of a law.

A law of one rising loading is identified from a record with one test, a curve (see `measured`). A law that takes tests
is given all of them, through the very histories that the machine drove. Every step is recorded in words."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmat.materials.law import Array, History, Law, TestSet
from tfmat.records.cleaning import (
    Caveat,
    Cells,
    MeasuredCurve,
    measured_settings,
    places_in_time,
    places_on_path,
    thinned,
)
from tfmat.records.programmes import Creep, Monotonic, Programme, Relaxation
from tfmat.records.tensile import TensileProperties
from tfmat.records.toe import resolution_of

# A longer test is averaged along its path, or over ln t.
MOST_POINTS = 2000
# _BY_CHANCE: noise by differences of another order is smaller by this over the root of the points in one case of a
# hundred where all are right: the ratio of both has a standard deviation of 0.85 over that root.
_BY_CHANCE = 2.0


@dataclasses.dataclass
class MeasuredTest:
    """One test as it was measured.

    Attributes:
      programme: what kind of test it is.
      curve: name, strain and stress in the law's measures, in the order in which they were measured, steps, warnings.
      time: [points], s, from the first point on; None where the law asks for none.
      rate: 1/s; temperature: °C; None where the law asks for none.
      turns: points where the driven strain or stress turns, the beginning and the end left out.
    """

    programme: Programme
    curve: MeasuredCurve
    time: Array | None = None
    rate: float | None = None
    temperature: float | None = None
    turns: list[int] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.curve.strain)

    @property
    def driven(self) -> Array:
        """The strain (-) or the stress (MPa) that the machine drove, [points]."""
        return self.curve.strain if self.programme.drives == "strain" else self.curve.stress_mpa

    @property
    def response(self) -> Array:
        """The stress (MPa) or the strain (-) that answered, [points]."""
        return self.curve.stress_mpa if self.programme.drives == "strain" else self.curve.strain

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
        """Standard deviation of the noise of the points, in the unit of the response, as its differences show it.

        Second differences within the branches between turns; third or fourth ones where these are smaller by more than
        chance, since second differences of a record with few points hold its bends too. Noise that is alike at
        neighbouring points shows less than it is. Values in coarse steps, which stay the same from row to row, are off
        by their rounding at least.
        """
        branches = np.split(self.response, self.turns)
        least = _BY_CHANCE / math.sqrt(max(len(self), 1))
        noise = 0.0
        for order in (2, 3, 4):
            parts = [np.diff(branch, order) for branch in branches if len(branch) > order]
            if parts:
                middle = float(np.median(np.abs(np.concatenate(parts))))
                found = 1.4826 * middle / math.sqrt(math.comb(2 * order, order))
                noise = found if order == 2 or found < (1.0 - least) * noise else noise
        return max(noise, resolution_of(self.response) / math.sqrt(12.0))

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
    def of(cls, curve: MeasuredCurve) -> "MeasuredRecord":
        """The record of one rising loading."""
        return cls(curve.name, [MeasuredTest(Monotonic(), curve)])

    def noted(self, steps: Sequence[str], warnings: Sequence[Caveat]) -> "MeasuredRecord":
        """The record with more steps and warnings of the whole."""
        return dataclasses.replace(
            self,
            own_steps=[*self.own_steps, *steps],
            own_warnings=[*self.own_warnings, *warnings],
        )

    @property
    def curve(self) -> MeasuredCurve | None:
        """The only test of a record of one rising loading; None for other records."""
        (first, *others) = self.tests
        return first.curve if isinstance(first.programme, Monotonic) and not others else None

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
        of_tests = [self._said(test, step) for test in self.tests for step in test.curve.steps]
        return [*of_tests, *self.own_steps]

    @property
    def warnings(self) -> list[Caveat]:
        """Reasons to be careful; of several tests each with its name."""
        of_tests = [
            dataclasses.replace(caveat, text=self._said(test, caveat.text))
            for test in self.tests
            for caveat in test.curve.warnings
        ]
        return [*of_tests, *self.own_warnings]

    def _said(self, test: MeasuredTest, text: str) -> str:
        return f"{test.curve.name}: {text}" if len(self.tests) > 1 else text

    @property
    def assumed(self) -> list[str]:
        """Assumptions about what was not read, each once."""
        return list(dict.fromkeys(text for test in self.tests for text in test.curve.assumed))

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions that all tests say alike."""
        first, *others = (test.curve.conditions for test in self.tests)
        return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}

    @property
    def strain(self) -> Array:
        """The strain of all tests, one after the other, [points]."""
        return np.concatenate([test.curve.strain for test in self.tests])

    @property
    def stress_mpa(self) -> Array:
        """The stress of all tests, one after the other, [points]."""
        return np.concatenate([test.curve.stress_mpa for test in self.tests])

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


def without_excess(test: MeasuredTest) -> MeasuredTest:
    """A test of at most `MOST_POINTS` points."""
    if len(test) <= MOST_POINTS:
        return test
    found, turns = at_points(test, MOST_POINTS)
    steps = [
        *test.curve.steps,
        f"averaged {len(test)} points to {len(found['strain'])} along the way of the test; turning points are kept",
    ]
    curve = dataclasses.replace(
        test.curve, strain=found["strain"], stress_mpa=found["stress"], steps=steps
    )
    return dataclasses.replace(test, curve=curve, time=found.get("time"), turns=turns)


def at_points(test: MeasuredTest, most: int) -> tuple[dict[str, Array], list[int]]:
    """Strain, stress and time of a test on at most `most` points along its way, and which of them are turns.

    Neighbours of one rising loading are averaged, as many at each point.
    """
    if isinstance(test.programme, Monotonic):
        starts = np.arange(0, len(test), -(-len(test) // most))
        count = np.diff([*starts, len(test)])
        return {
            name: np.add.reduceat(values, starts) / count
            for name, values in (("strain", test.curve.strain), ("stress", test.curve.stress_mpa))
        }, []
    cells = cells_of(test, most)
    arrays = {"strain": test.curve.strain, "stress": test.curve.stress_mpa}
    if test.time is not None:
        arrays["time"] = test.time
    turns = [new for new, old in cells.kept if old in set(test.turns)]
    return {name: cells.of(values) for name, values in arrays.items()}, turns


def cells_of(test: MeasuredTest, most: int) -> Cells:
    """The points of a test that stand for which of at most `most` points along its way."""
    return thinned(test.places, test.turns, most)


def coarse(tests: Sequence[MeasuredTest], most: int) -> list[MeasuredTest]:
    """The same tests, each on at most `most` points, for searches that need not see all of them."""
    found = []
    for test in tests:
        if len(test) > most:
            arrays, turns = at_points(test, most)
            curve = dataclasses.replace(
                test.curve, strain=arrays["strain"], stress_mpa=arrays["stress"]
            )
            test = dataclasses.replace(test, curve=curve, time=arrays.get("time"), turns=turns)
        found.append(test)
    return found

"""Which test of a specimen to do next: every test that its law knows, by what it is expected to tell."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import Caveat
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.settings import CurveSettings
from tfmat.identification.further_tests import (
    FurtherTest,
    asked_for,
    candidates,
    last_answer,
    predictions,
)
from tfmat.identification.information_gain import Gain, Gains
from tfmat.identification.posterior import Posterior
from tfmat.identification.side_by_side import one_thread_a_product
from tfmat.identification.specimen import Specimen, intervals, known_of, specimen_of
from tfmat.materials.law import Array, Law, TestSet

_POINTS_A_TURN = 8
# Predictions whose ends are further apart than this factor are compared on a log scale.
_FAR = 4.0
# Samples of a network that the sampling starts from, beside the best fit.
_STARTS = 8

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A parameter or a prediction that tests narrow.

    Attributes:
      name, title, unit: a prediction is named as it is asked for, and titled in words.
      interval: 95 %, before a further test.
      logarithmic: whether widths are compared on a log scale.
    """

    name: str
    title: str
    unit: str
    interval: tuple[float, float]
    logarithmic: bool
    is_prediction: bool


@dataclasses.dataclass(frozen=True)
class NextTests:
    """The tests that could come next, those that tell most first.

    Attributes:
      quantities: what is narrowed: parameters, then predictions.
      tests: with what each is expected to tell.
      noise: standard deviation of a point, MPa and -, of tests that drive strain and stress; points: of a further test.
      known: the posterior of the specimen.
    """

    quantities: Sequence[Quantity]
    tests: Sequence[tuple[FurtherTest, Gain]]
    noise: tuple[float, float]
    points: int
    known: Posterior

    def sentences(self) -> list[str]:
        """What the best tests would do, in words: one for each prediction, and for the parameter known least."""
        found = []
        answered = [pair for pair in self.tests if np.isfinite(pair[1].nats)]
        for i, quantity in enumerate(self.quantities):
            if not answered or not quantity.is_prediction:
                continue
            test, gain = min(answered, key=lambda pair: pair[1].log_ratio[i])
            ratio = float(np.exp(gain.log_ratio[i]))
            on_log = " (on a log scale)" if quantity.logarithmic else ""
            found.append(f"{_article(test)} would {_narrowing(ratio, quantity.title)}{on_log}")
        return found

    def to_json(self) -> dict[str, Any]:
        """The entry `next_test` of an answer."""
        return {
            "effective_samples": self.known.effective_draws,
            "pareto_k": self.known.certificate.pareto_k,
            "noise_mpa": self.noise[0],
            "noise_strain": self.noise[1],
            "num_points": self.points,
            "quantities": [
                {
                    "name": quantity.name,
                    "title": quantity.title,
                    "unit": quantity.unit,
                    "ci95": list(quantity.interval),
                    "compared_on": "log" if quantity.logarithmic else "linear",
                    "is_prediction": quantity.is_prediction,
                }
                for quantity in self.quantities
            ],
            "tests": [self._entry(test, gain) for test, gain in self.tests],
            "sentences": self.sentences(),
        }

    def _entry(self, test: FurtherTest, gain: Gain) -> dict[str, Any]:
        columns = zip(self.quantities, gain.log_ratio, gain.log_ratio_error, strict=True)
        return {
            "test": test.programme.name,
            "name": test.name,
            "title": test.title,
            "again": test.text == "the same test again",
            "settings": {name: float(value) for name, value in test.settings.items()},
            "gain_nats": _finite(gain.nats),
            "gain_error": _finite(gain.nats_error),
            "interval_ratio": {
                quantity.name: {
                    "ratio": _finite(np.exp(mean)),
                    "error": _finite(np.exp(mean) * error),
                }
                for quantity, mean, error in columns
            },
            "by": "sampling" if gain.sampled else "weights",
            "pareto_k": gain.pareto_k,
            "records": gain.records,
            "failed": gain.failed,
            "doubtful": gain.doubtful,
        }


def next_tests_of(
    law: Law,
    record: MeasuredRecord,
    settings: CurveSettings,
    labels: Array,
    samples: Array | None = None,
    *,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
    progress: Progress | None = None,
) -> "NextTests | Caveat":
    """The tests of a specimen that could come next; a warning where its posterior is not known.

    Args:
      settings: of the simulation whose noise a further test has, where the specimen shows no more.
      labels: [p], of the best fit; samples: [samples, p] of a network's posterior, where the sampling starts too.
      predict: what is to be predicted, as `asked_for` reads it; none: the other tests of the law.
      candidate: the tests to choose from; none: a handful that the law knows.
      progress: called with (done, total) tests.
    """
    with one_thread_a_product():
        specimen, best = specimen_of(law, record, settings, labels)
        starts = best[None]
        if samples is not None and specimen.law is law:
            starts = np.concatenate([starts, samples[:_STARTS]])
        known, replicate = known_of(specimen, starts)
        if not known.certificate.is_exact:
            text = (
                f"the posterior of {record.name} did not converge (Pareto k {known.certificate.pareto_k:.2g}), so that "
                "which test to do next is not known"
            )
            return Caveat("next test not known", text, "give what is known of it (--fix)")
        wanted = [asked_for(text, law, "predict") for text in predict] or predictions(law, record)
        tests = [asked_for(text, law, "candidate") for text in candidate] or candidates(law, record)
        return next_tests(specimen, known, replicate, wanted, tests, progress)


def next_tests(
    specimen: Specimen,
    known: Posterior,
    replicate: NDArray[np.intp],
    wanted: Sequence[FurtherTest],
    tests: Sequence[FurtherTest],
    progress: Progress | None = None,
) -> NextTests:
    """What each of the tests is expected to tell of a specimen.

    Args:
      known, replicate: its posterior, as `known_of` says; it has converged.
      wanted: predictions.
      progress: called with (done, total) tests.

    Raises:
      InputError: the law answers none of the tests.
    """
    quantities = Quantities(specimen.law, known, wanted)
    gains = Gains(specimen, known, replicate, quantities)
    found = []
    for done, test in enumerate(tests):
        if progress:
            progress(done, len(tests))
        history = test.history(_points_of(test, specimen.points))
        unit = specimen.noise[0 if history.stress is None else 1]
        found.append((test, gains.of(TestSet((history,), unit))))
    if progress:
        progress(len(tests), len(tests))
    found.sort(key=lambda pair: -pair[1].nats if np.isfinite(pair[1].nats) else np.inf)
    return NextTests(
        quantities.described(gains.before), found, specimen.noise, specimen.points, known
    )


def _points_of(test: FurtherTest, points: int) -> int:
    """As many as the specimen's own tests have, but enough to follow the turns of the history."""
    turns = 2.0 * test.settings.get("cycles", 0.0)
    return max(points, int(np.ceil(_POINTS_A_TURN * turns)))


class Quantities:
    """Parameters and predictions at labels, on the scales that widths are compared on."""

    def __init__(self, law: Law, known: Posterior, wanted: Sequence[FurtherTest]):
        self._law, self._wanted = law, wanted
        self._logarithmic = np.zeros(len(wanted), np.bool_)
        answers = self._predicted(known.labels)
        assert known.log_weights is not None
        ends = intervals(answers, np.exp(known.log_weights))
        far = (ends[:, 0] > 0) & (ends[:, 1] > _FAR * ends[:, 0])
        self._logarithmic = far & (answers > 0).all(axis=0)

    def __call__(self, labels: Array) -> Array:
        """[k, p] -> [k, p + predictions]."""
        predicted = self._predicted(labels)
        predicted[:, self._logarithmic] = np.log(
            np.maximum(predicted[:, self._logarithmic], 1e-300)
        )
        return np.concatenate([labels, predicted], axis=1)

    def _predicted(self, labels: Array) -> Array:
        with np.errstate(all="ignore"):
            columns = [last_answer(self._law, test, labels) for test in self._wanted]
        joined = np.stack(columns, axis=1) if columns else np.empty((len(labels), 0))
        return np.nan_to_num(joined, nan=np.inf)

    def described(self, ends: Array) -> list[Quantity]:
        """The quantities with their intervals, given on the scales of the comparison, [p + predictions, 2]."""
        found = []
        for parameter, interval in zip(self._law.identified, ends, strict=False):
            low, high = (float(parameter.from_unit_interval(end)) for end in interval)
            is_log = parameter.scale == "log"
            name, unit = parameter.name, parameter.unit
            found.append(Quantity(name, name, unit, (low, high), is_log, False))
        predicted = ends[len(self._law.identified) :]
        by_log = self._logarithmic.tolist()
        for test, is_log, interval in zip(self._wanted, by_log, predicted, strict=True):
            low, high = (float(np.exp(end) if is_log else end) for end in interval)
            strain_driven = test.programme.drives == "strain"
            what = "stress" if strain_driven else "strain"
            title = f"the {what} at the end of {test.title}"
            unit = "MPa" if strain_driven else "-"
            found.append(Quantity(test.name, title, unit, (low, high), is_log, True))
        return found


def _article(test: FurtherTest) -> str:
    title = f"{test.programme.name} test" if test.text != "the same test again" else test.text
    told = test.title.removeprefix(test.programme.title).removeprefix(", ")
    named = f"{title} ({told})" if told else title
    if test.text == "the same test again":
        return named
    return f"{'an' if named[0] in 'aeiou' else 'a'} {named}"


def _narrowing(ratio: float, title: str) -> str:
    """What a test does to an interval that it makes `ratio` times as wide: `halve the 95 % interval of ...`, say."""
    interval = f"the 95 % interval of {title}"
    if ratio > 0.95:
        return f"hardly narrow {interval}"
    if ratio > 0.6:
        return f"narrow {interval} by {100 * (1 - ratio):.0f} %"
    if ratio > 0.42:
        return f"halve {interval}"
    return f"make {interval} {1 / ratio:.2g} times narrower"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

"""Least squares for the tests of one material, all at once, and how well each test is met."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.loading_paths import half_cycles
from tfmat.curves.measured_tests import MeasuredRecord, cells_of, coarse
from tfmat.curves.record_files import refusal, takes_tests
from tfmat.identification.classical import (
    MOST_ROUNDS,
    BestFit,
    elsewhere,
    error_within,
    minima,
    repeated,
    widened,
    within,
)
from tfmat.identification.least_squares import COMPLIANCE, ZERO, LeastSquaresFit, fit
from tfmat.identification.other_laws import compare_laws
from tfmat.materials.law import Array, Law
from tfmat.materials.numerics import Residuals
from tfmat.materials.registry import LAWS

# Points of all tests together that searches from many starts see; the last search sees all.
_SEARCHED_POINTS = 400
# A minimum that costs more than this times the best is no rival of it.
_RIVAL = 1.5
# Costs that differ by less are one minimum's.
_ALIKE = 1e-5
# Student's t of 95 % for many points.
_QUANTILE = 2.0


@dataclasses.dataclass(frozen=True)
class RecordFit:
    """The best fit to a record, and its rivals.

    Attributes:
      best: see `BestFit`; its rmse_mpa is over the deviation of the points where they have one.
      rivals: labels [rivals, p] of other minima that fit nearly as well, on the scale of the law's ranges, the best
        first; cost: half their sum of squares on the searched points, [rivals].
      searched: the residuals that they belong to.
    """

    best: BestFit
    rivals: Array
    cost: Array
    searched: Residuals


def residuals_of(law: Law, record: MeasuredRecord) -> Residuals:
    """The weighted residuals of a record under a law."""
    deviation = record.deviation(law)
    weights = np.ones(record.num_points) if deviation is None else 1.0 / deviation
    return Residuals(law, record.test_set, record.response[None], weights[None])


def fit_record(law: Law, record: MeasuredRecord) -> RecordFit:
    """The parameters that fit all tests of a record best, as far as many starts can tell."""
    searched = residuals_of(law, _on_points(record, _SEARCHED_POINTS))
    wide = widened(law)
    points = residuals_of(wide, record)
    given = (points.strain, points.stress, None)
    with np.errstate(all="ignore", divide="ignore"):
        labels, cost = minima(searched, wide, _rounds(record))
        order = _preferred(law.to_labels(wide.from_labels(labels)), cost)
        labels, cost = labels[order], cost[order]
        deviation = 1.0 / points.weights
        # A specimen's machine is a parameter of its own.
        compliance = 0.0 if law.strain_measure == "nominal" else COMPLIANCE
        found = fit(
            wide,
            *given,
            start=labels[:1],
            deviation=deviation,
            correlated=True,
            compliance=compliance,
            zero=ZERO,
            # Laws that remember are slow to answer.
            elsewhere=elsewhere(labels, cost) if _rounds(record) else None,
            thinned=None if _rounds(record) else thinned(record, points),
        )
        found = _with_open_ends(wide, points, found)
    near = cost <= _RIVAL * cost[0]
    return RecordFit(
        best=within(law, wide, found),
        rivals=law.to_labels(wide.from_labels(labels[near])),
        cost=cost[near],
        searched=searched,
    )


def _on_points(record: MeasuredRecord, points: int) -> MeasuredRecord:
    """The record on about so many points of all tests together, three in each part between turns at the least."""
    return MeasuredRecord(record.name, coarse(record.tests, _most_a_test(record, points)))


def _most_a_test(record: MeasuredRecord, points: int) -> int:
    return max(points // len(record.tests), 3 * max(len(test.turns) for test in record.tests))


def thinned(record: MeasuredRecord, points: Residuals) -> Residuals:
    """The residuals of a record on fewer points, each of which weighs as much as all the points that it stands for."""
    few = residuals_of(points.law, _on_points(record, _SEARCHED_POINTS))
    most = _most_a_test(record, _SEARCHED_POINTS)
    weights = [
        of_test if len(test) <= most else np.sqrt(cells_of(test, most).sums(np.square(of_test)))
        for test, of_test in zip(record.tests, record.split(points.weights[0]), strict=True)
    ]
    return dataclasses.replace(few, weights=np.concatenate(weights)[None])


def better_law(law: Law, record: MeasuredRecord, fitted: RecordFit) -> tuple[str, float] | None:
    """Another law that answers the same tests and fits clearly better, and its error over the own law's; or None.

    A law all of whose parameters are among those of the own one is that law without some of its terms, and fits no
    better.
    """
    own_names = {parameter.name for parameter in law.parameters}
    others = [
        other
        for other in LAWS.values()
        if takes_tests(built := other())
        and not {parameter.name for parameter in other.parameters} < own_names
        and all(refusal(test.programme, built) is None for test in record.tests)
    ]
    points, rounds = fitted.searched, _rounds(record)
    own = np.array([np.sqrt(2.0 * fitted.cost[0] / points.weights.size)])
    with np.errstate(all="ignore"):
        found = compare_laws(
            law,
            own,
            np.array([points.weights.size]),
            lambda other: error_within(other, points, rounds),
            others,
        ).better()[0]
    return None if found is None else (found[0], found[1] / float(own[0]))


def _rounds(record: MeasuredRecord) -> int:
    """How often `minima` goes on: a law that remembers is slow to answer, and its minima are not so close together."""
    remembers = any(test.turns or test.time is not None for test in record.tests)
    return 0 if remembers else MOST_ROUNDS


def _with_open_ends(wide: Law, points: Residuals, found: LeastSquaresFit) -> LeastSquaresFit:
    """The fit with intervals that reach to every end of the range which fits as well, the other parameters held.

    A threshold that the tests did not reach, such as the most damage that there can be, changes nothing beyond the best
    fit and something before it: the slope there says nothing of it.
    """
    parameters = found.labels.shape[1]
    moved = np.repeat(found.labels, 2 * parameters, axis=0)
    columns = np.repeat(np.arange(parameters), 2)
    moved[np.arange(len(moved)), columns] = np.tile([0.0, 1.0], parameters)
    cost = np.square(repeated(points, 1 + len(moved)).values(np.concatenate([found.labels, moved])))
    rise = (cost.sum(axis=1)[1:] - cost[0].sum()).reshape(parameters, 2)
    allowed = np.square(_QUANTILE * found.sigma[:, None] * found.widening)[0]
    is_open = rise <= allowed[:, None]
    labels = np.where(is_open, [0.0, 1.0], found.interval_labels[0])
    ends = [wide.identified_values(labels[None, :, side])[0] for side in (0, 1)]
    return dataclasses.replace(
        found,
        interval_labels=labels[None],
        interval=np.stack(ends, axis=1)[None],
        unidentifiable=found.unidentifiable | is_open.all(axis=1)[None],
    )


def _preferred(labels: Array, cost: Array) -> NDArray[np.intp]:
    """The order of minima: by cost, and of those alike, such as terms that changed places, the one within the ranges.

    Args:
      labels: [minima, p], on the scale of the law's ranges; cost: [minima].
    """
    beyond = (np.maximum(labels - 1.0, 0.0) + np.maximum(-labels, 0.0)).sum(axis=1)
    alike = cost <= cost.min() * (1.0 + _ALIKE)
    return np.lexsort((np.where(alike, beyond, 0.0), np.where(alike, cost.min(), cost)))


def errors_of_tests(record: MeasuredRecord, response: Array) -> tuple[Array, Array]:
    """Root mean square distance of an answer [points] from each test: in MPa or -, and in % of its largest response.

    Points count as they do in the fit.
    """
    rmse, percent = [], []
    parts = zip(record.tests, record.split(response), strict=True)
    for test, answer in parts:
        square = float(np.mean(test.shares * np.square(answer - test.response)))
        rmse.append(np.sqrt(square))
        percent.append(100.0 * rmse[-1] / max(float(np.abs(test.response).max()), 1e-300))
    return np.array(rmse), np.array(percent)


def rms_percent(of_tests: Array) -> float:
    """One error of a record from those of its tests [tests], %."""
    return float(np.sqrt(np.mean(np.square(of_tests))))


def tests_json(record: MeasuredRecord, response: Array) -> list[dict[str, Any]]:
    """One entry a test: what it is, its settings, its points, and how far the answer [points] is from it."""
    errors = errors_of_tests(record, response)
    return [
        {
            "name": test.curve.name,
            "test": test.programme.name,
            "mode": test.programme.mode,
            "drives": test.programme.drives,
            "settings": {
                s.name: {"value": float(test.settings[s.name]), "unit": s.unit}
                for s in test.programme.settings
                if s.name in test.settings
            },
            "half_cycles": half_cycles(test.turns) if test.turns else 1,
            "num_points": len(test),
            "rmse": float(rmse),
            "rmse_unit": "MPa" if test.programme.drives == "strain" else "-",
            "rmse_percent": float(percent),
        }
        for test, rmse, percent in zip(record.tests, *errors, strict=True)
    ]


def panels_of(
    record: MeasuredRecord, responses: Mapping[str, Array], recommended: str
) -> dict[str, Any]:
    """The tests as `record_figure` draws them: measured points, the recommended answer, and the other one."""
    answers = record.split(responses[recommended])
    errors = errors_of_tests(record, responses[recommended])[1]
    other = next((method for method in responses if method != recommended), None)
    others = record.split(responses[other]) if other else [None] * len(answers)
    return {
        "tests": [
            {
                "name": test.curve.name,
                "title": test.programme.title,
                "kind": test.programme.name,
                "drives": test.programme.drives,
                "turns": bool(test.turns),
                "strain": test.curve.strain,
                "stress_mpa": test.curve.stress_mpa,
                "time": test.time,
                "answer": answer,
                "other": other_answer,
                "rmse_percent": float(percent),
                "settings": ", ".join(
                    f"{test.settings[s.name]:.3g}{'' if s.unit == '-' else f' {s.unit}'}"
                    for s in test.programme.settings
                    if s.name in ("rate", "temperature") and s.name in test.settings
                ),
            }
            for test, answer, other_answer, percent in zip(
                record.tests, answers, others, errors, strict=True
            )
        ],
        "method": recommended.replace("_", " "),
        "other_method": other.replace("_", " ") if other else None,
    }

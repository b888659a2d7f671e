"""Least squares for a record: from many starts, free of the trained ranges, and compared with other laws.

Each record is fitted by itself, so that its answer never depends on what else is in the call.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.loading_paths import half_cycles
from tfmat.curves.measured_tests import MeasuredRecord, cells_of, coarse
from tfmat.curves.record_files import refusal
from tfmat.curves.toe import elastic_line, steepest_chord
from tfmat.errors import InputError
from tfmat.identification.least_squares import (
    COMPLIANCE,
    ZERO,
    LeastSquaresFit,
    deviation_by_strain_noise,
    fit,
)
from tfmat.identification.other_laws import BETTER, compare_laws
from tfmat.identification.start_values import coarse_minimum, even_labels, tried_costs
from tfmat.materials.law import Array, Law, Parameter, TestSet
from tfmat.materials.numerics import Residuals, minimise
from tfmat.materials.registry import LAWS

# Points of all tests together that searches from many starts see. The last search sees all points of tests. Neighbours
# on one rising loading are averaged, and its fit is the same without more.
_SEARCHED_POINTS = 400
# Labels tried on a few points of the curve, and how many of them start a short search.
_TRIED, _TRIED_ONE, _TRIED_POINTS, _STARTS = 1024, 64, 40, 64
# How many of the minima found so start full searches; minima whose labels all differ by less are one.
_FULL_STARTS, _SAME_MINIMUM = 10, 0.01
# Where fewer than half of these find the best minimum again, each of its parameters is moved to so many places, and all
# are searched for anew, until that finds nothing better by this share (at most so many times).
_HOPS, _WORTH_A_ROUND, MOST_ROUNDS = 12, 1e-4, 4
# Slow laws take no rounds: when short and full searches give up (`rivalry` of `minimise`).
_FAR, _NEAR = (10.0, 12), (1.5, 30)
# _EXPLORERS: labels all over the ranges from which searches look beyond an end of an interval.
_EXPLORERS = 12
_AS_GOOD = 1.05  # Another law counts where parameters beyond their ranges may stand at their ends, but for this.
# How far beyond its range a parameter is looked for: the ends of a logarithmic range times or over the first; those
# of a positive linear one times or over the others. Factors, so that signs are kept.
_BEYOND_LOG, _BEYOND_HIGH, _BEYOND_LOW = 10.0, 3.0, 10.0
# A minimum that costs more than this times the best is no rival of it.
_RIVAL = 1.5
# Costs that differ by less are one minimum's.
_ALIKE = 1e-5
# Student's t of 95 % for many points.
_QUANTILE = 2.0
# _MANY_POINTS: differences of so many points show the noise, and not the bends of one rising loading.
_MANY_POINTS = 100
# _OF_REMOVED: share of a toe that was taken off which may go on in the elastic part, standard deviation.
_OF_REMOVED = 0.5

Flags = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class BestFit:
    """The parameters that fit one record best, wherever they lie; p identified parameters.

    Attributes:
      values, std: [p], in the parameters' units; interval: [p, 2], 95 %.
      labels: [p], on the scale of the law's ranges: below 0 or above 1 lies beyond.
      label_covariance: [p, p], on the same scale, widened as the intervals are.
      at_bound: [p], the value stands at the end of what was searched, far beyond its range.
      unidentifiable: [p], the interval is as wide as the range.
      is_open: [p, 2], the record does not bound the parameter on this side, as far as was searched.
      rmse_mpa: root mean square residual at the fitted points, over their deviation where they have one.
      widening: by what factor the widest interval is wider than it would be for independent residuals; 1 where they
        are independent.
      shared_std: [p], standard deviation of the labels by errors of extensometer and load cell, which specimens share.
    """

    values: Array
    std: Array
    interval: Array
    labels: Array
    label_covariance: Array
    at_bound: Flags
    unidentifiable: Flags
    is_open: Flags
    rmse_mpa: float
    widening: float
    shared_std: Array

    @property
    def is_unknown(self) -> Flags:
        """Parameters [p] that the record does not tell, or bounds on one side only."""
        return self.unidentifiable | self.is_open.any(axis=1)


@dataclasses.dataclass(frozen=True)
class RecordFit:
    """The best fit to a record, and its rivals.

    Attributes:
      best: see `BestFit`: the global minimum, as far as many starts can tell.
      rivals: labels [rivals, p] of other minima that fit nearly as well, on the scale of the law's ranges, the best
        first; cost: half their sum of squares on the searched points, [rivals].
      searched: the residuals that they belong to.
      record: the points that were fitted.
    """

    best: BestFit
    rivals: Array
    cost: Array
    searched: Residuals
    record: MeasuredRecord


def residuals_of(law: Law, record: MeasuredRecord) -> Residuals:
    """The weighted residuals of a record under a law."""
    deviation = record.deviation(law)
    weights = np.ones(record.num_points) if deviation is None else 1.0 / deviation
    return Residuals(law, record.driven, record.response[None], weights[None])


def fit_record(law: Law, record: MeasuredRecord) -> RecordFit:
    """The parameters that fit all tests of a record best, as far as many starts can tell.

    Labels that fill the law's ranges evenly are compared first; the best start short searches, and the best distinct
    minima of those full ones. The place of a kink (first yield) between two points makes many local minima close by.
    So each parameter of the best one is moved through its range and searched for anew. All searches may leave the
    law's ranges (see `widened`).
    """
    few = _on_points(record, _SEARCHED_POINTS)
    toe = compliance_of(record)
    record = record if record.curve is None else few
    searched = residuals_of(law, few)
    wide, rounds = widened(law), _rounds(record)
    points = residuals_of(wide, record)
    # Far from the answer a law may overflow; such labels are not taken.
    with np.errstate(all="ignore"):
        labels, cost = minima(searched, wide, rounds)
        order = _preferred(law.to_labels(wide.from_labels(labels)), cost)
        labels, cost = labels[order], cost[order]
        found = fit(
            wide,
            points.strain,
            points.stress,
            start=labels[:1],
            deviation=_deviation(wide, record, points, labels[:1]),
            correlated=True,
            compliance=toe,
            strain_shift=0.0 if record.curve is None else record.curve.strain_error.shift,
            zero=ZERO,
            # Laws that remember are slow to answer.
            elsewhere=elsewhere(labels, cost) if rounds else None,
            thinned=None if rounds else thinned(record, points),
        )
        found = _with_open_ends(wide, points, found)
    near = cost <= _RIVAL * cost[0]
    return RecordFit(
        best=within(law, wide, found),
        rivals=law.to_labels(wide.from_labels(labels[near])),
        cost=cost[near],
        searched=searched,
        record=record,
    )


def compliance_of(record: MeasuredRecord) -> float:
    """Standard deviation of the share of elastic strain that is off: more than usual where a curve begins with a toe.

    Slack and seating that go on where the elastic part was measured make it less steep than the material is.
    """
    curve = record.curve
    if curve is None or not curve.toe:
        return COMPLIANCE
    line = elastic_line(curve.strain, curve.stress_mpa)
    line = line or steepest_chord(curve.strain, curve.stress_mpa)
    if line is None:
        return COMPLIANCE
    share = curve.toe / (curve.toe + line.end_stress / line.slope)
    return float(np.hypot(COMPLIANCE, share * (_OF_REMOVED if curve.toe_removed else 1.0)))


def _deviation(law: Law, record: MeasuredRecord, points: Residuals, labels: Array) -> Array:
    """The standard deviation of each point up to a factor, [1, points]; of one rising loading by its strain's noise."""
    curve, even = record.curve, 1.0 / points.weights
    if curve is None:
        return even
    (history,) = record.test_set.histories
    answer = law.label_stress(points.strain, labels)[0]
    found = deviation_by_strain_noise(history, curve.stress_mpa, answer, curve.strain_error)
    return even if found is None else found[None]


def minima(curve: Residuals, wide: Law, rounds: int = MOST_ROUNDS) -> tuple[Array, Array]:
    """Where searches from many starts end, the best first.

    Args:
      curve: one curve, or the tests of one material, and their law.
      wide: the law with the ranges to search.
      rounds: how often the parameters of the best minimum are moved through their ranges, at most; 0: see `_FAR`.

    Returns:
      Labels [minima, p] on the scale of the wide law, and half the sum of squares at each.
    """
    law, parameters = curve.law, len(curve.law.identified)
    tried = even_labels(_TRIED if parameters > 1 else _TRIED_ONE, parameters)
    cost = _tried(curve, tried)
    starts = tried[np.argsort(cost, kind="stable")[:_STARTS]]
    wide_curve = dataclasses.replace(curve, law=wide)
    starts = wide.to_labels(law.from_labels(starts))
    far, near = (None, None) if rounds else (_FAR, _NEAR)
    coarse = coarse_minimum(repeated(wide_curve, len(starts)), starts, far)
    found = [_searched(wide_curve, _distinct(coarse.labels, coarse.cost), near)]
    agreed = np.median(found[0][1]) <= found[0][1][0] * (1.0 + _WORTH_A_ROUND)
    for _ in range(0 if agreed else rounds):
        best, cost_of_best = found[-1][0][0], found[-1][1][0]
        places = (np.arange(_HOPS) + 0.5) / _HOPS
        moved = np.repeat(best[None], parameters * _HOPS, axis=0)
        for column in range(parameters):
            moved[column * _HOPS : (column + 1) * _HOPS, column] = places
        further = _searched(wide_curve, moved)
        if not further[1][0] < cost_of_best * (1.0 - _WORTH_A_ROUND):
            found.insert(0, further)
            break
        found.append(further)
    # Each round's best is better than the best of the round before.
    found.reverse()
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _tried(curve: Residuals, tried: Array) -> Array:
    """Sum of squares of each of the labels [labels, p], on a few points of a rising loading, on all of tests."""
    if not isinstance(curve.strain, TestSet):
        return tried_costs(curve, tried, _TRIED_POINTS)[0]
    cost = np.square(repeated(curve, len(tried)).values(tried)).sum(axis=1)
    return np.where(np.isfinite(cost), cost, np.inf)


def _searched(
    curve: Residuals, starts: Array, rivalry: tuple[float, int] | None = None
) -> tuple[Array, Array]:
    """Labels [starts, p] and cost of the minima of one curve that full searches find, the best first."""
    minimum = minimise(repeated(curve, len(starts)), starts, rivalry=rivalry)
    cost = np.where(np.isnan(minimum.cost), np.inf, minimum.cost)
    order = np.argsort(cost, kind="stable")
    return minimum.labels[order], cost[order]


def repeated(curve: Residuals, count: int) -> Residuals:
    """One curve as `count` equal ones, so that it is searched from many starts side by side."""
    return curve.rows(np.zeros(count, np.intp))


def _distinct(labels: Array, cost: Array) -> Array:
    """The best of the labels [starts, p], none nearly the same as a better one: [at most _FULL_STARTS, p]."""
    chosen: list[Array] = []
    for i in np.argsort(np.where(np.isnan(cost), np.inf, cost), kind="stable"):
        if all(np.abs(labels[i] - other).max() > _SAME_MINIMUM for other in chosen):
            chosen.append(labels[i])
        if len(chosen) == _FULL_STARTS:
            break
    return np.stack(chosen)


def elsewhere(labels: Array, cost: Array) -> Array:
    """Other minima than the best, of labels [minima, p] and their cost, and labels all over the range: [any, p]."""
    others = _distinct(labels, cost)[1:]
    return np.concatenate([others, even_labels(_EXPLORERS, labels.shape[1])])


def within(law: Law, wide: Law, found: LeastSquaresFit) -> BestFit:
    """The fit of the wide law, seen from the law's own ranges."""
    lower, upper = (
        np.array([p.to_unit_interval(end) for p, end in zip(law.identified, ends, strict=True)])
        for ends in (found.interval[0, :, 0], found.interval[0, :, 1])
    )
    labels = np.array(
        [p.to_unit_interval(v) for p, v in zip(law.identified, found.values[0], strict=True)]
    )
    wider_than_range = ~(upper - lower < 1.0)
    ratio = np.array(
        [w.width / p.width for w, p in zip(wide.identified, law.identified, strict=True)]
    )
    return BestFit(
        values=found.values[0],
        std=found.std[0],
        interval=found.interval[0],
        labels=labels,
        label_covariance=found.label_covariance[0] * np.outer(ratio, ratio),
        at_bound=found.at_bound[0],
        unidentifiable=found.unidentifiable[0] | wider_than_range,
        is_open=found.interval_labels[0] == [0.0, 1.0],
        rmse_mpa=float(found.rmse_mpa[0]),
        widening=float(np.nanmax(found.widening[0])),
        shared_std=found.shared_std[0] * ratio,
    )


def widened(law: Law) -> Law:
    """The same law with ranges far beyond those that curves are simulated in, for searches that need no training."""
    if not law.known_beyond:
        return law
    ranges = {p.name: _widened(p) for p in law.identified}
    fixed = {p.name: p.fixed for p in law.parameters if p.fixed is not None}
    return type(law)(ranges=ranges, fixed=fixed, scales={p.name: p.scale for p in law.parameters})


def _widened(parameter: Parameter) -> tuple[float, float]:
    low, high = parameter.low, parameter.high
    if parameter.scale == "log":
        return low / _BEYOND_LOG, high * _BEYOND_LOG
    if low >= 0:
        return low / _BEYOND_LOW, high * _BEYOND_HIGH
    return low - (high - low), high + (high - low)


def error_within(law: Law, curve: Residuals, rounds: int = MOST_ROUNDS) -> Array:
    """The root mean square residual of the law's best fit to one curve or record, [1]; infinite beyond its ranges.

    Args:
      curve: its points, of any law.
      rounds: as of `minima`.
    """
    wide = widened(law)
    labels, cost = minima(dataclasses.replace(curve, law=law), wide, rounds=rounds)
    own = np.clip(law.to_labels(wide.from_labels(labels[:1])), 0.0, 1.0)
    cost_inside = 0.5 * np.square(dataclasses.replace(curve, law=law).values(own)).sum()
    found = cost[0] if cost_inside <= _AS_GOOD * cost[0] else np.inf
    return np.array([np.sqrt(2.0 * found / curve.weights.size)])


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


def better_law(law: Law, fitted: RecordFit) -> tuple[str, float, float] | None:
    """Another law that answers the same tests and fits clearly better, its error, and that over the own one's; or None.

    A law without some of the own law's parameters is the same law with fewer terms, and fits no better. No law comes
    nearer than the noise, so that none is searched for where the own one does.
    """
    own_names = {parameter.name for parameter in law.parameters}
    record, points = fitted.record, fitted.searched
    response = law.label_stress(record.driven, fitted.best.labels[None])[0]
    error = rms_percent(errors_of_tests(record, response)[1])
    if record.curve is None or record.num_points >= _MANY_POINTS:
        # The smallest of three estimates is low by chance.
        chance = 1.0 + 1.0 / np.sqrt(record.num_points)
        if BETTER * error <= chance * rms_percent(record.noise_percent):
            return None
    others = [
        other
        for other in LAWS.values()
        if not {parameter.name for parameter in other.parameters} < own_names
        and all(refusal(test.programme, other()) is None for test in record.tests)
    ]
    own = np.array([np.sqrt(2.0 * fitted.cost[0] / points.weights.size)])
    with np.errstate(all="ignore"):
        found = compare_laws(
            law,
            own,
            np.array([points.weights.size]),
            lambda other: error_within(other, points, _rounds(record)),
            others,
        ).better()[0]
    return None if found is None else (*found, found[1] / float(own[0]))


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
    """One error of a record from the errors of its tests [tests], %."""
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


def conditioned(law: Law, fixed: Mapping[str, float]) -> Law:
    """`law` with more parameters known.

    Raises:
      InputError: a parameter that it does not have, or a value that is far from any material, as a wrong unit makes it.
    """
    if not fixed:
        return law
    wide = {p.name: (p, *_widened(p)) for p in law.parameters}
    for name, value in fixed.items():
        if name in wide and not wide[name][1] <= value <= wide[name][2]:
            p = wide[name][0]
            raise InputError(
                f"{name} = {value:g} {p.unit} is far from the {p.low:g} to {p.high:g} {p.unit} of law {law.name}; "
                f"give it in {p.unit}"
            )
    ranges = {p.name: (p.low, p.high) for p in law.parameters}
    known = {p.name: p.fixed for p in law.parameters if p.fixed is not None}
    scales = {p.name: p.scale for p in law.parameters}
    return type(law)(ranges=ranges, fixed={**known, **fixed}, scales=scales)

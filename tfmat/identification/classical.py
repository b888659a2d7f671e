"""Least squares for one measured curve: from many starts, free of the trained ranges, and compared with other laws.

Each curve is fitted by itself, so that its answer never depends on what else is in the call.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.cleaning import MeasuredCurve
from tfmat.curves.toe import StrainError, elastic_line, noise_of, steepest_chord
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
from tfmat.materials.law import Array, History, Law, Parameter, TestSet
from tfmat.materials.numerics import Residuals, minimise

# A longer curve is averaged in groups of neighbours: the fit is the same, and it stays fast.
_MOST_POINTS = 400
# Labels tried on a few points of the curve, and how many of them start a short search.
_TRIED, _TRIED_ONE, _TRIED_POINTS, _STARTS = 1024, 64, 40, 64
# How many of the minima found so start full searches; minima whose labels all differ by less are one.
_FULL_STARTS, _SAME_MINIMUM = 10, 0.01
# Where fewer than half of these find the best minimum again, each of its parameters is moved to so many places, and all
# are searched for anew, until that finds nothing better by this share (at most so many times).
_HOPS, _WORTH_A_ROUND, MOST_ROUNDS = 12, 1e-4, 4
# Of slow laws, which take no rounds: when short and full searches give up (`rivalry` of `minimise`).
_FAR, _NEAR = (10.0, 12), (1.5, 30)
# _EXPLORERS: labels all over the ranges from which searches look beyond an end of an interval.
_EXPLORERS = 12
_AS_GOOD = 1.05  # Another law counts where parameters beyond their ranges may stand at their ends, but for this.
# How far beyond its range a parameter is looked for: the ends of a logarithmic range times or over the first; those
# of a positive linear one times or over the others. Factors, so that signs are kept.
_BEYOND_LOG, _BEYOND_HIGH, _BEYOND_LOW = 10.0, 3.0, 10.0

# _MANY_POINTS: of so many points second differences show the noise and not the bends of a curve.
_MANY_POINTS = 100
# _OF_REMOVED: share of a toe that was taken off which may go on in the elastic part, standard deviation.
_OF_REMOVED = 0.5

Flags = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class BestFit:
    """The parameters that fit one curve best, wherever they lie; p identified parameters.

    Attributes:
      values, std: [p], in the parameters' units; interval: [p, 2], 95 %.
      labels: [p], on the scale of the law's ranges: below 0 or above 1 lies beyond.
      label_covariance: [p, p], on the same scale, widened as the intervals are.
      at_bound: [p], the value stands at the end of what was searched, far beyond its range.
      unidentifiable: [p], the interval is as wide as the range.
      is_open: [p, 2], the curve does not bound the parameter on this side, as far as was searched.
      rmse_mpa: root mean square residual at the measured points.
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
        """Parameters [p] that the curve does not tell, or bounds on one side only."""
        return self.unidentifiable | self.is_open.any(axis=1)


@dataclasses.dataclass(frozen=True)
class ClassicalAnswer:
    """What least squares says of one curve.

    Attributes:
      best: the global minimum, as far as many starts can tell.
      better: another law of the family that fits clearly better, and its error in MPa; or None.
    """

    best: BestFit
    better: tuple[str, float] | None


def classical_answer(law: Law, curve: MeasuredCurve) -> ClassicalAnswer:
    """Least squares of a curve. No network has a part in it, so that the answer is the same without one."""
    points = grouped_points(curve)
    # Far from the answer a law may overflow; such labels are not taken.
    with np.errstate(all="ignore"):
        best = best_fit(
            law, *points, compliance=compliance_of(curve), strain_error=curve.strain_error
        )
        # No law comes nearer than the noise, which many points tell well.
        noise = noise_of(points[1]) if len(points[1]) >= _MANY_POINTS else 0.0
        better = _better_law(law, best, points) if BETTER * best.rmse_mpa > noise else None
        return ClassicalAnswer(best, better)


def compliance_of(curve: MeasuredCurve) -> float:
    """Standard deviation of the share of elastic strain that is off: more than usual where the curve begins with a toe.

    Slack and seating that go on where the elastic part was measured make it less steep than the material is.
    """
    line = elastic_line(curve.strain, curve.stress_mpa) if curve.toe else None
    line = line or (steepest_chord(curve.strain, curve.stress_mpa) if curve.toe else None)
    if line is None:
        return COMPLIANCE
    share = curve.toe / (curve.toe + line.end_stress / line.slope)
    return float(np.hypot(COMPLIANCE, share * (_OF_REMOVED if curve.toe_removed else 1.0)))


def best_fit(
    law: Law,
    strain: Array,
    stress: Array,
    *,
    compliance: float = COMPLIANCE,
    strain_error: StrainError | None = None,
) -> BestFit:
    """The global minimum of the sum of squares, as far as many starts can tell.

    Labels that fill the law's ranges evenly are compared on a few points; the best start short searches, and the best
    distinct minima of those full ones. The place of a kink (first yield) between two points makes many local minima
    close by: each parameter of the best one is then moved through its range and searched for anew. All searches may
    leave the law's ranges (see `widened`).

    Args:
      strain, stress: [points], - and MPa.
      compliance: as of `fit`.
      strain_error: of the points, as far as it is known beforehand.
    """
    wide = widened(law)
    with np.errstate(all="ignore"):
        labels, cost = minima(_points(law, strain, stress), wide)
        answer = wide.label_stress(strain[None], labels[:1])[0]
        deviation = deviation_by_strain_noise(
            History(strain=strain[None]), stress, answer, strain_error
        )
        found = fit(
            wide,
            strain[None],
            stress[None],
            start=labels[:1],
            deviation=deviation,
            correlated=True,
            compliance=compliance,
            strain_shift=strain_error.shift if strain_error is not None else 0.0,
            zero=ZERO,
            elsewhere=elsewhere(labels, cost),
        )
    return within(law, wide, found)


def _points(law: Law, strain: Array, stress: Array) -> Residuals:
    return Residuals(law, strain[None], stress[None], np.ones((1, len(strain))))


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
    # Each round's best is better than that of the round before.
    found.reverse()
    return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])


def _tried(curve: Residuals, tried: Array) -> Array:
    """Sum of squares of each of the labels [labels, p], on a few points of a curve or on all of tests: [labels]."""
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


def _better_law(law: Law, best: BestFit, points: tuple[Array, Array]) -> tuple[str, float] | None:
    """A registered law of the same measures that fits clearly better inside its ranges, or None."""
    own, count, curve = np.array([best.rmse_mpa]), np.array([len(points[0])]), _points(law, *points)
    return compare_laws(law, own, count, lambda other: error_within(other, curve)).better()[0]


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


def grouped_points(curve: MeasuredCurve) -> tuple[Array, Array]:
    """Strain (-) and stress (MPa) as measured, or means of neighbours where points are very many: [points]."""
    group = -(-len(curve.strain) // _MOST_POINTS)
    starts = np.arange(0, len(curve.strain), group)
    count = np.diff([*starts, len(curve.strain)])
    return (
        np.add.reduceat(curve.strain, starts) / count,
        np.add.reduceat(curve.stress_mpa, starts) / count,
    )


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

"""Classical identification: least squares for many curves at once, with intervals. NumPy only.

The baseline that a network is measured with.
"""

import dataclasses

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.curves.toe import StrainError, noise_of_both
from tfmat.identification.correlated_errors import correlated_errors, uneven_errors
from tfmat.identification.cramer_rao import covariance_of
from tfmat.identification.start_values import start_labels
from tfmat.materials.law import Array, History, Law, TestSet, driven_where
from tfmat.materials.numerics import Minimum, Residuals, minimise

COVERAGE = 0.95
# Tests that leave a direction nearly open have long, bent valleys.
_MOST_ITERATIONS, _MOST_ON_TESTS = 100, 200
# Of a variance by the other parameters; double precision resolves no more.
_MOST_INFLATION = 1e12

Flags = NDArray[np.bool_]
# Labels [rows, p], the rise of the sum of squares there [rows], and the curve of each [rows].
_Pool = list[tuple[Array, Array, NDArray[np.intp]]]
# How far the rise of the sum of squares at an end may be from what a linear law gives, as a share of it.
_LINEAR = 0.25
# _ITERATIONS: steps of a search with one label held, at most.
_ITERATIONS = 20
# _TOLERANCE: such a search ends where a step promises less than this share of the rise that ends an interval.
_TOLERANCE = 0.02
# _AT_ONCE: searches side by side in which a few profiles are tried at several places.
_AT_ONCE = 8
# _BETWEEN: an end lies on a line between places where the root of the rise, over its value at the end, is so near 1.
_BETWEEN = 0.1
# _LEAST_NOISE: noise is not smaller than this share of the largest response, since no more digits are written.
_LEAST_NOISE = 1e-4
# _ABOVE_NOISE: errors larger than so many times the noise are the law's.
_ABOVE_NOISE = 2.0
# _BY_STRAIN: times the noise of the stress; a known error of the strain that makes less of it changes nothing.
_BY_STRAIN = 0.3
# COMPLIANCE: share of an elastic strain that machine and extensometer add or leave out, standard deviation. ISO 9513
# allows an extensometer of class 1 an error of 1 % of its reading; grips and alignment are taken to add as much.
COMPLIANCE = 0.02
# ZERO: standard deviation of the zero of a test's response, as a share of its largest response.
ZERO = 0.005
# _STEP: share of the elastic strain in the difference that gives the effect of a compliance.
_STEP = 1e-4
# Places at which a profile is tried, at most; how near the end is found, as a share; the least distance of labels.
_TRIES, _NEAR, _LEAST_DISTANCE = 16, 0.02, 1e-7
# How often profiles are followed again from labels that other profiles came to.
_ROUNDS = 4


@dataclasses.dataclass(frozen=True)
class LeastSquaresFit:
    """The parameters that fit each curve best, and how well they are known. p identified parameters, in label order.

    Attributes:
      labels: [curves, p], 0-1; the fit is bounded by the law's ranges.
      values: [curves, p], in the parameters' units.
      sigma: estimated standard deviation of the noise, [curves]: MPa, or over the given deviation (then ideally 1).
        NaN where the curve has no more points than parameters.
      label_covariance: [curves, p, p] = sigma² (JᵀJ)⁻¹ on the scale of the labels, and what `fit` was asked to count.
      label_std: [curves, p], its roots; std: [curves, p], in the parameters' units (to first order).
      interval_labels: 95 % interval by Student's t, [curves, p, 2], cut to 0-1: by the profile of the sum of squares
        where the law is far from linear (see `profile_limits`). 0 and 1 are ends that the curve does not rule out.
      interval: the same in the parameters' units: of a parameter on a logarithmic scale not symmetric.
      rmse_mpa: root mean square residual, [curves].
      iterations, converged: of the search, [curves].
      at_bound: [curves, p], the answer stands at the end of its range.
      unidentifiable: [curves, p], the interval is wider than the range, or neither end of the range is ruled out, or
        JᵀJ is singular but for rounding: the curve says nothing of this parameter.
      widening: by what factor the standard deviations are larger than those for independent residuals, [curves, p];
        1 unless `fit` is asked for it.
      shared_std: the part of `label_std` by the usual errors of extensometer and load cell, which specimens may share,
        [curves, p]; 0 where `fit` counts none.
    """

    labels: Array
    values: Array
    sigma: Array
    label_covariance: Array
    label_std: Array
    std: Array
    interval_labels: Array
    interval: Array
    rmse_mpa: Array
    iterations: NDArray[np.int64]
    converged: Flags
    at_bound: Flags
    unidentifiable: Flags
    widening: Array
    shared_std: Array


def fit(
    law: Law,
    strain: Array | TestSet,
    stress: Array,
    valid: Flags | None = None,
    *,
    start: Array | None = None,
    starts: int | None = None,
    deviation: Array | None = None,
    correlated: bool = False,
    compliance: float = 0.0,
    strain_shift: float = 0.0,
    zero: float = 0.0,
    elsewhere: Array | None = None,
    thinned: Residuals | None = None,
) -> LeastSquaresFit:
    """Least squares with Levenberg-Marquardt inside the law's ranges.

    Args:
      strain, stress: [curves, points], - and MPa; or a test set and its responses, [materials, points]. What stands at
        points that are not valid does not count.
      valid: [curves, points]; None is all.
      start: labels [curves, p] to start from; None finds them (`start_labels`).
      starts: local searches, from the best of many labels, where `start` is None; None is enough for the law.
      deviation: standard deviation of the noise of each point up to a factor, [curves, points], MPa; None is even.
      correlated: residuals of neighbouring points may be alike, as they are where the law does not follow the curve;
        covariance and intervals then account for it (see `correlated_errors`). Points stand in order.
      compliance: standard deviation of the share of an elastic strain that machine and extensometer add or leave out.
      strain_shift: standard deviation of a strain by which all points are off alike, -.
      zero: standard deviation of the zero of each test's response, as a share of its largest response.
      elsewhere: for one curve, labels [any, p] of other minima and from all over the range: searches from them look for
        what else the curve allows where a law is far from linear in its labels. None is quick, and may miss some.
      thinned: for one record of a law that is slow to answer, fewer of its points, which weigh as much as all do.
        Profiles are followed on them, about the response of the fit in place of the measured one.
    """
    residuals = _residuals(law, strain, stress, valid, deviation)
    if start is None:
        start = start_labels(law, residuals.strain, residuals.stress, residuals.weights, starts)
    found = _minimum(residuals, start)
    return _answer(
        residuals, found, correlated, (compliance, strain_shift, zero), elsewhere, thinned
    )


def minima_near(
    law: Law, strain: Array | TestSet, stress: Array, start: Array, deviation: Array
) -> tuple[Array, Array]:
    """The labels [curves, p] of `fit` and their cost [curves], without the errors that take as long."""
    found = _minimum(_residuals(law, strain, stress, None, deviation), start)
    return found.labels, found.cost


def _minimum(residuals: Residuals, start: Array) -> Minimum:
    on_tests = isinstance(residuals.strain, TestSet)
    max_iterations = _MOST_ON_TESTS if on_tests else _MOST_ITERATIONS
    found = minimise(residuals, start, max_iterations)
    unique = residuals.law.sorted_labels(found.labels)
    if unique is not found.labels:
        found = minimise(residuals, unique, max_iterations)
    return found


def fit_with_noise(
    law: Law,
    strain: Array | TestSet,
    stress: Array,
    valid: Flags | None,
    noise_mpa: float,
    noise_relative: float,
    correlated: bool = False,
) -> LeastSquaresFit:
    """`fit` for noise of `noise_mpa` and, in quadrature, `noise_relative` of the stress without noise.

    The weights come from the stress of a first, even fit: weights from the measured stress would favour the points
    that the noise has lowered. `correlated` as of `fit`.
    """
    if noise_relative == 0.0:
        return fit(law, strain, stress, valid, correlated=correlated)
    first = fit(law, strain, stress, valid)
    if not isinstance(strain, TestSet):
        strain = np.asarray(strain, np.float64)
    model = law.label_stress(strain, first.labels)
    deviation = np.hypot(noise_mpa, noise_relative * model)
    # Purely relative noise vanishes at the origin, where the law is right whatever its parameters.
    floor = 1e-3 * deviation.max(axis=1, keepdims=True)
    return fit(
        law,
        strain,
        stress,
        valid,
        start=first.labels,
        deviation=np.maximum(deviation, floor),
        correlated=correlated,
    )


def _residuals(
    law: Law, strain: Array | TestSet, stress: Array, valid: Flags | None, deviation: Array | None
) -> Residuals:
    stress = np.asarray(stress, np.float64)
    weights = np.ones(stress.shape) if deviation is None else 1.0 / np.asarray(deviation)
    weights = np.broadcast_to(weights, stress.shape)
    if valid is not None and not np.all(valid):
        # Zeros, since NaN times a weight of zero is NaN.
        strain, stress = driven_where(strain, valid), np.where(valid, stress, 0.0)
        weights = np.where(valid, weights, 0.0)
    if not isinstance(strain, TestSet):
        strain = np.broadcast_to(np.asarray(strain, np.float64), stress.shape)
    return Residuals(law, strain, stress, weights)


def _answer(
    residuals: Residuals,
    found: Minimum,
    correlated: bool,
    off_by: tuple[float, float, float],
    elsewhere: Array | None,
    thinned: Residuals | None,
) -> LeastSquaresFit:
    law, labels = residuals.law, found.labels
    counted = residuals.weights > 0
    freedom = (counted.sum(axis=1) - labels.shape[1]).astype(np.float64)
    sigma = np.sqrt(2.0 * found.cost / np.where(freedom > 0, freedom, np.nan))
    covariance = sigma[:, None, None] ** 2 * covariance_of(found.normal)
    independent_std = np.sqrt(np.einsum("cii->ci", covariance))
    if correlated:
        _count_correlation(residuals, labels, covariance, freedom)
    label_std = np.sqrt(np.einsum("cii->ci", covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        widening = np.where(label_std == independent_std, 1.0, label_std / independent_std)
    quantile = scipy.special.stdtrit(np.maximum(freedom, 1), 0.5 + COVERAGE / 2)
    half = quantile[:, None] * label_std
    rise = ((quantile * sigma)[:, None] * widening) ** 2
    profiled = (residuals, found) if thinned is None else _noiseless(thinned, found)
    interval_labels = profile_limits(*profiled, half, rise, elsewhere)
    shared_std = np.zeros_like(label_std)
    if any(off_by):
        added, shared = _by_errors(residuals, found, sigma, *off_by)
        shared_std = np.sqrt(np.einsum("cii->ci", shared))
        covariance += added
        label_std = np.sqrt(np.einsum("cii->ci", covariance))
        off = scipy.special.ndtri(0.5 + COVERAGE / 2) * np.sqrt(np.einsum("cii->ci", added))
        # Errors of the points and of the whole strain are independent of each other.
        distance = np.hypot(np.abs(interval_labels - labels[:, :, None]), off[:, :, None])
        interval_labels = np.clip(labels[:, :, None] + [-1.0, 1.0] * distance, 0.0, 1.0)
    ends = [law.identified_values(interval_labels[:, :, side]) for side in (0, 1)]
    slopes = law.label_slopes(law.from_labels(labels))
    return LeastSquaresFit(
        labels=labels,
        values=law.identified_values(labels),
        sigma=sigma,
        label_covariance=covariance,
        label_std=label_std,
        std=label_std * slopes,
        interval_labels=interval_labels,
        interval=np.stack(ends, axis=2),
        rmse_mpa=_rmse(residuals, found, counted),
        iterations=found.iterations,
        converged=found.converged,
        at_bound=(labels <= 0.0) | (labels >= 1.0),
        # Not `half >= 0.5`, so that a NaN (too few points) is unidentifiable too.
        unidentifiable=~(np.ptp(interval_labels, axis=2) < 1.0)
        | ~np.isfinite(half)
        | _singular(found.normal),
        widening=widening,
        shared_std=shared_std,
    )


def _noiseless(thinned: Residuals, found: Minimum) -> tuple[Residuals, Minimum]:
    """Fewer points, of the fit's own response, and their fit, which is exact."""
    response = thinned.law.label_stress(thinned.strain, found.labels)
    points = dataclasses.replace(thinned, stress=response)
    return points, dataclasses.replace(found, cost=np.zeros_like(found.cost))


def _count_correlation(
    residuals: Residuals, labels: Array, covariance: Array, freedom: Array
) -> None:
    """Replaces, in place, covariance [curves, p, p] and freedom [curves] of curves whose residuals are correlated."""
    values = residuals.values(labels)
    slopes = residuals.law.label_derivatives(residuals.strain, labels)
    slopes *= residuals.weights[:, :, None]
    for i in range(len(labels)):
        counts = residuals.weights[i] > 0
        jacobian, errors = slopes[i, counts], values[i, counts]
        found = correlated_errors(jacobian, errors)
        if found is not None:
            covariance[i], freedom[i] = found.covariance, found.freedom
        answer = residuals.stress[i, counts] + errors / residuals.weights[i, counts]
        uneven = uneven_errors(jacobian, errors, answer)
        if uneven is not None:
            # Each parameter has the larger of its two standard deviations.
            with np.errstate(invalid="ignore", divide="ignore"):
                more = np.sqrt(np.diag(uneven) / np.diag(covariance[i]))
            more = np.fmax(more, 1.0)
            covariance[i] *= np.outer(more, more)


def _by_errors(
    residuals: Residuals, found: Minimum, sigma: Array, compliance: float, shift: float, zero: float
) -> tuple[Array, Array]:
    """The covariance that errors of whole tests add to the labels, and its part that specimens may share.

    Where a point lies on a kink the slopes hold for one of its sides: an error of the strain is taken for the side that
    goes with them.

    Args:
      sigma: standard deviation of the residuals, [curves].
      compliance, shift, zero: as `compliance`, `strain_shift` and `zero` of `fit`.

    Returns:
      Two covariances, [curves, p, p].
    """
    law, driven, weights = residuals.law, residuals.strain, residuals.weights
    tests = driven if isinstance(driven, TestSet) else TestSet((History(strain=driven),))
    slopes = law.label_derivatives(driven, found.labels) * weights[:, :, None]
    values = residuals.values(found.labels)

    def by(size: float, effects: Array) -> Array:
        weighted = size * effects * weights[:, :, None]
        return _moved_by(slopes, found.normal, values, sigma, weighted)

    def by_strain(size: float, is_shift: bool) -> Array:
        below, above = (
            by(size, _effect(law, tests, found.labels, step, is_shift)[:, :, None])
            for step in (-_STEP, _STEP)
        )
        nearer = np.einsum("cii->c", below) < np.einsum("cii->c", above)
        return np.where(nearer[:, None, None], below, above)

    added = np.zeros_like(found.normal)
    shared = np.zeros_like(found.normal)
    if compliance:
        added += by_strain(compliance, False)
        shared += min(COMPLIANCE / compliance, 1.0) ** 2 * added
    if shift:
        added += by_strain(shift, True)
    if zero:
        of_zero = by(zero, _zeroes(tests, residuals.stress))
        added += of_zero
        # One load cell may be off by as much in the tests of all specimens.
        shared += of_zero
    return added, shared


def _moved_by(slopes: Array, normal: Array, values: Array, sigma: Array, effects: Array) -> Array:
    """The covariance that errors add to the labels of a fit which took them for zero, [curves, p, p].

    To first order errors δ whose effects on the responses are D move a fit with the slopes J by (JᵀJ)⁻¹JᵀD δ. The
    part of D that J does not explain shows in the residuals, and tells of δ. So the mean square of δ given the
    residuals counts, or 1 where that is less.

    Args:
      slopes: J, [curves, points, p]; normal: JᵀJ; values: the residuals, [curves, points], of standard deviation
        `sigma` [curves].
      effects: D, of errors that are independent and have standard deviation 1, [curves, points, errors].
    """
    variance = np.square(sigma)[:, None, None]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        moved = covariance_of(normal) @ (np.swapaxes(slopes, 1, 2) @ effects)
        left = effects - slopes @ moved
        # Their own axes keep rounding out of errors that the residuals tell nothing of.
        sizes, axes = np.linalg.eigh(np.nan_to_num(np.swapaxes(left, 1, 2) @ left))
        known = variance + np.maximum(sizes, 0.0)[:, :, None]
        mean = np.swapaxes(left @ axes, 1, 2) @ values[:, :, None] / known
        square = variance / known * np.eye(len(known[0])) + mean @ np.swapaxes(mean, 1, 2)
        square = axes @ square @ np.swapaxes(axes, 1, 2)
        root = np.sqrt(np.maximum(np.einsum("cii->ci", square), 1.0))
        square /= root[:, :, None] * root[:, None, :]
        added = moved @ square @ np.swapaxes(moved, 1, 2)
    return np.where(np.isfinite(added), added, 0.0)


def _zeroes(tests: TestSet, response: Array) -> Array:
    """How far each point moves with the zero of each test, by its largest response: [curves, points, tests]."""
    ends = np.cumsum([history.driven.shape[1] for history in tests.histories])
    found = np.zeros((*response.shape, len(ends)))
    for test, end in enumerate(ends):
        points = slice(ends[test - 1] if test else 0, end)
        found[:, points, test] = np.abs(response[:, points]).max(axis=1, keepdims=True)
    return found


def _effect(law: Law, tests: TestSet, labels: Array, step: float, is_shift: bool) -> Array:
    """What a machine changes the response by that adds a strain as large as the elastic one, [curves, points].

    From a small share `step` of that, of either sign. Of a shift what a strain of 1 everywhere would change.
    """

    def of_test(history: History) -> Array:
        answer = law.label_stress(TestSet((history,)), labels)
        if history.strain is None:
            return np.zeros_like(answer)
        strain, taken = (
            np.broadcast_to(history.strain, answer.shape),
            elastic_strain(history, answer),
        )
        largest = taken.max(axis=1, keepdims=True)
        by = step * (largest if is_shift else taken)
        moved = dataclasses.replace(history, strain=strain - by)
        change = law.label_stress(TestSet((moved,)), labels) - answer
        return np.asarray(change / (step * largest if is_shift else step))

    return tests.joined(of_test)


def deviation_by_strain_noise(
    history: History, response: Array, answer: Array, strain_error: StrainError | None = None
) -> Array | None:
    """The noise of each point over the noise where the curve is flat, [points]; None where noise is as good as even.

    Noise of the strain counts times the slope of the best answer. It is not taken from curves that their law misses by
    more than their noise, whose errors are of another kind. An error that is known beforehand counts whatever the
    points show: steps of the strain also blur the curve where that bends.

    Args:
      history: one rising test; response, answer: [points], measured and of the best fit.
      strain_error: of the points, as far as it is known beforehand.
    """
    if history.strain is None:
        return None
    strain = history.strain[0]
    stress_noise, strain_noise = noise_of_both(strain, response)
    stress_noise = max(stress_noise, _LEAST_NOISE * float(np.abs(response).max()))
    known = stress_by_strain(strain, answer, strain_error or StrainError())
    is_known = bool(known.max() > _BY_STRAIN * stress_noise)
    if strain_noise == 0.0 and not is_known:
        return None
    found = np.gradient(answer, strain) * strain_noise
    deviation = np.hypot(1.0, np.maximum(np.abs(found), known) / stress_noise)
    left = float(np.sqrt(np.mean(np.square((answer - response) / deviation))))
    if left <= _ABOVE_NOISE * stress_noise:
        return deviation
    return np.hypot(1.0, known / stress_noise) if is_known else None


def stress_by_strain(strain: Array, answer: Array, error: StrainError) -> Array:
    """What the stress of the answer [points] is off by where the strain [points] has this error, [points]."""
    if error.deviation == 0.0:
        return np.zeros(len(strain))
    starts_late = int(strain[0] > 0.0)
    # The slope of the first of few points is the one that leads to it.
    strain, answer = (np.concatenate([[0.0][:starts_late], each]) for each in (strain, answer))
    chords = np.diff(answer) / np.diff(strain)
    before, after = np.append(chords[:1], chords), np.append(chords, chords[-1:])
    steepest = np.maximum(np.abs(before), np.abs(after))
    # The mean over a step of a line with a bend in its middle, where it is furthest from the line.
    bend = np.abs(after - before) * error.step / 8.0
    return np.hypot(steepest * error.deviation, bend)[starts_late:]


def elastic_strain(history: History, answer: Array) -> Array:
    """The answer [curves, points] over the largest secant modulus of its test's first rise: [curves, points].

    Zero for a test that never rises, which has no such modulus.
    """
    assert history.strain is not None
    size = np.abs(history.strain)
    rising = np.logical_and.accumulate(np.diff(size, prepend=0.0, axis=1) >= 0.0, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        secants = np.where(rising & (size > 0.0), np.abs(answer) / size, 0.0)
    modulus = secants.max(axis=1, initial=0.0)
    return answer / np.where(modulus > 0.0, modulus, np.inf)[:, None]


def _singular(normal: Array) -> Flags:
    """Parameters that change nothing, or nothing that the others do not change too: [curves, p]."""
    diagonal = np.einsum("cii->ci", normal)
    inflation = diagonal * np.einsum("cii->ci", covariance_of(normal))
    nothing = diagonal <= 1e-18 * diagonal.max(axis=1, keepdims=True)
    return nothing | (inflation > _MOST_INFLATION)


def _rmse(residuals: Residuals, found: Minimum, counted: Flags) -> Array:
    """Root mean square of the residuals that count, MPa: [curves]."""
    count = counted.sum(axis=1)
    weights = residuals.weights
    if np.all((weights == 1.0) | ~counted):
        return np.sqrt(2.0 * found.cost / count)
    model = residuals.law.label_stress(residuals.strain, found.labels)
    difference = np.where(counted, model - residuals.stress, 0.0)
    return np.sqrt((difference**2).sum(axis=1) / count)


def profile_limits(
    residuals: Residuals, found: Minimum, half: Array, rise: Array, elsewhere: Array | None = None
) -> Array:
    """Ends of the intervals that the profile of the sum of squares gives; 0 and 1 where the curve leaves them open.

    The profile of a label is the least sum of squares where that label is held and the others are fitted anew. It ends
    the interval where it has risen by `rise`: D. M. Bates, D. G. Watts, Nonlinear Regression Analysis and Its
    Applications (1988), section 6.1. Ends from the slope at the fit are taken for a curve where the sum of squares has
    risen at all of them as it does for a law that is linear in its labels.

    Args:
      found: the fit.
      half: half-width of the intervals that the slope at the fit gives, [curves, p].
      rise: the sum of squares may rise by this much, [curves, p].
      elsewhere: as of `fit`.

    Returns:
      Ends on the scale of the labels, [curves, p, 2].
    """
    best = found.labels
    room = np.stack([best, 1.0 - best], axis=2)
    distance = np.fmin(half[:, :, None], room)
    with np.errstate(invalid="ignore", divide="ignore"):
        linear = (distance / half[:, :, None]) ** 2
        sides = _Sides.of(residuals, found, rise)
        height = sides.height(sides.moved(distance.reshape(-1))).reshape(room.shape)
        bent = ~(np.abs(height - linear) <= _LINEAR * linear).all(axis=(1, 2))
    # Too few points tell no noise, and so no rise.
    bent &= (np.isfinite(rise) & (rise > 0.0)).all(axis=1)
    is_open = (distance >= room) & (height <= 1.0)
    pool: _Pool = []
    if elsewhere is not None:
        pool = [sides.rows(np.zeros(len(elsewhere), np.intp)).pooled(elsewhere)]
        bent |= bool((sides.farthest(pool)[1] > distance.reshape(-1)).any())
    if bent.any():
        rows = np.flatnonzero(np.repeat(bent, room[0].size))
        ends = sides.rows(rows).ends(distance.reshape(-1)[rows], pool, elsewhere)
        distance[bent] = ends.reshape(-1, *room.shape[1:])
        is_open[bent] = (distance >= room * (1.0 - _NEAR))[bent]
    limits = best[:, :, None] + distance * [-1.0, 1.0]
    return np.asarray(np.clip(np.where(is_open, [0.0, 1.0], limits), 0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class _Sides:
    """The two sides of labels of curves, one row each.

    Attributes:
      residuals: of the curve of each row; curve: its number, [rows]; cost: of its best fit, [rows].
      best: its labels, [rows, p]; column: the label that is held, [rows]; side: -1 or 1, [rows].
      slope: the labels' change with the held one to first order, [rows, p].
      rise: of the sum of squares at the end of the interval, [rows].
    """

    residuals: Residuals
    curve: NDArray[np.intp]
    cost: Array
    best: Array
    column: NDArray[np.intp]
    side: Array
    slope: Array
    rise: Array

    @classmethod
    def of(cls, residuals: Residuals, found: Minimum, rise: Array) -> "_Sides":
        """Both sides of all labels of all curves, the column changing faster than the curve and the side fastest."""
        curves, parameters = found.labels.shape
        curve = np.repeat(np.arange(curves), 2 * parameters)
        column = np.tile(np.repeat(np.arange(parameters), 2), curves)
        covariance = covariance_of(found.normal)[curve, column]
        slope = covariance / covariance[np.arange(len(curve)), column, None]
        # What a label that changes nothing does to the others is not known.
        slope = np.where(np.isfinite(slope).all(axis=1, keepdims=True), slope, 0.0)
        slope[np.arange(len(curve)), column] = 1.0
        return cls(
            residuals.rows(curve),
            curve,
            found.cost[curve],
            found.labels[curve],
            column,
            np.tile([-1.0, 1.0], curves * parameters),
            slope,
            np.repeat(rise.reshape(-1), 2),
        )

    def rows(self, rows: NDArray[np.intp]) -> "_Sides":
        """Some of them."""
        arrays = {name: value[rows] for name, value in vars(self).items() if name != "residuals"}
        return _Sides(self.residuals.rows(rows), **arrays)

    def held(self, labels: Array) -> Array:
        """How far the held label of each row of labels [rows, p] lies on its side of the best, [rows]."""
        return np.asarray(
            self.side * np.take_along_axis(labels - self.best, self.column[:, None], 1)[:, 0]
        )

    def moved(self, distance: Array, labels: Array | None = None) -> Array:
        """Labels [rows, p], from the best or others, with the held one moved to a distance: the others follow it."""
        labels = self.best if labels is None else labels
        step = (self.side * (distance - self.held(labels)))[:, None]
        return np.clip(labels + step * self.slope, 0.0, 1.0)

    def height(self, labels: Array) -> Array:
        """The rise of the sum of squares at labels [rows, p] over what ends the interval, [rows]."""
        square = np.square(self.residuals.values(labels)).sum(axis=1) - 2.0 * self.cost
        return np.asarray(np.where(np.isnan(square), np.inf, square) / self.rise)

    def pooled(self, labels: Array) -> tuple[Array, Array, NDArray[np.intp]]:
        """Labels [rows, p] as an entry of a pool."""
        return labels, self.height(labels) * self.rise, self.curve

    def ends(self, first: Array, pool: _Pool, elsewhere: Array | None) -> Array:
        """How far each profile reaches, [rows], tried at distances `first` [rows] before others.

        Where a law has kinks searches from the best fit may miss what other labels make possible. All labels that any
        search has found so far, the pool, are possible for all, until none of them extends an interval. Where a
        parameter has no influence at the best fit, such as the exponent of a term that went to zero, searches from
        elsewhere find what the other parameters can be.
        """
        at = np.take_along_axis(self.best, self.column[:, None], 1)[:, 0]
        room = np.where(self.side > 0.0, 1.0 - at, at)
        inside, reached, rows = self.best, np.zeros(len(first)), np.arange(len(first))
        for _ in range(_ROUNDS if elsewhere is not None else 1):
            part = self.rows(rows)
            found = part._ends(room[rows], inside[rows], first[rows], pool)
            reached[rows] = np.maximum(reached[rows], found)
            if elsewhere is not None:
                part._explore(room[rows], reached[rows], elsewhere, pool)
            inside, farthest = self.farthest(pool)
            rows = np.flatnonzero(farthest > reached * (1.0 + _NEAR) + _LEAST_DISTANCE)
            if not len(rows):
                break
            first = np.minimum(farthest + 0.1 * np.maximum(farthest, first), room)
        return reached

    def _explore(self, room: Array, reached: Array, elsewhere: Array, pool: _Pool) -> None:
        """Searches from elsewhere [any, p] for labels a little beyond what is reached; they join the pool."""
        rows = np.repeat(np.flatnonzero(reached < room), len(elsewhere))
        if not len(rows):
            return
        part = self.rows(rows)
        start = np.tile(elsewhere, (len(rows) // len(elsewhere), 1))
        distance = np.minimum(1.1 * reached + _LEAST_DISTANCE, room)[rows]
        at = np.take_along_axis(part.best, part.column[:, None], 1)[:, 0] + part.side * distance
        np.put_along_axis(start, part.column[:, None], at[:, None], 1)
        part._search(start, pool)

    def _search(self, start: Array, pool: _Pool) -> tuple[Array, Array]:
        """Labels [rows, p] and rise [rows] of the best fits with the held labels as they are in `start` [rows, p]."""
        held = np.zeros(start.shape, np.bool_)
        held[np.arange(len(start)), self.column] = True
        with np.errstate(divide="ignore", invalid="ignore"):
            tolerance = _TOLERANCE * self.rise / (2.0 * self.cost + self.rise)
        found = minimise(self.residuals, start, _ITERATIONS, tolerance, held)
        rise = 2.0 * (found.cost - self.cost)
        rise = np.where(np.isnan(rise), np.inf, rise)
        pool.append((found.labels, rise, self.curve))
        return found.labels, rise

    def farthest(self, pool: _Pool) -> tuple[Array, Array]:
        """Of labels in a pool, those inside each row's interval that reach the farthest: [rows, p] and [rows]."""
        labels, rise, curve = (np.concatenate(each) for each in zip(*pool, strict=True))
        inside, farthest = self.best.copy(), np.zeros(len(self.best))
        for row, column in enumerate(self.column):
            own = labels[(curve == self.curve[row]) & (rise <= self.rise[row])]
            distance = self.side[row] * (own[:, column] - self.best[row, column])
            if distance.max(initial=0.0) > 0.0:
                at = int(np.argmax(distance))
                inside[row], farthest[row] = own[at], distance[at]
        return inside, farthest

    def _ends(self, room: Array, inside: Array, first: Array, pool: _Pool) -> Array:
        """How far each profile reaches beyond labels `inside` [rows, p]; all labels that are found join the pool."""
        labels, below = inside.copy(), self.held(inside)
        above = np.full(len(room), np.inf)
        root_below, root_above = np.zeros(len(room)), np.full(len(room), np.inf)
        if below.any():
            root_below = np.sqrt(np.maximum(self.height(inside), 0.0))
        first = np.where(np.isfinite(first) & (first > below), first, 0.5 * (below + room))
        some, tried = np.flatnonzero(below < room), first[below < room, None]
        for number in range(_TRIES):
            if not len(some):
                break
            count = tried.shape[1]
            part = self.rows(np.repeat(some, count))
            start = part.moved(tried.reshape(-1), np.repeat(labels[some], count, axis=0))
            found, rise = part._search(start, pool)
            root = np.sqrt(np.maximum(rise / part.rise, 0.0)).reshape(tried.shape)
            for row, distances, roots, of_row in zip(
                some, tried, root, found.reshape(*tried.shape, -1), strict=True
            ):
                low = np.flatnonzero(roots <= 1.0)
                if len(low) and distances[low[-1]] > below[row]:
                    below[row], root_below[row] = distances[low[-1]], roots[low[-1]]
                    labels[row] = of_row[low[-1]]
                high = np.flatnonzero((roots > 1.0) & (distances > below[row]))
                if len(high) and distances[high[0]] < above[row]:
                    above[row], root_above[row] = distances[high[0]], roots[high[0]]
            # A profile that comes near its limit may never reach it: a place beyond has to show that.
            near = np.fmin(np.abs(root_below - 1.0), np.abs(root_above - 1.0)) <= _BETWEEN
            near &= np.isfinite(above)
            is_narrow = above - below <= _NEAR * below + _LEAST_DISTANCE
            some = np.flatnonzero((below < room) & ~near & ~is_narrow)
            lower, upper, root = below[some, None], above[some, None], root_below[some, None]
            is_open, end = np.isinf(upper), room[some, None]
            places = _AT_ONCE // max(len(some), 1)
            with np.errstate(invalid="ignore", divide="ignore"):
                if places > 1:
                    share = np.arange(1, places + 1) / (places + 1.0)
                    outer = lower ** (1.0 - share) * end**share
                    outer[:, -1] = end[:, 0]
                else:
                    # A line through both roots, and every third time the middle, for a kink misleads lines.
                    share = np.full(root.shape, 0.5)
                    if number % 3:
                        share = np.clip((1.0 - root) / (root_above[some, None] - root), 0.1, 0.9)
                    outer = np.minimum(lower * np.clip(1.02 / root, 1.2, 4.0), end)
                tried = np.where(is_open, outer, lower + share * (upper - lower))
        with np.errstate(invalid="ignore", divide="ignore"):
            between = below + (1.0 - root_below) / (root_above - root_below) * (above - below)
        return np.where(np.isinf(above), below, between)

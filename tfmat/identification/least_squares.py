"""Classical identification: least squares for many curves at once, with intervals. NumPy only.

The baseline that a network is measured with, and what polishes its answers.
"""

import dataclasses

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.identification.correlated_errors import correlated_errors
from tfmat.identification.cramer_rao import covariance_of
from tfmat.identification.start_values import start_labels
from tfmat.materials.history import TestSet, driven_where
from tfmat.materials.law import Array, Law
from tfmat.materials.levenberg_marquardt import Minimum, Residuals, minimise

COVERAGE = 0.95
# Tests that leave a direction nearly open have long, bent valleys.
_MOST_ITERATIONS, _MOST_ON_TESTS = 100, 200
_TRIES_A_STEP = 8
# Of a variance by the other parameters; double precision resolves no more.
_MOST_INFLATION = 1e12

Flags = NDArray[np.bool_]
# Below this half-width (on the scale of the labels) a law is as good as linear over the interval.
_WIDE = 0.05
_ITERATIONS, _TOLERANCE = 20, 1e-4


@dataclasses.dataclass(frozen=True)
class LeastSquaresFit:
    """The parameters that fit each curve best, and how well they are known. p identified parameters, in label order.

    Attributes:
      labels: [curves, p], 0-1; the fit is bounded by the law's ranges.
      values: [curves, p], in the parameters' units.
      sigma: estimated standard deviation of the noise, [curves]: MPa, or over the given deviation (then ideally 1).
        NaN where the curve has no more points than parameters.
      label_covariance: [curves, p, p] = sigma² (JᵀJ)⁻¹ on the scale of the labels.
      label_std: [curves, p], its roots; std: [curves, p], in the parameters' units (to first order).
      interval_labels: 95 % interval by Student's t, [curves, p, 2], cut to 0-1. It reaches to an end of the range
        that the curve does not rule out: at which, the others fitted anew, the sum of squares rises by less than
        t² sigma². (A law that bends strongly in a parameter makes the interval from the slope alone too narrow.)
      interval: the same in the parameters' units: of a parameter on a logarithmic scale not symmetric.
      rmse_mpa: root mean square residual, [curves].
      iterations, converged: of the search, [curves].
      at_bound: [curves, p], the answer stands at the end of its range.
      unidentifiable: [curves, p], the interval is wider than the range, or neither end of the range is ruled out, or
        JᵀJ is singular but for rounding: the curve says nothing of this parameter.
      widening: by what factor the standard deviations are larger than those for independent residuals, [curves, p];
        1 unless `fit` is asked for it.
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


def fit(
    law: Law,
    strain: Array | TestSet,
    stress: Array,
    valid: Flags | None = None,
    *,
    start: Array | None = None,
    starts: int | None = None,
    deviation: Array | None = None,
    max_iterations: int | None = None,
    max_taken: int | None = None,
    correlated: bool = False,
) -> LeastSquaresFit:
    """Least squares with Levenberg-Marquardt inside the law's ranges.

    Args:
      strain, stress: [curves, points], - and MPa; or a test set and its responses, [materials, points]. What stands at
        points that are not valid does not count.
      valid: [curves, points]; None is all.
      start: labels [curves, p] to start from; None finds them (`start_labels`).
      starts: local searches, from the best of many labels, where `start` is None; None is enough for the law.
      deviation: standard deviation of the noise of each point up to a factor, [curves, points], MPa; None is even.
      max_iterations: steps tried at the most (None: enough); max_taken: of these, steps that made the fit better (None:
        all).
      correlated: residuals of neighbouring points may be alike, as they are where the law does not follow the curve;
        covariance and intervals then account for it (see `correlated_errors`). Points stand in order.
    """
    residuals = _residuals(law, strain, stress, valid, deviation)
    if start is None:
        start = start_labels(law, residuals.strain, residuals.stress, residuals.weights, starts)
    return _answer(residuals, _minimum(residuals, start, max_iterations, max_taken), correlated)


def minima_near(
    law: Law, strain: Array | TestSet, stress: Array, start: Array, deviation: Array
) -> tuple[Array, Array]:
    """The labels [curves, p] of `fit` and their cost [curves], without the errors that take as long."""
    found = _minimum(_residuals(law, strain, stress, None, deviation), start)
    return found.labels, found.cost


def _minimum(
    residuals: Residuals,
    start: Array,
    max_iterations: int | None = None,
    max_taken: int | None = None,
) -> Minimum:
    on_tests = isinstance(residuals.strain, TestSet)
    max_iterations = max_iterations or (_MOST_ON_TESTS if on_tests else _MOST_ITERATIONS)
    found = minimise(residuals, start, max_iterations, max_taken=max_taken)
    unique = residuals.law.sorted_labels(found.labels)
    if unique is not found.labels:
        found = minimise(residuals, unique, max_iterations, max_taken=max_taken)
    return found


def polish(
    law: Law,
    strain: Array | TestSet,
    stress: Array,
    valid: Flags | None,
    labels: Array,
    *,
    steps: int = 2,
    deviation: Array | None = None,
) -> LeastSquaresFit:
    """Improves a network's labels [curves, p] by a few steps of least squares; never to a worse fit. See `fit`.

    A step that would make it worse is tried again, shorter, and does not count.
    """
    return fit(
        law,
        strain,
        stress,
        valid,
        start=labels,
        deviation=deviation,
        max_iterations=_TRIES_A_STEP * steps,
        max_taken=steps,
    )


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


def _answer(residuals: Residuals, found: Minimum, correlated: bool) -> LeastSquaresFit:
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
    limits = np.clip(np.stack([labels - half, labels + half], axis=2), 0.0, 1.0)
    possible = ends_not_ruled_out(residuals, found, half, rise)
    interval_labels = np.where(possible, [0.0, 1.0], limits)
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
        unidentifiable=~(half < 0.5) | possible.all(axis=2) | _singular(found.normal),
        widening=widening,
    )


def _count_correlation(
    residuals: Residuals, labels: Array, covariance: Array, freedom: Array
) -> None:
    """Replaces, in place, covariance [curves, p, p] and freedom [curves] of curves whose residuals are correlated."""
    values = residuals.values(labels)
    slopes = residuals.law.label_derivatives(residuals.strain, labels)
    slopes *= residuals.weights[:, :, None]
    for i in range(len(labels)):
        counts = residuals.weights[i] > 0
        found = correlated_errors(slopes[i, counts], values[i, counts])
        if found is not None:
            covariance[i], freedom[i] = found.covariance, found.freedom


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


def ends_not_ruled_out(
    residuals: Residuals, found: Minimum, half: Array, rise: Array
) -> NDArray[np.bool_]:
    """Whether 0 and 1 fit nearly as well as the best label, the other labels fitted anew: [curves, p, 2].

    By the profile of the sum of squares: D. M. Bates, D. G. Watts, Nonlinear Regression Analysis and Its Applications
    (1988), section 6.1.

    Args:
      found: the fit.
      half: half-width of the intervals that the slope at the fit gives, [curves, p]; narrow ones are taken as they are.
      rise: the sum of squares may rise by this much, [curves, p].
    """
    possible = np.zeros((*half.shape, 2), np.bool_)
    rows, columns = np.nonzero(half > _WIDE)
    if not len(rows):
        return possible
    # Both ends of every such label at once.
    rows, columns = np.repeat(rows, 2), np.repeat(columns, 2)
    ends = np.arange(len(rows)) % 2
    labels, held = found.labels[rows], np.zeros((len(rows), half.shape[1]), np.bool_)
    labels[np.arange(len(rows)), columns] = ends
    held[np.arange(len(rows)), columns] = True
    at_end = minimise(residuals.rows(rows), labels, _ITERATIONS, _TOLERANCE, held).cost
    possible[rows, columns, ends] = 2.0 * (at_end - found.cost[rows]) <= rise[rows, columns]
    return possible

"""Start values for least squares that ask nothing of a law but its stress. NumPy only."""

import numpy as np

from tfmat.materials.law import Array, Law, TestSet
from tfmat.materials.numerics import Minimum, Residuals, minimise

# By the number of identified parameters: labels tried per curve, how many of the best of them start a coarse fit, and
# the points of the thinned curve that it fits. Laws of metals have four, and a kink at first yield: its place between
# two points makes local minima, which thinned curves would only make worse.
_EFFORT = {1: (16, 1, 32), 2: (24, 1, 32), 3: (96, 3, 64)}
_MOST_EFFORT = (384, 3, 1 << 30)
# Points of a curve that the labels are tried on.
_TRIED_POINTS = {1: 8, 2: 8}
_MOST_TRIED_POINTS = 24
_COARSE_ITERATIONS, _COARSE_TOLERANCE = 30, 1e-3
_CHUNK = 256
# A response to histories is not smooth over the labels, and points of a history cannot be thinned: more is tried on
# all points, fewer records at a time.
_TRIED_ON_TESTS, _STARTS_ON_TESTS, _CHUNK_OF_TESTS = 384, 16, 32


def start_labels(
    law: Law, strain: Array | TestSet, stress: Array, weights: Array, starts: int | None = None
) -> Array:
    """Labels near the global minimum, without start values: [curves, identified].

    A fixed set of labels that fills the box evenly is compared on a few points of each curve; coarse fits to group
    means of the curve start from the best of them, and the best fit wins. The labels of a curve depend on its own
    points alone, however long the other curves are.

    Args:
      strain, stress, weights: [curves, points]; see `Residuals`.
      starts: searches from the best of the labels that were tried; None leaves it to the law.
    """
    if isinstance(strain, TestSet):
        return _labels_of_tests(law, strain, stress, weights, starts or _STARTS_ON_TESTS)
    parameters = len(law.identified)
    count, fitted, points = _EFFORT.get(parameters, _MOST_EFFORT)
    fitted = starts or fitted
    tried = even_labels(count, parameters)
    labels = np.empty((len(strain), parameters))
    for first in range(0, len(strain), _CHUNK):
        rows = slice(first, first + _CHUNK)
        coarse = Residuals(law, *group_means(strain[rows], stress[rows], weights[rows], points))
        minima = [coarse_minimum(coarse, start) for start in _best_tried(coarse, tried, fitted)]
        costs = np.stack([minimum.cost for minimum in minima])
        best = np.where(np.isnan(costs), np.inf, costs).argmin(axis=0)
        found = np.stack([minimum.labels for minimum in minima])
        labels[rows] = found[best, np.arange(len(best))]
    return labels


def _labels_of_tests(
    law: Law, tests: TestSet, responses: Array, weights: Array, starts: int
) -> Array:
    """`start_labels` for a test set: even labels, of which the best ones each start a search."""
    tried = even_labels(max(_TRIED_ON_TESTS, 8 * starts), len(law.identified))
    count, parameters = len(responses), tried.shape[1]
    best = np.empty((count, starts, parameters))
    for first in range(0, count, _CHUNK_OF_TESTS):
        records = np.arange(count)[first : first + _CHUNK_OF_TESTS]
        repeated = tests[np.repeat(records, len(tried))]
        with np.errstate(all="ignore"):
            model = law.label_stress(repeated, np.tile(tried, (len(records), 1)))
            difference = model.reshape(len(records), len(tried), -1) - responses[records, None]
            cost = np.square(difference * weights[records, None]).sum(axis=2)
        cost = np.where(np.isfinite(cost), cost, np.inf)
        best[records] = tried[np.argsort(cost, axis=1)[:, :starts]]
    # All searches at once: see the note on many records in `levenberg_marquardt`.
    every = np.repeat(np.arange(count), starts)
    residuals = Residuals(law, tests[every], responses[every], weights[every])
    found = coarse_minimum(residuals, best.reshape(-1, parameters))
    costs = np.where(np.isnan(found.cost), np.inf, found.cost).reshape(count, starts)
    return found.labels.reshape(best.shape)[np.arange(count), costs.argmin(axis=1)]


def even_labels(count: int, parameters: int) -> Array:
    """`count` labels that fill the unit box evenly: [count, parameters].

    The additive recurrence of M. Roberts (The unreasonable effectiveness of quasirandom sequences, 2018), whose step
    is the inverse of the generalised golden ratio.
    """
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (parameters + 1))
    steps = ratio ** -np.arange(1.0, parameters + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0


def group_means(
    strain: Array, stress: Array, weights: Array, groups: int
) -> tuple[Array, Array, Array]:
    """Weighted means of neighbouring points, at most `groups` for each curve; the weights are those of the means.

    A curve's points that count (of a weight above zero) are shared out evenly, and its groups stand first: what is
    behind them has no weight.

    Returns:
      strain, stress, weights, each [curves, at most groups].
    """
    counted = weights > 0
    if not counted.all():
        # What counts comes first, in its own order.
        order = np.argsort(~counted, axis=1, kind="stable")
        strain, stress, weights = (
            np.take_along_axis(np.where(counted, array, 0.0), order, axis=1)
            for array in (strain, stress, weights)
        )
    count = counted.sum(axis=1)
    size = np.maximum(1, -(-count // groups))
    curves, points = strain.shape
    width = max(int((-(-count // size)).max()), 1)
    # The last column takes what does not count, and is thrown away.
    group = np.minimum(np.arange(points) // size[:, None], width)
    cell = (group + (width + 1) * np.arange(curves)[:, None]).ravel()

    def summed(values: Array) -> Array:
        sums: Array = np.bincount(cell, values.ravel(), curves * (width + 1)).astype(
            np.float64, copy=False
        )
        return sums.reshape(curves, width + 1)[:, :width]

    square = weights**2
    total = summed(square)
    divisor = np.where(total > 0, total, 1.0)
    return summed(strain * square) / divisor, summed(stress * square) / divisor, np.sqrt(total)


def coarse_minimum(
    residuals: Residuals, labels: Array, rivalry: tuple[float, int] | None = None
) -> Minimum:
    """A short search from labels [curves, parameters]; `rivalry` as of `minimise`."""
    return minimise(residuals, labels, _COARSE_ITERATIONS, _COARSE_TOLERANCE, rivalry=rivalry)


def _best_tried(coarse: Residuals, tried: Array, count: int) -> Array:
    """The `count` labels with the least sum of squares on a few points: [count, curves, parameters]."""
    cost = tried_costs(coarse, tried, _TRIED_POINTS.get(tried.shape[1], _MOST_TRIED_POINTS))
    if count == 1:
        return tried[cost.argmin(axis=1)][None]
    return np.moveaxis(tried[np.argpartition(cost, count, axis=1)[:, :count]], 1, 0)


def tried_costs(coarse: Residuals, tried: Array, points: int) -> Array:
    """Sum of squares of each label of `tried` [count, p] on `points` points of each curve: [curves, count].

    The points are spread evenly over those of the curve itself, which stand first.
    """
    counted = (coarse.weights > 0).sum(axis=1, keepdims=True)
    chosen = np.maximum((1 + np.arange(points)) * counted // points - 1, 0)
    assert not isinstance(coarse.strain, TestSet)
    strain, stress, weights = (
        np.take_along_axis(array, chosen, axis=1)
        for array in (coarse.strain, coarse.stress, coarse.weights)
    )
    repeated = np.repeat(strain, len(tried), axis=0)
    model = coarse.law.label_stress(repeated, np.tile(tried, (len(strain), 1)))
    difference = (model.reshape(len(strain), len(tried), -1) - stress[:, None]) * weights[:, None]
    cost = np.einsum("ckn,ckn->ck", difference, difference)
    # A law may overflow somewhere in a user's ranges.
    return np.where(np.isfinite(cost), cost, np.inf)

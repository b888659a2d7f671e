"""Start values for least squares that ask nothing of a law but its stress. NumPy only."""

import numpy as np

from tfmat.identification.label_space import label_stress
from tfmat.identification.levenberg_marquardt import Residuals, minimise
from tfmat.materials.law import Array, Law

# By the number of identified parameters: labels tried a curve, how many of the best of them start a coarse fit, and
# the points of the thinned curve that it fits. Laws of metals have four, and a kink at first yield: its place between
# two points makes local minima, which thinned curves would only make worse.
_EFFORT = {1: (16, 1, 32), 2: (24, 1, 32), 3: (96, 3, 64)}
_MOST_EFFORT = (384, 3, 1 << 30)
# Points of a curve that the labels are tried on.
_TRIED_POINTS = {1: 8, 2: 8}
_MOST_TRIED_POINTS = 24
_COARSE_ITERATIONS, _COARSE_TOLERANCE = 30, 1e-3
_CHUNK = 256


def start_labels(law: Law, strain: Array, stress: Array, weights: Array) -> Array:
    """Labels near the global minimum, without start values: [curves, identified].

    A fixed set of labels that fills the box evenly is compared on a few points of each curve; coarse fits to group
    means of the curve start from the best of them, and the best fit wins.

    Args:
      strain, stress, weights: [curves, points]; see `Residuals`.
    """
    parameters = len(law.identified)
    count, fitted, points = _EFFORT.get(parameters, _MOST_EFFORT)
    tried = even_labels(count, parameters)
    labels = np.empty((len(strain), parameters))
    for first in range(0, len(strain), _CHUNK):
        rows = slice(first, first + _CHUNK)
        coarse = Residuals(law, *group_means(strain[rows], stress[rows], weights[rows], points))
        labels[rows] = _best_fit(coarse, _best_tried(coarse, tried, fitted))
    return labels


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
    """Weighted means of neighbouring points, [curves, groups] each; the weights are those of the means.

    A curve's weight vanishes where it is padded, so that its last groups may be empty.
    """
    points = strain.shape[1]
    size = max(1, -(-points // groups))
    starts = np.arange(0, points, size)
    square = weights**2
    total = np.add.reduceat(square, starts, axis=1)
    divisor = np.where(total > 0, total, 1.0)
    return (
        np.add.reduceat(strain * square, starts, axis=1) / divisor,
        np.add.reduceat(stress * square, starts, axis=1) / divisor,
        np.sqrt(total),
    )


def _best_tried(coarse: Residuals, tried: Array, count: int) -> Array:
    """The `count` labels with the least sum of squares on a few points: [count, curves, parameters]."""
    curves, points = coarse.strain.shape
    every = max(1, points // _TRIED_POINTS.get(tried.shape[1], _MOST_TRIED_POINTS))
    strain, stress, weights = (
        np.ascontiguousarray(array[:, every - 1 :: every])
        for array in (coarse.strain, coarse.stress, coarse.weights)
    )
    repeated = np.repeat(strain, len(tried), axis=0)
    model = label_stress(coarse.law, repeated, np.tile(tried, (curves, 1)))
    difference = (model.reshape(curves, len(tried), -1) - stress[:, None]) * weights[:, None]
    cost = np.einsum("ckn,ckn->ck", difference, difference)
    # A law may overflow somewhere in a user's ranges.
    cost = np.where(np.isfinite(cost), cost, np.inf)
    if count == 1:
        return tried[cost.argmin(axis=1)][None]
    return np.moveaxis(tried[np.argpartition(cost, count, axis=1)[:, :count]], 1, 0)


def _best_fit(coarse: Residuals, starts: Array) -> Array:
    """The best of the coarse fits from starts [count, curves, parameters]: [curves, parameters]."""
    minima = [minimise(coarse, start, _COARSE_ITERATIONS, _COARSE_TOLERANCE) for start in starts]
    costs = np.stack([minimum.cost for minimum in minima])
    best = np.where(np.isnan(costs), np.inf, costs).argmin(axis=0)
    return np.stack([minimum.labels for minimum in minima])[best, np.arange(len(best))]

"""Modes of the posteriors of a law's parameters, and how sharp they are, for many records at once. NumPy only.

The search takes place in y = logit(label), where ranges have no ends, and where the prior of a label, which is uniform,
is that of a logistic distribution: a parameter that a record does not tell stays in the middle, as wide as its range.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array
from tfmat.materials.levenberg_marquardt import Flags, Minimum, Residuals, bounded_step, minimise

# The logits that the search may take, as one unit of its box, and when it ends: steps, promised share of the cost.
_WIDTH = 16.0
_MOST_STEPS, _TOLERANCE = 40, 3e-4
# By how many standard deviations more than its expectation a sum of squares makes for another search, and from where on
# two others must end alike, within so many nats, in place of one; how many searches there are at most.
_MORE_LEFT, _FAR_MORE_LEFT, _ALIKE, _SEARCHES = 0.5, 3.0, 0.2, 4
# Labels that are tried before each, and how far inside their ranges.
_TRIES, _EDGE = 4, 0.01
# Records whose derivatives are in memory at a time.
_TOGETHER = 512
# Of records whose law has overflowed.
_NO_FIT = 1e12
_TINY = 1e-9
# Of steps uphill from labels near a largest density; they end where none gains as many nats.
_CLIMBING_DAMPING, _LEAST_GAIN = 1e-6, 1e-3

Expansion = tuple[Array, Array, Array]


class LogitResiduals(Residuals):
    """Residuals over logits y = 16 (u - 1/2) of labels, u in the unit box, and one more for each label: its prior.

    Labels are uniform, so that y has the density of a logistic distribution. Half the square of the residual of y is
    minus its logarithm, but for a constant: the least sum of squares is the mode of the posterior of y.
    """

    def values(self, labels: Array) -> Array:
        """See `Residuals`; [curves, points + labels]."""
        residuals = super().values(labels_at(labels))
        return np.concatenate([residuals, _prior(_WIDTH * (labels - 0.5))[0]], axis=1)

    def normal_equations(self, labels: Array, values: Array | None = None) -> tuple[Array, Array]:
        """See `Residuals`."""
        values = self.values(labels) if values is None else values
        if len(labels) > _TOGETHER:
            parts = [slice(i, i + _TOGETHER) for i in range(0, len(labels), _TOGETHER)]
            found = [self.rows(part).normal_equations(labels[part], values[part]) for part in parts]
            normals, gradients = zip(*found, strict=True)
            return np.concatenate(normals), np.concatenate(gradients)
        known, count = labels_at(labels), labels.shape[1]
        normal, gradient = super().normal_equations(known, values[:, :-count])
        slopes = _WIDTH * known * (1.0 - known)
        prior, rise = _prior(_WIDTH * (labels - 0.5))
        rise = _WIDTH * rise
        normal = normal * slopes[:, :, None] * slopes[:, None, :]
        np.einsum("cii->ci", normal)[:] += rise**2
        return normal, gradient * slopes + rise * prior


def labels_at(places: Array) -> Array:
    """Labels of places u in the box of `LogitResiduals`."""
    return 1.0 / (1.0 + np.exp(-_WIDTH * (places - 0.5)))


def _prior(logits: Array) -> tuple[Array, Array]:
    """The residual of a logit's prior, and its slope."""
    half = np.abs(logits) / 2.0
    log_cosh = half + np.log1p(np.exp(-2.0 * half)) - math.log(2.0)
    residual = np.sign(logits) * np.sqrt(4.0 * log_cosh)
    near = half < 1e-4
    slope = np.where(near, math.sqrt(0.5), np.tanh(logits / 2.0) / np.where(near, 1.0, residual))
    return residual, slope


def _place(labels: Array) -> Array:
    return 0.5 + np.log(labels / (1.0 - labels)) / _WIDTH


def likely_modes(
    residuals: LogitResiduals, start: Array, spread: Array
) -> tuple[Array, Array, Array]:
    """The modes that searches find, interchangeable terms in their order, and Laplace's approximation about them.

    Where more is left than noise leaves, searches begin anew, each at the best of a few labels, some about the start,
    some about the mode and some from anywhere, until another one or two have ended alike: a kink between two points, or
    two terms that stand for one, make modes of little probability. More labels would choose the same valley each time.

    Args:
      residuals: in units of the noise, so that the sum of squares of a right fit is known.
      start: labels [n, p] inside 0-1.
      spread: standard deviation of their errors, [p].

    Returns:
      Logits [n, p], their covariances [n, p, p], and the sums of squares that are left, [n].
    """
    with np.errstate(all="ignore"):
        found = _mode(residuals, start)
        _search_again(residuals, found, start, spread)
        # A search has the curvature at its last place but one.
        found.normal = residuals.normal_equations(found.labels)[0]
    return _laplace(found)


def residuals_at(residuals: LogitResiduals, logits: Array) -> Array:
    """Residuals [n, points] at the logits [n, p] of labels, in units of the noise; 0 where the law overflows."""
    with np.errstate(all="ignore"):
        values = Residuals.values(residuals, 1.0 / (1.0 + np.exp(-logits)))
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


def _search_again(residuals: LogitResiduals, found: Minimum, start: Array, spread: Array) -> None:
    """Puts better modes into `found` where more is left there than the noise leaves; see `likely_modes`."""
    points, count = (residuals.weights > 0).sum(axis=1), start.shape[1]
    alike = np.zeros(len(start), np.int64)
    # The one generator of NumPy whose numbers stay the same in every version.
    generator = np.random.RandomState(0)
    for _ in range(1, _SEARCHES):
        left = (2.0 * found.cost - points + count) / np.sqrt(2.0 * points)
        wrong = np.flatnonzero(~((left <= _MORE_LEFT) | (alike > (left > _FAR_MORE_LEFT))))
        if not len(wrong):
            return
        part, before = residuals.rows(wrong), found.cost[wrong]
        tried = list(generator.uniform(size=(_TRIES, 1, count)))
        for place in (start[wrong], labels_at(found.labels[wrong])):
            tried.extend(place + spread * generator.standard_normal((_TRIES, 1, count)))
        again = _mode(part, _best(part, tried))
        better = again.cost < before
        for name, value in vars(again).items():
            getattr(found, name)[wrong[better]] = value[better]
        # What is left is the size of the noise where nobody has told it.
        nat = np.maximum(2.0 * found.cost[wrong] / points[wrong], 1.0)
        alike[wrong] += np.abs(again.cost - before) <= _ALIKE * nat


def _best(residuals: LogitResiduals, labels: list[Array]) -> Array:
    """The best of some labels, each [n, p] or [1, p]: [n, p]."""
    best, least = (
        np.full((len(residuals), labels[0].shape[1]), 0.5),
        np.full(len(residuals), np.inf),
    )
    for each in labels:
        tried = np.broadcast_to(np.clip(each, _EDGE, 1.0 - _EDGE), best.shape)
        tried = residuals.law.sorted_labels(tried)
        cost = np.square(residuals.values(_place(tried))).sum(axis=1)
        best = np.where((cost < least)[:, None], tried, best)
        least = np.fmin(cost, least)
    return best


def _mode(residuals: LogitResiduals, labels: Array) -> Minimum:
    """Where a search from labels [n, p] ends."""
    found = minimise(
        residuals, _place(residuals.law.sorted_labels(labels)), _MOST_STEPS, _TOLERANCE
    )
    unique = residuals.law.sorted_labels(labels_at(found.labels))
    found.labels = _place(np.clip(unique, _TINY, 1.0 - _TINY))
    return found


def _laplace(found: Minimum) -> tuple[Array, Array, Array]:
    """See `likely_modes`; where a law has overflowed it is the prior, with a sum of squares that nothing else has."""
    logits = _WIDTH * (found.labels - 0.5)
    normal = found.normal / _WIDTH**2
    failed = ~(np.isfinite(normal).all(axis=(1, 2)) & np.isfinite(found.cost))
    logits[failed], normal[failed] = 0.0, 0.5 * np.eye(logits.shape[1])
    found.cost[failed] = _NO_FIT
    scale = 1.0 / np.sqrt(np.einsum("cii->ci", normal))
    over = scale[:, :, None] * scale[:, None, :]
    regular = normal * over + 1e-10 * np.eye(logits.shape[1])
    left = 2.0 * found.cost - np.square(_prior(logits)[0]).sum(axis=1)
    return logits, np.linalg.inv(regular) * over, left


def climb(
    expand: Callable[[Array], Expansion],
    start: Array,
    columns: NDArray[np.intp],
    steps: int,
    held: Flags | None = None,
) -> tuple[Array, Expansion]:
    """At most so many damped Gauss-Newton steps of many densities inside 0-1, each taken where the density grows.

    Args:
      expand: log density [k], gradient [k, p] and information [k, p, p] of labels, of which `columns` [k, m] move.
      held: [k, m], those that do not move all the same.

    Returns:
      The columns where the steps end, and the expansion there.
    """
    best, (density, gradient, information) = start, expand(start)
    damping = np.full(len(best), _CLIMBING_DAMPING)
    held = np.zeros(best.shape, np.bool_) if held is None else held
    for _ in range(steps):
        normal, slope = information[:, columns[:, None], columns], -gradient[:, columns]
        damped = damping[:, None] * np.einsum("cii->ci", normal)
        trial = np.clip(best + bounded_step(normal, slope, best, damped, held), 0.0, 1.0)
        found = expand(trial)
        better = found[0] >= density
        settled = better & (found[0] < density + _LEAST_GAIN)
        damping = np.where(better, 0.1 * damping, 30.0 * np.maximum(damping, 1e-4))
        best = np.where(better[:, None], trial, best)
        density = np.where(better, found[0], density)
        gradient = np.where(better[:, None], found[1], gradient)
        information = np.where(better[:, None, None], found[2], information)
        if settled.all():
            break
    return best, (density, gradient, information)

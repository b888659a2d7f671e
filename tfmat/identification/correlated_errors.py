"""How uncertain least squares is where the residuals of neighbouring points are alike. NumPy and SciPy only.

A law that does not quite follow a curve leaves residuals that wander instead of jumping. They carry less information
than their number says, and the fit has bent towards them. Their covariance is modelled as white noise plus noise whose
correlation decays exponentially along the curve, its share and length by restricted maximum likelihood (H. D.
Patterson, R. Thompson, Recovery of inter-block information when block sizes are unequal, Biometrika 58 (1971)
545-554), which accounts for the parameters that were fitted.
"""

import dataclasses
import functools

import numpy as np

from tfmat.materials.law import Array

# A longer curve is averaged in groups of neighbours.
_MOST_POINTS = 100
# Correlation lengths tried, as shares of the curve, and shares of the correlated part in the variance.
_LENGTHS = (0.01, 0.02, 0.04, 0.07, 0.12, 0.2, 0.35)
_SHARES = (0.2, 0.5, 0.8, 0.95, 0.995)
# Correlation must raise the log likelihood by more than the two parameters that it costs.
_WORTH = 2.0
# Correlations whose log likelihood is not further than this from the best are as likely.
_LIKELY = 1.0
# The estimate of a few independent stretches is rough: no fewer degrees of freedom are counted.
_FEWEST_FREE = 2.0


@dataclasses.dataclass(frozen=True)
class Correlated:
    """The uncertainty of a least-squares fit with correlated errors; p parameters.

    Attributes:
      covariance: [p, p], of the labels.
      freedom: degrees of freedom of Student's t.
    """

    covariance: Array
    freedom: float


def correlated_errors(jacobian: Array, residuals: Array) -> Correlated | None:
    """The uncertainty that the residuals of a fit ask for; None where they are as good as independent.

    Args:
      jacobian: d residual / d label at the minimum, [points, p], in the order of the curve; residuals: [points].
    """
    group = -(-len(residuals) // _MOST_POINTS)
    starts = np.arange(0, len(residuals), group)
    count = np.diff([*starts, len(residuals)])
    slopes = np.add.reduceat(jacobian, starts, axis=0) / count[:, None]
    errors = np.add.reduceat(residuals, starts) / count
    points, parameters = slopes.shape
    if points <= parameters + 2 or not np.isfinite(slopes).all():
        return None
    # On an orthonormal basis of the slopes nothing is singular but for rounding.
    basis, triangle = np.linalg.qr(slopes)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() <= 1e-12 * diagonal.max():
        return None
    tried = _correlations(points)
    values = np.array([_restricted_log_likelihood(one, basis, errors) for one in tried])
    best = values.max()
    if best <= _restricted_log_likelihood(np.eye(points), basis, errors) + _WORTH:
        return None
    inverse = np.linalg.inv(triangle)
    likely = [
        _uncertainty(one, basis, inverse, errors)
        for one, value in zip(tried, values, strict=True)
        if value >= best - _LIKELY
    ]
    # A few wanderings of the residuals do not tell their length well: the widest of the likely answers is given.
    return max(likely, key=lambda one: float(np.trace(triangle @ one.covariance @ triangle.T)))


def _uncertainty(correlation: Array, basis: Array, inverse: Array, errors: Array) -> Correlated:
    """The uncertainty for errors of this correlation: of the fit without weights, as it was made."""
    rest = np.eye(len(errors)) - basis @ basis.T
    seen = rest @ correlation
    variance = float(errors @ errors) / float(np.trace(seen))
    freedom = float(np.trace(seen) ** 2 / np.sum(seen * seen.T))
    spread = inverse @ (basis.T @ correlation @ basis) @ inverse.T
    return Correlated(variance * spread, max(freedom, _FEWEST_FREE))


@functools.lru_cache(maxsize=256)
def _correlations(points: int) -> tuple[Array, ...]:
    """Correlation matrices [points, points] for every length and share that is tried."""
    distance = np.abs(np.subtract.outer(np.arange(points), np.arange(points))) / points
    return tuple(
        (1.0 - share) * np.eye(points) + share * np.exp(-distance / length)
        for length in _LENGTHS
        for share in _SHARES
    )


def _restricted_log_likelihood(correlation: Array, basis: Array, errors: Array) -> float:
    """Of residuals [points] of a fit whose slopes have the orthonormal basis [points, p], but for a constant."""
    factor = np.linalg.cholesky(correlation)
    both = np.linalg.solve(factor, np.column_stack([basis, errors]))
    triangle = np.linalg.qr(both)[1]
    # The last diagonal element is the length of what the slopes do not explain.
    scaled = float(triangle[-1, -1] ** 2)
    free = len(errors) - basis.shape[1]
    if scaled <= 0:
        return -np.inf
    determinants = np.log(np.diag(factor)).sum() + np.log(np.abs(np.diag(triangle)[:-1])).sum()
    return float(-determinants - 0.5 * free * np.log(scaled / free))

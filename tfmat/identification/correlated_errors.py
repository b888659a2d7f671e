"""How uncertain least squares is where residuals are alike at neighbouring points, or uneven. NumPy only.

A law that does not quite follow a curve leaves residuals that wander instead of jumping. They carry less information
than their number says, and the fit has bent towards them. Their covariance is modelled as white noise plus noise that
is alike along the curve, rough or smooth, of a share and a length that restricted maximum likelihood chooses (H. D.
Patterson, R. Thompson, Recovery of inter-block information when block sizes are unequal, Biometrika 58 (1971)
545-554): it accounts for the parameters that were fitted.
"""

import dataclasses
import functools

import numpy as np
import scipy.special

from tfmat.materials.law import Array

# A longer curve is averaged in so many groups of neighbours.
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
# _SELDOM: how seldom even errors look as uneven, for them to be taken so.
_SELDOM = 1e-3


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
    points = min(len(residuals), _MOST_POINTS)
    starts = np.arange(points) * len(residuals) // points
    count = np.diff([*starts, len(residuals)])
    slopes = np.add.reduceat(jacobian, starts, axis=0) / count[:, None]
    errors = np.add.reduceat(residuals, starts) / count
    finite = np.isfinite(slopes).all() and np.isfinite(errors).all()
    if points <= slopes.shape[1] + 2 or not finite:
        return None
    # On an orthonormal basis of the slopes nothing is singular but for rounding.
    basis, triangle = np.linalg.qr(slopes)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() <= 1e-12 * diagonal.max():
        return None
    tried = [one for alike in correlations(points) for one in alike]
    values = np.array([one.log_likelihood(basis, errors) for one in tried])
    inverse = np.linalg.inv(triangle)
    # The first is that of independent errors.
    best = values[1:].max()
    if best <= values[0] + _WORTH:
        # Neighbours inside a group may be alike all the same: its means know of that.
        grouped = points < len(residuals)
        return _uncertainty(tried[0].matrix, basis, inverse, errors) if grouped else None
    likely = [
        _uncertainty(one.matrix, basis, inverse, errors)
        for one, value in zip(tried[1:], values[1:], strict=True)
        if value >= best - _LIKELY
    ]
    # A few wanderings of the residuals do not tell their length well: the widest of the likely answers is given.
    return max(likely, key=lambda one: float(np.trace(triangle @ one.covariance @ triangle.T)))


def uneven_errors(jacobian: Array, residuals: Array, answer: Array) -> Array | None:
    """The covariance [p, p] of a fit whose errors grow or fall with the answer; None where they are as good as even.

    Breusch and Pagan's test (Econometrica 47 (1979) 1287-1294, as R. Koenker has it, J. Econometrics 17 (1981)
    107-112) decides; the covariance is the sandwich HC3 of J. G. MacKinnon and H. White, J. Econometrics 29 (1985)
    305-325.

    Args:
      jacobian: d residual / d label at the minimum, [points, p]; residuals, answer: [points].
    """
    points, parameters = jacobian.shape
    finite = np.isfinite(jacobian).all() and np.isfinite(residuals).all()
    if points <= parameters + 2 or not finite:
        return None
    squares, size = np.square(residuals), np.abs(answer)
    spread = squares.std() * size.std()
    if not spread > 0.0:
        return None
    correlation = float(np.mean((squares - squares.mean()) * (size - size.mean()))) / spread
    if scipy.special.chdtrc(1, points * correlation**2) > _SELDOM:
        return None
    basis, triangle = np.linalg.qr(jacobian)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() <= 1e-12 * diagonal.max():
        return None
    left = residuals / np.maximum(1.0 - np.square(basis).sum(axis=1), 1e-3)
    inverse = np.linalg.inv(triangle)
    return np.asarray(inverse @ ((basis.T * left**2) @ basis) @ inverse.T)


def _uncertainty(correlation: Array, basis: Array, inverse: Array, errors: Array) -> Correlated:
    """The uncertainty for errors of this correlation: of the fit without weights, as it was made."""
    rest = np.eye(len(errors)) - basis @ basis.T
    seen = rest @ correlation
    variance = float(errors @ errors) / float(np.trace(seen))
    freedom = float(np.trace(seen) ** 2 / np.sum(seen * seen.T))
    spread = inverse @ (basis.T @ correlation @ basis) @ inverse.T
    return Correlated(variance * spread, max(freedom, _FEWEST_FREE))


@dataclasses.dataclass(frozen=True)
class Correlation:
    """One correlation of errors, by its eigenvectors [points, points] and their variances [points]."""

    vectors: Array
    variances: Array

    @property
    def matrix(self) -> Array:
        """[points, points]."""
        return np.asarray((self.vectors * self.variances) @ self.vectors.T)

    def log_likelihood(self, basis: Array, errors: Array) -> float:
        """Restricted, but for a constant, of a fit's residuals [points]; its slopes have the basis [points, p]."""
        columns = self.vectors.T @ np.column_stack([basis, errors])
        triangle = np.linalg.qr(columns / np.sqrt(self.variances)[:, None])[1]
        diagonal = np.abs(np.diag(triangle))
        # The last element is the length of what the slopes do not explain.
        if diagonal[-1] <= 0:
            return -np.inf
        free = len(errors) - basis.shape[1]
        logarithms = np.log(diagonal[:-1]).sum() + 0.5 * np.log(self.variances).sum()
        return float(-logarithms - free * np.log(diagonal[-1] / np.sqrt(free)))


@functools.lru_cache(maxsize=16)
def correlations(points: int) -> tuple[tuple[Correlation, ...], ...]:
    """Independent errors, and those of every length and share that is tried; of one length they share vectors."""
    distance = np.abs(np.subtract.outer(np.arange(points), np.arange(points))) / points
    found: list[tuple[Correlation, ...]] = [(Correlation(np.eye(points), np.ones(points)),)]
    for shape in (_rough, _smooth):
        for length in _LENGTHS:
            values, vectors = np.linalg.eigh(shape(distance / length))
            values = np.maximum(values, 0.0)
            found.append(
                tuple(Correlation(vectors, (1.0 - share) + share * values) for share in _SHARES)
            )
    return tuple(found)


def _rough(distance: Array) -> Array:
    """Correlation of noise that jumps a little from point to point, at distances over its length."""
    return np.exp(-distance)


def _smooth(distance: Array) -> Array:
    """Correlation of noise that bends, at distances over its length."""
    return np.exp(-0.5 * distance**2)

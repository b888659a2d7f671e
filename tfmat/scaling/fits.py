"""Non-negative terms fitted to times: robust, on relative errors, with the covariance of what was found."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

# Relative error beyond which a time counts less: one run that another program disturbed does not bend the fit.
_OUTLIER = 0.1


@dataclasses.dataclass(frozen=True)
class Fit:
    """Seconds = design @ values.

    Attributes:
      values: [terms], none negative.
      covariance: [terms, terms].
      error: root mean square of the relative residuals.
    """

    values: NDArray
    covariance: NDArray
    error: float

    @property
    def errors(self) -> NDArray:
        """[terms]: standard errors."""
        return np.sqrt(np.diag(self.covariance))

    def draw(self, random: np.random.Generator) -> NDArray:
        """[terms]: values as far off as the data allow, none negative."""
        known = self.errors > 0
        found = self.values.copy()
        # By Cholesky, which is the same on every machine; a fixed term has no spread.
        part = self.covariance[np.ix_(known, known)]
        root = np.linalg.cholesky(part * (1 + 1e-9 * np.eye(len(part))))
        found[known] += root @ random.standard_normal(len(part))
        return np.maximum(found, 0.0)


def fit_times(design: NDArray, seconds: NDArray) -> Fit:
    """Least squares of log(design @ values / seconds) with soft absolute loss (scipy `least_squares`, soft_l1).

    Args:
      design: [times, terms], none negative, and no row zero. The term of a column of zeros is 0, without error.
      seconds: [times], positive.
    """
    design, seconds = np.asarray(design, float), np.asarray(seconds, float)
    used = (design != 0).sum(axis=0) > 0
    if not used.all():
        part = fit_times(design[:, used], seconds)
        values, covariance = np.zeros(len(used)), np.zeros((len(used), len(used)))
        values[used], covariance[np.ix_(used, used)] = part.values, part.covariance
        return Fit(values, covariance, part.error)
    # Each term begins with its share of the mean; scaling makes all of them numbers near one.
    scale = np.array([np.median(seconds[c > 0] / c[c > 0]) for c in design.T])
    scaled = design * scale / seconds[:, None]

    def residuals(values: NDArray) -> NDArray:
        return np.log(np.maximum(scaled @ values, 1e-12))

    start = np.full(design.shape[1], 1.0 / design.shape[1])
    found = optimize.least_squares(
        residuals, start, bounds=(0, np.inf), loss="soft_l1", f_scale=_OUTLIER, xtol=1e-12
    )
    values = found.x
    relative = scaled @ values - 1
    free = values > 1e-9  # a term at its bound is not there
    spare = max(len(seconds) - int(free.sum()), 1)
    jacobian = scaled[:, free] / (scaled @ values)[:, None]
    covariance = np.zeros((len(values), len(values)))
    # The spread by the median, which outliers do not widen (Rousseeuw and Croux, 1993).
    deviation = 1.4826 * float(np.median(np.abs(relative))) * np.sqrt(len(seconds) / spare)
    covariance[np.ix_(free, free)] = deviation**2 * np.linalg.pinv(jacobian.T @ jacobian)
    values = np.where(free, values, 0.0)
    error = float(np.sqrt(np.mean(relative**2)))
    return Fit(values * scale, covariance * np.outer(scale, scale), error)


def left_out_errors(design: NDArray, seconds: NDArray, groups: Sequence[object]) -> NDArray:
    """[times]: relative error of each time as predicted by a fit without its group; NaN where none is possible."""
    found = np.full(len(seconds), np.nan)
    for group in dict.fromkeys(groups):
        out = np.array([each == group for each in groups])
        rest = design[~out]
        if len(rest) and np.linalg.matrix_rank(rest) == np.linalg.matrix_rank(design):
            values = fit_times(rest, seconds[~out]).values
            found[out] = design[out] @ values / seconds[out] - 1
    return found

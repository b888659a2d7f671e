"""Weighted draws from a posterior, and what they are worth. NumPy only.

The tail of the weights tells: averages by the draws can be relied on where Pareto's k of it is at most 0.7 (A. Vehtari,
D. Simpson, A. Gelman, Y. Yao, J. Gabry, Pareto smoothed importance sampling, J. Mach. Learn. Res. 25 (2024) 72). The
largest weights are smoothed by the tail that was fitted.
"""

import dataclasses

import numpy as np
import scipy.special

from tfmat.identification.likelihood import PRIOR_VARIANCE
from tfmat.materials.law import Array

# A posterior has converged when Pareto's k is at most this, and its draws are worth so many independent ones.
LARGEST_K, FEWEST_SAMPLES = 0.7, 100.0
# Stands for a k that is not finite.
_HOPELESS = 99.0
# Fewer draws have no tail.
_FEWEST_DRAWS = 50


@dataclasses.dataclass(frozen=True)
class SampledPosterior:
    """Weighted draws from the posterior of one curve, and what they are worth.

    Attributes:
      labels: [draws, p]; log_weights: [draws], smoothed, of weights whose sum is 1.
      pareto_k: how heavy the tail of the weights is, 99 at the most, where no draw is possible.
      effective_samples: Kish's number of independent draws that the weighted ones are worth. The standard error of
        `mean` is about sqrt(variance / effective_samples), the relative one of `variance` sqrt(2 / effective_samples)
        for a posterior that is near a normal one.
    """

    labels: Array
    log_weights: Array
    pareto_k: float
    effective_samples: float

    @classmethod
    def of(cls, labels: Array, log_ratios: Array) -> "SampledPosterior":
        """From draws [draws, p] and the logarithms of posterior over proposal density, [draws], up to a constant."""
        possible = np.isfinite(log_ratios)
        labels, log_ratios = labels[possible], log_ratios[possible]
        if len(labels) < _FEWEST_DRAWS:
            return cls(labels, log_ratios, _HOPELESS, 0.0)
        # Takes a second to be imported.
        from arviz_stats.base import array_stats

        # It takes densities that are left out, in cross-validation: the negatives of the logarithms of the weights.
        with np.errstate(all="ignore"):  # a tail without hope, which its k says
            smoothed, pareto_k = array_stats.psislw(-log_ratios)
        smoothed = smoothed - scipy.special.logsumexp(smoothed)
        tail = float(np.nan_to_num(np.minimum(pareto_k, _HOPELESS), nan=_HOPELESS))
        return cls(labels, smoothed, tail, float(1.0 / np.exp(2.0 * smoothed).sum()))

    @property
    def converged(self) -> bool:
        """Whether the moments can be relied on."""
        return self.pareto_k <= LARGEST_K and self.effective_samples >= FEWEST_SAMPLES

    @property
    def mean(self) -> Array:
        """Of each label, [p]; that of the prior where nothing is known."""
        if not self.effective_samples:
            return np.full(self.labels.shape[1], 0.5)
        return np.exp(self.log_weights) @ self.labels

    @property
    def variance(self) -> Array:
        """Of each label, [p]; that of the prior where nothing is known."""
        if not self.effective_samples:
            return np.full(self.labels.shape[1], PRIOR_VARIANCE)
        squares = np.exp(self.log_weights) @ (self.labels - self.mean) ** 2
        # The squares around the draws' own mean are too small by 1 / effective.
        samples = self.effective_samples
        return np.asarray(squares * samples / max(samples - 1.0, 1e-3))

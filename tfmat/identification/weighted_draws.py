"""Weighted draws from a posterior, and what they are worth. NumPy only.

The tail of the weights tells: averages by the draws can be relied on where Pareto's k of it is at most 0.7 (A. Vehtari,
D. Simpson, A. Gelman, Y. Yao, J. Gabry, Pareto smoothed importance sampling, J. Mach. Learn. Res. 25 (2024) 72). The
largest weights are smoothed by the tail that was fitted.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.identification.draws import Draws
from tfmat.identification.likelihood import PRIOR_VARIANCE, Likelihoods
from tfmat.materials.law import Array

# A posterior has converged when Pareto's k is at most this, or R-hat of chains this, and its draws are worth so many
# independent ones (for R-hat: A. Vehtari et al., Bayesian Anal. 16 (2021) 667-718).
LARGEST_K, LARGEST_R_HAT, FEWEST_SAMPLES = 0.7, 1.01, 100.0
# Stands for a k that is not finite.
_HOPELESS = 99.0
# Fewer draws have no tail.
_FEWEST_DRAWS = 50


@dataclasses.dataclass(frozen=True)
class SampledPosterior:
    """Weighted draws from the posterior of one curve, and what they are worth.

    Attributes:
      labels: [draws, p]; log_weights: [draws], smoothed, of weights whose sum is 1.
      pareto_k: how heavy the tail of the weights is, 99 at the most, where no draw is possible; NaN of chains.
      effective_samples: Kish's number of independent draws that the weighted ones are worth. The standard error of
        `mean` is about sqrt(variance / effective_samples), the relative one of `variance` sqrt(2 / effective_samples)
        for a posterior that is near a normal one.
      log_evidence: logarithm of the mean likelihood over the prior, up to the constant of the likelihood; NaN where
        nobody asked for it.
      errors: labels of what was integrated over, [draws, e]; None where there is nothing.
      log_likelihood: at each draw, [draws]; None where it was not kept, or errors are integrated over.
      r_hat: of the worst label of chains, whose draws weigh alike; None of weighted draws.
    """

    labels: Array
    log_weights: Array
    pareto_k: float
    effective_samples: float
    log_evidence: float = np.nan
    errors: Array | None = None
    log_likelihood: Array | None = None
    r_hat: float | None = None

    @classmethod
    def of(
        cls,
        labels: Array,
        log_ratios: Array,
        proposals: float = np.nan,
        errors: int = 0,
        log_likelihood: Array | None = None,
    ) -> "SampledPosterior":
        """Weighs draws [draws, p] by the logarithms [draws] of posterior over proposal density, up to a constant.

        Args:
          proposals: draws over the factor by which the proposal density was too large, those outside of the ranges
            included, where the evidence is to be known.
          errors: so many of the last labels are those of errors, and no part of the answer.
          log_likelihood: of each draw, where it is to be kept.
        """
        possible = np.isfinite(log_ratios)
        labels, log_ratios = labels[possible], log_ratios[possible]
        kept = None if errors or log_likelihood is None else log_likelihood[possible]
        labels, nuisances = np.split(labels, [labels.shape[1] - errors], axis=1)
        if len(labels) < _FEWEST_DRAWS:
            return cls(labels, log_ratios, _HOPELESS, 0.0, np.nan, nuisances, kept)
        # It takes densities that are left out, in cross-validation: the negatives of the logarithms of the weights.
        with np.errstate(all="ignore"):  # a tail without hope, which its k says
            smoothed, pareto_k = import_statistics().psislw(-log_ratios)
        smoothed = smoothed - scipy.special.logsumexp(smoothed)
        tail = float(np.nan_to_num(np.minimum(pareto_k, _HOPELESS), nan=_HOPELESS))
        effective = float(np.nan_to_num(1.0 / np.exp(2.0 * smoothed).sum()))
        evidence = float(scipy.special.logsumexp(log_ratios) - np.log(proposals))
        return cls(labels, smoothed, tail, effective, evidence, nuisances, kept)

    @property
    def converged(self) -> bool:
        """Whether the moments can be relied on."""
        return not self.shortcoming

    @property
    def shortcoming(self) -> str:
        """Why the moments are not to be relied on; empty where they are."""
        k, r_hat, worth = self.pareto_k, self.r_hat, self.effective_samples
        if r_hat is None and not k <= LARGEST_K:
            return f"Pareto k {k:.2g} (at most {LARGEST_K:g})"
        if r_hat is not None and not r_hat <= LARGEST_R_HAT:
            return f"R-hat {r_hat:.3g} of chains (at most {LARGEST_R_HAT:g})"
        few = worth < FEWEST_SAMPLES
        return f"worth {worth:.0f} draws (at least {FEWEST_SAMPLES:g})" if few else ""

    def resampled(self, count: int, generator: np.random.Generator) -> NDArray[np.intp]:
        """Places [count] of draws that count alike, each as often as its weight says (systematic draws)."""
        sums = np.cumsum(np.exp(self.log_weights))
        places = (np.arange(count) + generator.random()) / count
        chosen = np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)
        return generator.permutation(chosen)

    @property
    def with_errors(self) -> Array:
        """Labels and those of errors, [draws, p + e]."""
        if self.errors is None:
            return self.labels
        return np.concatenate([self.labels, self.errors], axis=1)

    @property
    def mean(self) -> Array:
        """Mean of each label, [p]; the prior's where no draw is possible."""
        if not self.effective_samples:
            return np.full(self.labels.shape[1], 0.5)
        return np.exp(self.log_weights) @ self.labels

    @property
    def variance(self) -> Array:
        """Variance of each label, [p]; the prior's where no draw is possible."""
        if not self.effective_samples:
            return np.full(self.labels.shape[1], PRIOR_VARIANCE)
        squares = np.exp(self.log_weights) @ (self.labels - self.mean) ** 2
        # The squares around the draws' own mean are too small by 1 / effective.
        samples = self.effective_samples
        return np.asarray(squares * samples / max(samples - 1.0, 1e-3))


def import_statistics() -> Any:
    """ArviZ's statistics of arrays: smoothing, R-hat; the first call takes a second."""
    from arviz_stats.base import array_stats

    return array_stats


def log_ratios(likelihoods: Likelihoods, curves: NDArray[np.integer], draws: Draws) -> Array:
    """Logarithms of the exact posterior over the density of the draws of some curves, up to a constant of the curve.

    Args:
      likelihoods: without errors that are integrated over.
      curves: [k], places in both `likelihoods` and `draws`.

    Returns:
      [k, draws]; -inf where a draw is impossible.
    """
    labels = draws.labels[curves]
    rows = np.repeat(curves, labels.shape[1])
    density = likelihoods.log_density(rows, labels.reshape(len(rows), -1))
    return np.asarray(density.reshape(labels.shape[:2]) - draws.log_density[curves])


def resampled_places(
    log_ratios: Array, count: int, least: float, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Places of `count` draws in proportion to their weights, flattened until so many draws count at the `least`."""
    power = 1.0
    if effective_number(log_ratios) < least:
        low, high = -10.0, 0.0
        for _ in range(25):
            middle = 0.5 * (low + high)
            enough = effective_number(np.exp(middle) * log_ratios) >= least
            low, high = (middle, high) if enough else (low, middle)
        power = float(np.exp(low))
    sums = np.cumsum(_weights(power * log_ratios))
    places = (np.arange(count) + generator.random()) / count
    return np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)


def effective_number(log_ratios: Array) -> float:
    """Kish's number of independent draws that draws of these weights are worth, none smoothed."""
    weights = _weights(log_ratios)
    return float(1.0 / (weights @ weights))


def _weights(log_ratios: Array) -> Array:
    largest = log_ratios.max(initial=-np.inf)
    if not np.isfinite(largest):
        return np.full(len(log_ratios), 1.0 / max(len(log_ratios), 1))
    weights: Array = np.exp(log_ratios - largest)
    return weights / weights.sum()

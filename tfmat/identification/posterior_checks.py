"""Whether a posterior is right on average, on test curves whose parameters are known. NumPy only.

Log score: I. J. Good, Rational decisions, J. Royal Statistical Society B 14 (1952) 107-114. Ranks: S. Talts et al.,
Validating Bayesian inference algorithms with simulation-based calibration, 2018, arXiv:1804.06788; the band around
their distribution: T. Säilynoja, P.-C. Bürkner, A. Vehtari, Graphical test for discrete uniformity and its applications
in goodness-of-fit evaluation and multiple sample comparison, 2022, arXiv:2103.10522. Coverage of regions around random
points (TARP): P. Lemos, A. Coogan, Y. Hezaveh, L. Perreault-Levasseur, Sampling-based accuracy testing of posterior
estimators for general inference, ICML 2023, arXiv:2302.03026. z-score beside contraction: M. Betancourt, Towards a
principled Bayesian workflow, 2020.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.identification.draws import Draws
from tfmat.identification.likelihood import PRIOR_VARIANCE
from tfmat.materials.law import Array

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

# Test curves, and draws of each.
_CURVES, _DRAWS = 5000, 200
# Shares of the posterior in the joint regions of highest density, %.
_REGIONS = (50, 90, 95)
# Places at which a distribution is compared with the uniform one, and simulated sets that make the band around it.
_PLACES, _SETS = 100, 1000


def check_posterior(
    identifier: "Identifier", features: np.ndarray, true_labels: Array
) -> dict[str, Any] | None:
    """The numbers of `posterior_scores` for the first of these curves; None for a network without a whole posterior."""
    if identifier.uncertainty != "flow":
        return None
    features, true = features[:_CURVES], true_labels[:_CURVES]
    names = [parameter.name for parameter in identifier.parameters]
    draws = identifier.draws(features, _DRAWS)
    return posterior_scores(names, draws, true, identifier.log_density(features, true))


def posterior_scores(
    names: Sequence[str], draws: Draws, true_labels: Array, log_density: Array
) -> dict[str, Any]:
    """The entry `posterior` of evaluation.json.

    `log_score`: mean log density of the true labels, nats, on the scale of the labels (0-1), higher is better;
    `log_score_error`, its standard error, None for a single curve; `worst_log_score`, of one curve; `joint_coverage`:
    share of the joint regions of highest density (%) that hold the truth; `ranks`: parameter -> how the true labels'
    ranks among the draws are distributed, see below; `tarp`: the same of the share of the draws that are nearer to a
    random point than the truth is; `band`: standard errors that the distribution of a right posterior stays within at
    all places together, 19 of 20 times; `contraction`: parameter -> 1 - mean posterior variance over that of the prior;
    `z_score`: parameter -> `mean` and root mean square `rms` of (posterior mean - truth) over its standard deviation, 0
    and 1 for a right one.

    A distribution has its `difference` from the uniform one at even places between 0 and 1 without the ends, the
    `largest_difference` of these, and whether all are `inside_band`.

    Args:
      draws: [curves, samples], of those curves.
      true_labels: [curves, p].
      log_density: [curves], at the true labels.
    """
    curves = len(true_labels)
    denser = np.mean(draws.log_density > log_density[:, None], axis=1)
    random = np.random.default_rng(0)
    below = np.sum(draws.labels < true_labels[:, None], axis=1)
    ranks = _uniform(below, draws, random)
    band = _band(curves)
    contraction = 1.0 - np.mean(draws.std**2, axis=0) / PRIOR_VARIANCE
    z = (draws.mean - true_labels) / draws.std
    return {
        "num_curves": curves,
        "log_score": float(np.mean(log_density)),
        "log_score_error": (
            float(np.std(log_density, ddof=1) / np.sqrt(curves)) if curves > 1 else None
        ),
        "worst_log_score": float(np.min(log_density)),
        "joint_coverage": {
            str(percent): float(np.mean(denser <= percent / 100)) for percent in _REGIONS
        },
        "ranks": {name: _against_uniform(ranks[:, i], band) for i, name in enumerate(names)},
        "tarp": _against_uniform(_uniform(_nearer(draws, true_labels), draws, random), band),
        "band": band,
        "contraction": {name: float(contraction[i]) for i, name in enumerate(names)},
        "z_score": {
            name: {
                "mean": float(z[:, i].mean()),
                "rms": float(np.sqrt(np.mean(z[:, i] ** 2))),
            }
            for i, name in enumerate(names)
        },
    }


def _uniform(counts: Array, draws: Draws, random: np.random.Generator) -> Array:
    """Counts of a curve's draws as shares, anywhere between two draws: of a right posterior uniform and not steps."""
    return (counts + random.uniform(size=counts.shape)) / (draws.labels.shape[1] + 1)


def _nearer(draws: Draws, true_labels: Array) -> Array:
    """How many draws of each curve lie nearer to a random point than the truth does: [curves].

    The points are normally distributed with each posterior's own mean and standard deviations, which are also what
    distances are measured in: balls around them then cut through the posterior wherever it is, and its widest label is
    not the only one that counts.
    """
    mean, std = draws.mean, draws.std
    # A generator of its own, so that ranks do not depend on the number of labels.
    points = np.random.default_rng(1).standard_normal(mean.shape)
    of_truth = np.sum(((true_labels - mean) / std - points) ** 2, axis=1)
    away = (draws.labels - mean[:, None]) / std[:, None] - points[:, None]
    return np.sum(np.sum(away**2, axis=2) < of_truth[:, None], axis=1)


def _against_uniform(values: Array, band: float) -> dict[str, Any]:
    """The distribution of values [curves] between 0 and 1, as `posterior_scores` tells it."""
    places = np.arange(1, _PLACES) / _PLACES
    difference = np.mean(values[:, None] <= places, axis=0) - places
    scaled = np.abs(difference) / np.sqrt(places * (1 - places) / len(values))
    return {
        "largest_difference": float(difference[np.argmax(np.abs(difference))]),
        "inside_band": bool(scaled.max() <= band),
        "difference": difference.round(5).tolist(),
    }


def _band(curves: int) -> float:
    """Standard errors that the distribution of `curves` uniform numbers stays within, at all places, 19 of 20 times."""
    random, places = np.random.default_rng(0), np.arange(1, _PLACES) / _PLACES
    counts = random.multinomial(curves, np.full(_PLACES, 1 / _PLACES), _SETS)
    shares = np.cumsum(counts[:, :-1], axis=1) / curves
    scaled = np.abs(shares - places) / np.sqrt(places * (1 - places) / curves)
    return float(np.percentile(scaled.max(axis=1), 95))

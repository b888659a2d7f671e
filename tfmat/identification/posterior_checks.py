"""Whether a posterior is right on average, on test curves whose parameters are known. NumPy only.

Log score: I. J. Good, Rational decisions, J. Royal Statistical Society B 14 (1952) 107-114. Ranks: S. Talts et al.,
Validating Bayesian inference algorithms with simulation-based calibration, 2018, arXiv:1804.06788; the band around
their distribution: T. Säilynoja, P.-C. Bürkner, A. Vehtari, Graphical test for discrete uniformity and its applications
in goodness-of-fit evaluation and multiple sample comparison, 2022, arXiv:2103.10522.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats

from tfmat.identification.draws import Draws
from tfmat.materials.law import Array

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

# Test curves, and draws of each.
_CURVES, _DRAWS = 2000, 400
# Shares of the posterior in the joint regions of highest density, %.
_REGIONS = (50, 90, 95)
# Places at which the ranks' distribution is compared, and simulated sets of ranks that make the band.
_PLACES, _SETS = 100, 1000


def check_posterior(
    identifier: "Identifier", features: np.ndarray, true_labels: Array
) -> dict[str, Any] | None:
    """What `posterior_scores` says of the first of these curves; None where the network has no whole posterior."""
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
    `log_score_error`, its standard error; `worst_log_score`, of one curve; `joint_coverage`: share of the joint regions
    of highest density (%) that hold the truth; `ranks`: parameter -> `largest_difference` of the distribution of the
    true labels' ranks among the draws from the uniform one, and whether it is `inside_band`, which holds 95 % of such
    distributions of a right posterior at all places together; `contraction`: parameter -> 1 - mean posterior variance
    over that of the prior.

    Args:
      draws: [curves, samples], of those curves.
      true_labels: [curves, p].
      log_density: [curves], at the true labels.
    """
    curves = len(true_labels)
    denser = np.mean(draws.log_density > log_density[:, None], axis=1)
    below = np.sum(draws.labels < true_labels[:, None], axis=1)
    # Anywhere between two draws, so that ranks of a right posterior are uniform and not steps.
    spread = np.random.default_rng(0).uniform(size=below.shape)
    ranks = (below + spread) / (draws.labels.shape[1] + 1)
    places = np.arange(1, _PLACES) / _PLACES
    band = _band(curves, places)
    found = {}
    for i, name in enumerate(names):
        difference = np.mean(ranks[:, i, None] <= places, axis=0) - places
        scaled = np.abs(difference) / np.sqrt(places * (1 - places) / curves)
        found[name] = {
            "largest_difference": float(difference[np.argmax(np.abs(difference))]),
            "inside_band": bool(scaled.max() <= band),
        }
    contraction = 1.0 - np.mean(draws.std**2, axis=0) / (1.0 / 12.0)
    return {
        "num_curves": curves,
        "log_score": float(np.mean(log_density)),
        "log_score_error": float(np.std(log_density, ddof=1) / np.sqrt(curves)),
        "worst_log_score": float(np.min(log_density)),
        "joint_coverage": {
            str(percent): float(np.mean(denser <= percent / 100)) for percent in _REGIONS
        },
        "ranks": found,
        "contraction": {name: float(contraction[i]) for i, name in enumerate(names)},
    }


def _band(curves: int, places: Array) -> float:
    """Standard errors that the distribution of `curves` uniform numbers stays within, at all places, 19 of 20 times."""
    random = np.random.default_rng(0)
    counts = random.multinomial(curves, np.full(len(places) + 1, 1 / (len(places) + 1)), _SETS)
    shares = np.cumsum(counts[:, :-1], axis=1) / curves
    scaled = np.abs(shares - places) / np.sqrt(places * (1 - places) / curves)
    return float(scipy.stats.scoreatpercentile(scaled.max(axis=1), 95))

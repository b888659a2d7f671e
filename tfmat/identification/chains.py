"""Posteriors by Markov chains, where weights of draws say that they do not do. NumPy only; the chains are emcee's.

Ensembles of walkers move by differential evolution and by stretches (C. J. F. ter Braak, Stat. Comput. 16 (2006)
239-249; J. Goodman, J. Weare, Commun. Appl. Math. Comput. Sci. 5 (2010) 65-80). They begin where earlier sampling came
to, each in a part of its own, so that ensembles that have not met, in a posterior of several modes, say, show in nested
R-hat (C. C. Margossian et al., Nested R-hat, Bayesian Anal. 20 (2025), arXiv:2110.13017).

Each step asks the law for some tens of responses: weighted draws are quicker by far where they do.
"""

import functools
from typing import Any

import numpy as np

from tfmat.identification.likelihood import Likelihoods
from tfmat.identification.side_by_side import in_processes
from tfmat.identification.weighted_draws import (
    LARGEST_R_HAT,
    SampledPosterior,
    import_statistics,
    resampled_places,
)
from tfmat.materials.law import Array

# Walkers of an ensemble, or so many a label where that is more.
_ENSEMBLES, _WALKERS, _WALKERS_PER_LABEL = 4, 48, 4
# Steps between two looks at R-hat, whose first half is left out, and after which the curve is given up.
_STEPS, _MOST_STEPS = 100, 800
# Share of moves that are stretches. emcee's snooker moves would make variances too small until its 3.1.6, the last one
# (github.com/dfm/emcee/pull/531): by a sixth of five labels, where half of all moves are such.
_STRETCHED = 0.2
# Fewer draws of earlier sampling are no start; walkers begin so many standard deviations from them.
_FEWEST_STARTS, _APART = 100, 0.02
# The evidence is by so many draws of the chains, and as many from Student's t of so many degrees of freedom.
_BRIDGE, _FREEDOM, _BRIDGE_STEPS = 1024, 5.0, 50

# Where an ensemble stands: labels [walkers, p + e], their log densities [walkers], and a legacy generator's state.
_Standing = tuple[Array, Array | None, Any]


def sample_by_chains(
    likelihoods: Likelihoods,
    curve: int,
    begun: SampledPosterior,
    generator: np.random.Generator,
    enough: float,
) -> SampledPosterior:
    """The posterior of one curve by chains, errors integrated over; `begun` itself where that is no start.

    Args:
      begun: by weighted draws that did not converge, or are worth few.
      enough: independent draws that the answer's are worth, where it converges.

    Returns:
      Draws of one weight, with their R-hat.
    """
    if len(begun.labels) < _FEWEST_STARTS:
        return begun
    import emcee  # noqa: F401  once, before processes are forked

    density = functools.partial(_log_density, likelihoods, curve)
    ensembles: list[_Standing] = [
        (start, None, np.random.RandomState(generator.integers(2**32)).get_state())
        for start in _starts(begun, generator)
    ]
    steps: list[list[Array]] = []
    while True:
        walked = in_processes(functools.partial(_walked, density), ensembles)
        standing, *kept = zip(*walked, strict=True)
        ensembles = list(standing)
        steps.append([np.concatenate(each, axis=1) for each in kept])
        labels, heights = map(np.concatenate, zip(*steps, strict=True))
        labels, heights = labels[len(labels) // 2 :], heights[len(heights) // 2 :]
        r_hat, worth = _mixing(labels)
        done = r_hat <= LARGEST_R_HAT and worth >= enough
        if done or len(steps) * _STEPS >= _MOST_STEPS:
            break
    # Every tenth draw, say, would otherwise be of the same few walkers.
    order = generator.permutation(heights.size)
    labels, heights = labels.reshape(-1, labels.shape[2])[order], heights.reshape(-1)[order]
    evidence = _log_evidence(density, labels, heights, generator)
    own, errors = np.split(labels, [labels.shape[1] - likelihoods.nuisances], axis=1)
    return SampledPosterior(
        own,
        np.full(len(own), -np.log(len(own))),
        np.nan,
        worth,
        evidence,
        errors,
        None if likelihoods.nuisances else heights,
        r_hat,
    )


def _log_density(likelihoods: Likelihoods, curve: int, labels: Array) -> Array:
    density = np.full(len(labels), -np.inf)
    inside = ((labels >= 0.0) & (labels <= 1.0)).all(axis=1)
    if inside.any():
        density[inside] = likelihoods.log_density(slice(curve, curve + 1), labels[inside])
    return density


def _starts(begun: SampledPosterior, generator: np.random.Generator) -> list[Array]:
    """Where the walkers of each ensemble begin: a slice across the direction in which draws spread most."""
    labels = begun.with_errors
    walkers = max(_WALKERS, _WALKERS_PER_LABEL * labels.shape[1])
    count = _ENSEMBLES * walkers
    least = min(0.5 * count, 0.5 * len(labels))
    chosen = labels[resampled_places(begun.log_weights, count, least, generator)]
    # Draws may stand twice, but walkers that do cannot tell where to move.
    deviation = np.maximum(chosen.std(axis=0), 1e-9)
    chosen = chosen + _APART * deviation * generator.standard_normal(chosen.shape)
    chosen = np.clip(chosen, 1e-9, 1.0 - 1e-9)
    spread = (chosen - chosen.mean(axis=0)) / deviation
    along = spread @ np.linalg.svd(spread, full_matrices=False)[2][0]
    return np.split(chosen[np.argsort(along)], _ENSEMBLES)


def _walked(density: Any, standing: _Standing) -> tuple[_Standing, Array, Array]:
    """Where an ensemble stands some steps later, and the labels [steps, walkers, p] and log densities on the way."""
    import emcee

    labels, heights, state = standing
    moves = [(emcee.moves.DEMove(), 1.0 - _STRETCHED), (emcee.moves.StretchMove(), _STRETCHED)]
    sampler = emcee.EnsembleSampler(*labels.shape, density, vectorize=True, moves=moves)
    with np.errstate(all="ignore"):
        ended = sampler.run_mcmc(
            emcee.State(labels, log_prob=heights, random_state=state),
            _STEPS,
            skip_initial_state_check=True,
        )
    kept = ended.coords, ended.log_prob, ended.random_state
    return kept, sampler.get_chain(), sampler.get_log_prob()


def _mixing(labels: Array) -> tuple[float, float]:
    """Nested R-hat of the worst label, and the independent draws that labels [steps, walkers, p] are worth."""
    of_ensembles = np.repeat(np.arange(_ENSEMBLES), labels.shape[1] // _ENSEMBLES)
    rows, axes = np.moveaxis(labels, 2, 0), {"chain_axis": 2, "draw_axis": 1}
    statistics = import_statistics()
    with np.errstate(all="ignore"):
        r_hat = statistics.rhat_nested(rows, superchain_ids=of_ensembles, **axes)
        worth = statistics.ess(rows, method="bulk", **axes)
    # A label that never moves has neither.
    return float(np.nan_to_num(np.max(r_hat), nan=np.inf)), float(np.nan_to_num(np.min(worth)))


def _log_evidence(
    density: Any, labels: Array, heights: Array, generator: np.random.Generator
) -> float:
    """Logarithm of the mean of the likelihood over the prior, by a bridge to Student's t that draws [k, p] suggest.

    X.-L. Meng, W. H. Wong, Simulating ratios of normalizing constants via a simple identity, Statist. Sinica 6 (1996)
    831-860, equation 4.1.
    """
    import scipy.stats  # half a second, and least squares needs none of it

    chosen = generator.choice(len(labels), _BRIDGE, replace=len(labels) < _BRIDGE)
    shape = np.cov(labels.T) + 1e-16 * np.eye(labels.shape[1])
    bridge = scipy.stats.multivariate_t(labels.mean(axis=0), shape, _FREEDOM, seed=generator)
    drawn = bridge.rvs(_BRIDGE).reshape(_BRIDGE, -1)
    ours = heights[chosen] - bridge.logpdf(labels[chosen])
    theirs = density(drawn) - bridge.logpdf(drawn)
    found = float(np.median(ours))
    for _ in range(_BRIDGE_STEPS):
        above = theirs - np.logaddexp(theirs, found)
        below = -np.logaddexp(ours, found)
        found = float(scipy.special.logsumexp(above) - scipy.special.logsumexp(below))
    return found

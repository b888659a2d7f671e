"""Whether a network's posterior is right on average, and how near it is to the exact one, curve by curve. NumPy only.

Test curves whose parameters are known tell the first.

Log score: I. J. Good, Rational decisions, J. Royal Statistical Society B 14 (1952) 107-114. Ranks: S. Talts et al.,
Validating Bayesian inference algorithms with simulation-based calibration, 2018, arXiv:1804.06788; the band around
their distribution: T. Säilynoja, P.-C. Bürkner, A. Vehtari, Graphical test for discrete uniformity and its applications
in goodness-of-fit evaluation and multiple sample comparison, 2022, arXiv:2103.10522. Coverage of regions around random
points (TARP): P. Lemos, A. Coogan, Y. Hezaveh, L. Perreault-Levasseur, Sampling-based accuracy testing of posterior
estimators for general inference, ICML 2023, arXiv:2302.03026. z-score beside contraction: M. Betancourt, Towards a
principled Bayesian workflow, 2020.

The law's likelihood, where it is known, tells the second. The network's draws are weighed by the exact posterior over
the network's density, which tells without any other sampler how heavy the weights' tail is, and how well the best
possible classifier could tell the two posteriors apart. A few curves' exact posteriors are also sampled
(`sampling.adaptive_of_many`) and compared with the network's: by their moments, by the log densities of the truth, and
by a classifier that is given draws of both (C2ST, of the nearest neighbours: D. Lopez-Paz, M. Oquab, Revisiting
classifier two-sample tests, ICLR 2017, arXiv:1610.06545).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.spatial
import scipy.special
from numpy.typing import NDArray

from tfmat.curves.records import observed
from tfmat.errors import InputError
from tfmat.identification.likelihood import PRIOR_VARIANCE, NoiseModel, SimulatedErrors
from tfmat.identification.posterior import LARGEST_K, Posterior
from tfmat.identification.reference import check_reference
from tfmat.identification.sampling import Progress, adaptive_of_many
from tfmat.materials.law import Array

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.identification.identifier import Identifier

# _CURVES: test curves; _DRAWS: draws of each.
_CURVES, _DRAWS = 5000, 200
# _REGIONS: shares of the posterior in the joint regions of highest density, %.
_REGIONS = (50, 90, 95)
# _PLACES: places at which a distribution is compared with the uniform one; _SETS: simulated sets that make the band.
_PLACES, _SETS = 100, 1000
# _COMPARED_DRAWS: draws of the network of each curve that is compared.
_COMPARED_DRAWS = 1000
# _ENOUGH: independent draws that draws of the exact posterior are worth at least.
_ENOUGH = 1000.0
# _SAMPLED: curves whose exact posteriors are sampled; _TOGETHER: curves weighed between two calls of `progress`.
_SAMPLED, _TOGETHER = 100, 20
# _FOLDS: parts of the draws that the classifier is tested on in turn.
_FOLDS = 5


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
    names: Sequence[str], draws: Posterior, true_labels: Array, log_density: Array
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
    assert draws.label_log_density is not None
    denser = np.mean(draws.label_log_density > log_density[:, None], axis=1)
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


def _uniform(counts: Array, draws: Posterior, random: np.random.Generator) -> Array:
    """Counts of a curve's draws as shares, anywhere between two draws: of a right posterior uniform and not steps."""
    return (counts + random.uniform(size=counts.shape)) / (draws.labels.shape[1] + 1)


def _nearer(draws: Posterior, true_labels: Array) -> Array:
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


def compare_posteriors(
    identifier: "Identifier",
    dataset: "PackedDataset",
    num_curves: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The entry `exact` of evaluation.json's `posterior`, of the first test curves.

    `pareto_k`: `median` of the tails of the weights of the network's draws, and `share_above` 0.7, where averages of
    weighted draws cannot be relied on; `effective_share`, median share of independent draws that the weighted ones are
    worth; `best_classifier`: `median` and 95th percentile `p95` of the accuracy with which the two posteriors could be
    told apart at best, (1 + total variation) / 2. For those of the first 100 whose sampled posterior has converged
    `c2st` (`num_curves`, `median`, `p95`): the accuracy that a classifier reaches, 0.5 is perfect; `log_score_gap`:
    mean of log exact density - log network density at the truth, nats, 0 is perfect, and `log_score_gap_error`;
    `parameters`: name -> `mean_error`, median distance of the means in exact standard deviations, `std_ratio`, median
    of network's over exact ones. None for the first three, and no parameters, where none has converged.

    Args:
      num_curves: at most as many as there are test curves.
      progress: called with (done, total) curves.

    Raises:
      InputError: there is no exact posterior: the curves were not simulated here, have no noise, errors that are drawn
        and not told, or other ranges than the network's.
    """
    target, features, true = _known(identifier, dataset, num_curves)
    count = len(true)
    draws = identifier.draws(features, _COMPARED_DRAWS, seed=1)
    ratios = np.empty(draws.labels.shape[:2])
    for first in range(0, count, _TOGETHER):
        rows = slice(first, first + _TOGETHER)
        ratios[rows] = _log_ratios(target, np.arange(count)[rows], draws)
        if progress:
            progress(min(first + _TOGETHER, count), count)
    weighed = [Posterior.weighted(*each) for each in zip(draws.labels, ratios, strict=True)]
    tails = np.array([each.certificate.pareto_k for each in weighed])
    evidence = scipy.special.logsumexp(ratios, axis=1) - np.log(_COMPARED_DRAWS)
    with np.errstate(all="ignore"):  # where no draw is possible, the weights are NaN
        weights = np.nan_to_num(np.exp(ratios - evidence[:, None]), nan=0.0)
    apart = 0.5 + 0.5 * np.mean(np.maximum(1.0 - weights, 0.0), axis=1)
    found = {
        "num_curves": count,
        "pareto_k": {
            "median": float(np.median(tails)),
            "share_above": float(np.mean(tails > LARGEST_K)),
        },
        "effective_share": float(
            np.median([one.effective_draws for one in weighed]) / _COMPARED_DRAWS
        ),
        "best_classifier": _spread(apart),
    }
    few = slice(0, min(count, _SAMPLED))
    said = identifier.log_density(features[few], true[few])
    return found | _by_sampling(identifier, target, draws, true[few], said)


def _log_ratios(target: SimulatedErrors, records: NDArray[np.integer], draws: Posterior) -> Array:
    """Logarithms of the exact posterior over the density of the draws of some records, up to a constant of the record.

    Args:
      target: without errors that are integrated over.
      records: [k], places in both `target` and `draws`.

    Returns:
      [k, draws]; -inf where a draw is impossible.
    """
    assert draws.label_log_density is not None
    labels = draws.labels[records]
    rows = np.repeat(records, labels.shape[1])
    density = target.log_density(labels.reshape(len(rows), -1), rows)
    return np.asarray(density.reshape(labels.shape[:2]) - draws.label_log_density[records])


def _known(
    identifier: "Identifier", dataset: "PackedDataset", num_curves: int
) -> tuple[SimulatedErrors, np.ndarray, Array]:
    """The likelihoods of the first test curves, these themselves, and their true labels."""
    check_reference(dataset)
    settings = dataset.settings
    assert settings is not None
    noise = NoiseModel.of(settings)
    if noise.unknown is not None:
        raise InputError(
            "the network's posteriors are not compared with exact ones: the records' errors are not told, and the "
            "network answers without them"
        )
    if dataset.parameters != identifier.parameters:
        raise InputError(
            "the network's posteriors are not compared with exact ones: the data set was drawn from other ranges, so "
            "that its prior is another one"
        )
    start = dataset.num_train + dataset.num_validation
    rows = slice(start, start + min(num_curves, dataset.num_test))
    features = np.asarray(dataset.features[rows])
    target = SimulatedErrors(settings.build_law(), noise, *observed(settings, features))
    return target, features, np.asarray(dataset.labels[rows], np.float64)


def _by_sampling(
    identifier: "Identifier", target: SimulatedErrors, draws: Posterior, true: Array, said: Array
) -> dict[str, Any]:
    """The draws, and the density `said` of the truth, beside sampled exact posteriors of the first curves."""
    count = len(true)
    few = slice(0, count)
    first = target[few]
    posteriors = adaptive_of_many(
        first,
        np.stack([true, draws.mean[few]], axis=1),
        [np.random.default_rng([2, i]) for i in range(count)],
        enough=_ENOUGH,
    )
    good = [i for i, one in enumerate(posteriors) if one.converged]
    if not good:
        return {
            "c2st": None,
            "log_score_gap": None,
            "log_score_gap_error": None,
            "parameters": {},
        }
    mean, variance = (
        np.array([getattr(posteriors[i], name) for i in good]) for name in ("mean", "variance")
    )
    deviation = np.sqrt(variance)
    evidence = np.array([posteriors[i].log_evidence for i in good])
    gap = first.log_density(true[good], np.array(good)) - evidence - said[good]
    far = np.abs(draws.mean[good] - mean) / deviation
    wide = draws.std[good] / deviation
    accuracy = np.array([c2st(draws.labels[i], posteriors[i]) for i in good])
    return {
        "c2st": {"num_curves": len(good), **_spread(accuracy)},
        "log_score_gap": float(gap.mean()),
        "log_score_gap_error": float(gap.std() / np.sqrt(len(gap))),
        "parameters": {
            p.name: {
                "mean_error": float(np.median(far[:, i])),
                "std_ratio": float(np.median(wide[:, i])),
            }
            for i, p in enumerate(identifier.parameters)
        },
    }


def c2st(labels: Array, exact: Posterior) -> float:
    """Accuracy with which a classifier tells draws of a network, [draws, p], from draws of the exact posterior.

    Both kinds count as much; each draw is told by its nearest ones among four fifths of all, itself left out, in
    coordinates in which the exact posterior has unit covariance. 0.5 where they cannot be told apart.
    """
    weights = np.ones(len(exact.labels))
    if exact.log_weights is not None:
        weights = np.exp(exact.log_weights)
    weights = weights / weights.sum()
    points = np.concatenate([labels, exact.labels]) - exact.mean
    centred = points[len(labels) :]
    variance = np.diag(np.maximum(exact.variance, 1e-24))
    covariance = (centred * weights[:, None]).T @ centred + 1e-6 * variance
    points = np.linalg.solve(np.linalg.cholesky(covariance), points.T).T
    shares = np.concatenate([np.full(len(labels), 1.0 / len(labels)), -weights])
    fold = np.random.default_rng(0).permutation(len(points)) % _FOLDS
    right = np.empty(len(points), np.bool_)
    for i in range(_FOLDS):
        train, test = fold != i, fold == i
        tree = scipy.spatial.KDTree(points[train])
        _, near = tree.query(points[test], k=int(np.sqrt(train.sum())))
        right[test] = (shares[train][near].sum(axis=1) > 0) == (shares[test] > 0)
    return float(0.5 * np.abs(shares) @ right)


def _spread(values: Array) -> dict[str, float]:
    return {"median": float(np.median(values)), "p95": float(np.quantile(values, 0.95))}

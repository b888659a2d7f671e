"""How near a network's posteriors are to the exact ones, curve by curve, where the law's likelihood is known.

The network's draws are weighed by the exact posterior over the network's density, which tells without any other sampler
how heavy the weights' tail is, and how well the best possible classifier could tell the two posteriors apart. A few
curves' exact posteriors are also sampled (`posterior_sampling`) and compared with the network's: by their moments, by
the log densities of the truth, and by a classifier that is given draws of both (C2ST, of the nearest neighbours:
D. Lopez-Paz, M. Oquab, Revisiting classifier two-sample tests, ICLR 2017, arXiv:1610.06545).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.spatial
import scipy.special

from tfmat.curves.records import observed
from tfmat.errors import InputError
from tfmat.identification.draws import Draws
from tfmat.identification.likelihood import Likelihoods, NoiseModel
from tfmat.identification.posterior_sampling import Progress, sample_posteriors
from tfmat.identification.reference import check_reference
from tfmat.identification.weighted_draws import LARGEST_K, SampledPosterior, log_ratios
from tfmat.materials.law import Array

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.identification.identifier import Identifier

# Draws of the network of each curve, and what those of the exact posterior are worth at least.
_DRAWS, _ENOUGH = 1000, 1000.0
# Curves whose exact posteriors are sampled, and curves that are weighed between two calls of `progress`.
_SAMPLED, _TOGETHER = 100, 20
_FOLDS = 5


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
    likelihoods, features, true = _known(identifier, dataset, num_curves)
    count = len(true)
    draws = identifier.draws(features, _DRAWS, seed=1)
    ratios = np.empty(draws.log_density.shape)
    for first in range(0, count, _TOGETHER):
        rows = slice(first, first + _TOGETHER)
        ratios[rows] = log_ratios(likelihoods, np.arange(count)[rows], draws)
        if progress:
            progress(min(first + _TOGETHER, count), count)
    weighed = [SampledPosterior.of(*each) for each in zip(draws.labels, ratios, strict=True)]
    tails = np.array([each.pareto_k for each in weighed])
    evidence = scipy.special.logsumexp(ratios, axis=1) - np.log(_DRAWS)
    with np.errstate(all="ignore"):  # where no draw is possible, the weights are NaN
        weights = np.nan_to_num(np.exp(ratios - evidence[:, None]), nan=0.0)
    apart = 0.5 + 0.5 * np.mean(np.maximum(1.0 - weights, 0.0), axis=1)
    found = {
        "num_curves": count,
        "pareto_k": {
            "median": float(np.median(tails)),
            "share_above": float(np.mean(tails > LARGEST_K)),
        },
        "effective_share": float(np.median([one.effective_samples for one in weighed]) / _DRAWS),
        "best_classifier": _spread(apart),
    }
    few = slice(0, min(count, _SAMPLED))
    said = identifier.log_density(features[few], true[few])
    return found | _by_sampling(identifier, likelihoods, draws, true[few], said)


def _known(
    identifier: "Identifier", dataset: "PackedDataset", num_curves: int
) -> tuple[Likelihoods, np.ndarray, Array]:
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
    likelihoods = Likelihoods(settings.build_law(), noise, *observed(settings, features))
    return likelihoods, features, np.asarray(dataset.labels[rows], np.float64)


def _by_sampling(
    identifier: "Identifier", likelihoods: Likelihoods, draws: Draws, true: Array, said: Array
) -> dict[str, Any]:
    """What sampled exact posteriors of the first curves tell of the draws, and of the density `said` of the truth."""
    law, noise, count = likelihoods.law, likelihoods.noise, len(true)
    few = slice(0, count)
    first = Likelihoods(
        law, noise, likelihoods.strain[few], likelihoods.stress[few], likelihoods.valid[few]
    )
    posteriors = sample_posteriors(
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
    gap = first.log_density(np.array(good), true[good]) - evidence - said[good]
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


def c2st(labels: Array, exact: SampledPosterior) -> float:
    """Accuracy with which a classifier tells draws of a network, [draws, p], from those of the exact posterior.

    Both kinds count as much; each draw is told by its nearest ones among four fifths of all, itself left out, in
    coordinates in which the exact posterior has unit covariance. 0.5 where they cannot be told apart.
    """
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

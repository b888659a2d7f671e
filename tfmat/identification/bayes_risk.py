"""Bayes risk: the mean squared error that no method can beat on average, curve by curve, kept in a file. NumPy only.

The curves come with their law, ranges and noise, so that the posterior of each curve's labels is known (`likelihood`
says what it is conditioned on; the prior is uniform in 0-1). Its mean is the estimate with the least mean squared error
of scaled labels, and the mean of its variance over the curves is that error: the Bayes risk.
"""

import contextlib
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.records import observed
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import SIMULATION_VERSION
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.identification.least_squares import fit_with_noise
from tfmat.identification.likelihood import Likelihoods, NoiseModel
from tfmat.identification.posterior_grid import likelihoods, posterior_moments
from tfmat.identification.posterior_sampling import Progress, sample_posteriors
from tfmat.identification.record_likelihood import RecordLikelihoods
from tfmat.identification.weighted_draws import FEWEST_SAMPLES, LARGEST_K
from tfmat.materials.law import Array

# Goes up with every change that moves the numbers.
BAYES_RISK_VERSION = 3
# Up to this many identified parameters the posterior is integrated, beyond it is sampled.
_MOST_INTEGRATED = 2
# Curves between two calls of `progress`.
_CHUNK = 50
_ARRAYS = ("mean", "variance", "effective_samples", "pareto_k")


@dataclasses.dataclass(frozen=True)
class BayesRisk:
    """The posterior of each curve, on the scale of the labels (0-1).

    Attributes:
      method: `quadrature` (relative error of the risk below 0.001) or `importance sampling`.
      mean, variance: [curves, p].
      effective_samples, pareto_k: [curves], see `SampledPosterior`; None for quadrature.
    """

    method: str
    mean: Array
    variance: Array
    effective_samples: Array | None
    pareto_k: Array | None

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Whether the posterior of each curve can be relied on, [curves]."""
        if self.pareto_k is None or self.effective_samples is None:
            return np.ones(len(self.mean), np.bool_)
        return (self.pareto_k <= LARGEST_K) & (self.effective_samples >= FEWEST_SAMPLES)

    @property
    def risk(self) -> Array:
        """Mean of the posterior variance, [p]: MSE of scaled labels that no method can beat on average.

        Of the curves whose posterior has converged; as the two below.
        """
        return self.variance[self.converged].mean(axis=0)

    @property
    def standard_error(self) -> Array:
        """Standard error of `risk`, by the scatter over the curves (which holds that of sampling, if any): [p]."""
        variance = self.variance[self.converged]
        return variance.std(axis=0, ddof=1) / np.sqrt(len(variance))

    def calibration(self, labels: Array) -> Array:
        """Mean of (true label - mean)² / variance, [p]; 1 where the posterior is right. `labels`: [curves, p]."""
        squares = (labels - self.mean) ** 2 / self.variance
        return squares[self.converged].mean(axis=0)

    def first(self, count: int) -> "BayesRisk":
        """That of the first `count` curves."""
        known = {name: getattr(self, name) for name in _ARRAYS}
        return dataclasses.replace(
            self, **{name: array[:count] for name, array in known.items() if array is not None}
        )


def bayes_risk(
    settings: CurveSettings,
    features: NDArray[np.floating],
    *,
    start: Array | None = None,
    truth: Array | None = None,
    progress: Progress | None = None,
) -> BayesRisk:
    """The posterior of curves that were simulated with `settings`.

    Args:
      features: [curves, points, 3], as simulated: strain (-), noisy stress (MPa), flag.
      start: labels [curves, p] of the least squares fit, where it is at hand.
      truth: true labels [curves, p], where a sampled posterior begins too. The posterior does not depend on them, but
        they lie in its mass, which a fit that ended in another valley does not.
      progress: called with (done, total) curves.

    Raises:
      InputError: the curves have no noise, or an observation model whose likelihood is not known.
    """
    law, noise = settings.build_law(), NoiseModel.of(settings)
    strain, stress, valid = observed(settings, features)
    if start is None:
        start = fit_with_noise(
            law, strain, stress, valid, noise.noise_mpa, noise.noise_relative
        ).labels
    if len(law.identified) <= _MOST_INTEGRATED and noise.unknown is None:
        moments = []
        for i, likelihood in enumerate(likelihoods(law, noise, strain, stress, valid)):
            moments.append(posterior_moments(likelihood, start[i]))
            if progress and (i + 1) % _CHUNK == 0:
                progress(i + 1, len(start))
        mean, variance = (
            np.array([getattr(one, name) for one in moments]) for name in ("mean", "variance")
        )
        return BayesRisk("quadrature", mean, variance, None, None)
    kind: Any = Likelihoods if noise.unknown is None else RecordLikelihoods
    # A generator a curve: the answer to curve i is the same however many curves there are.
    posteriors = sample_posteriors(
        kind(law, noise, strain, stress, valid),
        np.stack([start] if truth is None else [truth, start], axis=1),
        [np.random.default_rng([BAYES_RISK_VERSION, i]) for i in range(len(start))],
        progress,
    )
    arrays = {name: np.array([getattr(one, name) for one in posteriors]) for name in _ARRAYS}
    return BayesRisk("importance sampling", **arrays)


def cached_bayes_risk(
    file: str | os.PathLike,
    settings: CurveSettings,
    features: NDArray[np.floating],
    *,
    seed: int,
    start: Array | None = None,
    truth: Array | None = None,
    progress: Progress | None = None,
) -> BayesRisk:
    """`bayes_risk`, read from `file` where that holds it for these settings, this seed and at least as many curves.

    Otherwise it is worked out and written there, whole or not at all; a folder that cannot be written to only means
    that it is worked out again the next time.

    Args:
      features: the first curves of a frozen set that `settings` and `seed` fix.
    """
    key = {
        "version": BAYES_RISK_VERSION,
        "simulation_version": SIMULATION_VERSION,
        "settings": settings.to_json(),
        "seed": seed,
    }
    known = _read(pathlib.Path(file), key)
    if known is not None and len(known.mean) >= len(features):
        return known.first(len(features))
    found = bayes_risk(settings, features, start=start, truth=truth, progress=progress)
    content: dict[str, Any] = {**key, "num_curves": len(features), "method": found.method}
    for name in _ARRAYS:
        values = getattr(found, name)
        content[name] = None if values is None else values.tolist()
    with contextlib.suppress(InputError):
        write_json(file, content)
    return found


def _read(file: pathlib.Path, key: dict[str, Any]) -> BayesRisk | None:
    """What the file holds for this key; None where there is no file, or one of something else."""
    if not file.is_file():
        return None
    try:
        content = read_json(file)
        if any(content[name] != value for name, value in key.items()):
            return None
        known = {name: content[name] for name in _ARRAYS}
        arrays: dict[str, Any] = {
            name: None if values is None else np.array(values, np.float64)
            for name, values in known.items()
        }
        return BayesRisk(content["method"], **arrays)
    except (InputError, KeyError, TypeError, ValueError):
        # A file that someone else wrote or damaged is no reason to stop; it is made again.
        return None

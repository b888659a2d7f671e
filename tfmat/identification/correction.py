"""A network's samples, corrected with the law's likelihood, and what each answer's are worth. NumPy only.

Draws of the network are weighted by likelihood over their density, Pareto-smoothed (see `weighted_draws`). Where the
tail of the weights says that this does not do, sampling goes on from them: about the modes, where labels are few (see
`mode_sampling`), and where that does not do either, by the adaptive sampler (see `posterior_sampling`). It is the order
of M. Schmitt et al., Amortized Bayesian workflow, 2024, arXiv:2409.04332.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.draws import Draws, Samples
from tfmat.identification.likelihood import Likelihoods
from tfmat.identification.mode_sampling import sample_about_modes, suits
from tfmat.identification.posterior_sampling import sample_posteriors
from tfmat.identification.threads import one_thread_a_product, side_by_side
from tfmat.identification.weighted_draws import (
    FEWEST_SAMPLES,
    LARGEST_K,
    SampledPosterior,
    effective_number,
)
from tfmat.materials.law import Array
from tfmat.materials.parameter import Parameter

Status = Literal["amortised", "corrected", "resampled", "do not trust"]

# Draws of the network for each sample that is asked for: few samples are then there twice.
DRAWS_PER_SAMPLE = 2
# Weighted draws that are worth fewer than this share of the samples are not made into so many.
_LEAST_SHARE = 0.3
# Draws that sampling makes are to be worth this share of the samples: then few samples are there twice.
_SAMPLED_SHARE = 0.6
# Draws that are weighted first, and the share of them that has to count for the others to be weighted too.
_FIRST_DRAWS, _HOPEFUL_SHARE = 256, 0.5 * _LEAST_SHARE / DRAWS_PER_SAMPLE
# Draws of the network that sampling starts from: those of the largest weights, and others.
_STARTS = 4
# Samples that a posterior predictive check takes, and the probability below which no answer is trusted.
_CHECKED, LEAST_P = 200, 1e-3
# Labels (0-1) whose posterior is narrower than this are as good as one number.
_NARROWEST = 1e-7
# Rows of labels that a law answers together.
_CHUNK = 512

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What the samples of one curve's posterior are worth.

    Attributes:
      status: `amortised`, the network's own, which are right on average only; `corrected` with the law's likelihood;
        `resampled` by sampling that went on from them; `do not trust`, then they are the network's own.
      reason: why they are no better; empty for corrected and resampled ones.
      pareto_k: of the weights, to be at most 0.7; effective_draws: independent draws that they are worth. None where
        nothing was weighted.
      posterior_predictive_p: how probable errors are, given the posterior, that are as unlike those of the likelihood.
      independent_noise_p: the same where errors are but independent noise of the size that the points show: a small one
        says that the law does not hold up to its noise, and the intervals are wider for it.
    """

    status: Status
    reason: str = ""
    pareto_k: float | None = None
    effective_draws: float | None = None
    posterior_predictive_p: float | None = None
    independent_noise_p: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the samples are of the law's posterior, as far as its weights tell."""
        return self.status in ("corrected", "resampled")

    def to_json(self) -> dict[str, Any]:
        """The attributes by their names."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Posterior:
    """The joint posterior of one curve's p identified parameters.

    Attributes:
      parameters: p.
      samples: see `Samples`; certificate: what they are worth.
      mean, std: [p], interval: [p, 2], the shortest that holds 95 %; on the scale of the parameters' ranges, 0-1.
    """

    parameters: tuple[Parameter, ...]
    samples: Samples
    certificate: Certificate
    mean: Array
    std: Array
    interval: Array

    @classmethod
    def of(
        cls, draws: Draws, certificate: Certificate, parameters: Sequence[Parameter]
    ) -> "Posterior":
        """That of the first of the curves that draws are of."""
        return cls(
            tuple(parameters),
            draws.samples(parameters, 0),
            certificate,
            draws.mean[0],
            draws.std[0],
            draws.intervals((0.95,))[0, 0],
        )

    def to_json(self) -> dict[str, Any]:
        """The certificate, and `parameters`: name -> mean, std and shortest 95 % interval of the samples, in units."""
        values = self.samples.values
        of_parameters = {
            parameter.name: {
                "unit": parameter.unit,
                "mean": float(values[:, i].mean()),
                "std": float(values[:, i].std()),
                "ci95": parameter.from_unit_interval(self.interval[i]).tolist(),
            }
            for i, parameter in enumerate(self.parameters)
        }
        return {**self.certificate.to_json(), "parameters": of_parameters}


def correct(
    likelihoods: Likelihoods,
    draws: Draws,
    samples: int,
    *,
    starts: Array | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Draws, list[Certificate]]:
    """Samples of the posterior of each curve, for a prior that is even in the ranges, and their certificates.

    Args:
      draws: of a network, of those curves; `DRAWS_PER_SAMPLE` for each of the samples will do.
      samples: of each curve.
      starts: labels [curves, starts, p] in or near the posterior's mass, beside draws of the network.
      seed: of the draw; what is drawn of a curve also depends on its place among the curves.
      progress: called with (done, total) curves.
    """
    count = len(draws.labels)
    generators = [np.random.default_rng([seed, i]) for i in range(count)]
    found: dict[int, SampledPosterior] = {}
    with one_thread_a_product():
        weighted = side_by_side(
            lambda i: _weighted(likelihoods, draws, i, generators[i]), range(count)
        )
        best = np.array(draws.labels[:, -_STARTS:])
        for i, one in enumerate(weighted):
            heaviest = one.labels[np.argsort(-one.log_weights)[:_STARTS]]
            best[i, : len(heaviest)] = heaviest
            if one.converged and one.effective_samples >= _LEAST_SHARE * samples:
                found[i] = one
            if progress:
                progress(len(found), count)
        left = [i for i in range(count) if i not in found]
        begun = np.concatenate([best, draws.labels[:, :_STARTS]], axis=1)
        begun = begun if starts is None else np.concatenate([starts, begun], axis=1)
        enough = max(1.5 * FEWEST_SAMPLES, _SAMPLED_SHARE * samples)
        corrected = set(found)
        if suits(likelihoods):
            found |= sample_about_modes(
                likelihoods,
                begun,
                generators,
                enough,
                left,
                progress and (lambda done, _: progress(len(corrected) + done, count)),
            )
            left = [i for i in left if i not in found]
        finished = sample_posteriors(
            likelihoods,
            begun,
            generators,
            enough=enough,
            chosen=left,
            progress=progress and (lambda done, _: progress(count - len(left) + done, count)),
        )
        found |= dict(zip(left, finished, strict=True))
        labels = np.array(draws.labels[:, :samples])
        density = np.array(draws.log_density[:, :samples])
        certificates = []
        for i in range(count):
            status: Status = "corrected" if i in corrected else "resampled"
            certificate, drawn = _certified(
                likelihoods, i, found[i], status, samples, generators[i]
            )
            certificates.append(certificate)
            if certificate.is_exact:
                labels[i] = found[i].labels[drawn]
                density[i] = _log_likelihood(likelihoods, i, found[i], drawn)
                density[i] -= found[i].log_evidence
    return Draws(labels, density), certificates


def _weighted(
    likelihoods: Likelihoods, draws: Draws, curve: int, generator: np.random.Generator
) -> SampledPosterior:
    labels = likelihoods.with_errors(curve, draws.labels[curve], generator)
    if labels is None:
        return SampledPosterior.of(draws.labels[curve], np.full(draws.labels.shape[1], -np.inf))
    row, ratios = slice(curve, curve + 1), np.full(len(labels), -np.inf)
    density = ratios.copy()
    # A shift may have left the ranges.
    inside = np.flatnonzero(((labels >= 0.0) & (labels <= 1.0)).all(axis=1))
    bounds = [0, *range(_FIRST_DRAWS, len(inside), _CHUNK), len(inside)]
    for first, end in itertools.pairwise(bounds if len(inside) else ()):
        part = inside[first:end]
        density[part] = likelihoods.log_density(row, labels[part])
        ratios[part] = density[part] - draws.log_density[curve, part]
        if first == 0 and effective_number(ratios) < _HOPEFUL_SHARE * end:
            tried = part[-1] + 1
            labels, ratios, density = labels[:tried], ratios[:tried], density[:tried]
            break
    return SampledPosterior.of(labels, ratios, len(labels), likelihoods.nuisances, density)


def _log_likelihood(
    likelihoods: Likelihoods, curve: int, posterior: SampledPosterior, drawn: NDArray[np.intp]
) -> Array:
    """Logarithm of the likelihood of the weighted draws at these places, errors integrated over; of each one once."""
    if posterior.log_likelihood is not None:
        return posterior.log_likelihood[drawn]
    places, back = np.unique(drawn, return_inverse=True)
    points = posterior.with_errors[places]
    parts = [
        likelihoods.marginal(curve, part)
        for part in np.array_split(points, -(-len(points) // _CHUNK))
    ]
    return np.asarray(np.concatenate(parts)[back])


def _certified(
    likelihoods: Likelihoods,
    curve: int,
    posterior: SampledPosterior,
    status: Status,
    samples: int,
    generator: np.random.Generator,
) -> tuple[Certificate, NDArray[np.intp]]:
    """The certificate of one curve, and which of the weighted draws are its samples, [samples]."""
    drawn = np.empty(0, np.intp)
    k, worth = posterior.pareto_k, posterior.effective_samples
    if not worth:
        reason = "the likelihood is not finite where samples were tried"
        return Certificate("do not trust", reason), drawn
    known: dict[str, Any] = {"pareto_k": k, "effective_draws": worth}
    if not posterior.converged:
        reason = f"sampling did not converge: Pareto k {k:.2g}"
        reason += f" (at most {LARGEST_K:g})" if k > LARGEST_K else f", worth {worth:.0f} draws"
        return Certificate("do not trust", reason, **known), drawn
    drawn = posterior.resampled(samples, generator)
    narrow = np.sqrt(posterior.variance) < _NARROWEST
    if narrow.any():
        names = [
            p.name
            for p, is_narrow in zip(likelihoods.law.identified, narrow, strict=True)
            if is_narrow
        ]
        reason = f"the posterior is degenerate: a single value of {', '.join(names)}"
        return Certificate("do not trust", reason, **known), drawn
    few = posterior.with_errors[drawn[:_CHECKED]]
    checked = likelihoods.predictive_p(curve, few, generator)
    if checked is not None:
        p, alone = checked
        known |= {"posterior_predictive_p": p, "independent_noise_p": alone}
        if not p >= LEAST_P:
            reason = (
                f"the errors are unlike those of the likelihood (posterior predictive p {p:.1g})"
            )
            return Certificate("do not trust", reason, **known), drawn
    return Certificate(status, **known), drawn

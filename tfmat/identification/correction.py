"""A network's samples, corrected with the law's likelihood, and what each answer's are worth. NumPy only.

Draws of the network, and wider ones, are weighted by likelihood over their density, Pareto-smoothed (see
`weighted_draws`). Where the tail of the weights says that this does not do, sampling goes on from them: about the
modes, where labels are few (see `mode_sampling`), where that does not do either, by the adaptive sampler (see
`posterior_sampling`), and at last by Markov chains (see `chains`). It is the order of M. Schmitt et al., Amortized
Bayesian workflow, 2024, arXiv:2409.04332.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.certificate import Certificate, Status
from tfmat.identification.chains import sample_by_chains
from tfmat.identification.draws import Draws
from tfmat.identification.likelihood import Likelihoods
from tfmat.identification.mode_sampling import sample_about_modes, suits
from tfmat.identification.posterior_sampling import sample_posteriors
from tfmat.identification.side_by_side import in_processes, one_thread_a_product
from tfmat.identification.weighted_draws import (
    FEWEST_SAMPLES,
    SampledPosterior,
    effective_number,
    import_statistics,
)
from tfmat.materials.law import Array

# Draws for each sample that is asked for, as `Identifier.proposals` gives them: few samples are then there twice.
_DRAWS_PER_SAMPLE = 2
# Weighted draws that are worth fewer than this share of the samples are not made into so many.
_LEAST_SHARE = 0.3
# Draws that sampling makes are to be worth this share of the samples: then few samples are there twice.
_SAMPLED_SHARE = 0.6
# Draws that are weighted first, too few for a tail to be fitted, and the share of them that has to count for the others
# to be weighted too.
_FIRST_DRAWS, _HOPEFUL_SHARE = 48, 0.5 * _LEAST_SHARE / _DRAWS_PER_SAMPLE
# Draws of the network that sampling starts from: those of the largest weights, and others.
_STARTS = 4
# Samples that a posterior predictive check takes, and the probability below which no answer is trusted.
_CHECKED, LEAST_P = 200, 1e-3
_UNLIKE = "the errors are unlike those of the likelihood (posterior predictive p {:.1g})"
# Labels (0-1) whose posterior is narrower than this are as good as one number.
_NARROWEST = 1e-7
# Curves that the adaptive sampler takes together: a few cost nearly as much as many, and each is a process's work.
_TOGETHER = 12
# Rows of labels that a law answers together.
_CHUNK = 512

Progress = Callable[[int, int], None]


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
      draws: of a network, of those curves, such as `Identifier.proposals` gives for so many samples.
      samples: of each curve.
      starts: labels [curves, starts, p] in or near the posterior's mass, beside draws of the network.
      seed: of the draw; what is drawn of a curve also depends on its place among the curves.
      progress: called with (done, total) curves.
    """
    work = _Correction(likelihoods, draws, samples, starts)
    count = len(draws.labels)
    labels = np.clip(draws.labels[:, :samples], 0.0, 1.0)
    density = np.array(draws.log_density[:, :samples])
    certificates = [Certificate("amortised")] * count
    left: list[_Left] = []

    def take(curve: int, answer: "_Answer") -> None:
        certificates[curve] = answer.certificate
        if answer.labels is not None:
            labels[curve], density[curve] = answer.labels, answer.log_density

    import_statistics()  # once, before processes are forked
    with one_thread_a_product():
        begun = [(i, np.random.default_rng([seed, i])) for i in range(count)]
        for curve, found in enumerate(in_processes(work.begun, begun)):
            if isinstance(found, _Left):
                left.append(found)
            else:
                take(curve, found)
            if progress:
                progress(curve + 1 - len(left), count)
        # Groups are the same whatever the number of processes, and so are the answers to the last digit.
        groups = [left[i : i + _TOGETHER] for i in range(0, len(left), _TOGETHER)]
        done, unsettled = count - len(left), list[_Unsettled]()
        for group, answers in zip(groups, in_processes(work.sampled, groups), strict=True):
            for one, answer in zip(group, answers, strict=True):
                if isinstance(answer, _Unsettled):
                    unsettled.append(answer)
                    continue
                take(one.curve, answer)
                done += 1
            if progress:
                progress(done, count)
        for last in unsettled:
            take(last.curve, work.by_chains(last))
            done += 1
            if progress:
                progress(done, count)
    return Draws(labels, density), certificates


@dataclasses.dataclass(frozen=True)
class _Answer:
    """What became of one curve.

    Attributes:
      labels, log_density: of its samples, [samples, p] and [samples]; None where they stay the network's own.
    """

    certificate: Certificate
    labels: Array | None = None
    log_density: Array | None = None


@dataclasses.dataclass(frozen=True)
class _Left:
    """A curve that is left to the adaptive sampler, with starts [starts, p]."""

    curve: int
    starts: Array
    generator: np.random.Generator


@dataclasses.dataclass(frozen=True)
class _Unsettled:
    """A curve that the adaptive sampler leaves to chains."""

    curve: int
    found: SampledPosterior
    generator: np.random.Generator


@dataclasses.dataclass(frozen=True)
class _Correction:
    """The work on each curve; see `correct`."""

    likelihoods: Likelihoods
    draws: Draws
    samples: int
    starts: Array | None

    @property
    def enough(self) -> float:
        """Independent draws that those of sampling are to be worth."""
        return max(1.5 * FEWEST_SAMPLES, _SAMPLED_SHARE * self.samples)

    def begun(self, item: tuple[int, np.random.Generator]) -> _Answer | _Left:
        """Weighs the network's draws of a curve, and samples about the modes where that does not do."""
        curve, generator = item
        weighted = _weighted(self.likelihoods, self.draws, curve, generator)
        if weighted.converged and weighted.effective_samples >= _LEAST_SHARE * self.samples:
            return self._answer(curve, weighted, "corrected", generator)
        own = self.draws.labels[curve]
        heaviest = weighted.labels[np.argsort(-weighted.log_weights)[:_STARTS]]
        best = np.array(own[-_STARTS:])
        best[: len(heaviest)] = heaviest
        given = [] if self.starts is None else [self.starts[curve]]
        starts = np.concatenate([*given, best, own[:_STARTS]])
        found = None
        if suits(self.likelihoods):
            found = sample_about_modes(self.likelihoods, curve, starts, generator, self.enough)
        if found is None:
            return _Left(curve, starts, generator)
        return self._answer(curve, found, "resampled", generator)

    def sampled(self, group: Sequence[_Left]) -> list[_Answer | _Unsettled]:
        """Adaptive sampling of a few curves at once."""
        curves = [one.curve for one in group]
        starts = np.zeros((len(self.likelihoods), *group[0].starts.shape))
        starts[curves] = [one.starts for one in group]
        generators = {one.curve: one.generator for one in group}
        found = sample_posteriors(
            self.likelihoods, starts, generators, enough=self.enough, chosen=curves
        )
        least = max(FEWEST_SAMPLES, _LEAST_SHARE * self.samples)
        return [
            self._answer(curve, posterior, "resampled", generators[curve])
            if posterior.converged and posterior.effective_samples >= least
            else _Unsettled(curve, posterior, generators[curve])
            for curve, posterior in zip(curves, found, strict=True)
        ]

    def by_chains(self, left: _Unsettled) -> _Answer:
        """Markov chains that begin where adaptive sampling came to; its processes are those of one curve."""
        found, generator = left.found, left.generator
        status: Status = "resampled"
        if found.effective_samples:
            # Chains take minutes where the law is slow: none for errors with which no answer is trusted.
            few = found.resampled(_CHECKED, generator)
            checked = self._checked(left.curve, found, few, generator)
            if checked is None or checked[0] >= LEAST_P:
                walked = sample_by_chains(
                    self.likelihoods, left.curve, found, generator, self.enough
                )
                # Few draws that converged are better than chains that did not.
                if walked.converged or not found.converged:
                    found, status = walked, "chains"
        return self._answer(left.curve, found, status, generator)

    def _answer(
        self, curve: int, found: SampledPosterior, status: Status, generator: np.random.Generator
    ) -> _Answer:
        """The certificate of one curve and, where it is exact, as many samples as are asked for."""
        if not found.effective_samples:
            reason = "the likelihood is not finite where samples were tried"
            return _Answer(Certificate("do not trust", reason))
        drawn = found.resampled(self.samples, generator)
        known: dict[str, Any] = {
            "pareto_k": found.pareto_k if found.r_hat is None else None,
            "r_hat": found.r_hat,
            "effective_draws": found.effective_samples,
        }
        # The first thing that is wrong is what is said; no others are looked for.
        reason = self._degenerate(found)
        if not reason:
            checked = self._checked(curve, found, drawn[:_CHECKED], generator)
            if checked is not None:
                p, known["independent_noise_p"] = checked
                known["posterior_predictive_p"] = p
                reason = "" if p >= LEAST_P else _UNLIKE.format(p)
        if not reason and found.shortcoming:
            reason = f"sampling did not converge: {found.shortcoming}"
        if reason:
            return _Answer(Certificate("do not trust", reason, **known))
        density = _log_likelihood(self.likelihoods, curve, found, drawn) - found.log_evidence
        return _Answer(Certificate(status, **known), found.labels[drawn], density)

    def _degenerate(self, found: SampledPosterior) -> str:
        """Why a posterior that converged is no more than one number; empty where it is more."""
        if not found.converged:
            return ""
        pairs = zip(self.likelihoods.law.identified, np.sqrt(found.variance), strict=True)
        names = [parameter.name for parameter, std in pairs if std < _NARROWEST]
        return f"the posterior is degenerate: a single value of {', '.join(names)}" if names else ""

    def _checked(
        self,
        curve: int,
        found: SampledPosterior,
        drawn: NDArray[np.intp],
        generator: np.random.Generator,
    ) -> tuple[float, float] | None:
        """See `Likelihoods.predictive_p`; of the weighted draws at these places."""
        return self.likelihoods.predictive_p(curve, found.with_errors[drawn], generator)


def _weighted(
    likelihoods: Likelihoods, draws: Draws, curve: int, generator: np.random.Generator
) -> SampledPosterior:
    labels = likelihoods.with_errors(curve, draws.labels[curve], generator)
    if labels is None:
        return SampledPosterior.of(draws.labels[curve], np.full(draws.labels.shape[1], -np.inf))
    row, ratios = slice(curve, curve + 1), np.full(len(labels), -np.inf)
    proposed = draws.log_density if draws.proposed is None else draws.proposed
    density = ratios.copy()
    # A shift may have left the ranges.
    inside = np.flatnonzero(((labels >= 0.0) & (labels <= 1.0)).all(axis=1))
    bounds = [0, *range(_FIRST_DRAWS, len(inside), _CHUNK), len(inside)]
    for first, end in itertools.pairwise(bounds if len(inside) else ()):
        part = inside[first:end]
        density[part] = likelihoods.log_density(row, labels[part])
        ratios[part] = density[part] - proposed[curve, part]
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

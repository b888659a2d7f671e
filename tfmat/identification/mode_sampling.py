"""Posteriors by importance sampling about their modes: quick where few parameters make few modes. NumPy only.

A few starts climb to the modes of the likelihood. Draws come from kernels there, Student's t with the curvature of the
law's own answer (see `kernels`), and are weighted; no draw needs derivatives. Where the weights say that this does not
do, the kernels are put at draws that are resampled by their weights, once and again (O. Cappé, A. Guillin, J.-M. Marin,
C. P. Robert, Population Monte Carlo, J. Comput. Graph. Statist. 13 (2004) 907-929). Kernels that an answer's draws come
from never depend on these draws themselves.
"""

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.conditional_draws import Moduli
from tfmat.identification.kernels import Kernels
from tfmat.identification.likelihood import PRIOR_VARIANCE, Likelihoods
from tfmat.identification.start_values import even_labels
from tfmat.identification.weighted_draws import (
    LARGEST_K,
    SampledPosterior,
    effective_number,
    resampled_places,
)
from tfmat.materials.law import Array

# More labels than these have too many directions for kernels to cover.
_MOST_LABELS = 6
# Labels all over the ranges that climb beside the given starts; all climb so many steps, and the best so many further.
_EXPLORERS, _FIRST_STEPS = 4, 4
_BEST, _FURTHER_STEPS = 4, 6
# A label that is known less well than this makes a ridge, which is followed to so many standard deviations.
_KNOWN, _AWAY = 0.02, np.array([-12.0, -6.0, -3.0, -1.5, 1.5, 3.0, 6.0, 12.0])
# Of the first kernels none is drawn from less often than exp(-_LEAST) times the best.
_LEAST, _FLATTENED = 4.0, 0.3
# A round's draws, the kernels that the next ones come from, and the rounds after which the curve is given up.
_DRAWS, _KERNELS, _PATIENT_ROUNDS, _MOST_ROUNDS = 256, 32, 2, 6
# The kernels do where such a share of their draws counts, or after all rounds but one the lower share; the answer takes
# no more than so many draws.
_GOOD_SHARE, _LEAST_SHARE, _MOST_DRAWS = 0.35, 0.1, 6144
# The draws are to be worth so many times what is enough, since the tail of their weights is smoothed.
_SPARE = 1.1
# How much longer than the curvature says the longest kernels are.
_WIDE = 3.0
# Weights are flattened until this share of a round's draws counts where the next kernels stand.
_SHARE = 0.15


def suits(likelihoods: Likelihoods) -> bool:
    """Whether labels are few, and no terms can change places: variances of such terms came out a fifth too small."""
    law = likelihoods.law
    return (
        len(law.identified) + likelihoods.nuisances <= _MOST_LABELS
        and not law.label_columns_of_terms
    )


def sample_about_modes(
    likelihoods: Likelihoods,
    curve: int,
    starts: Array,
    generator: np.random.Generator,
    enough: float,
) -> SampledPosterior | None:
    """The posterior of one curve; None where so few draws of these kernels count that it is not to be relied on.

    Args:
      starts: labels [starts, p] in or near the posterior's mass.
      enough: independent draws that the answer's are worth.
    """
    shapes = Moduli(likelihoods, conditional=False)
    return _Curve(shapes, curve, generator).sampled(starts, enough)


class _Curve:
    def __init__(self, shapes: Moduli, index: int, generator: np.random.Generator):
        self.shapes, self.index, self.generator = shapes, index, generator

    def sampled(self, starts: Array, enough: float) -> SampledPosterior | None:
        """See `sample_about_modes`."""
        kernels, rounds = self._at_modes(starts), list[Kernels]()
        labels, density = np.empty((0, len(self.shapes.shapes))), np.empty(0)
        for number in range(_MOST_ROUNDS):
            rounds.append(kernels)
            drawn, heights = self._drawn(kernels, _DRAWS)
            ratios = heights - kernels.log_density(drawn)
            least = _GOOD_SHARE if number < _PATIENT_ROUNDS else _LEAST_SHARE
            if effective_number(ratios) >= least * _DRAWS:
                found = self._settled(kernels, drawn, heights, ratios, enough)
                if found.pareto_k <= LARGEST_K and found.effective_samples >= enough:
                    return found
            labels, density = np.concatenate([labels, drawn]), np.append(density, heights)
            if not np.isfinite(density).any():
                return None
            mixture = np.logaddexp.reduce([each.log_density(labels) for each in rounds])
            chosen = resampled_places(density - mixture, _KERNELS, _SHARE * _DRAWS, self.generator)
            kernels = self._standing(labels, chosen)
        return None

    def _settled(
        self, kernels: Kernels, drawn: Array, heights: Array, ratios: Array, enough: float
    ) -> SampledPosterior:
        """The posterior by draws [k, p] of these kernels and as many more as are needed."""
        proposals = _DRAWS
        while proposals < _MOST_DRAWS and (worth := effective_number(ratios)) < _SPARE * enough:
            wanted = proposals * (_SPARE * enough / worth - 1.0)
            count = int(np.clip(wanted, _DRAWS // 4, _MOST_DRAWS - proposals))
            more, heights_of_more = self._drawn(kernels, count)
            drawn, heights = np.concatenate([drawn, more]), np.append(heights, heights_of_more)
            ratios = np.append(ratios, heights_of_more - kernels.log_density(more))
            proposals += count
        errors = self.shapes.likelihoods.nuisances
        return SampledPosterior.of(drawn, ratios, proposals, errors, heights)

    def _at_modes(self, starts: Array) -> Kernels:
        labels = len(self.shapes.shapes)
        errors = np.full((len(starts), labels - starts.shape[1]), 0.5)
        given = np.concatenate([np.clip(starts, 0.0, 1.0), errors], axis=1)
        tried = np.concatenate([given, self.shapes.sorted_shapes(even_labels(_EXPLORERS, labels))])
        tried, density, _ = self._climbed(tried, _FIRST_STEPS)
        tried = tried[np.argsort(-density)[:_BEST]]
        modes, density, information = self._climbed(tried, _FURTHER_STEPS)
        best = int(np.argmax(density))
        ridge = self._along(modes[best], information[best])
        found = [modes, density, information]
        if len(ridge):
            found = [np.concatenate(pair) for pair in zip(found, ridge, strict=True)]
        return self._kernels(*found)

    def _kernels(self, centres: Array, density: Array, information: Array) -> Kernels:
        """Kernels at centres [k, p], drawn from in proportion to the mass about them, but flattened."""
        prior = np.eye(centres.shape[1]) / PRIOR_VARIANCE
        mass = density - 0.5 * np.linalg.slogdet(information + prior)[1]
        best = mass.max()
        heights = _FLATTENED * (mass - (best if np.isfinite(best) else 0.0))
        shares = np.exp(np.maximum(np.nan_to_num(heights, nan=-_LEAST), -_LEAST))
        return Kernels(centres, information, shares / shares.sum(), self.shapes.orders, _WIDE)

    def _along(self, mode: Array, information: Array) -> tuple[Array, ...]:
        """The ridge through a mode: the least known label moved and held, the others fitted anew; none if it is known.

        Where curvature at the mode says little of how far a bent ridge goes on.
        """
        covariance = np.linalg.inv(information + np.eye(len(mode)) / PRIOR_VARIANCE)
        least = int(np.argmax(np.diag(covariance)))
        variance = covariance[least, least]
        if not variance > _KNOWN**2:
            return ()
        moved = np.clip(mode[least] + _AWAY * np.sqrt(variance), 0.0, 1.0) - mode[least]
        moved = np.unique(moved[np.abs(moved) > 1e-6])
        start = np.clip(mode + moved[:, None] * covariance[least] / variance, 0.0, 1.0)
        held = np.zeros(start.shape, np.bool_)
        held[:, least] = True
        return self._climbed(start, _FIRST_STEPS, held)

    def _climbed(
        self, labels: Array, steps: int, held: NDArray[np.bool_] | None = None
    ) -> tuple[Array, Array, Array]:
        return self.shapes.climb(np.full(len(labels), self.index), labels, steps, held)

    def _standing(self, labels: Array, chosen: NDArray[np.intp]) -> Kernels:
        """Kernels at the chosen labels, each drawn from as often as it was chosen."""
        places, times = np.unique(chosen, return_counts=True)
        centres, _, information = self._climbed(labels[places], 0)
        return Kernels(centres, information, times / times.sum(), self.shapes.orders, _WIDE)

    def _drawn(self, kernels: Kernels, count: int) -> tuple[Array, Array]:
        """Draws inside the ranges, and their log likelihoods."""
        drawn = self.shapes.sorted_shapes(kernels.draw(count, self.generator))
        drawn = drawn[((drawn >= 0.0) & (drawn <= 1.0)).all(axis=1)]
        return drawn, self.shapes.log_likelihood(np.full(len(drawn), self.index), drawn)

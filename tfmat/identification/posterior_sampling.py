"""Posteriors of many curves at once, of any number of labels, by adaptive importance sampling. NumPy only.

Of a law's parameters those that stress is nearly linear in, the moduli, are drawn given the others, the shapes (see
`conditional_draws`). The shapes, seldom more than four, are drawn from a mixture of kernels, Student's t of three
widths, that stand at earlier draws and follow the law's own curvature there. It grows from round to round at draws that
are resampled by their weights, and all draws are weighted with the whole mixture so far (J.-M. Cornuet et al., Adaptive
multiple importance sampling, Scand. J. Statist. 39 (2012) 798-812); the answer is made of fresh draws from the mixture
that this has led to. What they are worth `weighted_draws` tells.

The law answers in blocks of thousands, so that some tens of curves are sampled side by side.
"""

import collections
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfmat.identification.conditional_draws import Moduli, Solved
from tfmat.identification.kernels import Kernels
from tfmat.identification.likelihood import Likelihoods
from tfmat.identification.start_values import even_labels
from tfmat.identification.weighted_draws import LARGEST_K, SampledPosterior, resampled_places
from tfmat.materials.law import Array

# The mixture is adapted until its draws are worth so many, in so many rounds. Where kernels stand depends on the draws,
# so that variances by these are a little too small: they are taken from the last draws alone, which come from a mixture
# that no longer changes, without the first rounds' kernels.
_ENOUGH = 150.0
_DRAWS, _KERNELS = 96, 48
_FEWEST_ROUNDS, _MOST_ROUNDS, _UNSETTLED = 6, 40, 2
# The last draws come so many at a time, until they are worth so many; where too small a share of them counts, or they
# are too many, the mixture is adapted further.
_LAST_DRAWS, _LAST_ENOUGH, _LEAST_SHARE, _MOST_FRESH = 384, 150.0, 0.08, 6
# Labels that fill the range of the shapes evenly, beside the given starts, and the Gauss-Newton steps to their moduli.
_EXPLORERS, _FIRST_STEPS, _STEPS = 32, 5, 1
# Of the first kernels none is drawn from less often than exp(-_LEAST) times the best: a start may be on a slope.
_LEAST, _FLATTENED = 4.0, 0.3
# Weights are flattened until this share of a round's draws counts where the next kernels stand.
_SHARE = 0.15
# Curves that are sampled side by side.
_TOGETHER = 48

Progress = Callable[[int, int], None]
Generators = Sequence[np.random.Generator] | Mapping[int, np.random.Generator]


def sample_posteriors(
    likelihoods: Likelihoods,
    starts: Array,
    generators: Generators,
    progress: Progress | None = None,
    enough: float = _LAST_ENOUGH,
    chosen: Sequence[int] | None = None,
) -> list[SampledPosterior]:
    """The posterior of the labels of each curve, for a prior that is even in 0-1; its errors are integrated over.

    Args:
      starts: labels [curves, starts, p] in or near the posterior's mass: the best fit, say, or draws of a network.
      generators: where chance comes from, one a curve, so that its answer does not depend on the others.
      progress: called with (done, total) curves.
      enough: independent draws that the answer's are worth, where it converges.
      chosen: which of the curves are sampled; None is all.
    """
    chosen = range(len(likelihoods)) if chosen is None else chosen
    moduli = Moduli(likelihoods)
    waiting = collections.deque(chosen)
    found: dict[int, SampledPosterior] = {}
    active: list[_Curve] = []
    while waiting or active:
        joining = [waiting.popleft() for _ in range(min(_TOGETHER - len(active), len(waiting)))]
        # A few at a time cost nearly as much as many.
        active += _begun(moduli, joining, starts, generators, enough)
        found |= _draw_round(moduli, active)
        active = [curve for curve in active if curve.index not in found]
        if progress:
            progress(len(found), len(chosen))
    return [found[i] for i in chosen]


class _Curve:
    """The sampling of one curve: its kernels so far, and its draws with what is known at each."""

    def __init__(self, moduli: Moduli, index: int, generator: np.random.Generator, enough: float):
        self.moduli, self.index, self.generator = moduli, index, generator
        self.enough, self.most_fresh = enough, int(_MOST_FRESH * enough / _LAST_ENOUGH)
        self.rounds: list[tuple[Kernels, Solved]] = []
        self.labels = np.empty((0, len(moduli.shapes) + len(moduli.moduli)))
        self.solved: Solved | None = None
        # Logarithms: of the likelihood over the density of the moduli, and of the sum of all rounds' mixtures times
        # their draws, those outside of the ranges included.
        self.log_ratio, self.log_mixture = np.empty(0), np.empty(0)
        # How much the draws must be worth before the last ones are made, and whether these are due.
        self.wanted, self.last = _ENOUGH, False
        self.fresh: list[tuple[Array, Array]] = []

    def stand(self, shapes: Array, solved: Solved, shares: Array) -> None:
        """Puts the next round's kernels at shapes [k, q], each drawn from in proportion to `shares`."""
        kernels = Kernels(shapes, solved.curvature, shares, self.moduli.orders)
        self.rounds.append((kernels, solved))
        if len(self.labels):
            added = kernels.log_density(self.labels[:, self.moduli.shapes])
            self.log_mixture = np.logaddexp(self.log_mixture, added)

    def draw(self) -> tuple[Array, Array, Array]:
        """New draws inside their ranges, from the last kernels; the last draws of all from those that have settled.

        Returns:
          Shapes [k, q], shares of the moduli to start from [k, m], and the logarithm [k] of what weights are taken by.
        """
        settled = self.rounds[_UNSETTLED:] if self.last else self.rounds[-1:]
        count = self._of_each_round if self.last else _DRAWS
        drawn = [kernels.draw(count, self.generator) for kernels, _ in settled]
        shapes = self.moduli.sorted_shapes(np.concatenate(drawn))
        shapes = shapes[((shapes >= 0.0) & (shapes <= 1.0)).all(axis=1)]
        mixture, nearness = np.full(len(shapes), -np.inf), np.full(len(shapes), -np.inf)
        start = np.empty((len(shapes), len(self.moduli.moduli)))
        for i, (kernels, solved) in enumerate(self.rounds):
            density, at, height = kernels.log_density_and_nearest(shapes)
            if not self.last or i >= _UNSETTLED:
                mixture = np.logaddexp(mixture, density)
            moved = shapes - kernels.centres[at]
            predicted = solved.best[at] + (solved.slope[at] @ moved[:, :, None])[:, :, 0]
            nearer = height > nearness
            nearness = np.where(nearer, height, nearness)
            start = np.where(nearer[:, None], predicted, start)
        return shapes, start, mixture

    def take(
        self, labels: Array, log_ratio: Array, log_mixture: Array, solved: Solved
    ) -> SampledPosterior | None:
        """Takes a round's draws, labels [k, p] and logarithms [k]; returns the posterior where these were the last."""
        if self.last:
            self.fresh.append((labels, log_ratio - log_mixture))
            # The mixture is the sum of its rounds' densities, not their mean.
            proposals = float(self._of_each_round * len(self.fresh))
            all_labels, log_ratios = map(np.concatenate, zip(*self.fresh, strict=True))
            found = self._posterior(all_labels, log_ratios, proposals)
            share = found.effective_samples / (_LAST_DRAWS * len(self.fresh))
            enough = found.pareto_k <= LARGEST_K and found.effective_samples >= self.enough
            worn = len(self.fresh) >= self.most_fresh
            tired = len(self.rounds) >= _MOST_ROUNDS and worn
            if enough or tired:
                return found
            if len(self.rounds) < _MOST_ROUNDS and (share < _LEAST_SHARE or worn):
                self.last, self.fresh, self.wanted = False, [], 2.0 * self.wanted
                self._stand_anew()
            return None
        self.labels = np.concatenate([self.labels, labels])
        self.log_ratio = np.concatenate([self.log_ratio, log_ratio])
        self.log_mixture = np.concatenate([self.log_mixture, log_mixture])
        self.solved = solved if self.solved is None else self.solved.joined(solved)
        if len(self.rounds) >= _FEWEST_ROUNDS:
            found = self._posterior(self.labels, self.log_ratio - self.log_mixture)
            self.last = found.pareto_k <= LARGEST_K and found.effective_samples >= self.wanted
            self.last |= len(self.rounds) == _MOST_ROUNDS
        if not self.last:
            self._stand_anew()
        return None

    @property
    def _of_each_round(self) -> int:
        """Last draws of each round's mixture, at a time."""
        return -(-_LAST_DRAWS // (len(self.rounds) - _UNSETTLED))

    def _posterior(
        self, labels: Array, log_ratios: Array, proposals: float = np.nan
    ) -> SampledPosterior:
        errors = self.moduli.likelihoods.nuisances
        return SampledPosterior.of(labels, log_ratios, proposals, errors)

    def _stand_anew(self) -> None:
        assert self.solved is not None
        log_ratios = self.log_ratio - self.log_mixture
        chosen = resampled_places(log_ratios, _KERNELS, _SHARE * _DRAWS, self.generator)
        shapes = self.labels[chosen][:, self.moduli.shapes]
        self.stand(shapes, self.solved.rows(chosen), np.full(len(chosen), 1.0 / len(chosen)))


def _begun(
    moduli: Moduli,
    curves: list[int],
    starts: Array,
    generators: Generators,
    enough: float,
) -> list[_Curve]:
    """Curves with their first kernels: at their starts, and at labels that fill the ranges of the shapes evenly."""
    if not curves:
        return []
    even = moduli.sorted_shapes(even_labels(_EXPLORERS, len(moduli.shapes)))
    # Errors that are integrated over begin in the middle of their ranges.
    errors = (*starts[curves].shape[:2], moduli.likelihoods.nuisances)
    given = np.concatenate([np.clip(starts[curves], 0.0, 1.0), np.full(errors, 0.5)], axis=2)
    each = given.shape[1] + len(even)
    explorers = np.broadcast_to(even, (len(curves), *even.shape))
    shapes = np.concatenate([given[:, :, moduli.shapes], explorers], axis=1)
    first = np.repeat(given[:, :1], len(even), axis=1)
    known = np.concatenate([given, first], axis=1).reshape(len(curves) * each, -1)
    shapes = shapes.reshape(len(curves) * each, -1)
    solved = moduli.solve(np.repeat(curves, each), shapes, moduli.shares(known), _FIRST_STEPS)
    begun = []
    for i, index in enumerate(curves):
        rows = slice(i * each, (i + 1) * each)
        curve, own = _Curve(moduli, index, generators[index], enough), solved.rows(rows)
        best = own.log_mass.max()
        heights = _FLATTENED * (own.log_mass - (best if np.isfinite(best) else 0.0))
        shares = np.exp(np.maximum(heights, -_LEAST))
        curve.stand(shapes[rows], own, shares / shares.sum())
        begun.append(curve)
    return begun


def _draw_round(moduli: Moduli, curves: list[_Curve]) -> dict[int, SampledPosterior]:
    """One round of draws of every curve, in common calls of the law; returns the posteriors that are finished."""
    drawn = [curve.draw() for curve in curves]
    ends = np.cumsum([0, *(len(shapes) for shapes, *_ in drawn)])
    rows = np.repeat([curve.index for curve in curves], np.diff(ends))
    shapes, start, log_mixture = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    chances = [
        curve.generator.random((count, len(moduli.moduli), 2))
        for curve, count in zip(curves, np.diff(ends), strict=True)
    ]
    solved = moduli.solve(rows, shapes, start, _STEPS)
    drawn_moduli, log_density = moduli.draw(solved, np.concatenate(chances))
    labels = moduli.labels(shapes, drawn_moduli)
    log_ratio = moduli.log_likelihood(rows, labels) - log_density
    found = {}
    for curve, first, end in zip(curves, ends[:-1], ends[1:], strict=True):
        part = slice(first, end)
        taken = curve.take(labels[part], log_ratio[part], log_mixture[part], solved.rows(part))
        if taken is not None:
            found[curve.index] = taken
    return found

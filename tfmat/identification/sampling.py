"""Samplers of posteriors, and the cascade of them that is tried until one is good enough. NumPy only.

Every sampler has one signature: it takes a target, proposals, chance, and how many independent draws are enough, and
returns a posterior. Proposals are the posterior so far: draws, and labels to start from. A sampler that comes no nearer
returns them. `SAMPLERS` is the order in which `sample` tries them; each begins where the one before it came to (M.
Schmitt et al., Amortized Bayesian workflow, 2024, arXiv:2409.04332). Where the tail of the weights says that one does
not do, the next one goes on:

* `importance` weighs the proposals themselves, draws of a network, say, by the target.
* `about_modes` draws from kernels at the modes: quick where few parameters make few modes.
* `adaptive` draws from a mixture of kernels that grows where the weights are large, for any number of parameters.
* `chains` are Markov chains.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from tfmat.identification.likelihood import Target
from tfmat.identification.posterior import (
    FEWEST_SAMPLES,
    LARGEST_R_HAT,
    Certificate,
    Posterior,
    import_statistics,
)
from tfmat.launch.processes import in_processes, one_thread_a_product
from tfmat.materials.law import PRIOR_VARIANCE, Array, orders_of
from tfmat.materials.numerics import Expansion, climb, even_labels

# _LEAST_SHARE: the samples that are asked for have to be worth this share of them; a later sampler is tried else.
_LEAST_SHARE = 0.3
# _SAMPLED_SHARE: draws that a sampler makes are to be worth this share of the samples, so that few are there twice.
_SAMPLED_SHARE = 0.6
# _DRAWS_PER_SAMPLE: draws of a network for each sample that is asked for, as `Identifier.proposals` gives them.
_DRAWS_PER_SAMPLE = 2
# _FIRST_DRAWS: proposals that are weighed first, too few for a tail to be fitted.
_FIRST_DRAWS = 48
# _HOPEFUL_SHARE: share of the first proposals that has to count for the others to be weighed too.
_HOPEFUL_SHARE = 0.5 * _LEAST_SHARE / _DRAWS_PER_SAMPLE
# _STARTS: proposals that sampling starts from, of the largest weights and others, so many of each.
_STARTS = 4
# _CHECKED: samples that a posterior predictive check takes.
_CHECKED = 200
# LEAST_P: the posterior predictive probability below which no answer is trusted.
LEAST_P = 1e-3
_UNLIKE = "the errors are unlike those of the likelihood (posterior predictive p {:.1g})"
# _NARROWEST: labels (0-1) whose posterior is narrower are as good as one number.
_NARROWEST = 1e-7
# _CHUNK: rows of labels that a law answers together.
_CHUNK = 512

# _LEAST, _FLATTENED: of the first kernels none is drawn from less often than exp(-_LEAST) times the best, and the
# logarithms of their masses count by _FLATTENED only: a start may be on a slope.
_LEAST, _FLATTENED = 4.0, 0.3
# _SHARE: weights are flattened until this share of a round's draws counts where the next kernels stand.
_SHARE = 0.15

# _FREEDOM: degrees of freedom of kernels: heavier tails than a posterior has inside the bounds of its prior, so that
# weights stay bounded.
_FREEDOM = 5.0
# _PRECISIONS: precisions (of labels) that are added to the curvature: the prior's own, and two that make shorter
# kernels, since a ridge bends away from a long straight one. In standard deviations: 0.29, 0.08, 0.02.
_PRECISIONS = np.array([12.0, 150.0, 2000.0])
# _WIDENING: kernels are so many times as wide as the curvature says.
_WIDENING = 1.2
# _WIDE_SHARE: share of a centre's draws that the longest kernels get, where there are such.
_WIDE_SHARE = 0.15

# _ROWS: rows whose derivatives are worked out together: they are some tens of MB.
_ROWS = 2048
# _CELLS: steps by which a conditional density of one modulus is drawn from.
_CELLS = 64
# _REACH: the steps reach to so many standard deviations.
_REACH = 8.0
# _CELL_FREEDOM: degrees of freedom of that density, which is not quite the normal one.
_CELL_FREEDOM = 10.0
# _FLOOR: what is added to its height, so that weights stay bounded.
_FLOOR = 1e-6
# _LEAST_WIDTH: least width of the steps together.
_LEAST_WIDTH = 1e-12
_MODULUS = "MPa"

# _MOST_LABELS: more labels have too many directions for kernels at modes to cover.
_MOST_LABELS = 6
# _MODE_EXPLORERS: labels all over the ranges that climb beside the given starts; _MODE_FIRST_STEPS: steps of all.
_MODE_EXPLORERS, _MODE_FIRST_STEPS = 4, 4
# _BEST: the best of them go on to climb; _FURTHER_STEPS: their steps.
_BEST, _FURTHER_STEPS = 4, 6
# _KNOWN: a label that is known less well than this standard deviation makes a ridge.
_KNOWN = 0.02
# _AWAY: a ridge is followed to so many standard deviations.
_AWAY = np.array([-12.0, -6.0, -3.0, -1.5, 1.5, 3.0, 6.0, 12.0])
# _MODE_DRAWS: draws of a round; _MODE_KERNELS: kernels that the next round's draws come from.
_MODE_DRAWS, _MODE_KERNELS = 256, 32
# _PATIENT_ROUNDS: rounds in which _GOOD_SHARE has to count; _MODE_ROUNDS: rounds after which the record is given up.
_PATIENT_ROUNDS, _MODE_ROUNDS = 2, 6
# _GOOD_SHARE: kernels do where such a share of their draws counts; _FAIR_SHARE: the same after the patient rounds.
_GOOD_SHARE, _FAIR_SHARE = 0.35, 0.1
# _MODE_MOST_DRAWS: draws of one answer, at most.
_MODE_MOST_DRAWS = 6144
# _SPARE: the draws are to be worth so many times what is enough, since the tail of their weights is smoothed.
_SPARE = 1.1
# _WIDE: how much longer than the curvature says the longest kernels are.
_WIDE = 3.0

# _ENOUGH: the mixture is adapted until its draws are worth so many. Where kernels stand depends on the draws, so that
# variances by these are a little too small: they are taken from the last draws alone, which come from a mixture that no
# longer changes, without the first rounds' kernels.
_ENOUGH = 150.0
# _DRAWS: draws of a round; _KERNELS: kernels that a round adds.
_DRAWS, _KERNELS = 96, 48
# _FEWEST_ROUNDS, _MOST_ROUNDS: rounds of adaption; _UNSETTLED: first rounds whose kernels the last draws leave out.
_FEWEST_ROUNDS, _MOST_ROUNDS, _UNSETTLED = 6, 40, 2
# _LAST_DRAWS: the last draws come so many at a time, until they are worth _LAST_ENOUGH or what is asked for.
_LAST_DRAWS, _LAST_ENOUGH = 384, 150.0
# _FEW_SHARE: where a smaller share of the last draws counts, the mixture is adapted further; so it is after
# _MOST_FRESH times _LAST_DRAWS.
_FEW_SHARE, _MOST_FRESH = 0.08, 6
# _EXPLORERS: labels that fill the range of the shapes evenly, beside the given starts.
_EXPLORERS = 32
# _FIRST_STEPS: Gauss-Newton steps to the moduli of the starts; _STEPS: to the moduli of later draws.
_FIRST_STEPS, _STEPS = 5, 1
# _TOGETHER: records that are sampled side by side.
_TOGETHER = 48

# _ENSEMBLES: ensembles of walkers. Each has _WALKERS, or _WALKERS_PER_LABEL a label where that is more.
_ENSEMBLES, _WALKERS, _WALKERS_PER_LABEL = 4, 48, 4
# _CHAIN_STEPS: steps between two looks at R-hat, whose first half is left out.
_CHAIN_STEPS = 100
# _MOST_CHAIN_STEPS: steps after which the record is given up.
_MOST_CHAIN_STEPS = 800
# _STRETCHED: share of moves that are stretches. emcee's snooker moves would make variances too small until its 3.1.6,
# the last one (github.com/dfm/emcee/pull/531): by a sixth of five labels, where half of all moves are such.
_STRETCHED = 0.2
# _FEWEST_STARTS: fewer draws of earlier sampling are no start.
_FEWEST_STARTS = 100
# _APART: walkers begin so many standard deviations from draws.
_APART = 0.02
# _BRIDGE: draws of the chains that the evidence is by, and as many from Student's t of _FREEDOM.
_BRIDGE, _BRIDGE_STEPS = 1024, 50

Sampler = Callable[[Target, Posterior, np.random.Generator, float], Posterior]
Progress = Callable[[int, int], None]
Generators = Sequence[np.random.Generator] | Mapping[int, np.random.Generator]

# Where an ensemble stands: labels [walkers, p + e], their log densities [walkers], and a legacy generator's state.
_Standing = tuple[Array, Array | None, Any]


class Kernels:
    """A mixture: at each centre a kernel of each width.

    Attributes:
      centres: [k, q].
    """

    def __init__(
        self,
        centres: Array,
        curvature: Array,
        shares: Array,
        orders: list[NDArray[np.intp]],
        wide: float | None = None,
    ):
        """Takes the likelihood's curvature at the centres, [k, q, q].

        Args:
          shares: of the draws that each centre gets, [k]; their sum is 1.
          orders: permutations of the columns that change nothing: draws are sorted, which folds the density.
          wide: a fourth kernel at each centre is so many times as long as the curvature says, for tails that it does
            not know of; None leaves it out.
        """
        self.centres, self._orders = centres, orders
        eigenvalues, vectors = np.linalg.eigh(0.5 * (curvature + np.swapaxes(curvature, 1, 2)))
        known = np.maximum(eigenvalues, 0.0)[:, None]
        inverse_std = np.sqrt(known + _PRECISIONS[:, None]) / _WIDENING
        if wide is not None:
            longer = np.sqrt(known / wide**2 + _PRECISIONS[0] / _WIDENING**2)
            inverse_std = np.concatenate([inverse_std, longer], axis=1)
        self._widths = inverse_std.shape[1]
        of_widths = np.full(self._widths, 1.0 / self._widths)
        if wide is not None:
            of_widths[:] = (1.0 - _WIDE_SHARE) / (self._widths - 1)
            of_widths[-1] = _WIDE_SHARE
        self._shares = np.outer(shares, of_widths).reshape(-1)
        # [k, widths, q, q]: a draw is centre + root @ t, and whitened = inverse_root @ (draw - centre).
        self._roots = vectors[:, None] / inverse_std[:, :, None, :]
        self._inverse_roots = inverse_std[:, :, :, None] * np.swapaxes(vectors, 1, 2)[:, None]
        self._log_determinant = np.log(inverse_std).sum(axis=2)

    def draw(self, count: int, generator: np.random.Generator) -> Array:
        """[count, q], not sorted, and not cut to 0-1."""
        widths, labels = self._widths, self.centres.shape[1]
        sums = np.cumsum(self._shares)
        places = (np.arange(count) + generator.random(count)) / count
        kernel = np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)
        at, width = np.divmod(kernel, widths)
        spread = np.sqrt(_FREEDOM / generator.chisquare(_FREEDOM, (count, 1)))
        whitened = generator.standard_normal((count, labels)) * spread
        return self.centres[at] + (self._roots[at, width] @ whitened[:, :, None])[:, :, 0]

    def log_density(self, points: Array) -> Array:
        """Logarithm of the density of sorted points [n, q]: [n]."""
        return self._mixed(self._heights(points))

    def log_density_and_nearest(self, points: Array) -> tuple[Array, NDArray[np.intp], Array]:
        """The log density, and of each point the centre whose own kernels are the highest there, and how high they are.

        Returns:
          [n], [n] and the height's logarithm, [n].
        """
        count, widths = len(self.centres), self._widths
        heights = self._heights(points)
        own = heights[0].reshape(len(points), count, widths)
        # Width by width: NumPy is slow along a short last axis.
        highest = np.maximum.reduce([own[:, :, i] for i in range(widths)])
        nearest = highest.argmax(axis=1)
        height = highest[np.arange(len(points)), nearest]
        return self._mixed(heights), nearest, height

    def _heights(self, points: Array) -> list[Array]:
        """Logarithms of all kernels' densities, up to a constant, for each order of columns: [n, centres * widths]."""
        count, labels = self.centres.shape
        widths = self._widths
        heights = []
        for order in self._orders:
            # Label by label: sums along a short last axis would take most of the time.
            squares = np.zeros((len(points), count * widths))
            for i in range(labels):
                rows = self._inverse_roots[:, :, i].reshape(count * widths, labels)
                offset = np.einsum("kwj,kj->kw", self._inverse_roots[:, :, i], self.centres)
                whitened = points[:, order] @ rows.T
                whitened -= offset.reshape(-1)
                squares += np.square(whitened, out=whitened)
            squares /= _FREEDOM
            height = np.log1p(squares, out=squares)
            height *= -0.5 * (_FREEDOM + labels)
            height += self._log_determinant.reshape(-1)
            heights.append(height)
        return heights

    def _mixed(self, heights: list[Array]) -> Array:
        """Logarithm of the mixture's density, [n]; overwrites the heights."""
        labels = self.centres.shape[1]
        largest = np.max([height.max(axis=1) for height in heights], axis=0)
        total = np.zeros(len(largest))
        for height in heights:
            height -= largest[:, None]
            total += np.exp(height, out=height) @ self._shares
        constant = (
            scipy.special.gammaln(0.5 * (_FREEDOM + labels))
            - scipy.special.gammaln(0.5 * _FREEDOM)
            - 0.5 * labels * np.log(_FREEDOM * np.pi)
        )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(total) + largest + constant)


@dataclasses.dataclass(frozen=True)
class Solved:
    """The moduli at given shapes [k, q]: m moduli, in shares of their ranges (0 is `low`, 1 is `high`).

    Attributes:
      best: moduli near the largest likelihood, inside their ranges, [k, m].
      mean, covariance: of the normal density that the likelihood nearly is, [k, m] and [k, m, m].
      slope: how `best` moves with the shapes, [k, m, q].
      curvature: Fisher information of the shapes, the moduli being fitted anew, [k, q, q].
      log_mass: logarithm of the likelihood's integral over the moduli, nearly and up to a constant, [k].
    """

    best: Array
    mean: Array
    covariance: Array
    slope: Array
    curvature: Array
    log_mass: Array

    def rows(self, chosen: NDArray[np.integer] | slice) -> "Solved":
        """The fits of the chosen shapes alone."""
        return Solved(*(array[chosen] for array in vars(self).values()))

    def joined(self, other: "Solved") -> "Solved":
        """These rows, and then the rows of `other`."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Solved(*(np.concatenate(pair) for pair in pairs))


class ConditionalSampler:
    """Draws of the parameters that stress is nearly linear in, given the others.

    A law's moduli, yield stresses and hardenings (its parameters in MPa, called moduli here) move its stress nearly in
    proportion; exponents, rates and saturations (its shapes) do not. Given the shapes, the likelihood of the moduli is
    nearly a normal density of their values, however long and bent the ridge of all parameters together is. Its mean and
    covariance come from a few Gauss-Newton steps; draws are cut to the ranges, and follow the prior, which is even on
    the scale of the labels.

    Attributes:
      moduli, shapes: columns of the labels; all are shapes where nothing is `conditional`.
      orders: permutations of the shapes that only change the places of interchangeable terms; the first changes none.
    """

    def __init__(self, target: Target, conditional: bool = True):
        self.target, ranges = target, target.law.identified
        # Labels of errors that are integrated over stand behind the labels of the law.
        errors = target.nuisances
        are_moduli = [conditional and p.unit == _MODULUS for p in ranges]
        self._are_moduli = np.array(are_moduli + [False] * errors)
        if self._are_moduli.all():
            # Draws of moduli, one after the other, are not adapted to their weights: kernels take half of them.
            self._are_moduli[::2] = False
        self.moduli = np.flatnonzero(self._are_moduli)
        self.shapes = np.flatnonzero(~self._are_moduli)
        bends = [p.width if p.scale == "log" else 0.0 for p in ranges] + [0.0] * errors
        self._bends = np.array(bends)[self.moduli]
        self.orders = self._orders()

    def _orders(self) -> list[NDArray[np.intp]]:
        terms = self.target.law.label_columns_of_terms
        if any(self._are_moduli[term[0]] for term in terms):
            return orders_of(len(self.shapes), [])
        # The first parameter of a term tells its place, and the others follow it.
        known = self.shapes.tolist()
        columns = [[known.index(i) for i in term if i in known] for term in terms]
        return orders_of(len(self.shapes), columns)

    def sorted_shapes(self, shapes: Array) -> Array:
        """The unique form of shapes [k, q] whose terms can change places."""
        if len(self.orders) == 1:
            return shapes
        anything = np.full((len(shapes), len(self.moduli)), 0.5)
        return self.target.law.sorted_labels(self.labels(shapes, anything))[:, self.shapes]

    def labels(self, shapes: Array, moduli: Array) -> Array:
        """Labels [k, p] of shapes [k, q] and the labels of the moduli, [k, m]."""
        joined = np.empty((len(shapes), len(self._are_moduli)))
        joined[:, self.shapes], joined[:, self.moduli] = shapes, moduli
        return joined

    def shares(self, labels: Array) -> Array:
        """Shares of their ranges of the moduli of labels [k, p]: [k, m]."""
        return _shares(labels[:, self.moduli], self._bends)

    def solve(
        self, records: NDArray[np.integer], shapes: Array, start: Array, steps: int
    ) -> Solved:
        """Fits the moduli of some records.

        Args:
          records: [k]; shapes: their labels, [k, q], inside 0-1.
          start: shares [k, m] to start from, clipped to 0-1.
          steps: Gauss-Newton steps.
        """
        parts = [
            self._solve(records[i], shapes[i], start[i], steps) for i in self._chunks(len(records))
        ]
        return functools.reduce(Solved.joined, parts)

    def climb(
        self,
        records: NDArray[np.integer],
        shapes: Array,
        steps: int,
        held: NDArray[np.bool_] | None = None,
    ) -> tuple[Array, Array, Array]:
        """Moves all labels [k, p] but those `held` together uphill, where none are moduli.

        Returns:
          Labels [k, p], their log likelihood [k], and the Fisher information there, [k, p, p].
        """
        none = np.empty((len(shapes), 0))
        best, (density, _, information) = climb(
            lambda tried: self._expansion(records, tried, none), shapes, self.shapes, steps, held
        )
        return best, density, information

    def log_likelihood(self, records: NDArray[np.integer], labels: Array) -> Array:
        """The log likelihood of labels [k, p], each of the record at its place in `records` [k]: [k]."""
        density = self.target.log_density
        return np.concatenate([density(labels[i], records[i]) for i in self._chunks(len(records))])

    def _solve(
        self, records: NDArray[np.integer], shapes: Array, start: Array, steps: int
    ) -> Solved:
        count, across = start.shape[1], self.moduli[:, None]
        best, (density, gradient, information) = climb(
            lambda shares: self._expansion(records, shapes, shares),
            np.clip(start, 0.0, 1.0),
            self.moduli,
            steps if count else 0,
        )
        # The prior's variance, so that a modulus that changes nothing has a finite one.
        covariance = np.linalg.inv(
            information[:, across, self.moduli] + np.eye(count) / PRIOR_VARIANCE
        )
        mixed = information[:, across, self.shapes]
        slope_of_best = -covariance @ mixed
        curvature = information[:, self.shapes[:, None], self.shapes]
        curvature = curvature + np.swapaxes(mixed, 1, 2) @ slope_of_best
        mean = best + (covariance @ gradient[:, self.moduli, None])[:, :, 0]
        log_mass = density + 0.5 * np.linalg.slogdet(covariance)[1]
        return Solved(best, mean, covariance, slope_of_best, curvature, log_mass)

    def _expansion(self, records: NDArray[np.integer], shapes: Array, shares: Array) -> Expansion:
        """`Target.expansion`, by labels of the shapes and shares of the moduli."""
        moduli = _labels(shares, self._bends)
        density, gradient, information = self.target.expansion(self.labels(shapes, moduli), records)
        # Where a law overflows it tells nothing.
        gradient = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
        information = np.nan_to_num(information, posinf=0.0, neginf=0.0)
        chain = np.ones_like(gradient)
        chain[:, self.moduli] = 1.0 / _slopes(moduli, self._bends)
        return density, gradient * chain, information * chain[:, :, None] * chain[:, None, :]

    @staticmethod
    def _chunks(count: int) -> list[slice]:
        return [slice(i, i + _ROWS) for i in range(0, max(count, 1), _ROWS)]

    def draw(self, solved: Solved, chances: Array) -> tuple[Array, Array]:
        """One draw of the moduli for each row.

        One modulus is drawn after the other, the least known first: each from the normal density given those before it
        times the prior, cut to its range (as J. Geweke, Proc. 23rd Symp. Interface (1991) 571-578, draws from normal
        densities that are cut).

        Args:
          chances: evenly distributed between 0 and 1, [k, m, 2].

        Returns:
          Labels of the moduli [k, m], and the logarithm of the density [k] that they were drawn with.
        """
        variance = np.einsum("kii->ki", solved.covariance)
        label_std = np.sqrt(variance) / _slopes(_labels(solved.best, self._bends), self._bends)
        order = np.argsort(-label_std, axis=1)
        # Where two moduli share one sum, the first to be drawn would hardly ever take all of it: half of the draws take
        # the least known moduli the other way round.
        least = max(order.shape[1] - 2, min(order.shape[1], 2))
        other = np.concatenate([order[:, :least][:, ::-1], order[:, least:]], axis=1)
        turned = np.zeros((len(order), 1), np.bool_)
        turned[:, : order.shape[1]] = chances[:, :1, 0] < 0.5
        chances = chances.copy()
        chances[:, :1, 0] = 2.0 * chances[:, :1, 0] % 1.0
        labels, density = self._in_order(solved, np.where(turned, other, order), chances)
        _, against = self._in_order(solved, np.where(turned, order, other), labels)
        return labels, np.logaddexp(density, against) - np.log(2.0)

    def _in_order(
        self, solved: Solved, order: NDArray[np.intp], given: Array
    ) -> tuple[Array, Array]:
        """Draws by chances [k, m, 2], or the density of labels [k, m], one modulus after the other."""
        rows = np.arange(len(order))
        mean = np.take_along_axis(solved.mean, order, axis=1)
        root = np.linalg.cholesky(
            solved.covariance[rows[:, None, None], order[:, :, None], order[:, None, :]]
        )
        drawn, log_density = np.empty_like(mean), np.zeros(len(mean))
        deviations = np.zeros_like(mean)
        for i in range(mean.shape[1]):
            bend, spread = self._bends[order[:, i]], root[:, i, i]
            centre = mean[:, i] + np.einsum("kj,kj->k", root[:, i, :i], deviations[:, :i])
            known = given[:, i] if given.ndim == 3 else given[rows, order[:, i]]
            label, density = _drawn(centre, spread, bend, known)
            drawn[rows, order[:, i]] = label
            log_density += density
            deviations[:, i] = (_shares(label, bend) - centre) / spread
        return drawn, log_density


def _drawn(centre: Array, spread: Array, bend: Array, given: Array) -> tuple[Array, Array]:
    """Labels [k], even in 0-1 but for a nearly normal density of their shares, and the logarithm of their density.

    `given` are chances [k, 2], or the labels themselves, [k].
    """
    nearest = np.clip(centre, 0.0, 1.0)
    reach = np.abs(nearest - centre) + _REACH * spread
    low = _labels(np.clip(centre - reach, 0.0, 1.0), bend)
    width = np.maximum(_labels(np.clip(centre + reach, 0.0, 1.0), bend) - low, _LEAST_WIDTH)
    middles = low[:, None] + width[:, None] * (np.arange(_CELLS) + 0.5) / _CELLS
    squares = ((_shares(middles, bend[:, None]) - centre[:, None]) / spread[:, None]) ** 2
    heights = -0.5 * (_CELL_FREEDOM + 1.0) * np.log1p(squares / _CELL_FREEDOM)
    heights = np.exp(heights - heights.max(axis=1, keepdims=True)) + _FLOOR
    sums = np.cumsum(heights, axis=1)
    total = sums[:, -1]
    if given.ndim == 1:
        label, place = given, (given - low) / width * _CELLS
        step = np.clip(place.astype(np.intp), 0, _CELLS - 1)
        outside = (place < -1e-6) | (place > _CELLS + 1e-6)
    else:
        step = np.minimum((sums < (given[:, 0] * total)[:, None]).sum(axis=1), _CELLS - 1)
        label = np.minimum(low + width * (step + given[:, 1]) / _CELLS, 1.0)
        outside = np.zeros(len(label), np.bool_)
    height = heights[np.arange(len(heights)), step]
    log_density = np.log(height / total * (_CELLS / width))
    return label, np.where(outside, -np.inf, log_density)


def _shares(labels: Array, bends: Array) -> Array:
    """Labels -> (value - low) / (high - low); `bends` is ln(high / low) on a logarithmic scale, else 0."""
    safe = np.where(bends == 0.0, 1.0, bends)
    return np.where(bends == 0.0, labels, np.expm1(labels * safe) / np.expm1(safe))


def _labels(shares: Array, bends: Array) -> Array:
    """The inverse of `_shares`."""
    safe = np.where(bends == 0.0, 1.0, bends)
    return np.where(bends == 0.0, shares, np.log1p(shares * np.expm1(safe)) / safe)


def _slopes(labels: Array, bends: Array) -> Array:
    """d share / d label."""
    safe = np.where(bends == 0.0, 1.0, bends)
    return np.where(bends == 0.0, 1.0, safe * np.exp(labels * safe) / np.expm1(safe))


def resampled_places(
    log_ratios: Array, count: int, least: float, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Places of `count` draws in proportion to their weights, flattened until so many draws count at the `least`."""
    power = 1.0
    if effective_number(log_ratios) < least:
        low, high = -10.0, 0.0
        for _ in range(25):
            middle = 0.5 * (low + high)
            enough = effective_number(np.exp(middle) * log_ratios) >= least
            low, high = (middle, high) if enough else (low, middle)
        power = float(np.exp(low))
    sums = np.cumsum(_weights(power * log_ratios))
    places = (np.arange(count) + generator.random()) / count
    return np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)


def effective_number(log_ratios: Array) -> float:
    """Kish's number of independent draws that draws of these weights are worth, none smoothed."""
    weights = _weights(log_ratios)
    return float(1.0 / (weights @ weights))


def _weights(log_ratios: Array) -> Array:
    largest = log_ratios.max(initial=-np.inf)
    if not np.isfinite(largest):
        return np.full(len(log_ratios), 1.0 / max(len(log_ratios), 1))
    weights: Array = np.exp(log_ratios - largest)
    return weights / weights.sum()


def importance(
    target: Target, proposals: Posterior, generator: np.random.Generator, enough: float
) -> Posterior:
    """Weighs the proposals by the target over the density that they come from, Pareto-smoothed.

    Where the first of them say that this does not do, the others are not weighed. Their labels of the largest weights
    are starts of further sampling.
    """
    found, own = _weighted(target, proposals, generator), proposals.labels
    assert found.log_weights is not None
    heaviest = found.labels[np.argsort(-found.log_weights)[:_STARTS]]
    best = np.array(own[-_STARTS:])
    best[: len(heaviest)] = heaviest
    given = [] if proposals.starts is None else [proposals.starts]
    return dataclasses.replace(found, starts=np.concatenate([*given, best, own[:_STARTS]]))


def _weighted(target: Target, proposals: Posterior, generator: np.random.Generator) -> Posterior:
    labels = target.with_errors(proposals.labels, generator)
    if labels is None:
        return Posterior.weighted(proposals.labels, np.full(len(proposals.labels), -np.inf))
    proposed = proposals.proposed
    proposed = proposals.label_log_density if proposed is None else proposed
    assert proposed is not None
    ratios = np.full(len(labels), -np.inf)
    density = ratios.copy()
    # A shift may have left the ranges.
    inside = np.flatnonzero(((labels >= 0.0) & (labels <= 1.0)).all(axis=1))
    bounds = [0, *range(_FIRST_DRAWS, len(inside), _CHUNK), len(inside)]
    for first, end in itertools.pairwise(bounds if len(inside) else ()):
        part = inside[first:end]
        density[part] = target.log_density(labels[part])
        ratios[part] = density[part] - proposed[part]
        if first == 0 and effective_number(ratios) < _HOPEFUL_SHARE * end:
            tried = part[-1] + 1
            labels, ratios, density = labels[:tried], ratios[:tried], density[:tried]
            break
    return Posterior.weighted(
        labels,
        ratios,
        proposals=len(labels),
        errors=target.nuisances,
        log_likelihood=density,
    )


def about_modes(
    target: Target, proposals: Posterior, generator: np.random.Generator, enough: float
) -> Posterior:
    """Importance sampling about the modes; the proposals where so few draws count that it is not to be relied on.

    Starts climb to the modes of the target. Draws come from kernels there, Student's t with the curvature of the law's
    own answer, and are weighted; no draw needs derivatives. Where the weights say that this does not do, the kernels
    are put at draws that are resampled by their weights, once and again (O. Cappé, A. Guillin, J.-M. Marin, C. P.
    Robert, Population Monte Carlo, J. Comput. Graph. Statist. 13 (2004) 907-929). Kernels that an answer's draws come
    from never depend on these draws themselves.

    Labels have to be few, and terms must not change places: variances of such terms came out a fifth too small.
    """
    law, labels = target.law, len(target.law.identified) + target.nuisances
    if labels > _MOST_LABELS or law.label_columns_of_terms:
        return proposals
    assert proposals.starts is not None
    return _Modes(target, generator).sampled(proposals.starts, enough) or proposals


class _Modes:
    """The work of `about_modes` on a target's one record."""

    def __init__(self, target: Target, generator: np.random.Generator):
        self.shapes, self.generator = ConditionalSampler(target, conditional=False), generator

    def sampled(self, starts: Array, enough: float) -> Posterior | None:
        """The posterior; None where too few draws count."""
        kernels, rounds = self._at_modes(starts), list[Kernels]()
        labels, density = np.empty((0, len(self.shapes.shapes))), np.empty(0)
        for number in range(_MODE_ROUNDS):
            rounds.append(kernels)
            drawn, heights = self._drawn(kernels, _MODE_DRAWS)
            ratios = heights - kernels.log_density(drawn)
            least = _GOOD_SHARE if number < _PATIENT_ROUNDS else _FAIR_SHARE
            if effective_number(ratios) >= least * _MODE_DRAWS:
                found = self._settled(kernels, drawn, heights, ratios, enough)
                if found.is_worth(enough):
                    return found
            labels, density = np.concatenate([labels, drawn]), np.append(density, heights)
            if not np.isfinite(density).any():
                return None
            mixture = np.logaddexp.reduce([each.log_density(labels) for each in rounds])
            chosen = resampled_places(
                density - mixture, _MODE_KERNELS, _SHARE * _MODE_DRAWS, self.generator
            )
            kernels = self._standing(labels, chosen)
        return None

    def _settled(
        self, kernels: Kernels, drawn: Array, heights: Array, ratios: Array, enough: float
    ) -> Posterior:
        """The posterior by draws [k, p] of these kernels and as many more as are needed."""
        proposals = _MODE_DRAWS
        while (
            proposals < _MODE_MOST_DRAWS and (worth := effective_number(ratios)) < _SPARE * enough
        ):
            wanted = proposals * (_SPARE * enough / worth - 1.0)
            count = int(np.clip(wanted, _MODE_DRAWS // 4, _MODE_MOST_DRAWS - proposals))
            more, heights_of_more = self._drawn(kernels, count)
            drawn, heights = np.concatenate([drawn, more]), np.append(heights, heights_of_more)
            ratios = np.append(ratios, heights_of_more - kernels.log_density(more))
            proposals += count
        return Posterior.weighted(
            drawn,
            ratios,
            proposals=proposals,
            errors=self.shapes.target.nuisances,
            log_likelihood=heights,
            status="resampled",
        )

    def _at_modes(self, starts: Array) -> Kernels:
        labels = len(self.shapes.shapes)
        errors = np.full((len(starts), labels - starts.shape[1]), 0.5)
        given = np.concatenate([np.clip(starts, 0.0, 1.0), errors], axis=1)
        tried = np.concatenate(
            [given, self.shapes.sorted_shapes(even_labels(_MODE_EXPLORERS, labels))]
        )
        tried, density, _ = self._climbed(tried, _MODE_FIRST_STEPS)
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
        return self._climbed(start, _MODE_FIRST_STEPS, held)

    def _climbed(
        self, labels: Array, steps: int, held: NDArray[np.bool_] | None = None
    ) -> tuple[Array, Array, Array]:
        return self.shapes.climb(_one_record(labels), labels, steps, held)

    def _standing(self, labels: Array, chosen: NDArray[np.intp]) -> Kernels:
        """Kernels at the chosen labels, each drawn from as often as it was chosen."""
        places, times = np.unique(chosen, return_counts=True)
        centres, _, information = self._climbed(labels[places], 0)
        return Kernels(centres, information, times / times.sum(), self.shapes.orders, _WIDE)

    def _drawn(self, kernels: Kernels, count: int) -> tuple[Array, Array]:
        """Draws inside the ranges, and their log likelihoods."""
        drawn = self.shapes.sorted_shapes(kernels.draw(count, self.generator))
        drawn = drawn[((drawn >= 0.0) & (drawn <= 1.0)).all(axis=1)]
        return drawn, self.shapes.log_likelihood(_one_record(drawn), drawn)


def _one_record(labels: Array) -> NDArray[np.intp]:
    """The place of a target's one record for each row of labels."""
    return np.zeros(len(labels), np.intp)


def adaptive(
    target: Target, proposals: Posterior, generator: np.random.Generator, enough: float
) -> Posterior:
    """Adaptive importance sampling, for any number of labels: see `adaptive_of_many`."""
    assert proposals.starts is not None
    return adaptive_of_many(target, proposals.starts[None], [generator], enough=enough)[0]


def adaptive_of_many(
    target: Target,
    starts: Array,
    generators: Generators,
    progress: Progress | None = None,
    enough: float = _LAST_ENOUGH,
    chosen: Sequence[int] | None = None,
) -> list[Posterior]:
    """The posterior of each record of a target, its errors integrated over.

    Parameters that stress is nearly linear in, the moduli, are drawn given the others, the shapes (see
    `ConditionalSampler`). The shapes, seldom more than four, are drawn from a mixture of kernels, Student's t of three
    widths, that stand at earlier draws and follow the law's own curvature there. It grows from round to round at draws
    that are resampled by their weights, and all draws are weighted with the whole mixture so far (J.-M. Cornuet et al.,
    Adaptive multiple importance sampling, Scand. J. Statist. 39 (2012) 798-812); the answer is made of fresh draws from
    the mixture that this has led to.

    The law answers in blocks of thousands, so that some tens of records are sampled side by side.

    Args:
      starts: labels [records, starts, p] in or near the posterior's mass: the best fit, say, or draws of a network.
      generators: where chance comes from, one a record, so that its answer does not depend on the others.
      progress: called with (done, total) records.
      enough: independent draws that the answer's are worth, where it converges.
      chosen: which of the records are sampled; None is all.
    """
    chosen = range(len(starts)) if chosen is None else chosen
    sampler = ConditionalSampler(target)
    waiting = collections.deque(chosen)
    found: dict[int, Posterior] = {}
    active: list[_Adaptive] = []
    while waiting or active:
        joining = [waiting.popleft() for _ in range(min(_TOGETHER - len(active), len(waiting)))]
        # A few at a time cost nearly as much as many.
        active += _begun(sampler, joining, starts, generators, enough)
        found |= _draw_round(sampler, active)
        active = [record for record in active if record.index not in found]
        if progress:
            progress(len(found), len(chosen))
    return [found[i] for i in chosen]


class _Adaptive:
    """The sampling of one record: its kernels so far, and its draws with what is known at each."""

    def __init__(
        self,
        sampler: ConditionalSampler,
        index: int,
        generator: np.random.Generator,
        enough: float,
    ):
        self.sampler, self.index, self.generator = sampler, index, generator
        self.enough, self.most_fresh = enough, int(_MOST_FRESH * enough / _LAST_ENOUGH)
        self.rounds: list[tuple[Kernels, Solved]] = []
        self.labels = np.empty((0, len(sampler.shapes) + len(sampler.moduli)))
        self.solved: Solved | None = None
        # Logarithms: of the likelihood over the density of the moduli, and of the sum of all rounds' mixtures times
        # their draws, those outside of the ranges included.
        self.log_ratio, self.log_mixture = np.empty(0), np.empty(0)
        # How much the draws must be worth before the last ones are made, and whether these are due.
        self.wanted, self.last = _ENOUGH, False
        self.fresh: list[tuple[Array, Array]] = []

    def stand(self, shapes: Array, solved: Solved, shares: Array) -> None:
        """Puts the next round's kernels at shapes [k, q], each drawn from in proportion to `shares`."""
        kernels = Kernels(shapes, solved.curvature, shares, self.sampler.orders)
        self.rounds.append((kernels, solved))
        if len(self.labels):
            added = kernels.log_density(self.labels[:, self.sampler.shapes])
            self.log_mixture = np.logaddexp(self.log_mixture, added)

    def draw(self) -> tuple[Array, Array, Array]:
        """New draws inside their ranges, from the last kernels; the last draws of all from those that have settled.

        Returns:
          Shapes [k, q], shares of the moduli to start from [k, m], and the logarithm [k] of what weights are taken by.
        """
        settled = self.rounds[_UNSETTLED:] if self.last else self.rounds[-1:]
        count = self._of_each_round if self.last else _DRAWS
        drawn = [kernels.draw(count, self.generator) for kernels, _ in settled]
        shapes = self.sampler.sorted_shapes(np.concatenate(drawn))
        shapes = shapes[((shapes >= 0.0) & (shapes <= 1.0)).all(axis=1)]
        mixture, nearness = np.full(len(shapes), -np.inf), np.full(len(shapes), -np.inf)
        start = np.empty((len(shapes), len(self.sampler.moduli)))
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
    ) -> Posterior | None:
        """Takes a round's draws, labels [k, p] and logarithms [k]; returns the posterior where these were the last."""
        if self.last:
            self.fresh.append((labels, log_ratio - log_mixture))
            # The mixture is the sum of its rounds' densities, not their mean.
            proposals = float(self._of_each_round * len(self.fresh))
            all_labels, log_ratios = map(np.concatenate, zip(*self.fresh, strict=True))
            found = self._posterior(all_labels, log_ratios, proposals)
            share = found.effective_draws / (_LAST_DRAWS * len(self.fresh))
            enough = found.is_worth(self.enough)
            worn = len(self.fresh) >= self.most_fresh
            tired = len(self.rounds) >= _MOST_ROUNDS and worn
            if enough or tired:
                return found
            if len(self.rounds) < _MOST_ROUNDS and (share < _FEW_SHARE or worn):
                self.last, self.fresh, self.wanted = False, [], 2.0 * self.wanted
                self._stand_anew()
            return None
        self.labels = np.concatenate([self.labels, labels])
        self.log_ratio = np.concatenate([self.log_ratio, log_ratio])
        self.log_mixture = np.concatenate([self.log_mixture, log_mixture])
        self.solved = solved if self.solved is None else self.solved.joined(solved)
        if len(self.rounds) >= _FEWEST_ROUNDS:
            found = self._posterior(self.labels, self.log_ratio - self.log_mixture)
            self.last = found.is_worth(self.wanted)
            self.last |= len(self.rounds) == _MOST_ROUNDS
        if not self.last:
            self._stand_anew()
        return None

    @property
    def _of_each_round(self) -> int:
        """Last draws of each round's mixture, at a time."""
        return -(-_LAST_DRAWS // (len(self.rounds) - _UNSETTLED))

    def _posterior(self, labels: Array, log_ratios: Array, proposals: float = np.nan) -> Posterior:
        errors = self.sampler.target.nuisances
        return Posterior.weighted(
            labels, log_ratios, proposals=proposals, errors=errors, status="resampled"
        )

    def _stand_anew(self) -> None:
        assert self.solved is not None
        log_ratios = self.log_ratio - self.log_mixture
        chosen = resampled_places(log_ratios, _KERNELS, _SHARE * _DRAWS, self.generator)
        shapes = self.labels[chosen][:, self.sampler.shapes]
        self.stand(shapes, self.solved.rows(chosen), np.full(len(chosen), 1.0 / len(chosen)))


def _begun(
    sampler: ConditionalSampler,
    records: list[int],
    starts: Array,
    generators: Generators,
    enough: float,
) -> list[_Adaptive]:
    """Records with their first kernels: at their starts, and at labels that fill the ranges of the shapes evenly."""
    if not records:
        return []
    even = sampler.sorted_shapes(even_labels(_EXPLORERS, len(sampler.shapes)))
    # Errors that are integrated over begin in the middle of their ranges.
    errors = (*starts[records].shape[:2], sampler.target.nuisances)
    given = np.concatenate([np.clip(starts[records], 0.0, 1.0), np.full(errors, 0.5)], axis=2)
    each = given.shape[1] + len(even)
    explorers = np.broadcast_to(even, (len(records), *even.shape))
    shapes = np.concatenate([given[:, :, sampler.shapes], explorers], axis=1)
    first = np.repeat(given[:, :1], len(even), axis=1)
    known = np.concatenate([given, first], axis=1).reshape(len(records) * each, -1)
    shapes = shapes.reshape(len(records) * each, -1)
    solved = sampler.solve(np.repeat(records, each), shapes, sampler.shares(known), _FIRST_STEPS)
    begun = []
    for i, index in enumerate(records):
        rows = slice(i * each, (i + 1) * each)
        record = _Adaptive(sampler, index, generators[index], enough)
        own = solved.rows(rows)
        best = own.log_mass.max()
        heights = _FLATTENED * (own.log_mass - (best if np.isfinite(best) else 0.0))
        shares = np.exp(np.maximum(heights, -_LEAST))
        record.stand(shapes[rows], own, shares / shares.sum())
        begun.append(record)
    return begun


def _draw_round(sampler: ConditionalSampler, records: list[_Adaptive]) -> dict[int, Posterior]:
    """One round of draws of every record, in common calls of the law; returns the posteriors that are finished."""
    drawn = [record.draw() for record in records]
    ends = np.cumsum([0, *(len(shapes) for shapes, *_ in drawn)])
    rows = np.repeat([record.index for record in records], np.diff(ends))
    shapes, start, log_mixture = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    chances = [
        record.generator.random((count, len(sampler.moduli), 2))
        for record, count in zip(records, np.diff(ends), strict=True)
    ]
    solved = sampler.solve(rows, shapes, start, _STEPS)
    drawn_moduli, log_density = sampler.draw(solved, np.concatenate(chances))
    labels = sampler.labels(shapes, drawn_moduli)
    log_ratio = sampler.log_likelihood(rows, labels) - log_density
    found = {}
    for record, first, end in zip(records, ends[:-1], ends[1:], strict=True):
        part = slice(first, end)
        taken = record.take(labels[part], log_ratio[part], log_mixture[part], solved.rows(part))
        if taken is not None:
            found[record.index] = taken
    return found


def chains(
    target: Target, proposals: Posterior, generator: np.random.Generator, enough: float
) -> Posterior:
    """Markov chains from where earlier sampling came to, errors integrated over; the proposals where they do no better.

    Ensembles of walkers move by differential evolution and by stretches (C. J. F. ter Braak, Stat. Comput. 16 (2006)
    239-249; J. Goodman, J. Weare, Commun. Appl. Math. Comput. Sci. 5 (2010) 65-80; the chains are emcee's). Each begins
    in a part of its own, so that ensembles that have not met, in a posterior of several modes, say, show in nested
    R-hat (C. C. Margossian et al., Nested R-hat, Bayesian Anal. 20 (2025), arXiv:2110.13017).

    Each step asks the law for some tens of responses: weighted draws are quicker by far where they do. Chains take
    minutes where the law is slow: none for errors with which no answer is trusted, and none from too few draws.
    """
    if not proposals.effective_draws:
        return proposals
    few = proposals.with_errors[proposals.resampled(_CHECKED, generator)]
    checked = target.predictive_p(few, generator)
    if (checked and checked[0] < LEAST_P) or len(proposals.labels) < _FEWEST_STARTS:
        return proposals
    walked = _walked_until(target, proposals, generator, enough)
    # Few draws that converged are better than chains that did not.
    return walked if walked.converged or not proposals.converged else proposals


def _walked_until(
    target: Target, begun: Posterior, generator: np.random.Generator, enough: float
) -> Posterior:
    """Draws of one weight with their R-hat: as soon as they are worth `enough`, or after the last steps."""
    import emcee  # noqa: F401  once, before processes are forked

    density = functools.partial(_log_density, target)
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
        if done or len(steps) * _CHAIN_STEPS >= _MOST_CHAIN_STEPS:
            break
    # Every tenth draw, say, would otherwise be of the same few walkers.
    order = generator.permutation(heights.size)
    ensemble = np.tile(_ensemble_of(labels.shape[1]), len(labels))[order]
    labels, heights = labels.reshape(-1, labels.shape[2])[order], heights.reshape(-1)[order]
    evidence = _log_evidence(density, labels, heights, generator)
    own, errors = np.split(labels, [labels.shape[1] - target.nuisances], axis=1)
    return Posterior(
        own,
        None if target.nuisances else heights - evidence,
        Certificate("chains", effective_draws=worth, r_hat=r_hat),
        log_weights=np.full(len(own), -np.log(len(own))),
        log_evidence=evidence,
        errors=errors,
        chains=ensemble,
    )


def _ensemble_of(walkers: int) -> NDArray[np.intp]:
    """The ensemble of each of all walkers."""
    return np.repeat(np.arange(_ENSEMBLES), walkers // _ENSEMBLES)


def _log_density(target: Target, labels: Array) -> Array:
    density = np.full(len(labels), -np.inf)
    inside = ((labels >= 0.0) & (labels <= 1.0)).all(axis=1)
    if inside.any():
        density[inside] = target.log_density(labels[inside])
    return density


def _starts(begun: Posterior, generator: np.random.Generator) -> list[Array]:
    """Where the walkers of each ensemble begin: a slice across the direction in which draws spread most."""
    labels = begun.with_errors
    walkers = max(_WALKERS, _WALKERS_PER_LABEL * labels.shape[1])
    count = _ENSEMBLES * walkers
    least = min(0.5 * count, 0.5 * len(labels))
    assert begun.log_weights is not None
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
            _CHAIN_STEPS,
            skip_initial_state_check=True,
        )
    kept = ended.coords, ended.log_prob, ended.random_state
    return kept, sampler.get_chain(), sampler.get_log_prob()


def _mixing(labels: Array) -> tuple[float, float]:
    """Nested R-hat of the worst label, and the independent draws that labels [steps, walkers, p] are worth."""
    of_ensembles = _ensemble_of(labels.shape[1])
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


# SAMPLERS: the order in which `sample` tries them, the quick before the sure. Each is needed: half of eight tension
# tests have no posterior without `adaptive`, one has none without `chains`, and `about_modes` saves a sixth of the
# time. `importance` answers curves like the ones that a network has learnt from.
SAMPLERS: tuple[Sampler, ...] = (importance, about_modes, adaptive, chains)


def sample(
    target: Target, proposals: Posterior, samples: int, generator: np.random.Generator
) -> Posterior:
    """Samples of the posterior of a target's record, and their certificate.

    Args:
      proposals: draws [draws, p] of a network, say, with the density that they come from, and perhaps labels to start
        from, beside them.
      samples: how many draws of one weight are asked for.
    """
    least = max(FEWEST_SAMPLES, _LEAST_SHARE * samples)
    enough = max(1.5 * FEWEST_SAMPLES, _SAMPLED_SHARE * samples)
    import_statistics()  # once, before processes are forked
    with one_thread_a_product():
        found = proposals
        for sampler in SAMPLERS:
            found = sampler(target, found, generator, enough)
            if found.is_worth(least):
                break
        return _certified(target, proposals, found, samples, generator)


def _certified(
    target: Target,
    proposals: Posterior,
    found: Posterior,
    samples: int,
    generator: np.random.Generator,
) -> Posterior:
    """As many draws of one weight as are asked for: where nothing is wrong of what was found, else the proposals."""
    parameters = tuple(target.law.identified)
    certificate = Certificate(
        "do not trust", "the likelihood is not finite where samples were tried"
    )
    if found.effective_draws:
        drawn = found.resampled(samples, generator)
        # The first thing that is wrong is what is said; no others are looked for.
        reason, certificate = _degenerate(target, found), found.certificate
        if not reason:
            checked = target.predictive_p(found.with_errors[drawn[:_CHECKED]], generator)
            if checked is not None:
                p, alone = checked
                certificate = dataclasses.replace(
                    certificate, posterior_predictive_p=p, independent_noise_p=alone
                )
                reason = "" if p >= LEAST_P else _UNLIKE.format(p)
        if not reason and certificate.shortcoming:
            reason = f"sampling did not converge: {certificate.shortcoming}"
        if not reason:
            density = _density_of(target, found, drawn)
            chains = None if found.chains is None else found.chains[drawn]
            return Posterior(found.labels[drawn], density, certificate, parameters, chains=chains)
        certificate = dataclasses.replace(certificate, status="do not trust", reason=reason)
    assert proposals.label_log_density is not None
    labels = np.clip(proposals.labels[:samples], 0.0, 1.0)
    return Posterior(labels, proposals.label_log_density[:samples], certificate, parameters)


def _degenerate(target: Target, found: Posterior) -> str:
    """Why a posterior that converged is no more than one number; empty where it is more."""
    if not found.converged:
        return ""
    pairs = zip(target.law.identified, np.sqrt(found.variance), strict=True)
    names = [parameter.name for parameter, std in pairs if std < _NARROWEST]
    return f"the posterior is degenerate: a single value of {', '.join(names)}" if names else ""


def _density_of(target: Target, found: Posterior, drawn: NDArray[np.intp]) -> Array:
    """Log density of the weighted draws at these places, errors integrated over; of each one once."""
    if found.label_log_density is not None:
        return found.label_log_density[drawn]
    places, back = np.unique(drawn, return_inverse=True)
    points = found.with_errors[places]
    parts = [target.marginal(part) for part in np.array_split(points, -(-len(points) // _CHUNK))]
    return np.asarray(np.concatenate(parts)[back] - found.log_evidence)

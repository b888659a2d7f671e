"""Draws of the parameters that stress is nearly linear in, given the others. NumPy only.

A law's moduli, yield stresses and hardenings (its parameters in MPa, called moduli here) move its stress nearly in
proportion; exponents, rates and saturations (its shapes) do not. Given the shapes, the likelihood of the moduli is
nearly a normal density of their values, however long and bent the ridge of all parameters together is. Its mean and
covariance come from a few Gauss-Newton steps; draws are cut to the ranges, and follow the prior, which is even on the
scale of the labels.
"""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.likelihood import PRIOR_VARIANCE, Likelihoods
from tfmat.materials.law import Array, orders_of
from tfmat.materials.numerics import Expansion, climb

# Rows that are worked on together: their derivatives are some tens of MB.
_CHUNK = 2048
# A conditional density of one modulus is drawn from by so many steps, over all of it that is above exp(-_DEEP) of its
# largest; the floor keeps weights bounded where the density is not quite the normal one.
_STEPS, _REACH, _FREEDOM, _FLOOR = 64, 8.0, 10.0, 1e-6
_NARROWEST = 1e-12
_MODULUS = "MPa"


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
        """These rows, and then those of `other`."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Solved(*(np.concatenate(pair) for pair in pairs))


class Moduli:
    """The moduli of a law, given its shapes.

    Attributes:
      moduli, shapes: columns of the labels; all are shapes where nothing is `conditional`.
      orders: permutations of the shapes that only change the places of interchangeable terms; the first changes none.
    """

    def __init__(self, likelihoods: Likelihoods, conditional: bool = True):
        self.likelihoods, ranges = likelihoods, likelihoods.law.identified
        # The labels of errors that are integrated over stand behind those of the law.
        errors = likelihoods.nuisances
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
        terms = self.likelihoods.law.label_columns_of_terms
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
        return self.likelihoods.law.sorted_labels(self.labels(shapes, anything))[:, self.shapes]

    def labels(self, shapes: Array, moduli: Array) -> Array:
        """Labels [k, p] of shapes [k, q] and the labels of the moduli, [k, m]."""
        joined = np.empty((len(shapes), len(self._are_moduli)))
        joined[:, self.shapes], joined[:, self.moduli] = shapes, moduli
        return joined

    def shares(self, labels: Array) -> Array:
        """Shares of their ranges of the moduli of labels [k, p]: [k, m]."""
        return _shares(labels[:, self.moduli], self._bends)

    def solve(self, curves: NDArray[np.integer], shapes: Array, start: Array, steps: int) -> Solved:
        """Fits the moduli of some curves.

        Args:
          curves: [k]; shapes: their labels, [k, q], inside 0-1.
          start: shares [k, m] to start from, clipped to 0-1.
          steps: Gauss-Newton steps.
        """
        parts = [
            self._solve(curves[i], shapes[i], start[i], steps) for i in self._chunks(len(curves))
        ]
        return functools.reduce(Solved.joined, parts)

    def climb(
        self,
        curves: NDArray[np.integer],
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
            lambda tried: self._expansion(curves, tried, none), shapes, self.shapes, steps, held
        )
        return best, density, information

    def log_likelihood(self, curves: NDArray[np.integer], labels: Array) -> Array:
        """The log likelihood of labels [k, p], each of the curve at its place in `curves` [k]: [k]."""
        density = self.likelihoods.log_density
        return np.concatenate([density(curves[i], labels[i]) for i in self._chunks(len(curves))])

    def _solve(
        self, curves: NDArray[np.integer], shapes: Array, start: Array, steps: int
    ) -> Solved:
        count, across = start.shape[1], self.moduli[:, None]
        best, (density, gradient, information) = climb(
            lambda shares: self._expansion(curves, shapes, shares),
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

    def _expansion(self, curves: NDArray[np.integer], shapes: Array, shares: Array) -> Expansion:
        """`Likelihoods.expansion`, by labels of the shapes and shares of the moduli."""
        moduli = _labels(shares, self._bends)
        density, gradient, information = self.likelihoods.expansion(
            curves, self.labels(shapes, moduli)
        )
        # Where a law overflows it tells nothing.
        gradient = np.nan_to_num(gradient, posinf=0.0, neginf=0.0)
        information = np.nan_to_num(information, posinf=0.0, neginf=0.0)
        chain = np.ones_like(gradient)
        chain[:, self.moduli] = 1.0 / _slopes(moduli, self._bends)
        return density, gradient * chain, information * chain[:, :, None] * chain[:, None, :]

    @staticmethod
    def _chunks(count: int) -> list[slice]:
        return [slice(i, i + _CHUNK) for i in range(0, max(count, 1), _CHUNK)]

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
    width = np.maximum(_labels(np.clip(centre + reach, 0.0, 1.0), bend) - low, _NARROWEST)
    middles = low[:, None] + width[:, None] * (np.arange(_STEPS) + 0.5) / _STEPS
    squares = ((_shares(middles, bend[:, None]) - centre[:, None]) / spread[:, None]) ** 2
    heights = -0.5 * (_FREEDOM + 1.0) * np.log1p(squares / _FREEDOM)
    heights = np.exp(heights - heights.max(axis=1, keepdims=True)) + _FLOOR
    sums = np.cumsum(heights, axis=1)
    total = sums[:, -1]
    if given.ndim == 1:
        label, place = given, (given - low) / width * _STEPS
        step = np.clip(place.astype(np.intp), 0, _STEPS - 1)
        outside = (place < -1e-6) | (place > _STEPS + 1e-6)
    else:
        step = np.minimum((sums < (given[:, 0] * total)[:, None]).sum(axis=1), _STEPS - 1)
        label = np.minimum(low + width * (step + given[:, 1]) / _STEPS, 1.0)
        outside = np.zeros(len(label), np.bool_)
    height = heights[np.arange(len(heights)), step]
    log_density = np.log(height / total * (_STEPS / width))
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

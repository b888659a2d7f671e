"""Posterior mean and variance of one or two labels by quadrature on a grid that follows the mass. NumPy only.

The prior is uniform in 0-1, as the simulation draws the labels. The integral is nested: Gauss-Legendre nodes over the
first label, and for each of them over the second label, on an interval of its own. A first, coarse pass finds where
the mass lies; the second one puts its nodes there. Every interval ends exactly at the prior's bounds, so that a mass
that they cut off is integrated as accurately as any other. Where that does not resolve the mass (what the place of a
cut tells has kinks and hard ends), an even grid over the whole prior is refined step by step.
"""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.likelihood import PRIOR_VARIANCE, Likelihoods, NoiseModel
from tfmat.materials.law import Array, Law, TestSet

# Nodes of the first pass and of the second, a direction.
_COARSE_NODES, _FINE_NODES = 16, 28
# Half-width of the intervals in standard deviations.
_COARSE_REACH, _FINE_REACH = 8.0, 7.0
_PROFILE_STEPS = 4
# The coarse pass is repeated, wider, until it holds all of the mass.
_MOST_COARSE_PASSES = 8
# Fewer nodes that share the mass (1 / the sum of their squared shares) do not resolve it.
_FEWEST_NODES = 3.0
# Of the grid that is refined: nodes a direction, and below which log density (from the largest) it is cut away.
_EVEN_NODES = {1: 1000, 2: 100}
_CUTS = (5000.0, 500.0, 60.0, 25.0, None)
_PART = 500


class CurveLikelihood:
    """The likelihood of one curve as a function of its labels; see `Likelihoods`."""

    def __init__(
        self,
        law: Law,
        noise: NoiseModel,
        strain: Array | TestSet,
        stress: Array,
        valid: NDArray[np.bool_] | None = None,
    ):
        """Takes the valid points of one curve: strain (-), stress (MPa), [points].

        A record of tests is a test set of one material, its responses, and which points are `valid`.
        """
        rows = strain if isinstance(strain, TestSet) else strain[None]
        there = np.ones(stress.shape, np.bool_) if valid is None else valid
        self._many, self._row = (
            Likelihoods(law, noise, rows, stress[None], there[None]),
            slice(0, 1),
        )

    def log_density(self, labels: Array) -> Array:
        """Logarithm of the likelihood up to a constant, at labels [k, p] inside 0-1: [k]; -inf where impossible."""
        return self._many.log_density(self._row, labels)

    def slope_and_curvature(self, labels: Array) -> tuple[Array, Array]:
        """See `Likelihoods.slope_and_curvature`."""
        return self._many.slope_and_curvature(self._row, labels)


def likelihoods(
    law: Law,
    noise: NoiseModel,
    strain: Array | TestSet,
    stress: Array,
    valid: NDArray[np.bool_],
) -> list[CurveLikelihood]:
    """One for each curve; strain, stress and valid are [curves, points], as `observed` gives them."""
    if isinstance(strain, TestSet):
        return [
            CurveLikelihood(law, noise, strain[i : i + 1], stress[i], valid[i])
            for i in range(len(stress))
        ]
    return [
        CurveLikelihood(law, noise, one_strain[counts], one_stress[counts])
        for one_strain, one_stress, counts in zip(strain, stress, valid, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Moments:
    """Posterior of one curve: mean and variance of each label, [p]."""

    mean: Array
    variance: Array


class _NotResolved(Exception):
    """The nodes miss the mass, or it stands on too few of them."""


@dataclasses.dataclass
class _Pass:
    """One quadrature: nodes of the first label and its density there; mean and variance of the second one for each."""

    nodes: Array
    mass: Array
    inner_mean: Array
    inner_variance: Array

    def moments(self) -> Moments:
        mean, variance = _mean_and_variance(self.nodes, self.mass)
        inner = float(self.mass @ self.inner_mean)
        spread = float(self.mass @ (self.inner_variance + (self.inner_mean - inner) ** 2))
        return Moments(np.array([mean, inner]), np.array([variance, spread]))


def posterior_moments(
    likelihood: CurveLikelihood, mode: Array, fine_nodes: int = _FINE_NODES
) -> Moments:
    """Mean and variance of the labels of one curve.

    Args:
      likelihood: of a law with one or two identified parameters.
      mode: labels of the maximum likelihood, [p], or near it.
      fine_nodes: nodes a direction of the second pass.
    """
    try:
        if len(mode) == 1:
            return _one_label(likelihood, mode, fine_nodes)
        return _two_labels(likelihood, mode, fine_nodes)
    except _NotResolved:
        return _refined(likelihood, len(mode))


def _two_labels(likelihood: CurveLikelihood, mode: Array, fine_nodes: int) -> Moments:
    _, information = likelihood.slope_and_curvature(mode[None])
    regular = information[0] + np.eye(2) / PRIOR_VARIANCE
    deviation = np.sqrt(regular[1, 1] / np.linalg.det(regular))
    first, second = (float(label) for label in mode)
    reach = _COARSE_REACH * float(deviation)
    for _ in range(_MOST_COARSE_PASSES):
        low, high = max(first - reach, 0.0), min(first + reach, 1.0)
        coarse = _profiled_pass(likelihood, low, high, second)
        mean, variance = _mean_and_variance(coarse.nodes, coarse.mass)
        if not _mass_at_an_end(coarse, low, high):
            break
        reach *= 1.5
    reach = _FINE_REACH * np.sqrt(variance)
    low, high = max(mean - reach, low), min(mean + reach, high)
    nodes, weights = _legendre(low, high, fine_nodes)
    centre = np.interp(nodes, coarse.nodes, coarse.inner_mean)
    half = _FINE_REACH * np.interp(nodes, coarse.nodes, np.sqrt(coarse.inner_variance))
    return _integrate(likelihood, nodes, weights, centre, half, fine_nodes).moments()


def _one_label(likelihood: CurveLikelihood, mode: Array, fine_nodes: int) -> Moments:
    _, information = likelihood.slope_and_curvature(mode[None])
    centre = float(mode[0])
    half = _COARSE_REACH / np.sqrt(information[0, 0, 0] + 1.0 / PRIOR_VARIANCE)
    for count in (2 * _COARSE_NODES, 2 * fine_nodes):
        nodes, weights = _legendre(max(centre - half, 0.0), min(centre + half, 1.0), count)
        mass = _normalised(likelihood.log_density(nodes[:, None]), weights)
        mean, variance = _mean_and_variance(nodes, mass)
        centre, half = mean, _FINE_REACH * np.sqrt(variance)
    return Moments(np.array([mean]), np.array([variance]))


def _profiled_pass(likelihood: CurveLikelihood, low: float, high: float, second: float) -> _Pass:
    """The coarse pass over the first label from `low` to `high`; the second one around its best value for each."""
    nodes, weights = _legendre(low, high, _COARSE_NODES)
    best = np.full(len(nodes), second)
    for _ in range(_PROFILE_STEPS):
        slope, information = likelihood.slope_and_curvature(np.stack([nodes, best], axis=1))
        curvature = information[:, 1, 1] + 1.0 / PRIOR_VARIANCE
        # Not more than half the range at once: far from the best value the curvature misleads.
        best = np.clip(best + np.clip(slope[:, 1] / curvature, -0.5, 0.5), 0.0, 1.0)
    _, information = likelihood.slope_and_curvature(np.stack([nodes, best], axis=1))
    half = _COARSE_REACH / np.sqrt(information[:, 1, 1] + 1.0 / PRIOR_VARIANCE)
    return _integrate(likelihood, nodes, weights, best, half, _COARSE_NODES)


def _integrate(
    likelihood: CurveLikelihood,
    nodes: Array,
    weights: Array,
    centre: Array,
    half: Array,
    inner_count: int,
) -> _Pass:
    """Integrates over the second label on centre ± half [nodes], cut to the prior, for each node of the first one."""
    low = np.maximum(centre - half, 0.0)
    high = np.minimum(centre + half, 1.0)
    unit, unit_weights = _unit_legendre(inner_count)
    inner = low[:, None] + 0.5 * (high - low)[:, None] * (1.0 + unit)
    inner_weights = 0.5 * (high - low)[:, None] * unit_weights
    labels = np.stack([np.repeat(nodes, inner_count), inner.ravel()], axis=1)
    log_density = likelihood.log_density(labels).reshape(inner.shape)
    mass = _normalised(log_density, weights[:, None] * inner_weights)
    # The conditional moments come from each row's own largest value: far rows would vanish beside the largest of all.
    largest = log_density.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise _NotResolved
    row = np.exp(log_density - largest) * inner_weights
    total = row.sum(axis=1, keepdims=True)
    if not (total > 0).all():  # a cut so sharp that the first pass saw a single node of it
        raise _NotResolved
    row /= total
    mean = (row * inner).sum(axis=1)
    variance = (row * (inner - mean[:, None]) ** 2).sum(axis=1)
    return _Pass(nodes, mass.sum(axis=1), mean, variance)


def _mass_at_an_end(coarse: _Pass, low: float, high: float) -> bool:
    """Whether the outermost nodes hold mass although the prior goes on beyond them."""
    return bool((low > 0.0 and coarse.mass[0] > 1e-7) or (high < 1.0 and coarse.mass[-1] > 1e-7))


@functools.lru_cache
def _unit_legendre(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def _legendre(low: float, high: float, count: int) -> tuple[Array, Array]:
    unit, weights = _unit_legendre(count)
    return low + 0.5 * (high - low) * (1.0 + unit), 0.5 * (high - low) * weights


def _normalised(log_density: Array, weights: Array) -> Array:
    """The share of the mass that stands on each node; raises _NotResolved where a few nodes hold all of it."""
    largest = log_density.max()
    if not np.isfinite(largest):
        raise _NotResolved
    mass: Array = np.exp(log_density - largest) * weights
    mass /= mass.sum()
    # Of nearly normal masses a hundredth of the nodes and more count; an empty interval gives NaN.
    if not 1.0 / float((mass**2).sum()) >= _FEWEST_NODES:
        raise _NotResolved
    return mass


def _refined(likelihood: CurveLikelihood, num_labels: int) -> Moments:
    """The moments by the midpoint rule on an even grid: over the whole prior, then where the density is not too small.

    The first grids are too coarse to show the largest density, so that little is cut away after them. A thin band that
    bends through the whole prior (little but the place of the cut is known) has a variance to 10 % only.
    """
    count = _EVEN_NODES[num_labels]
    low, high = np.zeros(num_labels), np.ones(num_labels)
    for cut in _CUTS:
        axes = [
            a + (b - a) * (np.arange(count) + 0.5) / count for a, b in zip(low, high, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, num_labels)
        parts = np.array_split(points, -(-len(points) // _PART))
        density = np.concatenate([likelihood.log_density(part) for part in parts])
        if not np.isfinite(density.max()):
            return Moments(np.full(num_labels, 0.5), np.full(num_labels, PRIOR_VARIANCE))
        if cut is not None:
            kept, width = points[density > density.max() - cut], (high - low) / count
            low = np.maximum(kept.min(axis=0) - 2 * width, 0.0)
            high = np.minimum(kept.max(axis=0) + 2 * width, 1.0)
    mass = np.exp(density - density.max())
    mass /= mass.sum()
    mean = mass @ points
    return Moments(mean, mass @ (points - mean) ** 2)


def _mean_and_variance(nodes: Array, mass: Array) -> tuple[float, float]:
    mean = float(mass @ nodes)
    return mean, float(mass @ (nodes - mean) ** 2)

"""Bayes risk: the mean squared error that no method can beat on average, curve by curve, kept in a file. NumPy only.

The curves come with their law, ranges and noise, so that the posterior of each curve's labels is known (`likelihood`
says what it is conditioned on; the prior is uniform in 0-1). Its mean is the estimate with the least mean squared error
of scaled labels, and the mean of its variance over the curves is that error: the Bayes risk.

One or two labels are integrated by quadrature on a grid that follows the mass; more are sampled. The integral is
nested: Gauss-Legendre nodes over the first label, and for each of them over the second label, on an interval of its
own. A first, coarse pass finds where the mass lies; the second one puts its nodes there. Every interval ends exactly at
the prior's bounds, so that a mass that they cut off is integrated as accurately as any other. Where that does not
resolve the mass (what the place of a cut tells has kinks and hard ends), an even grid over the whole prior is refined
step by step.
"""

import contextlib
import dataclasses
import functools
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
from tfmat.identification.likelihood import (
    PRIOR_VARIANCE,
    DrawnErrors,
    NoiseModel,
    SimulatedErrors,
)
from tfmat.identification.posterior import FEWEST_SAMPLES, LARGEST_K
from tfmat.identification.sampling import Progress, adaptive_of_many
from tfmat.materials.law import Array

# Goes up with every change that moves the numbers.
BAYES_RISK_VERSION = 3
# Up to this many identified parameters the posterior is integrated, beyond it is sampled.
_MOST_INTEGRATED = 2
# Curves between two calls of `progress`.
_CHUNK = 50
# _COARSE_NODES, _FINE_NODES: quadrature nodes of the first pass and of the second, a direction.
_COARSE_NODES, _FINE_NODES = 16, 28
# _COARSE_REACH, _FINE_REACH: half-width of the intervals of both passes, in standard deviations.
_COARSE_REACH, _FINE_REACH = 8.0, 7.0
# _PROFILE_STEPS: Gauss-Newton steps to the best second label for each first one.
_PROFILE_STEPS = 4
# _MOST_COARSE_PASSES: the coarse pass is repeated, wider, until it holds all of the mass, at most so often.
_MOST_COARSE_PASSES = 8
# _FEWEST_NODES: nodes that share the mass (1 / the sum of their squared shares); fewer do not resolve it.
_FEWEST_NODES = 3.0
# _EVEN_NODES: nodes a direction of the grid that is refined.
_EVEN_NODES = {1: 1000, 2: 100}
# _CUTS: log densities below the largest at which that grid is cut away, step by step.
_CUTS = (5000.0, 500.0, 60.0, 25.0, None)
# _PART: rows of labels of that grid that a law answers together.
_PART = 500
_ARRAYS = ("mean", "variance", "effective_samples", "pareto_k")


@dataclasses.dataclass(frozen=True)
class BayesRisk:
    """The posterior of each curve, on the scale of the labels (0-1).

    Attributes:
      method: `quadrature` (relative error of the risk below 0.001) or `importance sampling`.
      mean, variance: [curves, p].
      effective_samples, pareto_k: [curves], see `Certificate`; None for quadrature.
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

        Curves count whose posterior has converged, here and in the two below.
        """
        return self.variance[self.converged].mean(axis=0)

    @property
    def standard_error(self) -> Array:
        """Standard error of `risk`, by the scatter over the curves (which holds the error of sampling, if any): [p]."""
        variance = self.variance[self.converged]
        return variance.std(axis=0, ddof=1) / np.sqrt(len(variance))

    def calibration(self, labels: Array) -> Array:
        """Mean of (true label - mean)² / variance, [p]; 1 where the posterior is right. `labels`: [curves, p]."""
        squares = (labels - self.mean) ** 2 / self.variance
        return squares[self.converged].mean(axis=0)

    def first(self, count: int) -> "BayesRisk":
        """The same of the first `count` curves."""
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
    kind: type[SimulatedErrors] = SimulatedErrors if noise.unknown is None else DrawnErrors
    target = kind(law, noise, strain, stress, valid)
    if len(law.identified) <= _MOST_INTEGRATED and noise.unknown is None:
        moments = []
        for i, one in enumerate(target.each()):
            moments.append(posterior_moments(one, start[i]))
            if progress and (i + 1) % _CHUNK == 0:
                progress(i + 1, len(start))
        mean, variance = (
            np.array([getattr(each, name) for each in moments]) for name in ("mean", "variance")
        )
        return BayesRisk("quadrature", mean, variance, None, None)
    # A generator a curve: the answer to curve i is the same however many curves there are.
    posteriors = adaptive_of_many(
        target,
        np.stack([start] if truth is None else [truth, start], axis=1),
        [np.random.default_rng([BAYES_RISK_VERSION, i]) for i in range(len(start))],
        progress,
    )
    names = ("mean", "variance", "effective_draws")
    mean, variance, worth = (np.array([getattr(one, name) for one in posteriors]) for name in names)
    tails = np.array([one.certificate.pareto_k for one in posteriors], np.float64)
    return BayesRisk("importance sampling", mean, variance, worth, tails)


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
    """Reads what the file holds for this key; None where there is no file, or one of something else."""
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
    target: SimulatedErrors, mode: Array, fine_nodes: int = _FINE_NODES
) -> Moments:
    """Mean and variance of the labels of one curve.

    Args:
      target: of one curve, and a law with one or two identified parameters.
      mode: labels of the maximum likelihood, [p], or near it.
      fine_nodes: nodes a direction of the second pass.
    """
    try:
        if len(mode) == 1:
            return _one_label(target, mode, fine_nodes)
        return _two_labels(target, mode, fine_nodes)
    except _NotResolved:
        return _refined(target, len(mode))


def _two_labels(target: SimulatedErrors, mode: Array, fine_nodes: int) -> Moments:
    *_, information = target.expansion(mode[None])
    regular = information[0] + np.eye(2) / PRIOR_VARIANCE
    deviation = np.sqrt(regular[1, 1] / np.linalg.det(regular))
    first, second = (float(label) for label in mode)
    reach = _COARSE_REACH * float(deviation)
    for _ in range(_MOST_COARSE_PASSES):
        low, high = max(first - reach, 0.0), min(first + reach, 1.0)
        coarse = _profiled_pass(target, low, high, second)
        mean, variance = _mean_and_variance(coarse.nodes, coarse.mass)
        if not _mass_at_an_end(coarse, low, high):
            break
        reach *= 1.5
    reach = _FINE_REACH * np.sqrt(variance)
    low, high = max(mean - reach, low), min(mean + reach, high)
    nodes, weights = _legendre(low, high, fine_nodes)
    centre = np.interp(nodes, coarse.nodes, coarse.inner_mean)
    half = _FINE_REACH * np.interp(nodes, coarse.nodes, np.sqrt(coarse.inner_variance))
    return _integrate(target, nodes, weights, centre, half, fine_nodes).moments()


def _one_label(target: SimulatedErrors, mode: Array, fine_nodes: int) -> Moments:
    *_, information = target.expansion(mode[None])
    centre = float(mode[0])
    half = _COARSE_REACH / np.sqrt(information[0, 0, 0] + 1.0 / PRIOR_VARIANCE)
    for count in (2 * _COARSE_NODES, 2 * fine_nodes):
        nodes, weights = _legendre(max(centre - half, 0.0), min(centre + half, 1.0), count)
        mass = _normalised(target.log_density(nodes[:, None]), weights)
        mean, variance = _mean_and_variance(nodes, mass)
        centre, half = mean, _FINE_REACH * np.sqrt(variance)
    return Moments(np.array([mean]), np.array([variance]))


def _profiled_pass(target: SimulatedErrors, low: float, high: float, second: float) -> _Pass:
    """The coarse pass over the first label from `low` to `high`; the second one around its best value for each."""
    nodes, weights = _legendre(low, high, _COARSE_NODES)
    best = np.full(len(nodes), second)
    for _ in range(_PROFILE_STEPS):
        _, slope, information = target.expansion(np.stack([nodes, best], axis=1))
        curvature = information[:, 1, 1] + 1.0 / PRIOR_VARIANCE
        # Not more than half the range at once: far from the best value the curvature misleads.
        best = np.clip(best + np.clip(slope[:, 1] / curvature, -0.5, 0.5), 0.0, 1.0)
    *_, information = target.expansion(np.stack([nodes, best], axis=1))
    half = _COARSE_REACH / np.sqrt(information[:, 1, 1] + 1.0 / PRIOR_VARIANCE)
    return _integrate(target, nodes, weights, best, half, _COARSE_NODES)


def _integrate(
    target: SimulatedErrors,
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
    log_density = target.log_density(labels).reshape(inner.shape)
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
    # In nearly normal masses a hundredth of the nodes and more count; an empty interval gives NaN.
    if not 1.0 / float((mass**2).sum()) >= _FEWEST_NODES:
        raise _NotResolved
    return mass


def _refined(target: SimulatedErrors, num_labels: int) -> Moments:
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
        density = np.concatenate([target.log_density(part) for part in parts])
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

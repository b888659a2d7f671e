"""Posterior mean and variance of any number of labels by adaptive importance sampling. NumPy only.

The labels are the normal distribution function of z: then the uniform prior of 0-1 is the standard normal one of z,
and a posterior that leans against the end of a range has no edge. The first proposals, Student's t, stand along the
ridge through the posterior's maximum in its weakest direction (parameters that trade against each other, like Voce's Q
and b on a short curve, bend it); later ones are fitted to the weighted samples so far. All samples are weighted with
the mixture of all proposals (J.-M. Cornuet et al., Adaptive multiple importance sampling, Scand. J. Statist. 39 (2012)
798-812).
"""

import dataclasses

import numpy as np
import scipy.special

from tfmat.identification.likelihood import PRIOR_VARIANCE, CurveLikelihood
from tfmat.materials.law import Array

# Heavier tails than any posterior under a normal prior has, so that weights stay bounded.
_FREEDOM = 5.0
_WIDENING, _NARROW = 1.2, 0.5
_SAMPLES, _RIDGE_SAMPLES = 400, 60
_MOST_ROUNDS = 24
# A curve has enough samples when they are worth this many independent ones.
_ENOUGH = 400.0
_NEWTON_STEPS = 30
# Of the walk along the ridge: it ends where the density is exp(-_DEEP) of the largest.
_RIDGE_STEPS, _CORRECTIONS, _DEEP = 12, 2, 9.0
# Where the normal distribution function is within 1e-9 of 0 and 1.
_FARTHEST = 6.0


@dataclasses.dataclass(frozen=True)
class SampledMoments:
    """Posterior of one curve: mean and variance of each label, [p], and what they rest on.

    Attributes:
      effective_samples: Kish's number of independent samples that the weighted ones are worth. The standard error of
        `mean` is about sqrt(variance / effective_samples), the relative one of `variance` sqrt(2 / effective_samples)
        for a posterior that is near a normal one.
    """

    mean: Array
    variance: Array
    effective_samples: float


def sampled_moments(
    likelihood: CurveLikelihood, mode: Array, generator: np.random.Generator
) -> SampledMoments:
    """Mean and variance of the labels of one curve.

    Args:
      mode: labels of the maximum likelihood, [p], or near it.
      generator: where chance comes from.
    """
    proposals = _ridge(likelihood, _maximum(likelihood, mode))
    points = np.concatenate([proposal.draw(generator) for proposal in proposals])
    targets = _log_target(likelihood, points)
    for round_number in range(_MOST_ROUNDS + 1):
        log_weights = targets - _log_mixture(points, proposals)
        weights = _normalised(log_weights)
        effective = 1.0 / float(weights @ weights)
        possible = bool(np.isfinite(log_weights.max()))
        if (possible and effective >= _ENOUGH) or round_number == _MOST_ROUNDS:
            break
        fitted = _fitted(points, log_weights)
        # Every other one is narrow and somewhere in the mass: together they follow any shape.
        if len(proposals) % 2:
            centre = points[generator.choice(len(points), p=weights)]
            fitted = _Proposal(centre, _NARROW * fitted.scale, _SAMPLES)
        proposals.append(fitted)
        points = np.concatenate([points, fitted.draw(generator)])
        targets = np.concatenate([targets, _log_target(likelihood, points[len(targets) :])])
    if not np.isfinite(log_weights.max()):
        # Not one sample is possible (a strength that is as good as known, beside much noise): nothing is known.
        nothing = np.full(len(mode), 0.5)
        return SampledMoments(nothing, np.full(len(mode), PRIOR_VARIANCE), 0.0)
    labels = scipy.special.ndtr(points)
    mean = weights @ labels
    # The squares around the samples' own mean are too small by 1 / effective.
    variance = weights @ (labels - mean) ** 2 * effective / max(effective - 1.0, 1e-3)
    return SampledMoments(mean, variance, effective)


@dataclasses.dataclass(frozen=True)
class _Proposal:
    """A multivariate t: centre [p], lower triangular root of its matrix [p, p], and how often it is drawn from."""

    centre: Array
    scale: Array
    count: int

    def draw(self, generator: np.random.Generator) -> Array:
        """[count, p]."""
        normal = generator.standard_normal((self.count, len(self.centre)))
        chi_square = generator.chisquare(_FREEDOM, (self.count, 1))
        return self.centre + (normal @ self.scale.T) * np.sqrt(_FREEDOM / chi_square)

    def log_density(self, points: Array) -> Array:
        """Up to a constant that is the same for all proposals: [k]."""
        whitened = np.linalg.solve(self.scale, (points - self.centre).T)
        power = -0.5 * (_FREEDOM + len(self.centre))
        density: Array = power * np.log1p((whitened**2).sum(axis=0) / _FREEDOM)
        return density - np.log(np.diag(self.scale)).sum()


def _maximum(likelihood: CurveLikelihood, mode: Array) -> Array:
    """Maximum of the posterior of z by damped Gauss-Newton steps: [p]."""
    z = scipy.special.ndtri(np.clip(mode, 0.01, 0.99))
    target, damping = _log_target(likelihood, z[None])[0], 1e-3
    slope, curvature = _slope_and_curvature(likelihood, z)
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
        trial = np.clip(z + step, -_FARTHEST, _FARTHEST)
        reached = _log_target(likelihood, trial[None])[0]
        if reached >= target:
            near, z, target, damping = reached < target + 1e-3, trial, reached, damping / 10
            slope, curvature = _slope_and_curvature(likelihood, z)
            if near:
                break
        else:
            damping *= 10
    return z


def _ridge(likelihood: CurveLikelihood, maximum: Array) -> list[_Proposal]:
    """Proposals at the maximum and, a standard deviation apart, on the ridge to both sides of it."""
    largest = _log_target(likelihood, maximum[None])[0]
    _, curvature = _slope_and_curvature(likelihood, maximum)
    proposals = [_Proposal(maximum, _root_of_inverse(curvature), _SAMPLES)]
    for side in (-1.0, 1.0):
        z, local = maximum, curvature
        direction = side * np.linalg.eigh(local)[1][:, 0]
        for _ in range(_RIDGE_STEPS):
            eigenvalues, vectors = np.linalg.eigh(local)
            direction = vectors[:, 0] * np.sign(vectors[:, 0] @ direction)
            z = z + direction / np.sqrt(eigenvalues[0])
            for _ in range(_CORRECTIONS):
                slope, local = _slope_and_curvature(likelihood, z)
                # Back onto the ridge: a Newton step across the direction of the walk.
                across = np.eye(len(z)) - np.outer(direction, direction)
                system = across @ local @ across + np.outer(direction, direction)
                z = np.clip(z + np.linalg.solve(system, across @ slope), -_FARTHEST, _FARTHEST)
            if _log_target(likelihood, z[None])[0] < largest - _DEEP:
                break
            _, local = _slope_and_curvature(likelihood, z)
            proposals.append(_Proposal(z, _root_of_inverse(local), _RIDGE_SAMPLES))
    return proposals


def _root_of_inverse(curvature: Array) -> Array:
    return _WIDENING * np.linalg.cholesky(np.linalg.inv(curvature))


def _slope_and_curvature(likelihood: CurveLikelihood, z: Array) -> tuple[Array, Array]:
    slope, information = likelihood.slope_and_curvature(scipy.special.ndtr(z)[None])
    chain = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    curvature = information[0] * chain[:, None] * chain + np.eye(len(z))
    return slope[0] * chain - z, curvature


def _log_target(likelihood: CurveLikelihood, z: Array) -> Array:
    """Log posterior density of z [k, p], up to a constant: [k]."""
    return likelihood.log_density(scipy.special.ndtr(z)) - 0.5 * (z**2).sum(axis=1)


def _log_mixture(points: Array, proposals: list[_Proposal]) -> Array:
    """Log density, up to a constant, of the mixture of all proposals, each with its share of the samples: [k]."""
    counts = np.array([proposal.count for proposal in proposals])
    densities = np.stack([proposal.log_density(points) for proposal in proposals])
    mixed: Array = scipy.special.logsumexp(densities, axis=0, b=counts[:, None] / counts.sum())
    return mixed


def _fitted(points: Array, log_weights: Array) -> _Proposal:
    """Mean and widened root of the covariance of the weighted samples.

    Where few samples carry all the weight, the weights are flattened until enough of them count.
    """
    power = 1.0
    for _ in range(12):
        weights = _normalised(power * log_weights)
        if 1.0 / (weights @ weights) > 10.0 * points.shape[1]:
            break
        power /= 1.6
    centre = weights @ points
    deviation = points - centre
    covariance = (deviation * weights[:, None]).T @ deviation
    covariance += 1e-9 * np.diag(np.diag(covariance)) + 1e-18 * np.eye(len(centre))
    return _Proposal(centre, _WIDENING * np.linalg.cholesky(covariance), _SAMPLES)


def _normalised(log_weights: Array) -> Array:
    largest = log_weights.max()
    if not np.isfinite(largest):
        return np.full(len(log_weights), 1.0 / len(log_weights))
    weights: Array = np.exp(log_weights - largest)
    return weights / weights.sum()

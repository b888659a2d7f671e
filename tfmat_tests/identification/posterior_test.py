"""Posterior moments by quadrature and by sampling, against a dense grid over the whole prior."""

import numpy as np
import pytest

from tfmat.curves.records import split_features
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.identification.least_squares import fit_with_noise
from tfmat.identification.likelihood import CurveLikelihood, NoiseModel, likelihoods
from tfmat.identification.posterior_grid import posterior_moments
from tfmat.identification.posterior_sampling import sampled_moments
from tfmat.materials import find_law


def simulated(count, seed=5, **settings):
    """Likelihoods, labels of the least squares fit and true labels of simulated curves."""
    given = CurveSettings(**settings)
    simulator, noise = Simulator(given, seed), NoiseModel.of(given)
    curves = simulator.curves(0, count)
    points = split_features(curves.features)
    fitted = fit_with_noise(simulator.law, *points, noise.noise_mpa, noise.noise_relative)
    labels = curves.labels.astype(np.float64)
    return likelihoods(simulator.law, noise, *points), fitted.labels, labels


def brute_force(likelihood, num_labels=2, nodes=150):
    """Mean and variance by the midpoint rule on an even grid over the prior, refined to where mass was.

    The first grids are too coarse to show the largest density, so that little is cut away after them.
    """
    low, high = np.zeros(num_labels), np.ones(num_labels)
    for cut in (2000, 300, 60, 25, None):
        axes = [
            a + (b - a) * (np.arange(nodes) + 0.5) / nodes for a, b in zip(low, high, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, num_labels)
        density = np.concatenate(
            [likelihood.log_density(part) for part in np.array_split(points, 100)]
        )
        if cut is not None:
            kept, width = points[density > density.max() - cut], (high - low) / nodes
            low = np.maximum(kept.min(axis=0) - 2 * width, 0)
            high = np.minimum(kept.max(axis=0) + 2 * width, 1)
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, weights @ (points - mean) ** 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"strength_cut_off": False, "max_strain": (0.008, 0.012)},
        {"noise_relative": 0.05, "noise_mpa": 0.5},
        {"law": "tanh_shear", "noise_mpa": 3.0},
    ],
)
def test_quadrature_equals_brute_force(settings):
    curves, fitted, _ = simulated(4, **settings)
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood)
        found = posterior_moments(likelihood, mode)
        np.testing.assert_allclose(found.variance, variance, rtol=0.01)
        assert (np.abs(found.mean - mean) < 0.01 * np.sqrt(variance)).all()


def test_quadrature_has_converged():
    curves, fitted, _ = simulated(200)
    coarse, fine = (
        np.array(
            [
                posterior_moments(*curve, nodes).variance
                for curve in zip(curves, fitted, strict=True)
            ]
        )
        for nodes in (28, 48)
    )
    np.testing.assert_allclose(coarse, fine, rtol=0.02)
    np.testing.assert_allclose(coarse.mean(axis=0), fine.mean(axis=0), rtol=0.001)


def test_a_bad_start_does_not_matter():
    curves, fitted, _ = simulated(20)
    for likelihood, mode in zip(curves, fitted, strict=True):
        near, far = (
            posterior_moments(likelihood, start)
            for start in (mode, np.clip(mode + np.array([0.02, -0.1]), 0, 1))
        )
        np.testing.assert_allclose(near.variance, far.variance, rtol=0.02)


def test_one_label():
    curves, fitted, _ = simulated(10, fixed={"G0": 4000.0})
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood, 1, 4000)
        found = posterior_moments(likelihood, mode)
        np.testing.assert_allclose(found.variance, variance, rtol=2e-3)
        assert abs(found.mean - mean) < 2e-3 * np.sqrt(variance)


def test_sampling_agrees_with_quadrature_within_its_stated_error():
    curves, fitted, _ = simulated(150)
    errors, spreads = [], []
    for i, (likelihood, mode) in enumerate(zip(curves, fitted, strict=True)):
        exact = posterior_moments(likelihood, mode)
        sampled = sampled_moments(likelihood, mode, np.random.default_rng([0, i]))
        assert sampled.effective_samples > 300
        errors.append(
            (sampled.mean - exact.mean) / np.sqrt(exact.variance / sampled.effective_samples)
        )
        spreads.append(
            (sampled.variance / exact.variance - 1) * np.sqrt(sampled.effective_samples / 2)
        )
    assert (np.mean(np.square(errors), axis=0) < 1.2).all()
    # Posteriors with heavier tails than the normal one scatter a little more.
    assert (np.mean(np.square(spreads), axis=0) < 2).all()
    assert (np.abs(np.mean(spreads, axis=0)) < 4 / np.sqrt(150)).all()


def test_sampling_follows_a_bent_ridge():
    """A short curve of a metal hardly tells Q from b: two samplings agree, and with the truth on average."""
    curves, fitted, labels = simulated(60, law="voce")
    first, second = (
        [
            sampled_moments(likelihood, mode, np.random.default_rng([seed, i]))
            for i, (likelihood, mode) in enumerate(zip(curves, fitted, strict=True))
        ]
        for seed in (0, 1)
    )
    one, other = (np.array([found.variance for found in run]) for run in (first, second))
    np.testing.assert_allclose(one.mean(axis=0), other.mean(axis=0), rtol=0.25)
    means = np.array([found.mean for found in first])
    calibration = ((means - labels) ** 2 / one).mean(axis=0)
    assert ((calibration > 0.5) & (calibration < 1.7)).all()


def test_sampling_three_labels_equals_brute_force():
    curves, fitted, _ = simulated(
        2, law="voce", fixed={"E": 2e5}, noise_mpa=20.0, max_strain=(0.1, 0.3), num_points=60
    )
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood, 3, 50)
        found = sampled_moments(likelihood, mode, np.random.default_rng(0))
        np.testing.assert_allclose(found.variance, variance, rtol=0.25)
        assert (np.abs(found.mean - mean) < 0.2 * np.sqrt(variance)).all()


def test_a_cut_that_tells_more_than_the_stress_is_integrated_too():
    curves, fitted, _ = simulated(3, noise_mpa=20.0, strength_mpa=(60.0, 61.0))
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood, nodes=300)
        found = posterior_moments(likelihood, mode)
        np.testing.assert_allclose(found.variance, variance, rtol=0.15)
        assert (np.abs(found.mean - mean) < 0.1 * np.sqrt(variance)).all()


def test_what_is_impossible_everywhere_leaves_the_prior():
    strain = np.linspace(0, 0.03, 50)
    # It broke below every strength that there is.
    noise = NoiseModel(1.0, 0.0, (500.0, 501.0), 200)
    likelihood = CurveLikelihood(find_law("hahn_tsai"), noise, strain, 3000 * strain)
    for found in (
        posterior_moments(likelihood, np.array([0.2, 0.1])),
        sampled_moments(likelihood, np.array([0.2, 0.1]), np.random.default_rng(0)),
    ):
        np.testing.assert_array_equal(found.mean, 0.5)
        np.testing.assert_array_equal(found.variance, 1 / 12)

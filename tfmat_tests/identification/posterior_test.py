"""Posterior moments by quadrature and by sampling, against a dense grid over the whole prior."""

import numpy as np
import pytest
import scipy.stats

from tfmat.curves.records import observed
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.identification import posterior_sampling
from tfmat.identification.least_squares import fit_with_noise
from tfmat.identification.likelihood import Likelihoods, NoiseModel
from tfmat.identification.posterior_grid import CurveLikelihood, likelihoods, posterior_moments
from tfmat.identification.posterior_sampling import sample_posteriors
from tfmat.identification.weighted_draws import SampledPosterior
from tfmat.materials import find_law


def all_simulated(count, seed=5, **settings):
    """The likelihoods of simulated curves, labels of their least squares fits and true labels.

    A sampled posterior takes a time in proportion to the points: 50 of them tell as much of the sampler as 200.
    """
    given = CurveSettings(**settings)
    simulator, noise = Simulator(given, seed), NoiseModel.of(given)
    curves = simulator.curves(0, count)
    points = observed(given, curves.features)
    fitted = fit_with_noise(simulator.law, *points, noise.noise_mpa, noise.noise_relative)
    labels = curves.labels.astype(np.float64)
    return Likelihoods(simulator.law, noise, *points), fitted.labels, labels


def simulated(count, seed=5, **settings):
    """The same, with a likelihood for each curve."""
    many, fitted, labels = all_simulated(count, seed, **settings)
    return likelihoods(many.law, many.noise, many.strain, many.stress, many.valid), fitted, labels


def sampled(many, starts, seed=0, **options):
    """Posteriors of all curves, from one start each."""
    generators = [np.random.default_rng([seed, i]) for i in range(len(many))]
    return sample_posteriors(many, starts[:, None], generators, **options)


def brute_force(likelihood, num_labels=2, nodes=60):
    """Mean and variance by the midpoint rule on an even grid over the prior, refined to where mass was.

    The first grids are too coarse to show the largest density, so that little is cut away after them. Smooth densities
    of two labels come out as with 150 nodes to 2e-4, those of three with 24 as with 40 to 0.02.
    """
    low, high = np.zeros(num_labels), np.ones(num_labels)
    for cut in (2000, 300, 60, 25, None):
        axes = [
            a + (b - a) * (np.arange(nodes) + 0.5) / nodes for a, b in zip(low, high, strict=True)
        ]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, num_labels)
        density = np.concatenate(
            [
                likelihood.log_density(part)
                for part in np.array_split(points, -(-len(points) // 500))
            ]
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
    curves, fitted, _ = simulated(60)
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
    curves, fitted, _ = simulated(8)
    for likelihood, mode in zip(curves, fitted, strict=True):
        near, far = (
            posterior_moments(likelihood, start)
            for start in (mode, np.clip(mode + np.array([0.02, -0.1]), 0, 1))
        )
        np.testing.assert_allclose(near.variance, far.variance, rtol=0.02)


def test_one_label():
    curves, fitted, _ = simulated(6, fixed={"G0": 4000.0})
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood, 1, 1000)
        found = posterior_moments(likelihood, mode)
        np.testing.assert_allclose(found.variance, variance, rtol=2e-3)
        assert abs(found.mean - mean) < 2e-3 * np.sqrt(variance)


def test_sampling_agrees_with_quadrature_within_its_stated_error():
    """Few curves, of many draws each: a variance that is off by 4 % everywhere is four standard errors off."""
    count = 24
    many, fitted, _ = all_simulated(count, num_points=50)
    curves = likelihoods(many.law, many.noise, many.strain, many.stress, many.valid)
    errors, spreads = [], []
    answers = sampled(many, fitted, enough=1000.0)
    for likelihood, mode, found in zip(curves, fitted, answers, strict=True):
        exact = posterior_moments(likelihood, mode)
        assert found.converged and found.effective_samples >= 1000
        errors.append((found.mean - exact.mean) / np.sqrt(exact.variance / found.effective_samples))
        spreads.append((found.variance / exact.variance - 1) * np.sqrt(found.effective_samples / 2))
    # The mean of so many squares of standard normal numbers is below this in 95 of 100 cases.
    assert (np.mean(np.square(errors), axis=0) < 1 + 1.7 * np.sqrt(2 / count)).all()
    # Posteriors with heavier tails than the normal one scatter a little more.
    assert (np.mean(np.square(spreads), axis=0) < 2).all()
    assert (np.abs(np.mean(spreads, axis=0)) < 4 / np.sqrt(count)).all()


def test_sampling_follows_a_bent_ridge():
    """A short curve of a metal hardly tells Q from b: two samplings agree, and with the truth on average."""
    count, twice = 24, 10
    many, fitted, labels = all_simulated(count, law="voce", num_points=50)
    first, second = sampled(many, fitted), sampled(many, fitted, 1, chosen=range(twice))
    assert np.mean([found.converged for found in first]) > 0.95
    variance, other = (np.array([found.variance for found in run]) for run in (first, second))
    np.testing.assert_allclose(variance[:twice].mean(axis=0), other.mean(axis=0), rtol=0.25)
    means = np.array([found.mean for found in first])
    calibration = ((means - labels) ** 2 / variance).mean(axis=0)
    # Chi squared of so many, over their number, is between these in 998 of 1000 cases.
    low, high = scipy.stats.chi2.ppf([0.001, 0.999], count) / count
    assert ((calibration > low) & (calibration < high)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"law": "voce", "fixed": {"E": 2e5}, "noise_mpa": 20.0, "max_strain": (0.1, 0.3)},
        # All moduli, and one term that the tests do not tell.
        {"law": "yeoh", "noise_mpa": 1.0, "missing_tests": 0.5},
        # Interchangeable terms, of which the prior knows one order: gamma1 is the larger one.
        pytest.param(
            {
                "law": "voce_chaboche",
                "fixed": {"E": 2e5, "sigma0": 200.0, "Q": 50.0, "b": 5.0, "C1": 2e4},
                "noise_mpa": 60.0,
            },
            marks=pytest.mark.large,
        ),
    ],
)
def test_sampling_three_labels_equals_brute_force(settings):
    many, fitted, _ = all_simulated(2, num_points=60, **settings)
    each = likelihoods(many.law, many.noise, many.strain, many.stress, many.valid)
    for one, found in zip(each, sampled(many, fitted, enough=1500.0), strict=True):
        mean, variance = brute_force(one, 3, 24)
        assert found.effective_samples > 1000
        # Standard errors of 1000 samples: 4.5 % of a variance, 0.03 standard deviations of a mean; three of them.
        np.testing.assert_allclose(found.variance, variance, rtol=0.14)
        assert (np.abs(found.mean - mean) < 0.1 * np.sqrt(variance)).all()


def test_records_of_a_law_with_memory_and_eight_labels_converge():
    """Thresholds: all records but one converged; ranks of the truth even (Kolmogorov-Smirnov, 0.001 each)."""
    count = 9
    settings = CurveSettings("voce_chaboche", num_points=80)
    curves = Simulator(settings, 5).curves(0, count)
    law, labels = settings.build_law(), curves.labels.astype(np.float64)
    many = Likelihoods(law, NoiseModel.of(settings), *observed(settings, curves.features))
    # Least squares of these would take longer than the sampling.
    found = sampled(many, labels)
    converged = np.array([one.converged for one in found])
    assert converged.sum() >= count - 1
    mean, variance = (
        np.array([getattr(one, name) for one in found]) for name in ("mean", "variance")
    )
    squares = ((labels - mean) ** 2 / variance)[converged]
    # Of so few the median of a label, 0.45, is below this in 999 of 1000 cases; all labels together tell more.
    middle = (len(squares) + 1) / 2
    highest = scipy.stats.chi2.ppf(scipy.stats.beta.ppf(0.999, middle, middle), 1)
    assert (np.median(squares, axis=0) < highest).all() and np.median(squares) < 0.8
    ranks = np.array(
        [
            np.exp(one.log_weights) @ (one.labels < truth)
            for one, truth in zip(found, labels, strict=True)
        ]
    )
    for column in ranks[converged].T:
        assert scipy.stats.kstest(column, "uniform").pvalue > 1e-3
    # Terms stand in falling order of gamma.
    assert all((one.labels[:, 5] >= one.labels[:, 7]).all() for one in found)


def test_the_answer_to_a_curve_does_not_depend_on_the_others(monkeypatch):
    """Nor do those of curves that are begun when others are done, three at a time."""
    monkeypatch.setattr(posterior_sampling, "_TOGETHER", 3)
    many, fitted, _ = all_simulated(6, law="ramberg_osgood", num_points=50)
    together = sampled(many, fitted)
    for i in (0, 5):
        (alone,) = sampled(many, fitted, chosen=[i])
        np.testing.assert_allclose(alone.variance, together[i].variance, rtol=1e-6)


def test_pareto_k_tells_draws_that_are_too_narrow():
    """Importance ratios of two exponential densities have tails of a known k: 1 - rate of the target over its own."""
    draws = np.random.default_rng(0).exponential(1.0, (20_000, 1))
    for rate, k in ((0.7, 0.3), (0.2, 0.8)):
        found = SampledPosterior.of(draws, (1.0 - rate) * draws[:, 0])
        assert abs(found.pareto_k - k) < 0.1
        assert found.converged == (k < 0.7)
    assert np.exp(found.log_weights).sum() == pytest.approx(1.0)


def test_a_cut_that_tells_more_than_the_stress_is_integrated_too():
    curves, fitted, _ = simulated(3, noise_mpa=20.0, strength_mpa=(60.0, 61.0))
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood, nodes=200)
        found = posterior_moments(likelihood, mode)
        np.testing.assert_allclose(found.variance, variance, rtol=0.15)
        assert (np.abs(found.mean - mean) < 0.1 * np.sqrt(variance)).all()


def test_what_is_impossible_everywhere_leaves_the_prior():
    strain = np.linspace(0, 0.03, 50)
    # It broke below every strength that there is.
    noise = NoiseModel(1.0, 0.0, (500.0, 501.0), 200)
    likelihood = CurveLikelihood(find_law("hahn_tsai"), noise, strain, 3000 * strain)
    many = Likelihoods(
        find_law("hahn_tsai"), noise, strain[None], 3000 * strain[None], np.ones((1, 50), bool)
    )
    start = np.array([[0.2, 0.1]])
    (found,) = sampled(many, start)
    assert not found.converged
    for one in (posterior_moments(likelihood, start[0]), found):
        np.testing.assert_array_equal(one.mean, 0.5)
        np.testing.assert_array_equal(one.variance, 1 / 12)

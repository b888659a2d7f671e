"""Samplers and their cascade: against quadrature, dense grids over the whole prior, and densities that are known."""

import dataclasses

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from tfmat.identification import posterior, sampling
from tfmat.identification.evaluate import posterior_moments
from tfmat.identification.least_squares import fit, fit_with_noise
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors, Target
from tfmat.identification.posterior import Certificate, Posterior, independent_normal
from tfmat.identification.sampling import (
    _FREEDOM,
    _PRECISIONS,
    _WIDE_SHARE,
    _WIDENING,
    Kernels,
    about_modes,
    adaptive,
    adaptive_of_many,
    chains,
    importance,
    sample,
)
from tfmat.launch import processes
from tfmat.launch.processes import in_processes, one_thread_a_product
from tfmat.materials import find_law
from tfmat.records.simulation import CurveSettings, Simulator, observed


def all_simulated(count, seed=5, **settings):
    """Likelihoods of simulated curves (50 points tell as much as 200), labels of their fits, and true labels."""
    given = CurveSettings(**settings)
    simulator, noise = Simulator(given, seed), NoiseModel.of(given)
    curves = simulator.curves(0, count)
    points = observed(given, curves.features)
    fitted = fit_with_noise(simulator.law, *points, noise.noise_mpa, noise.noise_relative)
    labels = curves.labels.astype(np.float64)
    return SimulatedErrors(simulator.law, noise, *points), fitted.labels, labels


def simulated_each(count, seed=5, **settings):
    """The same, with a likelihood for each curve."""
    many, fitted, labels = all_simulated(count, seed, **settings)
    return many.each(), fitted, labels


def sampled(many, starts, seed=0, **options):
    """Posteriors of all curves, from one start each."""
    generators = [np.random.default_rng([seed, i]) for i in range(len(many))]
    return adaptive_of_many(many, starts[:, None], generators, **options)


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
    ("settings", "nodes", "close"),
    [
        ({}, 60, 0.01),
        ({"strength_cut_off": False, "max_strain": (0.008, 0.012)}, 60, 0.01),
        ({"noise_relative": 0.05, "noise_mpa": 0.5}, 60, 0.01),
        ({"law": "tanh_shear", "noise_mpa": 3.0}, 60, 0.01),
        ({"fixed": {"G0": 4000.0}}, 1000, 2e-3),
        # A cut that tells more than the stress.
        ({"noise_mpa": 20.0, "strength_mpa": (60.0, 61.0)}, 120, 0.15),
    ],
)
def test_quadrature_equals_brute_force(settings, nodes, close):
    """Also from a start that is a little off, of two labels."""
    curves, fitted, _ = simulated_each(4, **settings)
    for likelihood, mode in zip(curves, fitted, strict=True):
        mean, variance = brute_force(likelihood, len(mode), nodes)
        off = np.clip(mode + np.array([0.02, -0.1]), 0, 1) if close == 0.01 else mode
        for start in (mode, off):
            found = posterior_moments(likelihood, start)
            np.testing.assert_allclose(found.variance, variance, rtol=close)
            assert (np.abs(found.mean - mean) < min(close, 0.1) * np.sqrt(variance)).all()


def test_quadrature_has_converged():
    curves, fitted, _ = simulated_each(30)
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


def test_sampling_agrees_with_quadrature_within_its_stated_error():
    """Few curves, of many draws each: a variance that is off by 4 % everywhere is four standard errors off."""
    count = 24
    many, fitted, _ = all_simulated(count, num_points=50)
    curves = many.each()
    errors, spreads = [], []
    answers = sampled(many, fitted, enough=1000.0)
    for likelihood, mode, found in zip(curves, fitted, answers, strict=True):
        exact = posterior_moments(likelihood, mode)
        assert found.converged and found.effective_draws >= 1000
        errors.append((found.mean - exact.mean) / np.sqrt(exact.variance / found.effective_draws))
        spreads.append((found.variance / exact.variance - 1) * np.sqrt(found.effective_draws / 2))
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
    each = many.each()
    for one, found in zip(each, sampled(many, fitted, enough=1500.0), strict=True):
        mean, variance = brute_force(one, 3, 24)
        assert found.effective_draws > 1000
        # Standard errors of 1000 samples: 4.5 % of a variance, 0.03 standard deviations of a mean; three of them.
        np.testing.assert_allclose(found.variance, variance, rtol=0.14)
        assert (np.abs(found.mean - mean) < 0.1 * np.sqrt(variance)).all()


def test_records_of_a_law_with_memory_and_eight_labels_converge():
    """Thresholds: all records but one converged; ranks of the truth even (Kolmogorov-Smirnov, 0.001 each)."""
    count = 9
    settings = CurveSettings("voce_chaboche", num_points=80)
    curves = Simulator(settings, 5).curves(0, count)
    law, labels = settings.build_law(), curves.labels.astype(np.float64)
    many = SimulatedErrors(law, NoiseModel.of(settings), *observed(settings, curves.features))
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
    monkeypatch.setattr(sampling, "_TOGETHER", 3)
    many, fitted, _ = all_simulated(6, law="ramberg_osgood", num_points=50)
    together = sampled(many, fitted)
    for i in (0, 5):
        (alone,) = sampled(many, fitted, chosen=[i])
        np.testing.assert_allclose(alone.variance, together[i].variance, rtol=1e-6)


def test_what_is_impossible_everywhere_leaves_the_prior():
    strain = np.linspace(0, 0.03, 50)
    # It broke below every strength that there is.
    noise = NoiseModel(1.0, 0.0, (500.0, 501.0), 200)
    target = SimulatedErrors(find_law("hahn_tsai"), noise, strain[None], 3000 * strain[None])
    start = np.array([[0.2, 0.1]])
    (found,) = sampled(target, start)
    assert not found.converged
    for one in (posterior_moments(target, start[0]), found):
        np.testing.assert_array_equal(one.mean, 0.5)
        np.testing.assert_array_equal(one.variance, 1 / 12)


def sampled_about_modes(targets, starts, enough=300.0, seed=0):
    """Posteriors of those of all targets that it does for, from starts [targets, starts, p]."""
    begun = [Posterior(np.empty((0, given.shape[1])), starts=given) for given in starts]
    with one_thread_a_product():
        found = {
            i: about_modes(target, begun[i], np.random.default_rng([seed, i]), enough)
            for i, target in enumerate(targets)
        }
    return {i: one for i, one in found.items() if one is not begun[i]}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        # Short curves of a metal hardly tell Q from b: a long bent ridge.
        {"law": "voce", "fixed": {"E": 2e5, "sigma0": 300.0}, "noise_mpa": 10.0, "max_strain": (0.02, 0.2)},
    ],
)  # fmt: skip
def test_agrees_with_quadrature_within_its_stated_error(settings):
    """Thresholds as those of the adaptive sampler; 95 % of the curves are to be done."""
    count = 40
    many, fitted, _ = all_simulated(count, num_points=60, **settings)
    each = [many[i : i + 1] for i in range(count)]
    found = sampled_about_modes(each, fitted[:, None])
    assert len(found) >= 0.95 * count
    errors, spreads = [], []
    for i, likelihood in enumerate(many.each()):
        if i in found:
            one, exact = found[i], posterior_moments(likelihood, fitted[i])
            assert one.converged and one.effective_draws >= 300
            worth = one.effective_draws
            errors.append((one.mean - exact.mean) / np.sqrt(exact.variance / worth))
            spreads.append((one.variance / exact.variance - 1) * np.sqrt(worth / 2))
    assert (np.mean(np.square(errors), axis=0) < 1.2).all()
    assert (np.mean(np.square(spreads), axis=0) < 2).all()
    assert (np.abs(np.mean(spreads, axis=0)) < 4 / np.sqrt(len(found))).all()


class TwoHumps(Target):
    """A density of two narrow normal humps, far apart."""

    means, shares, std = np.array([[0.2, 0.3], [0.8, 0.6]]), np.array([0.3, 0.7]), 0.01

    def __init__(self):
        self.law = CurveSettings(law="hahn_tsai").build_law()

    def log_density(self, labels, records=None):
        humps = scipy.stats.norm.logpdf(labels[:, None], self.means, self.std).sum(axis=2)
        return np.logaddexp.reduce(humps + np.log(self.shares), axis=1)

    def expansion(self, labels, records=None):
        """That of the nearer hump."""
        away = self.means - labels[:, None]
        near = away[np.arange(len(labels)), np.square(away).sum(axis=2).argmin(axis=1)]
        information = np.broadcast_to(np.eye(2) / self.std**2, (len(labels), 2, 2))
        return self.log_density(labels), near / self.std**2, information


def test_both_humps_are_found_in_their_shares():
    """Four standard errors of 1000 draws."""
    (one,) = sampled_about_modes([TwoHumps()], TwoHumps.means[None] + 0.02, enough=1000.0).values()
    expected = TwoHumps.shares @ TwoHumps.means
    assert (np.abs(one.mean - expected) < 4 * np.sqrt(0.06 / 1000)).all()
    assert abs(one.log_evidence) < 4 / np.sqrt(1000)
    np.testing.assert_allclose(
        one.label_log_density + one.log_evidence, TwoHumps().log_density(one.labels), rtol=1e-12
    )


def test_a_likelihood_that_is_finite_nowhere_is_left_out():
    many, fitted, _ = all_simulated(2)
    many.stress = many.stress * np.nan
    assert sampled_about_modes([many[:1], many[1:]], fitted[:, None]) == {}


class Density(Target):
    """A logarithm of a density over the unit cube, which no law makes."""

    def __init__(self, function, nuisances=0):
        self.function, self.nuisances = function, nuisances

    def log_density(self, labels, records=None):
        return self.function(labels)

    def expansion(self, labels, records=None):
        raise NotImplementedError


def begun(labels):
    """Draws of one weight, which have not converged."""
    alike = np.full(len(labels), -np.log(len(labels)))
    certificate = Certificate("resampled", pareto_k=0.9, effective_draws=float(len(labels)))
    return Posterior(labels, None, certificate, log_weights=alike)


# Two parameters of each label's beta distribution: not told at all, leaning on an end, and inside.
SHAPES = np.array([[1.0, 1.0], [1.0, 8.0], [40.0, 25.0], [2.0, 2.0], [300.0, 500.0]])


@pytest.mark.parametrize("nuisances", [0, 1])
def test_moments_and_evidence_of_beta_distributions(nuisances):
    a, b = SHAPES.T

    def density(labels):
        return ((a - 1) * np.log(labels) + (b - 1) * np.log1p(-labels)).sum(axis=1)

    random = np.random.default_rng(0)
    wide = random.beta(0.3 * a, 0.3 * b, (400, 5))
    found = chains(Density(density, nuisances), begun(np.clip(wide, 1e-6, 1 - 1e-6)), random, 800.0)
    assert found.converged and found.effective_draws >= 800
    assert found.certificate.r_hat <= 1.01 and found.certificate.pareto_k is None
    exact, worth = scipy.stats.beta(a, b), found.effective_draws
    both = dataclasses.replace(found, labels=found.with_errors)
    # Five standard errors; the heaviest tail leaves variances half as sure as a normal density would.
    assert (np.abs(both.mean - exact.mean()) < 5 * exact.std() / np.sqrt(worth)).all()
    np.testing.assert_allclose(both.variance / exact.var(), 1.0, atol=7.5 * np.sqrt(2 / worth))
    assert found.labels.shape[1] == 5 - nuisances
    np.testing.assert_allclose(found.log_evidence, scipy.special.betaln(a, b).sum(), atol=0.2)
    assert (found.label_log_density is None) == bool(nuisances)


def test_chains_that_have_not_met_show_in_r_hat(monkeypatch):
    """Two modes, forty standard deviations apart, of one mass; more steps would not bring the chains together."""
    monkeypatch.setattr(sampling, "_MOST_CHAIN_STEPS", 200)
    modes = [scipy.stats.multivariate_normal(np.full(3, at), 1e-4 * np.eye(3)) for at in (0.3, 0.7)]

    def density(labels):
        return np.logaddexp(*(mode.logpdf(labels) for mode in modes))

    random = np.random.default_rng(1)
    labels = np.concatenate([mode.rvs(300, random_state=random) for mode in modes])
    found = chains(Density(density), begun(labels), random, 100.0)
    assert not found.converged and found.certificate.r_hat > 1.5
    assert (
        "R-hat " in found.certificate.shortcoming
        and "of chains (at" in found.certificate.shortcoming
    )


def test_few_draws_are_no_start():
    few = begun(np.full((60, 2), 0.5))
    random = np.random.default_rng(2)
    assert chains(Density(lambda labels: labels.sum(axis=1)), few, random, 100.0) is few


def test_the_cascade_ends_with_chains_where_no_weights_do(monkeypatch):
    """As exact as its moments by quadrature, its density as the entropy says, the same by any number of processes."""
    many, fitted, _, _ = simulated(2)
    monkeypatch.setattr(sampling, "SAMPLERS", (importance, adaptive, chains))
    monkeypatch.setattr(sampling, "_MOST_ROUNDS", 6)
    monkeypatch.setattr(posterior, "LARGEST_K", -99.0)
    found = sampled_anew(many, guesses(fitted, 1200), 600)
    monkeypatch.setattr(processes, "available_threads", lambda: 1)
    (alone,) = sampled_anew(many[:1], guesses(fitted, 1200), 600)
    np.testing.assert_array_equal(alone.labels, found[0].labels)
    assert alone.certificate == found[0].certificate
    for one, target, mode in zip(found, many.each(), fitted.labels, strict=True):
        exact, certificate = posterior_moments(target, mode), one.certificate
        assert certificate.status == "chains" and certificate.is_exact
        assert certificate.r_hat <= 1.01 and certificate.pareto_k is None
        worth = min(certificate.effective_draws, 600)
        assert (np.abs(one.mean - exact.mean) < 5 * np.sqrt(exact.variance / worth)).all()
        np.testing.assert_allclose(one.variance / exact.variance, 1.0, atol=5 * np.sqrt(2 / worth))
        entropy = scipy.stats.multivariate_normal(cov=np.cov(one.labels.T)).entropy()
        assert abs(-one.label_log_density.mean() - entropy) < 0.25


def test_few_draws_go_on_as_chains_and_are_kept_where_these_do_not_meet(monkeypatch):
    many, fitted, _, _ = simulated(1)
    monkeypatch.setattr(sampling, "SAMPLERS", (importance, adaptive, chains))
    monkeypatch.setattr(sampling, "_LEAST_SHARE", 99.0)
    (walked,) = sampled_anew(many, guesses(fitted, 600), 300)
    assert walked.certificate.status == "chains"
    monkeypatch.setattr(posterior, "LARGEST_R_HAT", 0.0)
    (kept,) = sampled_anew(many, guesses(fitted, 600), 300)
    assert kept.certificate.status == "resampled" and kept.certificate.r_hat is None
    assert kept.certificate.pareto_k <= 0.7
    # Five standard errors of 300 draws each.
    assert (np.abs(walked.mean - kept.mean) < 5 * kept.std * np.sqrt(2 / 300)).all()


def simulated(count, law="hahn_tsai", **settings):
    """Likelihoods that know the law's own noise, best fits, true labels, and strain, stress and valid."""
    given = CurveSettings(law=law, **settings)
    simulator = Simulator(given, seed=11)
    curves = simulator.curves(0, count)
    points = observed(given, curves.features)
    many = SimulatedErrors(simulator.law, NoiseModel.of(CurveSettings(law=law)), *points)
    return many, fit(simulator.law, *points), curves.labels.astype(float), points


def guesses(fitted, samples=600, wider=3.0):
    """Draws as a network would give them that knows each label alone, three times as badly as it could."""
    std = np.clip(wider * fitted.label_std, 0.003, 0.2)
    return independent_normal(fitted.labels, std, samples, seed=0)


def sampled_anew(many, draws, samples, starts=None):
    """What the cascade makes of draws of each of many simulated curves."""

    def one(i):
        given = None if starts is None else starts[i : i + 1]
        proposals = dataclasses.replace(draws[i], starts=given)
        return sample(many[i : i + 1], proposals, samples, np.random.default_rng([0, i]))

    with one_thread_a_product():
        return list(in_processes(one, range(len(many))))


def test_samples_of_the_cascade_are_of_the_exact_posterior():
    many, fitted, _, _ = simulated(12)
    found = sampled_anew(many, guesses(fitted, 4000), 2000)
    for one, target, mode in zip(found, many.each(), fitted.labels, strict=True):
        exact, certificate = posterior_moments(target, mode), one.certificate
        assert certificate.status in ("corrected", "resampled")
        worth = min(certificate.effective_draws, 2000)
        deviation = np.sqrt(exact.variance)
        # Five standard errors.
        assert (np.abs(one.mean - exact.mean) < 5 * deviation / np.sqrt(worth)).all()
        np.testing.assert_allclose(one.variance / exact.variance, 1.0, atol=5 * np.sqrt(2 / worth))
        assert certificate.posterior_predictive_p > 0.001
        # The mean of -log density is the entropy, near that of a normal density of this covariance.
        entropy = scipy.stats.multivariate_normal(cov=np.cov(one.labels.T)).entropy()
        assert abs(-one.label_log_density.mean() - entropy) < 0.25


@pytest.mark.parametrize("samplers", [(about_modes, adaptive), (adaptive,)])
def test_hopeless_draws_are_sampled_anew_and_say_so(monkeypatch, samplers):
    """About the modes, or where that is left out by the adaptive sampler."""
    many, fitted, _, _ = simulated(2)
    monkeypatch.setattr(sampling, "SAMPLERS", (importance, *samplers, chains))
    far = independent_normal(np.full((2, 2), 0.5), np.full((2, 2), 0.29), 400, seed=1)
    found = sampled_anew(many, far, 300, starts=fitted.labels)
    near = sampled_anew(many, guesses(fitted), 300)
    for one, other in zip(found, near, strict=True):
        assert one.certificate.status == "resampled"
        np.testing.assert_allclose(one.mean, other.mean, atol=5 * other.std.max() / 10)


def test_what_cannot_be_trusted_is_said():
    many, fitted, _, points = simulated(2)
    quieter = SimulatedErrors(many.law, NoiseModel(0.3, 0.0, None, 200), *points)
    draws = guesses(fitted)
    for one, own in zip(sampled_anew(quieter, draws, 300), draws.labels, strict=True):
        assert one.certificate.status == "do not trust"
        assert "posterior predictive p" in one.certificate.reason
        np.testing.assert_array_equal(one.labels, own[:300])
    nowhere = many[:1]
    nowhere.stress = nowhere.stress * np.nan
    (one,) = sampled_anew(nowhere, draws, 300)
    assert one.certificate.status == "do not trust" and "not finite" in one.certificate.reason


CENTRES = np.array([[0.3, 0.6], [0.5, 0.2]])
CURVATURE = np.array([[[400.0, 100.0], [100.0, 90.0]], [[0.0, 0.0], [0.0, 2500.0]]])
SHARES = np.array([0.75, 0.25])


def test_the_density_is_that_of_students_t():
    kernels = Kernels(CENTRES, CURVATURE, SHARES, [np.array([0, 1]), np.array([1, 0])])
    points = np.random.default_rng(0).random((20, 2))
    expected, highest = np.zeros(20), np.zeros((2, 20))
    for i, (centre, curvature, share) in enumerate(zip(CENTRES, CURVATURE, SHARES, strict=True)):
        for precision in _PRECISIONS:
            shape = _WIDENING**2 * np.linalg.inv(curvature + precision * np.eye(2))
            density = scipy.stats.multivariate_t(centre, shape, _FREEDOM)
            # Draws are sorted, so that both orders of the columns are the same point.
            expected += share / 3 * (density.pdf(points) + density.pdf(points[:, ::-1]))
            highest[i] = np.maximum(highest[i], density.pdf(points))
    found, nearest, height = kernels.log_density_and_nearest(points)
    np.testing.assert_array_equal(kernels.log_density(points), found)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-10)
    assert set(nearest) == {0, 1}
    np.testing.assert_array_equal(nearest, np.argmax(highest, axis=0))
    # Up to the constant of Student's t.
    np.testing.assert_allclose(np.ptp(height - np.log(np.max(highest, axis=0))), 0.0, atol=1e-10)


def test_long_kernels_stand_beside_the_others():
    order = [np.array([0, 1])]
    points = np.random.default_rng(0).random((20, 2))
    short = np.exp(Kernels(CENTRES, CURVATURE, SHARES, order).log_density(points))
    expected = (1.0 - _WIDE_SHARE) * short
    for centre, curvature, share in zip(CENTRES, CURVATURE, SHARES, strict=True):
        precision = curvature / 9.0 + _PRECISIONS[0] * np.eye(2) / _WIDENING**2
        density = scipy.stats.multivariate_t(centre, np.linalg.inv(precision), _FREEDOM)
        expected += share * _WIDE_SHARE * density.pdf(points)
    found = Kernels(CENTRES, CURVATURE, SHARES, order, 3.0).log_density(points)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-10)


def test_draws_have_the_density():
    kernels = Kernels(CENTRES, CURVATURE, SHARES, [np.array([0, 1])])
    draws = kernels.draw(200_000, np.random.default_rng(1))
    inside = ((draws > [0.2, 0.5]) & (draws < [0.4, 0.7])).all(axis=1).mean()
    grid = np.linspace([0.2, 0.5], [0.4, 0.7], 201).T
    points = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(kernels.log_density(points)).reshape(201, 201)
    expected = scipy.integrate.simpson(scipy.integrate.simpson(density, x=grid[1]), x=grid[0])
    assert abs(inside - expected) < 5 * np.sqrt(expected / 200_000)

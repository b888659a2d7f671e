"""Posteriors of the law's likelihood about the fit, where no network says how sure it is."""

import numpy as np
import scipy.stats

import tfmat
from tfmat.curves.example import example_curve
from tfmat.identification.draws import normal_proposals


def test_proposals_are_a_normal_distribution_and_a_wider_one():
    mean, covariance = np.array([0.4, 0.95]), np.array([[4e-4, 3e-4], [3e-4, 9e-4]])
    draws = normal_proposals(mean, covariance, 20_000)
    own, wide = (scipy.stats.multivariate_normal(mean, s**2 * covariance) for s in (1.0, 1.5))
    np.testing.assert_allclose(draws.log_density[0], own.logpdf(draws.labels[0]), rtol=1e-6)
    mixture = np.log(0.5 * own.pdf(draws.labels[0]) + 0.5 * wide.pdf(draws.labels[0]))
    np.testing.assert_allclose(draws.proposed[0], mixture, rtol=1e-6, atol=1e-6)
    half = draws.labels[0, :20_000]
    np.testing.assert_allclose(np.cov(half.T), covariance, rtol=5 * np.sqrt(2 / 20_000) + 0.01)
    # What a test does not tell has the variance of its range, and not an infinite one.
    unknown = normal_proposals(mean, np.full((2, 2), np.inf), 20_000)
    np.testing.assert_allclose(unknown.labels[0, :20_000].var(axis=0), 1 / 12, rtol=0.05)


def test_it_is_the_posterior_that_a_network_is_corrected_to(trained_run, posterior_run):
    """Draws of a network and those about the fit are weighed by one likelihood: alike within five standard errors."""
    path = str(example_curve("hahn_tsai"))
    (helped,) = tfmat.identify(path, workdir=posterior_run, samples=2000)
    # This network does not say how sure it is.
    (alone,) = tfmat.identify(path, workdir=trained_run.workdir, samples=2000)
    assert alone.method == "least_squares" and alone.samples.names == helped.samples.names
    first, second = helped.posterior, alone.posterior
    assert first.certificate.is_exact and second.certificate.is_exact
    worth = min(2000, *(each.certificate.effective_draws for each in (first, second)))
    assert (np.abs(first.mean - second.mean) < 5 * first.std * np.sqrt(2 / worth)).all()
    np.testing.assert_allclose(second.std / first.std, 1.0, atol=5 * np.sqrt(1 / worth))


def test_given_parameters_are_no_part_of_it():
    """With E known the others' posterior is the slice of the joint one: its correlations with E are gone."""
    path = str(example_curve("voce"))
    (joint,) = tfmat.identify(path, law="voce", samples=1000)
    (given,) = tfmat.identify(path, law="voce", samples=1000, fixed={"E": 200_000.0})
    assert given.samples.names == ("sigma0", "Q", "b") and given.posterior.certificate.is_exact
    values = joint.samples.values
    # Least squares has the posterior's errors: its interval of sigma0 was half as wide.
    for name, own in zip(joint.samples.names, values.T, strict=True):
        low, high = joint.parameters[name].ci95
        assert 0.6 < (high - low) / np.ptp(np.quantile(own, [0.025, 0.975])) < 2.0
    covariance = np.cov(values.T)
    # Of a joint distribution that is nearly normal.
    expected = values.mean(axis=0)[1:] + covariance[1:, 0] / covariance[0, 0] * (
        200_000.0 - values[:, 0].mean()
    )
    spread = given.samples.values.std(axis=0)
    assert (np.abs(given.samples.values.mean(axis=0) - expected) < 0.5 * spread).all()


def test_tests_of_a_law_without_a_network():
    """Two tests of a neo-Hookean rubber, nominal stress μ (λ − λ^−2) and μ (λ − λ^−3), with noise of 0.01 MPa."""
    random, stretch = np.random.default_rng(3), np.linspace(1.0, 2.5, 60)
    tests = {
        name: (stretch - 1.0, 0.8 * (stretch - stretch**power) + random.normal(0, 0.01, 60))
        for name, power in (("uniaxial", -2.0), ("planar", -3.0))
    }
    answer = tfmat.identify(tests, law="neo_hooke", samples=1000)
    assert answer.method == "least_squares" and answer.posterior.certificate.is_exact
    drawn = answer.samples.values[:, 0]
    assert abs(drawn.mean() - 0.8) < 4 * drawn.std()
    # The noise alone would leave this much; zeroes that may be off by 0.5 % of the largest stress leave more.
    slopes = np.concatenate([(stretch - stretch**power) for power in (-2.0, -3.0)])
    by_noise = 0.01 / np.linalg.norm(slopes)
    assert by_noise < drawn.std() < 10 * by_noise


def test_a_posterior_that_leans_on_an_end_says_so():
    (answer,) = tfmat.identify(str(example_curve("voce")), law="ramberg_osgood", samples=300)
    certificate = answer.posterior.certificate
    assert certificate.status == "do not trust"
    assert "leans on the end of the range of E" in certificate.reason
    assert any(line.kind == "posterior is not to be trusted" for line in answer.warnings)
    assert ((answer.samples.labels >= 0) & (answer.samples.labels <= 1)).all()

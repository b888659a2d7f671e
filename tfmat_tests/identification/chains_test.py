"""Markov chains against densities whose moments and integrals are known, and where they come in a correction."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

from tfmat.identification import correction, posterior_sampling, side_by_side, weighted_draws
from tfmat.identification.chains import sample_by_chains
from tfmat.identification.correction import correct
from tfmat.identification.likelihood import Likelihoods
from tfmat.identification.posterior_grid import likelihoods, posterior_moments
from tfmat.identification.weighted_draws import SampledPosterior
from tfmat_tests.identification.correction_test import guesses, simulated


class Density(Likelihoods):
    """A logarithm of a density over the unit cube, which no law makes."""

    def __init__(self, function, nuisances=0):
        self.function, self.nuisances = function, nuisances

    def log_density(self, curves, labels):
        return self.function(labels)


def begun(labels):
    """Draws of one weight."""
    return SampledPosterior(labels, np.full(len(labels), -np.log(len(labels))), 0.0, len(labels))


# Two parameters of each label's beta distribution: not told at all, leaning on an end, and inside.
SHAPES = np.array([[1.0, 1.0], [1.0, 8.0], [40.0, 25.0], [2.0, 2.0], [300.0, 500.0]])


@pytest.mark.parametrize("nuisances", [0, 1])
def test_moments_and_evidence_of_beta_distributions(nuisances):
    a, b = SHAPES.T

    def density(labels):
        return ((a - 1) * np.log(labels) + (b - 1) * np.log1p(-labels)).sum(axis=1)

    random = np.random.default_rng(0)
    wide = random.beta(0.3 * a, 0.3 * b, (400, 5))
    found = sample_by_chains(
        Density(density, nuisances), 0, begun(np.clip(wide, 1e-6, 1 - 1e-6)), random, 800.0
    )
    assert found.converged and found.effective_samples >= 800
    assert found.r_hat <= 1.01 and np.isnan(found.pareto_k)
    exact, worth = scipy.stats.beta(a, b), found.effective_samples
    both = SampledPosterior(found.with_errors, found.log_weights, np.nan, worth)
    # Five standard errors; the heaviest tail leaves variances half as sure as a normal density would.
    assert (np.abs(both.mean - exact.mean()) < 5 * exact.std() / np.sqrt(worth)).all()
    np.testing.assert_allclose(both.variance / exact.var(), 1.0, atol=7.5 * np.sqrt(2 / worth))
    assert found.labels.shape[1] == 5 - nuisances
    np.testing.assert_allclose(found.log_evidence, scipy.special.betaln(a, b).sum(), atol=0.2)
    assert (found.log_likelihood is None) == bool(nuisances)


def test_chains_that_have_not_met_show_in_r_hat():
    """Two modes, forty standard deviations apart, of one mass."""
    modes = [scipy.stats.multivariate_normal(np.full(3, at), 1e-4 * np.eye(3)) for at in (0.3, 0.7)]

    def density(labels):
        return np.logaddexp(*(mode.logpdf(labels) for mode in modes))

    random = np.random.default_rng(1)
    labels = np.concatenate([mode.rvs(300, random_state=random) for mode in modes])
    found = sample_by_chains(Density(density), 0, begun(labels), random, 100.0)
    assert not found.converged and found.r_hat > 1.5
    assert (
        found.shortcoming.startswith("R-hat ") and "of chains (at most 1.01)" in found.shortcoming
    )


def test_few_draws_are_no_start():
    few = begun(np.full((60, 2), 0.5))
    random = np.random.default_rng(2)
    assert (
        sample_by_chains(Density(lambda labels: labels.sum(axis=1)), 0, few, random, 100.0) is few
    )


def test_a_correction_ends_with_chains_where_no_weights_do(monkeypatch):
    """As exact as its moments by quadrature, its density as the entropy says, the same by any number of processes."""
    many, fitted, _, _ = simulated(2)
    monkeypatch.setattr(correction, "suits", lambda _: False)
    monkeypatch.setattr(posterior_sampling, "_MOST_ROUNDS", 6)
    for module in (posterior_sampling, weighted_draws):
        monkeypatch.setattr(module, "LARGEST_K", -99.0)
    told = []
    found, certificates = correct(
        many, guesses(fitted, 1200), 600, progress=lambda *done: told.append(done)
    )
    assert told[-1] == (2, 2) and told == sorted(told)
    monkeypatch.setattr(side_by_side, "processors", lambda: 1)
    alone, others = correct(many, guesses(fitted, 1200), 600)
    np.testing.assert_array_equal(alone.labels, found.labels)
    assert others == certificates
    each = likelihoods(many.law, many.noise, many.strain, many.stress, many.valid)
    for i, one in enumerate(each):
        exact, certificate = posterior_moments(one, fitted.labels[i]), certificates[i]
        assert certificate.status == "chains" and certificate.is_exact
        assert certificate.r_hat <= 1.01 and certificate.pareto_k is None
        worth = min(certificate.effective_draws, 600)
        off = np.abs(found.mean[i] - exact.mean)
        assert (off < 5 * np.sqrt(exact.variance / worth)).all()
        spread = found.labels[i].var(axis=0) / exact.variance
        np.testing.assert_allclose(spread, 1.0, atol=5 * np.sqrt(2 / worth))
        entropy = scipy.stats.multivariate_normal(cov=np.cov(found.labels[i].T)).entropy()
        assert abs(-found.log_density[i].mean() - entropy) < 0.25


def test_few_draws_go_on_as_chains_and_are_kept_where_these_do_not_meet(monkeypatch):
    many, fitted, _, _ = simulated(1)
    monkeypatch.setattr(correction, "suits", lambda _: False)
    monkeypatch.setattr(correction, "_LEAST_SHARE", 99.0)
    walked, (certificate,) = correct(many, guesses(fitted, 600), 300)
    assert certificate.status == "chains"
    monkeypatch.setattr(weighted_draws, "LARGEST_R_HAT", 0.0)
    kept, (certificate,) = correct(many, guesses(fitted, 600), 300)
    assert certificate.status == "resampled" and certificate.r_hat is None
    assert certificate.pareto_k <= 0.7
    # Five standard errors of 300 draws each.
    assert (np.abs(walked.mean - kept.mean) < 5 * kept.std * np.sqrt(2 / 300)).all()

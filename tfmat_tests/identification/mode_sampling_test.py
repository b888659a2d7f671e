"""Sampling about modes against quadrature, a dense grid, and a density of two humps whose moments are known."""

import numpy as np
import pytest
import scipy.stats

from tfmat.curves.settings import CurveSettings
from tfmat.identification.likelihood import Likelihoods
from tfmat.identification.mode_sampling import sample_about_modes
from tfmat.identification.posterior_grid import likelihoods, posterior_moments
from tfmat.identification.side_by_side import one_thread_a_product
from tfmat_tests.identification.posterior_test import all_simulated


def sampled(many, starts, enough=300.0, seed=0):
    """Posteriors of those of all curves that it does for, from starts [curves, starts, p]."""
    with one_thread_a_product():
        found = {
            i: sample_about_modes(many, i, given, np.random.default_rng([seed, i]), enough)
            for i, given in enumerate(starts)
        }
    return {i: one for i, one in found.items() if one is not None}


def by_curve(many):
    """A likelihood for each curve."""
    return likelihoods(many.law, many.noise, many.strain, many.stress, many.valid)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        # Short curves of a metal hardly tell Q from b: a long bent ridge.
        {
            "law": "voce",
            "fixed": {"E": 2e5, "sigma0": 300.0},
            "noise_mpa": 10.0,
            "max_strain": (0.02, 0.2),
        },
    ],
)
def test_agrees_with_quadrature_within_its_stated_error(settings):
    """Thresholds as those of the adaptive sampler; 95 % of the curves are to be done."""
    many, fitted, _ = all_simulated(60, num_points=60, **settings)
    found = sampled(many, fitted[:, None])
    assert len(found) >= 57
    errors, spreads = [], []
    for i, likelihood in enumerate(by_curve(many)):
        if i in found:
            one, exact = found[i], posterior_moments(likelihood, fitted[i])
            assert one.converged and one.effective_samples >= 300
            count = one.effective_samples
            errors.append((one.mean - exact.mean) / np.sqrt(exact.variance / count))
            spreads.append((one.variance / exact.variance - 1) * np.sqrt(count / 2))
    assert (np.mean(np.square(errors), axis=0) < 1.2).all()
    assert (np.mean(np.square(spreads), axis=0) < 2).all()
    assert (np.abs(np.mean(spreads, axis=0)) < 4 / np.sqrt(len(found))).all()


class TwoHumps(Likelihoods):
    """A density of two narrow normal humps, far apart."""

    means, shares, std = np.array([[0.2, 0.3], [0.8, 0.6]]), np.array([0.3, 0.7]), 0.01

    def __init__(self):
        self.law = CurveSettings(law="hahn_tsai").build_law()

    def log_density(self, curves, labels):
        """See `Likelihoods`."""
        humps = scipy.stats.norm.logpdf(labels[:, None], self.means, self.std).sum(axis=2)
        return np.logaddexp.reduce(humps + np.log(self.shares), axis=1)

    def expansion(self, curves, labels):
        """See `Likelihoods`: that of the nearer hump."""
        away = self.means - labels[:, None]
        near = away[np.arange(len(labels)), np.square(away).sum(axis=2).argmin(axis=1)]
        information = np.broadcast_to(np.eye(2) / self.std**2, (len(labels), 2, 2))
        return self.log_density(curves, labels), near / self.std**2, information


def test_both_humps_are_found_in_their_shares():
    """Four standard errors of 1000 draws."""
    (one,) = sampled(TwoHumps(), TwoHumps.means[None] + 0.02, enough=1000.0).values()
    expected = TwoHumps.shares @ TwoHumps.means
    assert (np.abs(one.mean - expected) < 4 * np.sqrt(0.06 / 1000)).all()
    assert abs(one.log_evidence) < 4 / np.sqrt(1000)
    np.testing.assert_allclose(
        one.log_likelihood, TwoHumps().log_density(slice(0, 1), one.labels), rtol=1e-12
    )


def test_a_likelihood_that_is_finite_nowhere_is_left_out():
    many, fitted, _ = all_simulated(2)
    many.stress = many.stress * np.nan
    assert sampled(many, fitted[:, None]) == {}

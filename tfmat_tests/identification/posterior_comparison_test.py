"""Comparison with exact posteriors: what is known of Gaussians, and a network that is told the exact posterior."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from tfmat.curves.records import observed
from tfmat.curves.settings import CurveSettings
from tfmat.data.dataset import generate_dataset
from tfmat.errors import InputError
from tfmat.identification.draws import Draws
from tfmat.identification.identifier import Identifier
from tfmat.identification.likelihood import Likelihoods, NoiseModel
from tfmat.identification.posterior_comparison import c2st, compare_posteriors
from tfmat.identification.weighted_draws import SampledPosterior

CURVES = 12


@pytest.mark.parametrize(
    ("shift", "wider", "expected"), [(0.0, 1.0, 0.5), (0.5, 1.0, 0.599), (0.0, 1.4, 0.625)]
)
def test_a_classifier_comes_near_the_best_one(shift, wider, expected):
    """Of two shifted Gaussians it is right with Φ(shift / 2); of a wider one the same by quadrature."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(6):
        drawn = wider * random.normal(size=(1000, 2)) + [shift, 0.0]
        proposed = 1.3 * random.normal(size=(3000, 2))
        density = scipy.stats.norm.logpdf(proposed) - scipy.stats.norm.logpdf(proposed, 0, 1.3)
        # Correlated and of different widths: no matter.
        skew = np.array([[1.0, 0.0], [5.0, 0.01]])
        exact = SampledPosterior.of(proposed @ skew.T, density.sum(axis=1))
        found.append(c2st(drawn @ skew.T, exact))
    assert expected - 0.03 < np.mean(found) < expected + 0.015


class Told:
    """Answers like a network with draws from normal densities around the exact means, so many times as wide."""

    uncertainty = "flow"

    def __init__(self, dataset, wider):
        self.parameters, self._wider = dataset.parameters, wider
        settings, start = dataset.settings, dataset.num_train + dataset.num_validation
        features = np.array(dataset.features[start : start + CURVES])
        self._labels = np.array(dataset.labels[start : start + CURVES], np.float64)
        likelihoods = Likelihoods(
            settings.build_law(), NoiseModel.of(settings), *observed(settings, features)
        )
        _, gradient, information = likelihoods.expansion(np.arange(CURVES), self._labels)
        covariance = np.linalg.inv(information)
        self._means = self._labels + (covariance @ gradient[:, :, None])[:, :, 0]
        self._said = [
            scipy.stats.multivariate_normal(mean, wider**2 * each)
            for mean, each in zip(self._means, covariance, strict=True)
        ]

    def draws(self, features, samples, *, seed=0):
        random = np.random.default_rng(seed)
        labels = np.stack([said.rvs(samples, random_state=random) for said in self._said])
        density = [said.logpdf(drawn) for said, drawn in zip(self._said, labels, strict=True)]
        return Draws(np.clip(labels, 0.0, 1.0), np.array(density))

    def log_density(self, features, labels):
        return np.array([s.logpdf(each) for s, each in zip(self._said, labels, strict=True)])


@pytest.fixture(scope="module")
def short_noise(tmp_path_factory):
    """Curves so clear that their posteriors are normal ones."""
    settings = CurveSettings(noise_mpa=0.02, max_strain=(0.05, 0.05), strength_mpa=None)
    folder = tmp_path_factory.mktemp("data")
    return generate_dataset(settings, seed=3, num_curves=8, num_test=CURVES, data_dir=folder)


@pytest.mark.parametrize(("wider", "gap"), [(1.0, 0.0), (1.5, 2 * np.log(1.5) - 0.5556)])
def test_the_numbers_of_right_and_wide_posteriors(short_noise, wider, gap):
    found = compare_posteriors(Told(short_noise, wider), short_noise, CURVES)
    assert found["num_curves"] == CURVES and found["pareto_k"]["share_above"] == 0
    # Kullback-Leibler's divergence of two normal densities of two labels, of 12 truths.
    assert found["log_score_gap"] == pytest.approx(gap, abs=0.02 if wider == 1 else 0.45)
    expected = 0.5 if wider == 1 else 0.5 + 0.5 * _total_variation(wider)
    assert found["best_classifier"]["median"] == pytest.approx(expected, abs=0.015)
    assert expected - 0.04 < found["c2st"]["median"] < expected + 0.02
    for entry in found["parameters"].values():
        assert entry["std_ratio"] == pytest.approx(wider, rel=0.06)
        assert entry["mean_error"] < 0.12


def _total_variation(wider):
    """Of two normal densities of two labels, one so many times as wide, by their radii."""
    radius = np.sqrt(2 * np.log(wider**2) / (1 - wider**-2))
    within = scipy.stats.chi2(2).cdf
    return within(radius**2) - within((radius / wider) ** 2)


def test_what_has_no_exact_posterior_is_refused(posterior_run, trained_run, tmp_path):
    identifier = Identifier.open(posterior_run)
    other = generate_dataset(
        CurveSettings(ranges={"G0": (3000.0, 7000.0)}),
        seed=2,
        num_curves=8,
        num_test=4,
        data_dir=tmp_path,
    )
    with pytest.raises(InputError, match="drawn from other ranges"):
        compare_posteriors(identifier, other, 4)
    imported = dataclasses.replace(trained_run.dataset, settings=None)
    with pytest.raises(InputError, match="were not simulated here"):
        compare_posteriors(identifier, imported, 4)

"""Checks of posteriors: a right one passes, each way to be wrong shows, and exact ones tell how near a network is."""

import dataclasses
import json

import msgspec
import numpy as np
import pytest
import scipy.stats

from tfmat.data.dataset import generate_dataset
from tfmat.errors import InputError
from tfmat.identification.evaluate import c2st, compare_posteriors, posterior_scores
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors
from tfmat.identification.networks import Identifier
from tfmat.identification.posterior import Posterior
from tfmat.records.simulation import CurveSettings, observed

CURVES, SAMPLES = 2000, 200


def _scores(shift=0.0, wider=1.0, seed=0):
    """Correlated Gaussians around the truth, of which the network says something shifted or wider."""
    random = np.random.default_rng(seed)
    covariance = 1e-4 * np.array([[1.0, 0.9], [0.9, 1.0]])
    centres = random.uniform(0.3, 0.7, (CURVES, 2))
    noise = random.multivariate_normal([0, 0], covariance, (CURVES, SAMPLES + 1))
    labels = centres[:, None] + shift + wider * noise[:, 1:]
    said = scipy.stats.multivariate_normal([0, 0], wider**2 * covariance)
    density = said.logpdf(labels - centres[:, None] - shift)
    true = centres + noise[:, 0]
    scores = posterior_scores(
        ["x", "y"], Posterior(labels, density), true, said.logpdf(true - centres - shift)
    )
    return scores, -scipy.stats.multivariate_normal([0, 0], covariance).entropy()


def test_a_right_posterior_passes():
    scores, expected = _scores()
    assert scores.num_curves == CURVES
    assert scores.log_score == pytest.approx(expected, abs=4 * scores.log_score_error)
    for percent, held in scores.joint_coverage.items():
        assert held == pytest.approx(int(percent) / 100, abs=0.035)
    assert all(entry.inside_band for entry in scores.ranks.values())
    assert scores.contraction["x"] == pytest.approx(1 - 12e-4, abs=2e-4)
    assert scores.tarp.inside_band
    for entry in scores.z_score.values():
        # Four standard errors, and what 200 draws do not tell of mean and deviation.
        assert abs(entry.mean) < 4 / np.sqrt(CURVES)
        assert entry.rms == pytest.approx(1, abs=4 / np.sqrt(2 * CURVES) + 0.02)


def test_a_single_curve_has_no_standard_error():
    labels = np.random.default_rng(0).uniform(size=(1, SAMPLES, 2))
    draws = Posterior(labels, np.zeros((1, SAMPLES)))
    scores = posterior_scores(["x", "y"], draws, np.array([[0.4, 0.6]]), np.zeros(1))
    assert scores.log_score_error is None
    json.dumps(msgspec.to_builtins(scores), allow_nan=False)


def test_tarp_sees_what_single_parameters_do_not_show():
    """Right marginal distributions without their correlation."""
    random = np.random.default_rng(0)
    true = random.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], CURVES)
    labels = random.standard_normal((CURVES, SAMPLES, 2))
    said = scipy.stats.norm.logpdf
    draws = Posterior(0.5 + 0.01 * labels, said(labels).sum(axis=2))
    scores = posterior_scores(["x", "y"], draws, 0.5 + 0.01 * true, said(true).sum(axis=1))
    assert all(entry.inside_band for entry in scores.ranks.values())
    assert not scores.tarp.inside_band


def test_the_band_holds_nineteen_of_twenty():
    inside = [_scores(seed=seed)[0].ranks["x"].inside_band for seed in range(20)]
    assert sum(inside) >= 16  # fewer happen once in 400 times


@pytest.mark.parametrize(("shift", "wider"), [(0.003, 1.0), (0.0, 1.4), (0.0, 0.7)])
def test_a_wrong_one_does_not(shift, wider):
    right, _ = _scores()
    scores, _ = _scores(shift, wider)
    assert not scores.ranks["x"].inside_band
    assert scores.log_score < right.log_score
    if shift:
        assert scores.ranks["x"].largest_difference > 0.05  # said too high: ranks are low
    else:
        held = scores.joint_coverage["90"]
        assert held > 0.95 if wider > 1 else held < 0.85


COMPARED = 12


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
        exact = Posterior.weighted(proposed @ skew.T, density.sum(axis=1))
        found.append(c2st(drawn @ skew.T, exact))
    assert expected - 0.03 < np.mean(found) < expected + 0.015


class Told:
    """Answers like a network with draws from normal densities around the exact means, so many times as wide."""

    uncertainty = "flow"

    def __init__(self, dataset, wider):
        self.parameters, self._wider = dataset.parameters, wider
        settings, start = dataset.settings, dataset.num_train + dataset.num_validation
        features = np.array(dataset.features[start : start + COMPARED])
        self._labels = np.array(dataset.labels[start : start + COMPARED], np.float64)
        target = SimulatedErrors(
            settings.build_law(), NoiseModel.of(settings), *observed(settings, features)
        )
        _, gradient, information = target.expansion(self._labels, np.arange(COMPARED))
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
        return Posterior(np.clip(labels, 0.0, 1.0), np.array(density))

    def log_density(self, features, labels):
        return np.array([s.logpdf(each) for s, each in zip(self._said, labels, strict=True)])


@pytest.fixture(scope="module")
def short_noise(tmp_path_factory):
    """Curves so clear that their posteriors are normal ones."""
    settings = CurveSettings(noise_mpa=0.02, max_strain=(0.05, 0.05), strength_mpa=None)
    folder = tmp_path_factory.mktemp("data")
    return generate_dataset(settings, seed=3, num_curves=8, num_test=COMPARED, data_dir=folder)


@pytest.mark.parametrize(("wider", "gap"), [(1.0, 0.0), (1.5, 2 * np.log(1.5) - 0.5556)])
def test_the_numbers_of_right_and_wide_posteriors(short_noise, wider, gap):
    found = compare_posteriors(Told(short_noise, wider), short_noise, COMPARED)
    assert found.num_curves == COMPARED and found.pareto_k.share_above == 0
    # Kullback-Leibler's divergence of two normal densities of two labels, of 12 truths.
    assert found.log_score_gap == pytest.approx(gap, abs=0.02 if wider == 1 else 0.45)
    expected = 0.5 if wider == 1 else 0.5 + 0.5 * _total_variation(wider)
    assert found.best_classifier.median == pytest.approx(expected, abs=0.015)
    assert expected - 0.04 < found.c2st.median < expected + 0.02
    for entry in found.parameters.values():
        assert entry.std_ratio == pytest.approx(wider, rel=0.06)
        assert entry.mean_error < 0.12


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

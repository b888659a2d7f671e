"""Checks of posteriors: a right one passes, and each way to be wrong shows where it should."""

import json

import numpy as np
import pytest
import scipy.stats

from tfmat.identification.draws import Draws
from tfmat.identification.posterior_checks import posterior_scores

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
        ["x", "y"], Draws(labels, density), true, said.logpdf(true - centres - shift)
    )
    return scores, -scipy.stats.multivariate_normal([0, 0], covariance).entropy()


def test_a_right_posterior_passes():
    scores, expected = _scores()
    assert scores["num_curves"] == CURVES
    assert scores["log_score"] == pytest.approx(expected, abs=4 * scores["log_score_error"])
    for percent, held in scores["joint_coverage"].items():
        assert held == pytest.approx(int(percent) / 100, abs=0.035)
    assert all(entry["inside_band"] for entry in scores["ranks"].values())
    assert scores["contraction"]["x"] == pytest.approx(1 - 12e-4, abs=2e-4)
    assert scores["tarp"]["inside_band"]
    for entry in scores["z_score"].values():
        # Four standard errors, and what 200 draws do not tell of mean and deviation.
        assert abs(entry["mean"]) < 4 / np.sqrt(CURVES)
        assert entry["rms"] == pytest.approx(1, abs=4 / np.sqrt(2 * CURVES) + 0.02)


def test_a_single_curve_has_no_standard_error():
    labels = np.random.default_rng(0).uniform(size=(1, SAMPLES, 2))
    draws = Draws(labels, np.zeros((1, SAMPLES)))
    scores = posterior_scores(["x", "y"], draws, np.array([[0.4, 0.6]]), np.zeros(1))
    assert scores["log_score_error"] is None
    json.dumps(scores, allow_nan=False)


def test_tarp_sees_what_single_parameters_do_not_show():
    """Right marginal distributions without their correlation."""
    random = np.random.default_rng(0)
    true = random.multivariate_normal([0, 0], [[1.0, 0.9], [0.9, 1.0]], CURVES)
    labels = random.standard_normal((CURVES, SAMPLES, 2))
    said = scipy.stats.norm.logpdf
    draws = Draws(0.5 + 0.01 * labels, said(labels).sum(axis=2))
    scores = posterior_scores(["x", "y"], draws, 0.5 + 0.01 * true, said(true).sum(axis=1))
    assert all(entry["inside_band"] for entry in scores["ranks"].values())
    assert not scores["tarp"]["inside_band"]


def test_the_band_holds_nineteen_of_twenty():
    inside = [_scores(seed=seed)[0]["ranks"]["x"]["inside_band"] for seed in range(20)]
    assert sum(inside) >= 16  # fewer happen once in 400 times


@pytest.mark.parametrize(("shift", "wider"), [(0.003, 1.0), (0.0, 1.4), (0.0, 0.7)])
def test_a_wrong_one_does_not(shift, wider):
    right, _ = _scores()
    scores, _ = _scores(shift, wider)
    assert not scores["ranks"]["x"]["inside_band"]
    assert scores["log_score"] < right["log_score"]
    if shift:
        assert scores["ranks"]["x"]["largest_difference"] > 0.05  # said too high: ranks are low
    else:
        held = scores["joint_coverage"]["90"]
        assert held > 0.95 if wider > 1 else held < 0.85

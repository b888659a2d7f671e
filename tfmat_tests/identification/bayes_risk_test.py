"""The Bayes risk against independent numbers, against the truth, and its file."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats

from tfmat.errors import InputError
from tfmat.identification.evaluate import bayes_risk, cached_bayes_risk
from tfmat.records.simulation import CurveSettings, Simulator

SETTINGS = CurveSettings()


@pytest.mark.parametrize(
    ("noise", "modulus", "logarithm"),
    # Worked out before by another program (grid over the prior, 250 curves, standard error up to 30 %): Hahn-Tsai, no
    # cut-off, G0 2-8 GPa, log10 a -9 to -7, maximum strain 1-5 %, 200 points.
    [
        (0.5, 8.4e-6, 4.4e-4),
        pytest.param(1.0, 4.0e-5, 1.25e-3, marks=pytest.mark.large),
        (2.0, 1.3e-4, 2.7e-3),
    ],
)
def test_risk_is_the_one_known_for_hahn_tsai(noise, modulus, logarithm):
    settings = CurveSettings(noise_mpa=noise, strength_cut_off=False)
    curves = Simulator(settings, 11).curves(0, 80)
    found = bayes_risk(settings, curves.features)
    assert found.method == "quadrature"
    scatter = found.variance.std(axis=0, ddof=1) / np.sqrt(len(found.variance))
    error = np.hypot(0.3, scatter / found.risk)
    assert (np.abs(found.risk / [modulus, logarithm] - 1) < 2 * error).all()


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        (SETTINGS, 250),
        (CurveSettings(noise_mpa=0.5, noise_relative=0.05), 100),
        (CurveSettings(law="ramberg_osgood", num_points=40), 30),
    ],
)
def test_the_posterior_is_calibrated_and_the_risk_is_its_error(settings, count):
    """z² of the truth has mean 1 under a right posterior; its scatter is that of χ², to 1 in 1000 on either side."""
    curves = Simulator(settings, 3).curves(0, count)
    found = bayes_risk(settings, curves.features)
    labels = curves.labels.astype(np.float64)
    good = found.converged
    assert good.mean() >= 0.95
    low, high = scipy.stats.chi2.ppf([0.001, 0.999], count) / count
    calibration = found.calibration(labels)
    assert ((low < calibration) & (calibration < high)).all()
    squares, variance = ((found.mean - labels) ** 2)[good], found.variance[good]
    scatter = (squares - variance).std(axis=0) / np.sqrt(good.sum())
    assert (np.abs(squares.mean(axis=0) - found.risk) < 4.5 * scatter).all()
    assert (found.effective_samples is None) == (len(found.risk) <= 2)


def test_what_the_place_of_the_cut_tells_makes_the_answer_better():
    """That a curve of few points broke past 60 MPa says that its stress exceeds the least strength."""
    settings = CurveSettings(noise_mpa=20.0, strength_mpa=(60.0, 61.0), num_points=50)
    curves = Simulator(settings, 3).curves(0, 60)
    broke = curves.features[:, -1, 2] == 1
    assert broke.mean() > 0.5
    known = bayes_risk(settings, curves.features[broke])
    labels = curves.labels[broke].astype(np.float64)
    blind = bayes_risk(
        dataclasses.replace(settings, strength_mpa=None, strength_cut_off=False),
        curves.features[broke],
    )
    assert (known.risk < 0.8 * blind.risk).all()
    assert (np.abs(known.calibration(labels) - 1) < 4.5 * np.sqrt(2 / len(labels))).all()


def features(count):
    return Simulator(SETTINGS, 0).curves(0, count).features


def test_the_file_holds_the_risk_for_its_settings_seed_and_curves(tmp_path):
    file, calls = tmp_path / "bayes_risk.json", []

    def cached(count, settings=SETTINGS, seed=0):
        calls.clear()
        return cached_bayes_risk(
            file, settings, features(count), seed=seed, progress=lambda *done: calls.append(done)
        )

    first = cached(101)
    assert calls == [(50, 101), (100, 101)]
    content = json.loads(file.read_text())
    assert content["settings"] == SETTINGS.to_json()
    assert content["num_curves"] == 101
    for count in (101, 50):
        again = cached(count)
        assert calls == []
        np.testing.assert_array_equal(again.variance, first.variance[:count])
        np.testing.assert_array_equal(again.mean, first.mean[:count])
    cached(50, CurveSettings(noise_mpa=2.0))
    assert calls
    assert json.loads(file.read_text())["settings"]["noise_mpa"] == 2.0
    cached(50, seed=1)
    assert calls
    cached(51, seed=1)
    assert calls
    assert [path.name for path in tmp_path.iterdir()] == ["bayes_risk.json"]


def test_a_damaged_file_is_made_again_and_one_that_cannot_be_written_is_no_error(tmp_path):
    file = tmp_path / "bayes_risk.json"
    expected = bayes_risk(SETTINGS, features(5)).variance
    for content in ("", "[]", '{"version": 1}', "{}"):
        file.write_text(content)
        found = cached_bayes_risk(file, SETTINGS, features(5), seed=0)
        np.testing.assert_array_equal(found.variance, expected)
        assert json.loads(file.read_text())["num_curves"] == 5
    nowhere = tmp_path / "none" / "bayes_risk.json"
    cached_bayes_risk(nowhere, SETTINGS, features(5), seed=0)
    assert not nowhere.exists()


def test_a_sampled_posterior_does_not_depend_on_how_many_curves_there_are(tmp_path):
    settings = CurveSettings(law="ramberg_osgood", num_points=40)
    curves = Simulator(settings, 0).curves(0, 6).features
    few = cached_bayes_risk(tmp_path / "risk.json", settings, curves[:3], seed=0)
    many = cached_bayes_risk(tmp_path / "risk.json", settings, curves, seed=0)
    np.testing.assert_allclose(many.variance[:3], few.variance, rtol=1e-6)
    again = cached_bayes_risk(tmp_path / "risk.json", settings, curves[:4], seed=0)
    np.testing.assert_array_equal(again.effective_samples, many.effective_samples[:4])


def test_curves_without_noise_have_none():
    with pytest.raises(InputError, match="no noise"):
        bayes_risk(CurveSettings(noise_mpa=0.0), features(2))

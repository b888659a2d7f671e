"""The fit of a law before the first weight, and answers around it, against the law and a plain Gaussian."""

import itertools

import keras
import numpy as np
import pytest

from tfmat.config import default_config
from tfmat.data.dataset import input_scale
from tfmat.networks.factory import build_model
from tfmat.networks.flow import PosteriorFlow
from tfmat.networks.law_fit import AroundFit, LawFit
from tfmat.records.simulation import CurveSettings, RecordForm, Simulator


def _simulated(count=900, **settings):
    settings = CurveSettings(**settings)
    records = Simulator(settings, seed=0).curves(0, count)
    fit = LawFit.learned(settings, records.features, records.labels, input_scale(records.features))
    return settings, records, fit


@pytest.fixture(scope="module")
def curves():
    return _simulated(law="hahn_tsai", num_points=80)


def test_numbers_are_scaled_and_modes_are_near_the_truth(curves):
    _, records, fit = curves
    numbers = np.asarray(fit(records.features[:512]))
    count = 5 + 3
    assert numbers.shape == (512, count + 4)
    told = numbers[:, :count]
    np.testing.assert_allclose(told.mean(axis=0), 0.0, atol=0.1)
    assert np.abs(told).max() <= 6.0
    logits, precision = numbers[:, count : count + 2], numbers[:, count + 2 :]
    labels = np.clip(records.labels[:512], 1e-6, 1 - 1e-6)
    z = (np.log(labels / (1 - labels)) - logits) * np.exp(precision)
    # Of a Laplace approximation that holds for most of these curves: 95 % of a normal distribution.
    assert (np.abs(z) < 2.0).mean() == pytest.approx(0.95, abs=0.03)


def test_a_record_is_told_alike_whatever_others_are_beside_it(curves):
    _, records, fit = curves
    together = np.asarray(fit(records.features[:40]))
    alone = np.asarray(fit(records.features[7:8]))
    np.testing.assert_allclose(alone[0], together[7], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("uncertainty", ["none", "gaussian", "flow"])
def test_a_network_of_it_is_saved_whole(curves, uncertainty, tmp_path):
    settings, records, fit = curves
    config = default_config().model
    config.representation, config.hidden_units, config.uncertainty = "fit", (9, 5), uncertainty
    form = RecordForm.of(settings)
    fit = LawFit.from_config(fit.get_config())
    model = build_model(config, num_outputs=2, **form.network(), fit=fit)
    assert not [layer for layer in model.layers if "conv" in layer.name]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    given = records.features[:20]
    np.testing.assert_allclose(again.predict(given, verbose=0), model.predict(given, verbose=0))


def test_tests_that_are_missing_leave_more_open():
    _, records, fit = _simulated(law="mooney_rivlin", num_points=32)
    one = records.features[:200].copy()
    one[:, 32:] = [0.0, 0.0, 1.0]
    whole, part = (np.asarray(fit(given))[:, -2:] for given in (records.features[:200], one))
    # Uniaxial tension tells C10 and C01 by little more than their sum.
    assert np.median(whole - part) > 0.5


@pytest.mark.parametrize(
    "settings",
    [
        {"law": "voce", "noise_of_maximum": (3e-4, 2e-2), "measured_points": (15, 400)},
        {"law": "voce_chaboche_1", "noise_of_maximum": (5e-4, 5e-3), "noise_told": True},
        {"law": "voce_chaboche_1", "misfit": (0.003, 0.05)},
        {"law": "prony", "tests": ("relaxation",)},
        {"law": "hahn_tsai", "noise_relative": 0.02, "noise_mpa": 0.0},
    ],
)
def test_every_record_of_a_laboratory_has_finite_numbers(settings):
    _, records, fit = _simulated(count=30, num_points=60, **settings)
    numbers = np.asarray(fit(records.features))
    assert np.isfinite(numbers).all() and numbers.std(axis=0).max() > 0.1
    missing = np.zeros_like(records.features[:2])
    missing[:, :, 2] = 1.0
    assert np.isfinite(np.asarray(fit(missing))).all()


def test_what_a_fit_leaves_is_told_where_that_is_more_than_noise(curves):
    assert curves[2].residuals == 0
    settings, records, fit = _simulated(count=240, law="voce", misfit=(0.003, 0.05))
    assert fit.residuals == 32
    record = records.features[5].astype(float)
    (numbers,) = np.asarray(fit(records.features[5:6]), float)
    labels = 1.0 / (1.0 + np.exp(-numbers[-8:-4]))
    law, (strain, stress) = settings.build_law(), record[:, :2].T
    there = record[:, 2] == 0
    wrong = np.where(there, law.label_stress(strain[None], labels[None])[0] - stress, 0.0)
    wrong /= np.sqrt(np.sum(wrong**2) / there.sum())
    ends = [int(200 * (group / 32) ** 1.5) for group in range(33)]
    expected = []
    for begin, end in itertools.pairwise(ends):
        group = slice(begin, max(end, begin + 1))
        expected.append(wrong[group].sum() / np.sqrt(max(there[group].sum(), 1)))
    mean, deviation = (np.array(each)[17:] for each in (fit.mean, fit.deviation))
    # The least sum of squares has the prior in it, and no number is told beyond six deviations.
    expected = np.clip(expected, mean - 6 * deviation, mean + 6 * deviation)
    np.testing.assert_allclose(numbers[17:49] * deviation + mean, expected, rtol=0.02, atol=0.02)
    assert np.abs(expected).max() > 1.5


def test_heads_that_say_nothing_answer_with_the_fit():
    random = np.random.default_rng(0)
    logits, precision = random.normal(size=(50, 3)), random.uniform(1.0, 4.0, (50, 3))
    fit = np.concatenate([logits, precision], axis=1).astype("f")
    labels = 1.0 / (1.0 + np.exp(-logits))
    std = np.exp(-precision) * labels * (1.0 - labels)
    nothing = np.zeros((50, 3), "f")
    np.testing.assert_allclose(AroundFit("labels")(nothing, fit), labels, rtol=1e-5)
    one = AroundFit("labels")(nothing + 1.0, fit)
    np.testing.assert_allclose(one - labels, std, rtol=1e-3)
    variances = np.exp(np.asarray(AroundFit("log_variances")(nothing, fit)))
    np.testing.assert_allclose(np.sqrt(variances), std, rtol=1e-4)
    flow = PosteriorFlow(3)
    flow.build((None, flow.columns))
    outputs = AroundFit("posterior")(np.zeros((50, flow.columns), "f"), fit)
    drawn = 1.0 / (1.0 + np.exp(-(logits + np.exp(-precision) * random.normal(size=(50, 3)))))
    # Independent Gaussians of the logits, a density of the labels.
    z = (np.log(drawn / (1.0 - drawn)) - logits) * np.exp(precision)
    expected = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + precision - np.log(drawn * (1.0 - drawn))
    found = flow.log_density(drawn.astype("f"), outputs)
    np.testing.assert_allclose(found, expected.sum(axis=1), rtol=1e-3, atol=1e-2)

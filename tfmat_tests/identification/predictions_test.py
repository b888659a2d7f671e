"""What networks say of tests, of which some are missing or too many, and the posteriors that this is corrected to."""

import csv
import dataclasses
import types

import numpy as np
import pytest

import tfmat
from tfmat.config import apply_override, default_config
from tfmat.files import write_json
from tfmat.identification.answer import Predicted, predict, recommended_method
from tfmat.identification.networks import Identifier
from tfmat.identification.posterior import Certificate, Posterior
from tfmat.materials import find_law
from tfmat.networks.factory import build_model
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import example_curve, measured_records
from tfmat.records.reading import ReadingOptions
from tfmat.records.record import record_features
from tfmat.records.simulation import CurveSettings, RecordForm, Simulator
from tfmat.report.answers import csv_text
from tfmat.workflow import sidecar


def _untrained(folder, settings):
    """A network with a posterior as it is before the first step, which tells records apart: its law and folder."""
    form = RecordForm.of(settings)
    config = default_config()
    for key, text in {
        "law": settings.law,
        "model.uncertainty": "flow",
        "model.conv_filters": "4,6",
        "model.hidden_units": "20",
    }.items():
        apply_override(config, key, text)
    law = settings.build_law()

    class Stored:  # what a data set says of itself
        parameters, input_scale = law.identified, (1.0, 1.0, 1.0)
        features = np.empty((1, *form.shape))

    Stored.settings = settings
    inputs = form.network()
    model = build_model(config.model, num_outputs=len(law.identified), **inputs)
    model.save(folder / "model.keras")
    write_json(folder / "model.json", sidecar(config, Stored))
    return law


def test_tests_of_a_material_have_samples_where_some_are_missing(tmp_path):
    """An untrained network will do: which tests are there must reach it, and the samples must be of the law."""
    settings = CurveSettings(law="ogden", num_points=24, missing_tests=0.3)
    law = _untrained(tmp_path, settings)
    stretch = np.linspace(1.0, 3.0, 30)
    stress = 0.4 * (stretch - stretch**-2)
    tests = {"uniaxial": (stretch - 1, stress)}
    answer = tfmat.identify(tests, law="ogden", workdir=tmp_path, samples=64)
    assert answer.samples.values.shape == (64, len(law.identified))
    low, high = ([getattr(p, end) for p in law.identified] for end in ("low", "high"))
    assert (answer.samples.values >= low).all() and (answer.samples.values <= high).all()
    curves = Simulator(settings, seed=5).curves(0, 20)
    draws = Identifier.open(tmp_path).draws(curves.features, 8)
    assert np.isfinite(draws.labels).all() and draws.std.min() > 0


def test_posteriors_of_tests_beyond_a_networks_places_are_multiplied(tmp_path):
    """Two tensile tests, of which the network takes one: beside the product of both densities on a grid of labels."""
    settings = CurveSettings(law="mooney_rivlin", num_points=24, tests=("uniaxial",))
    law = _untrained(tmp_path, settings)
    network = Identifier.open(tmp_path)
    stretch = np.linspace(1.0, 2.0, 24)
    reading = ReadingOptions(strain_measure="engineering", stress_measure="engineering")
    pairs = [(stretch - 1, factor * (stretch - stretch**-2)) for factor in (0.3, 60.0)]
    given = {"uniaxial": pairs}
    (record,) = measured_records(given, None, law, reading, CleaningOptions())
    answer, caveats = predict(network, record, True)
    assert "in 2 parts, whose posteriors were multiplied" in caveats[-1].text
    middles = (np.arange(400) + 0.5) / 400
    grid = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=2).reshape(-1, 2)
    parts = [
        record_features(dataclasses.replace(record, tests=[test]), network.form)[0]
        for test in record.tests
    ]
    first, second = (network.log_density(part, grid[None])[0] for part in parts)
    assert np.abs(first - second).max() > 0.3
    weights = np.exp(first + second - (first + second).max())
    weights /= weights.sum()
    mean = weights @ grid
    std = np.sqrt(weights @ (grid - mean) ** 2)
    # The draws are worth thousands of independent ones; 2,000 of them are taken.
    np.testing.assert_allclose(answer.labels, mean, atol=4 * std.max() / np.sqrt(2000))
    np.testing.assert_allclose(answer.std, std, rtol=0.08)
    density = np.exp(first + second)
    evidence = np.log(density.mean())
    at = (
        network.log_density(parts[0], answer.posterior.labels[None])[0]
        + network.log_density(parts[1], answer.posterior.labels[None])[0]
    )
    np.testing.assert_allclose(answer.posterior.label_log_density, at - evidence, atol=0.05)


def test_answers_carry_their_certificate(posterior_run, uncertain_run, tmp_path):
    path = str(example_curve("hahn_tsai"))
    (answer,) = tfmat.identify(path, workdir=posterior_run, samples=200)
    posterior = answer.posterior
    assert posterior.certificate.status in ("corrected", "resampled")
    assert (
        posterior is answer.samples is posterior.samples
        and np.isfinite(answer.samples.log_density).all()
    )
    # The example follows the law: the posterior is about the best fit, and the network's answer is the posterior's.
    for name, entry in answer.to_json()["posterior"]["parameters"].items():
        value = answer.parameters[name]
        assert entry["ci95"][0] < value.least_squares < entry["ci95"][1]
        assert value.network_ci95 == pytest.approx(entry["ci95"])
    assert answer.to_json()["posterior"]["posterior_predictive_p"] > 0.001
    header, row = csv.reader(csv_text([answer.entry()]).splitlines())
    assert row[header.index("posterior")] == posterior.certificate.status
    assert float(row[header.index("pareto_k")]) == posterior.certificate.pareto_k
    (plain,) = tfmat.identify(path, workdir=posterior_run, correct=False)
    assert plain.posterior.certificate.status == "amortised" and plain.samples is None
    assert "left out" in plain.posterior.certificate.reason
    # Gaussians of each parameter alone are a start for the same posterior.
    (gaussian,) = tfmat.identify(path, workdir=uncertain_run, samples=200)
    assert gaussian.posterior.certificate.is_exact
    apart = np.abs(gaussian.posterior.mean - posterior.mean) / posterior.std
    assert (apart < 0.5).all()  # five standard errors of 100 independent draws
    (without,) = tfmat.identify(path, workdir=uncertain_run)
    assert "posterior" not in without.to_json()


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
    """The example's material, stiffer by 15 %: its modulus of 230 GPa is above the range."""
    strain, stress = np.loadtxt(example_curve("voce"), delimiter=",", skiprows=1, unpack=True)
    measures = {"strain_measure": "true", "stress_measure": "true"}
    answer = tfmat.identify(strain, 1.15 * stress, law="voce", samples=300, **measures)
    certificate = answer.posterior.certificate
    assert certificate.status == "do not trust"
    assert "leans on the end of the range of E" in certificate.reason
    assert any(line.kind == "posterior is not to be trusted" for line in answer.warnings)
    assert ((answer.samples.labels >= 0) & (answer.samples.labels <= 1)).all()


@pytest.mark.parametrize(
    ("status", "own_error", "method"),
    [
        ("resampled", 0.0, "least_squares"),
        ("resampled", 1e-3, "network"),
        ("amortised", 1e-3, "least_squares"),
    ],
)
def test_samples_change_an_answer_only_where_the_law_itself_errs(status, own_error, method):
    """Least squares knows nothing of what a law is off by. Draws that are the network's own have to fit."""
    law = find_law("hahn_tsai")
    law.own_error = own_error
    posterior = Posterior(np.random.default_rng(0).random((50, 2)), certificate=Certificate(status))
    predicted = Predicted(posterior.mean, posterior.std, posterior.interval, posterior)
    fitted = types.SimpleNamespace()
    errors = {"network": 5.0, "least_squares": 0.5}
    assert recommended_method(law, predicted, fitted, errors) == method

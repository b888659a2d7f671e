"""What a network says of tests: those that are missing, and more than it has places for. Untrained networks will do."""

import dataclasses
import json

import numpy as np

import tfmat
from tfmat.config import apply_override, default_config
from tfmat.curves.arrays_of_tests import measured_records
from tfmat.curves.cleaning import CleaningOptions
from tfmat.curves.reading import ReadingOptions
from tfmat.curves.record_resampling import record_features
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.identification.identifier import Identifier
from tfmat.identification.predictions import predict_record
from tfmat.networks import build_model
from tfmat.workflow.job import sidecar


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
    (folder / "model.json").write_text(json.dumps(sidecar(config, Stored)))
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
    answer, caveats = predict_record(network, record)
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
    at = network.log_density(parts[0], answer.draws.labels) + network.log_density(
        parts[1], answer.draws.labels
    )
    np.testing.assert_allclose(answer.draws.log_density, at - evidence, atol=0.05)

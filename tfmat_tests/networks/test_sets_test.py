"""The network for records of several tests: shared weights, tokens, and tests that are missing."""

import keras
import numpy as np
import pytest

from tfmat.config import default_config
from tfmat.networks import build_model

TOKENS = ((1.0, 0.0), (0.0, 1.0), (0.0, 1.0))


def _model(scaling="curve", **options):
    config = default_config().model
    config.input_scaling, config.hidden_units, config.conv_filters = scaling, (9,), (4, 5)
    return build_model(config, num_outputs=2, num_points=96, tokens=TOKENS, seed=1, **options)


def _records(count=4):
    features = np.random.default_rng(0).uniform(0.1, 1.0, (count, 96, 3)).astype(np.float32)
    features[:, :, 2] = 0.0
    return features


@pytest.mark.parametrize("scaling", ["curve", "data_set"])
def test_a_missing_test_is_no_matter_what_stands_in_its_place(scaling):
    model, features = _model(scaling), _records()
    features[:, 32:64] = [0.0, 0.0, 1.0]
    known = model(features).numpy()
    features[:, 32:64, :2] = 0.7
    np.testing.assert_allclose(model(features).numpy(), known, rtol=1e-6)
    features[:, 32:64, 2] = 0.0
    assert np.abs(model(features).numpy() - known).max() > 1e-4


def test_tests_of_one_kind_may_change_places_and_others_not():
    model, features = _model(), _records()
    known = model(features).numpy()
    swapped = np.concatenate([features[:, :32], features[:, 64:], features[:, 32:64]], axis=1)
    np.testing.assert_allclose(model(swapped).numpy(), known, rtol=1e-5, atol=1e-6)
    others = np.concatenate([features[:, 32:64], features[:, :32], features[:, 64:]], axis=1)
    assert np.abs(model(others).numpy() - known).max() > 1e-4


def test_the_network_is_saved_with_its_tests(tmp_path):
    model = _model(channels=("strain", "stress", "flag", "time", "rate", "temperature"))
    features = np.concatenate([_records(), 100.0 * _records()], axis=2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(again(features).numpy(), model(features).numpy())


@pytest.mark.parametrize("channel", ["rate", "noise"])
def test_rate_and_noise_are_seen_over_decades(channel):
    model = _model(channels=("strain", "stress", "flag", channel))
    features = np.concatenate([_records(), np.ones((4, 96, 1), np.float32)], axis=2)
    answers = []
    for rate in (1e-4, 1e-2, 1.0, 100.0):
        features[:, :, 3] = rate
        answers.append(model(features).numpy())
    steps = np.abs(np.diff(answers, axis=0)).max(axis=(1, 2))
    assert (steps > 1e-3).all() and steps.max() < 20 * steps.min()

"""The variance head: what it is worth, that it leaves the mean alone, and that its file is Keras's own."""

import subprocess
import sys

import keras
import numpy as np
import scipy.stats
import tensorflow as tf

from tfmat.config import apply_override, default_config
from tfmat.networks import build_model
from tfmat.networks.factory import negative_log_likelihood, squared_error_of_mean

RANDOM = np.random.default_rng(0)
SMALL = {"conv_filters": "4,6", "hidden_units": "20"}


def _model(uncertainty, **overrides):
    config = default_config()
    for key, text in {"uncertainty": uncertainty, **overrides}.items():
        apply_override(config, f"model.{key}", text)
    return build_model(config.model, num_outputs=2, input_scale=(0.05, 140.0, 1.0), seed=3)


def _curves(count):
    curves = RANDOM.uniform(0, 1, (count, 200, 3)) * [0.05, 140.0, 0.0]
    return curves.astype(np.float32)


def _weights(model):
    return {weight.path: weight.numpy() for weight in model.weights}


def test_the_head_stands_beside_the_network():
    with_head, without = _model("gaussian"), _model("none")
    # 125 x 32 + 32 and 32 x 2 + 2.
    assert with_head.count_params() == 153_441 + 4_032 + 66
    assert with_head.output_shape == (None, 4)
    weights, expected = _weights(with_head), _weights(without)
    for path, value in expected.items():
        np.testing.assert_array_equal(weights[path], value)
    curves = _curves(5)
    np.testing.assert_array_equal(with_head(curves)[:, :2], without(curves))


def test_losses_are_those_of_scipy():
    labels, mean = RANDOM.uniform(0, 1, (2, 7, 2))
    log_variance = RANDOM.normal(-4, 2, (7, 2))
    outputs = np.concatenate([mean, log_variance], axis=1)
    found = negative_log_likelihood(2)(tf.constant(labels), tf.constant(outputs))
    expected = -scipy.stats.norm.logpdf(labels, mean, np.exp(log_variance / 2))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    squares = squared_error_of_mean(2)(tf.constant(labels), tf.constant(outputs))
    np.testing.assert_allclose(squares, ((labels - mean) ** 2).mean(axis=1), rtol=1e-12)


def test_the_stored_model_opens_in_keras_alone(tmp_path):
    model = _model("gaussian", **SMALL)
    model.save(tmp_path / "model.keras")
    curves = _curves(3)
    np.save(tmp_path / "curves.npy", curves)
    program = (
        "import sys, numpy, keras; model = keras.saving.load_model('model.keras')\n"
        "numpy.save('outputs.npy', model(numpy.load('curves.npy')))\n"
        "assert not [name for name in sys.modules if name.startswith('tfmat')]"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), model(curves), rtol=1e-5)
    assert isinstance(keras.saving.load_model(tmp_path / "model.keras"), keras.Model)

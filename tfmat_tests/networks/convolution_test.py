"""The unfolded convolution and its pooling against Keras's own, with Keras's variables."""

import keras
import numpy as np
import pytest

from tfmat.config import default_config
from tfmat.networks import build_model
from tfmat.networks.factory import ReshapedMaxPooling1D, UnfoldedConvolution1D


@pytest.mark.parametrize("kernel_size", [1, 2, 4, 7])
def test_convolution(kernel_size):
    inputs = np.random.default_rng(0).normal(size=(3, 11, 5)).astype("f")
    reference = keras.layers.Conv1D(4, kernel_size, padding="same", activation="tanh")
    expected = reference(inputs)
    ours = UnfoldedConvolution1D(4, kernel_size, padding="same", activation="tanh")
    ours.build(inputs.shape)
    ours.set_weights(reference.get_weights())
    np.testing.assert_allclose(ours(inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pool_size", [2, 3])
def test_pooling_drops_what_is_left_over(pool_size):
    inputs = np.random.default_rng(0).normal(size=(3, 11, 5)).astype("f")
    expected = keras.layers.MaxPooling1D(pool_size)(inputs)
    np.testing.assert_array_equal(ReshapedMaxPooling1D(pool_size)(inputs), expected)


def test_model_of_the_config_exchanges_weights_and_files_with_the_direct_one(tmp_path):
    config = default_config().model
    direct = build_model(config, num_outputs=2, seed=1)
    config.convolution = "unfolded"
    unfolded = build_model(config, num_outputs=2, seed=1)
    assert [w.path for w in unfolded.weights] == [w.path for w in direct.weights]
    curves = np.random.default_rng(0).uniform(size=(4, 200, 3)).astype("f")
    expected = direct.predict(curves, verbose=0)
    # The same seed makes the same weights.
    np.testing.assert_allclose(unfolded.predict(curves, verbose=0), expected, rtol=1e-4, atol=1e-6)
    unfolded.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(curves, verbose=0), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("setting", [{"padding": "valid"}, {"padding": "same", "strides": 2}])
def test_what_it_does_not_do(setting):
    with pytest.raises(ValueError, match="use Conv1D"):
        UnfoldedConvolution1D(4, 3, **setting)

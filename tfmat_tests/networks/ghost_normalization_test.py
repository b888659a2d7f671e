"""Ghost batches against Keras's own layer on each of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import apply_override, check_config, default_config
from tfmat.errors import InputError
from tfmat.networks import build_model
from tfmat.networks.factory import ExampleWeightedBatchNormalization, batch_context

RANDOM = np.random.default_rng(0)


def _ghost_layer(size, shape):
    layer = ExampleWeightedBatchNormalization(synchronized=False, ghost_batch_size=size)
    layer.build(shape)
    layer.gamma.assign(np.linspace(0.5, 2.0, shape[-1]))
    layer.beta.assign(np.linspace(-1.0, 1.0, shape[-1]))
    return layer


def _of_keras(inputs, gamma, beta):
    layer = keras.layers.BatchNormalization()
    layer.build(inputs.shape)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    return layer(inputs, training=True).numpy(), layer.moving_mean.numpy(), layer.moving_variance


@pytest.mark.parametrize("shape", [(12, 5, 4), (14, 4)])
def test_each_ghost_batch_is_normalised_as_keras_does(shape):
    """14 examples in ghosts of 4: the last has two."""
    inputs = RANDOM.normal(3.0, 2.0, shape).astype(np.float32)
    layer = _ghost_layer(4, shape)
    outputs = layer(inputs, training=True).numpy()
    ghosts = [inputs[i : i + 4] for i in range(0, len(inputs), 4)]
    expected = [_of_keras(ghost, layer.gamma, layer.beta) for ghost in ghosts]
    np.testing.assert_allclose(outputs, np.concatenate([e[0] for e in expected]), atol=2e-5)
    np.testing.assert_allclose(layer.moving_mean, np.mean([e[1] for e in expected], 0), rtol=1e-4)
    np.testing.assert_allclose(
        layer.moving_variance, np.mean([e[2] for e in expected], 0), rtol=1e-4
    )


def test_padding_changes_no_ghost():
    """Seven examples, five of padding: one ghost of four, one of three, one of none."""
    inputs = RANDOM.normal(3.0, 2.0, (12, 5, 4)).astype(np.float32)
    layer = _ghost_layer(4, inputs.shape)
    with batch_context(tf.constant([1.0] * 7 + [0.0] * 5), lambda tensors: tensors):
        outputs = layer(inputs, training=True).numpy()
    expected = [
        _of_keras(inputs[part], layer.gamma, layer.beta) for part in (slice(4), slice(4, 7))
    ]
    np.testing.assert_allclose(outputs[:7], np.concatenate([e[0] for e in expected]), atol=2e-5)
    np.testing.assert_allclose(layer.moving_mean, np.mean([e[1] for e in expected], 0), rtol=1e-4)
    assert np.isfinite(outputs).all()


def test_in_fit_and_from_a_file(tmp_path):
    model = keras.Sequential([keras.layers.Input((5, 4)), _ghost_layer(3, (None, 5, 4))])
    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(1))
    model.compile("sgd", loss="mse")
    inputs = RANDOM.normal(size=(20, 5, 4)).astype(np.float32)
    model.fit(inputs, inputs[:, 0, :1], batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].ghost_batch_size == 3
    np.testing.assert_allclose(
        loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0), rtol=1e-6
    )


def test_from_the_config():
    config = default_config()
    apply_override(config, "model.ghost_batch_size", "32")
    with pytest.raises(InputError, match="is for model.batch_normalization=local, not none"):
        check_config(config)
    apply_override(config, "model.batch_normalization", "local")
    model = build_model(check_config(config).model, num_outputs=2)
    layers = [la for la in model.layers if isinstance(la, ExampleWeightedBatchNormalization)]
    assert [layer.ghost_batch_size for layer in layers] == [32] * 3

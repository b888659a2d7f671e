import keras
import numpy as np
import tensorflow as tf

from tfmat.networks.factory import (
    ExampleWeightedBatchNormalization,
    batch_context,
    is_synchronized,
    plain_normalizations,
)

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(3.0, 2.0, (12, 5, 4)).astype(np.float32)


def _identity(tensors):
    return tensors


def _trained(layer, inputs, weights=None, reduce=_identity):
    layer.build(inputs.shape)
    if weights is None:
        return layer(inputs, training=True).numpy()
    with batch_context(tf.constant(weights), reduce):
        return layer(inputs, training=True).numpy()


def test_without_padding_it_is_keras_layer():
    ours, keras_layer = ExampleWeightedBatchNormalization(), keras.layers.BatchNormalization()
    np.testing.assert_allclose(
        _trained(ours, INPUTS, np.ones(12, np.float32)),
        _trained(keras_layer, INPUTS),
        rtol=1e-4,
        atol=1e-5,
    )
    for a, b in zip(ours.non_trainable_variables, keras_layer.non_trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_padding_changes_no_statistic():
    layer = ExampleWeightedBatchNormalization()
    weights = np.r_[np.ones(7), np.zeros(5)].astype(np.float32)
    outputs = _trained(layer, INPUTS, weights)
    true = INPUTS[:7].reshape(-1, 4).astype(np.float64)
    expected = (INPUTS[:7] - true.mean(0)) / np.sqrt(true.var(0) + layer.epsilon)
    np.testing.assert_allclose(outputs[:7], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, 0.01 * true.mean(0), rtol=1e-4)


def test_keras_own_layer_in_a_step():
    """Padding does not count there either, a mask does, and outside of the step it is Keras's again."""
    layer = keras.layers.BatchNormalization()
    layer.build(INPUTS.shape)
    model = keras.Sequential([keras.layers.Input(INPUTS.shape[1:]), layer])
    assert plain_normalizations(model) == [layer] and is_synchronized(layer)
    weights = np.r_[np.ones(7), np.zeros(5)].astype(np.float32)
    mask = RANDOM.uniform(size=INPUTS.shape[:2]) > 0.4
    for chosen in (None, mask):
        with batch_context(tf.constant(weights), _identity, [layer]):
            outputs = layer(INPUTS, training=True, mask=chosen).numpy()
        true = INPUTS[:7][mask[:7] if chosen is not None else np.ones((7, 5), bool)]
        true = true.reshape(-1, 4).astype(np.float64)
        expected = (INPUTS[:7] - true.mean(0)) / np.sqrt(true.var(0) + layer.epsilon)
        np.testing.assert_allclose(outputs[:7], expected, rtol=1e-4, atol=1e-5)
    outputs = layer(INPUTS, training=True).numpy()
    np.testing.assert_allclose(
        outputs, _trained(keras.layers.BatchNormalization(), INPUTS), rtol=1e-5, atol=1e-6
    )


def test_synchronized_sums_over_workers_and_local_does_not():
    """A reducer that doubles stands for a second worker with the same part: means stay, and it is asked."""
    asked = []

    def doubled(tensors):
        asked.append(len(tensors))
        return [2 * tensor for tensor in tensors]

    weights = np.ones(12, np.float32)
    reference = _trained(keras.layers.BatchNormalization(), INPUTS)
    synchronized = _trained(
        ExampleWeightedBatchNormalization(synchronized=True), INPUTS, weights, doubled
    )
    np.testing.assert_allclose(synchronized[:, 0], reference[:, 0], atol=2.0)
    assert asked == [2, 1]
    _trained(ExampleWeightedBatchNormalization(synchronized=False), INPUTS, weights, doubled)
    assert asked == [2, 1]


def test_saving_keeps_the_kind(tmp_path):
    model = keras.Sequential(
        [keras.layers.Input((5, 4)), ExampleWeightedBatchNormalization(synchronized=False)]
    )
    model.save(tmp_path / "model.keras")
    layer = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert isinstance(layer, ExampleWeightedBatchNormalization) and not layer.synchronized

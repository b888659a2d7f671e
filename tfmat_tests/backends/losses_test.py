"""Losses of every form against Keras's own call, and what is none."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends.losses import per_example_function, per_example_mean
from tfmat.errors import InputError

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_outputs_have_a_loss_in_float32(dtype):
    """The squares of 300 and more are no numbers of float16; Keras casts labels and outputs first."""
    outputs = tf.cast(RANDOM.uniform(300, 900, (20, 3)), dtype)
    labels = tf.constant(RANDOM.uniform(-1, 1, (20, 3)).astype("f"))
    found = per_example_mean(per_example_function("mse")(labels, outputs))
    assert found.dtype == tf.float32
    expected = keras.losses.MeanSquaredError()(labels, outputs)
    np.testing.assert_allclose(tf.reduce_mean(found), expected, rtol=1e-6)


def test_labels_without_a_last_axis_belong_to_outputs_with_one():
    """[batch] and [batch, 1] become one another, as in Keras, and not [batch, batch]."""
    labels, outputs = tf.constant(RANDOM.normal(size=7)), tf.constant(RANDOM.normal(size=(7, 1)))
    found = per_example_function(lambda y, p: (y - p) ** 2)(labels, outputs)
    np.testing.assert_allclose(np.ravel(found), (labels - outputs[:, 0]) ** 2)


def test_one_loss_for_several_outputs_is_the_sum_over_them():
    """Against Keras's compiled loss of the same model."""
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [keras.layers.Dense(1)(inputs), keras.layers.Dense(2)(inputs)])
    features = RANDOM.normal(size=(5, 3)).astype("f")
    labels = [tf.constant(RANDOM.normal(size=(5, n)).astype("f")) for n in (1, 2)]
    names = model.output_names
    for loss in ("mse", ["mse", "mae"], dict(zip(names, ["mse", "mae"], strict=True))):
        model.compile(loss=loss)
        expected = model.compute_loss(y=labels, y_pred=model(features))
        values = per_example_function(loss, names)(labels, model(features))
        np.testing.assert_allclose(tf.reduce_mean(values), expected, rtol=1e-5)


ONE, TWO = tf.ones([4, 1]), {"a": tf.ones([4, 1]), "b": tf.ones([4, 1])}


@pytest.mark.parametrize(
    ("loss", "labels", "outputs", "message"),
    [
        ({"a": "mse", "c": "mse"}, TWO, TWO, "a loss for 'c', which is no output of the model"),
        ({"a": "mse"}, ONE, ONE, "the model has one output; give one loss"),
        ("mse", ONE, TWO, "the model has the outputs a, b; give labels for each"),
        ({"a": "mse"}, {"a": ONE}, TWO, "the model has the outputs a, b; give labels for each"),
        (["mse"], [ONE, ONE], [ONE, ONE], "1 losses for 2 outputs"),
        (lambda y, p: tf.reduce_mean(y - p), ONE, ONE, "one number for the whole batch"),
    ],
)
def test_what_does_not_belong_together_is_refused(loss, labels, outputs, message):
    with pytest.raises(InputError, match=message):
        per_example_mean(per_example_function(loss)(labels, outputs))


class _WholeBatch(keras.losses.MeanSquaredError):
    def __call__(self, labels, outputs, sample_weight=None):
        return tf.reduce_max(tf.abs(labels - outputs))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (_WholeBatch(), "_WholeBatch has its own __call__.*; let its call"),
        ("mean_sqared_error", "there is no loss 'mean_sqared_error' in Keras"),
        (keras.losses.MeanSquaredError(reduction="sum"), "has reduction='sum'"),
        (keras.losses.MeanSquaredError(reduction="none"), "has reduction='none'"),
        (keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"), "takes the mean"),
        ({}, "there is no loss"),
        (3, "is the name of one, a keras.losses object or a function, not int"),
    ],
)
def test_what_is_no_loss_is_refused(loss, message):
    with pytest.raises(InputError, match=message):
        per_example_function(loss)

"""Examples that change each other's results: found by a trial, and trained without padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat
from tfmat.backends import make_backend, pipeline
from tfmat.backends.step import Step, what_couples
from tfmat.errors import InputError
from tfmat.networks.factory import ExampleWeightedBatchNormalization
from tfmat.optimizers import make_functional

layers, ops = keras.layers, keras.ops
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(20, 3))
Y = X @ [[1.0], [2.0], [3.0]] + 1
CLASSES = np.append(RANDOM.integers(0, 3, 19), 2)


class Centred(keras.layers.Layer):
    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0)


class RunningMean(keras.layers.Layer):
    """Each example's results depend on it alone, and what it keeps on all of them."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros", trainable=False)

    def call(self, inputs):
        old = ops.convert_to_tensor(self.mean) + 0
        self.mean.assign(0.9 * old + 0.1 * ops.mean(inputs, axis=0))
        return inputs - old


def ranked(labels, outputs):
    """[batch]: each example's error, as far above the mean of all."""
    errors = ops.mean(ops.square(outputs - labels), axis=1)
    return ops.relu(errors - ops.mean(errors)) + 0.1 * errors


def ignoring():
    """Examples of one class are left out, and the mean is taken over the others."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)


def _model(*more, outputs=1):
    """The same weights each time."""
    keras.utils.set_random_seed(1)
    ends = [layers.Dense(outputs), *([layers.UnitNormalization()] if outputs > 1 else [])]
    return keras.Sequential([layers.Input((3,)), layers.Dense(4, activation="tanh"), *more, *ends])


def _step(model, loss, labels, backend):
    trainer = tfmat.Trainer(model, loss=loss, optimizer="sgd", backend=backend, quiet=True)
    trainer.fit(X, labels, global_batch_size=20, train_for="1steps")


pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(
    ("make", "make_loss", "labels"),
    [
        (lambda: _model(Centred()), lambda: "mse", Y),
        (lambda: _model(RunningMean()), lambda: "mse", Y),
        (_model, lambda: ranked, Y),
        # The last batch has examples without another of their class, which Keras leaves out.
        (lambda: _model(outputs=2), keras.losses.Circle, CLASSES),
        (lambda: _model(outputs=3), ignoring, np.where(np.arange(20) < 17, CLASSES, -1)),
    ],
    ids=["layer", "state", "loss", "Circle", "ignored class"],
)
def test_the_weights_of_fit_with_a_partial_batch(make, make_loss, labels):
    loss = make_loss()
    data = tf.data.Dataset.from_tensor_slices((X, labels)).batch(8)
    models = make(), make()
    trainer = tfmat.Trainer(models[0], loss=loss, optimizer=keras.optimizers.SGD(1e-3), quiet=True)
    trainer.fit(data, global_batch_size=8, train_for="2epochs", validation=(X, labels))
    models[1].compile(keras.optimizers.SGD(1e-3), loss)
    models[1].fit(data, epochs=2, verbose=0)
    for found, expected in zip(models[0].get_weights(), models[1].get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    expected = models[1].evaluate(X, labels, batch_size=20, verbose=0)
    assert trainer.evaluate(X, labels)["loss"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "loss", "labels", "name"),
    [
        (lambda: _model(Centred()), "mse", Y, "the model"),
        (_model, ranked, Y, "a loss or metric"),
        # Also where the first batch has no such example.
        (lambda: _model(outputs=3), ignoring(), CLASSES, "a loss or metric"),
    ],
)
def test_parts_of_a_batch_are_refused(make, loss, labels, name):
    backend = make_backend("single", accumulate=2)
    with pytest.raises(InputError, match=f"{name} gives an example.*accumulate=2.*; use") as caught:
        _step(make(), loss, labels, backend)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Dropout(0.5, seed=3),
        layers.BatchNormalization,
        lambda: ExampleWeightedBatchNormalization(synchronized=False, ghost_batch_size=4),
        lambda: layers.Lambda(lambda x: x + tf.random.normal(tf.shape(x), dtype=x.dtype)),
    ],
    ids=["dropout", "normalisation", "ghosts", "noise"],
)
def test_what_knows_of_padding_stays_padded(layer):
    backend = make_backend("single")
    # A loss that nobody knows, or no trial would be made.
    _step(_model(layer()), lambda y, p: ops.abs(y - p), Y, backend)
    assert backend._coupled is False


def test_a_first_stage_of_known_layers_needs_no_trial():
    """It has no loss; without a state nothing could be computed."""
    step = Step(_model(), make_functional("sgd"), pipeline._no_loss, {})
    assert what_couples(step, None, X, Y) is None

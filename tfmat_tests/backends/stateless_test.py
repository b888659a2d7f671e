"""What a pure function would lose is refused, in one line that says what to do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends.step import call_layer
from tfmat.errors import InputError

layers, ops = keras.layers, keras.ops


class Noise(keras.layers.Layer):
    def __init__(self, seed=None):
        super().__init__()
        self.seed = seed

    def call(self, inputs):
        return inputs + keras.random.normal(ops.shape(inputs), seed=self.seed)


class Counts(keras.layers.Layer):
    """Counts its calls, every other one in a branch."""

    def __init__(self, in_branch):
        super().__init__()
        self.in_branch = in_branch

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def compute_output_shape(self, shape):
        return shape

    def call(self, inputs):
        old = ops.convert_to_tensor(self.count)
        more = old + 1
        if self.in_branch:
            ops.cond(old < 5, lambda: self.count.assign(more), lambda: self.count.assign(old))
        else:
            self.count.assign(ops.cond(old < 5, lambda: more, lambda: old))
        return inputs


class Watched(keras.layers.Layer):
    """Keeps a metric of what it sees."""

    def __init__(self):
        super().__init__()
        self.seen = keras.metrics.Mean()

    def call(self, inputs):
        self.seen.update_state(inputs)
        return inputs


def _called(layer, shape=(4, 3)):
    """The new state after a call in a graph."""
    model = keras.Sequential([layers.Input(batch_shape=shape), layer])

    @tf.function(autograph=False)
    def call(*values):
        weights = values[: len(model.trainable_variables)]
        others = values[len(model.trainable_variables) :]
        return call_layer(model, weights, others, tf.ones(shape), training=True)[1]

    variables = [*model.trainable_variables, *model.non_trainable_variables]
    return call(*(variable.value for variable in variables))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (layers.SpectralNormalization(layers.Dense(2)), "assigns the weight .*kernel.*leave the"),
        (Noise(), "would be the same in each step; give them the seed keras.random.SeedGen"),
        (Counts(in_branch=True), "assigns .* in a branch or loop of the graph.*ops.where"),
    ],
)
def test_what_would_be_lost_is_refused(layer, message):
    with pytest.raises(InputError, match=message) as caught:
        _called(layer)
    assert "\n" not in str(caught.value)


def test_a_stateful_layer_is_refused():
    with pytest.raises(InputError, match="stateful=True.*leave stateful out"):
        _called(layers.LSTM(2, stateful=True), (4, 3, 2))


def test_what_comes_back_is_taken():
    """A count that a branch computes, and a layer's own seed."""
    (count,) = _called(Counts(in_branch=False))
    assert count == 1
    (state,) = _called(Noise(keras.random.SeedGenerator(7)))
    np.testing.assert_array_equal(state, [7, 1])


def test_a_metric_of_a_layer_is_no_obstacle():
    """It changes nothing about the training; that it is not logged is said."""
    with pytest.warns(UserWarning, match="metrics that a layer updates .* not logged; give"):
        assert _called(Watched()) == []

"""Models in segments: together they compute what Keras's own model does, and they are cut only where they can be."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tfmat.backends.segments import Segment, segments
from tfmat.config import default_config
from tfmat.errors import InputError
from tfmat.networks.factory import build_model


def residual_model() -> keras.Model:
    x = inputs = layers.Input((8,))
    x = layers.Dense(6, name="first")(x)
    shared = layers.Dense(6, activation="tanh", name="shared")
    for i in range(3):
        y = layers.Dense(6, activation="relu", kernel_regularizer="l2", name=f"inner{i}")(x)
        y = layers.BatchNormalization(name=f"norm{i}")(y)
        x = layers.Add(name=f"sum{i}")([x, y])
    x = shared(layers.Dropout(0.5, seed=1, name="dropout")(shared(x)))
    return keras.Model(inputs, {"answer": layers.Dense(2, name="last")(x)})


def run_in_segments(model: keras.Model, parts: list[Segment], x, training: bool):
    """Outputs, new non-trainable variables and penalties, as from the model's `stateless_call`."""
    weights = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in model.non_trainable_variables]
    penalties = []
    for part in parts:
        x, new, own = part.stateless_call(
            [weights[i] for i in part.trainable_places],
            [state[i] for i in part.non_trainable_places],
            x,
            training=training,
            return_losses=True,
        )
        penalties += own
        for i, value in zip(part.non_trainable_places, new, strict=True):
            state[i] = value
    return x, state, penalties


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("where", ["every:1", "every:2", "every:99", "sum[01],first"])
def test_segments_compute_what_the_model_does(where, training):
    model = residual_model()
    parts = segments(model, where, "recompute")
    x = tf.random.stateless_normal([5, 8], (1, 2))
    outputs, state, penalties = run_in_segments(model, parts, x, training)
    expected, expected_state, expected_penalties = model.stateless_call(
        [v.value for v in model.trainable_variables],
        [v.value for v in model.non_trainable_variables],
        x,
        training=training,
        return_losses=True,
    )
    np.testing.assert_array_equal(outputs["answer"], expected["answer"])
    for one, other in zip(state, expected_state, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(sum(penalties), sum(expected_penalties), rtol=1e-6)
    names = [name for part in parts for name in part.layer_names]
    assert sorted(names) == sorted(layer.name for layer in model.layers[1:])


def test_every_layer_with_weights_begins_a_segment_and_blocks_stay_whole():
    parts = segments(residual_model(), "every:1", "recompute")
    assert [part.layer_names for part in parts] == [
        ("first",),
        ("inner0", "norm0", "sum0"),
        ("inner1", "norm1", "sum1"),
        ("inner2", "norm2", "sum2"),
        ("shared", "dropout"),
        ("last",),
    ]


def test_the_network_of_a_config_is_cut_behind_activations():
    config = default_config()
    config.model.hidden_units = (8, 8)
    parts = segments(build_model(config.model, num_outputs=2), "every:2", "recompute")
    assert [part.layer_names[0] for part in parts] == ["scale", "hidden1", "labels"]
    assert parts[1].layer_names[-1] == "hidden2_activation"
    config.model.uncertainty = "gaussian"
    parts = segments(build_model(config.model, num_outputs=2), "hidden1_activation", "recompute")
    assert "labels" in parts[1].layer_names
    assert "hidden2" in parts[1].layer_names


def test_a_model_keeps_its_own_graph():
    model = residual_model()
    before = model.to_json(), [v.path for v in model.variables], model.get_layer("sum1").output
    segments(model, "every:1", "recompute")
    assert (model.to_json(), [v.path for v in model.variables]) == before[:2]
    assert model.get_layer("sum1").output is before[2]


def test_a_mask_is_not_cut_off():
    model = keras.Sequential(
        [
            layers.Input((5,)),
            layers.Embedding(10, 4, mask_zero=True, name="words"),
            layers.LSTM(3, name="lstm"),
            layers.Dense(1, name="last"),
        ]
    )
    parts = segments(model, "every:1", "recompute")
    assert [part.layer_names for part in parts] == [("words", "lstm"), ("last",)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("every:0", "every:0: give a whole number"),
        ("every:x", "give a whole number"),
        ("inner1", "cannot be cut behind a layer 'inner1'"),
        ("sun0", "did you mean 'sum0'"),
        ("(", "no regular expression"),
    ],
)
def test_what_cannot_be_cut_is_refused(where, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        segments(residual_model(), where, "stages")


def test_a_subclassed_model_is_refused():
    class Own(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(InputError, match="recompute needs .*; Own has .* its own: leave recompute"):
        segments(Own(), "every:1", "recompute")

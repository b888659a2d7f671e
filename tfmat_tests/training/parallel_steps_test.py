"""A Keras model of one's own on a mesh: the example as it stands, and what is refused in one line."""

import json
import pathlib
import re

import keras
import numpy as np
import pytest

import tfmat
from tfmat.backends import make_backend
from tfmat.errors import InputError

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "examples"


def test_transformer_on_2_by_2_devices_is_that_of_one_device(programs):
    """The example compares itself with Keras's own loop on one device."""
    printed = programs.python(EXAMPLES / "transformer_on_a_mesh.py")
    assert float(re.search(r"by (\S+) of their norm", printed)[1]) < 1e-4
    # By hand: of the 12,897 weights the heads' 4 · 32 · 32 and the MLP's 32 · 128 · 2 + 128 are halved.
    weights = 4 * (96 + 4 * 32 + 4 * 1024 // 2 + (8192 + 128) // 2 + 32 + 33)
    assert f"'weights': [{weights}, {weights}, {weights}, {weights}]" in printed
    assert float(re.search(r"mean squared error (\S+),", printed)[1]) < 0.15


REFUSALS = """
import sys
import tfmat
backend = tfmat.mesh_backend("batch:2")
import keras
import numpy as np
from tfmat.networks.factory import ExampleWeightedBatchNormalization
layers = keras.layers
features, labels = np.ones((4, 4, 4, 2), "float32"), np.ones((4, 1), "float32")
inputs = layers.Input((4, 4, 2))
for layer in (
    layers.RandomFlip(name="mine"),
    layers.DepthwiseConv2D(3, name="mine"),
    layers.SimpleRNN(3, name="mine"),
    ExampleWeightedBatchNormalization(synchronized=False, name="mine"),
    layers.Conv2D(3, 3, name="mine"),
):
    sequence = [layers.Reshape((4, 8))] if isinstance(layer, layers.SimpleRNN) else []
    model = keras.Sequential([inputs, *sequence, layer, layers.Flatten(), layers.Dense(1)])
    try:
        tfmat.ParallelSteps(model, "adam", "mse", backend).train(features, labels)
        print(type(layer).__name__, "TRAINED")
    except tfmat.errors.InputError as error:
        print(error)

class Keeps(layers.Layer):
    def __init__(self):
        super().__init__()
        self.kept = [keras.ops.ones((4, 4, 2))]

    def call(self, inputs):
        return inputs * self.kept[0]

model = keras.Sequential([inputs, Keeps(), layers.Flatten(), layers.Dense(1)])
try:
    tfmat.ParallelSteps(model, "adam", "mse", backend).train(features, labels)
except tfmat.errors.InputError as error:
    print(error)

normalization = layers.Normalization()
normalization.adapt(np.arange(64, dtype="float32").reshape(features.shape[:1] + (4, 2, 2)))
model = keras.Sequential([layers.Input((4, 2, 2)), normalization, layers.Flatten(), layers.Dense(1)])
wide = np.ones((4, 4, 2, 2), "float32")
expected = np.mean((model.predict(wide, verbose=0) - labels) ** 2)
steps = tfmat.ParallelSteps(model, "adam", "mse", backend)
print(steps.evaluate(wide, labels)["loss"] / expected)

model = keras.Sequential([inputs, layers.RandomFlip(name="mine"), layers.Flatten(), layers.Dense(1)])
try:
    trainer = tfmat.Trainer(model, backend=backend, quiet=True)
    trainer.fit(features, labels, global_batch_size=2, train_for="4steps")
except tfmat.errors.InputError as error:
    print(error)

model = keras.Sequential([inputs, layers.Flatten(), layers.Dense(1)])
trainer = tfmat.Trainer(model, backend=backend, quiet=True, workdir=sys.argv[1])
trainer.fit(features, labels, global_batch_size=2, train_for="1steps")
"""


def test_a_layer_without_a_form_on_a_mesh_is_named_in_one_line(programs, tmp_path):
    printed = programs.python("-c", REFUSALS, tmp_path / "run")
    *by_layer, kept, normalized, by_trainer = printed.splitlines()
    flip, depthwise, recurrent, local, trained = by_layer
    assert "a layer keeps a tensor beside its weights, which no mesh takes" in kept
    assert float(normalized) == pytest.approx(1, rel=1e-5)  # against Keras's own predictions
    held = json.loads((tmp_path / "run" / "devices.json").read_text())["bytes_per_device"]
    assert held["weights"] == [4 * (4 * 4 * 2 + 1)] * 2  # whole on both devices
    assert by_trainer == flip  # its many steps a call are refused as the one step is
    for line, kind, operation, instead in (
        (flip, "RandomFlip", "ReverseV2", "change the examples before training"),
        (depthwise, "DepthwiseConv2D", "DepthwiseConv2dNativeBackpropFilter", "use Conv1D or"),
    ):
        assert line.startswith(f"layer 'mine' ({kind}) does not run on a mesh: ")
        assert f"DTensor has no rule for {operation}; {instead}" in line
    assert "does not run on a mesh: DTensor has no rule for " in recurrent
    assert local.startswith("local batch normalization does not work")
    assert trained == "Conv2D TRAINED"


def test_a_mesh_after_tensorflow_has_started_is_refused():
    keras.ops.ones(1)
    with pytest.raises(InputError, match="call tfmat.mesh_backend before the first Keras model"):
        tfmat.mesh_backend("batch:512")


def _model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])


def test_steps_on_one_device_are_those_of_keras():
    random = np.random.default_rng(0)
    features = random.normal(size=(30, 3)).astype("f")
    labels = random.normal(size=(30, 2)).astype("f")
    rows = random.integers(0, 30, (4, 8))
    reference = _model()
    reference.compile(keras.optimizers.SGD(0.1), loss="mse")
    losses = [reference.train_on_batch(features[i], labels[i]) for i in rows]
    model = _model()
    steps = tfmat.ParallelSteps(
        model, keras.optimizers.SGD(0.1), "mse", make_backend("single"), metrics={"mae": "mae"}
    )
    data = steps.place(features, labels)
    results = [steps.train(*data, rows[0])["loss"], *steps.train(*data, rows[1:3])["loss"]]
    results.append(steps.train(features[rows[3]], labels[rows[3]])["loss"])
    np.testing.assert_allclose(results, losses, rtol=1e-5)
    steps.sync_model()
    np.testing.assert_allclose(model.get_weights()[0], reference.get_weights()[0], rtol=1e-5)
    outputs = steps.predict(features)
    np.testing.assert_allclose(outputs, reference.predict(features, verbose=0), rtol=1e-4)
    expected = np.abs(outputs - labels).mean()
    assert steps.evaluate(features, labels)["mae"] == pytest.approx(expected, rel=1e-4)


def test_what_is_no_batch_is_refused():
    steps = tfmat.ParallelSteps(_model(), "sgd", "mse", make_backend("single"))
    features, labels = np.ones((4, 3), "f"), np.ones((4, 2), "f")
    with pytest.raises(InputError, match=r"rows goes from 0 to 4; valid: 0 to 3"):
        steps.train(features, labels, [0, 4])
    with pytest.raises(InputError, match=r"different numbers of examples: \[3, 4\]"):
        steps.train(features, labels[:3])
    with pytest.raises(InputError, match="has no mesh"):
        steps.bytes_per_device()

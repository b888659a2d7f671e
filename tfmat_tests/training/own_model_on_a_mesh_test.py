"""A Keras model of one's own on a mesh: the example as it stands, and what is refused in one line."""

import json
import pathlib
import re

import keras
import pytest

import tfmat
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

def train(model, **options):
    trainer = tfmat.Trainer(model, loss="mse", backend=backend, quiet=True, **options)
    trainer.fit(features, labels, global_batch_size=2, train_for="4steps")

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
        train(model)
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
    train(model)
except tfmat.errors.InputError as error:
    print(error)

normalization = layers.Normalization()
normalization.adapt(np.arange(64, dtype="float32").reshape(features.shape[:1] + (4, 2, 2)))
model = keras.Sequential([layers.Input((4, 2, 2)), normalization, layers.Flatten(), layers.Dense(1)])
wide = np.ones((4, 4, 2, 2), "float32")
expected = np.mean((model.predict(wide, verbose=0) - labels) ** 2)
trainer = tfmat.Trainer(model, loss="mse", backend=backend, quiet=True)
print(trainer.evaluate(wide, labels)["loss"] / expected)

model = keras.Sequential([inputs, layers.Flatten(), layers.Dense(1)])
train(model, workdir=sys.argv[1])
"""


def test_a_layer_without_a_form_on_a_mesh_is_named_in_one_line(programs, tmp_path):
    printed = programs.python("-c", REFUSALS, tmp_path / "run")
    *by_layer, kept, normalized = printed.splitlines()
    flip, depthwise, recurrent, local, trained = by_layer
    assert "a layer keeps a tensor beside its weights, which no mesh takes" in kept
    assert float(normalized) == pytest.approx(1, rel=1e-5)  # against Keras's own predictions
    held = json.loads((tmp_path / "run" / "devices.json").read_text())["bytes_per_device"]
    assert held["weights"] == [4 * (4 * 4 * 2 + 1)] * 2  # whole on both devices
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

"""Unfolded convolutions divided over channels: the numbers of Conv1D, and the exchanges that the arithmetic says.

Also what DTensor cannot do with the direct ones: these tests fail when a newer TensorFlow can, and the option may go.
"""

import pytest

from tfmat.backends.layouts import Collective, Weight, collectives_of_step, make_plan
from tfmat.config import MeshShape
from tfmat.errors import InputError

START = """
import sys
mesh = sys.argv[1]
from tfmat.config import MeshShape
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(virtual_devices=MeshShape.parse(mesh).num_devices)
import keras
import numpy as np
import tensorflow as tf
from tfmat.backends import make_backend
"""
# One graph less: loops of steps have tests of their own.
ONE_BY_ONE = {"TFMAT_MESH_STEPS_A_CALL": "1"}
EQUALITY = (
    START
    + """
from tfmat.backends.losses import per_example_function
from tfmat.config import default_config
from tfmat.networks.factory import build_model
from tfmat.optimizers import make_functional
from tfmat.networks.factory import parted
from tfmat_tests.backends.exchanges import exchanges
random = np.random.default_rng(0)
features = random.normal(size=(100, 12) if "fit" in sys.argv else (100, 50, 3)).astype("f")
if "tests" in sys.argv or "spectrum" in sys.argv:
    features[:, :, 2] = 0.0
    features[::3, 25:] = [0.0, 0.0, 1.0]
labels = random.uniform(size=(100, 2)).astype("f")
indices = np.array([random.permutation(100)[:20] for _ in range(10)], np.int32)
weights = np.ones(indices.shape, np.float32)
tests = ((1.0, 0.0), (0.0, 1.0)) if "tests" in sys.argv else ()
def model(convolution):
    config = default_config().model
    config.conv_filters, config.hidden_units, config.convolution = (4, 6), (24,), convolution
    config.input_scaling = "curve" if tests and "spectrum" not in sys.argv else "data_set"
    kinds = {"spectrum": "plastic_spectrum", "fit": "fit"}
    config.representation = next((kinds[kind] for kind in kinds if kind in sys.argv), "points")
    model = build_model(config, num_outputs=2, num_points=50, tokens=tests, seed=3)
    return parted(model)[1] if "fit" in sys.argv else model
plain = model("direct")
# What has no weights gives each record the same numbers at every step.
front, trained = parted(plain)
inputs = features if front is None else front(features).numpy()
trained.compile(keras.optimizers.Adam(1e-3), loss="mse")
for rows in indices:
    trained.train_on_batch(inputs[rows], labels[rows])
ours = model("unfolded")
backend = make_backend("dtensor", mesh=mesh)
backend.build(ours, make_functional(keras.optimizers.Adam(1e-3)), per_example_function("mse"), {})
print("LAYOUTS", [layout.compute for layout in backend.plan.layouts if len(layout.weight.shape) == 3])
data = backend.place((features, labels))
backend.train(data, indices[:1], weights[:1], weights[:1].sum(axis=1))
print("COUNTS", *exchanges(backend.plan, 20))
backend.train(data, indices[1:], weights[1:], weights[1:].sum(axis=1))
backend.sync_model()
for variable, reference, found in zip(plain.weights, plain.get_weights(), ours.get_weights(), strict=True):
    error = np.linalg.norm(found - reference) / np.linalg.norm(reference)
    assert error < 1e-4, (variable.path, error)
"""
)


@pytest.mark.parametrize(
    "mesh", ["model:2", pytest.param("batch:2,model:2", marks=pytest.mark.large)]
)
def test_weights_and_exchanges(mesh, programs):
    printed = programs.python("-c", EQUALITY, mesh, **ONE_BY_ONE)
    assert "LAYOUTS [(None, None, 'model'), (None, 'model', None)]" in printed
    expected, found, joined = map(int, printed.split("COUNTS")[1].split())
    expected += "batch" in mesh  # the sum of the loss
    assert expected <= found < expected + 1024 * max(joined, 1)
    if not joined:
        assert found == expected


@pytest.mark.parametrize(
    ("mesh", "what"),
    [
        ("model:2", ["tests"]),
        pytest.param("batch:2", ["tests"], marks=pytest.mark.large),
        ("model:2", ["spectrum"]),
        pytest.param("batch:2", ["spectrum"], marks=pytest.mark.large),
        ("batch:2", ["spectrum", "tests"]),
        pytest.param("batch:2", ["fit"], marks=pytest.mark.large),
    ],
)
def test_what_else_comes_in_trains_as_on_one_device(mesh, what, programs):
    """Records of which a third lacks a test, a plastic spectrum, what stands behind fits: all weights are Keras's."""
    assert "COUNTS" in programs.python("-c", EQUALITY, mesh, *what, **ONE_BY_ONE)


DIRECT = (
    START
    + """
from tensorflow.experimental import dtensor
backend = make_backend("dtensor", mesh=mesh)
backend.start()
mesh = dtensor.create_mesh([("model", 2)], devices=["CPU:0", "CPU:1"])
U = dtensor.UNSHARDED
def ones(shape, layout):
    return dtensor.call_with_layout(tf.ones, dtensor.Layout(layout, mesh), shape)
image, filters = ones([4, 1, 10, 6], [U] * 4), ones([1, 3, 6, 8], [U, U, U, "model"])
divided = ones([4, 1, 10, 6], [U, U, U, "model"])
for name, function in (
    ("convolution", lambda: tf.nn.conv2d(image, filters, 1, "SAME")),
    ("pooling", lambda: tf.nn.max_pool2d(divided, (1, 2), (1, 2), "VALID")),
):
    try:
        tf.function(function)()
        print(name, "WORKS")
    except tf.errors.UnknownError as error:
        print(name, "REFUSED", str(error))
"""
)


def test_what_dtensor_cannot_do(programs):
    printed = programs.python("-c", DIRECT, "model:2")
    assert "convolution REFUSED" in printed
    assert "Filter for convolution must have fully replicated layout" in printed
    assert "pooling REFUSED" in printed


UNFOLDED = [
    Weight("conv1/kernel", (7, 3, 4), 4, "unfolded", 50),
    Weight("conv1/bias", (4,)),
    Weight("conv2/kernel", (7, 4, 6), 4, "unfolded", 25),
    Weight("conv2/bias", (6,)),
]


def test_exchanges_by_hand():
    # One sum behind the second convolution: 20 examples, 25 points, 6 filters. Nothing before the first learns.
    plan = make_plan(UNFOLDED, MeshShape.parse("model:2"))
    assert [layout.compute for layout in plan.layouts] == [
        (None, None, "model"),
        ("model",),
        (None, "model", None),
        (None,),
    ]
    assert collectives_of_step(plan, 20) == (
        Collective("all-reduce", "model", 2, "activations, forward", 1, 4 * 20 * 25 * 6),
    )


def test_a_direct_convolution_is_refused_before_anything_is_made():
    direct = [Weight("conv1/kernel", (7, 3, 4), 4, "direct")]
    plan = make_plan(direct, MeshShape.parse("model:2"))
    assert plan.layouts[0].compute == (None, None, None)
    with pytest.raises(InputError, match="model.convolution=unfolded"):
        make_plan(direct, MeshShape.parse("model:2"), (("conv1/kernel", "-,-,model"),))

"""The exchanges of a step against hand arithmetic, and against the collectives in the graph that DTensor makes."""

import pytest

from tfmat.backends.layouts import Collective, Weight, collectives_of_step, make_plan
from tfmat.config import MeshShape

# The default network with two outputs: 153,441 numbers.
DEFAULT = [
    Weight("conv1/kernel", (7, 3, 16)),
    Weight("conv1/bias", (16,)),
    Weight("conv2/kernel", (7, 16, 24)),
    Weight("conv2/bias", (24,)),
    Weight("hidden/kernel", (1200, 125)),
    Weight("hidden/bias", (125,)),
    Weight("labels/kernel", (125, 2)),
    Weight("labels/bias", (2,)),
]
SMALL = [
    Weight("conv1/kernel", (3, 3, 4)),
    Weight("conv1/bias", (4,)),
    Weight("hidden1/kernel", (10, 8)),
    Weight("hidden1/bias", (8,)),
    Weight("hidden2/kernel", (8, 6)),
    Weight("hidden2/bias", (6,)),
    Weight("labels/kernel", (6, 2)),
    Weight("labels/bias", (2,)),
]


def _collectives(weights, mesh, batch_size, stage=0, rules=()):
    return collectives_of_step(make_plan(weights, MeshShape.parse(mesh), rules, stage), batch_size)


def test_default_network_sums_every_gradient_over_the_batch_axis():
    (found,) = _collectives(DEFAULT, "batch:4", 150)
    assert found == Collective("all-reduce", "batch", 4, "gradients", 8, 613_764)
    assert found.sent_in_ring == 920_646  # 2 · 3/4
    assert _collectives(DEFAULT, "batch:1,model:1", 150) == ()


def test_megatron_pair_on_both_axes():
    # 5 examples on two devices: 3 on the larger part. hidden1 by columns, hidden2 by rows.
    assert _collectives(SMALL, "batch:2,model:2", 5) == (
        # 36 + 4 + 80/2 + 8/2 + 48/2 + 6 + 12 + 2 numbers
        Collective("all-reduce", "batch", 2, "gradients", 8, 4 * 128),
        Collective("all-reduce", "model", 2, "activations, backward", 1, 4 * 3 * 10),
        Collective("all-reduce", "model", 2, "activations, forward", 1, 4 * 3 * 6),
    )


def test_nothing_flows_back_from_a_first_layer():
    found = _collectives(SMALL[2:], "model:2", 5)
    assert found == (Collective("all-reduce", "model", 2, "activations, forward", 1, 4 * 5 * 6),)


@pytest.mark.parametrize(
    ("stage", "what"),
    [(1, "weights, after the step"), (2, "weights, after the step"), (3, "weights, before the step")],
)  # fmt: skip
def test_zero_collects_what_divides(stage, what):
    # Filters of a convolution stay whole, and so does a bias that is divided over `model` already.
    found = _collectives(SMALL, "batch:2,model:2", 5, stage)
    gathered = 4 * (4 + 80 // 2 + 48 // 2 + 6 + 12 + 2)
    assert Collective("all-gather", "batch", 2, what, 6, gathered) in found


def test_columns_before_a_whole_layer_are_collected_in_the_forward_pass():
    found = _collectives(SMALL, "model:2", 5, rules=(("hidden2/kernel", "replicated"),))
    assert Collective("all-gather", "model", 2, "activations, forward", 1, 4 * 5 * 8) in found


PROGRAM = """
import sys
mesh, stage, uncertainty = sys.argv[1], int(sys.argv[2]), sys.argv[3]
from tfmat.config import MeshShape
from tfmat.launch.processes import prepare_tensorflow
num_devices = MeshShape.parse(mesh).num_devices
prepare_tensorflow(one_thread_an_operation=True, virtual_devices=num_devices)
import keras
import numpy as np
import tensorflow as tf
from tfmat.backends import make_backend
from tfmat.config import default_config
from tfmat.networks.factory import build_model
from tfmat.networks.factory import negative_log_likelihood, squared_error_of_mean
from tfmat.optimizers import make_functional
from tfmat_tests.backends.exchanges import exchanges
assert tf.config.threading.get_inter_op_parallelism_threads() >= 4 * num_devices
config = default_config().model
config.conv_filters, config.hidden_units, config.uncertainty = (4, 6), (24, 40), uncertainty
model = build_model(config, num_outputs=2, num_points=48, seed=3)
backend = make_backend("dtensor", mesh=mesh, zero_stage=stage)
backend.build(model, make_functional(keras.optimizers.Adam(1e-3)), squared_error_of_mean(2), {},
              auxiliary_loss=negative_log_likelihood(2) if uncertainty == "gaussian" else None)
random = np.random.default_rng(0)
data = backend.place((random.normal(size=(400, 48, 3)).astype("f"), random.uniform(size=(400, 2)).astype("f")))

def blocks(call, lengths):
    for steps in lengths:
        indices = random.integers(0, 400, (steps, 20)).astype(np.int32)
        weights = np.ones(indices.shape, np.float32)
        assert np.isfinite(call(data, indices, weights, weights.sum(axis=1))).all()

blocks(backend.train, (1,))
print("COUNTS", *exchanges(backend.plan, 20))
# Many calls under way, of any length, and evaluation between them: must come to an end.
for _ in range(3):
    blocks(backend.train, (7, 40, 1, 25))
    blocks(backend.evaluate, (5,))
"""
SAMPLE = ("batch:2,model:2", 1, "gaussian")
CASES = [
    SAMPLE,
    ("batch:2", 0, "none"),
    ("batch:2", 3, "none"),
    ("batch:4", 2, "gaussian"),
    ("model:2", 0, "gaussian"),
    ("batch:2,model:2", 0, "none"),
]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[] if case == SAMPLE else pytest.mark.large) for case in CASES],
)
def test_dtensor_exchanges_what_the_arithmetic_says_and_no_step_hangs(case, programs):
    printed = programs.python("-c", PROGRAM, *case)
    expected, found, joined = map(int, printed.split("COUNTS")[1].split())
    expected += "batch" in case[0]  # the sum of the loss
    # Joined messages are padded to a multiple of 1,024 numbers.
    assert expected <= found < expected + 1024 * max(joined, 1)
    if not joined:
        assert found == expected

"""A loop whose name is taken, as happens now and then in TensorFlow, costs speed and nothing else."""

import os
import subprocess
import sys

from tfmat_tests.mpi import PROJECT

PROGRAM = """
import sys
import numpy as np
import tfmat
backend = tfmat.mesh_backend("batch:2")
import keras
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.python.eager import context
from tfmat.backends.step import per_example_function
from tfmat.optimizers import make_functional

if sys.argv[1] == "taken":
    other = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([], tf.float32))
    for name in ("while_cond", "while_body"):
        function = FunctionDef()
        function.CopyFrom(other.function_def)
        function.signature.name = name
        context.context().add_function_def(function)

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
optimizer = make_functional(keras.optimizers.Adam(1e-2))
backend.build(model, optimizer, per_example_function("mse"), {})
random = np.random.default_rng(0)
data = backend.place((random.normal(size=(40, 3)).astype("f"), random.normal(size=(40, 2)).astype("f")))
indices = random.integers(0, 40, size=(7, 8)).astype(np.int32)
block = indices, np.ones((7, 8), "f"), np.full(7, 8, "f")
print(backend._steps._capacity)
print(backend.train(data, *block).sum(), backend.train(data, *block).sum(), backend.evaluate(data, *block).sum())
print(backend._steps._capacity)
"""


def run(how):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True, text=True, timeout=180, cwd=PROJECT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_name_that_is_taken_costs_only_speed():
    before, sums, after = run("free")
    assert (before, after) == ("50", "50")
    before, other_sums, after = run("taken")
    assert (before, after) == ("50", "1")
    assert other_sums == sums

"""A loop whose name is taken, as happens now and then in TensorFlow, costs speed and nothing else."""

import numpy as np
import pytest

from tfmat_tests import mpi

PROGRAM = """
import sys
import numpy as np
import tfmat
backend = tfmat.mesh_backend("batch:2")
import keras
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.python.eager import context
from tfmat.backends.losses import per_example_function
from tfmat.optimizers import make_functional

taken, _, rank = sys.argv[1].partition(" on rank ")
if taken != "free" and rank in ("", str(backend.rank)):
    other = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([], tf.float32))
    for name in (f"{taken}_cond", f"{taken}_body"):
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
def sums():
    for steps in (backend.train, backend.train, backend.evaluate):
        yield repr(float(steps(data, *block).sum()))

said = " ".join(sums())
sys.stdout.write(f"{said} {sum(backend._usable.values())}/{len(backend._usable)}\\n")
"""


def read(printed, processes=1):
    """The sums of blocks; how many loops were taken, of how many."""
    lines = printed.splitlines()
    assert len(lines) == processes
    assert len(set(lines)) == 1
    *sums, taken = lines[0].split()
    return sums, taken


@pytest.fixture(scope="module")
def free(programs):
    """What one process says whose loops have names that nobody has taken."""
    return read(programs.python("-c", PROGRAM, "free"))


def test_a_name_that_is_taken_costs_only_speed(free, programs):
    sums, taken = free
    assert taken == "2/2"
    assert len(set(sums)) == 3
    # The next loop has another name.
    assert read(programs.python("-c", PROGRAM, "while")) == (sums, "1/2")


def test_of_a_loop_that_is_compiled_twice_the_second_name_may_be_taken(free, programs):
    """DTensor takes the numbers of examples of so few steps for constants until it sees others."""
    few = {"TFMAT_MESH_STEPS_A_CALL": "6"}
    # The next loop gets the same name again.
    assert read(programs.python("-c", PROGRAM, "while1", **few)) == (free[0], "0/2")


def test_of_two_processes_one_may_end_before_the_other():
    """As where rank 0 alone draws a plot: rank 1 that has ended is not lost."""
    program = """
import time, tfmat
backend = tfmat.mesh_backend("batch:2")
backend.collectives.barrier()
if backend.rank == 0:
    time.sleep(3)
    print("rank 0 has drawn")
"""
    done = mpi.mpirun(2, "-c", program, timeout=180)
    assert done.returncode == 0 and done.stdout == "rank 0 has drawn\n", done.stderr[-3000:]


@pytest.mark.parametrize("how", ["free", "while on rank 1"])
def test_of_two_processes_none_has_the_loop_if_one_is_refused(how, free):
    sums, _ = free
    done = mpi.mpirun(2, "-c", f"from tfmat_tests import lean_keras\n{PROGRAM}", how, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    their_sums, taken = read(done.stdout, processes=2)
    assert taken == ("2/2" if how == "free" else "1/2")
    np.testing.assert_allclose(np.array(their_sums, float), np.array(sums, float), rtol=1e-6)

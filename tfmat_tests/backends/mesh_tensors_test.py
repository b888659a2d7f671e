"""Arrays of NumPy's that a mesh computes with are freed by its devices' threads, while Python waits for a result."""

import pytest

PROGRAM = """
import faulthandler, sys, time, weakref
faulthandler.dump_traceback_later(200, exit=True)  # its thread needs no lock of Python's
import numpy as np
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(virtual_devices=2)
import tensorflow as tf
from tensorflow.experimental import dtensor
from tfmat.config import MeshShape
from tfmat.backends.dtensor import MeshTensors

mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
tensors = MeshTensors(mesh, MeshShape.parse("batch:2"))

@tf.function
def busy(matrix):
    for _ in range(20):
        matrix = tf.matmul(matrix, matrix)
    return matrix

memory = np.zeros(4 * 1000 * 1000 + 64, np.uint8)
array = memory[-memory.ctypes.data % 64 :][: 4 * 1000 * 1000].view(np.float32).reshape(1000, 1000)
freed = weakref.ref(array)
product = busy(tensors.replicate(array))
del memory, array
if freed() is None:
    sys.exit("the devices were too quick: nobody waits for them")
spec = ("batch",) if sys.argv[1] == "parts" else (None,)
found = tensors.whole(tensors.pack(np.arange(4.0), spec) * 2, spec)
while freed() is not None:  # a result that is the same on all devices comes from one, and the other may still compute
    time.sleep(0.01)
print(*found)
"""


@pytest.mark.parametrize("layout", ["whole", "parts"])
def test_a_device_frees_an_array_while_python_waits(layout, programs):
    """The devices need Python's lock to free the array: they and Python never wait for each other."""
    ended = programs.python("-c", PROGRAM, layout)
    assert ended.split() == ["0.0", "2.0", "4.0", "6.0"]

"""What the doctor tries in processes of their own: programs, of which each prints one JSON object a line.

They are apart because Horovod, mpi4py and DTensor may only be imported by their backends, and because one that hangs or
crashes must not take the doctor with it.
"""

_TIMING = """
import json, statistics, time
def median_milliseconds(call):
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
"""
TENSORFLOW_PROBE = (
    _TIMING
    + """
import tensorflow as tf, keras
gpus = tf.config.list_physical_devices("GPU")
names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
print(json.dumps({"tensorflow": tf.__version__, "keras": keras.__version__, "gpus": names}), flush=True)

import numpy as np
from tensorflow.experimental import dtensor
tf.config.set_visible_devices([], "GPU")
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
left, right = np.random.default_rng(0).normal(size=(2, 128, 128)).astype("float32")
halves = dtensor.pack(list(np.split(left, 2)), dtensor.Layout(["batch", dtensor.UNSHARDED], mesh))
whole = dtensor.copy_to_mesh(right, dtensor.Layout.replicated(mesh, rank=2))
# Each device multiplies its half of the rows; their sum over all rows needs an all-reduce.
product = tf.function(lambda x, y: tf.reduce_sum(tf.matmul(x, y), axis=0))
found = [part.numpy() for part in dtensor.unpack(product(halves, whole))]
right_answer = all(np.allclose(part, (left @ right).sum(0), rtol=1e-3, atol=1e-3) for part in found)
milliseconds = median_milliseconds(lambda: dtensor.unpack(product(halves, whole))[0].numpy())
print(json.dumps({"right": right_answer, "milliseconds": milliseconds}), flush=True)
"""
)
HOROVOD_PROBE = (
    _TIMING
    + """
import horovod, horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
gradients = tf.fill([153441], hvd.rank() + 1.0)
def reduce():
    return hvd.allreduce(gradients, op=hvd.Sum, name="doctor").numpy()
right_answer = bool((reduce() == hvd.size() * (hvd.size() + 1) / 2).all())
milliseconds = median_milliseconds(reduce)
built = [name for name in ("MPI", "Gloo", "NCCL") if getattr(hvd, name.lower() + "_built")()]
if hvd.rank() == 0:
    print(json.dumps({"version": horovod.__version__, "built": built, "size": hvd.size(),
                      "right": right_answer, "milliseconds": milliseconds}), flush=True)
hvd.shutdown()
"""
)
MPI4PY_PROBE = (
    _TIMING
    + """
import mpi4py, numpy as np
from mpi4py import MPI
world, gradients = MPI.COMM_WORLD, np.empty(153441, np.float32)
def reduce():
    gradients[:] = world.rank + 1
    world.Allreduce(MPI.IN_PLACE, gradients)
    return gradients
right_answer = bool((reduce() == world.size * (world.size + 1) / 2).all())
milliseconds = median_milliseconds(reduce)
if world.rank == 0:
    print(json.dumps({"version": mpi4py.__version__, "built": [MPI.get_vendor()[0]], "size": world.size,
                      "right": right_answer, "milliseconds": milliseconds}), flush=True)
"""
)

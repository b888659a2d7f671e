"""Imports TensorFlow without its banners."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from tfmat.launch.settings import prepare_onednn

_THREADS_A_VIRTUAL_DEVICE = 4
# Keras loads them for wrappers and pictures of its own, where they are there, which takes a third of its time.
_FOR_WRAPPERS = ("matplotlib", "pandas", "sklearn")


def prepare_tensorflow(
    *,
    one_thread_an_operation: bool = False,
    processors: int | None = None,
    waiting: int = 0,
    gpu: int | None = None,
    virtual_devices: int = 1,
    start: bool = True,
    own_program: bool = False,
    onednn: bool | None = None,
) -> None:
    """Imports TensorFlow and Keras quietly; call it once before a command's own imports of them.

    Args:
      one_thread_an_operation: several operations run side by side, each on one processor, where TensorFlow would
        spread each one over all. A training step that comes in pieces (see SingleBackend) is then up to 1.7 times
        faster on a CPU. Without effect where TensorFlow has started already.
      processors: how many to use; None for all that this process may use.
      waiting: operations that may wait for other processes at the same time; each has a thread beside those of the
        processors, where an operation has one.
      gpu: the one to use (its memory is taken as it is needed), where several processes share a node's; None for all.
      virtual_devices: how many CPU devices TensorFlow is to see; for meshes (fixed once it has started).
      start: False where it may not start yet: the processes of a mesh must join before it does.
      own_program: nobody but tfmat uses Keras in this process: its wrappers for pandas, scikit-learn and Matplotlib are
        left out. These packages can be imported as ever.
      onednn: whether a run that goes on has used oneDNN; None chooses by the processor (see `prepare_onednn`).

    TensorFlow 2.21 prints through absl before absl's logging is set up, so TF_CPP_MIN_LOG_LEVEL alone does not
    silence it. What it prints is shown after all when the import fails, or with TFMAT_VERBOSE=1.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if "tensorflow" not in sys.modules:
        prepare_onednn(onednn)
    if "tensorflow" in sys.modules or os.environ.get("TFMAT_VERBOSE") == "1":
        import keras
        import tensorflow  # noqa: F401

        return
    with standard_error_held_back():
        with _seemingly_absent(*_FOR_WRAPPERS if own_program else ()):
            import keras  # noqa: F401
        import tensorflow as tf

        if one_thread_an_operation:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            available = len(os.sched_getaffinity(0))
            tf.config.threading.set_inter_op_parallelism_threads(
                waiting + (processors or available)
            )
        elif processors:
            tf.config.threading.set_intra_op_parallelism_threads(processors)
        if gpu is not None:
            _pin_gpu(tf, gpu)
        if virtual_devices > 1:
            make_virtual_devices(virtual_devices)
        if start:  # the first operation loads the devices, which prints once more
            tf.constant(0)
    tf.get_logger().setLevel("ERROR")


@contextlib.contextmanager
def _seemingly_absent(*names: str) -> Iterator[None]:
    """Packages cannot be imported in the block, but for those that were before."""
    absent = [name for name in names if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for name in absent:
            del modules[name]


def make_virtual_devices(number: int) -> None:
    """Lets TensorFlow see so many CPU devices; RuntimeError where it has started already."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * number
    )
    # They share these threads and wait for each other: none may go short because of another that waits.
    tf.config.threading.set_inter_op_parallelism_threads(_THREADS_A_VIRTUAL_DEVICE * number)


def _pin_gpu(tf: Any, local_rank: int) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    mine = gpus[local_rank % len(gpus)]
    tf.config.set_visible_devices(mine, "GPU")
    tf.config.experimental.set_memory_growth(mine, True)


@contextlib.contextmanager
def standard_error_held_back() -> Iterator[None]:
    """Sends file descriptor 2 to memory; copies it to the real one if the block fails."""
    sys.stderr.flush()
    saved = os.dup(2)
    with os.fdopen(os.memfd_create("stderr"), "r+b") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            os.dup2(saved, 2)
            held.seek(0)
            sys.stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)

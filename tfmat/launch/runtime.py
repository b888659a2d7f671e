"""Imports TensorFlow without its banners."""

import contextlib
import os
import sys
from collections.abc import Iterator


def prepare_tensorflow(*, one_thread_an_operation: bool = False) -> None:
    """Imports TensorFlow and Keras quietly; call it once before a command's own imports of them.

    Args:
      one_thread_an_operation: several operations run side by side, each on one processor, where TensorFlow would
        spread each one over all. A training step that comes in pieces (see SingleBackend) is then up to 1.7 times
        faster on a CPU. Without effect where TensorFlow has started already.

    TensorFlow 2.21 prints through absl before absl's logging is set up, so TF_CPP_MIN_LOG_LEVEL alone does not
    silence it. What it prints is shown after all when the import fails, or with TFMAT_VERBOSE=1.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if "tensorflow" in sys.modules or os.environ.get("TFMAT_VERBOSE") == "1":
        import keras
        import tensorflow  # noqa: F401

        return
    with _standard_error_held_back():
        import keras  # noqa: F401
        import tensorflow as tf

        if one_thread_an_operation:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(len(os.sched_getaffinity(0)))
        # The first operation loads the devices, which prints once more.
        tf.constant(0)
    tf.get_logger().setLevel("ERROR")


@contextlib.contextmanager
def _standard_error_held_back() -> Iterator[None]:
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

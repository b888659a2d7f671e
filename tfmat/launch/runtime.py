"""Imports TensorFlow without its banners."""

import contextlib
import os
import sys
from collections.abc import Iterator


def prepare_tensorflow() -> None:
    """Imports TensorFlow and Keras quietly; call it once before a command's own imports of them.

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

"""TensorFlow without its banners."""

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

from tfmat.launch.runtime import standard_error_held_back

PROJECT = pathlib.Path(__file__).parents[2]


def test_loading_tensorflow_prints_nothing() -> None:
    program = """
import sys
from tfmat.launch.runtime import prepare_tensorflow
prepare_tensorflow()
assert {"tensorflow", "keras"} <= set(sys.modules)
import keras, tensorflow as tf
assert keras.backend.backend() == "tensorflow"
tf.function(lambda x: tf.linalg.matmul(x, x))(tf.ones((3, 3)))
print("loud", file=sys.stderr)
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS_"))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert (done.stdout, done.stderr) == ("", "loud\n")


def test_a_program_of_tfmat_s_own_does_without_the_wrappers_of_keras() -> None:
    program = """
import sys
from tfmat.launch.runtime import prepare_tensorflow
prepare_tensorflow(own_program=True)
print(sorted({"keras", "matplotlib", "pandas", "sklearn"} & set(sys.modules)))
import matplotlib.pyplot, pandas, sklearn
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "['keras']\n"), done.stderr


def _hold_back(text: bytes, error: type[BaseException] | None) -> None:
    with standard_error_held_back():
        os.write(2, text)
        if error:
            raise error


def test_what_was_held_back_is_shown_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportError):
        _hold_back(b"why it failed\n", ImportError)
    assert capfd.readouterr().err == "why it failed\n"


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_it_is_not_shown_otherwise(
    capfd: pytest.CaptureFixture[str], error: type[BaseException] | None
) -> None:
    before = os.listdir("/proc/self/fd")
    with contextlib.suppress(KeyboardInterrupt):
        _hold_back(b"banner\n", error)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
    assert os.listdir("/proc/self/fd") == before

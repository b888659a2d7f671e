"""Settings of the environment, and TensorFlow without its banners."""

import contextlib
import os

import pytest

from tfmat.errors import InputError
from tfmat.launch.processes import (
    ONEDNN,
    check_settings,
    prepare_mpi,
    prepare_onednn,
    processor_features,
    seconds_setting,
    standard_error_held_back,
    uses_onednn,
)
from tfmat_tests.processes import real_python


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("TFMAT_WORKER_TIMEOUT", "soon", "no number of seconds"),
        ("HOROVOD_START_TIMEOUT", "-1", "no number of seconds"),
        ("HOROVOD_START_TIMEOUT", "nan", "no number of seconds"),
        ("TFMAT_WORKER_TIMEOUT", "inf", "no number of seconds"),
        ("TFMAT_MESH_STEPS_A_CALL", "0", "a whole number, 1 or more"),
        ("TFMAT_VERBOSE", "yes", "0 or 1"),
        ("TFMAT_TENSOR_PORTS", "shut", "guarded, open or refused"),
        ("HOROVOD_CYCLE_TIME", "0,5", "a number, 0 or more"),
        ("HOROVOD_FUSION_THRESHOLD", "64MB", "a whole number, 0 or more"),
        ("HOROVOD_STALL_CHECK_DISABLE", "true", "0 or 1"),
        ("HOROVOD_CPU_OPERATIONS", "tcp", "mpi, gloo, ccl"),
    ],
)
def test_a_wrong_setting_is_named(name, text, message):
    with pytest.raises(InputError, match=message) as raised:
        check_settings({name: text})
    assert name in str(raised.value) and text in str(raised.value)
    check_settings({name: ""})


def test_what_is_right_is_taken():
    right = {"TFMAT_WORKER_TIMEOUT": "5", "HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_CONTROLLER": "MPI"}
    check_settings(right)
    assert seconds_setting("TFMAT_WORKER_TIMEOUT", right) == 5.0
    assert seconds_setting("HOROVOD_START_TIMEOUT", right) == 45.0


def test_a_command_refuses_it_before_anything_is_made(monkeypatch, refused):
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "fast")
    said = refused("train", "--workdir=run", "--data_dir=data")
    assert said == "HOROVOD_CYCLE_TIME is 'fast'; give a number, 0 or more, or unset it"


def test_what_a_user_says_to_open_mpi_stays():
    """The three limits of messages over TCP belong together."""
    limits = {f"OMPI_MCA_btl_tcp_{name}" for name in ("eager_limit", "rndv_eager_limit", "max_send_size")}  # fmt: skip
    environment = {}
    prepare_mpi(environment)
    assert limits < set(environment) and {environment[name] for name in limits} == {"1048576"}
    given = {"OMPI_MCA_btl_tcp_eager_limit": "70000", "OMPI_MCA_mpi_yield_when_idle": "0"}
    environment = dict(given)
    prepare_mpi(environment)
    assert environment == given


@pytest.mark.parametrize(
    ("features", "said", "recorded", "expected", "used"),
    [
        # AMD's Zen 2: TensorFlow leaves oneDNN off by itself.
        ({"avx", "avx2", "fma"}, None, None, "1", True),
        ({"avx", "avx2", "fma"}, "0", None, "0", False),
        ({"avx", "avx2", "fma"}, None, False, None, False),
        ({"avx2", "avx512f", "avx512_vnni"}, None, None, None, True),
        ({"avx2", "avx512f", "avx512_vnni"}, None, False, "0", False),
        ({"avx2", "avx512f", "avx512_vnni"}, "1", False, "1", True),
        # No word of TensorFlow's: it warns and chooses by itself.
        ({"avx2", "avx512_vnni"}, "yes", None, "yes", True),
        ({"avx"}, None, None, None, False),
        ({"avx"}, None, True, "1", True),
        (set(), None, None, None, False),
    ],
)
def test_onednn_is_chosen_by_processor_run_and_user(features, said, recorded, expected, used):
    environment = {} if said is None else {ONEDNN: said}
    prepare_onednn(recorded, environment, frozenset(features))
    assert environment.get(ONEDNN) == expected
    assert uses_onednn(environment, frozenset(features)) is used


def test_the_processor_says_what_it_can_do(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu avx avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert processor_features(str(file)) == {"fpu", "avx", "avx2"}
    assert processor_features(str(tmp_path / "none")) == frozenset()


def test_tensorflow_s_own_choice_is_the_one_that_is_told():
    pytest.importorskip("tensorflow")
    from tensorflow.python.util import _pywrap_util_port

    assert _pywrap_util_port.IsMklEnabled() is uses_onednn()


def test_loading_tensorflow_prints_nothing_and_loads_no_wrappers() -> None:
    program = """
import sys
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(own_program=True)
assert {"tensorflow", "keras"} <= set(sys.modules)
assert not {"matplotlib", "pandas", "sklearn"} & set(sys.modules)
import keras, matplotlib.pyplot, pandas, sklearn, tensorflow as tf
assert keras.backend.backend() == "tensorflow"
tf.function(lambda x: tf.linalg.matmul(x, x))(tf.ones((3, 3)))
print("loud", file=sys.stderr)
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS_"))}
    done = real_python("-c", program, env=environment)
    assert done.returncode == 0
    assert (done.stdout, done.stderr) == ("", "loud\n")


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
def test_it_is_not_shown_otherwise(capfd, error):
    before = os.listdir("/proc/self/fd")
    with contextlib.suppress(KeyboardInterrupt):
        _hold_back(b"banner\n", error)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
    assert os.listdir("/proc/self/fd") == before

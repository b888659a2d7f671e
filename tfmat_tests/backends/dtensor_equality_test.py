"""DTensor ends with the weights of a plain Keras loop; each mesh in a process of its own, whose devices are fixed."""

import itertools
import os
import subprocess
import sys

import pytest

from tfmat_tests.mpi import PROJECT

MESHES = ("batch:1,model:1", "batch:2", "model:2", "batch:2,model:2", "batch:4,model:2")
# Of blocks of 7 and 13 steps; where nothing is said, as many as are.
STEPS_A_CALL = {
    "batch:2": {"TFMAT_MESH_STEPS_A_CALL": "1"},
    "batch:4,model:2": {"TFMAT_MESH_STEPS_A_CALL": "6"},
}
SAMPLE = {
    ("batch:2,model:2", 0, "nesterov", "float64"),
    ("batch:2,model:2", 3, "adam", "float64"),
    ("batch:4,model:2", 1, "adamw", "float64"),
    ("batch:2", 2, "adam", "float32"),
    ("batch:2,model:2", 2, "lars", "float64"),
}
MATRIX = itertools.product(
    MESHES,
    (0, 1, 2, 3),
    ("nesterov", "adam", "adamw", "lars", "larc", "novograd", "lamb"),
    ("float64", "float32"),
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id="-".join(map(str, case)), marks=[] if case in SAMPLE else pytest.mark.large
        )
        for case in MATRIX
    ],
)
def test_weights_of_a_plain_keras_loop(case):
    mesh, stage, _, _ = case
    done = subprocess.run(
        [sys.executable, "-m", "tfmat_tests.backends.mesh_process", *map(str, case)],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=PROJECT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **STEPS_A_CALL.get(mesh, {})},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    weights, slots = map(float, done.stdout.split("HELD")[1].split())
    if "model:2" in mesh:
        assert weights < 0.75  # the hidden layer is most of it
    if stage == 3 and "batch:2,model:2" in mesh:
        assert weights < 0.45
    if stage == 0 and mesh == "batch:1,model:1":
        assert weights == 1 and slots >= 1

"""tools/slow_networks_study.py: a short study under real mpirun, which goes on where it was stopped."""

import importlib.util
import json
import pathlib
import subprocess

import pytest

from tfmat_tests import mpi
from tfmat_tests.processes import forked_python

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "slow_networks_study.py"


def _study(out, *ways):
    return subprocess.run(
        [
            *(forked_python(), SCRIPT, f"--out={out}", "--ranks=2", "--batch=20", "--steps=100"),
            *("--seeds=1", "--ways", *ways),
        ],
        capture_output=True,
        text=True,
        timeout=540,
        cwd=mpi.PROJECT,
        env={**mpi.rank_environment(), "PYTHONPATH": str(mpi.PROJECT)},
    )


@pytest.mark.large
@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="./tools/setup horovod")
def test_a_short_study_goes_on_with_what_is_missing(tmp_path):
    mpi.need_mpirun()
    assert _study(tmp_path, "none").returncode == 0
    ended = _study(tmp_path, "powersgd-4")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("mpirun -np 2") == 1  # that without compression was there already
    exact, compressed = json.loads((tmp_path / "study.json").read_text())["rows"]
    assert (exact["way"], compressed["way"]) == ("none", "powersgd-4")
    assert exact["loss_ratio"] == exact["fewer_bytes"] == exact["times_faster"] == 1
    # By arithmetic: of a matrix of 1,200 x 125 numbers four columns and four rows are sent.
    saved = 4 * (1_200 * 125 - 4 * (1_200 + 125))
    assert exact["bytes"] - compressed["bytes"] == pytest.approx(saved, abs=1)
    assert "| powersgd-4 | " in ended.stdout

"""Runs Python under the machine's real mpirun."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tfmat_tests.processes import forked_python, rank_environment

PROJECT = pathlib.Path(__file__).resolve().parents[1]


def need_mpirun():
    """Skips a test where there is no mpirun; CI must have one."""
    if shutil.which("mpirun") is None:
        message = "there is no mpirun; ./tools/setup horovod gets it"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


# The last of two ranks is a real Python, whose strings have hashes of their own, and so a set of them an order of its
# own. It has a variable of its own, too, which changes nothing.
_OWN_HASHES = """
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export PYTHONHASHSEED=1 OMP_DYNAMIC=false; python="$1"; else python="$0"; fi
shift
exec "$python" "$@"
"""


def command(ranks, *arguments, hosts=None, own_hashes=False):
    """The mpirun command line of `python ARGUMENTS`, whose ranks have TensorFlow loaded already.

    Such ranks share one seed of hashes. With `own_hashes` the second has a seed of its own, as each of a user's has. No
    ranks: the command line without mpirun.
    """
    if not ranks:
        return [forked_python(), *arguments]
    need_mpirun()
    where = ["-H", hosts] if hosts else ["--oversubscribe"]
    python = [forked_python()]
    if own_hashes:
        python = ["sh", "-c", _OWN_HASHES, *python, sys.executable]
    return ["mpirun", "-np", str(ranks), *where, "--bind-to", "none", *python, *arguments]


def mpirun(ranks, *arguments, timeout=540, environment=(), **how):
    """A finished `mpirun -np RANKS python ARGUMENTS`: returncode, stdout, stderr; `how` is as of `command`."""
    return subprocess.run(
        command(ranks, *arguments, **how),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=PROJECT,
        env={**rank_environment(), **dict(environment)},
    )


def is_running(pid: str) -> bool:
    """False also for one that has ended and that nobody has asked about yet."""
    try:
        status = pathlib.Path("/proc", pid, "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"

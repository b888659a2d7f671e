"""Runs Python under the machine's real mpirun."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# Root may be all that a container has; more ranks than processors only take longer, and those that wait for the others
# leave the processor to them.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def need_mpirun():
    """Skips a test where there is no mpirun; CI must have one."""
    if shutil.which("mpirun") is None:
        message = "there is no mpirun; ./tools/setup horovod gets it"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def command(ranks, *arguments, hosts=None):
    """The mpirun command line of `python ARGUMENTS`."""
    need_mpirun()
    where = ["-H", hosts] if hosts else ["--oversubscribe"]
    return ["mpirun", "-np", str(ranks), *where, "--bind-to", "none", sys.executable, *arguments]


def mpirun(ranks, *arguments, timeout=540, environment=(), hosts=None):
    """A finished `mpirun -np RANKS python ARGUMENTS`: returncode, stdout, stderr."""
    return subprocess.run(
        command(ranks, *arguments, hosts=hosts),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=PROJECT,
        env={**os.environ, **ENVIRONMENT, **dict(environment)},
    )


def is_running(pid: str) -> bool:
    """False also for one that has ended and that nobody has asked about yet."""
    try:
        status = pathlib.Path("/proc", pid, "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"

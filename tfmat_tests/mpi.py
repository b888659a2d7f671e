"""Runs Python under the machine's real mpirun."""

import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# Open MPI can wait only in a loop, and calls this in it. A rank that waits would take a processor from the one that it
# waits for, since yielding gives up too little of it: on a busy machine tests of several ranks took twice as long.
_SLEEPING_YIELD = """
#include <time.h>
int sched_yield(void) {
    struct timespec pause = {0, 100000};
    nanosleep(&pause, 0);
    return 0;
}
"""


@functools.cache
def _sleeping_yield():
    """The library with that function, until this process ends; None without a compiler: ranks then wait as ever."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfmat-mpi-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "sleeping_yield.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    done = subprocess.run(command, input=_SLEEPING_YIELD, text=True, capture_output=True)
    return library if done.returncode == 0 else None


def rank_environment():
    """This process's environment, with what lets ranks share the machine."""
    environment = {
        **os.environ,
        # Root may be all that a container has; more ranks than processors only take longer.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    if library := _sleeping_yield():
        environment["LD_PRELOAD"] = f"{library} {environment.get('LD_PRELOAD', '')}".strip()
    return environment


def need_mpirun():
    """Skips a test where there is no mpirun; CI must have one."""
    if shutil.which("mpirun") is None:
        message = "there is no mpirun; ./tools/setup horovod gets it"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


# Each rank's strings have hashes of their own, and so a set of them an order of its own.
_OWN_HASHES = ("sh", "-c", 'PYTHONHASHSEED=$OMPI_COMM_WORLD_RANK exec "$@"', "sh", sys.executable)


def command(ranks, *arguments, hosts=None, own_hashes=False):
    """The mpirun command line of `python ARGUMENTS`, whose ranks have TensorFlow loaded already.

    Such ranks share one seed of hashes. With `own_hashes` they are as a user's are: real Pythons, seeds of their own.
    """
    from tfmat_tests.processes import forked_python

    need_mpirun()
    where = ["-H", hosts] if hosts else ["--oversubscribe"]
    python = _OWN_HASHES if own_hashes else [forked_python()]
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

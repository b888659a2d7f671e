"""What Horovod and MPI read from the environment when they start."""

import importlib.metadata
import os
from collections.abc import MutableMapping

from tfmat.errors import InputError
from tfmat.ranks.processes import Processes

# The Horovod of `./tools/setup horovod`, whose thread wakes when there is something to sum.
_WAKES = "+wakes"
GET_HOROVOD = "`./tools/setup horovod` builds it, `tfmat doctor` tells what is missing"


def prepare_horovod(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets what measures best, where the user has not said otherwise; call it before Horovod's `init`.

    docs/horovod.md has the measurements.
    """
    # A thread that waits lets the computing one go first where they share a processor.
    environment.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    # Milliseconds that Horovod's thread sleeps between two looks: as long as it likes where a tensor wakes it.
    environment.setdefault("HOROVOD_CYCLE_TIME", "10" if _wakes() else "0.5")


def check_horovod_sees(started: Processes, rank: int, size: int) -> None:
    """InputError where Horovod sees other processes than were started: each would train for itself."""
    if (rank, size) != (started.rank, started.size):
        raise InputError(
            f"{started.launcher} started {started.size} processes, but Horovod sees {size}: "
            f"it was built for another MPI; {GET_HOROVOD}"
        )


def _wakes() -> bool:
    try:
        return importlib.metadata.version("horovod").endswith(_WAKES)
    except importlib.metadata.PackageNotFoundError:
        return False  # one from PYTHONPATH, say

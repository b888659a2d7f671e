"""What Horovod and MPI read from the environment when they start."""

import os
from collections.abc import MutableMapping

# Measured, see docs/horovod.md: the waiting thread lets the computing one go first where they share a processor.
_SETTINGS = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "HOROVOD_CYCLE_TIME": "0.5",
}
GET_HOROVOD = "`./tools/setup horovod` builds it, `tfmat doctor` tells what is missing"


def prepare_horovod(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets what measures best, where the user has not said otherwise; call it before Horovod's `init`."""
    for name, value in _SETTINGS.items():
        environment.setdefault(name, value)

"""Times sums over the workers by themselves: from 1 kB to 64 MB."""

import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmat.backends.collectives import Collectives
from tfmat.config import Config, check_config
from tfmat.launch.settings import prepare_mpi
from tfmat.ranks.processes import Processes
from tfmat.scaling.step_times import make_variant_backend, prepare

_BYTES_A_NUMBER = 4
# Seconds: of one timed call, which holds as many sums as fit; and of the calls of a size in one pass.
_CALL, _PASS = 0.01, 0.06
# All sizes take a turn in each pass, so that a moment in which the machine was busy spoils no size as a whole.
_PASSES = 5
_FEWEST, _MOST = 1, 6  # calls of a size in a pass


class BareMpi(Collectives):
    """MPI_Allreduce through mpi4py, without Horovod."""

    def start(self) -> None:
        prepare_mpi()
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        values, total = np.zeros(num_values, np.float32), np.empty(num_values, np.float32)

        def sums(count: int) -> None:
            for _ in range(count):
                self.world.Allreduce(values, total)

        return sums

    def broadcast(self, value: Any) -> Any:
        return self.world.bcast(value)

    def gather(self, value: Any) -> list[Any]:
        return list(self.world.allgather(value))


def measure_sums(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """`sums`: for each size `bytes` and `seconds`, of one sum, in each of some calls, on this process."""
    variant = spec["variant"]
    if variant["backend"] == "mpi4py":
        workers: Collectives = BareMpi()
    else:
        prepare(spec, check_config(Config(spec["config"])), processes)
        workers = make_variant_backend(spec, processes, folder).collectives
    sizes = sorted(spec["sizes"])
    # DTensor's graphs of several sizes would take each other's names for their loops, and be refused (TensorFlow 2.21):
    # on a mesh each size has gone before the next one comes.
    groups = [[size] for size in sizes] if variant["backend"] == "dtensor" else [sizes]
    with workers:
        found = [answer for group in groups for answer in _measure_in_turns(workers, group)]
    return {"sums": found}


def _measure_in_turns(workers: Collectives, sizes: Sequence[int]) -> list[dict[str, Any]]:
    timings = [_Timing(workers, size) for size in sizes]
    for _ in range(_PASSES):
        for timing in timings:
            timing.one_pass()
    return [{"bytes": timing.size, "seconds": timing.seconds} for timing in timings]


class _Timing:
    """Sums of one size: how many make a call, and how long each took."""

    def __init__(self, workers: Collectives, size: int):
        self.size = size
        self.seconds: list[float] = []
        self._workers = workers
        self._sums = workers.repeated_sums(max(1, size // _BYTES_A_NUMBER))
        self._sums(2)
        seconds = min(_seconds(self._sums, 3) for _ in range(3))
        # Rank 0 decides, or the others would wait for sums that it does not do.
        self._count, self._calls = workers.broadcast(_plan(seconds))

    def one_pass(self) -> None:
        """Some more calls, which all workers begin together."""
        self._workers.barrier()
        self.seconds += [_seconds(self._sums, self._count) for _ in range(self._calls)]


def _plan(seconds: float) -> tuple[int, int]:
    """Sums a call, and calls a pass."""
    count = int(np.clip(_CALL / seconds, 1, 500))
    return count, int(np.clip(_PASS / (count * seconds), _FEWEST, _MOST))


def _seconds(sums: Callable[[int], None], count: int) -> float:
    started = time.perf_counter()
    sums(count)
    return (time.perf_counter() - started) / count

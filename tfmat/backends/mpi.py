"""Data parallel training with MPI alone: the processes that a launcher started sum their gradients by mpi4py.

mpi4py is loaded only where there is more than one process: alone, this is the single backend.
"""

import copy
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends.collectives import Collectives
from tfmat.backends.messages import MpiMessages
from tfmat.backends.mpi_sums import MpiSums
from tfmat.backends.options import BackendOptions
from tfmat.backends.single import SingleBackend
from tfmat.backends.sums import collect_flat, reduce_flat, repeated_sums, scatter_flat
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.settings import prepare_mpi
from tfmat.ranks.ending import start_timer
from tfmat.ranks.processes import Processes

GET_MPI4PY = "`./tools/setup mpi` installs it, and the MPI is the system's; `tfmat doctor` tells what is missing"


class MpiCollectives(Collectives):
    """Collectives by mpi4py. Sums run in host memory.

    Args:
      processes: this one among those of the run.
      hierarchical: whether tensors are summed by nodes, see MpiSums.
      patient: whether sums and collections in a graph leave the processor to others while they wait.
    """

    # MPI ends with the process, since it cannot be started twice in one: nothing to leave in order.
    alike = (*Collectives.alike, WorkerLostError)

    def __init__(self, processes: Processes, hierarchical: bool = False, patient: bool = False):
        self.processes, self._hierarchical, self._patient = processes, hierarchical, patient
        self.started = False

    def start(self) -> None:
        """See Collectives.start."""
        self.started = True
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        if self.size == 1:
            return
        prepare_mpi()
        with start_timer(self.rank):  # loading it starts MPI, which waits for all
            self._mpi = load_mpi4py()
        self._world = world_of(self._mpi, processes)
        self.watch_others(processes)
        nodes = self.gather(platform.node()) if self._hierarchical else None
        self._sums = MpiSums(self._mpi, self._world, nodes, self._patient)

    def check_build(self, jit_compile: bool) -> None:
        """See Collectives.check_build."""
        if not self.started and self.processes.size > 1:
            raise InputError(
                "the MPI backend is not started, so that each process would train for itself; use it in a with block: "
                "with make_backend('mpi') as backend:"
            )
        if jit_compile and self.size > 1:
            raise InputError(
                "jit_compile is not for several workers: XLA cannot call MPI; leave it out"
            )

    def broadcast(self, value: Any) -> Any:
        """See Collectives.broadcast."""
        return value if self.size == 1 else self._world.bcast(value, 0)

    def gather(self, value: Any) -> list[Any]:
        """See Collectives.gather."""
        return [value] if self.size == 1 else list(self._world.allgather(value))

    def hand_over(self, value: Any, source: int) -> Any:
        """See Collectives.hand_over."""
        if source and self.rank == source:
            self._world.send(value, 0)
        elif source and self.rank == 0:
            value = self._world.recv(source=source)
        return value if self.rank == 0 else None

    def maximum(self, number: int) -> int:
        """See Collectives.maximum."""
        return number if self.size == 1 else int(self._world.allreduce(number, self._mpi.MAX))

    def barrier(self) -> None:
        """See Collectives.barrier."""
        if self.size > 1:
            self._world.Barrier()

    def latest(self, times: np.ndarray) -> np.ndarray:
        """See Collectives.latest."""
        if self.size == 1:
            return times
        found = np.asarray(times - self.clock.seconds, np.float64)
        self._world.Allreduce(self._mpi.IN_PLACE, found, self._mpi.MAX)
        return found + self.clock.seconds

    def reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.reduce: one flat buffer and one sum for each type of number."""
        return tensors if self.size == 1 else reduce_flat(tensors, self._sums.sum)

    def collect(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.collect."""
        if self.size == 1:
            return super().collect(tensors)
        return collect_flat(tensors, self._sums.collect)

    def reduce_scatter(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.reduce_scatter."""
        if self.size == 1:
            return super().reduce_scatter(tensors)
        return scatter_flat(tensors, self._sums.scatter)

    def divide(self, groups: Sequence[Sequence[int]]) -> "MpiCollectives":
        """See Collectives.divide."""
        (mine,) = (i for i, ranks in enumerate(groups) if self.rank in ranks)
        part = copy.copy(self)
        part._star = None
        part._world = self._world.Split(mine, self.rank)
        part.rank, part.size = part._world.rank, part._world.size
        part._sums = MpiSums(self._mpi, part._world, None, self._patient)
        return part

    def connect(self) -> None:
        """See Collectives.connect."""
        self.messages = MpiMessages(self._mpi, self.size)

    def broadcast_array(
        self, array: np.ndarray | None, shape: Sequence[int], dtype: Any
    ) -> np.ndarray:
        """See Collectives.broadcast_array: without a copy."""
        if array is None or self.rank:
            array = np.empty(shape, dtype)
        if self.size > 1:
            array = np.ascontiguousarray(array).reshape(shape)
            self._world.Bcast([array.reshape(-1).view(np.uint8), self._mpi.BYTE], 0)
        return array

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        """See Collectives.repeated_sums."""
        if self.size == 1:
            return super().repeated_sums(num_values)
        return repeated_sums(self._sums.sum, num_values)

    def _is_loss(self, error: Exception) -> bool:
        """An operation in a graph hands on MPI's error as text."""
        return isinstance(error, self._mpi.Exception) or (
            isinstance(error, tf.errors.OpError) and "mpi4py.MPI.Exception" in str(error)
        )


class MpiBackend(SingleBackend):
    """The single backend on each of MPI's processes."""

    name = "mpi"
    collectives: MpiCollectives

    def __init__(self, options: BackendOptions | None = None):
        options = options or BackendOptions()
        hierarchical = options.reduction == "hierarchical"
        collectives = MpiCollectives(options.processes, hierarchical, options.overlap_meetings)
        super().__init__(options, collectives)


def load_mpi4py(what: str = "--backend=mpi with several processes") -> Any:
    """mpi4py's MPI, which is started; InputError where it cannot be loaded."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where there is no library of MPI
        raise InputError(f"{what}: mpi4py is needed ({error}); {GET_MPI4PY}") from error
    return MPI


def world_of(mpi: Any, processes: Processes) -> Any:
    """The communicator of all ranks; InputError where these are other processes than were started."""
    world = mpi.COMM_WORLD
    if (world.rank, world.size) != (processes.rank, processes.size):
        raise InputError(
            f"{processes.launcher} started {processes.size} processes, but mpi4py sees {world.size}: it was built for "
            f"another MPI, or they were started without one; {GET_MPI4PY}"
        )
    return world

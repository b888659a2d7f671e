"""Data parallel training with MPI alone: the processes that a launcher started sum their gradients by mpi4py.

mpi4py is loaded only where there is more than one process: alone, this is the single backend.
"""

import copy
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfmat.backends.collectives import Collectives
from tfmat.backends.messages import MpiMessages
from tfmat.backends.options import BackendOptions
from tfmat.backends.single import SingleBackend
from tfmat.backends.sums import collect_flat, reduce_flat, repeated_sums, scatter_flat
from tfmat.errors import InputError, WorkerLostError
from tfmat.ranks.ending import start_timer
from tfmat.ranks.processes import Processes

# Seconds after which a patient collective looks for messages again: far less than a slow network takes for one.
_PAUSE = 1e-4
GET_MPI4PY = "`./tools/setup mpi` installs it, and the MPI is the system's; `tfmat doctor` tells what is missing"


class MpiCollectives(Collectives):
    """Collectives by mpi4py. Sums run in host memory.

    Args:
      processes: this one among those of the run.
      hierarchical: whether tensors are summed within each node first, then between the nodes' first ranks, which hand
        the sums back: no byte crosses the network twice, however the ranks are placed.
      patient: whether sums and collections in a graph leave the processor to others while they wait. MPI itself looks
        for messages without a pause.
    """

    # MPI ends with the process, since it cannot be started twice in one: nothing to leave in order.
    alike = (*Collectives.alike, WorkerLostError)

    def __init__(self, processes: Processes, hierarchical: bool = False, patient: bool = False):
        self.processes, self._hierarchical, self._patient = processes, hierarchical, patient
        self._node: _Node | None = None
        self.started = False

    def start(self) -> None:
        """See Collectives.start."""
        self.started = True
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        if self.size == 1:
            return
        # A thread that waits lets the computing one go first where they share a processor.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
        with start_timer(self.rank):  # loading it starts MPI, which waits for all
            self._mpi = load_mpi4py()
        self._world = self._mpi.COMM_WORLD
        if (self._world.rank, self._world.size) != (self.rank, self.size):
            raise InputError(
                f"{processes.launcher} started {self.size} processes, but mpi4py sees {self._world.size}: it was built "
                f"for another MPI; {GET_MPI4PY}"
            )
        self.watch_others(processes)
        if self._hierarchical:
            self._node = _find_node(self._world, self.gather(platform.node()))

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
        return tensors if self.size == 1 else reduce_flat(tensors, self._sum)

    def _sum(self, flat: tf.Tensor) -> tf.Tensor:
        # The gradient of a sum over the ranks is the sum of the ranks' gradients.
        @tf.custom_gradient
        def summed(part: tf.Tensor) -> Any:
            # Stateful, so that TensorFlow runs one after the other, in the same order on every rank.
            total = tf.numpy_function(self._sum_numbers, [part], part.dtype, stateful=True)
            return tf.ensure_shape(total, part.shape), summed

        return summed(flat)

    def _sum_numbers(self, part: np.ndarray) -> np.ndarray:
        total = part.copy()
        numbers, add = self._summands(total)
        if self._node is None:
            self._do(self._world, "allreduce", self._mpi.IN_PLACE, numbers, add)
            return total
        here, across = self._node
        # The ranks of a node sum among themselves; its first sums with the other nodes' and hands the sum back.
        if here.rank == 0:
            self._do(here, "reduce", self._mpi.IN_PLACE, numbers, add, 0)
            self._do(across, "allreduce", self._mpi.IN_PLACE, numbers, add)
        else:
            self._do(here, "reduce", numbers, None, add, 0)
        self._do(here, "bcast", numbers, 0)
        return total

    def _do(self, ranks: Any, collective: str, *arguments: Any) -> None:
        """Calls a collective of the communicator `ranks`, and returns when it is done."""
        if not self._patient:
            getattr(ranks, collective.capitalize())(*arguments)
            return
        request = getattr(ranks, f"I{collective}")(*arguments)
        while not request.Test():
            time.sleep(_PAUSE)

    def _summands(self, numbers: np.ndarray) -> tuple[Any, Any]:
        """Numbers as MPI takes them, and what adds them: it has no half precision of its own."""
        if numbers.dtype != np.float16:
            return numbers, self._mpi.SUM
        if self._halves is None:
            pair = self._mpi.BYTE.Create_contiguous(2).Commit()
            self._halves = pair, self._mpi.Op.Create(_add_halves, commute=True)
        pair, add = self._halves
        return [numbers, pair], add

    _halves: tuple[Any, Any] | None = None

    def collect(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.collect."""
        return super().collect(tensors) if self.size == 1 else collect_flat(tensors, self._collect)

    def _collect(self, row: tf.Tensor) -> tf.Tensor:
        rows = tf.numpy_function(self._collect_numbers, [row], row.dtype, stateful=True)
        return tf.ensure_shape(rows, [self.size, row.shape[1]])

    def _collect_numbers(self, row: np.ndarray) -> np.ndarray:
        rows = np.empty((self.size, row.shape[1]), row.dtype)
        self._do(
            self._world,
            "allgather",
            [np.ascontiguousarray(row).view(np.uint8), self._mpi.BYTE],
            [rows.view(np.uint8), self._mpi.BYTE],
        )
        return rows

    def reduce_scatter(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.reduce_scatter."""
        if self.size == 1:
            return super().reduce_scatter(tensors)
        return scatter_flat(tensors, self._scatter)

    def _scatter(self, rows: tf.Tensor) -> tf.Tensor:
        part = tf.numpy_function(self._scatter_numbers, [rows], rows.dtype, stateful=True)
        return tf.ensure_shape(part, rows.shape[1:])

    def _scatter_numbers(self, rows: np.ndarray) -> np.ndarray:
        part = np.empty(rows.shape[1], rows.dtype)
        numbers, add = self._summands(np.ascontiguousarray(rows))
        self._world.Reduce_scatter_block(numbers, self._summands(part)[0], add)
        return part

    def divide(self, groups: Sequence[Sequence[int]]) -> "MpiCollectives":
        """See Collectives.divide."""
        (mine,) = (i for i, ranks in enumerate(groups) if self.rank in ranks)
        part = copy.copy(self)
        part._star, part._node = None, None
        part._world = self._world.Split(mine, self.rank)
        part.rank, part.size = part._world.rank, part._world.size
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
        return repeated_sums(self._sum, num_values)

    def _is_loss(self, error: Exception) -> bool:
        """An operation in a graph hands on MPI's error as text."""
        return isinstance(error, self._mpi.Exception) or (
            isinstance(error, tf.errors.OpError) and "mpi4py.MPI.Exception" in str(error)
        )


class _Node(NamedTuple):
    """A node as one of its ranks sees it: communicators of its ranks, and of the nodes' first ranks."""

    here: Any
    across: Any


def _find_node(world: Any, nodes: Sequence[str]) -> _Node | None:
    """The node of a rank; None where each rank or all ranks are by themselves, and one sum does it.

    Args:
      world: communicator of all ranks, which all call this at the same time.
      nodes: name of each rank's node, however they are placed.
    """
    names = sorted(set(nodes))
    if len(names) in (1, len(nodes)):
        return None
    here = world.Split(names.index(nodes[world.rank]), world.rank)
    return _Node(here, world.Split(int(here.rank > 0), world.rank))


def _add_halves(one: Any, other: Any, kind: Any) -> None:
    """Adds the numbers of one of MPI's buffers to the other's."""
    total = np.frombuffer(other, np.float16)
    np.add(total, np.frombuffer(one, np.float16), out=total)


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

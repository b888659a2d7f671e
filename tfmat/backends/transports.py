"""Data parallel training with MPI or Horovod: the processes that a launcher started sum their gradients.

mpi4py and Horovod are loaded only where there is more than one process: alone, this is the single backend.
"""

import collections
import copy
import itertools
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfmat.backends.base import Collectives
from tfmat.backends.exchange import collect_flat, reduce_flat, repeated_sums, scatter_flat
from tfmat.config import Settings
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.processes import (
    GET_HOROVOD,
    Processes,
    check_horovod_sees,
    prepare_horovod,
    prepare_mpi,
)
from tfmat.launch.watchdog import start_timer

# --------------------------------------------------------------------------------------------------
# Messages from one process to another, in graphs; what is given of MPI is mpi4py's.


# Between two looks at what is under way: short beside a message over a network, and nothing for a processor.
_SECONDS = 0.0005


class MpiMessages:
    """Messages by MPI; all ranks make this object at the same time. InputError where MPI does not see them all."""

    def __init__(self, mpi: Any, size: int):
        world = mpi.COMM_WORLD
        if world.size != size:
            raise InputError(
                f"pipeline stages send by MPI, which sees {world.size} of the {size} processes; start them with mpirun "
                "or srun, for the MPI that mpi4py was built for"
            )
        self._mpi, self._world, self._outbox = mpi, world.Dup(), Outbox()

    def send(self, tensor: tf.Tensor, to: int, *, one_at_a_time: bool = False) -> tf.Tensor:

        def put(numbers: np.ndarray) -> np.int32:
            # A copy, which stays until it has left; TensorFlow's own does not.
            contents = numbers.tobytes()
            if one_at_a_time:
                self._outbox.wait()
            self._outbox.add(self._world.Isend([contents, self._mpi.BYTE], to), contents)
            return np.int32(0)

        return tf.numpy_function(put, [tensor], tf.int32, stateful=True)

    def receive(self, shape: tf.Tensor, dtype: tf.DType, source: int) -> tf.Tensor:

        def take(shape: np.ndarray) -> np.ndarray:
            numbers = np.empty(shape, dtype.as_numpy_dtype)
            self._world.Recv([numbers.view(np.uint8), self._mpi.BYTE], source)
            return numbers

        return tf.numpy_function(take, [shape], dtype, stateful=True)


class Outbox:
    """Keeps the buffers of messages until they have been sent, and sees to it that they are.

    MPI moves a large message on only while the sender is in one of its calls, and the sender is computing: its receiver
    would wait for the next call. So a thread makes calls while messages are under way.
    """

    def __init__(self) -> None:
        self._under_way: collections.deque[tuple[Any, Any]] = collections.deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._push, daemon=True, name="outbox").start()

    def add(self, request: Any, buffer: Any) -> None:
        """Takes a message: mpi4py's request, and what it reads from."""
        with self._changed:
            self._under_way.append((request, buffer))
            self._changed.notify_all()

    def wait(self) -> None:
        """Returns when all messages have left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def _push(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._under_way)
                waiting = list(self._under_way)
            # All of them, since they may go to several processes.
            left = [each for each in waiting if not each[0].Test()]
            if len(left) < len(waiting):
                with self._changed:
                    sent = {id(each) for each in waiting} - {id(each) for each in left}
                    kept = [each for each in self._under_way if id(each) not in sent]
                    self._under_way = collections.deque(kept)
                    self._changed.notify_all()
            if left:
                time.sleep(_SECONDS)


# --------------------------------------------------------------------------------------------------
# Sums and collections over the ranks of one of MPI's communicators, in graphs and in host memory.


# Seconds after which a patient collective looks for messages again: far less than a slow network takes for one.
_PAUSE = 1e-4


class MpiSums:
    """Collectives in graphs, which every rank of `ranks` (a communicator) calls in the same order.

    Args:
      nodes: name of each rank's node, however they are placed. Tensors are then summed within each node first, then
        between the nodes' first ranks, which hand the sums back: no number crosses the network twice. None: in one sum.
      patient: whether they leave the processor to others while they wait. MPI itself looks for messages without a
        pause.
    """

    def __init__(
        self, mpi: Any, ranks: Any, nodes: Sequence[str] | None = None, patient: bool = False
    ):
        self._mpi, self._ranks, self._patient = mpi, ranks, patient
        self._node = _find_node(ranks, nodes) if nodes is not None else None

    def sum(self, flat: tf.Tensor) -> tf.Tensor:
        """The sum over the ranks of a flat tensor."""

        # The gradient of a sum over the ranks is the sum of the ranks' gradients.
        @tf.custom_gradient
        def summed(part: tf.Tensor) -> Any:
            # Stateful, so that TensorFlow runs one after the other, in the same order on every rank.
            total = tf.numpy_function(self._sum, [part], part.dtype, stateful=True)
            return tf.ensure_shape(total, part.shape), summed

        return summed(flat)

    def _sum(self, part: np.ndarray) -> np.ndarray:
        total = part.copy()
        if self._node is None:
            self._add_up(self._ranks, total, swaps=self._patient)
            return total
        here, across = self._node
        numbers, add = self._summands(total)
        # The ranks of a node sum among themselves; its first sums with the other nodes' and hands the sum back.
        if here.rank == 0:
            self._do(here, "reduce", self._mpi.IN_PLACE, numbers, add, 0)
            self._add_up(across, total, swaps=True)
        else:
            self._do(here, "reduce", numbers, None, add, 0)
        self._do(here, "bcast", numbers, 0)
        return total

    def _add_up(self, ranks: Any, total: np.ndarray, swaps: bool) -> None:
        """Overwrites each rank's numbers by the sum over the ranks; two ranks may swap theirs instead."""
        if swaps and ranks.size == 2:
            self._swap(total, ranks)
            return
        numbers, add = self._summands(total)
        given: Any = self._mpi.IN_PLACE
        if self._patient:
            # A sum that MPI begins at once and makes in place goes up a tree and down again, each time with all bytes.
            given, _ = self._summands(total.copy())
        self._do(ranks, "allreduce", given, numbers, add)

    def _swap(self, total: np.ndarray, two: Any) -> None:
        """Adds the other one's numbers: a message each way, where MPI's own sum has two with half of the bytes."""
        other, partner = np.empty_like(total), 1 - two.rank
        sent, got = ([each.view(np.uint8), self._mpi.BYTE] for each in (total, other))
        self._wait([two.Irecv(got, partner, 0), two.Isend(sent, partner, 0)])
        np.add(total, other, out=total)

    def _do(self, ranks: Any, collective: str, *arguments: Any) -> None:
        """Calls a collective of the communicator `ranks`, and returns when it is done."""
        if not self._patient:
            getattr(ranks, collective.capitalize())(*arguments)
            return
        self._wait([getattr(ranks, f"I{collective}")(*arguments)])

    def _wait(self, requests: list[Any]) -> None:
        """Returns when these are done."""
        if not self._patient:
            self._mpi.Request.Waitall(requests)
            return
        while not self._mpi.Request.Testall(requests):
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

    def collect(self, row: tf.Tensor) -> tf.Tensor:
        """[1, numbers] -> the rows of all ranks, [ranks, numbers]."""
        rows = tf.numpy_function(self._collect, [row], row.dtype, stateful=True)
        return tf.ensure_shape(rows, [self._ranks.size, row.shape[1]])

    def _collect(self, row: np.ndarray) -> np.ndarray:
        rows = np.empty((self._ranks.size, row.shape[1]), row.dtype)
        self._do(
            self._ranks,
            "allgather",
            [np.ascontiguousarray(row).view(np.uint8), self._mpi.BYTE],
            [rows.view(np.uint8), self._mpi.BYTE],
        )
        return rows

    def scatter(self, rows: tf.Tensor) -> tf.Tensor:
        """[ranks, numbers] -> this rank's row of their sum over the ranks, [numbers]."""
        part = tf.numpy_function(self._scatter, [rows], rows.dtype, stateful=True)
        return tf.ensure_shape(part, rows.shape[1:])

    def _scatter(self, rows: np.ndarray) -> np.ndarray:
        part = np.empty(rows.shape[1], rows.dtype)
        numbers, add = self._summands(np.ascontiguousarray(rows))
        self._ranks.Reduce_scatter_block(numbers, self._summands(part)[0], add)
        return part


class _Node(NamedTuple):
    """A node as one of its ranks sees it: communicators of its ranks, and of the nodes' first ranks."""

    here: Any
    across: Any


def _find_node(ranks: Any, nodes: Sequence[str]) -> _Node | None:
    """The node of a rank; None where each rank or all ranks are by themselves, and one sum does it."""
    names = sorted(set(nodes))
    if len(names) in (1, len(nodes)):
        return None
    here = ranks.Split(names.index(nodes[ranks.rank]), ranks.rank)
    return _Node(here, ranks.Split(int(here.rank > 0), ranks.rank))


def _add_halves(one: Any, other: Any, kind: Any) -> None:
    """Adds the numbers of one of MPI's buffers to the other's."""
    total = np.frombuffer(other, np.float16)
    np.add(total, np.frombuffer(one, np.float16), out=total)


# --------------------------------------------------------------------------------------------------
# MPI by itself.


GET_MPI4PY = "`tfmat doctor` tells how to install it, and whether the system has an MPI"


class MpiCollectives(Collectives):
    """Collectives by mpi4py. Sums run in host memory; beside local steps they leave the processor to others."""

    # MPI ends with the process, since it cannot be started twice in one: nothing to leave in order.
    alike = (*Collectives.alike, WorkerLostError)
    title = "MPI"
    without_xla = "XLA cannot call MPI"

    def __init__(self, processes: Processes, folder: str, settings: Settings):
        options = settings.parallel
        self.processes, self._patient = processes, options.overlap_meetings
        self._hierarchical = options.reduction == "hierarchical"

    def start(self) -> None:
        self.started = True
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        prepare_mpi()
        with start_timer(self.rank):  # loading it starts MPI, which waits for all
            self._mpi = load_mpi4py()
        self._world = world_of(self._mpi, processes)
        self.watch_others(processes)
        nodes = self.gather(platform.node()) if self._hierarchical else None
        self._sums = MpiSums(self._mpi, self._world, nodes, self._patient)

    def broadcast(self, value: Any) -> Any:
        return self._world.bcast(value, 0)

    def gather(self, value: Any) -> list[Any]:
        return list(self._world.allgather(value))

    def hand_over(self, value: Any, source: int) -> Any:
        if source and self.rank == source:
            self._world.send(value, 0)
        elif source and self.rank == 0:
            value = self._world.recv(source=source)
        return value if self.rank == 0 else None

    def maximum(self, number: int) -> int:
        return int(self._world.allreduce(number, self._mpi.MAX))

    def barrier(self) -> None:
        self._world.Barrier()

    def latest(self, times: np.ndarray) -> np.ndarray:
        found = np.asarray(times - self.clock.seconds, np.float64)
        self._world.Allreduce(self._mpi.IN_PLACE, found, self._mpi.MAX)
        return found + self.clock.seconds

    def _sum(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.sum: one flat buffer and one sum for each type of number."""
        return reduce_flat(tensors, self._sums.sum)

    def _collect(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return collect_flat(tensors, self._sums.collect)

    def _scatter(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return scatter_flat(tensors, self._sums.scatter)

    def divide(self, groups: Sequence[Sequence[int]]) -> Collectives:
        (mine,) = (i for i, ranks in enumerate(groups) if self.rank in ranks)
        part, world = copy.copy(self), self._world.Split(mine, self.rank)
        if world.size == 1:
            return Collectives()
        part._star, part._world = None, world
        part.rank, part.size = part._world.rank, part._world.size
        part._sums = MpiSums(self._mpi, part._world, None, self._patient)
        return part

    def connect(self) -> None:
        self.messages = MpiMessages(self._mpi, self.size)

    def broadcast_array(
        self, array: np.ndarray | None, shape: Sequence[int], dtype: Any
    ) -> np.ndarray:
        """See Collectives.broadcast_array: without a copy."""
        if array is None or self.rank:
            array = np.empty(shape, dtype)
        array = np.ascontiguousarray(array).reshape(shape)
        self._world.Bcast([array.reshape(-1).view(np.uint8), self._mpi.BYTE], 0)
        return array

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        return repeated_sums(self._sums.sum, num_values)

    def _is_loss(self, error: Exception) -> bool:
        """An operation in a graph hands on MPI's error as text."""
        return isinstance(error, self._mpi.Exception) or (
            isinstance(error, tf.errors.OpError) and "mpi4py.MPI.Exception" in str(error)
        )


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


# --------------------------------------------------------------------------------------------------
# Horovod.

# Ranks -> Horovod's set of them.
_SETS: dict[tuple[int, ...], Any] = {}


class HorovodCollectives(Collectives):
    """Collectives by Horovod, over MPI, Gloo or NCCL.

    Where tensors are summed by nodes, MpiSums does it beside Horovod. With Horovod's own process sets all ranks agree
    before each of the three parts, which on a slow network takes as long as the sums.
    """

    # Horovod itself ends with the process, since it cannot be started twice in one: nothing to leave in order.
    alike = (*Collectives.alike, WorkerLostError)
    title = "Horovod"
    without_xla = "Horovod's XLA operation is not built"

    def __init__(self, processes: Processes, folder: str, settings: Settings):
        options = settings.parallel
        self.processes, self._timeline = processes, settings.trace_steps is not None
        self._hierarchical = options.reduction == "hierarchical"
        self._patient = options.overlap_meetings
        self._by_nodes: MpiSums | None = None
        self._names: Iterator[str] = iter(())
        self._group: Any = None

    def start(self) -> None:
        self.started = True
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        prepare_horovod()
        # The watch tells better, and knows what is no fault: rank 0 may simulate curves while the others wait.
        os.environ.setdefault("HOROVOD_STALL_CHECK_DISABLE", "1")
        if self._timeline:
            os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
        if self.divides:
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        self.horovod = _load_horovod()
        with start_timer(self.rank):
            self.horovod.init()
        check_horovod_sees(processes, self.horovod.rank(), self.horovod.size())
        self.watch_others(processes)
        if self._hierarchical:
            self._by_nodes = self._sums_by_nodes()

    def _sums_by_nodes(self) -> MpiSums:
        what = "reduction=hierarchical"
        mpi = load_mpi4py(what)
        world = world_of(mpi, self.processes)
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise InputError(
                f"{what} sums by MPI beside Horovod's thread, which HOROVOD_MPI_THREADS_DISABLE forbids; unset that, "
                "or leave it at flat"
            )
        return MpiSums(mpi, world.Dup(), self.gather(platform.node()), self._patient)

    def broadcast(self, value: Any) -> Any:
        return self.horovod.broadcast_object(value, 0, name="decision")

    def gather(self, value: Any) -> list[Any]:
        return list(self.horovod.allgather_object(value, name="values"))

    def hand_over(self, value: Any, source: int) -> Any:
        """See Collectives.hand_over; Horovod has no message for one rank alone."""
        if source:
            value = self.horovod.broadcast_object(value, source, name="part")
        return value if self.rank == 0 else None

    def maximum(self, number: int) -> int:
        return int(self._largest([number], tf.int32, "maximum")[0])

    def latest(self, times: np.ndarray) -> np.ndarray:
        offset = self.clock.seconds
        return self._largest(times - offset, tf.float64, "latest") + offset

    def _largest(self, numbers: Any, dtype: tf.DType, name: str) -> np.ndarray:
        """Each number's largest among the ranks."""
        values = tf.constant(numbers, dtype)
        found: np.ndarray = self.horovod.allreduce(values, op=self.horovod.Max, name=name).numpy()
        return found

    def begin_graph(self, name: str, stamp: Callable[[Any], Any] | None = None) -> None:
        """See Collectives.begin_graph: the same names on every rank, whatever else each of them traced before."""
        super().begin_graph(name, stamp)
        prefix = f"{name}.set{self._group.process_set_id}" if self._group else name
        self._names = (f"{prefix}.{i}" for i in itertools.count())

    def _sum(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.sum: one flat buffer, one collective, since the model is small and latency is everything.

        Measured against one collective a variable: docs/benchmark.md.
        """
        if self._by_nodes:
            return reduce_flat(tensors, self._by_nodes.sum)
        return reduce_flat(tensors, lambda flat: self._sum_of_one(flat, next(self._names)))

    def _collect(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return collect_flat(
            tensors, lambda row: self.horovod.allgather(row, name=next(self._names))
        )

    def _scatter(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        horovod = self.horovod
        if not hasattr(horovod, "reducescatter"):
            raise InputError(
                "zero_stage needs a Horovod with reducescatter, as 0.28 has it; `tfmat horovod install` gets one, or "
                "use zero_stage=0"
            )
        return scatter_flat(
            tensors,
            lambda rows: horovod.reducescatter(rows, op=horovod.Sum, name=next(self._names))[0],
        )

    def _sum_of_one(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """One tensor's sum over the ranks; the same name on every rank."""
        if not self.divides:
            return self.horovod.allreduce(tensor, op=self.horovod.Sum, name=name)
        among = {"process_set": self._group} if self._group else {}
        # Stages have different graphs, in which what is around the operation has different names.
        return self.horovod.allreduce(
            tensor, op=self.horovod.Sum, name=name, ignore_name_scope=True, **among
        )

    def divide(self, groups: Sequence[Sequence[int]]) -> Collectives:
        """See Collectives.divide; Horovod was told beforehand that process sets come."""
        part = copy.copy(self)
        part._star, part._by_nodes = None, None
        for ranks in groups:
            if self.rank in ranks:
                part.rank, part.size = ranks.index(self.rank), len(ranks)
            if len(ranks) > 1:  # all ranks make all sets, in the same order
                made = _process_set(self.horovod, ranks)
                part._group = made if self.rank in ranks else part._group
        return part if part.size > 1 else Collectives()

    def connect(self) -> None:
        """See Collectives.connect: MPI's messages beside Horovod, whose collectives would wait for their receiver."""
        self.messages = MpiMessages(load_mpi4py("pipeline stages"), self.size)

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(error, tf.errors.OpError) and any(
            name in str(error) for name in ("Horovod", "mpi4py.MPI.Exception")
        )

    def broadcast_array(
        self, array: np.ndarray | None, shape: Sequence[int], dtype: Any
    ) -> np.ndarray:
        """See Collectives.broadcast_array: as bytes, whatever the type."""
        if array is None or self.rank:
            array = np.empty(shape, dtype)
        numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if not numbers.size:
            return array
        found = self.horovod.broadcast(tf.constant(numbers), 0, name=f"array.{numbers.size}")
        return array if self.rank == 0 else found.numpy().view(dtype).reshape(shape)

    def broadcast_variables(self, variables: Iterable[Any]) -> None:
        assign_broadcast(self.horovod, variables, 0)

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        return repeated_sums(
            lambda value: self._sum_of_one(value, f"sums.{num_values}"), num_values
        )

    def start_timeline(self, path: str) -> bool:
        if os.environ.get("HOROVOD_TIMELINE") != "DYNAMIC":
            return False
        self.horovod.start_timeline(path)
        return True

    def stop_timeline(self) -> None:
        self.horovod.stop_timeline()


def assign_broadcast(horovod: Any, variables: Iterable[Any], root_rank: int, **among: Any) -> None:
    """Assigns one rank's values to variables, here and for `tfmat.horovod`; one is copied at a time.

    Values travel as bytes, because Horovod has no unsigned types above 16 bits: Keras's random state is one. `among`
    may be a `process_set=`, the ranks that take part.
    """
    for i, variable in enumerate(variables):
        value = tf.convert_to_tensor(variable)
        if value.shape.num_elements() == 0:
            continue
        plain = value.dtype == tf.bool  # already bytes, which TensorFlow does not cast
        sent = value if plain else tf.bitcast(value, tf.uint8)
        found = horovod.broadcast(sent, root_rank, name=f"variable.{i}", **among)
        variable.assign(found if plain else tf.bitcast(found, value.dtype))


def _process_set(horovod: Any, ranks: Sequence[int]) -> Any:
    """Horovod's set of some ranks, which it makes once; every rank calls this at the same time."""
    group = tuple(ranks)
    if group not in _SETS:
        everybody = len(group) == horovod.size()
        _SETS[group] = horovod.global_process_set if everybody else horovod.add_process_set(group)
    return _SETS[group]


def built_libraries() -> list[str]:
    """The libraries of `mpi`, `gloo` and `nccl` that this Horovod sums with; InputError where there is no Horovod."""
    horovod = _load_horovod()
    return [name for name in ("mpi", "gloo", "nccl") if getattr(horovod, f"{name}_built")()]


def _load_horovod() -> Any:
    try:
        import horovod.tensorflow as horovod
    except ImportError as error:
        raise InputError(
            f"--backend=horovod with several processes needs Horovod ({error}); {GET_HOROVOD}"
        ) from error
    return horovod

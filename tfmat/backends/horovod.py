"""Data parallel training with Horovod: the processes that a launcher started sum their gradients.

Horovod is loaded only where there is more than one process: alone, this is the single backend.
"""

import copy
import itertools
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends.base import Collectives
from tfmat.backends.exchange import collect_flat, reduce_flat, repeated_sums, scatter_flat
from tfmat.backends.mpi import MpiMessages, MpiSums, load_mpi4py, world_of
from tfmat.config import Settings
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.processes import GET_HOROVOD, Processes, check_horovod_sees, prepare_horovod
from tfmat.launch.watchdog import start_timer

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

"""Data parallel training with Horovod: the processes that a launcher started sum their gradients.

Horovod is loaded only where there is more than one process: alone, this is the single backend.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends.base import BackendOptions
from tfmat.backends.collectives import Collectives
from tfmat.backends.single import SingleBackend
from tfmat.backends.sums import collect_flat, reduce_flat, repeated_sums
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.settings import GET_HOROVOD, check_horovod_sees, prepare_horovod
from tfmat.ranks.ending import START_TIMEOUT, WORKER_TIMEOUT, seconds_setting, start_timer
from tfmat.ranks.processes import Processes
from tfmat.ranks.rendezvous import ByBroadcast, meet


class HorovodCollectives(Collectives):
    """Collectives by Horovod, over MPI, Gloo or NCCL.

    Args:
      processes: this one among those of the run.
      timeline: whether `start_timeline` will be called.
    """

    # Horovod itself ends with the process, since it cannot be started twice in one: nothing to leave in order.
    alike = (*Collectives.alike, WorkerLostError)

    def __init__(self, processes: Processes, timeline: bool = False):
        self.processes, self._timeline = processes, timeline
        self.started = False
        self._names: Iterator[str] = iter(())

    def start(self) -> None:
        """See Collectives.start."""
        self.started = True
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        if self.size == 1:
            return
        prepare_horovod()
        # The watch tells better, and knows what is no fault: rank 0 may simulate curves while the others wait.
        os.environ.setdefault("HOROVOD_STALL_CHECK_DISABLE", "1")
        if self._timeline:
            os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
        self.horovod = _load_horovod()
        with start_timer(self.rank):
            self.horovod.init()
        check_horovod_sees(processes, self.horovod.rank(), self.horovod.size())
        timeout, seconds = seconds_setting(WORKER_TIMEOUT), seconds_setting(START_TIMEOUT)
        deadline = time.monotonic() + seconds
        with start_timer(self.rank, seconds + 5):  # a broadcast may wait without end, too
            timeout = self.broadcast(timeout)
            if timeout:
                star = meet(processes, ByBroadcast(self.broadcast), deadline, self._on_loss)
                star.watch(timeout, deadline)
                self._star = star

    def check_build(self, jit_compile: bool) -> None:
        """See Collectives.check_build."""
        if not self.started and self.processes.size > 1:
            raise InputError(
                "the Horovod backend is not started, so that each process would train for itself; use it in a with "
                "block: with make_backend('horovod') as backend:"
            )
        if jit_compile and self.size > 1:
            raise InputError(
                "jit_compile is not for several workers: Horovod's XLA operation is not built; leave it out"
            )

    def broadcast(self, value: Any) -> Any:
        """See Collectives.broadcast."""
        return value if self.size == 1 else self.horovod.broadcast_object(value, 0, name="decision")

    def gather(self, value: Any) -> list[Any]:
        """See Collectives.gather."""
        if self.size == 1:
            return [value]
        return list(self.horovod.allgather_object(value, name="values"))

    def maximum(self, number: int) -> int:
        """See Collectives.maximum."""
        return number if self.size == 1 else int(self._largest([number], tf.int32, "maximum")[0])

    def latest(self, times: np.ndarray) -> np.ndarray:
        """See Collectives.latest."""
        if self.size == 1:
            return times
        offset = self.clock.seconds
        return self._largest(times - offset, tf.float64, "latest") + offset

    def _largest(self, numbers: Any, dtype: tf.DType, name: str) -> np.ndarray:
        """Each number's largest among the ranks."""
        values = tf.constant(numbers, dtype)
        found: np.ndarray = self.horovod.allreduce(values, op=self.horovod.Max, name=name).numpy()
        return found

    def begin_graph(self, name: str) -> None:
        """See Collectives.begin_graph: the same names on every rank, whatever else each of them traced before."""
        self._names = (f"{name}.{i}" for i in itertools.count())

    def reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.reduce: one flat buffer, one collective, since the model is small and latency is everything.

        Measured against one collective a variable and Horovod's groups, see docs/horovod.md.
        """
        if self.size == 1:
            return tensors
        return reduce_flat(tensors, lambda flat: self.sum(flat, next(self._names)))

    def collect(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """See Collectives.collect."""
        if self.size == 1:
            return super().collect(tensors)
        return collect_flat(
            tensors, lambda row: self.horovod.allgather(row, name=next(self._names))
        )

    def sum(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """One tensor's sum over the ranks; the same name on every rank."""
        return self.horovod.allreduce(tensor, op=self.horovod.Sum, name=name)

    def broadcast_variables(self, variables: Mapping[str, Any]) -> None:
        """See Collectives.broadcast_variables."""
        for name, variable in variables.items() if self.size > 1 else ():
            variable.assign(self.horovod.broadcast(variable, 0, name=name))

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        """See Collectives.repeated_sums."""
        if self.size == 1:
            return super().repeated_sums(num_values)
        return repeated_sums(lambda value: self.sum(value, f"sums.{num_values}"), num_values)

    def start_timeline(self, path: str) -> bool:
        """See Collectives.start_timeline."""
        if self.size == 1 or os.environ.get("HOROVOD_TIMELINE") != "DYNAMIC":
            return False
        self.horovod.start_timeline(path)
        return True

    def stop_timeline(self) -> None:
        """See Collectives.stop_timeline."""
        self.horovod.stop_timeline()

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(error, tf.errors.OpError) and "Horovod" in str(error)


class HorovodBackend(SingleBackend):
    """The single backend on each of Horovod's processes."""

    name = "horovod"
    transport = HorovodCollectives
    collectives: HorovodCollectives

    def __init__(self, options: BackendOptions | None = None):
        options = options or BackendOptions()
        super().__init__(options, self.transport(options.processes, options.timeline))


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

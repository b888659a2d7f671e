"""Data parallel training with Horovod: each worker computes its part of the global batch, gradients are summed.

A worker is a `SingleBackend` that takes its columns of each global batch and sums over the others where the step says
`reduce`. The loss is divided by the global batch, so unequal parts are right without further ado. Horovod is loaded
only where a launcher started more than one process: alone, this is the single backend.
"""

import hashlib
import itertools
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Arrays, Metric, PerExample
from tfmat.backends.clocks import clock_offsets, hold_meetings
from tfmat.backends.flat_buffer import reduce_flat
from tfmat.backends.repeated_sums import repeated_sums
from tfmat.backends.single import SingleBackend
from tfmat.backends.watched_workers import WatchedWorkers
from tfmat.errors import InputError, WorkerLostError
from tfmat.launch.horovod_settings import GET_HOROVOD, prepare_horovod
from tfmat.models.normalization import is_synchronized
from tfmat.ranks.ending import START_TIMEOUT, WORKER_TIMEOUT, seconds_setting, start_timer
from tfmat.ranks.rendezvous import ByBroadcast, meet


class HorovodBackend(WatchedWorkers, SingleBackend):
    """See the module."""

    name = "horovod"
    # Horovod itself ends with the process, since it cannot be started twice in one: nothing to leave in order.
    alike = (*WatchedWorkers.alike, WorkerLostError)
    _started = False

    def start(self) -> None:
        """See Backend.start."""
        self._started = True
        processes = self.options.processes
        self.rank, self.world_size = processes.rank, processes.size
        if self.world_size == 1:
            return
        prepare_horovod()
        # The watchdog tells better, and knows what is no fault: rank 0 may simulate curves while the others wait.
        os.environ.setdefault("HOROVOD_STALL_CHECK_DISABLE", "1")
        if self.options.timeline:
            os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")
        self._horovod = _load_horovod()
        with start_timer(self.rank):
            self._horovod.init()
        if (self._horovod.rank(), self._horovod.size()) != (self.rank, self.world_size):
            raise InputError(
                f"{processes.launcher} started {self.world_size} processes, but Horovod sees "
                f"{self._horovod.size()}: it was built for another MPI; {GET_HOROVOD}"
            )
        timeout = self.broadcast(seconds_setting(WORKER_TIMEOUT))  # rank 0's
        if timeout:
            seconds = seconds_setting(START_TIMEOUT)
            deadline = time.monotonic() + seconds
            with start_timer(self.rank, seconds + 5):  # a broadcast may wait without end, too
                rendezvous = ByBroadcast(self.broadcast)
                self._star = meet(processes, rendezvous, deadline, self._on_loss)
                self._star.watch(timeout, deadline)

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
    ) -> None:
        """See Backend.build."""
        if not self._started and self.options.processes.size > 1:
            raise InputError(
                "the Horovod backend is not started, so that each process would train for itself; use it in a with "
                "block: with make_backend('horovod') as backend:"
            )
        if jit_compile and self.world_size > 1:
            raise InputError(
                "jit_compile is not for several workers: Horovod's XLA operation is not built; leave it out"
            )
        super().build(
            model, optimizer, loss, metrics, auxiliary_loss=auxiliary_loss, jit_compile=jit_compile
        )
        self._local_statistics = _local_statistics(model)

    def columns(self, global_batch_size: int) -> slice:
        """See Backend.columns."""
        if global_batch_size < self.world_size:
            raise InputError(
                f"global_batch_size is {global_batch_size}, fewer than the {self.world_size} workers; "
                "use a larger batch or fewer workers"
            )
        start, stop = (
            global_batch_size * rank // self.world_size for rank in (self.rank, self.rank + 1)
        )
        return slice(start, stop)

    def broadcast(self, decision: Any) -> Any:
        """See Backend.broadcast."""
        if self.world_size == 1:
            return decision
        return self._horovod.broadcast_object(decision, 0, name="decision")

    def gather(self, value: Any) -> list[Any]:
        """See Backend.gather."""
        if self.world_size == 1:
            return [value]
        return list(self._horovod.allgather_object(value, name="values"))

    def maximum(self, number: int) -> int:
        """See Backend.maximum."""
        if self.world_size == 1:
            return number
        numbers = tf.constant([number], tf.int32)
        return int(self._horovod.allreduce(numbers, op=self._horovod.Max, name="maximum")[0])

    def synchronize(self) -> None:
        """See Backend.synchronize."""
        if self.world_size == 1:
            return
        for part, variables in self._variables._asdict().items():
            for i, variable in enumerate(variables):
                value = self._horovod.broadcast(variable, 0, name=f"{part}.{i}")
                variable.assign(value)

    def read(self) -> Arrays:
        """See Backend.read; statistics that each worker keeps for itself are averaged first."""
        self._average_local_statistics()
        return super().read()

    def time_steps(self, one_call_in: int = 1) -> None:
        """See Backend.time_steps."""
        super().time_steps(one_call_in)
        if self.world_size > 1:
            meetings = hold_meetings(lambda: self.maximum(0), platform.node())
            self.clock = clock_offsets(self.gather(meetings))[self.rank]

    def latest(self, times: np.ndarray) -> np.ndarray:
        """See Backend.latest."""
        if self.world_size == 1:
            return times
        offset = self.clock.seconds
        common = tf.constant(times - offset, tf.float64)
        return self._horovod.allreduce(common, op=self._horovod.Max, name="latest").numpy() + offset

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        """See Backend.repeated_sums."""
        if self.world_size == 1:
            return super().repeated_sums(num_values)
        name, horovod = f"sums.{num_values}", self._horovod
        return repeated_sums(
            lambda value: horovod.allreduce(value, op=horovod.Sum, name=name), num_values
        )

    def start_timeline(self, path: str) -> bool:
        """See Backend.start_timeline."""
        if self.world_size == 1 or os.environ.get("HOROVOD_TIMELINE") != "DYNAMIC":
            return False
        self._horovod.start_timeline(path)
        return True

    def stop_timeline(self) -> None:
        """See Backend.stop_timeline."""
        self._horovod.stop_timeline()

    def check_agreement(self, step: int) -> None:
        """See Backend.check_agreement."""
        if self.world_size == 1:
            return
        self.announce("comparing weights", step)
        digest = hashlib.blake2b(digest_size=16)
        for array in self.read().values():
            digest.update(np.ascontiguousarray(array).data)
        digests = self.gather(digest.hexdigest())
        self._compare(
            "rank", [rank for rank, other in enumerate(digests) if other != digests[0]], step
        )

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """See Backend.write."""
        super().write(arrays)
        self._agreed_when_saved(arrays)

    def _run(self, steps: Any, *arguments: Any) -> Any:
        try:
            return super()._run(steps, *arguments)
        except tf.errors.OpError as error:
            if self.world_size == 1 or "Horovod" not in str(error):
                raise
            self._ended_by_the_watchdog(error)

    def _train_steps(self, *arguments: Any) -> Any:
        self._name_collectives("train")
        return super()._train_steps(*arguments)

    def _train_timed_steps(self, *arguments: Any) -> Any:
        self._name_collectives("train")
        return super()._train_timed_steps(*arguments)

    def _evaluate_steps(self, *arguments: Any) -> tf.Tensor:
        self._name_collectives("evaluate")
        return super()._evaluate_steps(*arguments)

    def _name_collectives(self, function: str) -> None:
        # While a graph is traced: the same names on every worker, whatever else each of them traced before.
        self._names = (f"{function}.{i}" for i in itertools.count())

    def _reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sums over the workers: one flat buffer, one collective, since the model is small and latency is everything.

        Measured against one collective a variable and Horovod's groups, see docs/horovod.md.
        """
        if self.world_size == 1:
            return tensors
        return reduce_flat(
            tensors,
            lambda flat: self._horovod.allreduce(
                flat, op=self._horovod.Sum, name=next(self._names)
            ),
        )

    def _average_local_statistics(self) -> None:
        if self.world_size == 1:
            return
        for i, variable in enumerate(self._local_statistics):
            name = f"statistics.{i}"
            total = self._horovod.allreduce(variable, op=self._horovod.Sum, name=name)
            variable.assign(total / self.world_size)


def built_libraries() -> list[str]:
    """Of `mpi`, `gloo` and `nccl` those that this Horovod can sum with; InputError where there is no Horovod."""
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


def _local_statistics(model: keras.Model) -> list[Any]:
    """State that each worker changes by what it alone sees: moving statistics, where not synchronised."""
    synchronized = {
        id(variable)
        for layer in model._flatten_layers()
        if is_synchronized(layer)
        for variable in layer.non_trainable_variables
    }
    return [
        variable.value
        for variable in model.non_trainable_variables
        if id(variable) not in synchronized and variable.value.dtype.is_floating
    ]

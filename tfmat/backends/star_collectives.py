"""Collectives by the house's own link to rank 0, without MPI or Horovod: for what is small, or seldom."""

import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends.collectives import Collectives
from tfmat.backends.sums import reduce_flat
from tfmat.errors import InputError, WorkerLostError
from tfmat.ranks.ending import START_TIMEOUT, WORKER_TIMEOUT, seconds_setting, start_timer
from tfmat.ranks.processes import Processes
from tfmat.ranks.rendezvous import ByNote, meet
from tfmat.ranks.star import Star


class StarCollectives(Collectives):
    """Collectives of the processes that any launcher started; every value goes through rank 0.

    Args:
      processes: this one among the others.
      folder: that all can see, where they are on several nodes.
    """

    def __init__(self, processes: Processes, folder: str):
        self.processes, self._folder = processes, folder

    def start(self) -> None:
        """See Collectives.start."""
        processes = self.processes
        self.rank, self.size = processes.rank, processes.size
        if self.size == 1 or self._star:
            return
        timeout, seconds = seconds_setting(WORKER_TIMEOUT), seconds_setting(START_TIMEOUT)
        deadline = time.monotonic() + seconds
        with start_timer(self.rank, seconds + 5):
            star = meet(processes, ByNote(processes, self._folder), deadline, self._on_loss)
            star.watch(timeout, deadline)
        self._star = star

    @property
    def star(self) -> Star:
        """The link; WorkerLostError where the processes are not joined, or have parted."""
        if self._star is None:
            raise WorkerLostError("the processes of this run are not joined, or have parted")
        return self._star

    def check_build(self, jit_compile: bool) -> None:
        """See Collectives.check_build."""
        if self.processes.size > 1 and self._star is None:
            raise InputError(
                "the backend is not started, so that each process would train for itself; use it in a with block: "
                "with make_backend('asynchronous') as backend:"
            )

    def broadcast(self, value: Any) -> Any:
        """See Collectives.broadcast."""
        if self.size == 1:
            return value
        with self.losses_told():
            return self.star.broadcast(value)

    def gather(self, value: Any) -> list[Any]:
        """See Collectives.gather."""
        if self.size == 1:
            return [value]
        with self.losses_told():
            return self.star.gather(value)

    def reduce(self, tensors: list[Any]) -> list[Any]:
        """See Collectives.reduce: summed in the order of the ranks."""
        if self.size == 1:
            return tensors

        def total(flat: tf.Tensor) -> tf.Tensor:
            summed = tf.numpy_function(lambda mine: self._sum(mine), [flat], flat.dtype)
            return tf.ensure_shape(summed, flat.shape)

        return reduce_flat(tensors, total)

    def _sum(self, mine: np.ndarray) -> np.ndarray:
        with self.losses_told():
            total: np.ndarray = self.star.gather(
                mine, lambda ranks: np.sum(ranks, axis=0, dtype=mine.dtype)
            )
            return total

    def _is_loss(self, error: Exception) -> bool:
        return isinstance(error, WorkerLostError | OSError | EOFError)

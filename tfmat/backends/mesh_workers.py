"""The processes that share a mesh as workers of a run: how they tell each other what rank 0 decides."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfmat.backends.base import BackendOptions
from tfmat.backends.clients import join
from tfmat.backends.watched_workers import WatchedWorkers
from tfmat.errors import WorkerLostError


class MeshWorkers(WatchedWorkers):
    """The part of a backend that is about the other processes; alone there is nothing to do.

    Attributes:
      mesh_shape: the axes, over all processes.
    """

    def __init__(self, options: BackendOptions | None = None):
        super().__init__(options)
        self.mesh_shape = self.options.mesh

    def start(self) -> None:
        """See Backend.start. InputError where the mesh cannot be shared out, or is larger than the devices."""
        if self._star:
            return
        processes = self.options.processes
        self.rank, self.world_size = processes.rank, processes.size
        if processes.size == 1:
            return
        self._star = join(processes, self.mesh_shape, self.options.folder, self._on_loss)

    def broadcast(self, decision: Any) -> Any:
        """See Backend.broadcast."""
        if self._star is None:
            return decision
        with self._losses_told():
            return self._star.broadcast(decision)

    def gather(self, value: Any) -> list[Any]:
        """See Backend.gather."""
        if self._star is None:
            return [value]
        with self._losses_told():
            return self._star.gather(value)

    def maximum(self, number: int) -> int:
        """See Backend.maximum."""
        return max(self.gather(number))

    @contextlib.contextmanager
    def _losses_told(self) -> Iterator[None]:
        """What fails because another process has gone: the watchdog says which, and ends this one."""
        try:
            yield
        except (WorkerLostError, tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if self.world_size == 1:
                raise
            self._ended_by_the_watchdog(error)

    def _leave_together(self) -> None:
        """A process that ended now would take away what another one still receives from it."""
        if self._star:
            with contextlib.suppress(WorkerLostError):
                self._star.gather(None)

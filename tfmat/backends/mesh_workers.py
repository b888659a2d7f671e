"""The processes that share a mesh as workers of a run: who decides, who has gone."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfmat.backends.base import Backend, BackendOptions
from tfmat.backends.clients import join
from tfmat.backends.exchange import Exchange
from tfmat.backends.mesh import MeshShape
from tfmat.errors import DivergedError, Interrupted, TfmatError, WorkerLostError
from tfmat.launch.processes import find_processes
from tfmat.launch.watchdog import Watchdog

# What all processes raise at the same step: each ends by itself, and rank 0 says why.
_ALIKE = (Interrupted, DivergedError)
# In these a process is by itself, and may take its time.
_ALONE = frozenset({"simulating curves", "checkpoint"})
# For the watchdog to end this process, when an error says that another one has gone.
_SECONDS_FOR_THE_WATCHDOG = 10.0


class MeshWorkers(Backend):
    """The part of a backend that is about the other processes; alone there is nothing to do.

    Attributes:
      mesh_shape: the axes, over all processes.
    """

    def __init__(self, options: BackendOptions):
        super().__init__(options)
        self.mesh_shape = MeshShape.parse(options.mesh)
        self._exchange: Exchange | None = None
        self._watchdog: Watchdog | None = None
        self._record: Callable[[str], None] | None = None

    def start(self) -> None:
        """See Backend.start. InputError where the mesh cannot be shared out, or is larger than the devices."""
        if self._exchange:
            return
        processes = find_processes()
        self.rank, self.world_size = processes.rank, processes.size
        if processes.size == 1:
            return
        self._exchange = join(processes, self.mesh_shape, self.options.folder)
        self._watchdog = Watchdog.start(
            processes.rank,
            processes.size,
            self._exchange.broadcast,
            on_loss=self._on_loss,
            one_node=processes.local_size == processes.size,
        )

    def close(self, error: BaseException | None = None) -> None:
        """See Backend.close."""
        if self._watchdog is None or self._exchange is None:
            return
        if error is None or isinstance(error, _ALIKE):
            # A process that ended now would take away what another one still receives from it.
            with contextlib.suppress(WorkerLostError):
                self._exchange.gather(None)
            if isinstance(error, TfmatError):
                error.said_elsewhere = self.rank > 0
            self._watchdog.close()
        else:
            self._watchdog.fail(error)
        self._watchdog = None

    def when_lost(self, record: Callable[[str], None]) -> None:
        """See Backend.when_lost."""
        self._record = record

    def announce(self, phase: str, step: int) -> None:
        """See Backend.announce."""
        if self._watchdog:
            self._watchdog.announce(phase, step, collective=phase not in _ALONE)

    def broadcast(self, decision: Any) -> Any:
        """See Backend.broadcast."""
        if self._exchange is None:
            return decision
        with self._losses_told():
            return self._exchange.broadcast(decision)

    def gather(self, value: Any) -> list[Any]:
        """See Backend.gather."""
        if self._exchange is None:
            return [value]
        with self._losses_told():
            return self._exchange.gather(value)

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
            time.sleep(_SECONDS_FOR_THE_WATCHDOG)
            raise WorkerLostError(
                "a worker has left; start the same command again to go on from the last checkpoint"
            ) from error

    def _on_loss(self, message: str) -> None:
        if self._record:
            self._record(message)

"""The processes of a run under the watchdog: how they leave, what is said of a loss, whether they still agree."""

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn

import numpy as np

from tfmat.backends.base import Backend
from tfmat.errors import DivergedError, Interrupted, TfmatError, WorkerLostError
from tfmat.ranks.star import Star

# In these a process is by itself, and may take its time.
_ALONE = frozenset({"simulating curves", "checkpoint"})
# For the watchdog to end this process, when an error says that another one has gone.
_SECONDS_FOR_THE_WATCHDOG = 10.0


class WatchedWorkers(Backend):
    """The part of a backend that is about other processes' fate; alone there is nothing to do."""

    # What all processes raise at the same step: each ends by itself, and rank 0 says why.
    alike: ClassVar[tuple[type[BaseException], ...]] = (Interrupted, DivergedError)

    _star: Star | None = None
    _record: Callable[[str], None] | None = None
    _last_agreement = 0

    def close(self, error: BaseException | None = None) -> None:
        """See Backend.close."""
        if self._star is None:
            return
        if error is None or isinstance(error, self.alike):
            self._leave_together()
            if isinstance(error, TfmatError):
                error.said_elsewhere = self.rank > 0
            self._star.close()
        else:
            self._star.fail(error)
        self._star = None

    def when_lost(self, record: Callable[[str], None]) -> None:
        """See Backend.when_lost."""
        self._record = record

    def announce(self, phase: str, step: int) -> None:
        """See Backend.announce."""
        if self._star:
            self._star.announce(phase, step, collective=phase not in _ALONE)

    def _leave_together(self) -> None:
        """Waits for the others, where ending now would take something from them."""

    def _ended_by_the_watchdog(self, error: BaseException) -> NoReturn:
        """After an error that came because another process has gone: the watchdog knows which, and ends this one."""
        time.sleep(_SECONDS_FOR_THE_WATCHDOG)
        raise WorkerLostError(
            "a worker has left; start the same command again to go on from the last checkpoint"
        ) from error

    def _compare(self, what: str, differing: list[int], step: int) -> None:
        """WorkerLostError where some (`what`: `rank`, `device`) hold other numbers than the first."""
        if differing:
            names = ", ".join(map(str, differing[:8])) + (" ..." if len(differing) > 8 else "")
            raise WorkerLostError(
                f"the weights of {what} {names} differ from those of {what} 0; they began to between step "
                f"{self._last_agreement} and step {step}. Start the same command again to go on from the last "
                "checkpoint; where it happens again, a worker computes or communicates wrongly"
            )
        self._last_agreement = step

    def _agreed_when_saved(self, arrays: Mapping[str, np.ndarray]) -> None:
        """All processes were given this state."""
        if "slots/0" in arrays:  # Keras's `iterations`
            self._last_agreement = int(arrays["slots/0"])

    def _on_loss(self, message: str) -> None:
        if self._record:
            self._record(message)

"""What the watchdog's threads on rank 0 and on the others share: the loop, and the end of the process."""

import contextlib
import dataclasses
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from tfmat.errors import WorkerLostError
from tfmat.launch.watchdog_verdict import Evidence, Member, describe

_SHORTEST_BEAT = 0.05  # seconds between two messages, however often the phase changes
_LAST_WORDS = 5.0  # seconds for the line and the callback
QUIET = (
    8.0  # seconds in which rank 0 ends after its verdict: last words, and a second for the others
)
# mpirun kills all ranks about two seconds after the first one ended, and ranks notice a loss up to one beat apart.
SECOND_SPEAKER = 4.0
SILENT = 5.0


def end_process(
    message: str | None,
    on_loss: Callable[[str], None] | None = None,
    status: int = WorkerLostError.exit_status,
) -> NoReturn:
    """Writes the line, calls `on_loss` with it, and ends the process, whatever its main thread does."""
    last_words(message, on_loss)
    os._exit(status)


def last_words(message: str | None, on_loss: Callable[[str], None] | None) -> None:
    """In a thread, because a full pipe, a lock of the main thread or a dead disk may hold each of these for ever."""

    def speak() -> None:
        if message:
            # Not through sys.stderr, whose lock the main thread may hold; one write, so that lines do not mix.
            _write(f"tfmat: {message}\n")
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if message and on_loss:
            with contextlib.suppress(Exception):
                on_loss(message)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    speaker.join(_LAST_WORDS)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))


@dataclasses.dataclass
class Settings:
    """What both kinds of thread need to know."""

    rank: int
    size: int
    timeout_seconds: float
    on_loss: Callable[[str], None] | None


class Watch(threading.Thread):
    """The loop that both kinds share. `position` (phase, step, collective, since) is set by the main thread."""

    def __init__(self, settings: Settings):
        super().__init__(name="tfmat-watchdog", daemon=True)
        self.settings = settings
        self.position: tuple[str, int | None, bool, float] = (
            "starting",
            None,
            False,
            time.monotonic(),
        )
        # Rank 0 reads a thousand messages a second at most.
        self._interval = min(max(1.0, settings.size / 1000), settings.timeout_seconds / 4)
        self._selector = selectors.DefaultSelector()
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._leaving = False
        self._failure: tuple[str, str, int] | None = None
        # Set when the end of this process is near, and who speaks is known.
        self._decided = threading.Event()

    def wake(self) -> None:
        """Sends the position now, not at the next beat."""
        os.eventfd_write(self._alarm, 1)

    def leave(self) -> None:
        """Says goodbye and ends the thread."""
        self._leaving = True
        self.wake()
        # A moment; or the rest of this process's life, where its end was decided before.
        self.join(2 * QUIET)
        if not self.is_alive():
            self._selector.close()
            os.close(self._alarm)

    def fail(self, text: str, trace: str, status: int) -> None:
        """Has everything ended because of an exception here; returns only where the watch is over."""
        if not self.is_alive():
            return
        self._failure = (text, trace, status)
        self.wake()
        if not self._decided.wait(2.0) and self.is_alive():  # rank 0 does not answer
            member = Member(self.settings.rank, socket.gethostname(), 0.0, *self.position)
            evidence = Evidence("failed", (member.rank,), text, status)
            verdict = describe([evidence], {member.rank: member}, self.settings.size)
            end_process(verdict.line, self.settings.on_loss, status)
        self.join(2 * QUIET)
        if self._decided.is_set():
            end_process(None, status=status)

    def run(self) -> None:
        awake = beat = next_beat = time.monotonic()
        while not self._over():
            ready = self._selector.select(max(0.0, min(next_beat, self._due()) - time.monotonic()))
            now = time.monotonic()
            if now - awake > 2 * self._interval:
                # This process stood still (stopped, or its lock was held), so it cannot say that others were silent.
                self._forgive(now - awake)
            awake = now
            for key, _ in ready:
                if key.fd == self._alarm:
                    os.eventfd_read(self._alarm)
                    next_beat = min(next_beat, beat + _SHORTEST_BEAT)
                else:
                    self._read(key.data, now)
            if now >= next_beat or self._failure:
                self._beat(now)
                beat, next_beat = now, now + self._interval
            self._judge(now)

    def _state(self, now: float) -> list[Any]:
        phase, step, collective, since = self.position
        number = None if step is None else int(step)  # NumPy's integers are no JSON
        return ["state", phase, number, bool(collective), round(now - since, 3)]

    def _write_own_trace(self, blamed: tuple[int, ...]) -> None:
        if self._failure and self.settings.rank in blamed:
            _write(self._failure[1])

    def _over(self) -> bool:
        """Whether the thread can end; says goodbye where it was asked to leave."""
        raise NotImplementedError

    def _due(self) -> float:
        """When `_judge` wants to be called at the latest."""
        return float("inf")

    def _forgive(self, seconds: float) -> None:
        raise NotImplementedError

    def _read(self, rank: int, now: float) -> None:
        raise NotImplementedError

    def _beat(self, now: float) -> None:
        raise NotImplementedError

    def _judge(self, now: float) -> None:
        raise NotImplementedError

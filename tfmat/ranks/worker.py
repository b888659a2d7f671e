"""The other ranks' end of the star: it hears rank 0, and ends the process when rank 0 says so or is lost."""

import threading
import time
from typing import Any, NoReturn

from tfmat.ranks.ending import OnLoss, end_process
from tfmat.ranks.link import Link, wait_for
from tfmat.ranks.star import QUIET, Star
from tfmat.ranks.verdict import Evidence, Member, describe

# mpirun kills all ranks about two seconds after the first one ended, and ranks notice a loss up to one beat apart.
SECOND_SPEAKER = 4.0
_SILENT = 5.0


class Worker(Star):
    """Hears rank 0, and ends the process when rank 0 says so or is lost.

    Args:
      rank, size: this process among all.
      host: rank 0's.
      link: to it.
    """

    def __init__(self, rank: int, size: int, host: str, link: Link, on_loss: OnLoss | None):
        super().__init__(rank, size, {0: Member(0, host, time.monotonic())}, {0: link}, on_loss)
        self._speaks_after: float | None = SECOND_SPEAKER if rank == 1 else None
        self._answered, self._goes = threading.Event(), False

    def watch(self, timeout_seconds: float, deadline: float) -> None:
        """See Star.watch."""
        # Rank 0 says which ranks are missing; it has some seconds for that before this one ends.
        self._answered.wait(max(0.0, deadline + 3 - time.monotonic()))
        if not self._goes:
            self._give_up("it ended or does not answer")

    def _give_up(self, reason: str) -> NoReturn:
        """Rank 0 is lost: one of the others speaks, and the rest gives it time for that."""
        self._decided.set()
        link = self._links.get(0)
        if link:
            link.send("gave up")
        give_up(self.size, self._members[0], reason, self._speaks_after, self._on_loss)

    def _end_quietly(self, blamed: tuple[int, ...], status: int) -> NoReturn:
        """Rank 0 has decided and speaks; this process ends when rank 0 closes its connection."""
        self._decided.set()
        self._write_own_trace(blamed)
        wait_for(self._links[0], lambda message: False, time.monotonic() + QUIET)
        end_process(None, status=status)

    def _over(self) -> bool:
        if self._links and self._leaving:
            self._beat(time.monotonic())
            self._links[0].send("goodbye")
            self._drop(0)
        return not self._links

    def _hear(self, other: int, message: list[Any], now: float) -> None:
        match message:
            case ["go", int() | float() as timeout_seconds, speaks_after]:
                self._speaks_after = speaks_after
                if timeout_seconds:
                    self._start_watch(timeout_seconds)
                self._goes = True
                self._answered.set()
            case ["verdict", int(status), *blamed]:
                self._end_quietly(tuple(blamed), status)
            case ["goodbye"]:
                self._drop(0)

    def _lost(self, other: int) -> None:
        self._answered.set()
        if self._watches:
            self._give_up("its process ended")

    def _beat(self, now: float) -> None:
        for link in self._links.values():
            link.send(*self._state(now))
            if self._failure:
                link.send("failed", self._failure.text, self._failure.status)

    def _judge(self, now: float) -> None:
        if self._links and now - self._members[0].heard > self._timeout:
            self._give_up(f"no answer for {self._timeout:g} s")


def give_up(
    size: int, rank_0: Member, reason: str, speaks_after: float | None, on_loss: OnLoss | None
) -> NoReturn:
    """Ends this process because rank 0 is lost; writes the line after so many seconds, or leaves it to another rank."""
    message = describe([Evidence("dead", (0,), reason)], {0: rank_0}, size).line
    time.sleep(_SILENT if speaks_after is None else speaks_after)
    end_process(None if speaks_after is None else message, on_loss)

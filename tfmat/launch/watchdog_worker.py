"""The watchdog's thread on the other ranks: it hears rank 0, and ends the process when rank 0 says so or is lost."""

import selectors
import time
from typing import NoReturn

from tfmat.launch.watchdog_links import Link, wait_for
from tfmat.launch.watchdog_threads import (
    QUIET,
    SECOND_SPEAKER,
    SILENT,
    Settings,
    Watch,
    end_process,
)
from tfmat.launch.watchdog_verdict import Evidence, Member, describe


class WorkerWatch(Watch):
    """Hears rank 0, and ends the process when rank 0 says so or is lost.

    Args:
      host: rank 0's.
      link: None where rank 0 could not be reached.
    """

    def __init__(self, settings: Settings, host: str, link: Link | None):
        super().__init__(settings)
        self._rank_0 = Member(0, host, time.monotonic())
        self._link = link
        self._speaks_after: float | None = SECOND_SPEAKER if settings.rank == 1 else None

    def go(self, deadline: float) -> None:
        """Waits until rank 0 has heard of all ranks, then watches; ends the process where that does not come."""
        if self._link is None:
            self._give_up("it cannot be reached: are its ports open to other nodes?")
        answer = wait_for(self._link, lambda message: message[0] in ("go", "verdict"), deadline)
        match answer:
            case ["go", speaks_after]:
                self._speaks_after = speaks_after
            case ["verdict", int(status), *_]:
                self._end_quietly((), status)
            case _:
                self._give_up("it ended or does not answer")
        self._selector.register(self._link, selectors.EVENT_READ, 0)
        self._rank_0.heard = time.monotonic()
        self._read(
            0, self._rank_0.heard
        )  # what came together with the answer: no event will tell of it
        self.start()

    def _give_up(self, reason: str) -> NoReturn:
        """Rank 0 is lost: one of the others speaks, and the rest gives it time for that."""
        self._decided.set()
        if self._link is not None:
            self._link.send("gave up")
        evidence = Evidence("dead", (0,), reason)
        message = describe([evidence], {0: self._rank_0}, self.settings.size).line
        if self._speaks_after is None:
            time.sleep(SILENT)
            end_process(None)
        time.sleep(self._speaks_after)
        end_process(message, self.settings.on_loss)

    def _end_quietly(self, blamed: tuple[int, ...], status: int) -> NoReturn:
        """Rank 0 has decided and speaks; this process ends when rank 0 closes its connection."""
        self._decided.set()
        self._write_own_trace(blamed)
        if self._link is not None:
            wait_for(self._link, lambda message: False, time.monotonic() + QUIET)
        end_process(None, status=status)

    def _over(self) -> bool:
        if self._link is not None and self._leaving:
            self._beat(time.monotonic())
            self._link.send("goodbye")
            self._close()
        return self._link is None

    def _close(self) -> None:
        if self._link is not None:
            self._selector.unregister(self._link)
            self._link.close()
            self._link = None

    def _forgive(self, seconds: float) -> None:
        self._rank_0.heard += seconds

    def _read(self, rank: int, now: float) -> None:
        if self._link is None:
            return
        for message in self._link.receive():
            self._rank_0.update(message, now)
            match message:
                case ["verdict", int(status), *blamed]:
                    self._end_quietly(tuple(blamed), status)
                case ["goodbye"]:
                    self._close()
                    return
        if self._link.closed:
            self._give_up("its process ended")

    def _beat(self, now: float) -> None:
        if self._link is None:
            return
        self._link.send(*self._state(now))
        if self._failure:
            text, _, status = self._failure
            self._link.send("failed", text, status)

    def _judge(self, now: float) -> None:
        seconds = self.settings.timeout_seconds
        if self._link is not None and now - self._rank_0.heard > seconds:
            self._give_up(f"no answer for {seconds:g} s")

"""The two ends of the star: rank 0 hears all other ranks, and decides; the others end when it says so or is lost."""

import os
import socket
import threading
import time
from typing import Any, NoReturn

from tfmat.ranks.ending import OnLoss, end_process, last_words
from tfmat.ranks.link import Link, wait_for
from tfmat.ranks.star import QUIET, Star
from tfmat.ranks.verdict import Evidence, Member, Verdict, deadlock, describe

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


_GRACE = 0.3  # seconds from the first evidence to the verdict; mpirun sends SIGTERM a second after a death


class Rank0(Star):
    """Hears all other ranks, and decides.

    Args:
      size: of the run.
      found: rank -> its connection and host name; ranks that did not come are missing.
    """

    def __init__(self, size: int, found: dict[int, tuple[Link, str]], on_loss: OnLoss | None):
        now = time.monotonic()
        members = {0: Member(0, socket.gethostname(), now, since=now)}
        for rank, (_, host) in sorted(found.items()):
            members[rank] = Member(rank, host, now, since=now)
        super().__init__(0, size, members, {rank: found[rank][0] for rank in found}, on_loss)
        self._evidence: list[Evidence] = []
        self._suspects: set[int] = set()
        self._verdict_time = float("inf")

    def watch(self, timeout_seconds: float, deadline: float) -> None:
        """See Star.watch. Tells each of the others after how many seconds it speaks where rank 0 is lost, if at all."""
        here = self._members[0].host
        speakers = {1: 0.0}
        if self._members[1].host == here:
            elsewhere = (m.rank for m in self._members.values() if m.host != here)
            speakers |= dict.fromkeys(list(elsewhere)[:1], SECOND_SPEAKER)
        for rank, link in list(self._links.items()):
            link.send("go", timeout_seconds, speakers.get(rank))
        if timeout_seconds:
            self._start_watch(timeout_seconds)

    def end(self, verdict: Verdict) -> NoReturn:
        """Tells all to be quiet, speaks, and ends all."""
        self._decided.set()
        self._tell_all("verdict", verdict.status, *verdict.blamed)
        self._write_own_trace(verdict.blamed)
        last_words(verdict.line, self._on_loss)
        self._finish()
        os._exit(verdict.status)

    def _tell_all(self, *message: Any) -> None:
        for link in self._links.values():
            link.send(*message)

    def _finish(self) -> None:
        """Reads until the others have closed: unread data would reset the connection, and lose what was sent."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and not all(
            link.flush() for link in self._links.values()
        ):
            time.sleep(0.01)
        for link in self._links.values():
            link.finish()
        while self._links and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.fd == self._alarm:
                    os.eventfd_read(self._alarm)
                    continue
                self._links[key.data].receive()
                if self._links[key.data].closed:
                    self._drop(key.data)
        for rank in list(self._links):
            self._drop(rank)

    def _over(self) -> bool:
        if self._leaving:
            self._tell_all("goodbye")
            self._finish()
        return self._leaving

    def _due(self) -> float:
        return self._verdict_time

    def _hear(self, other: int, message: list[Any], now: float) -> None:
        match message:
            case ["failed", str(text), int(status)]:
                self._suspect(Evidence("failed", (other,), text, status), now)
            case ["goodbye"]:
                self._members[other].left = True
            case ["gave up"]:
                # This process was stopped for long; the others have spoken, and end.
                self._decided.set()
                end_process(None)

    def _suspect(self, evidence: Evidence, now: float) -> None:
        """Notes the first evidence against each rank."""
        if self._suspects.isdisjoint(evidence.ranks):
            self._suspects.update(evidence.ranks)
            self._evidence.append(evidence)
            self._verdict_time = min(self._verdict_time, now + _GRACE)

    def _beat(self, now: float) -> None:
        self._tell_all(*self._state(now))
        if self._failure:
            self._suspect(Evidence("failed", (0,), self._failure.text, self._failure.status), now)

    def _judge(self, now: float) -> None:
        self._members[0].update(self._state(now), now)
        for rank, member in self._members.items():
            if member.left:
                continue
            if self._watches and rank and rank not in self._links:
                self._suspect(Evidence("dead", (rank,), "its process ended"), now)
            if now - member.heard > self._timeout:
                text = f"no heartbeat for {self._timeout:g} s"
                self._suspect(Evidence("silent", (rank,), text), now)
        # Who was silent lately may be anywhere by now.
        known = all(m.left or now - m.heard < 3 * self._interval for m in self._members.values())
        if known and not self._evidence:
            found = deadlock(self._members.values(), now, self._timeout)
            if found:
                self._suspect(found, now)
        if now >= self._verdict_time:
            self.end(describe(self._evidence, self._members, self.size))

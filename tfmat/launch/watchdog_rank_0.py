"""The watchdog's thread on rank 0: it hears all other ranks, and decides."""

import os
import selectors
import socket
import time
from typing import Any, NoReturn

from tfmat.launch.watchdog_links import Link
from tfmat.launch.watchdog_threads import SECOND_SPEAKER, Settings, Watch, end_process, last_words
from tfmat.launch.watchdog_verdict import Evidence, Member, Verdict, deadlock, describe

_GRACE = 0.3  # seconds from the first evidence to the verdict; mpirun sends SIGTERM a second after a death


class Rank0Watch(Watch):
    """Hears all other ranks, and decides.

    Args:
      members: rank -> its connection and host name; ranks that did not come are missing.
    """

    def __init__(self, settings: Settings, members: dict[int, tuple[Link, str]]):
        super().__init__(settings)
        now = time.monotonic()
        self._links = {rank: link for rank, (link, _) in members.items()}
        self._members = {0: Member(0, socket.gethostname(), now)}
        for rank, (link, host) in sorted(members.items()):
            self._members[rank] = Member(rank, host, now, since=now)
            self._selector.register(link, selectors.EVENT_READ, rank)
        self._evidence: list[Evidence] = []
        self._suspects: set[int] = set()
        self._verdict_time = float("inf")

    def go(self) -> None:
        """Lets the other ranks start, tells each after how many seconds it speaks where rank 0 is lost, if at all."""
        here = self._members[0].host
        speakers = {1: 0.0}
        if self._members[1].host == here:
            elsewhere = (m.rank for m in self._members.values() if m.host != here)
            speakers |= dict.fromkeys(list(elsewhere)[:1], SECOND_SPEAKER)
        for rank, link in self._links.items():
            link.send("go", speakers.get(rank))
        self.start()

    def end(self, verdict: Verdict) -> NoReturn:
        """Tells all to be quiet, speaks, and ends all."""
        self._decided.set()
        self._broadcast("verdict", verdict.status, *verdict.blamed)
        self._write_own_trace(verdict.blamed)
        last_words(verdict.line, self.settings.on_loss)
        self._finish()
        os._exit(verdict.status)

    def _broadcast(self, *message: Any) -> None:
        for link in self._links.values():
            link.send(*message)

    def _finish(self) -> None:
        """Reads until the others have closed: unread data would reset the connection, and lose what was sent."""
        deadline = time.monotonic() + 1.0
        for link in self._links.values():
            link.finish()
        while self._links and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.fd == self._alarm:
                    os.eventfd_read(self._alarm)
                    continue
                self._links[key.data].receive()
                self._drop_if_closed(key.data)
        for link in self._links.values():
            link.close()

    def _drop_if_closed(self, rank: int) -> bool:
        link = self._links[rank]
        if link.closed:
            self._selector.unregister(link)
            self._links.pop(rank).close()
        return link.closed

    def _over(self) -> bool:
        if self._leaving:
            self._broadcast("goodbye")
            self._finish()
        return self._leaving

    def _due(self) -> float:
        return self._verdict_time

    def _forgive(self, seconds: float) -> None:
        for member in self._members.values():
            member.heard += seconds
            member.since += seconds

    def _read(self, rank: int, now: float) -> None:
        member = self._members[rank]
        for message in self._links[rank].receive():
            member.update(message, now)
            match message:
                case ["failed", str(text), int(status)]:
                    self._suspect(Evidence("failed", (rank,), text, status), now)
                case ["goodbye"]:
                    member.left = True
                case ["gave up"]:
                    # This process was stopped for long; the others have spoken, and end.
                    self._decided.set()
                    end_process(None)
        if self._drop_if_closed(rank) and not member.left:
            self._suspect(Evidence("dead", (rank,), "its process ended"), now)

    def _suspect(self, evidence: Evidence, now: float) -> None:
        """Notes the first evidence against each rank."""
        if self._suspects.isdisjoint(evidence.ranks):
            self._suspects.update(evidence.ranks)
            self._evidence.append(evidence)
            self._verdict_time = min(self._verdict_time, now + _GRACE)

    def _beat(self, now: float) -> None:
        self._broadcast(*self._state(now))
        if self._failure:
            text, _, status = self._failure
            self._suspect(Evidence("failed", (0,), text, status), now)

    def _judge(self, now: float) -> None:
        self._members[0].update(self._state(now), now)
        seconds = self.settings.timeout_seconds
        for member in self._members.values():
            if now - member.heard > seconds and not member.left:
                text = f"no heartbeat for {seconds:g} s"
                self._suspect(Evidence("silent", (member.rank,), text), now)
        # Who was silent lately may be anywhere by now.
        known = all(m.left or now - m.heard < 3 * self._interval for m in self._members.values())
        if known and not self._evidence:
            found = deadlock(self._members.values(), now, seconds)
            if found:
                self._suspect(found, now)
        if now >= self._verdict_time:
            self.end(describe(self._evidence, self._members, self.settings.size))

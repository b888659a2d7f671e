"""The processes of a run, each joined to rank 0 by one connection that carries everything they tell each other.

Two kinds of messages share the connections. Values go from main thread to main thread: `broadcast`, `gather`,
`barrier`. The sign of life goes once a second from a thread that every process has for that, because a collective of
MPI or of TensorFlow waits until every rank has come: a rank that was killed, that is stopped, that raised an exception
or that came to another collective leaves the others hanging inside C++, where Python runs no signal handler and no
`except`. Once `watch` was called, the threads end all processes where one fails:

* Every rank tells its phase and step once a second and at each change of the phase, and rank 0 answers, so that they
  notice its loss too. A few dozen bytes a second each; rank 0 serves all of them in one thread.
* A connection that closes without a goodbye means that the process died (SIGKILL, os._exit). No word for
  TFMAT_WORKER_TIMEOUT seconds means that it is stopped or that its node is gone; time in which the listener itself
  stood still does not count. `fail` tells an exception. Ranks that wait in collectives at different places wait for
  each other.
* Rank 0 gathers for a moment what it hears, since one death makes others complain, chooses the surest cause, tells all
  ranks to be quiet, writes one line to standard error and ends; then all end, with exit status 4. Where rank 0 itself
  is lost, rank 1 writes the line, and the others give it time for that: mpirun kills all ranks about two seconds after
  the first one ended. Where rank 1 is lost as well (same node), one rank of another node writes it a little later.

A failure is told within a second (a death, an exception), or after the time-out and at most six seconds more.
"""

import math
import os
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfmat.errors import WorkerLostError
from tfmat.ranks.ending import Failure, OnLoss, end_process, write_line
from tfmat.ranks.link import Link
from tfmat.ranks.values import pack, unpack
from tfmat.ranks.verdict import AGAIN, Evidence, Member, describe

_SHORTEST_BEAT = 0.05  # seconds between two messages, however often the phase changes
_IDLE_BEAT = 3600.0  # seconds; nobody watches yet
# Seconds in which rank 0 ends after its verdict: last words, and a second for the others.
QUIET = 8.0


class Star(threading.Thread):
    """One process's end; made by `rendezvous.meet`, which also starts its thread.

    Args:
      rank, size: this process among all.
      members: the processes at the other ends of the links, by rank; on rank 0 also itself.
      links: by rank: on rank 0 all others, elsewhere rank 0.
      on_loss: called with the line on the rank that writes it, in a thread of its own; five seconds at most.

    Attributes:
      secret: of the run; never sent over a link, because it could be read on the way.
    """

    secret = ""

    def __init__(
        self,
        rank: int,
        size: int,
        members: dict[int, Member],
        links: dict[int, Link],
        on_loss: OnLoss | None,
    ):
        super().__init__(name="tfmat-ranks", daemon=True)
        self.rank, self.size = rank, size
        self._on_loss = on_loss
        self._members, self._links = members, links
        # What the main thread has not taken yet; None where nothing can come any more.
        self._values: dict[int, queue.SimpleQueue[bytes | None]] = {
            other: queue.SimpleQueue() for other in links
        }
        # Phase, step, whether it waits for others, and since when: set by the main thread, told by the other.
        self._position: tuple[str, int | None, bool, float] = (
            "starting",
            None,
            False,
            time.monotonic(),
        )
        self._timeout, self._interval, self._watches = math.inf, _IDLE_BEAT, False
        self._selector = selectors.DefaultSelector()
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        for other, link in links.items():
            self._selector.register(link, selectors.EVENT_READ, other)
        self._leaving = False
        self._failure: Failure | None = None
        # Set when the end of this process is near, and who speaks is known.
        self._decided = threading.Event()

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value (see `tfmat.ranks.values.pack`) on every rank; every rank calls it at the same place.

        Raises:
          WorkerLostError: a process has gone.
        """
        if self.rank:
            return self._receive(0)
        parts = pack(value)
        for other in range(1, self.size):
            self._send(self._links.get(other), parts)
        return value

    def gather(self, value: Any, combine: Callable[[list[Any]], Any] = list) -> Any:
        """What rank 0's `combine` makes of every rank's value, in the order of the ranks; see `broadcast`."""
        if self.rank:
            self._send(self._links.get(0), pack(value))
            return self._receive(0)
        others = [self._receive(other) for other in range(1, self.size)]
        return self.broadcast(combine([value, *others]))

    def barrier(self) -> None:
        """Returns when all ranks have come."""
        self.gather(None)

    def addresses(self) -> list[str]:
        """Every rank's host as the others reach it, by rank; every rank calls it."""
        link = self._links.get(0)
        seen = self.gather(link.peer() if link else "")
        # Rank 0's as another host sees it, or loopback where there is none.
        mine = next((address for address in seen[1:] if not _loopback(address)), "127.0.0.1")
        peers = [self._links[other].peer() for other in range(1, self.size) if not self.rank]
        return self.broadcast([mine, *(mine if _loopback(peer) else peer for peer in peers)])

    def watch(self, timeout_seconds: float, deadline: float) -> None:
        """Begins to end all processes where one is lost; every rank calls it.

        Args:
          timeout_seconds: silence after which a rank is lost; rank 0's holds for all. 0 to watch nobody.
          deadline: of the monotonic clock, by which rank 0 must have called it too.
        """
        raise NotImplementedError

    def announce(self, phase: str, step: int | None, collective: bool) -> None:
        """Says what this rank does now; cheap enough for every call of a training loop.

        Args:
          phase: in words that fit into "in phase ...": `training`, `comparing weights`.
          step: the step that it starts from.
          collective: whether it waits for other ranks in it. While it is False, being slow is no fault.
        """
        changes = phase != self._position[0]
        self._position = (phase, step, collective, time.monotonic())
        if changes and self.is_alive():
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends all ranks because of an exception on this one: one line from rank 0, and one exit status.

        Returns only where there is nobody to tell: nobody watches, not yet or not any more.
        """
        if not (self._watches and self.is_alive()):
            return
        failure = self._failure = Failure.of(error)
        self._wake()
        if not self._decided.wait(2.0) and self.is_alive():  # rank 0 does not answer
            member = Member(self.rank, socket.gethostname(), 0.0, *self._position)
            evidence = Evidence("failed", (member.rank,), failure.text, failure.status)
            verdict = describe([evidence], {member.rank: member}, self.size)
            end_process(verdict.line, self._on_loss, failure.status)
        self.join(2 * QUIET)
        if self._decided.is_set():
            end_process(None, status=failure.status)

    def close(self) -> None:
        """Leaves in order. Ranks may do so in any order and at different times; rank 0's ends the watch for all."""
        if not self.is_alive():
            return
        self._leaving = True
        self._wake()
        # A moment; or the rest of this process's life, where its end was decided before.
        self.join(2 * QUIET)
        if not self.is_alive():
            self._selector.close()
            os.close(self._alarm)

    def run(self) -> None:
        awake = beat = time.monotonic()
        next_beat = beat + self._interval
        for other in list(
            self._links
        ):  # what came together with the proof: no event will tell of it
            self._read(other, beat)
        while not self._over():
            ready = self._selector.select(max(0.0, min(next_beat, self._due()) - time.monotonic()))
            now = time.monotonic()
            if now - awake > 2 * self._interval:
                # This process stood still (stopped, or its lock was held), so it cannot say that others were silent.
                for member in self._members.values():
                    member.heard += now - awake
                    member.since += now - awake
            awake = now
            for key, _ in ready:
                if key.fd == self._alarm:
                    os.eventfd_read(self._alarm)
                    next_beat = min(next_beat, beat + _SHORTEST_BEAT)
                elif key.data in self._links:
                    self._read(key.data, now)
            if self._watches and (now >= next_beat or self._failure):
                self._beat(now)
                beat, next_beat = now, now + self._interval
            self._judge(now)

    def _start_watch(self, timeout_seconds: float) -> None:
        """Begins in this thread, which knows that all ranks have come."""
        now = time.monotonic()
        for member in self._members.values():
            member.heard = member.since = now
        self._timeout = timeout_seconds
        # Rank 0 reads a thousand messages a second at most.
        self._interval = min(max(1.0, self.size / 1000), timeout_seconds / 4)
        self._watches = True
        self._wake()

    def _wake(self) -> None:
        """Has the thread look now, not at the next beat."""
        os.eventfd_write(self._alarm, 1)

    def _send(self, link: Link | None, parts: Sequence[bytes | memoryview]) -> None:
        try:
            if link is None:
                raise ConnectionError
            link.send_bytes(*parts)
        except OSError as error:
            raise _left() from error

    def _receive(self, other: int) -> Any:
        data = self._values[other].get()
        if data is None:
            self._values[other].put(None)  # for the next who asks
            raise _left()
        return unpack(data)

    def _read(self, other: int, now: float) -> None:
        link, member = self._links[other], self._members[other]
        messages = link.receive()
        member.heard = now
        for message in messages:
            match message:
                case ["bytes", bytes(data)]:
                    self._values[other].put(data)
                case _:
                    member.update(message, now)
                    self._hear(other, message, now)
            if other not in self._links:
                return
        if link.closed:
            self._drop(other)
            self._lost(other)

    def _drop(self, other: int) -> None:
        """Closes the link to one process."""
        link = self._links.pop(other)
        self._selector.unregister(link)
        link.close()
        self._values[other].put(None)

    def _state(self, now: float) -> list[Any]:
        phase, step, collective, since = self._position
        number = None if step is None else int(step)  # NumPy's integers are no JSON
        return ["state", phase, number, bool(collective), round(now - since, 3)]

    def _write_own_trace(self, blamed: tuple[int, ...]) -> None:
        if self._failure and self.rank in blamed:
            write_line(self._failure.trace)

    def _over(self) -> bool:
        """Whether the thread can end; says goodbye where it was asked to leave."""
        raise NotImplementedError

    def _due(self) -> float:
        """When `_judge` wants to be called at the latest."""
        return math.inf

    def _hear(self, other: int, message: list[Any], now: float) -> None:
        """Takes in a message that is no value."""
        raise NotImplementedError

    def _lost(self, other: int) -> None:
        """Takes in that a connection was closed."""

    def _beat(self, now: float) -> None:
        """Says what this rank does."""
        raise NotImplementedError

    def _judge(self, now: float) -> None:
        """Draws conclusions from what is known of the others."""
        raise NotImplementedError


def _left() -> WorkerLostError:
    return WorkerLostError(f"a worker has left; {AGAIN}")


def _loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")

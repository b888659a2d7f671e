"""Messages that are on their way to other processes, by MPI."""

import collections
import threading
import time
from typing import Any

# Between two looks at what is under way: short beside a message over a network, and nothing for a processor.
_SECONDS = 0.0005


class Outbox:
    """Keeps the buffers of messages until they have been sent, and sees to it that they are.

    MPI moves a large message on only while the sender is in one of its calls, and the sender is computing: its receiver
    would wait for the next call. So a thread makes calls while messages are under way.
    """

    def __init__(self) -> None:
        self._under_way: collections.deque[tuple[Any, Any]] = collections.deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._push, daemon=True, name="outbox").start()

    def add(self, request: Any, buffer: Any) -> None:
        """Takes a message: mpi4py's request, and what it reads from."""
        with self._changed:
            self._under_way.append((request, buffer))
            self._changed.notify_all()

    def wait(self) -> None:
        """Returns when all messages have left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def _push(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._under_way)
                waiting = list(self._under_way)
            # All of them, since they may go to several processes.
            left = [each for each in waiting if not each[0].Test()]
            if len(left) < len(waiting):
                with self._changed:
                    sent = {id(each) for each in waiting} - {id(each) for each in left}
                    kept = [each for each in self._under_way if id(each) not in sent]
                    self._under_way = collections.deque(kept)
                    self._changed.notify_all()
            if left:
                time.sleep(_SECONDS)

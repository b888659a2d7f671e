"""Which part of a batch a worker computes next, asked of rank 0 before the answer is wanted."""

import collections
import math
import time
from collections.abc import Callable
from typing import Any

# A question that takes a smaller share of a step is asked when its answer is wanted.
_SHORT = 0.05


class PartsAhead:
    """Numbers of the parts that rank 0 hands to this worker, asked for while the parts before are computed.

    A part that a worker has asked for waits for it, however fast the others are meanwhile. So no more are asked for
    than it takes to wait for no answer: as many as are computed during the shortest round trip so far, and none where
    that is short beside a step.

    Args:
      server: a RemoteShard in front of rank 0's, which is asked for nothing else meanwhile.
      clock: seconds.
    """

    def __init__(self, server: Any, clock: Callable[[], float] = time.monotonic):
        self._server, self._clock = server, clock
        self._asked: collections.deque[float] = collections.deque()
        self._round_trip, self._compiled = math.inf, False
        self._steps = self._computing = 0.0
        self.begin(0)

    def begin(self, most: int) -> None:
        """Begins a call, in which at most so many parts are asked for ahead."""
        self._most = most
        self._came: float | None = None
        # What is known of the length of steps, with half its weight in each call after.
        self._steps, self._computing = self._steps / 2, self._computing / 2

    def take(self) -> int:
        """The number of the next part for this worker."""
        if self._came is not None:
            if self._compiled:
                self._steps += 1
                self._computing += self._clock() - self._came
            self._compiled = True  # by the first step of a run, whose length says nothing
        if not self._asked:
            self._ask()
        number = int(self._server.asked_ticket())
        self._came = self._clock()
        self._round_trip = min(self._round_trip, self._came - self._asked.popleft())
        while len(self._asked) < self._ahead():
            self._ask()
        return number

    def end(self) -> None:
        """Takes what was asked for beyond the end of the call, so that the next one begins with answers of its own."""
        while self._asked:
            self._server.asked_ticket()
            self._asked.popleft()

    def _ask(self) -> None:
        self._asked.append(self._clock())
        self._server.ask_for_ticket()

    def _ahead(self) -> int:
        if not self._steps:
            return 0
        step = max(self._computing / self._steps, 1e-9)
        if self._round_trip < _SHORT * step:
            return 0
        return min(math.ceil(self._round_trip / step), self._most)

"""Where the time of a run goes, as seen from the host: cheap counters in every run, and the split of steps on request.

From the start of the loop to its end every second counts once: in the first call of the graph (which compiles), in
later calls, waiting for input, agreeing with the other workers between two calls, validation, files (checkpoints and
model.keras), or else as host: Python, callbacks, metrics.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from tfmat.backends import Backend
from tfmat.training.machine_use import MachineUse
from tfmat.training.step_profile import StepProfile
from tfmat.training.trace import Trace

KINDS = ("graph", "first_call", "input", "agreement", "validation", "checkpoint")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class Meter:
    """Counts; `start` comes first.

    Args:
      backend: tells the times within steps, where it was asked for them.
      trace: of some steps, or None.
    """

    def __init__(self, backend: Backend, trace: Trace | None = None):
        self._backend, self._trace = backend, trace
        processes = backend.options.processes
        self._machine, self._whole = MachineUse(processes), MachineUse(processes)
        self._profile = StepProfile()
        self._compiled: set[tuple[int, bool]] = set()
        self.start()

    def start(self) -> None:
        """Begins to count."""
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._steps = 0
        self._started = self._taken_at = self._called_at = time.monotonic()
        self._taken, self._called = self._seconds.copy(), self._seconds.copy()

    @contextlib.contextmanager
    def time(self, kind: str) -> Iterator[None]:
        """Counts the time of a block; such blocks do not lie in each other."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[kind] += time.monotonic() - started

    def each(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items; the time until each is there counts as input."""
        iterator = iter(items)
        while True:
            with self.time("input"):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def called(self, width: int, steps: int, seconds: float) -> None:
        """Counts a call of the graph, that has just ended: of batches of `width` on this worker."""
        times = self._backend.step_times
        graph = (width, times is not None)  # each is compiled
        first = graph not in self._compiled
        self._compiled.add(graph)
        self._seconds["first_call" if first else "graph"] += seconds
        self._steps += steps
        now = time.monotonic()
        spent = {kind: self._seconds[kind] - self._called[kind] for kind in KINDS}
        cycle = now - self._called_at - spent["validation"] - spent["checkpoint"]
        self._called_at, self._called = now, self._seconds.copy()
        if not first and not self._backend.timed_calls:
            self._profile.add(steps, cycle, spent["input"], spent["agreement"])
        elif not first and times is not None:
            with self.time("agreement"):
                latest = self._backend.collectives.latest(times.ready)
            self._profile.add_times(times, latest, cycle, spent["input"], spent["agreement"])
        self._machine.sample()
        self._whole.sample()
        if self._trace and self._trace.called(steps):
            self._called_at = time.monotonic()  # writing a trace is no part of a step

    def take(self) -> dict[str, Any]:
        """Seconds of each kind and use of the machine since the last `take`."""
        now = time.monotonic()
        found = {kind: self._seconds[kind] - self._taken[kind] for kind in KINDS}
        total = now - self._taken_at
        found["host"] = total - sum(found.values())
        self._taken_at, self._taken = now, self._seconds.copy()
        return {
            **{f"{kind}_seconds": round(seconds, 6) for kind, seconds in found.items()},
            **self._machine.take(),
        }

    def summary(self) -> dict[str, Any]:
        """What this worker says of the whole run, see profile_file.py."""
        if self._trace:
            self._trace.stop()
        seconds = {kind: self._seconds[kind] for kind in KINDS}
        seconds["host"] = time.monotonic() - self._started - sum(seconds.values())
        use: dict[str, Any] = dict(self._whole.take())
        if self._steps:
            use["evaluation"] = seconds["validation"] / self._steps
            use["checkpoint"] = seconds["checkpoint"] / self._steps
        return {
            "rank": self._backend.rank,
            "steps": self._steps,
            "seconds": {kind: round(value, 6) for kind, value in seconds.items()},
            "use": {**self._profile.means(), **use},
            "clock": self._backend.collectives.clock._asdict(),
            **self._profile.details(),
        }


def timed(
    kind: str,
) -> Callable[
    [Callable[Concatenate[Any, _Arguments], _Result]],
    Callable[Concatenate[Any, _Arguments], _Result],
]:
    """Has a method of an object with a `meter` counted."""

    def decorate(
        method: Callable[Concatenate[Any, _Arguments], _Result],
    ) -> Callable[Concatenate[Any, _Arguments], _Result]:
        @functools.wraps(method)
        def measured(self: Any, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with self.meter.time(kind):
                return method(self, *args, **kwargs)

        return measured

    return decorate

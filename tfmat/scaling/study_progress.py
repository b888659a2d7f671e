"""How far a study is: a bar on a terminal, a line a launch everywhere, with what is left from what was measured."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tfmat.scaling.planning import Planned, Study

if TYPE_CHECKING:
    from types import TracebackType

# Seconds of a quiet machine, before anything is known: a process' start, and compiling for one batch size.
_START, _COMPILING = 9.0, 2.5
_ONE_SIZE = 0.4


class StudyProgress:
    """Says what is done and how long the rest takes.

    Args:
      launches: of all rounds that are still to do.
      study: for a first guess of their durations.
      say: takes lines where there is no terminal.
    """

    def __init__(self, launches: Sequence[Planned], study: Study, say: Callable[[str], None]):
        self._left = list(launches)
        self._total, self._study, self._say = len(launches), study, say
        self._seconds: dict[str, list[float]] = {}
        self._ratios: list[float] = []
        self._bar: Progress | None = None

    def __enter__(self) -> "StudyProgress":
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(self._left_text(), total=self._total)
        else:
            self._say(f"{self._total} launches, {self._left_text()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self) -> None:
        """The next launch starts now."""
        self._started = time.monotonic()

    def finished(self, planned: Planned, line: str) -> None:
        """One has ended, and the next one starts."""
        now = time.monotonic()
        elapsed, self._started = now - self._started, now
        self._ratios.append(elapsed / self._guess(planned))
        self._seconds.setdefault(str(planned.launch), []).append(elapsed)
        self.drop(planned)
        text = f"[{self._total - len(self._left)}/{self._total}] {planned.launch}: {line}"
        if self._bar:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            self._say(f"{text}; {self._left_text()}")

    def drop(self, planned: Planned) -> None:
        """It will not be run any more."""
        self._left.remove(planned)
        if self._bar:
            done = self._total - len(self._left)
            self._bar.update(self._task, completed=done, description=self._left_text())

    def seconds_left(self) -> float:
        """For what is left: as long as the same launches took, else as guessed, in proportion to those that ended."""
        ratio = statistics.median(self._ratios) if self._ratios else 1.0
        return sum(
            statistics.median(self._seconds[str(each.launch)])
            if str(each.launch) in self._seconds
            else ratio * self._guess(each)
            for each in self._left
        )

    def _left_text(self) -> str:
        return f"about {max(1, round(self.seconds_left() / 60))} min left"

    def _guess(self, planned: Planned) -> float:
        launch, matrix = planned.launch, self._study.matrix
        crowd = max(1.0, planned.num_processes / self._study.machine.processors)
        if launch.sizes:
            return crowd * (_START + _ONE_SIZE * len(launch.sizes))
        a_task = _COMPILING + matrix.seconds
        if planned.round < matrix.split_rounds:
            a_task += _COMPILING + matrix.seconds / 2
        return crowd * (_START + a_task * len(launch.tasks))

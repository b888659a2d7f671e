"""What commands write to a terminal: its console, and a progress bar with rate and remaining time."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console, ConsoleDimensions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Console(Console):
    """Leaves room for the `^C` that a terminal shows: on a full line it would begin a new one and shift the bar."""

    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        width, height = super().size
        return ConsoleDimensions(max(width - 3, 1), height)


class _Rate(ProgressColumn):
    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s")


def open_console(width: int = 160) -> Console:
    """Standard output, as wide as its terminal; a pipe or a file, read by people and by grep, has `width` columns."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else width)


@contextlib.contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yields a callable (done, total) that moves the bar, or None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=_Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)

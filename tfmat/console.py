"""Output on a terminal: lines and bars on standard error, tables on standard output.

rich is loaded where something of it is shown, so that a command starts without it.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


# Control characters but tab and newline -> how they are shown: a file's name may hold orders to the terminal.
_SHOWN = {
    number: f"\\x{number:02x}"
    for number in (*range(32), *range(127, 160))
    if chr(number) not in "\t\n"
}


# Where standard error is no terminal, a line of progress comes every so many seconds.
_LINE_EVERY = 60.0


def printable(text: object) -> str:
    """The text without orders to a terminal (escape sequences), which are spelled out."""
    return str(text).translate(_SHOWN)


class StandardError(logging.Handler):
    """Looks for the stream at each line, since tests and terminals change it, and survives that nobody reads it."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(printable(self.format(record)), file=sys.stderr, flush=True)


_LOGGER = logging.getLogger(__name__)
_LOGGER.addHandler(StandardError())
_LOGGER.setLevel(logging.INFO)
# Handlers above, such as those that other libraries give the root logger, would show each line again.
_LOGGER.propagate = False


def log(line: str) -> None:
    """One line about the work, on standard error unless the logger `tfmat.console` was given another handler."""
    _LOGGER.info(line)


def open_console(width: int = 160) -> "Console":
    """Standard output, as wide as its terminal; a pipe or a file, read by people and by grep, has `width` columns."""
    from rich.console import Console
    from rich.segment import Segment

    class Printable(Console):
        """Spells out the escape sequences in texts; rich makes its own after that."""

        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    return Printable(highlight=False, width=None if sys.stdout.isatty() else width)


def open_table(console: "Console", *headings: str, right: Collection[str] = ()) -> "Table":
    """A table with a line below its headings on a terminal; the columns of `right` are flush right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    return table


def bar_console() -> "Console":
    """A rich console on standard error, for bars."""
    from rich.console import Console, ConsoleDimensions

    class Narrower(Console):
        """Leaves room for the `^C` that a terminal shows: on a full line it would begin a new one and shift the bar."""

        @property  # type: ignore[misc]
        def size(self) -> ConsoleDimensions:
            width, height = super().size
            return ConsoleDimensions(max(width - 3, 1), height)

    return Narrower(stderr=True)


@contextlib.contextmanager
def progress_bar(description: str, unit: str = "") -> Iterator[Callable[[int, int], None] | None]:
    """Yields a callable (done, total) that moves the bar, or None where standard error is no terminal.

    Args:
      unit: what is counted, for a rate; "" for what comes too seldom for one.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich
    from rich.text import Text

    class Rate(rich.ProgressColumn):
        def render(self, task: rich.Task) -> Text:
            speed = task.finished_speed or task.speed
            if speed is None or not unit:
                return Text("")
            return Text(f"{rate_text(speed)} {unit}/s")

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        Rate(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left"),
    )
    with rich.Progress(*columns, console=bar_console(), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def run_progress() -> Iterator[Callable[[int, int, int], None]]:
    """A bar with rate and remaining time, or, where nobody sees one, a line now and then."""
    with progress_bar("running", "runs") as bar:
        started = last = time.monotonic()
        first: int | None = None

        def show(done: int, failed: int, total: int) -> None:
            nonlocal first, last
            if bar is not None:
                bar(done, total)
                return
            first, now = done if first is None else first, time.monotonic()
            if now - last < _LINE_EVERY or done == first:
                return
            last, rate = now, (done - first) / (now - started)
            log(
                f"{done:,} of {total:,} runs ({failed} failed), {rate_text(rate)} runs/s, "
                f"{clock_text((total - done) / rate)} left"
            )

        yield show


def rate_text(rate: float) -> str:
    """How many a second: `12,345`, `0.43`."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def clock_text(seconds: float) -> str:
    """The time that is left: `0:07`, `12:34`, `3:00:00`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

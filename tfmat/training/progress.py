"""What a training run shows: a bar with rate, remaining time and losses on a terminal, a line an epoch elsewhere."""

import sys

from rich.progress import BarColumn, Progress, TextColumn

from tfmat.console import bar_console, clock_text, log


class TrainingProgress:
    """Context manager around a run.

    Args:
      total_steps: of the whole run.
      shown: False for workers other than rank 0, and for quiet runs.
      counted: what the examples are called.
    """

    def __init__(self, total_steps: int, shown: bool = True, counted: str = "examples"):
        self._shown, self._counted = shown, counted
        self._total_steps = total_steps
        self._bar: Progress | None = None
        if shown and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f} %  {task.fields[text]}"),
                console=bar_console(),
                transient=True,
            )

    def __enter__(self) -> "TrainingProgress":
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task("training", total=self._total_steps, text="first step")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, line: str) -> None:
        """Prints a line above the bar."""
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        elif self._shown:
            # A terminal that was closed, or a reader that has gone, does not end a run of hours; log.txt has the line.
            log(line)

    def update(
        self, *, step: int, description: str, rate: float, loss: float, seconds_left: float
    ) -> None:
        """Moves the bar: `rate` in examples/s, `loss` of the epoch so far."""
        if self._bar:
            text = (
                f"{rate:,.0f} {self._counted}/s  {clock_text(seconds_left)} left  loss {loss:.3g}"
            )
            self._bar.update(self._task, completed=step, description=description, text=text)

"""What the pictures of a study share: colours of series, axes of worker counts, legends."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tfmat.report.drawing import INK, MEASURED
from tfmat.scaling.units import unbroken

# Okabe and Ito's (2008), told apart also by those who do not see all colours, on a light and on a dark page.
COLOURS = ("#1F83C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
# Of the parts of a step; grey is what nothing accounts for.
PART_COLOURS = {
    "forward_backward": "#1F83C4", "optimizer": "#56B4E9", "input": "#F0E442", "waiting": "#D55E00",
    "moving": "#E69F00", "host": "#CC79A7", "evaluation": "#009E73", "checkpoint": "#66A61E", "rest": "#999999",
}  # fmt: skip
PART_NAMES = {
    "forward_backward": "forward and backward", "optimizer": "optimizer", "input": "input",
    "waiting": "waiting for others", "moving": "moving gradients", "host": "host", "evaluation": "evaluation",
    "checkpoint": "checkpoint", "rest": "not told apart",
}  # fmt: skip
MOST_SERIES = len(COLOURS)
_LEGEND_ROW = 0.19  # inches
# Letters beside each other: of a legend, also in a font wider than the picture was laid out with; and beside a bar.
_LEGEND_WIDTH, _BAR_WIDTH = 52, 34


def style(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th series."""
    return {"color": COLOURS[i % MOST_SERIES], "marker": MARKERS[i % MOST_SERIES]}


def hollow_if(oversubscribed: bool) -> dict[str, Any]:
    """What makes the markers of oversubscribed points hollow."""
    return {"mfc": "none"} if oversubscribed else {}


def worker_axis(axis: Axis, counts: Sequence[int]) -> None:
    """Logarithmic, base 2, a tick at each count that was measured (every other one where they are many)."""
    axis.axes.set(**{"xscale" if axis is axis.axes.xaxis else "yscale": "log"})
    ticks = sorted(set(counts))
    if len(ticks) > 7:
        ticks = ticks[:: -(-len(ticks) // 6)]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def legend_below(panel: Axes, columns: int = 1) -> None:
    """Under the picture, where no line runs; the figure grows by as much."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        labels = _in_lines(labels, _LEGEND_WIDTH // columns)
        figure = panel.get_figure()
        assert isinstance(figure, Figure)
        figure.legend(
            handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9
        )
        width, height = figure.get_size_inches()
        lines, rows = [label.count("\n") + 1 for label in labels], -(-len(labels) // columns)
        most = max(sum(lines[i * rows : (i + 1) * rows]) for i in range(columns))
        figure.set_size_inches(width, height + _LEGEND_ROW * most)


def bar_names(names: Sequence[str]) -> list[str]:
    """Names of bars, long ones in two lines, so that room is left for the bars."""
    return _in_lines(names, _BAR_WIDTH)


def _in_lines(names: Sequence[str], width: int) -> list[str]:
    return [textwrap.fill(unbroken(name), width, break_long_words=False) for name in names]


def legend_of_oversubscribed(panel: Axes) -> None:
    """An entry that explains the hollow markers."""
    panel.plot([], [], "o", mfc="none", mec=MEASURED, label="hollow: oversubscribed")


def vertical(panel: Axes, x: float, text: str) -> None:
    """A dotted line with its name at the top."""
    panel.axvline(x, color=INK, lw=0.9, ls=":")
    panel.annotate(
        text, (x, 1), xycoords=("data", "axes fraction"), xytext=(-3, -3), textcoords="offset points",
        rotation=90, ha="right", va="top", fontsize=9, color=INK,
    )  # fmt: skip

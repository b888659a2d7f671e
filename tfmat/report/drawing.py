"""What all pictures share: colours, axes, legends, panels, and figures as PNG, as SVG and inside a page.

Object-oriented Matplotlib on Agg: no window, no global state, safe in threads.
"""

import dataclasses
import functools
import html
import io
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from tfmat.files import atomic_write
from tfmat.report.formatting import format_power, unbroken
from tfmat.report.panel_layout import lay_out_panel, place_panel, room

Array = NDArray[np.floating]

INK, GRID, MEASURED, MODEL, SECOND = "#1f2933", "#dde3ea", "#52606d", "#c2410c", "#1d4ed8"
WARNING = "#b91c1c"
# Behind the data, such as the error that no method can avoid.
BAND = "#9fb3c8"
# Series in the colours of Okabe and Ito (2008), told apart also by those who do not see all colours, on a light and on
# a dark page.
COLOURS = ("#1F83C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_SERIES = len(COLOURS)
_LEGEND_ROW = 0.19  # inches
_PNG_DPI = 144
# Letters beside each other: of a legend, also in a font wider than the picture was laid out with; and beside a bar.
_LEGEND_WIDTH, _BAR_WIDTH = 52, 34

# Colours of the figures -> what the page's style sheet calls them.
_VARIABLES = {
    INK: "ink", GRID: "line", MEASURED: "measured", MODEL: "model", SECOND: "second", BAND: "band",
    "#ffffff": "surface", "#000000": "ink",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Picture:
    """One panel: by itself on a page, where it is sharp at every size, and in files.

    Attributes:
      name: unlike that of any other picture on the page.
      description: what it shows, for those who cannot see it.
      draw: draws the panel.
      width, height: inches; two stand side by side on a page, and text is still large enough on a telephone.
    """

    name: str
    description: str
    draw: Callable[[Axes], None]
    width: float = 4.3
    height: float = 3.3

    @functools.cached_property
    def figure(self) -> Figure:
        """Drawn and laid out, once for all of its files."""
        figure = new_figure(self.width, self.height)
        self.draw(figure.subplots())
        _lay_out(figure)
        return figure

    @property
    def svg(self) -> str:
        """An `<svg>` element for a page."""
        return inline_svg(self.figure, self.name, self.description)


def picture(name: str, description: str, draw: Callable[..., None], **data: Any) -> Picture:
    """A panel that `draw` draws from this data."""
    return Picture(name, description, functools.partial(draw, **data))


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_grid(rows: Sequence[Sequence[Picture]], path: str | os.PathLike) -> None:
    """Writes rows of pictures as one PNG, from the figures that a page shows too; see `save_figure`.

    Panels above each other begin and end at one place, as do those beside each other. The last row may have fewer.
    """
    margins = [[room(each.figure) for each in row] for row in rows]
    sides = [
        np.max([row[j][:2] for row in margins if j < len(row)], axis=0) for j in range(len(rows[0]))
    ]
    lines = []
    for row, found in zip(rows, margins, strict=True):
        ends = np.max([each[2:] for each in found], axis=0)
        for each, side in zip(row, sides, strict=False):
            place_panel(each.figure, (*side, *ends))
        lines.append(np.concatenate([_pixels(each.figure) for each in row], axis=1))
    width = lines[0].shape[1]
    lines = [
        np.pad(line, ((0, 0), (0, width - line.shape[1]), (0, 0)), constant_values=255)
        for line in lines
    ]
    image = io.BytesIO()
    imsave(image, np.concatenate(lines), format="png", dpi=_PNG_DPI)
    with atomic_write(path) as file:
        file.write(image.getvalue())


def save_figure(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a PNG or an SVG, as the name ends, whole or not at all; InputError where it cannot be written."""
    content = _svg(figure).encode() if pathlib.Path(path).suffix == ".svg" else _png(figure)
    with atomic_write(path) as file:
        file.write(content)


def _lay_out(figure: Figure) -> None:
    """Gives every panel its place for good: savefig would draw all once more, and lay it out twice."""
    engine = figure.get_layout_engine()
    if engine is None:
        return
    figure.set_layout_engine(None)
    if len(figure.axes) == 1 and not figure.legends and not figure.get_suptitle():
        lay_out_panel(figure)
    else:
        engine.execute(figure)


def _pixels(figure: Figure) -> NDArray[np.uint8]:
    """[height, width, 3]: red, green and blue."""
    figure.set_dpi(_PNG_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def _png(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.set_dpi(_PNG_DPI)
    _lay_out(figure)
    figure.savefig(image, format="png", dpi=_PNG_DPI)
    return image.getvalue()


def _svg(figure: Figure, fonttype: str = "path", **options: Any) -> str:
    """The same text every time: no date, no random ids."""
    text = io.StringIO()
    settings: Any = {"svg.hashsalt": "tfmat", "svg.fonttype": fonttype}
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", metadata={"Date": None}, **options)
    return text.getvalue()


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element, as wide as the page allows, in the colours of the page's style sheet.

    Args:
      name: unlike that of any other figure on the page; begins every id in it.
      description: what it shows, for those who cannot see it.
    """
    # Letters of the page, which can be searched and scale well.
    svg = _svg(figure, "none", transparent=True, dpi=160)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Would hold for the whole page; the page's own style sheet says it for its figures.
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    for colour, variable in _VARIABLES.items():
        svg = re.sub(colour, f"var(--{variable})", svg, flags=re.IGNORECASE)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    opening = (
        f'<svg class="plot" {box[0]} role="img" aria-label="{html.escape(description)}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return opening + svg[svg.index(">") + 1 :].strip()


def finish(panel: Axes) -> None:
    """Light grid behind the data, no box."""
    panel.grid(True, color=GRID, lw=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK)


def logarithmic(axis: Axis) -> None:
    """Makes an axis logarithmic, with ticks that neither run into each other nor are missing; call it after drawing."""
    which: Literal["x", "y"] = "x" if axis is axis.axes.xaxis else "y"
    axis.axes.set(**{f"{which}scale": "log"})
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low) if low > 0 and np.isfinite(high) else 0.0
    axis.set_major_formatter(FuncFormatter(lambda value, place: format_power(value)))
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    labelled = FuncFormatter(lambda value, place: format_power(value))
    axis.set_minor_formatter(labelled if decades < 1.75 else NullFormatter())
    axis.axes.grid(True, which="minor", axis=which, color=GRID, lw=0.4)
    axis.axes.tick_params(which="minor", colors=INK)


def worker_axis(axis: Axis, counts: Sequence[int]) -> None:
    """Logarithmic, a tick at each count that was measured (every other one where they are many)."""
    axis.axes.set(**{"xscale" if axis is axis.axes.xaxis else "yscale": "log"})
    ticks = sorted(set(counts))
    if len(ticks) > 7:
        ticks = ticks[:: -(-len(ticks) // 6)]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def style(i: int, hollow: bool = False) -> dict[str, Any]:
    """Colour and marker of the i-th series; hollow markers where they tell of oversubscribed points."""
    filling = {"mfc": "none"} if hollow else {}
    return {"color": COLOURS[i % MOST_SERIES], "marker": MARKERS[i % MOST_SERIES], **filling}


def legend_below(panel: Axes, columns: int = 1) -> None:
    """Puts the legend under the picture, where no line runs; the figure grows by as much."""
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


def complete(
    panel: Axes, xlabel: str, ylabel: str, *, log: str = "", hollow: bool = False, columns: int = 1
) -> None:
    """Grid, labels and the legend below, after drawing.

    Args:
      log: the logarithmic axes: `x`, `y`, or `xy`.
      hollow: whether markers are, of oversubscribed points, which the legend then explains.
      columns: of the legend.
    """
    finish(panel)
    for name in log:
        logarithmic(panel.xaxis if name == "x" else panel.yaxis)
    panel.set(xlabel=xlabel, ylabel=ylabel)
    if hollow:
        panel.plot([], [], "o", mfc="none", mec=MEASURED, label="hollow: oversubscribed")
    legend_below(panel, columns)


def bars(panel: Axes, names: Sequence[str], label: str) -> Array:
    """Prepares a panel of bars, the first above; returns their places. Long names stand in two lines."""
    places = np.arange(len(names), dtype=float)[::-1]
    panel.set_yticks(places, _in_lines(names, _BAR_WIDTH), fontsize=8)
    panel.set_xlabel(label)
    finish(panel)
    panel.grid(False, axis="y")
    return places


def _in_lines(names: Sequence[str], width: int) -> list[str]:
    return [textwrap.fill(unbroken(name), width, break_long_words=False) for name in names]

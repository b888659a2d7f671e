"""Figures: curves, tests, posteriors and searches."""

import dataclasses
import functools
import html
import io
import itertools
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import matplotlib
import numpy as np
import scipy.ndimage
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.files import atomic_write
from tfmat.identification.results import (
    CurvePicture,
    DrawnTest,
    NextTest,
    PosteriorPicture,
    PosteriorScores,
    TestsPicture,
    Uniformity,
)
from tfmat.identification.results import Picture as AnswerPicture
from tfmat.report.tables import (
    TrialRow,
    format_power,
    format_unit,
    format_value,
    unbroken,
    value_cell,
    with_unit,
)

# --------------------------------------------------------------------------------------------------
# The place of the only panel of a figure: as large as its text allows.


# Inches between text and the figure's edge.
_PAD = 0.04
Margins = tuple[float, float, float, float]  # left, right, bottom, top; inches
# Near what most panels need.
_GUESS: Margins = (0.7, 0.1, 0.5, 0.1)
_MOST_PASSES = 3


def lay_out_panel(figure: Figure) -> None:
    """As the constrained layout does with one panel, which measures all text twice.

    Here it is measured again only where the panel has other ticks in its new place, whose text needs another room.
    """
    ticks = place_panel(figure, _GUESS)
    for _ in range(_MOST_PASSES):
        before, ticks = ticks, place_panel(figure, _margins(figure))
        if ticks == before:
            return


def place_panel(figure: Figure, margins: Margins) -> list[list[float]]:
    """Puts the only panel between these margins; returns its ticks there."""
    (panel,) = figure.axes
    left, right, bottom, top = margins
    width, height = figure.get_size_inches()
    size = (width - left - right) / width, (height - bottom - top) / height
    panel.set_position((left / width, bottom / height, *size))
    panel.apply_aspect()
    axes = (panel.xaxis, panel.yaxis)
    return [list(axis.get_ticklocs(minor=minor)) for axis in axes for minor in (False, True)]


def room(figure: Figure) -> Margins:
    """Inches around the only panel."""
    (panel,) = figure.axes
    place = panel.get_position(original=True)
    width, height = figure.get_size_inches()
    return place.x0 * width, (1 - place.x1) * width, place.y0 * height, (1 - place.y1) * height


def _margins(figure: Figure) -> Margins:
    """Inches that the text of the only panel needs around it."""
    (panel,) = figure.axes
    text = panel.get_tightbbox(for_layout_only=True)
    assert text is not None
    box = panel.bbox
    pixels = (box.x0 - text.x0, text.x1 - box.x1, box.y0 - text.y0, text.y1 - box.y1)
    left, right, bottom, top = (one / figure.dpi + _PAD for one in pixels)
    return left, right, bottom, top


# --------------------------------------------------------------------------------------------------
# Shared by all pictures: colours, axes, legends, panels, and figures as PNG, as SVG and inside a page.
#
# Object-oriented Matplotlib on Agg: no window, no global state, safe in threads.


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


def picture(
    name: str,
    description: str,
    draw: Callable[..., None],
    size: tuple[float, float] = (4.3, 3.3),
    /,
    **data: Any,
) -> Picture:
    """A panel of this size, inches, that `draw` draws from this data."""
    return Picture(name, description, functools.partial(draw, **data), *size)


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
    content = _svg(figure).encode() if pathlib.Path(path).suffix == ".svg" else png(figure)
    with atomic_write(path) as file:
        file.write(content)


def save_png_and_svg(figure: Figure, stem: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes STEM.png and STEM.svg, each whole or not at all."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    save_figure(figure, png)
    save_figure(figure, svg)
    return png, svg


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


def png(figure: Figure) -> bytes:
    """The figure as a PNG."""
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


def finish(panel: Axes, xlabel: str = "", ylabel: str = "", log: str = "", title: str = "") -> None:
    """Light grid behind the data, no box, labels; call it after drawing.

    Args:
      xlabel, ylabel, title: with the user's own names as they are; "" leaves what is there.
      log: the logarithmic axes: `x`, `y`, or `xy`.
    """
    panel.grid(True, color=GRID, lw=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK)
    for name in log:
        logarithmic(panel.xaxis if name == "x" else panel.yaxis)
    if xlabel:
        panel.set_xlabel(xlabel, parse_math=False)
    if ylabel:
        panel.set_ylabel(ylabel, parse_math=False)
    if title:
        panel.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)


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
    """`finish`, and the legend below.

    Args:
      hollow: whether markers are, of oversubscribed points, which the legend then explains.
      columns: of the legend.
    """
    finish(panel, xlabel, ylabel, log)
    if hollow:
        panel.plot([], [], "o", mfc="none", mec=MEASURED, label="hollow: oversubscribed")
    legend_below(panel, columns)


def bars(panel: Axes, names: Sequence[str], label: str) -> Array:
    """Prepares a panel of bars, the first above; returns their places. Long names stand in two lines."""
    places = np.arange(len(names), dtype=float)[::-1]
    panel.set_yticks(places, _in_lines(names, _BAR_WIDTH), fontsize=8)
    finish(panel, label)
    panel.grid(False, axis="y")
    return places


def _in_lines(names: Sequence[str], width: int) -> list[str]:
    return [textwrap.fill(unbroken(name), width, break_long_words=False) for name in names]


# --------------------------------------------------------------------------------------------------
# The picture of one curve: measured points, the curves of its answers, the residuals.


# Letters of a curve's name, so that the title stays inside the picture.
MAX_NAME = 50


def curve_figure(picture: CurvePicture, width: float = 7.0) -> Figure:
    """Measured points and the law's curve with the recommended parameters, bold; residuals below.

    The scale follows the measured points and the recommended curve, so that a poor other curve hides nothing.

    Args:
      width: of the picture, inches.
    """
    strain, stress_mpa = np.asarray(picture.strain), np.asarray(picture.stress_mpa)
    curves = _curves_of(picture)
    answer = answer_text(picture)
    lines = len(answer.splitlines()) + len(curves) + 1
    figure = new_figure(width, (5.0 if curves else 3.8) + 0.19 * lines)
    if curves:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
        _draw_residuals(bottom, strain, stress_mpa, curves)
    else:
        top = figure.subplots()
    _draw_curve(top, strain, stress_mpa, curves)
    handles, labels = top.get_legend_handles_labels()
    order = [0, *reversed(range(1, len(handles)))]
    _legend(figure, [handles[i] for i in order], [labels[i] for i in order], answer)
    top.set_title(_title(picture), loc="left", fontsize=11, fontweight="bold", parse_math=False)
    if picture.do_not_use:
        figure.suptitle(_warning(picture, width), color=WARNING, fontsize=11, fontweight="bold")
    top.set_ylabel(f"{picture.stress_label} (MPa)")
    figure.axes[-1].set_xlabel(f"{picture.strain_label} (–)")
    figure.axes[-1].set_xlim(left=0.0)
    figure.align_ylabels()
    return figure


def _curves_of(picture: CurvePicture) -> list["_Curve"]:
    """The answers' curves, the recommended one first; it is the last to be drawn."""
    curves, refined = [], picture.refined
    if picture.resimulated_mpa is not None:
        network = np.asarray(picture.resimulated_mpa)
        curves.append(_Curve("network", network, picture.rmse_percent))
    if refined is not None and refined.stress_mpa:
        curves.append(_Curve(refined.name, np.asarray(refined.stress_mpa), refined.rmse_percent))
    return sorted(curves, key=lambda curve: curve.name != picture.recommended)


def _legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], answer: str) -> None:
    """The legend under the panels, with the answer above it."""
    legend = figure.legend(
        handles, labels, loc="outside lower left", title=answer or None, alignment="left", frameon=False
    )  # fmt: skip
    legend.get_title().set_fontweight("bold")


def _title(picture: AnswerPicture) -> str:
    law = f": {picture.law_title}" if picture.law_title else ""
    return short_name(picture.name) + law


def _warning(picture: AnswerPicture, width: float) -> str:
    return textwrap.fill(f"DO NOT USE: {', '.join(picture.do_not_use)}", int(11 * width))


def short_name(name: str, most: int = MAX_NAME) -> str:
    """The end of a name that is longer than `most` letters."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


@dataclasses.dataclass(frozen=True)
class _Curve:
    """One answer's curve: what it is called, its stress [points] in MPa, and its error in % of the maximum stress."""

    name: str
    stress_mpa: Array
    rmse_percent: float | None

    @property
    def label(self) -> str:
        if self.rmse_percent is None:
            return self.name
        return f"{self.name}: RMSE {format_value(self.rmse_percent, 3)} % of maximum stress"


def answer_text(picture: AnswerPicture) -> str:
    """The text of the answer, one parameter a line."""
    lines = []
    for name, (value, unit) in picture.parameters.items():
        line = f"{name} = {format_value(value)} {format_unit(unit)}".rstrip()
        if (ends := picture.intervals.get(name)) is not None:
            line += f"   (95 %: {format_value(ends[0])} … {format_value(ends[1])})"
        lines.append(line)
    if picture.assumed:
        lines.append(f"assumed: {', '.join(picture.assumed)}")
    return "\n".join(lines)


def _draw_curve(panel: Axes, strain: Array, stress_mpa: Array, curves: Sequence[_Curve]) -> None:
    """Measured points and the curves, the first of which is bold and sets the scale."""
    size = 4.0 if len(strain) < 400 else 2.0
    panel.plot(
        strain, stress_mpa, "o", label="measured", ms=size, mfc="none", mec=MEASURED, mew=0.8
    )
    for curve in reversed(curves):
        style = _style(curve is curves[0])
        panel.plot(strain, curve.stress_mpa, label=curve.label, **style)
    seen = [stress_mpa, *(curve.stress_mpa for curve in curves[:1])]
    highest = max(float(stress.max()) for stress in seen)
    panel.set_ylim(bottom=min(0.0, float(stress_mpa.min())), top=1.06 * highest)
    finish(panel)


def _style(bold: bool) -> dict[str, Any]:
    if bold:
        return {"ls": "-", "color": MODEL, "lw": 2.2}
    return {"ls": "--", "color": SECOND, "lw": 0.9}


def _draw_residuals(
    panel: Axes, strain: Array, stress_mpa: Array, curves: Sequence[_Curve]
) -> None:
    """Measured minus re-simulated: points for the recommended curve, a thin line for the other."""
    size = 2.5 if len(strain) < 400 else 1.5
    panel.axhline(0.0, color=INK, lw=0.8)
    for curve in curves[1:]:
        panel.plot(strain, stress_mpa - curve.stress_mpa, **_style(bold=False))
    residual = stress_mpa - curves[0].stress_mpa
    panel.plot(strain, residual, "o", ms=size, mfc="none", mec=MODEL, mew=0.7)
    limit = 1.15 * float(np.abs(residual).max()) or 1.0
    panel.set_ylim(-limit, limit)
    finish(panel, ylabel="residual (MPa)")


def next_test_figure(name: str, found: NextTest) -> Figure:
    """The 95 % interval of each prediction, now and as each test is expected to leave it; `name`: of the specimen."""
    shown = [one for one in found.quantities if one.is_prediction] or found.quantities
    tests = [test for test in found.tests if test.gain_nats is not None]
    names = ["now", *(test.titled for test in tests)]
    figure = new_figure(4.6 * len(shown) + 1.6, 0.32 * len(names) + 1.9)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for panel, quantity in zip(panels, shown, strict=True):
        is_log = quantity.compared_on == "log"
        unit = "" if quantity.unit == "-" else f" ({quantity.unit})"
        places = bars(
            panel, names if panel is panels[0] else [""] * len(names), quantity.name + unit
        )
        low, high = np.log(quantity.ci95) if is_log else quantity.ci95
        ratios = [1.0, *(test.interval_ratio[quantity.name].ratio or np.nan for test in tests)]
        for place, ratio in zip(places, ratios, strict=True):
            # Where the test will find it nobody knows yet: in the middle of what is known.
            ends = 0.5 * (low + high) + 0.5 * (high - low) * ratio * np.array([-1.0, 1.0])
            colour = MEASURED if place == places[0] else MODEL
            panel.plot(np.exp(ends) if is_log else ends, [place, place], color=colour, lw=5.0)
        if is_log:
            logarithmic(panel.xaxis)
    figure.suptitle(
        f"{short_name(name)}: 95 % interval expected after a further test",
        fontsize=11,
        fontweight="bold",
        parse_math=False,
    )
    return figure


def verification_figure(
    name: str, strain: Array, stress_mpa: Array, runs: Sequence[Array]
) -> Figure:
    """Measured points, and over them the curves of runs at draws from the posterior; what parts them, below.

    Args:
      name: of the specimen.
      strain: [points], -; stress_mpa: [points], MPa.
      runs: stress of each run at the measured strains, [points], MPa.
    """
    figure = new_figure(7.0, 5.2)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    size = 4.0 if len(strain) < 400 else 2.0
    top.plot(strain, stress_mpa, "o", label="measured", ms=size, mfc="none", mec=MEASURED, mew=0.8)
    for i, run in enumerate(runs):
        label = {"label": "runs at draws from the posterior"} if i == 0 else {}
        top.plot(strain, run, color=MODEL, lw=1.0, alpha=0.6, **label)
        bottom.plot(strain, stress_mpa - run, color=MODEL, lw=0.8, alpha=0.6)
    bottom.axhline(0.0, color=INK, lw=0.8)
    top.legend(loc="lower right", fontsize=8, frameon=False)
    finish(top, ylabel="nominal stress (MPa)")
    finish(bottom, "nominal strain", "residual (MPa)")
    title = f"{short_name(name)}: verified by the program"
    figure.suptitle(title, fontsize=11, fontweight="bold", parse_math=False)
    return figure


# --------------------------------------------------------------------------------------------------
# Pictures of tests, measured and simulated: hysteresis loops, modes of loading side by side, relaxation over ln t.


# _MOST_COLUMNS: panels side by side on a page.
_MOST_COLUMNS = 3
_TEST_PANEL = (4.2, 3.5)  # inches
# Kinds of tests whose answers are read over the time.
_OVER_TIME = ("relaxation", "creep")


def answer_figure(picture: CurvePicture | TestsPicture) -> Figure:
    """The picture of an answer: of a curve, or of tests where it has such."""
    return record_figure(picture) if isinstance(picture, TestsPicture) else curve_figure(picture)


def panels_of(picture: CurvePicture | TestsPicture) -> int:
    """How many panels `draw_answer` draws into."""
    return len(groups_of_tests(picture.tests)) if isinstance(picture, TestsPicture) else 1


def draw_answer(picture: CurvePicture | TestsPicture, panels: Sequence[Axes]) -> None:
    """Measured points and the answer, without residuals, in panels of somebody's own.

    Raises:
      InputError: there are fewer panels than `panels_of` says.
    """
    if len(panels) < panels_of(picture):
        raise InputError(
            f"{len(panels)} axes were given, and the tests need {panels_of(picture)}, one for each kind"
        )
    if isinstance(picture, TestsPicture):
        for panel, group in zip(panels, groups_of_tests(picture.tests), strict=False):
            draw_tests(panel, group, picture.strain_label, picture.stress_label)
    else:
        strain, stress_mpa = np.asarray(picture.strain), np.asarray(picture.stress_mpa)
        _draw_curve(panels[0], strain, stress_mpa, _curves_of(picture))
        panels[0].set_xlabel(f"{picture.strain_label} (–)")
        panels[0].set_ylabel(f"{picture.stress_label} (MPa)")
        panels[0].set_title(_title(picture), loc="left", fontsize=11, parse_math=False)
        panels[0].legend(frameon=False)
    if picture.do_not_use:
        panels[0].set_title(
            f"DO NOT USE\n{panels[0].get_title(loc='left')}",
            loc="left",
            color=WARNING,
            parse_math=False,
        )


def record_figure(picture: TestsPicture) -> Figure:
    """A panel a test, measured and answered; tests of one kind that do not turn share a panel, a colour each."""
    groups = groups_of_tests(picture.tests)
    columns = min(len(groups), _MOST_COLUMNS)
    rows = -(-len(groups) // columns)
    text = answer_text(picture)
    width = max(columns * _TEST_PANEL[0], 6.2)
    figure = new_figure(width, rows * _TEST_PANEL[1] + 0.9 + 0.19 * len(text.splitlines()))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    for panel, group in zip(panels, groups, strict=False):
        draw_tests(panel, group, picture.strain_label, picture.stress_label)
    errors = {"network": picture.rmse_percent}
    if picture.refined:
        errors[picture.refined.name] = picture.refined.rmse_percent
    drawn = [picture.method, *([picture.other_method] if picture.other_method else [])]
    labels = [_with_error(one, errors.get(one) if len(drawn) > 1 else None) for one in drawn]
    handles, _ = panels[0].get_legend_handles_labels()
    if any(len(group) > 1 for group in groups):
        text += f"\ndashed: {labels[1]}" if picture.other_method else ""
        handles, labels = [], []
    elif len(handles) > len(labels):
        labels.insert(0, "measured")
    _legend(figure, handles[: len(labels)], labels, text)
    heading = [_warning(picture, width)] if picture.do_not_use else []
    figure.suptitle(
        "\n".join([*heading, _title(picture)]),
        color=WARNING if heading else None,
        fontsize=11,
        fontweight="bold",
        parse_math=False,
    )
    return figure


def _with_error(method: str, percent: float | None) -> str:
    return method if percent is None else f"{method}: RMSE {format_value(percent, 2)} % of max."


def groups_of_tests(tests: Sequence[DrawnTest]) -> list[list[DrawnTest]]:
    """Tests that share a panel: tests of one kind that do not turn, as many as there are colours."""
    groups: list[list[DrawnTest]] = []
    for test in tests:
        fits = next(
            (
                group
                for group in groups
                if group[0].kind == test.kind
                and not (test.turns or group[0].turns)
                and len(group) < MOST_SERIES
            ),
            None,
        )
        if fits is None:
            groups.append([test])
        else:
            fits.append(test)
    return groups


def draw_tests(
    panel: Axes, tests: Sequence[DrawnTest], strain_label: str, stress_label: str
) -> None:
    """Tests of one kind: stress over strain, or the answer over the time; see `record_figure`."""
    first = tests[0]
    over_time = first.kind in _OVER_TIME and first.time is not None
    strain_driven = first.drives == "strain"
    for i, test in enumerate(tests):
        colours = (MEASURED, MODEL) if len(tests) == 1 else (COLOURS[i], COLOURS[i])
        label = f"{test.settings or test.name}: {format_value(test.rmse_percent, 2)} %"
        driven, response = np.asarray(test.strain), np.asarray(test.stress_mpa)
        if not strain_driven:
            driven, response = response, driven
        seen = [response, np.asarray(test.answer)]
        seen += [] if test.other is None else [np.asarray(test.other)]
        if over_time:
            time = np.asarray(test.time)
            lines = [(time[time > 0], each[time > 0]) for each in seen]
        else:
            lines = [(driven, each) if strain_driven else (each, driven) for each in seen]
        measured, answered, *others = lines
        _draw_measured(panel, *measured, colours[0], "measured" if len(tests) == 1 else "_")
        panel.plot(*answered, "-", color=colours[1], lw=1.0 if test.turns else 2.0, label=label)
        for line in others:
            colour = SECOND if len(tests) == 1 else colours[1]
            other_label = "other" if len(tests) == 1 else "_"
            panel.plot(*line, "--", color=colour, lw=0.8, label=other_label)
    across, up = f"{strain_label} (–)", f"{stress_label} (MPa)"
    if over_time:
        panel.set_xscale("log")
        across, up = "time (s)", up if strain_driven else across
    title = first.title
    if len(tests) == 1:
        error = f"RMSE {format_value(first.rmse_percent, 2)} % of max."
        title += "\n" + ", ".join(filter(None, [short_name(first.name, 24), first.settings, error]))
    else:
        panel.legend(frameon=False, fontsize=8)
    panel.set_title(title, loc="left", fontsize=9, parse_math=False)
    finish(panel, across, up)


def _draw_measured(panel: Axes, x: np.ndarray, y: np.ndarray, colour: str, label: str) -> None:
    """Points, small where they are many."""
    size = 4.0 if len(x) < 100 else 2.0
    panel.plot(
        x, y, linestyle="none", marker="o", ms=size, mfc="none", mec=colour, mew=0.7, label=label
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TestPanel:
    """The panel of one test.

    Attributes:
      title: of the test.
      lines: (x, y) of every record, [points] each.
      xlabel, ylabel: with units.
      log: the logarithmic axes: `x`, `y`, `xy`, or none.
    """

    __test__ = False  # no case of pytest's

    title: str
    lines: Sequence[tuple[Array, Array]]
    xlabel: str
    ylabel: str
    log: str = ""


def tests_figure(title: str, panels: Sequence[TestPanel]) -> Figure:
    """One panel per test; a record has the same colour in all of them."""
    columns = min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    width = _TEST_PANEL[0] * columns
    figure = new_figure(width, _TEST_PANEL[1] * rows + 0.5)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, panel in zip(places, panels, strict=False):
        for i, (x, y) in enumerate(panel.lines):
            place.plot(x, y, lw=1.2, color=COLOURS[i % MOST_SERIES])
        complete(place, panel.xlabel, panel.ylabel, log=panel.log)
        place.set_title(panel.title, fontsize=10)
    for place in places[len(panels) :]:
        place.set_visible(False)
    figure.suptitle(textwrap.fill(title, int(9 * width)), fontsize=11, fontweight="bold")
    return figure


# --------------------------------------------------------------------------------------------------
# Pictures of posteriors: whether they are right on average, and samples of a joint posterior as a corner plot.


# Joint regions of highest density that are drawn, the inner one last.
_REGIONS = (0.95, 0.5)
# Bins a direction of a corner plot, and the smoothing of its densities in bins.
_BINS, _SMOOTHING = 40, 1.2
_CORNER_PANEL = 1.9  # inches
# An axis shows the samples between these quantiles, and a margin: a stray one would hide the others.
_SHOWN = (0.0025, 0.9975)
# An axis of a parameter with a logarithmic range is logarithmic where its samples spread over more than this factor.
_DECADE = 10.0


def uniformity(posterior: PosteriorScores | None) -> list[list[Picture]]:
    """One row: how far ranks of the truth, and shares of draws nearer to random points, are from evenly spread.

    An older evaluation, which has no such curves, gives no picture.
    """
    if posterior is None or posterior.band is None or posterior.tarp is None:
        return []
    parts = (
        ("ranks", "rank of the truth among the draws (share)", posterior.ranks),
        (
            "tarp",
            "draws nearer to a random point than the truth (share)",
            {"all parameters": posterior.tarp},
        ),
    )
    shared = {"band": posterior.band, "curves": posterior.num_curves}
    return [
        [
            picture(f"posterior-{name}", label, draw_uniformity, found=found, label=label, **shared)
            for name, label, found in parts
        ]
    ]


def draw_uniformity(
    panel: Axes, found: Mapping[str, Uniformity], label: str, band: float, curves: int
) -> None:
    """Differences of distributions from the uniform one, each a line, over the band that holds 95 % of right ones."""
    length = len(next(iter(found.values())).difference)
    places = np.arange(1, length + 1) / (length + 1)
    width = 100 * band * np.sqrt(places * (1 - places) / curves)
    panel.fill_between(
        places, -width, width, color=BAND, alpha=0.45, lw=0, label="95 % of right posteriors"
    )
    panel.axhline(0.0, color=INK, lw=0.8)
    for i, (name, entry) in enumerate(found.items()):
        values = 100 * np.asarray(entry.difference)
        color = MODEL if len(found) == 1 else style(i)["color"]
        panel.plot(places, values, "-", color=color, lw=1.6, label=name)
    panel.set_xlim(0, 1)
    finish(panel, label, "share of curves below, minus even (%)")
    low, high = panel.get_ylim()
    rows = -(-(1 + len(found)) // 2)
    panel.set_ylim(low, high + 0.1 * rows * (high - low))  # room for the legend
    panel.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)


@dataclasses.dataclass(frozen=True)
class Corner:
    """Samples of a joint posterior, drawn label by label and pair by pair."""

    samples: PosteriorPicture

    @functools.cached_property
    def values(self) -> Array:
        """[samples, p], in the parameters' units."""
        return np.asarray(self.samples.values)

    @functools.cached_property
    def figure(self) -> Figure:
        """Histograms on the diagonal; below it the joint regions of highest density of each pair and the samples."""
        count = len(self.samples.names)
        size = max(3.6, _CORNER_PANEL * count + 0.7)
        figure = new_figure(size, size + (0.35 if self.samples.title else 0.0))
        panels = figure.subplots(count, count, squeeze=False)
        for row, column in itertools.product(range(count), repeat=2):
            panel = panels[row, column]
            if column > row:
                panel.set_axis_off()
            elif column == row:
                self._draw_one(panel, row)
            else:
                self._draw_pair(panel, column, row)
            panel.label_outer()
            if row == count - 1:
                label = with_unit(self.samples.names[column], self.samples.units[column])
                panel.set_xlabel(label, parse_math=False)
            if column == 0 and row:
                label = with_unit(self.samples.names[row], self.samples.units[row])
                panel.set_ylabel(label, parse_math=False)
        why = ", ".join(self.samples.do_not_use)
        warning = textwrap.fill(f"DO NOT USE: {why}", int(9 * size)) if why else ""
        if title := "\n".join(filter(None, [self.samples.title, warning])):
            style = {"color": WARNING} if why else {}
            figure.suptitle(title, fontsize=11, fontweight="bold", x=0.02, ha="left", **style)
        if count > 1:
            self._draw_legend(panels[0, -1])
        figure.align_labels()
        return figure

    def _draw_legend(self, corner: Axes) -> None:
        """What the lines are, in a panel that is empty."""
        outer, inner = (f"{100 * share:.0f}" for share in _REGIONS)
        lines = [
            ("95 %, median above", MODEL, "--", 0.9),
            (f"regions of {inner} and {outer} %", INK, "-", 1.4),
        ]
        if self.samples.recommended:
            lines.append(("recommended value", SECOND, "-", 1.1))
        handles = [
            Line2D([], [], color=color, ls=style, lw=width, label=label)
            for label, color, style, width in lines
        ]
        legend = corner.legend(
            handles=handles, loc="upper right", borderaxespad=0.0, fontsize=8, frameon=False
        )
        legend.set_in_layout(False)

    @property
    def svg(self) -> str:
        """An `<svg>` element for a page."""
        named = ", ".join(self.samples.names)
        return inline_svg(self.figure, "corner", f"samples of the joint posterior of {named}")

    def _is_logarithmic(self, column: int) -> bool:
        values = self.values[:, column]
        return bool(self.samples.logarithmic[column]) and values.max() > _DECADE * values.min()

    def _scaled(self, column: int) -> Array:
        values = self.values[:, column]
        return np.log(values) if self._is_logarithmic(column) else values

    def _edges(self, column: int) -> Array:
        scaled = self._scaled(column)
        low, high = np.quantile(scaled, _SHOWN)
        margin = 0.1 * (high - low) or 1e-6 * (abs(high) or 1.0)
        edges = np.linspace(low - margin, high + margin, _BINS + 1)
        return np.exp(edges) if self._is_logarithmic(column) else edges

    def _draw_one(self, panel: Axes, column: int) -> None:
        edges = self._edges(column)
        counts, _ = np.histogram(self.values[:, column], edges)
        panel.stairs(counts, edges, fill=True, color=BAND, alpha=0.6, lw=0)
        panel.stairs(counts, edges, color=MODEL, lw=1.2)
        low, middle, high = np.quantile(self.values[:, column], [0.025, 0.5, 0.975])
        for place in (low, high):
            panel.axvline(place, color=MODEL, lw=0.9, ls="--")
        if (value := self.samples.recommended.get(self.samples.names[column])) is not None:
            panel.axvline(value, color=SECOND, lw=1.1)
        text = f"{format_value(middle, 3)}\n{format_value(low, 3)} … {format_value(high, 3)}"
        panel.set_title(text, fontsize=8)
        panel.set_ylim(bottom=0.0)
        finish(panel)
        self._fit_axis(panel.xaxis, column)
        panel.grid(False)
        panel.tick_params(left=False, labelleft=False)
        panel.spines["left"].set_visible(False)

    def _draw_pair(self, panel: Axes, x: int, y: int) -> None:
        edges = [self._edges(column) for column in (x, y)]
        counts, *_ = np.histogram2d(self.values[:, x], self.values[:, y], edges)
        density = scipy.ndimage.gaussian_filter(counts, _SMOOTHING)
        panel.plot(
            self.values[:, x],
            self.values[:, y],
            ".",
            ms=2,
            color=MODEL,
            alpha=0.25,
            mew=0,
            rasterized=True,
        )
        middles = [
            np.sqrt(e[1:] * e[:-1]) if self._is_logarithmic(c) else 0.5 * (e[1:] + e[:-1])
            for e, c in zip(edges, (x, y), strict=True)
        ]
        # Where a posterior leans on an end of a range, its region is open there.
        ordered = np.sort(density.ravel())[::-1]
        shares = np.cumsum(ordered) / ordered.sum()
        heights = [float(ordered[np.searchsorted(shares, share)]) for share in _REGIONS]
        if heights[0] < heights[1]:
            panel.contour(*middles, density.T, levels=heights, colors=INK, linewidths=(0.8, 1.4))
        for place, draw in ((x, panel.axvline), (y, panel.axhline)):
            if (value := self.samples.recommended.get(self.samples.names[place])) is not None:
                draw(value, color=SECOND, lw=1.0)
        finish(panel)
        self._fit_axis(panel.xaxis, x)
        self._fit_axis(panel.yaxis, y)

    def _fit_axis(self, axis: Axis, column: int) -> None:
        edges = self._edges(column)
        limits = {("xlim" if axis is axis.axes.xaxis else "ylim"): (edges[0], edges[-1])}
        axis.axes.set(**limits)
        if self._is_logarithmic(column):
            logarithmic(axis)
        else:
            axis.set_major_locator(MaxNLocator(3))
        axis.axes.tick_params(labelsize=8)


# --------------------------------------------------------------------------------------------------
# The pictures of a search: parallel coordinates, importance, the course, and one panel a hyper-parameter.


Rows = Sequence[TrialRow]
# _BEST_SHARE: share of the trials that is drawn in colour.
_BEST_SHARE = 0.1
# With fewer trials a picture says nothing.
_FEWEST = 2


def pictures(
    rows: Rows, names: Mapping[str, str], objective: str, direction: str = "min"
) -> dict[str, Any]:
    """Parallel coordinates, one slice a hyper-parameter, and the course; none where a picture would say nothing."""
    rows = [row for row in rows if row.value is not None]
    if len(rows) < _FEWEST:
        return {}
    shared = {"rows": rows, "objective": objective}
    ways = {**shared, "direction": direction}
    size = max(7.0, 1.35 * len(names) + 2.35), 4.4
    title = "parallel coordinates of all trials"
    return {
        "parallel": picture("parallel", title, draw_parallel, size, names=names, **ways),
        "course": picture("course", f"{objective} of each trial", draw_course, (7.0, 3.4), **ways),
        "slices": [
            picture(
                f"slice-{i}",
                f"{objective} over {name}",
                draw_slice,
                (3.1, 2.5),
                name=name,
                scale=scale,
                **shared,
            )
            for i, (name, scale) in enumerate(names.items())
        ],
    }


def importance(importances: Mapping[str, float]) -> Picture | None:
    """One bar a hyper-parameter: its share, largest on top."""
    if not importances:
        return None

    def draw(panel: Axes) -> None:
        places = bars(panel, list(importances), "share of what the hyper-parameters explain (%)")
        shares = [100 * share for share in importances.values()]
        panel.barh(places, shares, color=SECOND, height=0.62)

    height = 0.6 + 0.34 * len(importances)
    return Picture("importance", "importance of each hyper-parameter", draw, 7.0, height)


def draw_parallel(
    panel: Axes, rows: Rows, names: Mapping[str, str], objective: str, direction: str = "min"
) -> None:
    """One line a trial, one axis a hyper-parameter and one for the objective; the best tenth stands out.

    A line is dotted where it passes a hyper-parameter that does not exist for its trial.
    """
    order = sorted(rows, key=lambda row: cast(float, row.value), reverse=direction == "min")
    axes = [
        _Axis(name, [row.values.get(name) for row in rows], scale) for name, scale in names.items()
    ]
    axes.append(_Axis(objective, [cast(float, row.value) for row in rows], "log"))
    best = max(1, round(_BEST_SHARE * len(order)))
    for rank, row in enumerate(order):
        values = [*(row.values.get(name) for name in names), row.value]
        heights = np.array([axis.height(value) for axis, value in zip(axes, values, strict=True)])
        stands_out = rank >= len(order) - best
        color, width, place = (MODEL, 1.8, 3) if stands_out else (BAND, 0.9, 1)
        panel.plot(range(len(axes)), heights, color=color, lw=width, zorder=place)
        known = np.flatnonzero(np.isfinite(heights))
        panel.plot(known, heights[known], ":", color=color, lw=width, zorder=place)
    for place, axis in enumerate(axes):
        panel.axvline(place, color=INK, lw=0.8, zorder=2)
        for height, text in axis.ticks():
            panel.annotate(
                text, (place, height), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=7.5, color=INK, zorder=4,
                bbox={"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            )  # fmt: skip
    panel.set_xticks(range(len(axes)), [axis.name.replace(".", ".\n") for axis in axes], fontsize=8)
    panel.set_xlim(-0.15, len(axes) - 0.35)
    panel.set_ylim(-0.06, 1.06)
    panel.set_yticks([])
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, colors=INK)


def draw_course(panel: Axes, rows: Rows, objective: str, direction: str = "min") -> None:
    """The objective of each trial in the order of their start, and the best so far."""
    ended = [(int(row.trial), cast(float, row.value), row.state) for row in rows]
    for state, color, marker in (("done", MEASURED, "o"), ("stopped", BAND, "x")):
        points = [(number, value) for number, value, of in ended if of == state]
        if points:
            panel.plot(*zip(*points, strict=True), marker, ms=4.5, color=color, label=state)
    best = (np.maximum if direction == "max" else np.minimum).accumulate(
        [value for _, value, _ in ended]
    )
    panel.step(
        [n for n, _, _ in ended], best, where="post", color=MODEL, lw=1.6, label="best so far"
    )
    log = "y" if min(value for _, value, _ in ended) > 0 else ""
    finish(panel, "trial", objective, log)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(frameon=False)


def draw_slice(panel: Axes, rows: Rows, name: str, scale: str, objective: str) -> None:
    """The objective over the value of one hyper-parameter."""
    axis = _Axis(name, [row.values.get(name) for row in rows], scale)
    for state, color in (("stopped", BAND), ("done", SECOND)):
        chosen = [row for row in rows if row.state == state and row.values.get(name) is not None]
        panel.plot(
            [axis.place(row.values[name]) for row in chosen], [cast(float, row.value) for row in chosen],
            "o", ms=3.5, color=color, alpha=0.85,
        )  # fmt: skip
    finish(panel, ylabel=objective)
    if axis.words:
        panel.set_xticks(range(len(axis.words)), axis.words, fontsize=8)
        panel.set_xlim(-0.5, len(axis.words) - 0.5)
    elif axis.log:
        logarithmic(panel.xaxis)
    objectives = [cast(float, row.value) for row in rows]
    # One scale for all panels.
    if min(objectives) > 0:
        panel.set_ylim(min(objectives) / 1.2, max(objectives) * 1.2)
        logarithmic(panel.yaxis)
    panel.set_xlabel(name, fontsize=9, parse_math=False)


class _Axis:
    """One column: numbers, linear or logarithmic, or words."""

    def __init__(self, name: str, values: Sequence[Any], scale: str):
        self.name = name
        known = [value for value in values if value is not None]
        numbers = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in known
        )
        self.words = [] if numbers and known else sorted({str(value) for value in known})
        self.low: float = min(known) if numbers and known else 0.0
        self.high: float = max(known) if numbers and known else 1.0
        self.log = bool(numbers and known) and self.low > 0 and scale == "log"

    def place(self, value: Any) -> float:
        """A value's place on a panel's x axis."""
        return float(self.words.index(str(value)) if self.words else value)

    def height(self, value: Any) -> float:
        """A value's place on a parallel axis, 0 to 1; not a number where it does not exist: the line is broken."""
        if value is None:
            return np.nan
        if self.words:
            return self.place(value) / max(1, len(self.words) - 1)
        if self.low == self.high:
            return 0.5
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return float((value - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        """(height, text) of the labels of a parallel axis."""
        if self.words:
            return [(self.height(word), word) for word in self.words]
        if self.low == self.high:
            return [(0.5, value_cell(self.low))]
        middle = (self.low * self.high) ** 0.5 if self.log else (self.low + self.high) / 2
        values = [self.low, middle, self.high]
        if isinstance(self.low, int) and self.high - self.low < 2:
            values = [self.low, self.high]
        return [(self.height(value), format_value(float(value), 3)) for value in values]

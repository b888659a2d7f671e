"""The pictures: a curve with its answers, losses over time and epochs; and what all pictures share.

Object-oriented Matplotlib on Agg: no window, no global state, safe in threads.
"""

import dataclasses
import io
import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from tfmat.files import atomic_write
from tfmat.report.formatting import format_power, format_unit, format_value

Array = NDArray[np.floating]

INK, GRID, MEASURED, MODEL, SECOND = "#1f2933", "#dde3ea", "#52606d", "#c2410c", "#1d4ed8"
WARNING = "#b91c1c"
# Behind the data, such as the error that no method can avoid.
BAND = "#9fb3c8"
# Of a curve, so that the title stays inside the picture.
MAX_NAME = 50


def save_figure(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a PNG, whole or not at all; raises InputError where it cannot be written."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=144)
    with atomic_write(path) as file:
        file.write(image.getvalue())


def curve_figure(
    strain: Array,
    stress_mpa: Array,
    resimulated_mpa: Array | None,
    *,
    name: str,
    law_title: str,
    parameters: Mapping[str, tuple[float, str]],
    rmse_percent: float | None,
    refined: Mapping[str, Any] | None = None,
    intervals: Mapping[str, tuple[float, float] | None] | None = None,
    recommended: str = "network",
    do_not_use: Sequence[str] = (),
    assumed: Sequence[str] = (),
    strain_label: str = "strain",
    stress_label: str = "stress",
    width: float = 7.0,
) -> Figure:
    """Measured points and the law's curve with the recommended parameters, bold; residuals below.

    The scale is that of the measured points and the recommended curve, so that a poor other curve hides nothing.

    Args:
      strain: [points], -; stress_mpa: [points], MPa.
      resimulated_mpa: [points], MPa, with the network's parameters; None where no network answered.
      parameters: name -> (recommended value, unit), told below; intervals: name -> its 95 % interval, where known.
      rmse_percent: root mean square residual of the network's curve over the maximum stress, %.
      refined: the other answer: `name` (what it is called), `stress_mpa` [points], `rmse_percent`; or None.
      recommended: `network`, or the name of the refined answer: the one that is drawn bold.
      do_not_use: why the answer must not be used; stands above all.
      assumed: what was assumed of the file.
      width: of the picture, inches.
    """
    curves = []
    if resimulated_mpa is not None:
        curves.append(_Curve("network", resimulated_mpa, rmse_percent))
    if refined is not None:
        curves.append(_Curve(refined["name"], refined["stress_mpa"], refined["rmse_percent"]))
    # The recommended one first; it is the last to be drawn.
    curves.sort(key=lambda curve: curve.name != recommended)
    answer = _answer(parameters, intervals or {}, assumed)
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
    legend = figure.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="outside lower left",
        title=answer or None,
        alignment="left",
        frameon=False,
    )
    legend.get_title().set_fontweight("bold")
    name = name if len(name) <= MAX_NAME else f"…{name[1 - MAX_NAME :]}"
    title = f"{name}: {law_title}" if law_title else name
    top.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    if do_not_use:
        text = textwrap.fill(f"DO NOT USE: {', '.join(do_not_use)}", int(11 * width))
        figure.suptitle(text, color=WARNING, fontsize=11, fontweight="bold")
    top.set_ylabel(f"{stress_label} (MPa)")
    figure.axes[-1].set_xlabel(f"{strain_label} (–)")
    figure.axes[-1].set_xlim(left=0.0)
    figure.align_ylabels()
    return figure


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


def loss_figure(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """Training and validation loss, on the left over time, on the right over epochs.

    Args:
      metrics: the lines of `metrics.jsonl`: `seconds`, `epoch`, `loss`, `val_loss` (each may be missing in a line).
    """
    figure = new_figure(9.0, 4.0)
    by_time, by_epoch = figure.subplots(1, 2, sharey=True)
    draw_losses(by_time, metrics, over="seconds")
    draw_losses(by_epoch, metrics, over="epoch")
    by_epoch.set_ylabel("")
    return figure


def draw_losses(panel: Axes, metrics: Sequence[Mapping[str, Any]], over: str) -> None:
    """Training and validation loss over `seconds` or `epoch`, as `loss_figure` says."""
    label, divisor = "epoch", 1.0
    if over == "seconds":
        longest = max((float(line.get("seconds") or 0.0) for line in metrics), default=0.0)
        scales = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
        unit, divisor = next((scale for scale in scales if longest >= 2 * scale[1]), scales[-1])
        label = f"training time ({unit})"
    for quantity, name, color in (
        ("loss", "training", MEASURED),
        ("val_loss", "validation", MODEL),
    ):
        points = _points(metrics, over, quantity)
        if len(points):
            marker = "o" if len(points) < 60 else ""
            x, y = points[:, 0] / divisor, points[:, 1]
            panel.plot(x, y, marker=marker, ms=3.5, lw=1.5, color=color, label=name)
    panel.set_xlim(left=0.0)
    finish(panel)
    logarithmic(panel.yaxis)
    panel.set_xlabel(label)
    panel.set_ylabel("mean squared error of scaled labels (–)")
    if over == "epoch":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.lines:
        panel.legend(frameon=False)


def _answer(
    parameters: Mapping[str, tuple[float, str]],
    intervals: Mapping[str, tuple[float, float] | None],
    assumed: Sequence[str],
) -> str:
    """The text of the answer, one parameter a line."""
    lines = []
    for name, (value, unit) in parameters.items():
        line = f"{name} = {format_value(value)} {format_unit(unit)}".rstrip()
        if (ends := intervals.get(name)) is not None:
            line += f"   (95 %: {format_value(ends[0])} … {format_value(ends[1])})"
        lines.append(line)
    return "\n".join([*lines, *([f"assumed: {', '.join(assumed)}"] if assumed else [])])


def _draw_curve(panel: Axes, strain: Array, stress_mpa: Array, curves: Sequence[_Curve]) -> None:
    """Measured points and the curves, the first of which is bold and sets the scale."""
    size = 4.0 if len(strain) < 400 else 2.0
    marks: dict[str, Any] = {"ms": size, "mfc": "none", "mec": MEASURED, "mew": 0.8}
    panel.plot(strain, stress_mpa, "o", label="measured", **marks)
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
    panel.set_ylabel("residual (MPa)")
    finish(panel)


def _points(metrics: Sequence[Mapping[str, Any]], key: str, quantity: str) -> Array:
    """[lines, 2]: (key, quantity) of the lines that hold both, the quantity positive (it stands on a log axis)."""
    pairs = [(line.get(key), line.get(quantity)) for line in metrics]
    return np.array(
        [(x, y) for x, y in pairs if x is not None and y is not None and 0 < y < np.inf], float
    )


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


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


def finish(panel: Axes) -> None:
    """Light grid behind the data, no box."""
    panel.grid(True, color=GRID, lw=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK)

"""The pictures: a curve with its answer, predicted against true, losses over time and epochs.

Object-oriented Matplotlib on Agg: no window, no global state, safe in threads.
"""

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tfmat.files import atomic_write
from tfmat.report.formatting import format_unit, format_value, with_unit

Array = NDArray[np.floating]

INK, GRID, MEASURED, MODEL, SECOND = "#1f2933", "#dde3ea", "#52606d", "#c2410c", "#1d4ed8"
# More scattered points than this only make a picture slow and black.
MAX_SCATTER = 5000
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
    strain_label: str = "strain",
    stress_label: str = "stress",
) -> Figure:
    """Measured points and the law's curve with the identified parameters, residuals below.

    Args:
      strain: [points], -; stress_mpa, resimulated_mpa: [points], MPa (re-simulated None: measured points only).
      parameters: name -> (value, unit), written into the picture.
      rmse_percent: root mean square residual over the maximum stress, %.
    """
    figure = new_figure(7.0, 5.6 if resimulated_mpa is not None else 4.4)
    if resimulated_mpa is None:
        top = figure.subplots()
    else:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
        _draw_residuals(bottom, strain, stress_mpa - resimulated_mpa)
    _draw_curve(top, strain, stress_mpa, resimulated_mpa)
    # Curves rise from the lower left to the upper right: only the lower right corner is always free.
    legend = top.legend(
        loc="lower right", title=_answer(parameters, rmse_percent), alignment="left", framealpha=1.0
    )
    legend.get_frame().set(edgecolor=GRID)
    name = name if len(name) <= MAX_NAME else f"…{name[1 - MAX_NAME :]}"
    title = f"{name}: {law_title}" if law_title else name
    top.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    top.set_ylabel(f"{stress_label} (MPa)")
    figure.axes[-1].set_xlabel(f"{strain_label} (–)")
    figure.axes[-1].set_xlim(left=0.0)
    figure.align_ylabels()
    return figure


def predicted_against_true_figure(
    parameters: Sequence[tuple[str, str, str]], true_values: Array, predicted_values: Array
) -> Figure:
    """One panel a parameter: identified over true value, with the line where they are equal.

    Args:
      parameters: (name, unit, scale: `linear` or `log`) of each.
      true_values, predicted_values: [curves, parameters], in their units.
    """
    columns = 2 if len(parameters) == 4 else min(len(parameters), 3)
    rows = -(-len(parameters) // columns)
    figure = new_figure(4.0 * columns + 0.4, 4.0 * rows)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for panel in panels[len(parameters) :]:
        panel.set_visible(False)
    for i, (name, unit, scale) in enumerate(parameters):
        true, predicted = true_values[:MAX_SCATTER, i], predicted_values[:MAX_SCATTER, i]
        _draw_predicted(panels[i], true, predicted, with_unit(name, unit), scale == "log")
    return figure


def loss_figure(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """Training and validation loss, on the left over time, on the right over epochs.

    Args:
      metrics: the lines of `metrics.jsonl`: `seconds`, `epoch`, `loss`, `val_loss` (each may be missing in a line).
    """
    figure = new_figure(9.0, 4.0)
    by_time, by_epoch = figure.subplots(1, 2, sharey=True)
    longest = max((float(line.get("seconds") or 0.0) for line in metrics), default=0.0)
    scales = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
    unit, seconds = next((scale for scale in scales if longest >= 2 * scale[1]), scales[-1])
    for panel, key, divisor in ((by_time, "seconds", seconds), (by_epoch, "epoch", 1.0)):
        for quantity, label, color in (
            ("loss", "training", MEASURED),
            ("val_loss", "validation", MODEL),
        ):
            points = _points(metrics, key, quantity)
            if len(points):
                marker = "o" if len(points) < 60 else ""
                panel.plot(
                    points[:, 0] / divisor,
                    points[:, 1],
                    marker=marker,
                    ms=3.5,
                    lw=1.5,
                    color=color,
                    label=label,
                )
        panel.set_yscale("log")
        panel.set_xlim(left=0.0)
        finish(panel)
        panel.grid(True, which="minor", axis="y", color=GRID, lw=0.4)
    by_time.set_xlabel(f"training time ({unit})")
    by_epoch.set_xlabel("epoch")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_time.set_ylabel("mean squared error of scaled labels (–)")
    if by_time.lines or by_epoch.lines:
        (by_epoch if by_epoch.lines else by_time).legend(frameon=False)
    return figure


def _answer(parameters: Mapping[str, tuple[float, str]], rmse_percent: float | None) -> str:
    """The text of the answer, one parameter a line."""
    lines = [
        f"{name} = {format_value(value)} {format_unit(unit)}".rstrip()
        for name, (value, unit) in parameters.items()
    ]
    if rmse_percent is not None:
        lines.append(f"RMSE = {format_value(rmse_percent, 3)} % of maximum stress")
    return "\n".join(lines)


def _draw_curve(
    panel: Axes, strain: Array, stress_mpa: Array, resimulated_mpa: Array | None
) -> None:
    size = 4.0 if len(strain) < 400 else 2.0
    marks: dict[str, Any] = {"ms": size, "mfc": "none", "mec": MEASURED, "mew": 0.8}
    panel.plot(strain, stress_mpa, "o", label="measured", **marks)
    highest = float(stress_mpa.max())
    if resimulated_mpa is not None:
        panel.plot(strain, resimulated_mpa, "-", color=MODEL, lw=1.8, label="re-simulated")
        highest = max(highest, float(resimulated_mpa.max()))
    panel.set_ylim(bottom=min(0.0, float(stress_mpa.min())), top=1.06 * highest)
    finish(panel)


def _draw_residuals(panel: Axes, strain: Array, residual: Array) -> None:
    panel.axhline(0.0, color=MODEL, lw=1.2)
    panel.plot(
        strain,
        residual,
        "o",
        ms=2.5 if len(strain) < 400 else 1.5,
        mfc="none",
        mec=MEASURED,
        mew=0.7,
    )
    limit = 1.15 * float(np.abs(residual).max()) or 1.0
    panel.set_ylim(-limit, limit)
    panel.set_ylabel("residual (MPa)")
    finish(panel)


def _draw_predicted(
    panel: Axes, true: Array, predicted: Array, label: str, logarithmic: bool
) -> None:
    low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
    margin = 0.04 * (np.log(high / low) if logarithmic else high - low) or 0.5
    limits = (
        (low * np.exp(-margin), high * np.exp(margin))
        if logarithmic
        else (low - margin, high + margin)
    )
    if logarithmic:
        panel.set_xscale("log")
        panel.set_yscale("log")
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.plot(true, predicted, ".", ms=3, color=SECOND, alpha=0.25, mew=0, rasterized=True)
    panel.plot(limits, limits, "-", color=INK, lw=0.9)
    panel.set_xlim(limits)
    panel.set_ylim(limits)
    panel.set_box_aspect(1)
    panel.set_xlabel(f"true {label}")
    panel.set_ylabel(f"identified {label}")
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


def finish(panel: Axes) -> None:
    """Light grid behind the data, no box."""
    panel.grid(True, color=GRID, lw=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=INK)

"""The pictures of this room: noise scale, range test, batch sweep, learning curve."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfmat.large_batch.noise_scale import NoiseScale
from tfmat.large_batch.power_laws import PowerLaw
from tfmat.report.drawing import (
    BAND,
    COLOURS,
    INK,
    MARKERS,
    MEASURED,
    MODEL,
    MOST_SERIES,
    SECOND,
    finish,
    legend_below,
    logarithmic,
    new_figure,
    save_figure,
    worker_axis,
)


def save_png_and_svg(figure: Figure, stem: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes STEM.png and STEM.svg, each whole or not at all."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    save_figure(figure, png)
    save_figure(figure, svg)
    return png, svg


def noise_figure(points: Sequence[tuple[int, float, NoiseScale]], batch_size: int) -> Figure:
    """Left: the noise scale over epochs with its band; right: what it predicts for other batches.

    Args:
      points: (step, epoch, noise scale), rising.
      batch_size: of the run.
    """
    figure = new_figure(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    epochs = np.array([epoch for _, epoch, _ in points])
    value, low, high = (
        np.array([getattr(scale, name) for _, _, scale in points])
        for name in ("value", "low", "high")
    )
    known = np.isfinite(value)
    top = np.where(np.isfinite(high), high, 3 * np.where(known, value, low))
    errors = [np.maximum(value - low, 0)[known], np.maximum(top - value, 0)[known]]
    style: Any = {"fmt": "o-", "ms": 4, "lw": 1.5, "capsize": 3, "color": MODEL}
    left.errorbar(epochs[known], value[known], errors, label="noise scale, 90 % band", **style)
    left.axhline(
        batch_size, color=MEASURED, lw=1.2, ls="--", label=f"batch of the run, {batch_size}"
    )
    left.set_ylim(0.5 * min([batch_size, *low]), 2.0 * max([batch_size, *top[known]]))
    finish(left)
    logarithmic(left.yaxis)
    left.set_xlabel("epoch")
    left.set_ylabel("examples")
    left.legend(frameon=False, loc="best")
    left.set_title("gradient noise scale", loc="left", fontsize=11, fontweight="bold")
    _draw_trade_off(right, points[-1][2], batch_size)
    return figure


def _draw_trade_off(panel: Axes, scale: NoiseScale, batch_size: int) -> None:
    """Steps and examples over batch, each relative to its smallest (McCandlish et al. 2018, eq. 2.11 and 2.12)."""
    panel.set_title("predicted for other batches", loc="left", fontsize=11, fontweight="bold")
    panel.set_xlabel("batch (examples)")
    panel.set_ylabel("times the fewest possible")
    if np.isfinite(scale.value) and scale.value > 0:
        ends = min(batch_size, scale.value / 20), max(batch_size, 20 * scale.value)
        batches = np.geomspace(*ends, 200)
        panel.plot(batches, 1 + scale.value / batches, color=MODEL, label="steps")
        panel.plot(batches, 1 + batches / scale.value, color=SECOND, label="examples")
        if np.isfinite(scale.high):
            panel.axvspan(scale.low, scale.high, color=BAND, alpha=0.35, lw=0)
        panel.axvline(scale.value, color=INK, lw=0.8)
        panel.axvline(batch_size, color=MEASURED, lw=1.2, ls="--", label="batch of the run")
        panel.set_ylim(1, 20)
        finish(panel)
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)
        panel.legend(frameon=False)
    else:
        finish(panel)
        panel.text(0.5, 0.5, "|G|² not measurable", transform=panel.transAxes, ha="center")


def range_figure(
    tests: Mapping[int, pd.DataFrame], marks: Mapping[int, Mapping[str, float]]
) -> Figure:
    """Smoothed loss over learning rate, a line a batch, the suggested rate marked.

    Args:
      tests: batch -> table with columns `learning_rate`, `smoothed_loss`.
      marks: batch -> `suggested`, a rate.
    """
    figure = new_figure(7.0, 4.2)
    panel = figure.subplots()
    colors = _colors(len(tests))
    lowest = min(float(table.smoothed_loss.min()) for table in tests.values())
    start = max(float(table.smoothed_loss.iloc[0]) for table in tests.values())
    for (batch, table), color in zip(sorted(tests.items()), colors, strict=True):
        panel.plot(
            table.learning_rate, table.smoothed_loss, lw=1.6, color=color, label=f"batch {batch}"
        )
        rate = marks[batch]["suggested"]
        at = float(np.interp(np.log(rate), np.log(table.learning_rate), table.smoothed_loss))
        panel.plot([rate], [at], "o", ms=7, mfc="none", mec=color, mew=1.6)
    panel.set_ylim(0.8 * lowest, 2.0 * start)
    finish(panel)
    logarithmic(panel.xaxis)
    logarithmic(panel.yaxis)
    panel.set_xlabel("learning rate")
    panel.set_ylabel("training loss, smoothed")
    panel.legend(frameon=False, title="circle: suggested", alignment="left")
    return figure


def sweep_figure(table: pd.DataFrame, equal: str) -> Figure:
    """Four panels over batch: time an epoch, curves a second, processor use, validation loss.

    Args:
      table: rows as in batch_sweep.csv.
      equal: how long the runs of equal time were, for the legend.
    """
    figure = new_figure(10.0, 7.0)
    panels = figure.subplots(2, 2)
    runs = table[table.state == "done"]
    epochs = runs[runs.kind == "epochs"].sort_values("batch")
    for panel, column, label in (
        (panels[0, 0], "seconds_an_epoch", "training time of an epoch (s)"),
        (panels[0, 1], "curves_per_second", "curves/s"),
        (panels[1, 0], "processor_use", "processors in use (%)"),
    ):
        values = epochs[column] * (100 if column == "processor_use" else 1)
        panel.plot(epochs.batch, values, "o-", ms=4, color=MODEL)
        panel.set_ylim(bottom=0, top=1.15 * max(values, default=1.0))
        panel.set_ylabel(label)
    panel = panels[1, 1]
    for kind, color, label in (
        ("epochs", MODEL, "equal epochs"),
        ("time", SECOND, f"equal time, {equal}"),
    ):
        part = runs[runs.kind == kind].sort_values("batch")
        panel.plot(part.batch, part.val_loss, "o-", ms=4, color=color, label=label)
    panel.set_ylabel("validation loss")
    panel.legend(frameon=False)
    for panel in panels.flat:
        finish(panel)
        worker_axis(panel.xaxis, sorted(runs.batch.unique()))
        panel.set_xlabel("global batch")
    if len(runs):
        logarithmic(panels[1, 1].yaxis)
    return figure


def learning_figure(
    points: Sequence[Mapping[str, Any]],
    laws: Mapping[str, PowerLaw],
    quantity: str,
    wanted: float,
) -> Figure:
    """A panel a parameter: the errors of the runs over their training curves, and the fit with its interval.

    Args:
      points: of learning_curve.json.
      laws: parameter -> its fit.
      quantity: what the errors are.
      wanted: error that is asked for.
    """
    figure = new_figure(5.0 * len(laws), 4.4)
    panels = figure.subplots(1, len(laws), squeeze=False)[0]
    networks = sorted({point["parameters"] for point in points})
    most = max(point["curves"] for point in points)
    curves = np.geomspace(min(point["curves"] for point in points), 10 * most, 60)
    for panel, (name, law) in zip(panels, laws.items(), strict=True):
        for i, parameters in enumerate(networks):
            own = [point for point in points if point["parameters"] == parameters]
            look = {"color": COLOURS[i % MOST_SERIES], "marker": MARKERS[i % MOST_SERIES]}
            x, y = ([point["curves"] for point in own], [point["errors"][name] for point in own])
            panel.plot(x, y, ls="", ms=5, label=f"{parameters:,} parameters", **look)
            found = [law.error(count, parameters) for count in curves]
            panel.plot(curves, [each.value for each in found], lw=1.4, color=look["color"])
            low, high = ([getattr(each, end) for each in found] for end in ("low", "high"))
            panel.fill_between(curves, low, high, color=look["color"], alpha=0.15, lw=0)
        panel.axhline(wanted, color=INK, lw=0.9, ls=":", label=f"wanted: {wanted:g}")
        panel.axvline(most, color=MEASURED, lw=0.9, ls="--", label="beyond: predicted")
        finish(panel)
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)
        panel.set_xlabel("training curves")
        panel.set_ylabel(quantity)
        panel.set_title(name, loc="left", fontsize=11, fontweight="bold")
    legend_below(panels[0])
    return figure


def _colors(count: int) -> list[Any]:
    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, max(count, 1))))

"""What a landscape becomes for people: pictures, tables in CSV and as text."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from tfmat.files import make_folder, spreadsheet_text, write_text
from tfmat.large_batch.figures import save_png_and_svg
from tfmat.report.drawing import (
    COLOURS,
    MEASURED,
    MODEL,
    SECOND,
    finish,
    logarithmic,
    new_figure,
    worker_axis,
)

_LEVELS = 24
_NAMES = {"train": "training curves", "test": "test curves"}

COLUMNS = (
    "run", "batch", "train_loss", "train_error", "test_loss", "test_error", "eigenvalue",
    "eigenvalue_error", "trace", "trace_error", "sharpness", "sharpness_error", "adaptive_sharpness",
    "adaptive_sharpness_error", "gradient_norm",
)  # fmt: skip


def surface_table(content: Mapping[str, Any]) -> pd.DataFrame:
    """A row a point: x, y, and the loss with its standard error on both parts of the data."""
    x, y = np.meshgrid(content["x"], content["y"])
    columns: dict[str, Any] = {"x": x.ravel(), "y": y.ravel()}
    for part in _NAMES:
        columns[f"{part}_loss"] = np.ravel(content["loss"][part])
        columns[f"{part}_error"] = np.ravel(content["error"][part])
    return pd.DataFrame(columns)


def comparison_table(contents: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row a run, by batch, with the columns COLUMNS: losses and curvature at the minimum.

    Errors of losses are standard errors, those of the others half the width of 95 % intervals.
    """
    rows = []
    for content in contents:
        settings, curvature = content["settings"], content.get("curvature", {})
        row: dict[str, Any] = {
            "run": pathlib.Path(settings["runs"][0]).name,
            "batch": settings["global_batch_sizes"][0],
            "gradient_norm": curvature.get("gradient_norm"),
        }
        for part in _NAMES:
            j, i = origin(content)
            row[f"{part}_loss"] = content["loss"][part][j][i]
            row[f"{part}_error"] = content["error"][part][j][i]
        found = {name: curvature.get(name) for name in ("trace", "sharpness", "adaptive_sharpness")}
        found["eigenvalue"] = curvature.get("eigenvalues", [None])[0]
        for name, estimate in found.items():
            row[name] = estimate["value"] if estimate else None
            row[f"{name}_error"] = estimate["error"] if estimate else None
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).sort_values("batch", kind="stable")


def origin(content: Mapping[str, Any]) -> tuple[int, int]:
    """Row and column of the point x = y = 0, which is the (first) run's minimum."""
    j, i = (int(np.argmin(np.abs(content[axis]))) for axis in ("y", "x"))
    return j, i


def write_results(content: Mapping[str, Any], file: pathlib.Path) -> list[pathlib.Path]:
    """Writes the table and the pictures beside landscape.json: FILE.csv, figures/FILE.png and .svg."""
    table = file.with_suffix(".csv")
    write_text(table, spreadsheet_text(surface_table(content)))
    stem = make_folder(file.parent / "figures") / file.stem
    return [table, *save_png_and_svg(landscape_figure(content), stem)]


def write_comparison(
    contents: Sequence[Mapping[str, Any]], folder: pathlib.Path
) -> list[pathlib.Path]:
    """Writes landscapes.csv, .png and .svg of several runs."""
    table, stem = comparison_table(contents), make_folder(folder) / "landscapes"
    write_text(stem.with_suffix(".csv"), spreadsheet_text(table))
    figure = comparison_figure(contents, table)
    return [stem.with_suffix(".csv"), *save_png_and_svg(figure, stem)]


def landscape_figure(content: Mapping[str, Any]) -> Figure:
    """A line each of training and test curves, or, in two dimensions, contours of both side by side."""
    if len(content["y"]) == 1:
        figure = new_figure(6.4, 4.2)
        panel = figure.subplots()
        for part, colour in zip(_NAMES, (MODEL, SECOND), strict=True):
            panel.plot(
                content["x"], content["loss"][part][0], "o-", ms=3, color=colour, label=_NAMES[part]
            )
        finish(panel)
        _mark(panel, content)
        _logarithmic_if_positive(panel, content)
        panel.set_ylabel("loss")
        panel.legend(frameon=False)
        return figure
    figure = new_figure(10.4, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    values = np.array([content["loss"][part] for part in _NAMES])
    low, high = float(values.min()), float(values.max())
    norm: Normalize
    if low > 0:
        levels, norm = np.geomspace(low, high, _LEVELS), LogNorm(low, high)
    else:
        levels, norm = np.linspace(low, high, _LEVELS), Normalize(low, high)
    for panel, part, loss in zip(panels, _NAMES, values, strict=True):
        filled = panel.contourf(
            content["x"], content["y"], loss, levels, norm=norm, cmap="viridis", extend="both"
        )
        panel.contour(
            content["x"], content["y"], loss, levels[::3], colors="white", linewidths=0.6, alpha=0.7
        )
        _mark(panel, content)
        panel.set_title(_NAMES[part], loc="left", fontsize=11, fontweight="bold")
    panels[0].set_ylabel("second direction")
    ticks = levels[:: (_LEVELS - 1) // 4]
    bar = figure.colorbar(filled, ax=panels, label="loss", ticks=ticks, format="%.2g")
    bar.ax.minorticks_off()
    return figure


def comparison_figure(contents: Sequence[Mapping[str, Any]], table: pd.DataFrame) -> Figure:
    """Left: cuts through all minima; right: the largest eigenvalue over the batch, where it was measured."""
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2)
    order = sorted(contents, key=lambda content: content["settings"]["global_batch_sizes"][0])
    for k, content in enumerate(order):
        colour, (row, _) = COLOURS[k % len(COLOURS)], origin(content)
        name = pathlib.Path(content["settings"]["runs"][0]).name
        loss = content["loss"]
        left.plot(content["x"], loss["train"][row], color=colour, lw=1.6, label=name)
        left.plot(content["x"], loss["test"][row], color=colour, lw=1.2, ls="--")
    finish(left)
    if all(np.min(content["loss"][part]) > 0 for content in contents for part in _NAMES):
        logarithmic(left.yaxis)
    left.set_xlabel("along a filter-normalised direction")
    left.set_ylabel("loss: training (solid), test (dashed)")
    left.legend(frameon=False, fontsize=8)
    known = table[table.eigenvalue.notna()]
    right.errorbar(
        known.batch,
        known.eigenvalue,
        known.eigenvalue_error,
        fmt="o-",
        ms=4,
        color=MODEL,
        capsize=3,
    )
    finish(right)
    worker_axis(right.xaxis, sorted(table.batch.unique()))
    if (known.eigenvalue > 0).all():
        right.set_ylim(0, 1.25 * float(max(known.eigenvalue, default=1.0)))
    right.set_xlabel("global batch")
    right.set_ylabel("largest eigenvalue of the Hessian")
    return figure


def _mark(panel: Axes, content: Mapping[str, Any]) -> None:
    """The minima, and what the first axis is."""
    between = content["settings"]["kind"] == "between"
    names = [pathlib.Path(run).name for run in content["settings"]["runs"]]
    flat = len(content["y"]) == 1
    for x, name in zip((0.0, 1.0), names, strict=False):
        if flat:
            panel.axvline(x, color=MEASURED, lw=1.0, ls="--")
        else:
            panel.plot(
                [x], [0.0], "P", ms=8, mfc="white", mec="black", label=name, ls="none", mew=0.8
            )
    if between:
        panel.set_xlabel(f"from {names[0]} (0) to {names[1]} (1)")
    else:
        panel.set_xlabel("along a filter-normalised direction; 0: the minimum")


def _logarithmic_if_positive(panel: Axes, content: Mapping[str, Any]) -> None:
    if all(np.min(content["loss"][part]) > 0 for part in _NAMES):
        logarithmic(panel.yaxis)


def describe_landscape(content: Mapping[str, Any]) -> str:
    """What was found, as text: losses at the minimum, curvature with its intervals, the barrier between two minima."""
    settings, loss, (j, i) = content["settings"], content["loss"], origin(content)
    lines = []
    if settings["kind"] == "between":
        last = int(np.argmin(np.abs(np.subtract(content["x"], 1.0))))
        for part, name in _NAMES.items():
            line = loss[part][j]
            between = line[i : last + 1]
            lines.append(
                f"{name}: {line[i]:.4g} and {line[last]:.4g} at the minima, at most {max(between):.4g} on the straight "
                f"line between them"
            )
        return "\n".join(lines)
    error = content["error"]
    lines += [
        f"loss at the minimum, {content['curves'][part]:,} {name}: {loss[part][j][i]:.4g} ± {error[part][j][i]:.2g}"
        for part, name in _NAMES.items()
    ]
    found = content.get("curvature")
    if found:
        shown = ", ".join(f"{e['value']:.4g} ± {e['error']:.2g}" for e in found["eigenvalues"])
        radius, relative = _with_error(found["sharpness"]), _with_error(found["adaptive_sharpness"])
        lines += [
            f"largest eigenvalues of the Hessian (95 %): {shown}",
            f"its trace: {_with_error(found['trace'])}",
            f"the loss rises within ρ = {settings['sam_rho']:g} by {radius}; relative to the filters by {relative}",
        ]
    return "\n".join(lines)


def _with_error(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:.4g} ± {estimate['error']:.2g}"

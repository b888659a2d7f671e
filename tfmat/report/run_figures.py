"""The pictures of a run, panel by panel: its accuracy, its error bars, which curves are hard, its losses."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tfmat.report.drawing import (
    BAND,
    INK,
    MEASURED,
    MODEL,
    SECOND,
    Array,
    Picture,
    finish,
    logarithmic,
    picture,
)
from tfmat.report.formatting import BIN_TITLES, with_unit
from tfmat.report.posterior_figures import uniformity
from tfmat.report.run_files import RunFiles
from tfmat.report.run_numbers import ParameterAnswers, equal_bins, error_bins, parameter_answers

# More scattered points than this only make a picture slow and black.
MAX_SCATTER = 5000
# Bins of true values, in each of which the errors' limits are drawn, and the fewest curves in each.
_BINS, _FEWEST = 10, 20
_TWO_SIDED_95 = 1.96
_LINES = (
    ("network_mse", "network", MODEL, "o", "-"),
    ("least_squares_mse", "least squares", SECOND, "s", "-"),
    ("bayes_risk", "best possible (Bayes risk)", INK, "", "--"),
)

Rows = list[list[Picture]]


def predicted_against_true(answers: Sequence[ParameterAnswers]) -> Rows:
    """One row a parameter: identified over true value with the line where they are equal; the error over it."""
    rows = []
    for i, each in enumerate(answers):
        compared, error = f"identified against true {each.name}", f"error of {each.name}"
        rows.append(
            [
                picture(f"predicted-{i}", compared, draw_predicted, answers=each),
                picture(f"error-{i}", f"{error} over its true value", draw_errors, answers=each),
            ]
        )
    return rows


def kinds_of_curves(bins: Mapping[str, Sequence[Mapping[str, Any]]]) -> Rows:
    """One row a parameter, one column a quantity that curves are binned by: mean squared errors of scaled labels.

    With a single quantity two parameters share a row, as a picture alone would take its whole width.

    Args:
      bins: quantity of `BIN_TITLES` -> its bins, as in the reference of evaluation.json; of the errors only the
        network's must be there.
    """
    if not bins:
        return []
    size = (3.3, 2.9) if len(bins) > 2 else (4.3, 3.3)
    rows = []
    for i, name in enumerate(next(iter(bins.values()))[0]["parameters"]):
        row = []
        for j, (quantity, entries) in enumerate(bins.items()):
            text = f"mean squared error of {name} over {BIN_TITLES[quantity]}"
            data = {"bins": entries, "quantity": quantity, "name": name, "legend": j == 0}
            row.append(Picture(f"kind-{i}-{j}", text, functools.partial(draw_bins, **data), *size))
        rows.append(row)
    if len(bins) == 1:
        return [
            [picture for row in rows[i : i + 2] for picture in row] for i in range(0, len(rows), 2)
        ]
    return rows


def calibration(coverage: Mapping[str, Mapping[str, Any]]) -> Rows:
    """One row a parameter: observed over nominal coverage, and error over predicted std in groups of curves.

    Args:
      coverage: the entry `coverage` of evaluation.json.
    """
    rows = []
    for i, (name, scores) in enumerate(coverage.items()):
        parts = (
            ("curve", draw_coverage, f"{name}: intervals that hold the truth (%)"),
            ("bins", draw_spread, f"error of {name} (root mean square)"),
        )
        rows.append(
            [
                picture(f"calibration-{key}-{i}", label, draw, found=scores[key], label=label)
                for key, draw, label in parts
                if scores.get(key)
            ]
        )
    return [row for row in rows if row]


def losses(metrics: Sequence[Mapping[str, Any]]) -> Rows:
    """Training and validation loss over time and over epochs.

    Args:
      metrics: the lines of `metrics.jsonl`: `seconds`, `epoch`, `loss`, `val_loss` (each may be missing in a line).
    """
    text = "training and validation loss over"
    return [
        [
            picture(f"losses-{over}", f"{text} {over}", draw_losses, metrics=metrics, over=over)
            for over in ("seconds", "epoch")
        ]
    ]


# Name -> its panels, row by row; none where there is nothing to draw.
FIGURES: dict[str, Callable[[RunFiles], Rows]] = {
    "predicted_against_true": lambda run: predicted_against_true(parameter_answers(run)),
    "kinds_of_curves": lambda run: kinds_of_curves(error_bins(run)),
    "losses": lambda run: losses(run.metrics) if run.metrics else [],
    "calibration": lambda run: calibration(run.evaluation.get("coverage") or {}),
    "posterior": lambda run: uniformity(run.evaluation.get("posterior") or {}),
}


def draw_predicted(panel: Axes, answers: ParameterAnswers) -> None:
    """Identified over true value, with the line where they are equal."""
    true, identified = answers.true[:MAX_SCATTER], answers.identified[:MAX_SCATTER]
    low, high = float(min(true.min(), identified.min())), float(max(true.max(), identified.max()))
    if answers.logarithmic:
        margin = (high / low) ** 0.04 if high > low else 1.5
        limits = low / margin, high * margin
    else:
        margin = 0.04 * (high - low) or 0.5
        limits = low - margin, high + margin
        panel.xaxis.set_major_locator(MaxNLocator(5))
        panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.plot(true, identified, ".", ms=3, color="#3b82f6", alpha=0.3, mew=0, rasterized=True)
    panel.plot(limits, limits, "-", color=INK, lw=0.9)
    panel.set_xlim(limits)
    panel.set_ylim(limits)
    panel.set_box_aspect(1)
    label = with_unit(answers.name, answers.unit)
    panel.set_xlabel(f"true {label}", parse_math=False)
    panel.set_ylabel(f"identified {label}", parse_math=False)
    finish(panel)
    if answers.logarithmic:
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)


def draw_errors(panel: Axes, answers: ParameterAnswers) -> None:
    """The middle 95 % of the errors over the true value, and, where it is known, the least that is possible."""
    errors = answers.errors
    count = int(np.clip(len(answers.true) // _FEWEST, 1, _BINS))
    edges, bins = equal_bins(answers.true, count)
    middle = (
        np.sqrt(edges[1:] * edges[:-1]) if answers.logarithmic else (edges[1:] + edges[:-1]) / 2
    )
    panel.axhline(0.0, color=INK, lw=0.8)
    if answers.floor is not None:
        of_bins = [answers.floor[bins[: len(answers.floor)] == i] for i in range(len(middle))]
        width = np.array(
            [_TWO_SIDED_95 * np.sqrt(np.mean(f**2)) if len(f) else np.nan for f in of_bins]
        )
        label = "95 %, best possible"
        panel.fill_between(middle, -width, width, color=BAND, alpha=0.45, lw=0, label=label)
    limits = np.array(
        [np.percentile(errors[bins == i], [2.5, 50, 97.5]) for i in range(len(middle))]
    )
    panel.plot(middle, limits[:, 0], "-", color=MODEL, lw=1.6, label="95 %, network")
    panel.plot(middle, limits[:, 2], "-", color=MODEL, lw=1.6)
    panel.plot(middle, limits[:, 1], ":", color=SECOND, lw=1.4, label="median, network")
    finish(panel)
    if answers.logarithmic:
        # So that an end that is a power of ten has its tick.
        panel.set_xlim(edges[0] / 1.05, edges[-1] * 1.05)
        logarithmic(panel.xaxis)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    unit = "decades" if answers.logarithmic else "%" if answers.in_percent else answers.unit
    panel.set_xlabel(f"true {with_unit(answers.name, answers.unit)}", parse_math=False)
    panel.set_ylabel(f"error of {answers.name} ({unit})", parse_math=False)
    low, high = panel.get_ylim()
    panel.set_ylim(low, high + 0.34 * (high - low))  # room for the legend
    panel.legend(loc="upper center", ncols=2, fontsize=8, frameon=False)


def draw_bins(
    panel: Axes, bins: Sequence[Mapping[str, Any]], quantity: str, name: str, legend: bool
) -> None:
    """Mean squared errors of one parameter over the bins of one quantity, each in the middle of its bin."""
    skewed = quantity == "noise_to_signal"
    limits = [(entry["low"], entry["high"]) for entry in bins]
    places = [math.sqrt(low * high) if skewed else (low + high) / 2 for low, high in limits]
    for key, label, color, marker, style in _LINES:
        values = [entry["parameters"][name].get(key, math.nan) for entry in bins]
        if not all(map(math.isnan, values)):
            panel.plot(places, values, style, marker=marker, ms=4, lw=1.5, color=color, label=label)
    finish(panel)
    logarithmic(panel.yaxis)
    if skewed:
        logarithmic(panel.xaxis)
    else:
        panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.set_xlabel(BIN_TITLES[quantity])
    panel.set_ylabel(f"MSE of {name} (scaled 0–1)", parse_math=False)
    if legend and len(panel.lines) > 1:
        low, high = panel.get_ylim()
        panel.set_ylim(low, high * (high / low) ** 0.4)  # room for the legend
        panel.legend(frameon=False, fontsize=8, loc="upper center")


def draw_coverage(panel: Axes, found: Mapping[str, Any], label: str) -> None:
    """The share of the intervals that hold the truth over the share that should."""
    nominal, observed = ([100 * share for share in found[key]] for key in ("nominal", "observed"))
    panel.plot([0, 100], [0, 100], "--", lw=1.2, color=INK, label="perfect")
    panel.plot(nominal, observed, "-", marker="o", ms=4, lw=1.5, color=MODEL, label="network")
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 100)
    panel.legend(frameon=False, loc="upper left")
    panel.set_xlabel("as they say (%)")
    panel.set_ylabel(label, parse_math=False)
    finish(panel)


def draw_spread(panel: Axes, found: Sequence[Mapping[str, Any]], label: str) -> None:
    """Errors over the errors that the network expects."""
    predicted, errors = ([entry[key] for entry in found] for key in ("mean_std", "rms_error"))
    ends = [min([*predicted, *errors]), max([*predicted, *errors])]
    panel.plot(ends, ends, "--", lw=1.2, color=INK)
    panel.plot(predicted, errors, "-", marker="o", ms=4, lw=1.5, color=MODEL)
    panel.set_xlabel("standard deviation that it gives (0–1)")
    panel.set_ylabel(label, parse_math=False)
    finish(panel)
    if ends[0] > 0:
        logarithmic(panel.xaxis)
        logarithmic(panel.yaxis)


def draw_losses(panel: Axes, metrics: Sequence[Mapping[str, Any]], over: str) -> None:
    """Training and validation loss over `seconds` or `epoch`, as `losses` says."""
    label, divisor = "epoch", 1.0
    if over == "seconds":
        longest = max((float(line.get("seconds") or 0.0) for line in metrics), default=0.0)
        scales = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
        unit, divisor = next((scale for scale in scales if longest >= 2 * scale[1]), scales[-1])
        label = f"training time ({unit})"
    # No squared error is negative.
    of_density = any(
        (line.get(name) or 0.0) < 0 for line in metrics for name in ("loss", "val_loss")
    )
    for quantity, name, color in (
        ("loss", "training", MEASURED),
        ("val_loss", "validation", MODEL),
    ):
        points = _points(metrics, over, quantity, positive=not of_density)
        if len(points):
            marker = "o" if len(points) < 60 else ""
            x, y = points[:, 0] / divisor, points[:, 1]
            panel.plot(x, y, marker=marker, ms=3.5, lw=1.5, color=color, label=name)
    panel.set_xlim(left=0.0)
    finish(panel)
    panel.set_xlabel(label)
    if of_density:
        panel.set_ylabel("minus log density of the labels (nats)")
    else:
        logarithmic(panel.yaxis)
        panel.set_ylabel("MSE of scaled labels (–)")
    if over == "epoch":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.lines:
        panel.legend(frameon=False)


def _points(
    metrics: Sequence[Mapping[str, Any]], key: str, quantity: str, *, positive: bool
) -> Array:
    """[lines, 2]: (key, quantity) of the lines that hold both, on a log axis the `positive` ones."""
    least = 0.0 if positive else -np.inf
    pairs = [(line.get(key), line.get(quantity)) for line in metrics]
    return np.array(
        [(x, y) for x, y in pairs if x is not None and y is not None and least < y < np.inf], float
    )

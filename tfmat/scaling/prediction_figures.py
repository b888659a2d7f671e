"""Pictures of what was not measured: predictions beside measurements, and up to 1,024 workers; and of accuracy."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from tfmat.report.drawing import BAND, INK, finish, logarithmic
from tfmat.scaling.figure_style import (
    COLOURS,
    MOST_SERIES,
    bar_names,
    legend_below,
    style,
    worker_axis,
)
from tfmat.scaling.prediction import Prediction
from tfmat.scaling.study import GOAL, Check
from tfmat.scaling.summary import PointSummary
from tfmat.scaling.time_to_accuracy import Cost


def draw_checks(panel: Axes, checks: Sequence[Check]) -> None:
    """Predicted over measured step, each point left out of its prediction; the band is the goal of 20 %."""
    measured = np.array([1000 * check.summary.step_seconds.value for check in checks])
    predicted = np.array([1000 * check.predicted for check in checks])
    both = np.concatenate([measured, predicted])
    limits = np.array([0.85 * both.min(), 1.18 * both.max()])
    below, above = (1 - GOAL) * limits, (1 + GOAL) * limits
    label = f"within {100 * GOAL:.0f} %"
    panel.fill_between(limits, below, above, color=BAND, alpha=0.35, lw=0, label=label)
    panel.plot(limits, limits, "--", color=INK, lw=1)
    counts = sorted({check.summary.point.workers for check in checks})
    for i, workers in enumerate(counts[:MOST_SERIES]):
        chosen = [check.summary.point.workers == workers for check in checks]
        x, y = measured[chosen], predicted[chosen]
        panel.plot(x, y, ls="", ms=6, label=f"{workers} workers", **style(i))
    finish(panel)
    logarithmic(panel.xaxis)
    logarithmic(panel.yaxis)
    panel.set(xlabel="measured step (ms)", ylabel="predicted step (ms)", xlim=limits, ylim=limits)
    legend_below(panel, columns=2)


def draw_prediction(
    panel: Axes, predictions: Mapping[str, Sequence[Prediction]], quantity: str
) -> None:
    """`speedup` or `efficiency` over workers to 1,024 with 95 % intervals, one line a model."""
    factor = 100 if quantity == "efficiency" else 1
    counts = sorted({each.workers for group in predictions.values() for each in group})
    ideal = counts if quantity == "speedup" else [100] * len(counts)
    panel.plot(counts, ideal, "--", color=INK, lw=1, label="ideal")
    for i, (name, group) in enumerate(predictions.items()):
        workers = [each.workers for each in group]
        found = [getattr(each, quantity) for each in group]
        low, value, high = (
            [factor * getattr(estimate, limit) for estimate in found]
            for limit in ("low", "value", "high")
        )
        panel.fill_between(workers, low, high, color=COLOURS[i], alpha=0.2, lw=0)
        panel.plot(workers, value, "-", lw=1.6, ms=3.5, label=name, **style(i))
    finish(panel)
    if quantity == "speedup":
        worker_axis(panel.yaxis, counts)
        panel.set_ylim(bottom=0.8)
    else:
        panel.set_ylim(bottom=0)
    worker_axis(panel.xaxis, counts)
    label = "speed-up over one worker" if quantity == "speedup" else "efficiency (%)"
    panel.set(xlabel="workers", ylabel=label)
    legend_below(panel)


def draw_losses(panel: Axes, summaries: Sequence[PointSummary], over: str) -> None:
    """Validation loss of each trained point over `seconds` or `epoch`, one thin line a repetition."""
    for i, summary in enumerate(summaries[:MOST_SERIES]):
        label: str | None = summary.name
        for repetition in summary.repetitions:
            lines = [line for line in repetition.training if line.val_loss is not None]
            if lines:
                x = [getattr(line, over) for line in lines]
                y = np.array([line.val_loss for line in lines], float)
                panel.plot(x, y, "-", ms=3.5, lw=1.1, label=label, **style(i))
                label = None
    panel.set_xlim(left=0)
    finish(panel)
    logarithmic(panel.yaxis)
    label = "training time (s)" if over == "seconds" else "epoch"
    panel.set(xlabel=label, ylabel="validation loss (–)")
    legend_below(panel)


def draw_costs(panel: Axes, costs: Sequence[Cost]) -> None:
    """Time to the target of each point, the fastest above, with the range of the repetitions."""
    places = np.arange(len(costs))[::-1]
    seconds = np.array([[c.seconds.low, c.seconds.value, c.seconds.high] for c in costs])
    error = [seconds[:, 1] - seconds[:, 0], seconds[:, 2] - seconds[:, 1]]
    panel.barh(places, seconds[:, 1], 0.6, color=COLOURS[0])
    panel.errorbar(seconds[:, 1], places, xerr=error, fmt="none", ecolor=INK, lw=1.2)
    panel.set_yticks(places, bar_names([cost.name for cost in costs]), fontsize=8)
    panel.set_xlabel("time to the target (s)")
    finish(panel)
    panel.grid(False, axis="y")

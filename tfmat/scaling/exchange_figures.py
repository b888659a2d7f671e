"""Pictures of synchronisation: time of an all-reduce over bytes and workers, exchanges in an epoch."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from tfmat.report.drawing import INK, finish, logarithmic
from tfmat.scaling.collective_costs import ALGORITHMS
from tfmat.scaling.figure_style import (
    COLOURS,
    MOST_SERIES,
    hollow_if,
    legend_below,
    legend_of_oversubscribed,
    style,
    vertical,
    worker_axis,
)
from tfmat.scaling.network import LineFit, library_name
from tfmat.scaling.step_model import StepModel
from tfmat.scaling.summary import PointSummary
from tfmat.scaling.units import bytes_text


def draw_allreduces(panel: Axes, fits: Sequence[LineFit], gradient_bytes: int) -> None:
    """Time over message size with quartiles, and the fitted line latency + bytes / bandwidth."""
    for i, fit in enumerate(fits[:MOST_SERIES]):
        sizes = sorted({line.bytes for line in fit.lines})
        groups = [[line for line in fit.lines if line.bytes == size] for size in sizes]
        middle = np.array([np.median([e.median_seconds for e in group]) for group in groups])
        low = np.array([min(e.low_seconds for e in group) for group in groups])
        high = np.array([max(e.high_seconds for e in group) for group in groups])
        error = 1000 * np.stack([np.maximum(middle - low, 0), np.maximum(high - middle, 0)])
        look = {**style(i), **hollow_if(fit.lines[0].oversubscribed)}
        panel.errorbar(
            sizes, 1000 * middle, yerr=error, ls="", ms=4.5, lw=1, label=fit.name, **look
        )  # fmt: skip
        fine = np.geomspace(sizes[0], sizes[-1], 80)
        curve = [1000 * fit.on_line(size) for size in fine]
        panel.plot(fine, curve, "-", color=style(i)["color"], lw=1, alpha=0.8)
    finish(panel)
    logarithmic(panel.xaxis)
    logarithmic(panel.yaxis)
    vertical(panel, gradient_bytes, f"gradient, {bytes_text(gradient_bytes)}")
    panel.set(xlabel="message (bytes)", ylabel="an all-reduce (ms)")
    if any(fit.lines[0].oversubscribed for fit in fits[:MOST_SERIES]):
        legend_of_oversubscribed(panel)
    legend_below(panel)


def draw_syncs_an_epoch(panel: Axes, summaries: Sequence[PointSummary], dataset_size: int) -> None:
    """Exchanges in an epoch over the batch a worker: data set / (workers × batch), measured points marked."""
    points = [each.point for each in summaries if each.point.dataset_size == dataset_size]
    batches = np.array(sorted({point.batch_a_worker for point in points}), float)
    fine = np.geomspace(batches.min() / 1.3, batches.max() * 1.3, 50)
    counts = sorted({point.workers for point in points})[:MOST_SERIES]
    for i, workers in enumerate(counts):
        look = style(i)
        panel.plot(fine, dataset_size / (workers * fine), "-", color=look["color"], lw=1)
        of = sorted({(p.batch_a_worker, p.steps_an_epoch) for p in points if p.workers == workers})
        label = f"{workers} worker{'s' if workers > 1 else ''}"
        panel.plot([b for b, _ in of], [s for _, s in of], ls="", ms=5, label=label, **look)
    finish(panel)
    logarithmic(panel.xaxis)
    logarithmic(panel.yaxis)
    panel.set(xlabel="batch a worker", ylabel="exchanges in an epoch")
    legend_below(panel, columns=2)


def draw_sync_over_workers(
    panel: Axes, fits: Sequence[LineFit], model: StepModel | None, gradient_bytes: int
) -> None:
    """Time of one gradient's all-reduce over workers: measured, and by theory for ring, tree and parameter server."""
    groups: dict[str, list[LineFit]] = {}
    for fit in fits:
        groups.setdefault(library_name(fit.lines[0]), []).append(fit)
    counts = sorted({fit.lines[0].workers for fit in fits})
    most = max(16, 2 * counts[-1])
    for i, (name, group) in enumerate(list(groups.items())[:MOST_SERIES]):
        for hollow in (False, True):
            part = [fit for fit in group if fit.lines[0].oversubscribed is hollow]
            x = [fit.lines[0].workers for fit in part]
            y = [1000 * fit.seconds(gradient_bytes) for fit in part]
            look = {**style(i), **hollow_if(hollow)}
            label = None if hollow and len(part) < len(group) else name
            panel.plot(x, y, ls="", ms=6, label=label, zorder=3, **look)
    if model is not None:
        _draw_theory(panel, model, most)
    border = model.ranks_per_node if model is not None else most
    for node in range(border, most + 1, border):
        label = "border of a node" if node == border else None
        panel.axvline(node * 1.09, color=INK, lw=0.8, ls=":", label=label)
        if border <= most // 8:
            break  # many small nodes: the first border is the one that matters
    finish(panel)
    worker_axis(panel.xaxis, sorted({*counts, most, 2}))
    logarithmic(panel.yaxis)
    panel.set(xlabel="workers", ylabel="one exchange of gradients (ms)")
    if any(fit.lines[0].oversubscribed for fit in fits):
        legend_of_oversubscribed(panel)
    legend_below(panel, columns=2)


def _draw_theory(panel: Axes, model: StepModel, most: int) -> None:
    counts = [2**k for k in range(1, int(np.log2(most)) + 1)]
    model_curve = [1000 * model.exchange(p) for p in counts]
    panel.plot(counts, model_curve, "-", color=INK, lw=1.6, label="model")
    looks = {"ring": "--", "tree": "-.", "server": ":"}
    for i, (name, line) in enumerate(looks.items()):
        seconds = [1000 * model.inside.seconds(p, model.gradient_bytes, name) for p in counts]
        label = ALGORITHMS[name].title
        panel.plot(counts, seconds, line, color=COLOURS[-1 - i], lw=1.2, label=label)

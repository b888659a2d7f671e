"""Pictures of synchronisation and of the model: all-reduces, exchanges, checks, predictions up to 1,024 workers."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from tfmat.report.drawing import (
    BAND,
    COLOURS,
    INK,
    MOST_SERIES,
    Picture,
    bars,
    complete,
    legend_below,
    picture,
    style,
    worker_axis,
)
from tfmat.report.formatting import bytes_text
from tfmat.scaling.analysis import LARGER, Analysis, Forecast
from tfmat.scaling.collective_costs import ALGORITHMS
from tfmat.scaling.network import LineFit, library_name
from tfmat.scaling.prediction import Prediction, StepModel
from tfmat.scaling.slow_links import Way, traffic
from tfmat.scaling.study import GOAL, Check
from tfmat.scaling.summary import PointSummary


def exchange_pictures(analysis: Analysis) -> Iterator[Picture]:
    """All that the measurements allow."""
    if not analysis.summaries:
        return
    point = (analysis.main or analysis.summaries[0]).point
    if analysis.lines:
        here = [e for e in analysis.lines if e.lines[0].hardware == point.hardware]
        data = {"fits": here or analysis.lines, "gradient_bytes": point.model.gradient_bytes}
        model = None if analysis.forecast is None else analysis.forecast.model
        text = "time of an all-reduce over the size of the message"
        yield picture("allreduce", text, draw_allreduces, **data)
        text = "time of an exchange of gradients over workers"
        yield picture("sync_over_workers", text, draw_sync_over_workers, **data, model=model)
    if analysis.ways:
        text = "steps a second by how gradients are exchanged"
        most = analysis.ways[-1]
        drawn = picture("exchanges", text, draw_ways, group=most)
        yield dataclasses.replace(drawn, height=max(drawn.height, 0.4 * len(most)))
    text = "exchanges in an epoch over the batch a worker"
    data = {"summaries": analysis.summaries, "dataset_size": point.dataset_size}
    yield picture("syncs_an_epoch", text, draw_syncs_an_epoch, **data)


def model_pictures(analysis: Analysis) -> Iterator[Picture]:
    """The model beside the measurements, and what it predicts."""
    if analysis.checks:
        text = "predicted over measured steps"
        yield picture("checks", text, draw_checks, checks=analysis.checks)
    if analysis.forecast is not None:
        data = {"predictions": predictions(analysis.forecast)}
        for quantity in ("speedup", "efficiency"):
            name, text = f"prediction_{quantity}", f"predicted {quantity} over workers"
            yield picture(name, text, draw_prediction, **data, quantity=quantity)


def predictions(forecast: Forecast) -> dict[str, list[Prediction]]:
    """What is predicted, by name."""
    each, together = (
        f"{forecast.batch_a_worker:,} a worker",
        f"{forecast.global_batch_size:,} in all",
    )
    return {
        f"this network, {each}": forecast.weak,
        f"{LARGER} times as large, {each}": forecast.weak_larger,
        f"this network, {together}": forecast.strong,
        f"{LARGER} times as large, {together}": forecast.strong_larger,
    }


def draw_allreduces(panel: Axes, fits: Sequence[LineFit], gradient_bytes: int) -> None:
    """Time over message size with quartiles, and the fitted line latency + bytes / bandwidth."""
    for i, fit in enumerate(fits[:MOST_SERIES]):
        sizes = sorted({line.bytes for line in fit.lines})
        groups = [[line for line in fit.lines if line.bytes == size] for size in sizes]
        middle = np.array([np.median([e.median_seconds for e in group]) for group in groups])
        low = np.array([min(e.low_seconds for e in group) for group in groups])
        high = np.array([max(e.high_seconds for e in group) for group in groups])
        error = 1000 * np.stack([np.maximum(middle - low, 0), np.maximum(high - middle, 0)])
        look = style(i, hollow=fit.lines[0].oversubscribed) | {"ls": "", "ms": 4.5, "lw": 1}
        panel.errorbar(sizes, 1000 * middle, yerr=error, label=fit.name, **look)
        fine = np.geomspace(sizes[0], sizes[-1], 80)
        curve = [1000 * fit.on_line(size) for size in fine]
        panel.plot(fine, curve, "-", color=style(i)["color"], lw=1, alpha=0.8)
    panel.axvline(gradient_bytes, color=INK, lw=0.9, ls=":")
    panel.annotate(
        f"gradient, {bytes_text(gradient_bytes)}", (gradient_bytes, 1), xycoords=("data", "axes fraction"),
        xytext=(-3, -3), textcoords="offset points", rotation=90, ha="right", va="top", fontsize=9, color=INK,
    )  # fmt: skip
    hollow = any(fit.lines[0].oversubscribed for fit in fits[:MOST_SERIES])
    complete(panel, "message (bytes)", "an all-reduce (ms)", log="xy", hollow=hollow)


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
    complete(panel, "batch a worker", "exchanges in an epoch", log="xy", columns=2)


def draw_ways(panel: Axes, group: Sequence[Way]) -> None:
    """Steps a second of each way to exchange gradients, measured as bars and predicted as marks."""
    # Ways that send the same messages are as fast as each other.
    group = list({(w.backend, traffic(w.exchange)): w for w in reversed(group)}.values())[::-1]
    places = bars(panel, [way.short_name for way in group], "steps a second")
    panel.tick_params(axis="y", labelsize=7)
    measured = [1 / way.measured if way.measured else 0.0 for way in group]
    panel.barh(places, measured, height=0.6, color=COLOURS[0], alpha=0.6, label="measured")
    marks = [
        (1 / way.predicted, place)
        for way, place in zip(group, places, strict=True)
        if way.predicted
    ]
    panel.plot(*zip(*marks, strict=True), "D", ms=5, color=INK, label="predicted")
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
            look = style(i, hollow=hollow)
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
    worker_axis(panel.xaxis, sorted({*counts, most, 2}))
    hollow = any(fit.lines[0].oversubscribed for fit in fits)
    complete(panel, "workers", "one exchange of gradients (ms)", log="y", hollow=hollow, columns=2)


def _draw_theory(panel: Axes, model: StepModel, most: int) -> None:
    counts = [2**k for k in range(1, int(np.log2(most)) + 1)]
    model_curve = [1000 * model.exchange(p) for p in counts]
    panel.plot(counts, model_curve, "-", color=INK, lw=1.6, label="model")
    looks = {"ring": "--", "tree": "-.", "server": ":"}
    for i, (name, line) in enumerate(looks.items()):
        seconds = [1000 * model.inside.seconds(p, model.gradient_bytes, name) for p in counts]
        label = ALGORITHMS[name].title
        panel.plot(counts, seconds, line, color=COLOURS[-1 - i], lw=1.2, label=label)


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
    complete(panel, "measured step (ms)", "predicted step (ms)", log="xy", columns=2)
    panel.set(xlim=limits, ylim=limits)


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
    if quantity == "speedup":
        worker_axis(panel.yaxis, counts)
    panel.set_ylim(bottom=0.8 if quantity == "speedup" else 0)
    worker_axis(panel.xaxis, counts)
    label = "speed-up over one worker" if quantity == "speedup" else "efficiency (%)"
    complete(panel, "workers", label)

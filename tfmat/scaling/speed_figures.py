"""Pictures of speed: speed-up, efficiency, the parts of a step, the batch."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from tfmat.report.drawing import INK, finish, logarithmic
from tfmat.scaling.figure_style import (
    MOST_SERIES,
    PART_COLOURS,
    PART_NAMES,
    bar_names,
    hollow_if,
    legend_below,
    legend_of_oversubscribed,
    style,
    worker_axis,
)
from tfmat.scaling.labels import way_name
from tfmat.scaling.measurements import PARTS
from tfmat.scaling.summary import (
    Estimate,
    PointSummary,
    added_worker,
    amdahl_share,
)

Groups = Mapping[str, Sequence[PointSummary]]


def draw_speedup(panel: Axes, groups: Groups, scaling: str) -> None:
    """Speed-up over workers with 95 % intervals, the ideal line, and a regression (oversubscribed points left out)."""
    counts = _counts(groups)
    panel.plot(counts, counts, "--", color=INK, lw=1, label="ideal")
    for i, (name, group) in enumerate(list(groups.items())[:MOST_SERIES]):
        # No further than what it was fitted to.
        last = max(e.point.workers for e in group if not e.point.oversubscribed)
        fine = np.geomspace(1, last, 60)
        if scaling == "weak":
            slope = added_worker(group)
            curve = None if slope is None else 1 + slope.value * (fine - 1)
        else:
            share = amdahl_share(group)
            curve = None if share is None else 1 / (share.value + (1 - share.value) / fine)
        if curve is not None:
            panel.plot(fine, curve, "-", color=style(i)["color"], lw=1, alpha=0.7)
        pairs = [(each, each.speedup) for each in group if each.speedup is not None]
        _draw_estimates(panel, pairs, i, name)
    worker_axis(panel.xaxis, counts)
    worker_axis(panel.yaxis, counts)
    panel.set(xlabel="workers", ylabel="speed-up over one worker")
    _finish_series(panel, groups)


def draw_efficiency(panel: Axes, groups: Groups) -> None:
    """Efficiency in percent over workers, with 95 % intervals."""
    counts = _counts(groups)
    panel.axhline(100, color=INK, lw=1, ls="--", label="ideal")
    for i, (name, group) in enumerate(list(groups.items())[:MOST_SERIES]):
        pairs = [
            (each, Estimate(100 * e.low, 100 * e.value, 100 * e.high))
            for each in group
            if (e := each.efficiency) is not None
        ]
        _draw_estimates(panel, pairs, i, name, line="-")
    worker_axis(panel.xaxis, counts)
    panel.set_ylim(bottom=0)
    panel.set(xlabel="workers", ylabel="efficiency (%)")
    _finish_series(panel, groups)


def _counts(groups: Groups) -> list[int]:
    return sorted({each.point.workers for group in groups.values() for each in group})


def _finish_series(panel: Axes, groups: Groups) -> None:
    finish(panel)
    if any(each.point.oversubscribed for group in groups.values() for each in group):
        legend_of_oversubscribed(panel)
    legend_below(panel)


def _draw_estimates(
    panel: Axes,
    pairs: Sequence[tuple[PointSummary, Estimate]],
    i: int,
    name: str,
    line: str = "none",
) -> None:
    look = style(i)
    workers = np.array([summary.point.workers for summary, _ in pairs], float)
    workers *= 1 + 0.012 * i  # so that intervals of several series stand beside each other
    values = np.array([[e.low, e.value, e.high] for _, e in pairs]).reshape(-1, 3)
    hollow = np.array([summary.point.oversubscribed for summary, _ in pairs], bool)
    error = [values[:, 1] - values[:, 0], values[:, 2] - values[:, 1]]
    panel.errorbar(workers, values[:, 1], yerr=error, fmt="none", ecolor=look["color"], lw=1.2)
    full = ~hollow
    panel.plot(workers[full], values[full, 1], ls=line, ms=5, lw=1.2, label=name, **look)
    panel.plot(workers[hollow], values[hollow, 1], ls="", ms=5, mfc="none", **look)


def parts_of(summary: PointSummary) -> dict[str, float]:
    """Seconds of a step by part, mean over ranks, median over repetitions; `rest` is what is left of the step."""
    found = {}
    for part in PARTS:
        means = []
        for repetition in summary.repetitions:
            values = [getattr(rank, part) for rank in repetition.ranks]
            known = [value for value in values if value is not None]
            if known:
                means.append(float(np.mean(known)))
        if means:
            found[part] = float(np.median(means))
    if found:
        found["rest"] = max(summary.step_seconds.value - sum(found.values()), 0.0)
    return found


def draw_parts(panel: Axes, summaries: Sequence[PointSummary]) -> None:
    """The parts of a step as stacked bars, one a point, in ms; the bars' ends are the measured steps."""
    parts = [parts_of(summary) for summary in summaries]
    places = np.arange(len(parts))[::-1]
    left = np.zeros(len(parts))
    for part in (*PARTS, "rest"):
        widths = np.array([1000 * each.get(part, 0.0) for each in parts])
        if widths.max() > 0:
            panel.barh(places, widths, 0.62, left, color=PART_COLOURS[part], label=PART_NAMES[part])
            left += widths
    names = bar_names([summary.name for summary in summaries])
    panel.set_yticks(places, names, fontsize=8)
    panel.set_xlabel("a step (ms)")
    finish(panel)
    panel.grid(False, axis="y")
    legend_below(panel, columns=2)


def draw_batches(panel: Axes, summaries: Sequence[PointSummary]) -> None:
    """Curves a second of each worker over the batch a worker, one line a number of workers and way."""
    lines: dict[tuple[int, str], list[PointSummary]] = {}
    for each in summaries:
        if each.point.scaling == "weak" or each.point.is_baseline:
            lines.setdefault((each.point.workers, way_name(each.point)), []).append(each)
    shown = sorted((key, group) for key, group in lines.items() if len(group) > 1)[:MOST_SERIES]
    for i, ((workers, name), group) in enumerate(shown):
        group = sorted(group, key=lambda each: each.point.batch_a_worker)
        rates = np.array(
            [
                [e.curves_per_second.low, e.curves_per_second.value, e.curves_per_second.high]
                for e in group
            ]
        )
        rates = rates / workers
        error = [rates[:, 1] - rates[:, 0], rates[:, 2] - rates[:, 1]]
        look = {**style(i), **hollow_if(group[0].point.oversubscribed)}
        label = f"{workers} worker{'s' if workers > 1 else ''}, {name}"
        batches = [each.point.batch_a_worker for each in group]
        panel.errorbar(batches, rates[:, 1], yerr=error, ms=5, lw=1.2, label=label, **look)
    finish(panel)
    logarithmic(panel.xaxis)
    panel.set_ylim(bottom=0)
    panel.set(xlabel="batch a worker", ylabel="curves/s of each worker")
    legend_below(panel)

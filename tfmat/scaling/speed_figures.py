"""Pictures of speed and of what it is for: speed-up, efficiency, the parts of a step, the batch, the loss."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from tfmat.report.drawing import (
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
from tfmat.scaling.analysis import Analysis
from tfmat.scaling.labels import variant_name
from tfmat.scaling.measurements import PARTS
from tfmat.scaling.summary import Estimate, PointSummary, added_worker, amdahl_share
from tfmat.scaling.time_to_accuracy import Cost

# Bars in one picture.
MOST_BARS = 14
# Name and colour of the parts of a step; grey is what nothing accounts for.
_PARTS = {
    "forward_backward": ("forward and backward", "#1F83C4"), "optimizer": ("optimizer", "#56B4E9"),
    "input": ("input", "#F0E442"), "waiting": ("waiting for others", "#D55E00"),
    "moving": ("communication of gradients", "#E69F00"), "host": ("host", "#CC79A7"),
    "evaluation": ("evaluation", "#009E73"), "checkpoint": ("checkpoint", "#66A61E"),
    "rest": ("not told apart", "#999999"),
}  # fmt: skip
Groups = Mapping[str, Sequence[PointSummary]]


def speed_pictures(analysis: Analysis) -> Iterator[Picture]:
    """All that the measurements allow."""
    for scaling, groups in (("weak", analysis.weak), ("strong", analysis.strong)):
        if groups:
            text = f"speed-up over workers, {scaling} scaling, with the ideal line"
            data = {"groups": groups, "scaling": scaling}
            yield picture(f"speedup_{scaling}", text, draw_speedup, **data)
            text = f"efficiency over workers, {scaling} scaling"
            yield picture(f"efficiency_{scaling}", text, draw_efficiency, groups=groups)
    shown = step_bars(analysis)
    if shown:
        yield _bars("step", "parts of a step of each point", draw_parts, shown)
    rows = [e for e in analysis.summaries if e.point.scaling == "weak" or e.point.is_baseline]
    if len({each.point.batch_a_worker for each in rows}) > 1:
        text = "curves a second of a worker over its batch"
        yield picture("batches", text, draw_batches, summaries=_of_main(analysis, rows))


def accuracy_pictures(analysis: Analysis) -> Iterator[Picture]:
    """Losses of what was trained, and the time to the target."""
    fastest = [cost.point for cost in analysis.costs]
    trained = [e for e in analysis.summaries if any(r.training for r in e.repetitions)]
    trained.sort(key=lambda each: fastest.index(each.point) if each.point in fastest else 99)
    for over in ("seconds", "epoch") if trained else ():
        text = f"validation loss over {over}"
        yield picture(f"loss_over_{over}", text, draw_losses, summaries=trained, over=over)
    if analysis.costs:
        costs = analysis.costs[:MOST_BARS]
        yield _bars("time_to_accuracy", "time to the target loss", draw_costs, costs)


def _bars(name: str, description: str, draw: Callable[..., None], rows: Sequence) -> Picture:
    """A panel as high as its bars."""
    panel = picture(name, description, draw, rows=rows)
    return dataclasses.replace(panel, height=1.0 + 0.29 * len(rows))


def step_bars(analysis: Analysis) -> list[PointSummary]:
    """Points whose steps were split, the headline's and their baselines first, no more than fit in a picture."""
    # Ways to exchange have a picture of their own; here belong those of which more is known than the whole step.
    split = [
        each
        for each in analysis.summaries
        if "moving" in parts_of(each) or (parts_of(each) and not each.point.exchange)
    ]
    first = {each.point for each in analysis.shown} | {each.baseline for each in analysis.shown}
    return sorted(split, key=lambda each: each.point not in first)[:MOST_BARS]


def _of_main(analysis: Analysis, rows: Sequence[PointSummary]) -> list[PointSummary]:
    """The points of one model, data set and hardware: others would only look like the same line."""
    point = analysis.main.point if analysis.main is not None else rows[0].point
    return [each for each in rows if each.point.kind == point.kind]


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
    complete(panel, "workers", "speed-up over one worker", hollow=_any_oversubscribed(groups))


def draw_efficiency(panel: Axes, groups: Groups) -> None:
    """Efficiency in percent over workers, with 95 % intervals."""
    panel.axhline(100, color=INK, lw=1, ls="--", label="ideal")
    for i, (name, group) in enumerate(list(groups.items())[:MOST_SERIES]):
        pairs = [
            (each, each.efficiency.times(100)) for each in group if each.efficiency is not None
        ]
        _draw_estimates(panel, pairs, i, name, line="-")
    worker_axis(panel.xaxis, _counts(groups))
    panel.set_ylim(bottom=0)
    complete(panel, "workers", "efficiency (%)", hollow=_any_oversubscribed(groups))


def _counts(groups: Groups) -> list[int]:
    return sorted({each.point.workers for group in groups.values() for each in group})


def _any_oversubscribed(groups: Groups) -> bool:
    return any(each.point.oversubscribed for group in groups.values() for each in group)


def _draw_estimates(
    panel: Axes,
    pairs: Sequence[tuple[PointSummary, Estimate]],
    i: int,
    name: str,
    line: str = "none",
) -> None:
    workers = np.array([summary.point.workers for summary, _ in pairs], float)
    workers *= 1 + 0.012 * i  # so that intervals of several series stand beside each other
    values, error = _with_limits([estimate for _, estimate in pairs])
    hollow = np.array([summary.point.oversubscribed for summary, _ in pairs], bool)
    panel.errorbar(workers, values, yerr=error, fmt="none", ecolor=style(i)["color"], lw=1.2)
    full = ~hollow
    panel.plot(workers[full], values[full], ls=line, ms=5, lw=1.2, label=name, **style(i))
    panel.plot(workers[hollow], values[hollow], ls="", ms=5, **style(i, hollow=True))


def _with_limits(estimates: Sequence[Estimate]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Values [estimates], and how far their limits are below and above, as Matplotlib draws error bars."""
    low, value, high = np.array([[e.low, e.value, e.high] for e in estimates]).reshape(-1, 3).T
    return value, [value - low, high - value]


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


def draw_parts(panel: Axes, rows: Sequence[PointSummary]) -> None:
    """The parts of a step as stacked bars, one a point, in ms; the bars' ends are the measured steps."""
    parts = [parts_of(summary) for summary in rows]
    places = bars(panel, [summary.name for summary in rows], "a step (ms)")
    left = np.zeros(len(parts))
    for part in (*PARTS, "rest"):
        widths = np.array([1000 * each.get(part, 0.0) for each in parts])
        if widths.max() > 0:
            name, colour = _PARTS[part]
            panel.barh(places, widths, 0.62, left, color=colour, label=name)
            left += widths
    legend_below(panel, columns=2)


def draw_batches(panel: Axes, summaries: Sequence[PointSummary]) -> None:
    """Curves a second of each worker over the batch a worker, one line a number of workers and configuration."""
    lines: dict[tuple[int, str], list[PointSummary]] = {}
    for each in summaries:
        if each.point.scaling == "weak" or each.point.is_baseline:
            lines.setdefault((each.point.workers, variant_name(each.point)), []).append(each)
    shown = sorted((key, group) for key, group in lines.items() if len(group) > 1)[:MOST_SERIES]
    for i, ((workers, name), group) in enumerate(shown):
        group = sorted(group, key=lambda each: each.point.batch_a_worker)
        rates, error = _with_limits([each.curves_per_second for each in group])
        panel.errorbar(
            [each.point.batch_a_worker for each in group],
            rates / workers,
            yerr=[limit / workers for limit in error],
            ms=5,
            lw=1.2,
            label=f"{workers} worker{'s' if workers > 1 else ''}, {name}",
            **style(i, hollow=group[0].point.oversubscribed),
        )
    complete(panel, "batch a worker", "curves/s of each worker", log="x")
    panel.set_ylim(bottom=0)


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
    label = "training time (s)" if over == "seconds" else "epoch"
    complete(panel, label, "validation loss (–)", log="y")


def draw_costs(panel: Axes, rows: Sequence[Cost]) -> None:
    """Time to the target of each point, the fastest above, with the range of the repetitions."""
    places = bars(panel, [cost.name for cost in rows], "time to the target (s)")
    seconds, error = _with_limits([cost.seconds for cost in rows])
    panel.barh(places, seconds, 0.6, color=COLOURS[0])
    panel.errorbar(seconds, places, xerr=error, fmt="none", ecolor=INK, lw=1.2)

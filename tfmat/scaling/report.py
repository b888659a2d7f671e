"""The report of a scaling study: verdict, tables, figures."""

import dataclasses
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tfmat.files import make_folder, spreadsheet_text, write_text
from tfmat.report.figures import (
    BAND,
    COLOURS,
    INK,
    MOST_SERIES,
    Picture,
    bars,
    complete,
    legend_below,
    picture,
    save_figure,
    style,
    worker_axis,
)
from tfmat.report.pages import Finding, render_page
from tfmat.report.tables import bytes_text, format_value, percent_text, unbroken
from tfmat.scaling.model import (
    ALGORITHMS,
    GOAL,
    GOOD,
    LARGER,
    MOST_WORKERS,
    UNRELIABLE,
    WORTHWHILE,
    Analysis,
    Check,
    Cost,
    Estimate,
    Forecast,
    LineFit,
    PointSummary,
    Prediction,
    StepModel,
    Way,
    added_worker,
    amdahl_share,
    choose,
    fastest,
    last_worthwhile,
    library_name,
    name_among,
    recommend,
    ring_bytes,
    server_bytes,
    smallest_good_batch,
    traffic,
)
from tfmat.scaling.study import (
    PARTS,
    TRAINING_ROUNDS_FROM,
    Assumptions,
    Labels,
    Point,
    read_assumptions,
    read_measurements,
    variant_name,
    write_assumptions,
)

# --------------------------------------------------------------------------------------------------
# Pictures of speed and of what it is for: speed-up, efficiency, the parts of a step, the batch, the loss.


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


def pictures(analysis: Analysis) -> dict[str, Picture]:
    """Name -> picture, of all that the measurements allow."""
    return {each.name: each for each in _pictures(analysis)}


def _pictures(analysis: Analysis) -> Iterator[Picture]:
    if not analysis.summaries:
        return
    for scaling, groups in (("weak", analysis.weak), ("strong", analysis.strong)):
        if groups:
            text = f"speed-up over workers, {scaling} scaling, with the ideal line"
            yield picture(f"speedup_{scaling}", text, draw_speedup, groups=groups, scaling=scaling)
            text = f"efficiency over workers, {scaling} scaling"
            yield picture(f"efficiency_{scaling}", text, draw_efficiency, groups=groups)
    shown = step_bars(analysis)
    if shown:
        yield _bars("step", "parts of a step of each point", draw_parts, shown)
    point = (analysis.main or analysis.summaries[0]).point
    rows = [e for e in analysis.summaries if e.point.scaling == "weak" or e.point.is_baseline]
    if len({each.point.batch_a_worker for each in rows}) > 1:
        text = "curves a second of a worker over its batch"
        # One model, data set and hardware: others would only look like the same line.
        kind = (analysis.main or rows[0]).point.kind
        of_kind = [each for each in rows if each.point.kind == kind]
        yield picture("batches", text, draw_batches, summaries=of_kind)
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
        yield picture("exchanges", text, draw_ways, (4.3, max(3.3, 0.4 * len(most))), group=most)
    text = "exchanges in an epoch over the batch a worker"
    data = {"summaries": analysis.summaries, "dataset_size": point.dataset_size}
    yield picture("syncs_an_epoch", text, draw_syncs_an_epoch, **data)
    fastest = [cost.point for cost in analysis.costs]
    trained = [e for e in analysis.summaries if any(r.training for r in e.repetitions)]
    trained.sort(key=lambda each: fastest.index(each.point) if each.point in fastest else 99)
    for over in ("seconds", "epoch") if trained else ():
        text = f"validation loss over {over}"
        yield picture(f"loss_over_{over}", text, draw_losses, summaries=trained, over=over)
    if analysis.costs:
        costs = analysis.costs[:MOST_BARS]
        yield _bars("time_to_accuracy", "time to the target loss", draw_costs, costs)
    if analysis.checks:
        text = "predicted over measured steps"
        yield picture("checks", text, draw_checks, checks=analysis.checks)
    if analysis.forecast is not None and analysis.misses_by is None:
        data = {"predictions": predictions(analysis.forecast)}
        for quantity in ("speedup", "efficiency"):
            name, text = f"prediction_{quantity}", f"predicted {quantity} over workers"
            yield picture(name, text, draw_prediction, **data, quantity=quantity)


def _bars(name: str, description: str, draw: Callable[..., None], rows: Sequence) -> Picture:
    """A panel as high as its bars."""
    return picture(name, description, draw, (4.3, 1.0 + 0.29 * len(rows)), rows=rows)


def step_bars(analysis: Analysis) -> list[PointSummary]:
    """Points whose steps were split, the headline's and their baselines first, no more than fit in a picture."""
    # Ways to exchange have a picture of their own; here belong points of which more is known than the whole step.
    split = [
        each
        for each in analysis.summaries
        if "moving" in parts_of(each) or (parts_of(each) and not each.point.exchange)
    ]
    first = {each.point for each in analysis.shown} | {each.baseline for each in analysis.shown}
    return sorted(split, key=lambda each: each.point not in first)[:MOST_BARS]


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


# --------------------------------------------------------------------------------------------------
# Pictures of synchronisation and of the model: all-reduces, exchanges, checks, predictions up to 1,024 workers.


def predictions(forecast: Forecast) -> dict[str, list[Prediction]]:
    """The predicted quantities, by name."""
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


# --------------------------------------------------------------------------------------------------
# The verdict on a study in plain words, by stated rules, and how far its numbers can be believed.


# Slowest over fastest repetition, in the median of all points: from here on the machine was not quiet.
NOISY = 1.25
# Fewer repetitions have a range, and no interval.
FEW = 3
_NAMED = 3
RULES = (
    (
        "Speed-up: curves a second over those of one worker that computes with as many processors, on the same "
        "hardware, in a process without any parallel library; weak scaling compares the same batch a worker, strong "
        "scaling the same global batch. Ratios are formed within a round; given are the median and its 95 % bootstrap "
        "interval (below three rounds the lowest and highest). Efficiency: speed-up over workers."
    ),
    (
        f"Parallelism pays from an efficiency of {percent_text(GOOD)}; below {percent_text(WORTHWHILE)} more than half "
        "of what is paid for is lost, and it does not."
    ),
    (
        "Points with more workers than processors are drawn hollow and marked *: they say nothing of scaling, and no "
        "fit and no verdict uses them."
    ),
    (
        f"A point whose slowest repetition took {UNRELIABLE:.0f} times as long as its fastest, or longer, is "
        "unreliable, and so is what is divided by it: marked ?, without a verdict, and in no regression. Where the "
        "interval reaches over one of the two limits, or there is one repetition only, the verdict is open."
    ),
    f"A prediction is near if points left out of its fit are met within {percent_text(GOAL)}.",
)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """`level` of the page's parts, `badge` of two or three words, `text` of one sentence."""

    level: str
    badge: str
    text: str


# Level -> the badge, and the words of the verdict.
_WORDS = {
    "good": ("pays", "Parallelism pays"),
    "warn": ("pays in part", "Parallelism pays only in part"),
    "bad": ("does not pay", "Parallelism does not pay"),
}


def judge(analysis: Analysis) -> Judgement:
    """Whether parallelism pays, or why that cannot be said."""
    found, machines = _judged(analysis), _several_machines(analysis)
    if not machines:
        return found
    text = (
        f"{found.text} But points and their baselines are of several machines ({', '.join(machines)}), which such "
        "ratios mix with the parallelism: measure all on one, in another --workdir."
    )
    return Judgement("warn" if found.level == "good" else found.level, found.badge, text)


def _judged(analysis: Analysis) -> Judgement:
    best = analysis.best
    if best is None or best.speedup is None or best.efficiency is None:
        text = "Nothing can be said of scaling yet: a baseline or a second worker is missing."
        return Judgement("warn", "incomplete", text)
    if best.unreliable:
        text = f"No verdict: repetitions differ {best.worst_disagreement:.1f} times, the machine was not quiet."
        return Judgement("warn", "unreliable", text)
    share, speedup = best.efficiency, best.speedup
    times = f"{best.point.workers:,} workers train {speedup.value:.3g} times as fast as one"
    if common_rounds(analysis, best) < 2:
        return Judgement("warn", "one repetition", f"No verdict yet: {times}, measured only once.")
    if len({_level(value) for value in (share.low, share.value, share.high)}) > 1:
        times += f", {speedup.low:.3g} to {speedup.high:.3g} with the spread of the repetitions"
        return Judgement("warn", "open", f"It is open how far parallelism pays here: {times}.")
    level = _level(share.value)
    badge, text = _WORDS[level]
    others = Counter(_levels_of_others(analysis))
    if not others:
        return Judgement(level, badge, f"{text}: {times}.")
    told = ", ".join(
        f"{others[each]} × {name}" for each, (name, _) in _WORDS.items() if others[each]
    )
    if level == "good" and set(others) != {"good"}:
        level, badge = "warn", "depends"
    return Judgement(level, badge, f"{text} with {best.label}: {times}. Other series: {told}.")


def _several_machines(analysis: Analysis) -> list[str]:
    """The machines on which points and their baselines were measured, where these are not the same for a point.

    Machines may have processors of one name. A cluster measures elsewhere than its session, and tells by its partition.
    """
    sessions = {each.number: each.content.machine for each in analysis.measurements.sessions}
    names: dict[Point, set[str]] = {}
    for summary in analysis.summaries:
        numbers = {repetition.session for repetition in summary.repetitions} & {*sessions}
        here = summary.point.hardware
        names[summary.point] = {
            m.name
            for m in map(sessions.__getitem__, numbers)
            if here in (m.processor, *(m.gpus or ()))
        }
    pairs = (names[e.point] | names[e.baseline] for e in analysis.summaries if e.baseline)
    return sorted({name for pair in pairs if len(pair) > 1 for name in pair})


def _levels_of_others(analysis: Analysis) -> list[str]:
    """The level of each further series, at the most workers that tell of scaling."""
    found = []
    for group in (*analysis.weak.values(), *analysis.strong.values()):
        told = [
            each
            for each in group
            if each.point.workers > 1
            and not (each.point.oversubscribed or each.point.exchanges_nothing or each.unreliable)
        ]
        if told and analysis.best not in told and told[-1].efficiency is not None:
            found.append(_level(told[-1].efficiency.value))
    return found


def _level(efficiency: float) -> str:
    if efficiency >= GOOD:
        return "good"
    return "warn" if efficiency >= WORTHWHILE else "bad"


class Outlook(NamedTuple):
    """The model's predictions for the page.

    Attributes:
      last: workers up to which half of the ideal is kept; least: at the low end of the interval; larger: of the larger
        network.
      batch: examples a worker that 64 workers need to be good; None where no batch is enough.
      quickest: for the number of workers by which a fixed global batch is done soonest.
    """

    last: int
    least: int
    larger: int
    batch: int | None
    quickest: Prediction


def outlook(analysis: Analysis) -> Outlook | None:
    """None without a model, or with one that misses what was measured."""
    forecast = analysis.forecast
    if forecast is None or analysis.exchange_seconds is None or analysis.misses_by is not None:
        return None
    return Outlook(
        last_worthwhile(forecast.weak),
        last_worthwhile(forecast.weak, "low"),
        last_worthwhile(forecast.weak_larger),
        smallest_good_batch(forecast.model, 64),
        fastest(forecast.strong),
    )


def independent(analysis: Analysis) -> PointSummary | None:
    """The point of as many processes as the headline's that exchange nothing: the machine's own limit."""
    best = analysis.best
    for each in analysis.summaries if best is not None else ():
        assert best is not None
        same = each.point.workers == best.point.workers and each.baseline == best.baseline
        if each.point.exchanges_nothing and same and each.speedup and not each.unreliable:
            return each
    return None


def findings(analysis: Analysis) -> Iterator[Finding]:
    """Further findings for a reader, the most important first."""
    if analysis.measurements.label:
        yield Finding("warn", f"These measurements are labelled: {analysis.measurements.label}.")
    foreign = [each for each in analysis.summaries if each.foreign]
    if foreign:
        there = ", ".join(sorted({each.point.hardware for each in foreign}))
        yield Finding(
            "warn",
            f"Asked for: points on {there} are divided by a baseline on {analysis.assumptions.baseline_hardware}. "
            "Such ratios mix the machines with the parallelism.",
        )
    yield from _about_repetitions(analysis)
    yield from _about_points(analysis)
    for group in analysis.ways[-1:]:
        yield Finding("note", recommend(group))
    yield from _about_fits(analysis)
    best = analysis.best
    if analysis.options and best is not None and is_believable(analysis):
        memory = analysis.assumptions.device_memory_bytes
        point = best.point
        text = choose(analysis.options, point.workers, point.batch_a_worker, memory)
        yield Finding("note", text)
    alone = sum(each.baseline is None for each in analysis.summaries)
    if alone:
        of = f"{alone} of {len(analysis.summaries)}"
        yield Finding(
            "note", f"{of} points have no baseline on their hardware, and so no speed-up."
        )


def _about_fits(analysis: Analysis) -> Iterator[Finding]:
    forecast = analysis.forecast
    if forecast is None:
        if analysis.main is not None:
            yield Finding(
                "warn",
                "No prediction: all-reduces of the library used here were not measured by themselves.",
            )
        return
    if analysis.checks:
        worst = max(abs(check.error) for check in analysis.checks)
        near = sum(abs(check.error) <= GOAL for check in analysis.checks)
        yield Finding(
            "good" if worst <= GOAL else "warn",
            f"The model meets {near} of {len(analysis.checks)} points that its fit did not see within "
            f"{percent_text(GOAL)}; the worst is {percent_text(worst)} off.",
        )
    if analysis.misses_by is not None:
        return  # the others are of predictions
    model = forecast.model
    if model.inside.growth != "as measured":
        yield Finding(
            "warn",
            "Only one number of workers was measured by itself, so that the growth of the latency with workers is "
            "open: predictions take a logarithm, their intervals everything from no growth to growth in proportion.",
        )
    if model.between is None and model.outside is None:
        yield Finding(
            "warn",
            f"No network between nodes was measured: predictions beyond {model.ranks_per_node} workers take it to be "
            "as fast as the inside of a node, which no network is.",
        )
    elif model.between is None:
        yield Finding("note", "The network between nodes is assumed, not measured.")


def common_rounds(analysis: Analysis, best: PointSummary) -> int:
    """Number of rounds in which both the point and its baseline were measured: as many ratios the speed-up has."""
    rounds = [
        {repetition.round for repetition in each.repetitions}
        for each in analysis.summaries
        if each.point in (best.point, best.baseline)
    ]
    return len(set.intersection(*rounds)) if rounds else 0


def is_believable(analysis: Analysis) -> bool:
    """Whether the headline's speed-up was measured more than once, with repetitions that agree somehow."""
    best = analysis.best
    return best is not None and not best.unreliable and common_rounds(analysis, best) > 1


def _about_repetitions(analysis: Analysis) -> Iterator[Finding]:
    """How far the repetitions let a reader believe a number."""
    points, best = analysis.summaries, analysis.best
    bad = sorted(
        (each for each in points if each.disagreement >= UNRELIABLE),
        key=lambda each: -each.disagreement,
    )
    if bad:
        names = "; ".join(f"{e.name} ({e.disagreement:.1f} times)" for e in bad[:_NAMED])
        names += "; …" if len(bad) > _NAMED else ""
        are = "is unreliable: its" if len(bad) == 1 else "are unreliable: their"
        yield Finding(
            "warn",
            f"{len(bad)} of {len(points)} points {are} slowest repetition took {UNRELIABLE:.0f} times as long as the "
            "fastest or longer, as when something else runs on the machine. No finding rests on them, nor on what is "
            f"divided by them (?): {names}.",
        )
    repeated = [each.disagreement for each in points if len(each.repetitions) > 1]
    if repeated and np.median(repeated) >= NOISY:
        yield Finding(
            "warn",
            "The machine was not quiet: in the median of the points the slowest repetition took "
            f"{np.median(repeated):.2f} times as long as the fastest, at worst {max(repeated):.1f} times.",
        )
    rounds = FEW if best is None else common_rounds(analysis, best)
    if 1 < rounds < FEW:
        yield Finding(
            "warn",
            f"The verdict rests on {rounds} repetitions: its brackets are their range, and no interval.",
        )
    few = sum(len(each.repetitions) < FEW for each in points)
    if few:
        yield Finding(
            "note",
            f"{few} of {len(points)} points have fewer than three repetitions: small differences are chance there.",
        )


def _about_points(analysis: Analysis) -> Iterator[Finding]:
    """Points that tell less than others, and those that are missing."""
    points, entries = analysis.summaries, analysis.measurements.left_out
    crowded = sum(each.point.oversubscribed for each in points)
    if crowded:
        are = "point has" if crowded == 1 else "points have"
        yield Finding(
            "note",
            f"{crowded} {are} more workers than processors (hollow, *): left out of fits and verdict.",
        )
    if any(each.point.backend == "parameter_server" for each in points):
        yield Finding(
            "note",
            "The parameter server's chief and server are two more processes, which share the workers' processors: its "
            "numbers are those of this machine, and lower than those of a server with a machine of its own.",
        )
    failed = sum(each.round is not None for each in entries)
    absent = len(entries) - failed
    parts = [f"{failed} failed"] if failed else []
    parts += [f"{absent} cannot be had on this machine"] if absent else []
    if parts:
        text = f"Of what was planned {' and '.join(parts)}: see \u201cWhat was not measured\u201d."
        yield Finding("warn" if failed else "note", text)


# --------------------------------------------------------------------------------------------------
# The report on a scaling study: `scaling_report.html`, its pictures and tables, from measurements.jsonl.


PAGE = "scaling_report.html"
_NUMBERS = ("step_seconds", "curves_per_second", "speedup", "efficiency")
# Ranks' use of the machine: attribute, heading, as text.
_USE = (
    ("cpu_utilisation", "CPU", percent_text), ("gpu_utilisation", "GPU", percent_text),
    ("memory_bytes", "memory a rank", bytes_text), ("gpu_memory_bytes", "GPU memory", bytes_text),
    ("power_watts", "power (W)", format_value),
)  # fmt: skip


def write_scaling_report(
    workdir: str | os.PathLike, given: Assumptions | None = None
) -> tuple[pathlib.Path, str]:
    """Writes the page, figures/scaling_*.png and .svg, and two CSV files; returns the page's path and its verdict.

    Args:
      given: go before the assumptions that are kept in the folder.

    Raises:
      InputError: the folder is no study's, is damaged, or cannot be written.
    """
    folder = pathlib.Path(workdir)
    measurements = read_measurements(folder)
    changes = (
        {name: value for name, value in vars(given).items() if value is not None} if given else {}
    )
    assumptions = dataclasses.replace(read_assumptions(folder), **changes)
    analysis = Analysis(measurements, assumptions)
    found = pictures(analysis)
    content = scaling_page(analysis, found, folder.resolve().name)
    write_assumptions(folder, assumptions)
    _save(found, make_folder(folder / "figures"))
    write_text(folder / "scaling_points.csv", spreadsheet_text(point_table(analysis)))
    lines = pd.DataFrame([dataclasses.asdict(line) for line in measurements.allreduces])
    write_text(folder / "scaling_allreduces.csv", spreadsheet_text(lines))
    path = folder / PAGE
    write_text(path, content)
    return path, judge(analysis).text


def _save(found: Mapping[str, Picture], folder: pathlib.Path) -> None:
    """Writes each as scaling_NAME.png and .svg, and removes pictures of an earlier page that are no more."""
    for old in folder.glob("scaling_*.*"):
        if old.stem.removeprefix("scaling_") not in found and old.suffix in (".png", ".svg"):
            old.unlink()
    for name, drawn in found.items():
        for kind in ("png", "svg"):
            save_figure(drawn.figure, folder / f"scaling_{name}.{kind}")


def median_and_worst(errors: NDArray) -> str:
    """`7 %, 24 %`: of relative errors."""
    sizes = np.abs(errors[np.isfinite(errors)])
    if not len(sizes):
        return "–"
    return f"{percent_text(float(np.median(sizes)))}, {percent_text(float(sizes.max()))}"


# What the template calls.
_FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (
        parts_of, added_worker, amdahl_share, name_among, ring_bytes, server_bytes, median_and_worst,
    )
}  # fmt: skip


def scaling_page(analysis: Analysis, found: Mapping[str, Picture], name: str) -> str:
    """The page on a study."""
    points = [each.point for each in analysis.summaries]
    costs = [cost for cost in analysis.costs if cost.seconds.high < UNRELIABLE * cost.seconds.low]
    forecast = analysis.forecast
    return render_page(
        "scaling.html",
        name=name,
        analysis=analysis,
        pictures=found,
        verdict=judge(analysis),
        believable=is_believable(analysis),
        findings=list(findings(analysis)),
        recommendation=recommend(analysis.ways[-1]) if analysis.ways else "",
        rules=RULES,
        hardware=sorted({point.hardware for point in points}),
        usual=Labels(points).usual,
        independent=independent(analysis),
        outlook=outlook(analysis),
        believed=costs,
        predictions={} if forecast is None else predictions(forecast),
        constants=_constants(analysis),
        use=_use(analysis),
        begins_too_early=any(_begins_too_early(each) for each in analysis.summaries),
        assumptions=[
            f"{name} {value:,}" if isinstance(value, int | float) else f"{name} {value}"
            for name, value in vars(analysis.assumptions).items()
            if value is not None
        ],
        step_bars=step_bars(analysis),
        **_FUNCTIONS,
        most_series=MOST_SERIES,
        most_workers=MOST_WORKERS,
        larger=LARGER,
        goal=GOAL,
        good=GOOD,
        training_rounds_from=TRAINING_ROUNDS_FROM,
    )


def _use(analysis: Analysis) -> dict[str, list]:
    """Utilisation, memory and power of each point, medians over ranks and repetitions; what nothing measured is out."""
    rows = []
    for each in analysis.summaries:
        cells = []
        for name, _, text in _USE:
            values = [getattr(rank, name) for r in each.repetitions for rank in r.ranks]
            known = [value for value in values if value is not None]
            cells.append(text(float(np.median(known))) if known else "–")
        if set(cells) != {"–"}:
            rows.append([unbroken(each.name), *cells])
    table = pd.DataFrame(rows, columns=["point", *(heading for _, heading, _ in _USE)])
    table = table.loc[:, (table != "–").any()]
    return {"headings": [*table.columns], "rows": table.to_numpy().tolist()}


def _constants(analysis: Analysis) -> list[tuple[str, float, float | None]]:
    """Name, value and standard error of the step model's constants."""
    if analysis.forecast is None:
        return []
    model = analysis.forecast.model
    fixed, an_example = model.compute.values
    errors = model.compute.errors
    network = model.inside
    own, latency, byte_seconds = network.values
    network_errors = network.fit.errors
    law = ALGORITHMS[network.algorithm].title
    return [
        ("step alone, fixed t0 (ms)", 1e3 * fixed, 1e3 * errors[0]),
        ("step alone, an example t1 (µs)", 1e6 * an_example, 1e6 * errors[1]),
        ("spread of a step σ (%)", 100 * model.deviation, None),
        ("library's own cost a step c (ms)", 1e3 * model.own, 1e3 * model.own_error),
        (f"message latency α, {law} (µs)", 1e6 * latency, 1e6 * network_errors[1]),
        ("time a byte β (ns)", 1e9 * byte_seconds, 1e9 * network_errors[2]),
        ("start of an all-reduce (µs)", 1e6 * own, 1e6 * network_errors[0]),
    ]


def _begins_too_early(summary: PointSummary) -> bool:
    """A first epoch in less than half the time of its steps."""
    return any(
        line.seconds < 0.5 * line.epoch * summary.point.steps_an_epoch * each.step_seconds
        for each in summary.repetitions
        for line in each.training[:1]
    )


def point_table(analysis: Analysis) -> pd.DataFrame:
    """One row a point: what it is, median, low and high of its numbers, the parts of its step in seconds."""
    return pd.DataFrame([_row(each) for each in analysis.summaries])


def _row(summary: PointSummary) -> dict[str, object]:
    point = {k: v for k, v in vars(summary.point).items() if k != "model"}
    model = summary.point.model
    row: dict[str, object] = {
        **point, "model": model.name, "parameters": model.parameters, "gradient_bytes": model.gradient_bytes,
        "rounds": len(summary.repetitions),
    }  # fmt: skip
    for name in _NUMBERS:
        estimate = getattr(summary, name)
        for limit in ("value", "low", "high"):
            column = name if limit == "value" else f"{name}_{limit}"
            row[column] = None if estimate is None else getattr(estimate, limit)
    if summary.baseline is not None:
        row["baseline_batch"] = summary.baseline.global_batch_size
        row["baseline_hardware"] = summary.baseline.hardware
    return {**row, **{f"{part}_seconds": value for part, value in parts_of(summary).items()}}

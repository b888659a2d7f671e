"""Sections of a study's page: speed, synchronisation, the batch, accuracy."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tfmat.report.blocks import Block, Columns, Details, Group, Paragraph, Section, Table
from tfmat.report.formatting import format_value
from tfmat.scaling.analysis import Analysis
from tfmat.scaling.collective_costs import ring_bytes, server_bytes
from tfmat.scaling.figure_style import MOST_SERIES
from tfmat.scaling.pictures import Pictures, plot, step_bars
from tfmat.scaling.speed_figures import parts_of
from tfmat.scaling.summary import Estimate, PointSummary, added_worker, amdahl_share
from tfmat.scaling.time_to_accuracy import Cost
from tfmat.scaling.units import bytes_text, percent_text, seconds_text, spread_text, unbroken


def speed(analysis: Analysis, found: Pictures) -> Section:
    """Speed-up and efficiency, weak and strong."""
    blocks: list[Block] = []
    for scaling, groups, title, slope, what in (
        ("weak", analysis.weak, "Weak scaling: each worker keeps its batch", added_worker,
         "a further\nworker adds"),
        ("strong", analysis.strong, "Strong scaling: the workers share one batch", amdahl_share,
         "share that does\nnot get faster"),
    ):  # fmt: skip
        if groups:
            pair = plot(found, f"speedup_{scaling}") + plot(found, f"efficiency_{scaling}")
            blocks += [Paragraph(f"{title}."), Columns(pair), _regressions(groups, slope, what)]
    if not blocks:
        text = "No point with several workers has a baseline on the same hardware: nothing to divide by."
        blocks.append(Paragraph(text))
    else:
        text = (
            "Thin lines: least squares through all rounds, S = 1 + k (P − 1) for weak scaling, where k is "
            "what a further "
            "worker adds (1 is ideal), and Amdahl's law 1/S = s + (1 − s)/P for strong scaling. Bars and brackets: "
            "95 % intervals; with fewer than three rounds the lowest and highest, and none for the last column."
        )
        blocks.append(Paragraph(text, quiet=True))
    if any(each.point.exchanges_nothing for each in analysis.summaries):
        text = (
            "Independent processes are single workers at once that exchange nothing: the machine's own limit, which no "
            "way to train together can beat."
        )
        blocks.append(Paragraph(text))
    return Section("Speed-up and efficiency", blocks)


def _regressions(
    groups: dict[str, list[PointSummary]],
    slope: Callable[[Sequence[PointSummary]], Estimate | None],
    what: str,
) -> Table:
    counts = sorted({e.point.workers for group in groups.values() for e in group} - {1})
    rows = []
    for name, group in groups.items():
        found = {each.point.workers: each.speedup for each in group}
        cells = [spread_text(found.get(count)) for count in counts]
        rows.append([unbroken(name), *cells, spread_text(slope(group))])
    # Unbroken: a column of single numbers is narrower than its heading.
    over = [f"speed\u2011up\u00a0of\n{count}\u00a0workers" for count in counts]
    note = ""
    if len(groups) > MOST_SERIES:
        note = f"The pictures show the first {MOST_SERIES} of these {len(groups)} series."
    return Table(["series", *over, what], rows, note)


def step(analysis: Analysis, found: Pictures) -> Section | None:
    """Where the time of a step goes, and the batch."""
    parts = (
        "Where a step's time goes: means over ranks of what each measured. Waiting is the time until the "
        "slowest rank is "
        "there, moving the exchange itself; grey is what no counter tells apart."
    )
    split = sum(bool(parts_of(each)) for each in analysis.summaries)
    bars = len(step_bars(analysis))
    if bars < split:
        parts += f" The first {bars} of {split} points."
    batch = "A larger batch fills a worker better and shares each exchange among more examples, until a worker is full."
    blocks: list[Block] = [*plot(found, "step", parts), *plot(found, "batches", batch)]
    if not blocks:
        return None
    blocks = [Columns(blocks)]
    use = _use(analysis)
    if use is not None:
        blocks.append(Details("Use of processors, memory and power", [use]))
    return Section("A step, and the batch", blocks)


def _use(analysis: Analysis) -> Table | None:
    """Utilisation, memory and power of each point, medians over ranks and repetitions."""
    columns = (
        ("cpu_utilisation", "CPU", percent_text), ("gpu_utilisation", "GPU", percent_text),
        ("memory_bytes", "memory a rank", bytes_text), ("gpu_memory_bytes", "GPU memory", bytes_text),
        ("power_watts", "power (W)", format_value),
    )  # fmt: skip
    rows = []
    for each in analysis.summaries:
        cells = []
        for name, _, text in columns:
            values = [getattr(rank, name) for r in each.repetitions for rank in r.ranks]
            known = [value for value in values if value is not None]
            cells.append(text(float(np.median(known))) if known else "–")
        if any(cell != "–" for cell in cells):
            rows.append([unbroken(each.name), *cells])
    used = [i for i in range(1, 1 + len(columns)) if any(row[i] != "–" for row in rows)]
    headings = ["point", *(title for _, title, _ in columns)]
    return (
        Table([headings[i] for i in (0, *used)], [[row[i] for i in (0, *used)] for row in rows])
        if rows
        else None
    )


def synchronisation(analysis: Analysis, found: Pictures) -> Section | None:
    """All-reduces by themselves, and how many there are."""
    upper = plot(found, "allreduce") + plot(found, "sync_over_workers")
    lower = plot(found, "syncs_an_epoch")
    if not upper and not lower:
        return None
    blocks: list[Block] = []
    if upper:
        text = (
            "All-reduces with nothing else running: time = latency + bytes / bandwidth, the line, fitted to "
            "medians. Right: "
            "one gradient by measurement, by the model, and by theory with the same latency and bandwidth "
            "for a ring, a tree "
            "and a parameter server."
        )
        blocks += [Paragraph(text), Columns(upper), _links(analysis)]
    if lower:
        blocks.append(Columns([*lower, Group([_volumes(analysis)])]))
    return Section("Synchronisation", blocks)


def _links(analysis: Analysis) -> Table:
    rows = []
    for fit in analysis.lines:
        latency, byte_seconds = fit.fit.values
        error = fit.fit.errors
        bandwidth = "–"
        if byte_seconds > 0:
            spread = error[1] / byte_seconds
            bandwidth = f"{format_value(1e-9 / byte_seconds, 3)} ± {percent_text(spread)}"
        rows.append(
            [
                unbroken(fit.name) + (" *" if fit.lines[0].oversubscribed else ""),
                f"{format_value(1e6 * latency, 3)} ± {format_value(1e6 * error[0], 2)}",
                bandwidth,
                _median_and_worst(fit.left_out),
                _median_and_worst(fit.left_out_between),
            ]
        )
    headings = [
        "library, workers", "latency (µs)", "bandwidth (GB/s)", "error of\nthe line", "of the\nneighbours",
    ]  # fmt: skip
    return Table(
        headings,
        rows,
        "± standard error. Latency and bandwidth are of the whole all-reduce, as it is called. Right: relative error "
        "on message sizes left out, median and worst, of a line through all others and of one through its neighbours.",
    )


def _median_and_worst(errors: NDArray) -> str:
    """`7 %, 24 %`."""
    sizes = np.abs(errors[np.isfinite(errors)])
    if not len(sizes):
        return "–"
    return f"{percent_text(float(np.median(sizes)))}, {percent_text(float(sizes.max()))}"


def _volumes(analysis: Analysis) -> Table:
    """2N(P-1) against 2N(P-1)/P."""
    point = analysis.main.point if analysis.main is not None else analysis.summaries[0].point
    num_bytes = point.model.gradient_bytes
    rows = [
        [f"{p:,}", bytes_text(ring_bytes(num_bytes, p)), bytes_text(server_bytes(num_bytes, p))]
        for p in (2, 4, 8, 64, 1024)
    ]
    note = (
        f"Bytes a step for a gradient of N = {bytes_text(num_bytes)}: 2N(P − 1)/P at each worker of a ring, "
        "2N(P − 1) at a parameter server, whose link is then the bottleneck."
    )
    return Table(["workers", "ring,\na worker", "parameter\nserver"], rows, note)


def accuracy(analysis: Analysis, found: Pictures) -> Section | None:
    """Loss against time and epochs, and what an accuracy costs."""
    losses = plot(found, "loss_over_seconds") + plot(found, "loss_over_epoch")
    if not losses:
        return None
    text = (
        "Compiling is left out: the steps of the first call count as long as later ones take. To see what workers "
        "buy, compare only trainings of the same global batch (workers × batch) and the same data: any other is "
        "another training."
    )
    if any(_begins_too_early(each) for each in analysis.summaries):
        text += (
            " Some of these curves begin too early: their file is of an older tfmat, which left out the first call "
            "whole."
        )
    blocks: list[Block] = [Columns(losses), Paragraph(text, quiet=True)]
    if analysis.target is not None and analysis.costs:
        given = analysis.assumptions.target_val_loss is not None
        origin = "as asked for" if given else "the best that every trained run reached"
        text = f"Time and cost to a validation loss of {analysis.target:.4g}, {origin}:"
        picture = plot(found, "time_to_accuracy")
        table = Group([_cost_table(analysis.costs)])
        blocks += [Paragraph(text), Columns([*picture, table])]
        if analysis.predicted:
            predicted = _cost_table(analysis.predicted, "workers × batch")
            batch = analysis.predicted[0].point.global_batch_size
            title = f"Predicted for other numbers of workers at a global batch of {batch:,}"
            blocks.append(Details(title, [predicted]))
    elif analysis.target is not None:
        blocks.append(
            Paragraph(f"No point reached the target of {analysis.target:.4g} in all of its runs.")
        )
    return Section("Accuracy against time", blocks)


def _begins_too_early(summary: PointSummary) -> bool:
    """A first epoch in less than half the time of its steps."""
    return any(
        line.seconds < 0.5 * line.epoch * summary.point.steps_an_epoch * each.step_seconds
        for each in summary.repetitions
        for line in each.training[:1]
    )


def _cost_table(costs: Sequence[Cost], what: str = "point") -> Table:
    energy = any(cost.kilowatt_hours is not None for cost in costs)
    money = any(cost.money is not None for cost in costs)
    headings = [what, "time", "epochs", "device-hours"]
    headings += ["energy (kWh)"] if energy else []
    headings += ["money"] if money else []
    rows = []
    for cost in costs:
        row = [
            unbroken(cost.name), seconds_text(cost.seconds.value),
            format_value(cost.epochs, 3), format_value(cost.device_hours, 3),
        ]  # fmt: skip
        row += [format_value(cost.kilowatt_hours, 3)] if energy else []
        row += [format_value(cost.money, 3)] if money else []
        rows.append(row)
    return Table(headings, rows)

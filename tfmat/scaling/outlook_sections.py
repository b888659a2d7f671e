"""Sections of a study's page: the model beside measurements, predictions, the choice, the raw table, provenance."""

from collections.abc import Sequence
from typing import Any

from tfmat.report.blocks import (
    Block,
    Columns,
    Details,
    Group,
    Paragraph,
    Section,
    Table,
    machine_text,
    program_text,
)
from tfmat.report.formatting import format_value
from tfmat.scaling.analysis import LARGER, Analysis
from tfmat.scaling.collective_costs import ALGORITHMS
from tfmat.scaling.labels import Labels
from tfmat.scaling.pictures import Pictures, plot
from tfmat.scaling.prediction import Prediction
from tfmat.scaling.units import bytes_text, seconds_text, spread_text, unbroken


def model(analysis: Analysis, found: Pictures) -> Section | None:
    """The model beside the measurements that it did not see, and its numbers."""
    pictures = plot(found, "checks")
    if not pictures or analysis.forecast is None:
        return None
    rows = [
        [
            unbroken(check.summary.name), format_value(1000 * check.summary.step_seconds.value, 3),
            format_value(1000 * check.predicted, 3), f"{100 * check.error:+.1f} %", check.left_out,
        ]
        for check in analysis.checks
    ]  # fmt: skip
    headings = ["point", "measured (ms)", "predicted (ms)", "error", "left out of the fit"]
    text = (
        "A step is one worker's step alone, the wait for the slowest, the all-reduce, and a cost of the "
        "library's own: "
        "T(P, b) = T1(b) + σ m(P) + t(P, N) + c. Each point is predicted by a fit that did not see it."
    )
    single = Details("The single predictions", [Table(headings, rows)])
    side = Group([_constants(analysis), single])
    blocks: list[Block] = [Paragraph(text), Columns([*pictures, side])]
    return Section("Model against measurement", blocks)


def _constants(analysis: Analysis) -> Table:
    assert analysis.forecast is not None
    step_model = analysis.forecast.model
    fixed, an_example = step_model.compute.fit.values
    errors = step_model.compute.fit.errors
    network = step_model.inside
    own, latency, byte_seconds = network.values
    network_errors = network.fit.errors
    law = ALGORITHMS[network.algorithm].title
    pairs = [
        ("step alone, fixed t0 (ms)", 1e3 * fixed, 1e3 * errors[0]),
        ("step alone, an example t1 (µs)", 1e6 * an_example, 1e6 * errors[1]),
        ("spread of a step σ (%)", 100 * step_model.deviation, None),
        ("library's own cost a step c (ms)", 1e3 * step_model.own, 1e3 * step_model.own_error),
        (f"message latency α, {law} (µs)", 1e6 * latency, 1e6 * network_errors[1]),
        ("time a byte β (ns)", 1e9 * byte_seconds, 1e9 * network_errors[2]),
        ("start of an all-reduce (µs)", 1e6 * own, 1e6 * network_errors[0]),
    ]
    rows = [
        [name, format_value(value, 3), "–" if error is None else format_value(error, 2)]
        for name, value, error in pairs
    ]
    return Table(["constant", "value", "standard error"], rows)


def prediction(analysis: Analysis, found: Pictures) -> Section | None:
    """Up to 1,024 workers."""
    forecast = analysis.forecast
    if forecast is None:
        return None
    pictures = plot(found, "prediction_speedup") + plot(found, "prediction_efficiency")
    each, together = forecast.batch_a_worker, forecast.global_batch_size
    groups = (
        (f"this network, {each:,} a worker", forecast.weak),
        (f"{LARGER} times as large, {each:,} a worker", forecast.weak_larger),
        (f"this network, {together:,} in all", forecast.strong),
        (f"{LARGER} times as large, {together:,} in all", forecast.strong_larger),
    )
    text = (
        f"Bands: 95 % of what the measurements leave open. The larger network has {LARGER} times the parameters, and "
        f"{LARGER} times the work for an example."
    )
    tables = [Details(f"Predicted: {name}", [_prediction_table(group)]) for name, group in groups]
    return Section(
        "Up to 1,024 workers",
        [Columns(pictures), Paragraph(text, quiet=True), *tables, *_choice(analysis)],
    )


def _prediction_table(group: Sequence[Prediction]) -> Table:
    rows = [
        [
            f"{each.workers:,}", spread_text(each.step_seconds, 1000), spread_text(each.speedup),
            spread_text(each.efficiency, 100),
        ]
        for each in group
    ]  # fmt: skip
    return Table(["workers", "step (ms)", "speed-up", "efficiency (%)"], rows)


def _choice(analysis: Analysis) -> list[Block]:
    if not analysis.options or analysis.best is None:
        return []
    rows = [
        [
            option.name, seconds_text(option.exchange_seconds) if option.divides else "–",
            bytes_text(option.sent_bytes), bytes_text(option.memory_bytes),
        ]
        for option in analysis.options
    ]  # fmt: skip
    point = analysis.best.point
    text = (
        f"Ways to divide a step of {point.workers} × {point.batch_a_worker:,} examples, from the layouts "
        f"and the measured "
        "latency and bandwidth (gradients and weights in one message, activations layer by layer):"
    )
    headings = ["parallelism", "exchanges\na step", "sent by\na worker", "memory\na worker"]
    note = "– nothing to divide. Memory: weights, gradients and what the optimizer keeps."
    return [Paragraph(text), Table(headings, rows, note)]


def raw(analysis: Analysis) -> Section:
    """Every point, in two tables: one would be wider than paper."""
    times, ratios = [], []
    for each in analysis.summaries:
        baseline = "–"
        if each.baseline is not None:
            baseline = f"1 × {each.baseline.global_batch_size:,}"
            baseline += f" on {each.baseline.hardware}" if each.foreign else ""
        name, point = unbroken(each.name), each.point
        times.append(
            [
                name, point.transport or "–", f"{point.global_batch_size:,}", str(len(each.repetitions)),
                spread_text(each.step_seconds, 1000), spread_text(each.curves_per_second),
            ]
        )  # fmt: skip
        ratios.append(
            [name, baseline, spread_text(each.speedup), spread_text(each.efficiency, 100)]
        )
    text = (
        "Step and curves/s: median, and in brackets the lowest and highest round; * more workers than "
        "processors; ? repetitions of the point or of its baseline that differ threefold or more. The same "
        "with every column is in scaling_points.csv beside this page, the all-reduces in scaling_allreduces.csv."
    )
    if analysis.summaries:
        usual = Labels(each.point for each in analysis.summaries).usual
        common = f"the {usual['model']} network, {usual['dataset_size']:,} examples"
        text += f" Names leave out what most points have: {common}."
    headings = ["point", "transport", "global\nbatch", "rounds", "step (ms)", "curves/s"]
    tables = [
        Table(headings, times),
        Table(["point", "divided by", "speed-up", "efficiency (%)"], ratios),
    ]
    blocks: list[Block] = [Paragraph(text, quiet=True)]
    return Section("All points", [*blocks, Details(f"{len(times)} points", tables)])


def provenance(analysis: Analysis) -> Section:
    """Commands, versions, hardware, git revision, dates, assumptions."""
    rows: list[list[str]] = []
    for session in analysis.measurements.sessions:
        content: dict[str, Any] = session.content
        rows += [
            [f"session {session.number}", str(content.get("started", "–"))],
            ["command", str(content.get("command", "–"))],
            ["program", program_text(content)],
            ["machine", machine_text(content.get("machine") or {})],
        ]
    assumed = [
        f"{name} {value:,}" if isinstance(value, int | float) else f"{name} {value}"
        for name, value in vars(analysis.assumptions).items()
        if value is not None
    ]
    rows.append(["assumed", ", ".join(assumed) or "nothing"])
    if analysis.measurements.label:
        rows.append(["label", analysis.measurements.label])
    return Section("Where it comes from", [Table([], rows, words=True)])

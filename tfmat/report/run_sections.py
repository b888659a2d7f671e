"""Sections of the report on a run that tell what it did: the example curve, the training, where it all came from."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from tfmat.report.accuracy_sections import panel_plot
from tfmat.report.figures import curve_figure, draw_losses
from tfmat.report.formatting import format_value, with_unit
from tfmat.report.page import (
    Columns,
    Details,
    Finding,
    Findings,
    Group,
    Paragraph,
    Plot,
    Section,
    Table,
)
from tfmat.report.run_files import RunFiles
from tfmat.report.svg import inline_svg
from tfmat.report.verdict import CLEARLY_WORSE


def example(run: RunFiles) -> Section | None:
    """The example's measured and re-simulated curves, and its parameters."""
    title = "One example curve"
    picture = run.example_picture
    if picture is None or not run.example:
        if run.status.get("state", "done") != "done":
            return Section(title, [Paragraph("Not identified: that comes after the training.")])
        return None
    # Title and values stand beside it.
    bare = {**picture, "name": "", "law_title": "", "parameters": {}, "assumed": ()}
    figure = curve_figure(**bare, width=5.6)
    plot = Plot(
        inline_svg(
            figure, "example", "measured and re-simulated stress over strain, with residuals"
        )
    )
    side: list[Any] = [
        Paragraph(f"{picture['name']}: {picture['law_title']}"),
        Paragraph(_how_near(picture)),
        _parameters(run.example),
    ]
    warnings = [Finding("warn", _said(warning)) for warning in run.example.get("warnings", [])]
    if warnings:
        side.append(Findings(warnings))
    return Section(title, [Columns([plot, Group(side)])])


def _said(warning: Any) -> str:
    """A warning's sentence; runs of before kept the sentence alone."""
    return str(warning["text"]) if isinstance(warning, dict) else str(warning)


def _how_near(picture: Mapping[str, Any]) -> str:
    own, refined = picture.get("rmse_percent"), picture.get("refined")
    if own is None:
        return "The network knows no law, so that its answer cannot be re-simulated."
    text = (
        f"The curve of the network's own answer lies {format_value(own, 2)} % of the maximum stress (root "
        "mean square) "
    )
    text += "from the measured points"
    if refined is None:
        return f"{text}."
    better = refined["rmse_percent"]
    text += f", that of {refined['name']} started from it {format_value(better, 2)} %."
    if own > CLEARLY_WORSE * better:
        return f"{text} For this curve take the {refined['name']} values."
    return f"{text} Both are about as near."


def _parameters(answer: Mapping[str, Any]) -> Table:
    rows = []
    for name, entry in answer.get("parameters", {}).items():
        interval = entry.get("ci95")
        rows.append(
            [
                with_unit(name, entry["unit"]),
                format_value(_recommended(entry)) + (" (given)" if _is_given(entry) else ""),
                # Runs of before kept the network's answer as the value, and least squares beside it.
                format_value(entry.get("network" if "method" in entry else "value")),
                f"{format_value(interval[0])} … {format_value(interval[1])}" if interval else "–",
            ]
        )
    return Table(["parameter", "answer", "network", "95 % interval"], rows)


def _recommended(entry: Mapping[str, Any]) -> float:
    known = None if "method" in entry else entry.get("least_squares")
    return entry["value"] if known is None else known


def _is_given(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("fixed")) or entry.get("method") == "given"


def losses(run: RunFiles) -> Section:
    """Training and validation loss over time and over epochs."""
    title = "How the training went"
    if not run.metrics:
        return Section(
            title, [Paragraph("No epoch has been finished yet, so there is nothing to draw.")]
        )
    time, epochs = (
        panel_plot(
            f"losses-{over}",
            f"training and validation loss over {over}",
            functools.partial(draw_losses, metrics=run.metrics, over=over),
        )
        for over in ("seconds", "epoch")
    )
    return Section(title, [Paragraph(_training_text(run)), Columns([time, epochs])])


def _training_text(run: RunFiles) -> str:
    last = run.metrics[-1]
    best = min(
        (line for line in run.metrics if line.get("val_loss")),
        key=lambda line: line["val_loss"],
        default=None,
    )
    text = f"{last['step']:,} steps"
    if last.get("seconds"):
        text += f" in {last['seconds']:,.0f} s of training and validation"
    rates = sorted(
        line["curves_per_second"] for line in run.metrics if line.get("curves_per_second")
    )
    if rates:
        text += f", {rates[len(rates) // 2]:,.0f} curves/s (median of the epochs)"
    if best is not None:
        at = (
            f"after epoch {best['epoch']:g}"
            if best.get("epoch") is not None
            else f"at step {best['step']:,}"
        )
        text += f". The lowest validation loss, {best['val_loss']:.3g} {at}, is that of the network that is used"
    resumed = run.status.get("resumed_from_steps") or []
    if resumed:
        text += f". The run went on from a checkpoint {len(resumed)} time{'s' if len(resumed) > 1 else ''}"
    return f"{text}."


def provenance(run: RunFiles) -> Section:
    """Config, versions, hardware, git revision, dates, command."""
    rows = list(_rows(run))
    blocks: list[Any] = [Table([], rows, words=True)] if rows else []
    if not run.sessions:
        text = "Program, versions and machine were not recorded when this run was trained."
        blocks.append(Paragraph(text, quiet=True))
    if run.config:
        table = Table(
            ["key", "value"],
            [[key, _plain(value)] for key, value in flatten(run.config)],
            words=True,
        )
        blocks.append(Details("The whole configuration", [table]))
    return Section("Where it comes from", blocks)


def _rows(run: RunFiles) -> Iterator[list[str]]:
    status = run.status
    if status:
        yield [
            "dates",
            f"started {status.get('started', '–')}, last change {status.get('updated', '–')}",
        ]
        yield ["end", f"{status.get('state', '–')}: {status.get('reason') or '–'}"]
    if run.config.get("data_dir"):
        yield [
            "data set",
            " · ".join(str(run.config[k]) for k in ("data_dir", "data_id") if run.config.get(k)),
        ]
    for i, session in enumerate(run.sessions):
        which = (
            ""
            if len(run.sessions) == 1
            else f" ({i + 1} of {len(run.sessions)}, {session.get('started', '–')})"
        )
        yield [f"command{which}", str(session.get("command", "–"))]
        if i and _same_place(session, run.sessions[i - 1]):
            continue
        yield ["program", program_text(session)]
        yield ["machine", machine_text(session.get("machine") or {})]


def _same_place(session: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(session.get(key) == other.get(key) for key in ("versions", "git", "machine"))


def program_text(session: Mapping[str, Any]) -> str:
    """Versions and git revision of a session, as `tfmat.launch.provenance.describe_session` tells them."""
    versions = ", ".join(
        f"{name} {version}" for name, version in (session.get("versions") or {}).items()
    )
    git = session.get("git")
    if not git:
        return f"{versions}; not run from a git checkout"
    changed = ", with changes that are not in it" if git.get("changed") else ""
    return f"{versions}; git revision {git.get('revision')}{changed}"


def machine_text(machine: Mapping[str, Any]) -> str:
    """Name, processors, memory, GPUs and system of a session's machine."""
    gpus = ", ".join(machine.get("gpus") or []) or "no GPU"
    return (
        f"{machine.get('name', '–')}: {machine.get('processor', '–')}, "
        f"{machine.get('usable_processors', '–')} processors, "
        f"{machine.get('memory_gib', '–')} GiB, {gpus}; {machine.get('system', '–')}"
    )


def flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(`model.filters`, value) of everything in a config."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _plain(value: Any) -> str:
    if value is None or value == {}:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

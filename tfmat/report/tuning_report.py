"""The page on a search: `tuning.html`, in the look of the training report."""

import datetime
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tfmat
from tfmat.files import atomic_write
from tfmat.report.blocks import (
    Block,
    Details,
    Finding,
    Findings,
    Page,
    Paragraph,
    Plot,
    Section,
    Table,
    Tile,
    Tiles,
)
from tfmat.report.drawing import inline_svg
from tfmat.report.formatting import duration_text, format_value
from tfmat.report.tuning_figures import (
    course_figure,
    importance_figure,
    parallel_figure,
    slices_figure,
)
from tfmat.report.tuning_table import overview_lines, value_cell

# With fewer trials a picture says nothing.
_FEWEST = 2


def write_tuning_report(
    workdir: str | os.PathLike,
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
    importances: Mapping[str, float],
) -> pathlib.Path:
    """Writes tuning.html into a search's folder; returns its path.

    Args:
      workdir: of the search.
      summary: what `tfmat.tuning.status.Summary.to_json` says.
      rows: one a trial, as in trials.csv.
      names: hyper-parameter -> linear or log.
      importances: hyper-parameter -> share, largest first; {} where there are too few trials.

    Raises:
      InputError: the folder cannot be written.
    """
    path = pathlib.Path(workdir) / "tuning.html"
    page = tuning_page(workdir, summary, rows, names, importances).html()
    with atomic_write(path, "w") as file:
        file.write(page)
    return path


def tuning_page(
    workdir: str | os.PathLike,
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
    importances: Mapping[str, float],
) -> Page:
    """The page; arguments as of `write_tuning_report`."""
    sections = [
        _verdict(workdir, summary, rows, names),
        _pictures(summary, rows, names),
        _importance(importances, len(rows)),
        _trials(summary, rows, names),
        _workers(summary),
    ]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    state = "failed" if summary["failed"] else "finished" if summary["ended"] else "going on"
    level = {"failed": "bad", "finished": "good", "going on": "note"}[state]
    return Page(
        title=f"{summary['name']}: a search for hyper-parameters",
        subtitle=f"{summary['algorithm']} · each trial {summary['train_for']} · by {summary['objective']}",
        badge=(level, state),
        sections=[section for section in sections if section is not None],
        footer=f"Made by tfmat {tfmat.__version__} on {now} from search.json; the trials also lie in trials.csv. "
        "This file needs nothing else.",
    )


def _verdict(
    workdir: str | os.PathLike,
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
) -> Section:
    best = next((row for row in rows if row["trial"] == summary["best"]), None)
    level = "bad" if summary["failed"] else "good" if summary["ended"] and best else "note"
    findings, tiles = [], []
    if summary["failed"]:
        findings.append(Finding("bad", f"The search ended early: {summary['ended']}."))
    if best is not None:
        values = ", ".join(
            f"{name} {value_cell(best[name])}" for name in names if best.get(name) is not None
        )
        findings.append(Finding("good", f"The best trial is {summary['best']}: {values}."))
        command = f"tfmat train --config={pathlib.Path(workdir) / 'best.py'}"
        findings.append(Finding("note", f"To train with it: {command}"))
        value = format_value(summary["best_value"], 3)
        tiles.append(
            Tile(f"best {summary['objective']}", value, f"trial {summary['best']}", "good")
        )
    for state, words in (("failed", "failed; their log.txt says why"), ("diverged", "diverged")):
        count = summary["counts"][state]
        if count and not summary["failed"]:
            findings.append(Finding("warn", f"{count} of {len(rows)} trials {words}."))
    of = "" if summary["max_trials"] is None else f"of {summary['max_trials']}"
    tiles.append(Tile("trials", str(len(rows)), of))
    if summary["utilization"] is not None:
        tiles.append(
            Tile("workers busy", f"{100 * summary['utilization']:.0f} %", "of their time in trials")
        )
    tiles.append(Tile("search time", duration_text(summary["seconds"])))
    headline = (
        "No trial is done yet"
        if best is None
        else f"{summary['objective']} {format_value(summary['best_value'], 3)}"
    )
    blocks: list[Block] = [Findings(findings)] if findings else []
    facts = Table((), [(what, text) for what, text in overview_lines(summary)], words=True)
    return Section(
        headline, [*blocks, Tiles(tiles), Details("The search in words", [facts])], level=level
    )


def _pictures(
    summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> Section | None:
    objective = summary["objective"]
    if sum(row[objective] is not None for row in rows) < _FEWEST:
        return None
    parallel = inline_svg(
        parallel_figure(rows, names, objective), "parallel", "parallel coordinates of all trials"
    )
    course = inline_svg(course_figure(rows, objective), "course", f"{objective} of each trial")
    slices = inline_svg(
        slices_figure(rows, names, objective), "slices", f"{objective} over each hyper-parameter"
    )
    return Section(
        "Where the good trials lie",
        [
            Plot(parallel, "One line a trial; the best tenth stands out. A line is broken where a hyper-parameter does "
                 "not exist for its trial."),
            Plot(slices, "The objective over each hyper-parameter; pale: trials that were stopped early."),
            Plot(course, "The objective of each trial, in the order of their start."),
        ],
    )  # fmt: skip


def _importance(importances: Mapping[str, float], num_trials: int) -> Section | None:
    if not importances:
        return None
    plot = inline_svg(
        importance_figure(importances), "importance", "importance of each hyper-parameter"
    )
    text = (
        f"Mean decrease in impurity of a random forest over {num_trials} trials. With few trials this is a hint and no "
        "more; a hyper-parameter whose range is narrow looks unimportant."
    )
    return Section("What matters", [Plot(plot), Paragraph(text, quiet=True)])


def _trials(
    summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> Section:
    objective = summary["objective"]
    ordered = sorted(rows, key=lambda row: (row[objective] is None, row[objective] or 0.0))
    body = [
        [
            row["trial"],
            row["state"],
            "–" if row[objective] is None else format_value(row[objective]),
            *(value_cell(row.get(name)) for name in names),
            duration_text(row["seconds"]),
            str(row["times_lost"] or ""),
        ]
        for row in ordered
    ]
    headings = ["trial", "state", objective, *names, "time", "workers lost"]
    blocks: list[Block] = [Table(headings, body)]
    reasons = [[row["trial"], row["reason"]] for row in rows if row["reason"]]
    if reasons:
        blocks.append(
            Details("Remarks on trials", [Table(("trial", "remark"), reasons, words=True)])
        )
    return Section("All trials, the best first", blocks)


def _workers(summary: Mapping[str, Any]) -> Section | None:
    if not summary["workers"]:
        return None
    body = [
        [
            worker["name"],
            worker["host"],
            f"{100 * worker['busy_seconds'] / max(worker['alive_seconds'], 1e-9):.0f} %",
            duration_text(worker["alive_seconds"]),
            str(worker["starts"]),
        ]
        for worker in summary["workers"]
    ]
    return Section("Workers", [Table(("worker", "machine", "busy", "lifetime", "starts"), body)])

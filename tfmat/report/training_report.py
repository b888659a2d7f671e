"""The report on one run: `report.html` and `figures/`, from the files in its folder."""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

import tfmat
from tfmat.files import atomic_write, make_folder
from tfmat.report.accuracy_figures import predicted_against_true_figure
from tfmat.report.accuracy_sections import accuracy, by_kind_of_curve, coverage
from tfmat.report.calibration_figure import calibration_figure
from tfmat.report.comparison_section import classical
from tfmat.report.figures import curve_figure, loss_figure, save_figure
from tfmat.report.page import (
    Block,
    Details,
    Finding,
    Findings,
    Page,
    Paragraph,
    Section,
    Tile,
    Tiles,
)
from tfmat.report.run_files import RunFiles, read_run
from tfmat.report.run_numbers import error_bins, parameter_answers
from tfmat.report.run_sections import example, losses, provenance
from tfmat.report.verdict import RULES, Verdict, error_text, judge, worst_eta
from tfmat.report.yardstick_figure import yardstick_figure


def write_training_report(workdir: str | os.PathLike) -> pathlib.Path:
    """Writes report.html, and its pictures as PNG into figures/, into a run's folder; returns the page's path.

    Raises:
      InputError: the folder is no run's, or cannot be written.
    """
    run = read_run(workdir)
    page = training_page(run).html()
    folder = make_folder(run.workdir / "figures")
    for name, draw in _FIGURES.items():
        path = folder / f"{name}.png"
        try:
            figure = draw(run)
            if figure is not None:
                save_figure(figure, path)
        except _SENSELESS:  # the page says so in its place
            figure = None
        if figure is None:
            path.unlink(missing_ok=True)  # an earlier one would belong to other numbers
    path = run.workdir / "report.html"
    with atomic_write(path, "w") as file:
        file.write(page)
    return path


def training_page(run: RunFiles) -> Page:
    """The page on a run."""
    run = _with_sense(run)
    verdict = judge(run)
    law = run.config.get("law") or run.evaluation.get("law") or "unknown"
    title = f"{run.workdir.resolve().name}: a network for the law {law}"
    sections = [
        _verdict_section(run, verdict),
        *(_whole_or_note(make, run) for make in _PARTS),
        provenance(run),
    ]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Page(
        title=title,
        subtitle=_subtitle(run),
        badge=({"finished": "good"}.get(verdict.state, verdict.level), verdict.state),
        sections=[section for section in sections if section is not None],
        footer=f"Made by tfmat {tfmat.__version__} on {now} from the files in the run's folder; the pictures also "
        "lie in figures/ there. This file needs nothing else.",
    )


_PARTS = (accuracy, by_kind_of_curve, coverage, example, classical, losses)
# What numbers that are of the right type but cannot be do to arithmetic and pictures.
_SENSELESS = (ArithmeticError, LookupError, ValueError)


def _whole_or_note(make: Callable[[RunFiles], Section | None], run: RunFiles) -> Section | None:
    """A part of the page; a note in its place where the numbers in the folder cannot be drawn."""
    try:
        return make(run)
    except _SENSELESS as error:
        reason = f"{type(error).__name__}: {error}"
        text = f"The numbers in the folder's files do not fit together here ({reason})."
        title = f"Left out: {make.__name__.replace('_', ' ')}"
        return Section(title, [Paragraph(text)], level="warn")


def _with_sense(run: RunFiles) -> RunFiles:
    """The run; without its evaluation where that is of the right type and still tells nothing."""
    try:
        _tiles(run, judge(run))
    except _SENSELESS as error:
        note = f"{run.workdir / 'evaluation.json'} is damaged ({type(error).__name__}: {error})"
        damaged = (*run.damaged, note)
        return dataclasses.replace(run, evaluation={}, answers=None, damaged=damaged)
    return run


def _subtitle(run: RunFiles) -> str:
    names = ", ".join(p["name"] for p in run.sidecar.get("parameters", []))
    parts = [f"identifies {names} from stress–strain curves" if names else ""]
    count = run.config.get("num_examples")
    if isinstance(count, int):
        parts.append(f"trained on {count:,} curves")
    started = str(run.status.get("started", ""))
    parts.append(started[:10])
    return " · ".join(part for part in parts if part)


def _verdict_section(run: RunFiles, verdict: Verdict) -> Section:
    rules = Details(
        "The rules behind this verdict", [Paragraph(rule, quiet=True) for rule in RULES]
    )
    tiles = _tiles(run, verdict)
    damaged = [Finding("warn", f"Left out: {why}.") for why in run.damaged]
    blocks: list[Block] = [
        Findings([*damaged, *verdict.findings]),
        *([Tiles(tiles)] if tiles else []),
        rules,
    ]
    return Section(verdict.headline, blocks, level=verdict.level)


def _tiles(run: RunFiles, verdict: Verdict) -> list[Tile]:
    """The numbers that a reader looks for first."""
    tiles = []
    evaluation: Mapping[str, Any] = run.evaluation
    for name, score in list(evaluation.get("parameters", {}).items())[:4]:
        text = error_text(score)
        value, _, remark = text.partition(" (")
        tiles.append(Tile(f"mean error of {name}", value, remark.rstrip(")")))
    yardstick = evaluation.get("yardstick")
    if yardstick:
        name, eta = worst_eta(yardstick)
        error = yardstick["parameters"][name]["eta_error"]
        remark = f"± {error:.2g}; 1 is the best possible" if error else "1 is the best possible"
        tiles.append(Tile(f"η of {name}", f"{eta:.3g}", remark, _level_of_eta(verdict)))
    elif evaluation.get("rmse_over_noise") is not None:
        value = f"{evaluation['rmse_over_noise']:.3g}"
        tiles.append(
            Tile("error over noise", value, "1 is the best possible", _level_of_eta(verdict))
        )
    if evaluation.get("curves_per_second"):
        tiles.append(
            Tile("answers per second", f"{evaluation['curves_per_second']:,.0f}", "network alone")
        )
    if run.metrics and run.metrics[-1].get("seconds") is not None:
        epochs = run.metrics[-1].get("epoch")
        remark = f"{epochs:g} epochs" if epochs is not None else ""
        tiles.append(Tile("training time", duration_text(run.metrics[-1]["seconds"]), remark))
    return tiles


def _level_of_eta(verdict: Verdict) -> str:
    """A run that was stopped is judged by that, not by its accuracy."""
    return verdict.level if verdict.state == "finished" else "note"


def duration_text(seconds: float) -> str:
    """`58 s`, `3 min 12 s`, `2 h 5 min`."""
    seconds = round(seconds)
    if seconds < 100:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _predicted(run: RunFiles) -> Figure | None:
    answers = parameter_answers(run)
    return predicted_against_true_figure(answers) if answers else None


def _kinds_of_curves(run: RunFiles) -> Figure | None:
    bins = error_bins(run)
    return yardstick_figure(bins) if bins else None


def _example_figure(run: RunFiles) -> Figure | None:
    return curve_figure(**run.example_picture) if run.example_picture else None


def _loss_figure(run: RunFiles) -> Figure | None:
    return loss_figure(run.metrics) if run.metrics else None


def _calibration(run: RunFiles) -> Figure | None:
    intervals = run.evaluation.get("coverage")
    return calibration_figure(intervals) if intervals else None


# Name -> what draws it; None where there is nothing to draw.
_FIGURES: dict[str, Callable[[RunFiles], Figure | None]] = {
    "predicted_against_true": _predicted,
    "kinds_of_curves": _kinds_of_curves,
    "example": _example_figure,
    "losses": _loss_figure,
    "calibration": _calibration,
}

"""The page on a search: `tuning.html`, in the look of the training report."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfmat.files import atomic_write
from tfmat.report.page import Finding, render_page
from tfmat.report.tuning_figures import importance, pictures
from tfmat.report.tuning_table import best_first, busy, overview_lines, value_cell


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
    best = next((row for row in rows if row["trial"] == summary["best"]), None)
    page = render_page(
        "tuning.html",
        summary=summary,
        rows=rows,
        ordered=best_first(rows, summary["objective"], summary["direction"]),
        names=names,
        best=best,
        findings=_findings(path.parent, summary, len(rows), names, best),
        overview=overview_lines(summary),
        figures=pictures(rows, names, summary["objective"], summary["direction"]),
        importance_picture=importance(importances),
        value_cell=value_cell,
        busy=busy,
    )
    with atomic_write(path, "w") as file:
        file.write(page)
    return path


def _findings(
    workdir: pathlib.Path,
    summary: Mapping[str, Any],
    num_trials: int,
    names: Mapping[str, str],
    best: Mapping[str, Any] | None,
) -> list[Finding]:
    found = []
    if summary["failed"]:
        found.append(Finding("bad", f"The search ended early: {summary['ended']}."))
    if best is not None:
        values = ", ".join(
            f"{name} {value_cell(best[name])}" for name in names if best.get(name) is not None
        )
        found.append(Finding("good", f"The best trial is {summary['best']}: {values}."))
        command = f"tfmat train --config={workdir / 'best.py'}"
        found.append(Finding("note", f"To train with it: {command}"))
    for state, words in (("failed", "failed; their log.txt says why"), ("diverged", "diverged")):
        count = summary["counts"][state]
        if count and not summary["failed"]:
            found.append(Finding("warn", f"{count} of {num_trials} trials {words}."))
    return found

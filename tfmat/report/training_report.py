"""The report on one run: `report.html` and `figures/`, from the files in its folder."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from tfmat.files import atomic_write, make_folder
from tfmat.report.drawing import Picture, inline_svg, save_figure, save_grid
from tfmat.report.figures import curve_figure
from tfmat.report.page import SENSELESS, Finding, render_page
from tfmat.report.record_figures import answer_figure, draw_tests, groups_of_tests
from tfmat.report.run_figures import FIGURES, Rows
from tfmat.report.run_files import RunFiles, read_run
from tfmat.report.run_numbers import coverage_gap, more_accurate
from tfmat.report.tables import exact_lines
from tfmat.report.verdict import (
    CLEARLY_WORSE,
    COVERAGE_GOOD,
    RULES,
    error_text,
    judge,
    worst_eta,
)

# Name -> what makes its panels, as in `FIGURES`.
Figures = dict[str, Callable[[], Rows]]


def write_training_report(workdir: str | os.PathLike) -> pathlib.Path:
    """Writes report.html, and its pictures as PNG into figures/, into a run's folder; returns the page's path.

    Raises:
      InputError: the folder is no run's, or cannot be written.
    """
    run = read_run(workdir)
    figures = _figures(run)
    page = training_page(run, figures)
    folder = make_folder(run.workdir / "figures")
    save_all: dict[str, Callable[[pathlib.Path], bool]] = {
        name: functools.partial(_save_grid, rows) for name, rows in figures.items()
    }
    save_all["example"] = functools.partial(_save_example, run)
    save_all["example_posterior"] = functools.partial(_save_corner, run)
    for name, save in save_all.items():
        path = folder / f"{name}.png"
        try:
            saved = save(path)
        except SENSELESS:  # the page says so in its place
            saved = False
        if not saved:
            path.unlink(missing_ok=True)  # an earlier one would belong to other numbers
    path = run.workdir / "report.html"
    with atomic_write(path, "w") as file:
        file.write(page)
    return path


def _figures(run: RunFiles) -> Figures:
    """Each is drawn when it is first asked for, once for the page and for its file."""
    return {name: functools.cache(functools.partial(make, run)) for name, make in FIGURES.items()}


def _save_grid(make: Callable[[], Rows], path: pathlib.Path) -> bool:
    rows = make()
    if rows:
        save_grid(rows, path)
    return bool(rows)


def _save_example(run: RunFiles, path: pathlib.Path) -> bool:
    if run.example_picture:
        save_figure(answer_figure(run.example_picture), path)
    return bool(run.example_picture)


def _save_corner(run: RunFiles, path: pathlib.Path) -> bool:
    if run.example_posterior:
        save_figure(run.example_posterior.figure, path)
    return run.example_posterior is not None


def training_page(run: RunFiles, figures: Figures | None = None) -> str:
    """The page on a run; without its evaluation where that is of the right type and still tells nothing."""
    try:
        return _page(run, figures or _figures(run))
    except SENSELESS as error:
        note = f"{run.workdir / 'evaluation.json'} is damaged ({type(error).__name__}: {error})"
        damaged = (*run.damaged, note)
        bare = dataclasses.replace(run, evaluation={}, answers=None, damaged=damaged)
        return _page(bare, _figures(bare))


def _page(run: RunFiles, figures: Figures) -> str:
    verdict = judge(run)
    return render_page(
        "run.html",
        guarded=True,
        run=run,
        verdict=verdict,
        findings=[*(Finding("warn", f"Left out: {w}.") for w in run.damaged), *verdict.findings],
        rules=RULES,
        figures=figures,
        panels=_panels(run),
        coverage_gap=coverage_gap,
        coverage_good=COVERAGE_GOOD,
        clearly_worse=CLEARLY_WORSE,
        exact_lines=exact_lines,
        more_accurate=more_accurate,
        error_text=error_text,
        worst_eta=worst_eta,
    )


def _panels(run: RunFiles) -> list["_ExampleCurve | Picture"]:
    """The example's pictures: of its curve, or of its tests, a panel each."""
    picture = run.example_picture
    if picture is None or "tests" not in picture:
        return [_ExampleCurve(run)]
    labels = [picture.get(f"{axis}_label", axis) for axis in ("strain", "stress")]
    return [
        Picture(
            f"example-{i}",
            f"measured and re-simulated answer to {group[0]['title']}",
            functools.partial(_draw_tests, tests=group, labels=labels),
            4.3,
            3.6,
        )
        for i, group in enumerate(groups_of_tests(picture["tests"]))
    ]


def _draw_tests(panel: Axes, tests: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> None:
    draw_tests(panel, tests, *labels)


@dataclasses.dataclass(frozen=True)
class _ExampleCurve:
    """The example's curves, without the title and the values, which stand beside them on the page."""

    run: RunFiles

    @property
    def svg(self) -> str:
        bare = {"name": "", "law_title": "", "parameters": {}, "assumed": ()}
        figure = curve_figure(**{**(self.run.example_picture or {}), **bare}, width=5.6)
        description = "measured and re-simulated stress over strain, with residuals"
        return inline_svg(figure, "example", description)

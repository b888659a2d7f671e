"""Pictures of tests, measured and simulated: hysteresis loops, modes of loading side by side, relaxation over ln t."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfmat.report.drawing import (
    COLOURS,
    MEASURED,
    MODEL,
    MOST_SERIES,
    SECOND,
    WARNING,
    Array,
    complete,
    finish,
    new_figure,
)
from tfmat.report.figures import answer_text, curve_figure, short_name
from tfmat.report.formatting import format_value

_MOST_COLUMNS = 3
_PANEL = (4.2, 3.5)  # inches
# Kinds of tests whose answers are read over the time.
_OVER_TIME = ("relaxation", "creep")


def answer_figure(picture: Mapping[str, Any]) -> Figure:
    """The picture of an answer: of a curve, or of tests where it has such."""
    return record_figure(**picture) if "tests" in picture else curve_figure(**picture)


def record_figure(
    tests: Sequence[Mapping[str, Any]],
    *,
    name: str,
    law_title: str,
    parameters: Mapping[str, tuple[float, str]],
    intervals: Mapping[str, tuple[float, float] | None] | None = None,
    method: str = "least squares",
    other_method: str | None = None,
    rmse_percent: float | None = None,
    refined: Mapping[str, Any] | None = None,
    do_not_use: Sequence[str] = (),
    assumed: Sequence[str] = (),
    strain_label: str = "strain",
    stress_label: str = "stress",
) -> Figure:
    """A panel a test, measured and answered; tests of one kind that do not turn share a panel, a colour each.

    Args:
      tests: of each `name`, `title`, `kind` (its programme), `drives` (strain or stress), `turns` (whether it does),
        `strain` and `stress_mpa` as measured, `time` (s, or None), `answer` (what the law answers: MPa of a driven
        strain, - of a driven stress), `other` (what the other method answers, or None), `rmse_percent`, and `settings`
        in words; each array [points]. Without measured values `answer` alone is drawn.
      parameters: name -> (recommended value, unit), told below; intervals: name -> its 95 % interval, where known.
      method: how the answer was got; other_method: the other one, which is drawn thin, or None.
      rmse_percent: root mean square residual of the network's answer over the largest response, %; None without one.
      refined: of the answer by least squares `name` and `rmse_percent`; or None.
      do_not_use: why it must not be used; stands above all.
      assumed: what was assumed of the files.
    """
    groups = groups_of_tests(tests)
    columns = min(len(groups), _MOST_COLUMNS)
    rows = -(-len(groups) // columns)
    text = answer_text(parameters, intervals or {}, assumed)
    width = max(columns * _PANEL[0], 6.2)
    figure = new_figure(width, rows * _PANEL[1] + 0.9 + 0.19 * len(text.splitlines()))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    for panel, group in zip(panels, groups, strict=False):
        draw_tests(panel, group, strain_label, stress_label)
    errors = {"network": rmse_percent}
    if refined:
        errors[refined["name"]] = refined["rmse_percent"]
    drawn = [method, *([other_method] if other_method else [])]
    labels = [_with_error(one, errors.get(one) if len(drawn) > 1 else None) for one in drawn]
    handles, _ = panels[0].get_legend_handles_labels()
    if any(len(group) > 1 for group in groups):
        text += f"\ndashed: {labels[1]}" if other_method else ""
        handles, labels = [], []
    elif len(handles) > len(labels):
        labels.insert(0, "measured")
    legend = figure.legend(
        handles[: len(labels)],
        labels,
        loc="outside lower left",
        title=text or None,
        alignment="left",
        frameon=False,
    )
    legend.get_title().set_fontweight("bold")
    title = f"{short_name(name)}: {law_title}" if law_title else short_name(name)
    heading = (
        [textwrap.fill(f"DO NOT USE: {', '.join(do_not_use)}", int(11 * width))]
        if do_not_use
        else []
    )
    figure.suptitle(
        "\n".join([*heading, title]),
        color=WARNING if do_not_use else None,
        fontsize=11,
        fontweight="bold",
        parse_math=False,
    )
    return figure


def _with_error(method: str, percent: float | None) -> str:
    return method if percent is None else f"{method}: RMSE {format_value(percent, 2)} % of max."


def groups_of_tests(tests: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Tests that share a panel: those of one kind that do not turn, as many as there are colours."""
    groups: list[list[Mapping[str, Any]]] = []
    for test in tests:
        fits = next(
            (
                group
                for group in groups
                if group[0]["kind"] == test["kind"]
                and not (test["turns"] or group[0]["turns"])
                and len(group) < MOST_SERIES
            ),
            None,
        )
        if fits is None:
            groups.append([test])
        else:
            fits.append(test)
    return groups


def draw_tests(
    panel: Axes, tests: Sequence[Mapping[str, Any]], strain_label: str, stress_label: str
) -> None:
    """Tests of one kind: stress over strain, or the answer over the time; see `record_figure`."""
    over_time = tests[0]["kind"] in _OVER_TIME and tests[0]["time"] is not None
    strain_driven = tests[0]["drives"] == "strain"
    for i, test in enumerate(tests):
        colours = (MEASURED, MODEL) if len(tests) == 1 else (COLOURS[i], COLOURS[i])
        label = test["settings"] or test["name"]
        if test.get("rmse_percent") is not None:
            label = f"{label}: {format_value(test['rmse_percent'], 2)} %"
        response = test["stress_mpa"] if strain_driven else test["strain"]
        driven = test["strain"] if strain_driven else test["stress_mpa"]
        answers = [each for each in (test["answer"], test.get("other")) if each is not None]
        if over_time:
            held = test["time"] > 0
            place, response = test["time"][held], None if response is None else response[held]
            lines = [(place, response), *((place, found[held]) for found in answers)]
        elif strain_driven:
            lines = [(driven, response), *((driven, found) for found in answers)]
        else:
            lines = [(response, driven), *((found, driven) for found in answers)]
        measured, answered, *others = lines
        if response is not None:
            label_of_points = "measured" if len(tests) == 1 else "_"
            _draw_measured(panel, *measured, colours[0], label_of_points)
        panel.plot(*answered, "-", color=colours[1], lw=1.0 if test["turns"] else 2.0, label=label)
        for line in others:
            colour = SECOND if len(tests) == 1 else colours[1]
            other_label = "other" if len(tests) == 1 else "_"
            panel.plot(*line, "--", color=colour, lw=0.8, label=other_label)
    if over_time:
        panel.set_xscale("log")
        panel.set_xlabel("time (s)")
        panel.set_ylabel(f"{stress_label} (MPa)" if strain_driven else f"{strain_label} (–)")
    else:
        panel.set_xlabel(f"{strain_label} (–)")
        panel.set_ylabel(f"{stress_label} (MPa)")
    title = f"{tests[0]['title']}"
    if len(tests) == 1:
        error = tests[0].get("rmse_percent")
        told = [short_name(tests[0]["name"], 24), tests[0]["settings"]]
        told += [f"RMSE {format_value(error, 2)} % of max."] if error is not None else []
        title += "\n" + ", ".join(filter(None, told))
    else:
        panel.legend(frameon=False, fontsize=8)
    panel.set_title(title, loc="left", fontsize=9, parse_math=False)
    finish(panel)


def _draw_measured(panel: Axes, x: np.ndarray, y: np.ndarray, colour: str, label: str) -> None:
    """Points, small where they are many."""
    size = 4.0 if len(x) < 100 else 2.0
    panel.plot(
        x, y, linestyle="none", marker="o", ms=size, mfc="none", mec=colour, mew=0.7, label=label
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TestPanel:
    """What one test shows.

    Attributes:
      title: of the test.
      lines: (x, y) of every record, [points] each.
      xlabel, ylabel: with units.
      log: the logarithmic axes: `x`, `y`, `xy`, or none.
    """

    __test__ = False  # no case of pytest's

    title: str
    lines: Sequence[tuple[Array, Array]]
    xlabel: str
    ylabel: str
    log: str = ""


def tests_figure(title: str, panels: Sequence[TestPanel]) -> Figure:
    """One panel per test; a record has the same colour in all of them."""
    columns = min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    width = _PANEL[0] * columns
    figure = new_figure(width, _PANEL[1] * rows + 0.5)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, panel in zip(places, panels, strict=False):
        for i, (x, y) in enumerate(panel.lines):
            place.plot(x, y, lw=1.2, color=COLOURS[i % MOST_SERIES])
        complete(place, panel.xlabel, panel.ylabel, log=panel.log)
        place.set_title(panel.title, fontsize=10)
    for place in places[len(panels) :]:
        place.set_visible(False)
    figure.suptitle(textwrap.fill(title, int(9 * width)), fontsize=11, fontweight="bold")
    return figure

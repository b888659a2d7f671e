"""Sections of the report on a run that tell how good its answers are."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes

from tfmat.report.accuracy_figures import draw_errors, draw_predicted
from tfmat.report.calibration_figure import draw_coverage, draw_spread
from tfmat.report.comparison_section import no_yardstick, with_error
from tfmat.report.figures import new_figure
from tfmat.report.formatting import BIN_TITLES, format_value, with_unit
from tfmat.report.page import Columns, Paragraph, Plot, Section, Table
from tfmat.report.run_files import RunFiles
from tfmat.report.run_numbers import error_bins, parameter_answers
from tfmat.report.svg import inline_svg
from tfmat.report.verdict import COVERAGE_GOOD, error_text
from tfmat.report.yardstick_figure import draw_bins

# Of a panel, inches, by how many stand side by side: text stays readable, also on a telephone.
_PANEL = {1: (4.3, 3.2), 2: (4.3, 3.3), 3: (3.3, 2.9)}

_COVERAGE_LEGEND = (
    "Left: the share of the intervals that hold the truth, over the share that should. Right: in "
    "groups of curves, how far off "
    "the answers are over how far off the network expects them to be. On the dashed line it knows its own errors."
)


def panel_plot(name: str, description: str, draw: Callable[[Axes], None], columns: int = 2) -> Plot:
    """A picture of one panel, of which so many stand side by side, ready for the page."""
    figure = new_figure(*_PANEL[columns])
    draw(figure.subplots())
    return Plot(inline_svg(figure, name, description))


def accuracy(run: RunFiles) -> Section:
    """The errors of each parameter, and identified against true values."""
    title = "How accurate it is"
    evaluation = run.evaluation
    if not evaluation.get("parameters"):
        return Section(title, [Paragraph(_why_not_evaluated(run))])
    blocks: list[Any] = [
        Paragraph(
            f"The network's answers to {evaluation['num_curves']:,} noisy test curves that no "
            "training has seen, beside the "
            "parameters that those curves were made with."
        ),
        _accuracy_table(evaluation),
    ]
    answers = parameter_answers(run)
    if not answers:
        text = f"The single answers are not in the folder; pictures come with: tfmat evaluate --workdir={run.workdir}"
        return Section(title, [*blocks, Paragraph(text, quiet=True)])
    with_floor = any(each.floor is not None for each in answers)
    for i, each in enumerate(answers):
        predicted = panel_plot(
            f"predicted-{i}",
            f"identified against true {each.name}",
            functools.partial(draw_predicted, answers=each),
        )
        errors = panel_plot(
            f"error-{i}",
            f"error of {each.name} over its true value",
            functools.partial(draw_errors, answers=each),
        )
        blocks.append(Columns([predicted, errors]))
    text = (
        "Left: every point is a curve; on the line the answer is right. Right: 95 % of the errors lie "
        "between the solid lines"
    )
    if with_floor:
        text += "; the grey band is where they would lie for the best possible method (Bayes risk): what noise and "
        text += "short curves make unavoidable."
    else:
        text += ". The least that is possible has not been worked out for these curves."
    return Section(title, [*blocks, Paragraph(text, quiet=True)])


def _why_not_evaluated(run: RunFiles) -> str:
    if run.status.get("state", "done") == "done":
        return f"Not measured yet. Measure it with: tfmat evaluate --workdir={run.workdir}"
    return "Not measured: that comes after the training, which has not come to its end."


def _accuracy_table(evaluation: Mapping[str, Any]) -> Table:
    yardstick = evaluation.get("yardstick")
    headings = ["parameter", "mean absolute\nerror", "R²", "MSE\n(scaled 0–1)"]
    if yardstick:
        headings += ["best possible\n(Bayes risk)", "η = MSE /\nbest possible"]
    rows = []
    for name, score in evaluation["parameters"].items():
        r2 = score.get("r2")
        row = [
            with_unit(name, score["unit"]),
            error_text(score),
            "–" if r2 is None else f"{r2:.4f}",
            f"{score['mse']:.2e}",
        ]
        if yardstick:
            entry = yardstick["parameters"][name]
            row += [f"{entry['bayes_risk']:.2e}", with_error(entry["eta"], entry["eta_error"])]
        rows.append(row)
    note = ""
    if yardstick:
        note = (
            f"η and the Bayes risk are those of the first {yardstick['num_curves']:,} test curves "
            f"({yardstick['method']})."
        )
    return Table(headings, rows, note)


def by_kind_of_curve(run: RunFiles) -> Section | None:
    """Error over the largest strain and the noise."""
    bins = error_bins(run)
    if not bins:
        return None
    columns = min(len(bins), 3)
    plots = []
    for row, name in enumerate(next(iter(bins.values()))[0]["parameters"]):
        for column, quantity in enumerate(bins):
            plots.append(
                panel_plot(
                    f"kind-{row}-{column}",
                    f"mean squared error of {name} over {BIN_TITLES[quantity]}",
                    functools.partial(
                        _draw_kind,
                        bins=bins[quantity],
                        quantity=quantity,
                        name=name,
                        first=not column,
                    ),
                    columns,
                )
            )
    text = "Test curves sorted into groups of similar size; each point is the mean squared error of one group."
    if not run.evaluation.get("yardstick"):
        text += f" {no_yardstick(run)}"
    return Section("Which curves are hard", [Paragraph(text), Columns(plots, columns)])


def _draw_kind(panel: Axes, *, bins: Any, quantity: str, name: str, first: bool) -> None:
    """One panel; the legend is in the first of each row."""
    draw_bins(panel, bins, quantity, name)
    if not first or len(panel.lines) < 2:
        return
    low, high = panel.get_ylim()
    panel.set_ylim(low, high * (high / low) ** 0.4)
    panel.legend(frameon=False, fontsize=8, loc="upper center")


def coverage(run: RunFiles) -> Section | None:
    """How often the network's own intervals hold the truth; None where it gives no intervals."""
    found = run.evaluation.get("coverage")
    if not isinstance(found, dict) or not found:
        return None
    rows, plots = [], []
    farthest = 0.0
    for i, (name, scores) in enumerate(found.items()):
        shares = {level: scores.get(level) for level in ("50", "90", "95")}
        farthest = max(
            [farthest, *(abs(100 * s - float(n)) for n, s in shares.items() if s is not None)]
        )
        cells = ["–" if share is None else f"{100 * share:.1f} %" for share in shares.values()]
        rows.append([name, *cells, format_value(scores.get("mean_width_95"), 3)])
        if scores.get("curve"):
            draw = functools.partial(draw_coverage, curve=scores["curve"])
            plots.append(
                _coverage_plot(f"coverage-{i}", f"{name}: intervals that hold the truth (%)", draw)
            )
        if scores.get("bins"):
            draw = functools.partial(draw_spread, bins=scores["bins"])
            plots.append(_coverage_plot(f"spread-{i}", f"error of {name} (root mean square)", draw))
    text = (
        "The network gives an interval with each answer. On the test curves these hold the truth as "
        "often as they say, "
    )
    text += f"to within {farthest:.1f} percentage points"
    text += (
        ": on simulated curves they can be relied on. A measured curve that the law does not follow gets none."
        if farthest <= COVERAGE_GOOD
        else ": too far off to be relied on."
    )
    headings = [
        "parameter",
        "50 % intervals\nhold the truth",
        "90 %",
        "95 %",
        "mean width of 95 %\n(scaled 0–1)",
    ]
    blocks: list[Any] = [Paragraph(text), Table(headings, rows)]
    if plots:
        blocks += [Columns(plots), Paragraph(_COVERAGE_LEGEND, quiet=True)]
    return Section("Can its error bars be trusted?", blocks)


def _coverage_plot(name: str, label: str, draw: Callable[[Axes], None]) -> Plot:
    def labelled(panel: Axes) -> None:
        draw(panel)
        panel.set_ylabel(label, parse_math=False)
        panel.set_xlabel(
            "as they say (%)"
            if name.startswith("coverage")
            else "standard deviation that it gives (0–1)"
        )

    return panel_plot(name, label, labelled)

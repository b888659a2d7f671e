"""Answers as people see them: printed, as CSV or Excel, as a part of a notebook, drawn into axes."""

import base64
import csv
import html
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from tfmat.console import open_console
from tfmat.files import spreadsheet_row
from tfmat.identification.answer import Identification
from tfmat.identification.results import Answer
from tfmat.report.tables import (
    format_unit,
    format_value,
    identification_table,
    next_test_table,
    note_lines,
    notes_of,
    parameter_table,
    ranking_table,
    shared_beginning,
    tensile_table,
    tests_table,
    verdict_of,
)

# --------------------------------------------------------------------------------------------------
# Rows of a table, for CSV files and workbooks.


_CERTIFICATE = (
    "status", "reason", "pareto_k", "effective_draws", "posterior_predictive_p", "independent_noise_p",
    "r_hat",
)  # fmt: skip
_DETAILS = ("network", "network_ci95", "least_squares", "least_squares_ci95")


def answer_rows(results: Sequence[Answer], details: bool = False) -> list[list[Any]]:
    """The names of the columns with their units, each once, and a row per curve.

    First what decides (curve, law, do_not_use and why), then the recommended values with their intervals, the
    conditions and tensile properties of the test, what was assumed, and the warnings. Where a network has a posterior
    its certificate follows, and the mean and the shortest 95 % interval of each parameter.

    Args:
      details: also the network's and the least-squares values.
    """
    units = {name: value.unit for result in results for name, value in result.parameters.items()}
    keys = ("value", "std", "ci95", *(_DETAILS if details else ()))
    conditions = list(dict.fromkeys(key for result in results for key in result.conditions))
    tensile = next((result.tensile for result in results if result.tensile), {})
    header = ["curve", "law", "do_not_use", "reasons", "method"]
    for name, unit in units.items():
        for key in keys:
            ends = [f" {key}_low", f" {key}_high"] if key.endswith("ci95") else [f" {key}"]
            header += [f"{name}{'' if end == ' value' else end} [{unit}]" for end in ends]
    header += ["rmse_percent", "num_points", *conditions]
    for field, entry in tensile.items():
        # E of the law has a column of its own.
        symbol = f"chord {entry.symbol}" if field == "modulus_mpa" else entry.symbol
        header += [f"{symbol} [{entry.unit}]", f"{symbol} is"]
    header += ["assumed", "warnings"]
    certified = any(result.posterior for result in results)
    if certified:
        header += ["posterior", *_CERTIFICATE[1:]]
        for name, unit in units.items():
            header += [
                f"{name} posterior {end} [{unit}]" for end in ("mean", "ci95_low", "ci95_high")
            ]
    rows = [header]
    for result in results:
        refused = "yes" if result.do_not_use else "no"
        row: list[Any] = [result.curve, result.law, refused]
        row += ["; ".join(result.reasons), result.method]
        for name in units:
            for key in keys:
                known = getattr(result.parameters.get(name), key, None)
                row += list(known or (None, None)) if key.endswith("ci95") else [known]
        row += [result.rmse_percent, result.num_points]
        row += [result.conditions.get(key) for key in conditions]
        for field in tensile:
            found = (result.tensile or {}).get(field)
            value = found.value if found else None
            bound = "at least" if found and found.at_least else "exact"
            row += [value, None if value is None else bound]
        row.append("; ".join(result.assumed))
        row.append(" | ".join(f"{each.kind}: {each.text}" for each in result.warnings))
        if certified:
            posterior = result.posterior or None
            row += [getattr(posterior, key, None) for key in _CERTIFICATE]
            for name in units:
                sampled = posterior.parameters.get(name) if posterior else None
                row += [sampled.mean, *sampled.ci95] if sampled else [None, None, None]
        rows.append(row)
    return [spreadsheet_row(row) for row in rows]


def csv_text(results: Sequence[Answer], details: bool = False) -> str:
    """The text of a CSV file; see `answer_rows`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(answer_rows(results, details))
    return text.getvalue()


def workbook(answers: Sequence[Identification], details: bool = False) -> bytes:
    """An Excel file: the rows of the CSV file, and a sheet with the points of each curve, measured and answered."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "answers"
    for row in answer_rows([answer.entry() for answer in answers], details):
        sheet.append(row)
    for number, answer in enumerate(answers, start=1):
        # Excel allows 31 signs, and some not at all.
        title = "".join("_" if sign in r"[]:*?/\'" else sign for sign in answer.curve.name)
        sheet = book.create_sheet(f"{number} {title}"[:31])
        response = answer.resimulated_mpa
        if response is None or answer.law is None:
            response, law = np.full(len(answer.curve.strain), np.nan), "no law"
        else:
            law = answer.law.title
        unit = "MPa" if answer.curve.tests[0].programme.drives == "strain" else "-"
        sheet.append(["test", "strain [-]", "stress [MPa]", f"{law} [{unit}]"])
        for test, fitted in zip(answer.curve.tests, answer.curve.split(response), strict=True):
            for strain, stress, found in zip(test.strain, test.stress_mpa, fitted, strict=True):
                row = spreadsheet_row([test.name])
                known = float(found) if np.isfinite(found) else None
                sheet.append([*row, float(strain), float(stress), known])
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


# --------------------------------------------------------------------------------------------------
# Printed on a terminal.


def print_results(
    results: Sequence[Answer],
    *,
    network: str | None = None,
    details: bool = False,
    cards: Sequence[tuple[str, str]] = (),
    kind: str = "",
    not_needed: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """The tables; below them the steps of a single curve, every kind of warning once, and which network answered.

    Args:
      results: pooled answers last.
      network: the name of the network that answered; None for none.
      cards: what `write_cards` said.
      kind, not_needed: what was tested, and the laws for it that were not fitted, where laws were ranked.
      console: where they are printed; None is standard output.
    """
    console = console or open_console()
    pooled = [result for result in results if result.is_pooled]
    singles = [result for result in results if not result.is_pooled]
    notes = notes_of(results)
    shared = shared_beginning([result.curve for result in singles])
    if results and results[0].ranking:
        console.print(ranking_table(results[0].ranking, kind, not_needed))
    if len(singles) > 1:
        console.print(identification_table(singles, notes))
    detailed = [*(singles if details or len(singles) == 1 else []), *pooled]
    for result in detailed:
        console.print(parameter_table(result, details))
        if result.do_not_use:
            text = f"DO NOT USE THIS ANSWER: {', '.join(result.reasons)}"
            console.print(Text(text, style="bold red"), soft_wrap=True)
    for result in detailed:
        if result.tests:
            console.print(tests_table(result.curve, result.tests))
    for result in results:
        if result.next_test:
            console.print(next_test_table(result.curve, result.next_test))
            for sentence in result.next_test.sentences:
                console.print(Text(sentence), soft_wrap=True)
    tests = tensile_table(results)
    if tests is not None:
        console.print(tests)
    if len(singles) == 1:
        _print_steps(console, singles[0])
    for result in pooled:
        _print_steps(console, result)
    for note in notes:
        if len(results) == 1:
            lines = [
                f"warning: {warning.text}{'; ' if warning.advice else ''}{warning.advice}"
                for warning in results[0].warnings
                if warning.kind == note.kind
            ]
        else:
            lines = note_lines(note, len(results), shared)
        for line in lines:
            console.print(Text(line, style="yellow"), soft_wrap=True)
    if network is not None:
        console.print(Text(f"network: {network}", style="dim"), soft_wrap=True)
    for style, line in cards:
        console.print(Text(line, style=style), soft_wrap=True)


def _print_steps(console: Console, result: Answer) -> None:
    for step in result.steps:
        console.print(Text(f"  · {step}", style="dim"), soft_wrap=True)


def summary(answer: Identification) -> str:
    """The text that `tfmat identify` prints of one answer, without colours."""
    text = io.StringIO()
    print_results([answer.entry()], console=Console(file=text, width=120, highlight=False))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


# --------------------------------------------------------------------------------------------------
# In a notebook.


# _RED, _AMBER: what must not be used, and warnings; readable on white and on black.
_RED, _AMBER = "#d14343", "#b7791f"


def line(answer: Identification) -> str:
    """An answer in one line: what it is of, the values, the error, and what speaks against it."""
    law = f"{answer.law.name}: " if answer.law else ""
    values = ", ".join(
        f"{name} {format_value(value.value)} {format_unit(value.unit)}".rstrip()
        for name, value in answer.parameters.items()
    )
    said = [f"{law}{values}"]
    if answer.rmse_percent is not None:
        said.append(f"error {format_value(answer.rmse_percent, 3)} %")
    if answer.warnings:
        said.append(f"{len(answer.warnings)} warning{'s' if len(answer.warnings) > 1 else ''}")
    if answer.do_not_use:
        said.append(f"DO NOT USE: {', '.join(answer.do_not_use)}")
    return f"<Identification of {answer.curve.name}, {'; '.join(said)}>"


def page_part(answer: Identification) -> str:
    """An answer as HTML: the parameters, whether they may be used, the warnings and the figure."""
    law = f": {answer.law.title}" if answer.law else ""
    parts = [f"<b>{html.escape(answer.curve.name + law)}</b>"]
    if answer.do_not_use:
        reasons = html.escape(", ".join(answer.do_not_use))
        parts.append(f'<div style="color:{_RED}"><b>DO NOT USE THIS ANSWER: {reasons}</b></div>')
    cells = [["parameter", "value", "95 % interval", "unit"]]
    for name, value in answer.parameters.items():
        interval = "given" if value.fixed else "not known"
        if value.ci95 is not None:
            interval = " … ".join(map(format_value, value.ci95))
        cells.append([name, format_value(value.value), interval, format_unit(value.unit)])
    parts.append(_table(cells))
    if answer.rmse_percent is not None:
        parts.append(
            f"<div>error {format_value(answer.rmse_percent, 3)} % of the maximum, "
            f"{answer.curve.num_points} points</div>"
        )
    if answer.ranking:
        said = [
            f"{each.law} ({verdict_of(place, each) or 'worse'})"
            for place, each in enumerate(answer.ranking)
        ]
        parts.append(f"<div>laws, the best first: {html.escape(', '.join(said))}</div>")
    for warning in answer.warnings:
        said_of = "; ".join(filter(None, (warning.text, warning.advice)))
        parts.append(f'<div style="color:{_AMBER}">⚠ {html.escape(said_of)}</div>')
    image = base64.b64encode(picture(answer)).decode()
    parts.append(
        f'<img src="data:image/png;base64,{image}" style="max-width:560px" alt="measured points and the law">'
    )
    return f'<div class="tfmat">{"".join(parts)}</div>'


def _table(cells: Sequence[Sequence[str]]) -> str:
    header, *rows = (
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for tag, row in zip(["th", *["td"] * len(cells)], cells, strict=False)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def picture(answer: Identification) -> bytes:
    """The figure of `tfmat identify --plot_dir`, as PNG."""
    from tfmat.report.figures import answer_figure, png

    return png(answer_figure(answer.picture()))


def draw(answer: Identification, axes: Any = None) -> Any:
    """Measured points and the law in matplotlib's axes, by default in new ones of pyplot; returns the axes.

    Tests of several kinds have axes each, beside each other: then an array of axes is given and returned.
    """
    import matplotlib.pyplot

    from tfmat.report.figures import draw_answer, panels_of

    found = answer.picture()
    count = panels_of(found)
    if axes is None:
        axes = matplotlib.pyplot.subplots(
            1, count, figsize=(4.5 * count, 4.0), layout="constrained"
        )[1]
    draw_answer(found, list(np.atleast_1d(axes).ravel()))
    return axes

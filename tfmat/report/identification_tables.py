"""Tables of answers for the terminal, made from the entries that `tfmat identify --json` writes."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from tfmat.report.formatting import format_value, with_unit
from tfmat.report.tables import text_table

METHODS = {
    "least_squares": "least squares",
    "network": "network",
    "given": "given",
    "mean of specimens": "mean of specimens",
}
# Tensile properties: symbol -> factor and unit that people read them in.
_READ_IN = {"E": (1e-3, "GPa"), "Ag": (100.0, "%")}
# Those that stand in the table; the JSON file holds all.
_SHOWN = ("E", "Rp0.2", "Rm", "Ag")
_MOST_NAMES = 6
# Letters that all names of curves begin with are left out from this number on.
_WORTH_LEAVING_OUT = 5


@dataclasses.dataclass(frozen=True)
class Note:
    """One kind of warning, told once for all curves that it is true of.

    Attributes:
      mark: letter that stands in the table.
      kind, advice: as the warnings have them; example: the sentence of the first curve.
      curves: names, in order.
    """

    mark: str
    kind: str
    advice: str
    example: str
    curves: tuple[str, ...]


def notes_of(results: Iterable[Mapping[str, Any]]) -> list[Note]:
    """Every kind of warning once, the most frequent first."""
    found: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for result in results:
        for warning in result["warnings"]:
            found.setdefault(warning["kind"], []).append((result["curve"], warning))
    by_count = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        Note(
            _mark(i), kind, each[0][1]["advice"], each[0][1]["text"],
            tuple(dict.fromkeys(curve for curve, _ in each)),
        )
        for i, (kind, each) in enumerate(by_count)
    ]  # fmt: skip


def _mark(i: int) -> str:
    letter = chr(ord("a") + i % 26)
    return letter if i < 26 else f"{letter}{i // 26 + 1}"


def identification_table(
    results: Sequence[Mapping[str, Any]], notes: Sequence[Note] | None = None
) -> Table:
    """One row per curve: the recommended values, the error of their curve, and whether they may be used.

    Args:
      results: the entries that `tfmat identify --json` writes.
      notes: kinds of warnings whose marks stand in the last column; None finds them.
    """
    notes = notes_of(results) if notes is None else notes
    law = next((result["law"] for result in results), None)
    table = _batch_table(f"law {law}" if law else None)
    table.add_column("curve", overflow="fold")
    shared = shared_beginning([result["curve"] for result in results])
    parameters: Mapping[str, Any] = results[0]["parameters"] if results else {}
    for name, entry in parameters.items():
        given = "\ngiven" if entry["method"] == "given" else ""
        table.add_column(with_unit(name, entry["unit"]) + given, justify="right", no_wrap=True)
    table.add_column("error\n%", justify="right", no_wrap=True)
    methods = {result["method"] for result in results}
    if len(methods) > 1:
        table.add_column("got by")
    certified = any("posterior" in result for result in results)
    if certified:
        table.add_column("posterior", overflow="fold")
    assumed = any(result["assumed"] for result in results)
    if assumed:
        table.add_column("assumed", overflow="fold")
    table.add_column("use", overflow="fold")
    table.add_column("notes")
    for result in results:
        cells = [format_value(entry["value"]) for entry in result["parameters"].values()]
        cells.append(format_value(result["rmse_percent"], 3))
        cells += [METHODS[result["method"]]] if len(methods) > 1 else []
        cells += [result.get("posterior", {"status": "–"})["status"]] if certified else []
        cells += [_assumed(result["assumed"])] if assumed else []
        marks = [note.mark for note in notes if result["curve"] in note.curves]
        # As Text, so that a file called `[a].csv` is not taken for a style.
        table.add_row(
            Text(result["curve"].removeprefix(shared)), *cells, _use(result), " ".join(marks)
        )
    if shared:
        table.caption = f"curves without '{shared}', with which every name begins"
    return table


def _batch_table(title: str | None) -> Table:
    """A table with one row per curve, as narrow as can be."""
    return Table(
        title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )  # fmt: skip


def shared_beginning(names: Sequence[str]) -> str:
    """What all names begin with, up to the last mark between words, where leaving it out makes them clearly shorter."""
    if len(names) < 2:
        return ""
    # Both ends of the alphabet share what all share.
    first, last = min(names), max(names)
    length = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first)
    )
    shared = first[:length]
    while shared and (shared[-1].isalnum() or shared in names):
        shared = shared[:-1]
    return shared if len(shared) >= _WORTH_LEAVING_OUT else ""


def _assumed(texts: Sequence[str]) -> str:
    """What was assumed, in as few words as possible: `mm/mm, MPa`."""
    short = [text.removeprefix("strain in ").removeprefix("stress in ") for text in texts]
    return ", ".join(short) or "–"


def _use(result: Mapping[str, Any]) -> Text:
    if result["do_not_use"]:
        return Text(f"NO: {', '.join(result['reasons'])}", style="bold red")
    return Text("yes")


def parameter_table(result: Mapping[str, Any], details: bool = False) -> Table:
    """One row per parameter of one answer: the recommended value, its interval, and how it was got.

    Args:
      result: an entry of the JSON file.
      details: also the network's answer and the best fit.
    """
    title = f"{result['curve']}, law {result['law']}" if result["law"] else result["curve"]
    pooled = result["method"] == "mean of specimens"
    of_mean = " of the mean" if pooled else ""
    headings = ["parameter", "value", "scatter (std)" if pooled else "± std"]
    headings += [f"95 % interval{of_mean}", "got by"]
    if pooled:
        headings.append("next specimen, 95 %")
    together = "all together" if pooled else "least squares"
    if details:
        headings += [
            "network",
            "network's 95 % interval",
            together,
            "its 95 % interval",
        ]
    elif pooled:
        headings.append(f"least squares,\n{together}")
    rows: list[list[str | Text]] = []
    for name, entry in result["parameters"].items():
        row: list[str | Text] = [
            with_unit(name, entry["unit"]), Text(format_value(entry["value"]), "bold"),
            format_value(entry["std"], 3), _interval(entry["ci95"]), METHODS[entry["method"]],
        ]  # fmt: skip
        if pooled:
            row.append(_interval(entry.get("next_specimen_ci95")))
        if details:
            row += [
                format_value(entry["network"]), _interval(entry["network_ci95"]),
                format_value(entry["least_squares"]), _interval(entry["least_squares_ci95"]),
            ]  # fmt: skip
        elif pooled:
            row.append(format_value(entry["least_squares"]))
        rows.append(row)
    return text_table(title, headings, rows, caption=_caption(result), left=(0, 4))


def tensile_table(results: Sequence[Mapping[str, Any]]) -> Table | None:
    """One row per curve: the conditions of its test and its tensile properties; None where there are neither."""
    conditions = list(dict.fromkeys(key for result in results for key in result["conditions"]))
    tensile = [result["tensile"] for result in results if result["tensile"]]
    if not conditions and not tensile:
        return None
    table = _batch_table("tests")
    table.add_column("curve", overflow="fold")
    shared = shared_beginning([result["curve"] for result in results])
    for key in conditions:
        table.add_column(Text(key), justify="right", overflow="fold")
    shown = [
        entry for entry in (tensile[0].values() if tensile else ()) if entry["symbol"] in _SHOWN
    ]
    for entry in shown:
        unit = _READ_IN.get(entry["symbol"], (1.0, entry["unit"]))[1]
        table.add_column(with_unit(entry["symbol"], unit), justify="right", no_wrap=True)
    if tensile:
        table.caption = (
            "E chord modulus, Rp0.2 proof stress, Rm tensile strength, Ag plastic strain at maximum load (ISO 6892-1); "
            "≥: the record ends before; the JSON file has more, and how each was got"
        )
    for result in results:
        cells = [Text(result["conditions"].get(key, "–")) for key in conditions]
        by_symbol = {e["symbol"]: e for e in (result["tensile"] or {}).values()}
        values = [_property(by_symbol.get(entry["symbol"])) for entry in shown]
        table.add_row(Text(result["curve"].removeprefix(shared)), *cells, *values)
    return table


def tests_table(result: Mapping[str, Any]) -> Table:
    """One row per test of one answer: what it is, its settings, and how far the answer is from it."""
    headings = ["file", "test", "settings", "half cycles", "points", "error", "% of largest"]
    rows: list[list[str | Text]] = [
        [
            Text(test["name"]),
            test["test"],
            ", ".join(
                f"{name} {with_unit(format_value(entry['value'], 3), entry['unit'])}"
                for name, entry in test["settings"].items()
            ),
            str(test["half_cycles"]),
            str(test["num_points"]),
            with_unit(format_value(test["rmse"], 3), test["rmse_unit"]),
            format_value(test["rmse_percent"], 3),
        ]
        for test in result["tests"]
    ]
    return text_table(f"tests of {result['curve']}", headings, rows, left=(0, 1, 2))


def _property(entry: Mapping[str, Any] | None) -> str:
    if entry is None or entry["value"] is None:
        return "–"
    factor = _READ_IN.get(entry["symbol"], (1.0, ""))[0]
    return f"{'≥ ' if entry.get('at_least') else ''}{format_value(factor * entry['value'])}"


def note_lines(note: Note, num_curves: int, shared: str = "") -> list[str]:
    """A note in two or three lines: what and whose, an example, and what to do.

    Args:
      shared: beginning of all curves' names, which is left out.
    """
    names = ", ".join(name.removeprefix(shared) for name in note.curves[:_MOST_NAMES])
    if len(note.curves) > _MOST_NAMES:
        names += f" and {len(note.curves) - _MOST_NAMES} more"
    whose = "all"
    if len(note.curves) < num_curves:
        whose = f"{len(note.curves)} of {num_curves}: {names}"
    lines = [f"{note.mark}  {note.kind} ({whose})", f"   e.g. {note.example}"]
    return [*lines, f"   → {note.advice}"] if note.advice else lines


def _interval(ends: Sequence[float] | None) -> str:
    return f"{format_value(ends[0])} … {format_value(ends[1])}" if ends else "–"


def _certificate(posterior: Mapping[str, Any]) -> str:
    """What is said of a posterior: `; posterior corrected (Pareto k 0.21, worth 800 draws)`."""
    said = [posterior["reason"]] if posterior["reason"] else []
    k, r_hat = posterior["pareto_k"], posterior.get("r_hat")
    if (k is not None or r_hat is not None) and not said:
        tells = f"Pareto k {k:.2g}" if r_hat is None else f"R-hat {r_hat:.4g}"
        said = [f"{tells}, worth {posterior['effective_draws']:.0f} draws"]
    if (p := posterior["posterior_predictive_p"]) is not None:
        said.append(f"posterior predictive p {p:.2g}")
    return f"; posterior {posterior['status']} ({', '.join(said)})"


def _caption(result: Mapping[str, Any]) -> str:
    error = result["rmse_percent"]
    text = "" if error is None else f"error of its curve {error:.3g} % of the maximum stress, "
    text += f"{result['num_points']} points"
    text += _certificate(result["posterior"]) if "posterior" in result else ""
    return text + (f"; assumed: {', '.join(result['assumed'])}" if result["assumed"] else "")

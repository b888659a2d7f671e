"""The tables of `tfmat tune --status`."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tfmat.report.formatting import duration_text, format_value
from tfmat.report.tables import text_table

_STYLES = {"done": "green", "running": "blue", "failed": "red", "diverged": "yellow"}
# Columns that are no hyper-parameters.
_FIXED = {"trial", "state", "fraction", "seconds", "started", "worker", "times_lost", "folder"}
_MOST_ROWS = 40


def tuning_tables(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The search in a few lines, its workers, and its trials, the best first.

    Args:
      summary: what `tfmat.tuning.status.Summary.to_json` says.
      rows: one a trial, as in trials.csv.
    """
    return [_overview(summary), *_workers(summary), *_trials(summary, rows)]


def overview_lines(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, how much) of a search, for the table and the page."""
    counts = {state: count for state, count in summary["counts"].items() if count}
    of = "" if summary["max_trials"] is None else f" of {summary['max_trials']}"
    total = sum(counts.values())
    lines = [
        (
            "algorithm",
            f"{summary['algorithm']}, each trial {summary['train_for']}{_seeds(summary)}",
        ),
        ("trials", f"{total}{of}: " + ", ".join(f"{n} {state}" for state, n in counts.items())),
    ]
    if summary["best"] is not None:
        value = format_value(summary["best_value"])
        lines.append(("best", f"trial {summary['best']}, {summary['objective']} {value}"))
    if summary["median_seconds"] is not None:
        lines.append(("a trial takes", f"{duration_text(summary['median_seconds'])} (median)"))
    if summary["utilization"] is not None:
        share = f"{100 * summary['utilization']:.0f} % of their time in trials"
        alive = sum(worker["alive"] for worker in summary["workers"])
        lines.append(("workers", f"{alive} at work; {share}"))
    lines.append(("search time", duration_text(summary["seconds"])))
    if summary["ended"]:
        lines.append(("ended", summary["ended"]))
    elif summary["seconds_left"] is not None:
        lines.append(("left", f"about {duration_text(summary['seconds_left'])}"))
    elif not any(worker["alive"] for worker in summary["workers"]):
        lines.append(("stands still", "no worker; the same tfmat tune command goes on"))
    return lines


def best_first(
    rows: Sequence[Mapping[str, Any]], objective: str, direction: str
) -> list[Mapping[str, Any]]:
    """The trials, those without a value last."""
    sign = -1.0 if direction == "max" else 1.0
    return sorted(rows, key=lambda row: (row[objective] is None, sign * (row[objective] or 0.0)))


def busy(worker: Mapping[str, Any]) -> str:
    """Share of its life that a worker spent in trials."""
    return f"{100 * worker['busy_seconds'] / max(worker['alive_seconds'], 1e-9):.0f} %"


def _seeds(summary: Mapping[str, Any]) -> str:
    return f", mean of {summary['seeds']} seeds" if summary["seeds"] > 1 else ""


def _overview(summary: Mapping[str, Any]) -> Table:
    table = Table(title=f"search {summary['name']}", title_justify="left", show_header=False)
    for what, text in overview_lines(summary):
        table.add_row(what, Text(text))
    return table


def _workers(summary: Mapping[str, Any]) -> list[Table]:
    if not summary["workers"]:
        return []
    rows = [
        [each["name"], each["host"], _now(each), busy(each), str(each["starts"])]
        for each in summary["workers"]
    ]
    headings = ["worker", "machine", "now", "busy", "starts"]
    return [text_table("workers", headings, rows, left=(1, 2))]


def _now(worker: Mapping[str, Any]) -> str:
    if not worker["alive"]:
        return "gone"
    return f"trial {worker['trial']}" if worker["trial"] else "idle"


def _trials(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    if not rows:
        return []
    objective = summary["objective"]
    others = _FIXED | {"reason", objective}
    names = list(dict.fromkeys(name for row in rows for name in row if name not in others))
    lines = [
        [
            row["trial"],
            Text(row["state"], style=_STYLES.get(row["state"], "")),
            format_value(row[objective]),
            *(value_cell(row.get(name)) for name in names),
            duration_text(row["seconds"]),
        ]
        for row in best_first(rows, objective, summary["direction"])[:_MOST_ROWS]
    ]
    headings = ["trial", "state", objective, *(n.replace(".", ".\n") for n in names), "time"]
    more = f" (first {_MOST_ROWS} of {len(rows)})" if rows[_MOST_ROWS:] else ""
    return [text_table(f"trials, the best first{more}", headings, lines, left=(0, 1))]


def value_cell(value: Any) -> str:
    """A hyper-parameter's value; – where it does not exist for this trial."""
    if value is None:
        return "–"
    return format_value(value, 3) if isinstance(value, float) else str(value)

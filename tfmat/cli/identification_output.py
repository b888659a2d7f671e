"""What `tfmat identify` leaves: tables on the terminal, a CSV file, and a picture a curve."""

import collections
import csv
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfmat.files import atomic_write, make_folder

if TYPE_CHECKING:
    from rich.table import Table

    from tfmat.identification.answers import Identification

# Beyond this many curves the warnings are counted, not written out twice.
_MOST_WARNINGS = 60


def write_csv(path: str, results: Sequence[Mapping[str, Any]]) -> None:
    """One row a curve, the columns named with their units; from the entries of the JSON file."""
    names = {
        name: entry["unit"] for result in results for name, entry in result["parameters"].items()
    }
    header = ["curve", "law"]
    intervals = ("ci95", *(["least_squares_ci95"] if _both(results) else []))
    keys = ["value", "std", "polished", "least_squares"]
    keys += ["least_squares_std"] if _both(results) else []
    for name, unit in names.items():
        parts = ["", *(f" {key}" for key in keys[1:])]
        parts += [f" {interval}_{end}" for interval in intervals for end in ("low", "high")]
        header += [f"{name}{part} [{unit}]" for part in parts]
    header += ["rmse_percent", "num_points", "warnings"]
    with atomic_write(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for result in results:
            row: list[Any] = [result["curve"], result["law"]]
            for name in names:
                entry = result["parameters"].get(name, {})
                row += [entry.get(key) for key in keys]
                for interval in intervals:
                    row += entry.get(interval) or (None, None)
            warnings = " | ".join(result["warnings"])
            writer.writerow([*row, result["rmse_percent"], result["num_points"], warnings])


def write_plots(results: "Sequence[Identification]", plot_dir: str) -> None:
    """One PNG a curve."""
    from tfmat.report.figures import curve_figure, save_figure
    from tfmat.report.progress import progress_bar

    taken: collections.Counter[str] = collections.Counter()
    folder = make_folder(plot_dir)
    with progress_bar("drawing", "curves") as progress:
        for done, result in enumerate(results, start=1):
            name = re.sub(r"[^\w.+=-]+", "_", result.curve.name).strip("_")
            # Different curves may become one name; none overwrites another.
            taken[name] += 1
            name += f"-{taken[name]}" if taken[name] > 1 else ""
            save_figure(curve_figure(**result.picture()), folder / f"{name}.png")
            if progress:
                progress(done, len(results))


def print_results(
    results: "Sequence[Identification]", pooled: "Identification | None" = None, *, network: str
) -> None:
    """The tables, and below them the steps (of a single curve), every warning, and which network answered."""
    from rich.console import Console
    from rich.text import Text

    from tfmat.report.tables import identification_table

    # A pipe or a file has no width; rich would fold everything into 80 columns.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    detailed = results[0] if len(results) == 1 else pooled
    if len(results) > 1 or detailed is None or not _has_least_squares(detailed):
        console.print(identification_table([result.to_json() for result in results]))
    if detailed is not None and (pooled is not None or _has_least_squares(detailed)):
        console.print(parameter_table(detailed.to_json(), pooled is not None))
    if detailed is not None:
        for step in detailed.curve.steps:
            console.print(Text(f"  · {step}", style="dim"), soft_wrap=True)
    lines = [(result.curve.name, warning) for result in results for warning in result.warnings]
    for name, warning in lines[:_MOST_WARNINGS]:
        style = "bold red" if warning.startswith("DO NOT") else "yellow"
        console.print(Text(f"warning: {name}: {warning}", style=style), soft_wrap=True)
    if len(lines) > _MOST_WARNINGS:
        console.print(
            f"and {len(lines) - _MOST_WARNINGS} more warnings; --json or --csv holds them all"
        )
    console.print(Text(f"network: {network}", style="dim"), soft_wrap=True)


def parameter_table(result: Mapping[str, Any], pooled: bool = False) -> "Table":
    """One row a parameter of one answer: the network's, polished, least squares and its interval.

    Args:
      result: an entry of the JSON file.
      pooled: it stands for several specimens.
    """
    from rich.table import Table
    from rich.text import Text

    from tfmat.report.formatting import format_value, with_unit

    title = f"{result['curve']}, law {result['law']}"
    table = Table(title=Text(title), title_justify="left", caption_justify="left")
    table.caption = _caption(result)
    table.add_column("parameter")
    given = any(entry.get("fixed") for entry in result["parameters"].values())
    first = "mean of specimens" if pooled else "answer" if given else "network"
    spread = "scatter (std)" if pooled else "± std"
    interval = "95 % interval" + (" of the mean" if pooled else "")
    both = _both([result])
    # The interval stands beside the value that it belongs to.
    values = ("polished", "least squares")
    errors = (spread, interval)
    for heading in (first, *(errors + values + errors if both else values + errors)):
        table.add_column(heading, justify="right")
    for name, entry in result["parameters"].items():
        fixed = " fixed" if entry.get("fixed") else ""
        refined = [format_value(entry[key]) for key in ("polished", "least_squares")]
        own = [format_value(entry["std"], 3), "–" if fixed else _interval(entry["ci95"])]
        cells = [*refined, *own]
        if both:
            ci95 = _interval(entry.get("least_squares_ci95"))
            cells = [*own, *refined, format_value(entry.get("least_squares_std"), 3), ci95]
        table.add_row(
            Text(with_unit(name, entry["unit"])), f"{format_value(entry['value'])}{fixed}", *cells
        )
    return table


def _interval(ends: Sequence[float] | None) -> str:
    from tfmat.report.formatting import format_value

    return f"{format_value(ends[0])} … {format_value(ends[1])}" if ends else "–"


def _both(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the network and least squares each give errors of their own."""
    entries = [entry for result in results for entry in result["parameters"].values()]
    return any("least_squares_ci95" in entry or "least_squares_std" in entry for entry in entries)


def _caption(result: Mapping[str, Any]) -> str:
    error = result["rmse_percent"]
    text = "" if error is None else f"re-simulated error {error:.3g} % of the maximum stress, "
    return f"{text}{result['num_points']} points"


def _has_least_squares(result: "Identification") -> bool:
    return any(value.least_squares is not None for value in result.parameters.values())

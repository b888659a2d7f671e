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
    for name, unit in names.items():
        parts = ("", " std", " polished", " least_squares", " ci95_low", " ci95_high")
        header += [f"{name}{part} [{unit}]" for part in parts]
    header += ["rmse_percent", "num_points", "warnings"]
    with atomic_write(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for result in results:
            row: list[Any] = [result["curve"], result["law"]]
            for name in names:
                entry = result["parameters"].get(name, {})
                low, high = entry.get("ci95") or (None, None)
                keys = ("value", "std", "polished", "least_squares")
                row += [*(entry.get(key) for key in keys), low, high]
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
    results: "Sequence[Identification]", pooled: "Identification | None" = None
) -> None:
    """The tables, and below them the steps (of a single curve) and every warning."""
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
    for heading in (first, "polished", "least squares"):
        table.add_column(heading, justify="right")
    table.add_column("scatter (std)" if pooled else "± std", justify="right")
    table.add_column("95 % interval" + (" of the mean" if pooled else ""), justify="right")
    for name, entry in result["parameters"].items():
        ci95 = entry["ci95"]
        interval = f"{format_value(ci95[0])} … {format_value(ci95[1])}" if ci95 else "–"
        fixed = " fixed" if entry.get("fixed") else ""
        table.add_row(
            Text(with_unit(name, entry["unit"])),
            f"{format_value(entry['value'])}{fixed}",
            *(format_value(entry[key]) for key in ("polished", "least_squares")),
            format_value(entry["std"], 3),
            "–" if fixed else interval,
        )
    return table


def _caption(result: Mapping[str, Any]) -> str:
    error = result["rmse_percent"]
    text = "" if error is None else f"re-simulated error {error:.3g} % of the maximum stress, "
    return f"{text}{result['num_points']} points"


def _has_least_squares(result: "Identification") -> bool:
    return any(value.least_squares is not None for value in result.parameters.values())

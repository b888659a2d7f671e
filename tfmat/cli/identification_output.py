"""What `tfmat identify` leaves: tables on the terminal, a CSV file, and a picture per curve."""

import collections
import csv
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.errors import InputError
from tfmat.files import atomic_write, make_folder, spreadsheet_row

if TYPE_CHECKING:
    from rich.console import Console

    from tfmat.identification.answers import Identification

_CERTIFICATE = (
    "status", "reason", "pareto_k", "effective_draws", "posterior_predictive_p", "independent_noise_p",
    "r_hat",
)  # fmt: skip
_DETAILS = ("network", "network_ci95", "least_squares", "least_squares_ci95")


def write_csv(path: str, results: Sequence[Mapping[str, Any]], *, details: bool = False) -> None:
    """One row per curve, the columns named with their units; from the entries of the JSON file.

    First what decides (curve, law, do_not_use and why), then the recommended values with their intervals, the
    conditions and tensile properties of the test, what was assumed, and the warnings. Where a network has a posterior
    its certificate follows, and the mean and the shortest 95 % interval of each parameter.

    Args:
      details: also the network's and the least-squares values.
    """
    units = {
        name: entry["unit"] for result in results for name, entry in result["parameters"].items()
    }
    keys = ("value", "std", "ci95", *(_DETAILS if details else ()))
    conditions = list(dict.fromkeys(key for result in results for key in result["conditions"]))
    tensile: Mapping[str, Any] = next(
        (result["tensile"] for result in results if result["tensile"]), {}
    )
    header = ["curve", "law", "do_not_use", "reasons", "method"]
    for name, unit in units.items():
        for key in keys:
            ends = [f" {key}_low", f" {key}_high"] if key.endswith("ci95") else [f" {key}"]
            header += [f"{name}{'' if end == ' value' else end} [{unit}]" for end in ends]
    header += ["rmse_percent", "num_points", *conditions]
    for entry in tensile.values():
        header += [f"{entry['symbol']} [{entry['unit']}]", f"{entry['symbol']} is"]
    header += ["assumed", "warnings"]
    certified = any("posterior" in result for result in results)
    if certified:
        header += ["posterior", *_CERTIFICATE[1:]]
        for name, unit in units.items():
            header += [
                f"{name} posterior {end} [{unit}]" for end in ("mean", "ci95_low", "ci95_high")
            ]
    with atomic_write(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(spreadsheet_row(header))
        for result in results:
            refused = "yes" if result["do_not_use"] else "no"
            row: list[Any] = [result["curve"], result["law"], refused]
            row += ["; ".join(result["reasons"]), result["method"]]
            for name in units:
                entry = result["parameters"].get(name, {})
                for key in keys:
                    known = entry.get(key)
                    row += list(known or (None, None)) if key.endswith("ci95") else [known]
            row += [result["rmse_percent"], result["num_points"]]
            row += [result["conditions"].get(key) for key in conditions]
            for field in tensile:
                entry = (result["tensile"] or {}).get(field, {})
                bound = "at least" if entry.get("at_least") else "exact"
                row += [entry.get("value"), None if entry.get("value") is None else bound]
            row.append("; ".join(result["assumed"]))
            row.append(" | ".join(f"{w['kind']}: {w['text']}" for w in result["warnings"]))
            if certified:
                posterior = result.get("posterior", {"parameters": {}})
                row += [posterior.get(key) for key in _CERTIFICATE]
                for name in units:
                    known = posterior["parameters"].get(name, {"mean": None, "ci95": (None, None)})
                    row += [known["mean"], *known["ci95"]]
            writer.writerow(spreadsheet_row(row))


def write_plots(results: "Sequence[Identification]", plot_dir: str) -> None:
    """One PNG per curve, and one each of its next test and of its samples where these were asked for."""
    from tfmat.console import progress_bar
    from tfmat.report.drawing import save_figure
    from tfmat.report.figures import next_test_figure
    from tfmat.report.posterior_figures import Corner
    from tfmat.report.record_figures import answer_figure

    folder = make_folder(plot_dir)
    with progress_bar("drawing", "curves") as progress:
        for done, (name, result) in enumerate(file_names(results), start=1):
            save_figure(answer_figure(result.picture()), folder / f"{name}.png")
            if result.next_test is not None:
                figure = next_test_figure(result.curve.name, result.next_test.to_json())
                save_figure(figure, folder / f"{name}.next_test.png")
            if (samples := result.posterior_picture()) is not None:
                save_figure(Corner(**samples).figure, folder / f"{name}.posterior.png")
            if progress:
                progress(done, len(results))


def file_names(results: "Sequence[Identification]") -> "Iterator[tuple[str, Identification]]":
    """Each answer with a name for its files; different curves may become one name, and none overwrites another."""
    taken: collections.Counter[str] = collections.Counter()
    for result in results:
        name = re.sub(r"[^\w.+=-]+", "_", result.curve.name).strip("_")
        taken[name] += 1
        yield name + (f"-{taken[name]}" if taken[name] > 1 else ""), result


def write_cards(
    results: "Sequence[Identification]",
    solvers: Sequence[str],
    card_dir: str,
    *,
    poisson_ratio: float | None = None,
    variants: bool = False,
) -> list[tuple[str, str]]:
    """A material card per answer and solver, NAME.SOLVER.inp, and its 5 % and 95 % variants; all, or none is written.

    Returns:
      (style, line) for the terminal: what was written, and what the user should know of it.
    """
    from tfmat.cards.material import SOLVERS
    from tfmat.cards.registry import card_warnings

    texts: dict[str, str] = {}
    said: list[tuple[str, str]] = []

    def add(stem: str, result: "Identification", quantile: float | None = None) -> None:
        for solver in solvers:
            text = result.card(solver, poisson_ratio=poisson_ratio, quantile=quantile)
            texts[f"{stem}.{solver}.{SOLVERS[solver].suffix}"] = text
            card = f"the {SOLVERS[solver].title} card of {stem}"
            for warning in card_warnings(solver, *result.card_values(quantile)):
                said.append(("yellow", f"warning: {card}: {warning}"))

    for name, result in file_names(results):
        add(name, result)
        if result.do_not_use:
            reasons = ", ".join(result.do_not_use)
            said.append(("bold red", f"DO NOT USE THE CARDS OF {name}: {reasons}"))
        if variants:
            try:
                add(f"{name}_5", result, 0.05)
                add(f"{name}_95", result, 0.95)
            except InputError as error:
                said.append(("yellow", f"warning: {error}"))
    folder = make_folder(card_dir)
    for file_name, text in texts.items():
        with atomic_write(folder / file_name, "w") as file:
            file.write(text)
    shown = ", ".join(texts) if len(texts) <= 6 else f"{len(texts)} files"
    return [("", f"cards in {folder}: {shown}"), *said]


def write_samples(
    results: "Sequence[Identification]", path: str, uncertainty: str
) -> list[tuple[str, str]]:
    """The samples of all answers as a .npz file, or .nc for ArviZ; NaN for a curve that the network does not know.

    Returns:
      (style, line) for the terminal: what was written, and what the user should know of it.
    """
    drawn = [result.samples for result in results]
    known = next((each for each in drawn if each is not None), None)
    if known is None:
        raise InputError("the network knows none of these curves; there is nothing to draw from")
    if path.endswith(".nc"):
        from tfmat.identification.inference_data import write_inference_data

        write_inference_data(results, path)
    else:
        arrays: dict[str, Any] = {
            "samples": [known.values * np.nan if each is None else each.values for each in drawn],
            "log_density": [
                known.log_density * np.nan if each is None else each.log_density for each in drawn
            ],
            "parameters": known.names,
            "units": known.units,
            "curves": [result.curve.name for result in results],
            "certificate": [
                "" if result.posterior is None else result.posterior.certificate.status
                for result in results
            ],
        }
        with atomic_write(path, "wb") as file:
            np.savez(file, **arrays)
    lines = [("", f"{len(known.values):,} samples of each curve: {path}")]
    own = any(each.posterior and not each.posterior.certificate.is_exact for each in results)
    if uncertainty == "gaussian" and own:
        text = "this network gives a Gaussian of each parameter alone; how they trade is not in the samples"
        lines.append(
            ("yellow", f"warning: {text} (model.uncertainty=flow gives the whole posterior)")
        )
    missing = sum(each is None for each in drawn)
    if missing:
        lines.append(
            (
                "yellow",
                f"warning: no samples (NaN) of {missing} curves, which the network does not know",
            )
        )
    return lines


def print_results(
    results: Sequence[Mapping[str, Any]],
    *,
    network: pathlib.Path | None,
    details: bool = False,
    cards: Sequence[tuple[str, str]] = (),
) -> None:
    """The tables; below them the steps of a single curve, every kind of warning once, and which network answered.

    Args:
      results: the entries of the JSON file, pooled answers last.
      network: the folder of the network that answered; None for none.
      cards: what `write_cards` said.
    """
    from rich.text import Text

    from tfmat.console import open_console
    from tfmat.report.identification_tables import (
        identification_table,
        note_lines,
        notes_of,
        parameter_table,
        shared_beginning,
        tensile_table,
        tests_table,
    )
    from tfmat.report.tables import next_test_table

    console = open_console()
    pooled = [result for result in results if result["method"] == "mean of specimens"]
    singles = [result for result in results if result["method"] != "mean of specimens"]
    notes = notes_of(results)
    shared = shared_beginning([result["curve"] for result in singles])
    if len(singles) > 1:
        console.print(identification_table(singles, notes))
    detailed = [*(singles if details or len(singles) == 1 else []), *pooled]
    for result in detailed:
        console.print(parameter_table(result, details))
        if result["do_not_use"]:
            text = f"DO NOT USE THIS ANSWER: {', '.join(result['reasons'])}"
            console.print(Text(text, style="bold red"), soft_wrap=True)
    for result in detailed:
        if len(result.get("tests", ())) > 0:
            console.print(tests_table(result))
    for result in results:
        if "next_test" in result:
            console.print(next_test_table(result["curve"], result["next_test"]))
            for sentence in result["next_test"]["sentences"]:
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
                f"warning: {warning['text']}{'; ' if warning['advice'] else ''}{warning['advice']}"
                for warning in results[0]["warnings"]
                if warning["kind"] == note.kind
            ]
        else:
            lines = note_lines(note, len(results), shared)
        for line in lines:
            console.print(Text(line, style="yellow"), soft_wrap=True)
    if network is not None:
        from tfmat.identification.networks import name_of

        console.print(Text(f"network: {name_of(network)}", style="dim"), soft_wrap=True)
    for style, line in cards:
        console.print(Text(line, style=style), soft_wrap=True)


def _print_steps(console: "Console", result: Mapping[str, Any]) -> None:
    from rich.text import Text

    for step in result["steps"]:
        console.print(Text(f"  · {step}", style="dim"), soft_wrap=True)

"""Identifies the material parameters of measured stress-strain curves with a trained network.

    tfmat identify curve.csv
    tfmat identify *.csv --workdir=runs/voce --stress_unit=ksi --json=out.json --plot_dir=plots
    tfmat identify curve.csv --strain_column="Strain 1" --strain_unit=% --stress_column=Stress

A curve is a text file with one header line and `,`, `;` or tab between its columns. The strain and stress columns and
their units (`stress [ksi]`, `strain (%)`) are found from the header where only one reading is possible; what the flags
say wins. For a law in true stress and strain, engineering curves are cut after the maximum load and converted.

The table shows each parameter with its unit and how far the re-simulated curve is from the measured one. The JSON file
is a list with one entry a curve, which also holds every step of the cleaning. If one file cannot be read, each bad
file is named, nothing is written, and the exit status is 2.
"""

import collections
import dataclasses
import re
import sys
from typing import TYPE_CHECKING

from absl import flags

from tfmat.cli.outputs import check_output_file, check_output_folder
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.identification.identify import Identification

SUMMARY = "identify the parameters of measured curves (CSV)"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this command's flags."""
    for name, default, description in (
        ("workdir", "runs/quickstart", "folder of the run whose model.keras answers"),
        ("strain_column", None, "name of the strain column, where the header leaves doubt"),
        ("stress_column", None, "name of the stress column, where the header leaves doubt"),
        ("strain_unit", None, "unit of the strain: - or %"),
        ("stress_unit", None, "unit of the stress: MPa, GPa, kPa, Pa, psi, ksi, N/mm2"),
        ("json", None, "file to write the results to"),
        ("plot_dir", None, "folder for one picture a curve: measured against re-simulated"),
    ):
        flags.DEFINE_string(name, default, description, flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Identifies every file named on the command line; returns the exit status."""
    if not arguments:
        raise InputError("no curve given; say: tfmat identify curve.csv [more.csv ...]")
    from tfmat.curves.reading import ReadingOptions

    names = [field.name for field in dataclasses.fields(ReadingOptions)]
    options = ReadingOptions(**{name: flag_values[name].value for name in names})
    check_output_file("json", flag_values.json)
    check_output_folder("plot_dir", flag_values.plot_dir)
    # Files are read before TensorFlow is loaded: a bad one is named at once.
    from tfmat.curves.measured import load_measured_curves
    from tfmat.identification.sidecar import read_sidecar
    from tfmat.report.progress import progress_bar

    target = read_sidecar(flag_values.workdir).target
    with progress_bar("reading", "curves") as progress:
        curves, errors = load_measured_curves(arguments, target, options, progress)
    if errors:
        for error in errors:
            print(f"tfmat: {error}", file=sys.stderr)
        return InputError.exit_status
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.identify import identify

    identifier = Identifier.open(flag_values.workdir)
    results = identify(identifier, curves)
    if flag_values.plot_dir is not None:
        _write_plots(results, flag_values.plot_dir)
    if flag_values.json is not None:
        from tfmat.files import write_json

        write_json(flag_values.json, [result.to_json() for result in results])
    _print(results)
    return 0


def _write_plots(results: "list[Identification]", plot_dir: str) -> None:
    from tfmat.files import make_folder
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


def _print(results: "list[Identification]") -> None:
    """The table, and below it the steps (of a single curve) and every warning."""
    from rich.console import Console
    from rich.text import Text

    from tfmat.report.tables import identification_table

    # A pipe or a file has no width; rich would fold everything into 80 columns.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(identification_table([result.to_json() for result in results]))
    if len(results) == 1:
        for step in results[0].curve.steps:
            console.print(Text(f"  · {step}", style="dim"), soft_wrap=True)
    for result in results:
        for warning in result.warnings:
            console.print(
                Text(f"warning: {result.curve.name}: {warning}", style="yellow"), soft_wrap=True
            )

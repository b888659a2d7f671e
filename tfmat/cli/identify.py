"""Identifies the material parameters of measured stress-strain curves with a trained network.

    tfmat identify curve.csv
    tfmat identify lab/ --workdir=runs/voce --stress_unit=ksi --json=out.json --csv=out.csv --plot_dir=plots
    tfmat identify "lab/*.xlsx" --workdir=runs/voce --fix=E=193000 --pool
    tfmat identify machine.txt --area=24.5 --gauge_length=50 --strain_column=Extension --stress_column=Load

Curves are text files (comma, semicolon, tab or blanks; decimal point or comma; lines and units before the numbers) and
Excel sheets; files, folders and patterns may be mixed. Columns and units are found where only one reading is possible,
and what was found is said; what the flags say wins. Then a curve is cleaned (failure, noise of the strain, toe; each
step is said and can be switched off) and put on the points that the network knows.

The network of runs/quickstart answers, or, before any training, one that comes with tfmat (--law says which);
--workdir names another.

The answer: the network's value of each parameter, with its own standard deviation and 95 % interval where it was
trained to give them; the same after two steps of least squares (polished); classical least squares with standard
deviation and 95 % interval; and a warning wherever the answer should not be trusted. With
--fix the other parameters are least squares from the network's answer; with --pool all curves are specimens of one
material, and the last answer is theirs together.

If one file cannot be read, each bad file is named, nothing is written, and the exit status is 2 (--skip_bad_files
goes on with the others).
"""

import dataclasses
import glob
import math
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from tfmat.cli.outputs import check_output_file, check_output_folder
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.curves.measured import MeasuredCurve
    from tfmat.curves.resampling import CurveTarget

SUMMARY = "identify the parameters of measured curves (CSV, Excel)"
# What is taken for a curve inside a folder.
CURVE_FILES = (".csv", ".tsv", ".txt", ".dat", ".asc", ".xlsx", ".xlsm")

_STRINGS = (
    (
        "workdir",
        None,
        "folder of the run whose network answers; if not given runs/quickstart, or a network that comes with tfmat",
    ),
    ("law", None, "law of the network that answers; hahn_tsai of those that come with tfmat"),
    ("strain_column", None, "name of the strain column, or its number from 1"),
    ("stress_column", None, "name of the stress column, or its number from 1"),
    ("specimen_column", None, "column that tells several curves of a file apart; none: one curve"),
    ("sheet", None, "sheet of an Excel file; all that hold a curve if not given"),
    ("strain_unit", None, "-, %, mm/mm, microstrain, stretch; of a displacement mm, um, m, in"),
    ("stress_unit", None, "MPa, GPa, kPa, Pa, psi, ksi, N/mm2; of a load N, kN, lbf, kip"),
    ("strain_measure", None, "engineering or true"),
    ("stress_measure", None, "engineering or true"),
    ("shear_strain", None, "engineering (gamma) or tensor (eps12 = gamma / 2)"),
    ("decimal", None, "point or comma"),
    ("toe", "auto", "auto: take off toe, strain offset and preload; off: never"),
    ("window", None, "LOW,HIGH: plain strains between which points count; one may be left empty"),
    ("json", None, "file to write the results to"),
    ("csv", None, "file to write the results to, one row a curve"),
    ("plot_dir", None, "folder for one picture a curve: measured against re-simulated"),
)
_NUMBERS = (
    ("area", "cross-section in mm2, makes a load a stress"),
    ("gauge_length", "in mm, makes a displacement a strain"),
)
_SWITCHES = (
    ("cut_after_failure", True, "cut where the load drops for good, metals at the maximum load"),
    ("envelope", True, "make the strain of noisy curves rise by averaging"),
    ("least_squares", True, "also polish, fit by least squares, and compare with other laws"),
    ("pool", False, "all curves are specimens of one material: one answer more, with scatter"),
    ("skip_bad_files", False, "name files that cannot be read and go on with the others"),
)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this command's flags."""
    for name, default, description in _STRINGS:
        flags.DEFINE_string(name, default, description, flag_values=flag_values)
    for name, description in _NUMBERS:
        flags.DEFINE_float(name, None, description, flag_values=flag_values)
    for name, switch, description in _SWITCHES:
        flags.DEFINE_boolean(name, switch, description, flag_values=flag_values)
    flags.DEFINE_multi_string(
        "fix", [], "a known parameter, E=193000; may be repeated", flag_values=flag_values
    )


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Identifies every curve named on the command line; returns the exit status."""
    if not arguments:
        raise InputError("no curve given; say: tfmat identify curve.csv [more.csv, folder ...]")
    fixed = known_parameters(flag_values.fix)
    for name in ("json", "csv"):
        check_output_file(name, flag_values[name].value)
    check_output_folder("plot_dir", flag_values.plot_dir)
    # Files are read before TensorFlow is loaded: a bad one is named at once.
    from tfmat.identification.pretrained import find_network
    from tfmat.identification.sidecar import read_sidecar

    network = find_network(flag_values.workdir, flag_values.law)
    sidecar = read_sidecar(network)
    if fixed and sidecar.law is not None:
        from tfmat.identification.classical import conditioned

        conditioned(sidecar.law, fixed)
    curves, bad = _read(flag_values, find_files(arguments), sidecar.target)
    if not curves or (bad and not flag_values.skip_bad_files):
        return InputError.exit_status
    if flag_values.pool and len(curves) < 2:
        raise InputError("--pool needs at least two curves; one was given")
    _identify(flag_values, network, curves, fixed)
    return 0


def _read(
    flag_values: flags.FlagValues, files: list[str], target: "CurveTarget"
) -> "tuple[list[MeasuredCurve], int]":
    """The curves of all files, and how many files were bad; those are named on standard error."""
    from tfmat.curves.cleaning import CleaningOptions
    from tfmat.curves.measured import load_measured_curves
    from tfmat.curves.reading import ReadingOptions
    from tfmat.report.progress import progress_bar

    options = ReadingOptions(**_flags_of(ReadingOptions, flag_values))
    cleaning = CleaningOptions(**_flags_of(CleaningOptions, flag_values))
    with progress_bar("reading", "files") as progress:
        curves, errors = load_measured_curves(files, target, options, progress, cleaning)
    for error in errors:
        print(f"tfmat: {error}", file=sys.stderr)
    return curves, len(errors)


def _flags_of(kind: type, flag_values: flags.FlagValues) -> dict[str, Any]:
    """The flags that have the names of a dataclass's fields."""
    return {field.name: flag_values[field.name].value for field in dataclasses.fields(kind)}


def _identify(
    flag_values: flags.FlagValues,
    network: pathlib.Path,
    curves: "list[MeasuredCurve]",
    fixed: dict[str, float],
) -> None:
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    from tfmat.cli.identification_output import print_results, write_csv, write_plots
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.identify import identify
    from tfmat.report.progress import progress_bar

    identifier = Identifier.open(network)
    known = {"fixed": fixed, "least_squares": flag_values.least_squares}
    with progress_bar("identifying", "curves") as progress:
        results = identify(identifier, curves, progress=progress, **known)
    pooled = None
    if flag_values.pool:
        from tfmat.identification.pooling import pool

        pooled = pool(identifier, results, **known)
    every = [*results, *([pooled] if pooled else [])]
    content = [result.to_json() for result in every]
    if flag_values.plot_dir is not None:
        write_plots(every, flag_values.plot_dir)
    if flag_values.json is not None:
        from tfmat.files import write_json

        write_json(flag_values.json, content)
    if flag_values.csv is not None:
        write_csv(flag_values.csv, content)
    print_results(results, pooled, network=_described(network))


def _described(network: pathlib.Path) -> str:
    from tfmat.identification.pretrained import is_pretrained

    return f"{network.name} that comes with tfmat" if is_pretrained(network) else str(network)


def find_files(arguments: list[str]) -> list[str]:
    """The files that the arguments mean, in order: a file itself, a folder's curves, or what a pattern matches.

    Raises:
      InputError: a folder without curves, or a pattern that matches nothing.
    """
    found: list[str] = []
    for argument in arguments:
        if os.path.isdir(argument):
            files = sorted(
                str(path)
                for path in pathlib.Path(argument).rglob("*")
                if path.is_file()
                and path.suffix.lower() in CURVE_FILES
                and not path.name.startswith((".", "~$"))
            )
            if not files:
                raise InputError(
                    f"folder {argument} holds no curves (files that end in {', '.join(CURVE_FILES)})"
                )
            found += files
        elif not os.path.exists(argument) and glob.has_magic(argument):
            files = sorted(
                path for path in glob.glob(argument, recursive=True) if os.path.isfile(path)
            )
            if not files:
                raise InputError(f"no file matches '{argument}'")
            found += files
        else:
            found.append(argument)
    # A file that two arguments mean is read once.
    return list(dict.fromkeys(found))


def known_parameters(texts: list[str]) -> dict[str, float]:
    """`["E=193000", "b=12"]` -> values; InputError for anything else."""
    known: dict[str, float] = {}
    for text in ",".join(texts).split(",") if texts else []:
        name, equals, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not equals or not name.strip() or not math.isfinite(number):
            raise InputError(
                f"--fix={text} is not understood; write a name and a number, --fix=E=193000"
            )
        known[name.strip()] = number
    return known

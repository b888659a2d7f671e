"""What `tfmat identify` reads and refuses: the curves or the tests of all files, by the flags that say how."""

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from tfmat.cli.flags import check_output_folder
from tfmat.console import printable
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.curves.measured import MeasuredCurve
    from tfmat.curves.measured_tests import MeasuredRecord
    from tfmat.curves.record_files import RecordFiles
    from tfmat.curves.resampling import CurveTarget
    from tfmat.identification.networks import Sidecar
    from tfmat.materials.law import Law


def read_curves(
    flag_values: FlagValues, files: list[str], target: "CurveTarget"
) -> "tuple[list[MeasuredCurve], int]":
    """The curves of all files, and how many files were bad; those are named on standard error."""
    from tfmat.curves.measured import load_measured_curves

    return _read(load_measured_curves, files, target, flag_values)


def read_tests(
    flag_values: FlagValues, records: "list[RecordFiles]", law: "Law"
) -> "tuple[list[MeasuredRecord], int]":
    """The records whose files are all good, and how many files were bad; those are named on standard error."""
    from tfmat.curves.record_files import load_records

    return _read(load_records, records, law, flag_values)


def _read(
    load: Callable[..., tuple[list[Any], list[InputError]]],
    files: list[Any],
    target: Any,
    flag_values: FlagValues,
) -> tuple[list[Any], int]:
    """What `load` finds as the flags say, with its progress, and how many files were bad."""
    from tfmat.console import progress_bar
    from tfmat.curves.cleaning import CleaningOptions
    from tfmat.curves.reading import ReadingOptions

    options, cleaning = (
        kind(**_flags_of(kind, flag_values)) for kind in (ReadingOptions, CleaningOptions)
    )
    with progress_bar("reading", "files") as progress:
        found, errors = load(files, target, options, progress, cleaning)
    for error in errors:
        print(f"tfmat: {printable(error)}", file=sys.stderr)
    return found, len(errors)


def _flags_of(kind: type, flag_values: FlagValues) -> dict[str, Any]:
    """The flags that have the names of a dataclass's fields."""
    return {field.name: flag_values[field.name].value for field in dataclasses.fields(kind)}


def solvers_of(flag_values: FlagValues, sidecar: "Sidecar") -> list[str]:
    """The solvers that cards are asked for; InputError where one has none for the law."""
    solvers = list(dict.fromkeys(solver.strip() for solver in flag_values.card))
    if not solvers:
        for flag in ("card_dir", "card_variants", "poisson_ratio"):
            if flag_values[flag].present:
                raise InputError(f"--{flag} says how cards are written; say which: --card=abaqus")
        return []
    from tfmat.cards.registry import check_card

    for solver in solvers:
        check_card(sidecar.law, solver, flag_values.poisson_ratio)
    check_output_folder("card_dir", flag_values.card_dir)
    return solvers


def check_samples(flag_values: FlagValues, sidecar: "Sidecar", fixed: dict[str, float]) -> None:
    if flag_values.samples is not None:
        from tfmat.identification import draws

        corrected = flag_values.least_squares and flag_values.correct
        draws.check_samples(
            flag_values.samples,
            sidecar.uncertainty,
            fixed,
            is_sampled=corrected and sidecar.law is not None,
        )
        if flag_values.samples_file.endswith(".nc"):
            from tfmat.identification.inference_data import check_arviz

            check_arviz()
    elif flag_values["samples_file"].present:
        raise InputError("--samples_file says where samples go; say how many: --samples=1000")


def check_next_test(flag_values: FlagValues, sidecar: "Sidecar") -> None:
    asked: dict[str, list[str]] = {
        "predict": flag_values.predict,
        "candidate": flag_values.candidate,
    }
    if flag_values.next_test:
        from tfmat.identification import further_tests

        further_tests.check_next_test(sidecar.law, sidecar.settings, **asked)
    elif given := next((name for name, texts in asked.items() if texts), None):
        raise InputError(f"--{given} is of --next_test; give that too, or leave --{given} out")

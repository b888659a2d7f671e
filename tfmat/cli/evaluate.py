"""Measures how good a trained network's answers are, on noisy test curves that no training has seen.

    tfmat evaluate --workdir=runs/quickstart
    tfmat evaluate --workdir=runs/voce --data_dir=data/voce-1000000-1a2b3c4d --json=voce.json

For each parameter: mean squared error of the label scaled to 0-1, mean absolute error in its own unit, R²; for the
curves: how far the re-simulated curve is from the noisy one, over its maximum stress and over the noise. The table is
also written to evaluation.json in the run's folder, with pictures in its figures/.
"""

import pathlib
import sys

from absl import flags

from tfmat.cli.outputs import check_output_file
from tfmat.errors import InputError

SUMMARY = "accuracy of a trained network on its test curves"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this command's flags."""
    for name, default, description in (
        ("workdir", "runs/quickstart", "folder of the run to evaluate"),
        (
            "data_dir",
            None,
            "folder of the data set; by default the one that the run was trained on",
        ),
        ("json", None, "file to write the numbers to, besides WORKDIR/evaluation.json"),
    ):
        flags.DEFINE_string(name, default, description, flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Evaluates the run; returns the exit status."""
    if arguments:
        raise InputError(
            f"evaluate takes no argument '{arguments[0]}'; name the run with --workdir={arguments[0]}"
        )
    check_output_file("json", flag_values.json)
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    from rich.console import Console

    from tfmat.data.packed import PackedDataset
    from tfmat.files import write_json
    from tfmat.identification.evaluate import evaluate, find_test_data
    from tfmat.identification.identifier import Identifier
    from tfmat.report.evaluation import write_evaluation
    from tfmat.report.progress import progress_bar
    from tfmat.report.tables import evaluation_table

    workdir = pathlib.Path(flag_values.workdir)
    identifier = Identifier.open(workdir)
    dataset = PackedDataset.open(find_test_data(workdir, flag_values.data_dir))
    with progress_bar("evaluating", "curves") as progress:
        evaluation = evaluate(identifier, dataset, progress)
    content = evaluation.to_json()
    write_evaluation(workdir, content, evaluation.true_values, evaluation.identified_values)
    if flag_values.json is not None:
        write_json(flag_values.json, content)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(evaluation_table(content))
    return 0

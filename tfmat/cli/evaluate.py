"""Measures how good a trained network's answers are, on noisy test curves that no training has seen.

    tfmat evaluate --workdir=runs/quickstart
    tfmat evaluate --workdir=runs/voce --data_dir=data/voce-1000000-1a2b3c4d --json=voce.json

For each parameter: mean squared error of the label scaled to 0-1, mean absolute error in its own unit, R²; for the
curves: how far the re-simulated curve is from the noisy one, over its maximum stress and over the noise.

For a network that gives intervals (model.uncertainty): the share of its 50, 90 and 95 % intervals that hold the truth.
For one with a posterior (model.uncertainty=flow) also its log score, the share of its joint regions of highest density
that hold the truth, whether the truth's ranks among its draws are evenly spread (simulation-based calibration), and so
is its distance from random points (TARP), z-scores and contraction.

Then the reference, on the first --num_reference test curves: the Bayes risk, which is the mean squared error that no
method can beat on average, how many times that error the network makes (η, 1 is perfect), and the same for classical
least squares fitting (Levenberg-Marquardt); all and by maximum strain, noise and number of points. The first time it
takes seconds for laws of two parameters, minutes for more and a second or two a record for laws with memory
(--num_reference=200); the data set's folder keeps the risk. Curves whose posterior has not converged are left out, and
counted. A posterior is compared with the exact one of the same curves: Pareto's k of the weights that would correct it,
the log score that it loses, and for the first 100 of them the accuracy of a classifier that tells both apart (C2ST, 0.5
is perfect) and how far means and standard deviations are off. Leave all of it out with --reference=false.

The tables are also written to evaluation.json in the run's folder, and with pictures into its report.html.
"""

import dataclasses
import pathlib
import sys
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from tfmat.cli.flags import alias, check_output_file, switch, text, whole
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.identification.evaluate import Evaluation
    from tfmat.identification.identifier import Identifier

FLAGS = (
    text("workdir", "runs/quickstart", "folder of the run to evaluate"),
    text(
        "data_dir", None, "folder of the data set; by default the one that the run was trained on"
    ),
    text("json", None, "file to write the numbers to, besides WORKDIR/evaluation.json"),
    switch("reference", True, "compare with the best possible accuracy and with least squares"),
    whole("num_reference", 2000, "test curves that the reference is worked out for", 2),
    alias("yardstick", "reference"),
    alias("num_yardstick", "num_reference"),
)
NO_ARGUMENT = "; name the run with --workdir={}"


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Evaluates the run; returns the exit status."""
    check_output_file("json", flag_values.json)
    from tfmat.identification.networks import read_sidecar
    from tfmat.launch.runtime import prepare_tensorflow

    read_sidecar(
        flag_values.workdir
    )  # a run that is not there is named before TensorFlow is loaded

    # Blocks of curves are answered side by side.
    prepare_tensorflow(one_thread_an_operation=True)
    from tfmat.console import open_console, progress_bar
    from tfmat.data.dataset import PackedDataset
    from tfmat.files import write_json
    from tfmat.identification.evaluate import evaluate, find_test_data
    from tfmat.identification.identifier import Identifier
    from tfmat.report.pages import write_training_report
    from tfmat.report.run_files import write_evaluation
    from tfmat.report.tables import (
        coverage_table,
        evaluation_table,
        exact_table,
        posterior_table,
        reference_bins_table,
        reference_table,
    )
    from tfmat.workflow.fronts import know_fits

    workdir = pathlib.Path(flag_values.workdir)
    identifier = Identifier.open(workdir)
    dataset = PackedDataset.open(find_test_data(workdir, flag_values.data_dir))
    know_fits(identifier, dataset)
    with progress_bar("evaluating", "curves") as progress:
        evaluation = evaluate(identifier, dataset, progress)
    if flag_values.reference:
        evaluation = _with_reference(evaluation, identifier, dataset, flag_values.num_reference)
    content = evaluation.to_json()
    write_evaluation(workdir, content, **evaluation.arrays(dataset))
    report = write_training_report(workdir)
    if flag_values.json is not None:
        write_json(flag_values.json, content)
    console = open_console()
    console.print(evaluation_table(content))
    if content["coverage"]:
        console.print(coverage_table(content))
    if content["posterior"]:
        console.print(posterior_table(content))
        if content["posterior"].get("exact"):
            console.print(exact_table(content))
    if content["reference"]:
        console.print(reference_table(content))
        console.print(reference_bins_table(content))
    console.print(f"report: {report}", soft_wrap=True, markup=False)
    return 0


def _with_reference(
    evaluation: "Evaluation", identifier: "Identifier", dataset: "PackedDataset", num_curves: int
) -> "Evaluation":
    """The evaluation with the reference, or, where there can be none, without it and with a word about why."""
    from tfmat.console import printable, progress_bar
    from tfmat.identification.evaluate import add_reference
    from tfmat.identification.posterior_comparison import compare_posteriors

    try:
        with progress_bar("working out the best possible accuracy", "curves") as progress:
            evaluation = add_reference(evaluation, identifier, dataset, num_curves, progress)
        if evaluation.posterior is not None:
            with progress_bar("comparing with exact posteriors", "curves") as progress:
                exact = compare_posteriors(identifier, dataset, num_curves, progress)
            posterior = {**evaluation.posterior, "exact": exact}
            evaluation = dataclasses.replace(evaluation, posterior=posterior)
    except InputError as error:
        print(printable(error), file=sys.stderr)
    return evaluation

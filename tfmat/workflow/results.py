"""What follows a training: calibrated intervals, the accuracy, an example, a report; each left in the run's folder."""

import contextlib
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.console import log, open_console
from tfmat.curves.example import example_curve, write_example_curve, write_example_tests
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.files import read_json, write_json

if TYPE_CHECKING:
    from tfmat.curves.measured import MeasuredCurve
    from tfmat.curves.measured_tests import MeasuredRecord
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.uncertainty import Calibration, Spread
    from tfmat.materials.law import Array

# Intervals are made true on so many curves: with 50,000 errors the place of a 95 % interval's end is known to 0.1 % of
# coverage; fewer than 200 say nothing of it.
_FEWEST_CURVES, _MOST_CURVES = 200, 50_000
# A spread is found of so many curves and draws of each: of 95 % coverage 5,000 curves know 0.3. Draws of the last
# spread tell the next one well where that is near.
_SPREAD_CURVES, _SPREAD_DRAWS, _MOST_ROUNDS, _NEAR = 5000, 200, 4, 0.05
# Up to this many parameters the Bayes risk is integrated: 4 s of one processor for 2,000 curves, once a data set. The
# sampled risk of more parameters takes a minute or so; `tfmat evaluate` adds it.
_QUICK_REFERENCE, REFERENCE_CURVES = 2, 2000
# Posteriors of a network that are taken wider than that tell little of its records.
_DOUBTFUL_SPREAD = 1.5
# Of the example's posterior, for its picture.
_EXAMPLE_SAMPLES = 1000


def calibrate_run(workdir: str, dataset: PackedDataset) -> None:
    """Makes the best model's intervals true on validation curves, once; on rank 0 and after the training."""
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.networks import read_sidecar, write_calibration
    from tfmat.identification.uncertainty import Spread
    from tfmat.workflow.fronts import know_fits

    about = read_sidecar(workdir)
    known = about.spread if about.uncertainty == "flow" else about.calibration
    if known is None or known.num_curves:
        return
    identifier = Identifier.open(workdir)
    if (rows := calibration_rows(identifier, dataset)) is not None:
        know_fits(identifier, dataset, rows)
    calibration = calibrate(identifier, dataset)
    if calibration is None:
        log("too few validation curves to calibrate the network's intervals")
        return
    write_calibration(workdir, calibration)
    if isinstance(calibration, Spread):
        doubt = ""
        if calibration.value > _DOUBTFUL_SPREAD:
            doubt = (
                "; one that is so sure of what it does not know needs more curves, or more steps"
            )
        log(
            f"the network's posteriors are taken {calibration.value:.3f} times as wide, as {calibration.num_curves:,} "
            f"validation curves show{doubt}"
        )
        return
    log(f"the network's intervals are calibrated on {calibration.num_curves:,} validation curves")


def calibration_rows(identifier: "Identifier", dataset: PackedDataset) -> slice | None:
    """The last validation curves, of which `calibrate` asks the network; None where it has no use for them.

    They never train and, but for the choice of the best epoch on the first of them, are as good as new; the test curves
    stay untouched.
    """
    count = min(dataset.num_validation, _MOST_CURVES)
    if identifier.uncertainty == "none" or count < _FEWEST_CURVES:
        return None
    end = dataset.num_train + dataset.num_validation
    return slice(
        end - min(count, _SPREAD_CURVES if identifier.uncertainty == "flow" else count), end
    )


def calibrate(identifier: "Identifier", dataset: PackedDataset) -> "Calibration | Spread | None":
    """The calibration of the network's std, or the spread of its posteriors, on the last validation curves.

    Returns:
      None where the network has neither, or the validation curves are too few.
    """
    from tfmat.identification.uncertainty import Calibration

    rows = calibration_rows(identifier, dataset)
    if rows is None:
        return None
    features, true_labels = dataset.features[rows], np.asarray(dataset.labels[rows], np.float64)
    if identifier.uncertainty == "flow":
        return _spread(identifier, features, true_labels)
    labels, std = identifier.predict_with_std(features)
    assert std is not None
    return Calibration.measured(true_labels, np.clip(labels, 0.0, 1.0), std)


def _spread(identifier: "Identifier", features: np.ndarray, true_labels: "Array") -> "Spread":
    """The spread by which the network's joint regions hold these truths as often as they say."""
    shape = (len(features), _SPREAD_DRAWS, true_labels.shape[1])
    normal = np.random.default_rng(0).standard_normal(shape, np.float32)
    squares: Array = np.sum(np.square(normal), axis=2, dtype=np.float64)
    true_square = np.sum(np.square(identifier.standardized(features, true_labels)), axis=1)
    before = identifier.spread
    for _ in range(_MOST_ROUNDS):
        now = identifier.spread
        densities = identifier.draws_of(features, normal).log_density
        true_density = identifier.log_density(features, true_labels)
        identifier.spread = now.better(
            densities, np.asarray(now.value**2 * squares), true_density, true_square, shape[2]
        )
        if abs(identifier.spread.value / now.value - 1.0) < _NEAR:
            break
    found, identifier.spread = identifier.spread, before
    return found


def evaluation_of(workdir: str) -> dict[str, Any]:
    """What evaluation.json says of a run that is done; where there is none yet, the run is calibrated and evaluated.

    Raises:
      InputError: its data set is not there any more, or holds no test curves.
    """
    file = pathlib.Path(workdir) / "evaluation.json"
    if not file.exists():
        from tfmat.identification.evaluate import find_test_data
        from tfmat.launch.runtime import prepare_tensorflow

        dataset = PackedDataset.open(find_test_data(workdir), verify=False)
        prepare_tensorflow(own_program=True)
        calibrate_run(workdir, dataset)
        _evaluate(workdir, dataset)
    return dict(read_json(file))


def _evaluate(workdir: str, dataset: PackedDataset) -> dict[str, Any]:
    """Writes evaluation.json, with the reference where there is one that is quick, and returns it."""
    from tfmat.identification.evaluate import add_reference, evaluate
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.likelihood import has_unknown_errors
    from tfmat.report.evaluation import write_evaluation
    from tfmat.workflow.fronts import know_fits

    identifier = Identifier.open(workdir)
    know_fits(identifier, dataset)
    evaluation = evaluate(identifier, dataset)
    settings = dataset.settings
    is_sampled = settings is not None and has_unknown_errors(settings)
    if len(dataset.parameters) <= _QUICK_REFERENCE and not is_sampled:
        with contextlib.suppress(InputError):  # there can be none, as the report says
            evaluation = add_reference(evaluation, identifier, dataset, REFERENCE_CURVES)
    content = evaluation.to_json()
    write_evaluation(workdir, content, **evaluation.arrays(dataset))
    return content


def evaluate_run(workdir: str, dataset: PackedDataset) -> None:
    """Accuracy on the test curves, with the reference where that is quick: printed, and kept in the run's folder."""
    from tfmat.report.tables import (
        coverage_table,
        evaluation_table,
        posterior_table,
        reference_table,
    )

    content = _evaluate(workdir, dataset)
    open_console().print(evaluation_table(content))
    if content["coverage"]:
        open_console().print(coverage_table(content))
    if content["posterior"]:
        open_console().print(posterior_table(content))
    if content["reference"]:
        open_console().print(reference_table(content))


def identify_example(workdir: str, settings: CurveSettings | None) -> None:
    """Identifies an example of the law, a curve or tests; leaves its picture and its answer in the run's folder."""
    if settings is None:
        return
    from tfmat.identification.identifier import Identifier
    from tfmat.identification.record_answers import identify_all
    from tfmat.report.identification_tables import identification_table
    from tfmat.report.run_files import write_example_picture, write_example_posterior

    try:
        path, measured = _example(workdir, settings)
        identifier = Identifier.open(workdir)
        samples = _EXAMPLE_SAMPLES if identifier.uncertainty == "flow" else 0
        results = identify_all(identifier, measured, samples=samples)
    except InputError as error:
        if not settings.programmes():
            raise
        # A user's own law or test may simulate what no reader takes for one; the network is trained all the same.
        log(f"no example was identified: {error}")
        return
    content = [result.to_json() for result in results]
    write_json(pathlib.Path(workdir) / "example.json", content)
    write_example_picture(workdir, results[0].picture())
    if (posterior := results[0].posterior_picture()) is not None:
        write_example_posterior(workdir, posterior)
    open_console().print(identification_table(content))
    what = "tests are" if settings.programmes() else "curve is"
    log(f"the example {what} simulated: {path}")
    log(f"identify your own as this one: tfmat identify {path} --workdir={workdir}")


def report_run(workdir: str) -> None:
    """Draws the report into the run's folder, and tells where it is."""
    # Only now: it takes half a second to load, for which a run that is refused would wait too.
    from tfmat.report.training_report import write_training_report

    log(f"report: {write_training_report(workdir)}")


def _example(
    workdir: str, settings: CurveSettings
) -> "tuple[pathlib.Path, Sequence[MeasuredCurve | MeasuredRecord]]":
    """The law's example, where it lies and as it is read."""
    from tfmat.curves.measured import load_measured_curves
    from tfmat.curves.record_files import find_records, load_records
    from tfmat.identification.networks import read_sidecar

    law = settings.build_law()
    measured: Sequence[MeasuredCurve | MeasuredRecord]
    if settings.programmes():
        path = write_example_tests(settings, pathlib.Path(workdir) / "example_tests")
        measured, errors = load_records(find_records([str(path)], law), law)
    else:
        own_ranges = law.parameters == type(law).parameters
        path = (example_curve(law.name) if own_ranges else None) or write_example_curve(
            law, pathlib.Path(workdir) / "example_curve.csv"
        )
        measured, errors = load_measured_curves([str(path)], read_sidecar(workdir).target)
    if errors:
        raise InputError(str(errors[0]))
    return path, measured

"""How good a network's answers are on the frozen noisy test curves of its data set."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from tfmat.data.dataset import PackedDataset, is_dataset
from tfmat.errors import InputError
from tfmat.files import read_json
from tfmat.identification.identifier import CURVES_PER_CALL, Identifier
from tfmat.identification.likelihood import has_known_errors
from tfmat.identification.results import Coverage, Evaluation
from tfmat.identification.scores import (
    COVERAGES,
    Reference,
    check_posterior,
    check_reference,
    coverage,
    measure,
    rmse_over_noise,
    rmse_percent,
    score_parameter,
)
from tfmat.materials.law import Array, Parameter
from tfmat.records.simulation import observed, split_features


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """A network's accuracy on the test curves, and what it was worked out from.

    Attributes:
      scores: what `evaluation.json` holds.
      true_values, identified_values: [curves, parameters], in the parameters' units, for pictures.
      reference: the best that is possible and least squares, curve by curve (`add_reference`); None without it.
    """

    scores: Evaluation
    true_values: Array
    identified_values: Array
    reference: Reference | None = None

    def arrays(self, dataset: PackedDataset) -> dict[str, Any]:
        """The arguments of `tfmat.report.run_files.write_evaluation` that tell of single curves."""
        start = dataset.num_train + dataset.num_validation
        return {
            "true_values": self.true_values,
            "identified_values": self.identified_values,
            "features": dataset.features[start : start + len(self.true_values)],
            "floor_variance": self.reference.bayes_variance if self.reference else None,
        }


def evaluate(
    identifier: Identifier,
    dataset: PackedDataset,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluated:
    """Compares the network with the truth on the data set's test curves, which no training has seen.

    Answers are clipped to their range, as `identify` does. The truth goes from the data set's label scale to the
    network's, so that a network can be judged on curves that were drawn from other ranges.

    Args:
      progress: called with (done, total) curves.

    Raises:
      InputError: the data set has no test curves, or other parameters than the network.
    """
    check_same_task(identifier, dataset)
    start = dataset.num_train + dataset.num_validation
    total = dataset.num_test
    noise = _noise(dataset)
    labels, known, errors = [], list[tuple[Array, Array]](), []
    for first in range(0, total, CURVES_PER_CALL):
        rows = slice(start + first, start + min(first + CURVES_PER_CALL, total))
        features = dataset.features[rows]
        raw, std, limits = identifier.answers(features, COVERAGES)
        labels.append(np.clip(raw, 0.0, 1.0))
        known += [] if std is None or limits is None else [(std, limits)]
        errors.append(_curve_errors(identifier, dataset, features, labels[-1], noise))
        if progress:
            progress(min(first + CURVES_PER_CALL, total), total)
    stored = np.asarray(dataset.labels[start : start + total], np.float64)
    true_values = np.stack(
        [p.from_unit_interval(stored[:, i]) for i, p in enumerate(dataset.parameters)], axis=1
    )
    true = _true_labels(identifier, true_values)
    checked = check_posterior(identifier, dataset.features[start:], true)
    rate = _network_rate(identifier, dataset.features[start : start + CURVES_PER_CALL])
    every = np.concatenate(labels)
    values = identifier.values(every)
    scores = {
        parameter.name: score_parameter(parameter, true_values[:, i], values[:, i], every[:, i])
        for i, parameter in enumerate(identifier.parameters)
    }
    of_curves = [error for error in errors if error is not None]
    percent = np.concatenate([error[0] for error in of_curves]) if of_curves else None
    over_noise = [error[1] for error in of_curves if error[1] is not None]
    found = Evaluation(
        law=identifier.law.name if identifier.law else None,
        num_curves=total,
        mse=float(np.mean([score.mse for score in scores.values()])),
        rmse_percent=None if percent is None else float(percent.mean()),
        rmse_percent_p95=None if percent is None else float(np.percentile(percent, 95)),
        rmse_over_noise=float(np.concatenate(over_noise).mean()) if over_noise else None,
        curves_per_second=rate,
        coverage=_coverage(identifier, true, every, known),
        posterior=checked,
        parameters=scores,
    )
    return Evaluated(found, true_values, values)


def add_reference(
    evaluation: Evaluated,
    identifier: Identifier,
    dataset: PackedDataset,
    num_curves: int,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluated:
    """The evaluation with the reference, worked out for the first `num_curves` test curves.

    The first time takes about 5 ms a curve for two parameters, 0.2 s for more and 1 to 2 s for laws with memory; the
    data set's folder keeps the Bayes risk.

    Args:
      evaluation: what `evaluate` returned for this network and data set.
      progress: called with (done, total) curves, the first time.

    Raises:
      InputError: the data set's curves were not simulated, have no noise, or an observation model without a likelihood.
    """
    check_reference(dataset)
    values = evaluation.identified_values[:num_curves]
    labels = [p.to_unit_interval(values[:, i]) for i, p in enumerate(identifier.parameters)]
    measured = measure(dataset, identifier.parameters, np.stack(labels, axis=1), progress)
    scores = msgspec.structs.replace(evaluation.scores, reference=measured.scores())
    return dataclasses.replace(evaluation, scores=scores, reference=measured)


def find_test_data(
    workdir: str | os.PathLike, data_dir: str | os.PathLike | None = None
) -> pathlib.Path:
    """The folder of the data set to evaluate a run on; raises InputError where there is none.

    Args:
      workdir: the run's folder; its config.json names the data set that it was trained on.
      data_dir: another data set, or a folder that holds the run's own under its name.
    """
    if data_dir is not None and is_dataset(os.fspath(data_dir)):
        return pathlib.Path(data_dir)
    config_file = pathlib.Path(workdir) / "config.json"
    config = read_json(config_file)
    own = config.get("data_dir") if isinstance(config, dict) else None
    if not isinstance(own, str):
        raise InputError(f"{config_file} does not name the run's data set; give it with --data_dir")
    folder = (
        pathlib.Path(own) if data_dir is None else pathlib.Path(data_dir) / pathlib.Path(own).name
    )
    if not is_dataset(folder):
        raise InputError(
            f"the run's data set {folder} is not there; give its folder with --data_dir, or generate it"
        )
    return folder


def _network_rate(identifier: Identifier, features: np.ndarray) -> float:
    """Curves a second of the network alone, the best of three calls (it was traced before)."""
    if identifier.uncertainty == "flow":  # which takes as long for fifty times fewer
        features = features[: CURVES_PER_CALL // 50]
    fastest = np.inf
    for _ in range(3):
        with identifier.afresh():
            started = time.perf_counter()
            identifier.predict(features)
            fastest = min(fastest, time.perf_counter() - started)
    return len(features) / fastest


def check_same_task(identifier: Identifier, dataset: PackedDataset) -> None:
    """InputError where the data set has no test curves, or others than the network answers."""
    if dataset.num_test == 0:
        raise InputError(
            f"the data set {dataset.folder} holds no test curves; generate it with --num_test=25000"
        )
    told = [[(p.name, p.unit) for p in one.parameters] for one in (identifier, dataset)]
    if told[0] != told[1]:
        raise InputError(
            f"the model identifies {_listed(identifier.parameters)}, the data set {dataset.folder} holds "
            f"{_listed(dataset.parameters)}; give the data set of the same law with --data_dir"
        )
    if dataset.form.shape != identifier.form.shape:
        raise InputError(
            f"the model takes {identifier.form.num_points} points a curve, the data set {dataset.folder} has "
            f"{dataset.features.shape[1]}; give another with --data_dir"
        )
    tests = [[programme.name for programme in one.form.programmes] for one in (identifier, dataset)]
    if tests[0] != tests[1]:
        raise InputError(
            f"the model was trained on {', '.join(tests[0])} tests, the data set {dataset.folder} holds "
            f"{', '.join(tests[1])}; give another with --data_dir"
        )


def _listed(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(f"{p.name} ({p.unit})" for p in parameters)


def _noise(dataset: PackedDataset) -> tuple[float, float]:
    """The test curves' noise: standard deviation in MPa, and as a fraction of the stress; 0 where it is not known."""
    settings = dataset.settings
    # An observation model's noise differs from curve to curve, and is not all that parts a curve from its law.
    if settings is None or (settings.is_observed and not has_known_errors(settings.resolved())):
        return 0.0, 0.0
    if dataset.form.programmes:  # see `records.simulation.observed`
        known = settings.noise_told or dataset.form.noise(settings).all()
        return float(known), settings.noise_relative
    default = settings.build_law().noise_mpa
    return (default if settings.noise_mpa is None else settings.noise_mpa), settings.noise_relative


def _curve_errors(
    identifier: Identifier,
    dataset: PackedDataset,
    features: np.ndarray,
    labels: Array,
    noise: tuple[float, float],
) -> tuple[Array, Array | None] | None:
    """Distance of each re-simulated curve: in % of its maximum stress, and over its noise; each [curves]."""
    if identifier.law is None:
        return None
    settings = dataset.settings
    strain, stress, valid = observed(settings, features) if settings else split_features(features)
    resimulated = identifier.law.label_stress(strain, labels)
    return rmse_percent(stress, resimulated, valid), rmse_over_noise(
        stress, resimulated, valid, *noise
    )


def _true_labels(identifier: Identifier, true_values: Array) -> Array:
    """[curves, parameters], on the scale of the network's ranges."""
    columns = zip(identifier.parameters, true_values.T, strict=True)
    return np.stack([p.to_unit_interval(column) for p, column in columns], axis=1)


def _coverage(
    identifier: Identifier, true: Array, labels: Array, known: list[tuple[Array, Array]]
) -> dict[str, Coverage] | None:
    if not known:
        return None
    std = np.concatenate([block[0] for block in known])
    limits = np.concatenate([block[1] for block in known], axis=1)
    names = [parameter.name for parameter in identifier.parameters]
    return coverage(names, true, labels, std, limits)

"""A run's folder as `tfmat train` leaves it, made in seconds with plain Keras."""

import contextlib
import dataclasses
import fcntl
import json
import math
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.records.simulation import CurveSettings

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A small network for Hahn-Tsai curves, its folder, and the data that it was trained on."""

    workdir: pathlib.Path
    dataset: PackedDataset


@pytest.fixture(scope="session")
def trained_run(session_folder: pathlib.Path) -> TrainedRun:
    """Made once for all workers. Tests must not write into it; copy its folder where a command does."""
    with alone(session_folder / "trained_run") as folder:
        return _make_trained_run(folder)


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Makes the folder; other workers wait until this one has filled it."""
    folder.mkdir(exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _make_trained_run(folder: pathlib.Path) -> TrainedRun:
    workdir = folder / "run"
    settings = CurveSettings()
    dataset = generate_dataset(
        settings, seed=0, num_curves=12288, num_test=1000, data_dir=folder / "data"
    )
    if (
        workdir / "metrics.jsonl"
    ).exists():  # made by another worker, or for another folder's tests
        return TrainedRun(workdir, dataset)
    workdir.mkdir()
    _train(dataset).save(workdir / "model.keras")
    sidecar = {
        "format": 1,
        "parameters": [dataclasses.asdict(parameter) for parameter in dataset.parameters],
        "curves": settings.to_json(),
        "law": "hahn_tsai",
        "num_points": 200,
        "input_scale": list(dataset.input_scale),
    }
    (workdir / "model.json").write_text(json.dumps(sidecar))
    (workdir / "config.json").write_text(
        json.dumps({"law": "hahn_tsai", "data_dir": str(dataset.folder)})
    )
    lines = [
        {"step": 100 * i, "epoch": i, "seconds": 0.7 * i, "loss": 0.1 / i, "val_loss": 0.12 / i}
        for i in range(1, 9)
    ]
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return TrainedRun(workdir, dataset)


def _train(dataset: PackedDataset):
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((200, 3)),
            keras.layers.Rescaling([1.0 / scale for scale in dataset.input_scale]),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(2),
        ]
    )
    steps = 12 * (dataset.num_train // 64)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, steps)
    model.compile(keras.optimizers.Adam(rate), "mse", steps_per_execution=24)
    rows = slice(0, dataset.num_train)
    model.fit(np.array(dataset.features[rows]), np.array(dataset.labels[rows]), 64, 12, verbose=0)
    return model


def _with_head(
    trained_run: TrainedRun,
    workdir: pathlib.Path,
    head: Callable[["keras.Model", PackedDataset], "keras.Model"],
    **sidecar: object,
) -> bool:
    """Copies the trained run's folder with another network; False where another worker or folder's tests have."""
    import keras

    if workdir.is_dir():
        return False
    shutil.copytree(trained_run.workdir, workdir)
    file, beside = workdir / "model.keras", workdir / "model.json"
    head(keras.saving.load_model(file, compile=False), trained_run.dataset).save(file)
    beside.write_text(json.dumps(json.loads(beside.read_text()) | sidecar))
    return True


@pytest.fixture(scope="session")
def uncertain_run(trained_run: TrainedRun) -> pathlib.Path:
    """The trained run's folder with a head that says 0.02 and 0.05 of every curve; not to be written into either."""
    from tfmat.identification.networks import Identifier, write_calibration
    from tfmat.workflow import calibrate

    with alone(trained_run.workdir.parent) as folder:
        workdir = folder / "uncertain"
        if _with_head(trained_run, workdir, _gaussian, format=2, uncertainty="gaussian"):
            calibration = calibrate(Identifier.open(workdir), trained_run.dataset)
            assert calibration is not None
            write_calibration(workdir, calibration)
        return workdir


def _gaussian(model: "keras.Model", dataset: PackedDataset) -> "keras.Model":
    import keras

    bias = keras.initializers.Constant([math.log(0.02**2), math.log(0.05**2)])
    head = keras.layers.Dense(2, kernel_initializer="zeros", bias_initializer=bias, name="head")
    mean = model.outputs[0]
    return keras.Model(model.inputs[0], keras.layers.Concatenate()([mean, head(mean)]))


@pytest.fixture(scope="session")
def posterior_run(trained_run: TrainedRun) -> pathlib.Path:
    """A folder like the trained run's, whose network has a posterior head; not to be written into either."""
    with alone(trained_run.workdir.parent) as folder:
        workdir = folder / "posterior"
        _with_head(trained_run, workdir, _posterior, format=3, uncertainty="flow")
        return workdir


def _posterior(model: "keras.Model", dataset: PackedDataset) -> "keras.Model":
    import keras

    from tfmat.networks.flow import POSTERIOR, PosteriorFlow

    keras.utils.set_random_seed(0)
    # The hidden layers have learned what matters; the last one did not look for it. Two couplings take a third of the
    # time that six take. At three times this rate the log density was 3.4 to 5.2, by seed and processor, and it is 5.4
    # now. After twelve epochs 50 % intervals hold 57 to 60 %.
    flow = PosteriorFlow(2, couplings=2, name=POSTERIOR)
    outputs = keras.layers.Dense(flow.columns, name="posterior_parameters")(model.layers[-2].output)
    model = keras.Model(model.inputs[0], flow(outputs))
    epochs, batch = 20, 96
    steps = epochs * (dataset.num_train // batch)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, steps))
    model.compile(optimizer, flow.loss, steps_per_execution=24)
    rows = slice(0, dataset.num_train)
    features, labels = (np.array(part[rows]) for part in (dataset.features, dataset.labels))
    model.fit(features, labels, batch, epochs, verbose=0)
    return model

"""A run's folder as `tfmat train` leaves it, made in seconds with plain Keras."""

import contextlib
import dataclasses
import fcntl
import json
import math
import pathlib
import shutil
from collections.abc import Iterator

import numpy as np
import pytest

from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import PackedDataset, generate_dataset


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A small network for Hahn-Tsai curves, its folder, and the data that it was trained on."""

    workdir: pathlib.Path
    dataset: PackedDataset


@pytest.fixture(scope="session")
def trained_run(session_folder: pathlib.Path) -> TrainedRun:
    """Made once for all workers. Tests must not write into it; copy its folder where a command does."""
    with _alone(session_folder / "trained_run") as folder:
        return _make_trained_run(folder)


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[pathlib.Path]:
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


@pytest.fixture(scope="session")
def uncertain_run(trained_run: TrainedRun) -> pathlib.Path:
    """The trained run's folder with a head that says 0.02 and 0.05 of every curve; not to be written into either."""
    with _alone(trained_run.workdir.parent) as folder:
        return _make_uncertain_run(trained_run, folder / "uncertain")


def _make_uncertain_run(trained_run: TrainedRun, workdir: pathlib.Path) -> pathlib.Path:
    import keras

    if workdir.is_dir():  # made by another worker, or for another folder's tests
        return workdir
    shutil.copytree(trained_run.workdir, workdir)
    model = keras.saving.load_model(workdir / "model.keras", compile=False)
    bias = keras.initializers.Constant([math.log(0.02**2), math.log(0.05**2)])
    head = keras.layers.Dense(2, kernel_initializer="zeros", bias_initializer=bias, name="head")
    mean = model.outputs[0]
    outputs = keras.layers.Concatenate()([mean, head(mean)])
    keras.Model(model.inputs[0], outputs).save(workdir / "model.keras")
    sidecar = json.loads((workdir / "model.json").read_text())
    sidecar |= {"format": 2, "uncertainty": "gaussian"}
    (workdir / "model.json").write_text(json.dumps(sidecar))
    from tfmat.identification.identifier import Identifier, calibrate
    from tfmat.identification.networks import write_calibration

    calibration = calibrate(Identifier.open(workdir), trained_run.dataset)
    assert calibration is not None
    write_calibration(workdir, calibration)
    return workdir


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
    model.compile(keras.optimizers.Adam(rate), "mse")
    rows = slice(0, dataset.num_train)
    model.fit(np.array(dataset.features[rows]), np.array(dataset.labels[rows]), 64, 12, verbose=0)
    return model


@pytest.fixture(scope="session")
def posterior_run(trained_run: TrainedRun) -> pathlib.Path:
    """A folder like the trained run's, whose network has a posterior head; not to be written into either."""
    with _alone(trained_run.workdir.parent) as folder:
        return _make_posterior_run(trained_run, folder / "posterior")


def _make_posterior_run(trained_run: TrainedRun, workdir: pathlib.Path) -> pathlib.Path:
    import keras

    from tfmat.models.flow import POSTERIOR, with_posterior

    if workdir.is_dir():  # made by another worker, or for another folder's tests
        return workdir
    shutil.copytree(trained_run.workdir, workdir)
    dataset = trained_run.dataset
    model = keras.saving.load_model(workdir / "model.keras", compile=False)
    # The hidden layers have learned what matters; the last one did not look for it.
    model = keras.Model(model.inputs[0], with_posterior(model.layers[-2].output, 2))
    epochs, batch = 6, 96
    steps = epochs * (dataset.num_train // batch)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(4e-3, steps))
    model.compile(optimizer, model.get_layer(POSTERIOR).loss)
    rows = slice(0, dataset.num_train)
    features, labels = (np.array(part[rows]) for part in (dataset.features, dataset.labels))
    model.fit(features, labels, batch, epochs, verbose=0)
    model.save(workdir / "model.keras")
    sidecar = json.loads((workdir / "model.json").read_text())
    sidecar |= {"format": 3, "uncertainty": "flow"}
    (workdir / "model.json").write_text(json.dumps(sidecar))
    return workdir

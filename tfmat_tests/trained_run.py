"""A run's folder as `tfmat train` leaves it, made in seconds with plain Keras."""

import dataclasses
import json
import math
import pathlib
import shutil

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
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Tests must not write into it; copy its folder where a command does."""
    folder = tmp_path_factory.getbasetemp() / "trained_run"
    workdir = folder / "run"
    settings = CurveSettings()
    dataset = generate_dataset(
        settings, seed=0, num_curves=12288, num_test=1000, data_dir=folder / "data"
    )
    if workdir.is_dir():  # made by the fixture of another folder's conftest
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
def uncertain_run(trained_run: TrainedRun, tmp_path_factory: pytest.TempPathFactory):
    """The trained run's folder with a head that says 0.02 and 0.05 of every curve; not to be written into either."""
    import keras

    workdir = tmp_path_factory.getbasetemp() / "trained_run" / "uncertain"
    if workdir.is_dir():  # made by the fixture of another folder's conftest
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

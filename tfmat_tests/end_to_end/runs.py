"""What runs of `tfmat train` leave, read for comparison."""

import json
import pathlib
import tempfile
import zipfile
from typing import Any

import h5py
import numpy as np

# A run of seconds that has everything: several epochs and checkpoints, partial batches, dropout, moving statistics,
# a callback with a memory. Its curves and its network are as small as can be: what is left is TensorFlow's start.
# Its val_loss rises by 5 % and by 20 % after the first epoch, so that the best model is not the last one, and the
# callback ends it.
SMALL_RUN = (
    "train", "--config=configs/smoke.py", "--config.data.num_curves=810",
    "--config.data.num_test=20", "--config.data.num_validation=160", "--config.data.num_points=32",
    "--config.global_batch_size=20", "--config.train_for=3epochs", "--config.steps_per_call=4",
    "--config.checkpoint.every=11steps", "--config.model.conv_filters=2",
    "--config.model.kernel_sizes=3", "--config.model.hidden_units=6", "--config.model.dropout=0.1",
    "--config.model.batch_normalization=synchronized",
    "--config.callbacks.early_stopping_patience=2", "--workdir=run",
)  # fmt: skip
TOTAL_STEPS = 3 * 31
REASON = "a callback stopped the run after epoch 3"


def weights(model_file: pathlib.Path) -> dict[str, np.ndarray]:
    """Every array in a .keras file, by its path."""
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(model_file) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extract("model.weights.h5", folder)
        with h5py.File(pathlib.Path(folder) / "model.weights.h5") as file:
            file.visititems(
                lambda name, item: (
                    found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
    assert found
    return found


def assert_same_weights(first: pathlib.Path, second: pathlib.Path) -> None:
    """Bit by bit."""
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def metrics(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what depends on the clock."""
    clock = ("seconds", "training_seconds", "validation_seconds", "curves_per_second", "use")
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in clock} for line in lines]


def status(workdir: pathlib.Path) -> dict[str, Any]:
    """status.json."""
    return json.loads((workdir / "status.json").read_text())


def leftovers(folder: pathlib.Path) -> list[str]:
    """Files that have a temporary name."""
    return [
        str(path)
        for path in folder.rglob("*")
        if ".tmp" in path.name or "unfinished" in path.name or "~" in path.name
    ]


def assert_as_if_never_stopped(folder: pathlib.Path, uninterrupted: pathlib.Path) -> None:
    """The run beside `folder`/data ended as the one in the folder `uninterrupted` did, and left nothing else."""
    run = folder / "run"
    for name in ("final.keras", "model.keras"):
        assert_same_weights(run / name, uninterrupted / name)
    assert metrics(run) == metrics(uninterrupted)
    ours, theirs = status(run), status(uninterrupted)
    assert theirs["reason"] == REASON
    assert (ours["state"], ours["reason"], ours["step"]) == ("done", REASON, TOTAL_STEPS)
    for name, value in theirs["last_record"].items():
        if "second" not in name and name != "use":
            assert ours["last_record"][name] == value, name
    assert sorted(path.name for path in run.rglob("*") if "events" not in path.name) == sorted(
        path.name for path in uninterrupted.rglob("*") if "events" not in path.name
    )
    assert not leftovers(folder)
    data, other_data = (next((f / "data").iterdir()) for f in (folder, uninterrupted.parent))
    assert sorted(p.name for p in data.iterdir()) == sorted(p.name for p in other_data.iterdir())
    for path in data.glob("shard-*"):
        assert path.read_bytes() == (other_data / path.name).read_bytes(), path

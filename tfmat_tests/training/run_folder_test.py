"""The files of a run's folder."""

import datetime
import json
import pathlib
from collections.abc import Iterator

import keras
import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.training.run_folder import RunFolder, find_run_file

PROJECT = pathlib.Path(__file__).parents[2]
CONFIG = {"seed": 0, "model": {"units": (3, 4)}, "checkpoint": {"keep": 3}, "steps_per_call": None}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[RunFolder]:
    with RunFolder(tmp_path / "run") as folder:
        yield folder


def test_a_config_is_kept_and_compared(folder: RunFolder, tmp_path: pathlib.Path) -> None:
    assert RunFolder(tmp_path / "none").check_config(CONFIG) is None
    assert not (tmp_path / "none").exists()
    assert folder.check_config(CONFIG) is None
    folder.start({**CONFIG, "total_steps": 9}, {"format": 1})
    assert json.loads((folder.path / "model.json").read_text()) == {"format": 1}
    saved = folder.check_config(CONFIG)
    assert saved is not None and saved["total_steps"] == 9
    for changed, message in (
        ({"seed": 1}, "was started with seed=0, not 1; use the same config"),
        ({"model": {"units": (3,)}}, r"model.units=\[3, 4\], not \[3\]"),
        ({"law": "voce"}, "law=None, not voce"),
    ):
        with pytest.raises(InputError, match=message):
            folder.check_config({**CONFIG, **changed})
    assert folder.check_config({**CONFIG, "checkpoint": {"keep": 9}, "steps_per_call": 5})
    # Another number of devices or workers computes the same.
    assert folder.check_config({**CONFIG, "mesh": "batch:2,model:2", "zero_stage": 3})


def test_a_key_that_tfmat_did_not_have_yet_had_its_default(folder: RunFolder) -> None:
    folder.start({**CONFIG, "data_id": "x"})
    same = {**CONFIG, "data_id": "x", "optimizer": {"scaling": "none"}}
    assert folder.check_config(same)
    with pytest.raises(InputError, match="optimizer.scaling=none, not sqrt"):
        folder.check_config({**same, "optimizer": {"scaling": "sqrt"}})


def test_lines_after_the_checkpoint_are_dropped(folder: RunFolder) -> None:
    folder.truncate_metrics(0)  # nothing there yet
    for step in (10, 20, 30):
        folder.append_metrics({"step": step, "loss": 1 / step})
    with open(folder.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "lo')  # killed here
    folder.truncate_metrics(20)
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [10, 20]
    folder.truncate_metrics(0)
    assert (folder.path / "metrics.jsonl").read_text() == ""


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path)
    kept = [".hidden", ".notes.tmp", "a.tmp", "model.keras", "checkpoints/step-0000000001.npz"]
    stale = [
        ".status.json.a1b2c3d4.tmp", ".unfinished.final.keras", "figures/.losses.png.a1b2c3d4.tmp",
        "checkpoints/.step-0000000002.npz.a1b2c3d4.tmp",
    ]  # fmt: skip
    for name in (*kept, *stale):
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text("")
    with folder:
        pass
    assert all((folder.path / name).exists() for name in kept)
    assert not any((folder.path / name).exists() for name in stale)


def test_a_model_is_saved_for_inference(folder: RunFolder) -> None:
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    model.optimizer = optimizer
    folder.save_model(model, "final.keras")
    assert model.optimizer is optimizer
    again = keras.saving.load_model(folder.path / "final.keras")
    assert getattr(again, "optimizer", None) is None
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "final.keras"]


def test_the_log_has_a_time_on_every_line(folder: RunFolder) -> None:
    shown: list[str] = []
    log = folder.logger(shown.append)
    log("one")
    log("two ε")
    assert shown == ["one", "two ε"]
    lines = (folder.path / "log.txt").read_text("utf-8").splitlines()
    assert [line.partition(" ")[2] for line in lines] == shown
    assert all(datetime.datetime.fromisoformat(line.partition(" ")[0]) for line in lines)


def test_a_file_that_is_missing_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"metrics.jsonl does not exist; train first: tfmat train"):
        find_run_file(tmp_path, "metrics.jsonl")
    (tmp_path / "metrics.jsonl").write_text("")
    assert find_run_file(tmp_path, "metrics.jsonl") == tmp_path / "metrics.jsonl"

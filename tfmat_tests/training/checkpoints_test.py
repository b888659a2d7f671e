"""Checkpoints: whole or absent, verified, the last few kept."""

import pathlib
import zipfile

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.training.run_folder import CheckpointFolder


def _arrays(step: int) -> dict[str, np.ndarray]:
    return {
        "weights/0": np.full((30, 40), step, np.float32),
        "slots/0": np.array(step, np.int64),
        "empty": np.zeros((0, 3)),
    }


def _saved(folder: pathlib.Path, *steps: int, keep: int = 3) -> CheckpointFolder:
    checkpoints = CheckpointFolder(folder / "checkpoints", keep)
    for step in steps:
        checkpoints.save(step, _arrays(step), {"position": {"step": step, "best": float("inf")}})
    return checkpoints


def test_what_is_saved_comes_back(tmp_path: pathlib.Path) -> None:
    checkpoint = _saved(tmp_path, 7).load(7)
    assert checkpoint.step == 7
    assert checkpoint.meta["position"] == {"step": 7, "best": float("inf")}
    for name, array in _arrays(7).items():
        assert checkpoint.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(checkpoint.arrays[name], array)
    assert checkpoint.arrays.keys() == _arrays(7).keys()


def test_any_program_can_open_one(tmp_path: pathlib.Path) -> None:
    path = _saved(tmp_path, 7).path(7)
    assert path.name == "step-0000000007.npz"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with np.load(path, allow_pickle=False) as arrays:
        assert float(arrays["weights/0"].sum()) == 7 * 1200


def test_the_newest_are_kept(tmp_path: pathlib.Path) -> None:
    assert _saved(tmp_path, 10, 9, 200, 30).steps() == [10, 30, 200]
    assert _saved(tmp_path, 300, keep=1).steps() == [300]


def test_nothing_there(tmp_path: pathlib.Path) -> None:
    checkpoints = CheckpointFolder(tmp_path / "none")
    assert checkpoints.steps() == [] and checkpoints.load_latest() == (None, [])
    assert not list(tmp_path.iterdir())


def test_other_files_are_left_alone_and_unfinished_ones_removed(tmp_path: pathlib.Path) -> None:
    checkpoints = _saved(tmp_path, 1)
    for name in ("notes.txt", "step-12.npz", ".step-0000000002.npz.abcdefgh.tmp"):
        (checkpoints.folder / name).write_text("")
    checkpoints.save(3, _arrays(3), {})
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        "notes.txt",
        "step-0000000001.npz",
        "step-0000000003.npz",
        "step-12.npz",
    ]


def test_every_flipped_byte_of_an_array_is_found(tmp_path: pathlib.Path) -> None:
    checkpoints = _saved(tmp_path, 1)
    whole = checkpoints.path(1).read_bytes()
    with zipfile.ZipFile(checkpoints.path(1)) as archive:
        member = archive.getinfo("weights/0.npy")
    first = member.header_offset + 200
    for place in (first, first + 1000, first + member.file_size - 400):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        checkpoints.path(1).write_bytes(damaged)
        with pytest.raises(InputError, match=r"step-0000000001.npz is damaged \(.*\); delete it"):
            checkpoints.load(1)


@pytest.mark.parametrize("length", [0, 10, 1000, -1])
def test_a_cut_file_is_found(tmp_path: pathlib.Path, length: int) -> None:
    checkpoints = _saved(tmp_path, 1)
    checkpoints.path(1).write_bytes(checkpoints.path(1).read_bytes()[:length])
    with pytest.raises(InputError, match="is damaged") as caught:
        checkpoints.load(1)
    assert "\n" not in str(caught.value)


def test_a_damaged_one_costs_only_itself(tmp_path: pathlib.Path) -> None:
    checkpoints = _saved(tmp_path, 1, 2, 3)
    for step in (3, 2):
        checkpoints.path(step).write_bytes(b"")
    found, complaints = checkpoints.load_latest()
    assert found is not None and found.step == 1
    assert ["0003.npz" in complaints[0], "0002.npz" in complaints[1]] == [True, True]
    checkpoints.path(1).write_bytes(b"")
    with pytest.raises(InputError, match="no checkpoint of this run can be read: .*0003.npz"):
        checkpoints.load_latest()


def test_one_of_a_newer_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfmat.training.run_folder.FORMAT", 2)
    checkpoints = _saved(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"of a newer tfmat \(format 2\); update tfmat"):
        checkpoints.load(1)

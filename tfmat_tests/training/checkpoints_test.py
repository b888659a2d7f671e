"""Checkpoints: whole or absent, verified, the last few kept."""

import pathlib
import zipfile

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.training.run_folder import RunFolder


def _arrays(step: int) -> dict[str, np.ndarray]:
    return {
        "weights/0": np.full((30, 40), step, np.float32),
        "slots/0": np.array(step, np.int64),
        "empty": np.zeros((0, 3)),
    }


def _saved(path: pathlib.Path, *steps: int, keep: int = 3) -> RunFolder:
    folder = RunFolder(path, keep)
    for step in steps:
        folder.save_checkpoint(
            step, _arrays(step), {"position": {"step": step, "best": float("inf")}}
        )
    return folder


def test_what_is_saved_comes_back_and_any_program_can_open_it(tmp_path: pathlib.Path) -> None:
    folder = _saved(tmp_path, 7)
    checkpoint = folder.load_checkpoint(7)
    assert checkpoint.step == 7
    assert checkpoint.meta["position"] == {"step": 7, "best": float("inf")}
    assert checkpoint.arrays.keys() == _arrays(7).keys()
    assert folder.checkpoint_file(7).name == "step-0000000007.npz"
    with np.load(folder.checkpoint_file(7), allow_pickle=False) as arrays:
        for name, array in _arrays(7).items():
            assert checkpoint.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(checkpoint.arrays[name], array)
            np.testing.assert_array_equal(arrays[name], array)


def test_the_newest_are_kept(tmp_path: pathlib.Path) -> None:
    assert _saved(tmp_path, 10, 9, 200, 30).saved_steps() == [10, 30, 200]
    assert _saved(tmp_path, 300, keep=1).saved_steps() == [300]


def test_other_files_are_left_alone(tmp_path: pathlib.Path) -> None:
    folder = _saved(tmp_path, 1)
    for name in ("notes.txt", "step-12.npz"):
        (tmp_path / "checkpoints" / name).write_text("")
    folder.save_checkpoint(3, _arrays(3), {})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "notes.txt",
        "step-0000000001.npz",
        "step-0000000003.npz",
        "step-12.npz",
    ]


def test_every_flipped_byte_of_an_array_is_found(tmp_path: pathlib.Path) -> None:
    folder = _saved(tmp_path, 1)
    whole = folder.checkpoint_file(1).read_bytes()
    with zipfile.ZipFile(folder.checkpoint_file(1)) as archive:
        member = archive.getinfo("weights/0.npy")
    first = member.header_offset + 200
    for place in (first, first + 1000, first + member.file_size - 400):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        folder.checkpoint_file(1).write_bytes(damaged)
        with pytest.raises(InputError, match=r"step-0000000001.npz is damaged \(.*\); delete it"):
            folder.load_checkpoint(1)


@pytest.mark.parametrize("length", [0, 10, 1000, -1])
def test_a_cut_file_is_found(tmp_path: pathlib.Path, length: int) -> None:
    folder = _saved(tmp_path, 1)
    folder.checkpoint_file(1).write_bytes(folder.checkpoint_file(1).read_bytes()[:length])
    with pytest.raises(InputError, match="is damaged") as caught:
        folder.load_checkpoint(1)
    assert "\n" not in str(caught.value)


def test_one_of_a_newer_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfmat.training.run_folder.FORMAT", 2)
    folder = _saved(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"of a newer tfmat \(format 2\); update tfmat"):
        folder.load_checkpoint(1)

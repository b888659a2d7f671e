"""What is kept of records is found again by the same records, arguments and code alone, and whole or not at all."""

import logging
import pathlib

import numpy as np
import pytest

from tfmat.data import dataset
from tfmat.data.dataset import Kept

FOUND = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_what_was_kept_is_found_again(tmp_path: pathlib.Path) -> None:
    key = Kept(tmp_path).key("fit", FOUND)
    assert Kept(tmp_path).read(key) is None
    Kept(tmp_path).write(key, FOUND)
    again = Kept(tmp_path).read(Kept(tmp_path).key("fit", FOUND.copy()))
    assert again is not None and again.dtype == np.float32
    np.testing.assert_array_equal(again, FOUND)
    assert [file.name for file in tmp_path.iterdir()] == [f"fits-{key}.npz"]


def test_another_cause_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Kept(None)
    keys = [
        place.key("fit", FOUND),
        place.key("fits", FOUND),
        place.key("fit", FOUND + 1e-6),
        place.key("fit", FOUND.astype(np.float64)),
        place.key("fit", FOUND.reshape(4, 3)),
        place.key("fit", FOUND[:2], FOUND[2:]),
    ]
    monkeypatch.setattr(dataset, "_code", lambda: "another law")
    assert len({*keys, place.key("fit", FOUND)}) == len(keys) + 1


@pytest.mark.parametrize("damage", ["cut", "empty", "changed"])
def test_what_is_damaged_counts_as_not_there(damage: str, tmp_path: pathlib.Path) -> None:
    place = Kept(tmp_path)
    place.write("0", FOUND)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[content.index(FOUND.tobytes()) + 5] ^= 1
    whole = {"cut": content[:-30], "empty": bytearray(), "changed": content}
    file.write_bytes(bytes(whole[damage]))
    assert place.read("0") is None


def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Kept(tmp_path / "gone")
    with caplog.at_level(logging.WARNING, "tfmat"):
        for key in "01":
            place.write(key, FOUND)
    (line,) = (record.getMessage() for record in caplog.records)
    assert "fits are not kept for the next run: cannot write" in line
    Kept(None).write("0", FOUND)
    assert Kept(None).read("0") is None

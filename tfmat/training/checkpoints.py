"""Checkpoints: one .npz file each, whole or absent, verified when read, the last few kept.

A file `step-0000001200.npz` holds the arrays of `Backend.read`, further arrays of the loop, and `meta`, a JSON text.
It is an ordinary NumPy archive, so its members carry CRC-32 checksums, and any program can open it.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfmat.backends.base import SavedArray, SavedArrays
from tfmat.errors import InputError
from tfmat.files import atomic_write, make_folder

FORMAT = 1
_NAME = re.compile(r"step-(\d{10})\.npz")
# What NumPy raises of a damaged file.
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What was saved: the global step, arrays by name, and JSON-able values.

    An array is read from the file each time that `np.asarray` asks for it. On ranks other than 0 there are none.
    """

    step: int
    arrays: dict[str, SavedArray]
    meta: dict[str, Any]


class CheckpointFolder:
    """The checkpoints of one run.

    Args:
      folder: made when the first checkpoint is saved.
      keep: how many of the newest stay.
    """

    def __init__(self, folder: pathlib.Path, keep: int = 3):
        self.folder = folder
        self.keep = keep

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are there, rising."""
        if not self.folder.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def path(self, step: int) -> pathlib.Path:
        """The file of one step."""
        return self.folder / f"step-{step:010d}.npz"

    def save(self, step: int, arrays: SavedArrays, meta: Mapping[str, Any]) -> None:
        """Writes one checkpoint and removes the oldest beyond `keep`."""
        make_folder(self.folder)
        text = json.dumps({"format": FORMAT, **meta})
        with atomic_write(self.path(step)) as file:
            np.savez(file, allow_pickle=False, **{"meta": np.array(text), **arrays})
        self.remove_old()
        for stale in self.folder.glob(".step-*.tmp"):
            stale.unlink(missing_ok=True)

    def remove_old(self) -> None:
        """Removes the oldest beyond `keep`."""
        for old in self.steps()[: -self.keep]:
            self.path(old).unlink(missing_ok=True)

    def load(self, step: int) -> Checkpoint:
        """Verifies one checkpoint, a piece at a time; InputError where it is damaged or of a newer tfmat."""
        path = self.path(step)
        with _damage_told(path):
            archive = np.load(path, allow_pickle=False)  # closes its file with the last array
            damaged = archive.zip.testzip()
            if damaged:
                raise ValueError(f"the check sum of {damaged} is wrong")
            arrays = {name: _member(path, archive, name) for name in archive.files}
            meta = json.loads(str(np.asarray(arrays.pop("meta"))))
        if meta["format"] > FORMAT:
            raise InputError(
                f"checkpoint {path} is of a newer tfmat (format {meta['format']}); update tfmat"
            )
        return Checkpoint(step, arrays, meta)

    def latest_clock(self) -> tuple[int, float]:
        """Step and `position.seconds` of the newest checkpoint that can be read, (0, 0.0) for none; not its arrays."""
        for step in reversed(self.steps()):
            with (
                contextlib.suppress(*_DAMAGE),
                np.load(self.path(step), allow_pickle=False) as archive,
            ):
                return step, float(json.loads(str(archive["meta"]))["position"]["seconds"])
        return 0, 0.0

    def load_latest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and one line for each newer one that is not."""
        complaints: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), complaints
            except InputError as error:
                complaints.append(str(error))
        if complaints:
            raise InputError(f"no checkpoint of this run can be read: {complaints[0]}")
        return None, complaints


@contextlib.contextmanager
def _damage_told(path: pathlib.Path) -> Iterator[None]:
    """InputError for what NumPy raises where the file is not what it was."""
    try:
        yield
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"checkpoint {path} is damaged ({reason}); delete it to go on without it"
        ) from error


def _member(path: pathlib.Path, archive: Any, name: str) -> SavedArray:
    """An array of an open .npz file, of which only the head is read now."""
    with archive.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        older = version == (1, 0)
        read_head = (
            np.lib.format.read_array_header_1_0 if older else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_head(file)

    def read() -> np.ndarray:
        with _damage_told(path):
            array: np.ndarray = archive[name]
            return array

    return SavedArray(shape, dtype, read)

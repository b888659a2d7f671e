"""What takes long to compute and depends on records alone, kept in the folder of their data set for the next run."""

import functools
import hashlib
import logging
import pathlib
import zipfile
from typing import Any

import numpy as np

from tfmat.errors import InputError
from tfmat.files import atomic_write

# Rooms whose code makes the numbers: where one of their files changes, what was kept is made anew.
_ROOMS = ("curves", "materials", "models")
_LIBRARIES = ("numpy", "scipy", "tensorflow")
NAME = r"fits-[0-9a-f]{32}\.npz"
_LOG = logging.getLogger(__name__)


class Kept:
    """Arrays by what they were computed from: `fits-<32 digits>.npz`.

    The digits stand for everything that the numbers depend on: what the caller names, tfmat's own code for records,
    laws and networks, and the libraries. Each file has a checksum of its content; what is damaged counts as not there.

    Args:
      folder: of the data set; None keeps nothing.
    """

    def __init__(self, folder: pathlib.Path | None):
        self._folder = folder

    def key(self, *parts: str | np.ndarray) -> str:
        """The digits for something that depends on these texts and arrays."""
        found = hashlib.blake2b(_code().encode(), digest_size=16)
        for part in parts:
            if isinstance(part, np.ndarray):
                found.update(repr((part.shape, part.dtype.str)).encode())
                found.update(np.ascontiguousarray(part).data)
            else:
                found.update(repr(part).encode())
        return found.hexdigest()

    def read(self, key: str) -> np.ndarray | None:
        """The array that was kept; None where there is none, or the file is damaged."""
        if self._folder is None:
            return None
        try:
            with np.load(self._folder / f"fits-{key}.npz", allow_pickle=False) as file:
                found: np.ndarray = file["found"]
                return found
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def write(self, key: str, found: Any) -> None:
        """Keeps an array; where the folder cannot be written, a line says so once and nothing is kept."""
        if self._folder is None:
            return
        try:
            with atomic_write(self._folder / f"fits-{key}.npz") as file:
                np.savez(file, found=found)
        except InputError as error:
            _LOG.warning("fits are not kept for the next run: %s", error)
            self._folder = None


@functools.cache
def _code() -> str:
    """A hash of the code behind the numbers, and the versions of the libraries."""
    import importlib.metadata  # which takes ten milliseconds, and most commands ask for no key

    package = pathlib.Path(__file__).resolve().parents[1]
    found = hashlib.blake2b(digest_size=16)
    for room in _ROOMS:
        for file in sorted((package / room).glob("*.py")):
            found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest() + "".join(map(importlib.metadata.version, _LIBRARIES))

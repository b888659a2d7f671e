"""The data sets in a folder: what each is, how much room it takes, and deleting it."""

import dataclasses
import datetime
import pathlib
import re
from typing import Literal

from tfmat.data.kept import NAME as _KEPT
from tfmat.data.manifest import ARRAYS, BAYES_RISK, MANIFEST, read_manifest
from tfmat.data.shards import find_damage
from tfmat.errors import InputError
from tfmat.files import is_locked, locked

State = Literal["complete", "unfinished", "damaged", "unreadable"]

_SHARD = rf"shard-\d{{5,}}-of-\d{{5,}}\.({'|'.join(ARRAYS)})"
# What tfmat writes into the folder of a data set, finished or not.
_WHOLE = f"{re.escape(MANIFEST)}|{re.escape(BAYES_RISK)}|{_SHARD}|{_KEPT}"
_OWN = re.compile(rf"\.lock|{_WHOLE}|\.({_WHOLE})\..*\.tmp")

_FOLDER = re.compile(r".+-\d+-[0-9a-f]{8}")


@dataclasses.dataclass(frozen=True)
class StoredDataset:
    """One data set on the disk.

    Attributes:
      folder: where it lies.
      state: complete; unfinished: its writer was ended, or still works; damaged: a shard is missing or too short;
        unreadable: its manifest is damaged, or of a newer tfmat.
      num_bytes: room that its files take.
      written: when its manifest, or else the folder, was last written.
    """

    folder: pathlib.Path
    state: State
    num_bytes: int
    written: datetime.datetime


def stored_datasets(data_dir: pathlib.Path) -> list[StoredDataset]:
    """Every data set in `data_dir`, by name. Folders of anything else, and links, are left out.

    Raises:
      InputError: there is no such folder, or it cannot be read.
    """
    if not data_dir.is_dir():
        raise InputError(f"there is no folder {data_dir}; give the folder of data sets: --data_dir")
    try:
        folders = sorted(
            path for path in data_dir.iterdir() if path.is_dir() and not path.is_symlink()
        )
        return [_describe(folder) for folder in folders if _is_ours(folder)]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error


def delete_dataset(dataset: StoredDataset) -> None:
    """Deletes a data set and its folder. The manifest goes first: what a kill leaves behind is seen to be unfinished.

    Raises:
      InputError: another process writes it, the folder holds something else too, or may not be changed.
    """
    folder = dataset.folder
    foreign = sorted(path.name for path in folder.iterdir() if not _is_own(path))
    if foreign:
        raise InputError(
            f"{folder} holds {foreign[0]}, which is no part of a data set; move it away, or delete the folder yourself"
        )
    with locked(folder, f"another process is writing {folder}; wait for it, or end it"):
        try:
            (folder / MANIFEST).unlink(missing_ok=True)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        except OSError as error:
            raise InputError(f"cannot delete {error.filename}: {error.strerror}") from error


def _is_own(path: pathlib.Path) -> bool:
    return _OWN.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def _is_ours(folder: pathlib.Path) -> bool:
    """Whether a data set lies here: its manifest, shards, or what its writer leaves when it is killed at the start."""
    names = [path.name for path in folder.iterdir()]
    if any(re.fullmatch(_SHARD, name) for name in names):
        return True
    if _FOLDER.fullmatch(folder.name) and names and all(map(_is_own, folder.iterdir())):
        return True
    if MANIFEST not in names:
        return False
    try:
        read_manifest(folder)
    except InputError:
        return False  # some other program's
    return True


def _describe(folder: pathlib.Path) -> StoredDataset:
    files = [path.stat() for path in folder.iterdir() if _is_own(path)]
    manifest = folder / MANIFEST
    written = (manifest if manifest.is_file() else folder).stat().st_mtime
    return StoredDataset(
        folder=folder,
        state=_state(folder),
        num_bytes=sum(file.st_size for file in files),
        written=datetime.datetime.fromtimestamp(written, datetime.UTC),
    )


def _state(folder: pathlib.Path) -> State:
    if is_locked(folder) or not (folder / MANIFEST).is_file():
        return "unfinished"
    try:
        manifest = read_manifest(folder)
    except InputError:
        return "unreadable"
    if None in manifest["shards"]:
        return "unfinished"
    return "damaged" if find_damage(folder, manifest, 1, read=False) else "complete"

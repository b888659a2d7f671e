"""Data sets on disk: simulated or imported records in shards, their manifest, and what of them is kept in memory."""

import array
import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import datetime
import functools
import hashlib
import json
import logging
import math
import mmap
import os
import pathlib
import re
import shutil
import threading
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal

import numpy as np
import psutil
import threadpoolctl
from numpy.typing import NDArray

from tfmat.errors import InputError, nearest
from tfmat.files import (
    atomic_write,
    check_json,
    is_locked,
    locked,
    read_json,
    write_arrays,
    write_error,
    write_json,
)
from tfmat.materials.law import Parameter
from tfmat.records.simulation import SIMULATION_VERSION, CurveSettings, RecordForm, Simulator

# --------------------------------------------------------------------------------------------------
# The description of a packed data set: `manifest.json`.


# FORMAT: version of a data set; newer ones are refused.
FORMAT = 1
MANIFEST = "manifest.json"
BAYES_RISK = "bayes_risk.json"  # beside it, once a network was evaluated
SHARD_SIZE = 131_072  # curves in a shard: 315 MB of features at 200 points
ARRAYS = ("features", "labels")
CHANNELS = 3  # strain, stress, flag: what is there where the manifest says nothing
# Rows that are written at once and have one CRC-32; the checksum of a shard is the CRC-32 of these. Changing it
# changes the format.
PIECE = 4096


@dataclasses.dataclass(frozen=True)
class Source:
    """A file that curves were imported from, and the SHA-256 of its content."""

    path: str
    sha256: str


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclasses.dataclass(kw_only=True)
class Manifest:
    """The description of a packed data set, and the checksums of its shards: `manifest.json`.

    Attributes:
      id: 8 digits that stand for all that decides the rows.
      created: when its writing began.
      simulation_version, settings: of simulated curves; the settings as `CurveSettings.to_json` gives them.
      source: the file that the curves were imported from.
      num_curves: training and validation curves together.
      parameters: the identified ones, in the order of the label columns.
      input_scale: (largest strain, largest stress, 1, ...).
      shards: the checksums of each shard's files; None where it is not written yet.
      copies, laboratory: of imported curves that stand more than once, each with errors of its own.
    """

    format: int = FORMAT
    id: str = ""
    created: str = dataclasses.field(default_factory=_now)
    numpy_version: str = np.__version__
    simulation_version: int | None = None
    law: str | None = None
    settings: dict[str, Any] | None
    source: Source | None
    seed: int
    num_curves: int
    num_train: int
    num_validation: int
    num_test: int
    num_points: int
    shard_size: int
    num_channels: int = CHANNELS
    parameters: tuple[Parameter, ...]
    input_scale: tuple[float, ...]
    shards: list[dict[str, str] | None]
    copies: int | None = None
    laboratory: dict[str, Any] | None = None

    # Where each row lies: raw little-endian float32, no header, shard after shard.

    @property
    def num_rows(self) -> int:
        return self.num_curves + self.num_test

    @property
    def num_shards(self) -> int:
        return -(-self.num_rows // self.shard_size)

    def rows(self, shard: int) -> tuple[int, int]:
        """First row of a shard and the row after its last."""
        start = shard * self.shard_size
        return start, min(start + self.shard_size, self.num_rows)

    def pieces(self, shard: int) -> list[tuple[int, int]]:
        """The rows (start, stop) of each piece of a shard."""
        start, stop = self.rows(shard)
        return [(first, min(first + PIECE, stop)) for first in range(start, stop, PIECE)]

    def row_bytes(self, name: str) -> int:
        features = self.num_points * self.num_channels
        return 4 * (features if name == "features" else len(self.parameters))

    def shard_bytes(self, name: str, shard: int) -> int:
        start, stop = self.rows(shard)
        return (stop - start) * self.row_bytes(name)

    def path(self, folder: pathlib.Path, name: str, shard: int) -> pathlib.Path:
        return folder / f"shard-{shard:05d}-of-{self.num_shards:05d}.{name}"

    def write(self, folder: pathlib.Path) -> None:
        """Writes it, with the arrays' type and shapes, which other programs may want."""
        content, rows = dataclasses.asdict(self), self.num_rows
        content |= {
            "dtype": "<f4",
            "features_shape": [rows, self.num_points, self.num_channels],
            "labels_shape": [rows, len(self.parameters)],
        }
        # Data sets of three channels, and curves that stand once, are written as ever.
        if self.num_channels == CHANNELS:
            del content["num_channels"]
        if self.copies is None:
            del content["copies"], content["laboratory"]
        write_json(folder / MANIFEST, content)

    def check(self) -> None:
        """InputError where the entries, each of the right type, do not belong together."""
        for name in ("num_points", "shard_size", "num_curves"):
            if not 0 < getattr(self, name) < 2**48:
                raise InputError(f"{name} is {getattr(self, name)}")
        parts = [self.num_train, self.num_validation, self.num_test]
        if min(parts) < 0 or parts[0] + parts[1] != self.num_curves:
            raise InputError(f"num_train, num_validation and num_test are {parts}")
        if len(self.shards) != self.num_shards:
            raise InputError(f"it lists {len(self.shards)} shards")
        names = [parameter.name for parameter in self.parameters]
        if not names or len(set(names)) < len(names):
            raise InputError(f"parameters: {', '.join(names) or 'none'}")
        for parameter in self.parameters:
            low = 0.0 if parameter.scale == "log" else -math.inf
            if not low < parameter.low < parameter.high:
                raise InputError(
                    f"parameters.{parameter.name}: {parameter.low} to {parameter.high}"
                )
        if not 3 <= self.num_channels <= 16:
            raise InputError(f"num_channels is {self.num_channels}")
        if len(self.input_scale) != self.num_channels or min(self.input_scale) <= 0:
            raise InputError(f"input_scale is {list(self.input_scale)}")


def read_manifest(folder: pathlib.Path) -> Manifest:
    """Reads and checks `manifest.json`; InputError where it is missing, damaged, or from a newer tfmat."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{folder} holds no data set (there is no {MANIFEST}); make one with `tfmat generate`"
        )
    try:
        content = read_json(path)
    except InputError as error:
        if not isinstance(error.__cause__, ValueError):
            raise
        raise InputError(_damaged(path, "it is not valid JSON")) from error
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise InputError(_damaged(path, "it has no 'format'"))
    if version > FORMAT:
        raise InputError(
            f"{folder} was written by a newer tfmat (format {version}; this one reads up to {FORMAT}); "
            "upgrade tfmat, or generate the data set again in another folder"
        )
    try:
        manifest: Manifest = check_json(content, Manifest, path)
        manifest.check()
    except InputError as error:
        what = str(error).removeprefix(f"{path} is damaged: ")
        raise InputError(_damaged(path, what)) from error
    return manifest


def _damaged(path: pathlib.Path, what: str) -> str:
    return (
        f"{path} is damaged: {what}; delete the folder {path.parent} and run `tfmat generate` again"
    )


def input_scale(features: NDArray[np.floating]) -> tuple[float, ...]:
    """(largest strain, largest stress, 1, ...) of some curves [curves, points, channels], never zero."""
    strain, stress = (float(np.abs(features[..., channel]).max()) or 1.0 for channel in (0, 1))
    return (strain, stress, *[1.0] * (features.shape[-1] - 2))


def settings_of(folder: pathlib.Path, content: dict[str, Any]) -> CurveSettings:
    """The settings of a data set's curves, from its manifest; InputError where they are damaged."""
    kinds = {field.name: field.type for field in dataclasses.fields(CurveSettings)}
    for name, kind in kinds.items():
        if name in content:
            check_json(content[name], kind, f"{folder / MANIFEST}, settings.{name},")
    try:
        return CurveSettings.from_json(content, folder)
    except InputError as error:
        raise InputError(f"{folder / MANIFEST}: settings: {error}") from error


def digest(content: Mapping[str, Any]) -> str:
    """8 hexadecimal digits of the SHA-256 of `content`; 1 and 1.0 are the same."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(value[key]) for key in sorted(value)}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value).hex()
        return value

    return hashlib.sha256(json.dumps(plain(content)).encode()).hexdigest()[:8]


def plain_name(name: str) -> str:
    """A name that is good in a path."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("._") or "curves"


# --------------------------------------------------------------------------------------------------
# Shards of a packed data set: checked against its manifest, and mapped side by side as one array without a copy.


# _PROT_NONE and those below: numbers of mmap(2) that Python does not name.
_PROT_NONE = 0
_MAP_FIXED = 0x10  # the same number on every Linux architecture
_MAP_FAILED = ctypes.c_void_p(-1).value


def combined_checksum(piece_checksums: Iterable[int]) -> str:
    """The checksum of a file from the CRC-32 of each of its pieces: 8 hexadecimal digits."""
    return f"{zlib.crc32(array.array('I', piece_checksums).tobytes()):08x}"


def find_damage(
    folder: pathlib.Path, manifest: Manifest, num_threads: int, read: bool = True
) -> dict[int, str]:
    """Checks every shard against the manifest, several at the same time; without `read` by names and sizes only.

    Returns:
      shard -> what is wrong with it, starting with the file's name; shards that are whole do not appear.
    """

    def check(shard: int) -> str | None:
        checksums = manifest.shards[shard]
        if checksums is None:
            return f"{manifest.path(folder, 'features', shard).stem} was not finished"
        for name in ARRAYS:
            path, expected = manifest.path(folder, name, shard), manifest.shard_bytes(name, shard)
            piece_bytes = PIECE * manifest.row_bytes(name)
            try:
                size = path.stat().st_size
                if size != expected:
                    return f"{path.name} is incomplete ({size} of {expected} bytes)"
                if read and file_checksum(path, piece_bytes) != checksums.get(name):
                    return f"{path.name} is damaged (its checksum is not the one in {MANIFEST})"
            except FileNotFoundError:
                return f"{path.name} is missing"
            except OSError as error:
                return f"{path.name} cannot be read ({error.strerror})"
        return None

    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        answers = pool.map(check, range(manifest.num_shards))
        return {shard: answer for shard, answer in enumerate(answers) if answer is not None}


def file_checksum(path: pathlib.Path, piece_bytes: int) -> str:
    """Reads a file in pieces of `piece_bytes` and returns its checksum. Needs memory for one piece only."""
    checksums = []
    buffer = memoryview(bytearray(min(piece_bytes, max(path.stat().st_size, 1))))
    with open(path, "rb") as file:
        while filled := file.readinto(buffer):  # all of it, but at the file's end
            checksums.append(zlib.crc32(buffer[:filled]))
    return combined_checksum(checksums)


def map_shards(paths: Sequence[str | os.PathLike], bytes_per_shard: int) -> NDArray[np.float32]:
    """Maps several files of float32 one after the other into one contiguous array.

    The pages are shared with every other process that maps the same files. The array is writable only because NumPy's
    DLPack export, which hands it to TensorFlow without a copy, asks for that. Writes stay in this process and never
    reach the files. The files must not shrink while the array lives.

    Args:
      paths: the shards in order.
      bytes_per_shard: size of every file but the last, which may be shorter; with more than one file a multiple of
        the page size.

    Returns:
      float32, one dimension, all values of all files. It is unmapped when the last view of it is gone.

    Raises:
      InputError: a file is missing, empty, or of another size.
    """
    names = [os.fspath(path) for path in paths]
    if len(names) > 1 and bytes_per_shard % mmap.PAGESIZE:
        raise InputError(
            f"shards of {bytes_per_shard} bytes are not whole memory pages of {mmap.PAGESIZE} bytes; "
            "use a shard size that is a multiple of 1024 curves, or of 16384 on machines with large pages"
        )
    try:
        sizes = [os.path.getsize(path) for path in names]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    for i, (path, size) in enumerate(zip(names, sizes, strict=True)):
        last = i == len(names) - 1
        if (
            (last and not 0 < size <= bytes_per_shard)
            or (not last and size != bytes_per_shard)
            or size % 4
        ):
            raise InputError(
                f"{path} has {size} bytes where {bytes_per_shard} are expected; the shard is incomplete"
            )
    mapping = _Mapping(sum(sizes))
    offset = 0
    for path, size in zip(names, sizes, strict=True):
        mapping.place(path, offset, size)
        offset += size
    return np.asarray(mapping)


class _Mapping:
    """A reserved range of addresses; an array made from it keeps it alive."""

    def __init__(self, size: int):
        self._libc = _libc()
        address = self._libc.mmap(
            None, size, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
        )
        if address in (None, _MAP_FAILED):
            raise _map_error(f"{size} bytes of address space")
        self._address = address
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": (size // 4,),
            "typestr": "<f4",
            "data": (address, False),
        }
        finalizer = weakref.finalize(self, self._libc.munmap, address, size)
        # TensorFlow's threads may still read at interpreter exit; the system unmaps everything right after anyway.
        finalizer.atexit = False

    def place(self, path: str, offset: int, size: int) -> None:
        """Maps `size` bytes of the file over the reservation at `offset`."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        try:
            address = self._libc.mmap(
                self._address + offset,
                size,
                mmap.PROT_READ | mmap.PROT_WRITE,
                mmap.MAP_PRIVATE | _MAP_FIXED,
                descriptor,
                0,
            )
        finally:
            os.close(descriptor)
        if address in (None, _MAP_FAILED):
            raise _map_error(path)


def _libc() -> ctypes.CDLL:
    """The C library with the two functions that Python's mmap module does not offer (a fixed address)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    ]
    libc.munmap.restype = ctypes.c_int
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _map_error(what: str) -> InputError:
    reason = os.strerror(ctypes.get_errno())
    return InputError(
        f"cannot map {what}: {reason}; free some memory, or raise the limit on address space (ulimit -v)"
    )


# --------------------------------------------------------------------------------------------------
# Results that take long and depend on records alone, kept in the folder of their data set for the next run.


# Rooms whose code makes the numbers: where one of their files changes, what was kept is made anew.
_ROOMS = ("records", "materials", "networks")
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
            write_arrays(self._folder / f"fits-{key}.npz", found=found)
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


# --------------------------------------------------------------------------------------------------
# The data sets in a folder: what each is, how much room it takes, and deleting it.


State = Literal["complete", "unfinished", "damaged", "unreadable"]

_SHARD = rf"shard-\d{{5,}}-of-\d{{5,}}\.({'|'.join(ARRAYS)})"
# Files that tfmat writes into the folder of a data set, finished or not.
_WHOLE = f"{re.escape(MANIFEST)}|{re.escape(BAYES_RISK)}|{_SHARD}|{NAME}"
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
    if None in manifest.shards:
        return "unfinished"
    return "damaged" if find_damage(folder, manifest, 1, read=False) else "complete"


# --------------------------------------------------------------------------------------------------
# Limits of this process: memory, with the refusal of data that cannot fit into it, and processors.


_CGROUPS = pathlib.Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes of memory that a new process could use now, within the limits of its container."""
    return min([psutil.virtual_memory().available, *_limits()])


def total_memory() -> int:
    """Bytes of memory that a process could have with the machine for itself, within the limits of its container."""
    return min([psutil.virtual_memory().total, *_limits()])


def check_memory(what: str, needed: int, remedy: str) -> None:
    """InputError where `what`, the subject of a sentence, needs more bytes than there are; `remedy`: what to do."""
    total = total_memory()
    if needed > total:
        raise InputError(
            f"{what} would need at least {size_text(needed)} of memory, and this machine (or container) has "
            f"{size_text(total)}; {remedy}"
        )


def size_text(num_bytes: int) -> str:
    """`12.0 MB`, `3.4 GB`, `1,200 TB`."""
    for unit, digits, power in (("MB", 1, 6), ("GB", 1, 9)):
        if num_bytes < 10 ** (power + 3):
            return f"{num_bytes / 10**power:,.{digits}f} {unit}"
    return f"{num_bytes / 10**12:,.1f} TB"


def _limits() -> Iterator[int]:
    """Limits, in bytes, of the control groups that this process is in; a group's parents bound it too."""
    own = ""
    with contextlib.suppress(OSError):
        own = pathlib.Path("/proc/self/cgroup").read_text("ascii").strip().rpartition("::")[2]
    group = _CGROUPS / own.lstrip("/")
    for folder in (group, *group.parents):
        # No control groups of version 2, or "max": no limit of its own.
        with contextlib.suppress(OSError, ValueError):
            yield int((folder / "memory.max").read_text("ascii"))
        if folder == _CGROUPS:
            break


# --------------------------------------------------------------------------------------------------
# Writing the shards of a packed data set: several threads, each shard whole or absent, resumable.


Floats = NDArray[np.float32]
# fill(start, stop, features [rows, points, channels], labels [rows, labels]) writes rows start to stop into the arrays.
Fill = Callable[[int, int, Floats, Floats], None]
Progress = Callable[[int, int], None]


def write_dataset(
    folder: pathlib.Path,
    manifest: Manifest,
    fill: Fill,
    *,
    progress: Progress | None = None,
    num_threads: int | None = None,
) -> None:
    """Makes the data set in `folder` that `manifest` describes, or what is missing or damaged of it.

    A complete data set is only checked, which needs no right to write. Whatever ends the writing early, finished
    shards stay and are in the manifest, and no temporary file is left (after a SIGKILL the next call removes them).

    Args:
      folder: of this one data set.
      manifest: of the data set; its `shards` are ignored, and all of it where the folder holds one already.
      fill: gives the rows; must be a pure function and safe to call from several threads.
      progress: called with (rows done, rows in all), first with what was there already.
      num_threads: default: one for each processor.

    Raises:
      InputError: the folder holds another data set, there is not enough space, or a write is refused.
    """
    num_threads = num_threads or len(os.sched_getaffinity(0))
    if not (folder / MANIFEST).exists():
        # A billion curves are refused without looking at each of their shards.
        _check_space(folder, sum(manifest.row_bytes(name) for name in ARRAYS) * manifest.num_rows)
    current, damage = _compare(folder, manifest, num_threads, read=False)
    if not damage:
        current, damage = _compare(folder, manifest, num_threads, read=True)
    if not damage:
        return
    _check_space(folder, _missing_bytes(folder, manifest, damage))  # before anything is made
    with locked(folder, f"another process is writing {folder}; waiting for it", wait=True) as held:
        if held:
            for stale in folder.glob(".*.tmp"):  # of a killed writer
                stale.unlink(missing_ok=True)
        current, damage = _compare(folder, manifest, num_threads, read=True)
        for shard, what in damage.items():
            if current.shards[shard] is not None:
                _LOG.warning("%s: %s; making it again", folder, what)
        if damage:
            rows = sum(stop - start for start, stop in map(manifest.rows, damage))
            size = size_text(rows * sum(map(manifest.row_bytes, ARRAYS)))
            _LOG.info(
                "writing %s curves (%s) into %s; `tfmat clean` lists data sets and deletes them",
                f"{rows:,}",
                size,
                folder,
            )
            _write_shards(folder, current, sorted(damage), fill, num_threads, progress)


def _compare(
    folder: pathlib.Path, manifest: Manifest, num_threads: int, read: bool
) -> tuple[Manifest, dict[int, str]]:
    """The manifest that holds now, and which shards are missing or damaged."""
    if (folder / MANIFEST).exists():
        current = read_manifest(folder)
        if current.id != manifest.id:
            raise InputError(
                f"{folder} holds another data set than the one asked for; choose another --data_dir"
            )
    else:
        unwritten: list[dict[str, str] | None] = [None] * manifest.num_shards
        current = dataclasses.replace(manifest, shards=unwritten)
    return current, find_damage(folder, current, num_threads, read)


def _missing_bytes(folder: pathlib.Path, manifest: Manifest, shards: Iterable[int]) -> int:
    needed = 0
    for shard in shards:
        for name in ARRAYS:
            path = manifest.path(folder, name, shard)
            # A damaged file makes room for its successor.
            needed += manifest.shard_bytes(name, shard) - (
                path.stat().st_size if path.is_file() else 0
            )
    return needed


def _check_space(folder: pathlib.Path, needed: int) -> None:
    existing = folder.absolute()
    while not existing.is_dir() and existing != existing.parent:
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise InputError(
            f"{folder} needs {size_text(needed)} and only {size_text(free)} are free; "
            "free some space or choose another folder with --data_dir"
        )


def _write_shards(
    folder: pathlib.Path,
    manifest: Manifest,
    shards: list[int],
    fill: Fill,
    num_threads: int,
    progress: Progress | None,
) -> None:
    """Writes `shards` and, after each, the manifest with its checksum."""
    for shard in shards:
        manifest.shards[shard] = None
    manifest.write(folder)
    for shard in shards:
        for name in ARRAYS:
            manifest.path(folder, name, shard).unlink(missing_ok=True)
    files = {shard: _ShardFiles(folder, manifest, shard) for shard in shards}
    buffers = threading.local()

    def piece(shard: int, start: int, stop: int) -> None:
        if not hasattr(buffers, "arrays"):
            # Reused by every piece of this thread: fresh pages would cost as much as the writing.
            features = np.empty((PIECE, manifest.num_points, manifest.num_channels), "<f4")
            buffers.arrays = features, np.empty((PIECE, len(manifest.parameters)), "<f4")
        features, labels = (rows[: stop - start] for rows in buffers.arrays)
        fill(start, stop, features, labels)
        files[shard].write("features", start, features)
        files[shard].write("labels", start, labels)

    def finish(shard: int) -> None:
        manifest.shards[shard] = files.pop(shard).finish()
        manifest.write(folder)

    def abandon() -> None:
        for each in files.values():
            each.abandon()

    with contextlib.ExitStack() as stack:
        # Left in reverse order: stop computing, let whole shards reach the disk, remove the unfinished ones.
        stack.callback(abandon)
        # Pieces are computed side by side already: a law with matrices would start threads in every one of them.
        stack.enter_context(threadpoolctl.threadpool_limits(1, "blas"))
        finisher = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        pool = concurrent.futures.ThreadPoolExecutor(num_threads)
        stack.callback(pool.shutdown, cancel_futures=True)
        pieces = [(shard, *rows) for shard in shards for rows in manifest.pieces(shard)]
        computed = collections.deque(pool.submit(piece, *one) for one in pieces)
        finishing: collections.deque[concurrent.futures.Future[None]] = collections.deque()
        done = manifest.num_rows - sum(stop - start for _, start, stop in pieces)
        show = progress or (lambda *counts: None)
        show(done, manifest.num_rows)
        for shard, start, stop in pieces:
            computed.popleft().result()
            done += stop - start
            show(done, manifest.num_rows)
            if stop == manifest.rows(shard)[1]:
                finishing.append(finisher.submit(finish, shard))
            while finishing and finishing[0].done():
                finishing.popleft().result()
        for waiting in finishing:
            waiting.result()


class _AbandonedError(Exception):
    """Tells `atomic_write` to remove its temporary file."""


class _ShardFiles:
    """The two files of one shard while they are written under temporary names."""

    def __init__(self, folder: pathlib.Path, manifest: Manifest, shard: int):
        self._paths = {name: manifest.path(folder, name, shard) for name in ARRAYS}
        self._first_row = manifest.rows(shard)[0]
        self._row_bytes = {name: manifest.row_bytes(name) for name in ARRAYS}
        self._checksums = {name: [0] * len(manifest.pieces(shard)) for name in ARRAYS}
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._files: dict[str, IO[bytes]] = {}

    def write(self, name: str, start: int, values: Floats) -> None:
        """Writes one piece that begins at row `start`; pieces may come in any order and from any thread."""
        descriptor = self._descriptor(name)
        content = values.reshape(-1).view(np.uint8).data
        self._checksums[name][(start - self._first_row) // PIECE] = zlib.crc32(content)
        offset = (start - self._first_row) * self._row_bytes[name]
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], offset + written)
            # Sends the pages to the disk now, while other pieces are computed, so that the fsync at the end finds
            # little left to do.
            os.posix_fadvise(descriptor, offset, len(content), os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise write_error(self._paths[name], error) from error

    def _descriptor(self, name: str) -> int:
        with self._lock:
            if name not in self._files:
                self._files[name] = self._stack.enter_context(atomic_write(self._paths[name]))
            return self._files[name].fileno()

    def finish(self) -> dict[str, str]:
        """Puts both files on the disk under their own names; returns their checksums."""
        self._stack.close()
        return {name: combined_checksum(self._checksums[name]) for name in ARRAYS}

    def abandon(self) -> None:
        """Removes the temporary files."""
        with contextlib.suppress(_AbandonedError), self._stack:
            raise _AbandonedError


# --------------------------------------------------------------------------------------------------
# Packed data sets: a few large shards that are mapped, not read, and a manifest that says what they are.


# Row r >= num_curves of a data set is curve number TEST_START + r - num_curves: the test curves are the same however
# many curves train, and no larger data set ever trains on them.
TEST_START = 1 << 40
MAX_ROWS = 2**31 - 1  # what the int32 indices of a batch can address
_SCALE_CURVES = 1024  # curves that the input scale is taken from
# _LOOKED_AT: records among which the largest strain and stress are compared with the input scale; a quick look.
_LOOKED_AT = 64
# _FAR: ratio of both at which the scale cannot be right. Own records may begin with small ones.
_FAR = 1e4


@dataclasses.dataclass(frozen=True)
class PackedDataset:
    """A packed data set, opened to be read.

    Attributes:
      folder: where it lies.
      manifest: what `manifest.json` says.
      features: [num_curves + num_test, points, 3], float32: strain (-), stress (MPa), flag (1 = padding); for tests of
        other kinds see `RecordForm`. Mapped over all shards in one piece; see `map_shards` for handing it to TensorFlow
        without a copy.
      labels: [num_curves + num_test, identified parameters], float32, scaled to 0-1.
      settings: what the curves were simulated with; None for imported curves that have no law.
    """

    folder: pathlib.Path
    manifest: Manifest
    features: Floats
    labels: Floats
    settings: CurveSettings | None

    @property
    def num_train(self) -> int:
        """Rows that train. They come first, then those that validate, then those that test."""
        return self.manifest.num_train

    @property
    def num_validation(self) -> int:
        return self.manifest.num_validation

    @property
    def num_test(self) -> int:
        return self.manifest.num_test

    @property
    def shard_size(self) -> int:
        """Rows in a shard."""
        return self.manifest.shard_size

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The identified parameters, in the order of the label columns."""
        return self.manifest.parameters

    @property
    def input_scale(self) -> tuple[float, ...]:
        """(largest strain, largest stress, 1, ...): features divided by it are about 0-1."""
        return self.manifest.input_scale

    @property
    def kept(self) -> Kept:
        """Where that is kept which takes long to compute of these records."""
        return Kept(self.folder)

    @property
    def form(self) -> RecordForm:
        """The meaning of the points and channels of `features`."""
        return RecordForm.of(self.settings) if self.settings else RecordForm(self.features.shape[1])

    @classmethod
    def open(cls, folder: str | pathlib.Path, verify: bool = True) -> "PackedDataset":
        """Opens the data set in `folder`; reads every shard once and compares checksums, unless `verify` is False.

        Its shards are read from a copy of it in the folder TFMAT_LOCAL_DATA, where a SLURM job has put one on the node.

        Raises:
          InputError: no data set, from a newer tfmat, or a shard is missing, incomplete or damaged; names the first
            one and says how to make it again.
        """
        folder = pathlib.Path(folder)
        manifest = read_manifest(folder)
        copy = _local_copy(folder, manifest)
        damage = find_damage(copy, manifest, len(os.sched_getaffinity(0)), read=verify)
        if damage:
            what = damage[min(damage)]
            others = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
            raise InputError(
                f"{copy}: {what}{others}; run `tfmat generate --data_dir={folder}` to make what is wrong again"
            )
        dataset = cls._mapped(folder, manifest, copy)
        dataset._check_scale()
        return dataset

    def _check_scale(self) -> None:
        """InputError where a network that divides by `input_scale` would see nothing of the features."""
        some = np.abs(self.features[:: max(1, len(self.features) // _LOOKED_AT), :, :2])
        largest, scale = some.max(axis=(0, 1)), np.array(self.input_scale[:2])
        if np.any((largest > 0) & ((largest * _FAR < scale) | (largest > scale * _FAR))):
            raise InputError(
                f"{self.folder / MANIFEST} is damaged: input_scale is {list(self.input_scale)}, the largest strain and "
                f"stress of some records are {', '.join(f'{value:g}' for value in largest)}; delete the folder "
                f"{self.folder} and run `tfmat generate` again"
            )

    @classmethod
    def _mapped(
        cls, folder: pathlib.Path, manifest: Manifest, copy: pathlib.Path
    ) -> "PackedDataset":

        def array(name: str, shape: tuple[int, ...]) -> Floats:
            paths = [manifest.path(copy, name, shard) for shard in range(manifest.num_shards)]
            return map_shards(paths, manifest.shard_bytes(name, 0)).reshape(shape)

        settings = manifest.settings
        return cls(
            folder=folder,
            manifest=manifest,
            features=array(
                "features", (manifest.num_rows, manifest.num_points, manifest.num_channels)
            ),
            labels=array("labels", (manifest.num_rows, len(manifest.parameters))),
            settings=None if settings is None else settings_of(folder, settings),
        )


def is_dataset(folder: str | pathlib.Path) -> bool:
    """Whether `folder` itself is a data set (finished or not)."""
    return (pathlib.Path(folder) / MANIFEST).is_file()


def check_is_no_dataset(data_dir: str | pathlib.Path) -> None:
    """InputError for a folder that is not there and has a data set's name: nobody calls a folder of data sets so."""
    folder = pathlib.Path(data_dir)
    if re.fullmatch(r".+-\d+-[0-9a-f]{8}", folder.name) and not folder.exists():
        others = [each.name for each in folder.parent.glob("*") if is_dataset(each)]
        raise InputError(
            f"there is no data set {folder}{nearest(folder.name, others)}; --data_dir is a data set, or the folder "
            "that holds data sets"
        )


def is_complete(folder: str | pathlib.Path) -> bool:
    """Whether every shard of the data set in `folder` was written once; `PackedDataset.open` says if they still are."""
    return is_dataset(folder) and None not in read_manifest(pathlib.Path(folder)).shards


def _local_copy(folder: pathlib.Path, manifest: Manifest) -> pathlib.Path:
    """The same data set in TFMAT_LOCAL_DATA, or `folder` itself."""
    local = os.environ.get("TFMAT_LOCAL_DATA")
    copy = pathlib.Path(local or "") / folder.resolve().name
    return copy if local and is_dataset(copy) and read_manifest(copy) == manifest else folder


def dataset_folder(
    data_dir: str | pathlib.Path,
    settings: CurveSettings,
    seed: int,
    num_curves: int,
    num_test: int,
    shard_size: int = SHARD_SIZE,
) -> pathlib.Path:
    """Where such a data set lies: `data_dir/<law>-<num_curves>-<8 digits that stand for all settings>`."""
    identity = _identity(settings, seed, num_curves, num_test, shard_size)
    return (
        pathlib.Path(data_dir) / f"{plain_name(settings.build_law().name)}-{num_curves}-{identity}"
    )


def find_dataset(
    data_dir: str | pathlib.Path, settings: CurveSettings, seed: int, num_curves: int, num_test: int
) -> pathlib.Path:
    """`data_dir` where that is a data set itself (whatever its settings), else `dataset_folder`."""
    if is_dataset(data_dir):
        return pathlib.Path(data_dir)
    return dataset_folder(data_dir, settings, seed, num_curves, num_test)


def generate_dataset(
    settings: CurveSettings,
    *,
    seed: int,
    num_curves: int,
    num_test: int,
    data_dir: str | pathlib.Path,
    progress: Progress | None = None,
    num_threads: int | None = None,
    shard_size: int = SHARD_SIZE,
) -> PackedDataset:
    """Simulates and packs curves, or goes on where an earlier call stopped; a complete data set is only checked.

    Every row is a pure function of (settings, seed, curve number), so a shard that was lost or damaged is made again
    as it was. Two processes that ask for the same data set wait for each other.

    Args:
      num_curves: training and validation curves together (75 % and 25 %), at least 4.
      num_test: further curves that never train.
      data_dir: holds one folder for each data set.
      progress: called with (rows done, rows in all).
      num_threads: default: one for each processor. Changes nothing in the data.
      shard_size: rows in a shard, a multiple of 1024; for tests.

    Raises:
      InputError: impossible numbers, not enough space, or a folder that cannot be written.
    """
    folder = dataset_folder(data_dir, settings, seed, num_curves, num_test, shard_size)
    counts = (seed, num_curves, num_test, shard_size)
    return _generate(folder, settings, *counts, progress, num_threads)


def repair_simulated(
    folder: str | pathlib.Path, progress: Progress | None = None, num_threads: int | None = None
) -> PackedDataset:
    """Makes what is missing or damaged in the simulated data set in `folder`, from its own manifest."""
    folder = pathlib.Path(folder)
    manifest = read_manifest(folder)
    version = manifest.simulation_version
    if version != SIMULATION_VERSION:
        raise InputError(
            f"{folder} was simulated by version {version} of the simulation and this tfmat has {SIMULATION_VERSION}; "
            "generate the data set again in another folder"
        )
    settings = settings_of(folder, manifest.settings or {})
    named = (manifest.settings or {}).get("law", settings.law)
    if settings.law != named:
        raise InputError(f"{folder} is checked and repaired from the folder in which {named} is")
    counts = (manifest.num_curves, manifest.num_test, manifest.shard_size)
    return _generate(folder, settings, manifest.seed, *counts, progress, num_threads)


def _generate(
    folder: pathlib.Path,
    settings: CurveSettings,
    seed: int,
    num_curves: int,
    num_test: int,
    shard_size: int,
    progress: Progress | None,
    num_threads: int | None,
) -> PackedDataset:
    _check_counts(seed, num_curves, num_test)
    first_block, form = min(num_curves, _SCALE_CURVES), RecordForm.of(settings)
    check_memory(
        f"curves of {form.num_points:,} points (data.num_points), of which {first_block:,} are simulated at once,",
        first_block * math.prod(form.shape) * 4,
        "take fewer points",
    )
    simulator = Simulator(settings, seed)

    def fill(start: int, stop: int, features: Floats, labels: Floats) -> None:
        for first, last, number in curve_numbers(start, stop, num_curves):
            rows = slice(first - start, last - start)
            simulator.fill(number, number + last - first, features[rows], labels[rows])

    first_curves = simulator.curves(0, first_block).features
    num_validation = num_curves // 4
    scale = input_scale(first_curves)
    manifest = Manifest(
        id=_identity(settings, seed, num_curves, num_test, shard_size),
        simulation_version=SIMULATION_VERSION,
        law=settings.law,
        settings=settings.to_json(),
        source=None,
        seed=seed,
        num_curves=num_curves,
        num_train=num_curves - num_validation,
        num_validation=num_validation,
        num_test=num_test,
        num_points=form.num_points,
        shard_size=shard_size,
        num_channels=len(scale),
        parameters=simulator.law.identified,
        input_scale=scale,
        shards=[],
    )
    write_dataset(folder, manifest, fill, progress=progress, num_threads=num_threads)
    return PackedDataset.open(folder, verify=False)


def curve_numbers(start: int, stop: int, num_curves: int) -> list[tuple[int, int, int]]:
    """Rows `start` to `stop` as (first row, row after the last, number of the first curve) without a jump inside."""
    parts = []
    if start < num_curves:
        parts.append((start, min(stop, num_curves), start))
    if stop > num_curves:
        first = max(start, num_curves)
        parts.append((first, stop, TEST_START + first - num_curves))
    return parts


def _check_counts(seed: int, num_curves: int, num_test: int) -> None:
    if num_curves < 4:
        raise InputError(f"num_curves is {num_curves}; give at least 4 (75 % train, 25 % validate)")
    if num_curves + num_test > MAX_ROWS:
        raise InputError(f"{num_curves + num_test} curves are too many; give at most {MAX_ROWS}")
    if num_test < 0:
        raise InputError(f"num_test is {num_test}; give 0 or more")
    if seed < 0:
        raise InputError(f"seed is {seed}; give 0 or a positive number")


def _identity(
    settings: CurveSettings, seed: int, num_curves: int, num_test: int, shard_size: int
) -> str:
    """8 hexadecimal digits that differ as soon as any curve would; the settings tell a user law's edits apart."""
    return digest(
        {
            "simulation_version": SIMULATION_VERSION,
            "settings": settings.to_json(),
            "seed": seed,
            "num_curves": num_curves,
            "num_test": num_test,
            "shard_size": shard_size,
        }
    )

"""Shards of a packed data set: checked against its manifest, and mapped side by side as one array without a copy."""

import array
import concurrent.futures
import ctypes
import mmap
import os
import pathlib
import weakref
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.data.manifest import ARRAYS, MANIFEST, PIECE, Layout
from tfmat.errors import InputError

_PROT_NONE = 0
_MAP_FIXED = 0x10  # the same number on every Linux architecture
_MAP_FAILED = ctypes.c_void_p(-1).value


def combined_checksum(piece_checksums: Iterable[int]) -> str:
    """The checksum of a file from the CRC-32 of each of its pieces: 8 hexadecimal digits."""
    return f"{zlib.crc32(array.array('I', piece_checksums).tobytes()):08x}"


def find_damage(
    folder: pathlib.Path, manifest: Mapping[str, Any], num_threads: int, read: bool = True
) -> dict[int, str]:
    """Checks every shard against the manifest.

    Args:
      folder: of the data set.
      manifest: its manifest.
      num_threads: files read at the same time.
      read: False looks at names and sizes only.

    Returns:
      shard -> what is wrong with it, starting with the file's name; shards that are whole do not appear.
    """
    layout = Layout.of(manifest)

    def check(shard: int) -> str | None:
        return _shard_damage(folder, layout, shard, manifest["shards"][shard], read)

    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        answers = pool.map(check, range(layout.num_shards))
        return {shard: answer for shard, answer in enumerate(answers) if answer is not None}


def _shard_damage(
    folder: pathlib.Path,
    layout: Layout,
    shard: int,
    checksums: Mapping[str, str] | None,
    read: bool,
) -> str | None:
    if checksums is None:
        name = layout.path(folder, "features", shard).stem
        return f"{name} was not finished"
    for name in ARRAYS:
        path = layout.path(folder, name, shard)
        expected = layout.shard_bytes(name, shard)
        try:
            size = path.stat().st_size
            if size != expected:
                return f"{path.name} is incomplete ({size} of {expected} bytes)"
            if read and file_checksum(path, PIECE * layout.row_bytes(name)) != checksums.get(name):
                return f"{path.name} is damaged (its checksum is not the one in {MANIFEST})"
        except FileNotFoundError:
            return f"{path.name} is missing"
        except OSError as error:
            return f"{path.name} cannot be read ({error.strerror})"
    return None


def file_checksum(path: pathlib.Path, piece_bytes: int) -> str:
    """Reads a file in pieces of `piece_bytes` and returns its checksum. Needs memory for one piece only."""
    checksums = []
    buffer = memoryview(bytearray(min(piece_bytes, max(path.stat().st_size, 1))))
    with open(path, "rb", buffering=0) as file:
        while filled := _read_full(file, buffer):
            checksums.append(zlib.crc32(buffer[:filled]))
    return combined_checksum(checksums)


def _read_full(file: Any, buffer: memoryview) -> int:
    """Fills `buffer` from an unbuffered file; returns the bytes read, fewer only at the end of the file."""
    filled = 0
    while filled < len(buffer) and (count := file.readinto(buffer[filled:])):
        filled += count
    return filled


def map_shards(paths: Sequence[str | os.PathLike], bytes_per_shard: int) -> NDArray[np.float32]:
    """Maps several files of float32 one after the other into one contiguous array.

    The pages are shared with every other process that maps the same files. The array is writable only because
    NumPy's DLPack export, which hands it to TensorFlow without a copy, asks for that: what is written to it stays in
    this process and never reaches the files. The files must not shrink while the array lives.

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

"""Shards of a packed data set as one array: mapped side by side in one range of addresses, nothing is copied."""

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError

_PROT_NONE = 0
_MAP_FIXED = 0x10  # the same number on every Linux architecture
_MAP_FAILED = ctypes.c_void_p(-1).value


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

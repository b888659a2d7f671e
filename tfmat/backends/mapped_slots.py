"""Tensors in a temporary file that is mapped into memory, of which parts come and go."""

import math
import mmap
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.saved_arrays import SavedArray
from tfmat.files import make_folder, write_error

# Numbers in a block: its slots, gradient, weights and what is computed from them take some 40 MB together.
BLOCK = 2**20
# Slots of no more numbers are copied in memory.
_SMALL = 2**14


class MappedFile:
    """Zeros in a temporary file that has no name, and goes with the process however that ends.

    Args:
      folder: where it is.
      size: bytes; the disk has them from now on.

    Raises:
      InputError: the disk is too small.
    """

    def __init__(self, folder: pathlib.Path, size: int):
        self.folder = make_folder(folder)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise write_error(f"{size / 2**20:,.0f} MiB of slots into {folder}", error) from error

    def array(self, start: int, count: int, dtype: Any) -> np.ndarray:
        """An array [count] over the file's bytes from `start`."""
        return np.frombuffer(self._map, dtype, count, start)

    def prefetch(self, start: int, stop: int) -> None:
        """Has the system read these bytes, and returns at once."""
        start -= start % mmap.PAGESIZE
        if stop > start:
            self._map.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def release(self, start: int, stop: int) -> None:
        """Takes these bytes, without the pages at the ends, out of the process's memory; the file keeps them."""
        start += -start % mmap.PAGESIZE
        stop -= stop % mmap.PAGESIZE
        if stop > start:
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)


class SlotOnDisk:
    """A slot as training and checkpoints see a TensorFlow variable.

    Args:
      variable: of an optimizer, which has no value yet.
      file: where the value is.
      start: of it in the file, in bytes.

    Attributes:
      name, shape, dtype: as of a variable.
      flat: the numbers [count], mapped.
    """

    def __init__(self, variable: keras.Variable, file: MappedFile, start: int):
        self.name, self.shape = variable.path, tf.TensorShape(variable.shape)
        self.dtype = tf.as_dtype(variable.dtype)
        self._file, self._start = file, start
        self.flat = file.array(start, math.prod(variable.shape), self.dtype.as_numpy_dtype)

    def prefetch(self, start: int, stop: int) -> None:
        """Numbers that will be needed soon."""
        self._file.prefetch(*self._bytes(start, stop))

    def release(self, start: int, stop: int) -> None:
        """Numbers that will not."""
        self._file.release(*self._bytes(start, stop))

    def numpy(self) -> np.ndarray:
        """A copy of the values: of a large slot in a file of its own, so that it takes no memory."""
        if len(self.flat) <= _SMALL:
            return self.whole()
        file = MappedFile(self._file.folder, self.flat.nbytes)
        copy = file.array(0, len(self.flat), self.flat.dtype)
        self._copy(self.flat, copy)
        file.release(0, copy.nbytes)
        return copy.reshape(tuple(self.shape))

    def whole(self) -> np.ndarray:
        """A copy of the values in memory."""
        copy = np.empty(self.flat.shape, self.flat.dtype)
        self._copy(self.flat, copy)
        return copy.reshape(tuple(self.shape))

    def saved(self) -> SavedArray:
        """The values as they are when `np.asarray` asks for them."""
        return SavedArray(tuple(self.shape), self.flat.dtype, self.whole)

    def blocks(self) -> Iterator[np.ndarray]:
        """The values [numbers], a block at a time; each leaves the process's memory when the next one is asked for."""
        for start in range(0, len(self.flat), BLOCK):
            stop = min(start + BLOCK, len(self.flat))
            yield self.flat[start:stop]
            self.release(start, stop)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.whole(), dtype)

    def assign(self, value: Any) -> None:
        """Sets the values."""
        self._copy(np.asarray(value).reshape(-1), self.flat)

    def _copy(self, source: np.ndarray, target: np.ndarray) -> None:
        for start in range(0, len(source), BLOCK):
            stop = min(start + BLOCK, len(source))
            target[start:stop] = source[start:stop]
            self.release(start, stop)

    def _bytes(self, start: int, stop: int) -> tuple[int, int]:
        size = self.dtype.size
        return self._start + start * size, self._start + stop * size

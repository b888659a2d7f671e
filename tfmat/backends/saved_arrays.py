"""Arrays of a saved state that come into memory one at a time: from a file, or from rank 0."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfmat.backends.collectives import Collectives


class SavedArray:
    """An array that is elsewhere: each `np.asarray` of it brings it into memory.

    Args:
      shape, dtype: of the array.
      read: -> the array.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, read: Callable[[], np.ndarray]):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._read = read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._read(), dtype)


# What `Backend.write` takes.
SavedArrays = Mapping[str, np.ndarray | SavedArray]


def from_rank_0(arrays: SavedArrays, collectives: Collectives) -> SavedArrays:
    """Rank 0's arrays on every rank: each is broadcast whenever all ask for it.

    Args:
      arrays: those of other ranks are not looked at.
      collectives: of the ranks.

    Returns:
      The arrays by name. Every rank must ask for the same ones in the same order.
    """
    if collectives.size == 1:
        return arrays
    specs = collectives.broadcast(
        {name: (tuple(array.shape), array.dtype.name) for name, array in arrays.items()}
    )

    def array_of(name: str, shape: tuple[int, ...], dtype: str) -> SavedArray:
        def read() -> np.ndarray:
            mine = np.asarray(arrays[name]) if collectives.rank == 0 else None
            return collectives.broadcast_array(mine, shape, dtype)

        return SavedArray(shape, dtype, read)

    return {name: array_of(name, *spec) for name, spec in specs.items()}

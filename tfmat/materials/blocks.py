"""Many curves at once, in blocks that stay in the processor's cache: faster than whole arrays, and little memory."""

import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.history import Array, History

# 128 curves of 200 points: 200 kB for each float64 array of a block. Smaller blocks stay nearer to the core, but then
# two threads wait for each other between NumPy's calls (32 to 1,024 curves were tried with one and two threads).
_VALUES = 25_600
# Specimens that are taken through their histories together: NumPy's calls cost as much as the arithmetic on some
# hundreds of them, and the state of more, with its derivatives, leaves the processor's cache.
_SPECIMENS = 2048
# Two threads in `in_steps` take half as long again as one after the other: each gives up the interpreter at every one
# of NumPy's short calls, and waits for it again.
_STEPPING = threading.RLock()
# The interval is then 1e-30 of what it was, below rounding wherever the root is not itself that small.
_HALVINGS = 100


def _keep_freed_memory() -> None:
    """Lets the C library keep what a block's arrays free for the next block's.

    glibc hands freed memory back to the system and takes it again, page by page, until a large piece was freed
    once: that took half the time of an implicit law. Costs at most twice this piece, and nothing elsewhere.
    """
    np.empty(16 << 20, np.uint8)


_keep_freed_memory()


def rows_in_block(points: int) -> int:
    """Number of curves of `points` points that one block holds, at least 1."""
    return max(1, _VALUES // max(1, points))


def in_blocks(
    fill: Callable[[Array, Array, Array], None],
    strain: Array,
    parameters: Array,
    trailing: tuple[int, ...] = (),
) -> Array:
    """Fills an array of results block by block.

    Args:
      fill: called as `fill(strain, columns, out)` with strain [rows, points], columns [parameters, rows, 1]
        (so that `first, second = columns` broadcast against strain) and out [rows, points, *trailing] to write to.
        It must treat every value by itself, since blocks are cut anywhere. Floating-point warnings are off inside: a
        search may try an E of 69 MPa, and a power that overflows on the way to a root is no news to anybody.
      strain: [curves, points] or [1, points].
      parameters: [curves, parameters].
      trailing: further dimensions of the result.

    Returns:
      [curves, points, *trailing], float64.
    """
    parameters = np.asarray(parameters, np.float64)
    strain = np.asarray(strain, np.float64)
    curves, points = len(parameters), strain.shape[1]
    strain = np.broadcast_to(strain, (curves, points))
    out = np.empty((curves, points, *trailing))
    rows = rows_in_block(points)
    with np.errstate(all="ignore"):
        for first in range(0, curves, rows):
            block = slice(first, min(first + rows, curves))
            fill(strain[block], parameters[block].T[:, :, None], out[block])
    return out


class Specimens(Protocol):
    """Specimens of a law that remembers, taken through their histories side by side."""

    def advance(self, increment: Array, duration: Array) -> Array:
        """What is recorded after a further `increment` of what is driven, in `duration` seconds: [..., specimens].

        Both are [specimens] or [1]; the duration is 0 where the history tells no time.
        """


def in_steps(
    specimens: Callable[[Array], Specimens],
    history: History,
    parameters: Array,
    trailing: tuple[int, ...] = (),
) -> Array:
    """Takes blocks of virgin specimens through their histories, point by point.

    Args:
      specimens: makes a block of parameters [rows, parameters] into specimens at rest.
      history: of [curves, points] or [1, points].
      parameters: [curves, parameters].
      trailing: further dimensions of what `advance` returns, which stand before the specimens there.

    Returns:
      [curves, points, *trailing], float64.
    """
    parameters = np.asarray(parameters, np.float64)
    curves, points = len(parameters), history.driven.shape[1]
    out = np.empty((curves, points, *trailing))
    with np.errstate(all="ignore"):
        for first in range(0, curves, _SPECIMENS):
            block = slice(first, min(first + _SPECIMENS, curves))
            rows = history.rows(block)
            increments = np.diff(rows.driven.T.astype(np.float64), axis=0, prepend=0.0)
            durations = np.zeros((points, 1))
            if rows.time is not None:
                time = rows.time.T.astype(np.float64)
                durations = np.diff(time, axis=0, prepend=time[:1])
            stepped = specimens(parameters[block])
            found = np.empty((points, *trailing, len(parameters[block])))
            with _STEPPING:
                for i, step in enumerate(zip(increments, durations, strict=True)):
                    found[i] = stepped.advance(*step)
            out[block] = np.moveaxis(found, -1, 0)
    return out


def bisected(is_above: Callable[[Array], NDArray[np.bool_]], high: Array) -> Array:
    """The root between 0 and `high` of a rising function, for many points at once.

    Args:
      is_above: [curves, points] -> whether the function is positive there, infinity included.
      high: [curves, points], where it is positive or zero.

    Returns:
      [curves, points].
    """
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = is_above(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)

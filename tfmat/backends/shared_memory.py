"""Sums over the processes of one node through memory that all of them map: no message, no thread that must wake.

Each process copies its numbers into a slot of its own, adds up one part of all slots, and takes the parts that the
others have added up. The sum is taken in the order of the ranks, so that it is the same to the bit on every rank and in
every run.
"""

import contextlib
import mmap
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Memory barriers are not for Python to set: on x86-64 stores are seen in their order without any.
_ORDERED = ("x86_64", "AMD64")
# Longer waits leave the processor to others, since there may be more processes than processors; they end late by no
# more than this share.
_LOOKS_BEFORE_SLEEP = 300
_SLEEP_SHARE = 1 / 16
_SHORTEST_SLEEP, _LONGEST_SLEEP = 2e-5, 1e-3
_LINE = 64  # bytes that processors share as one


class SharedSum:
    """Sums arrays over the processes of a node, one after the other and in the same order on all of them.

    Args:
      memory: mapped by all processes, and zero.
      rank, size: this process among them.
      capacity: bytes that it can sum.
    """

    def __init__(self, memory: mmap.mmap, rank: int, size: int, capacity: int):
        self._rank, self._size = rank, size
        flags = np.frombuffer(memory, np.int64, 2 * size * _LINE // 8)
        self._written, self._summed = flags.reshape(2, size, -1)[:, :, 0]
        slots = np.frombuffer(memory, np.uint8, (size + 1) * capacity, _num_flag_bytes(size))
        self._slots = slots.reshape(size + 1, capacity)
        self._calls = 0

    @classmethod
    def open(
        cls,
        rank: int,
        size: int,
        capacity: int,
        broadcast: Callable[[Any], Any],
        gather: Callable[[Any], list[Any]],
    ) -> "SharedSum | None":
        """Called by all processes at once; None on all of them where one cannot (in a container of its own, say).

        Args:
          rank, size: this process among those of the node.
          capacity: bytes that it can sum, at least.
          broadcast: rank 0's object on every rank.
          gather: every rank's object on every rank.
        """
        capacity = -(-capacity // mmap.PAGESIZE) * mmap.PAGESIZE
        num_bytes = _num_flag_bytes(size) + (size + 1) * capacity
        descriptor, memory = None, None
        if rank == 0 and platform.machine() in _ORDERED:
            with contextlib.suppress(OSError):
                # It has no name in any folder: nothing is left of it, however the processes end.
                descriptor = os.memfd_create("tfmat", os.MFD_CLOEXEC)
                os.ftruncate(descriptor, num_bytes)
        # A process's number may be another one's in a container of its own: the memory must hold these bytes.
        mark = os.urandom(16)
        path, mark = broadcast((f"/proc/{os.getpid()}/fd/{descriptor}", mark))
        with contextlib.suppress(OSError, ValueError):
            if rank > 0:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if descriptor is not None:
                memory = mmap.mmap(descriptor, num_bytes)
        if rank == 0 and memory is not None:
            memory[: len(mark)] = mark
        gather("marked")
        everywhere = all(gather(memory is not None and memory[: len(mark)] == mark))
        if descriptor is not None:
            os.close(descriptor)
        if memory is None or not everywhere:
            return None
        if rank == 0:
            memory[: len(mark)] = bytes(len(mark))
        gather("cleared")
        return cls(memory, rank, size, capacity)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The sum of the processes' `values` [n], as many and of the same type on all of them."""
        slots = self._slots[:, : values.nbytes].view(values.dtype)
        self._calls += 1
        slots[self._rank] = values
        self._written[self._rank] = self._calls
        self._wait(self._written)
        bounds = (len(values) * rank // self._size for rank in (self._rank, self._rank + 1))
        part = slice(*bounds)
        total = slots[-1, part]
        np.copyto(total, slots[0, part])
        for other in slots[1:-1]:
            total += other[part]
        self._summed[self._rank] = self._calls
        self._wait(self._summed)
        return slots[-1].copy()

    def _wait(self, done: np.ndarray) -> None:
        # Ends only when all have come: a process that is lost ends the others through the watchdog.
        for _ in range(_LOOKS_BEFORE_SLEEP):
            if done.min() >= self._calls:
                return
            os.sched_yield()
        began = time.monotonic()
        while done.min() < self._calls:
            waited = time.monotonic() - began
            time.sleep(min(max(waited * _SLEEP_SHARE, _SHORTEST_SLEEP), _LONGEST_SLEEP))


def _num_flag_bytes(size: int) -> int:
    return -(-2 * size * _LINE // mmap.PAGESIZE) * mmap.PAGESIZE

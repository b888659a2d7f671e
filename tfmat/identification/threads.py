"""Curves that are worked on side by side, with matrices too small for threads of their own."""

import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import threadpoolctl

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_inside = False


@contextlib.contextmanager
def one_thread_a_product() -> Iterator[None]:
    """Products of small matrices in one thread: several would only wait for each other.

    Inside of itself it does nothing: looking for the libraries of linear algebra takes 5 to 20 ms.
    """
    global _inside
    if _inside:
        yield
        return
    with threadpoolctl.threadpool_limits(1, "blas"):
        _inside = True
        try:
            yield
        finally:
            _inside = False


def side_by_side(work: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
    """What `work` gives for each item, in their order; a single one, or none, needs no threads."""
    items = list(items)
    if len(items) < 2:
        yield from map(work, items)
        return
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(work, items)

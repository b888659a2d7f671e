"""Curves that are worked on side by side, by threads or processes, with matrices too small for threads of their own."""

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

import threadpoolctl

from tfmat.data.dataset import available_threads
from tfmat.errors import WorkerLostError

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


def in_threads(work: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
    """The result of `work` for each item, in their order; a single one, or none, needs no threads."""
    items = list(items)
    if len(items) < 2:
        yield from map(work, items)
        return
    with concurrent.futures.ThreadPoolExecutor(available_threads()) as pool:
        yield from pool.map(work, items)


def in_processes(work: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
    """The same by forks of this process, one per processor, for work that holds the interpreter (short NumPy calls).

    A fork knows all that this process does, so that only items and answers are copied; an item is taken when a fork is
    free. The work must not call TensorFlow, whose threads a fork lacks. Where the generator is left, by Ctrl-C, say,
    the forks end, and they end with this process.

    Raises:
      WorkerLostError: a fork ended before its work was done; or what `work` raises.
    """
    waiting = enumerate(items)
    first = list(itertools.islice(waiting, available_threads()))
    # A fork has no forks of its own.
    if len(first) < 2 or multiprocessing.current_process().daemon:
        yield from (work(item) for _, item in itertools.chain(first, waiting))
        return
    forks: dict[Connection, BaseProcess] = {}
    try:
        for numbered in first:
            link, fork = _forked(work)
            forks[link] = fork
            link.send(numbered)
        found: dict[int, _Answer] = {}
        busy, wanted = len(forks), 0
        while busy:
            for link in cast(list[Connection], wait(list(forks))):
                place, answer = _received(link, forks[link])
                found[place] = answer
                busy -= 1
                if (another := next(waiting, None)) is not None:
                    link.send(another)
                    busy += 1
            while wanted in found:
                yield found.pop(wanted)
                wanted += 1
    finally:
        for link, fork in forks.items():
            fork.kill()
            fork.join()
            link.close()


def all_in_processes(
    work: Callable[[_Item], _Answer],
    items: Iterable[_Item],
    total: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[_Answer]:
    """All answers of `in_processes`, products in one thread; after each `progress` is called with (done, total)."""
    found: list[_Answer] = []
    with one_thread_a_product():
        for answer in in_processes(work, items):
            found.append(answer)
            if progress:
                progress(len(found), total)
    return found


def _forked(work: Callable[[Any], Any]) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    fork = context.Process(target=_serve, args=(ours, theirs, work), daemon=True)
    with warnings.catch_warnings():
        # Python 3.12 warns of locks that other threads of this process may hold; NumPy takes none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        fork.start()
    theirs.close()
    return ours, fork


def _serve(ours: Connection, link: Connection, work: Callable[[Any], Any]) -> None:
    """Works on the items that come, until this process's parent is gone or ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Nothing would end a link whose other end is open here as well. A fork has copies of earlier forks' links, which
    # end after it.
    ours.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            place, item = link.recv()
            try:
                link.send((place, work(item), None))
            except Exception as error:
                link.send((place, None, error))


def _received(link: Connection, fork: BaseProcess) -> tuple[int, Any]:
    try:
        place, answer, error = link.recv()
    except (EOFError, OSError) as lost:
        fork.join()
        raise WorkerLostError(
            f"a process that worked on some of the curves ended with status {fork.exitcode} (-9: killed, for memory, "
            "say); start again, or with fewer processors (taskset -c 0)"
        ) from lost
    if error is not None:
        raise error
    return place, answer

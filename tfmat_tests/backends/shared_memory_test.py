"""Sums through shared memory, against NumPy's own sum of the same arrays."""

import multiprocessing
from typing import Any

import numpy as np

from tfmat.backends.shared_memory import SharedSum

_FORK = multiprocessing.get_context("fork")
_SIZES = (1, 3, 1000, 153_442)
_CALLS = 40


def _numbers(rank: int, call: int, size: int, dtype: type) -> np.ndarray:
    return np.random.default_rng([rank, call, size]).normal(size=size).astype(dtype)


class _Exchange:
    """Broadcast and gather of one process, over pipes to rank 0."""

    def __init__(self, rank: int, pipes: list[Any]):
        self._rank, self._pipes = rank, pipes

    def gather(self, value: Any) -> list[Any]:
        if self._rank:
            self._pipes[self._rank - 1][1].send(value)
            return self._pipes[self._rank - 1][1].recv()
        values = [value, *(pipe[0].recv() for pipe in self._pipes)]
        for pipe in self._pipes:
            pipe[0].send(values)
        return values

    def broadcast(self, value: Any) -> Any:
        return self.gather(value)[0]


def _rank(rank: int, size: int, pipes: list[Any], answers: Any, blind: int | None) -> None:
    exchange = _Exchange(rank, pipes)
    broadcast = exchange.broadcast
    if rank == blind:
        # As a process that sees other processes' numbers: rank 0's is not there, or not rank 0.
        def broadcast(value: Any) -> Any:
            return ("/proc/1/fd/no_such", exchange.broadcast(value)[1])

    sums = SharedSum.open(rank, size, 153_442 * 8, broadcast, exchange.gather)
    if sums is None:
        answers.put((rank, None))
        return
    wrong = []
    for call in range(_CALLS):
        dtype = (np.float32, np.float64)[call % 2]
        count = _SIZES[call % len(_SIZES)]
        arrays = [_numbers(other, call, count, dtype) for other in range(size)]
        expected = arrays[0].copy()
        for other in arrays[1:]:
            expected = expected + other
        got = sums(arrays[rank])
        if got.dtype != dtype or not np.array_equal(got, expected):
            wrong.append(call)
    answers.put((rank, wrong))


def _run(size: int, blind: int | None = None) -> dict[int, Any]:
    answers = _FORK.Queue()
    pipes = [_FORK.Pipe() for _ in range(size - 1)]
    ranks = [
        _FORK.Process(target=_rank, args=(rank, size, pipes, answers, blind))
        for rank in range(size)
    ]
    for rank in ranks:
        rank.start()
    try:
        return dict(answers.get(timeout=60) for _ in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def test_every_rank_has_the_sum_in_the_order_of_the_ranks_to_the_bit() -> None:
    for size in (2, 3, 5):
        assert _run(size) == {rank: [] for rank in range(size)}


def test_where_one_process_cannot_map_the_memory_none_uses_it() -> None:
    assert _run(3, blind=2) == {0: None, 1: None, 2: None}

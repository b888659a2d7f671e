"""How far the clocks of several machines are apart, from barriers of all workers and nothing else.

Nobody leaves a barrier before everybody has come. So, in true time, rank 0 came before rank r left, and rank r came
before rank 0 left: each barrier gives an upper and a lower bound of the difference of the two clocks, and the narrowest
of many hold (Cristian 1989, Probabilistic clock synchronization, with the barrier as the message there and back).
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_BARRIERS = 50


class ClockOffset(NamedTuple):
    """seconds: a rank's clock minus rank 0's; error: the truth is no further away than this."""

    seconds: float
    error: float


class Barriers(NamedTuple):
    """By one rank's own clock: node, name of its machine; came and left, seconds of each barrier."""

    node: str
    came: list[float]
    left: list[float]


def time_barriers(barrier: Callable[[], object], node: str) -> Barriers:
    """Notes when this rank came to and left some barriers; every rank calls it at the same time."""
    came, left = [], []
    for _ in range(_BARRIERS):
        came.append(time.time())
        barrier()
        left.append(time.time())
    return Barriers(node, came, left)


def clock_offsets(ranks: Sequence[Barriers]) -> list[ClockOffset]:
    """Of each rank, from what all noted; ranks of one node have one clock, and those of rank 0's an offset of zero."""
    first = ranks[0]
    bounds: dict[str, tuple[float, float]] = {}
    for rank in ranks:
        upper = float(np.min(np.subtract(rank.left, first.came)))
        lower = float(np.max(np.subtract(rank.came, first.left)))
        known = bounds.get(rank.node, (-np.inf, np.inf))
        bounds[rank.node] = max(known[0], lower), min(known[1], upper)
    bounds[first.node] = 0.0, 0.0
    return [
        ClockOffset((lower + upper) / 2, abs(upper - lower) / 2)
        for lower, upper in (bounds[rank.node] for rank in ranks)
    ]

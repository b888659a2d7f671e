"""What processes tell each other: one alone, and clocks of several machines against numbers that are known."""

import numpy as np
import pytest

from tfmat.backends.base import Barriers, Collectives, clock_offsets
from tfmat.errors import InputError


def test_a_process_alone_agrees_with_itself_and_waits_for_nobody():
    with Collectives() as alone:
        assert (alone.rank, alone.size) == (0, 1)
        assert alone.broadcast("said") == "said"
        assert alone.gather("said") == ["said"]
        assert alone.maximum(-3) == -3
        tensors = [object(), object()]
        assert alone.sum(tensors) is tensors
        times = np.array([[1.0, 2.0]])
        assert alone.latest(times) is times
        alone.barrier()
        alone.announce("training", 3)
        alone.compare_clocks()
        assert alone.clock == (0.0, 0.0)
        assert not alone.start_timeline("nowhere")
        with pytest.raises(InputError, match="sums over no others"):
            alone.repeated_sums(3)
        with pytest.raises(ZeroDivisionError), alone.losses_told():
            raise ZeroDivisionError
    alone.close(ValueError())


def test_clocks_that_are_apart_are_found_within_the_error_that_is_said():
    """Four ranks on three nodes, simulated: messages take 0.1 to 1 ms, and everybody comes at random."""
    random = np.random.default_rng(0)
    nodes, truth = ["a", "b", "b", "c"], [0.0, 0.25, 0.25, -3.0]
    start = np.cumsum(random.uniform(0.01, 0.02, 50))
    came = start + random.exponential(2e-3, (4, 50))
    left = came.max(axis=0) + random.uniform(1e-4, 1e-3, (4, 50))
    ranks = [
        Barriers(node, (a + offset).tolist(), (b + offset).tolist())
        for node, offset, a, b in zip(nodes, truth, came, left, strict=True)
    ]
    found = clock_offsets(ranks)
    assert found[0] == (0.0, 0.0)
    assert found[1] == found[2]
    for offset, right in zip(found, truth, strict=True):
        assert abs(offset.seconds - right) <= offset.error + 1e-12
        assert offset.error < 1e-3

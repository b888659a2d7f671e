"""Moments of steps into parts, and clocks of several machines: against numbers that are known."""

import numpy as np

from tfmat.backends.collectives import Barriers, clock_offsets
from tfmat.backends.step_times import StepTimes


def test_parts_of_steps_with_two_meetings():
    """Two workers; each second of either is written down by hand. The first step meets twice, say for statistics."""
    first = StepTimes(np.array([[100.0, 101.0, 103.0, 108.0, 110.0, 115.0, 116.0]]))
    second = StepTimes(np.array([[100.0, 100.5, 106.0, 108.0, 114.0, 115.0, 117.0]]))
    latest = np.maximum(first.ready, second.ready)
    np.testing.assert_array_equal(latest, [[106.0, 114.0]])
    parts = {
        "input": 1.0,
        "forward_backward": 2.0 + 2.0,
        "waiting": 3.0 + 4.0,
        "moving": 2.0 + 1.0,
        "optimizer": 1.0,
    }
    assert {name: value.tolist() for name, value in first.parts(latest).items()} == {
        name: [value] for name, value in parts.items()
    }
    parts = {
        "input": 0.5,
        "forward_backward": 5.5 + 6.0,
        "waiting": 0.0,
        "moving": 2.0 + 1.0,
        "optimizer": 2.0,
    }
    assert {name: value.tolist() for name, value in second.parts(latest).items()} == {
        name: [value] for name, value in parts.items()
    }


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


def test_ranks_of_one_node_have_one_clock():
    barriers = [Barriers("a", [0.0], [1.0]), Barriers("a", [0.5], [1.5])]
    assert clock_offsets(barriers) == [(0.0, 0.0), (0.0, 0.0)]

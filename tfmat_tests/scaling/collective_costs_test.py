"""Costs of exchanges by theory, against what the sources say and against counting."""

import numpy as np
import pytest
from scipy import stats

from tfmat.scaling.model import (
    ALGORITHMS,
    Link,
    expected_maximum,
    hierarchical_seconds,
    ring_bytes,
    server_bytes,
)


def ring_by_counting(workers: int) -> tuple[int, float]:
    """Messages one after the other, and gradients that a worker sends, of a ring run step by step on real numbers."""
    parts = np.arange(workers * workers, dtype=float).reshape(workers, workers)
    total = parts.sum(axis=0)
    messages = 0
    for reduce in (True, False):
        for step in range(workers - 1):
            messages += 1
            before = parts.copy()
            for rank in range(workers):
                chunk = (rank - step + (0 if reduce else 1)) % workers
                to = (rank + 1) % workers
                parts[to, chunk] = before[rank, chunk] + (before[to, chunk] if reduce else 0)
    np.testing.assert_array_equal(parts, np.tile(total, (workers, 1)))
    return messages, messages / workers


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_a_ring_costs_what_one_sends_when_it_really_sums(workers):
    messages, volume = ring_by_counting(workers)
    assert ALGORITHMS["ring"].messages(workers) == messages
    assert ALGORITHMS["ring"].volume(workers) == pytest.approx(volume)
    assert ring_bytes(1000, workers) == pytest.approx(1000 * volume)


def test_the_server_s_link_carries_p_times_the_ring_s():
    """One server: P - 1 gradients in, P - 1 weights out."""
    assert server_bytes(1000, 2) == 2000
    assert server_bytes(1000, 1024) == 2 * 1023 * 1000
    for workers in (2, 8, 64):
        assert server_bytes(1000, workers) == pytest.approx(workers * ring_bytes(1000, workers))


def test_which_algorithm_wins_is_what_thakur_et_al_say():
    """Section 4.5: a tree for short messages on powers of two is beaten by halving and doubling for long ones."""
    latency, byte_seconds = 1e-5, 1e-9
    times = {
        (name, size): algorithm.seconds(64, size, latency, byte_seconds)
        for name, algorithm in ALGORITHMS.items()
        for size in (8, 2**26)
    }
    assert times["halving", 2**26] < times["tree", 2**26]
    assert times["halving", 8] < times["ring", 8]
    # All the same volume as the ring, fewer messages.
    assert times["halving", 2**26] == pytest.approx(times["ring", 2**26], rel=0.02)
    assert times["server", 2**26] > 30 * times["ring", 2**26]


def test_rings_within_and_between_nodes_cost_what_they_say():
    inside, between = Link(1e-6, 1e-10), Link(1e-5, 1e-9)
    one = hierarchical_seconds(1e6, 1, 4, inside, between)
    assert one == pytest.approx(ALGORITHMS["ring"].seconds(4, 1e6, 1e-6, 1e-10))
    eight = hierarchical_seconds(1e6, 8, 4, inside, between)
    assert eight - one == pytest.approx(2 * 7 * 1e-5 + 2 * 7 / 8 * 1e6 * 1e-9)


# Harter (1961), Expected values of normal order statistics, Biometrika 48, table 1.
@pytest.mark.parametrize(
    ("workers", "value"),
    [
        (1, 0.0),
        (2, 0.56419),
        (3, 0.84628),
        (4, 1.02938),
        (5, 1.16296),
        (10, 1.53875),
        (100, 2.50759),
    ],
)
def test_the_slowest_of_normal_workers_waits_as_tabulated(workers, value):
    assert expected_maximum(workers) == pytest.approx(value, abs=2e-5)


def test_the_slowest_of_1024_against_drawn_ones():
    drawn = stats.norm.rvs(size=(4000, 1024), random_state=0).max(axis=1)
    error = 4 * drawn.std() / np.sqrt(len(drawn))
    assert expected_maximum(1024) == pytest.approx(drawn.mean(), abs=error)

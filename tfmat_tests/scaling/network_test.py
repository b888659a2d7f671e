"""All-reduces of message sizes that were not measured, against laws in closed form."""

from collections.abc import Callable

import numpy as np
import pytest

from tfmat.scaling.model import line_fits
from tfmat.scaling.study import AllReduce


def _allreduces(law: Callable[[int], float]) -> list[AllReduce]:
    """Three times 1 kB to 64 MB; the median follows the law."""
    return [
        AllReduce("mpi", 2, num_bytes, factor * law(num_bytes), 1e-9, 1.0, 3, "one")
        for num_bytes in (1024 * 4**i for i in range(9))
        for factor in (0.5, 1.0, 1.5)
    ]


def test_two_algorithms_with_a_latency_and_a_bandwidth_each():
    def law(num_bytes: float) -> float:
        # Continuous at 1 MB, where the second algorithm becomes the faster one.
        return min(1e-5 + 1e-9 * num_bytes, 1e-5 + 0.75e-9 * 2**20 + 0.25e-9 * num_bytes)

    (fit,) = line_fits(_allreduces(law))
    errors = dict(zip([1024 * 4**i for i in range(1, 8)], fit.left_out_between, strict=True))
    # The line through 256 kB and 4 MB at 1 MB, in closed form; on both sides of it every stretch is a line.
    at_change = (law(2**18) + (law(2**22) - law(2**18)) * 0.2) / law(2**20) - 1
    assert errors.pop(2**20) == pytest.approx(at_change)
    assert list(errors.values()) == pytest.approx(np.zeros(6), abs=1e-12)
    assert np.max(np.abs(fit.left_out)) > 0.2  # one line for all sizes
    for num_bytes in (1024, 5000, 613_764, 3 * 2**20, 64 * 2**20):
        assert fit.seconds(num_bytes) == pytest.approx(law(num_bytes))
    for num_bytes in (100, 2**30):  # nothing measured on the other side
        assert fit.seconds(num_bytes) == fit.on_line(num_bytes)


def test_sizes_beside_a_jump_are_missed_and_said_to_be():
    (fit,) = line_fits(_allreduces(lambda num_bytes: 1e-5 if num_bytes < 100_000 else 1e-3))
    # 64 kB by 16 kB and 256 kB, 256 kB by 64 kB and 1 MB: a fifth of the way up the jump each.
    fifth = 1e-5 + 0.2 * (1e-3 - 1e-5)
    expected = [0, 0, fifth / 1e-5 - 1, fifth / 1e-3 - 1, 0, 0, 0]
    assert fit.left_out_between == pytest.approx(expected)

"""How the cores of a machine are shared out."""

import pytest

from tfmat.tuning.supervisor import share_cores


@pytest.mark.parametrize(
    ("cores", "num_workers", "expected"),
    [
        ([0, 1], 1, [{0, 1}]),
        ([0, 1], 2, [{0}, {1}]),
        ([4, 5, 6, 7, 8], 2, [{4, 5}, {6, 7, 8}]),
        ([2, 3], 5, [{2}, {3}, {2}, {3}, {2}]),
    ],
)
def test_every_worker_has_cores_and_none_lies_idle(cores, num_workers, expected):
    shares = share_cores(cores, num_workers)
    assert shares == expected
    assert set().union(*shares) == set(cores)

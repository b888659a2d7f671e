"""How the cores of a machine are shared out, and what is told of a worker that refuses to work."""

import pytest

from tfmat.tuning.trials import _last_complaint, share_cores


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


def test_why_a_worker_refused_is_told_though_a_living_one_writes_to_its_log(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("trial 0000\ntfmat: an older line\ntfmat: it runs already\ntrial 0001\n")
    assert _last_complaint(log) == "it runs already"
    log.write_text("trial 0000\n")
    assert _last_complaint(log) == "?"

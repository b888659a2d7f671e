"""Sums by MPI, whole and by nodes, begun at once or waited for, are NumPy's."""

import pytest

from tfmat_tests.mpi import mpirun


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_of_ranks(ranks):
    """Two swap theirs, three are on uneven nodes, and four go round."""
    ended = mpirun(ranks, "-m", "tfmat_tests.backends.mpi_sums_rank")
    assert ended.returncode == 0, ended.stderr

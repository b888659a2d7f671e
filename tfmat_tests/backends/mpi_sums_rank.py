"""One rank of mpi_sums_test.py: sums numbers of every rank in every way, and compares them with NumPy's."""

import itertools

import numpy as np
from mpi4py import MPI

from tfmat.backends.transports import MpiSums

# Of the sum of the numbers' sizes: a rounding of each addition.
ERRORS = {"float64": 1e-15, "float32": 1e-6, "float16": 4e-3}
# Enough for each way of MPI's own: from 65,536 on a sum that is begun at once goes round.
COUNTS = (1, 7, 100_003)


def main() -> None:
    """Ends with an assertion where a sum is wrong, or not the same bits on every rank."""
    world = MPI.COMM_WORLD
    in_turns = [f"node{rank % 2}" for rank in range(world.size)]
    for nodes, patient in itertools.product((None, in_turns), (False, True)):
        sums = MpiSums(MPI, world, nodes, patient)
        for dtype, count in itertools.product(ERRORS, COUNTS):
            rows = np.random.default_rng(count).normal(size=(world.size, count)).astype(dtype)
            given = rows[world.rank].copy()
            found = sums.sum(given).numpy()
            case = nodes, patient, dtype, count
            exact, most = rows.astype(np.float64).sum(axis=0), abs(rows.astype(np.float64)).sum(0)
            assert (abs(found - exact) <= ERRORS[dtype] * most).all(), case
            assert (given == rows[world.rank]).all(), case
            assert len(set(world.allgather(found.tobytes()))) == 1, case


if __name__ == "__main__":
    main()

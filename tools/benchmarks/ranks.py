"""One rank of the Horovod benchmark: `mpirun -np N python ranks.py WAY BATCH_SIZES SECONDS`; says one JSON line.

BATCH_SIZES are examples a rank and step, with commas. The line holds, for each batch size, milliseconds a step of each
timed call, and the milliseconds of an MPI_Allreduce of as many bytes as the gradients.
"""

import json
import os
import pathlib
import sys
import time
from typing import Any

CURVES = 20_000
CALLS = 8
# Way -> environment that Horovod and MPI read, and the class below. None: Horovod is not started.
WAYS: dict[str, tuple[dict[str, str] | None, str]] = {
    "alone": (None, "Alone"),
    "mpi": (None, "BareMpi"),
    "tfmat": ({}, "Flat"),
    "silent": ({}, "Silent"),
    "grouped": ({}, "Grouped"),
    "each": ({}, "EachVariable"),
    "halves": ({}, "Halves"),
    "cycle 0.1": ({"HOROVOD_CYCLE_TIME": "0.1"}, "Flat"),
    "cycle 0.25": ({"HOROVOD_CYCLE_TIME": "0.25"}, "Flat"),
    "cycle 0.5": ({"HOROVOD_CYCLE_TIME": "0.5"}, "Flat"),
    "cycle 1": ({"HOROVOD_CYCLE_TIME": "1"}, "Flat"),
    "cycle 2": ({"HOROVOD_CYCLE_TIME": "2"}, "Flat"),
    "cycle 10": ({"HOROVOD_CYCLE_TIME": "10"}, "Flat"),
    "no yield": ({"OMPI_MCA_mpi_yield_when_idle": "0"}, "Flat"),
    "untuned": ({"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_mpi_yield_when_idle": "0"}, "Flat"),
    "no cache": ({"HOROVOD_CACHE_CAPACITY": "0"}, "Flat"),
    "gloo": ({"HOROVOD_CPU_OPERATIONS": "GLOO"}, "Flat"),
    "single thread": ({"HOROVOD_MPI_THREADS_DISABLE": "1"}, "Flat"),
    "textbook": (
        {"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_mpi_yield_when_idle": "0"},
        "Textbook",
    ),
}


def main(way: str, batch_sizes: list[int], seconds: float) -> None:
    """Measures one way."""
    environment, class_name = WAYS[way]
    os.environ.update(environment or {})
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.ranks.processes import find_processes

    prepare_tensorflow(one_thread_an_operation=class_name != "Textbook", processors=1)
    import numpy as np

    from benchmarks import rank_ways

    random = np.random.default_rng(0)
    features = random.normal(size=(CURVES, 200, 3)).astype(np.float32)
    labels = random.uniform(size=(CURVES, 2)).astype(np.float32)
    ways = getattr(rank_ways, class_name)(features, labels)
    answer: dict[str, Any] = {"rank": find_processes().rank, "way": way}
    for batch_size in batch_sizes:
        ways.prepare(batch_size)
        steps = max(10, int(seconds / CALLS / (2.5e-5 * batch_size + 1e-3)))
        ways.run(max(10, steps // 4))
        times = []
        for _ in range(CALLS):
            ways.meet()
            started = time.perf_counter()
            ways.run(steps)
            times.append((time.perf_counter() - started) / steps * 1e3)
        answer[str(batch_size)] = times
    if class_name == "BareMpi":
        answer["allreduce"] = ways.allreduce_milliseconds()
    ways.close()
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    main(sys.argv[1], [int(size) for size in sys.argv[2].split(",")], float(sys.argv[3]))

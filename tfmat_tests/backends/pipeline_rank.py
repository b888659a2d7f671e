"""One rank of the tests of pipeline stages: `mpirun -np N python -m tfmat_tests.backends.pipeline_rank FOLDER`.

Trains every case of FOLDER/cases.json; rank 0 saves what it has, FOLDER/<name>.npz.
"""

import json
import pathlib
import sys

from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras


def main(folder):
    """Trains all cases."""
    processes = find_processes()
    prepare_tensorflow(one_thread_an_operation=True, processors=1, gpu=processes.local_rank)
    import numpy as np

    from tfmat_tests.backends import pipeline_problem

    data = pipeline_problem.make_data()
    for case in json.loads((folder / "cases.json").read_text()):
        found = pipeline_problem.train(case, data, processes.rank)
        if processes.rank == 0:
            np.savez(folder / f"{case['name']}.npz", **found)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

"""One rank of the tests of sharpness-aware steps, under `mpirun -np 2 python -m`, with a folder and cases."""

import pathlib
import sys

from tfmat.launch.runtime import prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras

CASE = {"optimizer": "nesterov", "precision": "float64", "num_examples": 7_919, "sam_rho": 0.05}
CASES = {
    "batch normalization": {"model": {"batch_normalization": "synchronized"}},
    "accumulated": {"backend": "mpi", "options": {"accumulate": 3}},
    "plain": {},
}


def main(folder, *names):
    """Trains these cases; rank 0 saves the weights, FOLDER/<name>.npz."""
    prepare_tensorflow(one_thread_an_operation=True, processors=1)
    import numpy as np

    from tfmat.backends import make_backend
    from tfmat_tests.backends.horovod_rank import build, train
    from tfmat_tests.backends.problem import make_data

    for name in names:
        case = {**CASE, **CASES[name]}
        options = case.get("options", {})
        with make_backend(case.get("backend", "horovod"), **options) as backend:
            model, start = build(case, backend)
            train(case, backend, make_data(), start)
            if backend.rank == 0:
                np.savez(folder / f"{name}.npz", *model.get_weights())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])

"""One rank of the tests of the asynchronous backend: `mpirun -np N python -m tfmat_tests.backends.asynchronous_rank F`.

Trains each case for 20 steps; rank 0 saves weights and sums, F/<name>.npz, and what each worker computed.
"""

import pathlib
import sys
import time

from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras

CASES = {
    "asynchronous": {"staleness_scaling": "sqrt"},
    "all": {"quorum": 3},
    "two of three": {"quorum": 2},
}


def main(folder):
    """Trains all cases, with rank 1 three times as slow as the others, however fast the machine is."""
    prepare_tensorflow(one_thread_an_operation=True, processors=1)
    import numpy as np

    from tfmat.backends import make_backend
    from tfmat_tests.backends.horovod_rank import build
    from tfmat_tests.backends.problem import blocks, make_data

    data, rank = make_data(), find_processes().rank
    for name, options in CASES.items():
        with make_backend("asynchronous", **options) as backend:
            case = {"precision": "float64", "optimizer": "adam" if name != "all" else "lamb"}
            model, _ = build(case, backend)
            backend.synchronize()
            taken, function = [], backend._gradients_function

            def noted(data, width, function=function, taken=taken):
                gradients = function(data, width)

                def compute(asked, flats):
                    started = time.perf_counter()
                    found = gradients(asked, flats)
                    if rank == 1:
                        time.sleep(min(2.0 * (time.perf_counter() - started), 0.5))
                    taken.append(asked.indices[asked.weights > 0])
                    return found

                return compute

            backend._gradients_function = noted
            sums = [backend.train(*block) for block in blocks(backend, data)]
            backend.check_replicas(20)
            used = backend.collectives.gather(np.concatenate([*taken, np.zeros(0, np.int32)]))
            figures, state = backend.take_figures(), backend.read()
            if rank == 0:
                named = {f"rows-{worker}": each for worker, each in enumerate(used)}
                named |= {f"figure-{key}": value for key, value in figures.items()}
                np.savez(
                    folder / f"{name}.npz",
                    *model.get_weights(),
                    sums=np.concatenate(sums),
                    steps=state["slots/0"],
                    **named,
                )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

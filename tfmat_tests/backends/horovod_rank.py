"""One rank of the tests of several processes, `mpirun -np N python -m THIS FOLDER [BACKEND ...]`, and what starts them.

Trains every case of FOLDER/cases.json for the contract's 20 steps; rank 0 saves the weights, FOLDER/<name>.npz. Of each
BACKEND the exchanges of gradients run alone, FOLDER/exchange-<backend>.npz.
"""

import itertools
import json
import os
import pathlib
import platform
import sys

from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras
from tfmat_tests.backends.numpy_exchange import SHAPES, some_gradients
from tfmat_tests.mpi import mpirun


def train_cases(ranks, cases, folder, *backends):
    """Name of a case, and `exchange-<backend>` -> arrays of rank 0, after one mpirun for all of them."""
    import numpy as np

    (folder / "cases.json").write_text(json.dumps(cases))
    ended = mpirun(ranks, "-m", "tfmat_tests.backends.horovod_rank", str(folder), *backends)
    assert ended.returncode == 0, ended.stderr
    names = [*(case["name"] for case in cases), *(f"exchange-{backend}" for backend in backends)]
    return {name: np.load(folder / f"{name}.npz") for name in names}


def by_mpi(case):
    """The same without Horovod."""
    return {**case, "name": f"{case['name']}, mpi", "backend": "mpi"}


def build(case, backend):
    """Builds the case's network and optimizer in `backend`; returns the model and its state before any step."""
    from tfmat.backends.losses import per_example_function
    from tfmat.optimizers import make_functional
    from tfmat_tests.backends.problem import OPTIMIZERS, loss_of, make_model, set_precision

    set_precision(case["precision"])
    if case.get("timed"):
        backend.time_steps()
    model = make_model(**case.get("model", {}))
    loss = per_example_function(loss_of(model, case.get("compiled", False)))
    optimizer = make_functional(OPTIMIZERS[case["optimizer"]](), sam_rho=case.get("sam_rho"))
    backend.build(model, optimizer, loss, {})
    return model, backend.read()


def train(case, backend, data, start):
    """The sums of each of 20 steps from the state `start`."""
    import numpy as np

    from tfmat.data.pipeline import MemorySource, StreamSource
    from tfmat_tests.backends.problem import BATCH, blocks

    def is_own(name):
        return name[:9] == "exchange/" or (backend.options.zero_stage and name[:6] == "slots/")

    if backend.rank:
        # What rank 0 does not say must not matter, but for what is each rank's own. (The state of a random generator is
        # a whole number.)
        start = {
            name: 0 * value + 0.1 if value.dtype.kind == "f" and not is_own(name) else value
            for name, value in start.items()
        }
    backend.write(start)
    backend.synchronize()
    how = {
        "num_examples": case["num_examples"],
        "batch": case.get("batch", BATCH),
        "source": StreamSource if case.get("stream") else MemorySource,
    }
    sums = []
    for block in blocks(backend, data, **how):
        sums.append(backend.train(*block))
        if len(sums) > 1:
            backend.settle()
    assert backend.bytes_per_step or backend.world_size == 1
    backend.check_replicas(20)
    if case.get("timed") and backend.world_size > 1:
        check_times(backend.step_times, case["timed"])
    return np.concatenate(sums)


def check_times(times, num_updating):
    """The optimizer exchanges so often in a step: what lies between is its own, and all parts make up the step."""
    import numpy as np

    assert times.num_updating == num_updating
    parts, moments = times.parts(times.ready), times.moments
    np.testing.assert_allclose(sum(parts.values()), moments[:, -1] - moments[:, 0])
    assert (parts["optimizer"] > 0).all() and (parts["forward_backward"] > 0).all()


def what_is_built(case):
    """All of a case but its name and its data: neighbours that agree in it are trained by one backend."""
    return {key: case[key] for key in case if key not in ("name", "num_examples", "stream")}


# Compressions whose exchanges run alone. MPI has sums of its own for halves and bytes, and one way to collect. Others
# are in trainings: PowerSGD by both, and fp16 by MPI.
WAYS = {"horovod": ("fp16", "bf16", "int8", "sign", "topk"), "mpi": ("bf16", "int8", "topk")}


def exchange(backend, folder):
    """Exchanges gradients in each of the ways, in a graph; rank 0 saves the sums, FOLDER/exchange-<backend>.npz."""
    import numpy as np
    import tensorflow as tf

    from tfmat.backends.registry import make_exchange
    from tfmat.config import Parallelism

    mine = [step[backend.rank] for step in some_gradients(4, backend.world_size)]
    found, collectives = {}, backend.collectives
    for name in WAYS[backend.name]:
        weights = [tf.zeros(shape, tf.float64) for shape in SHAPES]
        ways = make_exchange(collectives, weights, Parallelism(compression=name))

        @tf.function(autograph=False)
        def step(kept, gradients, ways=ways, name=name):
            collectives.begin_graph(name)
            totals, _, new = ways(gradients, [tf.constant(1.0)], kept)
            return totals, new

        kept, steps = [tf.constant(each.initial) for each in ways.kept], []
        for gradients in mine:
            totals, kept = step(kept, [tf.constant(gradient) for gradient in gradients])
            steps.append([total.numpy() for total in totals])
        stacked = [np.stack(totals) for totals in zip(*steps, strict=True)]
        assert all(
            np.array_equal(total, other)
            for others in collectives.gather(stacked)
            for total, other in zip(stacked, others, strict=True)
        )
        found |= {f"{name}-{i}": total for i, total in enumerate(stacked)}
    if backend.rank == 0:
        np.savez(folder / f"exchange-{backend.name}.npz", **found)


def main(folder, *backends):
    """Trains all cases."""
    from tfmat.backends import make_backend

    processes = find_processes()
    # As placed in turns on two nodes, of which one has a rank more where their number is odd.
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = (
        "1"  # the first backend of a process starts Horovod for all
    )
    platform.node = lambda: f"node{processes.rank % 2}"
    prepare_tensorflow(one_thread_an_operation=True, processors=1, gpu=processes.local_rank)
    import numpy as np

    from tfmat_tests.backends.problem import make_data

    # MPI's collectives as they are beside local steps; alone they are those of the cases.
    overlapped = {"mpi": {"local_steps": 2, "overlap_meetings": True}}
    for name in backends:
        with make_backend(name, **overlapped.get(name, {})) as backend:
            exchange(backend, folder)
    data, cases = make_data(), json.loads((folder / "cases.json").read_text())
    # Tracing takes seconds, the steps a fraction of one.
    for _, alike in itertools.groupby(cases, what_is_built):
        first, *others = alike
        options = first.get("options", {})
        with make_backend(first.get("backend", "horovod"), **options) as backend:
            model, start = build(first, backend)
            for case in (first, *others):
                sums = train(case, backend, data, start)
                if backend.rank == 0:
                    np.savez(folder / f"{case['name']}.npz", *model.get_weights(), sums=sums)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])

"""One rank of the tests of the Horovod backend: `mpirun -np N python -m tfmat_tests.backends.horovod_rank FOLDER`.

Trains every case of FOLDER/cases.json for the contract's 20 steps; rank 0 saves the weights, FOLDER/<name>.npz.
"""

import json
import pathlib
import sys

from tfmat.launch.runtime import prepare_tensorflow
from tfmat.ranks.processes import find_processes
from tfmat_tests import lean_keras  # noqa: F401  before Keras


def train(case, backend, data):
    """Weights after 20 steps, and the sums of each, as `case` wants them."""
    import numpy as np

    from tfmat.backends.losses import per_example_function
    from tfmat.data.order import ExampleOrder
    from tfmat.data.pipeline import MemorySource, StreamSource
    from tfmat.durations import EpochPlan
    from tfmat.optimizers import make_functional
    from tfmat_tests.backends.problem import (
        BATCH,
        OPTIMIZERS,
        loss_of,
        make_model,
        set_precision,
        spans,
    )

    set_precision(case["precision"])
    model = make_model(**case.get("model", {}))
    if backend.rank:
        # What rank 0 does not say must not matter. (The state of a random generator is no weight.)
        for weight in model.weights:
            if weight.dtype.startswith("float"):
                weight.assign(0.1 * np.ones(weight.shape))
    loss = per_example_function(loss_of(model))
    backend.build(model, make_functional(OPTIMIZERS[case["optimizer"]]()), loss, {})
    backend.synchronize()
    num_examples = case["num_examples"]
    features, labels = (array[:num_examples] for array in data)
    order = ExampleOrder(num_examples, seed=5, shard_size=1024)
    source_class = StreamSource if case.get("stream") else MemorySource
    epochs = EpochPlan(num_examples, BATCH)
    data = backend.place((features, labels))
    source = source_class(data, order, epochs, backend.columns)
    sums = [backend.train(*block) for block in source.blocks(spans(source, [5, 9, 6]))]
    backend.check_replicas(20)
    return model.get_weights(), np.concatenate(sums)


def main(folder):
    """Trains all cases."""
    from tfmat.backends import BackendOptions, make_backend

    processes = find_processes()
    prepare_tensorflow(one_thread_an_operation=True, processors=1, gpu=processes.local_rank)
    import numpy as np

    from tfmat_tests.backends.problem import make_data

    data = make_data()
    for case in json.loads((folder / "cases.json").read_text()):
        options = BackendOptions(**case.get("options", {}))
        backend = make_backend("horovod", options)
        with backend:
            weights, sums = train(case, backend, data)
            if backend.rank == 0:
                np.savez(folder / f"{case['name']}.npz", *weights, sums=sums)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

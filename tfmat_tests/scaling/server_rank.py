"""One process of a parameter server's test: `mpirun -np 4 python server_rank.py FOLDER`; leaves chief.json."""

import functools
import json
import os
import pathlib
import sys
from typing import Any

from tfmat.launch.processes import find_processes
from tfmat_tests import lean_keras  # noqa: F401  before Keras
from tfmat_tests.launch.port_guard_test import knock

STEPS, RATE, BATCH, WORKERS = 8, 1e-2, 4, 2


def make_model():
    import keras

    keras.utils.set_random_seed(3)
    layers = [keras.layers.Input((5, 3)), keras.layers.Flatten(), keras.layers.Dense(4, "tanh")]
    return keras.Sequential([*layers, keras.layers.Dense(2)])


def make_examples():
    """All examples are the same: so is the gradient of every batch, whoever draws it."""
    import numpy as np

    random = np.random.default_rng(5)
    feature, label = random.normal(size=(5, 3)), random.uniform(size=2)
    repeat = [np.repeat(one[np.newaxis], 20, 0).astype(np.float32) for one in (feature, label)]
    return tuple(repeat)


def main(folder: pathlib.Path) -> None:
    from tfmat.scaling import baselines as server
    from tfmat.scaling.baselines import batches_of, find_each_other, prepare

    # On one processor, as in a study: TensorFlow then has one thread, and waits forever unless told otherwise.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    prepare(1)
    processes = find_processes()
    addresses, guard, others = find_each_other(folder, processes)
    cluster = server.jobs(addresses)
    if processes.rank != server.CHIEF:
        server.serve(cluster, guard, processes, others)
        return
    features, labels = make_examples()
    features.tofile(folder / "features.f32")
    labels.tofile(folder / "labels.f32")
    batches = functools.partial(batches_of, folder, (5, 3), 2, BATCH)
    answer: dict[str, Any] = {}
    training = server.AdamOnServer(cluster, synchronous=True)
    assert guard is not None
    guard.wait()
    if os.geteuid() == 0:  # who can be somebody else
        places = [place.split(":") for job in cluster.values() for place in job]
        answer["knocks"] = [knock(int(port), 65534, host) for host, port in places]
    for updates in ("synchronous", "asynchronous"):
        training.synchronous = updates == "synchronous"
        training.build(make_model(), RATE, batches)
        losses = [training.train(STEPS) for _ in range(2)]
        weights = [weight.tolist() for weight in training.weights()]
        answer[updates] = {"losses": losses, "weights": weights}
    (folder / "chief.json").write_text(json.dumps(answer))
    others.barrier()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)

"""A baseline that really runs: the same network and Adam with a parameter server instead of an all-reduce.

`tf.distribute`'s ParameterServerStrategy and ClusterCoordinator over processes that talk by gRPC: rank 0 is the chief,
which hands out work, rank 1 the server, which holds weights and Adam's slots, the rest are workers. A worker fetches
the weights, computes the gradient of its own batch and sends it to the server. Asynchronous: the server updates at
once, so that gradients are of older weights (Downpour SGD; Dean et al., Large Scale Distributed Deep Networks, 2012).
Synchronous: the server sums up gradients; the chief waits for all workers of a step, then has it update with the mean.

No backend of tfmat's: it is here to be compared with.
"""

import os
import pathlib
import platform
import socket
import time
from typing import Any

import numpy as np

from tfmat.config import Config
from tfmat.launch.processes import Processes
from tfmat.launch.runtime import prepare_tensorflow
from tfmat.scaling.adam_on_server import AdamOnServer, Examples
from tfmat.scaling.worker import Meeting

CHIEF, SERVER, FIRST_WORKER = 0, 1, 2
DONE = "done"
_LOOK = 0.2
_TRIAL_STEPS = 10
_THREADS = 8


def measure_parameter_server(
    spec: dict[str, Any], config: Config, processes: Processes, folder: pathlib.Path
) -> list[dict[str, Any]]:
    """The chief measures each task; server and workers serve until it has finished, and answer nothing.

    Raises:
      InputError: the processes do not find each other.
    """
    prepare(spec["processors"])
    cluster = find_each_other(folder, processes)
    if processes.rank != CHIEF:
        serve(cluster, processes, folder)
        return []
    try:
        training = AdamOnServer.start(cluster, spec["way"]["updates"] == "synchronous")
        examples = _write_examples(spec, folder)
        return [_measure(spec, config, task, training, examples) for task in spec["tasks"]]
    finally:
        (folder / DONE).touch()


def prepare(processors: int) -> None:
    """Imports TensorFlow for a process of the cluster."""
    # With one thread for all operations, as a process on one processor has it, those that wait for another process
    # would keep it from those that answer.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(_THREADS)
    prepare_tensorflow(processors=processors)


def find_each_other(folder: pathlib.Path, processes: Processes) -> dict[str, list[str]]:
    """Addresses of all, by their jobs. Each says its own in a file, since only it knows which port is free there."""
    several_nodes = processes.local_size < processes.size
    with socket.create_server(("", 0)) as held:
        host = platform.node() if several_nodes else "localhost"
        address = f"{host}:{held.getsockname()[1]}"
        (folder / f"address-{processes.rank}.new").write_text(address, "utf-8")
        os.replace(folder / f"address-{processes.rank}.new", folder / f"address-{processes.rank}")
        Meeting(folder, processes.rank, processes.size)()
    found = [(folder / f"address-{rank}").read_text("utf-8") for rank in range(processes.size)]
    return {"chief": found[:1], "ps": found[1:2], "worker": found[FIRST_WORKER:]}


def serve(cluster: dict[str, list[str]], processes: Processes, folder: pathlib.Path) -> None:
    """As server or worker, until the chief leaves the file DONE in the folder."""
    import tensorflow as tf

    job, index = ("ps", 0) if processes.rank == SERVER else ("worker", processes.rank - 2)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc"
    )
    while not (folder / DONE).exists():
        time.sleep(_LOOK)
    del server


def _write_examples(spec: dict[str, Any], folder: pathlib.Path) -> Examples:
    """The training examples as plain files, which the workers read by themselves."""
    from tfmat.data.packed import PackedDataset

    dataset, size = PackedDataset.open(spec["dataset"], verify=False), spec["dataset_size"]
    shape = dataset.features.shape[1:]
    for name, array in (("features", dataset.features), ("labels", dataset.labels)):
        np.ascontiguousarray(array[:size], np.float32).tofile(folder / f"{name}.f32")
    return Examples(
        folder, (int(shape[0]), int(shape[1])), len(dataset.parameters), dataset.input_scale
    )


def _measure(
    spec: dict[str, Any],
    config: Config,
    task: dict[str, Any],
    training: AdamOnServer,
    examples: Examples,
) -> dict[str, Any]:
    from tfmat.models import build_model

    model = build_model(
        config.model,
        num_outputs=examples.num_outputs,
        num_points=examples.shape[0],
        input_scale=examples.input_scale,
        seed=config.seed,
    )
    training.build(model, config.optimizer.learning_rate, examples, task["batch_a_worker"])
    first_loss = training.train(_TRIAL_STEPS)  # which compiles
    training.train(_TRIAL_STEPS)
    started = time.monotonic()
    training.train(_TRIAL_STEPS)
    rate = _TRIAL_STEPS / (time.monotonic() - started)
    steps = max(2 * _TRIAL_STEPS, round(rate * spec["seconds"]))
    started = time.monotonic()
    last_loss = training.train(steps)
    elapsed = time.monotonic() - started
    # For the study's log: it learns.
    print(f"loss of the first {_TRIAL_STEPS} steps {first_loss:.5g}, at the end {last_loss:.5g}")
    return {"steps": steps, "seconds": elapsed, "losses": [first_loss, last_loss]}

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
import sys
import time
from typing import Any

import numpy as np

from tfmat.config import Config, check_config
from tfmat.launch.runtime import prepare_tensorflow
from tfmat.ranks.port_guard import (
    Neighbour,
    PortGuard,
    check_not_refused,
    describe_ports,
    guard_port,
)
from tfmat.ranks.processes import Processes
from tfmat.ranks.star import Star
from tfmat.scaling.adam_on_server import AdamOnServer, Examples
from tfmat.scaling.worker import LEAVE, join_others

CHIEF, SERVER, FIRST_WORKER = 0, 1, 2
_TRIAL_STEPS = 10
_THREADS = 8


def measure_parameter_server(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """The chief measures each task; server and workers serve until it has finished, and answer nothing.

    Raises:
      InputError: the processes do not find each other.
    """
    check_not_refused("a parameter server")
    config = check_config(Config(spec["config"]))
    prepare(spec["processors"])
    cluster, guard, others = find_each_other(folder, processes)
    if processes.rank != CHIEF:
        serve(cluster, guard, processes, others)
        return {LEAVE: True}
    training = AdamOnServer.start(cluster, spec["variant"]["updates"] == "synchronous")
    if guard:
        guard.wait()
    examples = _write_examples(spec, folder)
    tasks = [_measure(spec, config, task, training, examples) for task in spec["tasks"]]
    others.barrier()
    # TensorFlow's servers cannot be stopped, and its coordinator waits for them when Python ends.
    return {"tasks": tasks, LEAVE: True}


def prepare(processors: int) -> None:
    """Imports TensorFlow for a process of the cluster."""
    # With one thread for all operations, as a process on one processor has it, those that wait for another process
    # would keep it from those that answer.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(_THREADS)
    prepare_tensorflow(processors=processors)


def find_each_other(
    folder: pathlib.Path, processes: Processes
) -> tuple[dict[str, list[str]], PortGuard | None, Star]:
    """Addresses of all, by their jobs; the guard of the port that this process opens next; the link to the others.

    Each says its own, since only it knows which port is free there.
    """
    several_nodes = processes.local_size < processes.size
    others = join_others(processes, folder)
    with socket.create_server(("", 0)) as held:
        host = platform.node() if several_nodes else "localhost"
        port = held.getsockname()[1]
        found = others.gather((f"{host}:{port}", Neighbour.here()))
    addresses, places = zip(*found, strict=True)
    if processes.rank == CHIEF:
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        print(describe_ports(ports, places), file=sys.stderr, flush=True)
    jobs = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[FIRST_WORKER:]}
    cluster = {job: list(of_job) for job, of_job in jobs.items()}
    return cluster, guard_port(port, places), others


def serve(
    cluster: dict[str, list[str]], guard: PortGuard | None, processes: Processes, others: Star
) -> None:
    """Serves as server or worker until the chief has measured; WorkerLostError where it has gone."""
    import tensorflow as tf

    job, index = ("ps", 0) if processes.rank == SERVER else ("worker", processes.rank - 2)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc"
    )
    if guard:
        guard.wait()
    others.barrier()
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

"""A baseline that really runs: the same network and Adam with a parameter server instead of an all-reduce.

`tf.distribute`'s ParameterServerStrategy and ClusterCoordinator over processes that talk by gRPC: rank 0 is the chief,
which hands out work, rank 1 the server, which holds weights and Adam's slots, the rest are workers. A worker fetches
the weights, computes the gradient of its own batch and sends it to the server. Asynchronous: the server updates at
once, so that gradients are of older weights (Downpour SGD; Dean et al., Large Scale Distributed Deep Networks, 2012).
Synchronous: the server sums up gradients; the chief waits for all workers of a step, then has it update with the mean.

No backend of tfmat's: it is here to be compared with.
"""

import functools
import os
import pathlib
import platform
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmat.config import Config, check_config
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
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
from tfmat.scaling.worker import LEAVE, join_others

CHIEF, SERVER = 0, 1
_TRIAL_STEPS = 10
_STEPS_A_CALL = 25
_THREADS = 8
# Adam, as Keras has it.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7


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
    from tfmat.models import build_for

    training = AdamOnServer(cluster, spec["variant"]["updates"] == "synchronous")
    if guard:
        guard.wait()
    dataset, size = PackedDataset.open(spec["dataset"], verify=False), spec["dataset_size"]
    for name in ("features", "labels"):
        np.ascontiguousarray(getattr(dataset, name)[:size], np.float32).tofile(
            folder / f"{name}.f32"
        )
    shape, outputs, tasks = dataset.features.shape[1:], len(dataset.parameters), []
    for task in spec["tasks"]:
        batches = functools.partial(batches_of, folder, shape, outputs, task["batch_a_worker"])
        training.build(build_for(config, dataset), config.optimizer.learning_rate, batches)
        tasks.append(_measure(training, spec["seconds"]))
    others.barrier()
    # TensorFlow's servers cannot be stopped, and its coordinator waits for them when Python ends.
    return {"tasks": tasks, LEAVE: True}


def prepare(processors: int) -> None:
    """Imports TensorFlow for a process of the cluster."""
    # With one thread for all operations, as a process on one processor has it, those that wait for another process
    # would keep it from those that answer.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(_THREADS)
    prepare_tensorflow(processors=processors, own_program=True)


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
    chief, server, *workers = addresses
    cluster = {"chief": [chief], "ps": [server], "worker": workers}
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


def _measure(training: "AdamOnServer", seconds: float) -> dict[str, Any]:
    def timed(steps: int) -> tuple[float, float]:
        started = time.monotonic()
        loss = training.train(steps)
        return loss, time.monotonic() - started

    # The first trial compiles, the second is a warm-up.
    (first_loss, _), _, (_, trial) = (timed(_TRIAL_STEPS) for _ in range(3))
    steps = max(2 * _TRIAL_STEPS, round(_TRIAL_STEPS * seconds / trial))
    last_loss, elapsed = timed(steps)
    # For the study's log: it learns.
    print(f"loss of the first {_TRIAL_STEPS} steps {first_loss:.5g}, at the end {last_loss:.5g}")
    return {"steps": steps, "seconds": elapsed}


def batches_of(folder: pathlib.Path, shape: Sequence[int], num_outputs: int, size: int) -> Any:
    """A worker's batches, without end, in an order of its own and kept in its memory.

    Args:
      folder: of features.f32 and labels.f32, which each worker reads by itself.
      shape: of one example's features; `num_outputs` of its labels.
      size: of a batch.
    """
    import tensorflow as tf

    def read(name: str, shape: Sequence[int]) -> Any:
        content = tf.io.read_file(str(folder / f"{name}.f32"))
        return tf.reshape(tf.io.decode_raw(content, tf.float32), [-1, *shape])

    features, labels = read("features", shape), read("labels", (num_outputs,))
    count = tf.cast(tf.shape(labels)[0], tf.int64)
    # All workers trace the same graph: what parts them is drawn where it runs.
    seed = tf.random.uniform([], 0, 2**30, tf.int64)

    def batch(number: Any) -> tuple[Any, Any]:
        rows = tf.random.stateless_uniform([size], tf.stack([seed, number]), 0, count, tf.int64)
        return tf.gather(features, rows), tf.gather(labels, rows)

    return tf.data.Dataset.range(2**40).map(batch).prefetch(2)


class AdamOnServer:
    """A Keras model whose weights and Adam slots are plain variables on the parameter server.

    Args:
      cluster: addresses by job; this process joins it as its chief.
      synchronous: whether each update waits for all workers.
    """

    def __init__(self, cluster: dict[str, list[str]], synchronous: bool):
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._num_workers, self.synchronous = len(cluster["worker"]), synchronous

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """Takes the network's present weights to the server, and gives every worker its batches.

        Args:
          model: built Keras model without other state than its weights.
          learning_rate: constant.
          batches: called on each worker, see `batches_of`.
        """
        import tensorflow as tf

        if model.non_trainable_variables:
            raise InputError(
                "the parameter server baseline has no dropout and no batch normalization; leave them out"
            )
        self._model, self._rate = model, learning_rate
        initial = [variable.numpy() for variable in model.trainable_variables]
        with self._coordinator.strategy.scope():
            # Weights, first and second moments, and the sum of a synchronous step's gradients.
            self._weights = [tf.Variable(value) for value in initial]
            self._first, self._second, self._sums = (
                [tf.Variable(np.zeros_like(value)) for value in initial] for _ in range(3)
            )
            self._updates = tf.Variable(0, dtype=tf.int64)
            self._loss_sum = tf.Variable(0.0)
        self._batches = iter(self._coordinator.create_per_worker_dataset(batches))
        self._work = tf.function(self._work_of_worker, autograph=False)
        self._finish = tf.function(self._update_with_sums, autograph=False)

    def train(self, steps: int) -> float:
        """That many steps, in each of which every worker computes one batch; returns the mean loss.

        Asynchronous workers get several steps at once. A synchronous one waits for the chief after each.
        """
        import tensorflow as tf

        coordinator, batches = self._coordinator, self._batches
        self._loss_sum.assign(0.0)
        size = 1 if self.synchronous else _STEPS_A_CALL
        for first in range(0, steps, size):
            count = tf.constant(min(size, steps - first))
            for _ in range(self._num_workers):
                coordinator.schedule(self._work, args=(batches, count))
            if self.synchronous:
                coordinator.join()
                self._finish()
        coordinator.join()
        return float(self._loss_sum.numpy()) / (steps * self._num_workers)

    def weights(self) -> list[np.ndarray]:
        """The weights as they are on the server."""
        return [variable.numpy() for variable in self._weights]

    def _work_of_worker(self, batches: Any, count: Any) -> None:
        """Runs on a worker, in the graph; what touches a variable runs on the server."""
        import tensorflow as tf

        def step(i: Any) -> tuple[Any]:
            features, labels = next(batches)
            weights = [variable.read_value() for variable in self._weights]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                outputs, _ = self._model.stateless_call(weights, [], features, training=True)
                loss = tf.reduce_mean(tf.square(outputs[:, : labels.shape[1]] - labels))
            gradients = tape.gradient(loss, weights)
            if self.synchronous:
                done = [
                    sums.assign_add(gradient, read_value=False)
                    for sums, gradient in zip(self._sums, gradients, strict=True)
                ]
            else:
                done = self._update(gradients)
            done.append(self._loss_sum.assign_add(loss, read_value=False))
            with tf.control_dependencies(done):
                return (i + 1,)

        tf.while_loop(lambda i: i < count, step, [tf.constant(0)], parallel_iterations=1)

    def _update_with_sums(self) -> None:
        import tensorflow as tf

        # On the server: the sums need not travel.
        with tf.device(self._updates.device):
            mean = [sums.read_value() / self._num_workers for sums in self._sums]
            done = self._update(mean)
            with tf.control_dependencies(done):
                for sums, value in zip(self._sums, mean, strict=True):
                    sums.assign(tf.zeros_like(value), read_value=False)

    def _update(self, gradients: list[Any]) -> list[Any]:
        """Adam (Kingma and Ba, 2015), one operation a variable, which runs where the variable is."""
        import tensorflow as tf

        count = tf.cast(self._updates.read_value() + 1, tf.float32)
        done = [
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=tf.pow(_BETA_1, count),
                beta2_power=tf.pow(_BETA_2, count),
                lr=self._rate,
                beta1=_BETA_1,
                beta2=_BETA_2,
                epsilon=_EPSILON,
                grad=gradient,
            )
            for weight, first, second, gradient in zip(
                self._weights, self._first, self._second, gradients, strict=True
            )
        ]
        with tf.control_dependencies(done):
            return [*done, self._updates.assign_add(1, read_value=False)]

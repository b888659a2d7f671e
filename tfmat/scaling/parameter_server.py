"""A baseline that really runs: the same network and Adam with a parameter server instead of an all-reduce.

`tf.distribute`'s ParameterServerStrategy and ClusterCoordinator over processes that talk by gRPC: rank 0 is the chief,
which hands out work, rank 1 the server, which holds weights and Adam's slots, the rest are workers. A worker fetches
the weights, computes the gradient of its own batch and sends it to the server. Asynchronous: the server updates at
once, so that gradients are of older weights (Downpour SGD; Dean et al., Large Scale Distributed Deep Networks, 2012).
Synchronous: the server sums up gradients; the chief waits for all workers of a step, then has it update with the mean.

No backend of tfmat's: it is here to be compared with.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmat.ranks.port_guard import PortGuard, check_not_refused
from tfmat.ranks.processes import Processes
from tfmat.ranks.star import Star
from tfmat.scaling.tf_distribute import (
    apply_adam,
    check_plain,
    find_each_other,
    measure_tasks,
    prepare,
)
from tfmat.scaling.worker import LEAVE

CHIEF, SERVER = 0, 1
_STEPS_A_CALL = 25


def measure_parameter_server(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """The chief measures each task; server and workers serve until it has finished, and answer nothing.

    Raises:
      InputError: the processes do not find each other.
    """
    check_not_refused("a parameter server")
    prepare(spec["processors"])
    addresses, guard, others = find_each_other(folder, processes)
    cluster = jobs(addresses)
    if processes.rank != CHIEF:
        serve(cluster, guard, processes, others)
        return {LEAVE: True}
    training = AdamOnServer(cluster, spec["variant"]["updates"] == "synchronous")
    if guard:
        guard.wait()
    tasks = measure_tasks(training, spec, folder)
    others.barrier()
    # TensorFlow's servers cannot be stopped, and its coordinator waits for them when Python ends.
    return {"tasks": tasks, LEAVE: True}


def jobs(addresses: Sequence[str]) -> dict[str, list[str]]:
    """Addresses by jobs: the first process is the chief, the second the server."""
    chief, server, *workers = addresses
    return {"chief": [chief], "ps": [server], "worker": workers}


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
        """See Baseline.build: the weights go to the server."""
        import tensorflow as tf

        check_plain(model)
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
        return apply_adam(
            self._weights, self._first, self._second, gradients, self._updates, self._rate
        )

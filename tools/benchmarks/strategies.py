"""The default network and Adam by TensorFlow's own strategies: what the processes of workers.py do.

Keras's `fit` (3.15, TensorFlow 2.21) does not run under MultiWorkerMirroredStrategy, since it cannot convert a
PerReplica value to a tensor (keras-team/keras#20585). So the loops are written out here.
"""

import dataclasses
import functools
import json
import os
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.data.dataset import PackedDataset
from tfmat.files import write_json
from tfmat.launch.port_guard import Neighbour, check_not_refused, guard_port
from tfmat.launch.processes import Processes
from tfmat.networks.factory import build_for
from tfmat.scaling.measure import Order, answer_file, join_others

# _TRIAL_STEPS: steps of each of three trials; the first compiles, the second is a warm-up.
_TRIAL_STEPS = 10
# _STEPS_A_CALL: steps that an asynchronous worker gets at once.
_STEPS_A_CALL = 25
# _EXAMPLES: as many lie in the graph of a worker, 24 MB of them.
_EXAMPLES = 10_000
# _BETA_1, _BETA_2, _EPSILON: of Adam, as Keras has them.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7


def measure_together(
    order: Order, processes: Processes, folder: pathlib.Path
) -> list[dict[str, Any]]:
    """Called by each of several processes; those that only serve have an empty answer."""
    name, rank = order.group.variant.backend, processes.rank
    is_served = name != "multi_worker_mirrored"
    check_not_refused("tf.distribute over several processes")
    others = join_others(processes, folder)
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
        found = others.gather((f"localhost:{port}", *dataclasses.astuple(Neighbour.here())))
    guard = guard_port(port, [Neighbour(*place) for _, *place in found])
    addresses = [address for address, *_ in found]
    training: Any = None
    server: Any = None
    if is_served:
        cluster = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
        if rank == 0:
            training = OnServer(cluster, name == "synchronous")
        else:
            job, index = ("ps", 0) if rank == 1 else ("worker", rank - 2)
            server = tf.distribute.Server(
                tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc"
            )
    else:
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        training = Mirrored(tf.distribute.MultiWorkerMirroredStrategy())
    if guard:
        guard.wait()
    # The chief alone says how many steps there are; mirrored workers agree.
    agree = int if is_served else others.broadcast
    answer = [] if server else measure_tasks(training, order, agree)
    others.barrier()
    # TensorFlow's servers cannot be stopped, and its coordinator waits for them when Python ends.
    write_json(answer_file(folder, rank), answer)
    sys.stdout.flush()
    os._exit(0)


def measure_tasks(
    training: Any, order: Order, agree: Callable[[int], int] = int
) -> list[dict[str, Any]]:
    """Steps, seconds and losses of each batch size.

    Args:
      training: Mirrored or OnServer.
      order: of the launch.
      agree: the number of steps that all processes take, where each would find its own.
    """
    config = order.checked_config
    dataset, tasks = PackedDataset.open(order.dataset, verify=False), []
    for task in order.group.tasks:
        keras.utils.set_random_seed(0)
        batches = functools.partial(_batches, dataset, task.batch_a_worker)
        training.build(build_for(config, dataset), config.optimizer.learning_rate, batches)
        losses, steps = [], _TRIAL_STEPS
        for trial in range(4):
            started = time.monotonic()
            losses.append(training.train(steps))
            seconds = time.monotonic() - started
            if trial == 2:
                steps = agree(max(2 * steps, round(steps * order.seconds / seconds)))
        tasks.append({"steps": steps, "seconds": seconds, "losses": losses})
    return tasks


def _batches(dataset: PackedDataset, size: int) -> tf.data.Dataset:
    """A worker's batches, without end, in an order of its own and kept in its memory."""
    arrays = dataset.features[:_EXAMPLES], dataset.labels[:_EXAMPLES]
    features, labels = (tf.constant(np.asarray(array, np.float32)) for array in arrays)
    # All workers trace the same graph: what parts them is taken where it runs.
    seed = tf.cast(1e6 * tf.timestamp(), tf.int64)

    def batch(number: Any) -> tuple[Any, Any]:
        rows = tf.random.stateless_uniform(
            [size], tf.stack([seed, number]), 0, len(arrays[1]), tf.int64
        )
        return tf.gather(features, rows), tf.gather(labels, rows)

    return tf.data.Dataset.range(2**40).map(batch).prefetch(2)


class _Adam:
    """A Keras model without other state than its weights, and Adam's slots, as variables of a strategy."""

    def __init__(self, strategy: Any):
        self.strategy = strategy

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """Takes the network's present weights; `batches` is called for each worker."""
        self._model, self._rate = model, learning_rate
        initial = [variable.numpy() for variable in model.trainable_variables]
        with self.strategy.scope():
            # First and second moments, and the sum of a synchronous step's gradients.
            self._weights = [tf.Variable(value) for value in initial]
            self._first, self._second, self._sums = (
                [tf.Variable(np.zeros_like(value)) for value in initial] for _ in range(3)
            )
            self._updates = tf.Variable(0, dtype=tf.int64)
            self._loss_sum = tf.Variable(0.0)

    def loss_and_gradients(self, batch: Any, share: float = 1.0) -> tuple[Any, list[Any]]:
        """Share of the mean squared error of a batch, and its gradients."""
        features, labels = batch
        weights = [variable.read_value() for variable in self._weights]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            outputs, _ = self._model.stateless_call(weights, [], features, training=True)
            loss = share * tf.reduce_mean(tf.square(outputs[:, : labels.shape[1]] - labels))
        return loss, tape.gradient(loss, weights)

    def update(self, gradients: Sequence[Any]) -> list[Any]:
        """Adam (Kingma and Ba, 2015) in a graph, one operation a variable, which runs where the variable is."""
        count = tf.cast(self._updates.read_value() + 1, tf.float32)
        done = [
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=tf.pow(_BETA_1, count),
                beta2_power=tf.pow(_BETA_2, count),
                lr=self._rate,
                beta1=_BETA_1,
                beta2=_BETA_2,
                epsilon=_EPSILON,
                grad=gradient,
            )
            for weight, m, v, gradient in zip(
                self._weights, self._first, self._second, gradients, strict=True
            )
        ]
        with tf.control_dependencies(done):
            return [*done, self._updates.assign_add(1, read_value=False)]


class Mirrored(_Adam):
    """A copy of the weights for each worker; gradients are summed in every step."""

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """See _Adam.build."""
        super().build(model, learning_rate, batches)
        self._batches = iter(
            self.strategy.distribute_datasets_from_function(lambda context: batches())
        )
        self._steps = tf.function(self._train, autograph=False)

    def train(self, steps: int) -> float:
        """The mean loss of so many steps, in each of which every worker computes one batch."""
        return float(self._steps(tf.constant(steps))) / steps

    def _train(self, steps: Any) -> Any:
        def body(i: Any, total: Any) -> tuple[Any, Any]:
            losses = self.strategy.run(self._step, args=(next(self._batches),))
            return i + 1, total + self.strategy.reduce("SUM", losses, axis=None)

        _, total = tf.while_loop(
            lambda i, _: i < steps, body, [tf.constant(0), tf.constant(0.0)], parallel_iterations=1
        )
        return total

    def _step(self, batch: Any) -> Any:
        """One worker's part of a step."""
        context = tf.distribute.get_replica_context()
        part, gradients = self.loss_and_gradients(batch, 1 / context.num_replicas_in_sync)
        with tf.control_dependencies(self.update(context.all_reduce("SUM", gradients))):
            return tf.identity(part)


class OnServer(_Adam):
    """Weights and Adam's slots on a parameter server, from which each worker fetches them.

    Asynchronous: the server updates at once, with gradients of older weights (Downpour SGD; Dean et al., Large Scale
    Distributed Deep Networks, 2012). Synchronous: it sums gradients, and the chief has it update when all have come.

    Args:
      cluster: addresses by job; this process joins it as its chief, which hands out work.
      synchronous: whether each update waits for all workers.
    """

    def __init__(self, cluster: dict[str, list[str]], synchronous: bool):
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        super().__init__(tf.distribute.ParameterServerStrategy(resolver))
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._num_workers, self._synchronous = len(cluster["worker"]), synchronous

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """See _Adam.build: the weights go to the server."""
        super().build(model, learning_rate, batches)
        self._batches = iter(self._coordinator.create_per_worker_dataset(batches))
        self._work = tf.function(self._work_of_worker, autograph=False)
        self._finish = tf.function(self._update_with_sums, autograph=False)

    def train(self, steps: int) -> float:
        """See Mirrored.train; a synchronous worker waits for the chief after each step."""
        self._loss_sum.assign(0.0)
        size = 1 if self._synchronous else _STEPS_A_CALL
        for first in range(0, steps, size):
            count = tf.constant(min(size, steps - first))
            for _ in range(self._num_workers):
                self._coordinator.schedule(self._work, args=(self._batches, count))
            if self._synchronous:
                self._coordinator.join()
                self._finish()
        self._coordinator.join()
        return float(self._loss_sum.numpy()) / (steps * self._num_workers)

    def _work_of_worker(self, batches: Any, count: Any) -> None:
        """Runs on a worker, in the graph; what touches a variable runs on the server."""

        def step(i: Any) -> tuple[Any]:
            loss, gradients = self.loss_and_gradients(next(batches))
            if self._synchronous:
                done = [
                    sums.assign_add(gradient, read_value=False)
                    for sums, gradient in zip(self._sums, gradients, strict=True)
                ]
            else:
                done = self.update(gradients)
            done.append(self._loss_sum.assign_add(loss, read_value=False))
            with tf.control_dependencies(done):
                return (i + 1,)

        tf.while_loop(lambda i: i < count, step, [tf.constant(0)], parallel_iterations=1)

    def _update_with_sums(self) -> None:
        # On the server: the sums need not travel.
        with tf.device(self._updates.device):
            mean = [sums.read_value() / self._num_workers for sums in self._sums]
            with tf.control_dependencies(self.update(mean)):
                for sums, value in zip(self._sums, mean, strict=True):
                    sums.assign(tf.zeros_like(value), read_value=False)

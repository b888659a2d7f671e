"""TensorFlow's own strategies, measured beside ours."""

import dataclasses
import functools
import json
import os
import pathlib
import platform
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tfmat.config import Config, check_config
from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError
from tfmat.launch.port_guard import (
    Neighbour,
    PortGuard,
    check_not_refused,
    describe_ports,
    guard_port,
)
from tfmat.launch.processes import Processes
from tfmat.launch.runtime import prepare_tensorflow
from tfmat.launch.watchdog import Star
from tfmat.scaling.worker import LEAVE, join_others

# --------------------------------------------------------------------------------------------------
# What the baselines of TensorFlow's own `tf.distribute` have in common: see parameter_server.py and strategies.py.
#
# They are no backends of tfmat's: they are here to be compared with.


_TRIAL_STEPS = 10
_THREADS = 8
# Adam, as Keras has it.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7


class Baseline(Protocol):
    """Adam on a Keras model, by one of TensorFlow's strategies."""

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """Takes the network's present weights, and gives every worker its batches.

        Args:
          model: built Keras model; see `check_plain`.
          learning_rate: constant.
          batches: called for each worker, see `batches_of`.
        """

    def train(self, steps: int) -> float:
        """That many steps, in each of which every worker computes one batch; returns the mean loss."""


def prepare(processors: int, virtual_devices: int = 1, start: bool = True) -> None:
    """Imports TensorFlow for a process of a baseline; see prepare_tensorflow."""
    # With one thread for all operations, as a process on one processor has it, those that wait for another process
    # would keep it from those that answer.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(_THREADS)
    prepare_tensorflow(
        processors=processors, virtual_devices=virtual_devices, start=start, own_program=True
    )


def find_each_other(
    folder: pathlib.Path, processes: Processes
) -> tuple[list[str], PortGuard | None, Star]:
    """Addresses of all processes; the guard of the port that this one opens next; the link to the others.

    Each says its own, since only it knows which port is free there.
    """
    several_nodes = processes.local_size < processes.size
    others = join_others(processes, folder)
    with socket.create_server(("", 0)) as held:
        host = platform.node() if several_nodes else "localhost"
        port = held.getsockname()[1]
        found = others.gather((f"{host}:{port}", *dataclasses.astuple(Neighbour.here())))
    addresses = [address for address, *_ in found]
    places = [Neighbour(*place) for _, *place in found]
    if processes.rank == 0:
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        print(describe_ports(ports, places), file=sys.stderr, flush=True)
    return addresses, guard_port(port, places), others


def check_plain(model: Any) -> None:
    """InputError where a network has other state than its weights."""
    if model.non_trainable_variables:
        raise InputError(
            "the baselines of tf.distribute have no dropout and no batch normalization; leave them out"
        )


def measure_tasks(
    training: Baseline,
    spec: dict[str, Any],
    folder: pathlib.Path,
    agree: Callable[[int], int] = lambda steps: steps,
) -> list[dict[str, Any]]:
    """Steps and seconds of each task of a launch.

    Args:
      training: on which each task is built in turn.
      spec: see worker.py.
      folder: for the files from which the workers of this process read the examples.
      agree: the number of steps that all processes take, where each would find its own.
    """
    from tfmat.networks import build_for

    config = check_config(Config(spec["config"]))
    dataset, size = PackedDataset.open(spec["dataset"], verify=False), spec["dataset_size"]
    for name in ("features", "labels"):
        np.ascontiguousarray(getattr(dataset, name)[:size], np.float32).tofile(
            folder / f"{name}.f32"
        )
    shape, outputs, tasks = dataset.features.shape[1:], len(dataset.parameters), []
    for task in spec["tasks"]:
        batches = functools.partial(batches_of, folder, shape, outputs, task["batch_a_worker"])
        training.build(build_for(config, dataset), config.optimizer.learning_rate, batches)
        tasks.append(_measure(training, spec["seconds"], agree))
    return tasks


def _measure(training: Baseline, seconds: float, agree: Callable[[int], int]) -> dict[str, Any]:
    def timed(steps: int) -> tuple[float, float]:
        started = time.monotonic()
        loss = training.train(steps)
        return loss, time.monotonic() - started

    # The first trial compiles, the second is a warm-up.
    (first_loss, _), _, (_, trial) = (timed(_TRIAL_STEPS) for _ in range(3))
    steps = agree(max(2 * _TRIAL_STEPS, round(_TRIAL_STEPS * seconds / trial)))
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


def apply_adam(
    weights: Sequence[Any],
    first: Sequence[Any],
    second: Sequence[Any],
    gradients: Sequence[Any],
    updates: Any,
    rate: float,
) -> list[Any]:
    """Adam (Kingma and Ba, 2015) in a graph, one operation a variable, which runs where the variable is.

    Args:
      weights, first, second: variables: weights, and the moments of their gradients.
      gradients: of the weights.
      updates: variable that counts them.
      rate: learning rate.

    Returns:
      The operations.
    """
    import tensorflow as tf

    count = tf.cast(updates.read_value() + 1, tf.float32)
    done = [
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=tf.pow(_BETA_1, count),
            beta2_power=tf.pow(_BETA_2, count),
            lr=rate,
            beta1=_BETA_1,
            beta2=_BETA_2,
            epsilon=_EPSILON,
            grad=gradient,
        )
        for weight, m, v, gradient in zip(weights, first, second, gradients, strict=True)
    ]
    with tf.control_dependencies(done):
        return [*done, updates.assign_add(1, read_value=False)]


# --------------------------------------------------------------------------------------------------
# A baseline that really runs: the same network and Adam with a parameter server instead of an all-reduce.
#
# `tf.distribute`'s ParameterServerStrategy and ClusterCoordinator over processes that talk by gRPC: rank 0 is the
# chief,
# which hands out work, rank 1 the server, which holds weights and Adam's slots, the rest are workers. A worker fetches
# the weights, computes the gradient of its own batch and sends it to the server. Asynchronous: the server updates at
# once, so that gradients are of older weights (Downpour SGD; Dean et al., Large Scale Distributed Deep Networks,
# 2012).
# Synchronous: the server sums up gradients; the chief waits for all workers of a step, then has it update with the
# mean.
#
# No backend of tfmat's: it is here to be compared with.


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


# --------------------------------------------------------------------------------------------------
# Baselines that really run: the same network and Adam by TensorFlow's own mirrored strategies.
#
# `mirrored` is `tf.distribute.MirroredStrategy` over the devices of one process (virtual ones of a CPU), and
# `multi_worker_mirrored` is `MultiWorkerMirroredStrategy` over processes that talk by gRPC. Both keep a copy of the
# weights for each worker and sum gradients in every step.
#
# The loop around the Keras model is written out here. Keras's `fit` (3.15, TensorFlow 2.21) does not run under
# MultiWorkerMirroredStrategy, since it cannot convert a PerReplica value to a tensor (keras-team/keras#20585), and
# under
# MirroredStrategy only with `steps_per_execution=1`.


def measure_mirrored(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """Measures each task on the devices of this process, see worker.py."""
    workers = spec["variant"]["workers"]
    prepare(spec["processors"], virtual_devices=workers)
    return {"tasks": measure_tasks(AdamMirrored(mirrored(workers)), spec, folder)}


def measure_multi_worker_mirrored(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """All processes measure each task together, see worker.py.

    Raises:
      InputError: the processes do not find each other.
    """
    check_not_refused("MultiWorkerMirroredStrategy")
    prepare(spec["processors"], start=False)
    addresses, guard, others = find_each_other(folder, processes)
    training = AdamMirrored(multi_worker_mirrored(addresses, processes.rank))
    if guard:
        guard.wait()
    own = folder / f"examples-{processes.rank}"
    own.mkdir(exist_ok=True)
    tasks = measure_tasks(training, spec, own, others.broadcast)
    others.barrier()
    # TensorFlow's servers cannot be stopped.
    return {"tasks": tasks, LEAVE: True}


def mirrored(workers: int) -> Any:
    """TensorFlow's strategy over so many devices of this process: GPUs where there are enough, else of the CPU."""
    import tensorflow as tf

    kind = "GPU" if len(tf.config.list_logical_devices("GPU")) >= workers else "CPU"
    return tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(workers)])


def multi_worker_mirrored(addresses: list[str], rank: int) -> Any:
    """TensorFlow's strategy over processes, before TensorFlow has done anything else.

    Args:
      addresses: of all processes.
      rank: this one.
    """
    import tensorflow as tf

    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    return tf.distribute.MultiWorkerMirroredStrategy()


class AdamMirrored:
    """A Keras model whose weights and Adam slots are mirrored by a strategy of TensorFlow's."""

    def __init__(self, strategy: Any):
        self._strategy = strategy

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """See Baseline.build."""
        import tensorflow as tf

        check_plain(model)
        self._model, self._rate = model, learning_rate
        initial = [variable.numpy() for variable in model.trainable_variables]
        with self._strategy.scope():
            self._weights = [tf.Variable(value) for value in initial]
            self._first, self._second = (
                [tf.Variable(np.zeros_like(value)) for value in initial] for _ in range(2)
            )
            self._updates = tf.Variable(0, dtype=tf.int64)
        self._batches = iter(
            self._strategy.distribute_datasets_from_function(lambda context: batches())
        )
        self._steps = tf.function(self._train, autograph=False)

    def train(self, steps: int) -> float:
        """See Baseline.train."""
        import tensorflow as tf

        return float(self._steps(tf.constant(steps))) / steps

    def weights(self) -> list[np.ndarray]:
        """The weights of this process's first worker."""
        return [variable.numpy() for variable in self._weights]

    def _train(self, steps: Any) -> Any:
        import tensorflow as tf

        def body(i: Any, total: Any) -> tuple[Any, Any]:
            losses = self._strategy.run(self._step, args=(next(self._batches),))
            return i + 1, total + self._strategy.reduce("SUM", losses, axis=None)

        _, total = tf.while_loop(
            lambda i, _: i < steps, body, [tf.constant(0), tf.constant(0.0)], parallel_iterations=1
        )
        return total

    def _step(self, batch: Any) -> Any:
        """One worker's part of a step."""
        import tensorflow as tf

        features, labels = batch
        context = tf.distribute.get_replica_context()
        weights = [variable.read_value() for variable in self._weights]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            outputs, _ = self._model.stateless_call(weights, [], features, training=True)
            loss = tf.reduce_mean(tf.square(outputs[:, : labels.shape[1]] - labels))
            part = loss / context.num_replicas_in_sync
        gradients = context.all_reduce("SUM", tape.gradient(part, weights))
        done = apply_adam(
            self._weights, self._first, self._second, gradients, self._updates, self._rate
        )
        with tf.control_dependencies(done):
            return tf.identity(part)

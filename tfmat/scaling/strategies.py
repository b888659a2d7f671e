"""Baselines that really run: the same network and Adam by TensorFlow's own mirrored strategies.

`mirrored` is `tf.distribute.MirroredStrategy` over the devices of one process (virtual ones of a CPU), and
`multi_worker_mirrored` is `MultiWorkerMirroredStrategy` over processes that talk by gRPC. Both keep a copy of the
weights for each worker and sum gradients in every step.

The loop around the Keras model is written out here. Keras's `fit` (3.15, TensorFlow 2.21) does not run under
MultiWorkerMirroredStrategy, since it cannot convert a PerReplica value to a tensor (keras-team/keras#20585), and under
MirroredStrategy only with `steps_per_execution=1`.
"""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmat.ranks.port_guard import check_not_refused
from tfmat.ranks.processes import Processes
from tfmat.scaling.tf_distribute import (
    apply_adam,
    check_plain,
    find_each_other,
    measure_tasks,
    prepare,
)
from tfmat.scaling.worker import LEAVE


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

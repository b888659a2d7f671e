"""Adam on a parameter server: what its workers compute, and what the server does with their gradients.

Used by parameter_server.py, which says what it is for; by itself it knows of a cluster no more than the addresses.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from tfmat.errors import InputError

# Adam, as Keras has it.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7
_STEPS_A_CALL = 25


@dataclasses.dataclass(frozen=True)
class Examples:
    """folder: of features.f32 and labels.f32; shape: of one example's features; the rest as of the data set."""

    folder: pathlib.Path
    shape: tuple[int, int]
    num_outputs: int
    input_scale: Any

    def dataset(self, batch_size: int, seed: Any) -> Any:
        """Batches without end, in an order of each worker's own, kept in its memory."""
        import tensorflow as tf

        def read(name: str, shape: tuple[int, ...]) -> Any:
            content = tf.io.read_file(str(self.folder / f"{name}.f32"))
            return tf.reshape(tf.io.decode_raw(content, tf.float32), [-1, *shape])

        features, labels = read("features", self.shape), read("labels", (self.num_outputs,))
        count = tf.cast(tf.shape(labels)[0], tf.int64)

        def batch(number: Any) -> tuple[Any, Any]:
            rows = tf.random.stateless_uniform(
                [batch_size], tf.stack([seed, number]), 0, count, tf.int64
            )
            return tf.gather(features, rows), tf.gather(labels, rows)

        return tf.data.Dataset.range(2**40).map(batch).prefetch(2)


class AdamOnServer:
    """A Keras model whose weights and Adam slots are plain variables on the parameter server.

    Args:
      coordinator: of the cluster.
      synchronous: whether each update waits for all workers.
    """

    def __init__(self, coordinator: Any, num_workers: int, synchronous: bool):
        self._coordinator, self._num_workers = coordinator, num_workers
        self.synchronous = synchronous

    @classmethod
    def start(cls, cluster: dict[str, list[str]], synchronous: bool) -> "AdamOnServer":
        """Joins the cluster as its chief."""
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        return cls(coordinator, len(cluster["worker"]), synchronous)

    def build(self, model: Any, learning_rate: float, examples: Examples, batch_size: int) -> None:
        """Takes the network's present weights to the server, and gives every worker its batches.

        Args:
          model: built Keras model without other state than its weights.
          learning_rate: constant.
          examples: see Examples.
          batch_size: of one worker.
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
        self._batches = iter(
            self._coordinator.create_per_worker_dataset(lambda: self._dataset(examples, batch_size))
        )
        self._work = tf.function(self._work_of_worker, autograph=False)
        self._finish = tf.function(self._update_with_sums, autograph=False)

    @staticmethod
    def _dataset(examples: Examples, batch_size: int) -> Any:
        import tensorflow as tf

        # Of an order of its own on each worker, which all trace the same graph: drawn where it runs.
        seed = tf.random.uniform([], 0, 2**30, tf.int64)
        return examples.dataset(batch_size, seed)

    def train(self, steps: int) -> float:
        """That many steps, in each of which every worker computes one batch; returns the mean loss.

        Asynchronous workers get several steps at once. A synchronous one waits for the chief after each.
        """
        import tensorflow as tf

        coordinator = self._coordinator
        self._loss_sum.assign(0.0)
        if self.synchronous:
            for _ in range(steps):
                for _ in range(self._num_workers):
                    coordinator.schedule(self._work, args=(self._batches, tf.constant(1)))
                coordinator.join()
                self._finish()
        else:
            for first in range(0, steps, _STEPS_A_CALL):
                count = tf.constant(min(_STEPS_A_CALL, steps - first))
                for _ in range(self._num_workers):
                    coordinator.schedule(self._work, args=(self._batches, count))
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

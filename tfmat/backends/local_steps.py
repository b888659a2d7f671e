"""Local steps: each worker trains by itself on its part of the batches, and only now and then do the workers meet.

At a meeting the mean of how far the workers have moved is taken as a gradient by an outer optimizer with Nesterov
momentum, which moves the weights from where all were at the meeting before: DiLoCo (Douillard et al. 2023,
arXiv:2311.08105).
With outer rate 1 and momentum 0 that is the mean of the workers' weights (local SGD; Stich 2019, arXiv:1805.09767).
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.exchange import Collect, Exchange, Kept, Reduce, Tensors
from tfmat.backends.options import BackendOptions
from tfmat.backends.replica import assign_all, tensors_of
from tfmat.errors import InputError
from tfmat.models.normalization import is_synchronized


def check_whole_batch(model: keras.Model, key: str) -> None:
    """InputError where a layer needs the other workers in every step, which `key` does away with."""
    for layer in model._flatten_layers(include_self=False):
        if is_synchronized(layer) and layer.trainable:
            raise InputError(
                f"{key} does not work with layer '{layer.name}', which normalizes the whole batch; leave "
                f"{key} out, or let each worker normalize its part: synchronized=False "
                "(model.batch_normalization=local)"
            )


class Meetings:
    """When the workers meet, and what happens there.

    Args:
      weights: the model's variables.
      workers: that meet.
      every: steps between two meetings.
      rate, momentum: of the outer optimizer.
      exchange: by which what the workers moved comes together.

    Attributes:
      kept: the outer optimizer's momentum, and what the exchange keeps.
    """

    def __init__(
        self,
        weights: Sequence[Any],
        workers: int,
        every: int,
        rate: float,
        momentum: float,
        exchange: Exchange,
    ):
        self._workers, self._every, self._rate, self._momentum = workers, every, rate, momentum
        self._weights, self._exchange = weights, exchange
        self._anchors = [tf.Variable(weight, trainable=False) for weight in weights]
        velocities = [
            Kept(f"velocity/{i}", np.zeros(weight.shape, weight.dtype.as_numpy_dtype), common=True)
            for i, weight in enumerate(weights)
        ]
        self.kept = [*velocities, *exchange.kept]

    def begin(
        self, num_steps: tf.Tensor, kept: Sequence[Any], reduce: Reduce, collect: Collect
    ) -> Callable[[tf.Tensor], None]:
        """Begins some steps, in a graph, where the workers have the same weights.

        Args:
          num_steps: a meeting comes after the last of them, too.
          kept: variables of `self.kept`.
          reduce, collect: over the workers.

        Returns:
          What is to be called after step i: has the workers meet, where that is due.
        """
        assign_all(self._anchors, tensors_of(self._weights))

        def meet() -> tf.Tensor:
            weights, values = self.outer_step(
                tensors_of(self._anchors),
                tensors_of(self._weights),
                tensors_of(kept),
                reduce,
                collect,
            )
            assign_all([*self._weights, *self._anchors, *kept], [*weights, *weights, *values])
            return tf.constant(True)

        def after(i: tf.Tensor) -> None:
            due = tf.equal((i + 1) % self._every, 0) | tf.equal(i + 1, num_steps)
            tf.cond(due, meet, lambda: tf.constant(False))

        return after

    def outer_step(
        self, anchors: Tensors, weights: Tensors, kept: Tensors, reduce: Reduce, collect: Collect
    ) -> tuple[Tensors, Tensors]:
        """The weights from which all workers go on, and new values of `self.kept`.

        Args:
          anchors: weights of the meeting before.
          weights: of this worker.
          kept: values of `self.kept`.
          reduce, collect: over the workers.
        """
        moved = [(a - w) / self._workers for a, w in zip(anchors, weights, strict=True)]
        memory = kept[len(weights) :]
        gradients, _, memory = self._exchange(moved, [], memory, reduce, collect)
        velocities = [
            self._momentum * velocity + gradient
            for velocity, gradient in zip(kept, gradients, strict=False)
        ]
        weights = [
            anchor - self._rate * (gradient + self._momentum * velocity)
            for anchor, gradient, velocity in zip(anchors, gradients, velocities, strict=True)
        ]
        return weights, [*velocities, *memory]


def make_meetings(
    model: keras.Model, options: BackendOptions, workers: int, exchange: Exchange
) -> Meetings | None:
    """The meetings that the options ask for; None where the workers meet in every step.

    Raises:
      InputError: a layer needs the other workers in every step.
    """
    if workers == 1 or options.local_steps == 1 or options.averaging:
        return None
    check_whole_batch(model, "local_steps")
    weights = [variable.value for variable in model.trainable_variables]
    rate, momentum = options.outer_step
    return Meetings(weights, workers, options.local_steps, rate, momentum, exchange)

"""Batch normalisation that knows which examples of a batch are padding, and whose batch it belongs to."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

_Batch = tuple[Any, Callable[[list], list]]
_BATCH: contextvars.ContextVar[_Batch | None] = contextvars.ContextVar("tfmat_batch", default=None)


@contextlib.contextmanager
def batch_context(weights: Any, reduce: Callable[[list], list]) -> Iterator[None]:
    """What a training step tells the normalisation layers while the model is traced.

    Args:
      weights: [batch], 1 for an example and 0 for padding.
      reduce: sums a list of tensors over the workers that share the global batch.
    """
    token = _BATCH.set((weights, reduce))
    try:
        yield
    finally:
        _BATCH.reset(token)


@keras.saving.register_keras_serializable(package="tfmat")
class ExampleWeightedBatchNormalization(keras.layers.BatchNormalization):
    """Keras's BatchNormalization with moments over the true examples of the batch.

    Outside a tfmat training step (Keras `fit`, inference) it is exactly Keras's layer.

    Args:
      synchronized: moments of the whole global batch; False: of each worker's part ("ghost" batches).
    """

    def __init__(self, *, synchronized: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.synchronized = synchronized

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        batch = _BATCH.get()
        if batch is None:
            return super()._moments(inputs, mask)
        weights, reduce = batch
        rank = len(inputs.shape)
        axes = [axis for axis in range(rank) if axis != self.axis % rank]
        weights = ops.reshape(ops.cast(weights, inputs.dtype), (-1,) + (1,) * (rank - 1))
        positions = 1.0
        for axis in axes[1:]:
            positions *= inputs.shape[axis]
        sums = [ops.sum(weights) * positions, ops.sum(weights * inputs, axis=axes)]
        count, total = reduce(sums) if self.synchronized else sums
        mean = total / ops.maximum(count, 1.0)
        # Second pass around the mean: the difference of two large sums would lose digits in float32.
        squares = [ops.sum(weights * ops.square(inputs - mean), axis=axes)]
        (squares,) = reduce(squares) if self.synchronized else squares
        return mean, squares / ops.maximum(count, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "synchronized": self.synchronized}

"""Batch normalisation that knows which examples of a batch are padding, and whose batch it belongs to."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

_Batch = tuple[Any, Callable[[list], list]]
_BATCH: contextvars.ContextVar[_Batch | None] = contextvars.ContextVar("tfmat_batch", default=None)


@contextlib.contextmanager
def batch_context(
    weights: Any,
    reduce: Callable[[list], list],
    plain: Sequence[keras.layers.BatchNormalization] = (),
) -> Iterator[None]:
    """What a training step tells the normalisation layers while the model is traced.

    Args:
      weights: [batch], 1 for an example and 0 for padding.
      reduce: sums a list of tensors over the workers that share the global batch.
      plain: Keras's own layers, see `plain_normalizations`; they take the moments of the global batch too.
    """
    token = _BATCH.set((weights, reduce))
    for layer in plain:
        vars(layer)["_moments"] = functools.partial(_batch_moments, layer, synchronized=True)
    try:
        yield
    finally:
        for layer in plain:
            del vars(layer)["_moments"]
        _BATCH.reset(token)


def plain_normalizations(model: Any) -> list[keras.layers.BatchNormalization]:
    """Keras's own BatchNormalization layers of a model, which know nothing of padding and of other workers."""
    layers = keras.layers
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, layers.BatchNormalization)
        and type(layer)._moments is layers.BatchNormalization._moments
    ]


def is_synchronized(layer: Any) -> bool:
    """Whether a layer's moving statistics are those of the whole global batch in a training step."""
    if isinstance(layer, ExampleWeightedBatchNormalization):
        return layer.synchronized
    return bool(plain_normalizations(layer))


def _batch_moments(
    layer: keras.layers.BatchNormalization, inputs: Any, mask: Any, *, synchronized: bool
) -> tuple[Any, Any]:
    """Mean and variance of `inputs` over the true examples of the step's batch, and over the mask if there is one."""
    batch = _BATCH.get()
    assert batch is not None  # the caller's promise, not the user's
    weights, reduce = batch
    rank = len(inputs.shape)
    axes = [axis for axis in range(rank) if axis != layer.axis % rank]
    weights = ops.reshape(ops.cast(weights, inputs.dtype), (-1,) + (1,) * (rank - 1))
    if mask is None:
        positions = 1.0
        for axis in axes[1:]:
            size = inputs.shape[axis]
            positions *= ops.cast(ops.shape(inputs)[axis], inputs.dtype) if size is None else size
        examples = ops.sum(weights) * positions
    else:
        weights = weights * ops.expand_dims(ops.cast(mask, inputs.dtype), -1)
        examples = ops.sum(weights)
    sums = [examples, ops.sum(weights * inputs, axis=axes)]
    count, total = reduce(sums) if synchronized else sums
    mean = total / ops.maximum(count, 1.0)
    # Second pass around the mean: the difference of two large sums would lose digits in float32.
    squares = [ops.sum(weights * ops.square(inputs - mean), axis=axes)]
    (squares,) = reduce(squares) if synchronized else squares
    return mean, squares / ops.maximum(count, 1.0)


@keras.saving.register_keras_serializable(package="tfmat")
class ExampleWeightedBatchNormalization(keras.layers.BatchNormalization):
    """Keras's BatchNormalization with moments over the true examples of the batch.

    Outside a tfmat training step (Keras `fit`, inference) it is exactly Keras's layer.

    Args:
      synchronized: moments of the whole global batch; False: of each worker's part ("ghost" batches).
      ghost_batch_size: not synchronised, and of so many examples at a time of a worker's part, also on one worker and
        in Keras's `fit` (Hoffer, Hubara, Soudry 2017, arXiv:1705.08741, algorithm 1); the last one may be smaller.
        The moving statistics take the mean over a step's ghost batches.
    """

    def __init__(
        self, *, synchronized: bool = True, ghost_batch_size: int | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        if ghost_batch_size and (synchronized or self.axis not in (-1, [-1]) or self.renorm):
            raise ValueError("ghost_batch_size goes with synchronized=False, axis=-1, renorm=False")
        self.synchronized = synchronized
        self.ghost_batch_size = ghost_batch_size

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """See keras.layers.BatchNormalization."""
        if not (self.ghost_batch_size and training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        if mask is not None:
            raise ValueError("ghost batches take no mask")
        return self._normalize_ghosts(inputs, self.ghost_batch_size)

    def _normalize_ghosts(self, inputs: Any, size: int) -> Any:
        """`inputs` [batch, ..., channels], normalised within each `size` examples."""
        inputs = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        batch = _BATCH.get()
        rank = len(inputs.shape)
        ghost = ops.arange(ops.shape(inputs)[0]) // size
        weights = ops.ones_like(ghost) if batch is None else batch[0]
        weights = ops.reshape(ops.cast(weights, inputs.dtype), (-1,) + (1,) * (rank - 1))

        def total(values: Any) -> Any:  # [batch, ..., channels] -> [ghosts, channels]
            return ops.segment_sum(ops.sum(values, axis=range(1, rank - 1)), ghost, sorted=True)

        def spread(values: Any) -> Any:  # [ghosts, channels] -> [batch, 1..., channels]
            shape = (-1, *[1] * (rank - 2), values.shape[-1])
            return ops.reshape(ops.take(values, ghost, axis=0), shape)

        count = total(weights * ops.ones_like(inputs[:, ..., :1]))
        divisor = ops.maximum(count, 1.0)
        mean = total(weights * inputs) / divisor
        centred = inputs - spread(mean)
        variance = total(weights * ops.square(centred)) / divisor
        self._move_statistics(mean, variance, ops.cast(count > 0, inputs.dtype))
        outputs = centred * spread(ops.rsqrt(variance + self.epsilon))
        if self.scale:
            outputs *= ops.cast(self.gamma, outputs.dtype)
        if self.center:
            outputs += ops.cast(self.beta, outputs.dtype)
        return ops.cast(outputs, self.compute_dtype)

    def _move_statistics(self, mean: Any, variance: Any, used: Any) -> None:
        """Moves the moving statistics towards the mean over the ghosts [ghosts, channels] that hold an example."""
        number = ops.maximum(ops.sum(used), 1.0)
        for moving, values in ((self.moving_mean, mean), (self.moving_variance, variance)):
            new = ops.cast(ops.sum(used * values, axis=0) / number, moving.dtype)
            moving.assign(moving * self.momentum + new * (1.0 - self.momentum))

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        if _BATCH.get() is None:
            return super()._moments(inputs, mask)
        return _batch_moments(self, inputs, mask, synchronized=self.synchronized)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "synchronized": self.synchronized,
            "ghost_batch_size": self.ghost_batch_size,
        }

"""Sums over the workers: gradients as one flat buffer, and sums by themselves, to learn what one costs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def reduce_flat(
    tensors: Sequence[tf.Tensor], reduce: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """Reduces tensors of any shapes and types over the workers.

    Args:
      tensors: the same number, shapes and types on every worker. Shapes need not be known while the graph is made, as
        those of gradients of dense layers on sequences.
      reduce: one flat tensor -> the same of all workers; once for each type, in the order of their first tensors.

    Returns:
      The reduced tensors, in the same order.
    """
    places: dict[tf.DType, list[int]] = {}
    for i, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(i)
    reduced = list(tensors)
    totals = []
    for these in places.values():
        parts = [tensors[i] for i in these]
        totals.append(reduce(tf.concat([tf.reshape(part, [-1]) for part in parts], 0)))
        for i, part in zip(these, _split(totals[-1], parts), strict=True):
            reduced[i] = part
    if len(totals) > 1:
        # Whatever comes after one of them comes after all: the next step must not reduce under the same names before.
        with tf.control_dependencies(totals):
            reduced = [tf.identity(tensor) for tensor in reduced]
    return reduced


def _split(flat: tf.Tensor, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    sizes = [part.shape.num_elements() for part in parts]
    if None in sizes:
        split = tf.split(flat, [tf.size(part) for part in parts], num=len(parts))
    else:
        split = tf.split(flat, sizes)
    return [
        tf.ensure_shape(tf.reshape(piece, tf.shape(part)), part.shape)
        for piece, part in zip(split, parts, strict=True)
    ]


def without_repeated_rows(gradient: Any) -> Any:
    """The gradient of an embedding with each used row once, with its sum; any other as it is.

    Keras's Adam squares the rows' values one by one: with a row that comes twice, the step would depend on how the
    examples are divided over workers.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    unique, place = tf.unique(gradient.indices)
    summed = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(unique))
    return tf.IndexedSlices(summed, unique, gradient.dense_shape)


def repeated_sums(
    reduce: Callable[[tf.Tensor], tf.Tensor], num_values: int
) -> Callable[[int], None]:
    """A function that sums `num_values` float32 numbers over the workers, `count` times one after the other.

    Args:
      reduce: [num_values] -> the sum over the workers, of the same shape.
      num_values: of each worker.
    """

    def run(values: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        # Each sum is the next one's input, or they would be under way at once; zeros do not overflow.
        _, total = tf.while_loop(
            lambda i, _: i < count,
            lambda i, value: (i + 1, tf.ensure_shape(reduce(value), [num_values])),
            [tf.constant(0), values],
            parallel_iterations=1,
        )
        return total

    function = tf.function(run, autograph=False)
    zeros = tf.zeros([num_values], tf.float32)
    return lambda count: _finish(function(zeros, tf.constant(count)))


def repeated_mesh_sums(
    tensors: Any, axis: str, num_devices: int, num_values: int
) -> Callable[[int], None]:
    """The same over the devices of a mesh's axis; each sum has one addition with it, of which the next one is made.

    Args:
      tensors: see MeshTensors.
      axis, num_devices: over which is summed.
      num_values: of each device.
    """

    def run(values: Any, start: Any, count: Any) -> Any:
        def body(i: Any, total: Any) -> tuple[Any, Any]:
            # No total[tf.newaxis], at which DTensor crashes (TensorFlow 2.21).
            return i + 1, tensors.relayout(tf.reduce_sum(values + total, axis=0), (None,))

        _, total = tf.while_loop(
            lambda i, _: i < count, body, [tf.zeros_like(count), start], parallel_iterations=1
        )
        return total

    function = tf.function(run, autograph=False)
    values = tensors.pack(np.zeros([num_devices, num_values], np.float32), (axis, None))
    start = tensors.pack(np.zeros([num_values], np.float32), (None,))
    return lambda count: _finish(
        tensors.whole(function(values, start, tensors.pack(np.int32(count), ())), (None,))
    )


def _finish(result: Any) -> None:
    """A call of a graph may return before it has ended; its numbers may not."""
    np.asarray(result)

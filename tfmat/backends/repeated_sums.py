"""Sums over the workers by themselves, many in one call of a graph: what an exchange costs when nothing else runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Sums = Callable[[int], None]


def repeated_sums(reduce: Callable[[tf.Tensor], tf.Tensor], num_values: int) -> Sums:
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

"""Many steps in one call of a graph on a mesh: a loop in the graph, with the sums of the steps in one tensor."""

import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfmat.errors import InputError


def steps_a_call() -> int:
    """50, or as TFMAT_MESH_STEPS_A_CALL says; 1 is no loop."""
    text = os.environ.get("TFMAT_MESH_STEPS_A_CALL", "50")
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InputError(f"TFMAT_MESH_STEPS_A_CALL is '{text}'; give a whole number, 1 or more")
    return int(text)


def each_batch_on_mesh(
    step: Callable[[Any, Any, Any, Any], Any], capacity: int, num_sums: int
) -> Callable[..., Any]:
    """`step(data, rows, weights, num_examples) -> sums [num_sums]` for one batch of a block after the other.

    Returns:
      A function of data, indices [capacity, batch], weights (likewise), num_examples [capacity] and the number of steps
      to run, all on the mesh. It returns their sums [capacity, num_sums], 0 for those that are not run.
    """

    def run(data: Any, indices: Any, weights: Any, num_examples: Any, count: Any) -> Any:
        def body(i: Any, sums: Any) -> tuple[Any, Any]:
            row = step(
                data, tf.gather(indices, i), tf.gather(weights, i), tf.gather(num_examples, i)
            )
            # Not `row[tf.newaxis]`, on which TensorFlow 2.21 crashes, see docs/dtensor.md; no TensorArray, for which
            # DTensor has no rule; no plain product, which would make every row NaN as soon as one is.
            here = tf.expand_dims(tf.one_hot(i, capacity, dtype=sums.dtype), 1)
            row = tf.expand_dims(tf.cast(row, sums.dtype), 0)
            return i + 1, sums + tf.math.multiply_no_nan(row, here)

        # One iteration after the other: each reads what the one before has assigned.
        _, sums = tf.while_loop(
            lambda i, _: i < count,
            body,
            [tf.zeros_like(count), tf.zeros([capacity, num_sums], keras.backend.floatx())],
            parallel_iterations=1,
        )
        return sums

    return tf.function(run, autograph=False)

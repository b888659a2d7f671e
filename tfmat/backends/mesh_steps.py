"""Blocks of steps on a mesh: many in one call of a graph, by a loop in the graph, or one call each."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.mesh import Spec
from tfmat.backends.mesh_tensors import MeshTensors, host
from tfmat.errors import InputError

# step(data, rows [batch], weights [batch], num_examples) -> sums [num_sums]
MeshStep = Callable[[Any, Any, Any, Any], Any]

# DTensor makes functions of a loop, and in TensorFlow 2.21 the name that it gives them is taken now and then:
# seen once in some hundred loops. Nothing has run by then.
_NAME_IS_TAKEN = "a different function with the same name already exists"


def steps_a_call() -> int:
    """50, or as TFMAT_MESH_STEPS_A_CALL says; 1 is no loop."""
    text = os.environ.get("TFMAT_MESH_STEPS_A_CALL", "50")
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InputError(f"TFMAT_MESH_STEPS_A_CALL is '{text}'; give a whole number, 1 or more")
    return int(text)


class MeshSteps:
    """Runs the steps of a block one after the other.

    Args:
      steps: by kind.
      tensors: of the mesh.
      batch_spec: layout of one batch's rows.
      num_sums: of a step.
      capacity: most steps of a call; 1 for no loop.
      largest: of all processes' numbers; each calls it at the same place.
    """

    def __init__(
        self,
        steps: Mapping[str, MeshStep],
        tensors: MeshTensors,
        batch_spec: Spec,
        num_sums: int,
        capacity: int,
        largest: Callable[[int], int],
    ):
        self._tensors, self._batch_spec, self._capacity = tensors, batch_spec, capacity
        self._largest = largest
        self._usable: dict[Any, bool] = {}  # which loops TensorFlow took
        self._single = {kind: tf.function(step, autograph=False) for kind, step in steps.items()}
        self._loops = {kind: _each_batch(step, capacity, num_sums) for kind, step in steps.items()}

    def run(
        self,
        kind: str,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> np.ndarray:
        """Does as `Backend.train`, with data on the mesh and a batch that its axis divides."""
        block = indices, weights, num_examples
        # A step without examples would end the loop's block.
        long = min(len(indices), self._capacity) > 1 and num_examples.all()
        loop = long and self._has_loop(kind, data, block)
        return (self._run_loop if loop else self._run_each)(kind, data, *block)

    def _has_loop(self, kind: str, data: Any, block: tuple[np.ndarray, ...]) -> bool:
        """Compiles it by a call of no steps, in which nobody waits for others. Refused on one process, none runs it."""
        key = (kind, block[0].shape[1], *(tuple(each.shape) for each in tf.nest.flatten(data)))
        if key not in self._usable:
            refused = 0
            try:
                host(self._call_loop(kind, data, *(array[:0] for array in block)))
            except tf.errors.InvalidArgumentError as error:
                if _NAME_IS_TAKEN not in str(error):
                    raise
                refused = 1
            self._usable[key] = not self._largest(refused)
        return self._usable[key]

    def _run_each(self, kind: str, data: Any, *block: np.ndarray) -> np.ndarray:
        """One call per step; all are under way before the first result is waited for."""
        pack, spec = self._tensors.pack, self._batch_spec
        calls = [
            self._single[kind](
                data, pack(rows, spec), pack(row_weights, spec), pack(np.asarray(count), ())
            )
            for rows, row_weights, count in zip(*block, strict=True)
        ]
        return np.stack([host(sums) for sums in calls])

    def _run_loop(self, kind: str, data: Any, *block: np.ndarray) -> np.ndarray:
        """Many steps per call; all calls are under way before the first result is waited for."""
        length = self._capacity
        parts = [
            [array[first : first + length] for array in block]
            for first in range(0, len(block[0]), length)
        ]
        calls = [(self._call_loop(kind, data, *part), len(part[0])) for part in parts]
        return np.concatenate([host(sums)[:count] for sums, count in calls])

    def _call_loop(self, kind: str, data: Any, *block: np.ndarray) -> Any:
        """A short block is filled up with steps that are not run, so that one graph does for all."""
        spec = (None, *self._batch_spec)
        indices, weights, num_examples = (
            np.pad(array, [(0, self._capacity - len(array))] + [(0, 0)] * (array.ndim - 1))
            for array in block
        )
        return self._loops[kind](
            data,
            self._tensors.pack(indices, spec),
            self._tensors.pack(weights, spec),
            self._tensors.pack(num_examples, (None,)),
        )


def _each_batch(step: MeshStep, capacity: int, num_sums: int) -> Callable[..., Any]:
    """`step` for one batch of a block after the other.

    Returns:
      A function of data, indices [capacity, batch], weights (likewise) and num_examples [capacity], all on the mesh; 0
      examples end the block. It returns the sums [capacity, num_sums], 0 for the steps that are not run.
    """

    def run(data: Any, indices: Any, weights: Any, num_examples: Any) -> Any:
        # Counted here: DTensor takes small tensors from outside for constants, and compiles anew when they change.
        count = tf.math.count_nonzero(num_examples, dtype=tf.int32)

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

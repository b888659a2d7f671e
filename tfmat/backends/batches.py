"""What the backends share: one batch after the other inside a graph, and arrays as tensors without a copy."""

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.stamps import Stamps
from tfmat.backends.step import Batch


def each_batch(
    step: Callable[[list[Batch]], tf.Tensor],
    num_pieces: Callable[[int], int],
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
) -> tf.Tensor:
    """Runs `step` on one batch after the other, in the graph; what it returns, stacked: [steps, ...]."""
    cuts = _cuts(indices.shape[1], num_pieces)

    def piece(i: tf.Tensor, start: int, stop: int) -> Batch:
        return Batch.gather(data, indices[i, start:stop], weights[i, start:stop], num_examples[i])

    return _each(
        tf.shape(indices)[0],
        lambda i: step([piece(i, *cut) for cut in cuts]),
    )


def each_timed_batch(
    step: Callable[[list[Batch], Stamps], tf.Tensor],
    num_pieces: Callable[[int], int],
    several: bool,
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """As `each_batch`, and float64 [steps, moments], see `StepTimes`; `several` workers sum over each other."""
    cuts = _cuts(indices.shape[1], num_pieces)

    def one(i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        stamps = Stamps(several)
        i = stamps.after(i)
        gathered = [
            Batch.gather(data, indices[i, start:stop], weights[i, start:stop], num_examples[i])
            for start, stop in cuts
        ]
        sums = step(stamps.after(gathered), stamps)
        return sums, stamps.stack()

    return _each(tf.shape(indices)[0], one, (keras.backend.floatx(), "float64"))


def each_batch_in_parts(
    step: Callable[[Callable[[tf.Tensor], Batch]], tf.Tensor],
    num_parts: int,
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
) -> tf.Tensor:
    """As `each_batch`, for batches larger than memory: `step` gets a function that gathers part `j` of the batch.

    The width of the batch must be a multiple of `num_parts`.
    """
    width = indices.shape[1] // num_parts
    indices = tf.reshape(indices, [-1, num_parts, width])
    weights = tf.reshape(weights, [-1, num_parts, width])

    def one(i: tf.Tensor) -> tf.Tensor:
        return step(lambda j: Batch.gather(data, indices[i, j], weights[i, j], num_examples[i]))

    return _each(tf.shape(indices)[0], one)


def _cuts(width: int, num_pieces: Callable[[int], int]) -> list[tuple[int, int]]:
    """(start, stop) of each piece of a batch."""
    count = num_pieces(width)
    return list(itertools.pairwise(width * i // count for i in range(count + 1)))


def _each(num_steps: tf.Tensor, step: Callable[[tf.Tensor], Any], dtypes: Any = None) -> Any:
    """`step(i)` for i = 0, 1, ... one after the other, stacked; a structure where `dtypes` is one."""

    def body(i: tf.Tensor, records: list[tf.TensorArray]) -> tuple[tf.Tensor, list[tf.TensorArray]]:
        values = tf.nest.flatten(step(i))
        return i + 1, [
            record.write(i, tf.cast(value, record.dtype))
            for record, value in zip(records, values, strict=True)
        ]

    dtypes = dtypes or keras.backend.floatx()
    records = [tf.TensorArray(dtype, size=num_steps) for dtype in tf.nest.flatten(dtypes)]
    _, records = tf.while_loop(lambda i, _: i < num_steps, body, [tf.constant(0), records])
    return tf.nest.pack_sequence_as(dtypes, [record.stack() for record in records])


def row_spec(tensor: tf.Tensor) -> tf.TensorSpec:
    """The tensor's type and shape, whatever its number of rows."""
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def share_or_copy(array: Any) -> tf.Tensor:
    """A tensor over the array's own memory where TensorFlow can share it (CPU, aligned), else a copy of it."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable:
        aligned = array.ctypes.data % 64 == 0
        if aligned and array.dtype != np.bool_ and array.size:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)

"""Gradients as one flat buffer for each type of number: one collective instead of one a variable."""

from collections.abc import Callable, Sequence
from typing import Any

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

"""Tensors of any shapes and types through one flat buffer each type, and back; rows of embeddings once each."""

import numpy as np
import tensorflow as tf

from tfmat.backends.base import in_buckets
from tfmat.backends.exchange import reduce_flat, without_repeated_rows


def test_tensors_of_unknown_shape_and_several_types_come_back():
    """Dense layers on sequences give gradients whose shape is not known while the graph is made."""
    calls = []

    def double(flat):
        calls.append(flat.dtype)
        return 2 * flat

    shapes = [(2, 3), (), (4,), (0, 5), (1, 2, 2)]
    dtypes = ["float32", "float16", "float32", "float32", "float16"]
    arrays = [
        np.random.default_rng(i).normal(size=shape).astype(dtype)
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    for known in (True, False):
        calls.clear()
        specs = [tf.TensorSpec(a.shape if known else [None] * a.ndim, a.dtype) for a in arrays]
        function = tf.function(lambda *t: reduce_flat(t, double), input_signature=specs)
        for found, array in zip(function(*arrays), arrays, strict=True):
            np.testing.assert_array_equal(found, 2 * array)
        # One collective a type, in an order that all workers share.
        assert calls == [tf.float32, tf.float16]


def test_buckets_are_filled_from_the_end_and_give_the_same_sums():
    calls = []

    def double(tensors):
        calls.append([tensor.shape[0] for tensor in tensors])
        return [2 * tensor for tensor in tensors]

    tensors = [tf.fill([size], float(size)) for size in (3, 1, 9, 2, 2, 1)]
    for most, expected in (
        (None, [[3, 1, 9, 2, 2, 1]]),
        (1e6, [[1, 2, 2, 9, 1, 3]]),
        (20, [[1, 2, 2], [9], [1, 3]]),  # bytes; nine numbers are more, and go by themselves
        (1, [[1], [2], [2], [9], [1], [3]]),
    ):
        calls.clear()
        found = tf.function(in_buckets(double, most))(tensors)
        assert calls == expected
        for sums, tensor in zip(found, tensors, strict=True):
            np.testing.assert_array_equal(sums, 2 * tensor)


def test_each_row_comes_once_with_its_sum():
    values = np.arange(8, dtype="f").reshape(4, 2)
    rows = tf.IndexedSlices(tf.constant(values), tf.constant([3, 1, 3, 3]), tf.constant([5, 2]))
    found = without_repeated_rows(rows)
    assert found.indices.numpy().tolist() == [3, 1]
    np.testing.assert_array_equal(tf.convert_to_tensor(found), tf.convert_to_tensor(rows))
    dense = tf.ones(3)
    assert without_repeated_rows(dense) is dense and without_repeated_rows(None) is None

"""The arithmetic of PowerSGD: products and bases of matrices with a few rows, fast on processors."""

import math

import numpy as np
import tensorflow as tf

# Up to which Gram-Schmidt takes less time than a QR decomposition.
_MOST_ROWS = 4
# Share of a row that must be left beside the other rows for Gram-Schmidt to be as exact, in units of rounding.
_FEWEST_ROUNDINGS = 10_000


def narrow_product(matrix: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """(M Q)ᵀ [rank, rows] of M [rows, columns] and Q [columns, rank], in pieces, which takes TensorFlow less time."""
    rows, columns = matrix.shape
    pieces = math.gcd(rows, 8)
    product = tf.matmul(
        factor[None],
        tf.reshape(matrix, [pieces, rows // pieces, columns]),
        transpose_a=True,
        transpose_b=True,
    )
    return tf.reshape(tf.transpose(product, [1, 0, 2]), [-1, rows])


def orthonormal_rows(matrix: tf.Tensor) -> tf.Tensor:
    """An orthonormal basis [rows, columns] of the space of a matrix's few rows.

    By Gram-Schmidt, each row twice, which is as good as a QR decomposition where the rows are independent to working
    precision (Giraud et al. 2005, The loss of orthogonality in the Gram-Schmidt orthogonalization process), and takes
    half its time for four of them. Where they are not, or are more than four, a QR decomposition does it.
    """

    def decomposed() -> tf.Tensor:
        return tf.transpose(tf.linalg.qr(tf.transpose(matrix)).q)

    if matrix.shape[0] > _MOST_ROWS:
        return decomposed()
    found: list[tf.Tensor] = []
    shares = []
    for row in tf.split(matrix, matrix.shape[0]):
        rest = row
        for _ in range(2 if found else 0):
            before = tf.concat(found, 0)
            rest -= tf.matmul(tf.matmul(rest, before, transpose_b=True), before)
        square = tf.reduce_sum(rest * rest)
        shares.append(square / tf.reduce_sum(row * row))
        found.append(rest * tf.math.rsqrt(square))
    # No more than rounding may be left of a row. A row of zeroes gives NaN, which is not above the limit, either.
    limit = (_FEWEST_ROUNDINGS * np.finfo(matrix.dtype.as_numpy_dtype).eps) ** 2
    independent = tf.reduce_min(tf.stack(shares)) > limit
    return tf.cond(independent, lambda: tf.concat(found, 0), decomposed)

"""Bases and products of PowerSGD, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends.exchange import orthonormal_rows


def _rows(kind, count, dtype):
    random = np.random.default_rng(0)
    rows = random.normal(size=(count, 1200))
    if kind == "nearly dependent":
        rows[1:] = rows[0] + 1e-3 * rows[1:]
    elif kind == "dependent":
        rows[1] = 2 * rows[0]
    elif kind == "zero":
        rows[-1] = 0
    elif kind == "nothing":
        rows[:] = 0
    elif kind == "small":
        rows *= 1e-15
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3, 4, 5])
@pytest.mark.parametrize(
    "kind", ["independent", "nearly dependent", "dependent", "zero", "nothing", "small"]
)
def test_an_orthonormal_basis(kind, count, dtype):
    if count == 1 and "dependent" in kind:
        return
    rows = _rows(kind, count, dtype)
    basis = orthonormal_rows(tf.constant(rows)).numpy().astype("float64")
    eps = np.finfo(dtype).eps
    assert abs(basis @ basis.T - np.eye(count)).max() < 100 * eps
    # Each row lies in the space of the basis.
    left = rows - (rows.astype("float64") @ basis.T) @ basis
    assert np.linalg.norm(left) <= 100 * eps * np.linalg.norm(rows)


def test_what_is_no_number_stays_none():
    rows = _rows("independent", 4, "float32")
    rows[2, 5] = np.nan
    assert np.isnan(orthonormal_rows(tf.constant(rows)).numpy()).any()

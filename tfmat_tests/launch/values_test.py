"""Values as bytes: what comes is what went, type by type, and nothing else goes."""

import os
import pickle
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tfmat.launch.watchdog import pack, unpack


class Named(NamedTuple):
    number: int


@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, 3, -0.0, 1e-320, float("inf"), "\ud800 ö", [], {}],
        (1, (2.5, [(), (None,)])),
        {"a": {"tuple": [1]}, 3: (4,), ("array", 1): {"array": "no"}, "dict": {"list": [[1]]}},
    ],
)
def test_values_come_as_they_went(value):
    assert repr(unpack(b"".join(pack(value)))) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array(3, np.int64),
        np.zeros((0, 5), np.float32),
        np.array([True, False]),
        np.array(["a", "bc"]),
        np.arange(3).astype(ml_dtypes.bfloat16),
        np.arange(3, dtype=">u2"),
    ],
)
def test_arrays_keep_type_shape_and_numbers(array):
    first, found, last = unpack(b"".join(pack([array.T, (array,), np.float32(0.1)])))
    assert found[0].dtype == array.dtype and found[0].shape == array.shape
    np.testing.assert_array_equal(found[0], array)
    np.testing.assert_array_equal(first, array.T)
    assert type(last) is np.float32 and last == np.float32(0.1)
    if array.ndim:
        assert found[0].flags.writeable


def test_nothing_else_goes():
    assert unpack(b"".join(pack(Named(3)))) == (3,)
    for value in ({1}, object(), np.array([None]), [b"bytes"]):
        with pytest.raises(TypeError, match="cannot send a"):
            pack(value)


def test_a_pickle_is_no_value(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "done"),)

    with pytest.raises(UnicodeDecodeError):
        unpack(pickle.dumps(Evil()))
    assert not list(tmp_path.iterdir())

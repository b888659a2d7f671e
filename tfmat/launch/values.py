"""Values as bytes and back, for the connections of a run: JSON's, tuples, NumPy's arrays. None of them holds code."""

import json
import struct
from typing import Any

import numpy as np

_LENGTH = struct.Struct("<Q")  # bytes of the text before the arrays


def pack(value: Any) -> list[bytes | memoryview]:
    """The bytes of a value, in parts; the arrays' are not copied.

    Args:
      value: None, a bool, number or string, an array of numbers or strings, or lists, tuples and dictionaries of such.

    Raises:
      TypeError: it holds something else.
    """
    arrays: list[np.ndarray] = []
    text = json.dumps(_described(value, arrays)).encode()
    return [
        _LENGTH.pack(len(text)) + text,
        *(array.reshape(-1).view(np.uint8).data for array in arrays),
    ]


def unpack(data: bytes) -> Any:
    """The value; a named tuple is a plain one."""
    (length,) = _LENGTH.unpack_from(data)
    place = _LENGTH.size + length

    def restored(value: Any) -> Any:
        nonlocal place
        match value:
            case list():
                return [restored(each) for each in value]
            case {"tuple": each}:
                return tuple(restored(each))
            case {"dict": pairs}:
                return dict(map(tuple, restored(pairs)))
            case {"array": [type_name, shape]}:
                numbers = np.empty(shape, type_name)
                numbers.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                    data, np.uint8, numbers.nbytes, place
                )
                place += numbers.nbytes
                return numbers[()]  # an array of no axis is a number
        return value

    return restored(json.loads(data[_LENGTH.size : place]))


def _described(value: Any, arrays: list[np.ndarray]) -> Any:
    """The value in terms of JSON; its arrays are added to the others, in order."""
    match value:
        case np.ndarray() | np.generic() if value.dtype.kind != "O":
            arrays.append(np.ascontiguousarray(value))
            # Types that NumPy does not have itself, such as bfloat16, are known by their names.
            type_name = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
            return {"array": [type_name, value.shape]}
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_described(each, arrays) for each in value]
        case tuple():
            return {"tuple": [_described(each, arrays) for each in value]}
        case dict():
            return {"dict": [[_described(each, arrays) for each in pair] for pair in value.items()]}
    raise TypeError(f"a process of a run cannot send a {type(value).__name__} to another one")

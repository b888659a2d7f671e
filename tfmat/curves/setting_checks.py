"""Checks of single settings of a simulation; what is refused names the flag."""

import math
from typing import Any

from tfmat.errors import InputError


def refused(name: str, value: object, expected: str) -> InputError:
    return InputError(f"--config.{name} is {value!r}; give {expected}")


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def number(name: str, value: Any) -> float:
    try:
        found = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise refused(name, value, "a number")
    return found


def not_negative(name: str, value: Any) -> float:
    found = number(name, value)
    if found < 0:
        raise refused(name, value, "0 (none) or a positive number")
    return found


def pair(name: str, value: Any) -> tuple[float, float]:
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise refused(name, value, f"two numbers, --config.{name}=LOW,HIGH")
    return number(name, value[0]), number(name, value[1])


def positive_pair(name: str, value: Any, example: str) -> tuple[float, float]:
    low, high = pair(name, value)
    if not 0 < low <= high:
        raise refused(name, value, f"0 < low <= high, e.g. --config.{name}={example}")
    return low, high

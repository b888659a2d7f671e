"""Halving an interval: where Newton's method overflows or is too slow, at parameters far from any material's."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array

# The interval is then 1e-30 of what it was, below rounding wherever the root is not itself that small.
_HALVINGS = 100


def bisected(is_above: Callable[[Array], NDArray[np.bool_]], high: Array) -> Array:
    """The root between 0 and `high` of a rising function, for many points at once.

    Args:
      is_above: [curves, points] -> whether the function is positive there, infinity included.
      high: [curves, points], where it is positive or zero.

    Returns:
      [curves, points].
    """
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = is_above(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)

"""Bins of about as many curves each. NumPy only."""

import itertools

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.law import Array

MOST_BINS = 5


def bins_of(
    quantity: Array, count: int = MOST_BINS
) -> list[tuple[float, float, NDArray[np.bool_]]]:
    """Bins of a quantity: (low, high, which curves), low <= quantity < high, in the last one <= high.

    Quantiles set the limits, so that every bin holds about as many curves. A largest value that many curves share (all
    points of a curve are valid) has a bin of its own, low = high.

    Args:
      quantity: [curves].
      count: bins at the most.
    """
    quantity = np.asarray(quantity, np.float64)
    largest = float(quantity.max())
    at_largest = quantity == largest
    alone = bool(at_largest.mean() > 1.0 / count)
    others = quantity[~at_largest] if alone else quantity
    bins: list[tuple[float, float, NDArray[np.bool_]]] = []
    if len(others):
        edges = np.unique(np.quantile(others, np.linspace(0.0, 1.0, count + 1 - alone)))
        for low, high in itertools.pairwise(edges):
            below = quantity <= high if high == edges[-1] else quantity < high
            inside = (quantity >= low) & below
            if inside.any():  # limits between a few curves may hold none
                bins.append((float(low), float(high), inside))
        if len(edges) == 1:
            bins.append((float(edges[0]), float(edges[0]), quantity == edges[0]))
    if alone:
        bins.append((largest, largest, at_largest))
    return bins

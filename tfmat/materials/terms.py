"""Interchangeable terms: labels that may change places without changing the response. NumPy only.

A term is the columns of its labels, and the first of them tells its place: [[5, 4], [7, 6]] are two.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def orders_of(count: int, terms: Sequence[Sequence[int]]) -> list[NDArray[np.intp]]:
    """Permutations of `count` columns that only change the places of terms; the first changes none."""
    orders = []
    for places in itertools.permutations(terms):
        order = np.arange(count)
        for old, new in zip(terms, places, strict=True):
            order[list(old)] = new
        orders.append(order)
    return orders


def in_falling_order(
    labels: NDArray[np.floating], terms: Sequence[Sequence[int]]
) -> NDArray[np.floating]:
    """Labels [curves, labels] with their terms so placed that the first column falls from term to term."""
    if not terms:
        return labels
    columns = [list(term) for term in terms]
    values = np.asarray(labels)[:, columns]  # [curves, terms, parameters]
    order = np.argsort(-values[:, :, 0], axis=1, kind="stable")
    found = np.array(labels)
    found[:, columns] = np.take_along_axis(values, order[:, :, None], axis=1)
    return found

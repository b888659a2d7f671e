"""Tensors of a few columns, [batch, columns], as lists of columns [batch, 1], which graphs compute with cheaply."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras import ops


def columns_of(values: Any) -> list[Any]:
    """[batch, columns] -> a [batch, 1] of each column."""
    return ops.split(values, values.shape[1], axis=1) if values.shape[1] > 1 else [values]


def joined(z: Sequence[Any], places: Iterable[int]) -> Any:
    """The columns at these places as [batch, places]."""
    chosen = [z[i] for i in places]
    return ops.concatenate(chosen, axis=1) if len(chosen) > 1 else chosen[0]


def flat(z: Sequence[Any], places: Sequence[int]) -> Any:
    """The columns at these places as [batch * places, 1]."""
    together = joined(z, places)
    return ops.reshape(together, (-1, 1)) if len(places) > 1 else together


def spread_out(values: Any, columns: int) -> Any:
    """[batch * columns, 1] -> [batch, columns]."""
    return ops.reshape(values, (-1, columns)) if columns > 1 else values


def put(z: list[Any], places: Sequence[int], values: Any) -> None:
    """Puts values, of the form that `flat` gives, at these places of the list."""
    for i, column in zip(places, columns_of(spread_out(values, len(places))), strict=True):
        z[i] = column


def in_falling_order(values: Any, terms: Sequence[Sequence[int]]) -> Any:
    """[batch, columns] with interchangeable terms so placed that the first column of each falls from term to term."""
    if not terms:
        return values
    z = columns_of(values)
    of_terms = list(zip(*terms, strict=True))
    places = ops.argsort(-joined(z, of_terms[0]), axis=1)
    for columns in of_terms:
        in_order = ops.take_along_axis(joined(z, columns), places, axis=1)
        put(z, columns, ops.reshape(in_order, (-1, 1)))
    return joined(z, range(len(z)))


def rows_below(correlations: Any, num_labels: int) -> Iterator[Any]:
    """The rows below a matrix' diagonal, of 1, 2, ... p - 1 columns, from [batch, p(p - 1)/2]."""
    start = 0
    for length in range(1, num_labels):
        yield correlations[:, start : start + length]
        start += length


def changed_in_turns(num_labels: int) -> Iterator[tuple[int, ...]]:
    """Which labels each coupling changes: half of them, in an order that is riffled once all had their turn."""
    count, order = max(1, num_labels // 2), list(range(num_labels))
    waiting: list[int] = []
    while True:
        while len(waiting) < count:
            waiting += order
            middle = (num_labels + 1) // 2
            halves = itertools.zip_longest(order[:middle], order[middle:])
            order = [label for pair in halves for label in pair if label is not None]
        chosen = list(dict.fromkeys(waiting))[:count]
        for label in chosen:
            waiting.remove(label)
        yield tuple(sorted(chosen))

"""Flow stress beyond yield as a sum of fading memories of the direction of flow, of hardening, and of first yield."""

from typing import Any

import numpy as np
from keras import ops

# Rates per unit of plastic strain, each twice the one before, so that one exponential gives all: of the memories that
# fade (a metal's knee is at the fast end), and of the gain. The slowest, and how many.
_FADING = (2.0, 10)
_GAINING = (0.5, 7)
# Of regressions whose terms are of the order of one for each point: what noise spoils least, and what resolves most.
_RIDGES = (1e-1, 1e-2, 1e-3)
# The first yield stress is in every record, so it is held back less.
_RIDGE_OF_YIELD = 0.1
# Points of one link of a chain; links go side by side.
LINK = 20
_TERMS = _FADING[1] + _GAINING[1] + 1
# How many numbers `spectrum_of` tells.
SPECTRUM_NUMBERS = len(_RIDGES) * (_TERMS + 1) + _TERMS + 1


def before(values: Any, first: float = 0.0) -> Any:
    """The point before each point, and one before the first: [batch, points]."""
    return ops.concatenate([ops.full_like(values[:, :1], first), values[:, :-1]], axis=1)


def terms_of(flow: Any, path: Any, direction: Any) -> Any:
    """What the flow stress is a sum of, for an amount of one each: [batch, terms, points]."""
    left = ops.stack(_powers(path, *_GAINING), axis=1)
    memories = memories_of(flow, direction)
    direction = direction[:, None, :]
    return ops.concatenate([memories, direction - direction * left, direction], axis=1)


def _powers(path: Any, slowest: float, count: int) -> list[Any]:
    """exp(-rate path) of rates that double, each as `path`."""
    powers = [ops.exp(-slowest * path)]
    while len(powers) < count:
        powers.append(ops.square(powers[-1]))
    return powers


def memories_of(flow: Any, direction: Any) -> Any:
    """Fading memories of the direction of flow, [batch, rates, points]: dm = rate (direction - m) dp, from 0.

    Exact for steps of one direction. What a memory lacks jumps where the direction does, and fades. The chain of points
    is cut into links that are computed side by side from 0, and then joined.

    Args:
      flow, direction: [batch, points].
    """
    links = flow.shape[1] // LINK

    def across(values: Any) -> Any:
        """[batch, points] -> [points of a link, links, batch]: operations on long rows are quick."""
        return ops.transpose(ops.reshape(values, (-1, links, LINK)), (2, 1, 0))

    keep = ops.stack(_powers(across(flow), *_FADING), axis=1)
    jumps = across(direction - before(direction))
    lack: Any = 0.0
    kept: Any = 1.0
    lacks, keeps = [], []
    for i in range(LINK):
        lack = (lack + jumps[i]) * keep[i]
        kept = kept * keep[i]
        lacks.append(lack)
        keeps.append(kept)
    start = ops.zeros_like(lack[:, 0])
    starts = []
    for link in range(links):
        starts.append(start)
        start = start * kept[:, link] + lack[:, link]
    start = ops.stack(starts, axis=1)
    lacks = [lack + kept * start for lack, kept in zip(lacks, keeps, strict=True)]
    # The points in their order again.
    whole = ops.transpose(ops.stack(lacks, axis=2), (3, 0, 1, 2))
    return direction[:, None, :] - ops.reshape(whole, (-1, _FADING[1], links * LINK))


def spectrum_of(terms: Any, stress: Any, weight: Any) -> list[Any]:
    """Amounts of the terms in the stress for each ridge, how well each term is seen, and what is left, in [batch, ...].

    Args:
      terms: [batch, terms, points].
      stress, weight: [batch, points].
    """
    count = terms.shape[1]
    rooted = ops.concatenate([terms, stress[:, None, :]], axis=1) * ops.sqrt(weight)[:, None, :]
    moments = ops.matmul(rooted, ops.transpose(rooted, (0, 2, 1)))
    gram, seen, square = moments[:, :-1, :-1], moments[:, :-1, -1:], moments[:, -1, -1:]
    held = np.ones(count)
    held[-1] = _RIDGE_OF_YIELD
    ridges = ops.convert_to_tensor(np.multiply.outer(_RIDGES, np.diag(held)), terms.dtype)
    gram = gram[:, None, :, :]  # not gram[:, None], which ends a process on a mesh
    seen = seen[:, None, :, :] + ops.zeros((len(_RIDGES), 1, 1), terms.dtype)
    amounts = _solved(gram + ridges, seen)
    explained = ops.sum(amounts * (2.0 * seen - ops.matmul(gram, amounts)), axis=2)[:, :, 0]
    points = ops.sum(weight, axis=1, keepdims=True) + 1.0
    left = ops.maximum(square - explained, 0.0) / points
    shown = ops.sum(gram[:, 0] * ops.eye(count, dtype=terms.dtype), axis=2)
    return [
        ops.reshape(ops.arcsinh(60.0 * amounts) / 2.0, (-1, len(_RIDGES) * count)),
        ops.log(shown + 1e-2) / 5.0,
        ops.log(left + 1e-8) / 6.0,
        ops.log(points) / 3.0,
    ]


def _solved(matrices: Any, right: Any) -> Any:
    """Solutions of positive definite systems [batch, ridges, size, size] and [batch, ridges, size, 1], as the latter.

    Records stand last while rows are eliminated, so that every operation goes along long rows: a third of the time that
    it takes with records first, and half that of Keras's own `solve`, for which DTensor has no rule.
    """
    rest = ops.transpose(ops.concatenate([matrices, right], axis=-1), (2, 3, 1, 0))
    rows = []
    for _ in range(matrices.shape[-1]):
        row = rest[:1, 1:] / rest[:1, :1]
        rows.append(row[0])
        rest = rest[1:, 1:] - rest[1:, :1] * row
    solution = rows.pop()
    for row in reversed(rows):
        known = ops.sum(row[:-1] * solution, axis=0, keepdims=True)
        solution = ops.concatenate([row[-1:] - known, solution], axis=0)
    return ops.transpose(solution, (2, 1, 0))[..., None]

"""Directions in the space of weights, as long in each filter as the filter itself.

Li, Xu, Taylor, Studer and Goldstein 2018, Visualizing the loss landscape of neural nets, arXiv:1712.09913, section 4. A
ReLU network computes the same when one layer's filters are doubled and the next one's are halved, so that a step of a
given length means nothing in itself; filter by filter relative to the weights it does.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Weights = list[NDArray]


def filters(array: NDArray) -> NDArray:
    """[inputs, filters]: what feeds one output channel of a kernel [..., outputs] is a column."""
    return array.reshape(-1, array.shape[-1])


def filter_normalised(direction: Sequence[NDArray], weights: Sequence[NDArray]) -> Weights:
    """The direction with each filter as long as that of the weights.

    A filter is what feeds one output: of a convolution's kernel [points, channels, filters] and of a dense layer's
    [inputs, units] a slice along the last axis. Biases, and scales and shifts of normalisation layers, which have one
    axis, do not move (zero), as in the authors' figures.

    Args:
      direction: arrays of the shapes of `weights`.
      weights: of the network.
    """
    found = []
    for d, w in zip(direction, weights, strict=True):
        if w.ndim < 2:
            found.append(np.zeros_like(d))
            continue
        length = np.linalg.norm(filters(d), axis=0)
        scale = np.linalg.norm(filters(w), axis=0) / np.where(length > 0, length, 1.0)
        found.append(d * scale.astype(d.dtype))
    return found


def random_directions(weights: Sequence[NDArray], seed: int) -> Iterator[Weights]:
    """Filter-normalised Gaussian directions one after the other, each orthogonal in every filter to those before.

    A filter of one number has no second direction: it stands still there.

    Args:
      weights: of the network.
      seed: of the draw.
    """
    random = np.random.default_rng(seed)
    before: list[Weights] = []
    while True:
        drawn = [random.standard_normal(w.shape) for w in weights]
        direction = filter_normalised(orthogonal(drawn, before), weights)
        before.append(direction)
        yield [d.astype(w.dtype) for d, w in zip(direction, weights, strict=True)]


def orthogonal(direction: Sequence[NDArray], others: Sequence[Sequence[NDArray]]) -> Weights:
    """The direction without its parts along `others`, which are orthogonal among themselves, filter by filter."""
    found = []
    for i, d in enumerate(direction):
        if d.ndim >= 2:
            columns = filters(d).astype(np.float64)
            length = np.linalg.norm(columns, axis=0)
            for other in others:
                along = filters(np.asarray(other[i], np.float64))
                square = np.sum(along**2, axis=0)
                share = np.sum(columns * along, axis=0) / np.where(square > 0, square, 1.0)
                columns = columns - along * share
            # What rounding leaves of a filter that lay along the others is no direction.
            rest = np.linalg.norm(columns, axis=0)
            columns = np.where(rest > 1e-6 * length, columns, 0.0)
            d = columns.reshape(d.shape)
        found.append(np.asarray(d))
    return found


def moved(weights: Sequence[NDArray], *steps: tuple[float, Sequence[NDArray]]) -> Weights:
    """The weights plus each direction times its number."""
    found = [np.array(w) for w in weights]
    for size, direction in steps:
        for w, d in zip(found, direction, strict=True):
            w += w.dtype.type(size) * d
    return found

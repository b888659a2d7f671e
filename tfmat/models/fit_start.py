"""Where the search for a record's fit begins: a regression of labels, by NumPy alone."""

import math

import numpy as np

from tfmat.materials.law import Array

# Groups of a record's points, random hidden units, ridge.
_GROUPS, _UNITS, _RIDGE = 48, 256, 1e-4
_TINY = 1e-9


def inputs_of_start(records: np.ndarray, spectra: np.ndarray) -> Array:
    """What the regression sees of records [n, points, channels] and their spectra [n, numbers]: [n, inputs].

    Group means, extents, spectra, and random functions of these.
    """
    described = np.concatenate([_described(records), spectra], axis=1)
    random = np.random.RandomState(0)  # the one generator that is the same in every version
    kernel = random.standard_normal((described.shape[1], _UNITS)) / math.sqrt(described.shape[1])
    hidden = np.tanh(described @ kernel + random.standard_normal(_UNITS))
    return np.concatenate([described, hidden, np.ones((len(records), 1))], axis=1)


def ridge(inputs: Array, labels: Array) -> Array:
    """The regression of labels [n, p] on inputs [n, k]: [k, p]."""
    square = inputs.T @ inputs
    square[np.diag_indices(len(square))] += _RIDGE * len(inputs)
    return np.linalg.solve(square, inputs.T @ labels)


def _described(records: np.ndarray) -> Array:
    """Means of groups of neighbouring points of each channel, extents and steepest slopes: [n, inputs], of order 1."""
    there = 1.0 - records[:, :, 2:3]
    values = np.asarray(records, np.float64) * there
    values[:, :, 2] = records[:, :, 2]
    extents = np.abs(values).max(axis=1) + _TINY
    shown = values / extents[:, None, :]
    count, points, channels = records.shape
    groups = min(_GROUPS, points)
    ends = np.arange(groups + 1) * points // groups
    means = np.add.reduceat(shown, ends[:-1], axis=1) / np.diff(ends)[None, :, None]
    steps = np.abs(np.diff(shown[:, :, :2], axis=1))
    slopes = np.sort(steps[:, :, 1] / (steps[:, :, 0] + 3e-3), axis=1)
    steepest = slopes[:, [-1 - min(place, points - 2) for place in (0, 4, 14, 39)]]
    logs = np.log(np.concatenate([steepest + 1e-2, extents], axis=1)) / 3.0
    return np.concatenate([means.reshape(count, groups * channels), logs], axis=1)

"""The maximum load of a tension test: engineering stress, its smoothing, and upper yield points that are no maximum."""

import numpy as np

from tfmat.materials.law import Array

# An upper yield point: the load falls by a share of it within this strain, and stays there for as much again.
_LATEST_YIELD, _YIELD_DROP, _LEAST_YIELD_DROP, _DEEPEST_YIELD_DROP = 0.03, 0.005, 0.02, 0.35
LARGEST_TRUE_STRAIN, _SMALLEST_STRETCH = 100.0, 1e-3


def engineering_stress(strain: Array, stress: Array, measures: tuple[str, str]) -> Array:
    """Load over the first cross-section, [points], of a curve in these measures, at constant volume."""
    if measures[1] == "engineering":
        return stress
    return stress / stretch_of(strain, measures[0])


def stretch_of(strain: Array, measure: str) -> Array:
    """Length over first length, [points]; within what is finite, for strains in another unit than they seem to be."""
    if measure == "true":
        return np.exp(np.clip(strain, -LARGEST_TRUE_STRAIN, LARGEST_TRUE_STRAIN))
    return np.maximum(1.0 + strain, _SMALLEST_STRETCH)


def index_of_maximum_load(strain: Array, load: Array, smooth: Array) -> int:
    """The point of maximum load; an upper yield point, from which the load falls to a plateau, is none (ISO 6892-1).

    Args:
      strain, load: [points], in the order in which they were measured; smooth: the load without its noise, [points].
    """
    top = int(load.argmax())
    end = strain[top] + _YIELD_DROP
    later = np.flatnonzero((strain > end) & (np.arange(len(strain)) > top))
    if strain[top] > _LATEST_YIELD or not len(later):
        return int(smooth.argmax())
    plateau = load[later[strain[later] < end + _YIELD_DROP]]
    fall = load[top] - plateau[0] if len(plateau) else 0.0
    drops = _LEAST_YIELD_DROP * load[top] < fall < _DEEPEST_YIELD_DROP * load[top]
    if drops and np.abs(plateau - plateau[0]).max() < 0.25 * fall:
        return int(later[smooth[later].argmax()])
    return int(smooth.argmax())


def running_mean(values: Array) -> Array:
    """Running means over a hundredth of the points, [points]; the ends as they are."""
    half = len(values) // 200
    if not half:
        return values
    smooth = values.copy()
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * half + 1)
    smooth[half : len(values) - half] = windows.mean(axis=1)
    return smooth

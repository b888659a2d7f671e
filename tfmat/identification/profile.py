"""Which ends of the parameters' ranges a curve does not rule out, by the profile of its sum of squares. NumPy only.

D. M. Bates, D. G. Watts, Nonlinear Regression Analysis and Its Applications (1988), section 6.1.
"""

import numpy as np
from numpy.typing import NDArray

from tfmat.identification.levenberg_marquardt import Minimum, Residuals, minimise
from tfmat.materials.law import Array

# Below this half-width (on the scale of the labels) a law is as good as linear over the interval.
_WIDE = 0.05
_ITERATIONS, _TOLERANCE = 20, 1e-4


def ends_not_ruled_out(
    residuals: Residuals, found: Minimum, half: Array, rise: Array
) -> NDArray[np.bool_]:
    """Whether 0 and 1 fit nearly as well as the best label, the other labels fitted anew: [curves, p, 2].

    Args:
      found: the fit.
      half: half-width of the intervals that the slope at the fit gives, [curves, p]; narrow ones are taken as they are.
      rise: the sum of squares may rise by this much, [curves, p].
    """
    possible = np.zeros((*half.shape, 2), np.bool_)
    for column in range(half.shape[1]):
        rows = np.flatnonzero(half[:, column] > _WIDE)
        if not len(rows):
            continue
        part, labels, cost = residuals.rows(rows), found.labels[rows], found.cost[rows]
        held = np.zeros(labels.shape, np.bool_)
        held[:, column] = True
        for end in (0, 1):
            labels[:, column] = end
            at_end = minimise(part, labels, _ITERATIONS, _TOLERANCE, held).cost
            possible[rows, column, end] = 2.0 * (at_end - cost) <= rise[rows, column]
    return possible

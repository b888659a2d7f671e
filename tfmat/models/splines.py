"""Monotonic rational-quadratic splines and their inverses, as few operations of a graph as will do.

J. A. Gregory, R. Delbourgo, Piecewise rational quadratic interpolation to monotonic data, IMA J. Numerical Analysis 2
(1982) 123-130; as layers of a flow, and the inverse: C. Durkan, A. Bekasov, I. Murray, G. Papamakarios, Neural spline
flows, NeurIPS 2019, arXiv:1906.04032.
"""

import math
from typing import Any

import numpy as np
from keras import ops

# The splines bend between these ends, where z is nearly always, and change nothing beyond.
_END = 4.0
# Of a bin's width and height as shares of all bins', and of the slopes: what keeps a spline invertible in float32.
_LEAST_SHARE, _LEAST_SLOPE = 1e-3, 1e-3


class RationalQuadraticSpline:
    """Monotonic functions of z between -4 and 4 by their knots; beyond z stays as it is.

    Args:
      bins: between knots.

    Attributes:
      columns: numbers that a spline is made of: a share of the width and of the height for each bin, and the slopes at
        the knots between them.
    """

    def __init__(self, bins: int):
        self.columns = 3 * bins - 1
        self._bins = bins
        # Sizes [bins] of widths or heights -> where each bin begins.
        self._before = np.triu(np.ones((bins, bins)), 1)
        # softplus of this is a slope of 1.
        self.straight = math.log(math.expm1(1.0 - _LEAST_SLOPE))

    def table(self, shares: Any, slopes: Any) -> Any:
        """What each bin is, from raw numbers [2 * splines, bins] and [splines, bins - 1].

        Returns:
          [splines, 7, bins]: beginning and width, in z and in value; slope at the beginning, how much more it is at
          the end, and the sum of both.
        """
        least = 2.0 * _END * _LEAST_SHARE
        sizes = least + (2.0 * _END - self._bins * least) * ops.softmax(shares)
        begins = ops.matmul(sizes, ops.cast(self._before, sizes.dtype)) - _END
        lengths = ops.reshape(ops.stack([begins, sizes], axis=1), (-1, 4, self._bins))
        slopes = _LEAST_SLOPE + ops.softplus(slopes)
        outside = ops.ones_like(slopes[:, :1])
        first = ops.concatenate([outside, slopes], axis=1)
        last = ops.concatenate([slopes, outside], axis=1)
        bends = ops.stack([first, last - first, first + last], axis=1)
        return ops.concatenate([lengths, bends], axis=1)

    def __call__(self, z: Any, table: Any) -> tuple[Any, Any]:
        """The splines' values at z [splines, 1], and the logarithms of their slopes: [splines, 1] each."""
        inside = ops.clip(z, -_END, _END)
        left, width, low, height, slope, rise, both = self._bin(inside, table, 0)
        per_width = ops.reciprocal(width)
        mean_slope, t = height * per_width, (inside - left) * per_width
        rest = 1.0 - t
        excess = (both - 2.0 * mean_slope) * (t * rest)
        share = mean_slope * ops.reciprocal(mean_slope + excess)
        value = low + (width * share) * (t * (mean_slope * t + slope * rest))
        log_slope = ops.log((slope + rise * t - excess) * ops.square(share))
        return ops.where(ops.equal(z, inside), value, z), log_slope

    def inverse(self, values: Any, table: Any) -> tuple[Any, Any]:
        """Where the splines have these values [splines, 1], and the logarithms of their slopes there."""
        inside = ops.clip(values, -_END, _END)
        left, width, low, height, slope, rise, both = self._bin(inside, table, 2)
        mean_slope = height / width
        above, excess = inside - low, both - 2.0 * mean_slope
        # The root of a t² + b t + c in the form that loses no digits; see Durkan et al., appendix A.3.
        a = height * (mean_slope - slope) + above * excess
        b = height * slope - above * excess
        c = -mean_slope * above
        root = ops.sqrt(ops.maximum(ops.square(b) - 4.0 * a * c, 0.0))
        t = 2.0 * c / (-b - root)
        excess = excess * (t * (1.0 - t))
        share = mean_slope / (mean_slope + excess)
        log_slope = ops.log((slope + rise * t - excess) * ops.square(share))
        at = left + t * width
        return ops.where(ops.equal(values, inside), at, values), log_slope

    def _bin(self, inside: Any, table: Any, row: int) -> list[Any]:
        """The rows of the table, [splines, 1] each, for the bin that each number [splines, 1] is in by that row."""
        above = ops.cast(inside >= table[:, row, :], table.dtype)
        # 1 up to the bin and 0 beyond -> 1 in the bin alone.
        chosen = above - ops.pad(above[:, 1:], ((0, 0), (0, 1)))
        ends = ops.sum(table * chosen[:, None, :], axis=2)
        return ops.split(ends, 7, axis=1)

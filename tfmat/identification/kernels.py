"""Mixtures of Student's t kernels that follow the curvature of a likelihood, for importance sampling. NumPy only."""

import numpy as np
import scipy.special
from numpy.typing import NDArray

from tfmat.materials.law import Array

# Heavier tails than a posterior has inside the bounds of its prior, so that weights stay bounded.
_FREEDOM = 5.0
# Precision (of labels) that is added to the curvature: the prior's own, and two that make shorter kernels, since a
# ridge bends away from a long straight one. In standard deviations: 0.29, 0.08, 0.02.
_PRECISIONS = np.array([12.0, 150.0, 2000.0])
_WIDENING = 1.2
# Share of a centre's draws that the longest kernels get, where there are such.
_WIDE_SHARE = 0.15


class Kernels:
    """A mixture: at each centre a kernel of each width.

    Attributes:
      centres: [k, q].
    """

    def __init__(
        self,
        centres: Array,
        curvature: Array,
        shares: Array,
        orders: list[NDArray[np.intp]],
        wide: float | None = None,
    ):
        """Takes the likelihood's curvature at the centres, [k, q, q].

        Args:
          shares: of the draws that each centre gets, [k]; their sum is 1.
          orders: permutations of the columns that change nothing: draws are sorted, which folds the density.
          wide: a fourth kernel at each centre is so many times as long as the curvature says, for tails that it does
            not know of; None leaves it out.
        """
        self.centres, self._orders = centres, orders
        eigenvalues, vectors = np.linalg.eigh(0.5 * (curvature + np.swapaxes(curvature, 1, 2)))
        known = np.maximum(eigenvalues, 0.0)[:, None]
        inverse_std = np.sqrt(known + _PRECISIONS[:, None]) / _WIDENING
        if wide is not None:
            longer = np.sqrt(known / wide**2 + _PRECISIONS[0] / _WIDENING**2)
            inverse_std = np.concatenate([inverse_std, longer], axis=1)
        self._widths = inverse_std.shape[1]
        of_widths = np.full(self._widths, 1.0 / self._widths)
        if wide is not None:
            of_widths[:] = (1.0 - _WIDE_SHARE) / (self._widths - 1)
            of_widths[-1] = _WIDE_SHARE
        self._shares = np.outer(shares, of_widths).reshape(-1)
        # [k, widths, q, q]: a draw is centre + root @ t, and whitened = inverse_root @ (draw - centre).
        self._roots = vectors[:, None] / inverse_std[:, :, None, :]
        self._inverse_roots = inverse_std[:, :, :, None] * np.swapaxes(vectors, 1, 2)[:, None]
        self._log_determinant = np.log(inverse_std).sum(axis=2)

    def draw(self, count: int, generator: np.random.Generator) -> Array:
        """[count, q], not sorted, and not cut to 0-1."""
        widths, labels = self._widths, self.centres.shape[1]
        sums = np.cumsum(self._shares)
        places = (np.arange(count) + generator.random(count)) / count
        kernel = np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)
        at, width = np.divmod(kernel, widths)
        spread = np.sqrt(_FREEDOM / generator.chisquare(_FREEDOM, (count, 1)))
        whitened = generator.standard_normal((count, labels)) * spread
        return self.centres[at] + (self._roots[at, width] @ whitened[:, :, None])[:, :, 0]

    def log_density(self, points: Array) -> Array:
        """Logarithm of the density of sorted points [n, q]: [n]."""
        return self._mixed(self._heights(points))

    def log_density_and_nearest(self, points: Array) -> tuple[Array, NDArray[np.intp], Array]:
        """The log density, and of each point the centre whose own kernels are the highest there, and how high they are.

        Returns:
          [n], [n] and the height's logarithm, [n].
        """
        count, widths = len(self.centres), self._widths
        heights = self._heights(points)
        own = heights[0].reshape(len(points), count, widths)
        # Width by width: NumPy is slow along a short last axis.
        highest = np.maximum.reduce([own[:, :, i] for i in range(widths)])
        nearest = highest.argmax(axis=1)
        height = highest[np.arange(len(points)), nearest]
        return self._mixed(heights), nearest, height

    def _heights(self, points: Array) -> list[Array]:
        """Logarithms of all kernels' densities, up to a constant, for each order of columns: [n, centres * widths]."""
        count, labels = self.centres.shape
        widths = self._widths
        heights = []
        for order in self._orders:
            # Label by label: sums along a short last axis would take most of the time.
            squares = np.zeros((len(points), count * widths))
            for i in range(labels):
                rows = self._inverse_roots[:, :, i].reshape(count * widths, labels)
                offset = np.einsum("kwj,kj->kw", self._inverse_roots[:, :, i], self.centres)
                whitened = points[:, order] @ rows.T
                whitened -= offset.reshape(-1)
                squares += np.square(whitened, out=whitened)
            squares /= _FREEDOM
            height = np.log1p(squares, out=squares)
            height *= -0.5 * (_FREEDOM + labels)
            height += self._log_determinant.reshape(-1)
            heights.append(height)
        return heights

    def _mixed(self, heights: list[Array]) -> Array:
        """Logarithm of the mixture's density, [n]; overwrites the heights."""
        labels = self.centres.shape[1]
        largest = np.max([height.max(axis=1) for height in heights], axis=0)
        total = np.zeros(len(largest))
        for height in heights:
            height -= largest[:, None]
            total += np.exp(height, out=height) @ self._shares
        constant = (
            scipy.special.gammaln(0.5 * (_FREEDOM + labels))
            - scipy.special.gammaln(0.5 * _FREEDOM)
            - 0.5 * labels * np.log(_FREEDOM * np.pi)
        )
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(total) + largest + constant)

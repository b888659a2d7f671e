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
        self.centres, self._shares, self._orders = centres, shares, orders
        eigenvalues, vectors = np.linalg.eigh(0.5 * (curvature + np.swapaxes(curvature, 1, 2)))
        known = np.maximum(eigenvalues, 0.0)[:, None]
        inverse_std = np.sqrt(known + _PRECISIONS[:, None]) / _WIDENING
        if wide is not None:
            longer = np.sqrt(known / wide**2 + _PRECISIONS[0] / _WIDENING**2)
            inverse_std = np.concatenate([inverse_std, longer], axis=1)
        self._widths = inverse_std.shape[1]
        # [k, widths, q, q]: a draw is centre + root @ t, and whitened = inverse_root @ (draw - centre).
        self._roots = vectors[:, None] / inverse_std[:, :, None, :]
        self._inverse_roots = inverse_std[:, :, :, None] * np.swapaxes(vectors, 1, 2)[:, None]
        self._log_determinant = np.log(inverse_std).sum(axis=2)

    def draw(self, count: int, generator: np.random.Generator) -> Array:
        """[count, q], not sorted, and not cut to 0-1."""
        widths, labels = self._widths, self.centres.shape[1]
        sums = np.cumsum(np.repeat(self._shares, widths) / widths)
        places = (np.arange(count) + generator.random(count)) / count
        kernel = np.minimum(np.searchsorted(sums, places * sums[-1]), len(sums) - 1)
        at, width = np.divmod(kernel, widths)
        spread = np.sqrt(_FREEDOM / generator.chisquare(_FREEDOM, (count, 1)))
        whitened = generator.standard_normal((count, labels)) * spread
        return self.centres[at] + (self._roots[at, width] @ whitened[:, :, None])[:, :, 0]

    def log_density(self, points: Array) -> tuple[Array, tuple[NDArray[np.intp], Array]]:
        """Logarithm of the density of sorted points [n, q].

        Returns:
          [n]; and for each point the centre whose own kernels are the highest there, [n], and their height's logarithm.
        """
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
        own = heights[0].reshape(len(points), count, widths).max(axis=2)
        nearest = own.argmax(axis=1)
        nearest_height = own[np.arange(len(points)), nearest]
        shares = np.repeat(self._shares / widths, widths)
        largest = np.max([height.max(axis=1) for height in heights], axis=0)
        total = np.zeros(len(points))
        for height in heights:
            height -= largest[:, None]
            total += np.exp(height, out=height) @ shares
        constant = (
            scipy.special.gammaln(0.5 * (_FREEDOM + labels))
            - scipy.special.gammaln(0.5 * _FREEDOM)
            - 0.5 * labels * np.log(_FREEDOM * np.pi)
        )
        with np.errstate(divide="ignore"):
            mixed = np.log(total) + largest + constant
        return mixed, (nearest, nearest_height)

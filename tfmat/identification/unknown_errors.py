"""The errors of a measured test of which nobody told the size, integrated over. NumPy only.

Residuals are the errors' sum: noise, alone or with a part that is alike along the test, rough or smooth, which stands
for a law that does not quite follow the material (M. C. Kennedy, A. O'Hagan, Bayesian calibration of computer models,
J. Royal Statistical Society B 63 (2001) 425-464); and zeroes and a strain that are off, which move the response in
shapes that the law knows. Noise alone is as likely, before the test, as all correlations of `correlated_errors`
together; the variance has the conjugate prior (inverse gamma, two degrees of freedom) at the noise that the points
show. The variance and what is off are integrated over in closed form, the correlations one by one.

Where a law misses a knee, or a specimen slips, errors are larger than elsewhere by factors. Stretches that stand out
against all others are searched at the best fit, the worst first, and their errors are taken to be larger by what they
show, so that they tell the less of the parameters (iterated reweighting: R. J. Carroll, D. Ruppert, Transformation and
weighting in regression, 1988).
"""

import dataclasses
import functools
import itertools

import numpy as np
import scipy.special

from tfmat.identification.correlated_errors import correlations
from tfmat.materials.law import Array

# Neighbours are averaged into one of these numbers of groups; correlations are worked out once for each.
_GROUPS = (10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200)
# Probability of independent errors, and degrees of freedom of the prior of the variance.
_INDEPENDENT, _FREEDOM = 0.5, 2.0
# Correlations that are less likely than the best by a factor exp(-_WORTH) are left out, and so are all after so many.
_WORTH, _MOST_KEPT = 8.0, 40
# Stretches whose errors are larger than the others', at most, and how seldom equal errors make one that stands out so.
_MOST_LARGER, _SELDOM = 8, 1e-3
# Stretches of a test whose errors are compared with each other, and the degrees of freedom that the noise between
# neighbours, by their second differences, has of each point.
_STRETCHES, _FREE_OF_NOISE = 10, 1.0 / 3.0


@dataclasses.dataclass(frozen=True)
class _Kept:
    """One correlation that the residuals of a test allow, n groups and e effects.

    Attributes:
      vectors: [n, n], see `Correlation`; variances: [n]; shapes: effects over variances in their frame, [n, e].
      taken: covariance of what is off given the residuals, over the errors' variance, [e, e].
      logarithm: of its prior probability over the root of its determinant.
    """

    vectors: Array
    variances: Array
    shapes: Array
    taken: Array
    logarithm: float

    def independent(self, turned: Array) -> Array:
        """Residuals [k, n] as independent numbers of one size: those in its frame are `turned`."""
        roots = np.sqrt(self.variances)
        off = turned @ self.shapes @ self.taken
        left = turned / roots - off @ (self.shapes * roots[:, None]).T
        # The symmetric root of the covariance, so that errors keep their places.
        return np.asarray(left @ self.vectors.T)


@dataclasses.dataclass(frozen=True)
class _Frame:
    """The m correlations of one length, which share their vectors and are likely together.

    Attributes:
      rows: their places among all that are kept; vectors: [n, n].
      inverses: of the variances, [m, n]; shapes: [n, m e]; taken: [m, e, e]; see `_Kept`.
    """

    rows: list[int]
    vectors: Array
    inverses: Array
    shapes: Array
    taken: Array

    @classmethod
    def of(cls, kept: list[_Kept], rows: list[int]) -> "_Frame":
        few = [kept[i] for i in rows]
        inverses = 1.0 / np.stack([one.variances for one in few])
        shapes = np.concatenate([one.shapes for one in few], axis=1)
        return cls(rows, few[0].vectors, inverses, shapes, np.stack([one.taken for one in few]))


class UnknownErrors:
    """The density of one test's residuals.

    Attributes:
      groups: that its points are averaged into, [groups], where each begins.
      scale: what the errors of each group are larger by, [groups], 1 where none stand out.
    """

    def __init__(
        self, residuals: Array, effects: Array, noise: float, noisier: Array | None = None
    ):
        """Takes what is known before any parameters are.

        Args:
          residuals: of the best fit, [points], in the order of the test.
          effects: what the response changes by where a zero or the strain is off by a standard deviation, [points, e].
          noise: standard deviation that the points show, in their unit; positive.
          noisier: by what factors the noise of single points is larger, [points]; None where it is even.
        """
        count = max([groups for groups in _GROUPS if groups <= len(residuals)], default=0)
        count = count or len(residuals)
        self.groups = np.arange(count) * len(residuals) // count
        self._sizes = np.diff([*self.groups, len(residuals)])
        self._prior = _FREEDOM * noise**2 * count / len(residuals)
        self._noise = noise
        self._freedom = count + _FREEDOM
        self.effects = self.averaged(effects.T).T
        self._best = self.averaged(residuals[None])
        self._noisier = np.ones(count)
        if noisier is not None:
            self._noisier = np.sqrt(self.averaged(noisier[None] ** 2)[0])
        self.scale = self._noisier.copy()
        self._keep_likely()
        for _ in range(_MOST_LARGER):
            stretch, factor = self._standing_out()
            if factor <= 1.0:
                break
            self.scale[stretch] *= factor
            self._keep_likely()

    def averaged(self, values: Array) -> Array:
        """Means of the groups: [..., points] -> [..., groups]."""
        return np.asarray(np.add.reduceat(values, self.groups, axis=-1) / self._sizes)

    def _keep_likely(self) -> None:
        self._kept = self._likely(self._best)
        rows: dict[int, list[int]] = {}
        for i, kept in enumerate(self._kept):
            rows.setdefault(id(kept.vectors), []).append(i)
        self._frames = [_Frame.of(self._kept, some) for some in rows.values()]

    def _likely(self, residuals: Array) -> list[_Kept]:
        """The correlations to integrate over, by the residuals of the best fit [1, groups]."""
        families = correlations(residuals.shape[1])
        others = sum(map(len, families)) - 1
        found = []
        for family in families:
            turned = residuals / self.scale @ family[0].vectors
            effects = family[0].vectors.T @ (self.effects / self.scale[:, None])
            share = _INDEPENDENT if len(family) == 1 else (1.0 - _INDEPENDENT) / others
            variances = np.stack([one.variances for one in family])
            found += self._of_family(family[0].vectors, variances, turned, effects, share)
        found.sort(key=lambda pair: -pair[0])
        worth = [kept for density, kept in found if density >= found[0][0] - _WORTH]
        return worth[:_MOST_KEPT]

    def _of_family(
        self, vectors: Array, variances: Array, turned: Array, effects: Array, share: float
    ) -> list[tuple[float, _Kept]]:
        """Correlations of variances [m, n] in one frame, each after the log density of the residuals [1, n]."""
        shapes = effects / variances[:, :, None]
        known, identity = effects.T @ shapes, np.eye(effects.shape[1])
        whole, off = (1.0 / variances) @ np.square(turned[0]), turned[0] @ shapes
        # What is off is known in the unit of the response, not in that of the errors' size: this is their size at the
        # best fit. What is off may be most of the residuals, so that it is found step by step.
        explained: Array = np.zeros(len(variances))
        for _ in range(4):
            variance = np.maximum((whole - explained) / turned.shape[1], self._prior / _FREEDOM)
            taken = np.linalg.inv(known + variance[:, None, None] * identity)
            explained = np.einsum("mi,mij,mj->m", off, taken, off)
        determinants = np.linalg.slogdet(identity + known / variance[:, None, None])[1]
        logarithms = np.log(share) - 0.5 * (np.log(variances).sum(axis=1) + determinants)
        densities = self._densities(logarithms, whole - explained).tolist()
        rows = zip(variances, shapes, taken, logarithms.tolist(), strict=True)
        return [
            (density, _Kept(vectors, *row)) for density, row in zip(densities, rows, strict=True)
        ]

    def _densities(self, logarithms: Array, squares: Array) -> Array:
        squares = np.maximum(squares, 0.0) + self._prior
        return np.asarray(logarithms - 0.5 * self._freedom * np.log(squares))

    def _of_each(self, residuals: Array) -> tuple[Array, Array]:
        """Log densities under each correlation, and their sums of squares: [kept, k] each, of groups [k, groups]."""
        residuals = residuals / self.scale
        squares = np.empty((len(self._kept), len(residuals)))
        for frame in self._frames:
            turned = residuals @ frame.vectors
            off = turned @ frame.shapes
            off = np.swapaxes(off.reshape(len(off), len(frame.rows), -1), 0, 1)
            explained = ((off @ frame.taken) * off).sum(axis=2)
            squares[frame.rows] = frame.inverses @ np.square(turned).T - explained
        logarithms = np.array([kept.logarithm for kept in self._kept])
        return self._densities(logarithms[:, None], squares), squares

    def log_density(self, residuals: Array) -> Array:
        """Logarithm of the density of residuals [k, groups] up to a constant: [k]."""
        return np.asarray(scipy.special.logsumexp(self._of_each(residuals)[0], axis=0))

    @functools.cached_property
    def precision(self) -> Array:
        """Inverse covariance of the groups' errors, the mean over what the best fit allows: [groups, groups]."""
        densities, squares = self._of_each(self._best)
        shares = np.exp(densities[:, 0] - scipy.special.logsumexp(densities[:, 0]))
        total = np.zeros((len(self.groups), len(self.groups)))
        for kept, share, square in zip(self._kept, shares, squares[:, 0], strict=True):
            inverse = (kept.vectors / kept.variances) @ kept.vectors.T
            turned = kept.vectors @ kept.shapes
            inverse -= turned @ kept.taken @ turned.T
            total += share * self._freedom / (max(square, 0.0) + self._prior) * inverse
        return total / np.outer(self.scale, self.scale)

    def of_points(self, points: int) -> Array:
        """The scale of each point of the test, [points]."""
        return self.scale[np.searchsorted(self.groups, np.arange(points), side="right") - 1]

    def _standing_out(self) -> tuple[slice, float]:
        """The stretch of the best fit's errors that stands out most, and by what factor; 1 where chance would do."""
        densities = self._of_each(self._best)[0]
        kept = self._kept[int(np.argmax(densities[:, 0]))]
        squares = np.square(kept.independent(self._best / self.scale @ kept.vectors))[0]
        count, sums = len(squares), np.concatenate([[0.0], np.cumsum(squares)])
        least, tried, found = 0.0, 0, (slice(0), 1.0)
        for length in (2**i for i in range((count // 2).bit_length())):
            starts = np.arange(0, count - length + 1, max(length // 2, 1))
            inside = sums[starts + length] - sums[starts]
            outside = np.maximum((sums[-1] - inside) / (count - length), 1e-300)
            ratio = inside / length / outside
            with np.errstate(divide="ignore"):
                p = np.log(scipy.special.fdtrc(length, count - length, ratio))
            tried += len(starts)
            i = int(np.argmin(p))
            if p[i] < least:
                stretch = slice(int(starts[i]), int(starts[i]) + length)
                least, found = float(p[i]), (stretch, float(np.sqrt(ratio[i])))
        return found if least + np.log(tried) < np.log(_SELDOM) else (slice(0), 1.0)

    def noise_ratio(self, residuals: Array) -> Array:
        """Mean square of residuals [k, groups] over that of the noise which the points show: [k].

        What is off is taken out. Where the law holds and errors are independent it has Fisher's distribution of
        `noise_freedom`.
        """
        variance = self._noise**2 / self._sizes.mean()
        residuals, effects = residuals / self._noisier, self.effects / self._noisier[:, None]
        taken = np.linalg.inv(effects.T @ effects + variance * np.eye(len(effects.T)))
        off = residuals @ effects
        left = np.square(residuals).sum(axis=1) - np.einsum("ki,ij,kj->k", off, taken, off)
        return np.asarray(left / (variance * len(self.groups)))

    @property
    def noise_freedom(self) -> tuple[float, float]:
        """Degrees of freedom of the numerator and the denominator of `noise_ratio`."""
        return float(len(self.groups)), _FREE_OF_NOISE * float(self._sizes.sum())

    def stretch_p(self, residuals: Array, generator: np.random.Generator) -> Array:
        """How probable errors are that stand out in one stretch of the test as much as these do, [k].

        Correlation and size of the errors are drawn from their posterior, given residuals [k, groups].
        """
        densities, squares = self._of_each(residuals)
        shares = np.exp(densities - scipy.special.logsumexp(densities, axis=0))
        places = generator.random(len(residuals)) > np.cumsum(shares, axis=0)
        chosen = np.minimum(places.sum(axis=0), len(self._kept) - 1)
        found, residuals = np.empty(len(residuals)), residuals / self.scale
        bounds = np.arange(_STRETCHES + 1) * len(self.groups) // _STRETCHES
        for i in np.unique(chosen):
            kept, rows = self._kept[i], np.flatnonzero(chosen == i)
            turned = residuals[rows] @ kept.vectors
            errors = np.square(kept.independent(turned))
            size = (np.maximum(squares[i, rows], 0.0) + self._prior) / generator.chisquare(
                self._freedom, len(rows)
            )
            parts = [
                scipy.special.chdtrc(b - a, errors[:, a:b].sum(axis=1) / size)
                for a, b in itertools.pairwise(bounds)
                if b > a
            ]
            found[rows] = 1.0 - (1.0 - np.min(parts, axis=0)) ** len(parts)
        return found

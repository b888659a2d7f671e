"""How sharp a minimum is: the Hessian's largest eigenvalues and trace, and how far the loss rises nearby."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.large_batch.directions import Weights, filters, moved

# Of a vector [numbers]: the product with the Hessian of the mean loss, and [blocks] the quadratic form of each block.
Product = Callable[[NDArray], tuple[NDArray, NDArray]]

# Of eigenvalues, relative: further digits would be below what another sample of curves changes.
_TOLERANCE = 1e-3
_LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with half the width of its 95 % interval; what else there is to say of its error.

    Attributes:
      value: the number over all blocks.
      error: half the width of the interval that other curves would give, and with it whatever is random.
      residual: of an eigenvalue: the norm |Hv - λv|, within which the sample's Hessian has an eigenvalue.
    """

    value: float
    error: float
    residual: float | None = None

    def to_json(self) -> dict[str, float]:
        """The fields that are known."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


def of_blocks(values: NDArray) -> Estimate:
    """The mean of independent values [blocks], with Student's interval."""
    return Estimate(float(values.mean()), _half_width(values))


def _half_width(values: NDArray) -> float:
    from scipy import stats

    factor = stats.t.ppf(0.5 + _LEVEL / 2, len(values) - 1)
    return float(factor * values.std(ddof=1) / np.sqrt(len(values)))


def largest_eigenvalues(
    product: Product, size: int, count: int, seed: int = 0
) -> tuple[list[Estimate], NDArray, NDArray]:
    """The Hessian's algebraically largest eigenvalues, by the Lanczos method of scipy (ARPACK).

    The interval of an eigenvalue λ = v·Hv is that of the blocks' quadratic forms v·Hv: how λ changes with the sample to
    first order, in which the eigenvector stands still (Magnus 1985).

    Args:
      product: see Product.
      size: numbers of a vector.
      count: of eigenvalues, fewer than `size`.
      seed: of the first vector.

    Returns:
      The eigenvalues, falling; their vectors [numbers, count]; the blocks' quadratic forms [count, blocks].
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    start = np.random.default_rng(seed).standard_normal(size)
    operator = LinearOperator((size, size), matvec=lambda v: product(v.ravel())[0], dtype=float)
    basis = min(size, max(2 * count + 10, 20))
    values, vectors = eigsh(operator, count, which="LA", v0=start, ncv=basis, tol=_TOLERANCE)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    found, forms = [], []
    for vector in vectors.T:
        times, blocks = product(vector)
        value = float(vector @ times)
        found.append(
            Estimate(value, _half_width(blocks), float(np.linalg.norm(times - value * vector)))
        )
        forms.append(blocks)
    return found, vectors, np.array(forms)


def trace(
    product: Product, vectors: NDArray, forms: NDArray, probes: int = 20, seed: int = 0
) -> Estimate:
    """The Hessian's trace: the known eigenvalues, and Hutchinson's estimate of the rest.

    Random signs z give z·Hz, whose expectation is the trace (Hutchinson 1990). Without the known eigenvectors in z the
    estimate varies less, as in Hutch++ (Meyer et al. 2021, arXiv:2010.09649).

    Args:
      product: see Product.
      vectors, forms: as `largest_eigenvalues` returns them; also none, [numbers, 0] and [0, blocks].
      probes: random vectors, 2 or more.
      seed: of the signs.

    Returns:
      With an interval that holds both the choice of the signs and that of the curves.
    """
    random = np.random.default_rng(seed)
    found = []
    for _ in range(probes):
        signs = random.choice([-1.0, 1.0], len(vectors))
        found.append(product(signs - vectors @ (vectors.T @ signs))[1])
    rest = np.array(found)  # [probes, blocks]
    blocks = forms.sum(axis=0) + rest.mean(axis=0)
    error = np.hypot(_half_width(rest.mean(axis=1)), _half_width(blocks))
    return Estimate(float(blocks.mean()), float(error))


def ascent(gradient: NDArray, weights: Sequence[NDArray], rho: float) -> Weights:
    """ρ g / |g|: to first order the loss rises most there within ρ (Foret et al. 2021, arXiv:2010.01412)."""
    length = float(np.linalg.norm(gradient)) or 1.0
    return _as_weights(gradient * (rho / length), weights)


def adaptive_ascent(gradient: NDArray, weights: Sequence[NDArray], rho: float) -> Weights:
    """ρ T²g / |Tg|: the same with distances relative to the weights' own size (Kwon et al. 2021, arXiv:2102.11600).

    T is the norm of a weight's filter, or the absolute value of a bias: scales that leave the network's function as it
    is, such as one layer times two and the next one halved, leave this measure as it is too.
    """
    sizes = np.concatenate([_sizes(w).ravel() for w in weights])
    length = float(np.linalg.norm(sizes * gradient)) or 1.0
    return _as_weights(gradient * sizes**2 * (rho / length), weights)


def _sizes(weight: NDArray) -> NDArray:
    if weight.ndim < 2:
        return np.abs(weight).astype(np.float64)
    norms = np.linalg.norm(filters(weight).astype(np.float64), axis=0)
    return np.broadcast_to(norms, weight.shape)


def _as_weights(flat: NDArray, weights: Sequence[NDArray]) -> Weights:
    places = np.cumsum([w.size for w in weights])[:-1]
    parts = np.split(flat, places)
    return [part.reshape(w.shape) for part, w in zip(parts, weights, strict=True)]


def rise(
    losses: Callable[[Weights], NDArray], weights: Weights, step: Sequence[NDArray]
) -> Estimate:
    """How much the loss rises by a step: the blocks' losses there minus those at the weights."""
    arrays: list[Any] = [np.asarray(s, w.dtype) for s, w in zip(step, weights, strict=True)]
    return of_blocks(losses(moved(weights, (1.0, arrays))) - losses(weights))

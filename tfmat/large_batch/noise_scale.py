"""The simple gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1), from two batch sizes.

The squared norm of a gradient over B examples is |G|² + tr(Σ) / B in expectation. Two sizes give both unknowns without
bias; their ratio B_simple = tr(Σ) / |G|² is about the batch beyond which larger ones save little.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

_RESAMPLES = 2000
_BAND = (5.0, 95.0)  # percentiles


@dataclasses.dataclass(frozen=True)
class NoiseScale:
    """What was found at one set of weights.

    Attributes:
      squared_gradient: |G|², of the loss over all examples.
      variance: tr(Σ), of the gradient of one example.
      value: tr(Σ) / |G|², examples; infinite where |G|² could not be told from 0.
      low, high: a band of 90 % around it, by bootstrap over groups.
      small, big, groups: examples of the two batches, and how many of the big ones there were.
    """

    squared_gradient: float
    variance: float
    value: float
    low: float
    high: float
    small: int
    big: int
    groups: int

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values; None for infinity."""
        content = dataclasses.asdict(self)
        return {k: None if not math.isfinite(v) else v for k, v in content.items()}


def estimate_noise_scale(
    small_squares: Array, big_squares: Array, *, small: int, big: int, seed: int = 0
) -> NoiseScale:
    """The noise scale from squared gradient norms.

    Args:
      small_squares: [groups], mean of |g|² over the batches of `small` examples of each group.
      big_squares: [groups], |g|² over all `big` examples of each group.
      small, big: examples.
      seed: of the bootstrap.
    """
    pairs = np.stack([small_squares, big_squares], axis=1).astype(np.float64)

    def solve(means: Array) -> tuple[Array, Array]:
        squared = (big * means[..., 1] - small * means[..., 0]) / (big - small)
        variance = (means[..., 0] - means[..., 1]) / (1.0 / small - 1.0 / big)
        return squared, variance

    def ratio(squared: Array, variance: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(squared > 0, np.maximum(variance, 0.0) / squared, np.inf)

    squared, variance = solve(pairs.mean(axis=0))
    drawn = np.random.default_rng(seed).integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    low, high = np.percentile(
        ratio(*solve(pairs[drawn].mean(axis=1))), _BAND, method="inverted_cdf"
    )
    return NoiseScale(
        float(squared), float(variance), float(ratio(squared, variance)), float(low), float(high),
        small, big, len(pairs),
    )  # fmt: skip


def measure_squares(
    gradient: Callable[[Any], Sequence[Any]],
    num_examples: int,
    *,
    small: int,
    big: int,
    groups: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Array, Array]:
    """Squared gradient norms of random groups of examples: ([groups], [groups]) for `estimate_noise_scale`.

    Args:
      gradient: int32 rows [small] -> gradients (tensors) of the mean loss over these examples; traced once.
      num_examples: rows are below it; each is drawn at most once as long as that is possible.
      small, big: examples of a small batch and of a group; `big` is a multiple of `small`.
      groups: how many.
      seed: of the draw.
      progress: called with (groups done, groups).
    """
    import tensorflow as tf

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([big // small, small], tf.int32)])
    def squares(rows: Any) -> tuple[Any, Any]:
        def add(i: Any, total: Any, square: Any) -> Any:
            found = gradient(rows[i])
            square += tf.add_n([tf.reduce_sum(g**2) for g in found])
            return i + 1, [a + b for a, b in zip(total, found, strict=True)], square

        first = gradient(rows[0])
        start = tf.add_n([tf.reduce_sum(g**2) for g in first])
        count = rows.shape[0]
        _, total, square = tf.while_loop(
            lambda i, *_: i < count, add, (tf.constant(1), list(first), start)
        )
        return square / count, tf.add_n([tf.reduce_sum((g / count) ** 2) for g in total])

    random = np.random.default_rng(seed)
    needed = groups * big
    rounds = [random.permutation(num_examples) for _ in range(-(-needed // num_examples))]
    rows = np.concatenate(rounds)[:needed].astype(np.int32).reshape(groups, big // small, small)
    found = []
    for i, group in enumerate(rows):
        found.append([float(value) for value in squares(group)])
        if progress:
            progress(i + 1, groups)
    array = np.array(found)
    return array[:, 0], array[:, 1]

"""Noise that is added to the gradients on purpose, and dies away: a pure function of (seed, step)."""

import dataclasses
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class GradientNoise:
    """Gaussian noise of variance η / (1 + t)^γ at step t (Neelakantan et al. 2015, arXiv:1511.06807, eq. 1 and 2).

    The same on every worker, since it is added to the gradient of the global batch, after clipping.

    Attributes:
      variance: η; the paper tries 0.01, 0.3 and 1.
      decay: γ; 0.55 there.
      seed: any integer.
    """

    variance: float
    decay: float = 0.55
    seed: int = 0

    def __call__(self, gradients: list[Any], step: Any) -> list[Any]:
        """The gradients (tensors of any shapes, None where there is none) with the noise of `step` added."""
        step = tf.convert_to_tensor(step)
        return [
            gradient if gradient is None else gradient + self._noise(gradient, i, step)
            for i, gradient in enumerate(gradients)
        ]

    def _noise(self, gradient: Any, index: int, step: tf.Tensor) -> tf.Tensor:
        time = tf.cast(step, gradient.dtype)
        deviation = tf.sqrt(self.variance / (1 + time) ** self.decay)
        seed = tf.stack(
            [tf.constant(self.seed * 65_536 + index, tf.int64), tf.cast(step, tf.int64)]
        )
        return deviation * tf.random.stateless_normal(gradient.shape, seed, dtype=gradient.dtype)

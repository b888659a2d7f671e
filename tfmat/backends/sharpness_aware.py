"""Sharpness-aware minimisation: the training step with the gradient at the worst place nearby."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfmat.backends.batches import Batch
from tfmat.backends.exchange import Reduce
from tfmat.backends.state import Gradients, State
from tfmat.backends.step import Step


class SharpnessAwareStep(Step):
    """Takes the gradient at w + ρ g / |g| and steps from w (SAM; Foret et al. 2021, arXiv:2010.01412, algorithm 1).

    g is the gradient of the global batch at w, summed over the workers too, so that their number changes nothing. Where
    workers take steps by themselves (local steps), it is each one's own, as it is of their gradients. Both passes see
    the same dropout masks. Losses and metrics are those at w, and so are the moving statistics, which move once.
    Regularisers are part of both gradients. A step costs two passes, and two sums over the workers.
    """

    def gradients(self, state: State, pieces: Sequence[Batch], reduce: Reduce) -> Gradients:
        """See Step.gradients."""
        first = super().gradients(state, pieces, reduce)
        there, _, _ = super().gradients(self._ascended(state, first[0], reduce), pieces, reduce)
        return there, *first[1:]

    def gradients_in_parts(
        self, state: State, part: Callable[[tf.Tensor], Batch], num_parts: int, reduce: Reduce
    ) -> Gradients:
        """See Step.gradients_in_parts."""
        first = super().gradients_in_parts(state, part, num_parts, reduce)
        worst = self._ascended(state, first[0], reduce)
        there, _, _ = super().gradients_in_parts(worst, part, num_parts, reduce)
        return there, *first[1:]

    def _ascended(self, state: State, gradients: list[tf.Tensor], reduce: Reduce) -> State:
        """The state with the weights at which the loss is about the largest within ρ."""
        gradients = reduce(gradients)
        length = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients]))
        # A cast would make float32 of Python's number first.
        radius = tf.constant(self._optimizer.sam_rho, length.dtype)
        scale = tf.math.divide_no_nan(radius, length)
        moved = [
            weight + tf.cast(scale, weight.dtype) * gradient
            for weight, gradient in zip(state.weights, gradients, strict=True)
        ]
        return state._replace(weights=moved)


def make_step(model: Any, optimizer: Any, *arguments: Any, **options: Any) -> Step:
    """A Step, sharpness-aware where the optimizer asks for that (see `make_functional`)."""
    kind = SharpnessAwareStep if optimizer.sam_rho else Step
    return kind(model, optimizer, *arguments, **options)

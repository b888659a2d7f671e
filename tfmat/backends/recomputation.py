"""Recomputation: a training step keeps what goes from one segment of a model to the next, and computes the rest twice.

Chen et al. 2016, Training deep nets with sublinear memory cost, arXiv:1604.06174.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.base import Backend
from tfmat.backends.step import Step
from tfmat.errors import InputError
from tfmat.networks.segments import Segment, segments
from tfmat.optimizers import call_layer


class Recomputation:
    """A model that is called as in a training step, and whose gradients compute its segments a second time.

    Where the gradients follow at once, the last part need not be computed again.
    """

    def __init__(self, parts: Sequence[Segment], gradients_follow: bool = True):
        self._parts, self._kept = parts, parts[-1] if gradients_follow else None

    def __call__(
        self,
        weights: Sequence[tf.Tensor],
        non_trainable: Sequence[tf.Tensor],
        features: Any,
        context: Callable[[], AbstractContextManager],
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        """Does as the model's `stateless_call` with training=True and return_losses=True.

        Layers are called within what `context` makes, now and when they are called again.
        """
        state, penalties, value = list(non_trainable), [], features
        for part in self._parts:
            inputs = (
                [weights[i] for i in part.trainable_places],
                [state[i] for i in part.non_trainable_places],
                value,
            )
            if part is self._kept:  # its gradients come first, while everything is still there
                with context():
                    value, new, own = _call(part, *inputs)
            else:
                value, new, own = _computed_again(part, inputs, context)
            penalties += own
            for i, tensor in zip(part.non_trainable_places, new, strict=True):
                state[i] = tensor
        return value, state, penalties


def add_to(step: Step, backend: Backend) -> None:
    """Has the model's segments computed a second time."""
    where = backend.settings.model.recompute
    step.recomputation = recomputation_of(
        step.model, where, step.whole_model, step.gradients_follow
    )


def recomputation_of(
    model: Any, where: str, whole: keras.Model | None = None, gradients_follow: bool = True
) -> Recomputation:
    """The recomputation of a built model that is cut as `where` says, see `tfmat.networks.segments`.

    Of a pipeline stage, a segment of the model `whole`, the last part is computed again, too, or a stage in one piece,
    unless `gradients_follow`: other micro-batches come between a stage's forward and backward pass (Huang et al. 2019,
    arXiv:1811.06965, 2.3).

    Raises:
      InputError: `where` cannot be read, or the model cannot be cut there, or not at all.
    """
    parts = segments(model, where, "recompute", whole)
    if len(parts) == 1 and whole is None:
        raise InputError(
            f"recompute={where} leaves the model in one piece, of which nothing is computed again; give cuts "
            "nearer to each other, such as every:2, or leave it out"
        )
    return Recomputation(parts, gradients_follow)


def _call(part: Segment, weights: Any, state: Any, value: Any) -> Any:
    return call_layer(part, weights, state, value, training=True)


def _computed_again(
    part: Segment, inputs: Any, context: Callable[[], AbstractContextManager]
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
    """Results of `_call`; nothing within is kept for the gradients.

    Seeds and moving statistics come from the first time. The second time starts from the same ones, so that the masks
    of dropout are the same, and its own new ones are dropped.
    """
    flat = tf.nest.flatten(inputs)
    moved: list[tf.Tensor] = []

    def forward(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        with context():
            value, state, penalties = _call(part, *tf.nest.pack_sequence_as(inputs, tensors))
        return [value, *penalties], state

    @tf.custom_gradient
    def run(*tensors: tf.Tensor) -> Any:
        with tf.GradientTape() as tape, tape.stop_recording():
            outputs, state = forward(*tensors)
        moved.extend(state)

        def gradients(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            # Without waiting for what comes from behind, all segments would be computed again at once.
            with tf.control_dependencies(upstream):
                starts = [tf.identity(tensor) for tensor in tensors]
                floats = [start for start in starts if start.dtype.is_floating]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(floats)
                    again, _ = forward(*starts)
                found = iter(tape.gradient(again, floats, output_gradients=list(upstream)))
            return [next(found) if start.dtype.is_floating else None for start in starts]

        return outputs, gradients

    value, *penalties = run(*flat)
    return value, moved, penalties

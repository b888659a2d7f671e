"""Model and optimizer as the step calls them when weights, gradients or slots are divided over the batch axis (ZeRO).

Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, arXiv:1910.02054.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfmat.backends.layout_rules import Spec
from tfmat.backends.layouts import Plan

# A tensor in another layout.
Relayout = Callable[[Any, Spec], Any]


class GatheringModel:
    """The model as Step calls it; weights that are stored in parts (stage 3) are gathered first.

    In stages 1 and 2 it only says so: else the layout of the update would travel back through the model.
    """

    def __init__(self, model: keras.Model, plan: Plan, relayout: Relayout):
        self._model = model
        self._call_has_training_arg = model._call_has_training_arg
        self.trainable_variables = model.trainable_variables
        self.non_trainable_variables = model.non_trainable_variables
        self._relayout = relayout
        self._specs = [layout.compute for layout in plan.layouts] if plan.zero_stage else None

    def _flatten_layers(self) -> Any:
        return self._model._flatten_layers()

    def stateless_call(self, weights: list[Any], *arguments: Any, **options: Any) -> Any:
        """See keras.Model.stateless_call."""
        if self._specs:
            weights = _each(self._relayout, weights, self._specs)
        return self._model.stateless_call(weights, *arguments, **options)


class DividedOptimizer:
    """The optimizer as Step calls it; each device updates the part whose slots it holds."""

    def __init__(self, optimizer: Any, plan: Plan, slots: Sequence[Spec], relayout: Relayout):
        self._optimizer = optimizer
        self._plan = plan
        self._slots = slots
        self._relayout = relayout

    def scale_loss(self, loss: Any) -> Any:
        """See keras.optimizers.Optimizer.scale_loss."""
        return self._optimizer.scale_loss(loss)

    def stateless_apply(
        self, slots: list[Any], gradients: list[Any], weights: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """See keras.optimizers.Optimizer.stateless_apply."""
        if not self._plan.zero_stage:
            return self._optimizer.stateless_apply(slots, gradients, weights)
        layouts = self._plan.layouts
        updates = [layout.slots for layout in layouts]
        if self._plan.zero_stage < 3:  # in stage 3 they come divided, as the weights do
            # Whole first: a divided gradient of a bias would divide the channels of its convolution.
            gradients = _each(self._relayout, gradients, [layout.compute for layout in layouts])
        gradients = _each(self._relayout, gradients, [layout.gradient for layout in layouts])
        gradients = _each(self._relayout, gradients, updates)
        weights = _each(self._relayout, weights, updates)
        weights, slots = self._optimizer.stateless_apply(slots, gradients, weights)
        return (
            _each(self._relayout, weights, [layout.stored for layout in layouts]),
            _each(self._relayout, slots, self._slots),
        )


def _each(relayout: Relayout, tensors: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    return [relayout(tensor, spec) for tensor, spec in zip(tensors, specs, strict=True)]

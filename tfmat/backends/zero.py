"""Weights and optimizer as the step has them when weights, gradients or slots are divided over the batch axis (ZeRO).

Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, arXiv:1910.02054.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tfmat.backends.layouts import Plan
from tfmat.backends.mesh import Spec

# A tensor in another layout.
Relayout = Callable[[Any, Spec], Any]


def gatherer(plan: Plan, relayout: Relayout) -> Callable[[list[Any]], list[Any]]:
    """What makes of the stored weights those that the model computes with; in stage 3 they are stored in parts.

    In stages 1 and 2 it only says so: else the layout of the update would travel back through the model.
    """
    if not plan.zero_stage:
        return list
    specs = [layout.compute for layout in plan.layouts]
    return lambda weights: _each(relayout, weights, specs)


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

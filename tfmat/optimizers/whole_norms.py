"""What optimizers share that look at the norm of whole tensors, layer by layer: exclusions, decay, and who sums a norm.

Norms are of the whole tensor: of all its parts where a mesh or processes divide it. Everything new is computed before
anything is assigned, so that a step is a function (see `make_functional`).
"""

import contextlib
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

import keras
from keras import ops

# Biases and the scale and shift of normalisation layers: their norms say nothing about the size of an update.
BIASES_AND_NORMALIZATION = (r"(^|/)(bias|gamma|beta)$",)


# Yields tensors, is sent the sum of squares of each, and does the update with them.
Update = Generator[list[Any], list[Any], None]


class LayerwiseOptimizer(keras.optimizers.Optimizer):
    """A Keras optimizer whose weight decay is a part of the update that it scales, layer by layer.

    Args:
      learning_rate: global rate, or a schedule.
      weight_decay: of every weight that is not excluded; None: 0.
      exclude: regular expressions over the paths of variables (`dense/bias`): no decay, no layer-wise scaling.
      **kwargs: those of keras.optimizers.Optimizer (`global_clipnorm`, `name`, ...).
    """

    # Slots with the shape of each weight, by name; each becomes the attribute `_NAME`.
    slot_names: tuple[str, ...] = ("momentum",)
    # Arguments of the subclass, which are attributes too.
    arguments: tuple[str, ...] = ()
    # As of functional optimizers (tfmat.optimizers.functional): by which parts of tensors have norms of the whole.
    sum_of_parts: Callable[[Any], Any] | None = None

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        weight_decay: float | None = None,
        exclude: Sequence[str] = BIASES_AND_NORMALIZATION,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, **kwargs)
        self.exclude = tuple(exclude)

    def build(self, variables: list[Any]) -> None:
        """Makes the slots, and finds out which variables are excluded."""
        if self.built:
            return
        super().build(variables)
        # Here, while they are Keras variables: in `fit` an update sees TensorFlow's, which have no path.
        self._is_excluded = [
            any(re.search(pattern, variable.path) for pattern in self.exclude)
            for variable in variables
        ]
        for name in self.slot_names:
            setattr(self, f"_{name}", self.add_optimizer_variables(variables, name))

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        """One update of one variable: yields tensors, is sent each one's sum of squares, and assigns."""
        raise NotImplementedError

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One update of one variable."""
        update = self.update(gradient, variable, learning_rate)
        _finish(update, [_square(tensor) for tensor in next(update)])

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
        if self.sum_of_parts is None:
            return super()._backend_update_step(grads, trainable_variables, learning_rate)
        updates = [
            self.update(gradient, variable, learning_rate)
            for gradient, variable in zip(grads, trainable_variables, strict=True)
        ]
        # All of them in one sum over the workers.
        squares = [[_square(tensor) for tensor in next(update)] for update in updates]
        own = [square for each in squares for square in each]
        whole = iter(ops.unstack(self.sum_of_parts(ops.stack(own))) if own else [])
        for update, each in zip(updates, squares, strict=True):
            _finish(update, [next(whole) for _ in each])
        return None

    def _apply_weight_decay(self, variables: Any) -> None:
        """Nothing: the decay is a part of the update, and Keras would apply it a second time."""

    def _decay(self, variable: Any, excluded: bool) -> Any:
        """Weight decay times the weights; 0 for an excluded variable."""
        if excluded or not self.weight_decay:
            return ops.zeros_like(variable)
        return ops.multiply(ops.convert_to_tensor(variable), self.weight_decay)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        own = {name: getattr(self, name) for name in self.arguments}
        return {**super().get_config(), "exclude": list(self.exclude), **own}


def _square(tensor: Any) -> Any:
    return ops.sum(ops.square(tensor))


def _finish(update: Update, squares: list[Any]) -> None:
    with contextlib.suppress(StopIteration):
        update.send(squares)


def ratio_or_one(numerator: Any, denominator: Any, otherwise: Any = 1.0) -> Any:
    """`numerator / denominator` where both are above 0, else `otherwise`: a layer of zeros has no scale to keep."""
    defined = ops.logical_and(numerator > 0, denominator > 0)
    one = ops.ones_like(denominator)
    return ops.where(defined, numerator / ops.where(defined, denominator, one), otherwise * one)

"""Makes any Keras optimizer a pure function: gradients, slots and weights in, new slots and weights out.

Keras 3 raises from `stateless_apply` on the TensorFlow backend because its TensorFlow class mixes in
tf.distribute. The class below stands just in front of that one and puts Keras's backend-neutral methods back.
"""

import copy as copying
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from tfmat.errors import InputError
from tfmat.optimizers.stateless import Scope


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


class _Functional(TFOptimizer):
    """Keras's backend-neutral methods. Behind an optimizer's own (Nadam overrides some), before TFOptimizer's."""

    gradient_noise: GradientNoise | None = None
    ema_overwrite_frequency: int | None
    # Numbers [any] of this worker -> their sums over the workers, where each of these holds a part of every weight and
    # gradient: what norms of whole tensors are made by. None where they are whole.
    sum_of_parts: Callable[[Any], Any] | None = None
    # A number -> its sum over the processes that have the other weights, where this one does not have all.
    sum_over_weights: Callable[[Any], Any] | None = None
    sam_rho: float | None = None
    assign = BaseOptimizer.assign
    assign_add = BaseOptimizer.assign_add
    assign_sub = BaseOptimizer.assign_sub
    _apply_weight_decay = BaseOptimizer._apply_weight_decay
    _backend_increment_gradient_accumulators = (
        BaseOptimizer._backend_increment_gradient_accumulators
    )
    _backend_update_step = BaseOptimizer._backend_update_step
    _overwrite_model_variables_with_average_value = (
        BaseOptimizer._overwrite_model_variables_with_average_value
    )
    _var_key = BaseOptimizer._var_key

    def stateless_apply(
        self, optimizer_variables: Sequence[Any], grads: Sequence[Any], weights: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """See keras.optimizers.Optimizer.stateless_apply; InputError where an assignment would be lost."""
        own = self.variables
        mapping = [
            *zip(self._trainable_variables, weights, strict=True),
            *zip(own, optimizer_variables, strict=True),
        ]
        with Scope(mapping, [variable for variable, _ in mapping]) as scope:
            self.apply(grads)
        scope.check(f"the optimizer {type(self).__name__}")
        values = [scope.get_current_value(variable) for variable, _ in mapping]
        return values[: len(weights)], values[len(weights) :]

    def _backend_apply_gradients(self, grads: list[Any], trainable_variables: list[Any]) -> None:
        """Does as Keras's method, which has the averages of `use_ema` overwrite the weights in a branch."""
        every, self.ema_overwrite_frequency = self.ema_overwrite_frequency, None
        try:
            super()._backend_apply_gradients(grads, trainable_variables)
        finally:
            self.ema_overwrite_frequency = every
        if self.use_ema and every:
            is_due = tf.equal((self.iterations + 1) % every, 0)
            averages = self._model_variables_moving_average
            for weight, average in zip(self._trainable_variables, averages, strict=True):
                if average is not None:
                    # On a mesh tf.where of them ends the process.
                    share = tf.cast(is_due, weight.dtype)
                    weight.assign(share * average + (1 - share) * weight)

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        """The last that Keras does to gradients before it uses them."""
        is_divided = self.sum_of_parts or (self.sum_over_weights and self.global_clipnorm)
        grads = self._clip_parts(grads) if is_divided else super()._clip_gradients(grads)
        return self.gradient_noise(grads, self.iterations) if self.gradient_noise else grads

    def _clip_parts(self, grads: list[Any]) -> list[Any]:
        """Does as Keras's `_clip_gradients` where this worker has parts of the gradients, or some of them."""
        limit = self.clipnorm or self.global_clipnorm
        if not limit:
            return super()._clip_gradients(grads)
        grads = [tf.convert_to_tensor(grad) for grad in grads]
        squares = tf.stack([tf.reduce_sum(tf.square(grad)) for grad in grads])
        if self.sum_of_parts:
            squares = self.sum_of_parts(squares)
        if not self.clipnorm:
            total = tf.reduce_sum(squares)
            if self.sum_over_weights:
                total = self.sum_over_weights(total)
            squares = tf.fill([len(grads)], total)
        norms = tf.sqrt(squares)
        # The last term is Keras's: NaN where the norm is not finite.
        scales = limit / tf.maximum(norms, limit) + (norms - norms)
        return [grad * scale for grad, scale in zip(grads, tf.unstack(scales), strict=True)]

    def save_own_variables(self, store: Any) -> None:
        """Into a `.keras` file; nothing where a worker has a part of the slots, which no other program could use."""
        if not self.sum_of_parts:
            super().save_own_variables(store)


@functools.cache
def _functional_class(optimizer_class: type) -> type:
    def build(self: Any, variables: list[keras.Variable]) -> None:
        exclude_alike(self, variables, variables)
        optimizer_class.build(self, variables)  # type: ignore[attr-defined]
        # Nadam keeps one variable that Keras does not count among the optimizer's: it would never change.
        known = {id(variable) for variable in self.variables}
        for value in list(vars(self).values()):
            if isinstance(value, keras.Variable) and id(value) not in known:
                self._track_variable(value)

    return type(optimizer_class.__name__, (optimizer_class, _Functional), {"build": build})


def exclude_alike(
    optimizer: Any, variables: Sequence[keras.Variable], parts: Sequence[keras.Variable]
) -> None:
    """Excludes from weight decay those `parts` (of a functional optimizer) whose `variables` are excluded."""
    excluded: set[Any] = getattr(optimizer, "_exclude_from_weight_decay", set())
    for variable, part in zip(variables, parts, strict=True) if excluded else ():
        # The optimizer that was told may have been Keras's own, which has other keys.
        if {TFOptimizer._var_key(optimizer, variable), optimizer._var_key(variable)} & excluded:
            excluded.add(optimizer._var_key(part))


def check_optimizer(optimizer: Any) -> None:
    """InputError for a Keras optimizer whose steps are more than a function of gradients; others pass, as names do."""
    if not isinstance(optimizer, keras.optimizers.Optimizer) or isinstance(optimizer, _Functional):
        return
    name = type(optimizer).__name__
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise InputError(
            "LossScaleOptimizer is not supported; give the optimizer inside it, with loss_scale_factor=1024.0 for "
            "float16, or use mixed_bfloat16, which needs no scaling"
        )
    if optimizer.gradient_accumulation_steps:
        raise InputError(
            f"{name}(gradient_accumulation_steps={optimizer.gradient_accumulation_steps}) is not supported; use so "
            "many times the global_batch_size, which gives the same steps (BackendOptions(accumulate=...) splits it)"
        )
    if optimizer.built:
        raise InputError(f"{name} is built already; give one that was not used yet")


def make_functional(
    optimizer: Any,
    gradient_noise: GradientNoise | None = None,
    sam_rho: float | None = None,
) -> keras.optimizers.Optimizer:
    """Returns an optimizer like `optimizer` whose `stateless_apply` works on TensorFlow tensors.

    Args:
      optimizer: a Keras optimizer that is not built yet, or its name. A schedule in it is kept.
      gradient_noise: added to the gradients in each step.
      sam_rho: ρ of sharpness-aware minimisation: training steps take the gradient where the loss is about the largest
        within this distance of the weights (Foret et al. 2021, arXiv:2010.01412; their default is 0.05).

    Returns:
      A new optimizer with the same settings.

    Raises:
      InputError: there is no such optimizer, or its steps are more than a function of gradients, or it is built, so
        that its slots belong to other variables.
    """
    try:
        optimizer = keras.optimizers.get(optimizer)
    except ValueError:
        raise InputError(
            f"there is no optimizer {optimizer!r} in Keras; give a name such as adam, or a keras.optimizers object"
        ) from None
    if isinstance(optimizer, _Functional):
        return optimizer
    check_optimizer(optimizer)
    functional = copy_of(optimizer)
    functional.gradient_noise, functional.sam_rho = gradient_noise, sam_rho
    return functional


def copy_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """A functional optimizer with the same settings, which is not built yet."""
    config = optimizer.get_config()
    # The schedule object itself, not its serialised form: a user's own schedule need not be registered.
    config["learning_rate"] = (
        optimizer._learning_rate
        if isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        else float(optimizer.learning_rate)
    )
    optimizer_class: Any = type(optimizer)
    if not isinstance(optimizer, _Functional):
        optimizer_class = _functional_class(optimizer_class)
    copy: keras.optimizers.Optimizer = optimizer_class(**config)
    for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
        if hasattr(optimizer, name):  # Keras leaves them out of the config
            setattr(copy, name, copying.copy(getattr(optimizer, name)))
    return copy

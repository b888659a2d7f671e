"""Optimizers and learning-rate schedules as functions of state and step, and Keras code as such as pure functions."""

import contextlib
import copy as copying
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule as Schedule
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import global_seed_generator

from tfmat.config import EpochPlan, OptimizerSection
from tfmat.errors import InputError

# --------------------------------------------------------------------------------------------------
# Keras code as pure functions: what it assigns comes back as values, and what would be lost by that is refused.


class Scope(keras.StatelessScope):
    """Keras's StatelessScope, which knows of every assignment whether its value comes back.

    Keras drops values of variables that nobody asks for. It also keeps what either branch of `ops.cond` assigns,
    whichever of them runs.

    Args:
      mapping: pairs of variables and their values.
      returned: variables whose new values are asked for afterwards.
      options: of keras.StatelessScope.
    """

    def __init__(
        self,
        mapping: Iterable[tuple[Any, Any]],
        returned: Iterable[keras.Variable] = (),
        **options: Any,
    ):
        super().__init__(mapping, **options)
        self._returned = {id(variable) for variable in returned}
        self._graph = tf.compat.v1.get_default_graph()
        self._lost: list[keras.Variable] = []
        self._in_branches: list[keras.Variable] = []

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Notes an assignment."""
        variable, value = update
        if id(variable) not in self._returned:
            self._lost.append(variable)
        elif tf.compat.v1.get_default_graph() is not self._graph:
            self._in_branches.append(variable)
        # Keras keeps a variable as the value of another, which has the value that it has later.
        value = value.value if isinstance(value, keras.Variable) else value
        super().add_update((variable, value))

    def check(self, what: str) -> None:
        """InputError where an assignment was lost; `what` made it."""
        for variable in self._in_branches:
            raise InputError(
                f"{what} assigns {variable.path} in a branch or loop of the graph, which a training step cannot take "
                "over; compute the new value there (ops.where, or what ops.cond returns), and assign it outside"
            )
        for variable in self._lost:
            raise InputError(f"{what} {_why(variable)}")


def _why(variable: keras.Variable) -> str:
    if variable is global_seed_generator().state or variable.path.endswith("seed_generator_state"):
        return (
            "draws random numbers that would be the same in each step; give them the seed "
            "keras.random.SeedGenerator(), which a layer of the model keeps as an attribute"
        )
    if "rnn_state" in variable.path:
        return (
            f"keeps {variable.path} from one batch to the next (stateful=True), but batches are shuffled and divided; "
            "leave stateful out, and give whole sequences as examples"
        )
    if variable.trainable:
        return (
            f"assigns the weight {variable.path}, which only the optimizer changes in a training step; leave the layer "
            "out (for SpectralNormalization use weight decay or a kernel_constraint)"
        )
    return (
        f"assigns {variable.path}, which is no variable of the model's layers, so that the value would be lost; let a "
        "layer make it by add_weight(trainable=False), and assign it in the layer's call"
    )


# --------------------------------------------------------------------------------------------------
# Makes any Keras optimizer a pure function: gradients, slots and weights in, new slots and weights out.
#
# Keras 3 raises from `stateless_apply` on the TensorFlow backend because its TensorFlow class mixes in tf.distribute.
# The class below stands just in front of that one and puts Keras's backend-neutral methods back.


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
            "many times the global_batch_size, which gives the same steps (make_backend(..., accumulate=...) splits it)"
        )
    if optimizer.built:
        raise InputError(f"{name} is built already; give one that was not used yet")


def find_optimizer(given: Any) -> keras.optimizers.Optimizer:
    """The Keras optimizer of a name, or the one given; InputError where there is none."""
    try:
        return keras.optimizers.get(given)
    except ValueError:
        raise InputError(
            f"there is no optimizer {given!r} in Keras; give a name such as adam, or a keras.optimizers object"
        ) from None


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
    optimizer = find_optimizer(optimizer)
    if isinstance(optimizer, _Functional):
        return optimizer
    check_optimizer(optimizer)
    functional = copy_of(optimizer)
    functional.gradient_noise, functional.sam_rho = gradient_noise, sam_rho
    return functional


# Optimizers of Keras's whose steps look at each number by itself.
ELEMENTWISE = (
    keras.optimizers.SGD,
    keras.optimizers.Adam,
    keras.optimizers.AdamW,
    keras.optimizers.Nadam,
    keras.optimizers.Adamax,
    keras.optimizers.RMSprop,
    keras.optimizers.Adagrad,
    keras.optimizers.Adadelta,
    keras.optimizers.Ftrl,
    keras.optimizers.Lion,
)


def original_class(optimizer: keras.optimizers.Optimizer) -> type:
    """The class from which a functional optimizer was made; its own subclasses may do anything."""
    return type(optimizer).__bases__[0]


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


def slot_owners(
    optimizer: Any, shapes: Sequence[Sequence[int]], same_shape: bool = True
) -> list[int | None]:
    """The weight (of these shapes) that each variable of a built Keras optimizer is a slot of; None for counters.

    With `same_shape` a slot of another shape than its weight's is a counter, too.
    """
    owners = {
        id(slot): i
        for name, slots in vars(optimizer).items()
        if isinstance(slots, list | tuple) and len(slots) == len(shapes)
        if name not in ("_variables", "_trainable_variables")
        for i, (slot, shape) in enumerate(zip(slots, shapes, strict=True))
        if not same_shape or tuple(getattr(slot, "shape", ())) == tuple(shape)
    }
    return [owners.get(id(variable)) for variable in optimizer.variables]


def slots_of(optimizer: Any, variables: Sequence[Any]) -> list[tuple[int | None, int]]:
    """For each variable that the optimizer would have: the member of `variables` that it is a slot of, and its bytes.

    The first is None for counters. Nothing of the variables' size is allocated.
    """
    trial, sizes = copy_of(optimizer), {}
    add = trial.add_variable

    def add_small(shape: Any, initializer: Any = "zeros", dtype: Any = None, **options: Any) -> Any:
        made = add((), "zeros", dtype, **options)
        sizes[id(made)] = math.prod(shape) * tf.as_dtype(made.dtype).size
        return made

    trial.add_variable = add_small
    trial.build(list(variables))
    owners = slot_owners(trial, [v.shape for v in variables], same_shape=False)
    return [
        (owner, sizes.get(id(v), tf.as_dtype(v.dtype).size))
        for v, owner in zip(trial.variables, owners, strict=True)
    ]


# --------------------------------------------------------------------------------------------------
# Shared by optimizers that look at the norm of whole tensors, layer by layer: exclusions, decay, and who sums a norm.
#
# Norms are of the whole tensor: of all its parts where a mesh or processes divide it. Everything new is computed
# before anything is assigned, so that a step is a function (see `make_functional`).


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
    # As of functional optimizers (tfmat.optimizers): by which parts of tensors have norms of the whole.
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


# --------------------------------------------------------------------------------------------------
# The optimizers that look at the norm of whole tensors, layer by layer: LARS, LARC, LAMB, NovoGrad.


@keras.saving.register_keras_serializable(package="tfmat")
class LARS(LayerwiseOptimizer):
    """Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv:1708.03888, algorithm 1).

    For each layer, with global rate γ, trust coefficient η, weight decay β and momentum m:

        λ = η |w| / (|g| + β |w|);   v ← m v + γ λ (g + β w);   w ← w − v

    Excluded variables (biases and normalisation) have λ = 1 and no decay; so has a layer whose norm is 0.

    Args:
      learning_rate: γ; large beside that of SGD, since η scales it.
      trust_coefficient: η.
      momentum: m.
      weight_decay, exclude: decay of every weight but those whose paths match `exclude`, regular expressions.
      **kwargs: other arguments of keras.optimizers.Optimizer, such as `global_clipnorm`.
    """

    arguments = ("trust_coefficient", "momentum")

    def __init__(
        self,
        learning_rate: Any = 1.0,
        trust_coefficient: float = 0.001,
        momentum: float = 0.9,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.trust_coefficient = trust_coefficient
        self.momentum = momentum

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        excluded = self._is_excluded[index]
        velocity = self._momentum[index]
        squares = yield [] if excluded else [variable, gradient]
        if not excluded:
            rate = self._layer_rate(rate, *map(ops.sqrt, squares))
        update = gradient + self._decay(variable, excluded)
        new_velocity = self.momentum * ops.convert_to_tensor(velocity) + rate * update
        new_variable = ops.convert_to_tensor(variable) - new_velocity
        self.assign(velocity, new_velocity)
        self.assign(variable, new_variable)

    def _local_rate(self, weight_norm: Any, gradient_norm: Any, otherwise: Any) -> Any:
        decayed = gradient_norm + (self.weight_decay or 0.0) * weight_norm
        # A gradient of zeros says nothing either, whatever the decay.
        defined = ops.where(gradient_norm > 0, decayed, ops.zeros_like(decayed))
        return ratio_or_one(self.trust_coefficient * weight_norm, defined, otherwise)

    def _layer_rate(self, rate: Any, weight_norm: Any, gradient_norm: Any) -> Any:
        return rate * self._local_rate(weight_norm, gradient_norm, 1.0)


@keras.saving.register_keras_serializable(package="tfmat")
class LARC(LARS):
    """LARS in the form that clips: a layer's rate is min(λ, γ), so the global rate is what no layer exceeds.

    As in NVIDIA's Apex (`apex.parallel.LARC`, `clip=True`), with LARS's momentum. Arguments as for LARS.
    """

    def __init__(self, learning_rate: Any = 0.1, trust_coefficient: float = 0.02, **kwargs: Any):
        super().__init__(learning_rate, trust_coefficient, **kwargs)

    def _layer_rate(self, rate: Any, weight_norm: Any, gradient_norm: Any) -> Any:
        return ops.minimum(self._local_rate(weight_norm, gradient_norm, rate), rate)


class _MomentsOptimizer(LayerwiseOptimizer):
    """One with moving averages of the gradient and of its square."""

    arguments = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self, learning_rate: Any, beta_1: float, beta_2: float, epsilon: float, **kwargs: Any
    ):
        super().__init__(learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon


@keras.saving.register_keras_serializable(package="tfmat")
class LAMB(_MomentsOptimizer):
    """Layer-wise adaptive moments (You et al. 2019, arXiv:1904.00962, algorithm 2, φ the identity).

    With Adam's moments m̂ and v̂, both corrected for their start at 0, and weight decay λ:

        r = m̂ / (√v̂ + ε);   w ← w − η (|w| / |r + λ w|) (r + λ w)

    Keras's own `Lamb` decays the weights before and outside the ratio; here the decay is inside, as in the paper.
    Excluded variables have the ratio 1 and no decay: Adam's update; so has a layer whose norm is 0.

    Args:
      learning_rate: η.
      beta_1, beta_2: of the first and second moments.
      epsilon: ε.
      weight_decay, exclude: decay of every weight but those whose paths match `exclude`, regular expressions.
      **kwargs: other arguments of keras.optimizers.Optimizer, such as `global_clipnorm`.
    """

    slot_names = ("momentum", "velocity")

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        dtype = variable.dtype
        rate, gradient = ops.cast(learning_rate, dtype), ops.cast(gradient, dtype)
        index = self._get_variable_index(variable)
        excluded = self._is_excluded[index]
        step = ops.cast(self.iterations + 1, dtype)
        momentum, velocity = self._momentum[index], self._velocity[index]
        new_momentum = self.beta_1 * ops.convert_to_tensor(momentum) + (1 - self.beta_1) * gradient
        new_velocity = self.beta_2 * ops.convert_to_tensor(velocity) + (
            1 - self.beta_2
        ) * ops.square(gradient)
        # Not `ops.cast`, which rounds a Python number to float32 first: 1 - beta_2 would keep five digits.
        correction_1 = 1 - ops.power(ops.convert_to_tensor(self.beta_1, dtype), step)
        correction_2 = 1 - ops.power(ops.convert_to_tensor(self.beta_2, dtype), step)
        update = (new_momentum / correction_1) / (
            ops.sqrt(new_velocity / correction_2) + self.epsilon
        )
        update += self._decay(variable, excluded)
        squares = yield [] if excluded else [variable, update]
        if not excluded:
            rate *= ratio_or_one(*map(ops.sqrt, squares))
        new_variable = ops.convert_to_tensor(variable) - rate * update
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        self.assign(variable, new_variable)


@keras.saving.register_keras_serializable(package="tfmat")
class NovoGrad(_MomentsOptimizer):
    """Stochastic gradient with layer-wise second moments (Ginsburg et al. 2019, arXiv:1905.11286, algorithm 1).

        v ← |g|² at the first step, else β2 v + (1 − β2) |g|²;   m ← β1 m + (g / (√v + ε) + d w);   w ← w − λ m

    Each gradient is divided by its layer's norm, a bias's too: this is the algorithm. Excluded variables have no decay
    d.

    Args:
      learning_rate: λ.
      beta_1, beta_2: of the first and second moments.
      epsilon: ε.
      weight_decay, exclude: decay of every weight but those whose paths match `exclude`, regular expressions.
      **kwargs: other arguments of keras.optimizers.Optimizer, such as `global_clipnorm`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        beta_1: float = 0.95,
        beta_2: float = 0.98,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)

    def build(self, variables: list[Any]) -> None:
        """Makes the slots: a scalar second moment a variable."""
        if self.built:
            return
        super().build(variables)
        self._second_moment = [
            self.add_variable((), dtype=variable.dtype, name=f"second_moment_{i}")
            for i, variable in enumerate(variables)
        ]

    def update(self, gradient: Any, variable: Any, learning_rate: Any) -> Update:
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        momentum, second_moment = self._momentum[index], self._second_moment[index]
        (square,) = yield [gradient]
        averaged = self.beta_2 * ops.convert_to_tensor(second_moment) + (1 - self.beta_2) * square
        new_second_moment = ops.where(ops.equal(self.iterations, 0), square, averaged)
        update = gradient / (ops.sqrt(new_second_moment) + self.epsilon)
        update += self._decay(variable, self._is_excluded[index])
        new_momentum = self.beta_1 * ops.convert_to_tensor(momentum) + update
        new_variable = ops.convert_to_tensor(variable) - rate * new_momentum
        self.assign(second_moment, new_second_moment)
        self.assign(momentum, new_momentum)
        self.assign(variable, new_variable)


# --------------------------------------------------------------------------------------------------
# Learning rates: functions of the step, so that a resume can lose nothing.
#
# Every schedule begins with the same gradual warm-up (Goyal et al. 2017, arXiv:1706.02677, 2.2): at step s < W the
# schedule's rate is multiplied by `warmup_start + (1 - warmup_start) (s + 1) / W`.
#
# Keras's own schedules give other rates. CosineDecay's warm-up is one step behind, so that the first step moves
# nothing; PiecewiseConstantDecay has no warm-up and falls one step later.


def warmup_done(position: Any, length: float, minimum: Callable[[float, Any], Any] = min) -> Any:
    """The share of a warm-up that is over, at most 1; `tfmat.horovod` has the same.

    Args:
      position: steps or epochs from the start of training, with the present step.
      length: of the warm-up, in the same unit; above 0.
      minimum: of a number and `position`; Keras's own for tensors.
    """
    return minimum(1.0, position / length)


class _OfArguments(Schedule):
    """A schedule with the arguments of its class as attributes."""

    arguments: tuple[str, ...] = ()

    def get_config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.arguments}


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupConstant(_OfArguments):
    """Rises linearly over `warmup_steps`, then stays at `learning_rate`; a subclass has another factor of that.

    Args:
      learning_rate: the peak.
      warmup_steps: W, 0 for no warm-up.
      warmup_start: fraction of the rate at which the warm-up begins.
    """

    arguments: tuple[str, ...] = ("learning_rate", "warmup_steps", "warmup_start")

    def __init__(self, learning_rate: float, warmup_steps: int = 0, warmup_start: float = 0.0):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.warmup_start = warmup_start

    def __call__(self, step: Any) -> Any:
        """Learning rate at `step` (a number or a scalar tensor), as a scalar tensor."""
        step = ops.cast(step, keras.backend.floatx())
        rate = self.learning_rate * self._factor(step)
        if not self.warmup_steps:
            return rate
        risen = warmup_done(step + 1.0, self.warmup_steps, ops.minimum)
        return rate * (self.warmup_start + (1.0 - self.warmup_start) * risen)

    def _factor(self, step: Any) -> Any:
        return ops.ones_like(step)


class _Falling(WarmupConstant):
    """Falls from the end of the warm-up to the end of the run.

    Args:
      learning_rate: the peak.
      total_steps: the step at which `final_fraction` of the peak is reached; it stays there.
      warmup_steps, warmup_start: see the base class.
      final_fraction: of the peak, at the end.
    """

    arguments = (*WarmupConstant.arguments, "total_steps", "final_fraction")

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        warmup_steps: int = 0,
        final_fraction: float = 0.0,
        warmup_start: float = 0.0,
    ):
        super().__init__(learning_rate, warmup_steps, warmup_start)
        self.total_steps = total_steps
        self.final_fraction = final_fraction

    def _factor(self, step: Any) -> Any:
        length = max(self.total_steps - self.warmup_steps, 1)
        left = self._left(ops.clip((step - self.warmup_steps) / length, 0.0, 1.0))
        return self.final_fraction + (1.0 - self.final_fraction) * left

    def _left(self, progress: Any) -> Any:
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupCosine(_Falling):
    """Rises linearly, then falls on half a cosine (Loshchilov & Hutter 2017, eq. 5).

    Args:
      learning_rate: the peak.
      total_steps: the step at which `final_fraction` of the peak is reached; it stays there.
      warmup_steps, warmup_start: as of `WarmupConstant`.
      final_fraction: of the peak, at the end.
    """

    def _left(self, progress: Any) -> Any:
        return 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupPolynomial(_Falling):
    """Rises linearly, then falls as (1 - progress)^power; You et al. 2017 take power 2 with LARS.

    Args:
      power: 1 is a straight line.
      learning_rate, ...: as of `WarmupCosine`.
    """

    arguments = (*_Falling.arguments, "power")

    def __init__(self, learning_rate: float, total_steps: int, power: float = 1.0, **kwargs: Any):
        super().__init__(learning_rate, total_steps, **kwargs)
        self.power = power

    def _left(self, progress: Any) -> Any:
        return ops.power(1.0 - progress, self.power)


@keras.saving.register_keras_serializable(package="tfmat")
class ExponentialRise(_OfArguments):
    """The rate of a range test: `low` at step 0, `high` at step `total_steps - 1`, the same factor at every step."""

    arguments = ("low", "high", "total_steps")

    def __init__(self, low: float, high: float, total_steps: int):
        self.low = low
        self.high = high
        self.total_steps = total_steps

    def __call__(self, step: Any) -> Any:
        """Learning rate at `step` (a number or a scalar tensor), as a scalar tensor."""
        step = ops.cast(step, keras.backend.floatx())
        growth = math.log(self.high / self.low) / max(self.total_steps - 1, 1)
        return self.low * ops.exp(growth * step)


@keras.saving.register_keras_serializable(package="tfmat")
class WarmupSteps(WarmupConstant):
    """Rises linearly, then is multiplied by `step_factor` at each of the given steps.

    Args:
      learning_rate, warmup_steps, warmup_start: as of `WarmupConstant`.
      boundaries: rising global steps.
      step_factor: of the rate at each of them.
    """

    arguments = (*WarmupConstant.arguments, "boundaries", "step_factor")

    def __init__(
        self,
        learning_rate: float,
        boundaries: Sequence[int],
        step_factor: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        self.boundaries = [int(boundary) for boundary in boundaries]
        self.step_factor = step_factor

    def _factor(self, step: Any) -> Any:
        passed = ops.zeros_like(step)
        for boundary in self.boundaries:
            passed += ops.cast(step >= boundary, step.dtype)
        return ops.power(ops.cast(self.step_factor, step.dtype), passed)


# --------------------------------------------------------------------------------------------------
# Makes of the config's `optimizer` section a functional Keras optimizer with its schedule.


def batch_scale(section: OptimizerSection, global_batch_size: int) -> float:
    """The factor of the learning rate by `optimizer.scaling`: 1, B / B0 (Goyal 2017) or its square root."""
    ratio = global_batch_size / section.reference_batch_size
    return {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[section.scaling]


def build_schedule(
    section: OptimizerSection,
    epochs: EpochPlan,
    total_steps: int,
    global_batch_size: int | None = None,
) -> Schedule:
    """The learning rate over a run, a pure function of the global step.

    Args:
      section: what a config says of the optimizer.
      epochs: of the run's examples.
      total_steps: of the run.
      global_batch_size: needed where `optimizer.scaling` is not `none`.
    """
    scale = 1.0
    if section.scaling != "none":
        if global_batch_size is None:
            raise ValueError("optimizer.scaling needs global_batch_size")
        scale = batch_scale(section, global_batch_size)
    peak = section.learning_rate * scale
    # A rate that was scaled up rises from the unscaled one (Goyal et al. 2017, 2.2).
    steps, start = section.warmup_steps(epochs, total_steps), 1.0 / scale if scale > 1.0 else 0.0
    match section.schedule:
        case "cosine":
            return WarmupCosine(peak, total_steps, steps, section.final_fraction, start)
        case "polynomial":
            final = section.final_fraction
            return WarmupPolynomial(
                peak,
                total_steps,
                section.power,
                warmup_steps=steps,
                final_fraction=final,
                warmup_start=start,
            )
        case "step":
            falls, factor = section.falls(epochs, total_steps), section.step_factor
            return WarmupSteps(peak, falls, factor, warmup_steps=steps, warmup_start=start)
    return WarmupConstant(peak, steps, start)


def build_optimizer(
    section: OptimizerSection, schedule: Schedule | None = None, *, seed: int = 0
) -> keras.optimizers.Optimizer:
    """The optimizer that the config names, functional (see `make_functional`), not built yet.

    Args:
      section: what a config says of the optimizer.
      schedule: see `build_schedule`; None where it does not matter, as for the shapes of slots.
      seed: of the noise that `optimizer.gradient_noise` adds.
    """
    name = section.name
    arguments: dict[str, Any] = {
        "learning_rate": schedule or WarmupConstant(section.learning_rate),
        "weight_decay": section.weight_decay or None,
        "global_clipnorm": section.clip_norm,
    }
    if name in ("sgd", "rmsprop", "lars", "larc"):
        arguments["momentum"] = section.momentum
    if name == "sgd":
        arguments["nesterov"] = section.nesterov
    if name in ("lars", "larc"):
        arguments["trust_coefficient"] = section.trust_coefficient
    if name == "adamw":
        # Keras's AdamW refuses None: without decay it is Adam.
        arguments["weight_decay"] = section.weight_decay
    noise = None
    if section.gradient_noise:
        noise = GradientNoise(section.gradient_noise, section.gradient_noise_decay, seed)
    return make_functional(OPTIMIZER_CLASSES[name](**arguments), noise, section.sam_rho)


OPTIMIZER_CLASSES = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "nadam": keras.optimizers.Nadam,
    "rmsprop": keras.optimizers.RMSprop,
    "adagrad": keras.optimizers.Adagrad,
    "lion": keras.optimizers.Lion,
    "lars": LARS,
    "larc": LARC,
    "novograd": NovoGrad,
    "lamb": LAMB,
}

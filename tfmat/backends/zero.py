"""Weights and optimizer as the step has them when weights, gradients or slots are divided over the workers (ZeRO).

Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, arXiv:1910.02054.
On a mesh DTensor moves what is divided over the axis `batch` from one layout to another (`DividedOptimizer`). Processes
sum their gradients so that each receives its part of the sum alone, updates this part of the weights, and collects the
others' (`DividedUpdate`): gradients are then in parts as soon as they are summed, which is stage 2, and stage 1 is the
same.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.base import Collectives
from tfmat.backends.exchange import Collect, Exchange, Float16, Reduce, Scatter, Tensors
from tfmat.backends.layouts import Collective, Footprint, Plan, bytes_of_variable, slot_owners
from tfmat.backends.options import NO_NOISE_IN_PARTS, BackendOptions, Spec, Weight
from tfmat.config import BATCH, Settings
from tfmat.errors import InputError
from tfmat.optimizers.functional import LAMB, LARC, LARS, NovoGrad, exclude_alike

_ELEMENTWISE = (
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
_BY_NORMS = (LARS, LARC, LAMB, NovoGrad)  # of whole weights, which they sum from parts
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
        self.sam_rho = optimizer.sam_rho

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


class Division:
    """Each weight, flat, in as many parts of one length as there are workers; zeros fill up the last ones.

    Args:
      variables: the trainable ones of a model.
      workers: over which they are divided.
      rank: this one, which holds the slots of part `rank` of each weight.

    Attributes:
      shapes: of the whole weights.
    """

    def __init__(self, variables: Sequence[keras.Variable], workers: int, rank: int):
        self._variables, self._workers, self._rank = list(variables), workers, rank
        self.shapes = [tuple(variable.shape) for variable in variables]
        self._sizes = [math.prod(shape) for shape in self.shapes]
        self._lengths = [-(-size // workers) for size in self._sizes]

    @property
    def padded_sizes(self) -> list[int]:
        """Numbers of all parts of each weight together."""
        return [length * self._workers for length in self._lengths]

    def build(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Builds a functional optimizer that has slots for this worker's parts alone; InputError where it cannot."""
        _check(self._variables, optimizer)
        optimizer.sum_of_parts = list  # until a step knows how
        parts = [_Part(*each) for each in zip(self._variables, self._lengths, strict=True)]
        exclude_alike(optimizer, self._variables, parts)
        optimizer.build(parts)

    def owners(self, optimizer: keras.optimizers.Optimizer) -> list[int | None]:
        """The weight that each variable of the optimizer is a slot of; None for counters, which are not divided."""
        return slot_owners(optimizer, [Weight("", (length,)) for length in self._lengths])

    def rows(self, tensors: Sequence[tf.Tensor]) -> Tensors:
        """[workers, numbers] of each of some tensors with the shapes of the weights: all of its parts."""
        return [
            tf.reshape(
                _filled_up(tf.reshape(tensor, [size]), length * self._workers),
                [self._workers, length],
            )
            for tensor, size, length in zip(tensors, self._sizes, self._lengths, strict=True)
        ]

    def part(self, tensor: Any, weight: int) -> tf.Tensor:
        """[numbers]: this worker's part of a tensor with the shape of that weight."""
        length = self._lengths[weight]
        flat = tf.reshape(tensor, [self._sizes[weight]])
        return _filled_up(flat[self._rank * length : (self._rank + 1) * length], length)

    def whole(self, rows: tf.Tensor, weight: int) -> tf.Tensor:
        """A tensor with the shape of that weight, from its parts: [workers, numbers]."""
        return tf.reshape(tf.reshape(rows, [-1])[: self._sizes[weight]], self.shapes[weight])


class DividedUpdate(Exchange):
    """Each worker receives its part of the summed gradients alone, updates its part of the weights, and collects all.

    The sums of losses go along with the weights: two collectives per step.

    Args:
      division: of the weights, by which the optimizer is built.
      whole: the exchange of whole gradients: in half precision, parts are summed in it too.
    """

    def __init__(self, division: Division, whole: Exchange):
        self._division = division
        self._dtype = tf.float16 if isinstance(whole, Float16) else None

    def update(
        self,
        optimizer: Any,
        state: Any,
        gradients: Tensors,
        sums: tf.Tensor,
        reduce: Reduce,
        collect: Collect,
        scatter: Scatter | None,
    ) -> tuple[Tensors, Tensors, tf.Tensor, Tensors]:
        """See Exchange.update."""
        assert scatter is not None
        division = self._division
        rows = division.rows(gradients)
        if self._dtype:
            rows = [tf.cast(row, self._dtype) for row in rows]
        summed = [tf.cast(s, g.dtype) for s, g in zip(scatter(rows), gradients, strict=True)]
        parts = [division.part(weight, i) for i, weight in enumerate(state.weights)]
        self.num_updating = 1

        def sum_of_parts(numbers: tf.Tensor) -> tf.Tensor:
            self.num_updating += 1
            return reduce([numbers])[0]

        optimizer.sum_of_parts = sum_of_parts
        parts, slots = optimizer.stateless_apply(state.slots, summed, parts)
        *all_parts, all_sums = collect([*parts, sums])
        weights = [division.whole(part, i) for i, part in enumerate(all_parts)]
        return weights, slots, tf.reduce_sum(all_sums, 0), []


def divide(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    stage: int,
    collectives: Collectives,
) -> Division | None:
    """Builds a functional optimizer: for the part of each weight that this process updates, or for all of them.

    Args:
      model: built.
      optimizer: not built yet.
      stage: of ZeRO: 0, 1 or 2; one process alone divides nothing.
      collectives: of the processes.

    Returns:
      How the weights are divided; None where they are not.

    Raises:
      InputError: the optimizer or the model cannot be divided.
    """
    if not stage or collectives.size == 1:
        optimizer.build(model.trainable_variables)
        return None
    division = Division(model.trainable_variables, collectives.size, collectives.rank)
    division.build(optimizer)
    return division


class _Part(keras.Variable):
    """A part of a weight as an optimizer is built for it: name, shape and type; its numbers come with each step."""

    def __init__(self, variable: keras.Variable, length: int):
        super().__init__("zeros", (length,), variable.dtype, name=variable.name)
        self._path = variable.path

    def _initialize_with_initializer(self, initializer: Any) -> None:
        # One number in the place of `length`; a variable, since Keras makes slots beside it.
        self._value = tf.Variable(tf.zeros([], self._dtype), trainable=False)


def _check(variables: Sequence[keras.Variable], optimizer: keras.optimizers.Optimizer) -> None:
    """InputError where the step of a part of a weight would not be the part of the weight's step."""
    names = [each.__name__ for each in (*_ELEMENTWISE, *_BY_NORMS)]
    # The class from which the functional one is made: a subclass may do anything.
    original = type(optimizer).__bases__[0]
    if original not in (*_ELEMENTWISE, *_BY_NORMS):
        raise InputError(
            f"{original.__name__} does not work with zero_stage over processes, whose parts of a weight it may not "
            f"treat as the whole; use one of {', '.join(names)}, or zero_stage=0"
        )
    if optimizer.gradient_noise:
        raise InputError(NO_NOISE_IN_PARTS)
    if optimizer.use_ema:
        raise InputError(
            "use_ema does not work with zero_stage over processes; leave out one of them"
        )
    for variable in variables:
        if variable.constraint is not None or variable.overwrite_with_gradient:
            raise InputError(
                f"weight '{variable.path}' has a constraint, which zero_stage would apply to parts of it; leave the "
                "constraint out, or use zero_stage=0"
            )
    if len({variable.dtype for variable in variables}) > 1:
        raise InputError(
            "zero_stage is for weights of one type of numbers, and this model has several; use zero_stage=0"
        )


def _filled_up(flat: tf.Tensor, length: int) -> tf.Tensor:
    missing = length - flat.shape[0]
    return tf.pad(flat, [[0, missing]]) if missing else flat


def _each(relayout: Relayout, tensors: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
    return [relayout(tensor, spec) for tensor, spec in zip(tensors, specs, strict=True)]


# --------------------------------------------------------------------------------------------------
# What processes hold and send, before anything is trained: arithmetic, nothing is run.


def plan_processes(
    config: Settings,
    options: BackendOptions,
    workers: int,
    *,
    num_outputs: int,
    inputs: Mapping[str, Any],
) -> tuple[tuple[Footprint, ...], tuple[Collective, ...]]:
    """What each of some processes that share batches holds, and the exchanges of a step; ZeRO divides slots over them.

    Slots are those of the optimizer that the backend would build, so that padding is in them. Gradients are those of
    a process's own examples, which are whole before they are summed.

    Args:
      config: checked for `--backend=horovod` or `mpi`; with `compression` none or fp16.
      options: with the ZeRO stage.
      workers: how many processes.
      num_outputs, inputs: as for `plan_of_config`.

    Raises:
      InputError: see `tfmat.backends.zero.Division.build`.
    """
    from tfmat.networks import build_model
    from tfmat.optimizers import build_optimizer

    model = build_model(config.model, num_outputs=num_outputs, **inputs)
    optimizer = build_optimizer(config.optimizer)
    variables = model.trainable_variables
    is_divided = options.zero_stage > 0 and workers > 1
    division = Division(variables, workers if is_divided else 1, 0)
    if is_divided:
        division.build(optimizer)
    else:
        optimizer.build(variables)
    slots = list(zip(optimizer.variables, division.owners(optimizer), strict=True))

    def footprint(variable: Any, path: str, weights: int, gradients: int, slots: int) -> Footprint:
        whole = (None,) * len(variable.shape)
        return Footprint(path, tuple(variable.shape), whole, whole, weights, gradients, slots)

    found = [
        footprint(
            v,
            v.path,
            bytes_of_variable(v),
            bytes_of_variable(v),
            sum(bytes_of_variable(s) for s, of in slots if of == i),
        )
        for i, v in enumerate(variables)
    ]
    found += [
        footprint(v, v.path, bytes_of_variable(v), 0, 0) for v in model.non_trainable_variables
    ]
    counters = [slot for slot, owner in slots if owner is None]
    found += [footprint(v, f"optimizer/{v.name}", 0, 0, bytes_of_variable(v)) for v in counters]
    numbers = sum(division.padded_sizes)
    count, size = len(variables), variables[0].value.dtype.size
    of_gradients = numbers * (2 if options.compression == "fp16" else size)
    if workers == 1:
        return tuple(found), ()
    if not is_divided:
        summed = Collective("all-reduce", BATCH, workers, "gradients", count, of_gradients)
        return tuple(found), (summed,)
    return tuple(found), (
        Collective("reduce-scatter", BATCH, workers, "gradients", count, of_gradients),
        Collective("all-gather", BATCH, workers, "weights, after the step", count, numbers * size),
    )

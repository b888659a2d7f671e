"""The optimizer's slots divided over processes that each hold the whole model (ZeRO, stages 1 and 2).

Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, arXiv:1910.02054.
Processes sum their gradients so that each receives its part of the sum alone, updates this part of the weights, and
collects the others'. Gradients are then in parts as soon as they are summed, which is stage 2; stage 1 is the same.
On a mesh DTensor divides slots, gradients and weights by their layouts.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Backend, SavedArray
from tfmat.backends.exchange import Apply, Exchange, Tensors
from tfmat.backends.layouts import (
    Collective,
    Footprint,
    Weight,
    bytes_of_variable,
    whole_footprint,
    whole_footprints,
)
from tfmat.backends.registry import EXCHANGES
from tfmat.backends.step import Step
from tfmat.config import BATCH, Settings
from tfmat.errors import InputError
from tfmat.optimizers import (
    ELEMENTWISE,
    LAMB,
    LARC,
    LARS,
    NovoGrad,
    build_optimizer,
    exclude_alike,
    original_class,
    slot_owners,
)

_BY_NORMS = (LARS, LARC, LAMB, NovoGrad)  # of whole weights, which they sum from parts


class Division:
    """Each weight, flat, in as many parts of one length as there are workers; zeros fill up the last ones.

    This worker holds the slots of part `rank` of each weight.

    Attributes:
      shapes: of the whole weights.
      divided: name of each slot in a state -> the weight that it belongs to, once an optimizer is built.
    """

    divided: Mapping[str, int]

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
        owners = enumerate(self.owners(optimizer))
        self.divided = {f"slots/{i}": owner for i, owner in owners if owner is not None}

    def owners(self, optimizer: keras.optimizers.Optimizer) -> list[int | None]:
        """The weight that each variable of the optimizer is a slot of; None for counters, which are not divided."""
        return slot_owners(optimizer, [(length,) for length in self._lengths])

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

    def saved(self, name: str, rows: tf.Tensor) -> np.ndarray:
        """The whole slot of that name for a checkpoint, from its parts: [workers, numbers]."""
        array: np.ndarray = self.whole(rows, self.divided[name]).numpy()
        return array

    def own(self, name: str, array: np.ndarray | SavedArray) -> np.ndarray | SavedArray:
        """This worker's part of a saved slot, which is whole or, as other ranks read it, that part already."""
        weight = self.divided[name]
        own, shape = (self._lengths[weight],), self.shapes[weight]
        if self._rank and array.shape == own:
            return array
        if array.shape != shape:
            raise InputError(
                f"the saved state does not fit this model: {name} belongs to a weight of shape {list(shape)}, saved "
                f"is shape {list(array.shape)}; use the config that the run was started with"
            )
        return SavedArray(
            own, array.dtype, lambda: np.asarray(self.part(np.asarray(array), weight))
        )


class DividedUpdate(Exchange):
    """Each worker receives its part of the summed gradients alone, updates its part of the weights, and collects all.

    The sums of losses go along with the weights: two collectives per step. In half precision, as the exchange of whole
    gradients has it, parts are summed in it too.
    """

    def __init__(self, division: Division, optimizer: Any, whole: Exchange):
        super().__init__(whole.collectives)
        self._division, self._optimizer = division, optimizer
        self.travels_as = whole.travels_as

    def update(
        self, apply: Apply, state: Any, gradients: Tensors, sums: tf.Tensor
    ) -> tuple[Tensors, Tensors, tf.Tensor, Tensors]:
        division = self._division
        rows = division.rows(gradients)
        if self.travels_as:
            rows = [tf.cast(row, self.travels_as) for row in rows]
        mine = self.collectives.scatter(rows)
        summed = [tf.cast(s, g.dtype) for s, g in zip(mine, gradients, strict=True)]
        parts = [division.part(weight, i) for i, weight in enumerate(state.weights)]
        self.num_updating = 1

        def sum_of_parts(numbers: tf.Tensor) -> tf.Tensor:
            self.num_updating += 1
            return self.collectives.sum([numbers])[0]

        self._optimizer.sum_of_parts = sum_of_parts
        parts, slots = apply(state.slots, summed, parts)
        *all_parts, all_sums = self.collectives.collect([*parts, sums])
        weights = [division.whole(part, i) for i, part in enumerate(all_parts)]
        return weights, slots, tf.reduce_sum(all_sums, 0), []


def add_to(step: Step, backend: Backend) -> None:
    """Builds the optimizer for the part of each weight that this process updates; InputError where it cannot."""
    collectives = step.exchange.collectives
    if collectives.size > 1:
        division = Division(step.model.trainable_variables, collectives.size, collectives.rank)
        division.build(step.optimizer)
        step.division = division
        step.exchange = DividedUpdate(division, step.optimizer, step.exchange)


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
    names = [each.__name__ for each in (*ELEMENTWISE, *_BY_NORMS)]
    original = original_class(optimizer)
    if original not in (*ELEMENTWISE, *_BY_NORMS):
        raise InputError(
            f"{original.__name__} does not work with zero_stage over processes, whose parts of a weight it may not "
            f"treat as the whole; use one of {', '.join(names)}, or zero_stage=0"
        )
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


# --------------------------------------------------------------------------------------------------
# Bytes that processes hold and send, before anything is trained: arithmetic, nothing is run.


def plan_processes(
    config: Settings, model: keras.Model, workers: int
) -> tuple[tuple[Footprint, ...], tuple[Collective, ...]]:
    """Footprints of processes that share batches, and the exchanges of a step; ZeRO divides slots over them.

    Slots come from the optimizer that the backend would build, so that padding is in them. Gradients of a process's own
    examples are whole before they are summed. `compression` is none or fp16; for the rest see `plan_of_config`.
    """
    optimizer = build_optimizer(config.optimizer)
    variables = model.trainable_variables
    is_divided = config.parallel.zero_stage > 0 and workers > 1
    division = Division(variables, workers if is_divided else 1, 0)
    if is_divided:
        division.build(optimizer)
    else:
        optimizer.build(variables)
    owners = division.owners(optimizer)
    slots = list(zip(optimizer.variables, owners, strict=True))
    found = [
        whole_footprint(
            variable,
            gradients=bytes_of_variable(variable),
            slots=sum(bytes_of_variable(slot) for slot, owner in slots if owner == i),
        )
        for i, variable in enumerate(variables)
    ]
    found += whole_footprints(model, optimizer, owners)
    numbers = sum(division.padded_sizes)
    count, size = len(variables), variables[0].value.dtype.size
    exchange, padded = EXCHANGES[config.parallel.compression], Weight("", (numbers,), size)
    of_gradients = round(sum(exchange.messages([padded], workers, config.parallel)))
    if workers == 1:
        return tuple(found), ()
    if not is_divided:
        summed = Collective("all-reduce", BATCH, workers, "gradients", count, of_gradients)
        return tuple(found), (summed,)
    return tuple(found), (
        Collective("reduce-scatter", BATCH, workers, "gradients", count, of_gradients),
        Collective("all-gather", BATCH, workers, "weights, after the step", count, numbers * size),
    )

"""Layouts of variables on a mesh: chosen, divided, planned, and what they cost a step."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.collectives import Collectives
from tfmat.backends.exchange import Collect, Exchange, Float16, Reduce, Scatter, Tensors
from tfmat.backends.options import (
    BATCH,
    MODEL,
    NO_NOISE_IN_PARTS,
    BackendOptions,
    MeshShape,
    Rules,
    Spec,
    Weight,
    compile_pattern,
    nearest_multiples,
    parse_layout,
    why_no_effect,
)
from tfmat.config import Config, RunSteps
from tfmat.errors import InputError
from tfmat.optimizers.functional import LAMB, LARC, LARS, NovoGrad, exclude_alike

# --------------------------------------------------------------------------------------------------
# Which dimension of which variable is divided over which axis of a mesh. No TensorFlow in here.
#
# A rule is a regular expression over variable paths and a layout: for each dimension the name of an axis, or `-` for
# whole; or just `replicated`. The first rule that matches a path holds. Without a rule of the user's, dense layers are
# divided over the axis `model` as in Megatron-LM (Shoeybi et al., 2019, arXiv:1909.08053, section 3): the first of two
# by
# columns, the second by rows, so that nothing must be exchanged between them. Two unfolded convolutions in a row (see
# tfmat.networks.factory) are divided alike, over filters and then over channels. Everything else stays whole.


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """What one weight looks like on the mesh. An axis' name for each dimension; None where it is whole.

    Attributes:
      weight: what this is about.
      compute: in the forward and backward pass.
      stored: between steps; differs from `compute` in ZeRO stage 3.
      gradient: as the optimizer gets it; differs from `compute` from ZeRO stage 2 on.
      slots: of the optimizer, and of the update; differs from `compute` from ZeRO stage 1 on.
    """

    weight: Weight
    compute: Spec
    stored: Spec
    gradient: Spec
    slots: Spec

    def bytes(self, spec: Spec, mesh: MeshShape) -> int:
        """Bytes of one device's part in that layout."""
        return math.prod(self.weight.shape) * self.weight.itemsize // num_shards(spec, mesh)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Layouts of all weights, in the model's order, and what the user should know about them."""

    mesh: MeshShape
    zero_stage: int
    layouts: tuple[WeightLayout, ...]
    notices: tuple[str, ...]


def make_plan(
    weights: Sequence[Weight], mesh: MeshShape, rules: Rules = (), zero_stage: int = 0
) -> Plan:
    """Lays every weight out.

    Args:
      weights: all trainable variables of a model, in order.
      mesh: named axes.
      rules: the user's, before the default.
      zero_stage: what is divided over the axis `batch` as well: 1 slots, 2 slots and gradients, 3 those and weights
        (Rajbhandari et al., 2020, arXiv:1910.02054).

    Raises:
      InputError: where a rule cannot be followed, with what can.
    """
    specs, notices = default_specs(weights, mesh)
    compiled = [(pattern, compile_pattern(pattern), layout) for pattern, layout in rules]
    used = set()
    for i, weight in enumerate(weights):
        for pattern, expression, layout in compiled:
            if expression.search(weight.path):
                specs[i] = parse_layout(layout, weight, mesh, pattern)
                notices.pop(weight.path, None)
                used.add(pattern)
                break
    for pattern, _, _ in compiled:
        if pattern not in used:
            raise InputError(why_no_effect(pattern, weights, compiled))
    if zero_stage and mesh.size(BATCH) == 1:
        notices["zero_stage"] = (
            f"zero_stage={zero_stage} changes nothing: mesh {mesh} has no axis {BATCH} to divide over"
        )
    for axis in mesh.names:
        if axis != BATCH and mesh.size(axis) > 1 and not any(axis in spec for spec in specs):
            notices[axis] = (
                f"axis {axis} of mesh {mesh} divides nothing: its {mesh.size(axis)} devices do the same work; "
                "leave it out, or name it in a rule (layouts)"
            )
    layouts = []
    for weight, spec in zip(weights, specs, strict=True):
        divided = zero_spec(spec, weight.shape, mesh) if zero_stage else spec
        stages = {stage: divided if zero_stage >= stage else spec for stage in (1, 2, 3)}
        layouts.append(WeightLayout(weight, spec, stages[3], stages[2], stages[1]))
    return Plan(mesh, zero_stage, tuple(layouts), tuple(notices.values()))


def default_specs(weights: Sequence[Weight], mesh: MeshShape) -> tuple[list[Spec], dict[str, str]]:
    """Columns, then rows, over the axis `model`; notices by path where a dimension does not divide.

    A layer is a kernel [..., inputs, units], with the bias [units] beside it. One whose units no other layer of its
    kind takes begins no pair: its few columns are the labels, or what a dense layer flattens.
    """
    specs: list[Spec] = [(None,) * len(weight.shape) for weight in weights]
    notices: dict[str, str] = {}
    if mesh.size(MODEL) > 1:
        for kernels in (unfolded_kernels(weights), dense_kernels(weights)):
            _divide_pairs(weights, kernels, mesh.size(MODEL), specs, notices)
    return specs, notices


def _divide_pairs(
    weights: Sequence[Weight],
    kernels: list[int],
    size: int,
    specs: list[Spec],
    notices: dict[str, str],
) -> None:
    for place, i in enumerate(kernels):
        *window, inputs, units = weights[i].shape
        whole = (None,) * len(window)
        before = layer_before(weights, kernels[:place], inputs)
        if before is not None and specs[before] == (*whole, None, MODEL):
            specs[i] = (*whole, MODEL, None)
        elif all(weights[j].shape[-2] != units for j in kernels[place + 1 :]):
            continue
        elif units % size:
            notices[weights[i].path] = (
                f"{weights[i].path} stays whole on every device: its {units} units do not divide by {MODEL}:{size} "
                f"(the nearest that do: {nearest_multiples(units, size)})"
            )
        else:
            specs[i] = (*whole, None, MODEL)
            bias = i + 1
            beside = bias < len(weights) and _layer(weights[bias].path) == _layer(weights[i].path)
            if beside and weights[bias].shape == (units,):
                specs[bias] = (MODEL,)


def dense_kernels(weights: Sequence[Weight]) -> list[int]:
    """The places of the kernels [inputs, units] of dense layers."""
    return [i for i, w in enumerate(weights) if len(w.shape) == 2 and _name(w.path) == "kernel"]


def unfolded_kernels(weights: Sequence[Weight]) -> list[int]:
    """The places of the kernels [window, channels, filters] of unfolded convolutions."""
    return [i for i, weight in enumerate(weights) if weight.convolution == "unfolded"]


def layer_before(weights: Sequence[Weight], kernels: Sequence[int], inputs: int) -> int | None:
    """The last of `kernels` with as many units as the next layer has `inputs`; None where that is of another kind."""
    return next((i for i in reversed(kernels) if weights[i].shape[-1] == inputs), None)


def zero_spec(spec: Spec, shape: Sequence[int], mesh: MeshShape) -> Spec:
    """`spec` with the first whole dimension that divides also divided over the axis `batch`; as it is if none does."""
    size = mesh.size(BATCH)
    if len(shape) > 2:  # DTensor wants the filters of a convolution, and their gradients, whole
        return spec
    for i, (axis, length) in enumerate(zip(spec, shape, strict=True)):
        if axis is None and size > 1 and length % size == 0:
            return (*spec[:i], BATCH, *spec[i + 1 :])
    return spec


def weights_of(model: Any) -> list[Weight]:
    """The trainable variables of a built Keras model, in order."""
    convolutions = {
        id(layer.kernel): layer
        for layer in model._flatten_layers()
        if hasattr(layer, "kernel_size") and hasattr(layer, "kernel")
    }
    found = []
    for variable in model.trainable_variables:
        shape, size = tuple(variable.shape), variable.value.dtype.size
        layer = convolutions.get(id(variable))
        if layer is None:
            found.append(Weight(variable.path, shape, size))
        elif getattr(layer, "divides_over_channels", False):
            found.append(Weight(variable.path, shape, size, "unfolded", layer.output.shape[1]))
        else:
            found.append(Weight(variable.path, shape, size, "direct"))
    return found


def slot_owners(optimizer: Any, weights: Sequence[Weight]) -> list[int | None]:
    """The weight that each variable of a built Keras optimizer is a slot of; None for counters."""
    owners: dict[int, int] = {}
    for value in vars(optimizer).values():
        if isinstance(value, list | tuple) and len(value) == len(weights):
            for i, (weight, variable) in enumerate(zip(weights, value, strict=True)):
                if tuple(getattr(variable, "shape", ())) == weight.shape:
                    owners[id(variable)] = i
    return [owners.get(id(variable)) for variable in optimizer.variables]


def slot_specs(optimizer: Any, plan: Plan) -> list[Spec]:
    """The layout of each variable of a built Keras optimizer: of its weight's slots, or whole."""
    owners = slot_owners(optimizer, [layout.weight for layout in plan.layouts])
    return [
        (None,) * len(variable.shape) if owner is None else plan.layouts[owner].slots
        for variable, owner in zip(optimizer.variables, owners, strict=True)
    ]


def device_parts(shape: Sequence[int], spec: Spec, mesh: MeshShape) -> list[tuple[slice, ...]]:
    """Which part of an array of that shape and layout each device holds, in the order of the devices."""
    sizes = [size for _, size in mesh.axes]
    found = []
    for device in range(mesh.num_devices):
        at = dict(zip(mesh.names, np.unravel_index(device, sizes), strict=True))
        part = []
        for length, axis in zip(shape, spec, strict=True):
            width = length // mesh.size(axis)
            part.append(
                slice(width * int(at[axis]), width * int(at[axis] + 1)) if axis else slice(None)
            )
        found.append(tuple(part))
    return found


def num_shards(spec: Spec, mesh: MeshShape) -> int:
    """Parts that a tensor of that layout is divided into."""
    return math.prod(mesh.size(axis) for axis in spec)


def format_spec(spec: Spec) -> str:
    """The layout as rules write it: `-,model`, or `replicated`."""
    return ",".join(axis or "-" for axis in spec) if any(spec) else "replicated"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _layer(path: str) -> str:
    return path.rpartition("/")[0]


# --------------------------------------------------------------------------------------------------
# Weights and optimizer as the step has them when weights, gradients or slots are divided over the workers (ZeRO).
#
# Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, arXiv:1910.02054.
# On a mesh DTensor moves what is divided over the axis `batch` from one layout to another (`DividedOptimizer`).
# Processes
# sum their gradients so that each receives its part of the sum alone, updates this part of the weights, and collects
# the
# others' (`DividedUpdate`): gradients are then in parts as soon as they are summed, which is stage 2, and stage 1 is
# the
# same.


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
# What the devices of a mesh must send each other in one training step: arithmetic from the layouts, nothing is run.
#
# With B examples a step, b = ceil(B / devices on `batch`) of them on each device, and numbers of s bytes:
#
# * Gradients. The devices on `batch` saw different examples: every gradient is summed over `batch` (all-reduce), a
#   device's part of a weight of n numbers in the forward pass, n · s bytes. DTensor sums whole gradients in every ZeRO
#   stage; a device then keeps its part.
# * Weights, ZeRO. Where the slots are divided over `batch` (stages 1 and 2), each device updates its part of the
# weight,
#   and all parts are collected afterwards (all-gather); in stage 3 they are collected before the forward pass instead.
#   n · s bytes for each weight that divides.
# * Activations (Megatron-LM; Shoeybi et al., 2019, arXiv:1909.08053, section 3). A dense layer [inputs, units] that is
#   divided by rows over an axis gives partial sums: its outputs are summed over the axis in the forward pass,
#   b · units · s bytes. One divided by columns gives partial sums of the gradient at its inputs: summed in the backward
#   pass, b · inputs · s bytes, unless nothing before it learns. Between columns and the rows of the next layer
# nothing is
#   sent. A layer that is whole in its inputs after one divided by columns needs all of them (all-gather,
#   b · inputs · s); after one that is whole, a layer divided by rows collects the gradient at its inputs (all-gather,
#   b · inputs · s). The same holds for unfolded convolutions, whose filters are the units, channels the inputs, and
#   points of each curve count as examples.
#
# With the default layouts these are the exchanges in DTensor's own graph (a test compares them). With rules of the
# user's
# DTensor chooses some layouts between the layers itself: then this is an estimate.
#
# Left out: the few numbers of loss and metrics, the norm of `optimizer.clip_norm`, evaluation. Bytes are those of the
# tensor that a device has after the exchange. In a ring, each of k devices sends (k - 1)/k of that for an all-gather
# and
# twice as much for an all-reduce. DTensor joins exchanges that do not wait for each other into one message, padded to
# a
# multiple of 1,024 numbers; on CPUs it writes an all-gather as an all-reduce.


# Takes the features as given: no gradient leaves it (see tfmat.networks.factory).
_HEAD = "uncertainty_hidden/"


@dataclasses.dataclass(frozen=True)
class Collective:
    """Exchanges of one kind.

    Attributes:
      kind: `all-reduce`, `reduce-scatter` or `all-gather`.
      axis: of the mesh; its devices take part.
      devices: how many these are.
      what: what is exchanged.
      tensors: how many; messages, where DTensor joins none.
      bytes: of all of them, on each device; of a reduce-scatter, before it.
    """

    kind: str
    axis: str
    devices: int
    what: str
    tensors: int
    bytes: int

    @property
    def sent_in_ring(self) -> int:
        """Bytes that each device sends where the devices stand in a ring."""
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * (self.devices - 1) * self.bytes // self.devices


def collectives_of_step(plan: Plan, batch_size: int) -> tuple[Collective, ...]:
    """The exchanges of one step with `batch_size` examples; see the head of this file for the formulas."""
    mesh = plan.mesh
    exchanges = [*_over_batch(plan), *_activations(plan, batch_size)]
    totals: dict[tuple[str, str, str], list[int]] = {}
    for kind, axis, what, size in exchanges:
        if mesh.size(axis) > 1:
            totals.setdefault((kind, axis, what), []).append(size)
    return tuple(
        Collective(kind, axis, mesh.size(axis), what, len(sizes), sum(sizes))
        for (kind, axis, what), sizes in totals.items()
    )


_Exchange = tuple[str, str, str, int]


def _over_batch(plan: Plan) -> Iterator[_Exchange]:
    for layout in plan.layouts:
        size = layout.bytes(layout.compute, plan.mesh)
        yield "all-reduce", BATCH, "gradients", size
        if layout.slots != layout.compute:
            stored = layout.stored != layout.compute
            what = "weights, before the step" if stored else "weights, after the step"
            yield "all-gather", BATCH, what, size


def _activations(plan: Plan, batch_size: int) -> Iterator[_Exchange]:
    examples = math.ceil(batch_size / plan.mesh.size(BATCH))
    weights = [layout.weight for layout in plan.layouts]
    for kernels in (unfolded_kernels(weights), dense_kernels(weights)):
        yield from _activations_of(plan, weights, kernels, examples)


def _activations_of(
    plan: Plan, weights: list[Weight], kernels: list[int], examples: int
) -> Iterator[_Exchange]:
    for place, i in enumerate(kernels):
        inputs, units = weights[i].shape[-2:]
        by_rows, by_columns = _axes(plan, i)
        before = layer_before(weights, kernels[:place], inputs)
        divided = None if before is None else _axes(plan, before)[1]
        size = weights[i].itemsize * examples * weights[i].points
        if by_rows:
            yield "all-reduce", by_rows, "activations, forward", size * units
        elif divided:
            yield "all-gather", divided, "activations, forward", size * inputs
        learns_before = i > 0 and _HEAD not in weights[i].path
        if learns_before and by_columns:
            yield "all-reduce", by_columns, "activations, backward", size * inputs
        if learns_before and by_rows and not divided:
            yield "all-gather", by_rows, "activations, backward", size * inputs


def _axes(plan: Plan, i: int) -> tuple[str | None, str | None]:
    rows, columns = (axis if axis != BATCH else None for axis in plan.layouts[i].compute[-2:])
    return rows, columns


# --------------------------------------------------------------------------------------------------
# The layouts of a config's network before anything is made: what will be refused is refused, and bytes are counted.


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What one device of the mesh, or one process, holds of a variable.

    Attributes:
      path, shape: of the variable.
      layout: in the forward and backward pass.
      slots_layout: of its slots in the optimizer, and of the update.
      weights, gradients, slots: bytes.
    """

    path: str
    shape: tuple[int, ...]
    layout: Spec
    slots_layout: Spec
    weights: int
    gradients: int = 0
    slots: int = 0


def plan_of_config(
    config: Config, options: BackendOptions, *, num_outputs: int, inputs: Mapping[str, Any]
) -> tuple[Plan, tuple[Footprint, ...]]:
    """Layouts and bytes of the config's network and optimizer; the network is built, and thrown away.

    Args:
      config: checked.
      options: mesh, layouts and ZeRO stage.
      num_outputs: parameters that the network identifies.
      inputs: what the network must know of a record, see `RecordForm.network`.

    Raises:
      InputError: see `make_plan`.
    """
    from tfmat.networks import build_model
    from tfmat.optimizers import build_optimizer

    model = build_model(config.model, num_outputs=num_outputs, **inputs)
    # The number of steps changes no slot.
    optimizer = build_optimizer(
        config.optimizer, RunSteps(1), global_batch_size=config.global_batch_size
    )
    optimizer.build(model.trainable_variables)
    plan = make_plan(weights_of(model), options.mesh, options.layouts, options.zero_stage)
    return plan, _footprints(model, optimizer, plan)


def plan_processes(
    config: Config,
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
      InputError: see `tfmat.backends.layouts.Division.build`.
    """
    from tfmat.networks import build_model
    from tfmat.optimizers import build_optimizer

    model = build_model(config.model, num_outputs=num_outputs, **inputs)
    optimizer = build_optimizer(
        config.optimizer, RunSteps(1), global_batch_size=config.global_batch_size
    )
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
        footprint(v, v.path, _bytes(v), _bytes(v), sum(_bytes(s) for s, of in slots if of == i))
        for i, v in enumerate(variables)
    ]
    found += [footprint(v, v.path, _bytes(v), 0, 0) for v in model.non_trainable_variables]
    counters = [slot for slot, owner in slots if owner is None]
    found += [footprint(v, f"optimizer/{v.name}", 0, 0, _bytes(v)) for v in counters]
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


def _footprints(model: Any, optimizer: Any, plan: Plan) -> tuple[Footprint, ...]:
    owners = slot_owners(optimizer, [layout.weight for layout in plan.layouts])
    found = [
        Footprint(
            layout.weight.path,
            layout.weight.shape,
            layout.compute,
            layout.slots,
            layout.bytes(layout.stored, plan.mesh),
            layout.bytes(layout.gradient, plan.mesh),
            owners.count(i) * layout.bytes(layout.slots, plan.mesh),
        )
        for i, layout in enumerate(plan.layouts)
    ]
    for variable in model.non_trainable_variables:
        shape = tuple(variable.shape)
        whole = (None,) * len(shape)
        found.append(Footprint(variable.path, shape, whole, whole, _bytes(variable)))
    counters = [v for v, owner in zip(optimizer.variables, owners, strict=True) if owner is None]
    for variable in counters:
        shape = tuple(variable.shape)
        whole = (None,) * len(shape)
        # Not its path, which says how many optimizers this process has made.
        path = f"optimizer/{variable.name}"
        found.append(Footprint(path, shape, whole, whole, 0, slots=_bytes(variable)))
    return tuple(found)


def _bytes(variable: Any) -> int:
    return math.prod(variable.shape) * variable.value.dtype.size

"""Layouts of variables on a mesh, chosen or given, what they make a step send, and what each process holds."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfmat.config import BATCH, MODEL, MeshShape, Rules, Settings
from tfmat.errors import InputError, nearest

# --------------------------------------------------------------------------------------------------
# The rules by which a user divides weights over the axes of a mesh, and one line for each that cannot be followed.


# For each dimension the name of an axis; None where it is whole.
Spec = tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class Weight:
    """A trainable variable.

    Attributes:
      path: in the model, such as `hidden/kernel`.
      shape: kernels end with [inputs, units].
      itemsize: bytes of a number.
      convolution: of kernels of convolutions: `direct`, which DTensor wants whole, or `unfolded`, which may be divided.
      points: of the outputs of an unfolded convolution.
    """

    path: str
    shape: tuple[int, ...]
    itemsize: int = 4
    convolution: str = ""
    points: int = 1


def compile_pattern(pattern: str) -> re.Pattern:
    """The rule's regular expression; InputError where it is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"layouts: '{pattern}' is no regular expression: {error}") from error


def parse_layout(layout: str, weight: Weight, mesh: MeshShape, pattern: str) -> Spec:
    """The layout that a rule gives that weight; InputError where it cannot have it, with what can."""
    rule = f"layouts: rule '{pattern}={layout}'"
    if layout == "replicated":
        return (None,) * len(weight.shape)
    if weight.convolution == "direct":
        raise InputError(
            f"{rule}: {weight.path} is the kernel of a convolution, which DTensor wants whole; "
            f"use '{pattern}=replicated', or tfmat's unfolded convolution (--config.model.convolution=unfolded)"
        )
    axes = [axis.strip() for axis in layout.split(",")]
    for axis in axes:
        if axis != "-" and axis not in mesh.names:
            raise InputError(
                f"{rule} names the axis '{axis}', which mesh {mesh} has not"
                f"{nearest(axis, [*mesh.names, '-'])}"
            )
        if axis != "-" and axes.count(axis) > 1:
            raise InputError(f"{rule} names the axis '{axis}' twice; one dimension an axis")
    if len(axes) != len(weight.shape):
        raise InputError(
            f"{rule} is for {len(axes)} dimensions, {weight.path} has {len(weight.shape)} {list(weight.shape)}; "
            "write an axis or - for each"
        )
    for axis, length in zip(axes, weight.shape, strict=True):
        size = mesh.size(axis if axis != "-" else None)
        if length % size:
            raise InputError(
                f"{rule}: {weight.path} {list(weight.shape)} has a dimension of {length}, which does not divide by "
                f"{axis}:{size}; the nearest that do: {nearest_multiples(length, size)}; or '{pattern}=replicated'"
            )
    return tuple(None if axis == "-" else axis for axis in axes)


def why_no_effect(pattern: str, expression: re.Pattern, weights: Sequence[Weight]) -> str:
    """Why a rule has no effect, in one line."""
    paths = [weight.path for weight in weights]
    if any(expression.search(path) for path in paths):
        return f"layouts: rule '{pattern}' never holds: earlier rules match all that it matches; move it up"
    return f"layouts: rule '{pattern}' matches no variable{nearest(pattern, paths)}"


def nearest_multiples(length: int, size: int) -> str:
    """The multiples of `size` around `length`, in words."""
    below = length // size * size
    return " and ".join(str(value) for value in (below, below + size) if value)


# --------------------------------------------------------------------------------------------------
# Layouts: the axis of a mesh over which each dimension of a variable is divided. No TensorFlow in here.
#
# A rule is a regular expression over variable paths and a layout: for each dimension the name of an axis, or `-` for
# whole; or just `replicated`. The first rule that matches a path holds. Without a rule of the user's, dense layers
# are divided over the axis `model` as in Megatron-LM (Shoeybi et al., 2019, arXiv:1909.08053, section 3): the first
# of two by columns, the second by rows, so that nothing must be exchanged between them. Two unfolded convolutions in
# a row (see tfmat.networks.factory) are divided alike, over filters and then over channels. Everything else stays
# whole.


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """The layouts of one weight on the mesh. An axis' name for each dimension; None where it is whole.

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
    for pattern, expression, _ in compiled:
        if pattern not in used:
            raise InputError(why_no_effect(pattern, expression, weights))
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
    """`spec` with the first whole dimension that divides also divided over the axis `batch`; unchanged if none does."""
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


def slot_specs(optimizer: Any, plan: Plan) -> list[Spec]:
    """The layout of each variable of a built Keras optimizer: of its weight's slots, or whole."""
    from tfmat.optimizers import slot_owners

    owners = slot_owners(optimizer, [layout.weight.shape for layout in plan.layouts])
    return [
        (None,) * len(variable.shape) if owner is None else plan.layouts[owner].slots
        for variable, owner in zip(optimizer.variables, owners, strict=True)
    ]


def device_parts(shape: Sequence[int], spec: Spec, mesh: MeshShape) -> list[tuple[slice, ...]]:
    """The part of an array of that shape and layout that each device holds, in the order of the devices."""
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
# Messages between the devices of a mesh in one training step: arithmetic from the layouts, nothing is run.
#
# With B examples a step, b = ceil(B / devices on `batch`) of them on each device, and numbers of s bytes:
#
# * Gradients. The devices on `batch` saw different examples: every gradient is summed over `batch` (all-reduce), a
#   device's part of a weight of n numbers in the forward pass, n · s bytes. DTensor sums whole gradients in every ZeRO
#   stage; a device then keeps its part.
# * Weights, ZeRO. Where the slots are divided over `batch` (stages 1 and 2), each device updates its part of the
#   weight, and all parts are collected afterwards (all-gather); in stage 3 they are collected before the forward pass
#   instead. n · s bytes for each weight that divides.
# * Activations (Megatron-LM; Shoeybi et al., 2019, arXiv:1909.08053, section 3). A dense layer [inputs, units] that is
#   divided by rows over an axis gives partial sums: its outputs are summed over the axis in the forward pass,
#   b · units · s bytes. One divided by columns gives partial sums of the gradient at its inputs: summed in the backward
#   pass, b · inputs · s bytes, unless nothing before it learns. Between columns and the rows of the next layer nothing
#   is sent. A layer that is whole in its inputs after one divided by columns needs all of them (all-gather,
#   b · inputs · s); after one that is whole, a layer divided by rows collects the gradient at its inputs (all-gather,
#   b · inputs · s). The same holds for unfolded convolutions, whose filters are the units, channels the inputs, and
#   points of each curve count as examples.
#
# With the default layouts these are the exchanges in DTensor's own graph (a test compares them). With rules of the
# user's DTensor chooses some layouts between the layers itself: then this is an estimate.
#
# Left out: the few numbers of loss and metrics, the norm of `optimizer.clip_norm`, evaluation. Bytes count the tensor
# that a device has after the exchange. In a ring, each of k devices sends (k - 1)/k of that for an all-gather and twice
# as much for an all-reduce. DTensor joins exchanges that do not wait for each other into one message, padded to a
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
    """Bytes of a variable on one device of the mesh, or in one process.

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


def plan_of_config(config: Settings, model: Any) -> tuple[Plan, tuple[Footprint, ...]]:
    """Layouts and bytes of the config's network and optimizer; InputError: see `make_plan`."""
    from tfmat.optimizers import build_optimizer

    optimizer = build_optimizer(config.optimizer)
    optimizer.build(model.trainable_variables)
    options = config.parallel
    plan = make_plan(weights_of(model), options.mesh, options.layouts, options.zero_stage)
    return plan, _footprints(model, optimizer, plan)


def _footprints(model: Any, optimizer: Any, plan: Plan) -> tuple[Footprint, ...]:
    from tfmat.optimizers import slot_owners

    owners = slot_owners(optimizer, [layout.weight.shape for layout in plan.layouts])
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
    return (*found, *whole_footprints(model, optimizer, owners))


def whole_footprint(variable: Any, path: str = "", **more: int) -> Footprint:
    """The footprint of a variable that is whole; `more`: bytes of gradients and slots."""
    whole = (None,) * len(variable.shape)
    size = {"weights": bytes_of_variable(variable), **more}
    return Footprint(path or variable.path, tuple(variable.shape), whole, whole, **size)


def whole_footprints(
    model: Any, optimizer: Any, owners: Sequence[int | None]
) -> Iterator[Footprint]:
    """Footprints that are never divided: the model's statistics, and the optimizer's counters, which have no owner."""
    yield from map(whole_footprint, model.non_trainable_variables)
    for variable, owner in zip(optimizer.variables, owners, strict=True):
        if owner is None:
            # Not its path, which says how many optimizers this process has made.
            path = f"optimizer/{variable.name}"
            yield whole_footprint(variable, path, weights=0, slots=bytes_of_variable(variable))


def bytes_of_variable(variable: Any) -> int:
    return math.prod(variable.shape) * variable.value.dtype.size

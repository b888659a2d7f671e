"""The layouts of a config's network before anything is made: what will be refused is refused, and bytes are counted."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tfmat.backends.layouts import Collective, Plan, make_plan, slot_owners, weights_of
from tfmat.backends.options import BATCH, BackendOptions, Spec
from tfmat.config import Config, RunSteps


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
      InputError: see `tfmat.backends.zero.Division.build`.
    """
    from tfmat.backends.zero import Division
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

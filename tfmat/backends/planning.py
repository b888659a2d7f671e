"""The layouts of a config's network before anything is made: what will be refused is refused, and bytes are counted."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tfmat.backends.layouts import Plan, make_plan, slot_owners, weights_of
from tfmat.backends.mesh import Spec
from tfmat.backends.options import BackendOptions
from tfmat.config import Config
from tfmat.durations import RunSteps


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What one device of the mesh holds of a variable.

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
    from tfmat.models import build_model
    from tfmat.optimizers import build_optimizer

    model = build_model(config.model, num_outputs=num_outputs, **inputs)
    # The number of steps changes no slot.
    optimizer = build_optimizer(
        config.optimizer, RunSteps(1), global_batch_size=config.global_batch_size
    )
    optimizer.build(model.trainable_variables)
    plan = make_plan(weights_of(model), options.mesh, options.layouts, options.zero_stage)
    return plan, _footprints(model, optimizer, plan)


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

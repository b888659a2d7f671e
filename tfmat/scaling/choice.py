"""Data, tensor or sharded parallelism? Their exchanges and memory for one model, in one sentence."""

import dataclasses
from collections.abc import Sequence

from tfmat.backends.collectives_of_step import collectives_of_step
from tfmat.backends.layouts import Plan, make_plan
from tfmat.backends.mesh import MeshShape
from tfmat.report.formatting import bytes_text, seconds_text
from tfmat.scaling.collective_costs import Link, collective_seconds
from tfmat.scaling.measurements import Model

# Of an optimizer such as Adam.
_SLOTS = 2


@dataclasses.dataclass(frozen=True)
class Option:
    """One form of parallelism, which divides the work of a step over the workers.

    Attributes:
      name: `data`, `tensor` or `sharded` parallelism.
      divides: whether there is anything that it can divide.
      exchange_seconds: what its exchanges take in a step, in rings.
      sent_bytes: what each worker sends in a step.
      memory_bytes: weights, gradients and two slots a weight on each worker, without activations.
    """

    name: str
    divides: bool
    exchange_seconds: float
    sent_bytes: int
    memory_bytes: int


def options(model: Model, workers: int, batch_a_worker: int, link: Link) -> list[Option]:
    """Data, tensor and sharded parallelism (ZeRO stage 3) of the default layouts, all with the same global batch.

    Empty where the model's weights are not known. Arithmetic from layouts; see tfmat.backends.collectives_of_step.
    """
    if not model.weights or workers < 2:
        return []
    batch = workers * batch_a_worker
    found = []
    for name, axis, stage in (
        ("data", "batch", 0),
        ("tensor", "model", 0),
        ("sharded", "batch", 3),
    ):
        plan = make_plan(model.weights, MeshShape(((axis, workers),)), zero_stage=stage)
        exchanges = collectives_of_step(plan, batch)
        divides = name == "data" or any(any(e.slots) or any(e.compute) for e in plan.layouts)
        seconds = sum(collective_seconds(each, link) for each in exchanges)
        sent = sum(each.sent_in_ring for each in exchanges)
        found.append(Option(name, divides, seconds, sent, _memory(plan)))
    return found


def _memory(plan: Plan) -> int:
    return sum(
        layout.bytes(layout.stored, plan.mesh)
        + layout.bytes(layout.gradient, plan.mesh)
        + _SLOTS * layout.bytes(layout.slots, plan.mesh)
        for layout in plan.layouts
    )


def choose(
    found: Sequence[Option], workers: int, batch_a_worker: int, device_memory_bytes: int | None
) -> str:
    """One sentence: the shortest exchange among those that divide and fit, and why."""
    of = {option.name: option for option in found if option.divides}
    fitting = [
        option
        for option in of.values()
        if device_memory_bytes is None or option.memory_bytes <= device_memory_bytes
    ]
    place = f"with {workers:,} workers of {batch_a_worker:,} examples"
    if not fitting:
        least = min(of.values(), key=lambda option: option.memory_bytes)
        return (
            f"None of data, tensor and sharded parallelism fits {place}: {least.name} parallelism needs least, "
            f"{bytes_text(least.memory_bytes)} a worker; take more workers or larger devices."
        )
    best = min(fitting, key=lambda option: option.exchange_seconds)
    others = [
        f"{seconds_text(option.exchange_seconds)} {option.name}"
        for option in of.values()
        if option is not best
    ]
    beside = f", against {' and '.join(others)}" if others else ""
    fits = "needs" if device_memory_bytes is None else "fits, with"
    return (
        f"Choose {best.name} parallelism {place}: by the measured latency and bandwidth its exchanges take "
        f"{seconds_text(best.exchange_seconds)} a step{beside}, and it {fits} {bytes_text(best.memory_bytes)} a "
        "worker for weights, gradients and optimizer."
    )

"""What the devices of a mesh must send each other in one training step: arithmetic from the layouts, nothing is run.

With B examples a step, b = ceil(B / devices on `batch`) of them on each device, and numbers of s bytes:

* Gradients. The devices on `batch` saw different examples: every gradient is summed over `batch` (all-reduce), a
  device's part of a weight of n numbers in the forward pass, n · s bytes. DTensor sums whole gradients in every ZeRO
  stage; a device then keeps its part.
* Weights, ZeRO. Where the slots are divided over `batch` (stages 1 and 2), each device updates its part of the weight,
  and all parts are collected afterwards (all-gather); in stage 3 they are collected before the forward pass instead.
  n · s bytes for each weight that divides.
* Activations (Megatron-LM; Shoeybi et al., 2019, arXiv:1909.08053, section 3). A dense layer [inputs, units] that is
  divided by rows over an axis gives partial sums: its outputs are summed over the axis in the forward pass,
  b · units · s bytes. One divided by columns gives partial sums of the gradient at its inputs: summed in the backward
  pass, b · inputs · s bytes, unless nothing before it learns. Between columns and the rows of the next layer nothing is
  sent. A layer that is whole in its inputs after one divided by columns needs all of them (all-gather,
  b · inputs · s); after one that is whole, a layer divided by rows collects the gradient at its inputs (all-gather,
  b · inputs · s). The same holds for unfolded convolutions, whose filters are the units, channels the inputs, and
  points of each curve count as examples.

With the default layouts these are the exchanges in DTensor's own graph (a test compares them). With rules of the user's
DTensor chooses some layouts between the layers itself: then this is an estimate.

Left out: the few numbers of loss and metrics, the norm of `optimizer.clip_norm`, evaluation. Bytes are those of the
tensor that a device has after the exchange. In a ring, each of k devices sends (k - 1)/k of that for an all-gather and
twice as much for an all-reduce. DTensor joins exchanges that do not wait for each other into one message, padded to a
multiple of 1,024 numbers; on CPUs it writes an all-gather as an all-reduce.
"""

import dataclasses
import math
from collections.abc import Iterator

from tfmat.backends.layouts import Plan, dense_kernels, layer_before, unfolded_kernels
from tfmat.backends.mesh import BATCH, Weight

# Takes the features as given: no gradient leaves it (see tfmat.models.uncertainty).
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

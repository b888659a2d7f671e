"""What each stage of a config's network would hold and send, before anything is trained: arithmetic, nothing is run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.mesh import BATCH
from tfmat.backends.options import BackendOptions
from tfmat.backends.schedule import (
    SCHEDULES,
    STAGE,
    bubble,
    micro_batches_of,
    most_held,
    order_of_work,
)
from tfmat.backends.stages import bytes_of, make_stages, slots_of
from tfmat.config import Config
from tfmat.durations import RunSteps
from tfmat.models.segments import Segment, segments_of_stage


@dataclasses.dataclass(frozen=True)
class StageFootprint:
    """What one process of a stage holds and sends; sizes in bytes.

    Attributes:
      layers: in it, in the order in which they run.
      weights, gradients, slots: that it holds.
      activations: that it holds at most, by schedule: what all of its layers give for each micro-batch that waits for
        its backward pass; with recomputation what its parts give for each, and once what all layers of the largest
        part give. TensorFlow keeps less where a layer's outputs are not needed.
      messages, sent: to other stages in a step.
      summed: gradients that it sums over the axis `batch` in a step; 0 where it is alone.
    """

    layers: tuple[str, ...]
    weights: int
    gradients: int
    slots: int
    activations: dict[str, int]
    messages: int
    sent: int
    summed: int


@dataclasses.dataclass(frozen=True)
class PipelinePlan:
    """The stages of a network.

    Attributes:
      micro_batches: of a step.
      micro_batch_size: examples in each.
      bubble: share of a step in which a stage waits, where all take equally long.
      stages: one for each.
      notices: for people.
    """

    micro_batches: int
    micro_batch_size: int
    bubble: float
    stages: tuple[StageFootprint, ...]
    notices: tuple[str, ...]


def plan_stages(
    config: Config, options: BackendOptions, *, num_outputs: int, inputs: Mapping[str, Any]
) -> PipelinePlan:
    """The stages of the config's network, which is built, and thrown away; see `plan_of_config` for the arguments.

    Raises:
      InputError: see `make_stages`.
    """
    from tfmat.models import build_model
    from tfmat.optimizers import build_optimizer

    model = build_model(config.model, num_outputs=num_outputs, **inputs)
    optimizer = build_optimizer(
        config.optimizer, RunSteps(1), global_batch_size=config.global_batch_size
    )
    num_stages, replicas = options.mesh.size(STAGE), options.mesh.size(BATCH)
    found = make_stages(model, num_stages, options.stages)
    micro_batches = micro_batches_of(options)
    size = math.ceil(math.ceil(config.global_batch_size / replicas) / micro_batches)
    sent = [
        size * math.prod(spec.shape) * spec.dtype.size * micro_batches for spec in found.between
    ]
    footprints = []
    for i, segment in enumerate(found.segments):
        neighbours = [sent[k] for k in (i - 1, i) if 0 <= k < len(sent)]
        weights = bytes_of(segment.trainable_variables)
        held = {
            schedule: most_held(order_of_work(schedule, i, num_stages, micro_batches))
            for schedule in SCHEDULES
        }
        kept, once = _activations(segment, model, options.recompute)
        footprints.append(
            StageFootprint(
                segment.layer_names,
                weights + bytes_of(segment.non_trainable_variables),
                weights,
                sum(slot for _, slot in slots_of(optimizer, segment.trainable_variables)),
                {schedule: size * (count * kept + once) for schedule, count in held.items()},
                micro_batches * len(neighbours),
                sum(neighbours),
                weights if replicas > 1 else 0,
            )
        )
    notices = []
    if found.automatic:
        cuts = ", ".join(segment.layer_names[-1] for segment in found.segments[:-1])
        notices.append(
            f"the cuts (behind {cuts}) make the largest stage as small as possible in bytes of weights; a stage's time "
            "may be another matter: choose with stages=LAYER,LAYER"
        )
    if options.offload != "none":
        notices.append("the slots are on the disk of each process, not in its memory")
    return PipelinePlan(
        micro_batches, size, bubble(num_stages, micro_batches), tuple(footprints), tuple(notices)
    )


def _activations(stage: Segment, model: keras.Model, recompute: str) -> tuple[int, int]:
    """Bytes that an example keeps until its backward pass, and those that are there once, in the backward pass."""
    if recompute == "none":
        return _bytes(_outputs(stage)), 0
    parts = segments_of_stage(stage, model, recompute, "recompute")
    kept = sum(_bytes(keras.tree.flatten(part.outputs)) for part in parts)
    return kept, max(_bytes(_outputs(part)) for part in parts)


def _outputs(segment: Segment) -> list[Any]:
    """All tensors that the segment's layers give."""
    return [
        tensor
        for operation in segment.operations
        for node in operation._inbound_nodes[:1]
        for tensor in node.output_tensors
    ]


def _bytes(tensors: Sequence[Any]) -> int:
    """Bytes of an example."""
    return sum(
        math.prod(size or 1 for size in tensor.shape[1:])
        * tf.as_dtype(keras.backend.standardize_dtype(tensor.dtype)).size
        for tensor in tensors
    )

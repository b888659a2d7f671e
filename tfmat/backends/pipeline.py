"""Pipeline stages: a model cut into stages, and its step."""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import (
    Arrays,
    Collectives,
    Messages,
    SavedArray,
    SavedArrays,
    from_rank_0,
    num_bytes,
)
from tfmat.backends.layouts import bytes_of_variable
from tfmat.backends.segments import (
    Cut,
    Segment,
    cut_model,
    named_cuts,
    possible_cuts,
    segments,
)
from tfmat.backends.single import SingleBackend
from tfmat.backends.step import (
    Batch,
    Block,
    State,
    Step,
    check_coupling,
    check_whole_batch,
    connected,
    examples_to_try,
    place_in_state,
    put,
    what_couples,
)
from tfmat.config import BATCH, STAGE, MeshShape, Settings
from tfmat.errors import InputError
from tfmat.optimizers import build_optimizer, slots_of

# --------------------------------------------------------------------------------------------------
# Places of processes among the stages, and the order of their work. A batch goes through the stages as micro-batches.


SCHEDULES = ("gpipe", "1f1b")


class Work(NamedTuple):
    """A stage's next work: the forward or the backward pass of a micro-batch."""

    is_forward: bool
    micro_batch: int


def order_of_work(schedule: str, stage: int, num_stages: int, micro_batches: int) -> list[Work]:
    """The work of one stage in a step, in order.

    `gpipe` (Huang et al. 2019, arXiv:1811.06965) runs all forward passes, then all backward passes. `1f1b` (Narayanan
    et al. 2019, PipeDream; without stale weights: PipeDream-Flush, 2021, arXiv:2104.04473) begins a backward pass as
    soon as it can, so that a stage holds the activations of no more micro-batches than there are stages from it on.
    """
    ahead = micro_batches
    if schedule == "1f1b":
        ahead = min(num_stages - 1 - stage, micro_batches)
    work = [Work(True, i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        work += [Work(True, ahead + i), Work(False, i)]
    return work + [Work(False, i) for i in range(micro_batches - ahead, micro_batches)]


def most_held(work: Sequence[Work]) -> int:
    """Micro-batches whose activations a stage holds at once."""
    held = np.cumsum([1 if each.is_forward else -1 for each in work])
    return int(held.max())


def bubble(num_stages: int, micro_batches: int) -> float:
    """Share of a step in which a stage waits for others, where all stages take equally long (arXiv:1811.06965, 2.3)."""
    return (num_stages - 1) / (micro_batches + num_stages - 1)


@dataclasses.dataclass(frozen=True)
class Place:
    """One process among stages and replicas.

    Attributes:
      stage, num_stages: its part of the network.
      replica, num_replicas: its part of each global batch.
      chain: ranks of its replica, by stage.
      peers: ranks of its stage, by replica.
    """

    stage: int
    num_stages: int
    replica: int
    num_replicas: int
    chain: tuple[int, ...]
    peers: tuple[int, ...]

    @classmethod
    def of(cls, mesh: MeshShape, rank: int) -> "Place":
        """The place of a rank; neighbours on the mesh's last axis are neighbouring ranks."""
        ranks = np.arange(mesh.num_devices).reshape([size for _, size in mesh.axes])
        if BATCH not in mesh.names:
            ranks = ranks[..., None]
        elif mesh.names.index(BATCH) == 0:
            ranks = ranks.T
        ((stage, replica),) = np.argwhere(ranks == rank)
        chain, peers = map(int, ranks[:, replica]), map(int, ranks[stage])
        return cls(int(stage), len(ranks), int(replica), ranks.shape[1], (*chain,), (*peers,))


# --------------------------------------------------------------------------------------------------
# The stages of a network: where it is cut, and which of the model's variables and the optimizer's slots each has.


@dataclasses.dataclass(frozen=True)
class Stages:
    """A model cut into stages.

    Attributes:
      segments: one for each stage.
      between: specs of one example of the tensors that go from each stage to the next.
      automatic: whether the cuts balance bytes of weights, rather than follow rules.
    """

    segments: tuple[Segment, ...]
    between: tuple[tf.TensorSpec, ...]
    automatic: bool


def make_stages(model: keras.Model, num_stages: int, rules: str = "") -> Stages:
    """Cuts a model into stages.

    Args:
      model: built; functional or Sequential.
      num_stages: 2 or more.
      rules: regular expressions over layer names, with commas between them, behind which to cut; "" for cuts that make
        the largest stage as small as possible, in bytes of weights, and then what goes between the stages.

    Raises:
      InputError: the model cannot be cut so, or a stage would have no weights.
    """
    places = _places(model)
    if rules:
        chosen = named_cuts(places, rules, "stages")
        if len(chosen) + 1 != num_stages:
            raise InputError(
                f"stages={rules} cuts the network into {len(chosen) + 1} stages, the mesh has {num_stages}; give "
                f"{num_stages - 1} layers behind which to cut, or leave stages out to balance the weights"
            )
    else:
        chosen = _balanced(model, places, num_stages)
    parts = cut_model(model, chosen)
    _check(model, parts)
    between = [
        tf.TensorSpec(place.tensor.shape[1:], keras.backend.standardize_dtype(place.tensor.dtype))
        for place in chosen
    ]
    return Stages(tuple(parts), tuple(between), not rules)


def bytes_of(variables: Sequence[keras.Variable]) -> int:
    """Bytes of the variables' numbers."""
    return sum(map(bytes_of_variable, variables))


def slot_places(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable], own: Sequence[int]
) -> list[int]:
    """Where the variables of a stage's optimizer stand among the variables of an optimizer of the whole model.

    `own` are the places of the stage's weights among all, in the order in which its optimizer gets them.
    """
    counts: dict[int | None, int] = {}
    where = {}
    for i, (owner, _) in enumerate(slots_of(optimizer, variables)):
        where[owner, counts.setdefault(owner, 0)] = i
        counts[owner] += 1
    found, counts = [], {}
    for owner, _ in slots_of(optimizer, [variables[i] for i in own]):
        place = None if owner is None else own[owner]
        found.append(where[place, counts.setdefault(place, 0)])
        counts[place] += 1
    return found


def _places(model: keras.Model) -> list[Cut]:
    """The possible cuts whose tensor can be sent; each has all layers since the one before."""
    found, layers = [], ()
    for place in possible_cuts(model, "stages"):
        layers = (*layers, *place.layers)
        if _can_be_sent(place):
            found.append(place._replace(layers=layers))
            layers = ()
    return found


def _can_be_sent(place: Cut) -> bool:
    """Whether the tensor has a gradient, and a size that is known beforehand."""
    shape = place.tensor.shape
    return (
        keras.backend.is_float_dtype(place.tensor.dtype)
        and shape[0] is None
        and None not in shape[1:]
    )


def _balanced(model: keras.Model, places: Sequence[Cut], num_stages: int) -> list[Cut]:
    """The cuts by which the largest stage is smallest; among these, those that send least."""
    if len(places) + 1 < num_stages:
        raise InputError(
            f"the network can be cut into {len(places) + 1} stages at most, the mesh has {num_stages}: use fewer "
            "stages, or a deeper network (a cut needs a place where one tensor goes on, after residual connections)"
        )
    weights = _weights_before(model, places)
    sent = [0, *(_bytes([place.tensor]) for place in places), 0]
    smallest = _cheapest(weights, sent, num_stages, lambda option: option.largest)
    if smallest is None:
        raise InputError(
            f"the network cannot be cut into {num_stages} stages that all have weights; use fewer stages"
        )
    best = _cheapest(
        weights, sent, num_stages, lambda option: (option.largest > smallest.largest, option.sent)
    )
    assert best is not None
    return [places[i - 1] for i in best.ends[:-1]]


class _Option(NamedTuple):
    """Stages up to some place: bytes of weights of the largest, bytes sent between them, where they end."""

    largest: int
    sent: int
    ends: tuple[int, ...]


def _cheapest(
    weights: Sequence[int], sent: Sequence[int], num_stages: int, cost: Callable[[_Option], Any]
) -> _Option | None:
    """The stages that cost least, by dynamic programming over the places; None where some would have no weights."""

    @functools.cache
    def best(stages: int, end: int) -> _Option | None:
        if not stages:
            return None if end else _Option(0, 0, ())
        options = [
            _Option(max(largest, weights[end] - weights[start]), so_far + sent[end], (*ends, end))
            # The last of places that cost the same: an activation stays with its layer.
            for start in reversed(range(end))
            if weights[end] > weights[start] and (before := best(stages - 1, start))
            for largest, so_far, ends in [before]
        ]
        return min(options, key=cost, default=None)

    return best(num_stages, len(weights) - 1)


def _weights_before(model: keras.Model, places: Sequence[Cut]) -> list[int]:
    """Bytes of trainable weights before each place: the start, the cuts, the end."""
    return [
        *itertools.accumulate((bytes_of(_trainable(place.layers)) for place in places), initial=0),
        bytes_of(model.trainable_variables),
    ]


def _trainable(layers: Sequence[keras.layers.Layer]) -> list[keras.Variable]:
    return list({id(v): v for layer in layers for v in layer.trainable_variables}.values())


def _check(model: keras.Model, segments: Sequence[Segment]) -> None:
    for segment in segments:
        if not segment.trainable_variables:
            raise InputError(
                f"stages: the stage of {', '.join(segment.layer_names) or 'no layer'} has no weights to train; cut "
                "elsewhere, or leave stages out to balance the weights"
            )
    for variables, name in (
        (model.trainable_variables, "trainable_places"),
        (model.non_trainable_variables, "non_trainable_places"),
    ):
        held = [i for segment in segments for i in getattr(segment, name)]
        for i, variable in enumerate(variables):
            if held.count(i) != 1:
                raise InputError(
                    f"{variable.path} belongs to {held.count(i)} stages; each must belong to one: "
                    + (
                        "cut elsewhere"
                        if held.count(i)
                        else "put it into a layer that the model calls"
                    )
                    + ", or train without stages"
                )


# --------------------------------------------------------------------------------------------------
# The state of one pipeline stage in the whole network's: which part it is, and how it comes and goes.


class StageState:
    """A process's own variables of a model that it has made whole, and does not keep whole.

    Other stages' weights have no memory from now on; rank 0 has their values until `hand_out`. `slots` are places of
    the stage's slots, see `slot_places`; `before` is what this process had of the model where it was divided already.

    Attributes:
      held: the stage's variables; set when its optimizer is built.
      is_whole: whether the model of rank 0 has all weights.
    """

    held: State

    def __init__(
        self,
        model: keras.Model,
        segment: Segment,
        slots: Sequence[int],
        collectives: Collectives,
        before: "StageState | None" = None,
    ):
        self._collectives = collectives
        places: dict[str, Sequence[int]] = {
            "weights": segment.trainable_places,
            "non_trainable": segment.non_trainable_places,
            "slots": slots,
        }
        # Own name -> name in the whole state.
        self._names = {
            f"{part}/{i}": f"{part}/{k}"
            for part, found in places.items()
            for i, k in enumerate(found)
        }
        self._all = {
            **{f"weights/{i}": v for i, v in enumerate(model.trainable_variables)},
            **{f"non_trainable/{i}": v for i, v in enumerate(model.non_trainable_variables)},
        }
        self.is_whole = False
        # Arrays that `hand_out` tells all processes; empty on all ranks but 0.
        self._whole: dict[str, np.ndarray | SavedArray] = {}
        self._set_apart(before._whole if before else {})

    def read(self, own: Iterable[tuple[str, Any]], first: bool) -> Arrays:
        """See Backend.read; the whole state on rank 0 only, on other ranks their stage's.

        `own` are the stage's variables by their names there, and the `first` process of each stage gives them.
        """
        mine = {self._names[name]: variable.numpy() for name, variable in own}
        names = self._collectives.gather(list(mine) if first else [])
        found: Arrays = {}
        for rank, theirs in enumerate(names):
            for name in theirs:
                array = self._collectives.hand_over(mine.get(name), rank)
                if array is not None:
                    found[name] = array
        return {name: found[name] for name in sorted(found, key=place_in_state)} if found else mine

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write; on ranks other than 0 also what `read` returned there."""
        variables = self.held.named()
        mine = {name: arrays[there] for name, there in self._names.items() if there in arrays}
        self.held.assign(mine, lambda name, array: variables[name].assign(array))
        if self._collectives.rank == 0:
            self._whole = dict(arrays)

    def hand_out(self) -> None:
        """Rank 0 tells all processes what was written there, one array at a time; each keeps what is its own."""
        variables = self.held.named()
        mine = {name: variables[own] for own, name in self._names.items()}
        for name, array in from_rank_0(self._whole, self._collectives).items():
            numbers = np.asarray(array)
            if name in mine:
                mine[name].assign(numbers)
        self._whole = {}

    def fill_model(self, found: Arrays) -> None:
        """Gives the model of rank 0 all weights, of `read`; other processes have no room for the whole network."""
        if self._collectives.rank == 0:
            for name, variable in self._all.items():
                put(variable.value, found[name])
            self.is_whole = True

    def forget_others(self) -> None:
        """Frees the memory of other stages' weights."""
        own = set(self._names.values())
        for name, variable in self._all.items():
            if name not in own:
                put(variable.value, np.zeros([0]))
        self.is_whole = False

    def _set_apart(self, before: SavedArrays) -> None:
        own = set(self._names.values())
        for name, variable in self._all.items():
            value = variable.value
            is_there = tf.shape(value).numpy().tolist() == list(variable.shape)
            if self._collectives.rank == 0:
                self._whole[name] = value.numpy() if is_there else before[name]
            if name in own and not is_there:  # another backend's stages were others
                put(value, np.zeros(variable.shape))
        self.forget_others()


# --------------------------------------------------------------------------------------------------
# Footprints of the stages of a config's network, before anything is trained: arithmetic, nothing is run.


@dataclasses.dataclass(frozen=True)
class StageFootprint:
    """Bytes that one process of a stage holds and sends.

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


def plan_stages(config: Settings, model: keras.Model) -> PipelinePlan:
    """The stages of the config's network; InputError: see `make_stages`."""
    optimizer = build_optimizer(config.optimizer)
    options = config.parallel
    num_stages, replicas = options.mesh.size(STAGE), options.mesh.size(BATCH)
    found = make_stages(model, num_stages, options.stages)
    micro_batches = options.num_micro_batches
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
        kept, once = _activations(segment, model, config.model.recompute)
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
    parts = segments(stage, recompute, "recompute", model)
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


# --------------------------------------------------------------------------------------------------
# One stage's part of a training step, in a graph: micro-batches forward and backward, in the order of a schedule.


class Passed(NamedTuple):
    """Left by a micro-batch's forward pass for its backward pass: tape, inputs, what is differentiated."""

    tape: tf.GradientTape
    inputs: Any
    targets: list[tf.Tensor]


class Ordered:
    """Has a graph work in one order: activations of no more micro-batches than meant are in memory."""

    def __init__(self) -> None:
        self._last: list[Any] = []
        self.waited: list[tf.Tensor] = []

    def begin(self, tensors: Any) -> Any:
        """The same tensors (a structure), once what was before has ended."""
        with tf.control_dependencies(self._last):
            return tf.nest.map_structure(tf.identity, tensors)

    def receive(self, receive: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Waits for the result of `receive`, and notes the seconds."""
        with tf.control_dependencies(self._last):
            before = tf.timestamp()
        with tf.control_dependencies([before]):
            tensor = receive()
        with tf.control_dependencies([tensor]):
            after = tf.timestamp()
        self.waited.append(after - before)
        # Or what the tensor is for would be computed first where there is one thread, and counted as waiting.
        with tf.control_dependencies([after]):
            tensor = tf.identity(tensor)
        self._last = [tensor]
        return tensor

    def end(self, complete: list[Any]) -> None:
        """Has what comes next wait for these."""
        with tf.control_dependencies([*self._last, *complete]):
            self._last = [tf.no_op()]


class StageStep:
    """The work of one process in a step, which is of its stage's segment as a model.

    `specs` are of one example of what comes from the stage before and goes to the next one; None at the ends.

    Attributes:
      bytes: that this process sends to other stages in a step, once one was made.
    """

    def __init__(
        self,
        step: Step,
        place: Place,
        messages: Messages,
        specs: tuple[tf.TensorSpec | None, tf.TensorSpec | None],
    ):
        self._step, self._messages = step, messages
        before, after = specs
        # For each neighbour: the tensors that come from it or go to it, and its rank.
        self._before = (before, place.chain[place.stage - 1]) if before else None
        self._after = (after, place.chain[place.stage + 1]) if after else None
        self.bytes = 0

    def gradients(
        self,
        state: State,
        micro_batch: Callable[[int], Batch],
        work: Sequence[Work],
        variables: Sequence[keras.Variable],
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor], tf.Tensor]:
        """Forward and backward passes of a step.

        Args:
          state: tensors of this stage.
          micro_batch: i -> examples, labels and weights of micro-batch i, all of one width.
          work: in order.
          variables: the stage's trainable ones.

        Returns:
          Gradients of this stage's weights, [num_sums] sums (zeros but on the last stage), the new non-trainable state,
          and the seconds that this stage waited for others.
        """
        ordered, passed = Ordered(), {}
        totals: list[tf.Tensor] = []
        sums: list[tf.Tensor] = []
        non_trainable = state.non_trainable
        self.bytes = 0
        for is_forward, i in work:
            if is_forward:
                passed[i], non_trainable = self._forward(
                    state.weights, non_trainable, micro_batch(i), ordered, sums
                )
                continue
            gradients = self._backward(passed.pop(i), state.weights, variables, ordered)
            totals = [
                gradient if not totals else totals[k] + gradient
                for k, gradient in enumerate(gradients)
            ]
            ordered.end(totals)
        total = tf.add_n(sums) if sums else tf.zeros([self._step.num_sums], keras.backend.floatx())
        waited = tf.add_n(ordered.waited) if ordered.waited else tf.zeros([], tf.float64)
        return totals, total, non_trainable, waited

    def _forward(
        self,
        weights: list[tf.Tensor],
        non_trainable: list[tf.Tensor],
        batch: Batch,
        ordered: Ordered,
        sums: list[tf.Tensor],
    ) -> tuple[Passed, list[tf.Tensor]]:
        if self._before:
            inputs = self._receive(batch.weights.shape[0], self._before, ordered)
        else:
            inputs = ordered.begin(batch.features)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            if self._before:
                tape.watch(inputs)
            outputs, non_trainable, penalties = self._step.forward(
                weights, non_trainable, batch._replace(features=inputs)
            )
            targets = []
            if penalties:
                targets.append(
                    self._step.optimizer.scale_loss(self._step.penalty(batch, penalties))
                )
            if not self._after:
                loss, objective = self._step.objective(weights, batch, outputs)
                targets.append(self._step.optimizer.scale_loss(objective))
        if self._after:
            targets.append(outputs)
            ordered.end([*self._send(outputs, self._after), outputs])
        else:
            sums.append(self._step.sums_of(weights, batch, outputs, loss))
            ordered.end([*targets, sums[-1]])
        return Passed(tape, inputs, targets), non_trainable

    def _backward(
        self,
        passed: Passed,
        weights: list[tf.Tensor],
        variables: Sequence[keras.Variable],
        ordered: Ordered,
    ) -> list[tf.Tensor]:
        tape, inputs, targets = passed
        factors = [tf.ones_like(target) for target in targets]
        if self._after:
            width = targets[-1].shape[0]
            factors[-1] = self._receive(width, self._after, ordered)
        else:
            factors = ordered.begin(factors)
        sources = [*weights, *([inputs] if self._before else [])]
        found = tape.gradient(targets, sources, output_gradients=factors)
        gradients = connected(found[: len(weights)], weights, list(variables))
        if self._before:
            back = tf.zeros_like(inputs) if found[-1] is None else found[-1]
            ordered.end(self._send(back, self._before))
        # Embeddings give rows.
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def evaluated(self, state: State, batch: Batch) -> tf.Tensor:
        """[num_sums] sums over a batch in inference mode; zeros but on the last stage."""
        outputs = self.predicted(state, batch.features)
        if self._after:
            with tf.control_dependencies([outputs]):
                return tf.zeros([self._step.num_sums], keras.backend.floatx())
        return self._step.sums_of(state.weights, batch, outputs)

    def predicted(self, state: State, features: Any) -> Any:
        """The model's outputs in inference mode on the last stage, what others send on otherwise."""
        ordered = Ordered()
        inputs = features
        if self._before:
            first = tf.nest.flatten(features)[0]
            width = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
            inputs = self._receive(width, self._before, ordered)
        outputs = self._step.predict(state, inputs)
        if not self._after:
            return outputs
        sent = self._send(outputs, self._after, one_at_a_time=True)
        with tf.control_dependencies(sent):
            return tf.identity(outputs)

    def _receive(
        self, width: Any, neighbour: tuple[tf.TensorSpec, int], ordered: Ordered
    ) -> tf.Tensor:
        spec, rank = neighbour
        shape = [width, *spec.shape]
        tensor = ordered.receive(lambda: self._messages.receive(tf.stack(shape), spec.dtype, rank))
        rows = width if isinstance(width, int) else None
        return tf.ensure_shape(tensor, [rows, *spec.shape])

    def _send(
        self, tensor: tf.Tensor, neighbour: tuple[tf.TensorSpec, int], one_at_a_time: bool = False
    ) -> list[Any]:
        spec, rank = neighbour
        tensor = tf.ensure_shape(tf.cast(tensor, spec.dtype), [None, *spec.shape])
        self.bytes += num_bytes([tensor])
        return [self._messages.send(tensor, rank, one_at_a_time=one_at_a_time)]


# --------------------------------------------------------------------------------------------------
# Pipeline stages: each process holds one part of the network, and micro-batches go from one to the next and back.
#
# Several processes may hold the same part; they share each batch and sum their gradients.


class PipelineBackend(SingleBackend):
    """The single backend's loop, with a stage of the network in each process, as the mesh's axis `stage` says."""

    stages: Stages
    _state: StageState

    uses_mesh = True

    def __init__(self, settings: Settings, collectives: Collectives, name: str, **place: Any):
        super().__init__(settings, collectives, name, **place)
        self.collectives.divides = True
        mesh = self.options.mesh
        self.place_in_mesh = Place.of(mesh, self.processes.rank)
        places = [Place.of(mesh, rank) for rank in range(mesh.num_devices)]
        self._chains = sorted({place.chain for place in places})
        self._peers = sorted({place.peers for place in places})
        self._micro_batches = self.options.num_micro_batches
        self._started = False
        self._waited = self._trained = 0.0

    @property
    def world_size(self) -> int:
        """See Backend.world_size: the stages of a replica are one worker together."""
        return self.place_in_mesh.num_replicas

    def check_network(self, build: Callable[[], Any]) -> None:
        plan_stages(self.settings, build())

    @property
    def parts_of_a_batch(self) -> int:
        return self._micro_batches

    @property
    def replica(self) -> int:
        return self.place_in_mesh.replica

    def start(self) -> None:
        super().start()
        if not self._started:
            self._started = True
            self._chain = self.collectives.divide(self._chains)
            self._same = self.collectives.divide(self._peers)
            self.collectives.connect()

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *arguments: Any,
        **options: Any,
    ) -> None:
        """See Backend.build; InputError also where the model cannot be cut."""
        super().build(model, optimizer, *arguments, **options)
        self._state.held = self._held
        here, specs = self.place_in_mesh, (None, *self.stages.between, None)
        if optimizer.global_clipnorm:
            optimizer.sum_over_weights = lambda number: self._chain.sum([number])[0]
        self._stage_step = StageStep(
            self._step, here, self.collectives.messages, (specs[here.stage], specs[here.stage + 1])
        )

    def _make_step(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *arguments: Any,
        bfloat16: Sequence[keras.layers.Layer] = (),
        **options: Any,
    ) -> Step:
        """See SingleBackend._make_step: of this process's stage."""
        check_whole_batch(model, "micro_batches", self._micro_batches)
        here = self.place_in_mesh
        self.stages = make_stages(model, here.num_stages, self.options.stages)
        self._segment = segment = self.stages.segments[here.stage]
        slots = slot_places(optimizer, model.trainable_variables, segment.trainable_places)
        before = getattr(self, "_state", None)
        self._state = StageState(model, segment, slots, self.collectives, before)
        own = {id(layer) for layer in segment._flatten_layers()}
        half = [layer for layer in bfloat16 if id(layer) in own]
        options |= {"worker": here.replica, "bfloat16": half}
        step = Step(segment, optimizer, *arguments, **options)
        step.whole_model, is_last = model, here.stage + 1 == here.num_stages
        step.gradients_follow = is_last and self.options.schedule == "1f1b"
        return step

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        if self._state.is_whole:
            self._state.forget_others()
        self._try_coupling(data, indices)
        missing = -indices.shape[1] % self._micro_batches
        indices, weights = (np.pad(a, ((0, 0), (0, missing))) for a in (indices, weights))
        compiles, started = len(self._functions), time.monotonic()
        sums, waited = self._run(self._train_steps, data, indices, weights, num_examples)
        if len(self._functions) == compiles:
            self._waited += float(waited.sum())
            self._trained += time.monotonic() - started
        return sums

    def _try_coupling(self, data: Any, indices: np.ndarray) -> None:
        """Once; stages behind the first try numbers drawn at random, as what goes between stages may be anything."""
        if self._coupled is not None:
            return
        features, labels = examples_to_try(self._model, data, indices)
        here, between = self.place_in_mesh.stage, (None, *self.stages.between)
        spec, step = between[here], self._step
        if spec:
            count = len(tf.nest.flatten(features)[0])
            random = np.random.default_rng(0).normal(size=[count, *spec.shape])
            features = tf.cast(random, spec.dtype)
        if here + 1 < len(between):
            step = Step(self._segment, step.optimizer, _no_loss, {})
        what = what_couples(step, self._variables, features, labels)
        check_coupling(what, f"micro_batches={self._micro_batches} take it in parts")
        self._coupled = False

    def take_figures(self) -> dict[str, float]:
        share = self._waited / self._trained if self._trained else 0.0
        self._waited = self._trained = 0.0
        theory = bubble(self.place_in_mesh.num_stages, self._micro_batches)
        return {"waiting_for_stages": share, "bubble_in_theory": theory}

    def training_columns(self, global_batch_size: int) -> slice:
        columns = self.columns(global_batch_size)
        if columns.stop - columns.start < self._micro_batches:
            raise InputError(
                f"a batch of {columns.stop - columns.start} examples cannot go through the stages as "
                f"micro_batches={self._micro_batches}; use a larger global_batch_size or fewer micro_batches"
            )
        return columns

    @property
    def _alike(self) -> Collectives:
        return self._same

    def _groups(self) -> Sequence[Sequence[int]]:
        """See SingleBackend: processes of the same stage."""
        return self._peers

    def read(self) -> Arrays:
        return self._state.read(self._common(), self.place_in_mesh.replica == 0)

    def read_for_file(self) -> SavedArrays:
        return self.read()

    def write(self, arrays: SavedArrays) -> None:
        self._state.write(arrays)
        self._note_common_state(arrays)

    def restore(self, arrays: SavedArrays) -> None:
        """See Backend.restore; what is other processes' follows at `synchronize`."""
        if self.rank == 0:
            self.write(arrays)

    def synchronize(self) -> None:
        """See Backend.synchronize: each process is handed its stage's state by rank 0."""
        self._state.hand_out()
        self._note_common_state({"slots/0": self._variables.slots[0].numpy()})

    def sync_model(self) -> None:
        """See Backend.sync_model; on rank 0 only."""
        self._state.fill_model(self.read())

    def _train_steps(self, block: Block) -> Any:
        here = self.place_in_mesh
        for collectives in (self._same, self.collectives, self._chain):
            collectives.begin_graph("train")
        work = order_of_work(
            self.options.schedule, here.stage, here.num_stages, self._micro_batches
        )

        def step(i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            state, parts = self._read(), block.parts(i, self._micro_batches)
            gradients, sums, non_trainable, waited = self._stage_step.gradients(
                state, parts.part, work, self._segment.trainable_variables
            )
            if self.world_size > 1:
                gradients = self._same.sum(gradients)
            new, slots = self._step.apply(state.slots, gradients, state.weights)
            self._assign(State(new, non_trainable, slots), sums)
            return sums, waited

        sums, waited = block.each(step, (keras.backend.floatx(), "float64"))
        self.bytes_per_step = self._same.bytes + self._stage_step.bytes
        return self.collectives.sum([sums])[0], waited

    def _evaluate_steps(self, block: Block) -> tf.Tensor:
        def step(i: tf.Tensor) -> tf.Tensor:
            (batch,) = block.pieces(i, 1)
            return self._stage_step.evaluated(self._read(), batch)

        self.collectives.begin_graph("evaluate")
        sums = block.each(step)
        return self.collectives.sum([sums])[0]


def _no_loss(labels: Any, outputs: Any) -> tf.Tensor:
    """[batch]: a stage that is not the last has none."""
    return tf.zeros(tf.shape(tf.nest.flatten(outputs)[0])[:1])


_no_loss.stands_alone = True  # type: ignore[attr-defined]


# Over pipeline stages the registry takes it for another backend, whose processes it uses.
instead_of = PipelineBackend

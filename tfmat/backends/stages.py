"""The stages of a network: where it is cut, and which of the model's variables and the optimizer's slots each has."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfmat.errors import InputError
from tfmat.models.segments import Cut, Segment, cut_model, named_cuts, possible_cuts
from tfmat.optimizers.functional import copy_of


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
    segments = cut_model(model, chosen)
    _check(model, segments)
    between = [
        tf.TensorSpec(place.tensor.shape[1:], keras.backend.standardize_dtype(place.tensor.dtype))
        for place in chosen
    ]
    return Stages(tuple(segments), tuple(between), not rules)


def bytes_of(variables: Sequence[keras.Variable]) -> int:
    """Bytes of the variables' numbers."""
    return sum(
        (tf.TensorShape(v.shape).num_elements() or 0) * tf.as_dtype(v.dtype).size for v in variables
    )


def slot_places(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable], own: Sequence[int]
) -> list[int]:
    """Where the variables of a stage's optimizer stand among those of an optimizer of the whole model.

    Args:
      optimizer: not built.
      variables: all trainable ones of the model.
      own: places of the stage's among them, in the order in which its optimizer gets them.
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


def slots_of(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> list[tuple[int | None, int]]:
    """For each variable that the optimizer would have: the one of `variables` that it is a slot of, and its bytes.

    The first is None for counters. Nothing of the variables' size is allocated.
    """
    trial, sizes = copy_of(optimizer), {}
    add = trial.add_variable

    def add_small(shape: Any, initializer: Any = "zeros", dtype: Any = None, **options: Any) -> Any:
        made = add((), "zeros", dtype, **options)
        sizes[id(made)] = math.prod(shape) * tf.as_dtype(made.dtype).size
        return made

    trial.add_variable = add_small
    trial.build(list(variables))
    owners = {
        id(slot): i
        for name, slots in vars(trial).items()
        if isinstance(slots, list) and len(slots) == len(variables)
        if name not in ("_variables", "_trainable_variables")
        for i, slot in enumerate(slots)
    }
    return [
        (owners.get(id(v)), sizes.get(id(v), tf.as_dtype(v.dtype).size)) for v in trial.variables
    ]


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
    weights, sent = _weights_before(model, places), [0, *map(_sent, places), 0]
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
    last = len(weights) - 1
    best = {0: _Option(0, 0, ())}
    for stage in range(num_stages):
        longer: dict[int, _Option] = {}
        for end in [last] if stage == num_stages - 1 else range(1, last):
            options = [
                _Option(
                    max(option.largest, weights[end] - weights[start]),
                    option.sent + sent[end],
                    (*option.ends, end),
                )
                # Of places that cost the same, the last: an activation stays with its layer.
                for start, option in reversed(best.items())
                if start < end and weights[end] > weights[start]
            ]
            if options:
                longer[end] = min(options, key=cost)
        best = longer
    return best.get(last)


def _weights_before(model: keras.Model, places: Sequence[Cut]) -> list[int]:
    """Bytes of trainable weights before each place: the start, the cuts, the end."""
    return [
        *itertools.accumulate((bytes_of(_trainable(place.layers)) for place in places), initial=0),
        bytes_of(model.trainable_variables),
    ]


def _trainable(layers: Sequence[keras.layers.Layer]) -> list[keras.Variable]:
    return list({id(v): v for layer in layers for v in layer.trainable_variables}.values())


def _sent(place: Cut) -> int:
    """Bytes of an example."""
    size = math.prod(place.tensor.shape[1:])
    return size * tf.as_dtype(keras.backend.standardize_dtype(place.tensor.dtype)).size


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

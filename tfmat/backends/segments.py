"""A Keras model as segments that run one after the other, and a training step that computes each of them twice."""

import itertools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfmat.backends.base import Backend
from tfmat.backends.step import Step, call_layer
from tfmat.errors import InputError, nearest

# --------------------------------------------------------------------------------------------------
# A functional or Sequential model in segments, each from one tensor to the next. It can be cut only where a single
# tensor goes on: residual connections, layers that are called several times and masks stay within a segment.


class Segment(keras.layers.Layer):
    """Consecutive layers of a model as one layer, which shares their variables and changes nothing about them.

    Args:
      model: whose layers these are.
      start, stop: KerasTensors of the model, structures of them at its ends.

    Attributes:
      operations: layers and other operations in it.
      layer_names: of the layers in it, in the order in which they run.
      outputs: KerasTensors that it gives.
      trainable_places, non_trainable_places: of its variables among the model's, in the order in which
        `stateless_call` takes them.
    """

    def __init__(self, model: "keras.Model | Segment", start: Any, stop: Any, name: str):
        super().__init__(name=name, autocast=False)
        self._function = keras.Function(start, stop)
        self.operations = [
            each
            for each in self._function.operations
            if not isinstance(each, keras.layers.InputLayer)
        ]
        self.outputs = self._function.outputs
        self.parts = [each for each in self.operations if isinstance(each, keras.layers.Layer)]
        self.layer_names = tuple(layer.name for layer in self.parts)
        self.trainable_places = _places(self.trainable_variables, model.trainable_variables)
        self.non_trainable_places = _places(
            self.non_trainable_variables, model.non_trainable_variables
        )
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The tensor with which the next segment goes on."""

        def operation(each: Any) -> Any:
            if training is None or not getattr(each, "_call_has_training_arg", False):
                return each
            # Over what the graph noted when it was made.
            return lambda *args, **kwargs: each(*args, **{**kwargs, "training": training})

        inputs = [
            keras.ops.convert_to_tensor(value, tensor.dtype)
            for value, tensor in zip(keras.tree.flatten(inputs), self._function.inputs, strict=True)
        ]
        return self._function._run_through_graph(inputs, operation_fn=operation)


def segments(
    model: "keras.Model | Segment", where: str, key: str, whole: keras.Model | None = None
) -> list[Segment]:
    """The model's segments, in the order in which they run; together they hold each of its layers once.

    Args:
      model: built; or one or more layers of the model `whole`, whose names may belong to layers elsewhere.
      where: `every:K`, a cut after each K-th layer with weights (a part that cannot be cut counts as one), or regular
        expressions with commas between them, a cut behind each layer whose whole name one of them matches.
      key: for errors, under which people said so.

    Raises:
      InputError: a subclassed model, text that says nothing, or a cut where none is possible.
    """
    places = possible_cuts(model, key)
    if where.startswith("every:"):
        return cut_model(model, _every(places, where, key))
    named = named_cuts(possible_cuts(whole, key) if whole else places, where, key)
    names = {cut.layer_name for cut in named}
    return cut_model(model, [place for place in places if place.layer_name in names])


def cut_model(model: keras.Model | Segment, places: Sequence["Cut"]) -> list[Segment]:
    """The segments between some of the model's possible cuts, which are in the order of `possible_cuts`."""
    graph = _graph(model)
    ends = [graph._inputs_struct, *(place.tensor for place in places), graph._outputs_struct]
    return [
        Segment(model, start, stop, f"segment{i}")
        for i, (start, stop) in enumerate(itertools.pairwise(ends), start=1)
    ]


class Cut(NamedTuple):
    """A place where a model can be cut.

    Attributes:
      tensor: the one KerasTensor that goes on there.
      layer_name: of the layer or operation that gives it.
      layers: since the possible cut before.
    """

    tensor: Any
    layer_name: str
    layers: tuple[keras.layers.Layer, ...]

    @property
    def has_weights(self) -> bool:
        """Whether one of `layers` has."""
        return any(layer.weights for layer in self.layers)


def possible_cuts(model: keras.Model | Segment, key: str) -> list[Cut]:
    """Every place where the model can be cut, in the order in which its layers run; see `segments`."""
    graph = _graph(model)
    if not isinstance(graph, keras.Function):
        raise InputError(
            f"{key} needs a functional or Sequential model, whose layers can be told apart; {type(model).__name__} has "
            f"a call method of its own: leave {key} out"
        )
    by_depth = graph._nodes_by_depth
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    last_use = {id(tensor): len(nodes) for tensor in graph.outputs}
    last_call = {}
    for i, node in enumerate(nodes):
        last_call[id(node.operation)] = i
        for tensor in node.arguments.keras_tensors:
            last_use[id(tensor)] = max(i, last_use.get(id(tensor), i))
    found: list[Cut] = []
    alive = {id(tensor): tensor for tensor in graph.inputs}
    layers: list[keras.layers.Layer] = []
    called_until = 0
    for i, node in enumerate(nodes):
        alive |= {id(tensor): tensor for tensor in node.outputs}
        alive = {name: tensor for name, tensor in alive.items() if last_use.get(name, -1) > i}
        called_until = max(called_until, last_call[id(node.operation)])
        if node.is_input:
            continue
        if isinstance(node.operation, keras.layers.Layer):
            layers.append(node.operation)
        if len(alive) > 1 or called_until > i or not layers or i == len(nodes) - 1:
            continue
        (tensor,) = alive.values()
        # A mask goes with its tensor as an attribute, which would be lost.
        if any(tensor is each for each in node.outputs) and not hasattr(tensor, "_keras_mask"):
            found.append(Cut(tensor, node.operation.name, tuple(layers)))
            layers = []
    return found


def _graph(model: keras.Model | Segment) -> Any:
    if isinstance(model, Segment):
        return model._function
    return model._functional if isinstance(model, keras.Sequential) else model


def _every(places: Sequence[Cut], where: str, key: str) -> list[Cut]:
    text = where.removeprefix("every:")
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{key}={where}: give a whole number of layers, such as every:2")
    chosen, count = [], 0
    for i, place in enumerate(places):
        count += place.has_weights
        # A layer without weights, such as an activation, stays with the layer before it.
        if count == int(text) and (i + 1 == len(places) or places[i + 1].has_weights):
            chosen.append(place)
            count = 0
    return chosen


def named_cuts(places: Sequence[Cut], where: str, key: str) -> list[Cut]:
    """The places that `where` names by regular expressions; see `segments`."""
    chosen = set()
    for rule in where.split(","):
        try:
            expression = re.compile(rule)
        except re.error as error:
            raise InputError(f"{key}: '{rule}' is no regular expression ({error})") from error
        matching = {i for i, place in enumerate(places) if expression.fullmatch(place.layer_name)}
        if not matching:
            names = [place.layer_name for place in places]
            raise InputError(
                f"{key}: the model cannot be cut behind a layer '{rule}'{nearest(rule, names)}"
                if names
                else f"{key}: this model can be cut nowhere; leave {key} out"
            )
        chosen |= matching
    return [places[i] for i in sorted(chosen)]


def _places(variables: Sequence[Any], among: Sequence[Any]) -> tuple[int, ...]:
    place = {id(variable): i for i, variable in enumerate(among)}
    return tuple(place[id(variable)] for variable in variables)


# --------------------------------------------------------------------------------------------------
# Recomputation: a training step keeps what goes from one segment to the next, and computes the rest twice.
#
# Chen et al. 2016, Training deep nets with sublinear memory cost, arXiv:1604.06174.


class Recomputation:
    """A model that is called as in a training step, and whose gradients compute its segments a second time.

    Where the gradients follow at once, the last part need not be computed again.
    """

    def __init__(self, parts: Sequence[Segment], gradients_follow: bool = True):
        self._parts, self._kept = parts, parts[-1] if gradients_follow else None

    def __call__(
        self,
        weights: Sequence[tf.Tensor],
        non_trainable: Sequence[tf.Tensor],
        features: Any,
        context: Callable[[], AbstractContextManager],
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        """Does as the model's `stateless_call` with training=True and return_losses=True.

        Layers are called within what `context` makes, now and when they are called again.
        """
        state, penalties, value = list(non_trainable), [], features
        for part in self._parts:
            inputs = (
                [weights[i] for i in part.trainable_places],
                [state[i] for i in part.non_trainable_places],
                value,
            )
            if part is self._kept:  # its gradients come first, while everything is still there
                with context():
                    value, new, own = _call(part, *inputs)
            else:
                value, new, own = _computed_again(part, inputs, context)
            penalties += own
            for i, tensor in zip(part.non_trainable_places, new, strict=True):
                state[i] = tensor
        return value, state, penalties


def add_to(step: Step, backend: Backend) -> None:
    """Has the model's segments computed a second time."""
    where = backend.settings.model.recompute
    step.recomputation = recomputation_of(
        step.model, where, step.whole_model, step.gradients_follow
    )


def recomputation_of(
    model: Any, where: str, whole: keras.Model | None = None, gradients_follow: bool = True
) -> Recomputation:
    """The recomputation of a built model that is cut as `where` says, see `segments`.

    A pipeline stage is a segment of the model `whole`. Its last part, or all of a stage in one piece, is computed
    again, too, because other micro-batches come between its forward and backward pass (Huang et al. 2019,
    arXiv:1811.06965, 2.3). `gradients_follow` says that none do.

    Raises:
      InputError: `where` cannot be read, or the model cannot be cut there, or not at all.
    """
    parts = segments(model, where, "recompute", whole)
    if len(parts) == 1 and whole is None:
        raise InputError(
            f"recompute={where} leaves the model in one piece, of which nothing is computed again; give cuts "
            "nearer to each other, such as every:2, or leave it out"
        )
    return Recomputation(parts, gradients_follow)


def _call(part: Segment, weights: Any, state: Any, value: Any) -> Any:
    return call_layer(part, weights, state, value, training=True)


def _computed_again(
    part: Segment, inputs: Any, context: Callable[[], AbstractContextManager]
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
    """Results of `_call`; nothing within is kept for the gradients.

    Seeds and moving statistics come from the first time. The second time starts from the same ones, so that the masks
    of dropout are the same, and its own new ones are dropped.
    """
    flat = tf.nest.flatten(inputs)
    moved: list[tf.Tensor] = []

    def forward(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        with context():
            value, state, penalties = _call(part, *tf.nest.pack_sequence_as(inputs, tensors))
        return [value, *penalties], state

    @tf.custom_gradient
    def run(*tensors: tf.Tensor) -> Any:
        with tf.GradientTape() as tape, tape.stop_recording():
            outputs, state = forward(*tensors)
        moved.extend(state)

        def gradients(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            # Without waiting for what comes from behind, all segments would be computed again at once.
            with tf.control_dependencies(upstream):
                starts = [tf.identity(tensor) for tensor in tensors]
                floats = [start for start in starts if start.dtype.is_floating]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(floats)
                    again, _ = forward(*starts)
                found = iter(tape.gradient(again, floats, output_gradients=list(upstream)))
            return [next(found) if start.dtype.is_floating else None for start in starts]

        return outputs, gradients

    value, *penalties = run(*flat)
    return value, moved, penalties

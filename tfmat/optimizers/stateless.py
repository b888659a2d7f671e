"""Keras code as pure functions: what it assigns comes back as values, and what would be lost by that is refused."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

from tfmat.errors import InputError


class Scope(keras.StatelessScope):
    """Keras's StatelessScope, which knows of every assignment whether its value comes back.

    Keras drops values of variables that nobody asks for. It also keeps what either branch of `ops.cond` assigns,
    whichever of them runs.

    Args:
      mapping: pairs of variables and their values.
      returned: variables whose new values are asked for afterwards.
      options: of keras.StatelessScope.
    """

    def __init__(
        self,
        mapping: Iterable[tuple[Any, Any]],
        returned: Iterable[keras.Variable] = (),
        **options: Any,
    ):
        super().__init__(mapping, **options)
        self._returned = {id(variable) for variable in returned}
        self._graph = tf.compat.v1.get_default_graph()
        self._lost: list[keras.Variable] = []
        self._in_branches: list[keras.Variable] = []

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Notes an assignment."""
        variable, value = update
        if id(variable) not in self._returned:
            self._lost.append(variable)
        elif tf.compat.v1.get_default_graph() is not self._graph:
            self._in_branches.append(variable)
        # Keras keeps a variable as the value of another, which has the value that it has later.
        value = value.value if isinstance(value, keras.Variable) else value
        super().add_update((variable, value))

    def check(self, what: str) -> None:
        """InputError where an assignment was lost; `what` made it."""
        for variable in self._in_branches:
            raise InputError(
                f"{what} assigns {variable.path} in a branch or loop of the graph, which a training step cannot take "
                "over; compute the new value there (ops.where, or what ops.cond returns), and assign it outside"
            )
        for variable in self._lost:
            raise InputError(f"{what} {_why(variable)}")


def _why(variable: keras.Variable) -> str:
    if variable is global_seed_generator().state or variable.path.endswith("seed_generator_state"):
        return (
            "draws random numbers that would be the same in each step; give them the seed "
            "keras.random.SeedGenerator(), which a layer of the model keeps as an attribute"
        )
    if "rnn_state" in variable.path:
        return (
            f"keeps {variable.path} from one batch to the next (stateful=True), but batches are shuffled and divided; "
            "leave stateful out, and give whole sequences as examples"
        )
    if variable.trainable:
        return (
            f"assigns the weight {variable.path}, which only the optimizer changes in a training step; leave the layer "
            "out (for SpectralNormalization use weight decay or a kernel_constraint)"
        )
    return (
        f"assigns {variable.path}, which is no variable of the model's layers, so that the value would be lost; let a "
        "layer make it by add_weight(trainable=False), and assign it in the layer's call"
    )


def call_layer(
    layer: keras.layers.Layer,
    weights: Sequence[Any],
    non_trainable: Sequence[Any],
    inputs: Any,
    **arguments: Any,
) -> tuple[Any, list[Any], list[Any]]:
    """Does as `layer.stateless_call` with return_losses=True; InputError where an assignment would be lost.

    Args:
      layer: built; also a model.
      weights, non_trainable: values of its variables.
      inputs: of the layer.
      arguments: of its call.

    Returns:
      Outputs, new values of the non-trainable variables, and losses that layers added.
    """
    variables = layer.non_trainable_variables
    mapping = [
        *zip(layer.trainable_variables, weights, strict=True),
        *zip(variables, non_trainable, strict=True),
    ]
    # Metrics of a layer change nothing about the training.
    metrics = layer.metrics_variables
    with Scope(mapping, [*variables, *metrics], collect_losses=True) as scope:
        outputs = layer.call(inputs, **arguments)
        losses = list(layer.losses)
    scope.check("the model")
    if any(id(variable) in scope.state_mapping for variable in metrics):
        warnings.warn(
            "metrics that a layer updates in its call are not logged; give metrics as functions of (labels, outputs)",
            stacklevel=2,
        )
    return outputs, [scope.get_current_value(variable) for variable in variables], losses

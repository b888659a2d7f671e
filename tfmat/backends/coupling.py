"""Whether the examples of a batch change each other's results.

Then padding would change them too, and a worker that sees its own part of the batch alone has others.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.batches import Batch
from tfmat.backends.state import State
from tfmat.backends.step import Step
from tfmat.errors import InputError

# Examples that a trial computes, half of them with weight zero: enough for losses that compare classes.
_EXAMPLES = 8
# Difference of results, relative to the largest: far above float32's rounding.
_DIFFERENCE = 1e-5


def what_couples(step: Step, state: State, features: Any, labels: Any) -> str | None:
    """Finds out whether examples of weight zero change the results of others; returns what does that, None for nothing.

    Batch normalisation knows these weights, and takes no part of such examples. A model whose results differ anyway,
    as with random numbers of TensorFlow's own, cannot be tried.

    Args:
      step: of the model; computed without a graph.
      state: tensors; slots are not needed.
      features, labels: structures of tensors [examples, ...].
    """
    if all(getattr(function, "stands_alone", False) for function in step.functions) and (
        _layers_stand_alone(step.model)
    ):
        return None
    count = len(tf.nest.flatten(features)[0])
    rows = np.arange(count)
    weights = tf.constant(rows % 2 == 0, tf.float32)

    def outcome(rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
        batch = Batch.gather((features, labels), rows, weights, tf.reduce_sum(weights))
        outputs, non_trainable, losses = step.outcome(state, batch)
        found = [("the model", np.asarray(output)[::2]) for output in tf.nest.flatten(outputs)]
        found += [("the model", np.asarray(value)) for value in non_trainable]
        return found + [("a loss or metric", np.asarray(loss)[::2]) for loss in losses]

    def first_difference(one: Any, other: Any) -> str | None:
        for (name, mine), (_, theirs) in zip(one, other, strict=True):
            mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
            limit = _DIFFERENCE * np.max(np.abs(mine), initial=0.0)
            if not np.allclose(mine, theirs, rtol=0.0, atol=limit, equal_nan=True):
                return name
        return None

    begun = outcome(rows)
    name = first_difference(begun, outcome(rows - rows % 2))
    return None if name is None or first_difference(begun, outcome(rows)) else name


def _layers_stand_alone(model: Any) -> bool:
    """Whether the model is made of Keras's and tfmat's own layers, none of which works over the examples.

    Most models are, and a trial would take half a second.
    """
    parts = [model]
    while parts:
        part = parts.pop()
        activation = getattr(part, "activation", None)
        if not _is_known(part) or (activation is not None and not _is_known(activation)):
            return False
        parts += getattr(part, "operations", None) or []
        parts += getattr(part, "_layers", None) or []
        name = type(part).__name__
        axis = getattr(part, "axis", None)
        over_examples = 0 in (axis if isinstance(axis, list | tuple) else [axis])
        if over_examples or name in ("Lambda", "MixUp", "CutMix", "RandAugment", "Dot"):
            return False
        if not isinstance(part, keras.layers.Layer):
            return False
    return True


def _is_known(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return module.split(".")[0] in ("keras", "tfmat")


def rows_to_try(model: Any, indices: np.ndarray) -> np.ndarray:
    """Rows of the first batch (of [steps, batch]) for `what_couples`: all where the model has batches of one size."""
    inputs: Sequence[Any] = tf.nest.flatten(getattr(model, "inputs", None) or [])
    if any(tensor.shape[0] is not None for tensor in inputs):
        return indices[0]
    return indices[0, :_EXAMPLES]


def check_coupling(what: str | None, divided_by: str) -> None:
    """InputError where `what` couples examples, and batches are divided."""
    if what:
        raise InputError(
            f"{what} gives an example other results where the rest of its batch is another, but {divided_by}; use "
            "--backend=single without it, or let each example's results depend on that example alone"
        )

"""Whatever Keras takes for a loss, as a function that gives one value an example."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.loss import squeeze_or_expand_to_same_rank

from tfmat.backends.base import PerExample
from tfmat.errors import InputError

# What divides by the number of examples; the others divide by something else, or by nothing.
_MEANS = ("sum_over_batch_size", "mean")


def per_example_function(function: Any, output_names: Sequence[str] = ()) -> PerExample:
    """A loss as a function (labels, outputs) -> [batch, ...].

    As in Keras, a loss is computed in `keras.config.floatx()` where the outputs are in half precision, and one loss of
    a model with several outputs is the sum over them.

    Args:
      function: a Keras loss (object or name), a function of (labels, outputs), or several of these, added up: a list in
        the order of the outputs, or a dictionary by their names.
      output_names: of the model, where its outputs are a list and the losses or labels a dictionary.

    Raises:
      InputError: there is no such loss, or it is no mean over the examples. The function that is returned raises it
        where labels, outputs and losses do not belong together.
    """
    if isinstance(function, Mapping | list | tuple):
        return _sum_of_losses(function, output_names)
    one_at_a_time = isinstance(function, str | keras.losses.Loss)
    stands_alone = _stands_alone(function)
    if isinstance(function, str):
        name = function
        try:
            function = keras.losses.get(name)
        except ValueError:
            raise InputError(
                f"there is no loss '{name}' in Keras; give the name of one, such as mean_squared_error, a keras.losses "
                "object, or a function of (labels, outputs)"
            ) from None
    if isinstance(function, keras.losses.Loss):
        if function.reduction not in _MEANS:
            raise InputError(
                f"loss {type(function).__name__} has reduction={function.reduction!r}, but a step takes the mean over "
                "its examples; leave reduction out (and multiply the learning rate instead)"
            )
        if type(function).__call__ is not keras.losses.Loss.__call__:
            raise InputError(
                f"loss {type(function).__name__} has its own __call__, which would not be used; let its call(labels, "
                "outputs) give one value for each example"
            )
        function = function.call
    if not callable(function):
        raise InputError(
            f"a loss is the name of one, a keras.losses object or a function, not {type(function).__name__}"
        )

    def per_example(labels: Any, outputs: Any) -> Any:
        if tf.is_tensor(outputs):
            return _one(function, labels, outputs)
        outputs = tf.nest.map_structure(_full_precision, outputs)
        if not one_at_a_time:
            return function(labels, outputs)
        names = _same_places(labels, outputs, output_names)
        labels = _by_name(labels, names)
        outputs = _by_name(outputs, names)
        return _total([_one(function, labels[name], outputs[name]) for name in names])

    per_example.stands_alone = stands_alone  # type: ignore[attr-defined]
    return per_example


def _stands_alone(function: Any) -> bool:
    """Whether an example's value is sure to depend on that example alone: a loss of Keras or tfmat."""
    function = getattr(function, "fn", function)
    name = function if isinstance(function, str) else getattr(function, "__name__", "")
    if name.lower() == "circle":
        return False
    if isinstance(function, str):
        return True
    module = getattr(function, "__module__", None) or ""
    return module.split(".")[0] in ("keras", "tfmat")


def _sum_of_losses(losses: Any, output_names: Sequence[str]) -> PerExample:
    if not losses:
        raise InputError("there is no loss; give one for each output of the model, or one for all")
    several = {
        key: per_example_function(value, output_names)
        for key, value in (losses.items() if isinstance(losses, Mapping) else enumerate(losses))
        if value is not None
    }

    def per_example(labels: Any, outputs: Any) -> Any:
        if tf.is_tensor(outputs):
            raise InputError(
                f"there are {len(several)} losses, but the model has one output; give one loss"
            )
        names = _same_places(labels, outputs, output_names)
        if not isinstance(losses, Mapping):
            if len(losses) != len(names):
                raise InputError(
                    f"there are {len(losses)} losses for {len(names)} outputs; give one for each, None for none"
                )
            by_name = {names[place]: function for place, function in several.items()}
        else:
            by_name = several
        unknown = [str(name) for name in by_name if name not in names]
        if unknown:
            raise InputError(
                f"there is a loss for '{unknown[0]}', which is no output of the model; its outputs: "
                f"{', '.join(map(str, names))}"
            )
        labels, outputs = _by_name(labels, names), _by_name(outputs, names)
        return _total([function(labels[name], outputs[name]) for name, function in by_name.items()])

    stand_alone = all(getattr(each, "stands_alone", False) for each in several.values())
    per_example.stands_alone = stand_alone  # type: ignore[attr-defined]
    return per_example


def _same_places(labels: Any, outputs: Any, output_names: Sequence[str]) -> list[Any]:
    """Names of the outputs in their order; InputError where the labels have others."""
    given = list(outputs) if isinstance(outputs, Mapping) else list(output_names)
    names = given if len(given) == len(outputs) else list(range(len(outputs)))
    wrong = (
        set(labels) != set(names)
        if isinstance(labels, Mapping)
        else tf.is_tensor(labels) or len(labels) != len(names)
    )
    if wrong:
        raise InputError(
            f"the model has the outputs {', '.join(map(str, names))}; give labels for each of them, by these names or "
            "in this order"
        )
    return names


def _by_name(values: Any, names: list[Any]) -> dict[Any, Any]:
    return dict(values) if isinstance(values, Mapping) else dict(zip(names, values, strict=True))


def _one(function: Any, labels: Any, outputs: tf.Tensor) -> Any:
    outputs = _full_precision(outputs)
    if tf.is_tensor(labels):
        if labels.dtype.is_floating:
            labels = tf.cast(labels, outputs.dtype)
        if labels.shape.rank is not None and outputs.shape.rank is not None:
            # As Keras does: [batch] and [batch, 1] would else become [batch, batch].
            labels, outputs = squeeze_or_expand_to_same_rank(labels, outputs)
    values = function(labels, outputs)
    mask = getattr(
        values, "_keras_mask", None
    )  # of losses.Circle, where an example has no other of its class
    if mask is None:
        return values
    mask = tf.cast(mask, values.dtype)
    # Keras takes the mean over the others.
    share = tf.math.divide_no_nan(tf.cast(tf.size(mask), mask.dtype), tf.reduce_sum(mask))
    return values * mask * share


def _total(values: list[Any]) -> tf.Tensor:
    """The sum of several losses, each of its own shape [batch, ...]: [batch]."""
    return tf.add_n([per_example_mean(value) for value in values])


def per_example_mean(values: tf.Tensor) -> tf.Tensor:
    """[batch, ...] -> [batch]; InputError for one number for the whole batch, which padding would be part of."""
    if values.shape.rank == 0:
        raise InputError(
            "a loss or metric gave one number for the whole batch; it must give one for each example: [batch] or "
            "[batch, ...]"
        )
    if values.shape.rank > 1:
        return tf.reduce_mean(values, axis=range(1, values.shape.rank))
    return values


def _full_precision(tensor: Any) -> Any:
    if tensor.dtype in (tf.float16, tf.bfloat16):
        return tf.cast(tensor, keras.config.floatx())
    return tensor

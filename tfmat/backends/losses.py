"""Losses and metrics as pure functions of a batch, weighted as Keras weights them."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses.loss import squeeze_or_expand_to_same_rank
from keras.src.trainers.compile_utils import is_binary_or_sparse_categorical
from keras.src.utils.naming import get_object_name

from tfmat.backends.base import Metric, PerExample
from tfmat.errors import InputError

# --------------------------------------------------------------------------------------------------
# Whatever Keras takes for a loss, as a function that gives one value an example.


# _MEANS: reductions that divide by the number of examples; others divide by something else, or by nothing.
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
    # Keras divides by the examples of the batch that count.
    couples = getattr(function, "ignore_class", None) is not None
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
        labels = _by_output(labels, names)
        outputs = _by_output(outputs, names)
        return _total([_one(function, labels[name], outputs[name]) for name in names])

    per_example.stands_alone = stands_alone  # type: ignore[attr-defined]
    per_example.couples = couples  # type: ignore[attr-defined]
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
        labels, outputs = _by_output(labels, names), _by_output(outputs, names)
        return _total([function(labels[name], outputs[name]) for name, function in by_name.items()])

    stand_alone = all(getattr(each, "stands_alone", False) for each in several.values())
    per_example.stands_alone = stand_alone  # type: ignore[attr-defined]
    couple = any(getattr(each, "couples", False) for each in several.values())
    per_example.couples = couple  # type: ignore[attr-defined]
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


def _by_output(values: Any, names: list[Any]) -> dict[Any, Any]:
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
    # From losses.Circle, where an example has no other of its class, and from an ignored class.
    mask = getattr(values, "_keras_mask", None)
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


# --------------------------------------------------------------------------------------------------
# Metrics as sums over examples: what every worker adds up for each batch, and the value that the sums give.


# Names that Keras's `compile` turns into one metric or another by the shapes of labels and outputs.
_ACCURACY = ("accuracy", "acc")


# Metrics as users give them, see `tfmat.Trainer`.
GivenMetrics = Mapping[str, Any] | Sequence[Any] | None


def make_metrics(metrics: GivenMetrics, model: keras.Model) -> dict[str, Metric]:
    """A user's metrics as `Backend.build` takes them, see `make_metric`; InputError as there."""
    outputs = _output_names(model)
    if metrics is None or isinstance(metrics, Mapping):
        made: dict[str, Metric] = {}
        for name, given in (metrics or {}).items():
            if name in outputs and isinstance(given, str | list | tuple):
                # As in Keras: metrics of this output.
                flat = [given] if isinstance(given, str) else given
                for each in flat:
                    label = f"{name}_{each if isinstance(each, str) else get_object_name(each)}"
                    made[label] = _of_output(label, name, make_metric(label, each, model), model)
            else:
                made[name] = make_metric(name, given, model)
        return made
    if isinstance(metrics, list | tuple):
        if metrics and outputs:
            raise InputError(
                "a list of metrics does not say which of the model's outputs each is about; give a dictionary, such as "
                f"{{'{outputs[0]}': ['accuracy']}}, or one of names and functions of (labels, outputs)"
            )
        # As Keras's `compile` does for one output.
        flat = keras.tree.flatten(metrics)
        named = [(each if isinstance(each, str) else get_object_name(each), each) for each in flat]
    else:
        raise InputError(
            "metrics is a list of metrics, such as ['accuracy'], or a dictionary of them by names in the logs, such as "
            f"{{'mae': 'mean_absolute_error'}}, not {type(metrics).__name__}"
        )
    made = {name: make_metric(name, metric, model) for name, metric in named}
    if len(made) < len(named):
        raise InputError(
            f"several metrics have one name: {', '.join(name for name, _ in named)}; give a dictionary with a name for "
            "each"
        )
    return made


def _output_names(model: keras.Model) -> list[str]:
    """The names of a model's several outputs, in their order; none where it has one."""
    outputs = getattr(model, "output", None)
    named = outputs if isinstance(outputs, Mapping) else getattr(model, "output_names", None) or ()
    return list(named) if len(named) > 1 else []


def _of_output(label: str, output: str, metric: Metric, model: keras.Model) -> Metric:
    """A function of the labels and values of one output, as one of all of them."""
    if isinstance(metric, keras.metrics.Metric):
        raise InputError(
            f"metric '{label}': {type(metric).__name__} cannot be taken of one of several outputs; give a function of "
            f"(labels, outputs) with one value an example, which takes '{output}'"
        )

    def per_example(labels: Any, outputs: Any) -> Any:
        names = _same_places(labels, outputs, _output_names(model))
        place = names[_output_names(model).index(output)]
        return metric(_by_output(labels, names)[place], _by_output(outputs, names)[place])

    per_example.stands_alone = getattr(metric, "stands_alone", False)  # type: ignore[attr-defined]
    return per_example


def _accuracy(labels: Any, outputs: Any) -> Any:
    """[batch]: the accuracy of the kind that labels and outputs have, as Keras chooses it."""
    if not (tf.is_tensor(labels) and tf.is_tensor(outputs)):
        raise InputError(
            "metric accuracy: the model has several outputs; give it by its output, such as "
            "metrics={'OUTPUT': ['accuracy']}"
        )
    outputs = tf.cast(outputs, keras.config.floatx())
    labels = tf.cast(labels if labels.shape.rank != 1 else labels[:, None], outputs.dtype)
    is_binary, is_sparse = is_binary_or_sparse_categorical(labels, outputs)
    which = "binary" if is_binary else "sparse_categorical" if is_sparse else "categorical"
    return per_example_mean(getattr(keras.metrics, f"{which}_accuracy")(labels, outputs))


_accuracy.stands_alone = True  # type: ignore[attr-defined]


def make_metric(name: str, metric: Any, model: keras.Model) -> Metric:
    """A user's metric as `Backend.build` takes it.

    Args:
      name: of the metric in the logs.
      metric: a keras.metrics object, or what `per_example_function` takes; a name may be that of either.
      model: built; its outputs' shape is that of the metric's state, where it depends on that.

    Raises:
      InputError: it is neither, or its state is no sum over examples, or its value no single number.
    """
    if isinstance(metric, str):
        metric = _named_metric(name, metric)
    if isinstance(metric, list | tuple) and any(
        isinstance(each, str) and each in _ACCURACY for each in metric
    ):
        outputs = _output_names(model)
        raise InputError(
            f"metric '{name}': a list of metrics belongs to one of several outputs, of which the model has "
            f"{', '.join(outputs) or 'none'}; give one metric for each name, such as {{'accuracy': 'accuracy'}}"
        )
    if isinstance(metric, type) and issubclass(metric, keras.metrics.Metric):
        raise InputError(
            f"metric '{name}': {metric.__name__} is a class; give an object: {metric.__name__}()"
        )
    if getattr(metric, "stands_alone", False):
        made: PerExample = metric
        return made
    if not isinstance(metric, keras.metrics.Metric):
        return per_example_function(metric, getattr(model, "output_names", ()))
    _check_sums(name, metric, model)
    return metric


def _named_metric(name: str, given: str) -> Any:
    if given in _ACCURACY:
        return _accuracy
    if given in ("cosine_similarity", "CosineSimilarity"):
        return keras.metrics.get(given)  # the loss of this name has the other sign
    for module in (keras.losses, keras.metrics):
        try:
            return module.get(given)
        except ValueError:
            continue
    raise InputError(
        f"metric '{name}': there is no metric or loss '{given}' in Keras; give the name of one, such as AUC or "
        "mean_absolute_error, a keras.metrics object, or a function of (labels, outputs)"
    )


def _check_sums(name: str, metric: keras.metrics.Metric, model: keras.Model) -> None:
    """InputError where the state is not a sum over examples from zero, of which a single number is computed."""
    parameters = list(inspect.signature(metric.update_state).parameters)
    if len(parameters) < 3 or parameters[2] != "sample_weight":
        raise InputError(
            f"metric '{name}': {type(metric).__name__}.update_state does not take (labels, outputs, sample_weight), "
            "without which examples that fill a batch up would count; give it these arguments"
        )
    batches = _examples(model)
    _make_variables(name, metric, batches)
    if not _adds_up(metric, batches):
        raise InputError(
            f"metric '{name}': the state of {type(metric).__name__} is no sum over examples that begins at zero, so "
            "that batches and workers cannot be put together; give a function of (labels, outputs) or another metric"
        )
    metric.reset_state()
    result = metric.result()
    if isinstance(result, Mapping) or np.ndim(result):
        raise InputError(
            f"metric '{name}': {type(metric).__name__} gives several numbers; let it give one, such as by "
            "average='macro' or class_aggregation='uniform_average'"
        )


def _examples(model: keras.Model) -> list[tf.Tensor]:
    """Two batches that could be labels or outputs of the model, of numbers from 0 to 1; none for several outputs."""
    outputs = tf.nest.flatten(getattr(model, "outputs", None) or [])
    if len(outputs) != 1:
        return []
    shape = [4, *(size or 2 for size in outputs[0].shape[1:])]
    random = np.random.default_rng(0)
    return [tf.constant(random.uniform(size=shape), keras.config.floatx()) for _ in range(2)]


def _make_variables(name: str, metric: keras.metrics.Metric, batches: list[tf.Tensor]) -> None:
    """F1Score, R2Score and others make their variables when they first see outputs, which have the labels' shape."""
    if getattr(metric, "_built", True) and metric.variables:
        return
    if batches:
        metric.update_state(batches[0], batches[0])
    if not (batches and metric.variables):
        raise InputError(
            f"metric '{name}': {type(metric).__name__} has no variables before its first use; call its update_state "
            "once, with labels and outputs of one example"
        )


def _adds_up(metric: keras.metrics.Metric, batches: list[tf.Tensor]) -> bool:
    """Whether the state begins at zero, adds up over batches, and examples of weight zero do not count."""
    ones = tf.ones([4], keras.config.floatx())

    def state(*parts: tuple[tf.Tensor, tf.Tensor]) -> list[np.ndarray]:
        metric.reset_state()
        for values, weights in parts:
            metric.update_state(tf.round(values), values, sample_weight=weights)
        return [variable.numpy() for variable in metric.variables]

    if any(np.any(value) for value in state()):
        return False
    try:
        first, second = (state((batch, ones)) for batch in batches)
        both = state(*((batch, ones) for batch in batches))
        results = []
        for weights in ([], [(batches[1], 0 * ones)]):
            state((batches[0], ones), *weights)
            results.append(keras.ops.convert_to_numpy(metric.result()))
    except Exception:
        # Labels of another shape or type than outputs, as classes have. Then what the metric declares must do.
        return all(variable.aggregation == "sum" for variable in metric.variables)
    sums = [one + other for one, other in zip(first, second, strict=True)]
    pairs = zip([*both, results[0]], [*sums, results[1]], strict=True)
    return all(np.allclose(one, other, rtol=1e-4, equal_nan=True) for one, other in pairs)


def sums_of(metric: Metric, labels: Any, outputs: Any, weights: tf.Tensor) -> tf.Tensor:
    """Sums over a batch: a scalar for a function, the flat state [size] for a Keras metric.

    Args:
      metric: see `make_metric`.
      labels, outputs: structures of tensors [batch, ...].
      weights: [batch], 0 for padding.
    """
    if not isinstance(metric, keras.metrics.Metric):
        return weighted_sum(metric, labels, outputs, weights)
    if not tf.is_tensor(outputs):
        raise InputError(
            f"metric {type(metric).__name__}: the model has several outputs; give a function of (labels, outputs) that "
            "takes the one that it is about"
        )
    state = [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]
    state = metric.stateless_update_state(state, labels, outputs, sample_weight=weights)
    return tf.concat([tf.reshape(value, [-1]) for value in state], 0)


def weighted_sum(function: PerExample, labels: Any, outputs: Any, weights: tf.Tensor) -> tf.Tensor:
    """The sum over a batch of what the function gives for each example, times `weights` [batch]."""
    values = per_example_mean(function(labels, outputs))
    return tf.reduce_sum(tf.cast(weights, values.dtype) * values)


def num_sums(metrics: Sequence[Metric]) -> int:
    """Columns of `Backend.train`'s sums: one for the loss, and the metrics' columns."""
    return 1 + sum(_size(metric) for metric in metrics)


def _size(metric: Metric) -> int:
    if isinstance(metric, keras.metrics.Metric):
        return sum(int(np.prod(variable.shape)) for variable in metric.variables)
    return 1


def values_of(
    metrics: Mapping[str, Metric], sums: Sequence[float] | np.ndarray, num_examples: float
) -> dict[str, float]:
    """`loss` and the metrics by name, from what a backend sums.

    Args:
      metrics: by name, as for `Backend.build`.
      sums: [num_sums], over any number of batches.
      num_examples: in these batches.
    """
    found = {"loss": float(sums[0]) / num_examples}
    start = 1
    for name, metric in metrics.items():
        stop = start + _size(metric)
        if isinstance(metric, keras.metrics.Metric):
            found[name] = _result(metric, np.asarray(sums[start:stop]))
        else:
            found[name] = float(sums[start]) / num_examples
        start = stop
    return found


def _result(metric: keras.metrics.Metric, flat: np.ndarray) -> float:
    start = 0
    for variable in metric.variables:
        stop = start + int(np.prod(variable.shape))
        variable.assign(flat[start:stop].reshape(variable.shape))
        start = stop
    return float(metric.result())

"""Metrics as sums over examples: what every worker adds up for each batch, and the value that the sums give."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.compile_utils import is_binary_or_sparse_categorical
from keras.src.utils.naming import get_object_name

from tfmat.backends.base import Metric, PerExample
from tfmat.backends.losses import per_example_function, per_example_mean
from tfmat.errors import InputError

# Names that Keras's `compile` turns into one metric or another by the shapes of labels and outputs.
_ACCURACY = ("accuracy", "acc")


def make_metrics(
    metrics: Mapping[str, Any] | Sequence[Any] | None, model: keras.Model
) -> dict[str, Metric]:
    """What `Backend.build` takes for the metrics that a user gave, see `make_metric`; InputError as there."""
    if metrics is None or isinstance(metrics, Mapping):
        named = list((metrics or {}).items())
    elif isinstance(metrics, list | tuple):
        if metrics and len(getattr(model, "output_names", None) or ()) > 1:
            raise InputError(
                "a list of metrics does not say which of the model's outputs each is about; give a dictionary of names "
                "and functions of (labels, outputs)"
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


def _accuracy(labels: Any, outputs: Any) -> Any:
    """[batch]: the accuracy of the kind that labels and outputs have, as Keras chooses it."""
    if not (tf.is_tensor(labels) and tf.is_tensor(outputs)):
        raise InputError(
            "metric accuracy: the model has several outputs; give a function of (labels, outputs) that takes the one "
            "that it is about"
        )
    outputs = tf.cast(outputs, keras.config.floatx())
    labels = tf.cast(labels if labels.shape.rank != 1 else labels[:, None], outputs.dtype)
    is_binary, is_sparse = is_binary_or_sparse_categorical(labels, outputs)
    which = "binary" if is_binary else "sparse_categorical" if is_sparse else "categorical"
    return per_example_mean(getattr(keras.metrics, f"{which}_accuracy")(labels, outputs))


_accuracy.stands_alone = True  # type: ignore[attr-defined]


def make_metric(name: str, metric: Any, model: keras.Model) -> Metric:
    """What `Backend.build` takes for a metric that a user gave.

    Args:
      name: of the metric in the logs.
      metric: a keras.metrics object, or what `per_example_function` takes; a name may be that of either.
      model: built; its outputs' shape is that of the metric's state, where it depends on that.

    Raises:
      InputError: it is neither, or its state is no sum over examples, or its value no single number.
    """
    if isinstance(metric, str):
        metric = _by_name(name, metric)
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


def _by_name(name: str, given: str) -> Any:
    if given in _ACCURACY:
        return _accuracy
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
    """Columns of `Backend.train`'s sums: one for the loss, and those of the metrics."""
    return 1 + sum(_size(metric) for metric in metrics)


def _size(metric: Metric) -> int:
    if isinstance(metric, keras.metrics.Metric):
        return sum(int(np.prod(variable.shape)) for variable in metric.variables)
    return 1


@dataclasses.dataclass(frozen=True)
class Summary:
    """Loss and metrics from what a backend sums.

    Attributes:
      metrics: name -> metric, as for `Backend.build`.
    """

    metrics: Mapping[str, Metric]

    @property
    def num_sums(self) -> int:
        """See `num_sums`."""
        return num_sums(list(self.metrics.values()))

    def values(self, sums: Sequence[float] | np.ndarray, num_examples: float) -> dict[str, float]:
        """`loss` and the metrics by name.

        Args:
          sums: [num_sums], over any number of batches.
          num_examples: in these batches.
        """
        found = {"loss": float(sums[0]) / num_examples}
        start = 1
        for name, metric in self.metrics.items():
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

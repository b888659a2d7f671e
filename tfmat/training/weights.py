"""The examples' own weights in the loss, as Keras's `fit` takes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.errors import InputError
from tfmat.training.evaluation import num_examples


def with_weights(
    features: Any, labels: Any, sample_weight: Any = None, class_weight: Any = None
) -> tuple[Any, ...]:
    """(features, labels), or with the weights behind them, as backends take data.

    Args:
      features, labels: arrays or structures of them [examples, ...].
      sample_weight: [examples], or None for 1.
      class_weight: class -> weight of its examples; labels are classes [examples] or one-hot [examples, classes].

    Raises:
      InputError: these are no weights of these examples.
    """
    if sample_weight is None and class_weight is None:
        return features, labels
    count = num_examples((features, labels))
    weights = np.ones(count, np.float32)
    if sample_weight is not None:
        weights = _checked(sample_weight, count)
    if class_weight is not None:
        weights = weights * _of_classes(labels, class_weight)
    return features, labels, weights


def unpack(name: str, data: Any) -> tuple[Any, ...]:
    """(features, labels) or (features, labels, weights) as a user gave them; InputError where they are neither."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise InputError(f"{name} is (features, labels) or (features, labels, sample_weight)")
    return with_weights(*data)


def _checked(sample_weight: Any, count: int) -> np.ndarray:
    several = tf.nest.is_nested(sample_weight) and not all(
        np.isscalar(weight) for weight in tf.nest.flatten(sample_weight)
    )
    if several or isinstance(sample_weight, Mapping):
        raise InputError(
            "sample_weight for each of several outputs is not supported; give one array [examples], or weight the "
            "outputs in a loss function of (labels, outputs)"
        )
    weights = np.asarray(sample_weight)
    if weights.dtype.kind not in "fiub":
        raise InputError(f"sample_weight has type {weights.dtype}; give numbers [{count}]")
    if weights.shape == (count, 1):
        weights = weights[:, 0]
    if weights.shape != (count,):
        raise InputError(
            f"sample_weight has shape {list(weights.shape)}; give one number for each of the {count} examples"
        )
    return weights.astype(np.float32)


def _of_classes(labels: Any, class_weight: Mapping[int, float]) -> np.ndarray:
    if len(tf.nest.flatten(labels)) != 1 or isinstance(labels, Mapping):
        raise InputError("class_weight is for a model with one output; give sample_weight instead")
    classes = np.asarray(labels)
    if classes.ndim == 2:
        classes = classes[:, 0] if classes.shape[1] == 1 else classes.argmax(axis=1)
    if classes.ndim != 1:
        raise InputError(
            f"class_weight is for labels [examples] or [examples, classes], not {list(classes.shape)}; give "
            "sample_weight"
        )
    classes = np.round(classes).astype(int)
    weights = np.ones(len(classes), np.float32)
    for number, weight in class_weight.items():
        weights[classes == number] = weight
    return weights

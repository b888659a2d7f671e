"""The examples of a run as backends take them: with their weights, as batches, and all of them for an evaluation."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfmat.backends import Backend
from tfmat.backends.metrics import Summary
from tfmat.data.order import ExampleOrder
from tfmat.data.pipeline import (
    DatasetSource,
    MemorySource,
    Source,
    Span,
    StreamSource,
    fits_in_memory,
    sequential_blocks,
)
from tfmat.errors import InputError
from tfmat.training.plan import RunPlan

EVALUATION_BATCH_SIZE = 500
_PROBE_SECONDS = 1.5
# About half a second of the default network on two cores: short enough for Ctrl-C, long enough to cost nothing.
_EXAMPLES_PER_CALL = 15_000
_STEPS_PER_CALL = 200


def num_examples(data: Any) -> int:
    """Length of the first axis, which is the same for all arrays or tensors of a structure."""
    return len(tf.nest.flatten(data)[0])


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


def make_source(
    features: Any,
    labels: Any,
    plan: RunPlan,
    backend: Backend,
    *,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
) -> Source:
    """Arrays in memory or streamed, or a user's tf.data set; see `Trainer.fit` for the arguments.

    Raises:
      InputError: where lengths differ, or a batch is larger than the set.
    """
    batch_size = plan.global_batch_size
    columns = backend.training_columns(batch_size)
    if isinstance(features, tf.data.Dataset):
        if plan.growth:
            raise InputError("batch_growth is for arrays; a tf.data set makes its own batches")
        if sample_weight is not None or class_weight is not None:
            raise InputError(
                "sample_weight and class_weight are for arrays; let the tf.data set yield (features, labels, weights)"
            )
        return DatasetSource(features, batch_size, plan.steps_per_epoch, columns)
    arrays = tf.nest.flatten((features, labels))
    count = len(arrays[0])
    if any(len(array) != count for array in arrays):
        raise InputError(
            f"features and labels differ in length: {[len(array) for array in arrays]}"
        )
    if batch_size > count:
        raise InputError(
            f"global_batch_size is {batch_size}, there are {count} training examples; "
            "use a smaller batch or more examples"
        )
    examples = with_weights(features, labels, sample_weight, class_weight)
    # Each for itself: every worker takes its columns of batches of its own order over the whole set.
    worker = backend.replica if plan.sharding == "independent" and backend.world_size > 1 else None
    order = ExampleOrder(count, plan.seed, plan.shard_size, worker=worker)
    fits = all(backend.collectives.gather(fits_in_memory(sum(array.nbytes for array in arrays))))
    if plan.reading == "stream" or (plan.reading == "auto" and not fits):
        with tf.device("CPU:0"):
            data = backend.host_tensors(examples)
            return StreamSource(data, order, plan.epochs(count), backend.training_columns)
    return MemorySource(
        backend.place(examples), order, plan.epochs(count), backend.training_columns
    )


def check_same_everywhere(backend: Backend, config: Mapping[str, Any]) -> None:
    """Refuses workers that would not do the same steps: the others would wait for them forever."""
    names = (
        "num_examples",
        "steps_per_epoch",
        "global_batch_size",
        "batch_growth",
        "seed",
        "train_for",
    )
    answers = backend.collectives.gather({name: config.get(name) for name in names})
    for rank, answer in enumerate(answers):
        for name in names:
            if answer[name] != answers[0][name]:
                raise InputError(
                    f"rank {rank} has {name}={answer[name]}, rank 0 has {name}={answers[0][name]}; "
                    "give every worker the same data and the same settings"
                )


def steps_per_call(source: Source, wanted: int | None, world_size: int) -> int:
    """Steps in one call of the graph: what the user wants, or about half a second's worth."""
    examples_per_step = max(1, source.num_examples // source.steps_per_epoch)
    examples_per_call = _EXAMPLES_PER_CALL * world_size
    automatic = max(1, min(_STEPS_PER_CALL, examples_per_call // examples_per_step))
    return min(wanted or automatic, source.max_steps)


def measure_steps_per_second(backend: Backend, source: Source, count: int) -> float:
    """Trains for a moment on a built backend, then puts its state back. The first call, which compiles, is left out."""
    before = backend.read()
    count = min(count, source.steps_per_epoch)
    starts = range(0, source.steps_per_epoch - count + 1, count)
    spans = [Span(0, first, count) for first in starts]
    steps, elapsed = -count, 0.0
    while elapsed < _PROBE_SECONDS:
        for block in source.blocks(iter(spans)):
            started = time.monotonic()
            backend.train(*block)
            if steps >= 0:
                elapsed += time.monotonic() - started
            steps += count
            # Rank 0's clock decides, or the others would wait for steps that it does not do.
            elapsed = backend.collectives.broadcast(elapsed)
            if elapsed >= _PROBE_SECONDS:
                break
    backend.write(before)
    return steps / elapsed


def evaluate_all(backend: Backend, data: Any, count: int, summary: Summary) -> dict[str, float]:
    """Loss and metrics over the first `count` examples, in inference mode, by name.

    Args:
      backend: built; every worker calls this.
      data: placed (features, labels), or with weights behind them.
      count: of examples.
      summary: of what the backend sums.
    """
    sums = np.zeros(summary.num_sums)
    batch_size = min(EVALUATION_BATCH_SIZE * backend.world_size, max(count, backend.world_size))
    columns = backend.columns(batch_size)
    for block in sequential_blocks(data, 0, count, batch_size, columns=columns):
        sums += backend.evaluate(*block).sum(axis=0, dtype=np.float64)
    return summary.values(sums, count)


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

"""Where the training examples come from, and how many steps a run has."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfmat.backends import Backend
from tfmat.batch_growth import Growth
from tfmat.data.order import ExampleOrder
from tfmat.data.pipeline import (
    DatasetSource,
    MemorySource,
    Source,
    Span,
    StreamSource,
    fits_in_memory,
)
from tfmat.durations import Duration
from tfmat.errors import InputError
from tfmat.training.evaluation import num_examples
from tfmat.training.weights import with_weights

_PROBE_SECONDS = 1.5
# About half a second of the default network on two cores: short enough for Ctrl-C, long enough to cost nothing.
_EXAMPLES_PER_CALL = 15_000
_STEPS_PER_CALL = 200


@dataclasses.dataclass(frozen=True)
class Examples:
    """What one call of `Trainer.fit` trains and validates on.

    Attributes:
      source: of batches.
      validation: (features, labels), where the backend wants them; None for none.
      num_validation: how many of them are wanted after every epoch; None for all.
      target_val_loss: that ends the run.
    """

    source: Source
    validation: Any
    num_validation: int | None
    target_val_loss: float | None

    @property
    def available(self) -> int:
        """Examples to validate on."""
        return 0 if self.validation is None else num_examples(self.validation)

    @property
    def used(self) -> int:
        """Of these, after every epoch."""
        return min(self.num_validation or self.available, self.available)


def make_source(
    features: Any,
    labels: Any,
    *,
    backend: Backend,
    global_batch_size: int,
    seed: int,
    reading: str,
    shard_size: int,
    steps_per_epoch: int | None = None,
    sharding: str = "partition",
    growth: Growth = (),
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
) -> Source:
    """Arrays in memory or streamed, or a user's tf.data set; see `Trainer.fit` for the arguments.

    Raises:
      InputError: where lengths differ, or a batch is larger than the set.
    """
    columns = backend.columns(global_batch_size)
    if isinstance(features, tf.data.Dataset):
        if growth:
            raise InputError("batch_growth is for arrays; a tf.data set makes its own batches")
        if sample_weight is not None or class_weight is not None:
            raise InputError(
                "sample_weight and class_weight are for arrays; let the tf.data set yield (features, labels, weights)"
            )
        return DatasetSource(features, global_batch_size, steps_per_epoch, columns)
    arrays = tf.nest.flatten((features, labels))
    num_examples = len(arrays[0])
    if any(len(array) != num_examples for array in arrays):
        raise InputError(
            f"features and labels differ in length: {[len(array) for array in arrays]}"
        )
    if global_batch_size > num_examples:
        raise InputError(
            f"global_batch_size is {global_batch_size}, there are {num_examples} training examples; "
            "use a smaller batch or more examples"
        )
    examples = with_weights(features, labels, sample_weight, class_weight)
    # Each for itself: every worker takes its columns of batches of its own order over the whole set.
    worker = backend.rank if sharding == "independent" and backend.world_size > 1 else None
    order = ExampleOrder(num_examples, seed, shard_size, worker=worker)
    num_bytes = sum(array.nbytes for array in arrays)
    fits = all(backend.gather(fits_in_memory(num_bytes)))
    if reading == "stream" or (reading == "auto" and not fits):
        with tf.device("CPU:0"):
            data = backend.share(examples)
            return StreamSource(data, order, global_batch_size, backend.columns, growth)
    data = backend.place(examples)
    return MemorySource(data, order, global_batch_size, backend.columns, growth)


def check_same_everywhere(backend: Backend, config: Mapping[str, Any]) -> None:
    """Refuses workers that would not do the same steps: the others would wait for them for ever."""
    names = (
        "num_examples",
        "steps_per_epoch",
        "global_batch_size",
        "batch_growth",
        "seed",
        "train_for",
    )
    answers = backend.gather({name: config.get(name) for name in names})
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


def total_steps(
    train_for: str, source: Source, measure_rate: Callable[[], float], log: Callable[[str], None]
) -> int:
    """Steps of a whole run. A time is measured once and then fixed: schedules stay functions of the step.

    Args:
      train_for: see `Trainer.fit`.
      source: of the examples.
      measure_rate: -> steps a second; called where `train_for` is a time.
      log: for one line.

    Raises:
      InputError: less than one step.
    """
    duration = Duration.parse(train_for)
    if duration.seconds is None:
        total = source.plan.steps(duration)
    else:
        rate = measure_rate()
        # Larger batches later on are done in no less time an epoch: count epochs, not steps.
        steps = int(duration.seconds * rate)
        epochs = Duration(steps / source.steps_per_epoch, "epochs")
        total = source.plan.steps(epochs) if source.plan.growth else steps
        log(f"{duration} are {total} steps at the measured {rate:.1f} steps/s")
    if total < 1:
        raise InputError(f"train_for is '{train_for}', which is less than one step; give more")
    return total


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
            elapsed = backend.broadcast(elapsed)
            if elapsed >= _PROBE_SECONDS:
                break
    backend.write(before)
    return steps / elapsed

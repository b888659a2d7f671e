"""Feeds blocks of batches to a backend: from memory by index, streamed from mapped files, or from a tf.data set.

All three give the same examples at the same step for the same `ExampleOrder`; only where the bytes wait differs.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfmat.config import EpochPlan, Span
from tfmat.data.dataset import available_memory
from tfmat.data.order import ExampleOrder
from tfmat.errors import InputError

# A streamed block is gathered on the host while the one before it trains; two of them wait at most.
STREAM_BLOCK_BYTES = 32 * 2**20


# This worker's part of a global batch: the same always, or as a function of the batch's size; None for all of it.
Columns = slice | Callable[[int], slice] | None


class Block(NamedTuple):
    """One worker's examples of a span, in the order of the arguments of `Backend.train`.

    Attributes:
      data: (features, labels), each a tensor or a structure of tensors with the same first axis, or with the examples'
        own weights [examples] behind them: a whole data set in memory, or just the rows of this block.
      indices: int32 [steps, batch], rows of `data`.
      weights: float32 [steps, batch], 0 for padding, else 1.
      num_examples: float32 [steps], true examples of each global batch.
    """

    data: tuple[Any, ...]
    indices: np.ndarray
    weights: np.ndarray
    num_examples: np.ndarray


# The entries of a source in a checkpoint.
Memory = Mapping[str, int | str]


class MemorySource:
    """Examples that lie on the device as a whole, as `Backend.place` returned them; a block carries indices only.

    `columns`: this worker's part of a global batch, or of one of a given size; None for all of it.
    """

    def __init__(
        self,
        data: tuple[Any, ...],
        order: ExampleOrder,
        epochs: EpochPlan,
        columns: Columns = None,
    ):
        self._data = data
        self._order = order
        self._columns = columns
        self.plan = epochs
        self.steps_per_epoch = self.plan.steps_in(0)
        self.num_examples = order.num_examples

    @property
    def max_steps(self) -> int:
        """The most steps of one block."""
        return int(np.iinfo(np.int32).max)

    def blocks(self, spans: Iterable[Span]) -> Iterator[Block]:
        """The rows of each span, in order."""
        for span in spans:
            batch_size = self.plan.batch_size(span.epoch)
            indices, weights = self._order.batches(span.epoch, span.first, span.steps, batch_size)
            columns = _columns(self._columns, batch_size)
            yield Block(self._data, indices[:, columns], weights[:, columns], weights.sum(axis=1))

    def memory(self) -> Memory:
        """Nothing: a checkpoint need not keep the order, which is a function of the position."""
        return {}

    def resume(self, memory: Memory, warn: Callable[[str], None]) -> None:
        """Takes up `memory` of a checkpoint, before `blocks`; `warn` gets a line where the order is another."""


class StreamSource(MemorySource):
    """Examples of mapped files larger than memory, gathered by tf.data threads ahead of the training.

    Reading a row loads its pages, and the kernel may drop them. The order's windows keep the reads of a while within a
    few shards.
    """

    @property
    def max_steps(self) -> int:
        """As many as are gathered at once."""
        row_bytes = sum(
            tensor.dtype.size * int(np.prod(tensor.shape[1:]))
            for tensor in tf.nest.flatten(self._data)
        )
        return max(1, STREAM_BLOCK_BYTES // (row_bytes * self.plan.global_batch_size))

    def blocks(self, spans: Iterable[Span]) -> Iterator[Block]:
        """The rows of each span, in order, read ahead."""
        in_memory = super().blocks(spans)

        def index_blocks() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for block in in_memory:
                yield block.indices, block.weights, block.num_examples

        signature = (
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None], tf.float32),
            tf.TensorSpec([None], tf.float32),
        )
        dataset = tf.data.Dataset.from_generator(index_blocks, output_signature=signature)
        # Without autograph, which would leave files in the folder of temporary files.
        gather = tf.autograph.experimental.do_not_convert(self._gather)
        dataset = dataset.map(gather, num_parallel_calls=1, deterministic=True).prefetch(2)
        for data, weights, num_examples in dataset:
            weights = weights.numpy()
            indices = np.arange(weights.size, dtype=np.int32).reshape(weights.shape)
            yield Block(data, indices, weights, num_examples.numpy())

    def _gather(
        self, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tuple[Any, tf.Tensor, tf.Tensor]:
        rows = tf.reshape(indices, [-1])
        data = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), self._data)
        return data, weights, num_examples


class DatasetSource:
    """Batches of a user's own tf.data set, in its own order; the same set again in every epoch.

    Args:
      dataset: yields (features, labels) or (features, labels, weights) in batches of at most `global_batch_size`.
      global_batch_size: width of a batch; shorter ones are padded with weight zero.
      steps_per_epoch: needed where the set does not know its own length.
      columns: this worker's part of a global batch; every worker reads the whole set.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        global_batch_size: int,
        steps_per_epoch: int | None = None,
        columns: slice | None = None,
    ):
        cardinality = int(dataset.cardinality())
        if steps_per_epoch is None and cardinality < 0:
            raise InputError(
                "the tf.data set does not know its length; give steps_per_epoch, or "
                "dataset.apply(tf.data.experimental.assert_cardinality(n))"
            )
        self._dataset = dataset
        self._global_batch_size = global_batch_size
        self._columns = columns or slice(None)
        self.steps_per_epoch = steps_per_epoch or cardinality
        self.num_examples = self.steps_per_epoch * global_batch_size
        self.plan = EpochPlan(self.num_examples, global_batch_size)
        self.max_steps = np.iinfo(np.int32).max
        # Iterators that were made of the set, and a hash of the first batch of the last one.
        self._iterators, self._first_batch = 0, ""
        self._warn: Callable[[str], None] | None = None

    def memory(self) -> Memory:
        return {"iterators": self._iterators, "first_batch": self._first_batch}

    def resume(self, memory: Memory, warn: Callable[[str], None]) -> None:
        self._iterators = int(memory.get("iterators", 0))
        self._first_batch, self._warn = str(memory.get("first_batch", "")), warn

    def blocks(self, spans: Iterable[Span]) -> Iterator[Block]:
        """The rows of each span, in order."""
        batches: Iterator[Any] | None = None
        position = None
        for span in spans:
            if batches is None or position != (span.epoch, span.first):
                batches = self._resumed(span) if self._warn else self._begun(span.first)
            taken = [self._padded(batch) for batch in _take(batches, span, self.steps_per_epoch)]
            data = tf.nest.map_structure(
                lambda *parts: np.concatenate(parts), *(t[0] for t in taken)
            )
            weights = np.stack([t[1] for t in taken])
            indices = np.arange(weights.size, dtype=np.int32).reshape(weights.shape)
            counts = np.array([t[2] for t in taken], np.float32)
            position = (span.epoch, span.first + span.steps)
            data = tf.nest.map_structure(tf.convert_to_tensor, data)
            columns = self._columns
            yield Block(data, indices[:, columns], weights[:, columns], counts)

    def _begun(self, first: int) -> Iterator[Any]:
        """A new iterator over the set, from batch `first` on."""
        batches = iter(self._dataset)
        self._iterators, self._first_batch = self._iterators + 1, ""
        for number, batch in enumerate(batches):
            if number == 0:
                self._first_batch = _digest(batch)
            if number == first:
                return itertools.chain([batch], batches)
            if number + 1 == first:
                break
        return batches

    def _resumed(self, span: Span) -> Iterator[Any]:
        """Does as `_begun` after a restart. A set that shuffles anew in each epoch counts the iterators made of it."""
        before, warn = self._first_batch, self._warn
        assert warn
        self._warn = None
        # A checkpoint of an older version does not say how many there were.
        count = self._iterators or span.epoch + (span.first > 0)
        for _ in range(count - 1):
            iter(self._dataset)
        self._iterators = max(count - 1, 0)
        batches = self._begun(span.first)
        if before not in ("", self._first_batch):
            warn(
                "warning: the tf.data set yields other examples than before the restart, so that the run ends with "
                "other weights than one that was not stopped; give its shuffle a seed, and shuffle after cache()"
            )
        return batches if span.first else self._begun(0)

    def _padded(self, batch: Any) -> tuple[tuple[Any, ...], np.ndarray, int]:
        """The batch filled up to the global batch, 1 for its examples and 0 for padding, and their number."""
        if not isinstance(batch, tuple) or len(batch) not in (2, 3):
            raise InputError(
                "the tf.data set must yield (features, labels) or (features, labels, weights)"
            )
        data = tf.nest.map_structure(np.asarray, batch)
        lengths = {rows.shape[:1] for rows in tf.nest.flatten(data)}
        if len(lengths) != 1 or () in lengths:
            raise InputError(
                "the features and labels that the tf.data set yields differ in length; batch it: "
                f"dataset.batch({self._global_batch_size})"
            )
        ((count,),) = lengths
        if count > self._global_batch_size:
            raise InputError(
                f"the tf.data set yields {count} examples a batch, global_batch_size is "
                f"{self._global_batch_size}; batch it with that size"
            )
        if len(data) == 3 and (not isinstance(data[2], np.ndarray) or data[2].shape != (count,)):
            raise InputError(
                "the weights of a tf.data set are one number for each example, [examples]; weight outputs or points in "
                "a loss function of (labels, outputs)"
            )
        missing = self._global_batch_size - count
        data = tf.nest.map_structure(
            lambda rows: np.concatenate([rows, np.repeat(rows[:1], missing, axis=0)]), data
        )
        weights = np.zeros(self._global_batch_size, np.float32)
        weights[:count] = 1.0
        return data, weights, count


Source = MemorySource | StreamSource | DatasetSource


def _digest(batch: Any) -> str:
    """A hash of the numbers of a structure of tensors."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tf.nest.flatten(batch):
        array = np.asarray(tensor)
        is_text = array.dtype == np.object_
        digest.update(repr(array.tolist()).encode() if is_text else array.tobytes())
    return digest.hexdigest()


def _columns(columns: Columns, batch_size: int) -> slice:
    return columns(batch_size) if callable(columns) else columns or slice(None)


def _take(batches: Iterator[Any], span: Span, steps_per_epoch: int) -> Iterator[Any]:
    for i in range(span.steps):
        try:
            yield next(batches)
        except StopIteration:
            raise InputError(
                f"the tf.data set ended after {span.first + i} batches of epoch {span.epoch + 1}; "
                f"steps_per_epoch is {steps_per_epoch}"
            ) from None


def sequential_blocks(
    data: tuple[Any, ...],
    first_row: int,
    num_rows: int,
    batch_size: int,
    batches_per_block: int = 16,
    columns: slice | None = None,
) -> Iterator[Block]:
    """Rows `first_row` to `first_row + num_rows` in order, for evaluation; the last batch is padded."""
    columns = columns or slice(None)
    positions = np.arange(-(-num_rows // batch_size) * batch_size).reshape(-1, batch_size)
    weights = (positions < num_rows).astype(np.float32)
    indices = np.where(weights > 0, first_row + positions, first_row).astype(np.int32)
    for i in range(0, len(positions), batches_per_block):
        part = slice(i, i + batches_per_block)
        num_examples = weights[part].sum(axis=1)
        yield Block(data, indices[part, columns], weights[part, columns], num_examples)


def fits_in_memory(num_bytes: int, available: Callable[[], int] | None = None) -> bool:
    """Whether a mapped data set of that size can stay in memory beside the training."""
    return num_bytes < 0.7 * (available or available_memory)()

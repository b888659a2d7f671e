"""Blocks of batches: the same examples from memory, streamed, and picked by hand."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import EpochPlan, Span
from tfmat.data.dataset import generate_dataset
from tfmat.data.order import ExampleOrder
from tfmat.data.pipeline import (
    Block,
    DatasetSource,
    MemorySource,
    Source,
    StreamSource,
    fits_in_memory,
    sequential_blocks,
)
from tfmat.errors import InputError
from tfmat.records.simulation import CurveSettings

# More rows than the order covers: validation examples lie behind the training examples.
FEATURES = np.arange(1200 * 6, dtype=np.float32).reshape(1200, 2, 3)
LABELS = np.arange(1200, dtype=np.float32)[:, None]
DATA = (tf.constant(FEATURES), tf.constant(LABELS))
NUM_TRAIN, BATCH = 1003, 64
EPOCHS = EpochPlan(NUM_TRAIN, BATCH)
SPANS = [Span(0, 0, 5), Span(0, 5, 11), Span(1, 0, 1), Span(1, 3, 4), Span(7, 15, 1)]


def _order() -> ExampleOrder:
    return ExampleOrder(NUM_TRAIN, seed=3, shard_size=256, window=300)


def _rows(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Features [steps, batch, ...] and labels of a block, gathered as a backend does."""
    features, labels = (np.asarray(part) for part in block.data)
    return features[block.indices], labels[block.indices]


@pytest.mark.parametrize("kind", [MemorySource, StreamSource])
def test_batches_are_those_of_the_order(kind: type[Source]) -> None:
    order = _order()
    source = kind(DATA, _order(), EPOCHS)  # type: ignore[arg-type]
    assert source.steps_per_epoch == 16 and source.num_examples == NUM_TRAIN
    blocks = list(source.blocks(iter(SPANS)))
    assert len(blocks) == len(SPANS)
    for span, block in zip(SPANS, blocks, strict=True):
        assert block.indices.shape == block.weights.shape == (span.steps, BATCH)
        assert block.indices.dtype == np.int32 and block.weights.dtype == np.float32
        features, labels = _rows(block)
        for step in range(span.steps):
            start = (span.first + step) * BATCH
            expected = order.indices(span.epoch, start, min(start + BATCH, NUM_TRAIN))
            count = len(expected)
            np.testing.assert_array_equal(features[step, :count], FEATURES[expected])
            np.testing.assert_array_equal(labels[step, :count], LABELS[expected])
            assert block.weights[step].tolist() == [1.0] * count + [0.0] * (BATCH - count)
            assert block.num_examples[step] == count


def test_memory_and_stream_over_mapped_shards(tmp_path: pathlib.Path) -> None:
    settings = CurveSettings(num_points=16)
    dataset = generate_dataset(
        settings, seed=0, num_curves=4000, num_test=100, data_dir=tmp_path, shard_size=1024
    )
    assert len(dataset.manifest.shards) == 5
    rows = slice(0, dataset.num_train)
    data = tuple(
        tf.experimental.dlpack.from_dlpack(array[rows].__dlpack__())
        for array in (dataset.features, dataset.labels)
    )
    orders = [ExampleOrder(dataset.num_train, 0, dataset.shard_size) for _ in range(2)]
    epochs = EpochPlan(dataset.num_train, 75)
    sources: list[Source] = [
        MemorySource(data, orders[0], epochs),
        StreamSource(data, orders[1], epochs),
    ]
    spans = [Span(0, 0, 10), Span(0, 10, 30), Span(1, 0, 3)]
    for one, other in zip(*(source.blocks(iter(spans)) for source in sources), strict=True):
        for left, right in zip(_rows(one), _rows(other), strict=True):
            weights = one.weights.reshape(one.weights.shape + (1,) * (left.ndim - 2))
            np.testing.assert_array_equal(left * weights, right * weights)
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.num_examples, other.num_examples)


def test_streamed_blocks_are_small() -> None:
    source = StreamSource(DATA, _order(), EPOCHS)
    row_bytes = 4 * (6 + 1)
    assert source.max_steps == 32 * 2**20 // (row_bytes * BATCH)
    wide = (tf.zeros([2, 2_000_000]), tf.zeros([2, 1]))
    assert StreamSource(wide, ExampleOrder(2, 0, 2), EpochPlan(2, 2)).max_steps == 2  # 8 MB a row
    wider = (tf.zeros([1, 20_000_000]), tf.zeros([1, 1]))
    assert StreamSource(wider, ExampleOrder(1, 0, 1), EpochPlan(1, 1)).max_steps == 1


def test_structures_are_streamed_too() -> None:
    data = ({"a": DATA[0], "b": DATA[1]}, (DATA[1],))
    (block,) = StreamSource(data, _order(), EPOCHS).blocks([Span(0, 0, 2)])
    expected = _order().indices(0, 0, 2 * BATCH)
    np.testing.assert_array_equal(block.data[0]["a"], FEATURES[expected])
    np.testing.assert_array_equal(block.data[1][0], LABELS[expected])


def _batches(count: int = 230, batch: int = 50) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((FEATURES[:count], LABELS[:count])).batch(batch)


def test_a_tf_data_set_in_its_own_order() -> None:
    source = DatasetSource(_batches(), 50)
    assert source.steps_per_epoch == 5
    # From the beginning, in the middle of an epoch (a resumed run), and on into the next one.
    for spans in ([Span(0, 0, 2), Span(0, 2, 3), Span(1, 0, 5)], [Span(0, 3, 2), Span(1, 0, 1)]):
        blocks = list(source.blocks(iter(spans)))
        for span, block in zip(spans, blocks, strict=True):
            _, labels = _rows(block)
            for step in range(span.steps):
                start = 50 * (span.first + step)
                count = min(50, 230 - start)
                assert labels[step, :count, 0].tolist() == list(range(start, start + count))
                assert block.weights[step].sum() == count == block.num_examples[step]


def test_a_tf_data_set_with_weights_of_its_own() -> None:
    weights = np.linspace(0.0, 2.0, 30).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((FEATURES[:30], LABELS[:30], weights)).batch(20)
    (block,) = DatasetSource(dataset, 20).blocks([Span(0, 0, 2)])
    np.testing.assert_array_equal(block.data[2][:30], weights)
    np.testing.assert_array_equal(block.weights.ravel(), [*[1.0] * 30, *[0.0] * 10])
    assert block.num_examples.tolist() == [20, 10]


def test_a_tf_data_set_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="50 examples a batch, global_batch_size is 20; batch it"):
        list(DatasetSource(_batches(), 20).blocks([Span(0, 0, 1)]))
    with pytest.raises(InputError, match="ended after 5 batches of epoch 2; steps_per_epoch is 6"):
        list(DatasetSource(_batches(), 50, steps_per_epoch=6).blocks([Span(1, 4, 2)]))
    unknown = _batches().filter(lambda features, labels: True)
    for endless in (unknown, _batches().repeat()):  # of which `repeat` has a cardinality of its own
        with pytest.raises(InputError, match="does not know its length; give steps_per_epoch"):
            DatasetSource(endless, 50)
    assert DatasetSource(unknown, 50, steps_per_epoch=5).steps_per_epoch == 5
    alone = tf.data.Dataset.from_tensor_slices(FEATURES).batch(50)
    said = r"must yield \(features, labels\) or \(features, labels, w"
    with pytest.raises(InputError, match=said):
        list(DatasetSource(alone, 50).blocks([Span(0, 0, 1)]))


@pytest.mark.parametrize(("rows", "batch"), [(100, 10), (101, 10), (7, 10), (1, 1), (333, 10)])
def test_sequential_blocks(rows: int, batch: int) -> None:
    blocks = list(sequential_blocks(DATA, 40, rows, batch, batches_per_block=4))
    assert all(len(block.indices) <= 4 for block in blocks)
    used = np.concatenate([block.indices[block.weights > 0] for block in blocks])
    assert used.tolist() == list(range(40, 40 + rows))
    assert sum(block.num_examples.sum() for block in blocks) == rows
    assert all(block.indices.shape[1] == batch for block in blocks)
    for block in blocks:  # padding lies inside the data too
        assert block.indices.min() >= 40 and block.indices.max() < 40 + rows


def test_a_set_that_fits() -> None:
    assert fits_in_memory(60, available=lambda: 100)
    assert not fits_in_memory(71, available=lambda: 100)

"""The order of the examples: a permutation, the same forever, however it is cut into pieces."""

import hashlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfmat.data.order import ExampleOrder
from tfmat.errors import InputError

_BITS = (1 << 64) - 1


def _splitmix64(state: int) -> int:
    """One output of splitmix64 as published (Steele, Lea and Flood 2014), in plain Python integers."""
    z = (state + 0x9E3779B97F4A7C15) & _BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _BITS
    return z ^ (z >> 31)


def _plain_order(
    num_examples: int, seed: int, epoch: int, shard_size: int, window: int
) -> list[int]:
    """The whole order of an epoch with lists and `sorted`: written apart from the module under test."""

    def hash_of(stream: int, counter: int) -> int:
        key = 0
        for word in (seed, epoch, stream):
            key = _splitmix64(key ^ (word & _BITS))
        return _splitmix64((key + counter * 0x9E3779B97F4A7C15) & _BITS)

    shards = list(range(-(-num_examples // shard_size)))
    shards.sort(key=lambda shard: hash_of(1, shard))
    laid_out = [
        example
        for shard in shards
        for example in range(shard * shard_size, min((shard + 1) * shard_size, num_examples))
    ]
    order: list[int] = []
    for start in range(0, num_examples, window):
        positions = list(range(start, min(start + window, num_examples)))
        bits = max((len(positions) - 1).bit_length(), 1)
        positions.sort(key=lambda position: (hash_of(2, position) >> bits, position))
        order += [laid_out[position] for position in positions]
    return order


@pytest.mark.parametrize(
    ("num_examples", "seed", "epoch", "shard_size", "window"),
    [
        *((count, 3, 0, 7, 100) for count in (1, 2, 3, 75, 1023, 1024, 1025)),
        (7919, 0, 0, 1024, 512),
        (7919, -5, 12, 1000, 333),
        (300, 2**63, 2**33, 64, 4096),
    ],
)
def test_agrees_with_a_plain_transcription(num_examples, seed, epoch, shard_size, window):
    order = ExampleOrder(num_examples, seed, shard_size, window)
    expected = _plain_order(num_examples, seed, epoch, shard_size, window)
    assert sorted(expected) == list(range(num_examples))
    assert order.indices(epoch, 0, num_examples).tolist() == expected


def test_the_order_is_the_same_for_ever() -> None:
    # Golden: SHA-256 of _plain_order(7919, seed 0, epochs 0 and 1, shards of 1024, windows of 512) as int64.
    # A run that was started with one version must go on with another: never change this number.
    order = ExampleOrder(7919, seed=0, shard_size=1024, window=512)
    both = np.concatenate([order.indices(epoch, 0, 7919) for epoch in (0, 1)])
    digest = hashlib.sha256(both.astype("<i8").tobytes()).hexdigest()
    assert digest == "aeea5a7363cc7849d262ef0f5108eeb18e247dfc3a874474e21a151ddba003c5"


def test_pieces_make_the_whole() -> None:
    order = ExampleOrder(7919, seed=1, shard_size=1024, window=512)
    whole = order.indices(4, 0, 7919)
    for size in (7, 75, 512, 1000):
        # A fresh object, asked backwards and with another epoch in between, answers the same.
        other = ExampleOrder(7919, seed=1, shard_size=1024, window=512)
        pieces = []
        for start in reversed(range(0, 7919, size)):
            other.indices(5, 0, 10)
            pieces.append(other.indices(4, start, min(start + size, 7919)))
        np.testing.assert_array_equal(np.concatenate(pieces[::-1]), whole)
    assert order.indices(4, 100, 100).shape == (0,)


def test_an_answer_is_the_callers_own() -> None:
    order = ExampleOrder(100, seed=1, shard_size=64)
    order.indices(0, 0, 100)[:] = -1
    assert order.indices(0, 0, 100).min() == 0


def test_batches_pad_with_weight_zero() -> None:
    order = ExampleOrder(100, seed=0, shard_size=64, window=32)
    indices, weights = order.batches(0, 1, 3, 40)
    assert indices.dtype == np.int32 and weights.dtype == np.float32
    assert indices.shape == weights.shape == (3, 40)
    np.testing.assert_array_equal(indices.ravel()[:60], order.indices(0, 40, 100))
    assert weights.sum() == 60 and weights.ravel()[:60].all()
    assert not indices.ravel()[60:].any()


def test_an_epoch_is_ordered_a_window_at_a_time() -> None:
    """NumPy goes through the examples: a loop over them in Python would execute a line for each."""
    order, lines = ExampleOrder(100_000, seed=0, shard_size=16_384, window=8_192), 0

    def count(frame: types.FrameType, event: str, argument: Any) -> Callable[..., Any]:
        nonlocal lines
        lines += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        order.indices(0, 0, 100_000)
    finally:
        sys.settrace(before)
    assert 0 < lines < 10_000


def test_refuses_what_is_no_set() -> None:
    with pytest.raises(InputError, match="num_examples is 0"):
        ExampleOrder(0, 0, 1024)
    with pytest.raises(InputError, match="window is 0"):
        ExampleOrder(10, 0, 1024, window=0)
    with pytest.raises(ValueError, match="of 10 examples"):
        ExampleOrder(10, 0, 1024).indices(0, 5, 11)

"""The order in which training examples are met: a pure function of (seed, epoch), the same for memory and stream."""

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError

_BITS = (1 << 64) - 1
# _GOLDEN: increment of splitmix64, 2^64 over the golden ratio (Steele, Lea and Flood, 2014).
_GOLDEN = 0x9E3779B97F4A7C15
# Streams of hashes: one orders the shards, one the examples within a window.
_SHARDS, _WITHIN = 1, 2


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), in place on a uint64 array."""
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


def _hashes(key: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Outputs `start` to `stop` of the splitmix64 generator that starts from `key`: [stop - start], uint64."""
    counter = np.arange(start + 1, stop + 1, dtype=np.uint64)
    return _mix(counter * np.uint64(_GOLDEN) + np.uint64(key))


def _key(*words: int) -> int:
    """One 64-bit key from several integers."""
    key = 0
    for word in words:
        key = int(_hashes(key ^ (word & _BITS), 0, 1)[0])
    return key


class ExampleOrder:
    """The example at each position of an epoch.

    The shards are shuffled and laid one after the other; then every window of `window` positions is shuffled within
    itself. A reader of the stream therefore needs only a few shards at a time, and a reader in memory sees the same
    order. The shuffling sorts hashes computed here, so it never changes with a NumPy version.

    Args:
      num_examples: training examples, indices 0 to num_examples - 1.
      seed: any integer.
      shard_size: examples in a shard; the last shard may be shorter.
      window: positions shuffled together.
      worker: None for the one order that all workers share; else each worker has its own.
    """

    def __init__(
        self,
        num_examples: int,
        seed: int,
        shard_size: int,
        window: int = 65536,
        worker: int | None = None,
    ):
        for name, value in (
            ("num_examples", num_examples),
            ("shard_size", shard_size),
            ("window", window),
        ):
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        self.num_examples = num_examples
        self.seed = seed
        self.shard_size = shard_size
        self.window = window
        self._words = (seed,) if worker is None else (seed, worker)
        # The last answers, since batches are mostly asked for in sequence. Replaced whole, so threads may share it.
        self._shards: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None
        self._last_window: tuple[int, int, NDArray[np.int64]] | None = None

    def indices(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Example indices at positions `start` to `stop` (at most num_examples) of an epoch: [stop - start]."""
        if not 0 <= start <= stop <= self.num_examples:
            raise ValueError(f"positions {start} to {stop} of {self.num_examples} examples")
        if start == stop:
            return np.empty(0, np.int64)
        first, last = start // self.window, (stop - 1) // self.window
        if first == last:
            shuffled = self._one_window(epoch, first)
        else:
            shuffled = np.concatenate([self._shuffled(epoch, w) for w in range(first, last + 1)])
        offset = first * self.window
        return shuffled[start - offset : stop - offset].copy()

    def batches(
        self, epoch: int, first: int, count: int, global_batch_size: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Global batches `first` to `first + count` of an epoch; rank r takes its contiguous slice of the columns.

        Returns:
          (indices [count, global_batch_size], int32; weights of the same shape, float32). Positions beyond the last
          example hold index 0 with weight 0, all others weight 1.
        """
        if self.num_examples > np.iinfo(np.int32).max:
            raise InputError(
                f"{self.num_examples} examples are more than a batch of int32 indices can address"
            )
        begin = min(first * global_batch_size, self.num_examples)
        end = min((first + count) * global_batch_size, self.num_examples)
        indices = np.zeros(count * global_batch_size, np.int32)
        weights = np.zeros(count * global_batch_size, np.float32)
        indices[: end - begin] = self.indices(epoch, begin, end)
        weights[: end - begin] = 1.0
        shape = (count, global_batch_size)
        return indices.reshape(shape), weights.reshape(shape)

    def _one_window(self, epoch: int, window: int) -> NDArray[np.int64]:
        last = self._last_window
        if last is None or last[:2] != (epoch, window):
            last = (epoch, window, self._shuffled(epoch, window))
            self._last_window = last
        return last[2]

    def _shuffled(self, epoch: int, window: int) -> NDArray[np.int64]:
        """Example indices of one window, shuffled."""
        start = window * self.window
        stop = min(start + self.window, self.num_examples)
        # The low bits of each hash make room for its offset in the window: one plain sort gives the permutation, and
        # equal hashes are still in a defined order.
        bits = np.uint64(max(stop - start - 1, 1).bit_length())
        hashes = _hashes(_key(*self._words, epoch, _WITHIN), start, stop) >> bits << bits
        hashes |= np.arange(stop - start, dtype=np.uint64)
        hashes.sort()
        offsets = hashes & ((np.uint64(1) << bits) - np.uint64(1))
        return self._in_shard_order(epoch, offsets.astype(np.int64) + start)

    def _in_shard_order(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the sequence of shuffled shards -> example indices."""
        shards = self._shards
        if shards is None or shards[0] != epoch:
            count = -(-self.num_examples // self.shard_size)
            hashes = _hashes(_key(*self._words, epoch, _SHARDS), 0, count)
            order = np.argsort(hashes, kind="stable").astype(np.int64)
            sizes = np.minimum(self.num_examples - order * self.shard_size, self.shard_size)
            shards = (epoch, order * self.shard_size, np.cumsum(sizes) - sizes)
            self._shards = shards
        _, first_example, first_position = shards
        place = np.searchsorted(first_position, positions, side="right") - 1
        return first_example[place] + positions - first_position[place]

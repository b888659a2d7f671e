"""What the backends share: one batch after the other inside a graph, stamps of its times, arrays without a copy."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.exchange import Reduce
from tfmat.errors import InputError

# Examples in a piece of a batch: beyond the first its activations leave the cache, below the second its operations
# are too small to be worth starting. Further rounds would only make the graph larger.
_PIECE, _SMALLEST_PIECE, _LARGEST_ROUNDS = 250, 16, 4


class Batch(NamedTuple):
    """One worker's part of a global batch, or a piece of it.

    Attributes:
      features, labels: structures of tensors [batch, ...].
      weights: [batch], 0 for padding.
      num_examples: scalar, true examples of the GLOBAL batch.
      sample_weights: ([batch],), the examples' own in the loss; nothing where each counts 1.
    """

    features: Any
    labels: Any
    weights: tf.Tensor
    num_examples: tf.Tensor
    sample_weights: tuple[tf.Tensor, ...] = ()

    @classmethod
    def gather(cls, data: Any, rows: Any, weights: Any, num_examples: Any) -> "Batch":
        """The rows of `data`, which is (features, labels) or (features, labels, sample weights)."""
        features, labels, *own = tf.nest.map_structure(lambda t: tf.gather(t, rows), data)
        return cls(features, labels, weights, num_examples, tuple(own))

    @property
    def loss_weights(self) -> tf.Tensor:
        """[batch], of each example in the loss."""
        weights = self.weights
        for own in self.sample_weights:
            weights *= tf.cast(own, weights.dtype)
        return weights


def part_of_batch(global_batch_size: int, worker: int, workers: int) -> slice:
    """One worker's contiguous part of each global batch; InputError where a worker would have none."""
    if global_batch_size < workers:
        raise InputError(
            f"global_batch_size is {global_batch_size}, fewer than the {workers} workers; use a larger batch or fewer "
            "workers"
        )
    return slice(*(global_batch_size * part // workers for part in (worker, worker + 1)))


def num_pieces(width: int) -> int:
    """Pieces of a batch of that width that run side by side, one on each processor.

    Only where TensorFlow runs each operation on one thread (see `prepare_tensorflow`): a piece then stays in the cache
    of its processor and waits for no other, which makes a step of the default network on two cores 1.6 times faster at
    batch 75 and 1.2 times at 750.
    """
    threads = tf.config.threading
    if threads.get_intra_op_parallelism_threads() != 1:
        return 1
    processors = threads.get_inter_op_parallelism_threads() or 1
    rounds = min(_LARGEST_ROUNDS, -(-width // (processors * _PIECE)))
    return max(1, min(processors * rounds, width // _SMALLEST_PIECE))


def rows_of_a_piece(model: keras.Model, width: int, num_parts: int) -> int:
    """Examples of a batch of that width that go through the model at a time.

    Args:
      model: with state such as moving statistics it takes a batch in one piece.
      width: of this worker's batch.
      num_parts: `accumulate`; 1: the batch is not divided for the sake of memory.
    """
    if num_parts > 1:
        return -(-width // num_parts)
    return width if model.non_trainable_variables else -(-width // num_pieces(width))


class Rounds(NamedTuple):
    """Steps that go together.

    Attributes:
      steps: in a round; the last one has what is left.
      run: takes a function that runs a round's steps in the graph, and returns what that returns.
    """

    steps: int
    run: Callable[[Callable[[], Any]], Any]


def each_batch(
    step: Callable[[list[Batch]], tf.Tensor],
    num_pieces: Callable[[int], int],
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
    rounds: Rounds | None = None,
) -> tf.Tensor:
    """Runs `step` on one batch after the other, in the graph, in `rounds` where they are given.

    What `step` returns is returned stacked: [steps, ...].
    """
    cuts = _cuts(indices.shape[1], num_pieces)

    def piece(i: tf.Tensor, start: int, stop: int) -> Batch:
        return Batch.gather(data, indices[i, start:stop], weights[i, start:stop], num_examples[i])

    return _each(
        tf.shape(indices)[0],
        lambda i: step([piece(i, *cut) for cut in cuts]),
        rounds=rounds,
    )


class Stamps:
    """Notes in the graph of a training step when its parts are complete; see step_times.py.

    Args:
      several: whether there are other workers to sum over.
    """

    def __init__(self, several: bool):
        self._several = several
        self._times: list[tf.Tensor] = []

    def after(self, tensors: Any) -> Any:
        """The same tensors (a structure); nothing that uses them begins before all are there and the time is noted."""
        self.note(tf.nest.flatten(tensors))
        with tf.control_dependencies(self._times[-1:]):
            return tf.nest.map_structure(tf.identity, tensors)

    def note(self, complete: list[Any]) -> None:
        """Notes the time at which these tensors and operations are complete."""
        with tf.control_dependencies([*complete, *self._times[-1:]]):
            self._times.append(tf.timestamp())

    def around(self, reduce: Reduce) -> Reduce:
        """`reduce`, with the times at which its tensors are ready and their sums are back."""
        if not self._several:

            def ready(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
                tensors = self.after(tensors)
                self._times.append(self._times[-1])
                return reduce(tensors)

            return ready

        @tf.custom_gradient
        def summed(*tensors: tf.Tensor) -> Any:
            totals = tuple(self.after(list(reduce(self.after(list(tensors))))))
            # A sum's gradient is the sum of the gradients, and another barrier of the workers.
            return totals, lambda *gradients: summed(*gradients)

        return lambda tensors: list(summed(*tensors))

    def stack(self) -> tf.Tensor:
        """float64 [moments]; see StepTimes."""
        return tf.stack(self._times)


def each_timed_batch(
    step: Callable[[list[Batch], Stamps], tf.Tensor],
    num_pieces: Callable[[int], int],
    several: bool,
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Does as `each_batch`; also returns float64 [steps, moments], see `StepTimes`; `several` workers sum together."""
    cuts = _cuts(indices.shape[1], num_pieces)

    def one(i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        stamps = Stamps(several)
        i = stamps.after(i)
        gathered = [
            Batch.gather(data, indices[i, start:stop], weights[i, start:stop], num_examples[i])
            for start, stop in cuts
        ]
        sums = step(stamps.after(gathered), stamps)
        return sums, stamps.stack()

    return _each(tf.shape(indices)[0], one, (keras.backend.floatx(), "float64"))


def each_batch_in_parts(
    step: Callable[[Callable[[tf.Tensor], Batch]], tf.Tensor],
    num_parts: int,
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
    rounds: Rounds | None = None,
    dtypes: Any = None,
) -> Any:
    """Does as `each_batch`, for batches larger than memory: `step` gets a function that gathers part `j` of the batch.

    The width of the batch must be a multiple of `num_parts`. What `step` returns may be a structure, as `dtypes` is.
    """
    width = indices.shape[1] // num_parts
    indices = tf.reshape(indices, [-1, num_parts, width])
    weights = tf.reshape(weights, [-1, num_parts, width])

    def one(i: tf.Tensor) -> tf.Tensor:
        return step(lambda j: Batch.gather(data, indices[i, j], weights[i, j], num_examples[i]))

    return _each(tf.shape(indices)[0], one, dtypes, rounds=rounds)


def _cuts(width: int, num_pieces: Callable[[int], int]) -> list[tuple[int, int]]:
    """(start, stop) of each piece of a batch."""
    count = num_pieces(width)
    return list(itertools.pairwise(width * i // count for i in range(count + 1)))


def _each(
    num_steps: tf.Tensor,
    step: Callable[[tf.Tensor], Any],
    dtypes: Any = None,
    rounds: Rounds | None = None,
) -> Any:
    """`step(i)` for i = 0, 1, ... one after the other, stacked; a structure where `dtypes` is one."""

    def one(i: tf.Tensor, records: list[tf.TensorArray]) -> tuple[tf.Tensor, list[tf.TensorArray]]:
        values = tf.nest.flatten(step(i))
        return i + 1, [
            record.write(i, tf.cast(value, record.dtype))
            for record, value in zip(records, values, strict=True)
        ]

    def several(i: tf.Tensor, records: list[tf.TensorArray]) -> Any:
        assert rounds is not None
        stop = tf.minimum(i + rounds.steps, num_steps)
        return rounds.run(lambda: tf.while_loop(lambda i, _: i < stop, one, [i, records]))

    dtypes = dtypes or keras.backend.floatx()
    records = [tf.TensorArray(dtype, size=num_steps) for dtype in tf.nest.flatten(dtypes)]
    body = several if rounds else one
    _, records = tf.while_loop(lambda i, _: i < num_steps, body, [tf.constant(0), records])
    return tf.nest.pack_sequence_as(dtypes, [record.stack() for record in records])


def compiled(
    function: Callable[..., Any], data: Any, shape: Sequence[int | None], *more: Any
) -> Any:
    """`function(data, indices, weights, num_examples, ...)` as one graph for all such data of any number of rows.

    Args:
      function: of rows as in `Backend.train`.
      data: a structure of tensors.
      shape: of indices and weights: [steps, batch], or [batch] of one step.
      more: specs of further arguments.
    """
    signature = [
        tf.nest.map_structure(row_spec, data),
        tf.TensorSpec(shape, tf.int32),
        tf.TensorSpec(shape, tf.float32),
        tf.TensorSpec(shape[:-1], tf.float32),
        *more,
    ]
    # No autograph: the loop is written out, and nothing is left in the folder of temporary files.
    return tf.function(function, input_signature=signature, autograph=False)


def row_spec(tensor: tf.Tensor) -> tf.TensorSpec:
    """The tensor's type and shape, whatever its number of rows."""
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def share_or_copy(array: Any) -> tf.Tensor:
    """A tensor over the array's own memory where TensorFlow can share it (CPU, aligned), else a copy of it."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable:
        aligned = array.ctypes.data % 64 == 0
        if aligned and array.dtype != np.bool_ and array.size:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)

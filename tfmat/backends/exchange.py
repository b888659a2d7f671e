"""How the workers' gradients come together: as they are, or as less."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfmat.backends.base import Collectives, together
from tfmat.config import Parallelism

Tensors = list[tf.Tensor]
# Slots, gradients and weights -> new weights and new slots.
Apply = Callable[[Any, Any, Any], tuple[Any, Any]]


# --------------------------------------------------------------------------------------------------
# How the workers' gradients come together: the seam behind which they may travel as less than they are.


class Kept(NamedTuple):
    """A tensor that a worker keeps from one exchange to the next.

    Attributes:
      name: in checkpoints.
      initial: its value before the first exchange.
      common: whether it is the same on every worker.
    """

    name: str
    initial: np.ndarray
    common: bool = False


class Exchange:
    """Gradients are summed as they are, and all in one collective, since latency is what a small network waits for.

    `EXCHANGES` in `tfmat.backends.registry` has all of them by name.

    Args:
      collectives: of the workers; None for a worker that is alone.
      weights: tensors or variables whose gradients are exchanged.
      options: numbers that an exchange needs.

    Attributes:
      kept: what each worker keeps between two exchanges.
      num_updating: how often the workers exchange after the optimizer has begun, once a graph is made.
      travels_as: the type in which gradients are summed; None for their own.
    """

    kept: Sequence[Kept] = ()
    num_updating = 0
    travels_as: tf.DType | None = None

    def __init__(
        self,
        collectives: Collectives | None = None,
        weights: Sequence[Any] = (),
        options: Parallelism | None = None,
    ):
        self.collectives = collectives or Collectives()

    def __call__(
        self, gradients: Tensors, others: Tensors, kept: Tensors
    ) -> tuple[Tensors, Tensors, Tensors]:
        """Brings the workers' gradients together, in a graph.

        Args:
          gradients: of this worker, in the order and with the shapes of the weights.
          others: what is always summed exactly, such as sums of losses.
          kept: values of `self.kept`.

        Returns:
          The sums over the workers of `gradients` and `others`, the same on every worker, and new values of `kept`.
        """
        sent = [tf.cast(g, self.travels_as) for g in gradients] if self.travels_as else gradients
        totals = self.collectives.sum([*sent, *others])
        sums = [tf.cast(s, g.dtype) for s, g in zip(totals, gradients, strict=False)]
        return sums, totals[len(gradients) :], kept

    def update(
        self, apply: Apply, state: Any, gradients: Tensors, sums: tf.Tensor
    ) -> tuple[Tensors, Tensors, tf.Tensor, Tensors]:
        """Has the workers' gradients come together, and the optimizer take a step with them.

        Args:
          apply: the optimizer's step.
          state: before the step.
          gradients, sums: of this worker.

        Returns:
          New weights, new slots, the sums over the workers of `sums`, new values of `kept`.
        """
        gradients, (sums,), kept = self(gradients, [sums], list(state.kept))
        weights, slots = apply(state.slots, gradients, state.weights)
        return weights, slots, sums, kept


class Float16(Exchange):
    """Gradients are summed in half precision. Their 11 bits are enough that nothing needs to be kept."""

    travels_as = tf.float16


class BFloat16(Exchange):
    """Gradients travel as bfloat16, which overflows no sooner than float32, and each worker sums them all in float32.

    Neither Horovod nor MPI sums bfloat16, so the bits are collected, which is more to send from three workers on.
    """

    def __call__(
        self, gradients: Tensors, others: Tensors, kept: Tensors
    ) -> tuple[Tensors, Tensors, Tensors]:
        bits = [tf.bitcast(tf.cast(gradient, tf.bfloat16), tf.uint16) for gradient in gradients]
        all_bits, sums = self.collectives.collect(bits), self.collectives.sum(others)
        totals = [
            tf.reduce_sum(tf.cast(tf.bitcast(each, tf.bfloat16), gradient.dtype), 0)
            for each, gradient in zip(all_bits, gradients, strict=True)
        ]
        totals, sums = together(totals, sums)
        return totals, sums, kept


# --------------------------------------------------------------------------------------------------
# Sums and collections over the workers as one flat buffer, and sums by themselves, to learn what one costs.


def flatten(tensors: Sequence[Any]) -> tf.Tensor:
    """[numbers] of tensors of one type."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def unflatten(flat: tf.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
    """The tensors that `flatten` was given."""
    parts = tf.split(flat, [int(np.prod(shape)) for shape in shapes])
    return [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]


def reduce_flat(
    tensors: Sequence[tf.Tensor], reduce: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """Reduces tensors of any shapes and types over the workers.

    Args:
      tensors: the same number, shapes and types on every worker. Shapes need not be known while the graph is made, as
        those of gradients of dense layers on sequences.
      reduce: one flat tensor -> the same of all workers; once for each type, in the order of their first tensors.

    Returns:
      The reduced tensors, in the same order.
    """
    return _by_type(tensors, lambda parts: _split(reduce(flatten(parts)), parts))


def collect_flat(
    tensors: Sequence[tf.Tensor], collect: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """Collects tensors of any types over the workers.

    Args:
      tensors: the same number, shapes (known while the graph is made) and types on every worker.
      collect: one tensor [1, numbers] -> those of all workers, [workers, numbers]; once for each type.

    Returns:
      [workers, ...] of each tensor, in the same order.
    """

    def collected(parts: list[tf.Tensor]) -> list[tf.Tensor]:
        split = tf.split(collect(flatten(parts)[None]), [p.shape.num_elements() for p in parts], 1)
        return [
            tf.reshape(piece, [-1, *part.shape]) for piece, part in zip(split, parts, strict=True)
        ]

    return _by_type(tensors, collected)


def scatter_flat(
    tensors: Sequence[tf.Tensor], scatter: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """Sums tensors of any types over the workers, and leaves each worker its own rows of the sums.

    Args:
      tensors: [workers, numbers] each; the same number, shapes (known while the graph is made) and types on every
        worker.
      scatter: [workers, numbers] -> this worker's row of its sum over the workers, [numbers]; once for each type.

    Returns:
      [numbers] of each tensor, in the same order.
    """

    def scattered(parts: list[tf.Tensor]) -> list[tf.Tensor]:
        return tf.split(scatter(tf.concat(parts, 1)), [part.shape[1] for part in parts])

    return _by_type(tensors, scattered)


def _by_type(
    tensors: Sequence[tf.Tensor], function: Callable[[list[tf.Tensor]], list[tf.Tensor]]
) -> list[tf.Tensor]:
    """Results of `function` for all tensors of a type, for each type, in the order of their first tensors."""
    places: dict[tf.DType, list[int]] = {}
    for i, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(i)
    found = list(tensors)
    for these in places.values():
        for i, result in zip(these, function([tensors[i] for i in these]), strict=True):
            found[i] = result
    # Where there are several, whatever comes after one of them comes after all: the next step must not begin one under
    # the same name before.
    return together(found)[0] if len(places) > 1 else found


def _split(flat: tf.Tensor, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    sizes = [part.shape.num_elements() for part in parts]
    if None in sizes:
        split = tf.split(flat, [tf.size(part) for part in parts], num=len(parts))
    else:
        split = tf.split(flat, sizes)
    return [
        tf.ensure_shape(tf.reshape(piece, tf.shape(part)), part.shape)
        for piece, part in zip(split, parts, strict=True)
    ]


def without_repeated_rows(gradient: Any) -> Any:
    """The gradient of an embedding with each used row once, with its sum; any other unchanged.

    Keras's Adam squares the rows' values one by one: with a row that comes twice, the step would depend on how the
    examples are divided over workers.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    unique, place = tf.unique(gradient.indices)
    summed = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(unique))
    return tf.IndexedSlices(summed, unique, gradient.dense_shape)


def repeated_sums(
    reduce: Callable[[tf.Tensor], tf.Tensor], num_values: int
) -> Callable[[int], None]:
    """A function that sums `num_values` float32 numbers over the workers, `count` times one after the other.

    Args:
      reduce: [num_values] -> the sum over the workers, of the same shape.
      num_values: of each worker.
    """

    def run(values: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        # Each sum is the next one's input, or they would be under way at once; zeros do not overflow.
        _, total = tf.while_loop(
            lambda i, _: i < count,
            lambda i, value: (i + 1, tf.ensure_shape(reduce(value), [num_values])),
            [tf.constant(0), values],
            parallel_iterations=1,
        )
        return total

    function = tf.function(run, autograph=False)
    zeros = tf.zeros([num_values], tf.float32)
    return lambda count: _finish(function(zeros, tf.constant(count)))


def repeated_mesh_sums(
    tensors: Any, axis: str, num_devices: int, num_values: int
) -> Callable[[int], None]:
    """The same over the devices of a mesh's axis; each sum has one addition with it, of which the next one is made.

    Args:
      tensors: see MeshTensors.
      axis, num_devices: over which is summed.
      num_values: of each device.
    """

    def run(values: Any, start: Any, count: Any) -> Any:
        def body(i: Any, total: Any) -> tuple[Any, Any]:
            # No total[tf.newaxis], at which DTensor crashes (TensorFlow 2.21).
            return i + 1, tensors.relayout(tf.reduce_sum(values + total, axis=0), (None,))

        _, total = tf.while_loop(
            lambda i, _: i < count, body, [tf.zeros_like(count), start], parallel_iterations=1
        )
        return total

    function = tf.function(run, autograph=False)
    values = tensors.pack(np.zeros([num_devices, num_values], np.float32), (axis, None))
    start = tensors.pack(np.zeros([num_values], np.float32), (None,))
    return lambda count: _finish(
        tensors.whole(function(values, start, tensors.pack(np.int32(count), ())), (None,))
    )


def _finish(result: Any) -> None:
    """A call of a graph may return before it has ended; its numbers may not."""
    np.asarray(result)

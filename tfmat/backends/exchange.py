"""When and how the workers come together: in every step or seldom, with gradients as they are or as less."""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfmat.backends.base import Collectives, together
from tfmat.backends.registry import has_low_rank, is_large
from tfmat.config import Parallelism
from tfmat.errors import InputError

Tensors = list[tf.Tensor]
# Slots, gradients and weights -> new weights and new slots.
Apply = Callable[[Any, Any, Any], tuple[Any, Any]]
# Sums over the workers of gradients and of what else is summed, and new values of what is kept.
Summed = tuple[Tensors, Tensors, Tensors]
# Sums of what was sent, what this worker sent, sums of what is summed exactly, and new values of what is kept.
Sent = tuple[Tensors, Tensors, Tensors, Tensors]


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
    """The workers come together in each step. Gradients are summed as they are.

    All are in one collective, since latency is what a small network waits for. A subclass may have the workers take
    some steps by themselves between two meetings: it has an `every` of its own, and does something in `round`.
    `EXCHANGES` in `tfmat.backends.registry` has all of them by name.

    Attributes:
      every: steps between two meetings of the workers.
      settles: whether `settle` has anything to do.
      kept: what each worker keeps between two exchanges; a part of each step's state where each step has one.
      num_updating: how often the workers exchange after the optimizer has begun, once a graph is made.
      travels_as: the type in which gradients are summed; None for their own.
    """

    every = 1
    settles = False
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

    def __call__(self, gradients: Tensors, others: Tensors, kept: Tensors) -> Summed:
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

        Returns:
          New weights, new slots, the sums over the workers of `sums`, new values of `kept`.
        """
        gradients, (sums,), kept = self(gradients, [sums], list(state.kept))
        weights, slots = apply(state.slots, gradients, state.weights)
        return weights, slots, sums, kept

    # Around the steps of a call, in its graph. `kept` are variables of `self.kept`.

    def num_examples(self, weights: tf.Tensor, num_examples: tf.Tensor) -> tf.Tensor:
        """[steps]: by which number each step divides its sum of losses; see Backend.train for the arguments."""
        return num_examples

    def begin(self, kept: Sequence[Any]) -> None:
        """Begins some steps; `end` comes after the last round."""

    def round(self, kept: Sequence[Any], steps: Callable[[], Any]) -> Any:
        """Runs the `steps` of a round, and has the workers meet; returns what `steps` returns."""
        return steps()

    def end(self) -> None:
        """Ends the steps."""

    def settle(self, kept: Sequence[Any]) -> None:
        """Has the workers agree on all that they learned, after `end`."""


class Float16(Exchange):
    """Gradients are summed in half precision. Their 11 bits are enough that nothing needs to be kept."""

    travels_as = tf.float16


class BFloat16(Exchange):
    """Gradients travel as bfloat16, which overflows no sooner than float32, and each worker sums them all in float32.

    Neither Horovod nor MPI sums bfloat16, so the bits are collected, which is more to send from three workers on.
    """

    def __call__(self, gradients: Tensors, others: Tensors, kept: Tensors) -> Summed:
        bits = [tf.bitcast(tf.cast(gradient, tf.bfloat16), tf.uint16) for gradient in gradients]
        all_bits, sums = self.collectives.collect(bits), self.collectives.sum(others)
        totals = [
            tf.reduce_sum(tf.cast(tf.bitcast(each, tf.bfloat16), gradient.dtype), 0)
            for each, gradient in zip(all_bits, gradients, strict=True)
        ]
        totals, sums = together(totals, sums)
        return totals, sums, kept


# --------------------------------------------------------------------------------------------------
# The arithmetic of PowerSGD: products and bases of matrices with a few rows, fast on processors.


# Up to which Gram-Schmidt takes less time than a QR decomposition.
_MOST_ROWS = 4
# Share of a row that must be left beside the other rows for Gram-Schmidt to be as exact, in units of rounding.
_FEWEST_ROUNDINGS = 10_000


def narrow_product(matrix: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """(M Q)ᵀ [rank, rows] of M [rows, columns] and Q [columns, rank], in pieces, which takes TensorFlow less time."""
    rows, columns = matrix.shape
    pieces = math.gcd(rows, 8)
    product = tf.matmul(
        factor[None],
        tf.reshape(matrix, [pieces, rows // pieces, columns]),
        transpose_a=True,
        transpose_b=True,
    )
    return tf.reshape(tf.transpose(product, [1, 0, 2]), [-1, rows])


def orthonormal_rows(matrix: tf.Tensor) -> tf.Tensor:
    """An orthonormal basis [rows, columns] of the space of a matrix's few rows.

    Gram-Schmidt, each row twice, is as good as a QR decomposition of independent rows, and takes half the time for four
    rows (Giraud et al. 2005, The loss of orthogonality in the Gram-Schmidt orthogonalization process). Dependent rows,
    or more than four, go through a QR decomposition.
    """

    def decomposed() -> tf.Tensor:
        return tf.transpose(tf.linalg.qr(tf.transpose(matrix)).q)

    if matrix.shape[0] > _MOST_ROWS:
        return decomposed()
    found: list[tf.Tensor] = []
    shares = []
    for row in tf.split(matrix, matrix.shape[0]):
        rest = row
        for _ in range(2 if found else 0):
            before = tf.concat(found, 0)
            rest -= tf.matmul(tf.matmul(rest, before, transpose_b=True), before)
        square = tf.reduce_sum(rest * rest)
        shares.append(square / tf.reduce_sum(row * row))
        found.append(rest * tf.math.rsqrt(square))
    # No more than rounding may be left of a row. A row of zeroes gives NaN, which is not above the limit, either.
    limit = (_FEWEST_ROUNDINGS * np.finfo(matrix.dtype.as_numpy_dtype).eps) ** 2
    independent = tf.reduce_min(tf.stack(shares)) > limit
    return tf.cond(independent, lambda: tf.concat(found, 0), decomposed)


# --------------------------------------------------------------------------------------------------
# Gradients that travel as less than they are. The rest is added to the next step's: error feedback.


# An int8 sum over more workers leaves each fewer than four levels on either side of zero.
_MOST_INT8_WORKERS = 31


class _WithFeedback(Exchange, abc.ABC):
    """Large gradients are sent as something smaller, and a residual keeps what of them was not sent.

    Seide et al. 2014, 1-bit stochastic gradient descent; Karimireddy et al. 2019, Error feedback fixes SignSGD,
    arXiv:1901.09847.
    """

    name: str

    def __init__(self, collectives: Collectives, weights: Sequence[Any], options: Parallelism):
        super().__init__(collectives)
        self._shapes = [tuple(weight.shape) for weight in weights]
        self._large = [i for i, shape in enumerate(self._shapes) if self._takes(shape)]
        types = [tf.as_dtype(weight.dtype).as_numpy_dtype for weight in weights]
        self.kept = [
            Kept(f"{self.name}/residual/{i}", np.zeros(self._shapes[i], types[i]))
            for i in self._large
        ]

    def _takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a gradient of that shape is compressed."""
        return is_large(shape)

    def __call__(self, gradients: Tensors, others: Tensors, kept: Tensors) -> Summed:
        count = len(self._large)
        wanted = [
            tf.reshape(gradients[i], self._shapes[i]) + residual
            for i, residual in zip(self._large, kept, strict=False)
        ]
        rest = [g for i, g in enumerate(gradients) if i not in self._large]
        totals, sent, whole, memory = self._send(wanted, [*rest, *others], list(kept[count:]))
        residuals = [each - part for each, part in zip(wanted, sent, strict=True)]
        totals, whole = together(totals, whole)
        found, others = iter(whole[: len(rest)]), whole[len(rest) :]
        compressed = iter(totals)
        sums = [next(compressed if i in self._large else found) for i in range(len(self._shapes))]
        return sums, others, [*residuals, *memory]

    @abc.abstractmethod
    def _send(self, wanted: Tensors, whole: Tensors, memory: Tensors) -> Sent:
        """Sends something for `wanted`, and `whole` exactly.

        Args:
          wanted: gradients of this worker and what was left of those before.
          whole: what is summed exactly.
          memory: values of what is kept beside the residuals.

        Returns:
          Sums over the workers of what was sent, what this worker sent, the sums of `whole`, new values of `memory`.
        """


class Int8(_WithFeedback):
    """Gradients are rounded to so few levels that an int8 holds their sum over the workers.

    The unit comes from the largest number in the step before, averaged over the workers, so that nobody needs to be
    asked first: the first step sends nothing and measures. Larger numbers stay in the residual.
    """

    name = "int8"

    def __init__(self, collectives: Collectives, weights: Sequence[Any], options: Parallelism):
        super().__init__(collectives, weights, options)
        workers = collectives.size
        if workers > _MOST_INT8_WORKERS:
            raise InputError(
                f"compression=int8 is for up to {_MOST_INT8_WORKERS} workers, whose sum an int8 still holds, and "
                f"there are {workers}; use fp16 or powersgd"
            )
        self._workers, self._levels = workers, 127 // workers
        zeros = np.zeros(
            [len(self._large)], self.kept[0].initial.dtype if self.kept else np.float32
        )
        self.kept = [*self.kept, Kept("int8/largest", zeros, common=True)]

    def _send(self, wanted: Tensors, whole: Tensors, memory: Tensors) -> Sent:
        if not wanted:
            return [], [], self.collectives.sum(whole), memory
        units = tf.unstack(memory[0] / self._levels, num=len(wanted))
        codes = [
            tf.cast(
                tf.clip_by_value(
                    tf.round(tf.math.divide_no_nan(each, unit)), -self._levels, self._levels
                ),
                tf.int8,
            )
            for each, unit in zip(wanted, units, strict=True)
        ]
        largest = tf.stack([tf.reduce_max(tf.abs(each)) for each in wanted])
        reduced = self.collectives.sum([*codes, *whole, largest])
        totals, sent = (
            [tf.cast(code, unit.dtype) * unit for code, unit in zip(each, units, strict=True)]
            for each in (reduced[: len(codes)], codes)
        )
        return totals, sent, reduced[len(codes) : -1], [reduced[-1] / self._workers]


class Sign(_WithFeedback):
    """One bit a number and one scale a tensor, the mean of the absolute values (EF-signSGD, arXiv:1901.09847)."""

    name = "sign"

    def _send(self, wanted: Tensors, whole: Tensors, memory: Tensors) -> Sent:
        scales = [tf.reduce_mean(tf.abs(each)) for each in wanted]
        collected = self.collectives.collect([*(_pack(each >= 0) for each in wanted), *scales])
        sums = self.collectives.sum(whole)
        totals, sent = [], []
        for each, scale, bits, all_scales in zip(
            wanted, scales, collected, collected[len(wanted) :], strict=False
        ):
            signs = _unpack(bits, each.shape, each.dtype)
            totals.append(tf.tensordot(all_scales, signs, 1))
            sent.append(scale * tf.where(each >= 0, tf.ones_like(each), -tf.ones_like(each)))
        return totals, sent, sums, memory


class TopK(_WithFeedback):
    """The largest numbers of a gradient with their places (Aji and Heafield 2017, arXiv:1704.05021)."""

    name = "topk"

    def __init__(self, collectives: Collectives, weights: Sequence[Any], options: Parallelism):
        super().__init__(collectives, weights, options)
        self._fraction = options.compression_fraction

    def _send(self, wanted: Tensors, whole: Tensors, memory: Tensors) -> Sent:
        values, places = [], []
        for each in wanted:
            flat = tf.reshape(each, [-1])
            count = max(1, round(self._fraction * each.shape.num_elements()))
            place = tf.math.top_k(tf.abs(flat), count, sorted=False).indices
            places.append(place)
            values.append(tf.gather(flat, place))
        collected = self.collectives.collect([*values, *places])
        sums = self.collectives.sum(whole)
        totals, sent = (
            [_scatter(v, place, w.shape) for v, place, w in zip(*found, wanted, strict=True)]
            for found in ((collected[: len(wanted)], collected[len(wanted) :]), (values, places))
        )
        return totals, sent, sums, memory


class PowerSGD(_WithFeedback):
    """A gradient M is sent as a product P Qᵀ of low rank, by one step of power iteration from the Q before.

    Vogels et al. 2019, PowerSGD: practical low-rank gradient compression, arXiv:1905.13727, algorithms 1 and 2. All
    axes of a tensor but the last are the rows of its matrix. Where the rank would not save half, it is sent whole.
    """

    name = "powersgd"

    def __init__(self, collectives: Collectives, weights: Sequence[Any], options: Parallelism):
        self._rank = rank = options.compression_rank
        super().__init__(collectives, weights, options)
        # The same start on every worker.
        generator = np.random.default_rng(0)
        self.kept = [
            *self.kept,
            *(
                Kept(
                    f"powersgd/factor/{i}",
                    generator.normal(size=(self._shapes[i][-1], rank)).astype(each.initial.dtype),
                    common=True,
                )
                for i, each in zip(self._large, self.kept, strict=True)
            ),
        ]

    def _takes(self, shape: tuple[int, ...]) -> bool:
        return has_low_rank(shape, self._rank)

    def _send(self, wanted: Tensors, whole: Tensors, memory: Tensors) -> Sent:
        matrices = [tf.reshape(each, [-1, each.shape[-1]]) for each in wanted]
        products = [narrow_product(m, factor) for m, factor in zip(matrices, memory, strict=True)]
        reduced = self.collectives.sum([*products, *whole])
        bases = [orthonormal_rows(product) for product in reduced[: len(products)]]
        # A wide product, of which TensorFlow makes four times as many a second as of its transpose.
        own = [basis @ m for m, basis in zip(matrices, bases, strict=True)]
        factors = self.collectives.sum(own) if own else []

        def product(basis: tf.Tensor, factor: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
            return tf.reshape(tf.matmul(basis, factor, transpose_a=True), like.shape)

        totals = [product(*each) for each in zip(bases, factors, wanted, strict=True)]
        sent = [product(*each) for each in zip(bases, own, wanted, strict=True)]
        memory = [tf.transpose(factor) for factor in factors]
        return totals, sent, reduced[len(products) :], memory


_POWERS = (1, 2, 4, 8, 16, 32, 64, 128)


def _pack(bits: tf.Tensor) -> tf.Tensor:
    """uint8 [numbers / 8, rounded up] of bools of any shape."""
    flat = tf.cast(tf.reshape(bits, [-1]), tf.uint8)
    flat = tf.pad(flat, [[0, -bits.shape.num_elements() % 8]])
    return tf.reduce_sum(tf.reshape(flat, [-1, 8]) * tf.constant(_POWERS, tf.uint8), 1)


def _unpack(packed: tf.Tensor, shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
    """[workers, *shape] of 1 and -1 from uint8 [workers, bytes]."""
    bits = tf.bitwise.bitwise_and(packed[:, :, None], tf.constant(_POWERS, tf.uint8)) > 0
    bits = tf.reshape(bits, [tf.shape(packed)[0], -1])[:, : shape.num_elements()]
    signs = tf.where(bits, tf.ones([], dtype), -tf.ones([], dtype))
    return tf.reshape(signs, [-1, *shape])


def _scatter(values: tf.Tensor, places: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """A tensor of that shape with the values added at their places; zero elsewhere."""
    flat = tf.math.unsorted_segment_sum(
        tf.reshape(values, [-1]), tf.reshape(places, [-1]), shape.num_elements()
    )
    return tf.reshape(flat, shape)


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
    """Reduces tensors of any shapes and types over the workers, as one flat tensor for each type.

    There are as many on every worker, of the same shapes and types. Shapes need not be known while the graph is made;
    for gradients of dense layers on sequences they are not.
    """
    return _by_type(tensors, lambda parts: _split(reduce(flatten(parts)), parts))


def collect_flat(
    tensors: Sequence[tf.Tensor], collect: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """[workers, ...] of each tensor; shapes are known while the graph is made. See `reduce_flat`.

    `collect` makes [workers, numbers] of each worker's [1, numbers].
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
    """This worker's rows of the sums of tensors [workers, numbers]; shapes are known as for `collect_flat`.

    `scatter` makes [numbers] of [workers, numbers].
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
    """A function that sums `num_values` float32 numbers over the workers, `count` times one after the other."""

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
    """The same over the devices of a mesh's axis; each sum has one addition with it, of which the next one is made."""

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

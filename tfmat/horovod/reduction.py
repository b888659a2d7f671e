"""The reduction of a step's gradients: one flat buffer, one collective, for each type of number."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import horovod.tensorflow as horovod
import tensorflow as tf

from tfmat.backends.exchange import reduce_flat, without_repeated_rows

# A tf.Tensor, a tf.IndexedSlices (of an embedding), or None (of a variable that the loss does not depend on).
Gradient = Any
# Name and process set of reductions -> counts them.
_counts: dict[tuple[str, int], Iterator[int]] = {}


@dataclasses.dataclass
class GradientReduction:
    """Sums or averages gradients over the ranks.

    Attributes:
      name: of the optimizer, the same on every rank; see `operations`.
      op: Horovod's Average or Sum.
      compression: Horovod's Compression.none or Compression.fp16, for dense gradients.
      predivide_factor: divides before the sum and multiplies after it (for half precision).
      factor: multiplies the result.
      sparse_as_dense: gradients of embeddings travel whole, not as the rows that were used.
      device_dense: device of the operations on dense gradients; "" for Horovod's own choice.
      device_sparse: the same for gradients of embeddings.
      process_set: the ranks that take part.
      calls: how often a reduction was computed or traced.
      gathers: whether rows of an embedding were among the gradients, which all ranks gather together.
    """

    name: str
    op: Any
    compression: Any
    predivide_factor: float
    factor: float
    sparse_as_dense: bool
    device_dense: str
    device_sparse: str
    process_set: Any
    calls: int = 0
    gathers: bool = False

    @functools.cached_property
    def operations(self) -> str:
        """The beginning of the names of its operations, which no other reduction has that may run at the same time.

        Reductions of one name are counted in the order of their first use, so that an optimizer that one rank makes
        and never uses leaves the names alike; and by process set, in which others do not take part.
        """
        among = self.process_set.process_set_id
        number = _counts.setdefault((self.name, among), itertools.count())
        return f"{self.name}.{among}.{next(number)}"

    def __call__(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """Returns the reduced gradients, in the same order; None stays None."""
        self.calls += 1
        reduced = list(gradients)
        if self.sparse_as_dense:
            reduced = [None if each is None else tf.convert_to_tensor(each) for each in reduced]
        reduced = [without_repeated_rows(each) for each in reduced]
        if self.process_set.size() == 1:
            return [each if each is None else self._scale(each, self.factor) for each in reduced]
        places = []
        for i, gradient in enumerate(reduced):
            if isinstance(gradient, tf.IndexedSlices):
                reduced[i] = self._reduce_rows(gradient, f"{self.operations}.rows.{i}")
            elif gradient is not None:
                places.append(i)
        dense = reduce_flat([reduced[i] for i in places], self._reduce_dense)
        for i, gradient in zip(places, dense, strict=True):
            reduced[i] = gradient
        return reduced

    def _reduce_dense(self, flat: tf.Tensor) -> tf.Tensor:
        total = horovod.allreduce(
            flat,
            name=f"{self.operations}.{flat.dtype.name}",
            op=self.op,
            device_dense=self.device_dense,
            prescale_factor=1.0 / self.predivide_factor,
            postscale_factor=self.predivide_factor,
            compression=self.compression,
            process_set=self.process_set,
            # Keras's scope has the optimizer's name, and counts those that one rank makes alone.
            ignore_name_scope=True,
        )
        # After the collective, and not as its factor: in half precision it would overflow.
        return self._scale(total, self.factor)

    def _reduce_rows(self, gradient: tf.IndexedSlices, name: str) -> tf.IndexedSlices:
        """Gathers the rows that any rank used; a row that several used comes once, with its sum."""
        self.gathers = True
        with tf.device(self.device_sparse or None):
            rows, values = (
                horovod.allgather(
                    part,
                    name=f"{name}.{what}",
                    process_set=self.process_set,
                    ignore_name_scope=True,
                )
                for what, part in (("indices", gradient.indices), ("values", gradient.values))
            )
        total = without_repeated_rows(tf.IndexedSlices(values, rows, gradient.dense_shape))
        divisor = self.process_set.size() if self.op == horovod.Average else 1
        return self._scale(total, self.factor / divisor)

    @staticmethod
    def _scale(gradient: Gradient, factor: float) -> Gradient:
        if factor == 1.0:
            return gradient
        # Not tf.cast, which goes through float32.
        exact = tf.constant(factor, gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            scaled = gradient.values * exact
            return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
        return gradient * exact

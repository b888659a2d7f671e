"""How the workers' gradients come together: the seam behind which they may travel as less than they are."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from tfmat.backends.collectives import Collectives
    from tfmat.backends.state import State

Tensors = list[tf.Tensor]
# Tensors of one worker -> their sums over the workers.
Reduce = Callable[[Tensors], Tensors]
# Tensors of one worker -> those of all workers, stacked: [workers, ...].
Collect = Callable[[Tensors], Tensors]
# Tensors [workers, numbers] of one worker -> its own rows of their sums over the workers.
Scatter = Callable[[Tensors], Tensors]


class Kept(NamedTuple):
    """What a worker keeps from one exchange to the next.

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

    Attributes:
      kept: what each worker keeps between two exchanges.
      num_updating: how often the workers exchange after the optimizer has begun, once a graph is made.
    """

    kept: Sequence[Kept] = ()
    num_updating = 0

    def __call__(
        self, gradients: Tensors, others: Tensors, kept: Tensors, reduce: Reduce, collect: Collect
    ) -> tuple[Tensors, Tensors, Tensors]:
        """Brings the workers' gradients together.

        Args:
          gradients: of this worker, in the order and with the shapes of the weights.
          others: what is always summed exactly, such as sums of losses.
          kept: values of `self.kept`.
          reduce, collect: over the workers, in a graph.

        Returns:
          The sums over the workers of `gradients` and `others`, the same on every worker, and new values of `kept`.
        """
        totals = reduce([*gradients, *others])
        return totals[: len(gradients)], totals[len(gradients) :], kept

    def update(
        self,
        optimizer: Any,
        state: "State",
        gradients: Tensors,
        sums: tf.Tensor,
        reduce: Reduce,
        collect: Collect,
        scatter: Scatter | None,
    ) -> tuple[Tensors, Tensors, tf.Tensor, Tensors]:
        """Has the workers' gradients come together, and the optimizer take a step with them.

        Args:
          optimizer: functional.
          state: before the step.
          gradients, sums: of this worker.
          reduce, collect, scatter: over the workers.

        Returns:
          New weights, new slots, the sums over the workers of `sums`, new values of `kept`.
        """
        gradients, (sums,), kept = self(gradients, [sums], list(state.kept), reduce, collect)
        weights, slots = optimizer.stateless_apply(state.slots, gradients, state.weights)
        return weights, slots, sums, kept


class Float16(Exchange):
    """Gradients are summed in half precision. Their 11 bits are enough that nothing needs to be kept."""

    def __call__(
        self, gradients: Tensors, others: Tensors, kept: Tensors, reduce: Reduce, collect: Collect
    ) -> tuple[Tensors, Tensors, Tensors]:
        """See Exchange."""
        totals = reduce([*(tf.cast(gradient, tf.float16) for gradient in gradients), *others])
        halves = totals[: len(gradients)]
        sums = [tf.cast(half, g.dtype) for half, g in zip(halves, gradients, strict=True)]
        return sums, totals[len(gradients) :], kept


class BFloat16(Exchange):
    """Gradients travel as bfloat16, which overflows no sooner than float32, and each worker sums them all in float32.

    Neither Horovod nor MPI sums bfloat16, so the bits are collected, which is more to send from three workers on.
    """

    def __call__(
        self, gradients: Tensors, others: Tensors, kept: Tensors, reduce: Reduce, collect: Collect
    ) -> tuple[Tensors, Tensors, Tensors]:
        """See Exchange."""
        bits = [tf.bitcast(tf.cast(gradient, tf.bfloat16), tf.uint16) for gradient in gradients]
        all_bits, sums = collect(bits), reduce(others)
        totals = [
            tf.reduce_sum(tf.cast(tf.bitcast(each, tf.bfloat16), gradient.dtype), 0)
            for each, gradient in zip(all_bits, gradients, strict=True)
        ]
        totals, sums = together(totals, sums)
        return totals, sums, kept


def together(*groups: Tensors) -> list[Tensors]:
    """The same tensors; none is ready before all are, or the next step would exchange under the same names too soon."""
    everything = [tensor for group in groups for tensor in group]
    with tf.control_dependencies(everything):
        return [[tf.identity(tensor) for tensor in group] for group in groups]


class Counted:
    """`reduce`, `collect` and `scatter`, with the bytes counted that they have one worker send, while a graph is made.

    Each is counted as a ring does it, in which no byte goes twice: a sum over R workers has each send 2 (R - 1) / R
    times its tensors (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms), a sum of which each keeps a
    part (R - 1) / R times, a collection R - 1 times.

    Attributes:
      bytes: that one worker sends.
    """

    def __init__(
        self, reduce: Reduce, collect: Collect, workers: int, scatter: Scatter | None = None
    ):
        self._reduce, self._collect, self._workers = reduce, collect, workers
        self._scatter = scatter
        self.bytes = 0.0

    @classmethod
    def over(cls, collectives: "Collectives") -> "Counted":
        """Counts what a backend's collectives send."""
        own = collectives
        return cls(own.reduce, own.collect, own.size, own.reduce_scatter)

    def reduce(self, tensors: Tensors) -> Tensors:
        """See Collectives.reduce."""
        self.bytes += 2 * (self._workers - 1) / self._workers * num_bytes(tensors)
        return self._reduce(tensors)

    def collect(self, tensors: Tensors) -> Tensors:
        """See Collectives.collect."""
        self.bytes += (self._workers - 1) * num_bytes(tensors)
        return self._collect(tensors)

    def scatter(self, tensors: Tensors) -> Tensors:
        """See Collectives.reduce_scatter."""
        assert self._scatter is not None
        self.bytes += (self._workers - 1) / self._workers * num_bytes(tensors)
        return self._scatter(tensors)


def num_bytes(tensors: Sequence[Any]) -> int:
    """Bytes of tensors; one of a shape that is not known before it is there counts nothing."""
    return sum((t.shape.num_elements() or 0) * t.dtype.size for t in tensors)

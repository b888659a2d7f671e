"""Losses, gradients and products with the Hessian over curves that lie ready, at any weights: what a landscape asks."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfmat.data.packed import PackedDataset
from tfmat.large_batch.directions import Weights
from tfmat.large_batch.run_loss import RunLoss

if TYPE_CHECKING:
    import keras

    from tfmat.backends.collectives import Collectives

BLOCKS = 20


@dataclasses.dataclass(frozen=True)
class Curves:
    """Examples of one part of a data set, in blocks of equal size, so that every mean comes with its error.

    Attributes:
      features: tensor [blocks, curves of a block, ...], as the trained part of the network takes them.
      labels: tensor [blocks, curves of a block, outputs].
    """

    features: Any
    labels: Any

    @property
    def count(self) -> int:
        """All curves."""
        return int(self.labels.shape[0] * self.labels.shape[1])


def pick_rows(first: int, available: int, wanted: int, seed: int) -> NDArray[np.int64]:
    """Rows of a part of a data set, [BLOCKS, rows of a block], drawn without replacement.

    Args:
      first, available: the part's first row, and how many it has.
      wanted: rows; where the part has fewer, all of it, and always a multiple of BLOCKS.
      seed: of the draw.
    """
    width = min(wanted, available) // BLOCKS
    rows = np.random.default_rng(seed).permutation(available)[: width * BLOCKS]
    return first + np.sort(rows.reshape(BLOCKS, width), axis=1)


def load_curves(
    dataset: PackedDataset,
    rows: NDArray[np.int64],
    front: "keras.Model | None",
    collectives: "Collectives",
    dtype: str,
) -> Curves:
    """The rows [blocks, width] of a data set, seen through the network's front where it has one."""
    import tensorflow as tf

    from tfmat.workflow.fronts import represented

    features = np.ascontiguousarray(dataset.features[rows.ravel()])
    if front is not None:
        features = represented(front, features, collectives, dataset.kept)
    features = features.reshape(*rows.shape, *features.shape[1:])
    return Curves(
        tf.constant(features.astype(dtype)), tf.constant(dataset.labels[rows].astype(dtype))
    )


class LossAtWeights:
    """Losses, gradients and products with the Hessian of a loss over some curves, at any weights; each traced once.

    Args:
      loss: of the network.
      others: its other variables, such as moving statistics.
      curves: over which the loss is a mean.

    Attributes:
      blocks, curves: how many there are.
    """

    def __init__(self, loss: RunLoss, others: Weights, curves: Curves):
        import tensorflow as tf

        self._loss, self._others = loss, others
        self._take(curves)
        # Blocks that are under way at once; each operation has one thread (see `prepare_tensorflow`).
        self._parallel = tf.config.threading.get_inter_op_parallelism_threads() or 2
        self._functions = {
            name: tf.function(function, autograph=False)
            for name, function in (
                ("losses", self._losses),
                ("gradient", self._gradient),
                ("product", self._product),
            )
        }

    def _take(self, curves: Curves) -> None:
        self.blocks, self.curves = int(curves.labels.shape[0]), curves.count
        self._curves = curves.features, curves.labels

    def over(self, curves: Curves) -> "LossAtWeights":
        """The same over other curves; as many in blocks of the same size need no further tracing."""
        other = copy.copy(self)
        other._take(curves)
        return other

    def part(self, rank: int, ranks: int) -> "LossAtWeights":
        """The same over this rank's blocks: rank, rank + ranks, ..."""
        features, labels = (tensor[rank::ranks] for tensor in self._curves)
        return self.over(Curves(features, labels))

    def losses(self, weights: Weights, others: Weights | None = None) -> NDArray:
        """[blocks], the mean loss of each block."""
        states = self._others if others is None else others
        found: NDArray = self._functions["losses"](weights, states, *self._curves).numpy()
        return found.astype(np.float64)

    def gradient(self, weights: Weights) -> tuple[NDArray, NDArray]:
        """[numbers], the sum over the blocks of the gradients of their losses; [blocks], these losses."""
        total, losses = self._functions["gradient"](weights, self._others, *self._curves)
        return _flat(total), losses.numpy().astype(np.float64)

    def product(self, weights: Weights, vector: NDArray) -> tuple[NDArray, NDArray]:
        """The Hessians of the blocks' losses times a vector (Pearlmutter 1994).

        Args:
          weights: where.
          vector: [numbers], in the order of the weights.

        Returns:
          [numbers], the sum over the blocks; [blocks], the vector times each block's product.
        """
        direction, place = [], 0
        for w in weights:
            direction.append(vector[place : place + w.size].reshape(w.shape).astype(w.dtype))
            place += w.size
        total, quotients = self._functions["product"](
            weights, direction, self._others, *self._curves
        )
        return _flat(total), quotients.numpy().astype(np.float64)

    def _losses(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        return self._each(lambda a, b: ([], self._loss(weights, others, a, b)), [], x, y)[1]

    def _gradient(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        return self._each(
            lambda a, b: self._gradient_of_block(weights, others, a, b), weights, x, y
        )

    def _gradient_of_block(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            loss = self._loss(weights, others, x, y)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(loss, weights, unconnected_gradients=zero), loss

    def _product(self, weights: Any, direction: Any, others: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        def product(a: Any, b: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                gradient, _ = self._gradient_of_block(weights, others, a, b)
                slope = _dot(gradient, direction)
            zero = tf.UnconnectedGradients.ZERO
            found = tape.gradient(slope, weights, unconnected_gradients=zero)
            return found, _dot(found, direction)

        return self._each(product, weights, x, y)

    def _each(self, function: Any, like: Any, x: Any, y: Any) -> Any:
        """The sums over the blocks of the first that `function` gives, tensors as `like`, and [blocks] the second."""
        import tensorflow as tf

        count = tf.shape(y)[0]

        def body(i: Any, totals: Any, numbers: Any) -> Any:
            found, number = function(x[i], y[i])
            totals = [total + each for total, each in zip(totals, found, strict=True)]
            return i + 1, totals, numbers.write(i, number)

        _, totals, numbers = tf.while_loop(
            lambda i, *_: i < count,
            body,
            (tf.constant(0), [tf.zeros_like(t) for t in like], tf.TensorArray(y.dtype, count)),
            parallel_iterations=self._parallel,
        )
        return totals, numbers.stack()


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    import tensorflow as tf

    return tf.add_n([tf.reduce_sum(p * q) for p, q in zip(a, b, strict=True)])


def _flat(tensors: Sequence[Any]) -> NDArray:
    return np.concatenate([tensor.numpy().ravel().astype(np.float64) for tensor in tensors])

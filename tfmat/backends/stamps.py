"""Notes in the graph of a training step when its parts are complete; see step_times.py."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Reduce = Callable[[list[tf.Tensor]], list[tf.Tensor]]


class Stamps:
    """The moments of one step, while its graph is made.

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
            # A sum's gradient is the sum of the gradients, and another meeting of the workers.
            return totals, lambda *gradients: summed(*gradients)

        return lambda tensors: list(summed(*tensors))

    def stack(self) -> tf.Tensor:
        """float64 [moments]; see StepTimes."""
        return tf.stack(self._times)

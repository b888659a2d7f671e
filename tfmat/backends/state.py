"""All that training changes, as one value: what a step takes and gives."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.saved_arrays import SavedArrays
from tfmat.errors import InputError


class State(NamedTuple):
    """All that training changes. The global step is the first of `slots`, Keras's `iterations`.

    What a worker keeps between exchanges (`kept`) is its own, and no part of `named` and `assign`.
    """

    weights: list[Any]
    non_trainable: list[Any]
    slots: list[Any]
    kept: Sequence[Any] = ()

    @classmethod
    def variables_of(cls, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> "State":
        """The TensorFlow variables behind a Keras model and its built optimizer."""
        return cls(
            [variable.value for variable in model.trainable_variables],
            [variable.value for variable in model.non_trainable_variables],
            [variable.value for variable in optimizer.variables],
        )

    def named(self) -> dict[str, Any]:
        """Everything by its name in files: `weights/0`, ..., `slots/0`, ..."""
        return {
            f"{part}/{i}": value
            for part, values in zip(self._fields[:3], self[:3], strict=True)
            for i, value in enumerate(values)
        }

    def assign(self, arrays: SavedArrays, assign: Callable[[str, np.ndarray], None]) -> None:
        """Calls `assign(name, array)` for each variable; InputError before that where one has another shape.

        One array is in memory at a time, where the arrays are not there already.
        """
        for name, variable in self.named().items():
            array = arrays.get(name)
            if array is None or array.shape != tuple(variable.shape):
                saved = "nothing" if array is None else f"shape {list(array.shape)}"
                raise InputError(
                    f"the saved state does not fit this model: {name} ({variable.name}) has shape "
                    f"{list(variable.shape)}, saved is {saved}; use the config that the run was started with"
                )
        for name in self.named():
            assign(name, np.asarray(arrays[name]))


# Gradients, [num_sums] sums and the new non-trainable state of one worker's part of a batch.
Gradients = tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]

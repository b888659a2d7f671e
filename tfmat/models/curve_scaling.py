"""Curves by their shape and their extent: of soft and strong, brittle and ductile materials alike."""

from typing import Any

import keras
from keras import ops

# Logarithms are divided by this: over the metals they run over some 5.
_LOG_RANGE = 2.5
_TINY = 1e-12


def _largest(inputs: Any) -> Any:
    """Largest strain and stress of each curve: [batch, points, 3] -> [batch, 2], positive."""
    return ops.maximum(ops.max(ops.abs(inputs[:, :, :2]), axis=1), _TINY)


@keras.saving.register_keras_serializable(package="tfmat")
class CurveShape(keras.layers.Layer):
    """Strain and stress over the curve's own largest, and the flag: [batch, points, 3], as the inputs."""

    def call(self, inputs: Any) -> Any:
        """See the class."""
        scaled = inputs[:, :, :2] / _largest(inputs)[:, None, :]
        return ops.concatenate([scaled, inputs[:, :, 2:]], axis=2)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        return input_shape


@keras.saving.register_keras_serializable(package="tfmat")
class CurveExtent(keras.layers.Layer):
    """Logarithms of a curve's largest strain and stress: [batch, points, 3] -> [batch, 2].

    Args:
      input_scale: largest strain (-) and stress (MPa) of the data set, where the logarithms are 0.
    """

    def __init__(self, input_scale: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.input_scale = [float(scale) for scale in input_scale][:2]

    def call(self, inputs: Any) -> Any:
        """See the class."""
        scale = ops.convert_to_tensor(self.input_scale, inputs.dtype)
        return ops.log(_largest(inputs) / scale) / _LOG_RANGE

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        return (input_shape[0], 2)

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "input_scale": self.input_scale}

"""A convolution and its pooling in forms that a mesh can divide over channels.

DTensor (TensorFlow 2.21) wants the filters of a convolution whole on every device, and pooling wants whole channels.
The same sums as shifted copies of the curve and one matrix product have no such limit. On one device the library's own
convolution is faster, see docs/dtensor.md.
"""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="tfmat")
class UnfoldedConvolution1D(keras.layers.Conv1D):
    """Keras's Conv1D, same variables and same numbers up to rounding, as one matrix product.

    The kernel [points, channels, filters] may be divided over filters, and the next one's over channels: then nothing
    is exchanged between them, and the sums over the channels meet once, behind the second.

    Attributes:
      divides_over_channels: says so to the layouts of a mesh.

    Raises:
      ValueError: for settings other than `padding="same"`, and strides, dilation and groups of 1.
    """

    divides_over_channels = True

    def __init__(self, filters: int, kernel_size: Any, **kwargs: Any):
        super().__init__(filters, kernel_size, **kwargs)
        steps = (*self.strides, *self.dilation_rate, self.groups)
        if self.padding != "same" or set(steps) != {1} or self.data_format != "channels_last":
            raise ValueError(
                "UnfoldedConvolution1D needs padding='same', and strides, dilation and groups of 1; use Conv1D"
            )

    def call(self, inputs: Any) -> Any:
        """[batch, points, channels] -> [batch, points, filters]."""
        size, channels = self.kernel_size[0], inputs.shape[2]
        points = inputs.shape[1]
        before = (size - 1) // 2
        padded = ops.pad(inputs, ((0, 0), (before, size - 1 - before), (0, 0)))
        # Channels first: a reshape keeps the division of its leading dimension only. The other way round DTensor
        # collects the channels on every device, and says nothing.
        shifted = ops.stack([padded[:, i : i + points] for i in range(size)], axis=3)
        kernel = ops.reshape(ops.transpose(self.kernel, (1, 0, 2)), (channels * size, self.filters))
        outputs = ops.matmul(ops.reshape(shifted, (-1, points, channels * size)), kernel)
        if self.use_bias:
            outputs = outputs + self.bias
        return self.activation(outputs)


@keras.saving.register_keras_serializable(package="tfmat")
class ReshapedMaxPooling1D(keras.layers.Layer):
    """Keras's MaxPooling1D with stride `pool_size`, as a reshape and a maximum: works on divided channels.

    Args:
      pool_size: points; what is left of the last window is dropped, as Keras does.
    """

    def __init__(self, pool_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.pool_size = pool_size

    def call(self, inputs: Any) -> Any:
        """[batch, points, channels] -> [batch, points // pool_size, channels]."""
        points, channels = inputs.shape[1:]
        windows = points // self.pool_size
        inputs = inputs[:, : windows * self.pool_size]
        return ops.max(ops.reshape(inputs, (-1, windows, self.pool_size, channels)), axis=2)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        return (input_shape[0], input_shape[1] // self.pool_size, input_shape[2])

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "pool_size": self.pool_size}

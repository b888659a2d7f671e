"""Layers for records of tests: channels on scales that a network likes, one encoder for every test, masked pooling."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

# Seconds below which times are all alike to the network, and decades that stand for 1.
_SHORTEST, _DECADES = 1e-3, 5.0
_ROOM_TEMPERATURE, _HOT = 20.0, 500.0


@keras.saving.register_keras_serializable(package="tfmat")
class SettingChannels(keras.layers.Layer):
    """Time, rate and noise as logarithms, temperature in hundreds of degrees: [batch, points, channels], as the inputs.

    Strain, stress and flag pass; padded points stay zero.

    Args:
      channels: names, the first three of which are strain, stress and flag.
    """

    def __init__(self, channels: Sequence[str], **kwargs: Any):
        super().__init__(**kwargs)
        self.channels = list(channels)

    def call(self, inputs: Any) -> Any:
        """See the class."""
        there = 1.0 - inputs[:, :, 2]
        scaled = [inputs[:, :, :3]]
        for i, name in enumerate(self.channels[3:], start=3):
            value = inputs[:, :, i]
            if name == "time":
                value = ops.log(1.0 + value / _SHORTEST) / (_DECADES * 2.302585)
            elif name in ("rate", "noise"):
                value = ops.log(ops.maximum(value, 1e-12)) / (_DECADES * 2.302585)
            else:
                value = (value - _ROOM_TEMPERATURE) / _HOT
            scaled.append((value * there)[:, :, None])
        return ops.concatenate(scaled, axis=2)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "channels": self.channels}


@keras.saving.register_keras_serializable(package="tfmat")
class SplitTests(keras.layers.Layer):
    """Each test as an example of its own: [batch, tests * points, channels] -> [batch * tests, points, channels].

    Args:
      num_tests: tests of a record.
    """

    def __init__(self, num_tests: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tests = num_tests

    def call(self, inputs: Any) -> Any:
        """See the class."""
        points, channels = inputs.shape[1:]
        return ops.reshape(inputs, (-1, points // self.num_tests, channels))

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        batch, points, channels = input_shape
        batch = None if batch is None else batch * self.num_tests
        return (batch, points // self.num_tests, channels)

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "num_tests": self.num_tests}


@keras.saving.register_keras_serializable(package="tfmat")
class SeenTests(keras.layers.Layer):
    """What a front without weights makes of a record, and which tests are missing: a record of one point for each test.

    Called on the features [batch * tests, units] and on the tests [batch * tests, points, channels]; gives
    [batch, tests, units + 1], of which the last is 1 for a missing test. What is behind needs no more of the record.

    Args:
      num_tests: tests of a record.
    """

    def __init__(self, num_tests: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tests = num_tests

    def call(self, inputs: Any, tests: Any) -> Any:
        """See the class."""
        missing = ops.min(tests[:, :, 2], axis=1, keepdims=True)
        seen = ops.concatenate([inputs, ops.cast(missing, inputs.dtype)], axis=1)
        return ops.reshape(seen, (-1, self.num_tests, inputs.shape[1] + 1))

    def compute_output_shape(self, input_shape: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        batch = None if input_shape[0] is None else input_shape[0] // self.num_tests
        return (batch, self.num_tests, input_shape[1] + 1)

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "num_tests": self.num_tests}


@keras.saving.register_keras_serializable(package="tfmat")
class TestTokens(keras.layers.Layer):
    """What kind of test each is, beside its features: [batch * tests, units] -> [batch * tests, units + token].

    Args:
      tokens: [tests, token], the same for every record.
    """

    __test__ = False  # no case of pytest's

    def __init__(self, tokens: Sequence[Sequence[float]], **kwargs: Any):
        super().__init__(**kwargs)
        self.tokens = [[float(value) for value in token] for token in tokens]

    def call(self, inputs: Any) -> Any:
        """See the class."""
        tests, units = len(self.tokens), inputs.shape[1]
        records = ops.reshape(inputs, (-1, tests, units))
        tokens = ops.convert_to_tensor(self.tokens, inputs.dtype)
        shown = ops.zeros_like(records[:, :, :1]) + tokens[None]
        joined = ops.concatenate([records, shown], axis=2)
        return ops.reshape(joined, (-1, units + len(self.tokens[0])))

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        return (input_shape[0], input_shape[1] + len(self.tokens[0]))

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "tokens": self.tokens}


@keras.saving.register_keras_serializable(package="tfmat")
class PoolTests(keras.layers.Layer):
    """The mean over the tests of a record that are there: [batch * tests, units] -> [batch, units].

    Called on the features and on the tests [batch * tests, points, channels], whose flags say which are there: a
    missing test is one whose points are all padding.

    Args:
      num_tests: tests of a record.
      flag: the channel that tells padding.
    """

    def __init__(self, num_tests: int, flag: int = 2, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tests, self.flag = num_tests, flag

    def call(self, inputs: Any, tests: Any) -> Any:
        """See the class."""
        there = 1.0 - ops.min(tests[:, :, self.flag], axis=1)
        there = ops.reshape(there, (-1, self.num_tests, 1))
        there = ops.cast(there, inputs.dtype)
        records = ops.reshape(inputs, (-1, self.num_tests, inputs.shape[1]))
        count = ops.maximum(ops.sum(there, axis=1), 1.0)
        return ops.sum(records * there, axis=1) / count

    def compute_output_shape(self, input_shape: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        batch = None if input_shape[0] is None else input_shape[0] // self.num_tests
        return (batch, input_shape[1])

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "num_tests": self.num_tests, "flag": self.flag}

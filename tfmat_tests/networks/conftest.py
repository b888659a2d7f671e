"""What tests of the networks share."""

from collections.abc import Iterator

import keras
import pytest


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Layers that are made meanwhile compute in float64."""
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)

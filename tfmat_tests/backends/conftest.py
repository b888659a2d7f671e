"""What tests of the backends share."""

from collections.abc import Iterator

import pytest

from tfmat_tests.backends.problem import keeping_precision, set_precision


@pytest.fixture
def float64() -> Iterator[None]:
    """Whatever Keras makes during the test is in float64."""
    with keeping_precision():
        set_precision("float64")
        yield

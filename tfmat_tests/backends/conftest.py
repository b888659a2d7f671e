"""What tests of the backends share."""

import pathlib
from collections.abc import Iterator

import pytest

from tfmat_tests.backends.problem import keeping_precision, set_precision


@pytest.fixture
def float64() -> Iterator[None]:
    """Whatever Keras makes during the test is in float64."""
    with keeping_precision():
        set_precision("float64")
        yield


@pytest.fixture(scope="session")
def plain_ends(session_folder: pathlib.Path) -> pathlib.Path:
    """Where `mesh_process` keeps the ends of plain Keras loops, for every process of the session."""
    folder = session_folder / "plain_ends"
    folder.mkdir(exist_ok=True)
    return folder

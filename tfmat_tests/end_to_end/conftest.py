"""The server that starts programs for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tfmat_tests.end_to_end.processes import ForkServer, fork_server


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts `tfmat ...` without the seconds that TensorFlow takes to load."""
    with fork_server(tmp_path_factory.mktemp("programs")) as server:
        yield server

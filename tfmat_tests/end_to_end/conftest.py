"""The server that starts programs for all tests of this folder, and the test of a refusal."""

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tfmat.cli.main import main
from tfmat_tests.end_to_end.processes import ForkServer, fork_server
from tfmat_tests.end_to_end.runs import listing

Refuse = Callable[..., str]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts `tfmat ...` without the seconds that TensorFlow takes to load."""
    with fork_server(tmp_path_factory.mktemp("programs")) as server:
        yield server


@pytest.fixture
def refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Calls `tfmat ARGUMENTS` in tmp_path, where it must refuse and change nothing; returns its one line."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> str:
        before = listing(tmp_path)
        assert main(list(map(str, arguments))) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("tfmat: ") and captured.err.count("\n") == 1, captured.err
        assert listing(tmp_path) == before
        return captured.err.removeprefix("tfmat: ").removesuffix("\n")

    return call

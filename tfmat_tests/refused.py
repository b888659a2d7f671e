"""Commands as tests call them: what is done, and what is refused."""

import pathlib
from collections.abc import Callable

import pytest

Do = Callable[..., str]
Refuse = Callable[..., str]


def listing(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder with time of change and size, to see whether anything was touched."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def done(capsys: pytest.CaptureFixture[str]) -> Do:
    """Calls `tfmat ARGUMENTS`, which must end well; returns what it prints."""
    from tfmat.cli.main import main  # tests of lower rooms know no commands

    def call(*arguments: object) -> str:
        capsys.readouterr()
        assert main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refuse:
    """Calls `tfmat ARGUMENTS` in tmp_path, where it must refuse and change nothing; returns its one line."""
    from tfmat.cli.main import main  # tests of lower rooms know no commands

    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> str:
        capsys.readouterr()
        before = listing(tmp_path)
        assert main(list(map(str, arguments))) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("tfmat: ") and captured.err.count("\n") == 1, captured.err
        assert listing(tmp_path) == before
        return captured.err.removeprefix("tfmat: ").removesuffix("\n")

    return call

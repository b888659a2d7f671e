"""What a run shows where there is no terminal."""

import os

import pytest

from tfmat.training.run import TrainingProgress


def test_only_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(10) as progress:
        progress.update(step=5, description="epoch 1/2", rate=1e4, loss=0.1, seconds_left=7.0)
        progress.show("a line [with brackets]")
    assert capsys.readouterr().err == "a line [with brackets]\n"
    with TrainingProgress(10, shown=False) as progress:
        progress.show("nothing")
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", buffering=1)
    monkeypatch.setattr("sys.stderr", stream)
    with TrainingProgress(10) as progress:
        progress.show("nobody reads this")
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        stream.close()

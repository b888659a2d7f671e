"""Signals that ask a run to stop, and what it shows where there is no terminal."""

import contextlib
import os
import signal
import threading

import pytest

from tfmat.errors import Interrupted
from tfmat.training.run import SIGNALS, StopRequest, TrainingProgress


def test_the_handlers_from_before_come_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    stop = StopRequest()
    with pytest.raises(ZeroDivisionError), stop:
        1 / 0  # noqa: B018
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_second_ctrl_c_does_not_wait() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_hurry_is_told_whatever_tensorflow_makes_of_it() -> None:
    def hurried() -> None:
        with StopRequest():
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            raise TypeError("missing required arguments")

    with pytest.raises(KeyboardInterrupt) as told:
        hurried()
    assert isinstance(told.value.__cause__, TypeError)


def test_a_hurry_does_not_hide_that_the_state_was_saved() -> None:
    def saved() -> None:
        with StopRequest():
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            raise Interrupted("saved")

    with pytest.raises(Interrupted, match="saved"):
        saved()


def test_another_signal_does_not_hurry() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)


def test_in_another_thread_it_does_nothing() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    seen: list[object] = []

    def run() -> None:
        with StopRequest() as stop:
            seen.append(stop.received)
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [0, *before]


def test_only_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as progress:
        progress.update(step=5, description="epoch 1/2", text="10,000 examples/s")
        progress.show("a line [with brackets]")
    assert capsys.readouterr().err == "a line [with brackets]\n"
    with TrainingProgress(shown=False) as progress:
        progress.show("nothing")
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", buffering=1)
    monkeypatch.setattr("sys.stderr", stream)
    with TrainingProgress() as progress:
        progress.show("nobody reads this")
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        stream.close()

"""Signals that ask a run to stop."""

import os
import signal
import threading

import pytest

from tfmat.training.run import SIGNALS, StopRequest


@pytest.mark.parametrize("number", SIGNALS)
def test_the_signal_is_noted_and_nothing_else_happens(number: signal.Signals) -> None:
    with StopRequest() as stop:
        assert stop.received == 0
        os.kill(os.getpid(), number)
        assert stop.received == number


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

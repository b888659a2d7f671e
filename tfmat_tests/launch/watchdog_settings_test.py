"""The watchdog where it has nothing to watch, and the settings that switch it off or give its times."""

import time

import pytest

from tfmat.errors import InputError
from tfmat.launch.watchdog import Watchdog, start_timer


def test_one_rank_needs_nobody() -> None:
    def exchange(value: object) -> object:
        raise AssertionError

    watchdog = Watchdog.start(0, 1, exchange)
    watchdog.announce("training", 0, collective=True)
    watchdog.fail(ValueError())
    watchdog.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("TFMAT_WORKER_TIMEOUT", "0")
    watchdog = Watchdog.start(rank, 2, lambda value: value)
    watchdog.announce("training", 0, collective=True)
    watchdog.close()


@pytest.mark.parametrize("name", ["TFMAT_WORKER_TIMEOUT", "HOROVOD_START_TIMEOUT"])
@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_what_is_no_number_of_seconds(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InputError, match=f"{name}={text} is no number of seconds"):
        Watchdog.start(0, 2, lambda value: value)


def test_a_start_in_time_ends_nothing() -> None:
    with start_timer(0, 0.2):
        pass
    time.sleep(0.3)

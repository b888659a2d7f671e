"""The lock: one holder at a time, whoever dies or comes too late."""

import json
import multiprocessing
import os
import pathlib
import signal
import time

import pytest

from tfmat.files import FileLock, LockLostError, is_dead, owner_of, this_process


def count(folder: pathlib.Path, times: int) -> None:
    """Adds one to a number in a file, so that two at once would lose some."""
    lock = FileLock(folder / "lock", 60.0)
    for _ in range(times):
        with lock.held() as held:
            number = int((folder / "number").read_text())
            time.sleep(0.001)
            held.check()
            (folder / "number").write_text(str(number + 1))


def hold(folder: pathlib.Path) -> None:
    with FileLock(folder / "lock", 60.0).held():
        (folder / "holds").touch()
        time.sleep(600)


def test_no_two_processes_hold_it(tmp_path):
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=count, args=(tmp_path, 40)) for _ in range(6)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    assert (tmp_path / "number").read_text() == "240"
    assert len(list((tmp_path / "lock").iterdir())) == 1


def test_a_killed_holder_is_seen_at_once(tmp_path):
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path,))
    holder.start()
    while not (tmp_path / "holds").exists():
        time.sleep(0.001)
    assert not is_dead(owner_of(holder.pid))
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with FileLock(tmp_path / "lock", 3600.0).held() as held:  # waits an hour for one elsewhere
        held.check()


def test_a_holder_on_another_machine_that_is_silent_loses_it(tmp_path):
    folder = tmp_path / "lock"
    folder.mkdir()
    (folder / "7").write_text(json.dumps({**this_process(), "machine": "another"}))
    started = time.monotonic()
    with FileLock(folder, 0.3).held() as held:
        held.check()
    assert time.monotonic() - started >= 0.3
    assert [path.name for path in folder.iterdir()] == ["8.released"]


def test_who_was_asleep_for_too_long_may_not_write(tmp_path):
    lock = FileLock(tmp_path / "lock", 3600.0)
    with lock.held() as slow:
        slow.check()
        (number,) = (int(path.name) for path in (tmp_path / "lock").iterdir())
        (tmp_path / "lock" / str(number + 1)).write_text(json.dumps(this_process()))
        with pytest.raises(LockLostError):
            slow.check()


def test_a_number_that_is_free_again_is_not_taken(tmp_path):
    """A process that saw 3 released may make 4 after 4 was given back and 5 taken: it must see that it is too late."""
    folder = tmp_path / "lock"
    folder.mkdir()
    (folder / "5").write_text(json.dumps(this_process()))
    lock = FileLock(folder, 3600.0)
    assert not lock._take(4)
    assert [path.name for path in folder.iterdir()] == ["5"]
    (folder / "5").rename(folder / "5.released")
    assert not lock._take(5)
    assert [path.name for path in folder.iterdir()] == ["5.released"]

"""Work side by side: answers in their order, forks that end, and the libraries' own threads as they were."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest
import threadpoolctl

from tfmat.errors import InputError, WorkerLostError
from tfmat.launch import processes
from tfmat.launch.processes import in_processes, in_threads, one_thread_a_product


@pytest.fixture
def three(monkeypatch):
    """As if there were three processors."""
    monkeypatch.setattr(processes, "available_threads", lambda: 3)


def _blas_threads():
    return [
        one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"
    ]


def test_answers_stand_in_the_order_of_the_items():
    assert list(in_threads(lambda i: i * i, range(7))) == [i * i for i in range(7)]
    assert not list(in_threads(str, []))


def test_a_single_item_stays_in_its_thread():
    (thread,) = in_threads(lambda _: threading.current_thread(), [1])
    assert thread is threading.current_thread()


def test_limits_end_with_the_outermost_block():
    before = _blas_threads()
    with one_thread_a_product():
        with one_thread_a_product():
            pass
        assert set(_blas_threads()) == {1}
    assert _blas_threads() == before


def test_forks_answer_in_the_order_of_the_items_and_know_what_this_process_does(three):
    known = {i: i * i for i in range(20)}
    taken = []

    def items():
        for i in known:
            taken.append(i)
            yield i

    found = list(in_processes(lambda i: (known[i], os.getpid()), items()))
    assert [answer for answer, _ in found] == list(known.values()) and taken == list(known)
    processes = {process for _, process in found}
    assert 1 < len(processes) <= 3 and os.getpid() not in processes
    assert not multiprocessing.active_children()


def test_one_item_or_one_processor_needs_no_fork(three, monkeypatch):
    assert list(in_processes(lambda _: os.getpid(), [0])) == [os.getpid()]
    assert not list(in_processes(str, []))
    monkeypatch.setattr(processes, "available_threads", lambda: 1)
    assert list(in_processes(lambda _: os.getpid(), [0, 1])) == [os.getpid()] * 2


def test_what_is_raised_in_a_fork_is_raised_here_and_all_forks_end(three):
    def work(i):
        if i == 4:
            raise InputError("curve 4 is none")
        return i

    with pytest.raises(InputError, match="curve 4 is none"):
        list(in_processes(work, range(9)))
    assert not multiprocessing.active_children()


def test_a_fork_that_is_killed_is_told_in_one_line(three):
    def work(i):
        if i == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    with pytest.raises(WorkerLostError, match="ended with status -9"):
        list(in_processes(work, range(9)))
    assert not multiprocessing.active_children()


def test_forks_end_where_their_answers_are_no_longer_wanted(three):
    """Those that still work are not waited for."""
    answers = in_processes(lambda i: i if i < 4 else signal.pause(), range(9))
    assert next(answers) == 0 and len(multiprocessing.active_children()) == 3
    answers.close()
    assert not multiprocessing.active_children()


def test_ctrl_c_ends_the_forks_and_then_the_work(three):
    """Pressed when all are forked: Python swallows what comes in the midst of a fork."""

    def work(i):
        if i < 3:
            return i
        if i == 3:
            os.kill(os.getppid(), signal.SIGINT)
        return signal.pause()

    with pytest.raises(KeyboardInterrupt):
        list(in_processes(work, range(9)))
    assert not multiprocessing.active_children()


KILLED = """
import os, signal
from tfmat.launch import processes
processes.available_threads = lambda: 3
answers = processes.in_processes(lambda _: os.getpid(), range(9))
next(answers)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_forks_end_with_a_process_that_is_killed():
    """It has no time to end them; they have its output too, which ends when the last of them does."""
    ended = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def test_a_fork_ignores_ctrl_c_and_has_no_forks_of_its_own(three):
    def work(_):
        os.kill(os.getpid(), signal.SIGINT)
        return set(in_processes(lambda _: os.getpid(), range(4))) == {os.getpid()}

    assert list(in_processes(work, range(3))) == [True] * 3

"""Signals that come at bad moments: each program here is a process of its own, interrupted for real."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tfmat_tests.mpi import PROJECT

# Every program below defines what `tfmat` runs, between these.
BEGINNING = """
import contextlib, os, signal, threading, time
from tfmat.cli import main

def wait():
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        pass
"""
END = """
main._dispatch = run
main.console_main()
"""

# Waits as long as it is not interrupted; the first interruption comes in the middle of a destructor.
SWALLOWED = """
class Holder:
    def __del__(self):
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass

def run(arguments):
    holder = Holder()
    del holder
    os.write(1, b"the destructor is done\\n")
    wait()
"""

# On a busy machine the signal that was sent again comes before what sends it has returned.
SLOW_TO_START = """
start = signal.setitimer

def start_slowly(which, seconds, slow=[1, 2]):
    start(which, seconds)
    if slow and slow.pop():
        deadline = time.monotonic() + 3 * seconds
        while time.monotonic() < deadline:
            pass

signal.setitimer = start_slowly
"""

# The first interruption comes while the main thread waits for another one to begin.
STARTS_A_THREAD = """
class Started(threading.Event):
    def wait(self, timeout=None):
        os.kill(os.getpid(), {number})
        for _ in range(1000):
            pass
        return super().wait(timeout)

def run(arguments):
    thread = threading.Thread(target=time.sleep, args=(0.001,))
    thread._started = Started()
    thread.start()
    os.write(1, b"the thread is started\\n")
    wait()
"""

# Code made of text, as dataclasses make it at import.
MADE_OF_TEXT = """
def run(arguments):
    exec("os.kill(os.getpid(), signal.SIGINT)\\nwhile True: pass")
"""

# The second Ctrl-C comes while the first one is told.
WHILE_TOLD = """
complain = main._complain

def complain_slowly(message):
    for _ in range(100):
        os.kill(os.getpid(), signal.SIGINT)
    complain(message)

def run(arguments):
    os.kill(os.getpid(), signal.SIGINT)
    wait()

main._complain = complain_slowly
"""

# The second Ctrl-C comes after the first one was told, while what the command held is deleted.
WHEN_ALL_IS_SAID = """
class Holder:
    def __del__(self):
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGINT)

signals_as_interruptions = main.signals_as_interruptions

@contextlib.contextmanager
def and_a_destructor_afterwards(**options):
    holder = Holder()
    with signals_as_interruptions(**options) as interruptions:
        yield interruptions
    del holder

def run(arguments):
    os.kill(os.getpid(), signal.SIGINT)
    wait()

main.signals_as_interruptions = and_a_destructor_afterwards
"""

# mpirun asks the ranks that are left to end as soon as one has ended. The training's own handlers have gone by then,
# and the run's status is being written.
WHILE_CLEARING_UP = """
from tfmat.errors import Interrupted
from tfmat.training.run import StopRequest

def run(arguments):
    try:
        with StopRequest():
            os.kill(os.getpid(), {first})
            raise Interrupted("saved")
    except Interrupted:
        for _ in range(100):
            os.kill(os.getpid(), {second})
        try:
            os.kill(os.getpid(), {second})
            raise KeyError
        except KeyError:
            os.kill(os.getpid(), {second})
        print("all is cleared up", flush=True)
        raise
"""

# What the command held hangs when it is deleted.
HANGS_AFTERWARDS = WHEN_ALL_IS_SAID.replace(
    "signal.SIGINT)\n\nsignals", "signal.SIGTERM)\n\nsignals"
)

# TensorFlow makes a TypeError of what is raised while it looks at the arguments of a graph.
MADE_A_DEFECT = """
def run(arguments):
    try:
        os.kill(os.getpid(), {number})
        wait()
    except BaseException:
        pass
    raise TypeError("missing required arguments")
"""

# A defect in a destructor has nothing to do with signals, and must be seen.
DEFECT = """
class Holder:
    def __del__(self):
        raise ZeroDivisionError

def run(arguments):
    holder = Holder()
    del holder
    return 0
"""


def _run(folder: pathlib.Path, program: str) -> subprocess.CompletedProcess[str]:
    # Only a program that was started with -m, as ours is, ends by the signal after code made of text.
    (folder / "program.py").write_text(BEGINNING + program + END)
    command = [sys.executable, "-m", "program"]
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{PROJECT}"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("before", ["", SLOW_TO_START], ids=["quiet", "busy"])
def test_an_interruption_is_not_lost_in_a_destructor(tmp_path, number, before):
    ended = _run(tmp_path, before + SWALLOWED.format(number=int(number)))
    name = "interrupted" if number == signal.SIGINT else f"{number.name} received"
    assert ended.returncode == 75
    assert ended.stdout == "the destructor is done\n"  # Python swallowed the first one
    assert ended.stderr == f"tfmat: {name}; start the same command again to go on\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_an_interruption_does_not_tear_the_start_of_a_thread(tmp_path, number):
    done = _run(tmp_path, STARTS_A_THREAD.format(number=int(number)))
    assert done.stdout == "the thread is started\n" and done.returncode == 75
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr, done.stderr


def test_ctrl_c_in_code_made_of_text_ends_with_75(tmp_path):
    ended = _run(tmp_path, MADE_OF_TEXT)
    said = ended.stderr.count("interrupted; start the same")
    assert (ended.returncode, said) == (75, 1), ended.stderr


@pytest.mark.parametrize("program", [WHILE_TOLD, WHEN_ALL_IS_SAID], ids=["while", "afterwards"])
def test_ctrl_c_again_when_the_first_is_told(tmp_path, program):
    ended = _run(tmp_path, program)
    assert ended.returncode == 75
    assert ended.stderr == "tfmat: interrupted; start the same command again to go on\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_signal_became_is_told_as_the_interruption(tmp_path, number):
    ended = _run(tmp_path, MADE_A_DEFECT.format(number=int(number)))
    assert ended.returncode == 75 and "Traceback" not in ended.stderr
    assert ended.stderr.endswith("; start the same command again to go on\n")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGUSR1])
def test_a_second_signal_does_not_tear_what_the_first_one_began(tmp_path, second):
    ended = _run(tmp_path, WHILE_CLEARING_UP.format(first=int(signal.SIGUSR1), second=int(second)))
    assert (ended.returncode, ended.stdout) == (75, "all is cleared up\n"), ended.stderr
    assert ended.stderr.endswith("tfmat: saved\n")


def test_sigterm_ends_what_hangs_after_all_is_said(tmp_path):
    assert "SIGTERM" in HANGS_AFTERWARDS
    ended = _run(tmp_path, HANGS_AFTERWARDS)
    assert ended.returncode == -signal.SIGTERM
    assert ended.stderr == "tfmat: interrupted; start the same command again to go on\n"


def test_other_errors_of_destructors_are_shown(tmp_path):
    ended = _run(tmp_path, DEFECT)
    assert ended.returncode == 0 and "ZeroDivisionError" in ended.stderr

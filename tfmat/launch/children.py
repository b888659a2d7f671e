"""Processes that this one started, and theirs: none of them outlives it."""

import contextlib
import ctypes
import os
import signal
import time

import psutil

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_LONGEST = 3.0  # seconds for the kernel to end what was killed
_LOOK = 0.05


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> bool:
    """Asks the kernel for a signal when this process's parent dies, however that dies; whether it still lives."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def end_session(leader: int, grace: float) -> None:
    """Ends the processes of a session on this machine: SIGTERM first, and then SIGKILL.

    All that a program begins is of its session, also where its own parent has died, unless it begins another session.

    Args:
      leader: the number of the process that was started with a session of its own.
      grace: seconds between the two signals; 0 for SIGKILL alone.
    """
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _LONGEST)):
        if not seconds:
            continue
        deadline, told = time.monotonic() + seconds, set[int]()
        while members := _members(leader):
            for pid in members - told:  # a new one may have been begun since
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= members
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK)


def _members(leader: int) -> set[int]:
    """Living processes of the session."""
    members = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.add(pid)
    return members

"""One holder at a time, on any shared file system: no lock daemon, and a dead holder is told from a slow one.

The n-th holder makes the file `n`, which can be made only once (O_EXCL). It gives the lock back by renaming that to
`n.released`. The highest number says who holds; it is never removed before a higher one is there. So a process that
was asleep while others came and went finds a higher number, or its own one released, and knows that it came too late.
"""

import contextlib
import functools
import json
import os
import pathlib
import platform
import time
from collections.abc import Iterator
from typing import TypedDict

from tfmat.files import check_json, make_folder, parse_json, write_error

_LONGEST_WAIT = 0.1  # seconds between two looks


class LockLostError(Exception):
    """Another process took the lock, since this one did not move for too long. Nothing must be written any more."""


class FileLock:
    """A lock in a folder of its own.

    Args:
      folder: made when it is not there.
      stale_after: seconds after which a holder on another machine that does not give back counts as dead. One on this
        machine counts as dead when its process is.
    """

    def __init__(self, folder: pathlib.Path, stale_after: float):
        self._folder = make_folder(folder)
        self._stale_after = stale_after

    @contextlib.contextmanager
    def held(self) -> Iterator["Held"]:
        """Waits for the lock and holds it for the block."""
        number = self._acquire()
        try:
            yield Held(self, number)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._folder / str(number), self._folder / f"{number}.released")

    def _acquire(self) -> int:
        watched, since, wait = -1, 0.0, 0.001
        while True:
            top, released = self._highest()
            if top != watched:
                watched, since = top, time.monotonic()
            late = time.monotonic() - since > self._stale_after
            if (released or late or self._holder_is_dead(top)) and self._take(top + 1):
                return top + 1
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _take(self, number: int) -> bool:
        """Makes the file of this number; False where another one came first."""
        path = self._folder / str(number)
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except OSError as error:
            raise write_error(path, error) from error
        with os.fdopen(descriptor, "w") as file:
            json.dump(this_process(), file)
        if not self.is_top(number):
            path.unlink(missing_ok=True)
            return False
        for other in self._folder.iterdir():
            if _number(other.name) < number:
                other.unlink(missing_ok=True)
        return True

    def is_top(self, number: int) -> bool:
        """Whether the holder of this number still holds."""
        return self._highest() == (number, False)

    def _highest(self) -> tuple[int, bool]:
        """(the highest number, whether it was given back); (0, True) at the very beginning."""
        names = os.listdir(self._folder)
        top = max(map(_number, names), default=0)
        return top, top <= 0 or f"{top}.released" in names

    def _holder_is_dead(self, number: int) -> bool:
        try:
            path = self._folder / str(number)
            return is_dead(check_json(parse_json(path.read_text()), Owner, path))
        except (OSError, ValueError):  # given back meanwhile, or not written yet
            return False


class Held:
    """The lock in the hands of its holder."""

    def __init__(self, lock: FileLock, number: int):
        self._lock, self._number = lock, number

    def check(self) -> None:
        """LockLostError where another process holds it now; call it right before writing."""
        if not self._lock.is_top(self._number):
            raise LockLostError


def _number(name: str) -> int:
    digits = name.removesuffix(".released")
    return int(digits) if digits.isdecimal() else -1


class Owner(TypedDict, total=False):
    """A process: host name, machine since its start and process namespace, number, clock ticks at its start."""

    host: str
    machine: str
    pid: int
    started: int


def this_process() -> Owner:
    """This process, unlike any other: machine since its start, process namespace, number, and time of its start."""
    return process(os.getpid())


def process(pid: int) -> Owner:
    """The same for another process of this machine."""
    return {
        "host": platform.node(),
        "machine": _machine(),
        "pid": pid,
        "started": _start_time(pid),
    }


def is_here(owner: Owner) -> bool:
    """Whether the owner's life and death can be seen from here. A host name would not tell: containers share it."""
    return owner.get("machine") == _machine()


def is_dead(owner: Owner) -> bool:
    """True where the owner is known to have ended; False also where that cannot be known from here."""
    return is_here(owner) and _start_time(owner.get("pid", 0)) != owner.get("started")


@functools.cache
def _machine() -> str:
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _start_time(pid: int) -> int:
    """Clock ticks since the machine's start when the process began; 0 where there is none, or only its remains."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in ("Z", "X"):
            return int(fields[19])
    return 0

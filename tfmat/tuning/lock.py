"""One holder at a time, on any shared file system: no lock daemon, and a dead holder is told from a slow one.

The n-th holder makes the file `n`, which can be made only once (O_EXCL). It gives the lock back by renaming that to
`n.released`. The highest number says who holds; it is never removed before a higher one is there. So a process that
was asleep while others came and went finds a higher number, or its own one released, and knows that it came too late.
"""

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Iterator

from tfmat.files import check_json, make_folder, parse_json, write_error
from tfmat.tuning.owner import Owner, is_dead, this_process

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

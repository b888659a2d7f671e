"""One writer at a time for a data set."""

import contextlib
import errno
import fcntl
import logging
import pathlib
from collections.abc import Iterator
from typing import IO

from tfmat.errors import InputError
from tfmat.files import make_folder, write_error

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(folder: pathlib.Path, wait: bool = True) -> Iterator[None]:
    """Makes the folder and holds its lock: a second process that writes the same data set waits here for the first.

    What a killed writer left behind is removed on the way in.

    Raises:
      InputError: the folder cannot be written; or, unless it is to `wait`, another process holds the lock.
    """
    make_folder(folder)
    path = folder / ".lock"
    try:
        file = open(path, "a")  # noqa: SIM115 - closed below, which is what releases the lock
    except OSError as error:
        raise write_error(path, error) from error
    with file:
        if _acquire(file, folder, wait):
            for stale in folder.glob(".*.tmp"):
                stale.unlink(missing_ok=True)
        yield


def is_locked(folder: pathlib.Path) -> bool:
    """Whether another process holds the lock of a data set, or of a run: both lock the file `.lock` in their folder."""
    try:
        with open(folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _acquire(file: IO[str], folder: pathlib.Path, wait: bool) -> bool:
    """Waits for the lock; False on file systems that have none, where both write the same bytes under own names."""
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise InputError(
                    f"another process is writing {folder}; wait for it, or end it"
                ) from None
            _LOG.warning("another process is writing %s; waiting for it", folder)
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            return False
        raise InputError(
            f"cannot lock {folder}: {error.strerror}; choose another folder"
        ) from error
    return True

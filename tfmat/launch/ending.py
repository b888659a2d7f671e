"""How a process of a run ends, whatever its main thread does at that moment: one line, and the right exit status."""

import contextlib
import dataclasses
import errno
import math
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn, TypeGuard

from tfmat.console import printable
from tfmat.errors import InputError, TfmatError, WorkerLostError
from tfmat.files import write_error

OnLoss = Callable[[str], None]
# Settings in the environment, and their seconds where it says nothing: after how long a silence a rank is lost (0 to
# watch nobody), and in what time all ranks must find each other.
WORKER_TIMEOUT, START_TIMEOUT = "TFMAT_WORKER_TIMEOUT", "HOROVOD_START_TIMEOUT"
SECONDS = {WORKER_TIMEOUT: 20.0, START_TIMEOUT: 45.0}
_LAST_WORDS = 5.0  # seconds for the line and the callback


def seconds_setting(name: str, environment: Mapping[str, str] = os.environ) -> float:
    """The seconds that a setting says, or its default; InputError where it is no number."""
    text, default = environment.get(name, ""), SECONDS[name]
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(
            f"{name}={text} is no number of seconds; set it to {default:g}, for example"
        )
    return value


def end_process(
    message: str | None,
    on_loss: OnLoss | None = None,
    status: int = WorkerLostError.exit_status,
) -> NoReturn:
    """Writes the line, calls `on_loss` with it, and ends the process, whatever its main thread does."""
    last_words(message, on_loss)
    os._exit(status)


def last_words(message: str | None, on_loss: OnLoss | None) -> None:
    """Speaks in a thread: a full pipe, a lock of the main thread or a dead disk may hold each part of it forever."""

    def speak() -> None:
        if message:
            # Not through sys.stderr, whose lock the main thread may hold; one write, so that lines do not mix.
            write_line(f"tfmat: {message}\n")
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if message and on_loss:
            with contextlib.suppress(Exception):
                on_loss(message)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    speaker.join(_LAST_WORDS)


def write_line(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, printable(text).encode(errors="replace"))


@contextlib.contextmanager
def start_timer(rank: int, seconds: float | None = None) -> Iterator[None]:
    """Ends the process with status 4 where the block, in which the ranks find each other, takes too long.

    Args:
      rank: this process among all, from its environment. Rank 0 writes a line, rank 1 where rank 0 is stopped.
      seconds: HOROVOD_START_TIMEOUT or 45 where it is None.
    """
    seconds = seconds_setting(START_TIMEOUT) if seconds is None else seconds
    message = (
        f"not all ranks appeared within {seconds:g} s (seen from rank {rank}, host {socket.gethostname()}) in phase "
        "starting; look whether every node runs its processes, or allow more seconds with HOROVOD_START_TIMEOUT"
    )
    # mpirun kills all within about two seconds of the first one that ends.
    delay = {0: 0.0, 1: 4.0}.get(rank, 5.0)
    timer = threading.Timer(seconds + delay, end_process, [message if rank < 2 else None])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception of this process, as the others are told of it.

    Attributes:
      text: one line.
      trace: the traceback; empty for what is no defect, since nobody has to look for it in the code.
      status: of the exit: 2 for what the user gave, 4 for everything else.
    """

    text: str
    trace: str
    status: int

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """What is told of an exception."""
        trace = ""
        if isinstance(error, TfmatError):
            text = str(error)
        elif _full_disk(error):
            text = str(write_error(error.filename or "the output", error))
        else:
            text = "".join(traceback.format_exception_only(error))
            trace = "".join(traceback.format_exception(error))
        users = isinstance(error, InputError) or _full_disk(error)
        status = (InputError if users else WorkerLostError).exit_status
        return cls(" ".join(text.split())[:1000], trace, status)


def _full_disk(error: BaseException) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

"""Ends all processes of a parallel run when one of them fails, where they would otherwise wait for it for ever.

A collective waits until every rank has come. So a rank that was killed, that is stopped, that raised an exception or
that came to another collective leaves the others hanging inside C++, where Python runs no signal handler and no
`except`. Therefore each rank has a thread of its own that watches, and that ends the process itself:

* Rank 0 listens on a port and publishes it, with a secret token, through `exchange`. Every other rank holds one TCP
  connection to it (a star; rank 0 serves them all in one thread) and tells its phase and step once a second and at
  each change of the phase. Rank 0 answers, so that they notice its loss too. A few dozen bytes a second each.
* A connection that closes without a goodbye means that the process died (SIGKILL, os._exit). No word for
  `timeout_seconds` means that it is stopped or that its node is gone; time in which the listener itself stood still
  does not count. `fail` tells an exception. Ranks that wait in collectives at different places wait for each other.
* Rank 0 gathers for a moment what it hears, since one death makes others complain, chooses the surest cause, tells all
  ranks to be quiet, writes one line to standard error and ends; then all end, with exit status 4. Where rank 0 itself
  is lost, rank 1 writes the line, and the others give it time for that: mpirun kills all ranks about two seconds after
  the first one ended. Where rank 1 is lost as well (same node), one rank of another node writes it a little later.

A failure is told within a second (a death, an exception), or after `timeout_seconds` and at most six seconds more.
The environment variable TFMAT_WORKER_TIMEOUT of rank 0 sets `timeout_seconds` for all (20 by default; more where a long
import or trace holds Python's lock for longer; 0 switches the watchdog off, say where a firewall stands between the
nodes). The start, in which all ranks must find each other, may take HOROVOD_START_TIMEOUT seconds (45).

    with start_timer(rank):                      # MPI_Init, too, waits for ever for a rank that is stopped
        hvd.init()
    watchdog = Watchdog.start(hvd.rank(), hvd.size(), hvd.broadcast_object)
    try:
        watchdog.announce("training", step, collective=True)
        ...
        hvd.shutdown()                           # a collective too: still watched
        watchdog.close()
    except Exception as error:                   # on this rank only; one that all ranks raise alike needs `close`
        watchdog.fail(error)                     # does not return where there are several ranks
        raise
"""

import contextlib
import errno
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

from tfmat.errors import InputError, TfmatError, WorkerLostError
from tfmat.files import write_error
from tfmat.launch import watchdog_links as links
from tfmat.launch.settings import seconds_setting
from tfmat.launch.watchdog_rank_0 import Rank0Watch
from tfmat.launch.watchdog_threads import Settings, Watch, end_process
from tfmat.launch.watchdog_verdict import Verdict, name_ranks
from tfmat.launch.watchdog_worker import WorkerWatch

OnLoss = Callable[[str], None]


class Watchdog:
    """Watches the ranks of a run; see the module. Made by `start`; for a single rank it does nothing."""

    def __init__(self, watch: Watch | None = None):
        self._watch = watch
        self._phase = ""
        self._wake = watch.wake if watch else lambda: None

    @classmethod
    def start(
        cls,
        rank: int,
        size: int,
        exchange: Callable[[Any], Any],
        on_loss: OnLoss | None = None,
        timeout_seconds: float | None = None,
        one_node: bool = False,
    ) -> "Watchdog":
        """Connects all ranks; every rank calls it at the same place, and it returns when all have come.

        Where one does not come in time, it ends the process as a lost rank does.

        Args:
          rank, size: this process among all.
          exchange: a collective that returns rank 0's argument on every rank, `hvd.broadcast_object` for example.
          on_loss: called with the line on the rank that writes it, in a thread of its own; five seconds at most.
          timeout_seconds: silence after which a rank is lost; TFMAT_WORKER_TIMEOUT or 20 where it is None; 0 for no
            watchdog. Rank 0's holds for all.
          one_node: all ranks are on this node, so the port is opened on loopback only. Rank 0's holds for all.

        Raises:
          InputError: TFMAT_WORKER_TIMEOUT or HOROVOD_START_TIMEOUT is no number.
        """
        if size == 1:
            return cls()
        seconds = timeout_seconds
        if seconds is None:
            seconds = seconds_setting("TFMAT_WORKER_TIMEOUT")
        start_seconds = start_timeout()
        deadline = time.monotonic() + start_seconds
        settings = Settings(rank, size, seconds, on_loss)
        with start_timer(rank, start_seconds + 5):  # `exchange` may wait for ever, too
            if rank == 0:
                watch = _start_rank_0(settings, exchange, one_node, deadline)
            else:
                watch = _start_worker(settings, exchange, deadline)
        return cls(watch)

    def announce(self, phase: str, step: int | None, collective: bool) -> None:
        """Says what this rank does now; cheap enough for every call of a training loop.

        Args:
          phase: in words that fit into "in phase ...": `training`, `comparing weights`.
          step: the step that it starts from.
          collective: whether it waits for other ranks in it. While it is False, being slow is no fault.
        """
        if self._watch is None:
            return
        self._watch.position = (phase, step, collective, time.monotonic())
        if phase != self._phase:
            self._phase = phase
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends all ranks because of an exception on this one: one line from rank 0, and one exit status.

        That is 2 for what the user gave, and 4 for everything else.

        Returns only where there is nobody to tell: a single rank, or one after `close`, its own or rank 0's. The
        traceback of a defect (anything that is not a TfmatError or a full disk) is written by this rank.
        """
        if self._watch is not None:
            self._watch.fail(_one_line(error), _traceback(error), _status(error))

    def close(self) -> None:
        """Leaves in order. Ranks may do so in any order and at different times; rank 0's ends the watch for all."""
        if self._watch is not None:
            self._watch.leave()
            self._watch = None


def _start_rank_0(
    settings: Settings, exchange: Callable[[Any], Any], one_node: bool, deadline: float
) -> Watch | None:
    if settings.timeout_seconds == 0:
        exchange(None)
        return None
    listener, place = links.listen(one_node)
    with listener:
        exchange({**place.__dict__, "timeout_seconds": settings.timeout_seconds})
        members = links.accept(listener, place, settings.size, deadline)
    watch = Rank0Watch(settings, members)
    missing = sorted(set(range(1, settings.size)) - set(members))
    if missing:
        line = (
            f"{name_ranks(missing)} of {settings.size} did not reach rank 0 (host {place.host}, "
            f"{' or '.join(place.addresses)}, port {place.port}) in phase starting, in the time that "
            "HOROVOD_START_TIMEOUT gives; look whether they run and may open TCP connections to rank 0, or set "
            "TFMAT_WORKER_TIMEOUT=0 to go without the watchdog"
        )
        watch.end(Verdict(line))
    watch.go()
    return watch


def _start_worker(
    settings: Settings, exchange: Callable[[Any], Any], deadline: float
) -> Watch | None:
    published = exchange(None)
    if published is None:
        return None
    settings.timeout_seconds = published.pop("timeout_seconds")
    place = links.Place(**published)
    link = links.connect(place, settings.rank, deadline)
    # Rank 0 says which ranks are missing; it has some seconds for that before this one ends.
    watch = WorkerWatch(settings, place.host, link)
    watch.go(deadline + 3)
    return watch


@contextlib.contextmanager
def start_timer(rank: int, seconds: float | None = None) -> Iterator[None]:
    """Ends the process with status 4 where the block, in which the ranks find each other, takes too long.

    Args:
      rank: this process among all, from its environment. Rank 0 writes a line, rank 1 where rank 0 is stopped.
      seconds: HOROVOD_START_TIMEOUT or 45 where it is None.
    """
    seconds = start_timeout() if seconds is None else seconds
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


def start_timeout() -> float:
    """Seconds in which all ranks must have found each other: HOROVOD_START_TIMEOUT, or 45."""
    return seconds_setting("HOROVOD_START_TIMEOUT")


def _one_line(error: BaseException) -> str:
    if isinstance(error, TfmatError):
        text = str(error)
    elif _full_disk(error):
        text = str(write_error(error.filename or "the output", error))
    else:
        text = "".join(traceback.format_exception_only(error))
    return " ".join(text.split())[:1000]


def _status(error: BaseException) -> int:
    users = isinstance(error, InputError) or _full_disk(error)
    return (InputError if users else WorkerLostError).exit_status


def _traceback(error: BaseException) -> str:
    """Empty for what is no defect: nobody has to look for it in the code."""
    if isinstance(error, TfmatError) or _full_disk(error):
        return ""
    return "".join(traceback.format_exception(error))


def _full_disk(error: BaseException) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

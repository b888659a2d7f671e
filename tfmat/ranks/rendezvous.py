"""How the processes of a run find each other: rank 0 publishes where it listens and a secret, the others come.

with start_timer(processes.rank):                 # MPI_Init, too, waits without end for a rank that is stopped
    hvd.init()
    star = meet(processes, ByBroadcast(hvd.broadcast_object), deadline)
star.watch(20.0, deadline)
try:
    star.announce("training", step, collective=True)
    ...
    hvd.shutdown()                                # a collective too: still watched
    star.close()
except Exception as error:                        # on this rank only; one that all ranks raise alike needs `close`
    star.fail(error)                              # does not return while all are watched
    raise
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfmat.files import make_folder, write_error
from tfmat.ranks.ending import OnLoss
from tfmat.ranks.ends import SECOND_SPEAKER, Rank0, Worker, give_up
from tfmat.ranks.handshake import Place, accept, connect, listen
from tfmat.ranks.processes import Processes
from tfmat.ranks.star import Star
from tfmat.ranks.verdict import Member, Verdict, name_ranks

# What launchers call this launch, in the order of tfmat.ranks.processes' table; each of them sets all of its row.
_LAUNCH_IDS = {
    "mpirun": ("PMIX_NAMESPACE",),
    "mpiexec": ("PALS_APID",),
    "srun": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    "horovodrun": ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
}
# Seconds with one answer of `find`, which may be an earlier launch's; then it is asked again.
_SECONDS_FOR_A_PLACE = 3.0


class ByBroadcast:
    """A collective that returns rank 0's argument on every rank, `hvd.broadcast_object` for example, tells the place.

    Attributes:
      needs: what to look at where a rank does not come.
      unreachable: what to look at where rank 0 is not reached.
    """

    needs = "may open TCP connections to rank 0, or set TFMAT_WORKER_TIMEOUT=0 to go without the watchdog"
    unreachable = "it cannot be reached: are its ports open to other nodes?"

    def __init__(self, broadcast: Callable[[Any], Any]):
        self._broadcast = broadcast
        self._place: Place | None = None

    def publish(self, place: Place) -> None:
        """Rank 0 says where it is."""
        self._broadcast(dataclasses.asdict(place))

    def forget(self) -> None:
        """Rank 0 needs no more to be found."""

    def find(self) -> Place | None:
        """Rank 0's place; None where that is not known yet."""
        if self._place is None:
            self._place = Place(**self._broadcast(None))
        return self._place


class ByNote:
    """A file that all can see tells the place; the methods and attributes are those of `ByBroadcast`.

    Its name holds the launch's number, where the launcher gives one. What an earlier launch left there does no harm:
    nobody answers there with that secret, and the file is read again until rank 0 has written its own.

    Args:
      processes: this one among those of the run.
      folder: that all nodes can see; where all processes are on one node, its folder for temporary files serves.
      environment: in which the launcher names the launch.
    """

    def __init__(
        self, processes: Processes, folder: str, environment: Mapping[str, str] = os.environ
    ):
        names = _LAUNCH_IDS.get(processes.launcher, ())
        words = [processes.launcher, *(environment.get(name, "") for name in names)]
        launch = "-".join(word for word in words if word).replace("/", "_")
        if _on_one_node(processes):
            self.path = pathlib.Path(tempfile.gettempdir()) / f"tfmat-{os.getuid()}-{launch}"
        else:
            self.path = pathlib.Path(folder) / f".tfmat-{launch}"
        self.needs = f"can see {self.path.parent}, and may open TCP connections to rank 0"
        self.unreachable = (
            f"it was not reached by {self.path}, where it says where it is: does it run, and can host "
            f"{socket.gethostname()} see that folder?"
        )

    def publish(self, place: Place) -> None:
        """Writes the note for this user's eyes only: who knows the secret may send what the run believes.

        Raises:
          InputError: it cannot be written.
        """
        make_folder(self.path.parent)
        try:
            descriptor, temporary = tempfile.mkstemp(
                prefix=f"{self.path.name}.", dir=self.path.parent
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(dataclasses.asdict(place), file)
            os.replace(temporary, self.path)
        except OSError as error:
            raise write_error(self.path, error) from error

    def forget(self) -> None:
        """See ByBroadcast.forget."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    def find(self) -> Place | None:
        """See ByBroadcast.find."""
        try:
            with self.path.open(encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                    return None  # anyone may write into a folder for temporary files
                return Place(**json.load(file))
        except (OSError, ValueError, TypeError):
            return None


Rendezvous = ByBroadcast | ByNote


def meet(
    processes: Processes, rendezvous: Rendezvous, deadline: float, on_loss: OnLoss | None = None
) -> Star:
    """Connects all ranks; every rank calls it, and it returns when all have come.

    Where one does not come in time, it ends the process as a lost rank does: one line, exit status 4.

    Args:
      processes: this one among those of the run.
      rendezvous: how they learn where rank 0 is.
      deadline: of the monotonic clock, seconds.
      on_loss: called with the line on the rank that writes it, in a thread of its own; five seconds at most.

    Raises:
      InputError: rank 0 cannot publish where it is.
    """
    wait = _reach_rank_0 if processes.rank else _wait_for_others
    star = wait(processes, rendezvous, deadline, on_loss)
    star.start()
    return star


def _wait_for_others(
    processes: Processes, rendezvous: Rendezvous, deadline: float, on_loss: OnLoss | None
) -> Rank0:
    size = processes.size
    listener, place = listen(_on_one_node(processes))
    try:
        with listener:
            rendezvous.publish(place)
            found = accept(listener, place, size, deadline)
    finally:
        rendezvous.forget()
    star = Rank0(size, found, on_loss)
    star.secret = place.token
    missing = sorted(set(range(1, size)) - set(found))
    if missing:
        line = (
            f"{name_ranks(missing)} of {size} did not reach rank 0 (host {place.host}, "
            f"{' or '.join(place.addresses)}, port {place.port}) in phase starting, in the time that "
            f"HOROVOD_START_TIMEOUT gives; look whether they run and {rendezvous.needs}"
        )
        star.end(Verdict(line))
    return star


def _reach_rank_0(
    processes: Processes, rendezvous: Rendezvous, deadline: float, on_loss: OnLoss | None
) -> Worker:
    rank, size = processes.rank, processes.size
    host = "unknown"
    while (now := time.monotonic()) < deadline:
        place = rendezvous.find()
        if place:
            host = place.host
            link = connect(place, rank, min(deadline, now + _SECONDS_FOR_A_PLACE))
            if link:
                star = Worker(rank, size, host, link, on_loss)
                star.secret = place.token
                return star
        time.sleep(0.05)
    speaks_after = SECOND_SPEAKER if rank == 1 else None
    return give_up(size, Member(0, host, now), rendezvous.unreachable, speaks_after, on_loss)


def _on_one_node(processes: Processes) -> bool:
    return processes.local_size == processes.size

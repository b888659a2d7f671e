"""What the processes of a run tell each other beside the tensors: small things, over one connection each to rank 0.

Rank 0 leaves a note in a file that all can see: where it listens, and a secret that both sides must prove to know. Its
name holds the launch's number, where the launcher gives one. What an earlier launch left there does no harm: nobody
answers there with that secret, and the file is read again until rank 0 has written its own.
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
from multiprocessing.connection import Connection
from typing import Any

from tfmat.errors import WorkerLostError
from tfmat.files import make_folder, write_error
from tfmat.launch import watchdog_links as links
from tfmat.launch.processes import Processes

# What launchers call this launch, in the order of tfmat.launch.processes' table; each of them sets all of its row.
_LAUNCH_IDS = {
    "mpirun": ("PMIX_NAMESPACE",),
    "mpiexec": ("PALS_APID",),
    "srun": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    "horovodrun": ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
}
# With one place of an old note; then the file is read again.
_SECONDS_FOR_A_NOTE = 3.0


class Exchange:
    """Small picklable things from rank to rank; every rank calls the same methods in the same order.

    Args:
      rank: this process.
      connections: of rank 0 the others', by rank; of the others the one to rank 0.

    Attributes:
      addresses: of the ranks' hosts as they reach each other, by rank; on rank 0 alone.
    """

    def __init__(self, rank: int, connections: list[Connection]):
        self._rank, self._connections = rank, connections
        self.addresses: list[str] = []

    @classmethod
    def open(cls, processes: Processes, folder: str, deadline: float) -> "Exchange":
        """Connects all ranks; each calls it, and it returns when all have come.

        Args:
          processes: this one among those of the run.
          folder: that all nodes can see, for the note; one node uses its folder for temporary files.
          deadline: of the monotonic clock, seconds.

        Raises:
          WorkerLostError: not all had come by then.
          InputError: the note cannot be written.
        """
        note = note_path(processes, folder)
        if processes.rank:
            exchange = cls(processes.rank, [_reach_rank_0(processes, note, deadline)])
            connection = exchange._connections[0]
            exchange._talk(connection.send, _peer(connection))
            return exchange
        exchange = cls(0, _meet_others(processes, note, deadline))
        exchange._find_addresses()
        return exchange

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value on every rank."""
        if self._rank:
            return self._talk(self._connections[0].recv)
        for connection in self._connections:
            self._talk(connection.send, value)
        return value

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of the ranks, on every rank."""
        if self._rank:
            self._talk(self._connections[0].send, value)
            return self.broadcast(None)
        others = [self._talk(connection.recv) for connection in self._connections]
        return self.broadcast([value, *others])

    def _talk(self, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except (EOFError, OSError) as error:
            raise WorkerLostError(
                "a worker has left; start the same command again to go on from the last checkpoint"
            ) from error

    def _find_addresses(self) -> None:
        """Each rank's host as rank 0 sees it; its own as another host sees it, or loopback where there is none."""
        seen = [self._talk(connection.recv) for connection in self._connections]
        mine = next((address for address in seen if not _loopback(address)), "127.0.0.1")
        peers = [_peer(connection) for connection in self._connections]
        self.addresses = [mine, *(mine if _loopback(peer) else peer for peer in peers)]


def note_path(
    processes: Processes, folder: str, environment: Mapping[str, str] = os.environ
) -> pathlib.Path:
    """Where rank 0 of this launch leaves its note."""
    names = _LAUNCH_IDS.get(processes.launcher, ())
    words = [processes.launcher, *(environment.get(name, "") for name in names)]
    launch = "-".join(word for word in words if word).replace("/", "_")
    if processes.local_size == processes.size:
        return pathlib.Path(tempfile.gettempdir()) / f"tfmat-{os.getuid()}-{launch}"
    return pathlib.Path(folder) / f".tfmat-{launch}"


def _meet_others(processes: Processes, note: pathlib.Path, deadline: float) -> list[Connection]:
    listener, place = links.listen(processes.local_size == processes.size)
    try:
        with listener:
            _write_note(note, place)
            members = links.accept(listener, place, processes.size, deadline)
    finally:
        with contextlib.suppress(OSError):
            note.unlink()
    missing = [str(rank) for rank in range(1, processes.size) if rank not in members]
    if missing:
        raise WorkerLostError(
            f"rank {', '.join(missing)} of {processes.size} did not reach rank 0 (host {place.host}, "
            f"port {place.port}) "
            f"in the time that HOROVOD_START_TIMEOUT gives; look whether it runs, can see {note.parent}, and may open "
            "TCP connections to rank 0"
        )
    return [_connection(members[rank][0]) for rank in range(1, processes.size)]


def _reach_rank_0(processes: Processes, note: pathlib.Path, deadline: float) -> Connection:
    while (now := time.monotonic()) < deadline:
        place = _read_note(note)
        if place:
            link = links.connect(place, processes.rank, min(deadline, now + _SECONDS_FOR_A_NOTE))
            if link:
                return _connection(link)
        time.sleep(0.05)
    raise WorkerLostError(
        f"rank {processes.rank} of {processes.size} (host {socket.gethostname()}) did not reach rank 0, which says in "
        f"{note} where it is, in the time that HOROVOD_START_TIMEOUT gives; look whether rank 0 runs, and whether this "
        "host can see that folder"
    )


def _write_note(path: pathlib.Path, place: links.Place) -> None:
    """For this user's eyes only: who knows the secret may send what Python unpacks."""
    make_folder(path.parent)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(place), file)
        os.replace(temporary, path)
    except OSError as error:
        raise write_error(path, error) from error


def _read_note(path: pathlib.Path) -> links.Place | None:
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                return None  # anyone may write into a folder for temporary files
            return links.Place(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def _connection(link: links.Link) -> Connection:
    """The link's connection, for whole pickled objects, and waiting for them."""
    descriptor = os.dup(link.fileno())
    os.set_blocking(descriptor, True)
    link.close()
    return Connection(descriptor)


def _peer(connection: Connection) -> str:
    """The other side's address."""
    with socket.socket(fileno=os.dup(connection.fileno())) as copy:
        return copy.getpeername()[0].removeprefix("::ffff:")


def _loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")

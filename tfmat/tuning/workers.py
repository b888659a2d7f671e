"""The folder workers/: who works on a search, since when, and under which name. A name has one living worker."""

import dataclasses
import os
import pathlib
import time
from typing import TypedDict

from tfmat.errors import InputError
from tfmat.files import check_json, make_folder, read_json, write_json
from tfmat.tuning.claims import seconds_since
from tfmat.tuning.owner import Owner, is_dead, is_here, this_process


@dataclasses.dataclass(frozen=True)
class WorkerRecord:
    """One name.

    Attributes:
      name: such as `0`.
      owner: the process that works under it, or did last.
      alive: as far as can be told from here.
      sessions: (start, end) of each process of that name, seconds since 1970.
    """

    name: str
    owner: Owner
    alive: bool
    sessions: list[tuple[float, float]]


class WorkerName:
    """Holds a name for this process.

    Args:
      workdir: of the search.
      name: of the worker.
      lease: seconds without a sign of life after which a worker on another machine counts as dead.

    Raises:
      InputError: a worker of this name lives.
    """

    def __init__(self, workdir: pathlib.Path, name: str, lease: float):
        self._path = make_folder(workdir / "workers") / f"{name}.json"
        sessions: list[tuple[float, float]] = []
        if self._path.exists():
            owner, sessions = _read(self._path)
            self._wait_for_former(owner, name, lease)
            owner, sessions = _read(self._path)
        sessions.append((time.time(), time.time()))
        write_json(self._path, {"owner": this_process(), "sessions": sessions})

    def _wait_for_former(self, owner: Owner, name: str, lease: float) -> None:
        """A job that was requeued starts on another machine before the lease of its former self is over."""
        deadline = time.monotonic() + 1.5 * lease
        while not is_dead(owner):
            alone = not is_here(owner)
            if alone and seconds_since(self._path, self._path.parent) > lease:
                return
            if is_here(owner) or time.monotonic() > deadline:
                raise InputError(
                    f"worker {name} of this search runs already, process {owner['pid']} on {owner['host']}; "
                    "look at it with tfmat tune --status, or use another --workdir"
                )
            time.sleep(min(1.0, lease / 10))

    def beat(self) -> None:
        """Says that this worker lives."""
        os.utime(self._path)


def read_workers(workdir: pathlib.Path, lease: float) -> list[WorkerRecord]:
    """All names that ever worked on a search."""
    records = []
    for path in sorted((workdir / "workers").glob("*.json")):
        owner, sessions = _read(path)
        if is_here(owner):
            alive = not is_dead(owner)
        else:
            alive = time.time() - path.stat().st_mtime < lease
        if alive:
            sessions[-1] = (sessions[-1][0], time.time())
        records.append(WorkerRecord(path.stem, owner, alive, sessions))
    return records


class _Content(TypedDict):
    owner: Owner
    sessions: list[tuple[float, float]]


def _read(path: pathlib.Path) -> tuple[Owner, list[tuple[float, float]]]:
    """A worker's owner and sessions; the last one ends with its last sign of life."""
    content: _Content = check_json(read_json(path), _Content, path)
    owner, sessions = content["owner"], content["sessions"]
    if not sessions or not {"host", "pid"} <= owner.keys():
        raise InputError(
            f"{path} is damaged: no session or owner; remove it once that worker ended"
        )
    start = sessions[-1][0]
    sessions[-1] = (start, max(path.stat().st_mtime, start))
    return owner, sessions

"""Where a search stands, and who works on it under which name: the folder workers/. A name has one living worker."""

import dataclasses
import math
import os
import pathlib
import time
from typing import Any, TypedDict

from tfmat.errors import InputError
from tfmat.files import check_json, make_folder, read_json, write_json
from tfmat.tuning.claims import seconds_since
from tfmat.tuning.lock import Owner, is_dead, is_here, this_process
from tfmat.tuning.space import Search
from tfmat.tuning.state import STATES, SearchState, read_state


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


@dataclasses.dataclass(frozen=True)
class Summary:
    """A search in a few numbers.

    Attributes:
      name: of the search's folder.
      algorithm, objective, direction, seeds, train_for: what it does.
      counts: state -> number of trials.
      max_trials: how many there are to be; None where only the oracle knows.
      ended: why no further trial starts, or "".
      failed: it ended because too many trials failed.
      best, best_value: id and value of the best trial, None before there is one.
      median_seconds: how long a trial takes.
      seconds_left: estimate; None where there is nothing to go by.
      seconds: from the first trial's start to the last one's end, or to now.
      workers: name, alive, busy_seconds, alive_seconds, trial of each.
      utilization: share of the workers' lives in which they ran trials; None before there is any.
    """

    name: str
    algorithm: str
    objective: str
    direction: str
    seeds: int
    train_for: str
    counts: dict[str, int]
    max_trials: int | None
    ended: str
    failed: bool
    best: str | None
    best_value: float | None
    median_seconds: float | None
    seconds_left: float | None
    seconds: float
    workers: list[dict[str, Any]]
    utilization: float | None

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return dataclasses.asdict(self)


def summarize(workdir: str | os.PathLike, state: SearchState | None = None) -> Summary:
    """The summary of a search's folder; needs no lock.

    Raises:
      InputError: there is no search in it.
    """
    folder = pathlib.Path(workdir)
    state = state or read_state(folder)
    search = Search.from_json(state.definition)
    names = read_workers(folder, float(state.options.get("lease", 60.0)))
    workers = [_worker(state, record) for record in names]
    best, alive_seconds = state.best(), sum(worker["alive_seconds"] for worker in workers)
    busy_seconds = sum(worker["busy_seconds"] for worker in workers)
    intervals = [interval for trial in state.trials.values() for interval in trial.intervals]
    starts = [start for _, start, _ in intervals]
    ends = [time.time() if end is None else end for _, _, end in intervals]
    return Summary(
        name=folder.resolve().name,
        algorithm=search.algorithm,
        objective=search.objective,
        direction=search.direction,
        seeds=search.seeds,
        train_for=state.base["train_for"],
        counts={name: len(state.with_state(name)) for name in STATES},
        max_trials=search.max_trials,
        ended=state.ended,
        failed=state.failed,
        best=best.trial_id if best else None,
        best_value=best.value if best else None,
        median_seconds=state.median_seconds(),
        seconds_left=_seconds_left(search, state, sum(worker["alive"] for worker in workers)),
        seconds=max(ends) - min(starts) if starts else 0.0,
        workers=workers,
        utilization=busy_seconds / alive_seconds if alive_seconds > 0 else None,
    )


def _worker(state: SearchState, record: WorkerRecord) -> dict[str, Any]:
    busy, trial = 0.0, ""
    for candidate in state.trials.values():
        for worker, start, end in candidate.intervals:
            if worker != record.name:
                continue
            # A worker that was killed cannot say when: its trial's time ends with its own.
            last = next((e for s, e in record.sessions if s <= start <= e), start)
            busy += min(last, math.inf if end is None else end) - start
            if end is None and record.alive:
                trial = candidate.trial_id
    alive = sum(end - start for start, end in record.sessions)
    return {
        "name": record.name,
        "host": record.owner["host"],
        "alive": record.alive,
        "busy_seconds": busy,
        "alive_seconds": alive,
        "starts": len(record.sessions),
        "trial": trial,
    }


def _seconds_left(search: Search, state: SearchState, num_workers: int) -> float | None:
    if state.ended:
        return 0.0
    median = state.median_seconds()
    if median is None or search.max_trials is None or not num_workers:
        return None
    now = time.time()
    running = [
        max(0.0, median - (now - trial.intervals[-1][1])) for trial in state.with_state("running")
    ]
    left = search.max_trials - len(state.end_order) - len(running)
    return (sum(running) + max(0, left) * median) / num_workers

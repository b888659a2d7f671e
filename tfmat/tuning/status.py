"""Where a search stands: numbers for the table, the page and the lines of the supervisor."""

import dataclasses
import math
import os
import pathlib
import time
from typing import Any

from tfmat.tuning.space import Search
from tfmat.tuning.state import STATES, SearchState, read_state
from tfmat.tuning.workers import WorkerRecord, read_workers


@dataclasses.dataclass(frozen=True)
class Summary:
    """A search in a few numbers.

    Attributes:
      name: of the search's folder.
      algorithm, objective, seeds, train_for: what it does.
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
        """As plain values."""
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

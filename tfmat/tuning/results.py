"""Where a search stands, and what it leaves for people: best.py, trials.csv, TensorBoard's HParams, a page."""

import math
import os
import pathlib
import time
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tfmat.errors import InputError
from tfmat.files import (
    Owner,
    check_json,
    is_dead,
    is_here,
    read_json,
    spreadsheet_text,
    write_text,
)
from tfmat.report.tables import SearchSummary, SearchWorker, TrialRow
from tfmat.tuning.definition import (
    DIVERGED,
    DONE,
    STATES,
    STOPPED,
    Choice,
    Search,
    SearchState,
    TrialRecord,
    config_text,
    read_state,
    value_text,
)

# With fewer a forest says nothing.
FEWEST_TRIALS = 8


# _TREES: of the forest that ranks what matters.
_TREES = 128


def record_end(workdir: pathlib.Path, trial_id: str) -> None:
    """Writes what a trial leaves when it has ended: its HParams, and best.py where it is the best."""
    state = read_state(workdir)
    write_hparams(workdir, state, state.trials[trial_id])
    best = state.best()
    if best is not None and best.trial_id == trial_id:
        write_best(workdir, state)


def write_results(workdir: str | os.PathLike) -> list[pathlib.Path]:
    """Writes best.py, trials.csv and tuning.html from search.json; returns their paths. At any time."""
    folder = pathlib.Path(workdir)
    state = read_state(folder)
    written = [write_csv(folder, state), write_page(folder, state)]
    return [*write_best(folder, state), *written]


def write_best(workdir: pathlib.Path, state: SearchState) -> list[pathlib.Path]:
    """The best trial's config, that `tfmat train --config` takes; nothing before a trial is done."""
    best = state.best()
    if best is None:
        return []
    search = state.search
    path = workdir / "best.py"
    title = (
        f"Trial {best.trial_id}, the best of {len(state.end_order)} trials: {search.objective} {best.value:.4g}.\n\n"
        f"    tfmat train --config={path}\n"
    )
    write_text(path, config_text(state.base, search.config_values(best.values), title))
    return [path]


def trial_rows(state: SearchState) -> list[TrialRow]:
    """One row a trial, in the order of their start: what the CSV and the page show."""
    search = state.search
    return [
        TrialRow(
            trial=record.trial_id,
            state=record.state,
            value=record.value,
            values=_shown(search, record),
            fraction=record.fraction,
            seconds=round(seconds_of(record), 1),
            started=record.intervals[0][1] if record.intervals else None,
            worker=record.worker,
            times_lost=record.lost,
            folder=f"trials/{record.folder}",
            reason=record.reason,
        )
        for record in state.trials.values()
    ]


def _shown(search: Search, record: TrialRecord) -> dict[str, Any]:
    """A trial's values, tuples as text."""
    values = search.config_values(record.values)
    return {n: value_text(v) if isinstance(v, tuple) else v for n, v in values.items()}


def seconds_of(record: TrialRecord) -> float:
    """How long a trial has run, over all its workers."""
    now = time.time()
    return sum((now if end is None else end) - start for _, start, end in record.intervals)


def write_csv(workdir: pathlib.Path, state: SearchState) -> pathlib.Path:
    """`trials.csv`: one row a trial."""
    import pandas as pd

    search = state.search
    rows = [msgspec.structs.asdict(row) for row in trial_rows(state)]
    rows = [{search.objective: row.pop("value"), **row.pop("values"), **row} for row in rows]
    first = ["trial", "state", search.objective, *search.space]
    table = pd.DataFrame(rows)
    if len(table):
        table = table.reindex(columns=[*first, *(c for c in table.columns if c not in first)])
        table["started"] = pd.to_datetime(table["started"], unit="s", utc=True).dt.floor("s")
    path = workdir / "trials.csv"
    write_text(path, spreadsheet_text(table))
    return path


def write_hparams(workdir: pathlib.Path, state: SearchState, record: TrialRecord) -> None:
    """One event file for TensorBoard's HParams page: `tensorboard --logdir=WORKDIR/tensorboard`."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import api_pb2, summary_v2
    from tensorboard.plugins.hparams.summary import session_end_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    search = state.search
    folder = workdir / "tensorboard" / record.trial_id
    writer = EventFileWriter(str(folder))
    now = time.time()
    start = record.intervals[0][1] if record.intervals else now
    summaries = [
        summary_v2.hparams_config_pb(
            hparams=[summary_v2.HParam(name) for name in search.space],
            metrics=[summary_v2.Metric(search.objective)],
        ),
        summary_v2.hparams_pb(
            _shown(search, record), trial_id=record.trial_id, start_time_secs=start
        ),
        session_end_pb(
            api_pb2.STATUS_SUCCESS if record.value is not None else api_pb2.STATUS_FAILURE
        ),
    ]
    if record.value is not None:
        metric = summary_pb2.Summary.Value(tag=search.objective, simple_value=record.value)
        summaries.append(summary_pb2.Summary(value=[metric]))
    for summary in summaries:
        # TensorBoard's protocol buffers and TensorFlow's, which HParams takes where it finds them, differ in name only.
        own = summary_pb2.Summary.FromString(summary.SerializeToString())
        writer.add_event(event_pb2.Event(wall_time=now, step=0, summary=own))
    writer.close()


def write_page(workdir: pathlib.Path, state: SearchState) -> pathlib.Path:
    """Writes tuning.html; returns its path."""
    from tfmat.report.pages import write_tuning_report

    search = state.search
    try:
        weights = importances(search, state)
    except InputError:
        weights = {}
    return write_tuning_report(
        workdir, summarize(workdir, state), trial_rows(state), search.scales(), weights
    )


def importances(search: Search, state: SearchState) -> dict[str, float]:
    """Hyper-parameter -> its share of what they all explain, largest first; {} with too few trials.

    The mean decrease in impurity of a random forest (Breiman, Machine Learning 45, 2001) that predicts what the oracle
    was told: the logarithm of the objective for losses. A hyper-parameter that does not exist for a trial has the
    middle of its range there; words are split into one column each, whose shares are added.
    """
    trials = [t for t in state.with_state(DONE, STOPPED, DIVERGED) if t.oracle_value is not None]
    trials = [t for t in trials if t.fraction == max(other.fraction for other in trials)]
    targets = np.array([trial.oracle_value for trial in trials], float)
    if len(trials) < FEWEST_TRIALS or np.ptp(targets) == 0:
        return {}
    from sklearn.ensemble import RandomForestRegressor

    columns, owners = [], []
    for name in search.space:
        for column in _columns(search, name, [trial.values.get(name) for trial in trials]):
            columns.append(column)
            owners.append(name)
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=0)
    forest.fit(np.stack(columns, axis=1), targets)
    shares = dict.fromkeys(search.space, 0.0)
    for owner, share in zip(owners, forest.feature_importances_, strict=True):
        shares[owner] += float(share)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _columns(search: Search, name: str, values: list) -> list[np.ndarray]:
    """One column of numbers, or one a word: [trials] each."""
    parameter = search.space[name]
    if isinstance(parameter, Choice) and isinstance(parameter.keys[0], str):
        return [np.array([value == key for value in values], float) for key in parameter.keys]
    known = [float(value) for value in values if value is not None]
    middle = float(np.median(known)) if known else 0.0
    return [np.array([middle if value is None else float(value) for value in values])]


class WorkerFile(Struct):
    """`workers/NAME.json`.

    Attributes:
      owner: the process that works under that name, or did last.
      sessions: (start, end) of each process of that name, seconds since 1970.
    """

    owner: Owner
    sessions: list[tuple[float, float]]


def read_worker(path: pathlib.Path) -> WorkerFile:
    """The file of a worker; its last session ends with its last sign of life."""
    found: WorkerFile = check_json(read_json(path), WorkerFile, path)
    if not found.sessions or not {"host", "pid"} <= found.owner.keys():
        raise InputError(
            f"{path} is damaged: no session or owner; remove it once that worker ended"
        )
    start = found.sessions[-1][0]
    found.sessions[-1] = (start, max(path.stat().st_mtime, start))
    return found


def summarize(workdir: str | os.PathLike, state: SearchState | None = None) -> SearchSummary:
    """The summary of a search's folder; needs no lock.

    Raises:
      InputError: there is no search in it.
    """
    folder = pathlib.Path(workdir)
    state = state or read_state(folder)
    search = state.search
    workers = [_worker(state, path) for path in sorted((folder / "workers").glob("*.json"))]
    best, alive_seconds = state.best(), sum(worker.alive_seconds for worker in workers)
    busy_seconds = sum(worker.busy_seconds for worker in workers)
    intervals = [interval for trial in state.trials.values() for interval in trial.intervals]
    starts = [start for _, start, _ in intervals]
    ends = [time.time() if end is None else end for _, _, end in intervals]
    return SearchSummary(
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
        seconds_left=_seconds_left(search, state, sum(worker.alive for worker in workers)),
        seconds=max(ends) - min(starts) if starts else 0.0,
        workers=workers,
        utilization=busy_seconds / alive_seconds if alive_seconds > 0 else None,
    )


def _worker(state: SearchState, path: pathlib.Path) -> SearchWorker:
    """A name that ever worked on the search; whether it lives, as far as can be told from here."""
    name, file, busy, trial = path.stem, read_worker(path), 0.0, ""
    if is_here(file.owner):
        alive = not is_dead(file.owner)
    else:
        alive = time.time() - path.stat().st_mtime < state.options.lease
    if alive:
        file.sessions[-1] = (file.sessions[-1][0], time.time())
    for candidate in state.trials.values():
        for worker, start, end in candidate.intervals:
            if worker != name:
                continue
            # A worker that was killed cannot say when: its trial's time ends with its own.
            last = next((e for s, e in file.sessions if s <= start <= e), start)
            busy += min(last, math.inf if end is None else end) - start
            if end is None and alive:
                trial = candidate.trial_id
    return SearchWorker(
        name=name,
        host=file.owner["host"],
        alive=alive,
        busy_seconds=busy,
        alive_seconds=sum(end - start for start, end in file.sessions),
        starts=len(file.sessions),
        trial=trial,
    )


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

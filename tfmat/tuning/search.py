"""A search from its config file to its results: what `tfmat tune` does."""

import dataclasses
import os
import pathlib

from tfmat.config import Config
from tfmat.console import clock_text, log
from tfmat.errors import InputError
from tfmat.files import make_folder
from tfmat.tuning.definition import Options, Search, SearchState, read_state, state_path
from tfmat.tuning.trials import Claims, Summary, Supervisor, oracle_of, summarize, write_results

# In a search's folder: its project of keras-tuner, once it has ended.
KERAS_TUNER = "keras_tuner"


def run_search(
    base: Config,
    search: Search,
    *,
    workdir: str | os.PathLike,
    options: Options,
    num_workers: int = 1,
    first_worker: int = 0,
) -> None:
    """Runs a search, or goes on with it, to its end.

    Args:
      base, search: checked, from `load_search`.
      workdir: folder of the search. Several machines may work on it at once, with other names of workers.
      options: see Options.
      num_workers: side by side on this machine; they share its cores.
      first_worker: their names are this number and the following.

    Raises:
      InputError: the search was started with another definition; or too many trials failed.
      Interrupted: a signal came; every trial is saved.
    """
    folder = make_folder(workdir)
    claims = Claims(folder, lease=options.lease)
    state = claims.open(base, search, dataclasses.asdict(options))
    reporter = _Reporter(folder, first=first_worker == 0)
    if state.ended:
        log(f"the search in {workdir} is finished: {state.ended}")
    else:
        log(_beginning(search, state, workdir, num_workers))
        names = [str(first_worker + i) for i in range(num_workers)]
        try:
            Supervisor(folder, names, options.lease, reporter.report).run()
        finally:
            reporter.report()
    if not state.ended or not (folder / "tuning.html").exists():
        _finish(folder)
    _conclude(folder)


def _finish(folder: pathlib.Path) -> None:
    """The results; of several machines that end at once each writes them, whole."""
    for path in write_results(folder):
        log(f"wrote {path}")
    state = read_state(folder)
    if state.ended:
        oracle_of(state).export(folder / KERAS_TUNER, state)
        log(f"wrote {folder / KERAS_TUNER}, which keras-tuner reloads")


def _conclude(folder: pathlib.Path) -> None:
    summary = summarize(folder)
    if summary.failed:
        raise InputError(
            f"the search ended: {summary.ended} (what it said is in {folder}/trials/*/log.txt)"
        )
    if summary.best is not None:
        log(
            f"best: trial {summary.best}, {summary.objective} {summary.best_value:.4g}; "
            f"train with it: tfmat train --config={folder}/best.py"
        )


def _beginning(
    search: Search, state: SearchState, workdir: str | os.PathLike, num_workers: int
) -> str:
    count = "" if search.max_trials is None else f" of {search.max_trials}"
    done = f", {len(state.end_order)}{count} trials have ended" if state.trials else ""
    trials = "trials" if search.max_trials is None else f"{search.max_trials} trials"
    workers = "1 worker" if num_workers == 1 else f"{num_workers} workers"
    verb = "going on" if state.trials else "searching"
    return (
        f"{verb} in {workdir}: {search.algorithm}, {trials}, {workers}{done}; "
        f"look at it with: tfmat tune --status --workdir={workdir}"
    )


class _Reporter:
    """Prints each end of a trial once, while the search goes on; only the `first` of several machines does."""

    def __init__(self, folder: pathlib.Path, first: bool):
        self._folder, self._first = folder, first
        self._modified = 0
        self._told = self._ended = len(read_state(folder).end_order)

    def report(self) -> int:
        """Prints what is new; returns how many trials have ended."""
        modified = state_path(self._folder).stat().st_mtime_ns
        if modified == self._modified:
            return self._ended
        self._modified = modified
        state = read_state(self._folder)
        self._ended = len(state.end_order)
        new = state.end_order[self._told :]
        self._told = self._ended
        if new and self._first:
            summary = summarize(self._folder, state)
            for trial_id in new:
                log(_line(state, trial_id, summary))
        return self._ended


def _line(state: SearchState, trial_id: str, summary: Summary) -> str:
    record = state.trials[trial_id]
    value = "" if record.value is None else f"  {summary.objective} {record.value:.4g}"
    best = "" if summary.best is None else f"  best {summary.best_value:.4g} ({summary.best})"
    number = state.end_order.index(trial_id) + 1
    of = "" if summary.max_trials is None else f"/{summary.max_trials}"
    left = "" if summary.seconds_left is None else f"  {clock_text(summary.seconds_left)} left"
    reason = f"  ({record.reason})" if record.reason and record.value is None else ""
    return f"{number}{of}  trial {trial_id} {record.state}{value}{reason}{best}{left}"

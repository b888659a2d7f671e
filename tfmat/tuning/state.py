"""`search.json`: everything that is known of a search, in one file that is whole or absent."""

import dataclasses
import math
import os
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any, TypedDict

from tfmat.config import check_saved_config
from tfmat.errors import InputError
from tfmat.files import as_json, check_json, read_json, write_json
from tfmat.tuning.lock import Owner
from tfmat.tuning.space import Search

FORMAT = 1
# A worker's name, and seconds since 1970 from which and until when it ran a trial; None while it does.
Interval = tuple[str, float, float | None]
# Of a trial. The first two may be run; the others have ended, each counted once.
WAITING, RUNNING, DONE, STOPPED, DIVERGED, FAILED = (
    "waiting",
    "running",
    "done",
    "stopped",
    "diverged",
    "failed",
)
STATES = (WAITING, RUNNING, DONE, STOPPED, DIVERGED, FAILED)


class _Base(TypedDict):
    """What is read of a config as it stands; the rest has its defaults."""

    train_for: str
    seed: int
    data: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Options:
    """How the trials of a search are run.

    Attributes:
      data_dir, backend: of `tfmat train`.
      trial_launcher: words in front of it, such as `mpirun -np 2`; empty for none.
      trial_command: another command instead of `tfmat train`, in which {config}, {workdir} and {seed} are replaced;
        empty for `tfmat train`. It leaves config.json (`total_steps`), metrics.jsonl and status.json in its workdir.
      lease: seconds without a sign of life after which a worker on another machine counts as dead.
      reports: whether each trial's network is measured on the test curves, and has a report.
    """

    data_dir: str = "data"
    backend: str = "single"
    trial_launcher: str = ""
    trial_command: str = ""
    lease: float = 60.0
    reports: bool = False


@dataclasses.dataclass
class TrialRecord:
    """One trial.

    Attributes:
      trial_id: four digits, in the order of their start.
      values: config key -> value, as keras-tuner knows them; only those that exist for this trial.
      folder: name of the folder in trials/; that of the lower rung where Hyperband goes on with its run.
      fraction: of the whole training, after which this trial ends (rungs of Hyperband).
      state: see STATES.
      reason: why it ended so, one line.
      value: the objective, mean over the seeds; None where there is none.
      oracle_value: what the oracle was told.
      claim: the present claim on it, a word that no other claim shares; its owner and its process see `claims.py`.
      worker: who holds it, or held it last.
      owner: process of that worker.
      intervals: one each time that it ran.
      lost: how often the worker that ran it died.
    """

    trial_id: str
    values: dict[str, Any]
    folder: str
    fraction: float = 1.0
    state: str = WAITING
    reason: str = ""
    value: float | None = None
    oracle_value: float | None = None
    claim: str = ""
    worker: str = ""
    owner: Owner = dataclasses.field(default_factory=lambda: Owner())
    intervals: list[Interval] = dataclasses.field(default_factory=list)
    lost: int = 0

    @property
    def ended(self) -> bool:
        """Whether it counts."""
        return self.state not in (WAITING, RUNNING)


@dataclasses.dataclass
class SearchState:
    """A search.

    Attributes:
      definition: the Search as JSON.
      base: the config that it varies, as JSON.
      trial_command, backend, data_dir, ...: in `options`: how trials are run.
      oracle: state of keras-tuner's oracle; {} before the first suggestion.
      trials: in the order of their start.
      end_order: ids in the order of their end.
      ended: why no further trial starts, or "".
      failed: the search ended because too many trials failed.
    """

    definition: dict[str, Any]
    base: dict[str, Any]
    options: dict[str, Any]
    oracle: dict[str, Any] = dataclasses.field(default_factory=dict)
    trials: dict[str, TrialRecord] = dataclasses.field(default_factory=dict)
    end_order: list[str] = dataclasses.field(default_factory=list)
    ended: str = ""
    failed: bool = False

    def with_state(self, *states: str) -> list[TrialRecord]:
        """The trials in one of these states, the oldest first."""
        return [trial for trial in self.trials.values() if trial.state in states]

    def ended_trials(self) -> Iterator[TrialRecord]:
        """Trials that count, in the order of their end."""
        return (self.trials[trial_id] for trial_id in self.end_order)

    def failures_in_a_row(self) -> int:
        """How many trials failed since the last one that did not."""
        count = 0
        for trial in self.ended_trials():
            count = count + 1 if trial.state == FAILED else 0
        return count

    def best(self) -> TrialRecord | None:
        """The trial with the best value: of those that trained to the end, where there is one."""
        for states, shortest in (((DONE,), 1.0), ((DONE,), 0.0), ((STOPPED,), 0.0)):
            found = [t for t in self.with_state(*states) if t.fraction >= shortest]
            found = [t for t in found if t.value is not None and math.isfinite(t.value)]
            if found:
                choose = max if self.definition.get("direction") == "max" else min
                return choose(found, key=lambda trial: trial.value or 0.0)
        return None

    def worst_oracle_value(self) -> float | None:
        """The largest that the oracle was told."""
        told = [t.oracle_value for t in self.trials.values() if t.oracle_value is not None]
        return max(told, default=None)

    def median_seconds(self) -> float | None:
        """How long a trial takes, over those that are done."""
        times = [
            sum(end - start for _, start, end in trial.intervals if end is not None)
            for trial in self.with_state(DONE, STOPPED, DIVERGED)
        ]
        return statistics.median(times) if times else None


def state_path(workdir: str | os.PathLike) -> pathlib.Path:
    """Where a search's state lies."""
    return pathlib.Path(workdir) / "search.json"


def read_state(workdir: str | os.PathLike) -> SearchState:
    """Reads search.json; needs no lock, since it is whole at any time.

    Raises:
      InputError: there is no search, or it is of another version of tfmat.
    """
    path = state_path(workdir)
    if not path.exists():
        raise InputError(
            f"{path} does not exist; start a search: tfmat tune --config=configs/tune.py --workdir={workdir}"
        )
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path} is of another version of tfmat; choose another --workdir")
    state: SearchState = check_json(content, SearchState, path)
    try:
        _check_sense(state)
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    return state


def _check_sense(state: SearchState) -> None:
    """InputError where the parts of a state, each of the right type, do not belong together."""
    check_json(state.options, Options, "options")
    check_json(state.base, _Base, "base")
    _, unknown_keys = check_saved_config(state.base)
    if unknown_keys:
        raise InputError(f"base: {', '.join(unknown_keys)} of it is no config key")
    search = Search.from_json(state.definition)
    for trial_id, record in state.trials.items():
        here = f"trials.{trial_id}"
        if record.trial_id != trial_id or not _is_name(record.folder) or not _is_name(trial_id):
            raise InputError(f"{here}: trial_id is {record.trial_id!r}, folder {record.folder!r}")
        if record.state not in STATES:
            raise InputError(f"{here}: state is {record.state!r}")
        if record.ended != (trial_id in state.end_order):
            raise InputError(f"{here}: state is {record.state}, and end_order says otherwise")
        search.check_values(record.values, here)
    unknown = [trial_id for trial_id in state.end_order if trial_id not in state.trials]
    if unknown or len(set(state.end_order)) < len(state.end_order):
        raise InputError(f"end_order: {', '.join(unknown) or 'a trial stands in it twice'}")


def _is_name(text: str) -> bool:
    """Whether it is the name of one folder, and no path that leads elsewhere."""
    return text not in ("", ".", "..") and "/" not in text and "\0" not in text


def write_state(workdir: str | os.PathLike, state: SearchState) -> None:
    """Writes search.json, whole or not at all; only under the lock."""
    content = {"format": FORMAT, **dataclasses.asdict(state)}
    write_json(state_path(workdir), as_json(content))

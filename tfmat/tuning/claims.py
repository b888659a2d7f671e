"""What workers do to a search, each step whole and under its lock: open it, claim a trial, give it back, end it."""

import contextlib
import copy
import dataclasses
import math
import os
import pathlib
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmat.config import Config, default_config
from tfmat.files import as_json, make_folder, write_text
from tfmat.tuning.definition import CHANGEABLE, check_same, is_longer
from tfmat.tuning.lock import FileLock, LockLostError, is_dead, this_process
from tfmat.tuning.space import Search
from tfmat.tuning.state import (
    DIVERGED,
    DONE,
    FAILED,
    RUNNING,
    STOPPED,
    WAITING,
    SearchState,
    TrialRecord,
    read_state,
    state_path,
    write_state,
)

if TYPE_CHECKING:
    from tfmat.tuning.oracle import Oracle

# A trial that costs its worker's life so often (it may need more memory than there is) has failed.
MOST_LOST = 5
_SHORTEST_STALE = 60.0  # seconds: a suggestion may take long


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a trial ended: one of the states, the objective (None where there is none), and one line why."""

    state: str
    value: float | None
    reason: str


class Claims:
    """A search's state as its workers change it.

    Args:
      workdir: of the search.
      worker: name of this worker, which no other one that lives has.
      lease: seconds without a sign of life after which a worker on another machine counts as dead.
    """

    def __init__(self, workdir: str | os.PathLike, worker: str = "", lease: float = 60.0):
        self.workdir = pathlib.Path(workdir)
        self._worker, self._lease = worker, lease
        self._lock = FileLock(self.workdir / "lock", max(lease, _SHORTEST_STALE))

    def open(self, base: Config, search: Search, options: dict[str, Any]) -> SearchState:
        """Starts the search, or goes on with it, where it may be extended; returns its state.

        Raises:
          InputError: it was started with another definition, naming what differs.
        """

        def change(state: SearchState | None) -> SearchState:
            definition, config = as_json(search.to_json()), as_json(base.to_dict())
            if state is None:
                return SearchState(definition=definition, base=config, options=options)
            check_same(self.workdir, state, definition, config)
            longer = is_longer(state.definition, definition)
            state.definition = {**state.definition, **{k: definition[k] for k in CHANGEABLE}}
            state.options = options
            if state.ended and not state.failed and longer:
                state.ended = ""
            return state

        return self._change(change)

    def claim(self) -> TrialRecord | None:
        """A trial for this worker to run; None while there is none, or when the search has ended (`state.ended`)."""
        claimed: list[TrialRecord] = []

        def change(state: SearchState | None) -> SearchState:
            assert state is not None
            claimed[:] = self._next(state)
            return state

        self._change(change)
        return claimed[0] if claimed else None

    def release(self, record: TrialRecord, reason: str, lost: bool = False) -> None:
        """Gives a claimed trial back, to be gone on with; `lost` where it was ended by force."""

        def change(state: SearchState | None) -> SearchState:
            assert state is not None
            mine = state.trials[record.trial_id]
            if mine.claim == record.claim and mine.state == RUNNING:
                _close(mine, WAITING, reason)
                mine.lost += lost
            return state

        self._change(change)

    def end(
        self, record: TrialRecord, outcome: Outcome, claim_next: bool = True
    ) -> tuple[bool, TrialRecord | None]:
        """Records a trial's end, once, and claims the next one in the same step.

        Returns:
          False where this worker had lost its claim; the next trial, as of `claim`.
        """
        counted, claimed = False, []

        def change(state: SearchState | None) -> SearchState:
            nonlocal counted, claimed
            assert state is not None
            mine = state.trials[record.trial_id]
            counted = mine.claim == record.claim and mine.state == RUNNING
            if counted:
                _close(mine, outcome.state, outcome.reason)
                self._tell(state, mine, outcome)
            claimed = self._next(state) if claim_next else []
            return state

        self._change(change)
        return counted, claimed[0] if claimed else None

    def still_mine(self, record: TrialRecord) -> bool:
        """Whether no other worker took the trial; says too that this one lives. Needs no lock."""
        path = heartbeat_path(self.workdir, record)
        try:
            if path.read_text() != record.claim:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError:  # the shared file system is away for a while
            return True
        return True

    def _change(self, change: Callable[[SearchState | None], SearchState]) -> SearchState:
        while True:
            with contextlib.suppress(LockLostError), self._lock.held() as held:
                exists = state_path(self.workdir).exists()
                before = read_state(self.workdir) if exists else None
                state = change(copy.deepcopy(before))
                held.check()
                if state != before:  # what waits looks at the file's time
                    write_state(self.workdir, state)
                return state

    def _next(self, state: SearchState) -> list[TrialRecord]:
        """The trial that this worker takes now, claimed; none where there is none."""
        self._fail_the_deadly(state)
        record = None if state.ended else self._orphan(state) or self._new_trial(state)
        if record is None:
            return []
        self._take(record)
        return [record]

    def _take(self, record: TrialRecord) -> None:
        record.state, record.reason = RUNNING, ""
        record.claim, record.worker = uuid.uuid4().hex, self._worker
        record.owner = this_process()
        record.intervals.append((self._worker, time.time(), None))
        folder = make_folder(self.workdir / "trials" / record.folder)
        write_text(folder / "heartbeat", record.claim)

    def _orphan(self, state: SearchState) -> TrialRecord | None:
        """A trial that was given back, or whose worker is dead."""
        for record in state.with_state(WAITING, RUNNING):
            if record.state == WAITING:
                return record
            if self._is_orphan(record):
                record.lost += 1
                _close(record, WAITING, f"worker {record.worker} was lost")
                return record
        return None

    def _is_orphan(self, record: TrialRecord) -> bool:
        if record.worker == self._worker or is_dead(record.owner):
            return True  # this worker's name is its own: who had it before is dead
        beat = heartbeat_path(self.workdir, record)
        return seconds_since(beat, clock=self.workdir / "lock") > self._lease

    def _fail_the_deadly(self, state: SearchState) -> None:
        for record in state.with_state(RUNNING, WAITING):
            orphan = record.state == WAITING or self._is_orphan(record)
            if record.lost >= MOST_LOST and orphan:
                reason = f"its worker was lost {record.lost} times; perhaps it needs more memory than there is"
                if record.state == RUNNING:
                    _close(record, FAILED, reason)
                record.state, record.reason = FAILED, reason
                self._tell(state, record, Outcome(FAILED, None, reason))

    def _new_trial(self, state: SearchState) -> TrialRecord | None:
        """What the oracle suggests; None where it has to wait, or the search is at its end (then that is noted)."""
        search = Search.from_json(state.definition)
        full = search.max_trials is not None and len(state.trials) >= search.max_trials
        suggested: TrialRecord | str = "full" if full else "exhausted"
        if not full:
            oracle = oracle_of(state)
            suggested = oracle.suggest()
            if isinstance(suggested, TrialRecord):
                lower = state.trials.get(suggested.values.get("tuner/trial_id", ""))
                suggested.folder = lower.folder if lower else suggested.trial_id
                state.trials[suggested.trial_id] = suggested
                oracle.store(state)
                return suggested
        if suggested != "idle" and not state.with_state(RUNNING, WAITING):
            why = "the space holds no other" if suggested == "exhausted" else ""
            if search.algorithm == "hyperband" and why:
                why = "all brackets are done"
            state.ended = f"all {len(state.trials)} trials have ended" + (f": {why}" if why else "")
        return None

    def _tell(self, state: SearchState, record: TrialRecord, outcome: Outcome) -> None:
        """Counts an ended trial and tells the oracle; too many failures end the search."""
        search = Search.from_json(state.definition)
        record.value = outcome.value
        record.oracle_value = oracle_value(search, outcome, state.worst_oracle_value())
        state.end_order.append(record.trial_id)
        oracle = oracle_of(state)
        oracle.tell(record)
        oracle.store(state)
        if state.failures_in_a_row() >= search.max_failed_trials and not state.ended:
            state.failed = True
            count = state.failures_in_a_row()
            state.ended = (
                f"{count} trials in a row failed, the last one, {record.trial_id}: {record.reason}"
            )


def oracle_of(state: SearchState) -> "Oracle":
    """The oracle of a search as it stands. Imports TensorFlow."""
    from tfmat.tuning.oracle import Oracle

    base = default_config()
    base.train_for = state.base["train_for"]
    return Oracle(Search.from_json(state.definition), base, state)


def oracle_value(search: Search, outcome: Outcome, worst: float | None) -> float | None:
    """What the oracle is told: the objective or its logarithm; as bad as the worst so far where a trial diverged."""
    if outcome.state == DIVERGED:
        return max(0.0, 0.0 if worst is None else worst)
    if outcome.state not in (DONE, STOPPED) or outcome.value is None:
        return None
    if search.objective_scale == "linear":
        return search.sign * outcome.value
    return search.sign * math.log10(outcome.value) if outcome.value > 0 else None


def heartbeat_path(workdir: pathlib.Path, record: TrialRecord) -> pathlib.Path:
    """The file that says who runs a trial, and by its time, that they live."""
    return workdir / "trials" / record.folder / "heartbeat"


def seconds_since(path: pathlib.Path, clock: pathlib.Path) -> float:
    """Age of a file by the clock of its file system (that of `clock`, which is touched): machines' clocks differ."""
    os.utime(clock)
    try:
        return clock.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _close(record: TrialRecord, state: str, reason: str) -> None:
    record.state, record.reason, record.claim = state, reason, ""
    if record.intervals and record.intervals[-1][2] is None:
        record.intervals[-1] = (*record.intervals[-1][:2], time.time())

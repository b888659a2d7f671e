"""Trials of a search: claimed, run, stopped, told; their workers, those that watch over them, and the search."""

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tfmat.config import Config, Duration, read_run_details
from tfmat.console import clock_text, log, printable
from tfmat.errors import DivergedError, InputError, Interrupted, TfmatError, WorkerLostError
from tfmat.files import (
    FileLock,
    LockLostError,
    Owner,
    as_json,
    check_json,
    is_dead,
    is_here,
    is_locked,
    make_folder,
    owner_of,
    read_json,
    this_process,
    write_json,
    write_text,
)
from tfmat.launch.mpirun import end_session, end_with_parent
from tfmat.launch.processes import standard_error_held_back
from tfmat.report.tables import SearchSummary
from tfmat.training.run_folder import RunFolder, read_metrics
from tfmat.tuning.search import (
    CHANGEABLE,
    DIVERGED,
    DONE,
    FAILED,
    RUNNING,
    STOPPED,
    WAITING,
    Options,
    Search,
    SearchState,
    TrialRecord,
    WorkerFile,
    check_same,
    config_text,
    is_longer,
    read_state,
    read_worker,
    record_end,
    state_path,
    summarize,
    write_results,
    write_state,
)

if TYPE_CHECKING:
    from tfmat.tuning.oracle import Oracle

# --------------------------------------------------------------------------------------------------
# Workers' steps in a search, each whole and under its lock: open it, claim a trial, give it back, end it.


# A trial that costs its worker's life so often (it may need more memory than there is) has failed.
MOST_LOST = 5
_SHORTEST_STALE = 60.0  # seconds: a suggestion may take long


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a trial ended: one of the states, the objective (None where there is none), and one line why."""

    state: str
    value: float | None
    reason: str


_T = TypeVar("_T")


class Claims:
    """A search's state as its workers change it.

    Args:
      worker: name of this worker, which no other one that lives has.
      lease: seconds without a sign of life after which a worker on another machine counts as dead.
    """

    def __init__(self, workdir: str | os.PathLike, worker: str = "", lease: float = 60.0):
        self.workdir = pathlib.Path(workdir)
        self._worker, self._lease = worker, lease
        self._lock = FileLock(self.workdir / "lock", max(lease, _SHORTEST_STALE))

    def open(self, base: Config, search: Search, options: Options) -> SearchState:
        """Starts the search, or goes on with it, where it may be extended; returns its state.

        Raises:
          InputError: it was started with another definition, naming what differs.
        """
        config = as_json(base.to_dict())

        def go_on(state: SearchState) -> SearchState:
            check_same(self.workdir, state, search, config)
            longer = is_longer(state.search, search)
            changes = {name: getattr(search, name) for name in CHANGEABLE}
            state.definition = dataclasses.replace(state.search, **changes).to_json()
            for name in ("data_dir", "trial_command"):
                before, now = getattr(state.options, name), getattr(options, name)
                if state.end_order and before != now:
                    log(
                        f"warning: {len(state.end_order)} trials ended with --{name}={before or 'none'}, further ones "
                        f"run with {now or 'none'}; where these do not train the same, values cannot be compared"
                    )
            state.options = options
            if state.ended and not state.failed and longer:
                state.ended = ""
            return state

        return self._change(go_on, SearchState(search.to_json(), config, options))

    def claim(self) -> TrialRecord | None:
        """A trial for this worker to run; None while there is none, or when the search has ended (`state.ended`)."""
        return self._change(self._next)

    def release(self, record: TrialRecord, reason: str, lost: bool = False) -> None:
        """Gives a claimed trial back, to be gone on with; `lost` where it was ended by force."""

        def give_back(state: SearchState) -> None:
            if (mine := _held(state, record)) is not None:
                _close(mine, WAITING, reason)
                mine.lost += lost

        self._change(give_back)

    def end(
        self, record: TrialRecord, outcome: Outcome, claim_next: bool = True
    ) -> tuple[bool, TrialRecord | None]:
        """Records a trial's end, once, and claims the next one in the same step.

        Returns:
          False where this worker had lost its claim; the next trial, as of `claim`.
        """

        def close(state: SearchState) -> tuple[bool, TrialRecord | None]:
            if (mine := _held(state, record)) is not None:
                _close(mine, outcome.state, outcome.reason)
                self._tell(state, mine, outcome)
            return mine is not None, self._next(state) if claim_next else None

        return self._change(close)

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

    def _change(self, change: Callable[[SearchState], _T], first: SearchState | None = None) -> _T:
        """The result of `change` of the present state, whose changes are written; of `first` where there is none."""
        while True:
            with contextlib.suppress(LockLostError), self._lock.held() as held:
                exists = state_path(self.workdir).exists()
                before = read_state(self.workdir) if first is None or exists else first
                state = copy.deepcopy(before)
                found = change(state)
                held.check()
                if not exists or state != before:  # what waits looks at the file's time
                    write_state(self.workdir, state)
                return found

    def _next(self, state: SearchState) -> TrialRecord | None:
        """The trial that this worker takes now, claimed; None where there is none."""
        record = None if state.ended else self._orphan(state)
        if record is None and not state.ended:
            record = self._new_trial(state)
        if record is not None:
            self._take(record)
        return record

    def _take(self, record: TrialRecord) -> None:
        record.state, record.reason = RUNNING, ""
        record.claim, record.worker = uuid.uuid4().hex, self._worker
        record.owner = this_process()
        record.intervals.append((self._worker, time.time(), None))
        folder = make_folder(self.workdir / "trials" / record.folder)
        write_text(folder / "heartbeat", record.claim)

    def _orphan(self, state: SearchState) -> TrialRecord | None:
        """A trial that was given back, or whose worker is dead; those that cost too many workers' lives fail."""
        for record in state.with_state(WAITING, RUNNING):
            if record.state == RUNNING and not self._is_orphan(record):
                continue
            if record.lost < MOST_LOST:
                if record.state == RUNNING:
                    record.lost += 1
                    _close(record, WAITING, f"worker {record.worker} was lost")
                return record
            reason = f"its worker was lost {record.lost} times; perhaps it needs more memory than there is"
            _close(record, FAILED, reason)
            self._tell(state, record, Outcome(FAILED, None, reason))
            if state.ended:
                break
        return None

    def _is_orphan(self, record: TrialRecord) -> bool:
        if record.worker == self._worker or is_dead(record.owner):
            return True  # this worker's name is its own: who had it before is dead
        beat = heartbeat_path(self.workdir, record)
        return seconds_since(beat, clock=self.workdir / "lock") > self._lease

    def _new_trial(self, state: SearchState) -> TrialRecord | None:
        """The oracle's suggestion; None where it has to wait, or the search is at its end (then that is noted)."""
        search = state.search
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
        search = state.search
        record.value = outcome.value
        told = [t.oracle_value for t in state.trials.values() if t.oracle_value is not None]
        record.oracle_value = oracle_value(search, outcome, max(told, default=0.0))
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

    return Oracle(state)


def oracle_value(search: Search, outcome: Outcome, worst: float) -> float | None:
    """The oracle's value: the objective or its logarithm; as bad as the worst so far where a trial diverged."""
    if outcome.state == DIVERGED:
        return max(0.0, worst)
    if outcome.state not in (DONE, STOPPED) or outcome.value is None:
        return None
    if search.objective_scale == "linear":
        return search.sign * outcome.value
    return search.sign * math.log10(outcome.value) if outcome.value > 0 else None


def heartbeat_path(workdir: pathlib.Path, record: TrialRecord) -> pathlib.Path:
    """The file that says who runs a trial, and by its time, that they live."""
    return workdir / "trials" / record.folder / "heartbeat"


def seconds_since(path: pathlib.Path, clock: pathlib.Path) -> float:
    """Age of a file by the clock of its file system (of `clock`, which is touched): machines' clocks differ."""
    os.utime(clock)
    try:
        return clock.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _held(state: SearchState, record: TrialRecord) -> TrialRecord | None:
    """The state's record of a trial that was claimed; None where another worker has taken it."""
    mine = state.trials[record.trial_id]
    return mine if mine.claim == record.claim and mine.state == RUNNING else None


def _close(record: TrialRecord, state: str, reason: str) -> None:
    record.state, record.reason, record.claim = state, reason, ""
    if record.intervals and record.intervals[-1][2] is None:
        record.intervals[-1] = (*record.intervals[-1][:2], time.time())


def take_name(workdir: pathlib.Path, name: str, lease: float) -> pathlib.Path:
    """Takes a name for this process; returns its file in workers/, whose time says that it lives.

    Args:
      lease: seconds without a sign of life after which a worker on another machine counts as dead.

    Raises:
      InputError: a worker of this name lives.
    """
    path = make_folder(workdir / "workers") / f"{name}.json"
    sessions: list[tuple[float, float]] = []
    if path.exists():
        _wait_for_former(path, read_worker(path).owner, name, lease)
        sessions = read_worker(path).sessions
    sessions.append((time.time(), time.time()))
    write_json(path, WorkerFile(this_process(), sessions))
    return path


def _wait_for_former(path: pathlib.Path, owner: Owner, name: str, lease: float) -> None:
    """A job that was requeued starts on another machine before the lease of its former self is over."""
    deadline = time.monotonic() + 1.5 * lease
    while not is_dead(owner):
        if not is_here(owner) and seconds_since(path, path.parent) > lease:
            return
        if is_here(owner) or time.monotonic() > deadline:
            raise InputError(
                f"worker {name} of this search runs already, process {owner['pid']} on {owner['host']}; "
                "look at it with tfmat tune --status, or use another --workdir"
            )
        time.sleep(min(1.0, lease / 10))


# --------------------------------------------------------------------------------------------------
# When a trial is hopeless: the median rule.
#
# A trial ends where its best value so far is worse than the median of the values of the trials that are done, at the
# same place of the training (Golovin et al., "Google Vizier", KDD 2017, section 3.2.2; in the form of Optuna's
# MedianPruner, which takes the others' values and not their running averages: those would let nearly every loss pass).


@dataclasses.dataclass(frozen=True)
class Curve:
    """The course of one run.

    Attributes:
      position: [records], epochs or seconds: what trials are compared at.
      progress: [records], share of the whole training.
    """

    position: NDArray[np.float64]
    progress: NDArray[np.float64]
    values: NDArray[np.float64]

    def until(self, fraction: float) -> "Curve":
        """Its part up to the first record at or after this share of the steps."""
        count = int((self.progress < fraction - 1e-9).sum()) + 1
        return Curve(self.position[:count], self.progress[:count], self.values[:count])


def read_curve(run_folder: pathlib.Path, objective: str, train_for: str) -> Curve:
    """The curve of a run's folder, as far as it has come; empty where there is none.

    Args:
      train_for: of the config. Where it is in epochs, the share of the training is that of its epochs: with a growing
        batch they have different numbers of steps.
    """
    duration = Duration.parse(train_for)
    position = "epoch" if duration.seconds is None else "seconds"
    of, whole = ("epoch", duration.value) if duration.unit == "epochs" else ("step", 0.0)
    lines = read_metrics(run_folder / "metrics.jsonl")
    if not whole:
        with contextlib.suppress(InputError):
            whole = read_run_details(run_folder / "config.json").total_steps
    rows = [
        (line[position], line[of] / whole, line[objective])
        for line in lines
        if all(_is_number(line.get(key)) for key in (position, of, objective)) and whole > 0
    ]
    columns = np.array(rows, float).reshape(-1, 3).T
    return Curve(*columns)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def hopeless(curve: Curve, others: Sequence[Curve], at_least: int, sign: float = 1.0) -> str:
    """Why the trial of this curve is hopeless, or "": see the module.

    Args:
      curve, others: of which small values are good.
      at_least: so many others must be that far.
      sign: by which the objective was multiplied for that.
    """
    if not len(curve.values):
        return ""
    place = curve.position[-1]
    reached = [
        float(other.values[other.position <= place][-1])
        for other in others
        if len(other.values) and other.position[0] <= place <= other.position[-1] + 1e-9
    ]
    if len(reached) < at_least:
        return ""
    best, median = float(curve.values.min()), statistics.median(reached)
    if best <= median:
        return ""
    return f"hopeless: {sign * best:.4g} at best, the median of the others there is {sign * median:.4g}"


# --------------------------------------------------------------------------------------------------
# Runs one trial: an ordinary `tfmat train` (or another command) a seed, watched while it trains.


_LOOK_AT_TRIAL = 0.25  # seconds between two looks at what a trial has written
# Time to save after SIGTERM: the present block of steps, then the checkpoint, on a busy machine.
SECONDS_TO_SAVE = 120.0
_SECONDS_TO_HEAR = 2.0
# Variables of the step that a worker itself is a part of: a trial is no rank of it. mpirun and srun set them anew.
_STEP_VARIABLES = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "SLURM_STEP", "HOROVOD_")
# A worker of the trial was lost, or somebody interrupted the trial: no fault of its values.
_BY_FORCE = (WorkerLostError.exit_status, Interrupted.exit_status)
_STEP_NAMES = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID", "SLURM_GTIDS")


class TrialLostError(Exception):
    """The trial ended by force, or another worker took it; `mine` tells the two apart."""

    def __init__(self, reason: str, mine: bool):
        super().__init__(reason)
        self.mine = mine


@dataclasses.dataclass
class TrialRun:
    """One trial while this worker runs it.

    Attributes:
      state: of the search, when the trial was claimed.
      still_mine: says that this worker lives, and whether the trial is still its own; called every `beat` seconds.
      stop: whether this worker was asked to end.
    """

    workdir: pathlib.Path
    state: SearchState
    record: TrialRecord
    still_mine: Callable[[], bool]
    stop: Callable[[], bool]
    beat: float

    def __post_init__(self) -> None:
        self.search = self.state.search
        self.folder = make_folder(self.workdir / "trials" / self.record.folder)
        self._last_beat = 0.0
        self._others: dict[str, Curve] = {}

    def run(self) -> Outcome | None:
        """Trains every seed to the end (of the trial's rung); None where this worker was asked to end before.

        Raises:
          TrialLostError.
        """
        self._write_config()
        values = []
        for number in range(self.search.seeds):
            outcome = self._run_seed(number)
            if outcome is None or outcome.state != DONE or outcome.value is None:
                return outcome
            values.append(outcome.value)
        texts = ", ".join(f"{value:.4g}" for value in values)
        reason = f"{self.search.objective} of {len(values)} seeds: {texts}" if values[1:] else ""
        return Outcome(DONE, sum(values) / len(values), reason)

    def _run_seed(self, number: int) -> Outcome | None:
        run_folder = self.folder / f"seed-{number}"
        if self._is_done(run_folder):
            return self._done(run_folder)
        self._wait_for_former(run_folder)
        with open(self.folder / "log.txt", "ab") as log:
            command = self.command(number)
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            process_ = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=trial_environment(),
                start_new_session=True,  # Ctrl-C is for the supervisor
                preexec_fn=functools.partial(_end_with_parent, os.getpid()),
            )
        write_json(self.folder / "process.json", owner_of(process_.pid))
        try:
            reason = self._watch(process_, run_folder)
        finally:
            self._kill(process_)
        return self._outcome(process_.returncode, reason, run_folder)

    def command(self, number: int) -> list[str]:
        """The command line of a seed's run, from 0."""
        options, folder = self.state.options, self.folder
        seed = self.state.base["seed"] + number
        run_folder = folder / f"seed-{number}"
        if options.trial_command:
            places = {"config": folder / "config.py", "workdir": run_folder, "seed": seed}
            return [word.format(**places) for word in shlex.split(options.trial_command)]
        return [
            *shlex.split(options.trial_launcher),
            *(sys.executable, "-m", "tfmat", "train"),
            f"--config={folder / 'config.py'}",
            f"--config.seed={seed}",
            f"--workdir={run_folder}",
            f"--data_dir={options.data_dir}",
            f"--backend={options.backend}",
            *(() if options.reports else ("--report=false",)),
        ]

    def _write_config(self) -> None:
        path = self.folder / "config.py"
        if path.exists():
            return
        base = {**self.state.base, "data": dict(self.state.base["data"])}
        if base["data"]["seed"] is None:
            base["data"]["seed"] = base["seed"]  # else each seed would simulate curves of its own
        values = self.search.config_values(self.record.values)
        title = f"Trial {self.record.folder} of the search in {self.workdir}."
        write_text(path, config_text(base, values, title))

    def _watch(self, process_: subprocess.Popen, run_folder: pathlib.Path) -> str:
        """Waits for the run's end; returns why it was asked to end early, or ""."""
        reason, deadline, seen = "", float("inf"), None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process_.wait(_LOOK_AT_TRIAL)
                return reason
            self._beat()
            if time.monotonic() > deadline:
                self._kill(process_)
            if reason:
                continue
            written = _modified(run_folder / "metrics.jsonl")
            if self.stop():
                reason = "interrupted"
            elif written != seen:
                seen = written
                reason = self._judge(run_folder)
            if reason:
                process_.send_signal(signal.SIGTERM)
                deadline = time.monotonic() + SECONDS_TO_SAVE

    @staticmethod
    def _kill(process_: subprocess.Popen) -> None:
        """Ends what is left of a trial's processes."""
        end_session(process_.pid, grace=0)
        process_.wait()

    def _beat(self) -> None:
        if time.monotonic() - self._last_beat > self.beat:
            self._last_beat = time.monotonic()
            if not self.still_mine():
                raise TrialLostError("another worker took the trial", mine=False)

    def _judge(self, run_folder: pathlib.Path) -> str:
        """`rung` where the trial has come as far as it should, `hopeless`, or ""."""
        curve = self._curve(run_folder)
        if not len(curve.values):
            return ""
        if self.record.fraction < 1:
            return "rung" if curve.progress[-1] >= self.record.fraction - 1e-9 else ""
        if not self.search.stop_hopeless or self.search.algorithm == "hyperband":
            return ""
        if run_folder.name != "seed-0" or curve.progress[-1] < self.search.hopeless_grace:
            return ""
        for other in self.state.with_state(DONE):
            if other.folder not in self._others:
                path = self.workdir / "trials" / other.folder / "seed-0"
                self._others[other.folder] = self._curve(path)
        others = list(self._others.values())
        return hopeless(curve, others, self.search.hopeless_after, self.search.sign)

    def _curve(self, run_folder: pathlib.Path) -> Curve:
        """The run's course, of which small values are good."""
        found = read_curve(run_folder, self.search.objective, self.state.base["train_for"])
        return dataclasses.replace(found, values=self.search.sign * found.values)

    def _is_done(self, run_folder: pathlib.Path) -> bool:
        curve = self._curve(run_folder)
        if self.record.fraction < 1 and len(curve.values):
            return bool(curve.progress[-1] >= self.record.fraction - 1e-9)
        return RunFolder(run_folder).status().state == "done"

    def _done(self, run_folder: pathlib.Path) -> Outcome:
        curve = self._curve(run_folder).until(self.record.fraction)
        if not len(curve.values):
            return Outcome(FAILED, None, f"no finite {self.search.objective} in metrics.jsonl")
        return Outcome(DONE, self.search.sign * float(curve.values.min()), "")

    def _outcome(self, status: int, reason: str, run_folder: pathlib.Path) -> Outcome | None:
        if status == DivergedError.exit_status:
            return Outcome(DIVERGED, None, "the training diverged")
        if reason == "interrupted" and status != 0:
            return None
        if status == 0 or reason == "rung":
            return self._done(run_folder)
        if reason:
            last = self.search.sign * float(self._curve(run_folder).values[-1])
            return Outcome(STOPPED, last, reason)
        if status < 0 or status > 128 or status in _BY_FORCE:
            # SLURM signals all processes of a job at once, and the trial may be faster than its worker's supervisor.
            deadline = time.monotonic() + _SECONDS_TO_HEAR
            while time.monotonic() < deadline:
                if self.stop():
                    return None
                time.sleep(_LOOK_AT_TRIAL / 5)
            raise TrialLostError(
                f"the trial's process ended with {_status_text(status)}", mine=True
            )
        return Outcome(FAILED, None, f"{_status_text(status)}: {self._last_line()}")

    def _last_line(self) -> str:
        lines = (self.folder / "log.txt").read_text(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        return last.strip()[:300]

    def _wait_for_former(self, run_folder: pathlib.Path) -> None:
        """The process that ran this before may still be saving: its worker was killed, not it."""
        path = self.folder / "process.json"
        former: Owner = check_json(read_json(path), Owner, path) if path.exists() else Owner()
        deadline = time.monotonic() + SECONDS_TO_SAVE
        while (former and is_here(former) and not is_dead(former)) or is_locked(run_folder):
            self._beat()
            if time.monotonic() > deadline:
                if former and is_here(former) and not is_dead(former):
                    os.killpg(former["pid"], signal.SIGKILL)
                    deadline += SECONDS_TO_SAVE
                    continue
                raise InputError(f"another process trains in {run_folder}; end it")
            time.sleep(0.1)


def trial_environment() -> dict[str, str]:
    """The environment without what says that this process is one rank of many: the trial is not."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_STEP_VARIABLES) and name not in _STEP_NAMES
    }


def _end_with_parent(parent: int) -> None:
    """Called in the new process: it is sent SIGTERM, so that it saves, when its parent dies, however that dies."""
    if not end_with_parent(parent):
        os.kill(os.getpid(), signal.SIGTERM)


def _modified(path: pathlib.Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return None


def _status_text(status: int) -> str:
    number = -status if status < 0 else status - 128
    with contextlib.suppress(ValueError):
        if status < 0 or status > 128:
            return signal.Signals(number).name
    return f"exit status {status}"


# --------------------------------------------------------------------------------------------------
# One worker: takes a trial, runs it, records its end, until the search has ended.


# An idle worker looks whether search.json is another one: 20 times a second at first, once a second later. A look costs
# some microseconds.
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0


class Worker:
    """One worker of a search that was opened.

    Args:
      name: no other living worker has it; the same again after a restart.
      lease: seconds without a sign of life after which others take its trial, if they cannot see its process.
    """

    def __init__(self, workdir: str | os.PathLike, name: str, lease: float):
        self._workdir = pathlib.Path(workdir)
        self._name, self._lease = name, lease
        self._beat = max(0.1, min(lease / 6, 5.0))
        self._stop = 0

    def run(self) -> None:
        """Works until the search has ended.

        Raises:
          Interrupted: a signal came; the trial is saved and given back.
          InputError: another worker has this name.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._note)
        self._file = take_name(self._workdir, self._name, self._lease)
        self._claims = Claims(self._workdir, self._name, self._lease)
        self._unrecorded: list[str] = []
        record = self._claims.claim()
        while not self._stop:
            if record is not None:
                record = self._run(record)
            elif read_state(self._workdir).ended:
                self._record_ends()
                return
            else:
                self._record_ends()
                self._wait()
                record = self._claims.claim()
        self._record_ends()
        if record is not None:
            self._claims.release(record, "not begun")
        raise Interrupted(f"{signal.Signals(self._stop).name} received")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._stop = number

    def _run(self, record: TrialRecord) -> TrialRecord | None:
        """Runs a trial and records its end; returns the next one, claimed in the same step."""
        _log(f"trial {record.trial_id}: {record.values}")
        state = read_state(self._workdir)
        run = TrialRun(
            workdir=self._workdir,
            state=state,
            record=record,
            still_mine=lambda: self._still_mine(record),
            stop=lambda: bool(self._stop),
            beat=self._beat,
        )
        try:
            outcome = run.run()
        except TrialLostError as error:
            _log(f"trial {record.trial_id}: {error}")
            if error.mine:
                self._claims.release(record, str(error), lost=True)
            return None if self._stop else self._claims.claim()
        if outcome is None:
            self._claims.release(record, "saved; goes on when the search does")
            return None
        _log(f"trial {record.trial_id}: {outcome.state} {outcome.value} {outcome.reason}")
        counted, following = self._claims.end(record, outcome, claim_next=not self._stop)
        if counted:
            self._unrecorded.append(record.trial_id)
        return following

    def _record_ends(self) -> None:
        """best.py and TensorBoard's files, for which no trial has to wait: the next one trains meanwhile."""
        while self._unrecorded:
            record_end(self._workdir, self._unrecorded.pop())

    def _still_mine(self, record: TrialRecord) -> bool:
        self._record_ends()
        os.utime(self._file)
        return self._claims.still_mine(record)

    def _wait(self) -> None:
        """Returns when another worker changed the search, or one may have died."""
        path, look = state_path(self._workdir), _FIRST_LOOK
        seen, until = path.stat().st_mtime_ns, time.monotonic() + max(self._beat, 1.0)
        while not self._stop and time.monotonic() < until and path.stat().st_mtime_ns == seen:
            time.sleep(look)
            look = min(1.5 * look, _LONGEST_LOOK)
        os.utime(self._file)


def _log(line: str) -> None:
    """Adds a line to the worker's own log."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    log(f"{now} {line}")


# --------------------------------------------------------------------------------------------------
# Starts the workers of one machine, restarts those that die, and ends when the search has ended.


_LOOK_AT_WORKERS = 0.2  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # before a worker is started again
# A worker that dies so often without a trial in between has a fault that no restart mends.
_MOST_DEATHS = 6


@dataclasses.dataclass
class _Child:
    """One worker, and its process while it runs."""

    name: str
    cores: set[int]
    process: ForkProcess | None = None
    deaths: int = 0
    start_at: float = 0.0
    done: bool = False


class Supervisor:
    """The workers of one machine.

    Args:
      workdir: of the search, which was opened.
      names: of the workers; stable.
      watch: called several times a second, to tell what happens; returns how many trials have ended.
    """

    def __init__(
        self, workdir: pathlib.Path, names: list[str], lease: float, watch: Callable[[], int]
    ):
        self._workdir, self._lease, self._watch = workdir, lease, watch
        parts = share_cores(sorted(os.sched_getaffinity(0)), len(names))
        self._children = [_Child(name, cores) for name, cores in zip(names, parts, strict=True)]
        self._received = 0
        self._ended = 0
        self._refused = ""

    def run(self) -> None:
        """Returns when every worker has seen the end of the search.

        Raises:
          Interrupted: a signal came; all trials are saved.
          WorkerLostError: workers die again and again.
        """
        make_folder(self._workdir / "workers")
        _load_once()
        previous = {
            number: signal.signal(number, self._note)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        }
        try:
            while not all(child.done for child in self._children):
                self._reap()
                if self._received or self._refused:
                    self._stop_all()
                    break
                self._start_due()
                self._count_ends()
                time.sleep(_LOOK_AT_WORKERS)
        finally:
            self._kill_all()
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._refused:
            raise InputError(self._refused)
        if self._received:
            name = signal.Signals(self._received).name
            raise Interrupted(
                f"{name} received; every trial is saved: start the same command again to go on"
            )

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._received == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C: at once
        self._received = number

    def _start_due(self) -> None:
        for child in self._children:
            if not child.process and not child.done and time.monotonic() >= child.start_at:
                told = self._workdir, child.name, child.cores, self._lease, os.getpid()
                child.process = ForkProcess(target=_work, args=told)
                child.process.start()

    def _reap(self) -> None:
        for child in self._children:
            if child.process and (status := child.process.exitcode) is not None:
                child.process = None
                self._ended_with(child, status)

    def _ended_with(self, child: _Child, status: int) -> None:
        log = self._workdir / "workers" / f"{child.name}.log"
        if status == 0:
            child.done = True
        elif status == InputError.exit_status:
            self._refused = _last_complaint(log)
        elif not self._received:
            child.deaths += 1
            if child.deaths >= _MOST_DEATHS:
                raise WorkerLostError(
                    f"worker {child.name} ended {child.deaths} times, the last time with status {status}; see {log}"
                )
            pause = min(_FIRST_PAUSE * 2 ** (child.deaths - 1), _LONGEST_PAUSE)
            child.start_at = time.monotonic() + pause
            print(
                f"worker {child.name} ended with status {status}; starts again in {pause:g} s ({log})",
                file=sys.stderr,
            )

    def _count_ends(self) -> None:
        ended = self._watch()
        if ended > self._ended:
            self._ended = ended
            for child in self._children:
                child.deaths = 0

    def _stop_all(self) -> None:
        """Every worker has its trial saved, gives it back, and ends."""
        while any(child.process for child in self._children):
            for child in self._children:
                if child.process:  # again and again: one that just starts has not heard the first
                    child.process.terminate()
            time.sleep(_LOOK_AT_WORKERS)
            self._reap()

    def _kill_all(self) -> None:
        """Kills what still runs when this ends by an error or a second Ctrl-C; trials get SIGTERM from the kernel."""
        for child in self._children:
            if child.process:
                child.process.kill()
                child.process.join()


def share_cores(cores: list[int], num_workers: int) -> list[set[int]]:
    """The cores that each worker, and so its trial, may use: equal shares; one each in turn where there are too few."""
    if num_workers >= len(cores):
        return [{cores[i % len(cores)]} for i in range(num_workers)]
    limits = [i * len(cores) // num_workers for i in range(num_workers + 1)]
    return [set(cores[low:high]) for low, high in itertools.pairwise(limits)]


def _load_once() -> None:
    """Imports keras-tuner, and with it TensorFlow, before the workers are forked: they share it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    with standard_error_held_back():
        import tensorboard.plugins.hparams.summary
        import tensorboard.plugins.hparams.summary_v2
        import tensorboard.summary.writer.event_file_writer  # noqa: F401

        import tfmat.tuning.oracle  # noqa: F401


def _work(workdir: pathlib.Path, name: str, cores: set[int], lease: float, parent: int) -> None:
    """The work of a worker's process."""
    os.setsid()  # Ctrl-C is for the supervisor
    with open(workdir / "workers" / f"{name}.log", "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if not end_with_parent(parent):
        sys.exit(Interrupted.exit_status)
    os.sched_setaffinity(0, cores)
    try:
        Worker(workdir, name, lease).run()
    except TfmatError as error:
        print(f"tfmat: {printable(error)}", file=sys.stderr)
        sys.exit(error.exit_status)


def _last_complaint(log: pathlib.Path) -> str:
    """The last line that a worker ended with: a living one of the same name may write to the same log."""
    lines = log.read_text(errors="replace").splitlines()
    mark = "tfmat: "
    return next((line.removeprefix(mark) for line in lines[::-1] if line.startswith(mark)), "?")


# --------------------------------------------------------------------------------------------------
# A search from its config file to its results: what `tfmat tune` does.


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
      num_workers: side by side on this machine; they share its cores.
      first_worker: their names are this number and the following.

    Raises:
      InputError: the search was started with another definition; or too many trials failed.
      Interrupted: a signal came; every trial is saved.
    """
    folder = make_folder(workdir)
    claims = Claims(folder, lease=options.lease)
    state = claims.open(base, search, options)
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
            f"train with it: {summary.best_command}"
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


def _line(state: SearchState, trial_id: str, summary: SearchSummary) -> str:
    record = state.trials[trial_id]
    value = "" if record.value is None else f"  {summary.objective} {record.value:.4g}"
    best = "" if summary.best is None else f"  best {summary.best_value:.4g} ({summary.best})"
    number = state.end_order.index(trial_id) + 1
    of = "" if summary.max_trials is None else f"/{summary.max_trials}"
    left = "" if summary.seconds_left is None else f"  {clock_text(summary.seconds_left)} left"
    reason = f"  ({record.reason})" if record.reason and record.value is None else ""
    return f"{number}{of}  trial {trial_id} {record.state}{value}{reason}{best}{left}"

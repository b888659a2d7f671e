"""Runs one trial: an ordinary `tfmat train` (or another command) a seed, watched while it trains."""

import contextlib
import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tfmat.errors import DivergedError, InputError, Interrupted, WorkerLostError
from tfmat.files import check_json, is_locked, make_folder, read_json, write_json, write_text
from tfmat.launch.children import end_with_parent
from tfmat.tuning.claims import Outcome
from tfmat.tuning.definition import config_text
from tfmat.tuning.lock import Owner, is_dead, is_here, process
from tfmat.tuning.space import Search
from tfmat.tuning.state import DIVERGED, DONE, FAILED, STOPPED, SearchState, TrialRecord
from tfmat.tuning.stopping import Curve, hopeless, read_curve

_LOOK = 0.25  # seconds between two looks at what a trial has written
# Time to save after SIGTERM: the present block of steps, then the checkpoint, on a busy machine.
SECONDS_TO_SAVE = 120.0
_SECONDS_TO_HEAR = 2.0
# Of the step that a worker itself is a part of: a trial is no rank of it. mpirun and srun set them anew.
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
      workdir: of the search.
      state: of the search, when the trial was claimed.
      record: the trial.
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
        self.search = Search.from_json(self.state.definition)
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
                preexec_fn=_end_with_parent(os.getpid()),
            )
        write_json(self.folder / "process.json", process(process_.pid))
        try:
            reason = self._watch(process_, run_folder)
        finally:
            _kill_group(process_)
        return self._outcome(process_.returncode, reason, run_folder)

    def command(self, number: int) -> list[str]:
        """The command line of a seed's run, from 0."""
        options, folder = self.state.options, self.folder
        seed = self.state.base["seed"] + number
        run_folder = folder / f"seed-{number}"
        if options.get("trial_command"):
            places = {"config": folder / "config.py", "workdir": run_folder, "seed": seed}
            return [word.format(**places) for word in shlex.split(options["trial_command"])]
        return [
            *shlex.split(options.get("trial_launcher") or ""),
            *(sys.executable, "-m", "tfmat", "train"),
            f"--config={folder / 'config.py'}",
            f"--config.seed={seed}",
            f"--workdir={run_folder}",
            f"--data_dir={options['data_dir']}",
            f"--backend={options['backend']}",
            *(() if options.get("reports") else ("--report=false",)),
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
                process_.wait(_LOOK)
                return reason
            self._beat()
            if time.monotonic() > deadline:
                _kill_group(process_)
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
        return _run_state(run_folder) == "done"

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
                time.sleep(_LOOK / 5)
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


def _end_with_parent(parent: int) -> Callable[[], None]:
    """Called in the new process: it is sent SIGTERM, so that it saves, when its parent dies, however that dies."""

    def ask_kernel() -> None:
        if not end_with_parent(parent):
            os.kill(os.getpid(), signal.SIGTERM)

    return ask_kernel


def _kill_group(process_: subprocess.Popen) -> None:
    """Ends what is left of a trial's processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process_.pid, signal.SIGKILL)
    process_.wait()


def _run_state(run_folder: pathlib.Path) -> str:
    path = run_folder / "status.json"
    content = read_json(path) if path.exists() else {}
    return str(content.get("state", "")) if isinstance(content, dict) else ""


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

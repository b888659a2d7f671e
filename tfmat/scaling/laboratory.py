"""One way to measure: launches of processes take turns in rounds, and each answer is kept before the next one begins.

A `Launch` is a set of processes that start together and do what its `spec` says (worker.py). `measure` goes through
rounds of them. `run_locally` starts them here; slurm_launches.py has them run as jobs of a cluster.
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tfmat.console import log, progress_bar
from tfmat.errors import InputError
from tfmat.files import make_folder, read_json, write_json
from tfmat.launch.children import end_with_parent
from tfmat.launch.hosts import AS_ROOT, Host
from tfmat.launch.mpirun import mpirun_command
from tfmat.scaling.worker import SPEC, answer_file

LOG = "log.txt"
_LONGEST_LAUNCH, _TO_END = 1200.0, 10.0  # seconds
_LAST_LINES, _LONGEST_LOG = 20, 4000
# A variant that failed as often is not tried again before the command is given again.
_TRIALS = 2

Answers = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Launch:
    """Processes that are started together in one round.

    Attributes:
      name: for people; a launch of the same name in another round is a repetition.
      variant: what is measured without its batch; one that fails in two launches is given up.
      round: its number.
      folder: for its files; absolute.
      spec: what each process is told, as JSON; see worker.py.
      num_processes, nodes: how many, and over how many machines.
      processors, gpus: of each process, and of all of them.
      gloo: they are started by horovodrun.
      hosts: machines, each with the processes that mpirun may start there; none for this one.
      guess: seconds that it takes on a quiet machine.
    """

    name: str
    variant: str
    round: int
    folder: pathlib.Path
    spec: dict[str, Any]
    num_processes: int = 1
    nodes: int = 1
    processors: int = 1
    gpus: int = 0
    gloo: bool = False
    hosts: tuple[Host, ...] = ()
    guess: float = 15.0

    @property
    def answers(self) -> Answers | None:
        """What every process left; None where an answer is missing or broken."""
        try:
            return [read_json(answer_file(self.folder, i)) for i in range(self.num_processes)]
        except InputError:
            return None


# The launch, and why it failed with the end of its log; None where it did not.
Finished = Callable[[Launch, tuple[str, str] | None], None]
Run = Callable[[Sequence[Launch], Finished], None]


class Journal(Protocol):
    """Where results are kept."""

    def add(self, launch: Launch, answers: Answers) -> str:
        """Keeps a result; returns it in a line for people."""

    def leave_out(self, launch: Launch, reason: str, log: str) -> None:
        """Keeps a failure with the end of its log."""


def folder_name(round_number: int, name: str) -> str:
    """A launch's folder within that of all launches."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    return f"{round_number}-{plain}"[:120]


def launch_here(
    name: str, number: int, folder: pathlib.Path, program: str, processes: int = 1, **spec: Any
) -> Launch:
    """A launch of round `number` on this machine, each of whose processes has its share of the processors.

    Args:
      folder: of all launches.
      program: `module:function` that the processes call.
      spec: what else they are told; see worker.py.
    """
    each = 1 if processes > 1 else len(os.sched_getaffinity(0))
    told = {
        "program": program, "processors": each, "unbound": 0, "environment": {}, "watch": os.getpid(), **spec,
    }  # fmt: skip
    own = folder.resolve() / folder_name(number, name)
    return Launch(name, name, number, own, told, num_processes=processes, processors=each)


def measure(rounds: Sequence[Sequence[Launch]], run: Run, journal: Journal) -> int:
    """Runs what the rounds hold, one round after the other, and logs how each launch went.

    Args:
      rounds: launches in their order.
      run: starts launches and tells how each ended, see `run_locally`.
      journal: gets every result before the next launch begins.

    Returns:
      How many launches failed. Their folders stay.

    Raises:
      Interrupted, KeyboardInterrupt: what was measured until then is kept.
    """
    failed: list[str] = []
    left, began = _Left([launch for of_round in rounds for launch in of_round]), 0.0
    log(f"{left.total} launches, {left}")

    def finished(launch: Launch, failure: tuple[str, str] | None) -> None:
        nonlocal began
        try:
            line = _result(launch, failure, journal)
        except InputError as error:
            failed.append(launch.variant)
            line = f"failed: {error}; {launch.folder}"
        seconds, began = time.monotonic() - began, time.monotonic()
        done = left.ended(launch, seconds)
        rest = f"; {left}" if done < left.total else ""
        log(f"[{done}/{left.total}] {launch.name}: {line}{rest}")
        if show_progress:
            show_progress(done, left.total)

    with progress_bar("measuring") as show_progress:
        for of_round in rounds:
            ready = [each for each in of_round if failed.count(each.variant) < _TRIALS]
            left.drop([each for each in of_round if each not in ready])
            for launch in ready:
                _write_spec(launch)
            if ready:
                began = time.monotonic()
                run(ready, finished)
    return len(failed)


def _write_spec(launch: Launch) -> None:
    shutil.rmtree(launch.folder, ignore_errors=True)
    make_folder(launch.folder)
    write_json(launch.folder / SPEC, launch.spec)


def run_alone(launch: Launch) -> Answers:
    """What a launch answers that takes part in no rounds; InputError with the last line of its log where it fails."""
    _write_spec(launch)
    failure, answers = _run(launch), launch.answers
    if failure or answers is None:
        last = (failure or ("", ""))[1].splitlines()[-1:] or ["no word"]
        raise InputError(f"{last[0]}; see {launch.folder / LOG}")
    shutil.rmtree(launch.folder, ignore_errors=True)
    return answers


def _result(launch: Launch, failure: tuple[str, str] | None, journal: Journal) -> str:
    """The result in a line; InputError for a failure, which is kept."""
    if failure is None:
        answers = launch.answers
        try:
            if answers is None:
                raise InputError("not every process answered")
            line = journal.add(launch, answers)
        except (InputError, KeyError, TypeError, ValueError, IndexError) as error:
            failure = f"its answer cannot be used: {error}", ""
        else:
            shutil.rmtree(launch.folder, ignore_errors=True)
            return line
    journal.leave_out(launch, *failure)
    raise InputError(failure[0])


class _Left:
    """What is still to be run, and how long that takes: as guessed, in proportion to the launches that have ended."""

    def __init__(self, launches: Sequence[Launch]):
        self._launches, self.total = list(launches), len(launches)
        self._elapsed = self._guessed = 0.0

    def drop(self, launches: Sequence[Launch]) -> None:
        """These will not be run any more."""
        self._launches = [each for each in self._launches if each not in launches]

    def ended(self, launch: Launch, seconds: float) -> int:
        """A launch took that long; returns how many are no longer left."""
        self.drop([launch])
        self._elapsed += seconds
        self._guessed += launch.guess
        return self.total - len(self._launches)

    def __str__(self) -> str:
        ratio = self._elapsed / self._guessed if self._guessed else 1.0
        seconds = ratio * sum(launch.guess for launch in self._launches)
        return f"about {max(1, round(seconds / 60))} min left"


def worker_command(folder: pathlib.Path, python: str = sys.executable) -> tuple[str, ...]:
    """The command of one process."""
    return (python, "-P", "-m", "tfmat.scaling.worker", str(folder / SPEC))


def local_command(launch: Launch) -> list[str]:
    """The command of a launch, whose processes choose their processors themselves, whatever started them."""
    count, alone = launch.num_processes, list(worker_command(launch.folder))
    if count == 1:
        return alone
    if launch.gloo:
        # Under mpirun Horovod's Gloo crashes at its first broadcast (0.28.1).
        horovodrun = pathlib.Path(sys.executable).with_name("horovodrun")
        return [str(horovodrun), "--gloo", "-np", str(count), "-H", f"localhost:{count}", *alone]
    if launch.hosts:
        return mpirun_command(launch.hosts, alone, defaults={})
    return ["mpirun", "-np", str(count), "--oversubscribe", "--bind-to", "none", *alone]


def run_locally(launches: Sequence[Launch], finished: Finished) -> None:
    """Runs each in turn and says how it went; whatever ends this function ends its processes."""
    for launch in launches:
        finished(launch, _run(launch))


def _run(launch: Launch) -> tuple[str, str] | None:
    environment = {**os.environ, **AS_ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}
    path, parent = launch.folder / LOG, os.getpid()
    with path.open("wb") as log:
        process = subprocess.Popen(
            local_command(launch),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us, who end them in order
            # Processes of other machines cannot watch this one: mpirun ends them.
            preexec_fn=lambda: end_with_parent(parent),
        )
        try:
            status = process.wait(_LONGEST_LAUNCH)
        except subprocess.TimeoutExpired:
            return f"did not end within {_LONGEST_LAUNCH:.0f} s", end_of_log(path)
        finally:
            end(process)
    return (f"ended with status {status}", end_of_log(path)) if status else None


def end(process: subprocess.Popen) -> None:
    """Ends a process and all of its group; mpirun ends those that are its own."""
    for number, seconds in ((signal.SIGTERM, _TO_END), (signal.SIGKILL, _TO_END)):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def end_of_log(path: pathlib.Path) -> str:
    """The last lines of a log; empty where there is none."""
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LAST_LINES:])[-_LONGEST_LOG:]

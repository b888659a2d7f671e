"""Starts the workers of one machine, restarts those that die, and ends when the search has ended."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

from tfmat.console import printable
from tfmat.errors import InputError, Interrupted, TfmatError, WorkerLostError
from tfmat.files import make_folder
from tfmat.launch.children import end_with_parent
from tfmat.launch.runtime import standard_error_held_back
from tfmat.tuning.worker import Worker

_LOOK = 0.2  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # before a worker is started again
# A worker that dies so often without a trial in between has a fault that no restart mends.
_MOST_DEATHS = 6


@dataclasses.dataclass
class _Child:
    """One worker's process."""

    name: str
    cores: set[int]
    pid: int = 0
    deaths: int = 0
    start_at: float = 0.0
    done: bool = False


class Supervisor:
    """The workers of one machine.

    Args:
      workdir: of the search, which was opened.
      names: of the workers; stable.
      lease: see Worker.
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
                time.sleep(_LOOK)
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
            if not child.pid and not child.done and time.monotonic() >= child.start_at:
                child.pid = self._fork(child)

    def _fork(self, child: _Child) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_worker(self._workdir, child.name, child.cores, self._lease, parent)
        return pid

    def _reap(self) -> None:
        for child in self._children:
            if not child.pid:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                child.pid = 0
                self._ended_with(child, os.waitstatus_to_exitcode(status))

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
        while any(child.pid for child in self._children):
            for child in self._children:
                if child.pid:  # again and again: one that just starts has not heard the first
                    os.kill(child.pid, signal.SIGTERM)
            time.sleep(_LOOK)
            self._reap()

    def _kill_all(self) -> None:
        """What still runs when this ends by an error or a second Ctrl-C; its trials get SIGTERM from the kernel."""
        for child in self._children:
            if child.pid:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(child.pid, signal.SIGKILL)
                    os.waitpid(child.pid, 0)


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


def _become_worker(
    workdir: pathlib.Path, name: str, cores: set[int], lease: float, parent: int
) -> None:
    """Makes the fork a worker; never returns."""
    status = 1
    try:
        os.setsid()  # Ctrl-C is for the supervisor
        log = os.open(
            workdir / "workers" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
        )
        os.dup2(log, 1)
        os.dup2(log, 2)
        if not end_with_parent(parent):
            os._exit(Interrupted.exit_status)
        os.sched_setaffinity(0, cores)
        Worker(workdir, name, lease).run()
        status = 0
    except TfmatError as error:
        print(f"tfmat: {printable(error)}", file=sys.stderr)
        status = error.exit_status
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _last_complaint(log: pathlib.Path) -> str:
    """The last line that a worker ended with: a living one of the same name may write to the same log."""
    lines = log.read_text(errors="replace").splitlines()
    mark = "tfmat: "
    return next((line.removeprefix(mark) for line in lines[::-1] if line.startswith(mark)), "?")

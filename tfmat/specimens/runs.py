"""Runs of a user's simulation: started, stored, resumed."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import jinja2
import jinja2.meta
import msgspec
import numpy as np
from scipy.interpolate import PchipInterpolator

from tfmat.errors import InputError, nearest
from tfmat.files import (
    atomic_write,
    check_json,
    is_locked,
    locked,
    make_folder,
    read_json,
    write_error,
    write_json,
)
from tfmat.materials.law import Array
from tfmat.specimens.description import FUNCTIONS, Description, FailedRunError, read_curve

# --------------------------------------------------------------------------------------------------
# Programs that end at a limit of time, and with the process that started them, with all that they have started.


# The first member of the group: its input ends when this process does, also by SIGKILL. The signal at a parent's
# death (PR_SET_PDEATHSIG) would reach the program only, and commands of solvers are often scripts that start them.
_GUARD = "read -r line; kill -s KILL -- -$$"
# Seconds that a killed process is waited for; a file system that has fallen silent may hold it for longer.
_DYING = 1.0


async def run_program(*command: str, time_limit: float, **options: Any) -> int | None:
    """Runs a program in a process group of its own, which is ended with it, at the limit, and with this process.

    Args:
      time_limit: seconds.
      options: as `subprocess.Popen` takes them.

    Returns:
      The exit status, minus the number of the signal that ended the program; None at the limit of time.
    """
    theirs, ours = os.pipe()
    members: list[subprocess.Popen[bytes]] = []
    try:
        # Not asyncio's processes: cancelled while they start, they are reaped twice, and it complains on the screen.
        guard = subprocess.Popen(
            ["sh", "-c", _GUARD],
            stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        members.append(guard)
        members.append(subprocess.Popen(command, process_group=guard.pid, **options))
        # Not `wait_for`, which swallows a cancellation that comes when the program has just ended.
        async with asyncio.timeout(time_limit):
            return await _status(members[-1])
    except TimeoutError:
        return None
    finally:
        os.close(theirs)
        os.close(ours)
        if members:
            # Nobody has waited for the guard yet, so its number is still the group's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(members[0].pid, signal.SIGKILL)
        # Not awaited: a cancellation that comes now would leave them to nobody.
        for process in members:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_DYING)


async def _status(process: subprocess.Popen[bytes]) -> int:
    """The exit status, when a process has ended: a hundredth of its time later at most, and no more than 50 ms."""
    clock = asyncio.get_running_loop().time
    started = clock()
    while (status := process.poll()) is None:
        await asyncio.sleep(min(max((clock() - started) / 100, 0.001), 0.05))
    return status


# --------------------------------------------------------------------------------------------------
# One run of a solver: strict templates, a fresh folder, a limit of time that ends all of its processes.


# Goes up where the same run would give another curve, so that stored ones are not taken for it.
_FORM = 1
LOG = "log.txt"
# Points of a curve, which are dense where the strain is small, as knees are.
_POINTS, _SPACING = 401, 2.0
# Characters of the log that a failed run keeps.
_KEPT = 2000
_VERSION_PATIENCE = 60.0  # seconds
# Seconds within which a process hears that its job ends, where a program of the job was told first.
_END_OF_JOB = 2.0
# Statuses of a program that was told, and of a script whose program was.
_TOLD_TO_END = [
    status
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    for status in (-number, 128 + number)
]


@dataclasses.dataclass(frozen=True)
class Deck:
    """The input of one run.

    Attributes:
      values: everything drawn, and the constants.
      texts: file name -> content, the templates filled in.
      key: 16 hexadecimal digits that two runs share where their files, command, solver and reading are the same.
    """

    values: Mapping[str, float]
    texts: Mapping[str, str]
    key: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run: its curve, nominal strain (-) and stress (MPa), each [points]; or why there is none.

    Attributes:
      seconds: that the run took.
      failure: one line; empty where the curve is there.
      log: the end of what the solver printed, of a failed run.
    """

    seconds: float
    strain: Array | None = None
    stress: Array | None = None
    failure: str = ""
    log: str = ""

    def curve(self, end: float | None = None) -> tuple[Array, Array]:
        """Strain and stress, [points] each, from zero to `end`, or to the run's end; only where there is a curve.

        Between the increments of a run its curve bends: cubics that keep to its rises and falls (Fritsch and Butland
        1984) are nearer than lines, which cut its knee.
        """
        assert self.strain is not None and self.stress is not None
        last = float(self.strain[-1]) if end is None else end
        strain = last * np.linspace(0.0, 1.0, _POINTS) ** _SPACING
        return strain, np.asarray(PchipInterpolator(self.strain, self.stress)(strain))


class Solver:
    """Fills in the decks of a description and runs them."""

    def __init__(self, description: Description):
        """Raises InputError where templates and values do not fit, or the command is not there."""
        self.description = description
        self._environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
        )
        self._sources = {
            name: (description.folder / name).read_text("utf-8") for name in description.templates
        }
        self._command = (_program(description), *description.command[1:])
        self._templates = {
            name: self._template(name, source) for name, source in self._sources.items()
        }
        self._check_names()
        self._same = self._what_is_the_same()

    def deck(self, drawn: Array) -> Deck:
        """The deck of one run.

        Args:
          drawn: [drawn], the values in the order of `Description.drawn`.

        Raises:
          InputError: `derive` failed, or a template does.
        """
        description, values = self.description, self._values(drawn)
        names = {**values, **self._derived(values), "threads": description.threads}
        texts = {}
        for name, template in self._templates.items():
            try:
                texts[name] = template.render(names)
            except Exception as error:
                raise InputError(f"{description.folder / name}: {error}") from error
        # Values count only as the files have them, unless a function reads them.
        read = values if description.parse else {}
        content = json.dumps([_FORM, self._same, texts, read], sort_keys=True)
        return Deck(values, texts, hashlib.sha256(content.encode()).hexdigest()[:16])

    async def run(self, deck: Deck, folder: pathlib.Path) -> Outcome:
        """Runs a deck in a fresh folder inside of `folder`, which is gone afterwards, however this ends."""
        clock = asyncio.get_running_loop().time
        started = clock()
        place = pathlib.Path(tempfile.mkdtemp(prefix=f"{deck.key}-", dir=folder))
        try:
            try:
                self._write(deck, place)
            except OSError as error:
                raise write_error(place, error) from error
            failure = await self._execute(place)
            if not failure:
                try:
                    strain, stress = read_curve(self.description, place, deck.values)
                    return Outcome(clock() - started, strain, stress)
                except FailedRunError as error:
                    failure = str(error)
            return Outcome(clock() - started, failure=failure, log=_end_of(place / LOG))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _values(self, drawn: Array) -> dict[str, float]:
        names = [parameter.name for parameter in self.description.drawn]
        return dict(zip(names, map(float, drawn), strict=True)) | self.description.constants

    def _write(self, deck: Deck, place: pathlib.Path) -> None:
        for name, text in deck.texts.items():
            (place / name).write_text(text, "utf-8")
        for name in self.description.files:
            shutil.copy2(self.description.folder / name, place / name)

    async def _execute(self, place: pathlib.Path) -> str:
        """Runs the command; why it failed, or nothing."""
        description = self.description
        threads = str(description.threads)
        with (place / LOG).open("w+b") as log, tempfile.TemporaryFile() as errors:
            status = await run_program(
                *self._command,
                time_limit=description.time_limit,
                cwd=place,
                env={**os.environ, "OMP_NUM_THREADS": threads, **description.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
            )
            # A program's buffers would bring its last words before its errors.
            log.seek(0, os.SEEK_END)
            errors.seek(0)
            shutil.copyfileobj(errors, log)
        if status is None:
            return f"not finished after {description.time_limit:g} s"
        if status:
            if status in _TOLD_TO_END:
                # The end of a job reaches all of its processes. Then this one is cancelled here, and nothing is kept.
                await asyncio.sleep(_END_OF_JOB)
            if status < 0:
                return f"ended by {signal.Signals(-status).name}"
            return f"exit status {status}"
        text = (place / LOG).read_text("utf-8", errors="replace")
        if description.finished and description.finished not in text:
            return f"did not print '{description.finished}'"
        return ""

    def _template(self, name: str, source: str) -> jinja2.Template:
        try:
            return self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise InputError(
                f"{self.description.folder / name}, line {error.lineno}: {error.message}"
            ) from error

    def _check_names(self) -> None:
        """An unknown or an unused name is refused before anything runs."""
        description = self.description
        middle = self._values(description.middle)
        derived = self._derived(middle)
        known = {*middle, *derived, "threads"}
        used: set[str] = set()
        for name, source in self._sources.items():
            names = jinja2.meta.find_undeclared_variables(self._environment.parse(source))
            for wanted in sorted(names - known):
                raise InputError(
                    f"{description.folder / name} wants '{wanted}', which nothing gives{nearest(wanted, known)}"
                )
            used |= names
        # A value that `derive` or `parse` takes may stand in no template: what they read cannot be seen.
        taken = set(middle) if description.derive or description.parse else set()
        for name in sorted((set(middle) | set(derived)) - used - taken):
            raise InputError(
                f"no template uses '{name}'; write {{{{ {name} }}}} into one of "
                f"{', '.join(description.templates)}, or leave it out"
            )

    def _derived(self, values: Mapping[str, float]) -> dict[str, object]:
        derive = self.description.derive
        if derive is None:
            return {}
        path = self.description.folder / FUNCTIONS
        try:
            found = dict(derive(dict(values)))
        except Exception as error:
            at = ", ".join(f"{name}={value:g}" for name, value in values.items())
            raise InputError(
                f"{path}: derive: {type(error).__name__}: {error} (at {at})"
            ) from error
        for name in found:
            if name in values or name == "threads":
                raise InputError(f"{path}: derive gives '{name}' anew; call it otherwise")
        return found

    def _what_is_the_same(self) -> dict[str, object]:
        """All that runs share and that decides their curves."""
        description = self.description
        files = {
            name: hashlib.sha256((description.folder / name).read_bytes()).hexdigest()
            for name in description.files
        }
        if description.parse:
            content = (description.folder / FUNCTIONS).read_bytes()
            files[FUNCTIONS] = hashlib.sha256(content).hexdigest()
        return {
            "command": description.command,
            "files": files,
            "environment": description.environment,
            "version": self._version(),
            "curve": msgspec.structs.asdict(description.curve),
            "threads": description.threads,
        }

    def _version(self) -> str:
        command = self.description.version
        if not command:
            return ""
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_VERSION_PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                f"the command `{' '.join(command)}` for the version: {error}"
            ) from error
        return done.stdout + done.stderr


def _program(description: Description) -> str:
    """The command's first word as a path: a file of the folder, or a program."""
    name = description.command[0]
    own = description.folder / name
    if pathlib.PurePath(name).name == name and own.is_file() and os.access(own, os.X_OK):
        return str(own)
    found = shutil.which(name)
    if found is None:
        hint = "; apt-get install calculix-ccx brings CalculiX" if name == "ccx" else ""
        if " " in name:
            hint = f"; each argument stands by itself: {json.dumps(name.split())}"
        raise InputError(
            f"{description.folder}: the command '{name}' is no program here and no executable file of the folder{hint}"
        )
    return found


def _end_of(path: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text("utf-8", errors="replace")[-_KEPT:]
    return ""


# --------------------------------------------------------------------------------------------------
# The stored runs of a simulator, and who makes which of them: one process all, or several workers a share each.


RUNS, _RUNNING, _FIRST = "runs", "running", "first"
# A failure on a disk with less than this is the disk's, not the model's: bytes.
_LEAST_SPACE = 50_000_000


@dataclasses.dataclass(frozen=True)
class Share:
    """The share of one of several workers: every `workers`-th run from number `worker` on, however many there are."""

    worker: int
    workers: int

    @property
    def folder(self) -> str:
        """The name of the folder in which its runs have theirs."""
        return f"{self.worker}_of_{self.workers}"

    def numbers(self, num_runs: int) -> range:
        """Numbers of its runs, of the runs 0 to `num_runs` - 1."""
        return range(self.worker, num_runs, self.workers)


@dataclasses.dataclass(frozen=True)
class FailedRun:
    """The stored record of a run without a curve."""

    failure: str
    log: str
    seconds: float
    values: dict[str, float]


class Store:
    """The runs of one simulator on disk, by the key of their deck: a curve, or why there is none.

    A maker of runs holds the lock of the folder, alone or, with a share, beside other workers. Each worker also holds
    the lock of its share. A process loses its locks however it ends, so that what a dead one left can be told and
    removed.
    """

    def __init__(self, folder: pathlib.Path, description: Description):
        self._folder = make_folder(folder / RUNS)
        self._running = make_folder(folder / _RUNNING)
        self._name = description.name

    @contextlib.contextmanager
    def held(self, share: Share | None = None) -> Iterator[pathlib.Path]:
        """Nobody else runs what this process runs; yields the folder in which each run has its own.

        Args:
          share: what is to be run; None for anything, with no other process beside this one.

        Raises:
          InputError: another process runs this simulator, and not a share of as many.
        """
        if share is None:
            with locked(self._folder.parent, busy(self._name, self._folder.parent)):
                _clear(self._running)
                yield self._running
            return
        with self._part(share.folder, f"share {share.worker} of {share.workers}") as place:
            # Each locks its own before it looks at the others, so that one of two sees the other.
            for other in sorted(self._running.glob("*_of_*")):
                workers = int(re.sub(r".*_of_", "", other.name))
                if workers != share.workers and is_locked(other):
                    raise InputError(
                        f"another worker makes a share of {workers} of {self._name}, which is not one of "
                        f"{share.workers}; give --num_workers={workers}, or end it first"
                    )
            yield place

    @contextlib.contextmanager
    def held_for_first(self, share: Share | None) -> Iterator[tuple[pathlib.Path, bool]]:
        """As `held`, for the run in the middle, which all workers want: one makes it, and the others wait.

        Yields:
          The folder in which the run has its own; whether another worker was at it just now.
        """
        if share is None:
            with self.held() as place:
                yield place, False
            return
        waits = is_locked(self._running / _FIRST)
        with self._part(_FIRST, "the run in the middle of the ranges") as place:
            yield place, waits

    @contextlib.contextmanager
    def _part(self, name: str, told: str) -> Iterator[pathlib.Path]:
        """The lock of a folder in `running`, beside others; only what a dead owner left in it is removed."""
        store = self._folder.parent
        with locked(store, busy(self._name, store), shared=True) as has_locks:
            if not has_locks:
                raise InputError(
                    f"the file system of {store} has no locks, by which workers know of each other; choose another "
                    "--data_dir, or leave out --num_workers"
                )
            place = self._running / name
            with locked(place, f"another process makes {told} of {self._name}; waiting", wait=True):
                _clear(place)
                yield place

    def find(self, deck: Deck) -> Outcome | None:
        """The outcome of a run; None where it was not made yet."""
        curve, failed = self._folder / f"{deck.key}.npz", self._folder / f"{deck.key}.json"
        if curve.is_file():
            return load(curve)
        if failed.is_file():
            one = check_json(read_json(failed), FailedRun, failed)
            return Outcome(one.seconds, failure=one.failure, log=one.log)
        return None

    def keep(self, deck: Deck, outcome: Outcome) -> None:
        """Stores what came of a run; InputError where the disk is full, also where that is why the run failed."""
        failed = self._folder / f"{deck.key}.json"
        if not outcome.failure:
            save(self._folder / f"{deck.key}.npz", outcome)
            failed.unlink(missing_ok=True)
            return
        free = shutil.disk_usage(self._folder).free
        if free < _LEAST_SPACE:
            raise InputError(
                f"a run failed ({outcome.failure}) with {free // 1_000_000} MB left on the disk of {self._folder}; "
                "free some space, and the same command goes on"
            )
        one = FailedRun(outcome.failure, outcome.log, outcome.seconds, dict(deck.values))
        write_json(failed, dataclasses.asdict(one))


def save(path: pathlib.Path, outcome: Outcome) -> None:
    """Writes a run's curve, whole or not at all; see `load`."""
    assert outcome.strain is not None and outcome.stress is not None
    with atomic_write(path) as file:
        np.savez(
            file, strain=outcome.strain, stress=outcome.stress, seconds=np.array(outcome.seconds)
        )


def load(path: pathlib.Path) -> Outcome:
    """The curve of a run; InputError where the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Outcome(float(file["seconds"]), file["strain"], file["stress"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} is damaged ({error}); delete it, and its run comes again"
        ) from error


def busy(name: str, folder: pathlib.Path) -> str:
    """The line for who finds another process at the runs of a simulator."""
    return f"another process, here or in a job, runs {name} in {folder}; wait for it or end it"


def _clear(folder: pathlib.Path) -> None:
    """Removes the folders of runs that a killed process left; the lock beside them stays."""
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)

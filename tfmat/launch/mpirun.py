"""Runs under mpirun: hosts, starts, and starts again where a host is lost."""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import datetime
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import psutil

from tfmat.console import clock_text
from tfmat.errors import DivergedError, InputError, Interrupted, WorkerLostError
from tfmat.files import check_json, is_locked, make_folder, read_json, write_json
from tfmat.launch.processes import WORKER_TIMEOUT
from tfmat.launch.watchdog import AGAIN, name_ranks, write_line

# --------------------------------------------------------------------------------------------------
# Processes that this one started, and theirs: none of them outlives it.


# _PR_SET_PDEATHSIG: number of prctl(2), linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_LONGEST = 3.0  # seconds for the kernel to end what was killed
# _LOOK_AT_KILLED: seconds between looks at what was killed.
_LOOK_AT_KILLED = 0.05


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> bool:
    """Asks the kernel for a signal when this process's parent dies, however that dies; whether it still lives."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def end_session(leader: int, grace: float) -> None:
    """Ends a session on this machine: SIGTERM first, after `grace` seconds SIGKILL; 0 for SIGKILL alone.

    All that a program begins is of the session that it leads, also where its own parent has died, unless it begins
    another one.
    """
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _LONGEST)):
        if not seconds:
            continue
        deadline, told = time.monotonic() + seconds, set[int]()
        while members := _members(leader):
            for pid in members - told:  # a new one may have been begun since
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= members
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_AT_KILLED)


def _members(leader: int) -> set[int]:
    """Living processes of the session."""
    members = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.add(pid)
    return members


# --------------------------------------------------------------------------------------------------
# The hosts of a run as `mpirun -H` takes them, and which of them answer through the agent that mpirun uses.


# Open MPI's setting for what starts its daemons on other hosts, and what it tries where nobody set it.
AGENT, _DEFAULT_AGENT = "OMPI_MCA_plm_rsh_agent", "ssh : rsh"
PATIENCE = 5.0  # seconds in which a host answers a probe
# Root may be all that a container has.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclasses.dataclass(frozen=True)
class Host:
    """A host and the number of ranks that it takes."""

    name: str
    slots: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, which mpirun starts ranks on without an agent."""
        here = socket.gethostname()
        return self.name in (
            "localhost",
            "127.0.0.1",
            here,
            here.partition(".")[0],
            socket.getfqdn(),
        )


def parse_hosts(text: str) -> tuple[Host, ...]:
    """`server1:4,server2:4`, as `mpirun -H` takes it; a host without a number takes one rank.

    Raises:
      InputError: another form, or a host that stands there twice.
    """
    hosts = []
    for word in text.split(","):
        match = re.fullmatch(r"([A-Za-z0-9_][\w.\-]*)(?::([0-9]{1,6}))?", word.strip(), re.ASCII)
        if not match or (match[2] is not None and not int(match[2])):
            raise InputError(
                f"--hosts={text}: '{word}' is no host with its number of ranks; write server1:4,server2:4"
            )
        hosts.append(Host(match[1], int(match[2] or 1)))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--hosts={text} names {name} twice; give the sum of its ranks once")
    return tuple(hosts)


def count_ranks(hosts: Iterable[Host]) -> int:
    """Ranks of all of them."""
    return sum(host.slots for host in hosts)


def ranks_text(hosts: Sequence[Host]) -> str:
    """`6 ranks on server1:4,server2:2`."""
    count = count_ranks(hosts)
    return f"{count} rank{'' if count == 1 else 's'} on {','.join(map(str, hosts))}"


def agent_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The words that start a command on another host, before the host's name; [] where there is no such program.

    As for mpirun the setting may name several programs between colons, of which the first that is there holds.
    """
    for choice in environment.get(AGENT, _DEFAULT_AGENT).split(":"):
        words = shlex.split(choice)
        if words and shutil.which(words[0]):
            # A probe has nobody who could type a password.
            batch = ["-o", "BatchMode=yes"] if pathlib.Path(words[0]).name == "ssh" else []
            return words + batch
    return []


def missing_hosts(hosts: Sequence[Host]) -> dict[Host, str]:
    """The hosts that cannot take ranks now, with the reason; all are asked at once, silent ones for `PATIENCE` seconds.

    A host is there when it answers through mpirun's agent, has this Python and the present folder, and mpirun starts a
    program on it. A host without Open MPI, or one that cannot connect back, would end every start of all.
    """
    far = [host for host in hosts if not host.is_local]
    if not far:
        return {}
    with concurrent.futures.ThreadPoolExecutor(min(32, len(far))) as pool:
        found = zip(far, pool.map(_what_is_wrong, far), strict=True)
        return {host: why for host, why in found if why}


def _what_is_wrong(host: Host) -> str:
    """Why a host cannot take ranks; "" where it can."""
    agent = agent_command()
    if not agent:
        return f"there is no {os.environ.get(AGENT, _DEFAULT_AGENT)} to reach it by"
    here, python = shlex.quote(os.getcwd()), shlex.quote(sys.executable)
    status = _ask([*agent, host.name, f"test -d {here} && test -x {python}"])
    if status is None:
        return f"no answer within {PATIENCE:g} s"
    if status == 1:
        return f"it has no folder {os.getcwd()} or no {sys.executable}"
    if status:
        return f"{agent[0]} ended with status {status}"
    if _ask(["mpirun", "-np", "1", "-H", str(Host(host.name)), "true"]) != 0:
        return "it answers, but mpirun starts nothing on it"
    return ""


def _ask(command: Sequence[str]) -> int | None:
    """The exit status of a command, of which nothing is shown; None where it takes longer than `PATIENCE`."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **AS_ROOT},
            start_new_session=True,  # Ctrl-C is for this process
        )
    except OSError:
        return 127  # as a shell says that there is no such program
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        # An agent may be a script, and ssh may have a proxy: with each probe of a lost host one more would stay.
        end_session(process.pid, grace=0)
        process.wait()
        return None


# --------------------------------------------------------------------------------------------------
# The history of a run that is started again where it fails: what was lost, and how much of the time was training.


FILE = "restarts.json"
# FORMAT: version of that file.
FORMAT = 1


class Incident(msgspec.Struct, omit_defaults=True):
    """One interruption of the training.

    Attributes:
      time: UTC, ISO 8601.
      kind: `loss` or `hosts back`.
      cause: one line.
      step: from which it goes on.
      ranks: with which; none where nothing was started again.
      seconds: from when it was noticed to the end of the first block of steps after it, if training went on.
    """

    time: str
    kind: str
    cause: str
    hosts_lost: list[str]
    step: int | None = None
    ranks: int | None = None
    seconds: float | None = None


class _Record(msgspec.Struct):
    format: int
    wall_seconds: float
    productive_seconds: float
    incidents: list[Incident]


class History:
    """`restarts.json` of a run folder. It goes on where the same run is started once more by hand.

    `wall_seconds` counts from each start of the launcher until the training ends. `productive_seconds` is the part in
    which steps were done, validated and saved that no loss undid. The start of the ranks, the first call of a step,
    which compiles it, and steps since the last checkpoint before a loss are no part of it. Their ratio is the effective
    training time ratio (ETTR) of Kokolis et al. 2024, arXiv:2410.21680.

    Raises:
      InputError: the file is damaged.
    """

    def __init__(self, folder: pathlib.Path):
        self._path = folder / FILE
        self._record = _Record(FORMAT, 0.0, 0.0, [])
        if self._path.exists():
            self._record = check_json(read_json(self._path), _Record, self._path)
        self._wall, self._productive = self._record.wall_seconds, self._record.productive_seconds
        self._first = len(self._record.incidents)

    def count(self, wall: float, productive: float) -> None:
        """Sets the seconds since this launcher was started, and writes the file."""
        self._record.wall_seconds = round(self._wall + wall, 3)
        self._record.productive_seconds = round(self._productive + productive, 3)
        write_json(self._path, {**msgspec.structs.asdict(self._record), "ettr": self.ettr})

    def add(self, kind: str, cause: str, hosts_lost: Sequence[str] = ()) -> Incident:
        """A new incident, which the caller completes as it becomes known what came of it."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._record.incidents.append(Incident(now, kind, cause, list(hosts_lost)))
        return self._record.incidents[-1]

    @property
    def grew(self) -> bool:
        """Whether there are incidents of this launcher."""
        return len(self._record.incidents) > self._first

    @property
    def ettr(self) -> float:
        """Effective training time ratio, 0 to 1; to four digits, so that all who round it further say the same."""
        wall = self._record.wall_seconds
        return round(min(1.0, self._record.productive_seconds / wall), 4) if wall else 0.0

    def summary(self) -> str:
        """One line: how often, and how much of the time was training."""
        record = self._record
        incidents = record.incidents
        losses = sum(incident.kind == "loss" for incident in incidents)
        back = len(incidents) - losses
        times = sorted(round(each.seconds) for each in incidents if each.seconds is not None)
        after = (
            f", training went on after {' to '.join(map(str, dict.fromkeys((times[0], times[-1]))))} s"
            if times
            else ""
        )
        productive, wall = map(clock_text, (record.productive_seconds, record.wall_seconds))
        return (
            f"{losses} loss{'' if losses == 1 else 'es'} of ranks or hosts, "
            f"{back} return{'' if back == 1 else 's'} of hosts{after}; training {productive} of {wall}: "
            f"effective training time ratio (ETTR) {self.ettr:.3f}; see {self._path}"
        )


# --------------------------------------------------------------------------------------------------
# One `mpirun` and its ranks: started on given hosts, asked to save, ended; and what it says when ranks are lost.


# Variables that a shell hands on to programs on its own machine; mpirun hands them on to other hosts where named.
_HANDED_ON = re.compile(
    r"PATH|LD_LIBRARY_PATH|VIRTUAL_ENV|XDG_CACHE_HOME|(PYTHON|TFMAT_|HOROVOD_|NCCL_|TF_|XLA_|KERAS_|OMP_)\w+"
)
# A false alarm costs one start here, so that it may come sooner than elsewhere.
_DEFAULTS = {WORKER_TIMEOUT: "5"}
# mpirun's own words, from the surest on; the first group is told.
_OWN_WORDS = tuple(
    map(
        re.compile,
        (
            r"mpirun noticed that (process rank \d+ .* exited on .*)",
            r"(ORTE has lost communication with a remote daemon)",
            r"(ORTE was unable to reliably start one or more daemons)",
            r"(There are not enough slots available .*)",
            r"(mpirun (?:was unable|could not) .*)",
        ),
    )
)
_LOST = re.compile(r" (?:was|were) lost \(host ")  # of `describe` in tfmat.launch.watchdog
# Seconds for mpirun to end after a loss, and after any other last words of a rank, which ends more slowly.
_SILENT, _DEAD, _FAILED = 1.0, 6.0, 20.0
_LONGEST_LINE = 65536
_LOOK_AT_HOSTS = 0.1  # seconds between two looks


def check_mpirun() -> None:
    """InputError where there is no mpirun, before anything is made."""
    if shutil.which("mpirun") is None:
        raise InputError(_NO_MPIRUN.format("No such file or directory"))


def mpirun_command(
    hosts: Sequence[Host],
    command: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    defaults: Mapping[str, str] = _DEFAULTS,
) -> list[str]:
    """The command line that starts `command` on every slot of the hosts, rank by rank in their order. Pure.

    Variables of the environment that concern Python and its libraries go to the ranks, and `defaults` where there are
    none.
    """
    handed_on = sorted(name for name in {**defaults, **environment} if _HANDED_ON.fullmatch(name))
    return [
        "mpirun", "-np", str(count_ranks(hosts)), "-H", ",".join(map(str, hosts)),
        # Bound to one processor, a rank's threads would wait for each other.
        "--bind-to", "none", "--map-by", "slot",
        *(word for name in handed_on for word in ("-x", name)),
        *command,
    ]  # fmt: skip


_NO_MPIRUN = "mpirun cannot be started ({}); `tfmat doctor` says how to get it"


class Launch:
    """A running mpirun, whose standard error is shown as it comes; InputError where there is none.

    Attributes:
      lost_at: when a rank said its last words, on the monotonic clock; None before.
      deadline: when mpirun should have ended because of that; it waits forever for a host that is silent.
    """

    def __init__(self, hosts: Sequence[Host], command: Sequence[str]):
        parent = os.getpid()

        def follow_parent() -> None:
            # However this process ends, mpirun hands the signal on, so that the ranks save and end.
            if not end_with_parent(parent, signal.SIGUSR1):
                os._exit(1)

        readable, writable = os.pipe()
        try:
            self._process = subprocess.Popen(
                mpirun_command(hosts, command),
                env={**_DEFAULTS, **os.environ, **AS_ROOT},
                stdin=subprocess.DEVNULL,
                stderr=writable,
                # After ten lines that nobody can read mpirun kills the ranks: it holds this end of the pipe too, so
                # that they save in peace where this process was killed.
                pass_fds=(readable,),
                start_new_session=True,  # Ctrl-C is for this process, which lets the ranks save
                preexec_fn=follow_parent,
            )  # fmt: skip
        except OSError as error:
            os.close(readable)
            raise InputError(_NO_MPIRUN.format(error.strerror)) from error
        finally:
            os.close(writable)
        self.lost_at: float | None = None
        self.deadline = math.inf
        self._last_words = self._own_words = ""
        self._relay = threading.Thread(target=self._show, args=(readable,), daemon=True)
        self._relay.start()

    def wait(self, seconds: float) -> int | None:
        """The exit status, as a shell counts it, or None where it runs on after so many seconds."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return 128 - status if status < 0 else status

    def wait_for_save(self, seconds: float) -> int | None:
        """As `wait`, but not for a host that falls silent meanwhile: its ranks never save."""
        until = time.monotonic() + seconds
        while (status := self.wait(_LOOK_AT_HOSTS)) is None:
            if time.monotonic() > min(until, self.deadline):
                break
        return status

    def save(self) -> None:
        """Asks the ranks to save and to end with status 75; mpirun hands the signal on."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def end(self, grace: float = 3.0, cause: str = "") -> int:
        """Ends it and whatever it left behind on this machine; returns the exit status.

        `cause` says why, where neither ranks nor mpirun have. On other hosts Open MPI's daemons end their ranks when
        they lose mpirun, and ranks when they lose each other.
        """
        self._own_words = self._own_words or cause
        end_session(self._process.pid, grace)
        status = self._process.wait()
        return 128 - status if status < 0 else status

    @property
    def cause(self) -> str:
        """Why it ended, in one line: a rank's last words, else mpirun's, else its exit status."""
        self._relay.join(0.5)
        status = self._process.returncode
        return self._last_words or self._own_words or f"mpirun ended with status {status}"

    def _show(self, readable: int) -> None:
        with open(readable, "rb") as errors:
            while line := errors.readline(_LONGEST_LINE):
                self._hear(line.decode(errors="replace"))

    def _hear(self, text: str) -> None:
        write_line(text)
        said = text.strip()
        if said.startswith("tfmat: ") and not self._last_words:
            self._last_words = said.removeprefix("tfmat: ").removesuffix(f"; {AGAIN}")
            self.lost_at = time.monotonic()
            # Whatever the words are, a host may have fallen silent: before the ranks met, say.
            told = _SILENT if "no heartbeat" in said else _DEAD
            self.deadline = self.lost_at + (told if _LOST.search(said) else _FAILED)
        if not self._own_words:
            found = next(filter(None, (words.search(said) for words in _OWN_WORDS)), None)
            self._own_words = found[1].rstrip(".") if found else ""


# --------------------------------------------------------------------------------------------------
# A training that is started again by itself where ranks or hosts are lost, and goes on with those that are left.
#
# Each start is an ordinary `mpirun … tfmat train …`, which goes on from the last checkpoint of the run's folder. A
# start that ends in any other way than done, refused, diverged or interrupted is a loss: hosts that do not answer any
# more are left out, and the rest starts at once. While hosts are missing they are asked again and again; when one is
# back, the ranks save, and all start again with it.


_LOOK = 0.2  # seconds between two looks
_TO_SAVE = 120.0  # seconds: the present block of steps, then the checkpoint, on a busy machine
_LONGEST_PAUSE = 30.0  # seconds before a start that follows several without progress
_REFUSED = (InputError.exit_status, DivergedError.exit_status)
_SAVED = (Interrupted.exit_status, 138)  # the latter: asked by SIGUSR1 before it could take signals


@dataclasses.dataclass(frozen=True)
class Policy:
    """How long a run is started again.

    Attributes:
      min_ranks: with fewer nothing is started.
      restarts: how often it is started again without a new checkpoint in between.
      probe_every: seconds between two questions to a host that is missing.
      wait_for_hosts: seconds to wait where the hosts that answer have fewer than `min_ranks` ranks.
    """

    min_ranks: int = 1
    restarts: int = 5
    probe_every: float = 30.0
    wait_for_hosts: float = 600.0


@dataclasses.dataclass(frozen=True)
class RunState:
    """Where a run stands, as its folder tells.

    Attributes:
      start: a number that grows with every start that found an earlier one.
      under_way: the run's clock (seconds) after the first block of steps of this start; None before that.
      over: whether nothing trains any more.
    """

    start: int = 0
    under_way: float | None = None
    over: bool = False


class Restarts:
    """The supervisor of one run, on hosts in the order of the ranks; InputError where its history is damaged.

    `saved` tells the step of the newest checkpoint and the run's clock (seconds) in it; zeros where there is none.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        command: Sequence[str],
        policy: Policy,
        folder: pathlib.Path,
        state: Callable[[], RunState],
        saved: Callable[[], tuple[int, float]],
        log: Callable[[str], None],
    ):
        self._hosts, self._command, self._policy = tuple(hosts), command, policy
        self._folder, self._log = make_folder(folder), log
        self._state, self._saved = state, saved
        self._history = History(self._folder)
        self._missing: Mapping[Host, str] = {}
        self._used: tuple[Host, ...] = ()
        self._incident: Incident | None = None  # until training goes on
        self._noticed_at = 0.0
        self._under_way: float | None = None
        self._over_at: float | None = None
        self._asked: concurrent.futures.Future[Mapping[Host, str]] | None = None
        self._productive = 0.0

    def run(self) -> int:
        """Trains to the end; returns the exit status of the ranks: done, refused, diverged or interrupted.

        Raises:
          WorkerLostError: too many losses without progress, or too few hosts for too long.
          Interrupted, KeyboardInterrupt: after the ranks have saved.
        """
        self._started = time.monotonic()
        self._counts = not self._state().over  # else nothing trains, and the history stays
        (reached, _), failures = self._saved(), 0
        with concurrent.futures.ThreadPoolExecutor(2) as self._pool, self._told_history():
            self._missing = missing_hosts(self._hosts)
            while True:
                self._wait_for_hosts()
                status, cause = self._train()
                if status in (0, *_REFUSED, *_SAVED):
                    return Interrupted.exit_status if status in _SAVED else int(status or 0)
                step, _ = self._saved()
                if step > reached:
                    reached, failures = step, 0
                if status is None:
                    self._note("hosts back", cause, step)
                    continue
                failures += 1
                self._note("loss", cause, step)
                if failures > self._policy.restarts:
                    raise WorkerLostError(
                        f"{failures} loss{'es' if failures > 1 else ''} without progress beyond step {step}, more than "
                        f"--restarts={self._policy.restarts}; the last: {cause}; mend it, then start the same command "
                        "again to go on"
                    )
                time.sleep(min(2.0 ** (failures - 2), _LONGEST_PAUSE) if failures > 1 else 0.0)

    def _train(self) -> tuple[int | None, str]:
        """One start; returns its exit status, or None where it saved to start again with hosts that are back, and why.

        Interrupted, it waits until the ranks have saved.
        """
        if self._incident is not None:
            self._incident.ranks = count_ranks(self._used)
            self._log(
                f"starting again from step {self._incident.step} with {ranks_text(self._used)}"
            )
            self._wait_for_folder()
        self._asked = None
        self._before, self._under_way = self._state(), None
        launch = Launch(self._used, self._command)
        try:
            status, back = self._watch(launch)
        except (KeyboardInterrupt, Interrupted):
            launch.save()
            if launch.wait_for_save(_TO_SAVE) == 0:  # it was done before it could hear
                return 0, ""
            raise
        finally:
            ended_at = time.monotonic()
            launch.end()
            # Where Ctrl-C came between two looks, what was trained before it counts all the same.
            self._look(ended_at)
            self._count_productive()
        if back and status in _SAVED:
            return None, back
        if status not in (0, *_REFUSED, *_SAVED):
            self._noticed_at = launch.lost_at or time.monotonic()
        return status, launch.cause

    def _watch(self, launch: Launch) -> tuple[int, str]:
        """Waits for the end of mpirun; returns its status, and for which hosts that are back it saved, or ""."""
        back, asked_at, silent = "", 0.0, set[Host]()
        probe: concurrent.futures.Future[Mapping[Host, str]] | None = None
        probe_at = time.monotonic() + self._policy.probe_every
        while (status := launch.wait(_LOOK)) is None:
            now = time.monotonic()
            self._look(now)
            if back and now - asked_at > _TO_SAVE:
                return launch.end(), back
            if launch.lost_at is not None:
                self._asked = self._asked or self._pool.submit(missing_hosts, self._hosts)
                if now > launch.deadline:
                    return launch.end(grace=0), back
                continue
            if self._over_at or back:
                continue
            starts = self._under_way is None
            if probe is None and (starts or self._missing) and now > probe_at:
                probe = self._pool.submit(missing_hosts, self._hosts)
            elif probe is not None and probe.done():
                gone, probe, probe_at = probe.result(), None, now + self._policy.probe_every
                found = [host for host in self._missing if host not in gone]
                before, silent = silent, {host for host in self._used if host in gone}
                if starts and before & silent:  # mpirun waits forever for a daemon that never calls
                    return launch.end(grace=0, cause="a host fell silent before the ranks met"), ""
                if found and not starts:
                    back, asked_at = (
                        f"{', '.join(host.name for host in found)} answer{'s' * (len(found) == 1)} again",
                        now,
                    )
                    self._log(f"{back}: saving, to start again with more ranks")
                    self._noticed_at = now
                    launch.save()
        return status, back

    def _look(self, now: float) -> None:
        """Notices that training goes on, and that it is over."""
        state = self._state()
        if self._under_way is None and state != self._before and state.under_way is not None:
            self._under_way = state.under_way
            if self._incident is not None:
                seconds = now - self._noticed_at
                self._incident.seconds = round(seconds, 1)
                self._log(
                    f"training goes on after {seconds:.1f} s, from step {self._incident.step} with "
                    f"{ranks_text(self._used)}"
                )
                self._incident = None
        if state.over and self._over_at is None:
            self._over_at = now

    def _note(self, kind: str, cause: str, step: int) -> None:
        """Tells and keeps what happened, and finds out who is left."""
        before = self._missing
        self._missing = self._asked.result() if self._asked else missing_hosts(self._hosts)
        lost = [host for host in self._used if host in self._missing]
        first, numbers = 0, {}
        for host in self._used:
            numbers[host] = name_ranks(range(first, first + host.slots))
            first += host.slots
        if kind == "loss":
            self._log(f"lost: {cause}")
            for host in lost:
                self._log(f"lost: host {host.name} with {numbers[host]}: {self._missing[host]}")
            for host in before.keys() - self._missing.keys():
                self._log(f"{host.name} answers again")
        self._incident = self._history.add(kind, cause, [host.name for host in lost])
        self._incident.step = step
        self._history.count(self._wall, self._productive)

    def _wait_for_hosts(self) -> None:
        """Chooses the hosts that answer, once they have `min_ranks` ranks.

        Raises:
          WorkerLostError: they do not in time.
        """
        deadline, told = time.monotonic() + self._policy.wait_for_hosts, False
        while True:
            self._used = tuple(host for host in self._hosts if host not in self._missing)
            left, least = count_ranks(self._used), self._policy.min_ranks
            if not told and self._missing and self._incident is None:
                for host, why in self._missing.items():
                    self._log(f"{host.name} takes no ranks now ({why}); it is asked again")
            if left >= least:
                return
            missing = ", ".join(f"{host.name} ({why})" for host, why in self._missing.items())
            if time.monotonic() > deadline:
                raise WorkerLostError(
                    f"{left} rank{'' if left == 1 else 's'} left, --min_ranks={least}, and nobody came back within "
                    f"{self._policy.wait_for_hosts:g} s; missing: {missing}; start the same command again to go on"
                )
            if not told:
                self._log(
                    f"{left} rank{'' if left == 1 else 's'} left, --min_ranks={least}: waiting for "
                    f"{clock_text(self._policy.wait_for_hosts)} for {missing}"
                )
            told = True
            time.sleep(min(self._policy.probe_every, max(0.0, deadline - time.monotonic())))
            self._missing = missing_hosts(self._hosts)

    def _wait_for_folder(self) -> None:
        """A rank of the start before may hold the folder until it notices that it is lost: then it ends by itself."""
        deadline = time.monotonic() + _TO_SAVE
        while is_locked(self._folder) and time.monotonic() < deadline:
            time.sleep(_LOOK)

    def _count_productive(self) -> None:
        if self._under_way is not None:
            self._productive += max(0.0, self._saved()[1] - self._under_way)

    @property
    def _wall(self) -> float:
        return (self._over_at or time.monotonic()) - self._started

    @contextlib.contextmanager
    def _told_history(self) -> Iterator[None]:
        """However it ends, the history is kept and told in a line."""
        try:
            yield
        finally:
            if self._counts and (self._productive or self._history.grew):
                self._history.count(self._wall, self._productive)
                self._log(self._history.summary())

"""`tfmat ...` or `python ...` as processes that can be killed, started from one that has TensorFlow loaded already.

Loading TensorFlow costs several seconds of two cores; a process forked right after that costs none of it, and is as
real as any other: own memory, own signals, own exit status. What a program or mpirun starts itself is forked, too,
where it is given `forked_python()` in the place of `sys.executable`.

All forks share one seed of hashes, which a user's processes do not: ranks that went through a set of strings would do
so in one order here, and each in another on a cluster. For that `mpi.command(..., own_hashes=True)` starts a real one.
"""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = 500.0  # seconds; two cores may be shared by many, and pytest ends a test after 600
SHARED = "TFMAT_FORK_SERVER"
"""Variable with the folder of the server that pytest started for all its workers; without it a process has its own."""
FORK = b"python\0"
"""With that the command line of a fork begins, and no other's here."""
_ROOM_FOR_COMMAND_LINE = 4096  # characters
# Open MPI can wait only in a loop, and calls this in it. A rank that waits would take a processor from the one that it
# waits for, since yielding gives up too little of it: on a busy machine tests of several ranks took twice as long.
_SLEEPING_YIELD = """
#include <time.h>
int sched_yield(void) {
    struct timespec pause = {0, 100000};
    nanosleep(&pause, 0);
    return 0;
}
"""


def real_python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A finished `python ARGUMENTS` that had loaded nothing before; `options` as subprocess.run takes them."""
    given = {"cwd": PROJECT, "capture_output": True, "text": True, "timeout": PATIENCE, **options}
    return subprocess.run([sys.executable, *map(str, arguments)], **given)


def wait_for(condition: Callable[[], object], explain: Callable[[], object] = str) -> None:
    """Returns as soon as `condition()` is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never came; {explain()}"
        time.sleep(0.05)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended: exit status (minus the signal's number where one killed it), and what it said."""

    status: int
    out: str
    err: str


class Program:
    """One running program."""

    def __init__(self, connection: socket.socket, out: pathlib.Path, err: pathlib.Path):
        self._connection, self._out, self._err = connection, out, err
        self._answers = connection.makefile("r")
        self._status: int | None = None
        self.pid: int = self._answer(PATIENCE)["pid"]

    def _answer(self, patience: float) -> dict[str, int]:
        readable, _, _ = select.select([self._connection], [], [], patience)
        assert readable, f"no answer within {patience} s: {self.said()[-2000:]}"
        return json.loads(self._answers.readline())

    def running(self) -> bool:
        """Whether it has not ended yet."""
        if self._status is None and select.select([self._connection], [], [], 0)[0]:
            self._status = self._answer(0)["status"]
        return self._status is None

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Returns as soon as `condition()` is true; fails where the program ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.running(), f"ended too early: {self._err.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"never came: {self._err.read_text()[-2000:]}"
            time.sleep(0.0005)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal; without effect where it has ended."""
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Waits for its end."""
        if self._status is None:
            self._status = self._answer(patience)["status"]
            self._answers.close()
            self._connection.close()
        return Ended(self._status, self.printed(), self.said())

    def printed(self) -> str:
        """Standard output so far."""
        return self._out.read_text(errors="replace")

    def said(self) -> str:
        """Standard error so far."""
        return self._err.read_text()


class ForkServer:
    """Starts programs; see the module. One for all tests of a session: `fork_server()`.

    Attributes:
      folder: of its socket, and of what programs say.
      python_command: stands for `sys.executable`, and starts a fork.
    """

    def __init__(self) -> None:
        shared = os.environ.get(SHARED)
        self.folder = pathlib.Path(shared or tempfile.mkdtemp(prefix="tfmat-"))
        self.python_command = str(self.folder / "python")
        self._count = 0
        self._address = str(self.folder / "socket")
        self._server = None if shared else self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        # What ranks need already when they are loaded.
        environment = {**rank_environment(), "MPLBACKEND": "Agg"}
        module = "tfmat_tests.fork_server"
        server = subprocess.Popen(
            [sys.executable, "-m", module, self._address, "-" * _ROOM_FOR_COMMAND_LINE],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stub = pathlib.Path(self.python_command)
        text = pathlib.Path(__file__).with_name("forked_python.py").read_text("utf-8")
        stub.write_text(f"#!{sys.executable} -IS\n{text}", "utf-8")
        stub.chmod(0o755)
        tfmat = self.folder / "tfmat"  # for programs that find theirs on PATH, beside their Python
        tfmat.write_text(f'#!/bin/sh\nexec {stub} -P -m tfmat "$@"\n', "utf-8")
        tfmat.chmod(0o755)
        while not os.path.exists(self._address):
            assert server.poll() is None, "the server ended at once"
            time.sleep(0.01)
        return server

    def start(
        self,
        *arguments: object,
        cwd: pathlib.Path,
        file_limit: int | None = None,
        die_at: int | range | None = None,
        die_on: str = "*",
        die_of: signal.Signals = signal.SIGKILL,
        load: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Starts `tfmat ARGUMENTS` in the folder `cwd`.

        Args:
          arguments: of the command line.
          cwd: current folder of the program.
          file_limit: largest file that it may write, bytes.
          die_at: it sends itself a signal right before its file operation of this number, or of these, in `cwd`
            (opening for writing, renaming, removing; from 1).
          die_on: of which only those on files with such names count.
          die_of: that signal.
          load: modules that every later program finds loaded.
          environment: variables beside this process's own.
        """
        at = range(die_at, die_at + 1) if isinstance(die_at, int) else die_at
        limits = {} if file_limit is None else {int(resource.RLIMIT_FSIZE): file_limit}
        command = ("-P", "-m", "tfmat", *arguments)
        how = {
            "limits": limits,
            "die_at": at and ((at.start, at.stop, at.step), die_on, int(die_of)),
            "load": list(load),
        }
        return self._start(command, cwd, environment or {}, **how)

    def python(self, *arguments: object, **environment: str) -> str:
        """What `python ARGUMENTS` prints: `-c PROGRAM ...`, `-m MODULE ...` or `FILE ...`, in the project's folder."""
        ended = self._start(arguments, PROJECT, environment).wait(patience=600.0)
        assert ended.status == 0, ended.out + ended.err[-3000:]
        return ended.out

    def _start(
        self,
        arguments: Sequence[object],
        cwd: pathlib.Path,
        environment: Mapping[str, str],
        **how: Any,
    ) -> Program:
        self._count += 1
        out, err = (self.folder / f"{os.getpid()}-{self._count}.{name}" for name in ("out", "err"))
        request = {
            **how,
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd),
            "environment": {**os.environ, **environment},
            "processors": sorted(os.sched_getaffinity(0)),
            "executable": self.python_command,
        }
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        with open(os.devnull, "rb") as nothing, open(out, "wb") as first, open(err, "wb") as second:
            send_request(connection, request, [each.fileno() for each in (nothing, first, second)])
        return Program(connection, out, err)

    def run(self, *arguments: object, cwd: pathlib.Path, **options: Any) -> Ended:
        """Starts a program and waits for its end."""
        return self.start(*arguments, cwd=cwd, **options).wait()

    def close(self) -> None:
        """Ends a server of this process's own; programs that still run are killed."""
        if self._server is None:
            return
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(PATIENCE)


def send_request(
    connection: socket.socket, request: dict[str, Any], descriptors: Sequence[int]
) -> None:
    """Asks for a program; `descriptors` become its standard input, output and error."""
    data = json.dumps(request).encode()
    data = struct.pack("!I", len(data)) + data
    sent = socket.send_fds(connection, [data], descriptors)
    connection.sendall(data[sent:])


@functools.cache
def fork_server() -> ForkServer:
    """Starts at the first call, and ends with this process."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def forked_python() -> str:
    """A command that stands for `sys.executable`, and starts without the seconds that TensorFlow takes to load."""
    return fork_server().python_command


@functools.cache
def _sleeping_yield() -> pathlib.Path | None:
    """The library with that function, until this process ends; None without a compiler: ranks then wait as ever."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfmat-mpi-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "sleeping_yield.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    done = subprocess.run(command, input=_SLEEPING_YIELD, text=True, capture_output=True)
    return library if done.returncode == 0 else None


def rank_environment() -> dict[str, str]:
    """This process's environment, with what lets ranks share the machine."""
    environment = {
        **os.environ,
        # Root may be all that a container has; more ranks than processors only take longer.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    if library := _sleeping_yield():
        environment["LD_PRELOAD"] = f"{library} {environment.get('LD_PRELOAD', '')}".strip()
    return environment

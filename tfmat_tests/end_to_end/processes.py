"""`tfmat ...` or `python ...` as processes that can be killed, started from one that has TensorFlow loaded already.

Loading TensorFlow costs several seconds of two cores; a process forked right after that costs none of it, and is as
real as any other: own memory, own signals, own exit status.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import resource
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds; two cores may be shared


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended: exit status (minus the signal's number where one killed it), and what it said."""

    status: int
    out: str
    err: str


class Program:
    """One running program."""

    def __init__(self, server: "ForkServer", pid: int, out: pathlib.Path, err: pathlib.Path):
        self.pid = pid
        self._server, self._out, self._err = server, out, err

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return (
            pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Returns as soon as `condition()` is true; fails where the program ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.running(), f"ended too early: {self._err.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"never came: {self._err.read_text()[-2000:]}"
            time.sleep(0.0005)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    def wait(self, patience: float = PATIENCE) -> Ended:
        """Waits for its end."""
        status = self._server.ask({"wait": self.pid}, patience)["status"]
        return Ended(status, self._out.read_text(errors="replace"), self._err.read_text())

    def said(self) -> str:
        """Standard error so far."""
        return self._err.read_text()


class ForkServer:
    """Starts programs; see the module. `folder` takes what they print; `modules` are loaded beforehand."""

    def __init__(self, folder: pathlib.Path, modules: Sequence[str] = ()):
        self._folder = folder
        self._count = 0
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tfmat_tests.end_to_end.processes", *modules],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(
        self,
        *arguments: object,
        cwd: pathlib.Path,
        file_limit: int | None = None,
        die_at: int | None = None,
    ) -> Program:
        """Starts `tfmat ARGUMENTS` in the folder `cwd`.

        Args:
          arguments: of the command line.
          cwd: current folder of the program.
          file_limit: largest file that it may write, bytes.
          die_at: it kills itself with SIGKILL right before its file operation of this number in `cwd` (opening for
            writing, renaming, removing; from 1).
        """
        return self._start(arguments, cwd, file_limit=file_limit, die_at=die_at)

    def python(self, *arguments: object, **environment: str) -> str:
        """What `python ARGUMENTS` prints: `-c PROGRAM ...`, `-m MODULE ...` or `FILE ...`, in the project's folder."""
        program = self._start(arguments, PROJECT, python=True, environment=environment)
        ended = program.wait(patience=600.0)
        assert ended.status == 0, ended.out + ended.err[-3000:]
        return ended.out

    def _start(self, arguments: Sequence[object], cwd: pathlib.Path, **how: Any) -> Program:
        self._count += 1
        out, err = (self._folder / f"{self._count}.{name}" for name in ("out", "err"))
        request = {
            "arguments": list(map(str, arguments)),
            "cwd": str(cwd),
            "out": str(out),
            "err": str(err),
            **how,
        }
        return Program(self, self.ask(request)["pid"], out, err)

    def run(self, *arguments: object, cwd: pathlib.Path, **options: Any) -> Ended:
        """Starts a program and waits for its end."""
        return self.start(*arguments, cwd=cwd, **options).wait()

    def ask(self, request: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any]:
        """One line there, one line back."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        readable, _, _ = select.select([self._server.stdout], [], [], patience)
        assert readable, f"no answer to {request}"
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        """Ends the server; programs that still run are killed."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(PATIENCE)
        self._server.stdout.close()


@contextlib.contextmanager
def fork_server(folder: pathlib.Path, modules: Sequence[str] = ()) -> Iterator[ForkServer]:
    """A server that ends with the block."""
    server = ForkServer(folder, modules)
    try:
        yield server
    finally:
        server.close()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    """The server's own loop: forks, or waits for what it forked."""
    alive = set()
    for line in requests:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            alive.discard(request["wait"])
            answer = {"status": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                _become_program(request)
            alive.add(pid)
            answer = {"pid": pid}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become_program(request: dict[str, Any]) -> None:
    """What `python -m tfmat` does, or `python`, in a fork; never returns."""
    # A shell starts background jobs with Ctrl-C ignored, and that is inherited; a program at a terminal has it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 1
    try:
        os.setsid()
        os.chdir(request["cwd"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(request[name], flags), descriptor)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        status = (_python if request.get("python") else _tfmat)(request)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


def _tfmat(request: dict[str, Any]) -> int:
    if request["file_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
    if request["die_at"] is not None:
        _die_at_file_operation(request["die_at"], request["cwd"])
    from tfmat.cli.main import main

    return main(request["arguments"])


def _python(request: dict[str, Any]) -> int:
    os.environ.update(request["environment"])
    # TensorFlow is loaded but has not started: what is said before the first import is still heard.
    sys.modules.pop("tensorflow", None)
    first, *sys.argv = request["arguments"]
    if first == "-c":
        exec(compile(sys.argv[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv.insert(0, first)
        runpy.run_path(first, run_name="__main__")
    return 0


def _die_at_file_operation(number: int, folder: str) -> None:
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in ("os.rename", "os.remove"):
            return
        if not isinstance(arguments[0], int) and os.path.abspath(arguments[0]).startswith(folder):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _load() -> None:
    """Everything that takes long to import, and no TensorFlow operation: its threads would not survive a fork."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["MPLBACKEND"] = "Agg"
    import tfmat.cli.train
    import tfmat.identification.evaluate
    import tfmat.identification.identify
    import tfmat.models
    import tfmat.report.figures
    import tfmat.report.tables
    import tfmat.training.trainer
    import tfmat.workflow  # noqa: F401


if __name__ == "__main__":
    _load()
    for module in sys.argv[1:]:
        importlib.import_module(module)
    _serve(sys.stdin, sys.stdout)

"""A process that has TensorFlow loaded and forks programs from it: `python -m THIS SOCKET PADDING`; see processes.py.

Whoever connects to the socket sends one request (see `processes.send_request`) with three file descriptors, is told the
number of the process that was forked for it, and at last how it ended. Where the connection is lost, the process is
killed; where this process's own standard input ends, all of them are.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import fnmatch
import gc
import importlib
import itertools
import json
import os
import resource
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import threading
import types
from typing import Any, NoReturn

from tfmat_tests.graphs import may_be_plain
from tfmat_tests.pictures import may_be_blank

LOADED = (
    "arviz_stats.base", "keras", "tensorflow", "horovod.tensorflow", "tfmat.cli.train",
    "tfmat.identification.evaluate", "tfmat.identification.answer", "tfmat.networks",
    "tfmat.report.pages", "tfmat.training.run", "tfmat.workflow",
)  # fmt: skip
LENGTH = struct.Struct("!I")  # of a request in JSON, before it
# Seconds after which a program says on standard error where each of its threads is; tests wait longer for one.
TOLD_AFTER = 450.0
# Seconds for the end of a program that has done all, also of a rank that waits for others; then it says so and fails.
END_AFTER = 240.0


class _Server:
    """The loop, in one thread: a fork takes no other thread along."""

    def __init__(self, listener: socket.socket):
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, socket.socket] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def serve(self) -> None:
        """Until standard input ends."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker)
        for each in (self._listener, self._woken, 0):
            self._selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def end(self) -> None:
        """Kills what still runs."""
        for pid in self._connections:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            request, descriptors = _receive(connection)
        except (OSError, EOFError):  # gone already
            connection.close()
            return
        for name in request.get("load", ()):
            importlib.import_module(name)
        pid = os.fork()
        if pid == 0:
            self._leave()
            connection.close()
            _become_program(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._connections[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ)
        _tell(connection, {"pid": pid})

    def _read(self, connection: socket.socket) -> None:
        """Nobody says anything more; this is the end of a connection."""
        for pid, other in self._connections.items():
            if other is connection:
                self._selector.unregister(connection)
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid in list(self._connections):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            connection = self._connections.pop(pid)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection)
            _tell(connection, {"status": os.waitstatus_to_exitcode(status)})
            connection.close()

    def _leave(self) -> None:
        """In the new process: nothing of the server stays open."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        self._listener.close()
        os.close(self._woken)
        os.close(self._waker)
        for connection in self._connections.values():
            connection.close()


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
        more = connection.recv(1 << 20)
        if not more:
            for descriptor in descriptors:
                os.close(descriptor)
            raise EOFError
        data += more
    return json.loads(data[LENGTH.size :]), list(descriptors)


def _tell(connection: socket.socket, answer: dict[str, int]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(answer).encode() + b"\n")


def _become_program(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """What `python ARGUMENTS` does, in a fork."""
    # A shell starts background jobs with Ctrl-C ignored, and that is inherited; a program at a terminal has it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status: int | signal.Signals = 1
    try:
        os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        _take_surroundings(request)
        faulthandler.dump_traceback_later(TOLD_AFTER)
        _run(request["arguments"])
        status = 0
    except SystemExit as error:
        status = _status_of(error)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        status = signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # As at the end of Python itself, but for taking its modules apart.
        faulthandler.dump_traceback_later(END_AFTER, exit=True)
        with contextlib.suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            mpi = sys.modules.get("mpi4py.MPI")
            if mpi and mpi.Is_initialized() and not mpi.Is_finalized():
                mpi.Finalize()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        if isinstance(status, signal.Signals):
            signal.signal(status, signal.SIG_DFL)
            os.kill(os.getpid(), status)
        os._exit(status)


def _status_of(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _take_surroundings(request: dict[str, Any]) -> None:
    """Folder, environment, processors and name are those of who asked."""
    _name_process(request["arguments"])
    os.chdir(request["cwd"])
    os.sched_setaffinity(0, request["processors"])
    environment = request["environment"]
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    may_be_plain()
    encoding: Any = {"encoding": "utf-8", "closefd": False}
    line_by_line = os.isatty(1) or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = os.fdopen(0, **encoding)
    sys.stdout = os.fdopen(1, "w", buffering=1 if line_by_line else -1, **encoding)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", **encoding)
    sys.executable = request["executable"]
    for number, limit in request.get("limits", {}).items():
        resource.setrlimit(int(number), (limit, limit))
    if request.get("die_at") is not None:
        _die_at_file_operation(request["cwd"], *request["die_at"])
    # TensorFlow is loaded but has not started: what is said before the first import is still heard.
    sys.modules.pop("tensorflow", None)
    import numpy as np

    np.random.seed()  # noqa: NPY002  as each process draws its own


def _run(arguments: list[str]) -> None:
    """`[-P] -c PROGRAM ...`, `[-P] -m MODULE ...` or `FILE ...`."""
    safe = arguments[0] == "-P"
    first, *sys.argv = arguments[safe:]
    place = {"-c": "", "-m": os.getcwd()}.get(first, os.path.dirname(os.path.abspath(first)))
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    rest = [path for path in sys.path[1:] if path not in added]  # without the server's own folder
    sys.path[:] = [*([] if safe else [place]), *added, *rest]
    if first == "-c":
        program, sys.argv[0] = sys.argv[0], "-c"
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), module.__dict__)
    elif first == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv.insert(0, first)
        runpy.run_path(first, run_name="__main__")


def _name_process(arguments: list[str]) -> None:
    """/proc/PID/cmdline says what runs here; the padding of the server's own command line leaves room for it."""
    with open("/proc/self/stat") as file:
        begin, end = map(int, file.read().rpartition(")")[2].split()[45:47])
    line = b"\0".join(os.fsencode(word) for word in ["python", *arguments])[: end - begin - 1]
    ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)


def _die_at_file_operation(folder: str, numbers: list[int], names: str, how: int) -> None:
    seen, wanted = itertools.count(1), range(*numbers)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else 0
        writes = flags & (os.O_WRONLY | os.O_RDWR) or event in ("os.rename", "os.remove")
        if not writes or isinstance(arguments[0], int):
            return
        path = os.path.abspath(arguments[0])
        counts = path.startswith(folder) and fnmatch.fnmatch(os.path.basename(path), names)
        if counts and next(seen) in wanted:
            os.kill(os.getpid(), how)

    sys.addaudithook(hook)


def _load() -> None:
    """Everything that takes long to import, and no TensorFlow operation: its threads would not survive a fork."""
    for name in LOADED:
        # There may be no Horovod, and in Bazel's sandbox a part of tfmat only.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Every finished run fills these, and would compile them first.
    with contextlib.suppress(ImportError):
        page = importlib.import_module("tfmat.report.pages")
        for name in ("run.html", "parts.html", "base.html"):
            page.templates().get_template(name)
    may_be_blank()
    # A fork that looks for garbage gets copies of the pages that it looks at: it leaves out what is loaded here, and
    # looks as rarely as conftest.py says.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main(address: str) -> None:
    """Serves at that address, whose folder goes with the server."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(64)
        os.rename(f"{address}.new", address)  # who finds it can connect, and waits
        _load()
        server = _Server(listener)
        try:
            server.serve()
        finally:
            server.end()
            shutil.rmtree(os.path.dirname(address), ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])

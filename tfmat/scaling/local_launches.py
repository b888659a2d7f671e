"""Runs launches on this machine, one after the other: as processes of mpirun, or as one alone."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from tfmat.scaling.planning import Planned
from tfmat.scaling.worker import SPEC

# Seconds.
_LONGEST_LAUNCH = 1200.0
_TO_END = 10.0
_LAST_LINES, _LONGEST_LOG = 20, 4000
LOG = "log.txt"

# The planned launch, and why it failed with the end of its log; None where it did not.
Finished = Callable[[Planned, tuple[str, str] | None], None]


def worker_command(folder: pathlib.Path, python: str = sys.executable) -> tuple[str, ...]:
    """Of one process."""
    return (python, "-P", "-m", "tfmat.scaling.worker", str(folder / SPEC))


def local_command(planned: Planned) -> list[str]:
    """Of a launch. The processes choose their processors themselves, the same way whatever started them."""
    num_processes, alone = planned.num_processes, list(worker_command(planned.folder))
    if num_processes == 1:
        return alone
    if planned.launch.way.collectives == "gloo":
        # Under mpirun Horovod's Gloo crashes at its first broadcast (0.28.1).
        horovodrun = pathlib.Path(sys.executable).with_name("horovodrun")
        where = ["-np", str(num_processes), "-H", f"localhost:{num_processes}"]
        return [str(horovodrun), "--gloo", *where, *alone]
    return ["mpirun", "-np", str(num_processes), "--oversubscribe", "--bind-to", "none", *alone]


def run_locally(launches: Sequence[Planned], finished: Finished) -> None:
    """Runs each in turn and says how it went; whatever ends this function ends its processes."""
    for planned in launches:
        finished(planned, _run(planned))


def _run(planned: Planned) -> tuple[str, str] | None:
    command = local_command(planned)
    environment = {
        **os.environ,
        # Root may be all that a container has.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    path = planned.folder / LOG
    with path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us, who end them in order
        )
        try:
            status = process.wait(_LONGEST_LAUNCH)
        except subprocess.TimeoutExpired:
            return f"did not end within {_LONGEST_LAUNCH:.0f} s", end_of_log(path)
        finally:
            end(process)
    if status:
        return f"ended with status {status}", end_of_log(path)
    return None


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

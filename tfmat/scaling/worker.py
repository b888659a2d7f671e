"""`python -m tfmat.scaling.worker SPEC`: one process of a launch. Measures, and leaves `rank-N.json` beside the file.

Every process of the launch gets the same file, finds out by the launcher's environment which one it is, and takes its
share of the processors. The file's keys:

  program         `module:function`, called with the file's content, the processes of the launch and the file's folder
  processors      of each process
  environment     variables that are set first; `path`, if there, goes before sys.path
  watch           number of the process with which all of them end, or null

What the function returns is the answer. All other keys are between it and who asks.
"""

import importlib
import os
import pathlib
import sys
import threading
import time
from typing import Any

from tfmat.console import printable
from tfmat.errors import TfmatError
from tfmat.files import make_folder, read_json, write_json
from tfmat.launch.processes import Processes, find_processes
from tfmat.launch.watchdog import ByNote, Star, meet

SPEC = "spec.json"
_WORKER_LOOKS = 1.0
_PATIENCE = 300.0  # seconds until all processes are there


def main(path: str) -> None:
    """Measures what the file asks for."""
    spec = read_json(path)
    folder = pathlib.Path(path).resolve().parent
    processes = find_processes()
    _end_with(spec["watch"])
    os.environ["TMPDIR"] = str(make_folder(folder / "tmp"))
    os.environ.update(spec["environment"])
    sys.path[:0] = spec.get("path", [])
    _take_processors(spec, processes)
    module, _, function = spec["program"].partition(":")
    answer = getattr(importlib.import_module(module), function)(spec, processes, folder)
    write_json(answer_file(folder, processes.rank), answer)


def answer_file(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Where a process leaves its answer."""
    return folder / f"rank-{rank}.json"


def _take_processors(spec: dict[str, Any], processes: Processes) -> None:
    """Binds this process to its own processors, as many for each, unless the launcher has done so."""
    available, width = sorted(os.sched_getaffinity(0)), spec["processors"]
    # The rank, not the local one: machines may share their processors, as those of tools/cluster do.
    if len(available) <= width:
        return
    first = processes.rank * width % len(available)
    os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(width)})


def _end_with(process: int | None) -> None:
    """Ends this process soon after the study or mpirun has gone: they may have been killed."""
    if process is None:
        return
    parent = os.getppid()

    def watch() -> None:
        while True:
            # Its parent is the study, or mpirun.
            if os.getppid() != parent or not pathlib.Path(f"/proc/{process}").exists():
                os._exit(1)
            time.sleep(_WORKER_LOOKS)

    threading.Thread(target=watch, daemon=True).start()


def join_others(processes: Processes, folder: pathlib.Path) -> Star:
    """The link to the other processes, for those that have no other; where one does not come, all end."""
    return meet(processes, ByNote(processes, str(folder)), time.monotonic() + _PATIENCE)


if __name__ == "__main__":
    # As a module of its name, so that a class is not there twice.

    try:
        main(sys.argv[1])
    except TfmatError as error:
        print(f"tfmat: {printable(error)}", file=sys.stderr, flush=True)
        sys.exit(error.exit_status)

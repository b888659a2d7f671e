"""A rank that says who it is, and works until it is asked to save; the second time it is done at once."""

import pathlib
import signal
import sys
import time
from typing import Any

from tfmat.launch.processes import find_processes


def _save(number: int, frame: Any) -> None:
    # SLURM tells all processes of a job, and the job's script tells its own once more; as tfmat, take the first one.
    for later in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(later, signal.SIG_IGN)
    say(f"{signal.Signals(number).name} saved")
    sys.exit(75)


def say(text: str) -> None:
    """One line to a file of this rank's own: what several ranks print may come mixed."""
    with open(folder / f"rank{me.rank}", "a") as file:
        file.write(f"{text}\n")


folder, me = pathlib.Path(sys.argv[1]), find_processes()
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, _save)
before = (folder / f"rank{me.rank}").exists()
say(f"rank {me.rank} of {me.size}, {me.local_rank} of {me.local_size} here, by {me.launcher}")
if not before:
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 300)
say("done")

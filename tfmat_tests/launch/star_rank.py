"""One rank of a watched run, without TensorFlow and Horovod: the program that star_test.py starts.

    python star_rank.py FOLDER RANK SIZE CASE CULPRIT

RANK and SIZE may be `mpi`: then mpirun's environment has them, and the program is an MPI program.
"""

import ctypes
import errno
import faulthandler
import os
import pathlib
import signal
import socket
import sys
import time
from typing import Any

from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.launch.processes import START_TIMEOUT, WORKER_TIMEOUT, Processes, seconds_setting
from tfmat.launch.watchdog import ByBroadcast, Star, meet, start_timer

SLOW = 2.6  # seconds; the tests set a timeout of 2


def hang() -> None:
    """Waits as a collective does: in C, without Python's lock, and through every signal that does not kill."""
    library = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)  # all zero: a mutex that nobody holds
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


class Mpi:
    """The real thing, as far as this program needs it: MPI_Init, and a barrier to hang in."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
        self._library.MPI_Init(None, None)

    def hang(self) -> None:
        world = ctypes.c_char.in_dll(self._library, "ompi_mpi_comm_world")
        self._library.MPI_Barrier(ctypes.byref(world))

    def close(self) -> None:
        self._library.MPI_Finalize()


def wait_for(path: pathlib.Path) -> None:
    while not path.exists():
        time.sleep(0.01)


class Rank:
    """What the program knows of itself."""

    def __init__(self, folder: str, rank: str, size: str, case: str, culprit: str):
        self.folder = pathlib.Path(folder)
        self.rank = int(os.environ["OMPI_COMM_WORLD_RANK"] if rank == "mpi" else rank)
        self.size = int(os.environ["OMPI_COMM_WORLD_SIZE"] if size == "mpi" else size)
        self.case = case
        self.is_culprit = self.rank == int(culprit)
        if case == "node":  # two ranks on each of what they take for two nodes
            node = f"node{self.rank // 2}"
            socket.gethostname = lambda: node
            self.is_culprit = self.rank // 2 == int(culprit) // 2
        self.uses_mpi = rank == "mpi"
        self.mpi: Mpi | None = None

    def exchange(self, value: Any) -> Any:
        """Rank 0's value on every rank, through a file."""
        path = self.folder / "exchange.json"
        if self.rank == 0:
            write_json(path, value)
        else:
            wait_for(path)
        return read_json(path)

    def on_loss(self, message: str) -> None:
        (self.folder / f"on_loss_{self.rank}").write_text(message)

    def start(self) -> Star:
        if self.case == "stopped_before_start" and self.is_culprit:
            os.kill(os.getpid(), signal.SIGSTOP)
        (self.folder / f"pid_{self.rank}").write_text(str(os.getpid()))
        if self.uses_mpi:
            with start_timer(self.rank):
                self.mpi = Mpi()
        seconds = seconds_setting(START_TIMEOUT)
        deadline = time.monotonic() + seconds
        # The nodes of the case are both on this machine's loopback.
        processes = Processes(self.rank, self.size, 0, self.size if self.case == "node" else 1)
        with start_timer(self.rank, seconds + 5):
            star = meet(processes, ByBroadcast(self.exchange), deadline, self.on_loss)
            star.watch(seconds_setting(WORKER_TIMEOUT), deadline)
        return star

    def run(self) -> None:
        """Does what the case says; where it returns, the program ends with status 0."""
        star = self.start()
        star.announce("training", 1200, collective=True)
        if self.case in ("slow", "checkpoint", "first", "last"):
            self.end_well(star)
            return
        if not self.is_culprit:
            self.hang()
        time.sleep(0.3)
        star.announce("validation", 1300, collective=self.case == "deadlock")
        time.sleep(0.3)
        try:
            self.act()
        except Exception as error:
            star.fail(error)
        self.hang()

    def hang(self) -> None:
        if self.mpi and not self.is_culprit:
            self.mpi.hang()
        hang()

    def act(self) -> None:
        match self.case:
            case "exception":
                raise InputError("a line that says what to do")
            case "defect":
                raise ZeroDivisionError("none of the\nuser's")
            case "full_disk":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "weights.h5")
            case "exit":
                os._exit(0)
            case "signal_kill" | "node":
                if self.rank == 0 and self.case == "node":
                    time.sleep(0.15)  # else rank 1 may still live to tell that rank 0 does not
                os.kill(os.getpid(), signal.SIGKILL)
            case "signal_stop":
                os.kill(os.getpid(), signal.SIGSTOP)

    def end_well(self, star: Star) -> None:
        """All are slow at the same place; the culprit alone writes slowly; the culprit leaves first; or last."""
        match self.case:
            case "slow":
                time.sleep(SLOW)
            case "checkpoint":
                if self.is_culprit:
                    star.announce("writing a checkpoint", 1200, collective=False)
                time.sleep(SLOW)
            case _ if self.is_culprit == (self.case == "last"):
                star.announce("evaluating", 1200, collective=False)
                time.sleep(SLOW)
        star.close()
        star.close()
        star.announce("after the end", None, collective=False)
        star.fail(InputError("tells nobody"))
        if self.mpi:
            self.mpi.close()


if __name__ == "__main__":
    faulthandler.enable()
    program = Rank(*sys.argv[1:])
    program.run()

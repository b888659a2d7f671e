"""One `mpirun` and its ranks: started on given hosts, asked to save, ended; and what it says when ranks are lost."""

import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from tfmat.errors import InputError
from tfmat.launch.children import end_session, end_with_parent
from tfmat.launch.hosts import AS_ROOT, Host, count_ranks
from tfmat.ranks.ending import WORKER_TIMEOUT, write_line
from tfmat.ranks.verdict import AGAIN

# What a shell hands on to programs on its own machine, mpirun hands on to other hosts where it is named.
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
_LOST = re.compile(r" (?:was|were) lost \(host ")  # of `describe` in tfmat.ranks.verdict
# Seconds for mpirun to end after a loss, and after any other last words of a rank, which ends more slowly.
_SILENT, _DEAD, _FAILED = 1.0, 6.0, 20.0
_LONGEST_LINE = 65536
_LOOK = 0.1  # seconds between two looks


def mpirun_command(
    hosts: Sequence[Host],
    command: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    defaults: Mapping[str, str] = _DEFAULTS,
) -> list[str]:
    """The command line that starts `command` on every slot of the hosts, rank by rank in their order. Pure.

    Args:
      hosts: with the ranks of each.
      command: of each rank.
      environment: of mpirun; what concerns Python and its libraries is handed on to the ranks.
      defaults: what mpirun is given where the environment has none of it.
    """
    handed_on = sorted(name for name in {**defaults, **environment} if _HANDED_ON.fullmatch(name))
    return [
        "mpirun", "-np", str(count_ranks(hosts)), "-H", ",".join(map(str, hosts)),
        # Bound to one processor, a rank's threads would wait for each other.
        "--bind-to", "none", "--map-by", "slot",
        *(word for name in handed_on for word in ("-x", name)),
        *command,
    ]  # fmt: skip


class Launch:
    """A running mpirun, whose standard error is shown as it comes.

    Args:
      hosts: with the ranks of each.
      command: of each rank.

    Raises:
      InputError: there is no mpirun.

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
            raise InputError(
                f"mpirun cannot be started ({error.strerror}); `tfmat doctor` says how to get it"
            ) from error
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
        while (status := self.wait(_LOOK)) is None:
            if time.monotonic() > min(until, self.deadline):
                break
        return status

    def save(self) -> None:
        """Asks the ranks to save and to end with status 75; mpirun hands the signal on."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def end(self, grace: float = 3.0, cause: str = "") -> int:
        """Ends it and whatever it left behind on this machine; returns the exit status.

        Args:
          grace: seconds between SIGTERM and SIGKILL; 0 for SIGKILL alone.
          cause: why, where neither ranks nor mpirun have said anything.

        On other hosts Open MPI's daemons end their ranks when they lose mpirun, and ranks when they lose each other.
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

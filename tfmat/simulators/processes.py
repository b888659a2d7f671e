"""Programs that end at a limit of time, and with the process that started them, with all that they have started."""

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import Any

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
            # Nobody has waited for the guard yet, so that its number is still that of the group.
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

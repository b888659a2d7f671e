"""Which process owns something: others can tell whether it is dead, at once on its machine, by time elsewhere."""

import contextlib
import functools
import os
import pathlib
import platform
from typing import TypedDict


class Owner(TypedDict, total=False):
    """A process: host name, machine since its start and process namespace, number, clock ticks at its start."""

    host: str
    machine: str
    pid: int
    started: int


def this_process() -> Owner:
    """This process, unlike any other: machine since its start, process namespace, number, and time of its start."""
    return process(os.getpid())


def process(pid: int) -> Owner:
    """The same for another process of this machine."""
    return {
        "host": platform.node(),
        "machine": _machine(),
        "pid": pid,
        "started": _start_time(pid),
    }


def is_here(owner: Owner) -> bool:
    """Whether the owner's life and death can be seen from here. A host name would not tell: containers share it."""
    return owner.get("machine") == _machine()


def is_dead(owner: Owner) -> bool:
    """True where the owner is known to have ended; False also where that cannot be known from here."""
    return is_here(owner) and _start_time(owner.get("pid", 0)) != owner.get("started")


@functools.cache
def _machine() -> str:
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _start_time(pid: int) -> int:
    """Clock ticks since the machine's start when the process began; 0 where there is none, or only its remains."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in ("Z", "X"):
            return int(fields[19])
    return 0

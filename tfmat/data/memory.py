"""What this process may use: memory, and the refusal of what cannot fit into it; processors."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import psutil

from tfmat.errors import InputError

_CGROUPS = pathlib.Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes of memory that a new process could use now, within the limits of its container."""
    return min([psutil.virtual_memory().available, *_limits()])


def total_memory() -> int:
    """Bytes of memory that a process could have with the machine for itself, within the limits of its container."""
    return min([psutil.virtual_memory().total, *_limits()])


def check_memory(what: str, needed: int, remedy: str) -> None:
    """InputError where something needs more memory than there is at all.

    Args:
      what: needs it: the subject of a sentence.
      needed: bytes, at least.
      remedy: what to do, an imperative.
    """
    total = total_memory()
    if needed > total:
        raise InputError(
            f"{what} would need at least {size_text(needed)} of memory, and this machine (or container) has "
            f"{size_text(total)}; {remedy}"
        )


def size_text(num_bytes: int) -> str:
    """`12.0 MB`, `3.4 GB`, `1,200 TB`."""
    for unit, digits, power in (("MB", 1, 6), ("GB", 1, 9)):
        if num_bytes < 10 ** (power + 3):
            return f"{num_bytes / 10**power:,.{digits}f} {unit}"
    return f"{num_bytes / 10**12:,.1f} TB"


def available_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _limits() -> Iterator[int]:
    """Limits, in bytes, of the control groups that this process is in; a group's parents bound it too."""
    own = ""
    with contextlib.suppress(OSError):
        own = pathlib.Path("/proc/self/cgroup").read_text("ascii").strip().rpartition("::")[2]
    group = _CGROUPS / own.lstrip("/")
    for folder in (group, *group.parents):
        # No control groups of version 2, or "max": no limit of its own.
        with contextlib.suppress(OSError, ValueError):
            yield int((folder / "memory.max").read_text("ascii"))
        if folder == _CGROUPS:
            break

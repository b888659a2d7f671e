"""What tools/cluster wants of the machine, and what it asks of the kernel and of other programs."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

LIBC = ctypes.CDLL(None, use_errno=True)
PACKAGES = "as root on Debian or Ubuntu: tools/system_packages cluster"


class Refusal(Exception):
    """One line for the user; `status` is the exit status."""

    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status


def check_machine() -> None:
    """Raises Refusal with the first thing that is missing here, and how to get it."""
    if sys.platform != "linux":
        raise Refusal(f"{sys.platform} has no network namespaces; use Linux")
    if os.geteuid() != 0:
        raise Refusal("it needs root; sudo tools/cluster up, or a container that is root's")
    if missing := [
        name for name in ("ip", "tc", "unshare", "nsenter", "cc") if not shutil.which(name)
    ]:
        raise Refusal(f"there is no {', '.join(missing)} here; {PACKAGES}")
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        raise Refusal(
            f"/dev/net/tun: {error.strerror}; modprobe tun, or give the container --device=/dev/net/tun"
        ) from None
    tried = ("unshare", "--fork", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "true")
    done = subprocess.run(tried, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(
            f"root may not make namespaces here ({done.stderr.strip()}); give the container --privileged"
        )


def run_quietly(*command: str | pathlib.Path, prepare: Callable[[], None] | None = None) -> bytes:
    """The output of a program that has to succeed; `prepare` is called in it, before it starts."""
    done = subprocess.run(command, capture_output=True, preexec_fn=prepare)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        line = next((line for line in said if "error" in line), (said or ["no reason told"])[-1])
        raise Refusal(f"{command[0]} failed: {line}", 1)
    return done.stdout


def set_namespace(path: str, kind: int = 0) -> None:
    """Enters the namespace of this file; `kind` is the kernel's CLONE_NEW..., 0 for any."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    failed = LIBC.setns(file, kind)
    os.close(file)
    if failed:
        raise OSError(ctypes.get_errno(), f"setns: {path}")


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """One call at a time changes what belongs to a folder."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refusal("another call of tools/cluster is at work; wait for it") from None
    finally:
        os.close(file)


def all_processes() -> list[int]:
    """The numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def stat(pid: int) -> list[str]:
    """The kernel's words about a process from its state on: state, parent, ...; empty where it has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []

"""What a run was made with: program, packages, machine, git revision, command, date. Loads none of them."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from typing import Any

import psutil

import tfmat
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.launch.runtime import uses_onednn

FILE = "provenance.json"
# Whose versions can change a run's numbers.
_PACKAGES = ("tensorflow", "keras", "numpy", "scipy", "ml_collections", "horovod")
_PATIENCE = 10.0  # seconds for git, whose checkout may lie on a slow disk


def record_session(workdir: str | os.PathLike) -> None:
    """Adds what this process is to `provenance.json` of a run's folder: one entry each time that the run goes on.

    The file holds `format` and `sessions`, a list of what `describe_session` returns, the oldest first. A damaged file
    is begun anew: it is there to be read by people, and no run fails for it.
    """
    path = pathlib.Path(workdir) / FILE
    sessions: list[Any] = []
    if path.exists():
        try:
            sessions = list(read_json(path)["sessions"])
        except (InputError, KeyError, TypeError):
            sessions = []
    write_json(path, {"format": 1, "sessions": [*sessions, describe_session()]})


def describe_session() -> dict[str, Any]:
    """What this process runs with, as JSON.

    `started` (UTC, ISO 8601), `command`, `versions` (name -> version), `git` (None outside of a checkout, else
    `revision` and `changed`: whether files of the checkout differ from it), `machine` (`name`, `system`, `processor`,
    `usable_processors`, `memory_gib`, `gpus`), `onednn` (whether TensorFlow's convolutions use it).
    """
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "versions": _versions(),
        "git": git_state(pathlib.Path(tfmat.__file__).resolve().parents[1]),
        "machine": _machine(),
        "onednn": uses_onednn(),
    }


def recorded_onednn(workdir: str | os.PathLike) -> bool | None:
    """Whether the last session of a run used oneDNN; None where there was none.

    Sessions of older versions had what TensorFlow chooses by itself, on this machine if on any.
    """
    try:
        sessions = read_json(pathlib.Path(workdir) / FILE)["sessions"]
        if not sessions:
            return None
        found = sessions[-1].get("onednn")
    except (InputError, KeyError, TypeError, AttributeError):
        return None
    return uses_onednn({}) if found is None else bool(found)


def git_state(folder: pathlib.Path) -> dict[str, Any] | None:
    """`revision` and `changed` of the checkout whose top is this folder; None where it is none."""
    # Not a checkout further up: an installed tfmat may lie inside of somebody else's.
    if not (folder / ".git").exists():
        return None
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"revision": revision, "changed": None if changes is None else bool(changes)}


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
    """What git prints; None where it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True, text=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _command() -> str:
    """The command line as one would type it."""
    program = pathlib.Path(sys.argv[0]).name if sys.argv else ""
    if program == "__main__.py":
        program = "tfmat"
    return shlex.join([program, *sys.argv[1:]])


def _versions() -> dict[str, str]:
    versions = {"tfmat": tfmat.__version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _machine() -> dict[str, Any]:
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "processor": _processor(),
        "usable_processors": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": _gpu_models(),
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _gpu_models() -> list[str]:
    """Models of the NVIDIA GPUs that the driver shows."""
    found = []
    for path in sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in _lines(path):
            name, _, value = line.partition(":")
            if name.strip() == "Model":
                found.append(value.strip())
    return found


def _lines(path: str | os.PathLike) -> list[str]:
    try:
        return pathlib.Path(path).read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []

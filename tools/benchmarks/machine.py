"""On what and with what a benchmark ran."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
from typing import Any

PACKAGES = ("tfmat", "tensorflow", "keras", "numpy", "torch", "jax", "jaxlib")


def describe() -> dict[str, Any]:
    """Date, hardware, versions and load."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _field("/proc/cpuinfo", "model name"),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) * 1024 / 1e9, 1),
        "load": list(os.getloadavg()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _field(path: str, name: str) -> str:
    for line in pathlib.Path(path).read_text("utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

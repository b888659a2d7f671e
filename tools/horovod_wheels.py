"""Horovod's wheel for `horovod_setup`: fetched, changed and built against .venv's TensorFlow, kept, and installed.

What cannot be done is `Failed`, with the status that `tools/setup horovod` ends with.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

import horovod_changes

VERSION = "0.28.1"
ARCHIVE_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
DEFAULTS = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}
# Those of Horovod's variables that say how to build it, not how to run it.
BUILD_SETTING = re.compile(
    r"HOROVOD_(WITH|WITHOUT|GPU|CUDA|ROCM|NCCL|NVTX|BUILD|ALLOW)(_.*)?|HOROVOD_(CPU_OPERATIONS|CMAKE)"
)
# setuptools: the last before pkg_resources went. The rest Horovod's own setup.py wants.
BUILD_TOOLS = ("setuptools<81", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml")

tools = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """Ends the program with `status` and one line."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def echo(message: str) -> None:
    print(f"tfmat setup: {message}", file=sys.stderr, flush=True)


def wheel_key(settings: dict[str, str]) -> str:
    """A name for everything that a built wheel depends on."""
    mpirun = shutil.which("mpirun") or ""
    said = (
        subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
        if mpirun
        else ""
    )
    parts = {
        "horovod": [VERSION, ARCHIVE_SHA256, horovod_changes.CHANGES],
        "tensorflow": importlib.metadata.version("tensorflow"),
        "python": sys.implementation.cache_tag,
        "platform": [sysconfig.get_platform(), *platform.libc_ver()],
        "mpi": [os.path.realpath(mpirun), said.partition("\n")[0]],
        "settings": sorted({**DEFAULTS, **settings}.items()),
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def kept_wheels(settings: dict[str, str], log: pathlib.Path) -> pathlib.Path:
    """Folder with Horovod's wheel and those that it needs; built now unless it was kept."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    need("mpirun")
    folder = cache / "tfmat" / "wheels" / wheel_key(settings)
    if folder.is_dir():
        echo(f"installing the Horovod that was built before ({folder})")
        return folder
    need("mpirun", "mpicxx", "cmake", "g++", "make")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = pathlib.Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    except OSError as error:
        raise Failed(
            2,
            f"cannot write in {folder.parent} ({error.strerror}); set XDG_CACHE_HOME to a folder that is yours",
        ) from error
    try:
        build(made, settings, log)
        made.chmod(0o755)
        with contextlib.suppress(OSError):  # another set-up has built the same meanwhile
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def need(*commands: str) -> None:
    """Installs what is missing of these where that can be done, else ends."""
    if not lacking(commands):
        return
    subprocess.run([tools / "system_packages", "mpi"])
    missing = lacking(commands)
    if missing:
        raise Failed(
            3,
            f"Horovod needs {', '.join(missing)}; "
            "on a cluster load its MPI and compiler modules first (module load openmpi)",
        )


def lacking(commands: tuple[str, ...]) -> list[str]:
    """Which of these are not on PATH; Debian's mpicxx is there before MPI's headers are."""
    missing = [command for command in commands if not shutil.which(command)]
    if "mpicxx" in commands and not missing:
        include = ["mpicxx", "-E", "-include", "mpi.h", "-x", "c++", os.devnull]
        if subprocess.run(include, capture_output=True).returncode:
            missing = ["MPI's headers"]
    return missing


def build(folder: pathlib.Path, settings: dict[str, str], log: pathlib.Path) -> None:
    """Builds Horovod's wheel into `folder`, with the wheels of what it needs."""
    if " " in sys.prefix:
        raise Failed(
            3, f"Horovod cannot be built against what lies in {sys.prefix}: its path has a space"
        )
    with tempfile.TemporaryDirectory(prefix="tfmat-horovod-") as name:
        scratch = pathlib.Path(name)
        echo(f"fetching Horovod {VERSION} and what builds it")
        packages = scratch / "tools"
        run_pip(log, "install", "--target", str(packages), *BUILD_TOOLS)
        # Before .venv's own packages, which stay as they are.
        environment = {"PYTHONPATH": str(packages)}
        source = unpack(fetch(scratch, environment, log), scratch)
        try:
            horovod_changes.change(source)
        except horovod_changes.UnexpectedSource as error:
            raise Failed(1, str(error)) from None
        environment |= DEFAULTS | settings
        environment.setdefault("MAKEFLAGS", f"-j{len(os.sched_getaffinity(0))}")
        # CMake 4 refuses what the sources that come with Horovod ask for.
        environment.setdefault("CMAKE_POLICY_VERSION_MINIMUM", "3.5")
        against = f"TensorFlow {importlib.metadata.version('tensorflow')}"
        shown = "".join(f", {key}={value}" for key, value in sorted(settings.items()))
        echo(f"building Horovod against {against} (minutes){shown}")
        run_pip(
            log,
            *("wheel", "--verbose", "--no-build-isolation", "--use-pep517"),
            *("--wheel-dir", str(folder), str(source)),
            environment=environment,
            show_progress=True,
        )


def fetch(folder: pathlib.Path, environment: dict[str, str], log: pathlib.Path) -> pathlib.Path:
    """Horovod's source archive from the package index, its checksum compared before anything of it is run."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"horovod=={VERSION} --hash=sha256:{ARCHIVE_SHA256}\n")
    try:
        run_pip(
            log,
            *(
                "download",
                "--no-deps",
                "--no-binary",
                "horovod",
                "--no-build-isolation",
                "--use-pep517",
            ),
            *("--require-hashes", "--dest", str(folder), "--requirement", str(requirement)),
            environment=environment,
        )
    except Failed:
        if "DO NOT MATCH THE HASHES" in log.read_text(errors="replace"):
            raise Failed(
                2,
                f"horovod-{VERSION}.tar.gz from the package index is not the one known here (sha256 differs); not used",
            ) from None
        raise
    return folder / f"horovod-{VERSION}.tar.gz"


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    with tarfile.open(archive) as opened:
        # Python 3.11 has filters from 3.11.4 on, which Debian's does not; what is in this archive is known.
        how: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        opened.extractall(folder, **how)
    return folder / f"horovod-{VERSION}"


def install(folder: pathlib.Path, log: pathlib.Path) -> None:
    """Installs the wheels of `folder` into .venv, without an index."""
    wheel = next(folder.glob("horovod-*.whl"))
    # By itself first: what a killed call left half installed would count as installed.
    run_pip(log, "install", "--no-index", "--no-deps", "--force-reinstall", str(wheel))
    run_pip(log, "install", "--no-index", "--find-links", str(folder), str(wheel))


def run_pip(
    log: pathlib.Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    show_progress: bool = False,
) -> None:
    """pip with its output in the log; where it fails, says the lines that name an error."""
    unwanted = {
        f"PIP_{name}" for name in ("USER", "TARGET", "PREFIX", "ROOT", "REQUIRE_VIRTUALENV")
    }
    unwanted.add("PYTHONPATH")  # as they would send packages elsewhere, or find others first
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    process = subprocess.Popen(
        [*command, *arguments],
        env={**inherited, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    errors: list[str] = []
    with log.open("a") as file:
        for line in progress(process.stdout) if show_progress else process.stdout:
            # What follows are the tracebacks of setup.py and pip: the reason stands before them.
            if line.strip() == "Traceback (most recent call last):":
                break
            file.write(line)
            if re.search(r": (fatal )?error: |CMake Error|^ERROR: ", line):
                errors.append(line.strip())
        for _ in process.stdout:
            pass
    if process.wait():
        for line in errors[:3]:
            print(f"    {line[:200]}", file=sys.stderr)
        raise Failed(1, f"pip {arguments[0]} failed")


def progress(lines: Iterator[str]) -> Iterator[str]:
    """Passes the lines on, and shows how far make has come: on one line of a terminal, elsewhere at each quarter."""
    terminal, shown = sys.stderr.isatty(), 0
    for line in lines:
        match = re.match(r"\s*\[ *([0-9]+)%\]", line)
        # Gloo, which is built inside, counts for itself as well: only upwards.
        if match and int(match[1]) >= shown + (1 if terminal else 25):
            shown = int(match[1])
            if terminal:
                print(f"\r\033[Kbuilding Horovod: {shown} %", end="", file=sys.stderr, flush=True)
            else:
                echo(f"building Horovod: {shown} %")
        yield line
    if terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)

"""A Horovod that works with this environment's TensorFlow: `tools/setup horovod` and `tfmat horovod install`.

Horovod's last release, 0.28.1, does not build against TensorFlow 2.21: one of its sources, an operation for XLA on
GPUs, needs headers that TensorFlow's package no longer ships. Without it all else builds and works. One more change
makes its sums of small gradients faster.

This file stands alone, so that `tools/setup` runs it with the environment's Python, and with the log as argument.

Status 0: Horovod is there; 1: something failed, and the log says what; 2: something in the input (the cache's folder,
the package index's archive); 3: it cannot be had here (a tool is missing).
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
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from typing import Any

# --------------------------------------------------------------------------------------------------
# Changes to Horovod 0.28.1's source before it is built: one source and debugging left out, and one wait.
# Each change names the text that it expects; where that is not there, nothing is built.


# Replaces the plain version; `tfmat` recognises by it that Horovod wakes when there is something to sum.
MARKED_VERSION = "0.28.1+wakes"

# Horovod's thread sleeps for HOROVOD_CYCLE_TIME (1 ms) after each round in which it looks whether all ranks want
# something. A short time costs the processor that computes, and each round is a collective that waits for the other
# ranks' threads; a long one delays each sum. With these changes the thread sleeps until a tensor waits, or that long.
_HEADER = "horovod/common/tensor_queue.h"
_QUEUE = "horovod/common/tensor_queue.cc"
CHANGES = {
    # Debugging symbols would take a fifth of the building time.
    "CMakeLists.txt": [
        (
            'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
            'string(REPLACE "-O2 -g" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
        )
    ],
    # An XLA operation for GPUs, which needs headers that TensorFlow 2.21 no longer ships.
    "horovod/tensorflow/CMakeLists.txt": [
        (
            'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
            "",
        )
    ],
    "horovod/__init__.py": [
        ("__version__ = '0.28.1'", f"__version__ = '{MARKED_VERSION}'"),
    ],
    "horovod/common/operations.cc": [
        (
            "    std::this_thread::sleep_for(sleep_duration);\n",
            "    TensorQueue::WaitForTensor(start_time + sleep_duration);\n",
        )
    ],
    _HEADER: [
        ("namespace horovod {\n", "#include <chrono>\n\nnamespace horovod {\n"),
        (
            "  void RemoveJoinTensor();\n",
            """  void RemoveJoinTensor();

  // Sleeps until `deadline`, or until a tensor waits in any queue.
  static void WaitForTensor(std::chrono::steady_clock::time_point deadline);
""",
        ),
        (
            "protected:\n",
            """protected:
  // Adds to the number of tensors that wait in all queues.
  static void CountWaiting(int difference);

""",
        ),
    ],
    _QUEUE: [
        (
            "namespace horovod {\nnamespace common {\n",
            """#include <condition_variable>

namespace horovod {
namespace common {

namespace {
std::mutex waiting_mutex;
std::condition_variable waiting_changed;
int num_waiting = 0;
} // namespace

void TensorQueue::WaitForTensor(
    std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(waiting_mutex);
  waiting_changed.wait_until(lock, deadline, [] { return num_waiting > 0; });
}

void TensorQueue::CountWaiting(int difference) {
  {
    std::lock_guard<std::mutex> guard(waiting_mutex);
    num_waiting += difference;
  }
  if (difference > 0) {
    waiting_changed.notify_one();
  }
}
""",
        ),
        (
            "  message_queue_.push(std::move(message));\n  return Status::OK();\n",
            "  message_queue_.push(std::move(message));\n  CountWaiting(1);\n  return Status::OK();\n",
        ),
        (
            "    message_queue_.push(std::move(messages[i]));\n",
            "    message_queue_.push(std::move(messages[i]));\n    CountWaiting(1);\n",
        ),
        (
            "  tensor_table_.clear();\n",
            "  CountWaiting(-static_cast<int>(tensor_table_.size()));\n  tensor_table_.clear();\n",
        ),
        (
            "        tensor_table_.erase(iter);\n",
            "        tensor_table_.erase(iter);\n        CountWaiting(-1);\n",
        ),
        (
            "  e.FinishWithCallback(Status::OK());\n  tensor_table_.erase(iter);\n",
            "  e.FinishWithCallback(Status::OK());\n  tensor_table_.erase(iter);\n  CountWaiting(-1);\n",
        ),
    ],
}


class UnexpectedSource(Exception):
    """A text that should be replaced is not there once; the message names it."""


def change(source: pathlib.Path) -> None:
    """Makes all changes in the unpacked source; where one does not fit, UnexpectedSource, and nothing is written."""
    changed = {}
    for name, replacements in CHANGES.items():
        text = (source / name).read_text("utf-8")
        for old, new in replacements:
            if text.count(old) != 1:
                wanted = old.strip().splitlines()[-1]
                raise UnexpectedSource(
                    f"{name} holds '{wanted}' {text.count(old)} times, not once as expected"
                )
            text = text.replace(old, new)
        changed[name] = text
    for name, text in changed.items():
        (source / name).write_text(text, "utf-8")


# --------------------------------------------------------------------------------------------------
# Horovod's wheel: fetched, changed and built against the environment's TensorFlow, kept, and installed.


VERSION = "0.28.1"
ARCHIVE_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
DEFAULTS = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}
# Horovod's variables that say how to build it, not how to run it.
BUILD_SETTING = re.compile(
    r"HOROVOD_(WITH|WITHOUT|GPU|CUDA|ROCM|NCCL|NVTX|BUILD|ALLOW)(_.*)?|HOROVOD_(CPU_OPERATIONS|CMAKE)"
)
# setuptools: the last before pkg_resources went. The rest Horovod's own setup.py wants.
BUILD_TOOLS = ("setuptools<81", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml")

# SYSTEM_PACKAGES: of a clone, which installs what Debian has; an installed wheel has none.
SYSTEM_PACKAGES = pathlib.Path(__file__).resolve().parents[2] / "tools" / "system_packages"


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
        "horovod": [VERSION, ARCHIVE_SHA256, CHANGES],
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
    if SYSTEM_PACKAGES.exists():
        subprocess.run([SYSTEM_PACKAGES, "mpi"])
    missing = lacking(commands)
    if missing:
        raise Failed(
            3,
            f"Horovod needs {', '.join(missing)}; on a cluster load its MPI and compiler modules first (module load "
            "openmpi), on Debian or Ubuntu apt-get install openmpi-bin libopenmpi-dev cmake g++ make",
        )


def lacking(commands: tuple[str, ...]) -> list[str]:
    """Commands that are not on PATH; Debian's mpicxx is there before MPI's headers are."""
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
        # Before the environment's own packages, which stay as they are.
        environment = {"PYTHONPATH": str(packages)}
        source = unpack(fetch(scratch, environment, log), scratch)
        try:
            change(source)
        except UnexpectedSource as error:
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
            *("download", "--no-deps", "--no-binary", "horovod"),
            *("--no-build-isolation", "--use-pep517"),
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
    """Installs the wheels of `folder` into this environment, without an index."""
    wheel = next(folder.glob("horovod-*.whl"))
    # First by itself: what a killed call left half installed would count as installed.
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
            # The tracebacks of setup.py and pip follow: the reason stands before them.
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


# --------------------------------------------------------------------------------------------------
# An existing one is used: the environment's own Horovod, or one of the Python below it.


PROBE = """
import importlib.metadata, horovod, horovod.tensorflow as hvd
with_ = [name for name in ("MPI", "Gloo", "NCCL") if getattr(hvd, name.lower() + "_built")()]
print("Horovod", horovod.__version__, "with", ", ".join(with_) or "neither MPI nor Gloo", "from", horovod.__path__[0])
"""

site_packages = pathlib.Path(sysconfig.get_path("platlib"))
state = pathlib.Path(sys.prefix) / ".tfmat"


def provide(log: pathlib.Path) -> None:
    """Uses the Horovod that is there, else a kept wheel, else builds one."""
    settings = {name: value for name, value in os.environ.items() if BUILD_SETTING.fullmatch(name)}
    ours = state / "horovod_wheel"  # the key of the wheel that an earlier call installed
    wanted = ours.exists() and settings and ours.read_text() != wheel_key(settings)
    if not wanted:
        found = importable() or link_to_base()
        if found:
            echo(f"{found}: used as it is")
            return
    folder = kept_wheels(settings, log)
    install(folder, log)
    state.mkdir(exist_ok=True)
    ours.write_text(folder.name)
    found = importable(log)
    if not found:
        raise Failed(1, "Horovod was installed but cannot be imported")
    echo(found)


def importable(log: pathlib.Path | None = None) -> str:
    """This Python's word on a Horovod that it can use, also one of PYTHONPATH's (a module's); "" without one."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE], env=environment, capture_output=True, text=True
    )
    if log and done.returncode:
        log.open("a").write(done.stderr)
    return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else ""


def remove_links() -> None:
    """Takes links to another Python's Horovod away; pip would follow them and remove what is not ours."""
    for path in site_packages.glob("horovod*"):
        if path.is_symlink():
            path.unlink()


def link_to_base() -> str:
    """Makes the Horovod of the Python below this environment (a container's, say) visible here, if it works."""
    program = (
        "import horovod, importlib.metadata as metadata; "
        "print(horovod.__path__[0]); print(metadata.distribution('horovod')._path)"
    )
    base = subprocess.run(
        [str(sys._base_executable), "-I", "-c", program],  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
    )
    remove_links()
    links = []
    for line in base.stdout.splitlines() if base.returncode == 0 else []:
        link = site_packages / pathlib.Path(line).name
        if not link.exists() and not link.is_symlink():
            link.symlink_to(line)
            links.append(link)
    found = importable() if links else ""
    if not found:
        remove_links()
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        pathlib.Path(sys.argv[1]).write_text("")
        provide(pathlib.Path(sys.argv[1]))
    except Failed as failure:
        echo(f"error: {failure}")
        sys.exit(failure.status)
    except KeyboardInterrupt:
        sys.exit(130)

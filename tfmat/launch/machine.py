"""This machine: what it has and can do (`tfmat doctor`), and what a run was made with."""

import concurrent.futures
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
from msgspec import Struct

import tfmat
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.launch.processes import prepare_onednn, uses_onednn

# --------------------------------------------------------------------------------------------------
# Trials of the doctor in processes of their own: programs, of which each prints one JSON object a line.
#
# They are apart because Horovod, mpi4py and DTensor may only be imported by their backends, and because one that hangs
# or crashes must not take the doctor with it.


_TIMING = """
import json, statistics, time
def median_milliseconds(call):
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
"""
TENSORFLOW_PROBE = (
    _TIMING
    + """
import tensorflow as tf, keras
gpus = tf.config.list_physical_devices("GPU")
names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
print(json.dumps({"tensorflow": tf.__version__, "keras": keras.__version__, "gpus": names}), flush=True)

import numpy as np
from tensorflow.experimental import dtensor
tf.config.set_visible_devices([], "GPU")
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
left, right = np.random.default_rng(0).normal(size=(2, 128, 128)).astype("float32")
halves = dtensor.pack(list(np.split(left, 2)), dtensor.Layout(["batch", dtensor.UNSHARDED], mesh))
whole = dtensor.copy_to_mesh(right, dtensor.Layout.replicated(mesh, rank=2))
# Each device multiplies its half of the rows; their sum over all rows needs an all-reduce.
product = tf.function(lambda x, y: tf.reduce_sum(tf.matmul(x, y), axis=0))
found = [part.numpy() for part in dtensor.unpack(product(halves, whole))]
right_answer = all(np.allclose(part, (left @ right).sum(0), rtol=1e-3, atol=1e-3) for part in found)
milliseconds = median_milliseconds(lambda: dtensor.unpack(product(halves, whole))[0].numpy())
print(json.dumps({"right": right_answer, "milliseconds": milliseconds}), flush=True)
"""
)
HOROVOD_PROBE = (
    _TIMING
    + """
import horovod, horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
gradients = tf.fill([153441], hvd.rank() + 1.0)
def reduce():
    return hvd.allreduce(gradients, op=hvd.Sum, name="doctor").numpy()
right_answer = bool((reduce() == hvd.size() * (hvd.size() + 1) / 2).all())
milliseconds = median_milliseconds(reduce)
built = [name for name in ("MPI", "Gloo", "NCCL") if getattr(hvd, name.lower() + "_built")()]
if hvd.rank() == 0:
    print(json.dumps({"version": horovod.__version__, "built": built, "size": hvd.size(),
                      "right": right_answer, "milliseconds": milliseconds}), flush=True)
hvd.shutdown()
"""
)
MPI4PY_PROBE = (
    _TIMING
    + """
import mpi4py, numpy as np
from mpi4py import MPI
world, gradients = MPI.COMM_WORLD, np.empty(153441, np.float32)
def reduce():
    gradients[:] = world.rank + 1
    world.Allreduce(MPI.IN_PLACE, gradients)
    return gradients
right_answer = bool((reduce() == world.size * (world.size + 1) / 2).all())
milliseconds = median_milliseconds(reduce)
if world.rank == 0:
    print(json.dumps({"version": mpi4py.__version__, "built": [MPI.get_vendor()[0]], "size": world.size,
                      "right": right_answer, "milliseconds": milliseconds}), flush=True)
"""
)


# --------------------------------------------------------------------------------------------------
# Abilities of this machine, found by trial: each library is tried in a process of its own, with a time-out.


# Seconds. Two processes that load TensorFlow on busy processors take long; SLURM retries for a minute where no
# controller answers.
PATIENCE = 60.0
SLURM_PATIENCE = 5.0

SETUP_HOROVOD = "tfmat horovod install"
GET_MPI = "apt-get install openmpi-bin libopenmpi-dev (on a cluster: module load openmpi)"
GET_SLURM = "apt-get install slurm-client (on a cluster: use a login node)"
GET_CALCULIX = (
    "apt-get install calculix-ccx (only simulators that call it, and tests of material cards)"
)
GET_CONTROLLER = "use a login node, or set SLURM_CONF to the cluster's slurm.conf"


def how_to_install(extra: str = "") -> str:
    """The line that adds what is missing to this environment, or what an extra of setup.cfg needs.

    A clone has `tools/setup` for some extras; elsewhere pip completes the tfmat that is there.
    """
    in_clone = (pathlib.Path(tfmat.__file__).resolve().parents[1] / "tools/setup").is_file()
    if in_clone and extra != "gpu":
        return f"./tools/setup {extra}".strip()
    named = f"[{extra}]" if extra else ""
    of = f"--editable '.{named}'" if in_clone else f"'tfmat{named}'"
    return f"{shlex.quote(sys.executable)} -m pip install {of}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One row of the doctor's table.

    Attributes:
      part: of the machine or of the software.
      state: "ok"; "missing": it is not here; "failed": it is here and does not work.
      detail: version and whereabouts, or what went wrong.
      remedy: the one line that gets it, where it is missing or fails and there is such a line.
      milliseconds: that its trial took, where there is one (the median of 20).
    """

    part: str
    state: str
    detail: str
    remedy: str | None = None
    milliseconds: float | None = None


def examine() -> list[Finding]:
    """Examines this machine; takes about ten seconds, most of it loading TensorFlow three times."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        tensorflow = pool.submit(_examine_tensorflow)
        horovod = pool.submit(_examine_ranks, "Horovod", HOROVOD_PROBE, SETUP_HOROVOD)
        mpi4py = pool.submit(_examine_ranks, "mpi4py", MPI4PY_PROBE, how_to_install("mpi"))
        slurm = pool.submit(_examine_slurm)
        *libraries, dtensor = tensorflow.result()
        return [
            Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}"),
            _examine_hardware(),
            *libraries,
            _examine_mpi(),
            horovod.result(),
            mpi4py.result(),
            dtensor,
            slurm.result(),
            _examine_calculix(),
        ]


def _examine_hardware() -> Finding:
    usable, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count()
    text = f"{usable}" if usable == all_of_them else f"{usable} of {all_of_them}"
    memory = psutil.virtual_memory()
    total, free = memory.total / 2**30, memory.available / 2**30
    environment = dict(os.environ)
    prepare_onednn(environment=environment)
    kernels = "with" if uses_onednn(environment) else "without"
    memory_text = f"memory {total:.1f} GiB, {free:.1f} GiB of it free"
    return Finding("processors", "ok", f"{text}; {memory_text}; TensorFlow {kernels} oneDNN")


def _examine_tensorflow() -> list[Finding]:
    """TensorFlow, Keras, GPUs, DTensor."""
    names = ("TensorFlow", "Keras", "GPUs", "DTensor")
    if importlib.util.find_spec("tensorflow") is None:
        return [Finding(name, "missing", "not installed", how_to_install()) for name in names]
    answers, complaint = _ask([sys.executable, "-P", "-c", TENSORFLOW_PROBE])
    if not answers:
        broken = Finding("TensorFlow", "failed", complaint, how_to_install())
        return [broken, *(Finding(name, "failed", "needs TensorFlow") for name in names[1:])]
    libraries = answers[0]
    if len(answers) < 2:
        dtensor = Finding("DTensor", "failed", complaint, how_to_install())
    else:
        trial = "matrix product with all-reduce on two virtual devices"
        dtensor = _trial_finding("DTensor", trial, answers[1], how_to_install())
    return [
        Finding("TensorFlow", "ok", libraries["tensorflow"]),
        Finding("Keras", "ok", libraries["keras"]),
        _examine_gpus(libraries["gpus"]),
        dtensor,
    ]


def _examine_gpus(names: Sequence[str]) -> Finding:
    if names:
        kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
        return Finding("GPUs", "ok", kinds)
    if shutil.which("nvidia-smi"):
        return Finding(
            "GPUs", "failed", "nvidia-smi is here, but TensorFlow sees none", how_to_install("gpu")
        )
    return Finding("GPUs", "missing", "none; training uses the processors")


def _examine_mpi() -> Finding:
    path = shutil.which("mpirun")
    if path is None:
        return Finding("MPI", "missing", "there is no mpirun", GET_MPI)
    said, complaint = _output([path, "--version"], SLURM_PATIENCE)
    if not said:
        return Finding("MPI", "failed", complaint, GET_MPI)
    # `mpirun (Open MPI) 4.1.4`; MPICH needs two lines.
    match = re.search(r"\((Open MPI)\) (\S+)|(HYDRA).*?Version: +(\S+)", said, re.DOTALL)
    kind = " ".join(filter(None, match.groups())) if match else said.splitlines()[0]
    return Finding("MPI", "ok", f"{kind}, {path}")


def _examine_ranks(part: str, program: str, remedy: str) -> Finding:
    """Whether two ranks of mpirun can sum by the package that is called as `part` is in small letters."""
    package = part.lower()
    if importlib.util.find_spec(package) is None:
        return Finding(part, "missing", "not installed", remedy)
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        version = importlib.metadata.version(package)
        return Finding(part, "failed", f"{version}, but there is no mpirun", GET_MPI)
    # More ranks than a small machine has processors are fine here, and so is root.
    said, _ = _output([mpirun, "--version"], SLURM_PATIENCE)
    options = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in said else []
    answers, complaint = _ask(
        [mpirun, *options, "-np", "2", sys.executable, "-P", "-c", program],
        {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )
    if not answers:
        return Finding(part, "failed", complaint, remedy)
    answer = answers[0]
    built = f"{answer['version']} with {', '.join(answer['built']) or 'neither MPI nor Gloo'}"
    if answer["size"] != 2:
        detail = f"{built}: two ranks of mpirun do not see each other"
        return Finding(part, "failed", detail, remedy)
    return _trial_finding(part, f"{built}: all-reduce of 0.61 MB over two ranks", answer, remedy)


def _examine_slurm() -> Finding:
    if shutil.which("sinfo") is None:
        return Finding("SLURM", "missing", "there is no sinfo", GET_SLURM)
    said, complaint = _output(["sinfo", "--version"], SLURM_PATIENCE)
    if not said:
        return Finding("SLURM", "failed", complaint, GET_CONTROLLER)
    version = said.split()[-1]
    # Nodes and their state, one line for each state.
    said, complaint = _output(["sinfo", "--noheader", "--format=%D %T"], SLURM_PATIENCE)
    if not said:
        detail = f"{version}, but no controller answers ({complaint})"
        return Finding("SLURM", "failed", detail, GET_CONTROLLER)
    nodes = ", ".join(f"{line.split()[0]} {line.split()[1]}" for line in said.splitlines())
    return Finding("SLURM", "ok", f"{version}; nodes: {nodes}")


def _examine_calculix() -> Finding:
    path = shutil.which("ccx")
    if path is None:
        return Finding("CalculiX", "missing", "there is no ccx", GET_CALCULIX)
    said, complaint = _output([path, "-v"], SLURM_PATIENCE)
    match = re.search(r"Version (\S+)", said)
    if match is None:
        return Finding(
            "CalculiX", "failed", complaint or "it does not say its version", GET_CALCULIX
        )
    return Finding("CalculiX", "ok", f"{match[1]}, {path}")


def _trial_finding(part: str, trial: str, answer: Mapping[str, Any], remedy: str) -> Finding:
    milliseconds = answer["milliseconds"]
    if not answer["right"]:
        return Finding(part, "failed", f"{trial}: wrong sum", remedy, milliseconds)
    return Finding(part, "ok", f"{trial}, {milliseconds:.2g} ms", milliseconds=milliseconds)


def _ask(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], str]:
    """Runs a probe; returns the objects that it printed, and what went wrong if they are not all there."""
    said, complaint = _output(command, PATIENCE, environment)
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")], complaint


def _output(
    command: Sequence[str], patience: float, environment: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Standard output of a command, and one line about its failure ("" where it went well)."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, **quiet, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that all of it can be killed
        )
    except OSError as error:
        return "", f"{command[0]}: {error.strerror}"
    try:
        said, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return said, f"no answer within {patience:.0f} s"
    if process.returncode == 0:
        return said, ""
    return said, _reason(errors) or f"ended with status {process.returncode}"


def _reason(errors: str) -> str:
    """The line of a program's complaints that says most: a Python exception's, or else the last one."""
    lines = [line.strip() for line in errors.splitlines() if line.strip(" -")]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (exceptions or lines or [""])[-1][:200]


# --------------------------------------------------------------------------------------------------
# The provenance of a run: program, packages, machine, git revision, command, date. Loads none of them.


FILE = "provenance.json"
# Whose versions can change a run's numbers.
_PACKAGES = ("tensorflow", "keras", "numpy", "scipy", "ml_collections", "horovod")
_PATIENCE = 10.0  # seconds for git, whose checkout may lie on a slow disk


class Git(Struct, frozen=True):
    """The revision of the program's checkout, and whether files of the checkout differ from it."""

    revision: str | None = None
    changed: bool | None = False


class Machine(Struct, frozen=True):
    """The machine of a session; `gpus` are the models of NVIDIA's that the driver shows."""

    name: str = "–"
    system: str = "–"
    processor: str = "–"
    usable_processors: int | str = "–"
    memory_gib: int | float | str = "–"
    gpus: list[str] | None = None


class Session(Struct, kw_only=True, frozen=True):
    """One start of a run, or of a study: the software and hardware of its process.

    Attributes:
      started: UTC, ISO 8601.
      versions: of Python and of packages whose versions can change a run's numbers.
      git: None outside of a checkout.
      onednn: whether TensorFlow's convolutions use it; None in files of older versions.
    """

    started: str = "–"
    command: str = "–"
    versions: dict[str, Any] | None = None
    git: Git | None = None
    machine: Machine = Machine()
    onednn: bool | None = None


def record_session(workdir: str | os.PathLike) -> None:
    """Adds what this process is to `provenance.json` of a run's folder: one entry each time that the run goes on.

    The file holds `format` and `sessions`, a list of every `Session`, the oldest first. A damaged file
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


def describe_session() -> Session:
    """This process."""
    return Session(
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=_command(),
        versions=_versions(),
        git=git_state(pathlib.Path(tfmat.__file__).resolve().parents[1]),
        machine=_machine(),
        onednn=uses_onednn(),
    )


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


def git_state(folder: pathlib.Path) -> Git | None:
    """The checkout whose top is this folder; None where it is none."""
    # Not a checkout further up: an installed tfmat may lie inside of somebody else's.
    if not (folder / ".git").exists():
        return None
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return Git(revision, None if changes is None else bool(changes))


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
    """The output of git; None where it fails or is not there."""
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


def _machine() -> Machine:
    gpus = sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return Machine(
        name=platform.node(),
        system=platform.platform(),
        processor=_field("/proc/cpuinfo", "model name")
        or platform.processor()
        or platform.machine(),
        usable_processors=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=[found for path in gpus if (found := _field(path, "Model"))],
    )


def _field(path: str | os.PathLike, name: str) -> str:
    """The first value of a name in a file of `NAME: VALUE` lines; empty where there is none."""
    try:
        text = pathlib.Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^{name}\s*:(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""

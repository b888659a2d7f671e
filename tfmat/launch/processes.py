"""This process: its place among others, the settings in its environment, TensorFlow's start in it, and its forks."""

import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import itertools
import math
import multiprocessing
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from tfmat.errors import InputError, WorkerLostError

# --------------------------------------------------------------------------------------------------
# This process among how many: one table of the names that launchers put into the environment of what they start.


@dataclasses.dataclass(frozen=True)
class Processes:
    """This process among the processes of its run.

    Attributes:
      rank: of this process, from 0.
      size: number of processes of the run.
      local_rank: of this process among those on its node, from 0.
      local_size: number of the run's processes on this node.
      launcher: what started them: "mpirun" (Open MPI), "mpiexec" (MPICH, Intel MPI), "srun", "horovodrun", or "none".
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launcher: str = "none"


@dataclasses.dataclass(frozen=True)
class _Names:
    """One row of the table: a launcher, the variable that it alone sets, and those that hold its four numbers."""

    launcher: str
    sign: str
    rank: str
    size: str
    local_rank: str
    local_size: str


_STEP_SIZE, _STEP_LAYOUT, _NODE = (
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NODEID",
)

# The first row whose sign is there holds. MPI's own launchers come first: on other nodes mpirun and mpiexec start
# their daemons with srun, so that their ranks see the SLURM_* of the daemon. Among the SLURM_* only the step's tell:
# SLURM_NTASKS and SLURM_NTASKS_PER_NODE can be the job's, and a batch shell has SLURM_PROCID=0 too.
_TABLE = (
    _Names(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Names(
        "mpiexec", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
    ),
    # HPE Cray's PALS
    _Names("mpiexec", "PMI_LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    _Names("srun", _STEP_SIZE, "SLURM_PROCID", _STEP_SIZE, "SLURM_LOCALID", _STEP_LAYOUT),
    _Names(
        "horovodrun",
        "HOROVOD_RANK",
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
    ),
)


def find_processes(environment: Mapping[str, str] = os.environ) -> Processes:
    """Reads from the environment what the launcher says; without a launcher, one process alone.

    A step of one task that srun started is taken for no launcher: `srun --pty bash` is one too.

    Raises:
      InputError: what the launcher says is incomplete, no number, or contradicts itself.
    """
    one_task = environment.get(_STEP_SIZE) == "1"
    for names in _TABLE:
        if names.sign in environment and not (names.launcher == "srun" and one_task):
            rank, size, local_rank = (
                _number(name, environment) for name in (names.rank, names.size, names.local_rank)
            )
            by_layout = names.local_size == _STEP_LAYOUT
            local_size = (
                _tasks_on_node(environment) if by_layout else _number(names.local_size, environment)
            )
            found = Processes(rank, size, local_rank, local_size, names.launcher)
            _check(found, names, environment)
            return found
    for name in ("PMIX_RANK", "PMI_RANK"):
        # Left alone, every rank would train for itself and write to the same folder.
        if name in environment and not one_task:
            raise InputError(
                f"a launcher set {name}={environment[name]}, but not how many processes there are on this node; "
                "start with mpirun, mpiexec, srun --mpi=pmix or horovodrun"
            )
    return Processes()


def available_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def processors_per_rank(processes: Processes, environment: Mapping[str, str] = os.environ) -> int:
    """Number of processors that this process should use, at least 1.

    The processors of the node (of its part that a container or a SLURM job holds) are shared evenly by the ranks on it.
    A rank that its launcher bound to fewer (`mpirun --bind-to core`) uses these; see `told_of_binding`.
    """
    # The processors that this process may use are no measure by themselves: bound to a socket, several ranks share it.
    return min(available_threads(), _share_of_node(processes, environment))


def told_of_binding(
    processes: Processes, environment: Mapping[str, str] = os.environ
) -> str | None:
    """One line where the launcher bound a rank to fewer processors than its share of the node, as Open MPI does."""
    bound, share = available_threads(), _share_of_node(processes, environment)
    if processes.launcher == "none" or bound >= share:
        return None
    cure = {
        "mpirun": "mpirun -bind-to none",
        "srun": f"srun --cpus-per-task={share}",
    }.get(processes.launcher, "your launcher's option against binding")
    return (
        f"a rank is bound to {bound} of the {share} processors that are its share of this node; "
        f"the others stand idle without {cure}"
    )


def _share_of_node(processes: Processes, environment: Mapping[str, str]) -> int:
    try:
        # The first process of a container has what the container has.
        node = len(os.sched_getaffinity(1))
    except OSError:
        node = os.cpu_count() or 1
    allocated = environment.get("SLURM_CPUS_ON_NODE", "")
    if processes.launcher == "srun" and allocated.isdecimal():
        node = min(node, int(allocated))
    return max(1, node // processes.local_size)


def _number(name: str, environment: Mapping[str, str]) -> int:
    text = environment.get(name, "")
    # int() would also take " 1", "1_0" and other alphabets' digits.
    if not re.fullmatch("[0-9]{1,9}", text):
        found = f"is '{text}'" if name in environment else "is missing"
        raise InputError(f"{name} {found}; a launcher sets it to a whole number from 0")
    return int(text)


def _tasks_on_node(environment: Mapping[str, str]) -> int:
    """Number of tasks on this node, from SLURM's "2(x3),1" and this node's place in it."""
    layout, node = environment.get(_STEP_LAYOUT, ""), _number(_NODE, environment)
    for part in layout.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", part)
        if not match:
            raise InputError(f"{_STEP_LAYOUT} is '{layout}'; srun sets it to, say, 2(x3),1")
        node -= int(match[2] or 1)
        if node < 0:
            return int(match[1])
    raise InputError(f"{_STEP_LAYOUT}={layout} has no node {environment[_NODE]} ({_NODE})")


def _check(found: Processes, names: _Names, environment: Mapping[str, str]) -> None:
    """Raises InputError where two of the numbers cannot both be right."""
    contradictions = [
        (found.rank >= found.size, names.rank, names.size),
        (found.local_rank >= found.local_size, names.local_rank, names.local_size),
        (found.local_size > found.size, names.local_size, names.size),
    ]
    if names.launcher == "srun":
        # MPI takes its rank from these; it is the task's number, or the variable is of another launcher.
        for name in {"PMIX_RANK", "PMI_RANK"} & environment.keys():
            contradictions.append((_number(name, environment) != found.rank, name, names.rank))
    for wrong, first, second in contradictions:
        if wrong:
            raise InputError(
                f"{first}={environment[first]} contradicts {second}={environment[second]}; "
                "start all processes with one launcher, and clear what an outer one left in the environment"
            )


# --------------------------------------------------------------------------------------------------
# Settings of tfmat and Horovod in the environment: checked by every command before it makes anything.


# WORKER_TIMEOUT: seconds of silence after which a rank is lost; 0 watches nobody.
WORKER_TIMEOUT = "TFMAT_WORKER_TIMEOUT"
# START_TIMEOUT: seconds in which all ranks must find each other.
START_TIMEOUT = "HOROVOD_START_TIMEOUT"
# SECONDS: what holds where the environment says nothing.
SECONDS = {WORKER_TIMEOUT: 20.0, START_TIMEOUT: 45.0}
# TENSOR_PORTS: who may come to the ports of TensorFlow's servers, see port_guard.py.
TENSOR_PORTS = "TFMAT_TENSOR_PORTS"
GUARDED, OPEN, REFUSED = "guarded", "open", "refused"


def seconds_setting(name: str, environment: Mapping[str, str] = os.environ) -> float:
    """The seconds that a setting says, or its default; InputError where it is no number."""
    text, default = environment.get(name, ""), SECONDS[name]
    if not text:
        return default
    if not _is_number(text):
        raise InputError(
            f"{name}={text} is no number of seconds; set it to {default:g}, for example"
        )
    return float(text)


def ports_setting(environment: Mapping[str, str] = os.environ) -> str:
    """The word in TFMAT_TENSOR_PORTS, `guarded` where it is not set; InputError where it is no such word."""
    text = environment.get(TENSOR_PORTS) or GUARDED
    if text not in (GUARDED, OPEN, REFUSED):
        raise InputError(f"{TENSOR_PORTS} is '{text}'; give {GUARDED}, {OPEN} or {REFUSED}")
    return text


# The Horovod of `tfmat horovod install`, whose thread wakes when there is something to sum.
_WAKES = "+wakes"
GET_HOROVOD = "`tfmat horovod install` builds it, `tfmat doctor` tells what is missing"


# Bytes up to which a message over TCP is sent at once. Beyond its limit, by default 64 kB, Open MPI asks the receiver
# first: a round trip more for each message of a sum, which on a link of 5 ms takes as long as the bytes do.
_SENT_AT_ONCE = str(1 << 20)


def prepare_mpi(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets what measures best with Open MPI, where the user has not said otherwise; call it before MPI starts.

    docs/benchmark.md has the measurements.
    """
    # A thread that waits lets the computing one go first where they share a processor.
    environment.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    limits = [
        f"OMPI_MCA_btl_tcp_{name}" for name in ("eager_limit", "rndv_eager_limit", "max_send_size")
    ]
    if not any(limit in environment for limit in limits):  # they must fit each other
        environment.update(dict.fromkeys(limits, _SENT_AT_ONCE))


def prepare_horovod() -> None:
    """Sets what measures best, where the user has not said otherwise; call it before Horovod's `init`.

    docs/benchmark.md has the measurements.
    """
    prepare_mpi()
    # Milliseconds that Horovod's thread sleeps between two looks: as long as it likes where a tensor wakes it.
    os.environ.setdefault("HOROVOD_CYCLE_TIME", "10" if _wakes() else "0.5")


# ONEDNN: TensorFlow's own switch for the kernels of oneDNN.
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# Processors with one of these get oneDNN from TensorFlow by itself (tensorflow/core/util/port.cc, DefaultOneDnnPolicy).
_ONEDNN_BY_ITSELF = {
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
}


def processor_features(file: str = "/proc/cpuinfo") -> frozenset[str]:
    """Abilities of the processor as Linux lists them, such as avx2; empty where it says nothing."""
    try:
        with open(file, encoding="utf-8", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return frozenset()
    return frozenset(flags.partition(":")[2].split())


def prepare_onednn(
    recorded: bool | None = None,
    environment: MutableMapping[str, str] = os.environ,
    features: frozenset[str] | None = None,
) -> None:
    """Chooses the kernels of TensorFlow's convolutions; call it before TensorFlow is imported.

    TensorFlow leaves oneDNN off where a processor has AVX2 and no newer instructions for networks, such as AMD's Zen 2
    and Zen 3. Convolutions are 1.5 to 1.8 times as fast with it there. A variable that the user set is believed.

    Args:
      recorded: whether the run that goes on has used it, so that its weights keep their kernels; None for a new run.
    """
    found = processor_features() if features is None else features
    wanted = "avx2" in found if recorded is None else recorded
    if not environment.get(ONEDNN) and wanted != uses_onednn(environment, found):
        # A processor that TensorFlow chooses oneDNN for has AVX2 as well.
        environment[ONEDNN] = "1" if wanted else "0"


def uses_onednn(
    environment: Mapping[str, str] = os.environ, features: frozenset[str] | None = None
) -> bool:
    """Whether TensorFlow uses oneDNN where this is its environment."""
    said = environment.get(ONEDNN, "").lower()
    if said in ("0", "1", "false", "true"):  # TensorFlow takes any other word for none
        return said in ("1", "true")
    return bool(_ONEDNN_BY_ITSELF & (processor_features() if features is None else features))


def check_horovod_sees(started: Processes, rank: int, size: int) -> None:
    """InputError where Horovod sees other processes than were started: each would train for itself."""
    if (rank, size) != (started.rank, started.size):
        raise InputError(
            f"{started.launcher} started {started.size} processes, but Horovod sees {size}: "
            f"it was built for another MPI; {GET_HOROVOD}"
        )


def _wakes() -> bool:
    try:
        return importlib.metadata.version("horovod").endswith(_WAKES)
    except importlib.metadata.PackageNotFoundError:
        return False  # one from PYTHONPATH, say


# Horovod reads its own with C's strtol and atof, which take what is no number for 0
# (horovod/common/utils/env_parser.cc of 0.28.1).
_COUNTS = (
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "HOROVOD_GLOO_TIMEOUT_SECONDS",
    "HOROVOD_NUM_NCCL_STREAMS",
    "HOROVOD_NUM_FINALIZER_THREADS",
)
_SWITCHES = (
    "TFMAT_VERBOSE",
    "HOROVOD_STALL_CHECK_DISABLE",
    "HOROVOD_AUTOTUNE",
    "HOROVOD_HIERARCHICAL_ALLREDUCE",
    "HOROVOD_HIERARCHICAL_ALLGATHER",
    "HOROVOD_MPI_THREADS_DISABLE",
    "HOROVOD_BATCH_D2D_MEMCOPIES",
    "HOROVOD_TIMELINE_MARK_CYCLES",
    "HOROVOD_DISABLE_GROUP_FUSION",
)
_WORDS = {
    "HOROVOD_CONTROLLER": ("mpi", "gloo"),
    "HOROVOD_CPU_OPERATIONS": ("mpi", "gloo", "ccl"),
    "HOROVOD_LOG_LEVEL": ("trace", "debug", "info", "warning", "error", "fatal"),
}


def check_settings(environment: Mapping[str, str] = os.environ) -> None:
    """InputError for the first setting that is no number, or no word, where one is wanted; an empty one is none."""
    for name in SECONDS:
        seconds_setting(name, environment)
    kinds: list[tuple[tuple[str, ...], Callable[[str], object], str]] = [
        (("HOROVOD_CYCLE_TIME",), _is_number, "a number, 0 or more"),
        (_COUNTS, re.compile("[0-9]{1,18}").fullmatch, "a whole number, 0 or more"),
        (_SWITCHES, re.compile("[01]").fullmatch, "0 or 1"),
        (
            ("TFMAT_MESH_STEPS_A_CALL",),
            re.compile("0*[1-9][0-9]{0,17}").fullmatch,
            "a whole number, 1 or more",
        ),
        *(
            ((name,), re.compile("|".join(words), re.IGNORECASE).fullmatch, ", ".join(words))
            for name, words in _WORDS.items()
        ),
    ]
    for names, is_valid, wanted in kinds:
        for name in names:
            text = environment.get(name, "")
            if text and not is_valid(text):
                raise InputError(f"{name} is '{text}'; give {wanted}, or unset it")
    ports_setting(environment)


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


# --------------------------------------------------------------------------------------------------
# Imports TensorFlow without its banners.


# _THREADS_A_VIRTUAL_DEVICE: of TensorFlow, for operations that wait for other devices.
_THREADS_A_VIRTUAL_DEVICE = 4
# Keras loads them for wrappers and pictures of its own, where they are there, which takes a third of its time.
_FOR_WRAPPERS = ("matplotlib", "pandas", "sklearn")


def prepare_tensorflow(
    *,
    one_thread_an_operation: bool = False,
    processors: int | None = None,
    waiting: int = 0,
    gpu: int | None = None,
    virtual_devices: int = 1,
    start: bool = True,
    own_program: bool = False,
    onednn: bool | None = None,
) -> None:
    """Imports TensorFlow and Keras quietly; call it once before a command's own imports of them.

    Args:
      one_thread_an_operation: several operations run side by side, each on one processor, where TensorFlow would
        spread each one over all. A training step that comes in pieces (see SingleBackend) is then up to 1.7 times
        faster on a CPU. Without effect where TensorFlow has started already.
      processors: how many to use; None for all that this process may use.
      waiting: operations that may wait for other processes at the same time; each has a thread beside those of the
        processors, where an operation has one.
      gpu: the one to use (its memory is taken as it is needed), where several processes share a node's; None for all.
      virtual_devices: how many CPU devices TensorFlow is to see; for meshes (fixed once it has started).
      start: False where it may not start yet: the processes of a mesh must join before it does.
      own_program: nobody but tfmat uses Keras in this process: its wrappers for pandas, scikit-learn and Matplotlib are
        left out. These packages can be imported as ever.
      onednn: whether a run that goes on has used oneDNN; None chooses by the processor (see `prepare_onednn`).

    TensorFlow 2.21 prints through absl before absl's logging is set up, so TF_CPP_MIN_LOG_LEVEL alone does not silence
    it. The text is shown after all when the import fails, or with TFMAT_VERBOSE=1.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if "tensorflow" not in sys.modules:
        prepare_onednn(onednn)
    if "tensorflow" in sys.modules or os.environ.get("TFMAT_VERBOSE") == "1":
        import keras
        import tensorflow  # noqa: F401

        return
    with standard_error_held_back():
        with _seemingly_absent(*_FOR_WRAPPERS if own_program else ()):
            import keras  # noqa: F401
        import tensorflow as tf

        if one_thread_an_operation:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            available = available_threads()
            tf.config.threading.set_inter_op_parallelism_threads(
                waiting + (processors or available)
            )
        elif processors:
            tf.config.threading.set_intra_op_parallelism_threads(processors)
        if gpu is not None:
            _pin_gpu(tf, gpu)
        if virtual_devices > 1:
            make_virtual_devices(virtual_devices)
        if start:  # the first operation loads the devices, which prints once more
            tf.constant(0)
    tf.get_logger().setLevel("ERROR")


@contextlib.contextmanager
def _seemingly_absent(*names: str) -> Iterator[None]:
    """Packages cannot be imported in the block, but for those that were before."""
    absent = [name for name in names if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for name in absent:
            del modules[name]


def make_virtual_devices(number: int) -> None:
    """Lets TensorFlow see so many CPU devices; RuntimeError where it has started already."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * number
    )
    # They share these threads and wait for each other: none may go short because of another that waits.
    tf.config.threading.set_inter_op_parallelism_threads(_THREADS_A_VIRTUAL_DEVICE * number)


def _pin_gpu(tf: Any, local_rank: int) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return
    mine = gpus[local_rank % len(gpus)]
    tf.config.set_visible_devices(mine, "GPU")
    tf.config.experimental.set_memory_growth(mine, True)


@contextlib.contextmanager
def standard_error_held_back() -> Iterator[None]:
    """Sends file descriptor 2 to memory; copies it to the real one if the block fails."""
    sys.stderr.flush()
    saved = os.dup(2)
    with os.fdopen(os.memfd_create("stderr"), "r+b") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            os.dup2(saved, 2)
            held.seek(0)
            sys.stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)


# --------------------------------------------------------------------------------------------------
# Work side by side, by threads or forks of this process, with matrices too small for threads of their own.


_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_inside = False


@contextlib.contextmanager
def one_thread_a_product() -> Iterator[None]:
    """Products of small matrices in one thread: several would only wait for each other.

    Inside of itself it does nothing: looking for the libraries of linear algebra takes 5 to 20 ms.
    """
    global _inside
    if _inside:
        yield
        return
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1, "blas"):
        _inside = True
        try:
            yield
        finally:
            _inside = False


def in_threads(work: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
    """The result of `work` for each item, in their order; a single one, or none, needs no threads."""
    items = list(items)
    if len(items) < 2:
        yield from map(work, items)
        return
    with concurrent.futures.ThreadPoolExecutor(available_threads()) as pool:
        yield from pool.map(work, items)


def in_processes(work: Callable[[_Item], _Answer], items: Iterable[_Item]) -> Iterator[_Answer]:
    """The same by forks of this process, one per processor, for work that holds the interpreter (short NumPy calls).

    A fork knows all that this process does, so that only items and answers are copied; an item is taken when a fork is
    free. The work must not call TensorFlow, whose threads a fork lacks. Where the generator is left, by Ctrl-C, say,
    the forks end, and they end with this process.

    Raises:
      WorkerLostError: a fork ended before its work was done; or what `work` raises.
    """
    waiting = enumerate(items)
    first = list(itertools.islice(waiting, available_threads()))
    # A fork has no forks of its own.
    if len(first) < 2 or multiprocessing.current_process().daemon:
        yield from (work(item) for _, item in itertools.chain(first, waiting))
        return
    forks: dict[Connection, BaseProcess] = {}
    try:
        for numbered in first:
            link, fork = _forked(work)
            forks[link] = fork
            link.send(numbered)
        found: dict[int, _Answer] = {}
        busy, wanted = len(forks), 0
        while busy:
            for link in cast(list[Connection], wait(list(forks))):
                place, answer = _received(link, forks[link])
                found[place] = answer
                busy -= 1
                if (another := next(waiting, None)) is not None:
                    link.send(another)
                    busy += 1
            while wanted in found:
                yield found.pop(wanted)
                wanted += 1
    finally:
        for link, fork in forks.items():
            fork.kill()
            fork.join()
            link.close()


def all_in_processes(
    work: Callable[[_Item], _Answer],
    items: Iterable[_Item],
    total: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[_Answer]:
    """All answers of `in_processes`, products in one thread; after each `progress` is called with (done, total)."""
    found: list[_Answer] = []
    with one_thread_a_product():
        for answer in in_processes(work, items):
            found.append(answer)
            if progress:
                progress(len(found), total)
    return found


def _forked(work: Callable[[Any], Any]) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    fork = context.Process(target=_serve, args=(ours, theirs, work), daemon=True)
    with warnings.catch_warnings():
        # Python 3.12 warns of locks that other threads of this process may hold; NumPy takes none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        fork.start()
    theirs.close()
    return ours, fork


def _serve(ours: Connection, link: Connection, work: Callable[[Any], Any]) -> None:
    """Works on the items that come, until this process's parent is gone or ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Nothing would end a link whose other end is open here as well. A fork has copies of earlier forks' links, which
    # end after it.
    ours.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            place, item = link.recv()
            try:
                link.send((place, work(item), None))
            except Exception as error:
                link.send((place, None, error))


def _received(link: Connection, fork: BaseProcess) -> tuple[int, Any]:
    try:
        place, answer, error = link.recv()
    except (EOFError, OSError) as lost:
        fork.join()
        raise WorkerLostError(
            f"a process that worked on some of the curves ended with status {fork.exitcode} (-9: killed, for memory, "
            "say); start again, or with fewer processors (taskset -c 0)"
        ) from lost
    if error is not None:
        raise error
    return place, answer

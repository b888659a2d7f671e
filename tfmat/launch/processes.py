"""This process among how many: one table of the names that launchers put into the environment of what they start."""

import dataclasses
import os
import re
from collections.abc import Mapping

from tfmat.errors import InputError


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
            found = _read(names, environment)
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


def processors_per_rank(processes: Processes, environment: Mapping[str, str] = os.environ) -> int:
    """Number of processors that this process should use, at least 1.

    The processors of the node (of its part that a container or a SLURM job holds) are shared evenly by the ranks on it.
    A rank that its launcher bound to fewer (`mpirun --bind-to core`) uses these.
    """
    # The processors that this process may use are no measure by themselves: bound to a socket, several ranks share it.
    bound = len(os.sched_getaffinity(0))
    try:
        # The first process of a container has what the container has.
        node = len(os.sched_getaffinity(1))
    except OSError:
        node = os.cpu_count() or 1
    allocated = environment.get("SLURM_CPUS_ON_NODE", "")
    if processes.launcher == "srun" and allocated.isdecimal():
        node = min(node, int(allocated))
    return min(bound, max(1, node // processes.local_size))


def _read(names: _Names, environment: Mapping[str, str]) -> Processes:
    return Processes(
        rank=_number(names.rank, environment),
        size=_number(names.size, environment),
        local_rank=_number(names.local_rank, environment),
        local_size=_tasks_on_node(environment)
        if names.local_size == _STEP_LAYOUT
        else _number(names.local_size, environment),
        launcher=names.launcher,
    )


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

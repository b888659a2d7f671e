"""From a matrix to launches: sets of processes that are started together, each for one or several points."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from tfmat.backends.mesh import BATCH, MeshShape
from tfmat.errors import InputError
from tfmat.scaling.machine import Machine, Way
from tfmat.scaling.matrix import AllReduces, Matrix, Runs
from tfmat.scaling.measurements import Model, Point

_TRAINING_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Task:
    """One batch size of a launch; see Point. It takes part in the first `rounds` rounds."""

    global_batch_size: int
    batch_a_worker: int
    scaling: str
    rounds: int


@dataclasses.dataclass(frozen=True)
class Launch:
    """Processes that are started together: a way with its tasks, or with the sizes of all-reduces."""

    way: Way
    tasks: tuple[Task, ...] = ()
    sizes: tuple[int, ...] = ()
    rounds: int = 0

    def __str__(self) -> str:
        if len(self.tasks) != 1:
            return str(self.way)
        (task,) = self.tasks
        if task.scaling == "strong":
            return f"{self.way}, {task.global_batch_size:,} in all"
        return f"{self.way}, {task.batch_a_worker:,} a worker"


def expand(matrix: Matrix) -> list[Launch]:
    """Every launch of a study, baselines included; of one round, with as many rounds as each takes part in."""
    tasks: dict[Way, dict[tuple[int, int, str], int]] = {}
    for runs in matrix.runs:
        for way, task in _combinations(runs, matrix):
            _add(tasks, way, task)
    for way, found in list(tasks.items()):
        if way.backend != "single" or way.workers > 1:
            for (global_batch_size, batch, scaling), rounds in list(found.items()):
                alone = batch if scaling == "weak" else global_batch_size
                _add(tasks, _baseline_of(way), Task(alone, alone, "weak", rounds))
    launches = []
    for way, found in tasks.items():
        of_way = [Task(*batches, rounds) for batches, rounds in found.items()]
        if way.kind == "steps" and matrix.share_processes:
            launches.append(Launch(way, tuple(of_way), (), max(task.rounds for task in of_way)))
        else:
            launches += [Launch(way, (task,), (), task.rounds) for task in of_way]
    return launches + [launch for each in matrix.allreduces for launch in _allreduces(each, matrix)]


def _baseline_of(way: Way) -> Way:
    return Way(
        way.kind, "single", 1, model=way.model, dataset_size=way.dataset_size,
        placement="filled", train_for=way.train_for,
    )  # fmt: skip


def _add(tasks: dict[Way, dict[tuple[int, int, str], int]], way: Way, task: Task) -> None:
    """Once, with the most rounds that anybody asks for."""
    of_way = tasks.setdefault(way, {})
    key = task.global_batch_size, task.batch_a_worker, task.scaling
    of_way[key] = max(task.rounds, of_way.get(key, 0))


def _combinations(runs: Runs, matrix: Matrix) -> Iterator[tuple[Way, Task]]:
    rounds = min(runs.rounds or matrix.rounds, matrix.rounds)
    if runs.train_for:
        rounds = runs.rounds or _TRAINING_ROUNDS
    sizes = runs.values("dataset_size") or (matrix.dataset_size,)
    for backend, model, size, placement in itertools.product(
        *map(runs.values, ("backend", "model")), sizes, runs.values("placement")
    ):
        for way, parts in _ways(runs, backend):
            way = dataclasses.replace(
                way, model=model, dataset_size=size, placement=placement, train_for=runs.train_for
            )
            if runs.train_for:
                way = dataclasses.replace(way, kind="training")
            for batch in runs.values("batch_a_worker"):
                yield way, Task(batch * parts, batch, "weak", rounds)
            for batch in runs.values("global_batch_size"):
                yield way, Task(batch, -(-batch // parts), "strong", rounds)


def _ways(runs: Runs, backend: str) -> Iterator[tuple[Way, int]]:
    """Ways of a backend, and over how many workers each divides a batch."""
    if backend == "dtensor":
        for mesh, stage in itertools.product(runs.values("mesh"), runs.values("zero_stage")):
            shape = MeshShape.parse(mesh)
            way = Way("steps", backend, shape.num_devices, "tensorflow", mesh=mesh)
            yield dataclasses.replace(way, zero_stage=stage), shape.size(BATCH)
        return
    for workers in runs.values("workers"):
        if backend == "single":
            yield Way("steps", backend, workers), workers
        elif backend == "parameter_server":
            for updates in runs.values("updates"):
                yield Way("steps", backend, workers, updates=updates), workers
        elif workers > 1:
            for library, transport in itertools.product(
                runs.values("collectives"), runs.values("transport")
            ):
                yield Way("steps", backend, workers, library, transport), workers


def _allreduces(entry: AllReduces, matrix: Matrix) -> Iterator[Launch]:
    rounds = min(entry.rounds or matrix.rounds, matrix.rounds)
    for library, workers, transport, placement in itertools.product(
        *map(entry.values, ("library", "workers", "transport", "placement"))
    ):
        backend = {"tensorflow": "dtensor", "bare mpi": "mpi4py"}.get(library, "horovod")
        mesh = f"{BATCH}:{workers}" if backend == "dtensor" else ""
        way = Way("allreduce", backend, workers, library, transport, mesh, placement=placement)
        yield Launch(way, (), tuple(entry.sizes), rounds)


def point_of(
    way: Way, task: Task, matrix: Matrix, machine: Machine, models: Mapping[str, Model]
) -> Point:
    """What a task measures, as the file has it."""
    nodes = machine.nodes_of(way)
    collectives, transport = way.collectives, transport_of(way)
    if way.backend == "parameter_server":
        collectives = f"{way.updates} updates"
    try:
        return Point(
            backend=way.backend,
            workers=way.workers,
            global_batch_size=task.global_batch_size,
            batch_a_worker=task.batch_a_worker,
            scaling=task.scaling,
            hardware=machine.hardware,
            model=models[way.model],
            dataset_size=way.dataset_size,
            nodes=nodes,
            ranks_per_node=-(-way.workers // nodes),
            processors_a_worker=matrix.processors_a_worker,
            collectives=collectives,
            transport=transport,
            mesh=way.mesh,
            zero_stage=way.zero_stage,
            oversubscribed=machine.is_oversubscribed(way),
            placement=way.placement if nodes > 1 else "",
        )
    except InputError as error:
        raise InputError(f"{way}: {error}") from error


def transport_of(way: Way) -> str:
    """By what the messages go; "" where that is the library's own secret, as between nodes."""
    if way.transport:
        return way.transport
    known = {"gloo": "tcp", "parameter_server": "tcp"}
    return known.get(way.collectives) or known.get(way.backend, "")


def processes_of(way: Way) -> int:
    """How many are started: a mesh here is one process's, a parameter server's chief and server are two more."""
    if way.backend == "dtensor":
        return 1
    return way.workers + 2 if way.backend == "parameter_server" else way.workers


def unavailable(way: Way, matrix: Matrix, machine: Machine) -> str | None:
    """Why a way cannot be had here, in one line; None where it can."""
    several = processes_of(way) > 1
    if several and not machine.mpirun and not machine.slurm:
        return "there is no mpirun; ./tools/setup horovod gets it"
    if way.backend == "horovod" and way.collectives not in machine.horovod:
        built = ", ".join(sorted(machine.horovod)) or "no Horovod that works"
        return f"{way.collectives} is not built into Horovod here (there is: {built})"
    if way.collectives == "gloo" and machine.slurm:
        return "Gloo needs horovodrun, which is not started under SLURM"
    if way.collectives == "nccl" and not machine.gpus:
        return "nccl sums on GPUs, and there is none"
    if way.backend == "mpi4py" and not machine.mpi4py:
        return "mpi4py is not installed"
    if way.transport == "rdma" and not machine.infiniband:
        return "there is no InfiniBand or RoCE device"
    if way.placement == "spread" and not machine.slurm:
        return "one machine has nothing to spread over; use --launcher=slurm"
    if not machine.slurm and way.workers > matrix.most_workers:
        return f"more than most_workers={matrix.most_workers} on {machine.processors} processors"
    nodes = machine.nodes_of(way)
    if machine.slurm and machine.most_nodes and nodes > machine.most_nodes:
        return f"needs {nodes} nodes of {machine.workers_per_node} workers; --nodes={machine.most_nodes}"
    return None

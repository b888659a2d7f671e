"""The variants of a matrix: what is measured, and the batches of each."""

import dataclasses
import itertools
from collections.abc import Iterator

from tfmat.backends.mesh import BATCH
from tfmat.scaling.exchanges import EXCHANGING
from tfmat.scaling.matrix import BASELINES, AllReduces, Matrix, Runs

_TRAINING_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Variant:
    """What processes of a launch have in common: what is measured, but for the batch. See Runs and AllReduces.

    Attributes:
      kind: `steps`, `training`, or `allreduce`.
    """

    kind: str
    backend: str
    workers: int
    collectives: str = ""
    transport: str = ""
    mesh: str = ""
    zero_stage: int = 0
    exchange: str = ""
    updates: str = ""
    model: str = "default"
    dataset_size: int = 1
    placement: str = ""
    train_for: str = ""

    def __str__(self) -> str:
        what = "all-reduce" if self.kind == "allreduce" else self.backend.replace("_", " ")
        what = "independent processes" if what == "single" and self.workers > 1 else what
        library = "" if what == "mpi" else self.collectives
        parts = [what, self.updates, library, self.transport, self.mesh, self.exchange]
        parts += [f"ZeRO {self.zero_stage}"] if self.zero_stage else []
        parts += ["1 worker" if self.workers == 1 else f"{self.workers} workers"]
        parts += [f"model {self.model}"] if self.model != "default" else []
        parts += [f"{self.dataset_size:,} examples, {self.train_for}"] if self.train_for else []
        parts += [self.placement] if self.placement == "spread" else []
        return ", ".join(part for part in parts if part)

    @property
    def has_devices(self) -> bool:
        """Whether the workers are the devices of one process."""
        return self.backend in ("dtensor", "mirrored")

    @property
    def num_processes(self) -> int:
        """How many are started: one for devices, two more for a parameter server, its chief and the server."""
        if self.has_devices:
            return 1
        return self.workers + 2 if self.backend == "parameter_server" else self.workers

    @property
    def medium(self) -> str:
        """What messages go over; "" where only the library knows, as between nodes."""
        if self.transport:
            return self.transport
        speaks_tcp = self.backend in ("asynchronous", "parameter_server", "multi_worker_mirrored")
        return "tcp" if "gloo" in self.collectives or speaks_tcp else ""


@dataclasses.dataclass(frozen=True)
class Task:
    """One batch size of a launch; see Point. It takes part in the first `rounds` rounds."""

    global_batch_size: int
    batch_a_worker: int
    scaling: str
    rounds: int


@dataclasses.dataclass(frozen=True)
class Group:
    """What one set of processes measures in a round: a variant's tasks, or the sizes of its all-reduces.

    Attributes:
      variant, tasks, sizes: what.
      rounds: in how many of them all-reduces take part; a task says it for itself.
    """

    variant: Variant
    tasks: tuple[Task, ...] = ()
    sizes: tuple[int, ...] = ()
    rounds: int = 0

    def __str__(self) -> str:
        if len(self.tasks) != 1:
            return str(self.variant)
        (task,) = self.tasks
        if task.scaling == "strong":
            return f"{self.variant}, {task.global_batch_size:,} in all"
        return f"{self.variant}, {task.batch_a_worker:,} a worker"


# What a backend's variants differ in, beside network, data set and placement.
_DIFFER = {
    "single": ("workers",),
    "horovod": ("workers", "collectives", "transport", "exchange"),
    "mpi": ("workers", "transport", "exchange"),
    "asynchronous": ("workers", "exchange"),
    "dtensor": ("mesh", "zero_stage"),
    "parameter_server": ("workers", "updates"),
    "mirrored": ("workers",),
    "multi_worker_mirrored": ("workers",),
}
_Batches = tuple[int, int, str]  # see Task


def expand(matrix: Matrix) -> list[Group]:
    """What a study measures, baselines included, with the rounds in which each takes part."""
    tasks: dict[Variant, dict[_Batches, int]] = {}

    def add(variant: Variant, batches: _Batches, rounds: int) -> None:
        """Once, with the most rounds that anybody asks for."""
        of_variant = tasks.setdefault(variant, {})
        of_variant[batches] = max(rounds, of_variant.get(batches, 0))

    for runs in matrix.runs:
        for variant, batches, rounds in _combinations(runs, matrix):
            add(variant, batches, rounds)
    for variant, found in list(tasks.items()):
        if variant.backend == "single" and variant.workers == 1:
            continue
        baseline = Variant(
            variant.kind, "single", 1, model=variant.model, dataset_size=variant.dataset_size,
            placement="filled", train_for=variant.train_for,
        )  # fmt: skip
        for (global_batch_size, batch, scaling), rounds in list(found.items()):
            alone = batch if scaling == "weak" else global_batch_size
            add(baseline, (alone, alone, "weak"), rounds)
    groups = []
    for variant, found in tasks.items():
        # Small batches first, since the most memory that a process ever held is all that the system tells.
        of_variant = sorted(
            (Task(*batches, rounds) for batches, rounds in found.items()),
            key=lambda task: task.batch_a_worker,
        )
        if variant.kind == "steps" and matrix.share_processes:
            groups.append(Group(variant, tuple(of_variant)))
        else:
            groups += [Group(variant, (task,)) for task in of_variant]
    return groups + [group for each in matrix.allreduces for group in _allreduces(each, matrix)]


def _combinations(runs: Runs, matrix: Matrix) -> Iterator[tuple[Variant, _Batches, int]]:
    rounds = min(runs.rounds or matrix.rounds, matrix.rounds)
    if runs.train_for:
        rounds = runs.rounds or _TRAINING_ROUNDS
    values = {field.name: runs.values(field.name) for field in dataclasses.fields(runs)}
    values["dataset_size"] = values["dataset_size"] or (matrix.dataset_size,)
    kind = "training" if runs.train_for else "steps"
    for backend in values["backend"]:
        names = (*_DIFFER[backend], "model", "dataset_size", "placement")
        for chosen in itertools.product(*(values[name] for name in names)):
            given = dict(zip(names, chosen, strict=True))
            parts = workers = given.get("workers", 1)
            if backend == "dtensor":
                shape = runs.meshes[given["mesh"]]
                workers, parts = shape.num_devices, shape.size(BATCH)
                given["collectives"] = "tensorflow"
            if backend in (*EXCHANGING, *BASELINES[1:]) and workers == 1:
                continue
            if backend == "mpi":
                given["collectives"] = "bare mpi"  # as AllReduces has it
            given |= {"workers": workers, "train_for": runs.train_for}
            variant = Variant(kind, backend, **given)
            for batch in values["batch_a_worker"]:
                yield variant, (batch * parts, batch, "weak"), rounds
            for batch in values["global_batch_size"]:
                yield variant, (batch, -(-batch // parts), "strong"), rounds


def _allreduces(entry: AllReduces, matrix: Matrix) -> Iterator[Group]:
    rounds = min(entry.rounds or matrix.rounds, matrix.rounds)
    for library, workers, transport, placement in itertools.product(
        *map(entry.values, ("library", "workers", "transport", "placement"))
    ):
        backend = {"tensorflow": "dtensor", "bare mpi": "mpi4py"}.get(library, "horovod")
        mesh = f"{BATCH}:{workers}" if backend == "dtensor" else ""
        variant = Variant(
            "allreduce", backend, workers, library, transport, mesh, placement=placement
        )
        yield Group(variant, sizes=tuple(entry.sizes), rounds=rounds)

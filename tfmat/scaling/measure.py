"""Measuring: what is launched, how often, in which turns, here or by SLURM."""

import contextlib
import dataclasses
import datetime
import importlib.util
import itertools
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from tfmat.backends.layouts import Weight, weights_of
from tfmat.config import BATCH, Config, Settings, check_config, default_config
from tfmat.console import log, progress_bar
from tfmat.data.dataset import PackedDataset, find_dataset
from tfmat.errors import InputError, WorkerLostError
from tfmat.files import (
    as_json,
    check_json,
    first_difference,
    flatten,
    locked,
    make_folder,
    read_json,
    write_json,
    write_text,
)
from tfmat.launch.machine import Session as Start
from tfmat.launch.machine import describe_session
from tfmat.launch.mpirun import (
    AS_ROOT,
    Host,
    count_ranks,
    end_session,
    end_with_parent,
    mpirun_command,
)
from tfmat.launch.processes import Processes
from tfmat.launch.slurm import ENDED, Site, SlurmJob, cancel, job_script, job_states, submit
from tfmat.scaling.study import (
    COLLECTIVES,
    EXCHANGING,
    TRAINING_ROUNDS_FROM,
    AllReduce,
    AllReduces,
    Assumptions,
    LeftOut,
    Matrix,
    Measurements,
    Model,
    Point,
    Repetition,
    Runs,
    Session,
    add_measurements,
    config_of_model,
    is_study,
    read_measurements,
    with_exchange,
)
from tfmat.scaling.worker import (
    SPEC,
    Group,
    Order,
    Spec,
    SumsAnswer,
    Task,
    TaskAnswer,
    Variant,
    answer_file,
)
from tfmat.workflow import (
    Job,
    check_training_fits,
    curve_settings,
    make_dataset,
    named_dataset,
    seed_and_counts,
)

# --------------------------------------------------------------------------------------------------
# The variants of a matrix: what is measured, and the batches of each.


# _TRAINING_ROUNDS: rounds where whole trainings are timed, which take long.
_TRAINING_ROUNDS = 2


# Differences of a backend's variants, beside network, data set and placement.
_DIFFER = {
    "single": ("workers",),
    "horovod": ("workers", "collectives", "transport", "exchange"),
    "mpi": ("workers", "transport", "exchange"),
    "asynchronous": ("workers", "exchange"),
    "dtensor": ("mesh", "zero_stage"),
}
_Batches = tuple[int, int, str]  # see Task


def expand(matrix: Matrix) -> list[Group]:
    """All that a study measures, baselines included, with the rounds in which each takes part."""
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
            if backend in EXCHANGING and workers == 1:
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


# --------------------------------------------------------------------------------------------------
# One way to measure: launches of processes take turns in rounds, and each answer is kept before the next one begins.
#
# A `Launch` is a set of processes that start together and do what its `spec` says. `measure` goes through
# rounds of them. `run_locally` starts them here; `SlurmLaunches` has them run as jobs of a cluster.


LOG = "log.txt"
_LONGEST_LAUNCH, _TO_END = 1200.0, 10.0  # seconds
_LAST_LINES, _LONGEST_LOG = 20, 4000
# A variant that failed as often is not tried again before the command is given again.
_TRIALS = 2

# One of each process, as JSON: what the launch's program returned.
Answers = list[Any]


@dataclasses.dataclass(frozen=True)
class Launch:
    """Processes that are started together in one round.

    Attributes:
      name: for people; a launch of the same name in another round is a repetition.
      variant: what is measured without its batch; one that fails in two launches is given up.
      folder: for its files; absolute.
      num_processes, nodes: how many, and over how many machines.
      gpus: of all processes.
      gloo: they are started by horovodrun.
      hosts: machines, each with the processes that mpirun may start there; none for this one.
      guess: seconds that it takes on a quiet machine.
    """

    name: str
    variant: str
    round: int
    folder: pathlib.Path
    spec: Spec
    num_processes: int = 1
    nodes: int = 1
    gpus: int = 0
    gloo: bool = False
    hosts: tuple[Host, ...] = ()
    guess: float = 15.0

    @property
    def answers(self) -> Answers | None:
        """Every process's answer; None where one is missing or broken."""
        try:
            return [read_json(answer_file(self.folder, i)) for i in range(self.num_processes)]
        except InputError:
            return None


# The launch, and why it failed with the end of its log; None where it did not.
Finished = Callable[[Launch, tuple[str, str] | None], None]
Run = Callable[[Sequence[Launch], Finished], None]


class Journal(Protocol):
    """Where results are kept."""

    def add(self, launch: Launch, answers: Answers) -> str:
        """Keeps a result; returns it in a line for people."""

    def leave_out(self, launch: Launch, reason: str, log: str) -> None:
        """Keeps a failure with the end of its log."""


def folder_name(round_number: int, name: str) -> str:
    """A launch's folder within the folder of all launches."""
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    return f"{round_number}-{plain}"[:120]


def launch_here(
    name: str,
    number: int,
    folder: pathlib.Path,
    program: str,
    order: Any,
    processes: int = 1,
    **spec: Any,
) -> Launch:
    """A launch of round `number` on this machine, each of whose processes has its share of the processors.

    Args:
      folder: of all launches.
      program, order, spec: see Spec.
    """
    each = 1 if processes > 1 else len(os.sched_getaffinity(0))
    told = Spec(program, order, **{"processors": each, "watch": os.getpid(), **spec})
    own = folder.resolve() / folder_name(number, name)
    return Launch(name, name, number, own, told, num_processes=processes)


def measure(rounds: Sequence[Sequence[Launch]], run: Run, journal: Journal) -> int:
    """Runs what the rounds hold, one round after the other, and logs how each launch went.

    Args:
      run: starts launches and tells how each ended, see `run_locally`.
      journal: gets every result before the next launch begins.

    Returns:
      How many launches failed. Their folders stay.

    Raises:
      Interrupted, KeyboardInterrupt: what was measured until then is kept.
    """
    failed: list[str] = []
    left, began = _Left([launch for of_round in rounds for launch in of_round]), 0.0
    log(f"{left.total} launches, {left}")

    def finished(launch: Launch, failure: tuple[str, str] | None) -> None:
        nonlocal began
        try:
            line = _result(launch, failure, journal)
        except InputError as error:
            failed.append(launch.variant)
            line = f"failed: {error}; {launch.folder}"
        seconds, began = time.monotonic() - began, time.monotonic()
        done = left.ended(launch, seconds)
        rest = f"; {left}" if done < left.total else ""
        log(f"[{done}/{left.total}] {launch.name}: {line}{rest}")
        if show_progress:
            show_progress(done, left.total)

    with progress_bar("measuring") as show_progress:
        for of_round in rounds:
            ready = [each for each in of_round if failed.count(each.variant) < _TRIALS]
            left.drop([each for each in of_round if each not in ready])
            for launch in ready:
                _write_spec(launch)
            if ready:
                began = time.monotonic()
                run(ready, finished)
    return len(failed)


def _write_spec(launch: Launch) -> None:
    shutil.rmtree(launch.folder, ignore_errors=True)
    make_folder(launch.folder)
    write_json(launch.folder / SPEC, launch.spec)


def run_alone(launch: Launch) -> Answers:
    """The answers of a launch outside of all rounds; InputError with the last line of its log where it fails."""
    _write_spec(launch)
    failure, answers = _run(launch), launch.answers
    if failure or answers is None:
        last = (failure or ("", ""))[1].splitlines()[-1:] or ["no word"]
        raise InputError(f"{last[0]}; see {launch.folder / LOG}")
    shutil.rmtree(launch.folder, ignore_errors=True)
    return answers


def _result(launch: Launch, failure: tuple[str, str] | None, journal: Journal) -> str:
    """The result in a line; InputError for a failure, which is kept."""
    if failure is None:
        answers = launch.answers
        try:
            if answers is None:
                raise InputError("not every process answered")
            line = journal.add(launch, answers)
        except (InputError, KeyError, TypeError, ValueError, IndexError) as error:
            failure = f"its answer cannot be used: {error}", ""
        else:
            shutil.rmtree(launch.folder, ignore_errors=True)
            return line
    journal.leave_out(launch, *failure)
    raise InputError(failure[0])


class _Left:
    """The launches left, and how long they take: as guessed, in proportion to the launches that have ended."""

    def __init__(self, launches: Sequence[Launch]):
        self._launches, self.total = list(launches), len(launches)
        self._elapsed = self._guessed = 0.0

    def drop(self, launches: Sequence[Launch]) -> None:
        """These will not be run any more."""
        self._launches = [each for each in self._launches if each not in launches]

    def ended(self, launch: Launch, seconds: float) -> int:
        """A launch took that long; returns how many are no longer left."""
        self.drop([launch])
        self._elapsed += seconds
        self._guessed += launch.guess
        return self.total - len(self._launches)

    def __str__(self) -> str:
        ratio = self._elapsed / self._guessed if self._guessed else 1.0
        seconds = ratio * sum(launch.guess for launch in self._launches)
        return f"about {max(1, round(seconds / 60))} min left"


def worker_command(folder: pathlib.Path, python: str | None = None) -> tuple[str, ...]:
    """The command of one process, by default with this one's Python."""
    return (python or sys.executable, "-P", "-m", "tfmat.scaling.worker", str(folder / SPEC))


def local_command(launch: Launch) -> list[str]:
    """The command of a launch, whose processes choose their processors themselves, whatever started them."""
    count, alone = launch.num_processes, list(worker_command(launch.folder))
    if count == 1:
        return alone
    if launch.gloo:
        # Under mpirun Horovod's Gloo crashes at its first broadcast (0.28.1).
        horovodrun = pathlib.Path(sys.executable).with_name("horovodrun")
        return [str(horovodrun), "--gloo", "-np", str(count), "-H", f"localhost:{count}", *alone]
    if launch.hosts:
        return mpirun_command(launch.hosts, alone, defaults={})
    return ["mpirun", "-np", str(count), "--oversubscribe", "--bind-to", "none", *alone]


def run_locally(launches: Sequence[Launch], finished: Finished) -> None:
    """Runs each in turn and says how it went; whatever ends this function ends its processes."""
    for launch in launches:
        finished(launch, _run(launch))


def _run(launch: Launch) -> tuple[str, str] | None:
    environment = {**os.environ, **AS_ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}
    path, parent = launch.folder / LOG, os.getpid()
    with path.open("wb") as log:
        process = subprocess.Popen(
            local_command(launch),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us, who end them in order
            # Processes of other machines cannot watch this one: mpirun ends them.
            preexec_fn=lambda: end_with_parent(parent),
        )
        try:
            status = process.wait(_LONGEST_LAUNCH)
        except subprocess.TimeoutExpired:
            return f"did not end within {_LONGEST_LAUNCH:.0f} s", end_of_log(path)
        finally:
            end_session(process.pid, _TO_END)
            process.wait()
    return (f"ended with status {status}", end_of_log(path)) if status else None


def end_of_log(path: pathlib.Path) -> str:
    """The last lines of a log; empty where there is none."""
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LAST_LINES:])[-_LONGEST_LOG:]


# --------------------------------------------------------------------------------------------------
# The launches that a round of a study still needs, their order, and what each of their processes is told.


# Seconds of a quiet machine: a process' start, compiling for one batch size, all-reduces of one size.
_START, _COMPILING, _ONE_SIZE = 9.0, 2.5, 0.4


@dataclasses.dataclass(frozen=True)
class Machine:
    """This one, several that mpirun reaches, or a kind of SLURM node.

    Attributes:
      hardware: its name in the measurements.
      processors: that may be used on one node.
      workers_per_node: that a node takes without being oversubscribed.
      sums_with: libraries that Horovod was built with, `mpi`, `gloo`, `nccl`, and `mpi4py` where it is there.
      mpirun, infiniband: whether they are there.
      gpus: number of them.
      slurm: whether each launch is a job; then `most_nodes` is the most that one gets, None for no limit.
      hosts: the machines over which mpirun starts a launch; none for this one alone.
    """

    hardware: str
    processors: int
    workers_per_node: int
    sums_with: frozenset[str] = frozenset()
    mpirun: bool = False
    infiniband: bool = False
    gpus: int = 0
    slurm: bool = False
    most_nodes: int | None = None
    hosts: tuple[Host, ...] = ()

    def nodes_of(self, variant: Variant) -> int:
        """Nodes that a variant takes."""
        if variant.num_processes == 1 or not (self.slurm or self.hosts):
            return 1
        if variant.placement == "spread":
            return min(variant.workers, self.most_nodes or variant.workers)
        return -(-variant.workers // self.workers_per_node)

    def is_oversubscribed(self, variant: Variant) -> bool:
        """Whether a node gets more workers than it has processors for."""
        return -(-variant.workers // self.nodes_of(variant)) > self.workers_per_node


def local_machine(session: Start, matrix: Matrix, hosts: tuple[Host, ...] = ()) -> Machine:
    """This machine, or several like it; what sums there is not known yet.

    Args:
      session: says what it is.
      matrix: says what a worker gets of it, and may name it.
      hosts: machines over which launches go, each with as many workers; none for this one alone.

    Raises:
      InputError: the machines take different numbers of workers.
    """
    if len({host.slots for host in hosts}) > 1:
        raise InputError(
            f"--hosts={','.join(map(str, hosts))}: a study needs machines alike; give each as many workers"
        )
    processors = len(os.sched_getaffinity(0))
    gpus = session.machine.gpus or []
    name = gpus[0] if gpus else session.machine.processor
    return Machine(
        hardware=matrix.hardware or f"{name}, {processors} processors",
        processors=processors,
        workers_per_node=(
            hosts[0].slots if hosts else max(1, processors // matrix.processors_a_worker)
        ),
        mpirun=shutil.which("mpirun") is not None,
        infiniband=any(pathlib.Path("/sys/class/infiniband").glob("*")),
        gpus=len(gpus),
        most_nodes=len(hosts) or None,
        hosts=hosts,
    )


class Place(NamedTuple):
    """Fields of this name in Point and AllReduce."""

    workers: int
    hardware: str
    transport: str
    nodes: int
    ranks_per_node: int
    oversubscribed: bool


@dataclasses.dataclass(frozen=True)
class Study:
    """A study: its matrix, its machine and its data.

    Attributes:
      dataset: folder of the packed data set that all processes read.
      watch: number of the process with which its processes end; None for those of other machines.
    """

    config: Config
    matrix: Matrix
    machine: Machine
    models: Mapping[str, Model]
    dataset: pathlib.Path
    watch: int | None = None

    def place(self, variant: Variant) -> Place:
        """Where a variant runs and what its messages go over."""
        nodes = self.machine.nodes_of(variant)
        return Place(
            variant.workers,
            self.machine.hardware,
            variant.medium,
            nodes,
            -(-variant.workers // nodes),
            self.machine.is_oversubscribed(variant),
        )

    def point(self, variant: Variant, task: Task) -> Point:
        """A task's point, as the file has it."""
        place = self.place(variant)
        try:
            return Point(
                backend=variant.backend,
                global_batch_size=task.global_batch_size,
                batch_a_worker=task.batch_a_worker,
                scaling=task.scaling,
                model=self.models[variant.model],
                dataset_size=variant.dataset_size,
                processors_a_worker=self.matrix.processors_a_worker,
                collectives=variant.collectives,
                mesh=variant.mesh,
                zero_stage=variant.zero_stage,
                exchange=variant.exchange,
                placement=variant.placement if place.nodes > 1 else "",
                **place._asdict(),
            )
        except InputError as error:
            raise InputError(f"{variant}: {error}") from error

    def _config(self, variant: Variant) -> Config:
        config = config_of_model(self.config, self.matrix, variant.model)
        return with_exchange(config, variant.exchange)

    def groups(self) -> tuple[list[Group], list[LeftOut]]:
        """The groups that can be measured here, and the others with the reasons."""
        found, left_out = [], []
        for group in expand(self.matrix):
            reason = unavailable(group.variant, self.matrix, self.machine)
            if reason is None:
                found.append(group)
            else:
                left_out.append(LeftOut(str(group), reason))
        return found, left_out

    def rounds(self, done: Measurements, folder: pathlib.Path) -> list[list[Launch]]:
        """The launches that each round still needs, in an order of its own, which a seed fixes."""
        groups, _ = self.groups()
        last = max([g.rounds for g in groups] + [t.rounds for g in groups for t in g.tasks], default=0)  # fmt: skip
        planned = []
        for number in range(last):
            of_round = list(self._missing(groups, number, done, folder))
            random.Random(f"{self.matrix.seed}-{number}").shuffle(of_round)
            planned.append(of_round)
        return planned

    def _missing(
        self, groups: list[Group], number: int, done: Measurements, folder: pathlib.Path
    ) -> Iterator[Launch]:
        repetitions = {(each.point, each.round) for each in done.repetitions}
        sums = {
            (each.library, each.transport, each.workers, each.nodes, each.hardware, each.round)
            for each in done.allreduces
        }
        for group in groups:
            variant = group.variant
            stored = number + (TRAINING_ROUNDS_FROM if variant.kind == "training" else 0)
            tasks = tuple(
                task
                for task in group.tasks
                if number < task.rounds and (self.point(variant, task), stored) not in repetitions
            )
            at = self.place(variant)
            of_sums = variant.collectives, at.transport, at.workers, at.nodes, at.hardware, number
            if tasks or (number < group.rounds and of_sums not in sums):
                yield self._launch(dataclasses.replace(group, tasks=tasks), stored, folder)

    def _launch(self, group: Group, number: int, folder: pathlib.Path) -> Launch:
        variant, matrix = group.variant, self.matrix
        split = number < matrix.split_rounds
        a_task = (_COMPILING + matrix.seconds) + split * (_COMPILING + matrix.seconds / 2)
        guess = _START + a_task * len(group.tasks) + _ONE_SIZE * len(group.sizes)
        gradients = {model.gradient_bytes for model in self.models.values()}
        nodes = self.machine.nodes_of(variant)
        sizes = tuple(sorted({*group.sizes, *gradients})) if group.sizes else ()
        order = Order(
            dataclasses.replace(group, sizes=sizes),
            self._config(variant).to_dict(),
            str(self.dataset),
            matrix.seconds,
            split,
        )
        spec = Spec(
            f"tfmat.scaling.worker:measure_{'sums' if variant.kind == 'allreduce' else variant.kind}",
            order,
            # A mesh has its devices in one process.
            matrix.processors_a_worker * variant.workers // variant.num_processes,
            _environment(variant),
            watch=self.watch,
        )
        return Launch(
            name=str(group),
            variant=str(variant),
            round=number,
            folder=folder / folder_name(number, str(group)),
            spec=spec,
            num_processes=variant.num_processes,
            nodes=nodes,
            gpus=matrix.gpus_a_worker * variant.workers,
            gloo=variant.collectives == "gloo",
            hosts=_filled(self.machine.hosts[:nodes], variant.num_processes),
            guess=guess * max(1.0, variant.num_processes / self.machine.processors),
        )


def unavailable(variant: Variant, matrix: Matrix, machine: Machine) -> str | None:
    """Why a variant cannot be had here, in one line; None where it can."""
    if variant.num_processes > 1 and not machine.mpirun and not machine.slurm:
        return "there is no mpirun; `tfmat horovod install` says how to get it"
    if variant.backend == "horovod" and variant.collectives not in machine.sums_with:
        built = ", ".join(sorted(machine.sums_with - {"mpi4py"})) or "no Horovod that works"
        return f"{variant.collectives} is not built into Horovod here (there is: {built})"
    if variant.collectives == "gloo" and (machine.slurm or machine.hosts):
        return "Gloo needs horovodrun, which is not started under SLURM or over several machines"
    if variant.collectives == "nccl" and not machine.gpus:
        return "nccl sums on GPUs, and there is none"
    if variant.backend in ("mpi4py", "mpi") and "mpi4py" not in machine.sums_with:
        return "mpi4py is not installed"
    if variant.transport == "rdma" and not machine.infiniband:
        return "there is no InfiniBand or RoCE device"
    if variant.placement == "spread" and not (machine.slurm or machine.hosts):
        return "one machine has nothing to spread over; use --launcher=slurm or --hosts"
    if not machine.slurm and variant.workers > matrix.most_workers:
        return f"more than most_workers={matrix.most_workers} on {machine.processors} processors"
    nodes = machine.nodes_of(variant)
    if machine.most_nodes and nodes > machine.most_nodes:
        known = "--hosts has" if machine.hosts else "--nodes is"
        return f"needs {nodes} nodes of {machine.workers_per_node} workers; {known} {machine.most_nodes}"
    return None


def _filled(hosts: tuple[Host, ...], processes: int) -> tuple[Host, ...]:
    """The hosts with as many of the processes as they take, one host after the other."""
    if processes == 1 or not hosts:
        return ()
    each = -(-processes // len(hosts))
    found: list[Host] = []
    for host in hosts:
        found.append(Host(host.name, min(each, processes - count_ranks(found))))
    return tuple(host for host in found if host.slots > 0)


def _environment(variant: Variant) -> dict[str, str]:
    """Variables that make the libraries take the transport."""
    found = {}
    if variant.backend == "horovod" and variant.collectives == "mpi":
        found["HOROVOD_CPU_OPERATIONS"] = "MPI"
    if variant.transport == "tcp":
        found |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "NCCL_IB_DISABLE": "1"}
    if variant.transport == "rdma":
        found |= {"OMPI_MCA_pml": "ucx"}
    return found


# --------------------------------------------------------------------------------------------------
# Measures a study: what its folder lacks, with each result on disk before the next launch begins.
#
# Its networks and Horovod's abilities here are asked of a process of its own: the study itself never loads TensorFlow,
# which would take its memory and processors.


class Networks(Struct):
    """Configs of a study's networks, by their names."""

    configs: dict[str, dict[str, Any]]
    num_outputs: int


class Described(Struct):
    """The networks, and what can sum here: Horovod's libraries, and `mpi4py`."""

    models: dict[str, Model]
    sums_with: frozenset[str]


def networks_and_libraries(networks: Networks, folder: pathlib.Path) -> Described:
    """Asks a process, whose files are in the folder.

    Raises:
      InputError: TensorFlow cannot be loaded, or a model cannot be built.
    """
    launch = launch_here("networks", 0, folder, "tfmat.scaling.measure:describe", networks)
    try:
        (found,) = run_alone(launch)
    except InputError as error:
        raise InputError(f"the networks of the study cannot be built: {error}") from error
    described: Described = check_json(found, Described, launch.name)
    return described


def describe(order: Networks, processes: Processes, folder: pathlib.Path) -> Described:
    """Called by the process, see worker.py: builds each model once."""
    from tfmat.launch.processes import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    models = {
        name: _describe(name, Config(content), order.num_outputs)
        for name, content in order.configs.items()
    }
    sums_with = ["mpi4py"] if importlib.util.find_spec("mpi4py") else []
    with contextlib.suppress(ImportError, InputError):  # Horovod cannot be loaded
        from tfmat.backends.horovod import built_libraries

        sums_with += [library for library in built_libraries() if library in COLLECTIVES]
    return Described(models, frozenset(sums_with))


def _describe(name: str, config: Config, num_outputs: int) -> Model:
    from tfmat.networks.factory import build_model

    check_config(config)
    model = build_model(config.model, num_outputs=num_outputs, num_points=config.data.num_points)
    # Other attributes of a weight are in no older study's points, which have to be the same.
    weights = tuple(Weight(each.path, each.shape, each.itemsize) for each in weights_of(model))
    gradient_bytes = sum(math.prod(weight.shape) * weight.itemsize for weight in weights)
    return Model(name, int(model.count_params()), gradient_bytes, weights)


CONFIG, LAUNCHES = "config.json", "launches"


def check_same_study(workdir: pathlib.Path, config: Config) -> None:
    """InputError where the folder was measured with another config: its numbers would not compare."""
    path, content = workdir / CONFIG, as_json(config.to_dict())
    if not path.exists():
        write_json(path, content)
        return
    # A key that was added to tfmat after the study had begun had its default.
    before = flatten(as_json(default_config().to_dict()))
    before |= flatten(check_json(read_json(path), dict[str, Any], path))
    now = flatten(content)
    # The first curves are the same in every number of them.
    known = {key: value for key, value in before.items() if key in now}
    name = first_difference(known, now, {"data.num_curves"})
    if name is not None:
        raise InputError(
            f"{workdir} was measured with {name}={before.get(name)}, now it is {now.get(name)}; use another --workdir"
        )


class StudyJournal:
    """Adds what launches answer to measurements.jsonl; `before` is what was in it, `failed` what failed since."""

    def __init__(self, study: Study, workdir: pathlib.Path, session: Start):
        self._study, self._workdir = study, workdir
        self.before = read_measurements(workdir) if is_study(workdir) else Measurements()
        self.failed: list[LeftOut] = []
        self._session = len(self.before.sessions)
        _, absent = study.groups()
        for left in absent:
            log(f"left out: {left.what}: {left.reason}")
        told = [dataclasses.replace(each, session=self._session) for each in absent]
        add_measurements(workdir, [Session(self._session, session), *told])

    def add(self, launch: Launch, answers: Answers) -> str:
        """See Journal."""
        group: Group = launch.spec.order.group
        variant = group.variant
        if group.sizes:
            sums = self._allreduces(launch, variant, answers)
            add_measurements(self._workdir, [*sums, *self._withdrawn(launch)])
            first, last = sums[0], sums[-1]
            rate = last.bytes / last.median_seconds / 1e6
            return (
                f"{1e6 * first.median_seconds:.3g} µs for {first.bytes:,} bytes, {rate:,.0f} MB/s for "
                f"{last.bytes:,}"
            )
        spoken = check_json(answers, list[list[TaskAnswer]], launch.name)
        found = [
            self._repetition(launch, self._study.point(variant, task), of_ranks)
            for task, *of_ranks in zip(group.tasks, *spoken, strict=True)
        ]
        add_measurements(self._workdir, [*found, *self._withdrawn(launch)])
        steps = [f"{e.point.batch_a_worker:,}: {1e3 * e.step_seconds:.3g} ms" for e in found]
        return ", ".join(steps) + " a step"

    def leave_out(self, launch: Launch, reason: str, log: str) -> None:
        """See Journal."""
        left = LeftOut(launch.name, reason, launch.round, log, self._session)
        self.failed.append(left)
        add_measurements(self._workdir, [left])

    def _withdrawn(self, launch: Launch) -> list[LeftOut]:
        """Takes back what is said of the same launch's failure in an earlier session."""
        known = any((e.what, e.round) == (launch.name, launch.round) for e in self.before.left_out)
        return [LeftOut(launch.name, "", launch.round, session=self._session)] * known

    def _repetition(
        self, launch: Launch, point: Point, of_ranks: Sequence[TaskAnswer]
    ) -> Repetition:
        """The slowest process says how long the steps took."""
        slowest = max(of_ranks, key=lambda answer: answer.seconds / answer.steps)
        ranks = tuple(answer.use for answer in of_ranks)
        memory = [rank.memory_bytes for rank in ranks if rank.memory_bytes is not None]
        modified = (launch.folder / SPEC).stat().st_mtime
        started = datetime.datetime.fromtimestamp(modified, datetime.UTC)
        return Repetition(
            point,
            launch.round,
            slowest.steps,
            slowest.seconds,
            session=self._session,
            started=started.isoformat(timespec="seconds"),
            ranks=ranks,
            training=of_ranks[0].training,
            peak_memory_bytes=sum(memory) if len(memory) == len(ranks) else None,
        )

    def _allreduces(self, launch: Launch, variant: Variant, answers: Answers) -> list[AllReduce]:
        """One a size: a sum has ended when the last process has it."""
        found = []
        spoken: list[list[SumsAnswer]] = check_json(answers, list[list[SumsAnswer]], launch.name)
        for sizes in zip(*spoken, strict=True):
            seconds = np.max([each.seconds for each in sizes], axis=0)
            low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
            found.append(
                AllReduce(
                    library=variant.collectives,
                    bytes=sizes[0].bytes,
                    median_seconds=float(median),
                    low_seconds=float(low),
                    high_seconds=float(high),
                    repetitions=len(seconds),
                    round=launch.round,
                    session=self._session,
                    **self._study.place(variant)._asdict(),
                )
            )
        return found


# --------------------------------------------------------------------------------------------------
# Runs launches as SLURM jobs: a round is submitted together, and its answers are collected from files.


JOBS = "jobs.json"
# _JOB_LOOKS: seconds between questions to SLURM.
_JOB_LOOKS = 2.0
# For a shared file system to show what a job that has ended wrote.
_FOR_FILES = 20.0


def slurm_machine(site: Site, matrix: Matrix, template: SlurmJob) -> Machine:
    """The nodes that a study's jobs get; what sums there is not known yet.

    Args:
      site: says processors and GPUs of a node.
      matrix: says what a worker gets of them.
      template: of the jobs: their partition, and the most nodes of one.

    Raises:
      InputError: nobody says how many workers a node takes.
    """
    workers = matrix.workers_per_node
    if workers is None and matrix.gpus_a_worker and site.gpus_per_node:
        workers = site.gpus_per_node // matrix.gpus_a_worker
    elif workers is None and site.cores_per_node:
        workers = site.cores_per_node // matrix.processors_a_worker
    if not workers:
        raise InputError(
            "how many workers a node takes is not known; give workers_per_node in get_scaling(), or cores_per_node "
            "(with GPUs gpus_per_node) in the site file"
        )
    name = template.partition or site.partition or "default partition"
    return Machine(
        hardware=matrix.hardware or f"SLURM, {name}",
        processors=site.cores_per_node or workers * matrix.processors_a_worker,
        workers_per_node=workers,
        infiniband=True,  # not to be seen from here
        gpus=matrix.gpus_a_worker,
        slurm=True,
        most_nodes=template.nodes,
    )


def job_of(launch: Launch, template: SlurmJob, site: Site) -> SlurmJob:
    """The job of a launch: `template` has what the command line says of all of them."""
    return dataclasses.replace(
        template,
        name=f"scale-{launch.folder.name}"[:60],
        command=worker_command(launch.folder, site.python),
        folder=launch.folder,
        ranks=launch.num_processes,
        nodes=launch.nodes,
        cpus_per_rank=launch.spec.processors,
        gpus=launch.gpus,
        requeue=False,  # it is measured again instead
    )


class SlurmLaunches:
    """Submits, watches and, where the study ends early, cancels.

    Args:
      folder: of jobs.json, by which jobs that a killed study left are cancelled.
    """

    def __init__(self, template: SlurmJob, site: Site, folder: pathlib.Path):
        self._template, self._site = template, site
        self._jobs_file = folder / JOBS
        self._cancel(self._known())

    def run(self, launches: Sequence[Launch], finished: Finished) -> None:
        """Submits all of them in their order; says of each how it went, as soon as it has ended."""
        jobs: dict[str, Launch] = {}
        try:
            for launch in launches:
                path = launch.folder / "job.sh"
                job = job_of(launch, self._template, self._site)
                write_text(path, job_script(job, self._site))
                jobs[submit(path)] = launch
                write_json(self._jobs_file, {"jobs": list(jobs)})
            while jobs:
                for job_id, state in job_states(jobs).items():
                    if state in ENDED:
                        launch = jobs.pop(job_id)
                        finished(launch, self._failure(launch, job_id, state))
                if jobs:
                    time.sleep(_JOB_LOOKS)
        finally:
            self._cancel(jobs)
            write_json(self._jobs_file, {"jobs": []})

    def _failure(self, launch: Launch, job_id: str, state: str) -> tuple[str, str] | None:
        deadline = time.monotonic() + (_FOR_FILES if state in ("COMPLETED", "UNKNOWN") else 0.0)
        while launch.answers is None:
            if time.monotonic() > deadline:
                log = end_of_log(launch.folder / f"job-{job_id}.out")
                return f"job {job_id} ended as {state} without an answer", log
            time.sleep(_JOB_LOOKS)
        return None

    def _known(self) -> list[str]:
        if not self._jobs_file.exists():
            return []
        with contextlib.suppress(InputError, KeyError, TypeError):
            return [str(job) for job in read_json(self._jobs_file)["jobs"]]
        return []

    def _cancel(self, jobs: Sequence[str] | dict[str, Launch]) -> None:
        for job in jobs:
            with contextlib.suppress(InputError):  # it has ended, or nobody answers
                cancel(job)


def scale(
    config: Config,
    matrix: Matrix,
    *,
    workdir: str,
    data_dir: str,
    assumptions: Assumptions,
    slurm: tuple[SlurmJob, Site] | None = None,
    hosts: tuple[Host, ...] = (),
    dry_run: bool = False,
) -> None:
    """Measures what is missing in the study's folder, and writes its report.

    Args:
      data_dir: folder of data sets, or one data set.
      assumptions: of the report; what is not in it stays as it was.
      slurm: what each job has in common, and the site; None measures on this machine or on `hosts`.
      hosts: machines that mpirun reaches, each with its workers.
      dry_run: prints the first job instead.

    Raises:
      InputError, Interrupted.
      WorkerLostError: some launches failed; all others are measured, and the report is written.
    """
    folder = pathlib.Path(workdir)
    session = describe_session()
    if slurm:
        template, site = slurm
        machine = slurm_machine(site, matrix, template)
    else:
        machine = local_machine(session, matrix, hosts)
    curves, dataset = curve_settings(config), _named_dataset(config, matrix, data_dir)
    settings, path = Settings.of(config), pathlib.Path(data_dir)
    job = Job(settings, curves, dataset, path)
    check_training_fits(settings, num_outputs=job.num_outputs, form=job.form)
    busy = f"another tfmat scale works in {folder}; wait for it, or use another --workdir"
    with locked(folder, busy):
        check_same_study(folder, config)
        if dataset is None and not dry_run:
            dataset = make_dataset(config, curves, data_dir)
        place = find_dataset(data_dir, curves, **seed_and_counts(config))
        study = _study(config, matrix, job.num_outputs, place, folder, machine)
        if dry_run and slurm:
            first = study.rounds(Measurements(), (folder / LAUNCHES).resolve())[0][0]
            print(job_script(job_of(first, template, site), site), end="")
            return
        run = SlurmLaunches(*slurm, folder).run if slurm else run_locally
        journal = StudyJournal(study, folder, session)
        rounds = study.rounds(journal.before, make_folder(folder / LAUNCHES).resolve())
        if total := sum(map(len, rounds)):
            measure(rounds, run, journal)
        else:
            log("everything is measured already")
        if read_measurements(folder).repetitions:
            from tfmat.scaling.report import write_scaling_report

            page, verdict = write_scaling_report(folder, assumptions)
            print(f"{verdict}\nreport: {page}")
        else:
            log("nothing was measured: there is no report")
    if failed := journal.failed:
        raise WorkerLostError(
            f"{len(failed)} of {total} launches failed, the first: {failed[0].what}: {failed[0].reason}; the rest is "
            "measured. Start the same command again to try them again"
        )


def _named_dataset(config: Config, matrix: Matrix, data_dir: str) -> PackedDataset | None:
    """The data set that `data_dir` is; None where one with as many curves as the study needs is to be made."""
    sizes = [size for runs in matrix.runs for size in runs.values("dataset_size")]
    num_train = max([matrix.dataset_size, *sizes])
    dataset = named_dataset(config, data_dir)
    if dataset is None:
        # A quarter of the curves validates.
        config.data.num_curves = -(-num_train * 4 // 3)
    elif dataset.num_train < num_train:
        raise InputError(
            f"{data_dir} has {dataset.num_train:,} training examples, the study asks for {num_train:,}; give a "
            "larger data set or a smaller dataset_size"
        )
    return dataset


def _study(
    config: Config,
    matrix: Matrix,
    num_outputs: int,
    dataset: pathlib.Path,
    folder: pathlib.Path,
    machine: Machine,
) -> Study:
    log("looking at networks and libraries")
    configs = {
        name: config_of_model(config, matrix, name).to_dict()
        for name in ("default", *matrix.models)
    }
    found = networks_and_libraries(Networks(configs, num_outputs), folder)
    # Nodes of a cluster have the same software.
    machine = dataclasses.replace(machine, sums_with=found.sums_with)
    # Processes of other machines cannot see this one.
    watch = None if machine.slurm or machine.hosts else os.getpid()
    return Study(config, matrix, machine, found.models, dataset.resolve(), watch)

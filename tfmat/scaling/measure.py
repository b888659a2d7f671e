"""Measuring: what a process of a launch does, what is launched, how often, in which turns, here or by SLURM."""

import contextlib
import dataclasses
import datetime
import importlib
import importlib.util
import itertools
import math
import os
import pathlib
import platform
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, get_type_hints

import numpy as np
from msgspec import Struct

from tfmat.backends.base import Collectives
from tfmat.backends.layouts import Weight, weights_of
from tfmat.backends.registry import make_backend
from tfmat.config import (
    BATCH,
    Config,
    DataSection,
    EpochPlan,
    Settings,
    check_config,
    default_config,
    goes_in_pieces,
)
from tfmat.console import log, printable, progress_bar
from tfmat.data.dataset import PackedDataset, find_dataset
from tfmat.errors import InputError, TfmatError, WorkerLostError
from tfmat.files import (
    as_json,
    check_json,
    first_difference,
    flatten,
    locked,
    make_folder,
    parse_json,
    plain,
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
from tfmat.launch.processes import Processes, find_processes, prepare_mpi, prepare_tensorflow
from tfmat.launch.slurm import ENDED, Site, SlurmJob, cancel, job_script, job_states, submit
from tfmat.launch.watchdog import ByNote, Star, meet
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
    RankUse,
    Repetition,
    Runs,
    Session,
    TrainingLine,
    add_measurements,
    config_of_model,
    is_study,
    read_measurements,
    with_exchange,
)
from tfmat.training.run_folder import MetricsLine
from tfmat.workflow import (
    Job,
    check_training_fits,
    curve_settings,
    make_dataset,
    named_dataset,
    seed_and_counts,
)

# --------------------------------------------------------------------------------------------------
# `python -m tfmat.scaling.measure SPEC`: one process of a launch. Measures, and leaves `rank-N.json` beside the file.
#
# Every process of the launch gets the same file, finds out by the launcher's environment which one it is, and takes its
# share of the processors.


SPEC = "spec.json"
# _WORKER_LOOKS: seconds between looks for a parent that is gone.
_WORKER_LOOKS = 1.0
_PATIENCE = 300.0  # seconds until all processes are there


class Spec(Struct, frozen=True):
    """The file that each process of a launch gets.

    Attributes:
      program: `module:function`, called with an order, the processes of the launch and the file's folder; it returns
        the answer.
      order: its argument `order`, of the type that this is annotated with.
      path: goes before sys.path.
      watch: number of the process with which all of them end; None for those of other machines.
    """

    program: str
    order: Any = None
    processors: int = 1
    environment: dict[str, str] = {}
    path: tuple[str, ...] = ()
    watch: int | None = None


def main(path: str) -> None:
    """Measures what the file asks for."""
    spec: Spec = check_json(read_json(path), Spec, path)
    folder = pathlib.Path(path).resolve().parent
    processes = find_processes()
    _end_with(spec.watch)
    os.environ["TMPDIR"] = str(make_folder(folder / "tmp"))
    os.environ.update(spec.environment)
    sys.path[:0] = spec.path
    _take_processors(spec.processors, processes)
    module, _, name = spec.program.partition(":")
    function = getattr(importlib.import_module(module), name)
    kind = get_type_hints(function).get("order", Any)
    answer = function(check_json(spec.order, kind, path), processes, folder)
    write_json(answer_file(folder, processes.rank), answer)


def answer_file(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Where a process leaves its answer."""
    return folder / f"rank-{rank}.json"


def _take_processors(width: int, processes: Processes) -> None:
    """Binds this process to so many processors of its own, unless the launcher has done so."""
    available = sorted(os.sched_getaffinity(0))
    # The rank, not the local one: machines may share their processors, as the nodes of tools/cluster do.
    if len(available) <= width:
        return
    first = processes.rank * width % len(available)
    os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(width)})


def _end_with(process: int | None) -> None:
    """Ends this process soon after the study or mpirun has gone: they may have been killed."""
    if process is None:
        return
    parent = os.getppid()

    def watch() -> None:
        while True:
            # Its parent is the study, or mpirun.
            if os.getppid() != parent or not pathlib.Path(f"/proc/{process}").exists():
                os._exit(1)
            time.sleep(_WORKER_LOOKS)

    threading.Thread(target=watch, daemon=True).start()


def join_others(processes: Processes, folder: pathlib.Path) -> Star:
    """The link to the other processes, for those that have no other; where one does not come, all end."""
    return meet(processes, ByNote(processes, str(folder)), time.monotonic() + _PATIENCE)


@dataclasses.dataclass(frozen=True)
class Variant:
    """A kind of measurement, but for its batch, that processes of a launch have in common. See Runs and AllReduces.

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
    model: str = "default"
    dataset_size: int = 1
    placement: str = ""
    train_for: str = ""

    def __str__(self) -> str:
        what = "all-reduce" if self.kind == "allreduce" else self.backend
        what = "independent processes" if what == "single" and self.workers > 1 else what
        library = "" if what == "mpi" else self.collectives
        parts = [what, library, self.transport, self.mesh, self.exchange]
        parts += [f"ZeRO {self.zero_stage}"] if self.zero_stage else []
        parts += ["1 worker" if self.workers == 1 else f"{self.workers} workers"]
        parts += [f"model {self.model}"] if self.model != "default" else []
        parts += [f"{self.dataset_size:,} examples, {self.train_for}"] if self.train_for else []
        parts += [self.placement] if self.placement == "spread" else []
        return ", ".join(part for part in parts if part)

    @property
    def num_processes(self) -> int:
        """How many are started: one for a mesh, whose workers are its devices."""
        return 1 if self.backend == "dtensor" else self.workers

    @property
    def medium(self) -> str:
        """The transport of messages; "" where only the library knows, as between nodes."""
        if self.transport:
            return self.transport
        return "tcp" if "gloo" in self.collectives or self.backend == "asynchronous" else ""


@dataclasses.dataclass(frozen=True)
class Task:
    """One batch size of a launch; see Point. It takes part in the first `rounds` rounds."""

    global_batch_size: int
    batch_a_worker: int
    scaling: str = "weak"
    rounds: int = 1


@dataclasses.dataclass(frozen=True)
class Group:
    """The measurements of one set of processes in a round: a variant's tasks, or the sizes of its all-reduces.

    Attributes:
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


class Order(Struct, frozen=True):
    """The measurements that the processes of a launch are asked for.

    Attributes:
      dataset: folder of the packed data set.
      seconds: about how long each task is timed.
      split: whether the parts of a step are measured as well.
    """

    group: Group
    config: dict[str, Any]
    dataset: str
    seconds: float
    split: bool = False

    @property
    def checked_config(self) -> Config:
        """The config."""
        return check_config(Config(self.config))


class TaskAnswer(Struct, frozen=True):
    """One process's measurement of a task; see Repetition."""

    steps: int
    seconds: float
    use: RankUse
    training: tuple[TrainingLine, ...] = ()


class SumsAnswer(Struct, frozen=True):
    """Seconds of sums of `bytes`, in each of some calls, on one process."""

    bytes: int
    seconds: list[float]


# --------------------------------------------------------------------------------------------------
# Times the steps of a backend as the main job runs them: many in one call of the graph, gathered inside it.


_FIRST_STEPS, _TRIAL_STEPS = 3, 10
# _FEWEST_CALLS: timed calls, so that there is a median.
_FEWEST_CALLS = 3
_SPLIT_SHARE = 0.5  # of the time, for the parts of a step


def measure_steps(order: Order, processes: Processes, folder: pathlib.Path) -> list[TaskAnswer]:
    """The measurements of each task on this process, in their order."""
    config, tasks = order.checked_config, order.group.tasks
    prepare(order.group.variant, config, processes)
    dataset = PackedDataset.open(order.dataset, verify=False)
    with (
        make_variant_backend(order, processes, folder) as backend,
        _barrier(backend, processes, folder) as barrier,
    ):
        size = order.group.variant.dataset_size
        bench = _Bench(size, config, dataset, backend, barrier)
        answers = [bench.measure(task, order.seconds) for task in tasks]
        if order.split:
            try:
                backend.time_steps()
            except InputError:
                return answers  # meshes and GPUs do not tell
            for i, (task, whole) in enumerate(zip(tasks, answers, strict=True)):
                split = bench.measure(task, _SPLIT_SHARE * order.seconds)
                # Where time goes is measured with the stamps, how long it takes without them.
                use = dataclasses.replace(
                    split.use,
                    cpu_utilisation=whole.use.cpu_utilisation,
                    memory_bytes=whole.use.memory_bytes,
                )
                answers[i] = TaskAnswer(whole.steps, whole.seconds, use)
        return answers


def prepare(variant: Variant, config: Config, processes: Processes) -> None:
    """Imports TensorFlow as `tfmat train` would for these workers."""
    prepare_tensorflow(
        one_thread_an_operation=goes_in_pieces(config.model),
        # As many as `_take_processors` has left this process.
        processors=None if variant.mesh else len(os.sched_getaffinity(0)),
        gpu=processes.local_rank if processes.size > 1 else None,
        virtual_devices=variant.workers if variant.mesh else 1,
        own_program=True,
    )


def make_variant_backend(order: Order, processes: Processes, folder: pathlib.Path) -> Any:
    """The variant's backend."""
    variant, config = order.group.variant, order.checked_config
    settings = Settings.of(config)
    if variant.mesh:
        settings = Settings.with_keys(
            mesh=variant.mesh, zero_stage=variant.zero_stage, recompute=config.model.recompute
        )
    return make_backend(variant.backend, settings, processes=processes, folder=str(folder))


@contextlib.contextmanager
def _barrier(
    backend: Any, processes: Processes, folder: pathlib.Path
) -> Iterator[Callable[[], object]]:
    """A function that returns when all processes of the launch have called it, also those that exchange nothing."""
    if backend.world_size == processes.size:
        yield backend.collectives.barrier
        return
    others = join_others(processes, folder)
    try:
        yield others.barrier
    finally:
        others.close()


@dataclasses.dataclass(frozen=True)
class _Bench:
    """Builds the network anew for each task on one backend, and times it."""

    size: int
    config: Config
    dataset: Any
    backend: Any
    barrier: Callable[[], object]

    def measure(self, task: Task, seconds: float) -> TaskAnswer:
        from tfmat.training.meter import Meter

        source = self._build(task)
        meter = Meter(self.backend)
        rate = self._rate(source, meter)
        count, calls = self._shape(source, rate, seconds)
        blocks = source.blocks(source.plan.spans(count))
        self.barrier()
        meter.start()
        used, started, steps = time.process_time(), time.monotonic(), 0
        for block in itertools.islice(meter.each(blocks), calls):
            with meter.call(block):
                self.backend.train(*block)
            steps += len(block.indices)
        elapsed = time.monotonic() - started
        used = (time.process_time() - used) / elapsed / len(os.sched_getaffinity(0))
        found = meter.summary().use | {"cpu_utilisation": used}
        use = rank_use(self.backend.rank, platform.node(), found, self.backend.bytes_per_step)
        return TaskAnswer(steps, elapsed, use)

    def _build(self, task: Task) -> Any:
        """A new network on the backend; its source of batches."""
        from tfmat.networks.factory import build_for
        from tfmat.optimizers import make_functional
        from tfmat.training.run import build_to_measure, make_source

        alone, size = self.backend.name == "single", self.size
        batch = task.batch_a_worker if alone else task.global_batch_size
        settings = Settings(
            seed=self.config.seed,
            global_batch_size=batch,
            data=DataSection(reading="memory"),
            precision=self.config.precision,
        )
        features, labels = self.dataset.features[:size], self.dataset.labels[:size]
        source = make_source(
            features, labels, settings, self.backend, shard_size=self.dataset.shard_size
        )
        optimizer = make_functional(_optimizer(self.config, batch, size, self.backend)(2**30, 0))
        model = build_for(self.config, self.dataset)
        build_to_measure(self.backend, model, optimizer, settings, "mean_squared_error")
        self.backend.synchronize()
        return source

    def _rate(self, source: Any, meter: Any) -> float:
        """Steps a second, roughly. The first call, which compiles, is left out; so is the second, a warm-up."""
        rate, trial = 1.0, max(_TRIAL_STEPS, self.backend.meets_every)
        for count in (_FIRST_STEPS, trial, trial):
            (block,) = itertools.islice(source.blocks(source.plan.spans(count)), 1)
            with meter.call(block):
                self.backend.train(*block)
            rate = len(block.indices) / meter.call_seconds
        return float(self.backend.collectives.broadcast(rate))

    def _shape(self, source: Any, rate: float, seconds: float) -> tuple[int, int]:
        """Steps a call, as the main job has them where that is short enough, and calls."""
        from tfmat.training.run import steps_per_call

        longest = max(1, int(rate * seconds / _FEWEST_CALLS))
        count = min(steps_per_call(source, None, self.backend.world_size), longest)
        # Each call ends with a meeting of the workers, which must not come more often than it should.
        count = max(1, count // self.backend.meets_every) * self.backend.meets_every
        return count, max(_FEWEST_CALLS, round(rate * seconds / count))


def measure_training(order: Order, processes: Processes, folder: pathlib.Path) -> list[TaskAnswer]:
    """The only task, trained as the main job does; rank 0 knows of all ranks."""
    config, variant = order.checked_config, order.group.variant
    prepare(variant, config, processes)
    from tfmat.networks.factory import build_for
    from tfmat.training.run import Trainer

    (task,), run = order.group.tasks, folder / "run"
    size, batch = variant.dataset_size, task.global_batch_size
    dataset = PackedDataset.open(order.dataset, verify=False)
    validation = slice(dataset.num_train, dataset.num_train + dataset.num_validation)
    with make_variant_backend(order, processes, folder) as backend:
        trainer = Trainer(
            build_for(config, dataset),
            optimizer=_optimizer(config, batch, size, backend),
            backend=backend,
            workdir=str(run),
            seed=config.seed,
            checkpoint_every="1000epochs",
            precision=config.precision,
            quiet=True,
        )
        trainer.fit(
            dataset.features[:size],
            dataset.labels[:size],
            global_batch_size=batch,
            train_for=variant.train_for,
            validation=(dataset.features[validation], dataset.labels[validation]),
            num_validation=config.data.num_validation,
            shard_size=dataset.shard_size,
        )
        answers = _answers_of_run(run) if backend.rank == 0 else []
        # What travels is JSON.
        own = backend.collectives.broadcast([plain(each) for each in answers])[backend.rank]
        return [check_json(own, TaskAnswer, run)]


class MeteredLine(MetricsLine, kw_only=True):
    """A line of a training that the main job's loop wrote."""

    epoch: float
    training_seconds: float


def training_lines(
    records: Sequence[MeteredLine], untimed_steps: int, step_seconds: float
) -> list[TrainingLine]:
    """Losses against seconds without compiling: of the calls that compile, the work of their steps counts.

    Args:
      records: of metrics.jsonl.
      untimed_steps: in the calls that compile; each counts as a step of the other calls does: the median over
        records without compiling, else the mean of all timed steps.
      step_seconds: that mean.
    """
    compiling = np.array([record.use.first_call_seconds for record in records])
    seconds = np.array([record.training_seconds for record in records])
    steps = np.diff([record.step for record in records], prepend=0)
    later = (compiling == 0) & (steps > 0)
    if later.any():
        step_seconds = float(np.median(np.diff(seconds, prepend=0.0)[later] / steps[later]))
    # Nearly always it is one call, in the first record.
    work = untimed_steps * step_seconds * np.cumsum(compiling) / max(compiling.sum(), 1e-9)
    counted = np.maximum(seconds - np.cumsum(compiling), 0.0) + work
    return [
        TrainingLine(round(float(each), 6), record.epoch, record.loss, record.val_loss)
        for record, each in zip(records, counted, strict=True)
    ]


def _answers_of_run(run: pathlib.Path) -> list[TaskAnswer]:
    """The answers of all ranks, from profile.json and metrics.jsonl."""
    from tfmat.training.meter import FILE, Profile

    path, metrics = run / FILE, run / "metrics.jsonl"
    profile: Profile = check_json(read_json(path), Profile, path)
    lines = [parse_json(line) for line in metrics.read_text("utf-8").splitlines()]
    records: list[MeteredLine] = check_json(lines, list[MeteredLine], metrics)
    if not all(rank.timed_steps for rank in profile.ranks):
        raise InputError("train_for is too short: everything ran in the call that compiles")
    # A step is as long as on the slowest rank.
    slowest = max(rank.step_seconds for rank in profile.ranks)
    untimed, sent = profile.ranks[0].steps - profile.ranks[0].timed_steps, records[-1].use
    return [
        TaskAnswer(
            rank.timed_steps,
            rank.timed_steps * rank.step_seconds,
            rank_use(number, rank.node, rank.use, sent.bytes_sent_per_step),
            () if number else tuple(training_lines(records, untimed, slowest)),
        )
        for number, rank in enumerate(profile.ranks)
    ]


def rank_use(rank: int, node: str, use: Mapping[str, float], sent_bytes: float) -> RankUse:
    """The part of a Meter's summary that measurements keep, and the bytes sent per step."""
    sent = {"rank": rank, "node": node, "bytes_sent_per_step": round(sent_bytes) or None}
    found: RankUse = check_json({**use, **sent}, RankUse, "the use of a rank")
    return found


def _optimizer(
    config: Config, batch: int, num_examples: int, backend: Any
) -> Callable[[int, int], Any]:
    from tfmat.optimizers import build_optimizer, build_schedule

    section, epochs = Settings.of(config).optimizer, EpochPlan(num_examples, batch)
    seen = backend.examples_of_a_step(batch)
    return lambda total, _: build_optimizer(section, build_schedule(section, epochs, total, seen))


# --------------------------------------------------------------------------------------------------
# Times sums over the workers by themselves: from 1 kB to 64 MB.


# _BYTES_A_NUMBER: of float32.
_BYTES_A_NUMBER = 4
# Seconds: of one timed call, which holds as many sums as fit; and of the calls of a size in one pass.
_CALL, _PASS = 0.01, 0.06
# All sizes take a turn in each pass, so that a moment in which the machine was busy spoils no size as a whole.
_PASSES = 5
_FEWEST, _MOST = 1, 6  # calls of a size in a pass


class BareMpi(Collectives):
    """MPI_Allreduce through mpi4py, without Horovod."""

    def start(self) -> None:
        prepare_mpi()
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        values, total = np.zeros(num_values, np.float32), np.empty(num_values, np.float32)

        def sums(count: int) -> None:
            for _ in range(count):
                self.world.Allreduce(values, total)

        return sums

    def broadcast(self, value: Any) -> Any:
        return self.world.bcast(value)

    def gather(self, value: Any) -> list[Any]:
        return list(self.world.allgather(value))


def measure_sums(order: Order, processes: Processes, folder: pathlib.Path) -> list[SumsAnswer]:
    """The sums of each size, the smallest first."""
    backend = order.group.variant.backend
    if backend == "mpi4py":
        workers: Collectives = BareMpi()
    else:
        prepare(order.group.variant, order.checked_config, processes)
        workers = make_variant_backend(order, processes, folder).collectives
    sizes = sorted(order.group.sizes)
    # DTensor's graphs of several sizes would take each other's names for their loops, and be refused (TensorFlow 2.21):
    # on a mesh each size has gone before the next one comes.
    groups = [[size] for size in sizes] if backend == "dtensor" else [sizes]
    with workers:
        return [answer for group in groups for answer in _measure_in_turns(workers, group)]


def _measure_in_turns(workers: Collectives, sizes: Sequence[int]) -> list[SumsAnswer]:
    timings = [_Timing(workers, size) for size in sizes]
    for _ in range(_PASSES):
        for timing in timings:
            timing.one_pass()
    return [SumsAnswer(timing.size, timing.seconds) for timing in timings]


class _Timing:
    """Sums of one size: how many make a call, and how long each took."""

    def __init__(self, workers: Collectives, size: int):
        self.size = size
        self.seconds: list[float] = []
        self._workers = workers
        self._sums = workers.repeated_sums(max(1, size // _BYTES_A_NUMBER))
        self._sums(2)
        seconds = min(_seconds(self._sums, 3) for _ in range(3))
        # Rank 0 decides, or the others would wait for sums that it does not do.
        count = int(np.clip(_CALL / seconds, 1, 500))
        calls = int(np.clip(_PASS / (count * seconds), _FEWEST, _MOST))
        self._count, self._calls = workers.broadcast((count, calls))

    def one_pass(self) -> None:
        """Some more calls, which all workers begin together."""
        self._workers.barrier()
        self.seconds += [_seconds(self._sums, self._count) for _ in range(self._calls)]


def _seconds(sums: Callable[[int], None], count: int) -> float:
    started = time.perf_counter()
    sums(count)
    return (time.perf_counter() - started) / count


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
    return (python or sys.executable, "-P", "-m", "tfmat.scaling.measure", str(folder / SPEC))


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
            f"tfmat.scaling.measure:measure_{'sums' if variant.kind == 'allreduce' else variant.kind}",
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
    """Called by the process, see `Spec`: builds each model once."""
    prepare_tensorflow(own_program=True)
    models = {
        name: _describe(name, Config(content), order.num_outputs)
        for name, content in order.configs.items()
    }
    sums_with = ["mpi4py"] if importlib.util.find_spec("mpi4py") else []
    with contextlib.suppress(ImportError, InputError):  # Horovod cannot be loaded
        from tfmat.backends.transports import built_libraries

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
    with contextlib.nullcontext() if dry_run else locked(folder, busy):
        check_same_study(folder, config)
        if not dry_run:
            if not (folder / CONFIG).exists():
                write_json(folder / CONFIG, as_json(config.to_dict()))
            if dataset is None:
                dataset = make_dataset(config, curves, data_dir)
        place = find_dataset(data_dir, curves, **seed_and_counts(config))
        study = _study(config, matrix, job.num_outputs, place, folder, machine)
        if dry_run and slurm:
            with contextlib.suppress(OSError):  # the networks were described there
                folder.rmdir()
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


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TfmatError as error:
        print(f"tfmat: {printable(error)}", file=sys.stderr, flush=True)
        sys.exit(error.exit_status)

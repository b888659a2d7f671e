"""One process of a launch: takes its place, and measures steps, trainings or sums."""

import contextlib
import dataclasses
import importlib
import itertools
import os
import pathlib
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np
from msgspec import Struct

from tfmat.backends.base import Collectives
from tfmat.config import Config, DataSection, EpochPlan, Settings, check_config, goes_in_pieces
from tfmat.console import printable
from tfmat.errors import InputError, TfmatError
from tfmat.files import check_json, make_folder, parse_json, plain, read_json, write_json
from tfmat.launch.processes import Processes, find_processes, prepare_mpi
from tfmat.launch.watchdog import ByNote, Star, meet
from tfmat.scaling.study import RankUse, TrainingLine
from tfmat.training.run_folder import MetricsLine

# --------------------------------------------------------------------------------------------------
# `python -m tfmat.scaling.worker SPEC`: one process of a launch. Measures, and leaves `rank-N.json` beside the file.
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
    from tfmat.data.dataset import PackedDataset

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
    from tfmat.launch.processes import prepare_tensorflow

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
    from tfmat.backends.registry import make_backend

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
    from tfmat.data.dataset import PackedDataset
    from tfmat.networks.factory import build_for
    from tfmat.training.trainer import Trainer

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


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TfmatError as error:
        print(f"tfmat: {printable(error)}", file=sys.stderr, flush=True)
        sys.exit(error.exit_status)

"""A scaling study: what its config file asks for, what was measured, its file, and what its points are called."""

import dataclasses
import itertools
import json
import os
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from tfmat.backends.layouts import Weight
from tfmat.backends.registry import EXCHANGES, check_config_for
from tfmat.config import (
    BATCH,
    Config,
    Duration,
    MeshShape,
    Settings,
    apply_override,
    call_config_function,
    check_config,
    default_config,
    find_config_file,
    load_config,
)
from tfmat.errors import InputError, nearest
from tfmat.files import (
    check_json,
    parse_json,
    plain,
    read_json,
    write_error,
    write_json,
    write_text,
)
from tfmat.launch.machine import Session as Start
from tfmat.launch.processes import Processes

# --------------------------------------------------------------------------------------------------
# Ways in which a variant's workers exchange gradients: keys of the config in a text, and the bytes of their messages.
#
# `local_steps=50,compression=fp16` says what `--config.local_steps=50 --config.compression=fp16` says to `tfmat train`.


KEYS = (
    "compression", "compression_rank", "compression_fraction", "reduction", "bucket_mb", "local_steps",
    "outer_learning_rate", "outer_momentum", "overlap_meetings", "optimizer.learning_rate",
    "averaging", "quorum", "staleness_scaling",
)  # fmt: skip
# Trainings have rounds of their own, so that none is taken for a repetition that only timed its steps.
TRAINING_ROUNDS_FROM = 1000
# Backends that exchange in one of these ways, as `--backend=NAME`.
EXCHANGING = ("horovod", "mpi", "asynchronous")


def with_exchange(config: Config, text: str) -> Config:
    """A copy of the config with the keys of an exchange changed.

    Args:
      text: `KEY=VALUE` with commas between; "" changes nothing.

    Raises:
      InputError: a key that does not belong to an exchange, or a value that it does not take.
    """
    changed = Config(config.to_dict())
    for part in text.split(",") if text else ():
        key, _, value = part.partition("=")
        if key not in KEYS:
            raise InputError(f"exchange='{text}' has '{part}'{nearest(key, KEYS)}")
        apply_override(changed, key, value)
    return check_config(changed)


def check_exchange(text: str, backends: Sequence[str], workers: Sequence[int]) -> None:
    """InputError where workers of one of the backends, or one of these numbers of them, cannot exchange in that way."""
    settings = Settings.of(with_exchange(default_config(), text))
    for backend, size in itertools.product(backends, workers):
        if backend not in EXCHANGING or size == 1:
            continue
        try:
            processes = Processes(size=size, local_size=size)
            check_config_for(backend, settings, processes)
        except InputError as error:
            raise InputError(f"exchange='{text}' of {size} workers: {error}") from error


def check_step(config: Config, backends: Set[str]) -> None:
    """InputError where one of a study's backends would take its steps in another way than the config says."""
    for key, value, default, heeding in (
        ("accumulate", config.accumulate, 1, ("single", "horovod", "mpi")),
        ("offload", config.offload, "none", ("single", "horovod", "mpi")),
        ("precision", config.precision, "float32", ("single", *EXCHANGING)),
    ):
        others = sorted(backends - set(heeding))
        if value != default and others:
            raise InputError(
                f"{key}={value} is not heeded by {', '.join(others)}, whose steps would be compared with others of "
                f"another kind; leave it at {default}, or these out of get_scaling()"
            )


def check_network(model: Config) -> None:
    """InputError for a network whose steps a study does not take as a run does."""
    for key, timed, why in (
        ("representation", ("points", "plastic_spectrum"), "which is computed once, before the first step,"),
        ("uncertainty", ("none",), "which has another loss,"),
    ):  # fmt: skip
        if model[key] not in timed:
            raise InputError(
                f"model.{key}={model[key]}, {why} does not work with tfmat scale, whose steps are those of whole "
                f"networks with the mean squared error; leave it at {timed[0]}"
            )


class Meeting(NamedTuple):
    """The messages of one meeting of the workers.

    Attributes:
      sizes: bytes of each all-reduce, one after the other, even where some are summed while the backward pass computes;
        a collection counts as the all-reduce in a ring that has each worker send as much.
      every: steps between two meetings.
      overlaps: whether it is under way while the next steps are taken.
    """

    sizes: list[float]
    every: int
    overlaps: bool

    def seconds(self, alone: float, beyond: float, all_reduce: Callable[[float], float]) -> float:
        """Seconds per step.

        Args:
          alone: seconds of a step of workers that exchange nothing.
          beyond: seconds that a sum takes in a step beyond those by itself; negative where it takes less.
          all_reduce: bytes -> seconds.
        """
        less, more = min(beyond, 0.0), max(beyond, 0.0)
        exchange = sum(max(all_reduce(size) + less, 0.0) for size in self.sizes) / self.every
        waits = max(alone, exchange) if self.overlaps else alone + exchange
        return waits + more * len(self.sizes) / self.every


def messages(text: str, weights: Sequence[Weight], workers: int) -> Meeting | None:
    """The messages of one meeting of the workers, by pure arithmetic; None where they never all meet."""
    options = Settings.of(with_exchange(default_config(), text)).parallel
    if options.averaging or options.quorum or options.staleness_scaling != "none":
        return None
    sizes = EXCHANGES[options.compression].messages(weights, workers, options)
    return Meeting(sizes, options.local_steps, options.overlap_meetings)


# --------------------------------------------------------------------------------------------------
# The matrix of a study, as a config file says it: `get_scaling()` beside `get_config()`. See configs/scaling.py.


BACKENDS = ("single", *EXCHANGING, "dtensor")
# OF_TF_DISTRIBUTE: TensorFlow's own strategies, which older studies measured and still draw.
OF_TF_DISTRIBUTE = ("parameter_server", "mirrored", "multi_worker_mirrored")
COLLECTIVES = ("mpi", "gloo", "nccl")
# Libraries whose all-reduces are measured; "tensorflow" are the collectives of a mesh, "bare mpi" is mpi4py alone.
LIBRARIES = (*COLLECTIVES, "tensorflow", "bare mpi")
TRANSPORTS = ("", "tcp", "rdma")
PLACEMENTS = ("filled", "spread")
KILOBYTE = 1024
SIZES = tuple(KILOBYTE * 2**i for i in range(17))  # 1 kB to 64 MB


# Valid values of a field: one of these names, or a whole number from this on.
_VALID = {
    "backend": BACKENDS, "collectives": COLLECTIVES, "library": LIBRARIES, "transport": TRANSPORTS,
    "placement": PLACEMENTS,
}  # fmt: skip
_LEAST = {
    "workers": 1, "batch_a_worker": 1, "global_batch_size": 1, "dataset_size": 1, "zero_stage": 0, "sizes": 4,
    "rounds": 1,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Combinations:
    """Every combination of the values of its fields; a single value stands for a list of one."""

    def values(self, name: str) -> tuple[Any, ...]:
        """The values of one field."""
        value = getattr(self, name)
        return tuple(value) if isinstance(value, list | tuple | range) else (value,)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            for value in self.values(field.name):
                where = f"{type(self).__name__}({field.name}={value!r})"
                valid, least = _VALID.get(field.name), _LEAST.get(field.name)
                if field.name == "backend" and value in OF_TF_DISTRIBUTE:
                    raise InputError(
                        f"{where}: tfmat scale no longer measures tf.distribute; leave it out here, and call "
                        "tools/benchmark --part=tf_distribute"
                    )
                if valid and value not in valid:
                    raise InputError(f"{where}{nearest(str(value), valid)}")
                if value is None and field.name == "rounds":
                    continue
                if least is not None and (type(value) is not int or value < least):
                    raise InputError(f"{where}: give a whole number from {least}")


@dataclasses.dataclass(frozen=True)
class Runs(_Combinations):
    """Runs, every combination of the values given; a single value stands for a list of one.

    Attributes:
      backend: `single` (several workers of it: as many processes at once that have nothing to do with each other, the
        machine's own limit), `horovod`, `mpi`, `asynchronous`, `dtensor`.
      workers: of dtensor they follow from the mesh.
      batch_a_worker: weak scaling; global_batch_size: strong scaling.
      collectives: of horovod: `mpi`, `gloo`, `nccl`. transport: "" for what the library chooses, `tcp`, `rdma`.
      mesh, zero_stage: of dtensor.
      exchange: of horovod, mpi, asynchronous: keys of the config with commas between, which say how gradients travel
        (docs/slow_networks.md), as `local_steps=50,compression=fp16`; "" as the config says.
      updates: no longer used: the parameter server has left.
      model: names out of the matrix' `models`.
      dataset_size: training examples; none for the matrix' own.
      placement: on several nodes: `filled` one after another, or `spread` over all.
      train_for: trains that long, on all of the data, and notes how the loss falls; "" measures steps only.
      rounds: in how many it takes part; None for all.
    """

    backend: str | Sequence[str]
    workers: int | Sequence[int] = 1
    batch_a_worker: int | Sequence[int] = ()
    global_batch_size: int | Sequence[int] = ()
    collectives: str | Sequence[str] = "mpi"
    transport: str | Sequence[str] = ""
    mesh: str | Sequence[str] = ()
    zero_stage: int | Sequence[int] = 0
    exchange: str | Sequence[str] = ""
    updates: dataclasses.InitVar[str | Sequence[str]] = ""
    model: str | Sequence[str] = "default"
    dataset_size: int | Sequence[int] = ()
    placement: str | Sequence[str] = "filled"
    train_for: str = ""
    rounds: int | None = None

    def __post_init__(self, updates: str | Sequence[str]) -> None:
        super().__post_init__()
        for backend in self.values("backend"):
            if backend == "dtensor" and not self.values("mesh"):
                raise InputError(
                    "Runs with backend='dtensor' has no mesh; give one, such as mesh='batch:2'"
                )
            if self.train_for and backend not in ("single", "horovod", "mpi"):
                raise InputError(
                    f"Runs with train_for and backend='{backend}'; give single, horovod or mpi"
                )
            if self.train_for and backend == "single" and set(self.values("workers")) != {1}:
                raise InputError("Runs with train_for and backend='single' has one worker")
        if not self.values("batch_a_worker") and not self.values("global_batch_size"):
            raise InputError("Runs has no batch; give batch_a_worker (weak) or global_batch_size")
        _ = self.meshes
        for exchange in self.values("exchange"):
            check_exchange(exchange, self.values("backend"), self.values("workers"))
        if self.train_for:
            Duration.parse(self.train_for)
        if any(stage > 3 for stage in self.values("zero_stage")):
            raise InputError(f"zero_stage={self.zero_stage!r}; give 0 to 3")

    @property
    def meshes(self) -> dict[str, MeshShape]:
        """The meshes by their texts; InputError where one is none."""
        return {text: MeshShape.parse(text) for text in self.values("mesh")}


@dataclasses.dataclass(frozen=True)
class AllReduces(_Combinations):
    """All-reduces by themselves: every combination.

    Attributes:
      library: `mpi`, `gloo`, `nccl` (through Horovod), `tensorflow` (on a mesh of one process), `bare mpi` (mpi4py).
      workers, transport, placement, rounds: as in Runs.
      sizes: bytes of the message; those of the models' gradients are added.
    """

    library: str | Sequence[str] = "mpi"
    workers: int | Sequence[int] = 2
    sizes: Sequence[int] = SIZES
    transport: str | Sequence[str] = ""
    placement: str | Sequence[str] = "filled"
    rounds: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(workers < 2 for workers in self.values("workers")):
            raise InputError(f"AllReduces with workers={self.workers!r}; give 2 or more")


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A study.

    Attributes:
      runs, allreduces: what is measured. Baselines of one worker are added where they are missing.
      models: name -> changes to the config's `model` section; `default` is the config's own.
      rounds: repetitions; in each everything is measured once, in an order of its own.
      seconds: about how long each point is timed in a round, after its warm-up.
      split_rounds: in how many rounds the parts of a step are measured as well.
      processors_a_worker: that every worker may use, also a baseline.
      gpus_a_worker: under SLURM.
      workers_per_node: that a node takes; None: as many as there are processors or GPUs for.
      most_workers: more are not started on one node.
      share_processes: whether batches that differ in nothing else are measured by the same processes, one after the
        other: the start then counts once. Under SLURM each point is a job.
      hardware: name of the machines; "" for the processor's name here, and the partition's under SLURM.
      seed: of the order.
    """

    runs: Sequence[Runs]
    allreduces: Sequence[AllReduces] = ()
    models: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    rounds: int = 4
    seconds: float = 1.5
    split_rounds: int = 2
    dataset_size: int = 15_000
    processors_a_worker: int = 1
    gpus_a_worker: int = 0
    workers_per_node: int | None = None
    most_workers: int = 16
    share_processes: bool = True
    hardware: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rounds", "seconds", "dataset_size", "processors_a_worker", "most_workers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InputError(f"Matrix({name}=…) is {value!r}; give a number above 0")
        if not self.runs:
            raise InputError("Matrix has no runs; give Runs(backend=…, …)")
        known = ("default", *self.models)
        for runs in self.runs:
            for model in runs.values("model"):
                if model not in known:
                    raise InputError(f"Runs(model='{model}'){nearest(model, known)}")

    def quick(self) -> "Matrix":
        """A small one for trying: one worker and two, the smallest and largest batch, two rounds, nothing trained."""
        runs = [
            dataclasses.replace(
                each,
                batch_a_worker=sorted(each.values("batch_a_worker"))[:: len(batches) - 1 or 1],
                global_batch_size=() if batches else each.values("global_batch_size")[:1],
                workers=min(each.values("workers")),
                collectives="mpi",
                exchange="",
                mesh=each.values("mesh")[:1],
            )
            for each in self.runs
            if _is_for_quick(each)
            for batches in [each.values("batch_a_worker")]
        ]
        allreduces = [
            dataclasses.replace(each, library="mpi", sizes=tuple(each.sizes)[::8], rounds=1)
            for each in self.allreduces
            if 2 in each.values("workers") and "mpi" in each.values("library")
        ]
        return dataclasses.replace(
            self, runs=runs, allreduces=allreduces, rounds=2, split_rounds=1, seconds=0.5
        )


def _is_for_quick(runs: Runs) -> bool:
    fewest = min(runs.values("workers"))
    return (
        not runs.train_for
        and runs.values("model")[0] == "default"
        and not set(runs.values("backend")) <= {"asynchronous"}
        and fewest <= (1 if "single" in runs.values("backend") else 2)
        and "mpi" in runs.values("collectives")
    )


def worker_counts(processors: int | None = None, most: int = 16) -> tuple[int, ...]:
    """Numbers of workers that fit a machine: 2, 4, 8 … and as many as it has processors; 2 where it has fewer.

    Args:
      processors: of the machine; by default those that this process may use.
    """
    processors = len(os.sched_getaffinity(0)) if processors is None else processors
    last = max(2, min(processors, most))
    doubled = [2**power for power in range(1, last.bit_length()) if 2**power < last]
    return (*doubled, last)


def load_matrix(
    path: str | os.PathLike, overrides: Sequence[tuple[str, str]] = ()
) -> tuple[Config, Matrix]:
    """`get_config()`, changed by the overrides (key, text), and `get_scaling()` of a config file, both checked.

    Raises:
      InputError: the file is missing, fails, or says what does not exist.
    """
    file = find_config_file(os.fspath(path))
    config = load_config(file)
    for key, text in overrides:
        apply_override(config, key, text)
    check_config(config)
    wanted = "tfmat.scaling.study.Matrix(...)"
    matrix = call_config_function(file, "get_scaling", Matrix, wanted)
    for name in ("default", *matrix.models):
        check_network(config_of_model(config, matrix, name).model)
    check_step(config, {each for runs in matrix.runs for each in runs.values("backend")})
    return config, matrix


def config_of_model(config: Config, matrix: Matrix, name: str) -> Config:
    """A copy of the config with the network of that name; InputError where its changes are not valid."""
    changed = Config(config.to_dict())
    for key, value in matrix.models.get(name, {}).items():
        if key not in changed.model:
            raise InputError(f"model '{name}' changes '{key}'{nearest(key, changed.model)}")
        with changed.model.ignore_type():
            changed.model[key] = value
    return check_config(changed)


# --------------------------------------------------------------------------------------------------
# The results of a study, as data: points, their repetitions, single all-reduces.
#
# Seconds, bytes and watts throughout; a number that was not measured is None, never 0.


# The parts of a step, in the order in which they are drawn.
PARTS = (
    "forward_backward", "optimizer", "input", "waiting", "moving", "host", "evaluation", "checkpoint",
)  # fmt: skip
SCALINGS = ("weak", "strong")


@dataclasses.dataclass(frozen=True)
class Model:
    """The network that a point trains.

    Attributes:
      parameters: numbers that are trained.
      gradient_bytes: of one gradient, as it is exchanged.
      weights: its trainable variables (`tfmat.backends.layouts.weights_of`), from which the exchanges of tensor and
        sharded parallelism follow; empty where they are not known.
    """

    name: str
    parameters: int
    gradient_bytes: int
    weights: tuple[Weight, ...] = ()

    def __post_init__(self) -> None:
        _positive(self, "parameters", "gradient_bytes")


@dataclasses.dataclass(frozen=True)
class Point:
    """One cell of the study's matrix.

    Attributes:
      backend: `single`, `horovod`, `mpi`, `asynchronous`, `dtensor`; in older files also of tf.distribute.
      workers: processes, or devices of a mesh.
      global_batch_size: examples a step, of all workers together.
      batch_a_worker: examples a step that one worker computes; all of them where only layers are divided.
      scaling: `weak` (batch a worker kept) or `strong` (global batch kept): which baseline it is divided by.
      hardware: name of the kind of machine; speeds of different hardware are never divided by each other unasked.
      dataset_size: training examples; an epoch.
      nodes, ranks_per_node: machines, and workers on the fullest of them.
      processors_a_worker: that a worker may use; a baseline has as many.
      collectives: library that exchanges, `mpi`, `gloo`, `nccl`; empty without one.
      transport: such as `shared memory`, `tcp`, `rdma`; empty where not known.
      mesh: `batch:2,model:2`; empty without one.
      zero_stage: 0 to 3.
      exchange: how gradients travel where it is not as exact sums in every step, `local_steps=50,compression=fp16`.
      oversubscribed: more workers than processors: says nothing of scaling, and is left out of every fit.
      placement: `filled` (one node after another) or `spread`; empty on one node.
    """

    backend: str
    workers: int
    global_batch_size: int
    batch_a_worker: int
    scaling: str
    hardware: str
    model: Model
    dataset_size: int
    nodes: int = 1
    ranks_per_node: int = 1
    processors_a_worker: int = 1
    collectives: str = ""
    transport: str = ""
    mesh: str = ""
    zero_stage: int = 0
    oversubscribed: bool = False
    placement: str = ""
    exchange: str = ""

    def __post_init__(self) -> None:
        _positive(
            self, "workers", "global_batch_size", "batch_a_worker", "dataset_size", "nodes",
            "ranks_per_node", "processors_a_worker",
        )  # fmt: skip
        if self.scaling not in SCALINGS:
            raise InputError(f"scaling is '{self.scaling}'; expected one of {', '.join(SCALINGS)}")
        if self.batch_a_worker > self.global_batch_size:
            raise InputError(
                f"batch_a_worker {self.batch_a_worker} is more than global_batch_size {self.global_batch_size}"
            )
        _ = self.axes

    @property
    def is_baseline(self) -> bool:
        """One worker, and no parallel library in its process."""
        return self.backend == "single" and self.workers == 1 and not self.collectives

    @property
    def exchanges_nothing(self) -> bool:
        """Several processes at once that have nothing to do with each other: the machine's own limit."""
        return self.backend == "single" and self.workers > 1 and not self.collectives

    @property
    def kind(self) -> tuple[str, str, int]:
        """Model, hardware and data: points that differ in one of them are on different lines."""
        return self.model.name, self.hardware, self.dataset_size

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes over which a step is divided; InputError where the mesh is none."""
        return MeshShape.parse(self.mesh).names if self.mesh else (BATCH,)

    @property
    def steps_an_epoch(self) -> int:
        """Updates, and so exchanges of gradients, in one epoch."""
        return -(-self.dataset_size // self.global_batch_size)


@dataclasses.dataclass(frozen=True)
class RankUse:
    """Where one rank's time went, in seconds of a step on average, and what it used.

    Attributes:
      forward_backward, optimizer: computing.
      input: until a batch was there.
      waiting: for other ranks, before an exchange could begin; moving: the exchange itself.
      host: Python and the start of steps.
      evaluation, checkpoint: spread over the steps between two of them.
      step_deviation: standard deviation of one step's time before its exchange.
      cpu_utilisation, gpu_utilisation: shares of what it may use, 0 to 1.
      memory_bytes, gpu_memory_bytes: most that it held.
      power_watts: on average.
      bytes_sent_per_step: to other ranks, as a ring sends them.
    """

    rank: int
    node: str = ""
    forward_backward: float | None = None
    optimizer: float | None = None
    input: float | None = None
    waiting: float | None = None
    moving: float | None = None
    host: float | None = None
    evaluation: float | None = None
    checkpoint: float | None = None
    step_deviation: float | None = None
    cpu_utilisation: float | None = None
    gpu_utilisation: float | None = None
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    power_watts: float | None = None
    bytes_sent_per_step: int | None = None


@dataclasses.dataclass(frozen=True)
class TrainingLine:
    """Progress of a training: losses (None where not measured there) after so many seconds and epochs.

    Attributes:
      seconds: of training, without compiling; steps of the call that compiles count as long as later ones take.
    """

    seconds: float
    epoch: float
    loss: float | None = None
    val_loss: float | None = None


@dataclasses.dataclass(frozen=True)
class Repetition:
    """One measurement of a point. All points take turns in a round, so that a ratio is formed within a round.

    Attributes:
      round: number of the round, from 0.
      steps: timed ones, warm-up excluded; seconds: that they took on the slowest rank.
      session: number of the `Session` that measured it.
      started: UTC, ISO 8601.
      ranks: what each rank did; empty where only the time was taken.
      training: how the loss fell, where the point was trained to some accuracy.
      peak_memory_bytes: of all ranks together.
    """

    point: Point
    round: int
    steps: int
    seconds: float
    session: int = 0
    started: str = ""
    ranks: tuple[RankUse, ...] = ()
    training: tuple[TrainingLine, ...] = ()
    peak_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        _positive(self, "steps", "seconds")

    @property
    def step_seconds(self) -> float:
        """The time of one step."""
        return self.seconds / self.steps

    @property
    def curves_per_second(self) -> float:
        """The rate of all workers together."""
        return self.point.global_batch_size / self.step_seconds


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """Repeated all-reduces of one message size, nothing else running.

    Attributes:
      library: as `Point.collectives`.
      bytes: of the message on each worker.
      median_seconds: of one all-reduce; low_seconds, high_seconds: quartiles.
      repetitions: how many were timed.
    """

    library: str
    workers: int
    bytes: int
    median_seconds: float
    low_seconds: float
    high_seconds: float
    repetitions: int
    hardware: str
    transport: str = ""
    nodes: int = 1
    ranks_per_node: int = 1
    oversubscribed: bool = False
    round: int = 0
    session: int = 0

    def __post_init__(self) -> None:
        _positive(
            self, "bytes", "median_seconds", "low_seconds", "high_seconds", "repetitions", "nodes",
            "ranks_per_node",
        )  # fmt: skip
        if self.workers < 2:
            raise InputError(f"workers is {self.workers}; an all-reduce has 2 or more")


@dataclasses.dataclass(frozen=True)
class Session:
    """One process that measured."""

    number: int
    content: Start


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A planned measurement without a number.

    Attributes:
      what: the runs, for people: `horovod, nccl, 2 workers`.
      reason: in one line; "" takes back an earlier entry, since it was measured after all.
      round: in which they failed; None where they cannot be had on this machine, and were not tried.
      log: the end of what a failed run printed.
    """

    what: str
    reason: str
    round: int | None = None
    log: str = ""
    session: int = 0


@dataclasses.dataclass(frozen=True)
class Measurements:
    """A whole study; `label` says what a reader must know of its origin, such as that it is synthetic."""

    repetitions: tuple[Repetition, ...] = ()
    allreduces: tuple[AllReduce, ...] = ()
    sessions: tuple[Session, ...] = ()
    label: str = ""
    left_out: tuple[LeftOut, ...] = ()


def _positive(entry: Any, *names: str) -> None:
    for name in names:
        if not getattr(entry, name) > 0:
            raise InputError(f"{name} is {getattr(entry, name)}; expected more than 0")


# --------------------------------------------------------------------------------------------------
# `measurements.jsonl`: a line a repetition, all-reduce, session, or what was left out; the first says the format.
#
#     {"kind": "format", "format": 1, "label": ""}
#     {"kind": "session", "number": 0, "content": {"started": "…", "command": "…", "versions": {…}, …}}
#     {"kind": "allreduce", "library": "mpi", "workers": 2, "bytes": 1024, "median_seconds": 2.1e-05, …}
#     {"kind": "repetition", "point": {"backend": "horovod", "workers": 2, …}, "round": 0, "steps": 400, …}
#
# The keys are the attributes of the dataclasses above; what has a default may be missing. Lines are only
# ever added: `left_out` without a reason takes back what an earlier one says of the same launch. `assumptions.json`
# beside it holds what a reader of the page adds: prices, power, a target.


FILE = "measurements.jsonl"
# _FORMAT: version of that file.
_FORMAT = 1
_KINDS: dict[str, type] = {
    "session": Session,
    "allreduce": AllReduce,
    "repetition": Repetition,
    "left_out": LeftOut,
}
Entry = Repetition | AllReduce | Session | LeftOut


def is_study(workdir: str | os.PathLike) -> bool:
    """Whether the folder is a scaling study's."""
    return (pathlib.Path(workdir) / FILE).is_file()


def write_measurements(workdir: str | os.PathLike, measurements: Measurements) -> None:
    """Writes the whole file into a folder that exists, or leaves the old one."""
    entries: list[Entry] = [*measurements.sessions, *measurements.allreduces]
    entries += [*measurements.repetitions, *measurements.left_out]
    first = {"kind": "format", "format": _FORMAT, "label": measurements.label}
    write_text(pathlib.Path(workdir) / FILE, _line(first) + "".join(map(_line_of, entries)))


def add_measurements(workdir: str | os.PathLike, entries: Iterable[Entry]) -> None:
    """Adds lines to the folder's file, which may not exist yet; what a killed process left of a line goes first."""
    if not is_study(workdir):
        write_measurements(workdir, Measurements())
    path = pathlib.Path(workdir) / FILE
    try:
        with path.open("r+b") as file:
            whole = _without_torn_line(file.read().decode()).encode()
            file.truncate(len(whole))
            file.seek(0, os.SEEK_END)
            file.write(b"" if whole.endswith(b"\n") else b"\n")
            file.write("".join(map(_line_of, entries)).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise write_error(path, error) from error


def _without_torn_line(text: str) -> str:
    """The text without a last line that a killed process left unfinished."""
    before, newline, last = text.rpartition("\n")
    if not newline or not last:
        return text
    try:
        json.loads(last)
    except ValueError:
        return before + newline
    return text


def _line_of(entry: Entry) -> str:
    names = {kind: name for name, kind in _KINDS.items()}
    return _line({"kind": names[type(entry)], **_without_defaults(entry)})


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, default=plain) + "\n"


def read_measurements(workdir: str | os.PathLike) -> Measurements:
    """Reads a study; raises InputError with the number of the line that cannot be used."""
    path = pathlib.Path(workdir) / FILE
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}: {error}; name a scaling study's folder with --workdir"
        ) from error
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    label = ""
    lines = _without_torn_line(text).splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            content = parse_json(line)
            if not isinstance(content, dict):
                raise InputError("expected an object in braces")
            kind = content.pop("kind", None)
            if number == 1:
                version = content.get("format", "none")
                if kind != "format" or version != _FORMAT:
                    raise InputError(f"format {version}, this tfmat reads format {_FORMAT}")
                label = str(content.get("label", ""))
            elif not isinstance(kind, str) or kind not in _KINDS:
                raise InputError(f"kind is {kind!r}; expected one of {', '.join(_KINDS)}")
            else:
                found[kind].append(_decode(_KINDS[kind], content, kind))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}; mend or remove that line") from error
    if not lines:
        raise InputError(f"{path} is empty; measure again in another folder")
    return Measurements(
        tuple(found["repetition"]),
        tuple(found["allreduce"]),
        tuple(found["session"]),
        label,
        _still_left_out(found["left_out"], found["session"]),
    )


def _still_left_out(entries: Sequence[LeftOut], sessions: Sequence[Session]) -> tuple[LeftOut, ...]:
    """Entries of the last session's machine, and failures that no later entry takes back."""
    last = max((session.number for session in sessions), default=0)
    found: list[LeftOut] = []
    for entry in entries:
        if not entry.reason:
            found = [e for e in found if (e.what, e.round) != (entry.what, entry.round)]
        elif entry.round is not None or entry.session >= last:
            found.append(entry)
    return tuple(found)


def _without_defaults(entry: Any) -> dict[str, Any]:
    """A dataclass as JSON, what is at its default left out: lines stay short enough to read."""
    found = {}
    for field in dataclasses.fields(entry):
        value = getattr(entry, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _without_defaults(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _decode(kind: Any, content: dict[str, Any], name: str) -> Any:
    """One entry; InputError where it is none."""
    fields = [field.name for field in dataclasses.fields(kind)]
    for key in content:
        if key not in fields:
            raise InputError(f"{name} has an unknown key '{key}'{nearest(key, fields)}")
    return check_json(content, kind, name)


_ASSUMPTIONS = "assumptions.json"


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """None where nothing is assumed.

    Attributes:
      price_per_hour: of one worker's device, in any currency.
      watts_a_worker: electric power of one worker; measured power goes before it.
      target_val_loss: accuracy up to which time and money are counted; by default the best that every trained point
        reached.
      baseline_hardware: divide by the single-worker speed of this hardware instead of the point's own.
      ranks_per_node: workers that a node takes, for predictions; by default the most that were measured.
      network_latency, network_bytes_per_second: of the network between nodes, for predictions beyond one node where no
        all-reduce between nodes was measured.
      device_memory_bytes: of one worker's device.
    """

    price_per_hour: float | None = None
    watts_a_worker: float | None = None
    target_val_loss: float | None = None
    baseline_hardware: str | None = None
    ranks_per_node: int | None = None
    network_latency: float | None = None
    network_bytes_per_second: float | None = None
    device_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name == "baseline_hardware":
                if not isinstance(value, str):
                    raise InputError(f"baseline_hardware is {value!r}; expected a name")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InputError(f"{field.name} is {value}; expected a number above 0")


def read_assumptions(workdir: str | os.PathLike) -> Assumptions:
    """The assumptions of a folder; the defaults where it has none. Raises InputError for a damaged file."""
    path = pathlib.Path(workdir) / _ASSUMPTIONS
    if not path.exists():
        return Assumptions()
    found: Assumptions = check_json(read_json(path), Assumptions, path)
    return found


def write_assumptions(workdir: str | os.PathLike, assumptions: Assumptions) -> None:
    """Keeps them for the next page."""
    write_json(pathlib.Path(workdir) / _ASSUMPTIONS, dataclasses.asdict(assumptions))


# --------------------------------------------------------------------------------------------------
# Names of a study's points: short, and only what tells one from the study's most common network and data.


INDEPENDENT = "independent processes"
# Attributes that a name tells where they are not the study's most common, and how.
_USUAL: tuple[tuple[str, str], ...] = (
    ("model", "{} network"), ("dataset_size", "{:,} examples"), ("processors_a_worker", "{} processors a worker"),
)  # fmt: skip
# Further attributes, for points whose names would still be the same.
_FURTHER: tuple[Callable[[Point], str], ...] = (
    lambda point: point.mesh,
    lambda point: f"{point.nodes} nodes",
    lambda point: f"{point.ranks_per_node} on a node",
)


def variant_name(point: Point) -> str:
    """How its workers compute together, or do not: `horovod mpi`, `dtensor batch, tensorflow`."""
    kind = INDEPENDENT if point.exchanges_nothing else point.backend.replace("_", " ")
    if point.mesh:
        kind += f" {re.sub(r':[0-9]+', '', point.mesh)}"
    if point.zero_stage:
        kind += f" ZeRO {point.zero_stage}"
    if point.exchange:
        kind += f" {point.exchange.replace(',', ', ')}"
    library = "" if point.backend == "mpi" else point.collectives
    joint = " " if point.backend == "horovod" else ", "
    return joint.join(part for part in (kind, library) if part)


class Labels:
    """Names of one study's points; `usual` has the most common value of each attribute of `_USUAL`."""

    def __init__(self, points: Iterable[Point]):
        points = list(points)
        self.usual = {
            name: Counter(_value(point, name) for point in points).most_common(1)[0][0]
            for name, _ in (_USUAL if points else ())
        }
        self._machines = len({point.hardware for point in points}) > 1
        # A library over more than one transport: names must tell which.
        variants = {(point.backend, point.collectives, point.transport) for point in points}
        self._transports = len({variant[:2] for variant in variants}) < len(variants)
        self._names = _told_apart({point: self._name(point) for point in points})

    def __getitem__(self, point: Point) -> str:
        """The name of points that differ only in their workers: `horovod mpi, 75 a worker, large network`."""
        return self._names[point]

    def order(self, point: Point) -> tuple:
        """Sorts as a reader looks: the usual network and data first, then batch, baseline, variant and workers."""
        unusual = [
            (_value(point, name) != usual, _value(point, name))
            for name, usual in self.usual.items()
        ]
        weak = point.scaling == "weak"
        batch = point.batch_a_worker if weak else point.global_batch_size
        last = (not point.is_baseline, variant_name(point), point.workers)
        return *unusual, point.hardware, not weak, batch, *last  # fmt: skip

    def _name(self, point: Point) -> str:
        weak = point.scaling == "weak"
        parts = [variant_name(point), point.transport if self._transports else "", point.placement]
        parts.append(
            f"{point.batch_a_worker:,} a worker" if weak else f"{point.global_batch_size:,} in all"
        )
        for name, text in _USUAL:
            value = _value(point, name)
            parts.append(text.format(value) if value != self.usual[name] else "")
        parts.append(point.hardware if self._machines else "")
        return ", ".join(part for part in parts if part)


def _value(point: Point, name: str) -> Any:
    return point.model.name if name == "model" else getattr(point, name)


def _told_apart(names: dict[Point, str]) -> dict[Point, str]:
    for further in _FURTHER:
        counts = Counter((point.workers, name) for point, name in names.items())
        names = {
            point: f"{name}, {further(point)}" if counts[point.workers, name] > 1 and further(point) else name
            for point, name in names.items()
        }  # fmt: skip
    return names

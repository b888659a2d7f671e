"""What a scaling study measures: runs by their numbers of processes and batch sizes, and exchanges of given sizes."""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from tfmat.backends.options import BackendOptions, Weight, check_config_for
from tfmat.config import (
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
from tfmat.launch.processes import Processes

# --------------------------------------------------------------------------------------------------
# Ways in which a variant's workers exchange gradients: keys of the config in a text, and the bytes of their messages.
#
# `local_steps=50,compression=fp16` says what `--config.local_steps=50 --config.compression=fp16` says to `tfmat
# train`.


KEYS = (
    "compression", "compression_rank", "compression_fraction", "reduction", "bucket_mb", "local_steps",
    "outer_learning_rate", "outer_momentum", "overlap_meetings", "optimizer.learning_rate",
    "averaging", "quorum", "staleness_scaling",
)  # fmt: skip
# What exchanges in one of these ways, as `--backend=NAME`.
EXCHANGING = ("horovod", "mpi", "asynchronous")
# As in tfmat.backends.compression, which loads TensorFlow: smaller gradients travel as they are.
_SMALLEST = 4_096


def with_exchange(config: Config, text: str) -> Config:
    """A copy of the config with the keys of an exchange changed.

    Args:
      config: checked.
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
            options = BackendOptions.of_settings(settings, processes=processes)
            check_config_for(backend, settings, options)
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
    """What one meeting of the workers sends.

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
    """The messages of one meeting of the workers, by pure arithmetic; None where they never all meet.

    Args:
      text: see `with_exchange`.
      weights: of the network.
      workers: that exchange.
    """
    config = with_exchange(default_config(), text)
    if config.averaging or config.quorum or config.staleness_scaling != "none":
        return None
    numbers = [math.prod(weight.shape) for weight in weights]
    whole = sum(n * weight.itemsize for n, weight in zip(numbers, weights, strict=True))
    large = [n for n in numbers if n >= _SMALLEST]
    rest = whole - 4 * sum(large)
    found: dict[str, list[float]] = {
        "none": [whole],
        "fp16": [whole / 2],
        "bf16": [whole / 2 * workers / 2],
        "int8": [sum(large), rest],
        "sign": [sum(n / 8 + 4 for n in large) * workers / 2, rest],
        "topk": [
            sum(8 * max(1, round(config.compression_fraction * n)) for n in large) * workers / 2,
            rest,
        ],
        "powersgd": _of_powersgd(weights, config.compression_rank, whole),
    }
    return Meeting(found[config.compression], config.local_steps, config.overlap_meetings)


def _of_powersgd(weights: Sequence[Weight], rank: int, whole: float) -> list[float]:
    """Two sums: of the left factors with all that is not compressed, and of the right ones."""
    left = right = 0.0
    for weight in weights:
        rows, columns = math.prod(weight.shape[:-1]), weight.shape[-1] if weight.shape else 1
        if (
            rows * columns >= _SMALLEST
            and len(weight.shape) > 1
            and 2 * rank * (rows + columns) <= rows * columns
        ):
            whole -= 4 * rows * columns
            left, right = left + 4 * rank * rows, right + 4 * rank * columns
    return [whole + left, right] if right else [whole]


# --------------------------------------------------------------------------------------------------
# What a study measures, as a config file says it: `get_scaling()` beside `get_config()`. See configs/scaling.py.


BACKENDS = ("single", *EXCHANGING, "dtensor")
# OF_TF_DISTRIBUTE: TensorFlow's own strategies, which older studies measured and still draw.
OF_TF_DISTRIBUTE = ("parameter_server", "mirrored", "multi_worker_mirrored")
COLLECTIVES = ("mpi", "gloo", "nccl")
# What sums by itself; "tensorflow" are the collectives of a mesh, "bare mpi" is mpi4py without Horovod.
LIBRARIES = (*COLLECTIVES, "tensorflow", "bare mpi")
TRANSPORTS = ("", "tcp", "rdma")
PLACEMENTS = ("filled", "spread")
KILOBYTE = 1024
SIZES = tuple(KILOBYTE * 2**i for i in range(17))  # 1 kB to 64 MB


# What a field may hold: one of these names, or a whole number from this on.
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
      dataset_size: training examples.
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
            _positive(f"Matrix({name}=…)", getattr(self, name))
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
      most: workers.
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
    wanted = "tfmat.scaling.matrix.Matrix(...)"
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


def _positive(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{where} is {value!r}; give a number above 0")

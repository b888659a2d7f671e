"""What a scaling study measures, as data: points, their repetitions, single all-reduces. See measurement_files.py.

Seconds, bytes and watts throughout; a number that was not measured is None, never 0.
"""

import dataclasses
from typing import Any

from tfmat.backends.mesh import BATCH, MeshShape, Weight
from tfmat.errors import InputError

# The parts of a step, in the order in which they are drawn.
PARTS = (
    "forward_backward", "optimizer", "input", "waiting", "moving", "host", "evaluation", "checkpoint",
)  # fmt: skip
SCALINGS = ("weak", "strong")


@dataclasses.dataclass(frozen=True)
class Model:
    """The network that a point trains.

    Attributes:
      name: such as `default`.
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
      backend: `single`, `horovod`, `dtensor`, or one of the baselines, which are no backends of tfmat's.
      workers: processes, or devices of a mesh.
      global_batch_size: examples a step, of all workers together.
      batch_a_worker: examples a step that one worker computes; all of them where only layers are divided.
      scaling: `weak` (batch a worker kept) or `strong` (global batch kept): which baseline it is divided by.
      hardware: name of the kind of machine; speeds of different hardware are never divided by each other unasked.
      model: the network.
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
      rank: of the process.
      node: name of its machine.
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
      point: what was measured.
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
      workers, nodes, ranks_per_node, hardware, transport, oversubscribed: as in `Point`.
      bytes: of the message on each worker.
      median_seconds: of one all-reduce; low_seconds, high_seconds: quartiles.
      repetitions: how many were timed.
      round, session: as in `Repetition`.
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
    """One process that measured: `content` is what `tfmat.launch.provenance.describe_session` returns."""

    number: int
    content: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """What was planned and has no number.

    Attributes:
      what: the runs, for people: `horovod, nccl, 2 workers`.
      reason: in one line; "" takes back an earlier entry, since it was measured after all.
      round: in which they failed; None where they cannot be had on this machine, and were not tried.
      log: the end of what a failed run printed.
      session: as in `Repetition`.
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

"""What training asks of a backend. A backend knows nothing of curves; training knows nothing of parallelism."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmat.backends.collectives import Collectives
from tfmat.backends.mesh import ONE_DEVICE, MeshShape
from tfmat.backends.step_times import StepTimes
from tfmat.errors import InputError, WorkerLostError
from tfmat.ranks.processes import Processes, find_processes

Arrays = dict[str, np.ndarray]
PerExample = Callable[[Any, Any], Any]
# A function like a loss, or a keras.metrics.Metric whose state adds up over examples, see tfmat.backends.metrics.
Metric = Any


# With momentum and fewer steps between meetings the outer optimizer diverged: val_loss thirty times higher after four.
_FEWEST_STEPS_FOR_MOMENTUM = 16
# Up to so many, a short and persistent outer step ends nearest to exact sums; beyond, a whole and less persistent one.
# Measured with 16 and with 50 (docs/slow_networks.md).
_MOST_STEPS_FOR_LARGE_MOMENTUM = 25


@dataclasses.dataclass(frozen=True)
class BackendOptions:
    """What the backends can be told; each takes what concerns it, and refuses the rest where it is not the default.

    Attributes:
      processes: this process among those of its run; by default what the launcher says.
      mesh: DTensor: named axes with their devices. Horovod, MPI: the axes `batch` and `stage` of the processes.
      stages, micro_batches, schedule: Horovod, MPI: how a mesh with the axis `stage` divides the network and a batch;
        see `tfmat.backends.stages.make_stages` and `order_of_work`. No number: four micro-batches for each stage.
      layouts: DTensor: (regular expression over variable paths, layout) in order, the first match wins.
      zero_stage: DTensor: 0 nothing, 1 slots, 2 slots and gradients, 3 those and weights sharded over the batch axis.
        Horovod, MPI: 1 and 2 alike: each process has the slots, and receives the summed gradients, of its part.
      folder: DTensor: one that all processes can see, by which those of several nodes find each other.
      compression: Horovod, MPI: what gradients are made of on their way between workers, see `make_exchange`.
      compression_rank, compression_fraction: of `powersgd` and of `topk`.
      reduction: Horovod, MPI: `flat`, or `hierarchical`: within each node, between the nodes, and back.
      bucket_mb: Horovod, MPI: gradients are summed in buckets of at most so many megabytes (10^6 bytes), each as soon
        as it is there; None: all in one.
      local_steps: Horovod, MPI: steps that each worker takes by itself before all meet; 1: they meet in every step.
      outer_learning_rate, outer_momentum: of the weights' step at a meeting; None: see `outer_step`.
      quorum: asynchronous: gradients that make a step; late ones are dropped. None: each moves the weights at once.
      staleness_scaling: asynchronous: `none`, `inverse` or `sqrt`: the weights' step times 1 / (1 + staleness), or its
        root (Zhang et al. 2016, Staleness-aware async-SGD, arXiv:1511.05950).
      accumulate: Horovod, MPI: parts of a local batch that go through one after the other.
      recompute: where the model is cut (`every:K`, or regular expressions over names of layers), so that a training
        step keeps only what goes over the cuts, and computes the rest twice; `none` keeps everything.
      offload: single: `slots`: the optimizer's are in a mapped file, and come into memory block by block; `none`.
      offload_dir: folder of that file; None: `folder`.
      timeline: Horovod: whether `start_timeline` will be called.

    Raises:
      InputError: an outer momentum with fewer than 16 local steps, with which training would diverge.
    """

    processes: Processes = dataclasses.field(default_factory=find_processes)
    mesh: MeshShape = ONE_DEVICE
    stages: str = ""
    micro_batches: int | None = None
    schedule: str = "1f1b"
    layouts: tuple[tuple[str, str], ...] = ()
    zero_stage: int = 0
    folder: str = "."
    compression: str = "none"
    compression_rank: int = 4
    compression_fraction: float = 0.01
    reduction: str = "flat"
    bucket_mb: float | None = None
    local_steps: int = 1
    outer_learning_rate: float | None = None
    outer_momentum: float | None = None
    quorum: int | None = None
    staleness_scaling: str = "none"
    accumulate: int = 1
    recompute: str = "none"
    offload: str = "none"
    offload_dir: str | None = None
    timeline: bool = False

    def __post_init__(self) -> None:
        if self.outer_momentum and 1 < self.local_steps < _FEWEST_STEPS_FOR_MOMENTUM:
            raise InputError(
                f"outer_momentum={self.outer_momentum:g} with local_steps={self.local_steps} diverges; give at least "
                f"{_FEWEST_STEPS_FOR_MOMENTUM} local steps, or leave outer_momentum out"
            )

    @property
    def bucket_bytes(self) -> float | None:
        """`bucket_mb` in bytes."""
        return None if self.bucket_mb is None else 1e6 * self.bucket_mb

    @property
    def outer_step(self) -> tuple[float, float]:
        """Learning rate and momentum of the step at a meeting.

        Where neither is given they follow the number of local steps: 1 and 0 (plain averaging) below 16, 0.7 and 0.9 up
        to 25, 1 and 0.5 beyond.
        """
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        several = self.local_steps >= _FEWEST_STEPS_FOR_MOMENTUM
        few = several and self.local_steps <= _MOST_STEPS_FOR_LARGE_MOMENTUM
        if few and rate is None and momentum is None:
            return 0.7, 0.9
        if momentum is None:
            momentum = 0.5 if several else 0.0
        return 1.0 if rate is None else rate, momentum

    @classmethod
    def on_mesh(cls, mesh: str, **others: Any) -> "BackendOptions":
        """The options with a mesh as people write it: `batch:4,model:2`; InputError where it is not one."""
        return cls(mesh=MeshShape.parse(mesh), **others)


class Backend(abc.ABC):
    """What runs training steps. `build` comes first; everything else after it.

    Args:
      options: see BackendOptions.
      collectives: how it talks to the other processes.

    Attributes:
      name: as in `--backend=NAME`.
      collectives: what is told to the other processes, and by them.
      timed_calls: one in so many calls of `train` notes the times within its steps; 0 where none does.
      step_times: of the last `train`, where that was one of them.
      bytes_per_step: that this worker sends to others in a training step, once one has run; see `Counted`.
      meets_every: steps between two meetings of the workers, whose states differ in between; each call of `train` ends
        with one.
      note: one line for people on what `build` made, or nothing.
    """

    name: str
    note: str = ""
    timed_calls: int = 0
    step_times: StepTimes | None = None
    bytes_per_step: float = 0.0
    meets_every: int = 1
    _last_compared = 0

    def __init__(
        self, options: BackendOptions | None = None, collectives: Collectives | None = None
    ):
        self.options = options or BackendOptions()
        self.collectives = collectives or Collectives()

    @property
    def rank(self) -> int:
        """This worker; rank 0 alone writes files and draws progress."""
        return self.collectives.rank

    @property
    def world_size(self) -> int:
        """Workers that share a global batch."""
        return self.collectives.size

    @property
    def replica(self) -> int:
        """This worker among those."""
        return self.rank

    def start(self) -> None:
        """Joins the other workers; once, before `build` and after `prepare_tensorflow`."""
        self.collectives.start()

    def close(self, error: BaseException | None = None) -> None:
        """Leaves them: in order, or because of `error`, which they are told."""
        self.collectives.close(error)

    def __enter__(self) -> "Backend":
        self.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.close(error)

    @abc.abstractmethod
    def build(
        self,
        model: Any,
        optimizer: Any,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
        bfloat16: Sequence[Any] = (),
    ) -> None:
        """Takes a built Keras model and a functional optimizer, makes the slots, and compiles nothing yet.

        Args:
          model: its variables are the initial state.
          optimizer: see `tfmat.optimizers.make_functional`.
          loss: (labels, outputs) -> [batch], one value an example.
          metrics: name -> function like `loss`, or a Keras metric from `tfmat.backends.metrics.make_metric`.
          auxiliary_loss: like `loss`; added to what is minimised, not to what is reported as the loss.
          jit_compile: compile the step with XLA.
          bfloat16: layers that compute in bfloat16 in training steps, see `tfmat.backends.precision`.
        """

    @abc.abstractmethod
    def place(self, data: Any) -> Any:
        """Puts a structure of NumPy arrays where steps read it best (device memory; on CPUs without a copy)."""

    @abc.abstractmethod
    def host_tensors(self, data: Any) -> Any:
        """Tensors in host memory over a structure of NumPy arrays, mapped files included: no copy where possible."""

    @abc.abstractmethod
    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """Runs some training steps in one call.

        Args:
          data: (features, labels), each a tensor or a structure of tensors with the same first axis; or with the
            examples' own weights [examples] behind them, which count in the loss and not in metrics.
          indices: int32 [steps, batch], rows of `data`.
          weights: float32 [steps, batch], 1 for an example, 0 for padding.
          num_examples: float32 [steps], true examples of each GLOBAL batch.

        Returns:
          [steps, sums] over each global batch: of the loss, and those of each metric, see `Summary`.
        """

    @abc.abstractmethod
    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """Does as `train`, in inference mode, and changes nothing."""

    @abc.abstractmethod
    def predict(self, features: Any) -> Any:
        """Outputs of the model with the present state: an array, or a structure of arrays as the model's outputs."""

    @abc.abstractmethod
    def read(self) -> Arrays:
        """The whole state as plain arrays: `weights/i`, `non_trainable/i`, `slots/i` in Keras's order.

        Every worker calls it. Slots of which each worker holds a part (`zero_stage` over processes) are whole on rank 0
        alone; the others get their own parts, which `write` takes back.
        """

    @abc.abstractmethod
    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Sets the whole state from what any backend's `read` returned; InputError where it does not fit."""

    @abc.abstractmethod
    def sync_model(self) -> None:
        """Brings the Keras model's own variables up to date, for callbacks and for saving."""

    def columns(self, global_batch_size: int) -> slice:
        """This worker's contiguous part of each global batch; InputError where a worker would have none."""
        return slice(0, global_batch_size)

    def training_columns(self, global_batch_size: int) -> slice:
        """What `train` is given of each global batch: this worker's part, or all where batches are handed out."""
        return self.columns(global_batch_size)

    @property
    def hands_out_batches(self) -> bool:
        """Whether each batch is one worker's."""
        return False

    def take_figures(self) -> dict[str, float]:
        """What metrics.jsonl tells of the steps since the last `take_figures`, beside their times."""
        return {}

    def synchronize(self) -> None:  # noqa: B027
        """Rank 0's whole state on every rank: before the first step, and after `write` on rank 0."""

    def time_steps(self, one_call_in: int = 1) -> None:
        """Has `train` also note, from `build` on, when each part of a step was complete; on every rank or on none.

        Args:
          one_call_in: to cost less, after as many calls, which are all timed, only one in so many is.

        Raises:
          InputError: where it cannot.
        """
        raise InputError(
            f"profile=true does not work with --backend={self.name} yet; leave it out: metrics.jsonl still has the "
            "times outside of the steps"
        )

    def check_replicas(self, step: int) -> None:  # noqa: B027
        """Compares the copies of the state that the workers hold, by a hash.

        Raises:
          WorkerLostError: they differ; names the steps between which they began to.
        """

    def _report_differing(self, what: str, differing: list[int], step: int) -> None:
        """WorkerLostError where some (`what`: `rank`, `device`) hold other numbers than the first."""
        if differing:
            names = ", ".join(map(str, differing[:8])) + (" ..." if len(differing) > 8 else "")
            raise WorkerLostError(
                f"the weights of {what} {names} differ from those of {what} 0; they began to between step "
                f"{self._last_compared} and step {step}. Start the same command again to go on from the last "
                "checkpoint; where it happens again, a worker computes or communicates wrongly"
            )
        self._last_compared = step

    def _note_common_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """All workers were given this state."""
        if "slots/0" in arrays:  # Keras's `iterations`
            self._last_compared = int(arrays["slots/0"])

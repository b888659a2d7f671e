"""What the backends can be told."""

import dataclasses
from typing import Any

from tfmat.backends.mesh import ONE_DEVICE, MeshShape
from tfmat.errors import InputError
from tfmat.ranks.processes import Processes, find_processes

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
        asynchronous with `averaging`: between two averagings that a worker begins.
      outer_learning_rate, outer_momentum: of the weights' step at a meeting; None: see `outer_step`.
      overlap_meetings: local steps: what the workers moved comes together while they take the next local steps.
      quorum: asynchronous: gradients that make a step; late ones are dropped. None: each moves the weights at once.
      averaging: asynchronous: each worker trains weights of its own, and averages them with one other at a time.
      staleness_scaling: asynchronous: `none`, `inverse` or `sqrt`: the weights' step times 1 / (1 + staleness), or its
        root (Zhang et al. 2016, Staleness-aware async-SGD, arXiv:1511.05950).
      accumulate: Horovod, MPI: parts of a local batch that go through one after the other.
      recompute: where the model is cut (`every:K`, or regular expressions over names of layers), so that a training
        step keeps only what goes over the cuts, and computes the rest twice; `none` keeps everything.
      offload: single, Horovod, MPI: `slots`: each process has its optimizer's in a mapped file, from which they come
        into memory block by block; `none`.
      offload_dir: folder of that file; None: `folder`.
      timeline: Horovod: whether `start_timeline` will be called.

    Raises:
      InputError: an outer momentum with fewer than 16 local steps, with which training would diverge; meetings that
        overlap with local steps, of which there are none.
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
    overlap_meetings: bool = False
    quorum: int | None = None
    averaging: bool = False
    staleness_scaling: str = "none"
    accumulate: int = 1
    recompute: str = "none"
    offload: str = "none"
    offload_dir: str | None = None
    timeline: bool = False

    def __post_init__(self) -> None:
        if self.overlap_meetings and self.local_steps == 1:
            raise InputError(
                "overlap_meetings needs steps between two meetings; give local_steps=16, or leave it out"
            )
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
    def trains_apart(self) -> bool:
        """Whether each worker takes steps by itself, of which one sees no more of a batch than a worker's part."""
        return self.averaging or self.local_steps > 1

    @property
    def outer_step(self) -> tuple[float, float]:
        """Learning rate and momentum of the step at a meeting.

        Where neither is given they follow the number of local steps: 1 and 0 (plain averaging) below 16, 0.7 and 0.9 up
        to 25, or 0.5 and 0.8 with `overlap_meetings`, 1 and 0.5 beyond.
        """
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        several = self.local_steps >= _FEWEST_STEPS_FOR_MOMENTUM
        few = several and self.local_steps <= _MOST_STEPS_FOR_LARGE_MOMENTUM
        if few and rate is None and momentum is None:
            return (0.5, 0.8) if self.overlap_meetings else (0.7, 0.9)
        if momentum is None:
            momentum = 0.5 if several else 0.0
        return 1.0 if rate is None else rate, momentum

    @classmethod
    def on_mesh(cls, mesh: str, **others: Any) -> "BackendOptions":
        """The options with a mesh as people write it: `batch:4,model:2`; InputError where it is not one."""
        return cls(mesh=MeshShape.parse(mesh), **others)

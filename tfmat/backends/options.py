"""The options of a backend, and what a config may not combine, before TensorFlow is loaded."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmat.config import BATCH, MeshShape, Parallelism, Settings
from tfmat.errors import InputError, nearest
from tfmat.launch.processes import Processes, find_processes

# --------------------------------------------------------------------------------------------------
# Meshes as data: `batch:4,model:2` are two named axes and eight devices. No TensorFlow in here.
#
# The rules by which a user divides weights over the axes, and one line for each that cannot be followed.


# For each dimension the name of an axis; None where it is whole.
Spec = tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class Weight:
    """A trainable variable.

    Attributes:
      path: in the model, such as `hidden/kernel`.
      shape: kernels end with [inputs, units].
      itemsize: bytes of a number.
      convolution: of kernels of convolutions: `direct`, which DTensor wants whole, or `unfolded`, which may be divided.
      points: of the outputs of an unfolded convolution.
    """

    path: str
    shape: tuple[int, ...]
    itemsize: int = 4
    convolution: str = ""
    points: int = 1


def compile_pattern(pattern: str) -> re.Pattern:
    """The rule's regular expression; InputError where it is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"layouts: '{pattern}' is no regular expression: {error}") from error


def parse_layout(layout: str, weight: Weight, mesh: MeshShape, pattern: str) -> Spec:
    """The layout that a rule gives that weight; InputError where it cannot have it, with what can."""
    rule = f"layouts: rule '{pattern}={layout}'"
    if layout == "replicated":
        return (None,) * len(weight.shape)
    if weight.convolution == "direct":
        raise InputError(
            f"{rule}: {weight.path} is the kernel of a convolution, which DTensor wants whole; "
            f"use '{pattern}=replicated', or tfmat's unfolded convolution (--settings.model.convolution=unfolded)"
        )
    axes = [axis.strip() for axis in layout.split(",")]
    for axis in axes:
        if axis != "-" and axis not in mesh.names:
            raise InputError(
                f"{rule} names the axis '{axis}', which mesh {mesh} has not"
                f"{nearest(axis, [*mesh.names, '-'])}"
            )
        if axis != "-" and axes.count(axis) > 1:
            raise InputError(f"{rule} names the axis '{axis}' twice; one dimension an axis")
    if len(axes) != len(weight.shape):
        raise InputError(
            f"{rule} is for {len(axes)} dimensions, {weight.path} has {len(weight.shape)} {list(weight.shape)}; "
            "write an axis or - for each"
        )
    for axis, length in zip(axes, weight.shape, strict=True):
        size = mesh.size(axis if axis != "-" else None)
        if length % size:
            raise InputError(
                f"{rule}: {weight.path} {list(weight.shape)} has a dimension of {length}, which does not divide by "
                f"{axis}:{size}; the nearest that do: {nearest_multiples(length, size)}; or '{pattern}=replicated'"
            )
    return tuple(None if axis == "-" else axis for axis in axes)


def why_no_effect(
    pattern: str, weights: Sequence[Weight], compiled: list[tuple[str, re.Pattern, str]]
) -> str:
    """Why a rule has no effect, in one line."""
    paths = [weight.path for weight in weights]
    expression = next(e for p, e, _ in compiled if p == pattern)
    if any(expression.search(path) for path in paths):
        return f"layouts: rule '{pattern}' never holds: earlier rules match all that it matches; move it up"
    return f"layouts: rule '{pattern}' matches no variable{nearest(pattern, paths)}"


def nearest_multiples(length: int, size: int) -> str:
    """The multiples of `size` around `length`, in words."""
    below = length // size * size
    return " and ".join(str(value) for value in (below, below + size) if value)


# --------------------------------------------------------------------------------------------------
# What the backends can be told.


# With momentum and fewer steps between meetings the outer optimizer diverged: val_loss thirty times higher after four.
_FEWEST_STEPS_FOR_MOMENTUM = 16
# Up to so many, a short and persistent outer step ends nearest to exact sums; beyond, a whole and less persistent one.
# Measured with 16 and with 50 (docs/slow_networks.md).
_MOST_STEPS_FOR_LARGE_MOMENTUM = 25


@dataclasses.dataclass(frozen=True)
class BackendOptions(Parallelism):
    """What a backend is told: the keys of `Parallelism`, and where its steps run.

    Each backend takes what concerns it, and refuses the rest where it is not the default.

    Attributes:
      processes: this process among those of its run; by default what the launcher says.
      folder: one that all processes can see, by which those of several nodes find each other; slots on disk lie there
        where `offload_dir` is None.
      recompute: `model.recompute` of a settings.
      timeline: Horovod: whether `start_timeline` will be called.

    Raises:
      InputError: an outer momentum with fewer than 16 local steps, with which training would diverge; meetings that
        overlap with local steps, of which there are none.
    """

    processes: Processes = dataclasses.field(default_factory=find_processes)
    folder: str = "."
    recompute: str = "none"
    timeline: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
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
    def of_settings(cls, settings: Settings, **others: Any) -> "BackendOptions":
        """What a run's settings tell its backend, and `others`."""
        return cls(
            **vars(settings.parallel),
            recompute=settings.model.recompute,
            timeline=settings.trace_steps is not None,
            **others,
        )

    @classmethod
    def on_mesh(cls, mesh: str, **others: Any) -> "BackendOptions":
        """The options with a mesh as people write it: `batch:4,model:2`; InputError where it is not one."""
        return cls(mesh=MeshShape.parse(mesh), **others)


# --------------------------------------------------------------------------------------------------
# Pipeline stages before anything is made: which process is which stage, what it does in a step and when, and
# refusals.
#
# A batch goes through the stages as micro-batches. No TensorFlow in here.


STAGE = "stage"
SCHEDULES = ("gpipe", "1f1b")
# Backends whose processes can be stages.
TRANSPORTS = ("horovod", "mpi")
# A step is one graph that holds each micro-batch by itself.
MOST_MICRO_BATCHES = 64
_MICRO_BATCHES_PER_STAGE = 4


class Work(NamedTuple):
    """What a stage does next: the forward or the backward pass of a micro-batch."""

    is_forward: bool
    micro_batch: int


def order_of_work(schedule: str, stage: int, num_stages: int, micro_batches: int) -> list[Work]:
    """What one stage does in a step, in order.

    `gpipe` (Huang et al. 2019, arXiv:1811.06965) runs all forward passes, then all backward passes. `1f1b` (Narayanan
    et al. 2019, PipeDream; without stale weights: PipeDream-Flush, 2021, arXiv:2104.04473) begins a backward pass as
    soon as it can, so that a stage holds the activations of no more micro-batches than there are stages from it on.
    """
    ahead = micro_batches
    if schedule == "1f1b":
        ahead = min(num_stages - 1 - stage, micro_batches)
    work = [Work(True, i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        work += [Work(True, ahead + i), Work(False, i)]
    return work + [Work(False, i) for i in range(micro_batches - ahead, micro_batches)]


def most_held(work: Sequence[Work]) -> int:
    """Micro-batches whose activations a stage holds at once."""
    held = np.cumsum([1 if each.is_forward else -1 for each in work])
    return int(held.max())


def bubble(num_stages: int, micro_batches: int) -> float:
    """Share of a step in which a stage waits for others, where all stages take equally long (arXiv:1811.06965, 2.3)."""
    return (num_stages - 1) / (micro_batches + num_stages - 1)


@dataclasses.dataclass(frozen=True)
class Place:
    """One process among stages and replicas.

    Attributes:
      stage, num_stages: its part of the network.
      replica, num_replicas: its part of each global batch.
      chain: ranks of its replica, by stage.
      peers: ranks of its stage, by replica.
    """

    stage: int
    num_stages: int
    replica: int
    num_replicas: int
    chain: tuple[int, ...]
    peers: tuple[int, ...]

    @classmethod
    def of(cls, mesh: MeshShape, rank: int) -> "Place":
        """That of a rank; neighbours on the mesh's last axis are neighbouring ranks."""
        ranks = np.arange(mesh.num_devices).reshape([size for _, size in mesh.axes])
        if BATCH not in mesh.names:
            ranks = ranks[..., None]
        elif mesh.names.index(BATCH) == 0:
            ranks = ranks.T
        ((stage, replica),) = np.argwhere(ranks == rank)
        chain, peers = map(int, ranks[:, replica]), map(int, ranks[stage])
        return cls(int(stage), len(ranks), int(replica), ranks.shape[1], (*chain,), (*peers,))


def has_stages(mesh: MeshShape) -> bool:
    """Whether the network is divided into stages."""
    return mesh.size(STAGE) > 1


def micro_batches_of(options: BackendOptions) -> int:
    """Micro-batches of a step: those asked for, or four for each stage."""
    return options.micro_batches or _MICRO_BATCHES_PER_STAGE * options.mesh.size(STAGE)


def check_mesh(options: BackendOptions, backend: str) -> None:
    """InputError where a mesh with stages, or of a backend whose processes are its devices, cannot be had."""
    mesh, processes = options.mesh, options.processes
    if backend not in TRANSPORTS:
        if STAGE in mesh.names:
            raise InputError(
                f"mesh {mesh}: the axis {STAGE} is for --backend={' or '.join(TRANSPORTS)}, each of whose processes "
                f"takes a part of the network; --backend={backend} has no stages"
            )
        return
    if not has_stages(mesh):
        for key, value in (("stages", options.stages), ("micro_batches", options.micro_batches)):
            if value:
                raise InputError(
                    f"{key}={value} is for pipeline stages; give a mesh such as {STAGE}:2 with it, or leave it out"
                )
        return
    for name in mesh.names:
        if name not in (BATCH, STAGE):
            raise InputError(
                f"mesh {mesh}: --backend={backend} has the axes {BATCH} and {STAGE}; {name} is for --backend=dtensor, "
                "which has no stages"
            )
    if mesh.num_devices != processes.size:
        raise InputError(
            f"mesh {mesh} is for {mesh.num_devices} processes, there {_are(processes.size)}; start "
            f"{mesh.num_devices} (mpirun -np {mesh.num_devices}), or give another mesh"
        )
    _check_with_stages(options)


def _check_with_stages(options: BackendOptions) -> None:
    for key, neutral in (
        ("compression", "none"),
        ("local_steps", 1),
        ("zero_stage", 0),
        ("accumulate", 1),
        ("reduction", "flat"),
        ("bucket_mb", None),
    ):
        value = getattr(options, key)
        if value != neutral:
            instead = ", use more micro_batches" if key == "accumulate" else ""
            raise InputError(
                f"{key}={value} does not work with pipeline stages; leave it out{instead}"
            )
    count = micro_batches_of(options)
    if not 1 <= count <= MOST_MICRO_BATCHES:
        raise InputError(f"micro_batches={count}; give 1 to {MOST_MICRO_BATCHES}")


def _are(count: int) -> str:
    return f"are {count}" if count > 1 else "is one"


# --------------------------------------------------------------------------------------------------
# What a config asks of the backends, and refusals of what they do not do, before TensorFlow is loaded.


NOT_ON_A_MESH = (
    "does not work with --backend=dtensor, whose devices would add up parts of products in bfloat16; leave it at "
    "float32"
)
NO_NOISE_IN_PARTS = (
    "optimizer.gradient_noise does not work with zero_stage, where its numbers would depend on how many processes "
    "there are; leave out one of them"
)


def check_config_for(backend: str, settings: Settings, options: BackendOptions) -> None:
    """InputError where the config asks for what the backend does not do."""
    check_profile(settings, options, backend)
    check_zero(options, backend, settings.optimizer.gradient_noise)
    check_stages(settings, options, backend)
    check_offload(settings, options, backend)
    if backend == "asynchronous":
        check_asynchronous(settings, options)
    else:
        check_of_asynchronous(options, backend)
    if backend == "dtensor":
        check_dtensor(settings, options)


def check_offload(settings: Settings, options: BackendOptions, backend: str) -> None:
    """InputError where slots are to be on disk, and cannot be."""
    if options.offload == "none":
        return
    check_slots_on_disk(options, backend)
    if settings.jit_compile:
        raise InputError("jit_compile does not work with offload; leave out one of them")


def check_slots_on_disk(options: BackendOptions, backend: str) -> None:
    """InputError where processes cannot each have their slots on disk."""
    if options.offload == "none":
        return
    if backend not in ("single", *TRANSPORTS):
        raise InputError(
            f"offload={options.offload} is for --backend=single, horovod and mpi; with --backend={backend} leave it out"
        )
    if options.processes.size == 1:
        return
    if options.zero_stage:
        raise InputError(
            "offload does not work with zero_stage, which already has each process keep a part of the slots; leave out "
            "one of them"
        )
    if options.local_steps > 1:
        raise InputError(
            "offload does not work with local_steps, whose checkpoints bring the slots of all processes together in "
            "memory; leave out one of them"
        )


def check_dtensor(settings: Settings, options: BackendOptions) -> None:
    """InputError where the config asks for what --backend=dtensor does not do, with the nearest that it does."""
    check_offload(settings, options, "dtensor")
    for key, value, default in (
        ("compression", options.compression, "none"),
        ("reduction", options.reduction, "flat"),
        ("bucket_mb", options.bucket_mb, None),
        ("local_steps", options.local_steps, 1),
        ("accumulate", options.accumulate, 1),
        ("data.sharding", settings.data.sharding, "partition"),
    ):
        if value != default:
            raise InputError(
                f"{key}={value} is for --backend=horovod and mpi; with --backend=dtensor leave it at "
                f"{str(default).lower()}"
            )
    if settings.jit_compile:
        raise InputError("jit_compile does not work with --backend=dtensor; leave it out")
    if settings.precision != "float32":
        raise InputError(f"precision={settings.precision} {NOT_ON_A_MESH}")
    if settings.model.batch_normalization == "local":
        raise InputError(
            "model.batch_normalization=local does not work with --backend=dtensor, whose layers see the global batch; "
            "use synchronized"
        )
    if settings.optimizer.gradient_noise:
        raise InputError(
            "optimizer.gradient_noise does not work with --backend=dtensor, which would draw other numbers for weights "
            "that are divided; leave it out"
        )


def check_zero(options: BackendOptions, backend: str, gradient_noise: float = 0.0) -> None:
    """InputError where processes that divide the optimizer's slots are asked for what does not go with that."""
    if not options.zero_stage or backend not in ("horovod", "mpi"):
        return
    if options.zero_stage == 3:
        raise InputError(
            f"zero_stage=3 divides the weights too, which --backend={backend} keeps whole; use zero_stage=2, or "
            "--backend=dtensor"
        )
    if options.compression not in ("none", "fp16"):
        raise InputError(
            f"compression={options.compression} does not work with zero_stage, where each process receives a part of "
            "the summed gradients; use fp16 or none, or zero_stage=0"
        )
    for key, value, default in (
        ("reduction", options.reduction, "flat"),
        ("bucket_mb", options.bucket_mb, None),
        ("local_steps", options.local_steps, 1),
    ):
        if value != default:
            raise InputError(
                f"{key}={value} does not work with zero_stage on --backend={backend}; leave it at "
                f"{str(default).lower()}, or use zero_stage=0"
            )
    if gradient_noise:
        raise InputError(NO_NOISE_IN_PARTS)


def check_asynchronous(settings: Settings, options: BackendOptions) -> None:
    """InputError where the config asks for what --backend=asynchronous does not do, before anything starts."""
    check_options_of_asynchronous(options)
    if settings.data.sharding != "partition":
        raise InputError(
            f"data.sharding={settings.data.sharding} is for --backend=horovod and mpi; with --backend=asynchronous "
            "leave it at partition"
        )
    several = options.processes.size > 1
    for key, given in (
        ("jit_compile", settings.jit_compile),
        ("optimizer.gradient_noise", settings.optimizer.gradient_noise),
        ("optimizer.clip_norm", settings.optimizer.clip_norm and not options.averaging),
        ("optimizer.sam_rho", settings.optimizer.sam_rho),
        (
            "model.batch_normalization=synchronized",
            several and settings.model.batch_normalization == "synchronized",
        ),
    ):
        if given:
            raise InputError(f"{key} does not work with --backend=asynchronous; leave it out")


def check_stages(settings: Settings, options: BackendOptions, backend: str) -> None:
    """InputError where the config asks for stages that cannot be had, or for what does not work with them."""
    check_mesh(options, backend)
    if not has_stages(options.mesh):
        return
    for key, given in (
        ("jit_compile", settings.jit_compile),
        ("optimizer.gradient_noise", settings.optimizer.gradient_noise),
        ("optimizer.sam_rho", settings.optimizer.sam_rho),
        (
            "model.batch_normalization=synchronized",
            settings.model.batch_normalization == "synchronized",
        ),
    ):
        if given:
            raise InputError(f"{key} does not work with pipeline stages; leave it out")
    part = settings.global_batch_size // options.mesh.size(BATCH)
    if part < micro_batches_of(options):
        raise InputError(
            f"global_batch_size={settings.global_batch_size} gives each worker {part} examples, which cannot go "
            f"through the stages as micro_batches={micro_batches_of(options)}; use a larger batch or fewer "
            "micro_batches"
        )


def check_options_of_asynchronous(options: BackendOptions) -> None:
    """InputError for what --backend=asynchronous does not do, and for a quorum of more workers than there are."""
    keys = ["compression", "reduction", "bucket_mb", "accumulate", "zero_stage"]
    keys += (
        ["outer_learning_rate", "outer_momentum", "overlap_meetings"]
        if options.averaging
        else ["local_steps"]
    )
    for key in keys:
        value = getattr(options, key)
        if value != getattr(BackendOptions, key):
            raise InputError(
                f"{key}={value} is for --backend=horovod and mpi; leave it out with --backend=asynchronous"
            )
    for key, given in (
        ("quorum", options.quorum is not None),
        ("staleness_scaling", options.staleness_scaling != "none"),
    ):
        if given and options.averaging:
            raise InputError(
                f"{key} is for gradients that workers send to servers, and averaging has none; leave out one of them"
            )
    workers = options.processes.size
    if options.quorum and options.quorum > workers:
        raise InputError(
            f"quorum={options.quorum} is more than the workers, of which there are {workers}; give at most {workers}"
        )
    if options.quorum and options.staleness_scaling != "none":
        raise InputError(
            "staleness_scaling is for gradients of older weights, of which quorum takes none; leave out one of them"
        )


def check_of_asynchronous(options: BackendOptions, backend: str) -> None:
    """InputError for keys of --backend=asynchronous with another backend, which would not heed them."""
    for key, value, default in (
        ("quorum", options.quorum, None),
        ("averaging", options.averaging, False),
        ("staleness_scaling", options.staleness_scaling, "none"),
    ):
        if value != default:
            raise InputError(
                f"{key}={str(value).lower()} is for --backend=asynchronous; with --backend={backend} leave it out"
            )


def check_profile(settings: Settings, options: BackendOptions, backend: str) -> None:
    """InputError where the parts of steps are to be measured, and cannot be."""
    if not settings.profile:
        return
    for name, given in (
        ("--backend=dtensor", backend == "dtensor"),
        ("--backend=asynchronous", backend == "asynchronous"),
        ("accumulate", options.accumulate > 1),
        ("local_steps", options.local_steps > 1),
        ("bucket_mb", options.bucket_mb is not None),
        ("pipeline stages", has_stages(options.mesh)),
        ("jit_compile", settings.jit_compile),
    ):
        if given:
            raise InputError(f"profile=true does not work with {name} yet; leave out one of them")

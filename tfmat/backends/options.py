"""The options of a backend."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from tfmat.config import MeshShape, Parallelism, Settings
from tfmat.errors import InputError, nearest
from tfmat.launch.processes import Processes, find_processes

# --------------------------------------------------------------------------------------------------
# Meshes as data: `batch:4,model:2` are two named axes and eight devices. No TensorFlow in here.
#
# The rules by which a user divides weights over the axes, and one line for each that cannot be followed.


# The network is divided into pipeline stages over the axis of this name.
STAGE = "stage"
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
            f"use '{pattern}=replicated', or tfmat's unfolded convolution (--config.model.convolution=unfolded)"
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
# Options of the backends.


# With momentum and fewer steps between meetings the outer optimizer diverged: val_loss thirty times higher after four.
_FEWEST_STEPS_FOR_MOMENTUM = 16
# Up to so many, a short and persistent outer step ends nearest to exact sums; beyond, a whole and less persistent one.
# Measured with 16 and with 50 (docs/slow_networks.md).
_MOST_STEPS_FOR_LARGE_MOMENTUM = 25


@dataclasses.dataclass(frozen=True)
class BackendOptions(Parallelism):
    """The options of a backend: the keys of `Parallelism`, and where its steps run.

    Each backend takes what concerns it, and refuses the rest where it is not the default.

    Attributes:
      processes: this process among those of its run; by default what the launcher says.
      folder: one that all processes can see, by which those of several nodes find each other; slots on disk lie there
        where `offload_dir` is None.
      recompute: `model.recompute` of a config.
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
        """The options in a run's settings, and `others`."""
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


_MICRO_BATCHES_PER_STAGE = 4


def has_stages(mesh: MeshShape) -> bool:
    """Whether the network is divided into stages."""
    return mesh.size(STAGE) > 1


def micro_batches_of(options: BackendOptions) -> int:
    """Micro-batches of a step: those asked for, or four for each stage."""
    return options.micro_batches or _MICRO_BATCHES_PER_STAGE * options.mesh.size(STAGE)

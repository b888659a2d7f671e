"""Meshes as data: `batch:4,model:2` are two named axes and eight devices. No TensorFlow in here.

The rules by which a user divides weights over the axes, and one line for each that cannot be followed.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

from tfmat.errors import InputError, nearest

# Examples are divided over the axis of this name; dense layers, by default, over the other.
BATCH, MODEL = "batch", "model"


@dataclasses.dataclass(frozen=True)
class MeshShape:
    """Named axes and their numbers of devices.

    Attributes:
      axes: (name, devices) in order; neighbours on the last axis are neighbouring devices.
    """

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str) -> "MeshShape":
        """`batch:4,model:2` as a mesh; InputError where it is not one."""
        axes = tuple(_parse_axis(part.strip(), text) for part in text.split(","))
        names = [name for name, _ in axes]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"mesh '{text}' names the axis {name} twice; give each axis once")
        return cls(axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(name for name, _ in self.axes)

    @property
    def num_devices(self) -> int:
        """Devices of the whole mesh."""
        return math.prod(size for _, size in self.axes)

    def size(self, axis: str | None) -> int:
        """Devices along an axis; 1 where there is no such axis."""
        return dict(self.axes).get(axis or "", 1)

    def devices_per_process(self, num_processes: int) -> int:
        """Devices of each process; InputError where they cannot be shared out evenly."""
        if self.num_devices % num_processes:
            raise InputError(
                f"mesh {self} has {self.num_devices} devices for {num_processes} processes, which get unequal parts; "
                f"use a mesh of a multiple of {num_processes} devices, or another number of processes"
            )
        return self.num_devices // num_processes

    def check_devices(self, available: int, kind: str, num_processes: int = 1) -> None:
        """InputError where a process's part of the mesh is larger than the devices that it has."""
        wanted = self.devices_per_process(num_processes)
        if wanted <= available:
            return
        of = f" for each of {num_processes} processes" if num_processes > 1 else ""
        raise InputError(
            f"mesh {self} needs {wanted} devices{of}, there are {available} {kind} devices; "
            f"the nearest that fits is {self.shrunk(available * num_processes)}"
        )

    def shrunk(self, num_devices: int) -> "MeshShape":
        """The largest mesh of these axes on at most `num_devices`: the largest axis gives way first."""
        sizes = dict(self.axes)
        while math.prod(sizes.values()) > max(1, num_devices):
            largest = max(sizes, key=lambda name: sizes[name])
            sizes[largest] -= 1
        return MeshShape(tuple(sizes.items()))

    def __str__(self) -> str:
        return ",".join(f"{name}:{size}" for name, size in self.axes)


ONE_DEVICE = MeshShape(((BATCH, 1),))


def _parse_axis(part: str, text: str) -> tuple[str, int]:
    name, _, size = part.partition(":")
    name, size = name.strip(), size.strip()
    if not (name.isidentifier() and size.isdecimal() and int(size) > 0):
        raise InputError(
            f"mesh '{text}': '{part}' is no axis; write NAME:DEVICES, such as {BATCH}:4,{MODEL}:2"
        )
    return name, int(size)


# For each dimension the name of an axis; None where it is whole.
Spec = tuple[str | None, ...]
Rules = tuple[tuple[str, str], ...]


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


def parse_rules(text: str) -> Rules:
    """`REGEX=LAYOUT;REGEX=LAYOUT`, as in the config, as rules; InputError where it is not that."""
    rules = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pattern, separator, layout = part.rpartition("=")
        if not (pattern and separator and layout):
            raise InputError(
                f"layouts: '{part}' is no rule; write REGEX=LAYOUT, such as hidden/kernel=-,{MODEL}"
            )
        rules.append((pattern.strip(), layout.strip()))
    return tuple(rules)


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

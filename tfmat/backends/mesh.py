"""Meshes as data: `batch:4,model:2` are two named axes and eight devices. No TensorFlow in here."""

import dataclasses
import math

from tfmat.errors import InputError

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

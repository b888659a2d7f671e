"""Arrays and tensors on a mesh: what goes to which device, and what comes back."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor
from tensorflow.python.ops import gen_stateless_random_ops_v2

from tfmat.backends.batches import share_or_copy
from tfmat.backends.layouts import device_parts
from tfmat.backends.mesh import MeshShape, Spec

# Of what a device holds: the part -> a hash.
Digests = dict[str, str]


class MeshTensors:
    """Packs, gathers and changes layouts.

    Args:
      mesh: DTensor's.
      shape: of it.
      rank, num_processes: this process among those that share its devices evenly, in their order.
    """

    def __init__(self, mesh: Any, shape: MeshShape, rank: int = 0, num_processes: int = 1):
        self._mesh, self._shape, self._num_processes = mesh, shape, num_processes
        self._num_local = shape.devices_per_process(num_processes)
        self._local = slice(rank * self._num_local, (rank + 1) * self._num_local)

    def layout(self, spec: Spec) -> Any:
        """A spec as DTensor's layout."""
        return dtensor.Layout([axis or dtensor.UNSHARDED for axis in spec], self._mesh)

    def relayout(self, tensor: Any, spec: Spec) -> Any:
        """The tensor in another layout."""
        return dtensor.relayout(tensor, self.layout(spec))

    def pack(self, array: np.ndarray, spec: Spec) -> Any:
        """A tensor on the mesh; every process gives the whole array."""
        # A copy for each device: tf.constant may keep an array's own memory, which two devices must not write to.
        copies = [
            tf.constant(np.array(array[part])) for part in self._local_parts(array.shape, spec)
        ]
        return dtensor.pack(copies, self.layout(spec))

    def replicate(self, data: Any) -> Any:
        """The array whole on every device; virtual devices of a CPU share one copy."""
        if tf.is_tensor(data) and dtensor.is_dtensor(data):
            return data
        tensor = share_or_copy(data)
        layout = dtensor.Layout.replicated(self._mesh, rank=len(tensor.shape))
        return dtensor.pack([tensor] * self._num_local, layout)

    def whole(self, tensor: Any, spec: Spec) -> np.ndarray:
        """The whole array of a tensor of that layout; every process calls it, and has it then."""
        if not any(spec):
            return host(tensor)
        if self._num_processes > 1:  # some of its parts are with others
            return host(self.relayout(tensor, (None,) * len(spec)))
        self._wait()
        array = np.empty(tensor.shape, tensor.dtype.as_numpy_dtype)
        parts = self._local_parts(array.shape, spec)
        for shard, part in zip(dtensor.unpack(tensor), parts, strict=True):
            array[part] = shard.numpy()
        return array

    def bytes_here(self, variables: list[Any]) -> list[int]:
        """The bytes that each device of this process holds of all the variables."""
        shards = map(_shards, variables)
        return [sum(part.nbytes for part in parts) for parts in zip(*shards, strict=True)]

    def digests_here(self, variables: Iterable[tuple[str, Any, Spec]]) -> list[Digests]:
        """A hash of every part of the (name, variable, its layout) that each device of this process holds."""
        self._wait()
        found: list[Digests] = [{} for _ in range(self._num_local)]
        for name, variable, spec in variables:
            parts = self._local_parts(variable.shape, spec)
            for device, part, shard in zip(found, parts, _shards(variable), strict=True):
                array = np.ascontiguousarray(shard)
                device[f"{name} {part}"] = hashlib.blake2b(array.data, digest_size=16).hexdigest()
        return found

    def _wait(self) -> None:
        """Returns when every device of the mesh has done what it was given before; every process calls it.

        `dtensor.unpack` holds Python's lock while it waits for a tensor. A device's thread needs that lock to free the
        arrays of a step that it has done, so the two would wait for each other forever.
        """
        ones = np.ones([self._shape.size(name) for name in self._shape.names], np.float32)
        host(tf.reduce_sum(self.pack(ones, self._shape.names)))

    def _local_parts(self, shape: Any, spec: Spec) -> list[tuple[slice, ...]]:
        return device_parts(shape, spec, self._shape)[self._local]


# Operations that draw Keras's random numbers.
_DRAWS = (
    "stateless_random_uniform_v2",
    "stateless_random_uniform_int_v2",
    "stateless_random_uniform_full_int_v2",
    "stateless_random_normal_v2",
    "stateless_truncated_normal_v2",
)


@contextlib.contextmanager
def drawn_whole(relayout: Callable[[Any, Spec], Any]) -> Iterator[None]:
    """Within it every device draws random numbers for the whole batch, and takes its part of them.

    DTensor gives all draws of a step the seeds of the first one. Where that is divided over more axes than another,
    devices that hold the same part of the other would draw other numbers for it.
    """
    kept = {name: getattr(gen_stateless_random_ops_v2, name) for name in _DRAWS}

    def whole(draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*arguments: Any, **options: Any) -> Any:
            numbers = draw(*arguments, **options)
            return relayout(numbers, (None,) * len(numbers.shape))

        return drawn

    for name, draw in kept.items():
        setattr(gen_stateless_random_ops_v2, name, whole(draw))
    try:
        yield
    finally:
        for name, draw in kept.items():
            setattr(gen_stateless_random_ops_v2, name, draw)


def differing_devices(devices: Sequence[Digests]) -> list[int]:
    """The devices that hold a part with other numbers than the first device that holds it."""
    first: Digests = {}
    return [
        number
        for number, device in enumerate(devices)
        if any(first.setdefault(part, digest) != digest for part, digest in device.items())
    ]


def _shards(variable: Any) -> list[np.ndarray]:
    """What each device of this process holds of a variable, read from its own one.

    `unpack(variable.read_value())` of a variable that is whole on every device is the first device's, for all of them.
    """
    return [
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype).numpy()
        for handle in dtensor.unpack(variable.handle)
    ]


def host(tensor: Any) -> np.ndarray:
    """A tensor that is whole on every device; other threads run while the devices still compute it."""
    return tensor.numpy()

"""One worker's copy of what training changes, and what the worker keeps for itself: as tensors, and in checkpoints."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Arrays
from tfmat.backends.collectives import Collectives
from tfmat.backends.exchange import Kept
from tfmat.backends.offload import SlotOnDisk
from tfmat.backends.saved_arrays import SavedArray, SavedArrays
from tfmat.backends.state import State
from tfmat.backends.zero import Division
from tfmat.errors import InputError
from tfmat.networks.factory import is_synchronized

# Before the names of what workers keep for themselves; other backends do not look at these.
_PREFIX = "exchange/"


class Replica:
    """The state in the model's own variables, and what is kept between exchanges in variables beside them.

    What differs between workers is in a checkpoint once for each, stacked [workers, ...]. The same number of workers
    take their own again; another number share it: each takes an equal part of the sum of what has not been sent yet,
    and the mean of the optimizer's slots.

    Args:
      model, optimizer: built.
      collectives: to the other workers.
      kept: between exchanges.
      own_slots: whether the workers' slots differ, as they do where each takes steps by itself.
      division: of the weights over the workers, where each holds the slots of its part alone. A checkpoint has them
        whole, as those of any other number of workers.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        collectives: Collectives,
        kept: Sequence[Kept] = (),
        own_slots: bool = False,
        division: Division | None = None,
    ):
        self.variables = State.variables_of(model, optimizer)
        self.kept = [tf.Variable(each.initial, trainable=False) for each in kept]
        self._kept, self._collectives = kept, collectives
        self._local_statistics = _local_statistics(model)
        functions_of_step = (optimizer.iterations, optimizer._learning_rate)
        self._own_slots = {
            f"slots/{i}": variable.value
            for i, variable in enumerate(optimizer.variables if own_slots else [])
            if not any(variable is each for each in functions_of_step)
        }
        self._division = division
        # Name of each slot that is divided -> the weight that it belongs to.
        self._divided = {
            f"slots/{i}": owner
            for i, owner in enumerate(division.owners(optimizer) if division else [])
            if owner is not None
        }

    def common(self) -> Arrays:
        """What must be the same on every worker; statistics that each keeps for itself are averaged first."""
        return {name: variable.numpy() for name, variable in self._common()}

    def _common(self) -> Iterator[tuple[str, Any]]:
        """The variables behind `common`, by name."""
        workers = self._collectives.size
        if workers > 1 and self._local_statistics:
            self._collectives.begin_graph("statistics")
            for variable in self._local_statistics:
                (total,) = self._collectives.reduce([tf.convert_to_tensor(variable)])
                variable.assign(total / workers)
        for name, variable in [*self.variables.named().items(), *self._named_kept(common=True)]:
            if name not in self._own_slots and name not in self._divided:
                yield name, variable

    def digest(self) -> str:
        """A hash of `common`, of which one array is in memory at a time."""
        digest = hashlib.blake2b(digest_size=16)
        for _, variable in self._common():
            on_disk = isinstance(variable, SlotOnDisk)
            for array in variable.blocks() if on_disk else [variable.numpy()]:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def read(self) -> Arrays:
        """See Backend.read; every worker calls it. Slots that are divided are whole on rank 0 alone."""
        return self._with_own(self.common())

    def read_for_file(self) -> dict[str, Any]:
        """See Backend.read_for_file: slots on disk come into memory one at a time."""
        found = {
            name: variable.saved() if isinstance(variable, SlotOnDisk) else variable.numpy()
            for name, variable in self._common()
        }
        return self._with_own(found)

    def _with_own(self, arrays: dict[str, Any]) -> dict[str, Any]:
        own = {_PREFIX + name: variable.numpy() for name, variable in self._own_slots.items()}
        own |= {name: variable.numpy() for name, variable in self._named_kept(common=False)}
        if own:
            workers = self._collectives.gather(own)
            arrays |= {name: np.stack([each[name] for each in workers]) for name in own}
            for name in self._own_slots:  # for a run that goes on otherwise
                arrays[name] = _mean(arrays[_PREFIX + name])
        return arrays | self._whole_slots()

    def _whole_slots(self) -> Arrays:
        """Divided slots: whole on rank 0, and elsewhere this rank's part, which takes less memory."""
        variables, arrays = self.variables.named(), {}
        self._collectives.begin_graph("slots")
        for name, weight in self._divided.items():
            assert self._division is not None
            part = tf.convert_to_tensor(variables[name])
            with self._collectives.losses_told():
                (rows,) = self._collectives.collect([part])  # one slot at a time
            alone = self._collectives.rank == 0
            arrays[name] = (self._division.whole(rows, weight) if alone else part).numpy()
        return arrays

    def _own_part(self, name: str, array: np.ndarray | SavedArray) -> np.ndarray | SavedArray:
        """This worker's part of a slot, which is whole or, as `read` has it on other ranks, that part already."""
        division, weight = self._division, self._divided[name]
        assert division is not None
        own, shape = tuple(self.variables.named()[name].shape), division.shapes[weight]
        if self._collectives.rank and array.shape == own:
            return array
        if array.shape != shape:
            raise InputError(
                f"the saved state does not fit this model: {name} belongs to a weight of shape {list(shape)}, saved "
                f"is shape {list(array.shape)}; use the config that the run was started with"
            )
        return SavedArray(
            own, array.dtype, lambda: np.asarray(division.part(np.asarray(array), weight))
        )

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write; what is kept begins anew where the arrays say nothing of it."""
        for each in self._kept:
            self._check_saved(each, arrays)
        parts = {n: self._own_part(n, arrays[n]) for n in self._divided if n in arrays}
        arrays, variables = {**arrays, **parts}, self.variables.named()
        self.variables.assign(arrays, lambda name, array: variables[name].assign(array))
        for variable, each in zip(self.kept, self._kept, strict=True):
            variable.assign(self._saved(each, arrays))
        for name, variable in self._own_slots.items():
            stacked = arrays.get(_PREFIX + name)
            if stacked is not None and stacked.shape[0] == self._collectives.size:
                variable.assign(np.asarray(stacked)[self._collectives.rank])

    def synchronize(self) -> None:
        """Rank 0's state on every rank, but for what each keeps for itself."""
        common = {**self.variables.named(), **dict(self._named_kept(common=True))}
        # Each has its own slots from a checkpoint, or all have the optimizer's first ones.
        own = {*self._own_slots, *self._divided}
        common = {name: variable for name, variable in common.items() if name not in own}
        self._collectives.broadcast_variables(common.values())

    def _named_kept(self, common: bool) -> list[tuple[str, Any]]:
        return [
            (_PREFIX + each.name, variable)
            for each, variable in zip(self._kept, self.kept, strict=True)
            if each.common == common
        ]

    def _check_saved(self, kept: Kept, arrays: SavedArrays) -> None:
        saved = arrays.get(_PREFIX + kept.name)
        if saved is None:
            return
        shape = saved.shape if kept.common else saved.shape[1:]
        if shape != kept.initial.shape:
            raise InputError(
                f"the saved state does not fit: {_PREFIX}{kept.name} is of shape {list(shape)}, expected is "
                f"{list(kept.initial.shape)}; use the config that the run was started with"
            )

    def _saved(self, kept: Kept, arrays: SavedArrays) -> np.ndarray:
        if _PREFIX + kept.name not in arrays:
            return kept.initial
        saved = np.asarray(arrays[_PREFIX + kept.name])
        if kept.common:
            return saved
        workers = self._collectives.size
        if len(saved) == workers:
            mine: np.ndarray = saved[self._collectives.rank]
            return mine
        total: np.ndarray = saved.sum(axis=0)
        return total / workers


def tensors_of(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The present values, in a graph or outside."""
    return [tf.convert_to_tensor(variable) for variable in variables]


def assign_all(variables: Sequence[Any], values: Sequence[tf.Tensor]) -> list[Any]:
    """The operations of a graph by which the variables get these values."""
    # Every write after every read: see contracts on DTensor, which runs the same step.
    return [
        variable.assign(value, read_value=False)
        for variable, value in zip(variables, values, strict=True)
    ]


def put(variable: tf.Variable, array: np.ndarray) -> None:
    """Gives a variable's memory other contents, of the variable's shape or of none."""
    value = tf.cast(tf.convert_to_tensor(array), variable.dtype)
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value, validate_shape=False)


def place_in_state(name: str) -> tuple[int, int]:
    """A key that sorts the names of a state into its order."""
    part, place = name.split("/")
    return State._fields.index(part), int(place)


def _mean(stacked: np.ndarray) -> np.ndarray:
    mean: np.ndarray = stacked.mean(axis=0, dtype=np.float64).astype(stacked.dtype)
    return mean


def _local_statistics(model: keras.Model) -> list[Any]:
    """State that each worker changes by what it alone sees: moving statistics, where not synchronised."""
    synchronized = {
        id(variable)
        for layer in model._flatten_layers()
        if is_synchronized(layer)
        for variable in layer.non_trainable_variables
    }
    return [
        variable.value
        for variable in model.non_trainable_variables
        if id(variable) not in synchronized and variable.value.dtype.is_floating
    ]

"""Slots of an optimizer that lie on disk."""

import concurrent.futures
import functools
import itertools
import math
import mmap
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state

from tfmat.backends.base import Backend, SavedArray
from tfmat.backends.step import Step
from tfmat.errors import InputError
from tfmat.files import make_folder, write_error
from tfmat.optimizers import ELEMENTWISE, copy_of, original_class, slot_owners

# --------------------------------------------------------------------------------------------------
# Tensors in a temporary file that is mapped into memory, of which parts come and go.


# Numbers in a block: its slots, gradient, weights and what is computed from them take some 40 MB together.
BLOCK = 2**20
# Slots of no more numbers are copied in memory.
_SMALL = 2**14


class MappedFile:
    """Zeros in a temporary file that has no name, and goes with the process however that ends.

    The disk has its bytes from now on; InputError where that is too small.
    """

    def __init__(self, folder: pathlib.Path, size: int):
        self.folder = make_folder(folder)
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise write_error(f"{size / 2**20:,.0f} MiB of slots into {folder}", error) from error

    def array(self, start: int, count: int, dtype: Any) -> np.ndarray:
        """An array [count] over the file's bytes from `start`."""
        return np.frombuffer(self._map, dtype, count, start)

    def prefetch(self, start: int, stop: int) -> None:
        """Has the system read these bytes, and returns at once."""
        start -= start % mmap.PAGESIZE
        if stop > start:
            self._map.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def release(self, start: int, stop: int) -> None:
        """Takes these bytes, without the pages at the ends, out of the process's memory; the file keeps them."""
        start += -start % mmap.PAGESIZE
        stop -= stop % mmap.PAGESIZE
        if stop > start:
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)


class SlotOnDisk:
    """A slot as training and checkpoints see a TensorFlow variable; its value begins at byte `start` of the file.

    Attributes:
      flat: the numbers [count], mapped.
    """

    def __init__(self, variable: keras.Variable, file: MappedFile, start: int):
        self.name, self.shape = variable.path, tf.TensorShape(variable.shape)
        self.dtype = tf.as_dtype(variable.dtype)
        self._file, self._start = file, start
        self.flat = file.array(start, math.prod(variable.shape), self.dtype.as_numpy_dtype)

    def prefetch(self, start: int, stop: int) -> None:
        """Numbers that will be needed soon."""
        self._file.prefetch(*self._bytes(start, stop))

    def release(self, start: int, stop: int) -> None:
        """Numbers that will not."""
        self._file.release(*self._bytes(start, stop))

    def numpy(self) -> np.ndarray:
        """A copy of the values: of a large slot in a file of its own, so that it takes no memory."""
        if len(self.flat) <= _SMALL:
            return self.whole()
        file = MappedFile(self._file.folder, self.flat.nbytes)
        copy = file.array(0, len(self.flat), self.flat.dtype)
        self._copy(self.flat, copy)
        file.release(0, copy.nbytes)
        return copy.reshape(tuple(self.shape))

    def whole(self) -> np.ndarray:
        """A copy of the values in memory."""
        copy = np.empty(self.flat.shape, self.flat.dtype)
        self._copy(self.flat, copy)
        return copy.reshape(tuple(self.shape))

    def saved(self) -> SavedArray:
        """The values as they are when `np.asarray` asks for them."""
        return SavedArray(tuple(self.shape), self.flat.dtype, self.whole)

    def blocks(self) -> Iterator[np.ndarray]:
        """The values [numbers], a block at a time; each leaves the process's memory when the next one is asked for."""
        for start in range(0, len(self.flat), BLOCK):
            stop = min(start + BLOCK, len(self.flat))
            yield self.flat[start:stop]
            self.release(start, stop)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.whole(), dtype)

    def assign(self, value: Any) -> None:
        """Sets the values."""
        self._copy(np.asarray(value).reshape(-1), self.flat)

    def _copy(self, source: np.ndarray, target: np.ndarray) -> None:
        for start in range(0, len(source), BLOCK):
            stop = min(start + BLOCK, len(source))
            target[start:stop] = source[start:stop]
            self.release(start, stop)

    def _bytes(self, start: int, stop: int) -> tuple[int, int]:
        size = self.dtype.size
        return self._start + start * size, self._start + stop * size


# --------------------------------------------------------------------------------------------------
# Optimizer slots in a mapped file: a step brings them into memory block by block, for networks beyond it.
#
# Rajbhandari et al. 2021, ZeRO-Infinity, arXiv:2104.07857, moves optimizer state between memory and disk likewise.


_OFFLOAD = "offload=slots"


class OptimizerOnDisk:
    """The optimizer's step: weight by weight, the last one first, whose gradient is there first.

    The functional optimizer is built here, without memory for its slots, whose file is in `folder`. InputError where it
    has none, or what it does cannot be done weight by weight. `note` is for people: bytes and folder.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        weights: Sequence[keras.Variable],
        folder: pathlib.Path,
    ):
        _check(optimizer, weights)
        self._optimizer, self._weights = optimizer, list(weights)
        _build_without_memory(optimizer, self._weights)
        owners = slot_owners(optimizer, [weight.shape for weight in weights], same_shape=False)
        self._in_memory = [i for i, owner in enumerate(owners) if owner is None]
        self._slots = self._make_slots(owners, folder)
        self._make_blocks()
        threads = tf.config.threading
        # Where TensorFlow runs each operation on one thread, several blocks go side by side.
        alone = threads.get_intra_op_parallelism_threads() == 1
        workers = threads.get_inter_op_parallelism_threads() or 1 if alone else 1
        self._pool = concurrent.futures.ThreadPoolExecutor(workers)

    def _make_slots(
        self, owners: Sequence[int | None], folder: pathlib.Path
    ) -> list[list[SlotOnDisk]]:
        """The slots of each weight, which become the values of the optimizer's variables."""
        variables = self._optimizer.variables
        starts, size = [], 0
        for variable, owner in zip(variables, owners, strict=True):
            starts.append(size)
            if owner is not None:
                size += math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
                size += -size % mmap.PAGESIZE
        if not size:
            raise InputError(
                f"{_OFFLOAD} moves nothing: {type(self._optimizer).__name__} has no slots with these settings; leave "
                "it out"
            )
        file = MappedFile(folder, size)
        self.note = (
            f"offload=slots: {size / 2**20:,.0f} MiB of the optimizer's slots are in a temporary file in "
            f"{folder.resolve()}"
        )
        found: list[list[SlotOnDisk]] = [[] for _ in self._weights]
        for variable, owner, start in zip(variables, owners, starts, strict=True):
            if owner is None:
                continue
            slot = SlotOnDisk(variable, file, start)
            # Without an initializer it was made with a value, as slots of one number for each weight are.
            if not isinstance(variable._initializer, keras.initializers.Zeros):
                slot.assign(variable.value)
            variable._value = slot
            found[owner].append(slot)
        return found

    def _make_blocks(self) -> None:
        """An optimizer of blocks: each is a variable to it, and one of each length of a weight is enough."""
        self._cuts: list[list[tuple[int, int]]] = []
        self._proxies: list[dict[int, keras.Variable]] = []
        whole = original_class(self._optimizer) not in ELEMENTWISE
        for weight in self._weights:
            size = math.prod(weight.shape)
            count = 1 if whole else -(-size // BLOCK)
            cuts = list(itertools.pairwise(size * i // count for i in range(count + 1)))
            self._cuts.append(cuts)
            lengths = {stop - start for start, stop in cuts}
            shapes = {n: tuple(weight.shape) if whole else (n,) for n in lengths}
            self._proxies.append({n: _like(weight, shape) for n, shape in shapes.items()})
        optimizer = copy_of(self._optimizer)
        # All of this is done before, with whole gradients.
        optimizer.clipnorm = optimizer.clipvalue = optimizer.global_clipnorm = None
        optimizer.loss_scale_factor = optimizer.gradient_noise = None
        optimizer._learning_rate = lambda: self._rate
        proxies = [proxy for found in self._proxies for proxy in found.values()]
        _build_without_memory(optimizer, proxies)
        self._of_blocks = optimizer
        slots: dict[int | None, list[keras.Variable]] = {}
        for variable, owner in zip(
            optimizer.variables,
            slot_owners(optimizer, [proxy.shape for proxy in proxies], same_shape=False),
            strict=True,
        ):
            if variable is not optimizer.iterations and variable.name != "learning_rate":
                slots.setdefault(owner, []).append(variable)
        self._shared = slots.pop(None, [])
        self._slots_of = {id(proxy): slots.get(i, []) for i, proxy in enumerate(proxies)}

    def rest(self, slots: Sequence[Any]) -> list[Any]:
        """The slots that are in memory, among all."""
        return [slots[i] for i in self._in_memory]

    def apply(
        self, slots: list[Any], gradients: list[Any], weights: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Does as keras.optimizers.Optimizer.stateless_apply, with `slots` those in memory; changes those on disk."""
        optimizer = self._optimizer
        with keras.StatelessScope(zip(self.rest(optimizer.variables), slots, strict=True)):
            if optimizer.loss_scale_factor is not None:
                gradients = [gradient / optimizer.loss_scale_factor for gradient in gradients]
            gradients = optimizer._clip_gradients(gradients)
            rate = tf.convert_to_tensor(optimizer.learning_rate)
        iterations, *others = slots
        has_rate = isinstance(optimizer._learning_rate, keras.Variable)
        shared = others[1:] if has_rate else others
        updated, new_shared = list(weights), list(shared)
        before: list[Any] = []
        for i in reversed(range(len(weights))):
            with tf.control_dependencies(before):
                updated[i], *new_shared = tf.py_function(
                    functools.partial(self._update, i),
                    [iterations, rate, gradients[i], weights[i], *shared],
                    [weights[i].dtype, *(each.dtype for each in shared)],
                )
            before = [updated[i]]
            updated[i].set_shape(weights[i].shape)
            if self._weights[i].constraint is not None:
                updated[i] = self._weights[i].constraint(updated[i])
        for new, old in zip(new_shared, shared, strict=True):
            new.set_shape(old.shape)
        return updated, [iterations + 1, *others[: len(others) - len(shared)], *new_shared]

    def _update(self, i: int, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """The new value of weight i, and of what all weights share."""
        iterations, self._rate, gradient, weight, *shared = inputs
        cuts = self._cuts[i]
        # After the first weight comes the last one, of the next step.
        of_next = self._cuts[i - 1][0], self._slots[i - 1]
        then = [(cut, self._slots[i]) for cut in cuts[1:]] + [of_next]
        gradient, flat = tf.reshape(gradient, [-1]), tf.reshape(weight, [-1])

        def update(cut: tuple[int, int], coming: Any) -> list[tf.Tensor]:
            for slot in coming[1]:
                slot.prefetch(*coming[0])
            values = gradient[slice(*cut)], flat[slice(*cut)]
            return self._update_block(i, cut, iterations, *values, shared)

        blocks = list(self._pool.map(update, cuts, then))
        new = [block[0] for block in blocks]
        whole = new[0] if len(new) == 1 else tf.concat(new, 0)
        return [tf.reshape(whole, weight.shape), *blocks[-1][1:]]

    def _update_block(
        self,
        i: int,
        cut: tuple[int, int],
        iterations: tf.Tensor,
        gradient: tf.Tensor,
        weight: tf.Tensor,
        shared: list[tf.Tensor],
    ) -> list[tf.Tensor]:
        start, stop = cut
        proxy = self._proxies[i][stop - start]
        slots = list(zip(self._slots_of[id(proxy)], self._slots[i], strict=True))
        state = [
            (self._of_blocks._iterations, iterations),
            (proxy, tf.reshape(weight, proxy.shape)),
            *zip(self._shared, shared, strict=True),
            # A copy: what is mapped changes below.
            *((v, tf.constant(_part(slot, cut).reshape(v.shape).copy())) for v, slot in slots),
        ]
        with keras.StatelessScope(state) as scope:
            self._of_blocks._backend_apply_gradients([tf.reshape(gradient, proxy.shape)], [proxy])
        for variable, slot in slots:
            value = scope.get_current_value(variable)
            _part(slot, cut)[...] = value.numpy().reshape(-1)
            slot.release(start, stop)
        weight = tf.reshape(scope.get_current_value(proxy), [-1])
        return [weight, *(scope.get_current_value(variable) for variable in self._shared)]


def add_to(step: Step, backend: Backend) -> None:
    """Has the optimizer's slots on disk."""
    folder = pathlib.Path(backend.options.offload_dir or backend.folder)
    on_disk = OptimizerOnDisk(step.optimizer, step.model.trainable_variables, folder)
    step.apply, step.note, step.slots_in_memory = on_disk.apply, on_disk.note, on_disk.rest


def _part(slot: SlotOnDisk, cut: tuple[int, int]) -> np.ndarray:
    """The slot's numbers of a block, or all of those that have not the weight's shape."""
    return slot.flat[slice(*cut)] if len(slot.flat) >= cut[1] else slot.flat


def _check(optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]) -> None:
    if optimizer.use_ema:
        raise InputError(
            f"{_OFFLOAD} does not work with use_ema, whose averages are of all weights; leave out one of them"
        )
    if any(getattr(weight, "overwrite_with_gradient", False) for weight in weights):
        raise InputError(
            f"{_OFFLOAD} does not work with layers quantized to float8; leave out one of them"
        )


def _without_memory(make: Callable[..., keras.Variable]) -> Callable[..., keras.Variable]:
    """A function that makes Keras variables without values, which stay so."""

    @functools.wraps(make)
    def variable(*arguments: Any, **options: Any) -> keras.Variable:
        with keras.StatelessScope(initialize_variables=False):
            made = make(*arguments, **options)
        # Or the end of the next scope would give it one.
        global_state.get_global_attribute("uninitialized_variables").pop()
        return made

    return variable


def _build_without_memory(
    optimizer: keras.optimizers.Optimizer, weights: list[keras.Variable]
) -> None:
    optimizer.add_variable_from_reference = _without_memory(optimizer.add_variable_from_reference)
    try:
        optimizer.build(weights)
    finally:
        del optimizer.add_variable_from_reference


def _like(weight: keras.Variable, shape: tuple[int, ...]) -> keras.Variable:
    """A variable without a value that an optimizer takes for the weight, or for a part of it."""
    made = _without_memory(keras.Variable)(
        "zeros", shape=shape, dtype=weight.dtype, name=weight.name
    )
    made._path = weight.path
    return made

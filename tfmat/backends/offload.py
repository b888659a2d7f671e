"""Optimizer slots in a mapped file: a step brings them into memory block by block, for networks beyond it.

Rajbhandari et al. 2021, ZeRO-Infinity, arXiv:2104.07857, moves optimizer state between memory and disk likewise.
"""

import concurrent.futures
import functools
import itertools
import math
import mmap
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state

from tfmat.backends.mapped_slots import BLOCK, MappedFile, SlotOnDisk
from tfmat.backends.options import BackendOptions
from tfmat.backends.shards import owners_of_slots
from tfmat.errors import InputError
from tfmat.optimizers.functional import copy_of

# The steps of these look at each number by itself; those of all others are computed for whole tensors.
_ELEMENTWISE = frozenset(
    ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion")
)
_OFFLOAD = "offload=slots"


class OptimizerOnDisk:
    """The optimizer as Step calls it: weight by weight, the last one first, whose gradient is there first.

    Args:
      optimizer: functional, not built; it is built here, without memory for its slots.
      weights: the model's trainable variables.
      folder: for the file of slots.

    Attributes:
      note: for people: bytes and folder.
      sam_rho: of the optimizer.

    Raises:
      InputError: the optimizer has no slots, or what it does cannot be done weight by weight.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        weights: Sequence[keras.Variable],
        folder: pathlib.Path,
    ):
        _check(optimizer, weights)
        self._optimizer, self._weights = optimizer, list(weights)
        self.sam_rho = optimizer.sam_rho
        _build_without_memory(optimizer, self._weights)
        owners = owners_of_slots(optimizer, len(weights))
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
            # Without an initializer it was made with a value, as those of one number for each weight are.
            if not isinstance(variable._initializer, keras.initializers.Zeros):
                slot.assign(variable.value)
            variable._value = slot
            found[owner].append(slot)
        return found

    def _make_blocks(self) -> None:
        """An optimizer of blocks: each is a variable to it, and one of each length of a weight is enough."""
        self._cuts: list[list[tuple[int, int]]] = []
        self._proxies: list[dict[int, keras.Variable]] = []
        whole = type(self._optimizer).__name__ not in _ELEMENTWISE
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
        variables = [v for v in optimizer.variables if v is not optimizer.iterations]
        slots: dict[int | None, list[keras.Variable]] = {}
        for variable, owner in zip(
            optimizer.variables, owners_of_slots(optimizer, len(proxies)), strict=True
        ):
            if any(variable is each for each in variables) and variable.name != "learning_rate":
                slots.setdefault(owner, []).append(variable)
        self._shared = slots.pop(None, [])
        self._slots_of = {id(proxy): slots.get(i, []) for i, proxy in enumerate(proxies)}

    def rest(self, slots: Sequence[Any]) -> list[Any]:
        """The slots that are in memory, among all."""
        return [slots[i] for i in self._in_memory]

    def scale_loss(self, loss: Any) -> Any:
        """See keras.optimizers.Optimizer.scale_loss."""
        return self._optimizer.scale_loss(loss)

    def stateless_apply(
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
        of_next = (
            self._cuts[i - 1][0],
            self._slots[i - 1],
        )  # of the last weight after the first: the next step's
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


def optimizer_on_disk(
    optimizer: keras.optimizers.Optimizer,
    weights: Sequence[keras.Variable],
    options: BackendOptions,
) -> OptimizerOnDisk | None:
    """The optimizer, built, with its slots on disk where `offload` asks for that; else None, and nothing is built."""
    if options.offload == "none":
        return None
    return OptimizerOnDisk(optimizer, weights, pathlib.Path(options.offload_dir or options.folder))


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

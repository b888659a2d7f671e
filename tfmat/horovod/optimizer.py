"""DistributedOptimizer (a Keras 3 optimizer with gradients reduced over ranks), and Horovod's own operations."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import horovod.tensorflow as horovod
import keras
import tensorflow as tf
from horovod.tensorflow.mpi_ops import global_process_set

from tfmat.backends.exchange import reduce_flat, without_repeated_rows
from tfmat.backends.transports import assign_broadcast
from tfmat.errors import InputError
from tfmat.launch.processes import check_horovod_sees, find_processes, prepare_horovod

# --------------------------------------------------------------------------------------------------
# Horovod's own operations, on whatever Keras 3 holds: variables, tensors, arrays, numbers.


def init(comm: Any = None, process_sets: Sequence[Any] | str | None = None) -> None:
    """Starts Horovod, as `horovod.init`; first sets what measures best where the environment does not say otherwise.

    Args:
      comm: ranks or MPI communicator of this job; None for all that the launcher started.
      process_sets: Horovod's process sets to make at once, or "dynamic".

    Raises:
      InputError: Horovod sees other processes than the launcher started.
    """
    started = find_processes()
    prepare_horovod()
    horovod.init(comm=comm, process_sets=process_sets)
    if comm is None:
        check_horovod_sees(started, started.rank, horovod.size())


def require_init(what: str) -> None:
    """Raises InputError where `what` needs Horovod and it has not been started."""
    if not horovod.is_initialized():
        raise InputError(f"{what} needs to know the workers; call hvd.init() first")


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = horovod.Compression.none,
) -> tf.Tensor:
    """Reduces `value`, of the same shape on every rank.

    Args:
      value: anything that is a tensor to Keras.
      name: of the operation; the same on every rank.
      average: deprecated by Horovod: True for `op=Average`, False for `op=Sum`.
      prescale_factor: multiplies `value` before.
      postscale_factor: multiplies the result.
      op: Average (default), Sum, Min, Max, Product.
      compression: Compression.none or Compression.fp16.

    Returns:
      A tensor of `value`'s shape and type.
    """
    return horovod.allreduce(
        keras.ops.convert_to_tensor(value),
        average=average,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
    )


def allgather(value: Any, name: str | None = None) -> tf.Tensor:
    """Joins the ranks' values along their first dimension, which may differ between ranks."""
    return horovod.allgather(keras.ops.convert_to_tensor(value), name=name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> tf.Tensor:
    """Returns the value that `root_rank` has; it has the same shape on every rank."""
    return horovod.broadcast(keras.ops.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value: Any, name: str | None = None, op: Any = horovod.Average) -> tf.Tensor:
    """Reduces `value` and leaves each rank its part of the first dimension."""
    return horovod.reducescatter(keras.ops.convert_to_tensor(value), name=name, op=op)


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: Any = global_process_set,
    inplace: bool = False,
) -> None:
    """Gives variables of Keras or TensorFlow, of any type, the values that they have on `root_rank`.

    Args:
      variables: the same number, shapes and types on every rank.
      root_rank: the rank that has the values.
      process_set: the ranks that take part.
      inplace: for Horovod's signature; values are never copied more than once here.

    Raises:
      InputError: the variables are not the same on every rank (else the ranks would wait for each other).
    """
    variables = list(variables)
    _check_alike(variables, process_set)
    assign_broadcast(horovod, variables, root_rank, process_set=process_set)


def _check_alike(variables: Sequence[Any], process_set: Any) -> None:
    mine = [f"{variable.dtype} {tuple(variable.shape)}" for variable in variables]
    every = horovod.allgather_object(mine, name="variables", process_set=process_set)
    for rank, other in enumerate(every):
        if len(other) != len(every[0]):
            raise InputError(
                f"rank {rank} has {len(other)} variables, rank 0 has {len(every[0])}; "
                "build the same model and optimizer on every rank"
            )
        for i, (there, here) in enumerate(zip(other, every[0], strict=True)):
            if there != here:
                raise InputError(
                    f"variable {i} is {there} on rank {rank}, but {here} on rank 0; "
                    "build the same model and optimizer on every rank"
                )


# --------------------------------------------------------------------------------------------------
# The reduction of a step's gradients: one flat buffer, one collective, for each type of number.

# A tf.Tensor, a tf.IndexedSlices (of an embedding), or None (of a variable that the loss does not depend on).
Gradient = Any
# Name and process set of reductions -> counts them.
_counts: dict[tuple[str, int], Iterator[int]] = {}


@dataclasses.dataclass
class GradientReduction:
    """Sums or averages gradients over the ranks.

    Attributes:
      name: of the optimizer, the same on every rank; see `operations`.
      op: Horovod's Average or Sum.
      compression: Horovod's Compression.none or Compression.fp16, for dense gradients.
      predivide_factor: divides before the sum and multiplies after it (for half precision).
      factor: multiplies the result.
      sparse_as_dense: gradients of embeddings travel whole, not as the rows that were used.
      device_dense: device of the operations on dense gradients; "" for Horovod's own choice.
      device_sparse: the same for gradients of embeddings.
      process_set: the ranks that take part.
      calls: how often a reduction was computed or traced.
      gathers: whether rows of an embedding were among the gradients, which all ranks gather together.
    """

    name: str
    op: Any
    compression: Any
    predivide_factor: float
    factor: float
    sparse_as_dense: bool
    device_dense: str
    device_sparse: str
    process_set: Any
    calls: int = 0
    gathers: bool = False

    @functools.cached_property
    def operations(self) -> str:
        """The beginning of the names of its operations, which no other reduction has that may run at the same time.

        Reductions of one name are counted in the order of their first use, by process set. So the names stay alike on
        all ranks where one rank makes an optimizer and never uses it.
        """
        among = self.process_set.process_set_id
        number = _counts.setdefault((self.name, among), itertools.count())
        return f"{self.name}.{among}.{next(number)}"

    def __call__(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """Returns the reduced gradients, in the same order; None stays None."""
        self.calls += 1
        reduced = list(gradients)
        if self.sparse_as_dense:
            reduced = [None if each is None else tf.convert_to_tensor(each) for each in reduced]
        reduced = [without_repeated_rows(each) for each in reduced]
        if self.process_set.size() == 1:
            return [each if each is None else self._scale(each, self.factor) for each in reduced]
        places = []
        for i, gradient in enumerate(reduced):
            if isinstance(gradient, tf.IndexedSlices):
                reduced[i] = self._reduce_rows(gradient, f"{self.operations}.rows.{i}")
            elif gradient is not None:
                places.append(i)
        dense = reduce_flat([reduced[i] for i in places], self._reduce_dense)
        for i, gradient in zip(places, dense, strict=True):
            reduced[i] = gradient
        return reduced

    def _reduce_dense(self, flat: tf.Tensor) -> tf.Tensor:
        total = horovod.allreduce(
            flat,
            name=f"{self.operations}.{flat.dtype.name}",
            op=self.op,
            device_dense=self.device_dense,
            prescale_factor=1.0 / self.predivide_factor,
            postscale_factor=self.predivide_factor,
            compression=self.compression,
            process_set=self.process_set,
            # Keras's scope has the optimizer's name, and counts those that one rank makes alone.
            ignore_name_scope=True,
        )
        # After the collective, and not as its factor: in half precision it would overflow.
        return self._scale(total, self.factor)

    def _reduce_rows(self, gradient: tf.IndexedSlices, name: str) -> tf.IndexedSlices:
        """Gathers the rows that any rank used; a row that several used comes once, with its sum."""
        self.gathers = True
        with tf.device(self.device_sparse or None):
            rows, values = (
                horovod.allgather(
                    part,
                    name=f"{name}.{what}",
                    process_set=self.process_set,
                    ignore_name_scope=True,
                )
                for what, part in (("indices", gradient.indices), ("values", gradient.values))
            )
        total = without_repeated_rows(tf.IndexedSlices(values, rows, gradient.dense_shape))
        divisor = self.process_set.size() if self.op == horovod.Average else 1
        return self._scale(total, self.factor / divisor)

    @staticmethod
    def _scale(gradient: Gradient, factor: float) -> Gradient:
        if factor == 1.0:
            return gradient
        # Not tf.cast, which goes through float32.
        exact = tf.constant(factor, gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            scaled = gradient.values * exact
            return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
        return gradient * exact


# --------------------------------------------------------------------------------------------------
# The optimizer whose gradients are reduced.

# End of the name of an optimizer that adds gradients of several batches up: all that a saved model tells of that.
_SUMS = "_of_summed_gradients"


class _Distributed:
    """A base class that every distributed optimizer's class has in front of its Keras class."""

    # Set past Keras's tracking: it is no part of the optimizer's saved state.
    _reduction: GradientReduction

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss_scale_factor":
            # So begins LossScaleOptimizer; it would skip a step on the one rank whose gradients overflowed.
            raise InputError(
                "a LossScaleOptimizer (which model.compile adds with mixed_float16) goes inside, not outside: "
                "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)); "
                "a loss_scale_factor is given to the optimizer before it is wrapped"
            )
        super().__setattr__(name, value)


class _ReducesBeforeClipping(_Distributed):
    """Fits Keras's own `apply`, which calls `_clip_gradients` once per update, when accumulation is done."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        grads = list(grads)
        before = self._reduction.calls
        super().apply(grads, trainable_variables)  # type: ignore[misc]
        accumulates = bool(self.gradient_accumulation_steps)  # type: ignore[attr-defined]
        # An accumulating step reduces nothing; in a graph both of its branches are traced.
        may_skip = not grads or (accumulates and tf.executing_eagerly())
        if self._reduction.calls == before and not may_skip:
            raise RuntimeError(
                f"Keras {keras.__version__} updated the weights without reducing the gradients; "
                "tfmat.horovod is for the versions of Keras that setup.cfg names"
            )

    def _clip_gradients(self, grads: Any) -> Any:
        return super()._clip_gradients(self._reduction(grads))  # type: ignore[misc]


class _ReducesFirst(_Distributed):
    """Fits an `apply` of the optimizer's own, as LossScaleOptimizer's: all that it decides is decided alike."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        super().apply(self._reduction(list(grads)), trainable_variables)  # type: ignore[misc]


def DistributedOptimizer(  # noqa: N802
    optimizer: keras.optimizers.Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = horovod.Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = horovod.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer with its gradients reduced over the ranks, once an update, before clipping.

    It is of the given optimizer's class and shares its state (slots, learning rate, step). So an optimizer can be
    wrapped after a restore too; use the wrapped one from then on. A model that is saved with it loads without Horovod.

    Args:
      optimizer: of Keras 3, built or not.
      name: prefix of the operations; "Distributed" and the class by default. The same on every rank.
      device_dense: device of the operations on dense gradients; "" for Horovod's own choice.
      device_sparse: the same for gradients of embeddings.
      compression: Compression.fp16 sends dense gradients in half precision.
      sparse_as_dense: gradients of embeddings travel whole, not as the rows that were used.
      gradient_predivide_factor: divides before the sum and multiplies after it; with op=Average.
      op: Average or Sum.
      backward_passes_per_step: k: gradients of k batches are added up on each rank, reduced once, and used once.
        Keras counts k batches as one iteration then (so that Adam's bias correction is that of one large batch). The
        optimizer's name says so in a saved model; in a program without tfmat.horovod it takes their mean.
      average_aggregated_gradients: divide that sum by k: as one batch of k times the size.
      num_groups: not supported, as groups.
      groups: not supported: all gradients of a type go in one buffer.
      process_set: the ranks that take part.
      scale_local_gradients: not supported, but for its default: there are no local variables.

    Raises:
      InputError: Horovod is not initialized, or an argument cannot be used.
    """
    require_init("hvd.DistributedOptimizer")
    own_apply = _check_optimizer(optimizer)
    if num_groups or groups is not None:
        raise InputError("groups is not supported: one buffer takes all gradients; leave it out")
    if not scale_local_gradients:
        raise InputError("scale_local_gradients=False is not supported; leave it out")
    if op not in (horovod.Average, horovod.Sum):
        raise InputError("op is neither hvd.Average nor hvd.Sum; gradients can only be these")
    if gradient_predivide_factor != 1.0 and op != horovod.Average:
        raise InputError("gradient_predivide_factor is only for op=hvd.Average")
    accumulates = _check_passes(backward_passes_per_step, optimizer, own_apply)
    passes = backward_passes_per_step
    sums = accumulates and not average_aggregated_gradients
    if not accumulates and optimizer.name.endswith(_SUMS):  # saved so
        passes, sums = optimizer.gradient_accumulation_steps, True
    reduction = GradientReduction(
        name=name or f"Distributed{type(optimizer).__name__}",
        op=op,
        compression=compression,
        predivide_factor=gradient_predivide_factor,
        # Keras divides by the number of batches.
        factor=float(passes) if sums else 1.0,
        sparse_as_dense=sparse_as_dense,
        device_dense=device_dense,
        device_sparse=device_sparse,
        process_set=process_set,
    )
    distributed = _share_state(optimizer, _ReducesFirst if own_apply else _ReducesBeforeClipping)
    distributed.__dict__["_reduction"] = reduction
    if accumulates:
        distributed.gradient_accumulation_steps = backward_passes_per_step
        if sums:
            distributed.name += _SUMS
    return distributed


def _check_optimizer(optimizer: Any) -> bool:
    """Returns whether its class has an `apply` of its own; raises InputError where it is no optimizer to wrap."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InputError(
            f"hvd.DistributedOptimizer takes an optimizer of Keras 3, not {type(optimizer).__name__}; "
            "give it, say, keras.optimizers.Adam(1e-3)"
        )
    if isinstance(optimizer, _Distributed):
        raise InputError("the optimizer is distributed already; wrap it once")
    return type(optimizer).apply is not keras.optimizers.Optimizer.apply


def _check_passes(passes: int, optimizer: keras.optimizers.Optimizer, own_apply: bool) -> bool:
    """Returns whether several batches make one update; raises InputError where they cannot."""
    if passes < 1:
        raise InputError(f"backward_passes_per_step is {passes}; it is a whole number from 1")
    if passes == 1:
        return False
    if own_apply:
        raise InputError(
            f"backward_passes_per_step is not for {type(optimizer).__name__}; "
            f"give the optimizer inside gradient_accumulation_steps={passes}"
        )
    if optimizer.gradient_accumulation_steps:
        raise InputError(
            "backward_passes_per_step and the optimizer's gradient_accumulation_steps are the same thing; give one"
        )
    if optimizer.built:
        raise InputError(
            "backward_passes_per_step needs an optimizer that has made no step; "
            f"give it gradient_accumulation_steps={passes} when it is made"
        )
    return True


def _share_state(optimizer: keras.optimizers.Optimizer, front: type) -> Any:
    """Returns an optimizer with the given one's attributes, of a class with `front` before its class.

    A copy by `get_config` would lose slots, excluded variables and callable learning rates.
    """
    base = type(optimizer)
    namespace = {
        # Keras writes the name of this class into a saved model: it loads without Horovod, as what it is.
        "__class__": property(lambda self: base),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    distributed: Any = object.__new__(type(base.__name__, (front, base), namespace))
    distributed.__dict__.update(optimizer.__dict__)
    return distributed


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = horovod.Compression.none,
    legacy_opts: bool = False,
) -> keras.Model:
    """Loads a model with its optimizer's state, and makes that optimizer a DistributedOptimizer; on every rank.

    Args:
      filepath: as for `keras.models.load_model`.
      custom_optimizers: classes of optimizers that are not Keras's own.
      custom_objects: name -> class or function, as for `keras.models.load_model`.
      compression: see DistributedOptimizer.
      legacy_opts: not supported: Keras 3 has no legacy optimizers.

    Raises:
      InputError: `legacy_opts` was given.
    """
    if legacy_opts:
        raise InputError("legacy_opts is not supported: Keras 3 has no legacy optimizers")
    objects = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model

"""Horovod's own operations, on whatever Keras 3 holds: variables, tensors, arrays, numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

import horovod.tensorflow as horovod
import keras
import tensorflow as tf
from horovod.tensorflow.mpi_ops import global_process_set

from tfmat.backends.horovod import assign_broadcast
from tfmat.errors import InputError
from tfmat.launch.processes import check_horovod_sees, find_processes, prepare_horovod


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

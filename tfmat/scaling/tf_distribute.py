"""What the baselines of TensorFlow's own `tf.distribute` have in common: see parameter_server.py and strategies.py.

They are no backends of tfmat's: they are here to be compared with.
"""

import dataclasses
import functools
import os
import pathlib
import platform
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tfmat.config import Config, check_config
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.launch.runtime import prepare_tensorflow
from tfmat.ranks.port_guard import Neighbour, PortGuard, describe_ports, guard_port
from tfmat.ranks.processes import Processes
from tfmat.ranks.star import Star
from tfmat.scaling.worker import join_others

_TRIAL_STEPS = 10
_THREADS = 8
# Adam, as Keras has it.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7


class Baseline(Protocol):
    """Adam on a Keras model, by one of TensorFlow's strategies."""

    def build(self, model: Any, learning_rate: float, batches: Callable[[], Any]) -> None:
        """Takes the network's present weights, and gives every worker its batches.

        Args:
          model: built Keras model; see `check_plain`.
          learning_rate: constant.
          batches: called for each worker, see `batches_of`.
        """

    def train(self, steps: int) -> float:
        """That many steps, in each of which every worker computes one batch; returns the mean loss."""


def prepare(processors: int, virtual_devices: int = 1, start: bool = True) -> None:
    """Imports TensorFlow for a process of a baseline; see prepare_tensorflow."""
    # With one thread for all operations, as a process on one processor has it, those that wait for another process
    # would keep it from those that answer.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(_THREADS)
    prepare_tensorflow(
        processors=processors, virtual_devices=virtual_devices, start=start, own_program=True
    )


def find_each_other(
    folder: pathlib.Path, processes: Processes
) -> tuple[list[str], PortGuard | None, Star]:
    """Addresses of all processes; the guard of the port that this one opens next; the link to the others.

    Each says its own, since only it knows which port is free there.
    """
    several_nodes = processes.local_size < processes.size
    others = join_others(processes, folder)
    with socket.create_server(("", 0)) as held:
        host = platform.node() if several_nodes else "localhost"
        port = held.getsockname()[1]
        found = others.gather((f"{host}:{port}", *dataclasses.astuple(Neighbour.here())))
    addresses = [address for address, *_ in found]
    places = [Neighbour(*place) for _, *place in found]
    if processes.rank == 0:
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        print(describe_ports(ports, places), file=sys.stderr, flush=True)
    return addresses, guard_port(port, places), others


def check_plain(model: Any) -> None:
    """InputError where a network has other state than its weights."""
    if model.non_trainable_variables:
        raise InputError(
            "the baselines of tf.distribute have no dropout and no batch normalization; leave them out"
        )


def measure_tasks(
    training: Baseline,
    spec: dict[str, Any],
    folder: pathlib.Path,
    agree: Callable[[int], int] = lambda steps: steps,
) -> list[dict[str, Any]]:
    """Steps and seconds of each task of a launch.

    Args:
      training: on which each task is built in turn.
      spec: see worker.py.
      folder: for the files from which the workers of this process read the examples.
      agree: the number of steps that all processes take, where each would find its own.
    """
    from tfmat.models import build_for

    config = check_config(Config(spec["config"]))
    dataset, size = PackedDataset.open(spec["dataset"], verify=False), spec["dataset_size"]
    for name in ("features", "labels"):
        np.ascontiguousarray(getattr(dataset, name)[:size], np.float32).tofile(
            folder / f"{name}.f32"
        )
    shape, outputs, tasks = dataset.features.shape[1:], len(dataset.parameters), []
    for task in spec["tasks"]:
        batches = functools.partial(batches_of, folder, shape, outputs, task["batch_a_worker"])
        training.build(build_for(config, dataset), config.optimizer.learning_rate, batches)
        tasks.append(_measure(training, spec["seconds"], agree))
    return tasks


def _measure(training: Baseline, seconds: float, agree: Callable[[int], int]) -> dict[str, Any]:
    def timed(steps: int) -> tuple[float, float]:
        started = time.monotonic()
        loss = training.train(steps)
        return loss, time.monotonic() - started

    # The first trial compiles, the second is a warm-up.
    (first_loss, _), _, (_, trial) = (timed(_TRIAL_STEPS) for _ in range(3))
    steps = agree(max(2 * _TRIAL_STEPS, round(_TRIAL_STEPS * seconds / trial)))
    last_loss, elapsed = timed(steps)
    # For the study's log: it learns.
    print(f"loss of the first {_TRIAL_STEPS} steps {first_loss:.5g}, at the end {last_loss:.5g}")
    return {"steps": steps, "seconds": elapsed}


def batches_of(folder: pathlib.Path, shape: Sequence[int], num_outputs: int, size: int) -> Any:
    """A worker's batches, without end, in an order of its own and kept in its memory.

    Args:
      folder: of features.f32 and labels.f32, which each worker reads by itself.
      shape: of one example's features; `num_outputs` of its labels.
      size: of a batch.
    """
    import tensorflow as tf

    def read(name: str, shape: Sequence[int]) -> Any:
        content = tf.io.read_file(str(folder / f"{name}.f32"))
        return tf.reshape(tf.io.decode_raw(content, tf.float32), [-1, *shape])

    features, labels = read("features", shape), read("labels", (num_outputs,))
    count = tf.cast(tf.shape(labels)[0], tf.int64)
    # All workers trace the same graph: what parts them is drawn where it runs.
    seed = tf.random.uniform([], 0, 2**30, tf.int64)

    def batch(number: Any) -> tuple[Any, Any]:
        rows = tf.random.stateless_uniform([size], tf.stack([seed, number]), 0, count, tf.int64)
        return tf.gather(features, rows), tf.gather(labels, rows)

    return tf.data.Dataset.range(2**40).map(batch).prefetch(2)


def apply_adam(
    weights: Sequence[Any],
    first: Sequence[Any],
    second: Sequence[Any],
    gradients: Sequence[Any],
    updates: Any,
    rate: float,
) -> list[Any]:
    """Adam (Kingma and Ba, 2015) in a graph, one operation a variable, which runs where the variable is.

    Args:
      weights, first, second: variables: weights, and the moments of their gradients.
      gradients: of the weights.
      updates: variable that counts them.
      rate: learning rate.

    Returns:
      The operations.
    """
    import tensorflow as tf

    count = tf.cast(updates.read_value() + 1, tf.float32)
    done = [
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=tf.pow(_BETA_1, count),
            beta2_power=tf.pow(_BETA_2, count),
            lr=rate,
            beta1=_BETA_1,
            beta2=_BETA_2,
            epsilon=_EPSILON,
            grad=gradient,
        )
        for weight, m, v, gradient in zip(weights, first, second, gradients, strict=True)
    ]
    with tf.control_dependencies(done):
        return [*done, updates.assign_add(1, read_value=False)]

"""Ways in which the ranks of the Horovod benchmark train the default network, and in which they sum gradients."""

import statistics
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends import Backend, BackendOptions, make_backend
from tfmat.backends.horovod import HorovodBackend
from tfmat.backends.losses import per_example_function
from tfmat.backends.single import SingleBackend
from tfmat.config import default_config
from tfmat.models import build_model
from tfmat.optimizers import make_functional


class Alone:
    """Nothing is summed and Horovod is not there: what the machine can do with that many processes."""

    def __init__(self, features: np.ndarray, labels: np.ndarray):
        self.backend = self._make_backend()
        self.backend.start()
        model = build_model(default_config().model, num_outputs=2)
        self.backend.build(model, make_functional("adam"), per_example_function("mse"), {})
        self._data = self.backend.place((features, labels))
        self._random = np.random.default_rng(1)

    def _make_backend(self) -> Backend:
        return make_backend("single")

    def prepare(self, batch_size: int) -> None:
        """Chooses the batch size, of this rank."""
        self._batch_size = batch_size

    def run(self, steps: int) -> None:
        """Trains for that many steps in one call."""
        shape = steps, self._batch_size
        rows = self._random.integers(0, len(self._data[1]), shape, dtype=np.int32)
        size = self._batch_size * self.backend.world_size
        counts = np.full(steps, size, np.float32)
        self.backend.train(self._data, rows, np.ones(shape, np.float32), counts)

    def meet(self) -> None:
        """Waits for the other ranks, so that a late one is not counted."""
        self.backend.gather(0)

    def close(self) -> None:
        """Leaves the others."""
        self.backend.close()


class Flat(Alone):
    """tfmat's own: one flat buffer."""

    def _make_backend(self) -> Backend:
        return HorovodBackend()


class Halves(Alone):
    """The same with --config.compression=fp16."""

    def _make_backend(self) -> Backend:
        return HorovodBackend(BackendOptions(compression="fp16"))


class _Silent(HorovodBackend):
    def _reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return tensors


class Silent(Alone):
    """Horovod has been started, and nothing is summed."""

    def _make_backend(self) -> Backend:
        return _Silent()


def _together(totals: list[tf.Tensor]) -> list[tf.Tensor]:
    """All or none: the next step must not sum the losses before this one has, under the same name."""
    with tf.control_dependencies(totals):
        return [tf.identity(total) for total in totals]


class _Grouped(HorovodBackend):
    def _reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        totals = self._horovod.grouped_allreduce(
            tensors, op=self._horovod.Sum, name=next(self._names)
        )
        return _together(totals)


class Grouped(Alone):
    """Horovod's grouped_allreduce."""

    def _make_backend(self) -> Backend:
        return _Grouped()


class _EachVariable(HorovodBackend):
    def _reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        totals = [
            self._horovod.allreduce(tensor, op=self._horovod.Sum, name=next(self._names))
            for tensor in tensors
        ]
        return _together(totals)


class EachVariable(Alone):
    """One collective a variable."""

    def _make_backend(self) -> Backend:
        return _EachVariable()


class _BareMpi(SingleBackend):
    def start(self) -> None:
        from mpi4py import MPI

        self.mpi, self.world_size = MPI, MPI.COMM_WORLD.Get_size()

    def _reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        def allreduce(flat: np.ndarray) -> np.ndarray:
            total = np.empty_like(flat)
            self.mpi.COMM_WORLD.Allreduce(np.ascontiguousarray(flat), total)
            return total

        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)
        total = tf.numpy_function(allreduce, [flat], flat.dtype)
        total.set_shape(flat.shape)
        parts = tf.split(total, [tensor.shape.num_elements() for tensor in tensors])
        return [tf.reshape(p, t.shape) for p, t in zip(parts, tensors, strict=True)]


class BareMpi(Alone):
    """The same loop with an MPI_Allreduce (mpi4py in a numpy_function) in Horovod's place."""

    backend: _BareMpi

    def _make_backend(self) -> Backend:
        return _BareMpi()

    def meet(self) -> None:
        """Waits for the other ranks."""
        self.backend.mpi.COMM_WORLD.Barrier()

    def allreduce_milliseconds(self) -> float:
        """Median of an MPI_Allreduce of the gradients' bytes, nothing else running in the ranks."""
        values, total = np.ones(153_442, np.float32), np.empty(153_442, np.float32)
        times = []
        for _ in range(200):
            started = time.perf_counter()
            self.backend.mpi.COMM_WORLD.Allreduce(values, total)
            times.append((time.perf_counter() - started) * 1e3)
        return statistics.median(times)


class Textbook:
    """Horovod's own recipe for custom loops: DistributedGradientTape, one collective a variable, one step a call."""

    def __init__(self, features: np.ndarray, labels: np.ndarray):
        import horovod.tensorflow as horovod

        self._horovod = horovod
        horovod.init()
        self._arrays = features, labels
        self._model = build_model(default_config().model, num_outputs=2)
        self._optimizer = keras.optimizers.Adam()
        self._optimizer.build(self._model.trainable_variables)
        variables = [v.value for v in self._model.trainable_variables]
        horovod.broadcast_variables(variables, root_rank=0)

        @tf.function
        def step(features: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = self._model(features, training=True)
                loss = tf.reduce_mean(tf.square(outputs - labels))
            tape = horovod.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, variables)
            self._optimizer.apply_gradients(
                zip(gradients, self._model.trainable_variables, strict=True)
            )
            return loss

        self._step = step

    def prepare(self, batch_size: int) -> None:
        """A shuffled tf.data pipeline, as the recipe has it."""
        dataset = tf.data.Dataset.from_tensor_slices(self._arrays)
        dataset = dataset.shuffle(10_000).repeat().batch(batch_size, drop_remainder=True)
        self._batches = iter(dataset.prefetch(tf.data.AUTOTUNE))

    def run(self, steps: int) -> None:
        """That many steps."""
        for _ in range(steps):
            self._step(*next(self._batches))

    def meet(self) -> None:
        """Waits for the other ranks."""
        self._horovod.allreduce(tf.zeros(1), name="meet")

    def close(self) -> None:
        """Nothing to leave."""

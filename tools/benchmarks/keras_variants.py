"""The default network trained with TensorFlow: by tfmat, and by Keras `fit` as a textbook has it."""

import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfmat
from benchmarks.step import LEARNING_RATE, Data, Timing
from tfmat.config import EpochPlan, OptimizerSection, default_config
from tfmat.networks.factory import build_model
from tfmat.optimizers import build_optimizer, build_schedule

MATRIX_SIZE = 2048


class BlockClock(keras.callbacks.Callback):
    """Times a run from the end of its first call of the graph to the end of its last: tracing is left out."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts anew."""
        self.ends: list[tuple[int, float]] = []
        self._before, self._last = 0, -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes how many steps are done, also where each epoch counts from zero."""
        if batch <= self._last:
            self._before += self._last + 1
        self._last = batch
        self.ends.append((self._before + batch + 1, time.perf_counter()))

    def timing(self, batch_size: int) -> Timing:
        """Examples and seconds between the first and the last end."""
        (first, started), (last, ended) = self.ends[0], self.ends[-1]
        return Timing((last - first) * batch_size, ended - started)


def build_our_model(data: Data) -> keras.Model:
    """The project's default network, with the dense layers asked for."""
    outputs, scale = data.labels.shape[1], data.scale.tolist()
    config = default_config().model
    config.hidden_units = tuple(data.hidden_units.tolist())
    return build_model(config, num_outputs=outputs, input_scale=scale)


class Ours:
    """The project's Trainer: many steps in one call, the data in memory and gathered by index in the graph.

    Args:
      reading: "stream" gathers the same examples ahead by tf.data, as for sets larger than memory.
      options: of the Trainer.
    """

    def __init__(self, data: Data, batch_size: int, reading: str = "memory", **options: Any):
        self._reading, self._options = reading, options
        self._data, self._batch_size = data, batch_size
        self.work_a_step = batch_size
        self._model = build_our_model(data)
        self.operations = training_operations(self._model)
        # Half a second's worth on two processors. The first of two calls at least is not timed.
        self._steps_per_call = max(1, min(200, 15_000 // batch_size))
        self.least_steps = 2 * self._steps_per_call

    def run(self, steps: int) -> Timing:
        """Trains for that many steps with Adam on a cosine schedule."""
        clock = BlockClock()
        section = OptimizerSection(learning_rate=LEARNING_RATE)
        epochs = EpochPlan(len(self._data.labels), self._batch_size)
        trainer = tfmat.Trainer(
            self._model,
            optimizer=lambda total, _: build_optimizer(
                section, build_schedule(section, epochs, total)
            ),
            callbacks=[clock],
            **self._options,
            steps_per_call=self._steps_per_call,
            quiet=True,
        )
        trainer.fit(
            self._data.features,
            self._data.labels,
            global_batch_size=self._batch_size,
            train_for=f"{steps}steps",
            reading=self._reading,
        )
        return clock.timing(self._batch_size)

    def loss(self, features: np.ndarray, labels: np.ndarray) -> float:
        """Mean squared error."""
        return _keras_loss(self._model, features, labels)


class Fit:
    """Keras `fit` on a tf.data pipeline: convolution with its activation, then pooling; stock Adam.

    Args:
      executions: steps in one call, for those who know that argument.
      our_model: with the project's own model; what is left then is the loop alone.
    """

    def __init__(self, data: Data, batch_size: int, executions: int = 1, our_model: bool = False):
        self.executions, self._scale = executions, 1.0 if our_model else data.scale
        self._data, self._batch_size = data, batch_size
        self.work_a_step = batch_size
        self.least_steps = 2 * self.executions
        self._model = build_our_model(data) if our_model else self._build()
        self.operations = training_operations(self._model)
        self._model.compile(
            keras.optimizers.Adam(LEARNING_RATE),
            loss="mean_squared_error",
            steps_per_execution=self.executions,
        )
        self._dataset = (
            tf.data.Dataset.from_tensor_slices((data.features / self._scale, data.labels))
            .shuffle(10_000)
            .batch(batch_size)
            .repeat()
            .prefetch(tf.data.AUTOTUNE)
        )

    def run(self, steps: int) -> Timing:
        """Trains for that many steps, whole executions; the shuffle buffer is full before the clock starts."""
        clock = BlockClock()
        steps = -(-steps // self.executions) * self.executions
        self._model.fit(self._dataset, steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock.timing(self._batch_size)

    def loss(self, features: np.ndarray, labels: np.ndarray) -> float:
        """Mean squared error."""
        return _keras_loss(self._model, features / self._scale, labels)

    def _build(self) -> keras.Model:
        keras.utils.set_random_seed(0)
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input(self._data.features.shape[1:]),
                layers.Conv1D(16, 7, padding="same", activation="relu"),
                layers.MaxPooling1D(2),
                layers.Conv1D(24, 7, padding="same", activation="relu"),
                layers.MaxPooling1D(2),
                layers.Flatten(),
                layers.Dense(125, activation="relu"),
                layers.Dense(self._data.labels.shape[1]),
            ]
        )


class MatrixProduct:
    """Nothing is trained: TensorFlow's own float32 matrix product, in floating-point operations."""

    least_steps = 1
    work_a_step = 2.0 * MATRIX_SIZE**3

    def __init__(self, data: Data, batch_size: int):
        del data, batch_size
        random = np.random.default_rng(0)
        self._factor = tf.constant(
            random.normal(0, MATRIX_SIZE**-0.5, (MATRIX_SIZE, MATRIX_SIZE)), tf.float32
        )

        @tf.function
        def products(factor: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
            product = factor
            for _ in tf.range(count):
                product = tf.matmul(product, factor)
            return product

        self._products = products

    def run(self, steps: int) -> Timing:
        """That many products, one after the other."""
        started = time.perf_counter()
        self._products(self._factor, tf.constant(steps)).numpy()
        return Timing(self.work_a_step * steps, time.perf_counter() - started)

    def loss(self, features: np.ndarray, labels: np.ndarray) -> None:
        """Nothing is trained."""


def training_operations(model: keras.Model) -> float:
    """Floating-point operations of a training step per example: 2 a multiply-add, backward twice as much as forward."""
    forward = 0.0
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv1D):
            forward += layer.output.shape[1] * float(np.prod(layer.kernel.shape))
        elif isinstance(layer, keras.layers.Dense):
            forward += float(np.prod(layer.kernel.shape))
    return 2 * 3 * forward


def _keras_loss(model: keras.Model, features: np.ndarray, labels: np.ndarray) -> float:
    outputs = np.asarray(model(features, training=False))
    return float(np.mean((outputs - labels) ** 2))

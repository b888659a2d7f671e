"""The rows of the table in docs/your_own_model.md: a small model for each, and what Keras's own steps make of it."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers

# The third batch of an epoch is a partial one where the backend owns the batches. Two ranks share a batch.
NUM_EXAMPLES, NUM_WHOLE, BATCH, EPOCHS, RANKS = 44, 48, 16, 2, 2
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(NUM_WHOLE, 4)).astype("f")
SEQUENCES = RANDOM.normal(size=(NUM_WHOLE, 6, 4)).astype("f")
# Few words, so that every batch has each of them several times.
WORDS = RANDOM.integers(1, 5, (NUM_WHOLE, 6)).astype("int32")
NUMBERS = np.sin(VECTORS.sum(1, keepdims=True))
CLASSES = (VECTORS[:, :1] + VECTORS[:, 1:2] > 0).astype("f")
WEIGHTS = RANDOM.uniform(0, 3, NUM_WHOLE).astype("f")


def _adam(**options):
    return keras.optimizers.Adam(0.01, **options)


def _dense(*more, inputs=(4,), dtype=None, **options):
    return keras.Sequential(
        [
            layers.Input(inputs, dtype=dtype),
            *more,
            layers.Dense(8, activation="tanh", **options),
            layers.Dense(1, name="answer"),
        ]
    )


def _transformer():
    inputs = layers.Input((6, 4))
    x = layers.Dense(8, activation="relu")(layers.Dense(8)(inputs))
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4, use_bias=False)(x, x)])
    x = layers.LayerNormalization()(x)
    return keras.Model(inputs, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))


def _several_outputs(*more):
    inputs = layers.Input((4,))
    x = layers.Dense(8, activation="tanh")(inputs)
    for layer in more:
        x = layer(x)
    number, kind = layers.Dense(1)(x), layers.Dense(1, activation="sigmoid")(x)
    return keras.Model(inputs, {"number": number, "kind": kind})


class _SmallOutputs(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        return inputs


class _Centred(keras.layers.Layer):
    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, axis=0)


@dataclasses.dataclass(frozen=True)
class Feature:
    """One row.

    Attributes:
      model: makes a model, with the same weights each time.
      features, labels: of NUM_WHOLE examples.
      optimizer: makes one.
      loss: as the user gives it.
      metrics: name -> makes one.
      policy: of precision, while the model is made.
      weights: [examples] that the plain loop uses.
      given: arguments of `fit` that say the same as `weights`.
      tolerance: of the weights' change, in relative norm.
    """

    model: Callable[[], keras.Model] = _dense
    features: Any = dataclasses.field(default_factory=lambda: VECTORS)
    labels: Any = dataclasses.field(default_factory=lambda: NUMBERS)
    optimizer: Callable[[], keras.optimizers.Optimizer] = _adam
    loss: Any = "mse"
    metrics: Callable[[], dict[str, Any]] = dict
    policy: str = "float32"
    weights: Any = None
    given: Any = dataclasses.field(default_factory=dict)
    tolerance: float = 1e-4

    @contextlib.contextmanager
    def precision(self):
        """Within it Keras makes layers of this feature's precision."""
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(self.policy)
        yield
        keras.config.set_dtype_policy(before)

    def make_model(self):
        """Built; the same weights each time."""
        with self.precision():
            keras.utils.set_random_seed(1)
            return self.model()

    def take(self, rows):
        """(features, labels, other arguments of `fit`) of some examples."""
        features, labels = tf.nest.map_structure(
            lambda array: array[rows], (self.features, self.labels)
        )
        arrays = {name: value for name, value in self.given.items() if not isinstance(value, dict)}
        return (
            features,
            labels,
            {**self.given, **{name: array[rows] for name, array in arrays.items()}},
        )

    def keras_loss(self, labels, outputs, weights):
        """Keras's own, whatever form it has."""
        if isinstance(self.loss, dict):
            return sum(
                _loss(each)(labels[name], outputs[name], sample_weight=weights)
                for name, each in self.loss.items()
            )
        return _loss(self.loss)(labels, outputs, sample_weight=weights)


def _loss(given):
    return keras.losses.MeanSquaredError() if given == "mse" else given


FEATURES = {
    "a transformer: dense layers on sequences": Feature(_transformer, SEQUENCES),
    "`LSTM`, `GRU`, depthwise and separable convolutions": Feature(
        lambda: _dense(
            layers.DepthwiseConv1D(3),
            layers.SeparableConv1D(4, 3, padding="same"),
            layers.GRU(5, return_sequences=True),
            layers.LSTM(5),
            inputs=(6, 4),
        ),
        SEQUENCES,
    ),
    "`Embedding` with Adam": Feature(
        lambda: _dense(layers.Embedding(5, 3), layers.Flatten(), inputs=(6,), dtype="int32"), WORDS
    ),
    "`mixed_bfloat16`": Feature(policy="mixed_bfloat16", tolerance=0.02),
    "`mixed_float16` with `loss_scale_factor`": Feature(
        optimizer=lambda: _adam(loss_scale_factor=1024.0), policy="mixed_float16", tolerance=0.02
    ),
    "`mixed_float16` without": Feature(policy="mixed_float16"),
    "`LossScaleOptimizer`": Feature(
        optimizer=lambda: keras.optimizers.LossScaleOptimizer(_adam(), initial_scale=1024.0)
    ),
    "`BatchNormalization`": Feature(lambda: _dense(layers.Dense(6, use_bias=False), layers.BatchNormalization())),
    "`sample_weight`": Feature(weights=WEIGHTS, given={"sample_weight": WEIGHTS}),
    "`class_weight`": Feature(
        labels=CLASSES,
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        weights=np.where(CLASSES[:, 0] > 0, 2.5, 0.5).astype("f"),
        given={"class_weight": {0: 0.5, 1: 2.5}},
    ),
    "`keras.metrics` objects": Feature(
        metrics=lambda: {
            "root": keras.metrics.RootMeanSquaredError(),
            "r2": keras.metrics.R2Score(),
        },
    ),
    "`keras.metrics.AUC`": Feature(
        labels=CLASSES,
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=lambda: {"auc": keras.metrics.AUC(from_logits=True, num_thresholds=20)},
    ),
    "several outputs, a dictionary of losses": Feature(
        _several_outputs,
        labels={"number": NUMBERS, "kind": CLASSES},
        loss={"number": "mse", "kind": keras.losses.BinaryCrossentropy()},
    ),
    "regularizers and constraints of weights": Feature(
        lambda: _dense(
            kernel_regularizer=keras.regularizers.L2(0.1),
            kernel_constraint=keras.constraints.MaxNorm(0.9),
        )
    ),
    # Overwritten in the last of six steps, so that the averages are the weights there too.
    "`use_ema` with `ema_overwrite_frequency`": Feature(
        optimizer=lambda: _adam(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3)
    ),
    # Not Adam, to which a factor of the gradients is all one.
    '`Loss(reduction="sum")`': Feature(
        loss=keras.losses.MeanSquaredError(reduction="sum"),
        optimizer=lambda: keras.optimizers.SGD(1e-3),
    ),
    "`gradient_accumulation_steps`": Feature(optimizer=lambda: _adam(gradient_accumulation_steps=3)),
    "`add_loss` in a layer": Feature(lambda: _dense(_SmallOutputs())),
    "layers or losses that couple the examples of a batch": Feature(
        lambda: _dense(layers.Dense(6, use_bias=False), _Centred())
    ),
    "`activity_regularizer`": Feature(lambda: _dense(activity_regularizer="l2")),
    "masked outputs (`mask_zero=True`)": Feature(
        lambda: keras.Sequential(
            [
                layers.Input((6,), dtype="int32"),
                layers.Embedding(5, 3, mask_zero=True),
                layers.Dense(1),
            ]
        ),
        WORDS % 4,
        np.repeat(NUMBERS[:, None], 6, axis=1),
    ),
}  # fmt: skip

SEVERAL = FEATURES["several outputs, a dictionary of losses"]
# One backend trains what all have in common, and with --all each does. Keras's own `fit` makes the loss,
# and what is told apart here is the optimizer's.
WITH_ALL = {
    "single": {
        "a transformer: dense layers on sequences",
        "`LSTM`, `GRU`, depthwise and separable convolutions", "`Embedding` with Adam",
        "`mixed_bfloat16`", "`mixed_float16` with `loss_scale_factor`", "`BatchNormalization`",
        "`sample_weight`", "`class_weight`", "`keras.metrics.AUC`",
        "several outputs, a dictionary of losses", "regularizers and constraints of weights",
    },
    "horovod": {
        "a transformer: dense layers on sequences", "`mixed_bfloat16`", "`class_weight`",
        "`keras.metrics` objects", "several outputs, a dictionary of losses",
        "`use_ema` with `ema_overwrite_frequency`",
    },
    "mesh": {
        "`mixed_bfloat16`", "`class_weight`", "`keras.metrics.AUC`",
        "regularizers and constraints of weights", "`use_ema` with `ema_overwrite_frequency`",
    },
    # Half of these the checks of tfmat_tests/horovod compare with Keras, too.
    "fit": {
        "a transformer: dense layers on sequences",
        "`LSTM`, `GRU`, depthwise and separable convolutions", "`Embedding` with Adam",
        "`LossScaleOptimizer`", "`sample_weight`", "`class_weight`", "`keras.metrics` objects",
        "`keras.metrics.AUC`", "several outputs, a dictionary of losses",
        "`use_ema` with `ema_overwrite_frequency`", "`gradient_accumulation_steps`",
        "`add_loss` in a layer", "`activity_regularizer`",
    },
}  # fmt: skip


def ordered_batches():
    """The rows of each batch as the Trainer takes them."""
    from tfmat.data.order import ExampleOrder

    order = ExampleOrder(NUM_EXAMPLES, 0, 131_072)
    for epoch in range(EPOCHS):
        for first in range(0, NUM_EXAMPLES, BATCH):
            yield order.indices(epoch, first, min(first + BATCH, NUM_EXAMPLES))


def whole_batches():
    """The rows of each global batch of `fit` without shuffling, all of them whole."""
    for _ in range(EPOCHS):
        for first in range(0, NUM_WHOLE, BATCH):
            yield np.arange(first, first + BATCH)


def plain_steps(feature, batches, ranks=1):
    """Keras's own losses, gradients (dense ones) and optimizer, without a graph.

    Args:
      feature: what to train.
      batches: rows of each.
      ranks: each has a part of every batch, and a model of its own; their gradients are averaged.

    Returns:
      Weights of the first rank, and the metrics of the last epoch.
    """
    models = [feature.make_model() for _ in range(ranks)]
    optimizers = [feature.optimizer() for _ in range(ranks)]
    metrics = feature.metrics()
    batches = list(batches)
    for step, rows in enumerate(batches):
        if step == len(batches) * (EPOCHS - 1) // EPOCHS:
            for metric in metrics.values():
                metric.reset_state()
        every = []
        for model, optimizer, part in zip(models, optimizers, np.split(rows, ranks), strict=True):
            features, labels, _ = feature.take(part)
            weights = None if feature.weights is None else feature.weights[part]
            with tf.GradientTape() as tape:
                outputs = model(features, training=True)
                loss = feature.keras_loss(labels, outputs, weights) + sum(model.losses)
                if not optimizer.built:
                    optimizer.build(model.trainable_variables)
                loss = optimizer.scale_loss(loss)
            gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
            every.append([tf.convert_to_tensor(gradient) for gradient in gradients])
            for metric in metrics.values():
                metric.update_state(labels, outputs)
        mean = [tf.add_n(parts) / ranks for parts in zip(*every, strict=True)]
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.apply(list(mean), model.trainable_variables)
    return models[0].get_weights(), {name: float(m.result()) for name, m in metrics.items()}

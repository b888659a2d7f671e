"""DistributedOptimizer against a plain Keras fit of one process on the concatenated batches."""

import functools
import math
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat.horovod as hvd
from tfmat.errors import InputError
from tfmat_tests.horovod.problem import (
    MYSELF,
    PAIR,
    SHARD_BATCH,
    STEPS,
    assert_alike,
    assert_near,
    distributed_fit,
    fit,
    make_data,
    make_model,
    on_rank_0,
    plain_fit,
    shard,
)


def _nesterov(**options):
    return keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, **options)


@functools.cache
def _plain_nesterov():
    return plain_fit(_nesterov())


def _raises(part, function, *arguments, **options):
    with pytest.raises(InputError, match=re.escape(part)) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)


def check_equals_plain_fit(folder):
    """Also with many steps a call, where 4 does not divide the 6 steps of an epoch; ranks begin differently."""

    def adamw():
        # Clipped after the reduction: the norm of the mean is not the mean of the clipped.
        options = {"global_clipnorm": 0.1, "loss_scale_factor": 8.0}
        options |= {"use_ema": True, "ema_overwrite_frequency": 4}
        return keras.optimizers.AdamW(0.02, **options)

    for make, steps_per_execution in ((_nesterov, 1), (adamw, 4)):
        expected = plain_fit(make())
        optimizer = hvd.DistributedOptimizer(make())
        model = distributed_fit(optimizer, steps_per_execution)
        assert_alike([*model.get_weights(), *optimizer.variables])
        assert_near(model.get_weights(), expected)


def check_model_without_input(folder):
    """As in Horovod's documentation: only the first batch tells the shapes."""

    def make(seed):
        keras.utils.set_random_seed(seed)
        return keras.Sequential([keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])

    expected = plain_fit(_nesterov(), make(0))
    model = make(hvd.rank())
    optimizer = hvd.DistributedOptimizer(_nesterov())
    model.compile(optimizer, loss="mse", metrics=["mae"], steps_per_execution=4)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    fit(model, tuple(map(shard, make_data())), SHARD_BATCH, callbacks)
    assert_alike(model.get_weights())
    assert_near(model.get_weights(), expected)


def check_custom_loop(folder):
    """tf.GradientTape and apply_gradients, in a function and without."""
    expected = _plain_nesterov()
    features, labels = (tf.constant(shard(array)) for array in make_data())
    for wrap in (tf.function, lambda function: function):
        model, optimizer = make_model(), hvd.DistributedOptimizer(_nesterov())
        optimizer.build(model.trainable_variables)

        @wrap
        def step(x, y, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        for start in range(0, len(features), SHARD_BATCH):
            step(features[start : start + SHARD_BATCH], labels[start : start + SHARD_BATCH])
        assert_alike(model.get_weights())
        assert_near(model.get_weights(), expected)


def check_several_batches_an_update(folder):
    """Three batches a rank, reduced once, are one batch of all of them; added up, three times its gradient."""
    adam = keras.optimizers.Adam
    expected = plain_fit(adam(0.02), batches=3)
    averaged = hvd.DistributedOptimizer(
        adam(0.02), backward_passes_per_step=3, average_aggregated_gradients=True
    )
    in_keras = hvd.DistributedOptimizer(adam(0.02, gradient_accumulation_steps=3))
    for optimizer, how in ((averaged, {"steps_per_execution": 4}), (in_keras, {"eager": True})):
        model = distributed_fit(optimizer, **how)
        assert_alike(model.get_weights())
        assert_near(model.get_weights(), expected)
        assert int(optimizer.iterations) == STEPS // 3
    summed = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), backward_passes_per_step=3)
    found = distributed_fit(summed).get_weights()
    assert_near(found, plain_fit(keras.optimizers.SGD(0.03), batches=3))


def check_reduces_once_an_update(folder):
    """Counted where every step is Python: two of three batches cost no collective."""
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.01), backward_passes_per_step=3, average_aggregated_gradients=True
    )
    variable = keras.Variable([1.0, 2.0], dtype="float64")
    counts = []
    for _ in range(6):
        optimizer.apply_gradients([(tf.ones(2, variable.dtype), variable)])
        counts.append(optimizer._reduction.calls)
    assert counts == [0, 0, 1, 1, 1, 2]
    assert_near([variable.numpy()], [[0.98, 1.98]])


def check_loss_scale_optimizer(folder):
    """Equal to the plain one; an overflow on one rank is skipped on all."""
    make = keras.optimizers.LossScaleOptimizer
    expected = _plain_nesterov()
    optimizer = hvd.DistributedOptimizer(make(_nesterov(), initial_scale=2.0**10))
    model = distributed_fit(optimizer, 4)
    assert_near(model.get_weights(), expected)
    before, scale = model.get_weights(), float(optimizer.dynamic_scale)
    big = np.inf if hvd.rank() == hvd.size() - 1 else 1.0
    gradients = [big * tf.ones_like(each.value) for each in model.trainable_variables]
    optimizer.apply(gradients, model.trainable_variables)
    assert_near(model.get_weights(), before, 1e-300)
    assert float(optimizer.dynamic_scale) == scale / 2
    _raises("inside, not outside", make, hvd.DistributedOptimizer(_nesterov()))


def _words():
    """Of six global batches, four a row; and labels."""
    random = np.random.default_rng(3)
    words = random.integers(0, 7, (6 * SHARD_BATCH * hvd.size(), 4))
    return words, random.normal(size=(len(words), 1))


def _train_embedding(optimizer, data, batch_size, **how):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(7, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((4,), dtype="int32"), *layers])
    model.compile(optimizer, loss="mse", **how)
    fit(model, data, batch_size)
    return model.get_weights()


@functools.cache
def _plain_embedding():
    """Adam squares the rows, so that repeated ones matter: the plain loop's gradients are dense."""
    whole = SHARD_BATCH * hvd.size()
    return on_rank_0(lambda: _train_embedding(DenseAdam(0.02), _words(), whole, run_eagerly=True))


def check_embeddings(folder):
    """Only rows that a batch used travel, also repeated ones; other ranks have wrapped an optimizer more, unused."""
    for _ in range(hvd.rank()):
        hvd.DistributedOptimizer(keras.optimizers.Adam())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.02))
    shards = tuple(map(shard, _words()))
    found = _train_embedding(optimizer, shards, SHARD_BATCH, steps_per_execution=4)
    assert_near(found, _plain_embedding())


def check_embeddings_whole_or_alone(folder):
    """Whole gradients, or the rows of a rank that has all examples: the same weights."""
    adam, shards = keras.optimizers.Adam, tuple(map(shard, _words()))
    as_dense = hvd.DistributedOptimizer(adam(0.02), sparse_as_dense=True)
    found = _train_embedding(as_dense, shards, SHARD_BATCH, run_eagerly=True)
    assert_near(found, _plain_embedding())
    alone = hvd.DistributedOptimizer(adam(0.02), process_set=MYSELF[hvd.rank()])
    found = _train_embedding(alone, _words(), SHARD_BATCH * hvd.size(), run_eagerly=True)
    assert_near(found, _plain_embedding())


class DenseAdam(keras.optimizers.Adam):
    """Keras's, with dense gradients."""

    def apply(self, grads, trainable_variables=None):
        super().apply([tf.convert_to_tensor(each) for each in grads], trainable_variables)


def check_arguments(folder):
    """Sum is Average times the ranks; dividing before changes nothing; half precision is near."""
    make = keras.optimizers.SGD
    expected = plain_fit(make(0.03))
    distributed = hvd.DistributedOptimizer
    summed = distributed(make(0.03 / hvd.size()), op=hvd.Sum, name="summed")
    assert_near(distributed_fit(summed, eager=True).get_weights(), expected)
    divided = distributed(make(0.03), gradient_predivide_factor=4.0)
    assert_near(distributed_fit(divided, eager=True).get_weights(), expected)
    # fp16 has 11 bits.
    halved = distributed(make(0.03), compression=hvd.Compression.fp16)
    halved = distributed_fit(halved, eager=True)
    assert_alike(halved.get_weights())
    begin = make_model().get_weights()
    moved = [
        np.subtract(one, other) for one, other in zip(halved.get_weights(), begin, strict=True)
    ]
    should = [np.subtract(one, other) for one, other in zip(expected, begin, strict=True)]
    assert_near(moved, should, 2e-3)


def check_process_set(folder):
    """Two of three ranks reduce with each other, and the third alone."""
    if hvd.size() == 2:
        return
    variable = keras.Variable([1.0], dtype="float64")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=PAIR)
    if hvd.rank() < 2:
        gradient = tf.constant([float(1 + hvd.rank())], tf.float64)
        optimizer.apply_gradients([(gradient, variable)])
    assert_near([variable], [[-0.5 if hvd.rank() < 2 else 1.0]])


def check_refusals(folder):
    """One line for what cannot be done."""
    wrap, sgd = hvd.DistributedOptimizer, keras.optimizers.SGD
    _raises("groups is not supported", wrap, sgd(), num_groups=2)
    _raises("groups is not supported", wrap, sgd(), groups=[[]])
    _raises("scale_local_gradients", wrap, sgd(), scale_local_gradients=False)
    _raises("neither hvd.Average nor hvd.Sum", wrap, sgd(), op=hvd.Max)
    _raises("only for op=hvd.Average", wrap, sgd(), op=hvd.Sum, gradient_predivide_factor=2.0)
    _raises("whole number from 1", wrap, sgd(), backward_passes_per_step=0)
    _raises("give one", wrap, sgd(gradient_accumulation_steps=2), backward_passes_per_step=2)
    _raises("already", wrap, wrap(sgd()))
    _raises("takes an optimizer of Keras 3", wrap, "sgd")
    scaled = keras.optimizers.LossScaleOptimizer(sgd())
    _raises("gradient_accumulation_steps=2", wrap, scaled, backward_passes_per_step=2)
    built = sgd()
    built.build([keras.Variable([1.0])])
    _raises("no step", wrap, built, backward_passes_per_step=2)
    _raises("legacy_opts", hvd.load_model, "model.keras", legacy_opts=True)
    for name in ("elastic", "PartialDistributedOptimizer", "nonsense"):
        with pytest.raises(AttributeError, match=name):
            getattr(hvd, name)


def check_horovods_own_wrapper(folder):
    """With Keras 3 Horovod's own trains each rank for itself and says nothing: these batches make ranks differ."""
    import horovod.tensorflow.keras as own

    model = make_model()
    own_optimizer = own.DistributedOptimizer(keras.optimizers.SGD(0.05))
    model.compile(own_optimizer, loss="mse", run_eagerly=True)
    fit(model, tuple(map(shard, make_data())), SHARD_BATCH)
    (first, *others) = hvd.allgather_object(model.get_weights()[0])
    assert all(np.abs(other - first).max() > 1e-3 for other in others)
    callbacks = [
        (own.callbacks.BroadcastGlobalVariablesCallback(0), "'ref'"),
        (own.callbacks.MetricAverageCallback(), "'constant'"),
        (own.callbacks.LearningRateWarmupCallback(0.1), "'get_value'"),
    ]
    for callback, missing in callbacks:
        model.compile(keras.optimizers.SGD(0.05), loss="mse", run_eagerly=True)
        with pytest.raises(AttributeError, match=missing):
            fit(model, make_data(), 18, [callback])


def check_collectives(folder):
    """Horovod's operations on what Keras holds."""
    rank, size = hvd.rank(), hvd.size()
    mine = keras.Variable([1.0 + rank, -2.0 * rank])
    ranks = np.arange(size)
    assert_near([hvd.allreduce(mine)], [[1 + ranks.mean(), -2 * ranks.mean()]])
    assert_near([hvd.allreduce(mine, op=hvd.Sum)], [[size + ranks.sum(), -2 * ranks.sum()]])
    assert_near([hvd.allreduce(mine, op=hvd.Max)], [[size, 0]])
    assert_near([hvd.allreduce(mine, op=hvd.Min)], [[1, -2 * (size - 1)]])
    assert hvd.allgather(np.full((rank + 1, 2), rank)).shape == (math.comb(size + 1, 2), 2)
    assert_near([hvd.broadcast(mine, size - 1)], [[size, -2 * (size - 1)]])
    assert hvd.broadcast_object({"rank": rank}, 1) == {"rank": 1}
    assert hvd.allgather_object(rank) == [*ranks]
    unsigned = keras.Variable(np.array([7, 2**32 - 1 - rank]), dtype="uint32")
    hvd.broadcast_variables([mine, unsigned, tf.Variable(rank > 0)], 0)
    assert_near([mine, unsigned], [[1, 0], [7, 2**32 - 1]])
    # A type that Horovod does not send by itself; nothing to send; and one of three ranks that has the values.
    half, empty = tf.Variable([1.5 + rank], dtype=tf.bfloat16), tf.Variable(tf.zeros([0, 2]))
    hvd.broadcast_variables([half, empty], size - 1)
    assert half.numpy().tolist() == [0.5 + size]
    _raises("has 2 variables", hvd.broadcast_variables, [mine, mine][: 1 + (rank > 0)], 0)
    shapes = [keras.Variable(np.zeros(2 + rank))]
    _raises("variable 0 is", hvd.broadcast_variables, shapes, 0)
    assert (hvd.local_rank(), hvd.local_size()) == (rank, size)
    assert hvd.mpi_built()
    assert pathlib.Path(folder).is_dir()

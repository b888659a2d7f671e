"""The callbacks against closed forms and against one process that has all the data."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat.horovod as hvd
from tfmat.errors import InputError
from tfmat.optimizers import WarmupConstant
from tfmat_tests.horovod.problem import (
    SHARD_BATCH,
    STEPS,
    Recorder,
    assert_alike,
    assert_near,
    distributed_fit,
    fit,
    make_data,
    make_model,
    on_rank_0,
    shard,
)


def _broadcast(model, *arguments):
    """The callback that did it."""
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(*arguments)
    callback.set_params({"epochs": 1, "steps": 5})
    callback.set_model(model)
    callback.on_train_begin()
    return callback


def check_broadcast_of_all_state(folder):
    """Weights, moving statistics, slots, step and learning rate of the root; other random numbers on each rank."""

    def make(seed):
        keras.utils.set_random_seed(seed)
        layers = [
            keras.layers.Dense(4),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
        return keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])

    rank, root = hvd.rank(), hvd.size() - 1
    model = make(rank)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * (1 + rank))), loss="mse")
    if rank == root:  # as after a restore, on one rank alone
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(17)
        for i, variable in enumerate(model.optimizer.variables[2:]):
            variable.assign(0 * variable.value + i)
    state = [each for each in model.variables if not each.path.endswith("generator_state")]
    expected = hvd.broadcast_object([each.numpy() for each in state], root)

    callback = _broadcast(model, root)
    slots = model.optimizer.variables
    assert_alike([*state, *slots])
    assert_near([each.numpy() for each in state], expected, 1e-300)
    assert int(model.optimizer.iterations) == 17
    assert math.isclose(float(model.optimizer.learning_rate), 0.01 * hvd.size(), rel_tol=1e-6)
    assert all((each.numpy() == i).all() for i, each in enumerate(slots[2:]))

    (seed,) = (each for each in model.variables if each.path.endswith("generator_state"))
    seeds = hvd.allgather_object(seed.numpy().tolist())
    assert len({first for first, _ in seeds}) == hvd.size()
    callback.on_train_begin()  # again, in the next fit: still functions of the root's
    assert hvd.allgather_object(seed.numpy().tolist()) == seeds


def check_broadcast_of_other_optimizers_but_not_of_local_variables(folder):
    """A model of two networks has an optimizer for each; what is registered as local is kept."""
    model = make_model(seed=hvd.rank())
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse")
    model.critic = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1))
    model.critic.build(model.trainable_variables)
    model.critic.variables[2].assign(model.critic.variables[2] + hvd.rank() + 1)
    kept, sent = model.layers[0].kernel, model.layers[1].kernel
    before = kept.numpy()
    _broadcast(model, 0, "", [kept])
    assert_alike([*model.critic.variables, sent])
    assert np.all(model.critic.variables[2].numpy() == 1)
    np.testing.assert_array_equal(kept.numpy(), before)


class RestoresAt(keras.callbacks.Callback):
    """Goes on at that epoch, as BackupAndRestore does."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_train_begin(self, logs=None):
        self.model._initial_epoch = self.epoch


def check_callbacks_of_rank_0_alone(folder):
    """They stop, restore or change the rate there: every rank ends in one line instead of waiting or drifting apart."""
    for callback, message in (
        (keras.callbacks.EarlyStopping("loss", patience=0, min_delta=100), "rank 1 begins epoch 3, but"),
        (RestoresAt(2), "rank 1 begins epoch 1, but rank 0 begins epoch 3"),
        (
            keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=100),
            "rank 1 has learning rate .* the same callbacks .ReduceLROnPlateau",
        ),
    ):  # fmt: skip
        own = [callback] if hvd.rank() == 0 else []
        average = hvd.callbacks.MetricAverageCallback()
        with pytest.raises(InputError, match=message) as caught:
            distributed_fit(
                hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)),
                callbacks=[average, *own],
                eager=True,
                steps=1,
                epochs=4,
            )
        assert "\n" not in str(caught.value)


class StopsAt(keras.callbacks.Callback):
    """Stops after that batch, as TerminateOnNaN does."""

    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == self.batch


def check_a_stop_within_an_epoch(folder):
    """The rank that stops first waits for no gradient, nor do the others for its own."""
    with pytest.raises(InputError, match="different numbers of batches .2, 3.*same callbacks"):
        distributed_fit(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)),
            callbacks=[StopsAt(1 + hvd.rank())],
            steps=3,
            eager=True,
        )


def _fit_generated(batches):
    features, labels = make_data(6 * SHARD_BATCH)

    def generate():
        for i in range(batches):
            part = slice(i * SHARD_BATCH, (i + 1) * SHARD_BATCH)
            yield features[part], labels[part]

    inputs = keras.Input((3,))
    # Horovod's join takes part in sums, but not in the gathering of an embedding's rows.
    rows = keras.layers.Embedding(9, 2)(keras.ops.cast(keras.ops.abs(inputs), "int32"))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    specs = tuple(tf.TensorSpec((None, size), "float64") for size in (3, 1))
    data = tf.data.Dataset.from_generator(generate, output_signature=specs)
    model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
    return model.get_weights()


def check_generators_of_unknown_length(folder):
    """Of one length they train; where one ends before the others, all ranks say so instead of waiting."""
    assert_alike(_fit_generated(3))
    with pytest.raises(InputError, match="different numbers of batches .*3, 2.* in epoch 1; give"):
        _fit_generated(3 - (hvd.rank() > 0))


def check_validation_on_rank_0_alone(folder):
    """Its loss is in every rank's logs, so that all stop after the same epoch."""
    data = make_data(steps=1)
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=100)
    recorder = Recorder()
    distributed_fit(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)),
        callbacks=[hvd.callbacks.MetricAverageCallback(), stopping, recorder],
        eager=True,
        steps=1,
        epochs=4,
        validation_data=data if hvd.rank() == 0 else None,
    )
    assert len(recorder.logs) == 2
    assert_alike([logs["val_loss"] for logs in recorder.logs])


def check_lengths_are_compared(folder):
    """Ranks with other numbers of batches end with an error and not in waiting."""
    model = make_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse")
    count = 20 + 10 * hvd.rank()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with pytest.raises(InputError, match=r"batches an epoch \(2, 3"):
        fit(model, make_data(count), 10, [callback])
    # So do ranks with other optimizers, which have as many variables.
    optimizer = keras.optimizers.Lion() if hvd.rank() else keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(hvd.DistributedOptimizer(optimizer), loss="mse")
    with pytest.raises(InputError, match="rank 1 reduces the gradients of DistributedLion, but"):
        fit(model, make_data(20), 10, [callback])


def check_jit_compile_is_switched_off(folder):
    """Horovod's operation is not built for XLA, which Keras asks for by itself on GPUs."""
    model = make_model()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse", jit_compile=True
    )
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    fit(model, tuple(map(shard, make_data())), SHARD_BATCH, [callback])
    assert not model.jit_compile
    assert_alike(model.get_weights())


def check_metrics_over_unequal_shards(folder):
    """The metrics of an epoch are those of one process that has all examples, also where they are no means."""

    def compiled(optimizer):
        model = make_model()
        metrics = ["mae", keras.metrics.RootMeanSquaredError(), keras.metrics.R2Score()]
        model.compile(optimizer, loss="mse", metrics=metrics, run_eagerly=True)
        return model

    # Three batches on every rank, but of other sizes; validation has other numbers again.
    counts = [12 + 9 * rank for rank in range(hvd.size())]
    scales = [1.0 + rank for rank in range(hvd.size())]

    def parts(extra):
        data = [make_data(count + extra, seed=9 + count + extra) for count in counts]
        return [(x * scale, y * scale) for (x, y), scale in zip(data, scales, strict=True)]

    training, validation = parts(0), parts(1)
    recorder, rank = Recorder(), hvd.rank()
    # A rate of zero: all batches of the epoch see the same weights.
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)))
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        recorder,
    ]
    history = fit(
        model,
        training[rank],
        4 + 3 * rank,
        callbacks,
        epochs=2,
        validation_data=validation[rank],
        validation_freq=2,
    ).history

    def evaluated():
        """Metrics of all training examples and of all validation examples, and the loss of each training part."""
        alone = compiled(keras.optimizers.SGD(0.0))
        unions = [
            [np.concatenate(arrays) for arrays in zip(*data, strict=True)]
            for data in (training, validation)
        ]
        metrics = [alone.evaluate(*union, verbose=0, return_dict=True) for union in unions]
        return *metrics, [alone.evaluate(*part, verbose=0)[0] for part in training]

    of_training, of_validation, means = on_rank_0(evaluated)
    for prefix, expected, of_epoch in (("", of_training, 0), ("val_", of_validation, 1)):
        assert len(expected) == 4
        for name, value in expected.items():
            assert math.isclose(recorder.logs[of_epoch][prefix + name], value, rel_tol=1e-9), name
            assert math.isclose(history[prefix + name][0], value, rel_tol=1e-9), name
    # Horovod's mean of the ranks' means is another number.
    assert abs(np.mean(means) - recorder.logs[0]["loss"]) > 0.01 * recorder.logs[0]["loss"]


def check_other_logs_are_averaged(folder):
    """What is no metric of the model: mean over the ranks, weighted by their examples."""

    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["own"] = 10.0 * hvd.rank()

    recorder = Recorder()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, loss="mse", run_eagerly=True)
    counts = [4 + 2 * rank for rank in range(hvd.size())]
    callbacks = [Own(), hvd.callbacks.MetricAverageCallback(), recorder]
    fit(model, make_data(counts[hvd.rank()]), 100, callbacks)
    expected = np.average(10.0 * np.arange(hvd.size()), weights=counts)
    assert math.isclose(recorder.logs[0]["own"], expected)


def _ramp(peak, factor, steps):
    """Horovod's formula at each of the first `steps` batches (counted from 1)."""
    return [peak / factor * (1 + (factor - 1) * (i + 1) / steps) for i in range(steps)]


def check_warmup_rates(folder):
    """Horovod's formula, for both scalings; then the rate is left alone."""
    steps = 2
    for scaling, factor in (("linear", hvd.size()), ("sqrt", math.sqrt(hvd.size()))):
        recorder = Recorder()
        warmup = hvd.callbacks.LearningRateWarmupCallback(0.04, 2, scaling=scaling)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.04))
        distributed_fit(optimizer, callbacks=[warmup, recorder], epochs=3, steps=steps, eager=True)
        expected = [*_ramp(0.04, factor, 2 * steps), *[0.04] * steps]
        np.testing.assert_allclose(recorder.rates, expected, rtol=1e-6)
        assert math.isclose(recorder.logs[0]["lr"], expected[steps - 1], rel_tol=1e-6)
        schedule = WarmupConstant(0.04, 2 * steps, warmup_start=1 / factor)  # of the main job
        rates = [float(schedule(step)) for step in range(3 * steps)]
        np.testing.assert_allclose(recorder.rates, rates, rtol=1e-6)
    # With 4 steps a call: the value for the first of them, and the end value from the end on.
    recorder = Recorder()
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.04, 2, steps_per_epoch=STEPS)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.04))
    distributed_fit(optimizer, 4, [warmup, recorder], epochs=3)
    ramp = _ramp(0.04, hvd.size(), 2 * STEPS)
    expected = [ramp[0], ramp[4], ramp[6], ramp[10], 0.04, 0.04]
    np.testing.assert_allclose(recorder.rates, expected, rtol=1e-6)


def check_momentum_correction(folder):
    """A loop in NumPy with velocities that do not hold the rate (Goyal et al. 2017)."""
    steps, batch = 3, SHARD_BATCH * hvd.size()
    features, labels = make_data(steps=steps)
    rates = [*_ramp(0.05, hvd.size(), 2 * steps), *[0.05] * steps]
    momentum = float(np.float32(0.9))  # so Keras casts it, whatever the weights are
    for nesterov in (False, True):
        weights, velocity = np.zeros((3, 1)), np.zeros((3, 1))
        for i, rate in enumerate(rates):
            part = slice(i % steps * batch, (i % steps + 1) * batch)
            error = features[part] @ weights - labels[part]
            gradient = 2 * features[part].T @ error / batch
            velocity = momentum * velocity + gradient
            weights = weights - rate * (momentum * velocity + gradient if nesterov else velocity)

        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.layers.Input((3,)), layer])
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9, nesterov=nesterov)
        model.compile(hvd.DistributedOptimizer(optimizer), loss="mse", run_eagerly=True)
        warmup = hvd.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=2)
        fit(model, (shard(features), shard(labels)), SHARD_BATCH, [warmup], epochs=3)
        assert_near(model.get_weights(), [weights])


def check_schedule(folder):
    """Steps and ramps between two epochs, and the rate of Horovod's exponential decay."""
    steps = 2

    def rates(*schedules, epochs=4):
        recorder = Recorder()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
        distributed_fit(
            optimizer, callbacks=[*schedules, recorder], epochs=epochs, steps=steps, eager=True
        )
        return recorder.rates

    schedule = hvd.callbacks.LearningRateScheduleCallback
    found = rates(
        schedule(0.2, lambda epoch: 1.0, 1, 2), schedule(0.2, lambda epoch: 0.1**epoch, 2)
    )
    expected = np.repeat([0.5, 0.2, 0.2 * 0.01, 0.2 * 0.001], steps)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found = rates(schedule(0.2, 0.5, start_epoch=1), epochs=3)
    np.testing.assert_allclose(found[::steps], [0.5, 0.2, 0.1], rtol=1e-6)
    found = rates(schedule(0.2, lambda epoch: 1 + epoch, staircase=False), epochs=2)
    np.testing.assert_allclose(found, [0.2 * (1 + i / steps) for i in range(2 * steps)], rtol=1e-6)


def check_learning_rate_refusals(folder):
    """One line for what cannot be done."""
    decay = keras.optimizers.schedules.CosineDecay(0.1, 100)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(decay))
    warmup = hvd.callbacks.LearningRateWarmupCallback
    cases = [
        ("has a schedule", lambda: distributed_fit(optimizer, callbacks=[warmup(0.1)])),
        ("'linear' or 'sqrt'", lambda: warmup(0.1, scaling="cubic")),
        ("initial_lr is needed", lambda: warmup(None)),
    ]
    for part, function in cases:
        with pytest.raises(InputError, match=part):
            function()

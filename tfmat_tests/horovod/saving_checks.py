"""Saved models go on as if never saved: their DistributedOptimizer, named as the user's own, and the warm-up."""

import keras
import numpy as np

import tfmat.horovod as hvd
from tfmat_tests.horovod.problem import (
    SHARD_BATCH,
    Recorder,
    assert_alike,
    assert_near,
    distributed_fit,
    fit,
    make_data,
    make_model,
    plain_fit,
    shard,
)


def check_saved_model(folder):
    """A model goes on after hvd.load_model as if never saved; pytest loads it without Horovod."""
    data = tuple(map(shard, make_data()))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.02))
    assert isinstance(optimizer, keras.optimizers.Adam)
    model = distributed_fit(optimizer, 4)
    if hvd.rank() == 0:
        model.save(folder / "model.keras")
        np.savez(folder / "model.npz", *model.get_weights(), *optimizer.variables)
    hvd.broadcast_object(None, 0)  # the others read after it is written
    loaded = hvd.load_model(str(folder / "model.keras"))
    assert_near([*loaded.optimizer.variables], [*optimizer.variables], 1e-300)
    fit(loaded, data, SHARD_BATCH)
    assert_alike(loaded.get_weights())
    assert_near(loaded.get_weights(), plain_fit(keras.optimizers.Adam(0.02), epochs=2))


def check_summed_gradients_are_saved(folder):
    """Gradients of two batches add up after a restore as before it; their mean would make steps of half the length."""
    path, data = str(folder / "summed.keras"), tuple(map(shard, make_data(steps=2)))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.02), backward_passes_per_step=2)
    model = distributed_fit(optimizer, steps=2)
    if hvd.rank() == 0:
        model.save(path)
    hvd.broadcast_object(None, 0)
    loaded = hvd.load_model(path)
    for each in (model, loaded):
        fit(each, data, SHARD_BATCH)
    assert_near(loaded.get_weights(), model.get_weights())


def check_own_optimizer_class(folder):
    """A registered class of the user's keeps its name in a saved model, and what its config does not hold."""

    @keras.saving.register_keras_serializable("tests")
    class Halving(keras.optimizers.SGD):
        def _get_current_learning_rate(self):
            return super()._get_current_learning_rate() / 2

    inner = Halving(0.1)
    inner.exclude_from_weight_decay(var_names=["bias"])
    optimizer = hvd.DistributedOptimizer(inner)
    config = keras.saving.serialize_keras_object(optimizer)
    assert config["registered_name"] == "tests>Halving", config
    assert type(keras.saving.deserialize_keras_object(config)) is Halving
    assert optimizer._exclude_from_weight_decay_pattern
    model = distributed_fit(optimizer, eager=True)
    assert_near(model.get_weights(), plain_fit(keras.optimizers.SGD(0.05)))


def check_warmup_of_a_run_that_goes_on(folder):
    """Saved within the warm-up and at its end: rates and weights are those of a run that never stopped."""
    steps = 2  # of an epoch
    data = tuple(map(shard, make_data(steps=steps)))
    path = str(folder / "stopped-{epoch}.keras")

    def callbacks(recorder):
        return [hvd.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=2), recorder]

    def optimizer():
        return hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True))

    def go_on(model, stop, **options):
        recorder = Recorder()
        fit(model, data, SHARD_BATCH, callbacks(recorder), **options)
        np.testing.assert_allclose(recorder.rates, straight.rates[stop * steps :], rtol=1e-6)

    straight = Recorder()
    saving = [keras.callbacks.ModelCheckpoint(path)] if hvd.rank() == 0 else []
    model = distributed_fit(
        optimizer(), callbacks=[*callbacks(straight), *saving], epochs=3, steps=steps
    )
    expected = model.get_weights()
    hvd.broadcast_object(None, 0)  # the others read after it is written
    # Told by fit where it goes on, or by the optimizer's step alone.
    ways = [{"initial_epoch": 1, "epochs": 3}, {"epochs": 2}]
    for stop, options in ((1, ways), (2, [{"initial_epoch": 2, "epochs": 3}])):
        loaded = hvd.load_model(path.format(epoch=stop))
        loaded.run_eagerly = True
        state = [*loaded.variables, *loaded.optimizer.variables]
        begin = [variable.numpy() for variable in state]
        for each in options:
            for variable, value in zip(state, begin, strict=True):
                variable.assign(value)
            go_on(loaded, stop, **each)
            assert_near(loaded.get_weights(), expected)
    # Weights alone were restored: fit tells.
    model = make_model()
    model.compile(optimizer(), loss="mse", run_eagerly=True)
    go_on(model, 1, initial_epoch=1, epochs=3)

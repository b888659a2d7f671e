"""A DistributedOptimizer in saved models: they go on as if never saved, and name the user's own optimizer."""

import keras
import numpy as np

import tfmat.horovod as hvd
from tfmat_tests.horovod.problem import (
    SHARD_BATCH,
    assert_alike,
    assert_near,
    distributed_fit,
    fit,
    make_data,
    plain_fit,
    shard,
)


def check_saved_model(folder):
    """A model goes on after hvd.load_model as if never saved; pytest loads it without Horovod."""
    data = tuple(map(shard, make_data()))
    whole = distributed_fit(hvd.DistributedOptimizer(keras.optimizers.Adam(0.02)), 7, epochs=4)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.02))
    assert isinstance(optimizer, keras.optimizers.Adam)
    model = distributed_fit(optimizer, 7)
    if hvd.rank() == 0:
        model.save(folder / "model.keras")
        np.savez(folder / "model.npz", *model.get_weights(), *optimizer.variables)
    hvd.broadcast_object(None, 0)  # the others read after it is written
    loaded = hvd.load_model(str(folder / "model.keras"))
    assert_near([*loaded.optimizer.variables], [*optimizer.variables], 1e-300)
    fit(loaded, data, SHARD_BATCH)
    assert_alike(loaded.get_weights())
    assert_near(loaded.get_weights(), whole.get_weights())


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
    model = distributed_fit(optimizer)
    assert_near(model.get_weights(), plain_fit(keras.optimizers.SGD(0.05)))

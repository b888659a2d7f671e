"""What the checks share: a small regression, its parts for the ranks, and a plain Keras fit to compare with."""

import horovod.tensorflow as horovod
import keras
import numpy as np

import tfmat.horovod as hvd

# Two ranks of three, where there are three.
PAIR = hvd.ProcessSet([0, 1])
# Each rank by itself.
MYSELF = [hvd.ProcessSet([rank]) for rank in range(3)]
SHARD_BATCH = 6
STEPS = 6
TOLERANCE = 1e-9


class Recorder(keras.callbacks.Callback):
    """Learning rates at every call of steps, and the logs that a callback late in the list sees."""

    def __init__(self):
        super().__init__()
        self.rates, self.logs = [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append(dict(logs))


def make_model(seed=0):
    """Three inputs, one output, tanh; the same weights for the same seed."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)]
    )


def make_data(count=None, seed=1, steps=STEPS):
    """Features [count, 3] and labels [count, 1]; by default `steps` batches of every rank."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count or steps * SHARD_BATCH * hvd.size(), 3))
    return features, np.sin(features).sum(1, keepdims=True)


def shard(array):
    """This rank's part of every global batch, one after the other."""
    batches = array.reshape(-1, hvd.size(), SHARD_BATCH, *array.shape[1:])
    return batches[:, hvd.rank()].reshape(-1, *array.shape[1:])


def fit(model, data, batch_size, callbacks=(), epochs=1, **options):
    """A quiet `fit` in the order of the data."""
    return model.fit(
        *data,
        batch_size=batch_size,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **options,
    )


def on_rank_0(function, *arguments):
    """What `function(...)` returns on rank 0, on every rank; the others need not compute it."""
    return hvd.broadcast_object(function(*arguments) if hvd.rank() == 0 else None, 0)


def plain_fit(optimizer, model=None, batches=1, epochs=1):
    """Weights after a fit of one process, rank 0, on the whole of each global batch, or of several as one."""

    def weights():
        chosen = model or make_model()
        chosen.compile(optimizer, loss="mse", run_eagerly=True)
        fit(chosen, make_data(), SHARD_BATCH * hvd.size() * batches, epochs=epochs)
        return chosen.get_weights()

    return on_rank_0(weights)


def distributed_fit(
    optimizer, steps_per_execution=1, callbacks=(), *, eager=False, steps=STEPS, **options
):
    """A model after a fit on this rank's parts, as a graph or not; each rank begins with weights of its own."""
    model = make_model(seed=hvd.rank())
    model.compile(optimizer, loss="mse", steps_per_execution=steps_per_execution, run_eagerly=eager)
    data = tuple(map(shard, make_data(steps=steps)))
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    fit(model, data, SHARD_BATCH, [broadcast, *callbacks], **options)
    return model


def assert_near(found, expected, tolerance=TOLERANCE):
    """Every array within `tolerance` of the other, in relative norm."""
    for one, other in zip(found, expected, strict=True):
        error = np.linalg.norm(np.subtract(one, other)) / max(np.linalg.norm(other), 1e-30)
        assert error < tolerance, error


def assert_alike(arrays):
    """The same arrays on every rank, bit for bit."""
    every = horovod.allgather_object([np.asarray(array) for array in arrays])
    for other in every:
        for one, two in zip(other, every[0], strict=True):
            np.testing.assert_array_equal(one, two)

"""What pipeline stages must reproduce: small networks, trained by stages or by one process."""

import keras
import numpy as np
from keras import layers

from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.backends.step import dense_layers
from tfmat.config import MeshShape
from tfmat.optimizers import make_functional
from tfmat_tests.backends.problem import OPTIMIZERS, blocks, make_model, set_precision

# The sixth batch of an epoch is a partial one, of which some micro-batches and one of two workers have nothing.
NUM_EXAMPLES, BATCH, STEPS = 253, 48, 20


def make_data():
    """(features [examples, 48, 3], labels [examples, 2])."""
    random = np.random.default_rng(0)
    features = random.normal(size=(NUM_EXAMPLES, 48, 3)).astype(np.float32)
    labels = np.stack([features[:, :, 0].mean(1), np.tanh(features[:, 5, 1])], 1)
    return features, labels


def residual_model(dropout=0.0, width=12):
    """Blocks with a residual connection, weights with penalties, a layer that is called twice."""
    keras.utils.set_random_seed(4)
    x = inputs = layers.Input((48, 3))
    x = layers.Dense(width, name="first")(layers.Flatten(name="flat")(x))
    for i in range(2):
        y = layers.Dense(width, activation="tanh", kernel_regularizer="l2", name=f"inner{i}")(x)
        x = layers.Add(name=f"sum{i}")([x, layers.Dense(width, name=f"outer{i}")(y)])
    x = layers.Dropout(dropout, seed=3, name="dropout")(x) if dropout else x
    return keras.Model(inputs, layers.Dense(2, name="last")(x))


def optimizer_of(case):
    """The case's, which clips where it says so, and takes steps as long as that says."""
    optimizer = OPTIMIZERS[case.get("optimizer", "adam")]()
    if "rate" in case:
        optimizer.learning_rate = case["rate"]
    optimizer.global_clipnorm = case.get("clip")
    return optimizer


def train(case, data, rank=0):
    """Weights, slots and sums after 20 steps, what `evaluate` sums and `predict` answers; of rank 0 the whole."""
    set_precision(case.get("precision", "float32"))
    shape = {key: case[key] for key in ("dropout", "width") if key in case}
    model = (
        make_model(hidden_units=(case["width"],))
        if case.get("network")
        else residual_model(**shape)
    )
    if rank:  # what rank 0 does not say must not matter
        model.set_weights([0 * w if w.dtype.kind == "f" else w for w in model.get_weights()])
    options = dict(case.get("options", {}))
    mesh = MeshShape.parse(options.pop("mesh", "batch:1"))
    with make_backend(case.get("backend", "single"), mesh=mesh, **options) as backend:
        backend.build(
            model,
            make_functional(optimizer_of(case)),
            per_example_function("mse"),
            {"mae": per_example_function("mean_absolute_error")},
            bfloat16=list(dense_layers(model).values()) if case.get("bfloat16") else (),
        )
        backend.synchronize()
        calls = list(blocks(backend, data, [7, 13], num_examples=NUM_EXAMPLES, batch=BATCH))
        sums, saved = [], None
        for block in calls:
            sums.append(backend.train(*block))
            if case.get("resume") and len(sums) == 1:
                saved = backend.read()
                backend.sync_model()  # and on with rank 0's memory as before
        if saved:  # back, and the same again
            start = backend.collectives.broadcast(saved)
            backend.write(start if rank == 0 else {n: 0 * a for n, a in start.items()})
            backend.synchronize()
            for block, before in zip(calls[1:], sums[1:], strict=True):
                np.testing.assert_array_equal(backend.train(*block), before)
        backend.check_replicas(STEPS)
        found = {}
        if "dropout" not in case:  # of which only the steps are looked at
            columns = backend.columns(BATCH)
            rows = np.arange(5 * BATCH, dtype=np.int32).reshape(5, BATCH)[:, columns]
            ones = np.ones(rows.shape, np.float32)
            found["evaluated"] = backend.evaluate(backend.place(data), rows, ones, ones.sum(1))
        found |= {name.replace("/", "-"): array for name, array in backend.read().items()}
        backend.sync_model()
    found["sums"] = np.concatenate(sums)
    return found | {f"model-{i}": w for i, w in enumerate(model.get_weights() if not rank else [])}

"""Recomputation: the same training as without it, in less memory."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.backends.pipeline import make_stages
from tfmat.backends.segments import recomputation_of
from tfmat.backends.step import Batch, State, Step, chosen_layers
from tfmat.errors import InputError
from tfmat.optimizers import make_functional
from tfmat_tests import graphs
from tfmat_tests.backends.problem import OPTIMIZERS, make_model, relative_error

STEPS, EXAMPLES = 4, 12
MSE = per_example_function("mse")


def residual_model(normalize=True, width=6):
    """Everything that a second computation could get wrong: masks, moving statistics, penalties, a layer used twice."""
    keras.utils.set_random_seed(3)
    x = inputs = layers.Input((8,))
    x = layers.Dense(width, name="first")(x)
    shared = layers.Dense(width, activation="tanh", name="shared")
    for i in range(3):
        y = layers.Dense(width, activation="tanh", kernel_regularizer="l2", name=f"inner{i}")(x)
        y = layers.Dropout(0.5, seed=i)(y) if normalize else y
        y = layers.BatchNormalization(name=f"norm{i}")(y) if normalize else y
        x = layers.Add(name=f"sum{i}")([x, y])
    return keras.Model(inputs, layers.Dense(2, name="last")(shared(shared(x))))


def trained(model, optimizer, bfloat16=(), **options):
    """The state after a few steps, two of them in a call, and their sums."""
    random = np.random.default_rng(0)
    features = random.normal(size=(EXAMPLES, *model.input_shape[1:])).astype(keras.config.floatx())
    labels = random.normal(size=(EXAMPLES, 2)).astype(keras.config.floatx())
    backend = make_backend("single", **options)
    backend.build(model, make_functional(optimizer), MSE, {}, bfloat16=bfloat16)
    data = backend.place((features, labels))
    rows = np.stack([random.permutation(EXAMPLES) for _ in range(STEPS)]).astype(np.int32)
    weights = np.ones(rows.shape, np.float32)
    weights[1, 9:] = 0
    counts = weights.sum(1)
    calls = [slice(0, 2), slice(2, STEPS)]
    sums = [backend.train(data, rows[c], weights[c], counts[c]) for c in calls]
    return backend.read() | {"sums": np.concatenate(sums)}


def check_equal(found, expected, bound=1e-9):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert relative_error(found[name] * 1.0, value * 1.0, 1e-6) < bound, name


@functools.cache
def _without():
    """What all cuts are compared with; the optimizer comes after the gradients, which are all that a cut touches."""
    return trained(residual_model(), OPTIMIZERS["nesterov"]())


@pytest.mark.parametrize("where", ["every:1", "every:2", "first,sum[01]"])
def test_the_same_training(where, float64):
    expected = _without()
    check_equal(trained(residual_model(), OPTIMIZERS["nesterov"](), recompute=where), expected)
    moved = np.concatenate([expected[f"non_trainable/{i}"].ravel() for i in range(3)])
    assert np.ptp(moved) > 0  # the statistics did


def test_a_network_of_a_config(float64):
    """Against a plain Keras loop see `horovod_test.py`, whose ranks recompute too."""
    options = {"hidden_units": (25,), "dropout": 0.2, "batch_normalization": "synchronized"}
    options |= {"conv_filters": (4,), "kernel_sizes": (3,)}
    expected = trained(make_model(**options), OPTIMIZERS["nesterov"]())
    found = trained(make_model(**options), OPTIMIZERS["nesterov"](), recompute="every:1")
    check_equal(found, expected)


@pytest.mark.parametrize(
    ("where", "gradients_follow", "times"),
    [(None, True, 1), ("every:100", True, 1), ("every:100", False, 2), ("sum2", False, 2)],
)
def test_a_stage_is_computed_again_where_others_come_between(where, gradients_follow, times):
    """Counted in the graph: its two layers with a tanh, for the stage in one piece and with a cut of another stage."""
    model = residual_model(normalize=False)
    stage = make_stages(model, 2, "sum1").segments[0]
    step = Step(stage, make_functional("adam"), MSE, {})
    step.recomputation = where and recomputation_of(stage, where, model, gradients_follow)
    weights = [tf.constant(v.numpy()) for v in stage.trainable_variables]
    features = tf.ones((4, 8), weights[0].dtype)
    batch = Batch(features, features, tf.ones(4), tf.constant(4.0))

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, _, _ = step.forward(weights, [], batch)
        return tape.gradient(outputs, weights)

    graph = tf.function(gradients, autograph=False).get_concrete_function().graph
    assert [each.type for each in graph.get_operations()].count("Tanh") == 2 * times


def test_parts_of_a_batch(float64):
    expected = trained(residual_model(normalize=False), keras.optimizers.SGD(0.1))
    found = trained(
        residual_model(normalize=False), keras.optimizers.SGD(0.1), recompute="sum0", accumulate=3
    )
    check_equal(found, expected)


def test_pieces_side_by_side(float64):
    """As on several processors, see `num_pieces`."""
    model = residual_model(normalize=False)
    random = np.random.default_rng(0)
    pieces = [
        Batch(
            tf.constant(random.normal(size=(4, 8))),
            tf.constant(random.normal(size=(4, 2))),
            tf.ones(4, tf.float64),
            tf.constant(8.0, tf.float64),
        )
        for _ in range(2)
    ]
    found = []
    for where in (None, "every:1"):
        optimizer = make_functional("adam")
        optimizer.build(model.trainable_variables)
        step = Step(model, optimizer, MSE, {})
        step.recomputation = where and recomputation_of(model, where)
        state = State(
            *([tf.identity(v) for v in p] for p in State.variables_of(model, optimizer)[:3])
        )
        gradients, _, _ = tf.function(step.gradients, autograph=False)(state, pieces)
        found.append(gradients)
    for gradient, expected in zip(found[1], found[0], strict=True):
        assert relative_error(gradient.numpy(), expected.numpy()) < 1e-12


def test_layers_compute_in_bfloat16_the_second_time_too():
    found = []
    for where in ("none", "every:1"):
        model = residual_model(normalize=False, width=64)
        chosen = chosen_layers(model, {f"inner{i}": True for i in range(3)} | {"shared": True})
        found.append(trained(model, keras.optimizers.SGD(0.1), bfloat16=chosen, recompute=where))
    check_equal(found[1], found[0], 1e-6)
    exact = trained(residual_model(normalize=False, width=64), keras.optimizers.SGD(0.1))
    differing = relative_error(found[0]["weights/2"], exact["weights/2"])
    assert differing > 1e-6  # or nothing was in bfloat16


MEMORY = """
import resource
import keras, numpy as np
from keras import layers
from tfmat.backends import make_backend
from tfmat.backends.losses import per_example_function
from tfmat.optimizers import make_functional
x = inputs = layers.Input((64,))
for i in range(6):
    y = layers.Dense(256, activation="tanh")(x)
    x = layers.Add(name=f"sum{i}")([x, layers.Dense(64)(layers.Activation("gelu")(y))])
model = keras.Model(inputs, layers.Dense(1)(x))
for size, where in ((8, "sum.*"), (4096, "sum.*"), (4096, "none")):  # the first: what TensorFlow takes for itself
    backend = make_backend("single", recompute=where)
    backend.build(model, make_functional("sgd"), per_example_function("mse"), {})
    data = backend.place((np.ones((size, 64), "f"), np.ones((size, 1), "f")))
    backend.train(data, np.arange(size, dtype=np.int32)[None], np.ones((1, size), "f"), np.full(1, size, "f"))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_it_takes_less_memory(programs):
    # TensorFlow must not find that something is computed twice.
    optimized = {graphs.PLAIN: ""}
    start, again, plain = map(int, programs.python("-c", MEMORY, **optimized).split())
    assert again - start < 0.6 * (plain - start)


@pytest.mark.parametrize(
    ("where", "message"),
    [("every:0", "every:K with K of 1 or more"), ("every:9", "leaves the model in one piece")],
)
def test_refused(where, message):
    def build():
        backend = make_backend("single", recompute=where)
        backend.build(residual_model(), make_functional("adam"), MSE, {})

    with pytest.raises(InputError, match=message):
        build()

"""Steps of workers that each hold a part of the slots, against Keras's own optimizer with all of them."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends import make_backend
from tfmat.backends.exchange import Exchange, Float16
from tfmat.backends.step import State
from tfmat.backends.zero import DividedUpdate, Division
from tfmat.errors import InputError
from tfmat.optimizers import LAMB, LARC, LARS, NovoGrad, make_functional
from tfmat_tests.backends.threads import Threads

# Some that nothing divides, one with fewer numbers than workers, and a scalar.
SHAPES = {"kernel": (7, 5), "bias": (5,), "filters": (2, 3, 2), "gamma": (1,), "scale": ()}
RANDOM = np.random.default_rng(0)
START = [RANDOM.normal(size=shape) for shape in SHAPES.values()]
# [steps][workers][weights]
GRADIENTS = [[[RANDOM.normal(size=w.shape) for w in START] for _ in range(4)] for _ in range(2)]
SUMS = [RANDOM.normal(size=3) for _ in range(4)]

optimizers = keras.optimizers

pytestmark = pytest.mark.usefixtures("float64")


def adamw():
    optimizer = optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma"])
    return optimizer


OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": adamw,
    "nadam": lambda: optimizers.Nadam(0.01),
    "adamax": lambda: optimizers.Adamax(0.01, clipvalue=0.5),
    "rmsprop": lambda: optimizers.RMSprop(0.01, momentum=0.9, centered=True),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adadelta": lambda: optimizers.Adadelta(0.1),
    "ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "lion": lambda: optimizers.Lion(0.01),
    "scaled": lambda: optimizers.Adam(0.01, loss_scale_factor=8.0, global_clipnorm=0.5),
    "clipped": lambda: optimizers.SGD(0.1, global_clipnorm=0.5),
    "clipped apart": lambda: optimizers.SGD(0.1, clipnorm=1.0),
    "lars": lambda: LARS(1.0, 0.01, weight_decay=0.1),
    "larc": lambda: LARC(0.1, 0.02, weight_decay=0.1, global_clipnorm=0.5),
    "lamb": lambda: LAMB(0.01, weight_decay=0.1),
    "novograd": lambda: NovoGrad(0.01, weight_decay=0.1),
}
# What the norms of whole tensors cost in collectives, beside the two of every step.
NORMS = {"scaled": 1, "clipped": 1, "clipped apart": 1, "lars": 1, "larc": 2, "lamb": 1, "novograd": 1}  # fmt: skip


def test_variables_that_weight_decay_leaves_out():
    """By themselves, not by their names."""
    weights = variables()
    optimizer = keras.optimizers.AdamW(0.01)
    optimizer.exclude_from_weight_decay(weights[:1])
    functional = make_functional(optimizer)
    Division(weights, 2, 0).build(functional)
    decaying = [functional._use_weight_decay(part) for part in functional._trainable_variables]
    assert decaying == [False, True, True, True, True]


def variables():
    return [keras.Variable(value, name=name) for name, value in zip(SHAPES, START, strict=True)]


def train_in_parts(name, workers, whole=Exchange):
    """Of each worker: weights, slots whole, sums, collectives beside the first, bytes, numbers of its slots."""

    def train(rank, collectives):
        keras.config.set_floatx("float64")
        division = Division(variables(), workers, rank)
        optimizer = make_functional(OPTIMIZERS[name]())
        division.build(optimizer)
        update = DividedUpdate(division, optimizer, whole(collectives))
        state = State(
            [tf.constant(value) for value in START],
            [],
            [tf.convert_to_tensor(variable.value) for variable in optimizer.variables],
        )
        for gradients in GRADIENTS:
            given = [tf.constant(g) for g in gradients[rank]]
            weights, slots, sums, _ = update.update(
                optimizer.stateless_apply, state, given, tf.constant(SUMS[rank])
            )
            state = State(weights, [], slots)
        whole_slots = [
            slot if owner is None else division.whole(collectives.collect([slot])[0], owner)
            for slot, owner in zip(state.slots, division.owners(optimizer), strict=True)
        ]
        held = sum(math.prod(slot.shape) for slot in state.slots)
        return state.weights, whole_slots, sums, update.num_updating, collectives.bytes, held

    return Threads(workers).run(train)


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 3) for name in OPTIMIZERS), ("sgd", 2), ("sgd", 4), ("lamb", 4)]
)
def test_parts_step_as_the_whole_does(name, workers):
    reference, expected = OPTIMIZERS[name](), variables()
    reference.build(expected)
    for gradients in GRADIENTS:
        total = [sum(own) for own in zip(*gradients[:workers], strict=True)]
        reference.apply([tf.constant(g) for g in total], expected)
    for weights, slots, sums, num_updating, *_ in train_in_parts(name, workers):
        for variable, weight in zip(expected, weights, strict=True):
            np.testing.assert_allclose(weight, variable, rtol=1e-11, atol=1e-14)
        # Nadam's product of decays is one that Keras does not count among its variables.
        for variable, slot in zip(reference.variables, slots, strict=name != "nadam"):
            np.testing.assert_allclose(slot, variable, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(sums, sum(SUMS[:workers]), rtol=1e-14)
        assert num_updating == 1 + NORMS.get(name, 0)


def test_a_part_of_the_slots_and_no_more_bytes_than_a_sum_of_gradients():
    """(R - 1) / R of the gradients are sent, and as much of the weights: padded, and the sums to everybody."""
    *_, sent, held = train_in_parts("adam", 4)[0]
    padded = 4 * sum(-(-math.prod(shape) // 4) for shape in SHAPES.values())
    # Iterations, learning rate; amsgrad has three slots for each weight.
    assert held == 2 + 3 * padded / 4
    collected = 3 * padded / 4  # of the slots, for the test
    assert sent == 8 * (len(GRADIENTS) * (3 / 4 * 2 * padded + 3 * 3) + 3 * collected)


def test_gradients_in_half_precision():
    """Each is rounded to 11 bits, and their sum again; with SGD the weights move by that."""
    exact, halved = (train_in_parts("clipped", 2, whole)[0] for whole in (Exchange, Float16))
    a, b, start = (
        np.concatenate([np.ravel(w) for w in each]) for each in (exact[0], halved[0], START)
    )
    assert 0 < np.linalg.norm(a - b) < 2e-3 * np.linalg.norm(a - start)
    assert halved[4] < 0.7 * exact[4]


class Twice(keras.optimizers.SGD):
    """May look at whole tensors."""


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (keras.optimizers.Adafactor(), "Adafactor does not work with zero_stage"),
        (Twice(), "Twice does not work .* use one of SGD, .*, NovoGrad, or zero_stage=0"),
    ],
)
def test_optimizers_of_whole_tensors(optimizer, message):
    with pytest.raises(InputError, match=message) as caught:
        Division(variables(), 2, 0).build(make_functional(optimizer))
    assert "\n" not in str(caught.value)


def test_weights_and_settings_that_are_refused():
    averaged = keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=3)
    with pytest.raises(InputError, match="use_ema does not work with zero_stage"):
        Division(variables(), 2, 0).build(make_functional(averaged))
    dense = keras.layers.Dense(2, kernel_constraint="max_norm", name="bound")
    dense.build((None, 3))
    with pytest.raises(InputError, match="weight 'bound/kernel' has a constraint"):
        Division(dense.trainable_variables, 2, 0).build(make_functional("adam"))
    mixed = [*variables(), keras.Variable(np.ones(3, "f"))]
    with pytest.raises(InputError, match="weights of one type"):
        Division(mixed, 2, 0).build(make_functional("adam"))


def test_one_process_has_nothing_to_divide():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    optimizer, backend = (make_functional("adam"), make_backend("horovod", zero_stage=2))
    backend.build(model, optimizer, lambda *_: 0.0, {})
    assert [tuple(v.shape) for v in optimizer.variables[2:4]] == [(3, 2), (3, 2)]

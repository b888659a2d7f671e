import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import OPTIONS, OptimizerSection
from tfmat.errors import InputError
from tfmat.optimizers import OPTIMIZER_CLASSES, build_optimizer, make_functional

NAMES = OPTIONS["optimizer.name"].choices
RANDOM = np.random.default_rng(0)
START = [RANDOM.normal(size=shape).astype(np.float32) for shape in ((7, 5), (5,))]
GRADIENTS = [[RANDOM.normal(size=w.shape).astype(np.float32) for w in START] for _ in range(4)]


def _variables():
    return [keras.Variable(value, name=f"w{i}") for i, value in enumerate(START)]


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", NAMES)
def test_same_updates_as_the_stock_optimizer(name, decay):
    _same_updates(lambda: OPTIMIZER_CLASSES[name](learning_rate=0.01, weight_decay=decay))


@pytest.mark.parametrize("every", [None, 1, 3])
def test_averages_overwrite_the_weights_as_often_as_keras_has_them(every):
    _same_updates(
        lambda: keras.optimizers.SGD(
            0.01, momentum=0.9, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=every
        )
    )


def _same_updates(stock):
    reference, variables = stock(), _variables()
    reference.build(variables)
    functional, own = make_functional(stock()), _variables()
    functional.build(own)
    weights = [tf.constant(value) for value in START]
    slots = [tf.convert_to_tensor(variable.value) for variable in functional.variables]
    step = tf.function(lambda s, g, w: functional.stateless_apply(s, g, w))
    for gradients in GRADIENTS:
        reference.apply([tf.constant(g) for g in gradients], variables)
        weights, slots = step(slots, [tf.constant(g) for g in gradients], weights)
    for expected, found in zip(variables, weights, strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-7)
    for before, variable in zip(START, own, strict=True):
        np.testing.assert_array_equal(variable.numpy(), before)  # a function: nothing was assigned


def test_a_built_optimizer_is_refused():
    optimizer = keras.optimizers.Adam()
    optimizer.build(_variables())
    with pytest.raises(InputError, match="built already"):
        make_functional(optimizer)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (keras.optimizers.Adam(gradient_accumulation_steps=4), "so many times the global_batch_size"),
        (keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), "with loss_scale_factor=1024.0 for float16"),
        ("adamm", "there is no optimizer 'adamm' in Keras"),
    ],
)  # fmt: skip
def test_what_is_more_than_a_function_of_gradients_is_refused(optimizer, message):
    """Their steps would be others than in Keras's fit."""
    with pytest.raises(InputError, match=message) as caught:
        make_functional(optimizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_factory_builds_every_choice(name):
    optimizer = build_optimizer(OptimizerSection(name=name, weight_decay=0.004))
    assert type(optimizer).__name__.lower() == name
    assert optimizer.weight_decay == 0.004
    optimizer.build(_variables())
    assert float(optimizer.learning_rate) == pytest.approx(1e-3)


def test_variables_that_weight_decay_leaves_out():
    """Keras does not say them in an optimizer's config."""
    stock, own = (keras.optimizers.AdamW(0.01, weight_decay=0.5) for _ in range(2))
    variables, mine = _variables(), _variables()
    stock.exclude_from_weight_decay([variables[0]], ["w1"])
    own.exclude_from_weight_decay([mine[0]], ["w1"])
    functional = make_functional(own)
    functional.build(mine)
    stock.apply([tf.constant(g) for g in GRADIENTS[0]], variables)
    slots = [tf.convert_to_tensor(variable.value) for variable in functional.variables]
    weights, _ = functional.stateless_apply(slots, GRADIENTS[0], [tf.constant(w) for w in START])
    for expected, found in zip(variables, weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import OPTIONS, EpochPlan, RunSteps, apply_override, check_config, default_config
from tfmat.errors import InputError
from tfmat.optimizers import WarmupConstant, WarmupCosine, build_optimizer, make_functional
from tfmat.optimizers.factory import OPTIMIZER_CLASSES, build_schedule
from tfmat.training.plan import RunPlan

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
        (
            keras.optimizers.Adam(gradient_accumulation_steps=4),
            "so many times the global_batch_size",
        ),
        (
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
            "with loss_scale_factor=1024.0 for float16",
        ),
        ("adamm", "there is no optimizer 'adamm' in Keras"),
    ],
)
def test_what_is_more_than_a_function_of_gradients_is_refused(optimizer, message):
    """Their steps would be others than in Keras's fit."""
    with pytest.raises(InputError, match=message) as caught:
        make_functional(optimizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_factory_builds_every_choice(name):
    config = default_config()
    apply_override(config, "optimizer.name", name)
    apply_override(config, "optimizer.weight_decay", "0.004")
    optimizer = build_optimizer(check_config(config).optimizer, RunSteps(100))
    assert type(optimizer).__name__.lower() == name
    assert optimizer.weight_decay == 0.004
    optimizer.build(_variables())
    assert float(optimizer.learning_rate) == pytest.approx(1e-3)


def test_cosine_follows_the_formula():
    schedule = WarmupCosine(0.1, total_steps=110, warmup_steps=10, final_fraction=0.2)
    for step in (0, 4, 9, 10, 37, 60, 109, 110, 500):
        # Loshchilov & Hutter 2017, eq. 5, after a linear rise
        warm = min(1.0, (step + 1) / 10)
        progress = min(max((step - 10) / 100, 0.0), 1.0)
        expected = 0.1 * warm * (0.2 + 0.8 * 0.5 * (1 + np.cos(np.pi * progress)))
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5), step


def test_constant_rises_then_stays():
    schedule = WarmupConstant(0.5, warmup_steps=4)
    assert [float(schedule(step)) for step in range(6)] == pytest.approx(
        [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    )
    assert float(WarmupConstant(0.5)(0)) == 0.5


def test_schedules_survive_serialisation():
    for schedule in (WarmupConstant(0.5, 4), WarmupCosine(0.1, 110, 10, 0.2)):
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
        assert float(copy(17)) == float(schedule(17))


@pytest.mark.parametrize(("total_steps", "taken"), [(31, 30), (30, 3), (25, 2), (9, 0), (1, 0)])
def test_a_warm_up_longer_than_the_run_is_cut_to_a_tenth_of_it(total_steps, taken):
    config = default_config()
    apply_override(config, "optimizer.warmup", "3epochs")
    apply_override(config, "optimizer.schedule", "constant")
    steps = RunPlan.of_config(config).steps(EpochPlan(100, 10), total_steps)
    schedule = build_schedule(config.optimizer, steps)
    peak = config.optimizer.learning_rate
    for step in {0, taken // 2, max(taken - 1, 0), total_steps}:
        expected = peak * min(1.0, (step + 1) / max(taken, 1))
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5)


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

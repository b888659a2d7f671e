"""Learning-rate rules against their formulas, and noise in the gradient against its distribution."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import EpochPlan, apply_override, check_config, default_config
from tfmat.optimizers import (
    GradientNoise,
    WarmupConstant,
    WarmupPolynomial,
    WarmupSteps,
    make_functional,
)
from tfmat.optimizers.factory import build_schedule
from tfmat.training.plan import RunPlan


def _schedule(total_steps, epochs=EpochPlan(100, 10), batch=None, **values):  # noqa: B008 (frozen)
    """The schedule of a run of ten steps per epoch, unless `epochs` says otherwise."""
    config = default_config()
    for name, value in values.items():
        apply_override(config, f"optimizer.{name}", str(value))
    steps = RunPlan.of_config(check_config(config)).steps(epochs, total_steps)
    return build_schedule(config.optimizer, steps, batch)


@pytest.mark.parametrize(
    ("rule", "factor"), [("none", 1.0), ("linear", 8.0), ("sqrt", np.sqrt(8.0))]
)
def test_scaling_with_the_batch_and_gradual_warm_up(rule, factor):
    """Goyal et al. 2017, 2.1 and 2.2: k η for k times the batch, from η on over the first epochs."""
    schedule = _schedule(
        1000, batch=600, learning_rate=0.1, scaling=rule, reference_batch_size=75,
        warmup="5epochs", schedule="constant",
    )  # fmt: skip
    start = 0.1 if factor > 1 else 0.0
    for step in (0, 1, 10, 48, 49, 50, 999):
        risen = min(1.0, (step + 1) / 50)
        expected = start + (0.1 * factor - start) * risen
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5), step


def test_a_smaller_batch_than_the_reference_needs_no_gradual_start():
    schedule = _schedule(
        10, batch=50, learning_rate=0.1, scaling="linear", reference_batch_size=100
    )
    assert float(schedule(0)) == pytest.approx(0.05)


def test_polynomial_follows_the_formula():
    schedule = WarmupPolynomial(0.1, 110, 2.0, warmup_steps=10, final_fraction=0.2)
    for step in (0, 9, 10, 60, 110, 500):
        left = 1 - min(max((step - 10) / 100, 0.0), 1.0)
        expected = 0.1 * (0.2 + 0.8 * left**2) * min(1.0, (step + 1) / 10)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5), step


def test_step_falls_where_epochs_begin_also_when_the_batch_grows():
    falling = {"learning_rate": 1.0, "schedule": "step", "step_every": "2epochs"}
    plain = _schedule(60, **falling, step_factor=0.5)
    assert [float(plain(s)) for s in (0, 19, 20, 39, 40, 59)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    epochs = EpochPlan(100, 10, ((1, 2),))  # they begin at 0, 10, 15, 20, 25, ...
    grown = _schedule(60, epochs, **falling, step_factor=0.5)
    assert [float(grown(s)) for s in (0, 14, 15, 24, 25)] == [1, 1, 0.5, 0.5, 0.25]


def test_serialisation():
    for schedule in (
        WarmupConstant(0.5, 4, 0.25),
        WarmupPolynomial(0.1, 110, 2.0, warmup_steps=10, final_fraction=0.2),
        WarmupSteps(0.1, [10, 15], 0.3, warmup_steps=3),
    ):
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
        for step in (0, 2, 11, 17):
            assert float(copy(step)) == float(schedule(step))


def test_noise_has_the_variance_of_the_formula_and_dies_away():
    """Neelakantan et al. 2015, eq. 2; the sample variance of n normal numbers is within 5 sqrt(2 / n)."""
    noise, zeros = GradientNoise(0.3, 0.55, seed=4), [tf.zeros([200, 300]), tf.zeros([50])]
    for step in (0, 9, 999):
        matrix, vector = noise(zeros, step)
        expected = 0.3 / (1 + step) ** 0.55
        assert np.var(matrix) == pytest.approx(expected, rel=5 * np.sqrt(2 / 60_000))
        assert abs(np.mean(matrix)) < 5 * np.sqrt(expected / 60_000)
        assert not np.array_equal(vector, matrix[0, :50])
    again, other = noise(zeros, 9)[0], GradientNoise(0.3, 0.55, seed=5)(zeros, 9)[0]
    np.testing.assert_array_equal(again, noise(zeros, 9)[0])
    assert abs(np.corrcoef(np.ravel(again), np.ravel(other))[0, 1]) < 0.03
    assert abs(np.corrcoef(np.ravel(again), np.ravel(noise(zeros, 10)[0]))[0, 1]) < 0.03


def test_noise_is_added_after_clipping():
    noise = GradientNoise(1.0, 0.0, seed=1)
    optimizer = make_functional(keras.optimizers.SGD(1.0, global_clipnorm=1e-9), noise)
    variable = keras.Variable(np.zeros(5, np.float32))
    optimizer.build([variable])
    slots = [tf.convert_to_tensor(v.value) for v in optimizer.variables]
    (found,), _ = optimizer.stateless_apply(slots, [tf.ones(5)], [tf.zeros(5)])
    np.testing.assert_allclose(found, -noise([tf.zeros(5)], 0)[0], atol=1e-6)

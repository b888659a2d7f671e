"""Learning-rate rules against their formulas, and noise in the gradient against its distribution."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import EpochPlan, OptimizerSection
from tfmat.optimizers import (
    GradientNoise,
    WarmupConstant,
    WarmupCosine,
    WarmupPolynomial,
    WarmupSteps,
    build_schedule,
    make_functional,
)

EPOCHS = EpochPlan(100, 10)  # of ten steps
FALLING: Any = {"warmup_steps": 10, "final_fraction": 0.2}
# Schedule -> what is left of its peak of 0.1 at a step, before the warm-up is taken into account.
FORMULAS = {
    # Loshchilov & Hutter 2017, eq. 5.
    WarmupCosine(0.1, 110, **FALLING): lambda s: 0.2 + 0.8 * 0.5 * (1 + np.cos(np.pi * _over(s))),
    WarmupPolynomial(0.1, 110, 2.0, **FALLING): lambda s: 0.2 + 0.8 * (1 - _over(s)) ** 2,
    WarmupConstant(0.1, 10): lambda s: 1.0,
    WarmupSteps(0.1, [30, 60], 0.3, warmup_steps=10): lambda s: 0.3 ** ((s >= 30) + (s >= 60)),
}


def _over(step):
    return min(max((step - 10) / 100, 0.0), 1.0)


@pytest.mark.parametrize("schedule", FORMULAS, ids=lambda schedule: type(schedule).__name__)
def test_the_formula_after_a_linear_rise_also_from_a_file(schedule):
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    for step in (0, 4, 9, 10, 29, 30, 37, 60, 109, 110, 500):
        expected = 0.1 * min(1.0, (step + 1) / 10) * FORMULAS[schedule](step)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5), step
        assert float(copy(step)) == float(schedule(step))


@pytest.mark.parametrize(
    ("rule", "batch", "factor"),
    [
        ("none", 600, 1.0),
        ("linear", 600, 8.0),
        ("sqrt", 600, np.sqrt(8.0)),
        # A smaller batch than the reference's needs no gradual start.
        ("linear", 50, 2 / 3),
    ],
)
def test_scaling_with_the_batch_and_gradual_warm_up(rule, batch, factor):
    """Goyal et al. 2017, 2.1 and 2.2: k η for k times the batch, from η on over the first epochs."""
    section = OptimizerSection(
        learning_rate=0.1, scaling=rule, reference_batch_size=75, warmup="5epochs",
        schedule="constant",
    )  # fmt: skip
    schedule = build_schedule(section, EPOCHS, 1000, batch)
    start = 0.1 if factor > 1 else 0.0
    for step in (0, 1, 10, 48, 49, 50, 999):
        expected = start + (0.1 * factor - start) * min(1.0, (step + 1) / 50)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5), step


@pytest.mark.parametrize(("total", "taken"), [(31, 30), (30, 3), (25, 2), (9, 0), (1, 0)])
def test_a_warm_up_longer_than_the_run_is_cut_to_a_tenth_of_it(total, taken):
    section = OptimizerSection(warmup="3epochs", schedule="constant", learning_rate=0.5)
    assert section.warmup_steps(EPOCHS, total) == taken and section.falls(EPOCHS, total) == []
    schedule = build_schedule(section, EPOCHS, total)
    for step in {0, taken // 2, max(taken - 1, 0), total}:
        expected = 0.5 * min(1.0, (step + 1) / max(taken, 1))
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5)


def test_step_falls_where_epochs_begin_also_when_the_batch_grows():
    section = OptimizerSection(
        learning_rate=1.0, schedule="step", step_every="2epochs", step_factor=0.5
    )
    plain = build_schedule(section, EPOCHS, 60)
    assert [float(plain(s)) for s in (0, 19, 20, 39, 40, 59)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    grown = build_schedule(section, EpochPlan(100, 10, ((1, 2),)), 60)  # begin at 0, 10, 15, 20, …
    assert [float(grown(s)) for s in (0, 14, 15, 24, 25)] == [1, 1, 0.5, 0.5, 0.25]


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

"""The noise scale against the closed form of linear regression, where tr(Σ) and |G|² are known."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tfmat.config import default_config
from tfmat.errors import InputError
from tfmat.files import write_json
from tfmat.large_batch.sweeps import (
    estimate_noise_scale,
    measure_squares,
    noise_figure,
    noise_scale_of_run,
)

DIMENSION, NOISE, DISTANCE = 20, 0.5, 0.3


def _closed_form():
    """x ~ N(0, I), y = wx + N(0, σ²), loss (y - vx)², Δ = w - v: (|G|², tr Σ).

    g = -2 (Δx + ε) x, so G = -2Δ; E|g|² = 4 ((d + 2) |Δ|² + σ² d) by the fourth moments of the normal distribution.
    """
    squared = 4 * DISTANCE**2
    return squared, 4 * ((DIMENSION + 2) * DISTANCE**2 + NOISE**2 * DIMENSION) - squared


@pytest.fixture(scope="module")
def regression():
    random = np.random.default_rng(1)
    x = random.normal(size=(200_000, DIMENSION)).astype(np.float32)
    delta = random.normal(size=DIMENSION)
    delta *= DISTANCE / np.linalg.norm(delta)
    y = x @ delta + NOISE * random.normal(size=len(x))
    x, y = tf.constant(x), tf.constant(y.astype(np.float32))

    def gradient(rows):
        weights = tf.zeros(DIMENSION)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            errors = tf.gather(y, rows) - tf.linalg.matvec(tf.gather(x, rows), weights)
            loss = tf.reduce_mean(errors**2)
        return [tape.gradient(loss, weights)]

    return gradient


def test_linear_regression(regression):
    squares = measure_squares(regression, 200_000, small=20, big=2000, groups=100)
    found = estimate_noise_scale(*squares, small=20, big=2000)
    squared, variance = _closed_form()
    assert found.squared_gradient == pytest.approx(squared, rel=0.05)
    assert found.variance == pytest.approx(variance, rel=0.05)
    assert found.low < variance / squared < found.high
    assert found.high / found.low < 1.5


def test_the_band_holds_the_truth_as_often_as_it_says(regression):
    """90 % of 60 measurements of one call, within four standard deviations of the binomial: 45 of 60 or more."""
    squared, variance = _closed_form()
    squares = measure_squares(regression, 200_000, small=10, big=200, groups=60 * 60)
    hits = 0
    for seed, parts in enumerate(np.split(np.stack(squares), 60, axis=1)):
        found = estimate_noise_scale(*parts, small=10, big=200, seed=seed)
        hits += found.low <= variance / squared <= found.high
    assert 45 <= hits < 60


@pytest.mark.parametrize("num_examples", [250, 1000])
def test_groups_that_share_examples_tell_the_scale_of_all_examples(num_examples):
    """Mean and variance over all examples are known; the band holds them in 13 of 20 or more (90 %, binomial)."""
    random = np.random.default_rng(3)
    noise = random.normal(size=(num_examples, 10))
    noise -= noise.mean(axis=0)
    signal = np.eye(10)[0] * np.sqrt((noise**2).sum(axis=1).mean() / 300)
    gradients = tf.constant(noise + signal)

    def gradient(rows):
        return [tf.reduce_mean(tf.gather(gradients, rows), axis=0)]

    squares = measure_squares(gradient, num_examples, small=10, big=200, groups=20 * 100)
    scales = [
        estimate_noise_scale(*parts, small=10, big=200, num_examples=num_examples)
        for parts in np.split(np.stack(squares), 20, axis=1)
    ]
    assert sum(scale.low <= 300 <= scale.high for scale in scales) >= 13
    assert np.median([scale.value for scale in scales]) == pytest.approx(300, rel=0.1)


def test_another_seed_draws_other_examples(regression):
    found = [
        measure_squares(regression, 200_000, small=10, big=20, groups=1, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] and (found[0][0] != found[2][0]).all()


def test_at_the_minimum_the_scale_is_infinite():
    """No signal: |G|² comes out at or below 0 about half the time, and the band is open above."""
    random = np.random.default_rng(0)
    small = random.chisquare(50, 30) / 50
    big = small / 40 - 1e-3
    found = estimate_noise_scale(small, big, small=10, big=400)
    assert found.value == found.high == np.inf
    known = dataclasses.replace(found, value=50.0, low=20.0)
    noise_figure([(1, 1.0, known), (2, 2.0, dataclasses.replace(found, low=np.inf))], 100)


def test_a_run_of_the_trainer_has_no_curves_to_draw_from(tmp_path):
    """Its config.json names no data set: one line, instead of a KeyError."""
    write_json(tmp_path / "config.json", default_config().to_dict())
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-0000000001.npz").touch()
    with pytest.raises(InputError, match="no run of tfmat train"):
        noise_scale_of_run(tmp_path)

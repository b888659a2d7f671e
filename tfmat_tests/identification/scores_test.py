"""Every curve is in one bin."""

import numpy as np
import pytest

from tfmat.identification.evaluate import bins_of, score_parameter
from tfmat.materials.law import Parameter


@pytest.mark.parametrize(
    "quantity",
    [
        np.random.default_rng(0).exponential(1, 1003),
        np.r_[np.full(700, 200.0), np.random.default_rng(0).integers(20, 200, 303)],
        np.full(10, 3.0),
        np.r_[np.full(9, 1.0), 2.0],
        np.array([4.0]),
        np.r_[np.full(5, 1.0), np.full(5, 2.0)],
        *(np.random.default_rng(count).integers(0, 4, count) for count in range(2, 12)),
    ],
)
def test_bins_hold_every_curve_once(quantity):
    bins = bins_of(quantity)
    assert 1 <= len(bins) <= 5
    assert np.sum([inside for _, _, inside in bins], axis=0).tolist() == [1] * len(quantity)
    for low, high, inside in bins:
        assert inside.any()
        assert ((quantity[inside] >= low) & (quantity[inside] <= high)).all()


def test_bins_are_about_even_and_a_common_largest_value_has_its_own():
    quantity = np.random.default_rng(0).exponential(1, 1000)
    assert [inside.sum() for _, _, inside in bins_of(quantity)] == [200] * 5
    points = np.r_[np.full(600, 200.0), np.linspace(20, 199, 400)]
    bins = bins_of(points)
    assert [inside.sum() for _, _, inside in bins] == [100] * 4 + [600]
    assert bins[-1][:2] == (200, 200)


@pytest.mark.parametrize(("low", "expected"), [(1.0, 10.0), (-1.0, None)])
def test_a_parameter_that_may_be_zero_has_no_error_in_percent(low, expected):
    true = np.array([2.0, 4.0])
    score = score_parameter(
        Parameter("alpha", "-", low, 5.0), true, 1.1 * true, np.array([0.3, 0.8])
    )
    assert score.mae_percent == (None if expected is None else pytest.approx(expected))
    assert score.mae == pytest.approx(0.3)

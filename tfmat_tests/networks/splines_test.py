"""Splines: their knots by SciPy's softmax, their slopes, their inverse."""

import numpy as np
import pytest
import scipy.special

from tfmat.networks.flow import RationalQuadraticSpline

pytestmark = pytest.mark.usefixtures("double_precision")


def test_a_spline_goes_through_its_knots_with_their_slopes():
    random, bins = np.random.default_rng(0), 8
    spline = RationalQuadraticSpline(bins)
    shares, slopes = random.normal(size=(2, bins)), random.normal(size=(1, bins - 1))
    table = spline.table(shares, slopes)
    least = 1e-3
    sizes = 8.0 * (least + (1 - bins * least) * scipy.special.softmax(shares, axis=1))
    knots = np.concatenate([[[-4.0], [-4.0]], -4.0 + np.cumsum(sizes, axis=1)], axis=1)
    at = knots[0][:, None]
    values, log_slopes = (
        np.array(each)[:, 0] for each in spline(at, np.repeat(table, bins + 1, 0))
    )
    np.testing.assert_allclose(values, knots[1], atol=1e-12)
    expected = [1.0, *(1e-3 + np.logaddexp(0, slopes[0])), 1.0]
    np.testing.assert_allclose(np.exp(log_slopes), expected, rtol=1e-9)
    z = np.linspace(-6, 6, 500)[:, None]
    tables = np.repeat(table, 500, 0)
    values, log_slopes = (np.array(each) for each in spline(z, tables))
    assert (np.diff(values[:, 0]) > 0).all()
    beyond = np.abs(z) > 4
    np.testing.assert_array_equal(values[beyond], z[beyond])
    back, again = (np.array(each) for each in spline.inverse(values, tables))
    np.testing.assert_allclose(back, z, atol=1e-9)
    np.testing.assert_allclose(again, log_slopes, atol=1e-8)

"""The mixture of kernels against scipy's density of Student's t, and against its own draws."""

import numpy as np
import scipy.integrate
import scipy.stats

from tfmat.identification.kernels import _FREEDOM, _PRECISIONS, _WIDE_SHARE, _WIDENING, Kernels

CENTRES = np.array([[0.3, 0.6], [0.5, 0.2]])
CURVATURE = np.array([[[400.0, 100.0], [100.0, 90.0]], [[0.0, 0.0], [0.0, 2500.0]]])
SHARES = np.array([0.75, 0.25])


def test_the_density_is_that_of_students_t():
    kernels = Kernels(CENTRES, CURVATURE, SHARES, [np.array([0, 1]), np.array([1, 0])])
    points = np.random.default_rng(0).random((20, 2))
    expected, highest = np.zeros(20), np.zeros((2, 20))
    for i, (centre, curvature, share) in enumerate(zip(CENTRES, CURVATURE, SHARES, strict=True)):
        for precision in _PRECISIONS:
            shape = _WIDENING**2 * np.linalg.inv(curvature + precision * np.eye(2))
            density = scipy.stats.multivariate_t(centre, shape, _FREEDOM)
            # Draws are sorted, so that both orders of the columns are the same point.
            expected += share / 3 * (density.pdf(points) + density.pdf(points[:, ::-1]))
            highest[i] = np.maximum(highest[i], density.pdf(points))
    found, nearest, height = kernels.log_density_and_nearest(points)
    np.testing.assert_array_equal(kernels.log_density(points), found)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-10)
    assert set(nearest) == {0, 1}
    np.testing.assert_array_equal(nearest, np.argmax(highest, axis=0))
    # Up to the constant of Student's t.
    np.testing.assert_allclose(np.ptp(height - np.log(np.max(highest, axis=0))), 0.0, atol=1e-10)


def test_long_kernels_stand_beside_the_others():
    order = [np.array([0, 1])]
    points = np.random.default_rng(0).random((20, 2))
    short = np.exp(Kernels(CENTRES, CURVATURE, SHARES, order).log_density(points))
    expected = (1.0 - _WIDE_SHARE) * short
    for centre, curvature, share in zip(CENTRES, CURVATURE, SHARES, strict=True):
        precision = curvature / 9.0 + _PRECISIONS[0] * np.eye(2) / _WIDENING**2
        density = scipy.stats.multivariate_t(centre, np.linalg.inv(precision), _FREEDOM)
        expected += share * _WIDE_SHARE * density.pdf(points)
    found = Kernels(CENTRES, CURVATURE, SHARES, order, 3.0).log_density(points)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-10)


def test_draws_have_the_density():
    kernels = Kernels(CENTRES, CURVATURE, SHARES, [np.array([0, 1])])
    draws = kernels.draw(200_000, np.random.default_rng(1))
    inside = ((draws > [0.2, 0.5]) & (draws < [0.4, 0.7])).all(axis=1).mean()
    grid = np.linspace([0.2, 0.5], [0.4, 0.7], 201).T
    points = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(kernels.log_density(points)).reshape(201, 201)
    expected = scipy.integrate.simpson(scipy.integrate.simpson(density, x=grid[1]), x=grid[0])
    assert abs(inside - expected) < 5 * np.sqrt(expected / 200_000)

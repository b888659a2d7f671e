"""Fits of records whose zeroes are off: the covariance against closed forms and against what chance does."""

import numpy as np
import pytest

from tfmat.identification.evaluate import covariance_by_errors, fit_with_errors
from tfmat.identification.least_squares import fit_with_noise
from tfmat.records.simulation import CurveSettings, Simulator, observed


def _records(count, **options):
    settings = CurveSettings(
        **{"law": "neo_hooke", "num_points": 20, "strength_cut_off": False, **options}
    ).resolved()
    curves = Simulator(settings, 2).curves(0, count)
    return settings, settings.build_law(), curves, *observed(settings, curves.features)


def test_an_offset_of_the_stress_moves_the_modulus_by_its_share():
    """Of a stress μ g: the least squares μ moves by the offset times sum(g) / sum(g²), each test by itself."""
    settings, law, curves, tests, _, valid = _records(
        10, tests=("uniaxial", "planar"), missing_tests=0.4, stress_offset=(0.02, 0.2)
    )
    labels = curves.labels.astype(np.float64)
    found = covariance_by_errors(settings, law, tests, valid, labels)
    shape = tests.joined(lambda history: law.respond(history, np.ones((10, 1)))) * tests.unit
    shape = np.where(valid, shape, 0.0)
    shares = shape.reshape(10, 2, 20).sum(axis=2) / (shape**2).sum(axis=1)[:, None]
    square = (0.2**2 - 0.02**2) / (2.0 * np.log(10.0))
    expected = square * (shares**2).sum(axis=1) / law.label_slopes(curves.parameters)[:, 0] ** 2
    np.testing.assert_allclose(found[:, 0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (160, {"strain_offset": (0.002, 0.01)}),
        (160, {"machine_stiffness": (200.0, 800.0)}),
        # Slow to fit, and three in four of its deviations are small.
        (60, {"law": "norton", "noise_strain": 1e-8, "stress_offset": (0.1, 1.0)}),
    ],
)
def test_fits_without_noise_are_off_by_what_is_said(count, options):
    """Mean squared errors of plain fits are the mean variances, up to the chance of so many records."""
    settings, law, curves, tests, response, valid = _records(count, noise_mpa=1e-4, **options)
    labels = curves.labels.astype(np.float64)
    fitted = fit_with_noise(law, tests, response, valid, 1.0, 0.0)
    inside = ((fitted.labels > 0.02) & (fitted.labels < 0.98)).all(axis=1)
    variance = np.einsum("cii->ci", covariance_by_errors(settings, law, tests, valid, labels))[
        inside
    ]
    error = ((fitted.labels - labels) ** 2)[inside]
    # To first order: where the deviation is small, and in the median, which no single record decides.
    small = variance.max(axis=1) < 0.05**2
    assert small.sum() > 40
    ratio = np.median(error[small] / variance[small], axis=0)
    # The median of chi squared is 0.45; that of a machine, which has no sign, about 1.
    assert (ratio > 0.15).all() and (ratio < 2.0).all()


def test_intervals_hold_the_truth_where_zeroes_are_off():
    settings, law, curves, tests, response, valid = _records(
        150, law="mooney_rivlin", strain_offset=(1e-3, 1e-2), stress_offset=(0.01, 0.05)
    )
    labels = curves.labels.astype(np.float64)
    plain = fit_with_noise(law, tests, response, valid, 1.0, 0.0)
    wide = fit_with_errors(settings, tests, response, valid)
    np.testing.assert_array_equal(plain.labels, wide.labels)

    def held(found):
        low, high = np.moveaxis(found.interval_labels, 2, 0)
        return ((low <= labels) & (labels <= high)).mean(axis=0)

    assert (held(plain) < 0.8).all() and (held(wide) > 0.92).all()
    low, high = np.moveaxis(wide.interval, 2, 0)
    assert ((low <= wide.values) & (wide.values <= high)).all()

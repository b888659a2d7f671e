"""The Cramér-Rao bound against its written-out formula and against what chance does."""

import numpy as np
import pytest

from tfmat.identification.least_squares import (
    covariance_of,
    cramer_rao_bound,
    fisher_information,
    fit,
)
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors
from tfmat.materials import find_law
from tfmat.records.simulation import CurveSettings, Simulator, observed

LAW = find_law("hahn_tsai")
STRAIN = np.linspace(0, 0.04, 200)
LABELS = np.array([[0.5, 0.6]])


def test_bound_is_the_published_formula():
    modulus, coefficient = 5000.0, 1e-9 * 100**0.6
    stress = LAW.stress(STRAIN[None], np.array([[modulus, coefficient]]))[0]
    slope = 1 / modulus + 3 * coefficient * stress**2
    jacobian = np.stack([stress / modulus**2 / slope, -(stress**3) / slope], axis=1)
    jacobian /= np.abs(jacobian).max(axis=0)  # both columns of one size, for the inverse
    scale = np.abs(np.stack([stress / modulus**2 / slope, -(stress**3) / slope], axis=1)).max(
        axis=0
    )
    covariance = 1.5**2 * np.linalg.inv(jacobian.T @ jacobian) / np.outer(scale, scale)
    bound = cramer_rao_bound(LAW, STRAIN[None], LABELS, 1.5)
    units = np.array([6000.0, coefficient * np.log(100)])
    np.testing.assert_allclose(bound[0], covariance / np.outer(units, units), rtol=1e-8)


def test_least_squares_reaches_the_bound():
    random = np.random.default_rng(1)
    strain = np.tile(STRAIN, (3000, 1))
    truth = np.repeat(LABELS, 3000, axis=0)
    stress = LAW.label_stress(strain, truth) + random.normal(0, 1, strain.shape)
    error = fit(LAW, strain, stress).labels - truth
    bound = cramer_rao_bound(LAW, STRAIN[None], LABELS, 1.0)[0]
    np.testing.assert_allclose(error.T @ error / 3000, bound, rtol=0.12)


@pytest.mark.parametrize("noise", [(1.0, 0.0), (0.5, 0.1)])
def test_information_is_the_covariance_of_the_score(noise):
    """The definition (Kay 1993, eq. 3.21), with the score from differences of the likelihood over simulated noise."""
    random = np.random.default_rng(2)
    model = NoiseModel(*noise, None, 200)
    clean = LAW.label_stress(STRAIN[None], LABELS)[0]
    step, scores = 1e-4, []
    nodes = np.concatenate([LABELS + step * np.eye(2), LABELS - step * np.eye(2)])
    for _ in range(4000):
        stress = clean + random.normal(0, 1, 200) * np.hypot(noise[0], noise[1] * clean)
        density = SimulatedErrors(LAW, model, STRAIN[None], stress[None]).log_density(nodes)
        scores.append((density[:2] - density[2:]) / (2 * step))
    expected = fisher_information(LAW, STRAIN[None], LABELS, *noise, None)[0]
    np.testing.assert_allclose(np.cov(np.transpose(scores)), expected, rtol=0.1)


def test_padding_tells_nothing_and_a_singular_matrix_has_a_huge_finite_inverse():
    valid = STRAIN[None] < 0.02
    short = cramer_rao_bound(LAW, STRAIN[None, :100], LABELS, 1.0)
    padded = cramer_rao_bound(LAW, np.where(valid, STRAIN[None], np.nan), LABELS, 1.0, valid=valid)
    np.testing.assert_allclose(padded, short, rtol=1e-12)
    singular = covariance_of(np.array([[[4.0, 4.0], [4.0, 4.0]], [[1.0, 0.0], [0.0, 0.0]]]))
    assert np.isfinite(singular).all()
    assert singular[0, 0, 0] > 1e12
    assert singular[1, 1, 1] > 1e12
    regular = np.array([[[4.0, 1e-3], [1e-3, 1e-6]]])
    np.testing.assert_allclose(covariance_of(regular), np.linalg.inv(regular), rtol=1e-9)


def test_records_that_tell_their_noise_have_a_bound_each():
    """Of one parameter that the stress is proportional to: 1 / sum of (shape / noise)², with each test's own noise."""
    settings = CurveSettings(
        "neo_hooke",
        num_points=12,
        missing_tests=0.3,
        strength_cut_off=False,
        noise_mpa=0.01,
        noise_of_maximum=(0.001, 0.1),
        noise_told=True,
    )
    curves = Simulator(settings, 0).curves(0, 20)
    law, noise = settings.build_law(), NoiseModel.of(settings)
    tests, _, valid = observed(settings, curves.features)
    labels = curves.labels.astype(np.float64)
    found = cramer_rao_bound(law, tests, labels, noise.noise_mpa, noise.noise_relative, valid)
    told = curves.features[:, :, 3].astype(np.float64)
    shape = tests.joined(lambda history: law.respond(history, np.ones((20, 1)))) * tests.unit
    information = np.where(valid, (shape / np.where(valid, told, 1.0)) ** 2, 0.0).sum(axis=1)
    std = np.sqrt(found[:, 0]) * law.label_slopes(law.from_labels(labels))
    np.testing.assert_allclose(std[:, 0], information**-0.5, rtol=1e-6)

"""The likelihood against the simulation whose chance it describes."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.identification.likelihood import NoiseModel, SimulatedErrors
from tfmat.materials import find_law
from tfmat.records.simulation import CurveSettings, Simulator

LAW = find_law("hahn_tsai")


def _of(noise, strain, stress):
    """The likelihood of one curve."""
    return SimulatedErrors(LAW, noise, strain[None], stress[None])


def test_where_a_curve_breaks_has_the_probability_that_the_simulation_gives_it():
    # All curves alike but for their strength and noise.
    alike = {"G0": (5000.0, 5000.0001), "a": (2e-8, 2.0000001e-8)}
    settings = CurveSettings(ranges=alike, max_strain=(0.04, 0.04), num_points=20)
    curves = Simulator(settings, 0).curves(0, 8192).features
    counts = (curves[:, :, 2] == 0).sum(axis=1)
    noise = NoiseModel.of(CurveSettings(num_points=20))
    uncut = NoiseModel(noise.noise_mpa, noise.noise_relative, None, 20)
    label = LAW.to_labels([[5000.0, 2e-8]])
    total = 0.0
    for count in range(1, 21):
        strain = 0.04 * np.linspace(0, 1, 20)[:count]
        stress = LAW.stress(strain[None], np.array([[5000.0, 2e-8]]))[0]
        if count == 1:
            continue
        probability = np.exp(
            _of(noise, strain, stress).log_density(label)
            - _of(uncut, strain, stress).log_density(label)
        )[0]
        total += probability
        deviation = np.sqrt(probability * (1 - probability) / 8192)
        assert abs((counts == count).mean() - probability) <= 4.5 * deviation + 1e-12
    assert total == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("noise", [(1.5, 0.0), (0.5, 0.05), (0.0, 0.05)])
def test_the_density_of_the_stress_is_the_normal_one(noise):
    strain = np.linspace(0, 0.03, 50)
    labels = np.array([[0.2, 0.3], [0.21, 0.33], [0.7, 0.9]])
    model = LAW.stress(strain[None], LAW.from_labels(labels))
    stress = model[0] + np.random.default_rng(0).normal(0, 1, 50) * np.hypot(
        noise[0], noise[1] * model[0]
    )
    likelihood = _of(NoiseModel(*noise, None, 50), strain, stress)
    # The first point, at zero stress, has no density where the noise is only relative.
    deviation = np.hypot(noise[0], noise[1] * model[:, 1:])
    expected = (-0.5 * ((stress[1:] - model[:, 1:]) / deviation) ** 2 - np.log(deviation)).sum(
        axis=1
    )
    if noise[0]:
        expected += -0.5 * (stress[0] / noise[0]) ** 2 - np.log(noise[0])
    found = likelihood.log_density(labels)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-9, atol=1e-7)


def test_slope_and_curvature_are_those_of_the_log_density():
    strain = np.linspace(0, 0.03, 50)
    labels = np.array([[0.2, 0.3], [0.6, 0.5]])
    stress = LAW.stress(strain[None], LAW.from_labels(labels[:1]))[0] + 1.0
    likelihood = _of(NoiseModel(2.0, 0.0, None, 50), strain, stress)
    _, slope, curvature = likelihood.expansion(labels)
    step = 1e-6
    for column in range(2):
        ahead, behind = (labels + sign * step * np.eye(2)[column] for sign in (1, -1))
        difference = likelihood.log_density(ahead) - likelihood.log_density(behind)
        np.testing.assert_allclose(slope[:, column], difference / (2 * step), rtol=1e-5)
    np.testing.assert_array_equal(curvature, np.swapaxes(curvature, 1, 2))
    assert (np.linalg.eigvalsh(curvature) > 0).all()


def test_a_strength_that_is_known_exactly_allows_or_forbids():
    noise = NoiseModel.of(CurveSettings(strength_mpa=(80.0, 80.0), num_points=100))
    strain = np.linspace(0, 0.05, 100)
    label = LAW.to_labels([[6000.0, 1e-8]])
    whole = LAW.stress(strain[None], LAW.from_labels(label))[0]
    end = int(np.argmax(whole > 80.0)) + 1
    right, wrong = (
        _of(noise, strain[:count], whole[:count]).log_density(label)[0] for count in (end, end + 1)
    )
    assert right == 0.0
    assert wrong < -500
    with pytest.raises(InputError, match="no noise"):
        NoiseModel.of(CurveSettings(noise_mpa=0.0))
    with pytest.raises(InputError, match="no exact likelihood"):
        NoiseModel.of(CurveSettings(measured_points=(20, 40)))

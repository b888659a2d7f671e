"""Cyclic shear of a ply against NASA's single element, its algorithm, closed forms and the equations of damage."""

import itertools

import numpy as np
import pytest

from tfmat.materials import History, HistoryLaw, find_law
from tfmat.records.programmes import find_programmes

NAMES = ("ramberg_osgood_shear", "ladeveze_shear")
# G (MPa), a (MPa^(1 - n)), n of nonlinearShear12 in tests/ of github.com/nasa/CompDam_DGD.
COMPDAM = (5290.0, 4.412e-10, 5.934)


def path(*turning, points=200):
    legs = itertools.pairwise(turning)
    return np.concatenate([np.linspace(a, b, points + 1)[1:] for a, b in legs])


def compdam(strain, modulus, coefficient, exponent):
    """Stress at strain [points] as CompDam computes it, which tells plastic strain from its path."""
    plastic = inelastic = last = 0.0
    stresses = []
    for total in strain:
        effective = abs(total - plastic) + inelastic
        low, high = 0.0, modulus * effective
        for _ in range(200):
            stress = (low + high) / 2
            above = stress + coefficient * stress**exponent > modulus * effective
            low, high = (low, stress) if above else (stress, high)
        trial = effective - stress / modulus
        if trial > inelastic:
            plastic += (trial - inelastic) * np.sign(total - last)
            inelastic = trial
        stresses.append(modulus * (total - plastic))
        last = total
    return np.array(stresses)


def as_compdam(modulus, coefficient, exponent):
    return np.array([[modulus, coefficient * 50.0**exponent / modulus, exponent]])


def test_nasas_single_element():
    """Expected values of CompDam's test_C3D8R_nonlinearShear12_monotonic and _loadReversal, with their tolerance."""
    law, parameters = find_law("ramberg_osgood_shear"), as_compdam(*COMPDAM)
    assert law.stress(path(0, 0.05)[None], parameters)[0, -1] == pytest.approx(90.0, abs=1.0)
    stress = law.stress(path(0, 0.02, 0.01, 0.04, 0, -0.02, 0.02)[None], parameters)[0]
    assert stress[600:800].min() == pytest.approx(-89.0, abs=1.0)
    assert stress[1000:].max() == pytest.approx(97.5, abs=1.0)


def test_ramberg_osgood_shear_is_compdams_algorithm():
    law, random = find_law("ramberg_osgood_shear"), np.random.default_rng(0)
    parameters = law.from_labels(random.random((10, 3)))
    strain = np.stack([path(0, *random.uniform(-0.05, 0.05, 6), points=15) for _ in parameters])
    found = law.stress(strain, parameters)
    for row, (modulus, permanent, exponent), stress in zip(strain, parameters, found, strict=True):
        coefficient = permanent * modulus / 50.0**exponent
        expected = compdam(row, modulus, coefficient, exponent)
        np.testing.assert_allclose(stress, expected, rtol=1e-9, atol=1e-9)


def test_monotonic_shear_has_a_closed_form():
    """From the effective stress, whose plastic strain and damage are known, to the strain."""
    law = find_law("ladeveze_shear")
    parameters = law.from_labels(np.random.default_rng(1).random((100, 7)))
    modulus, first_yield, hardening, exponent, rate, threshold, most = parameters.T[:, :, None]
    plastic = np.geomspace(1e-6, 0.2, 30)
    effective = first_yield + hardening * plastic**exponent
    damage = np.minimum(rate * np.log(np.maximum(effective / threshold, 1.0)), most)
    strain = effective / modulus + plastic
    expected = (1 - damage) * effective
    np.testing.assert_allclose(law.stress(strain, parameters), expected, rtol=1e-9)
    assert damage.max() > 0.5 and (damage == 0).any()


def test_unloading_shows_damage_and_permanent_strain():
    """Straight down with (1 - d) G0 to the permanent strain, and yield again at the old effective stress below."""
    law = find_law("ladeveze_shear")
    parameters = np.array([[5000.0, 20.0, 600.0, 0.5, 0.2, 20.0, 0.8]])
    effective, plastic = 20.0 + 600.0 * 0.02**0.5, 0.02
    peak, damage = effective / 5000.0 + plastic, 0.2 * np.log(effective / 20.0)
    strain = np.array([[peak, peak - 0.001, plastic, plastic - effective / 5000.0]])
    stress = law.stress(strain, parameters)[0] / (1 - damage)
    np.testing.assert_allclose(stress, [effective, effective - 5.0, 0.0, -effective], atol=1e-9)
    beyond = law.stress(np.append(strain, -0.1)[None], parameters)[0, -1]
    assert abs(beyond) < 5000.0 * (1 - damage) * (plastic + 0.1)


@pytest.mark.parametrize("name", NAMES)
def test_sensitivities_are_the_derivatives(name):
    law, random = find_law(name), np.random.default_rng(2)
    history = find_programmes(law.tests)[0].draw(random, 60, 100)
    parameters = law.from_labels(random.random((60, len(law.parameters))))
    exact = law.sensitivities(history, parameters) * parameters[:, None, :]
    differences = HistoryLaw.sensitivities(law, history, parameters) * parameters[:, None, :]
    # At yield, and where damage begins and ends, there is no derivative.
    close = np.abs(exact - differences) < 1e-6
    assert close.mean() > 0.999
    np.testing.assert_allclose(exact, differences, atol=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_no_stress_depends_on_how_finely_a_leg_is_sampled(name):
    """Hardening is isotropic: one step along a leg ends where many do."""
    law = find_law(name)
    parameters = law.from_labels(np.random.default_rng(3).random((50, len(law.parameters))))
    turning = (0.0, 0.03, 0.01, 0.05, -0.02, 0.04)
    coarse = law.stress(np.array([turning[1:]]), parameters)
    fine = law.stress(path(*turning, points=40)[None], parameters)[:, 39::40]
    np.testing.assert_allclose(coarse, fine, rtol=1e-9, atol=1e-9)
    shear = History("shear", strain=np.zeros((1, 4)))
    assert np.all(law.respond(shear, parameters) == 0)
    assert np.all(law.sensitivities(shear, parameters) == 0)

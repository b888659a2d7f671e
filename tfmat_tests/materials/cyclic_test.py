"""Laws that remember, of metals and plies, against equations, closed forms, and measured tests."""

import itertools

import numpy as np
import pytest
import scipy.integrate

from tfmat.errors import InputError
from tfmat.materials import History, find_law
from tfmat.records.programmes import find_programmes

# Voce-Chaboche against its rate equations, closed forms, and RESSPyLab's objectives of two measured tests.


NAMES = ("voce_chaboche_1", "voce_chaboche", "voce_chaboche_3")
# S355J2: A. de Castro e Sousa, Y. Suzuki, D. G. Lignos, Consistency in solving the inverse problem of the
# Voce-Chaboche constitutive model for plastic straining, J. Eng. Mech. 146 (2020) 04020097, and RESSPyLab's examples.
RESSPYLAB = (185115.047, 255.416, 91.727, 9.595, 1761.991, 3.549, 17430.519, 157.279)


def drawn(name, count, points=100, seed=0):
    """Cyclic histories and parameters of a law."""
    law, random = find_law(name), np.random.default_rng(seed)
    history = find_programmes(law.tests)[0].draw(random, count, points)
    return law, history, law.from_labels(random.random((count, len(law.parameters))))


def integrated(strain, parameters):
    """Stress at strain [points] by the rate equations, with a Runge-Kutta method of high order between the points."""
    modulus, first_yield, gain, rate = parameters[:4]
    slopes, rates = np.array(parameters[4::2]), np.array(parameters[5::2])
    plastic, path, back = 0.0, 0.0, np.zeros(len(slopes))
    stresses = []
    for end in strain:
        radius = first_yield + gain * (1 - np.exp(-rate * path))
        trial = modulus * (end - plastic)
        side = np.sign(trial - back.sum())
        if side * (trial - back.sum()) > radius:
            begin = plastic + (back.sum() + side * radius) / modulus

            def flow(_, state, side=side):
                hardening = gain * rate * np.exp(-rate * state[1])
                hardening += (slopes - side * rates * state[2:]).sum()
                speed = modulus / (modulus + hardening)  # dp / |dε|
                return speed * np.concatenate([[side, 1.0], side * slopes - rates * state[2:]])

            solved = scipy.integrate.solve_ivp(
                flow,
                (0.0, abs(end - begin)),
                np.concatenate([[plastic, path], back]),
                method="DOP853",
                rtol=1e-12,
                atol=1e-13,
            )
            plastic, path, back = solved.y[0, -1], solved.y[1, -1], solved.y[2:, -1]
        stresses.append(modulus * (end - plastic))
    return np.array(stresses)


@pytest.mark.parametrize("name", NAMES)
def test_response_solves_the_rate_equations(name):
    law, history, parameters = drawn(name, 6, points=60)
    found = law.respond(history, parameters)
    for strain, values, stress in zip(history.driven, parameters, found, strict=True):
        np.testing.assert_allclose(stress, integrated(strain, values), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_monotonic_loading_has_a_closed_form(name):
    """The stress after a plastic strain p is known, and with it the whole strain; one step reaches it."""
    law = find_law(name)
    parameters = law.from_labels(np.random.default_rng(1).random((200, len(law.parameters))))
    modulus, first_yield, gain, rate = parameters.T[:4, :, None]
    slopes, rates = (parameters.T[first::2, :, None] for first in (4, 5))
    plastic = np.geomspace(1e-6, 0.3, 20)
    stress = first_yield - gain * np.expm1(-rate * plastic)
    stress = stress - (slopes / rates * np.expm1(-rates * plastic)).sum(axis=0)
    strain = stress / modulus + plastic
    np.testing.assert_allclose(law.stress(strain, parameters), stress, rtol=1e-11)
    np.testing.assert_allclose(law.stress(-strain, parameters), -stress, rtol=1e-11)
    for i in (0, 10, 19):
        found = law.stress(strain[:, i : i + 1], parameters)
        np.testing.assert_allclose(found, stress[:, i : i + 1], rtol=1e-12)


def test_stabilised_loop_has_a_closed_form():
    """Amplitude σ0 + Q + Σ C/γ tanh(γ Δεp / 2) of a saturated symmetric loop (Lemaitre and Chaboche 1990, 5.4.4)."""
    law = find_law("voce_chaboche_3")
    parameters = np.array([[200e3, 300.0, 50.0, 50.0, 5e4, 500.0, 1e4, 100.0, 2e3, 20.0]])
    turns = 0.01 * (-1.0) ** np.arange(400)
    stress = law.stress(turns[None], parameters)[0]
    amplitude = (stress[-2] - stress[-1]) / 2
    plastic_range = 0.02 - 2 * amplitude / 200e3
    expected = 350.0 + sum(
        c / g * np.tanh(g * plastic_range / 2) for c, g in ((5e4, 500.0), (1e4, 100.0), (2e3, 20.0))
    )
    assert amplitude == pytest.approx(expected, rel=1e-12)
    assert abs(stress[-1] + stress[-2]) < 1e-7


@pytest.mark.parametrize(("test", "objective"), [(1, 670.122), (2, 578.605)])
def test_measured_steel_has_the_known_objective(real_curves, test, objective):
    """Squared error weighted with the strain's way, MPa²: RESSPyLab's objective with its exact integrator."""
    path = real_curves / "resspylab_cyclic_steel" / f"example_{test}.csv"
    strain, measured = np.loadtxt(path, delimiter=",", skiprows=1)[:, -2:].T
    stress = find_law("voce_chaboche").stress(strain[None], np.array([RESSPYLAB]))[0]
    square, way = (stress - measured) ** 2, np.abs(np.diff(strain))
    found = (way * (square[1:] + square[:-1]) / 2).sum() / way.sum()
    assert found == pytest.approx(objective, abs=0.001)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_depends_on_itself_alone(name):
    law, history, parameters = drawn(name, 2100, points=60)
    together = law.respond(history, parameters)
    for i in (0, 2047, 2048, 2099):
        row = slice(i, i + 1)
        alone = law.respond(history.rows(row), parameters[row])[0]
        np.testing.assert_allclose(alone, together[i], rtol=0, atol=1e-9)
    shared = History(strain=history.driven[:1])
    np.testing.assert_allclose(
        law.respond(shared, parameters[:5]),
        law.respond(History(strain=np.repeat(history.driven[:1], 5, axis=0)), parameters[:5]),
        rtol=1e-14,
    )


def test_points_that_repeat_change_nothing():
    law, history, parameters = drawn("voce_chaboche", 20)
    held = History(strain=np.repeat(history.driven, 2, axis=1))
    for answer in (law.respond, law.sensitivities):
        np.testing.assert_allclose(
            answer(held, parameters)[:, ::2], answer(history, parameters), rtol=1e-9, atol=1e-9
        )


def test_backstresses_are_told_apart_by_their_rates_and_a_driven_stress_is_refused():
    with pytest.raises(InputError, match="gamma1 and gamma2 .* can change places"):
        find_law("voce_chaboche", ranges={"gamma1": (100.0, 1000.0)})
    law = find_law("voce_chaboche")
    with pytest.raises(ValueError, match="a driven strain"):
        law.respond(History(stress=np.ones((1, 3))), law.from_labels(np.full((1, 8), 0.5)))


# Cyclic shear of a ply against NASA's single element, its algorithm, closed forms and the equations of damage.


OF_PLIES = ("ramberg_osgood_shear", "ladeveze_shear")
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


@pytest.mark.parametrize("name", OF_PLIES)
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

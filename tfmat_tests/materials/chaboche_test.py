"""Voce-Chaboche against its rate equations, closed forms, and RESSPyLab's objectives of two measured tests."""

import numpy as np
import pytest
import scipy.integrate

from tfmat.errors import InputError
from tfmat.materials import History, HistoryLaw, find_law
from tfmat.records.programmes import find_programmes

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
def test_sensitivities_are_the_derivatives(name):
    """Central differences, whose error is that of rounding: a millionth of what the parameter does at most."""
    law, history, parameters = drawn(name, 40)
    exact = law.sensitivities(history, parameters) * parameters[:, None, :]
    differences = HistoryLaw.sensitivities(law, history, parameters) * parameters[:, None, :]
    assert exact.shape == (40, 100, len(law.parameters))
    # At a point that one side's step finds elastic and the other's plastic there is no derivative.
    close = np.abs(exact - differences) < 1e-5
    assert close.mean() > 0.999
    np.testing.assert_allclose(exact, differences, atol=0.05)


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

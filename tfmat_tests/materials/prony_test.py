"""Prony's series against its closed forms, SciPy's integration and non-negative least squares."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from tfmat.errors import InputError
from tfmat.materials import History, find_law

LAW = find_law("prony")
VALUES = np.array([[100.0, 40.0, 60.0, 30.0, 80.0, 20.0, 1.0, 10.0, 100.0, 1e3, 1e4]])


def _ramp(ramp, points, level=0.01):
    time = np.concatenate([np.linspace(0.0, ramp, 10), ramp + np.geomspace(0.1, 1e4, points)])
    return time[None], level * np.minimum(time / ramp, 1.0)[None]


def test_a_sudden_strain_relaxes_as_the_modulus():
    time = np.geomspace(1e-2, 1e5, 50)
    history = History(strain=np.full((1, 51), 0.01), time=np.concatenate([[0.0], time])[None])
    stress = LAW.respond(history, VALUES)
    assert stress[0, 0] == pytest.approx(0.01 * VALUES[0, :6].sum())
    np.testing.assert_allclose(
        stress[0, 1:], 0.01 * LAW.relaxation_modulus(time, VALUES)[0], rtol=1e-12
    )
    by_hand = 100 + sum(
        e * np.exp(-time / t) for e, t in zip(VALUES[0, 1:6], VALUES[0, 6:], strict=True)
    )
    np.testing.assert_allclose(LAW.relaxation_modulus(time, VALUES)[0], by_hand, rtol=1e-13)


def test_a_ramp_and_hold_is_exact_at_any_points():
    """Duhamel's integral of the ramp in closed form, at very few points."""
    ramp, level = 30.0, 0.02
    time = np.array([[0.0, 30.0, 31.0, 500.0, 2e4]])
    strain = level * np.minimum(time / ramp, 1.0)
    expected = 100.0 * strain[0]
    for modulus, tau in zip(VALUES[0, 1:6], VALUES[0, 6:], strict=True):
        risen = np.minimum(time[0], ramp)
        held = modulus * tau * level / ramp * -np.expm1(-risen / tau)
        expected = expected + held * np.exp(-(time[0] - risen) / tau)
    np.testing.assert_allclose(
        LAW.respond(History(strain=strain, time=time), VALUES)[0], expected, rtol=1e-12
    )


def test_creep_is_its_equations_integrated():
    time = np.concatenate([np.linspace(0.0, 5.0, 40), 5.0 + np.geomspace(1e-2, 1e4, 800)])
    stress = 3.0 * np.minimum(time / 5.0, 1.0)
    moduli, times = VALUES[0, 1:6], VALUES[0, 6:]
    total = VALUES[0, :6].sum()

    def rates(now, held):
        rising = 0.6 if now < 5.0 else 0.0
        strain_rate = (rising + (held / times).sum()) / total
        return moduli * strain_rate - held / times

    first = scipy.integrate.solve_ivp(
        rates, [0, 5], np.zeros(5), "LSODA", time[:40], rtol=1e-10, atol=1e-12
    )
    second = scipy.integrate.solve_ivp(
        rates, [5, time[-1]], first.y[:, -1], "LSODA", time[40:], rtol=1e-10, atol=1e-12
    )
    held = np.concatenate([first.y, second.y], axis=1).sum(axis=0)
    found = LAW.respond(History(stress=stress[None], time=time[None]), VALUES)[0]
    np.testing.assert_allclose(found, (stress - held) / 100.0, rtol=2e-4, atol=1e-8)


def test_driven_strain_and_driven_stress_are_inverse():
    time, strain = _ramp(10.0, 60)
    stress = LAW.respond(History(strain=strain, time=time), VALUES)
    back = LAW.respond(History(stress=stress, time=time), VALUES)
    np.testing.assert_allclose(back, strain, rtol=1e-11)


def test_dynamic_moduli_are_those_of_steady_cycles():
    """Stress under a strain sin(ωt), after the start has died away: storage in phase, loss a quarter ahead."""
    values = VALUES.copy()
    values[0, 6:] = [0.1, 0.5, 1.0, 2.0, 5.0]
    for frequency in (0.3, 3.0):
        time = np.arange(0.0, 60.0, 2 * np.pi / frequency / 200)
        strain = np.sin(frequency * time)
        stress = LAW.respond(History(strain=strain[None], time=time[None]), values)[0]
        last = time > time[-1] - 2 * np.pi / frequency
        basis = np.stack([np.sin(frequency * time), np.cos(frequency * time)], axis=1)[last]
        fitted = np.linalg.lstsq(basis, stress[last], rcond=None)[0]
        storage, loss = LAW.dynamic_moduli(np.array([frequency]), values)
        np.testing.assert_allclose(fitted, [storage[0, 0], loss[0, 0]], rtol=1e-3)


def test_sensitivities_are_the_derivatives():
    parameters = LAW.from_labels(np.random.default_rng(0).random((4, 6)))
    time, strain = _ramp(20.0, 40)
    history = History(strain=strain, time=time)
    found = LAW.sensitivities(history, parameters)
    differences = super(type(LAW), LAW).sensitivities(history, parameters)
    # Differences are good to 1e-9 of what a change of the parameter by itself would do, or of the stress.
    scale = np.abs(differences).max(axis=1) * parameters + np.abs(strain).max() * parameters[:, :1]
    error = np.abs(found - differences).max(axis=1) * parameters
    assert (error / scale).max() < 1e-7
    # Linear in the moduli: the stress is the sum of its derivatives times them.
    np.testing.assert_allclose(
        (found[:, :, :6] * parameters[:, None, :6]).sum(axis=2),
        LAW.respond(history, parameters),
        rtol=1e-11,
    )


def test_non_negative_least_squares_finds_the_moduli():
    """What the class says of the baseline: linear, so the best fit comes at once."""
    time, strain = _ramp(5.0, 80)
    history = History(strain=strain, time=time)
    stress = LAW.respond(history, VALUES)[0]
    columns = LAW.sensitivities(history, VALUES)[0, :, :6]
    np.testing.assert_allclose(scipy.optimize.nnls(columns, stress)[0], VALUES[0, :6], rtol=1e-8)


def test_every_draw_is_finite_and_time_is_asked_for():
    labels = np.random.default_rng(1).random((1500, 6))
    parameters = LAW.from_labels(np.concatenate([labels, np.rint(labels)]))
    time, strain = _ramp(1.0, 40)
    for history in (
        History(strain=strain, time=time),
        History(stress=1e3 * strain, time=time),
        History(strain=strain, time=np.zeros_like(time)),
    ):
        assert np.isfinite(LAW.respond(history, parameters)).all()
    with pytest.raises(InputError, match="law prony asks for the time"):
        LAW.respond(History(strain=strain), parameters)

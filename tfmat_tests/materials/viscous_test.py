"""Laws that flow with time against closed forms and SciPy's integration."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from tfmat.errors import InputError
from tfmat.materials import History, find_law
from tfmat.materials.viscous import Specimens

# Viscoplastic laws against closed forms and against SciPy's integration of the published equations.


PERZYNA, NORTON = find_law("perzyna"), find_law("norton")


def _draws(law, count, seed=0):
    labels = np.random.default_rng(seed).random((count, len(law.parameters)))
    return law.from_labels(np.concatenate([labels, np.rint(labels)]))


def _ramp_and_hold(level, ramp, hold, points):
    """Times and values [points]: a ramp of evenly spaced points, then a hold of log-spaced ones."""
    rising = points // 4
    held = np.geomspace(1e-3 * hold, hold, points - rising)
    time = np.concatenate([np.linspace(0.0, ramp, rising), ramp + held])
    return time, level * np.minimum(time / ramp, 1.0)


def _programmes(points):
    """One relaxation, one creep test, one tension test and a cycle of tension and compression."""
    time, strain = _ramp_and_hold(0.01, 20.0, 1e4, points)
    yield History(strain=strain[None], time=time[None])
    time, stress = _ramp_and_hold(150.0, 50.0, 1e5, points)
    yield History(stress=stress[None], time=time[None])
    strain = 0.05 * np.linspace(0.0, 1.0, points) ** 2
    yield History(strain=strain[None], time=strain[None] / 1e-4)
    time = np.linspace(0.0, 400.0, points)
    strain = 0.01 * np.interp(time, [0, 100, 300, 400], [0, 1, -1, 0])
    yield History(strain=strain[None], time=time[None])


def _integrated(history, values):
    """The equations as published, by SciPy's stiff solver with tight tolerances."""
    modulus, first_yield, gain, saturation, drag, exponent = values
    time, driven = history.time[0], history.driven[0]

    def stress_of(now, plastic):
        value = np.interp(now, time, driven)
        return modulus * (value - plastic) if history.stress is None else value

    def flow(now, state):
        stress = stress_of(now, state[0])
        yield_stress = first_yield + gain * (1 - np.exp(-saturation * state[1]))
        rate = max((abs(stress) - yield_stress) / drag, 0.0) ** exponent
        return np.sign(stress) * rate, rate

    corner = time[np.argmax(np.abs(driven))]
    found = scipy.integrate.solve_ivp(
        flow, time[[0, -1]], [0.0, 0.0], "LSODA", time, rtol=1e-9, atol=1e-13, max_step=corner / 20
    )
    assert found.success
    if history.stress is None:
        return modulus * (driven - found.y[0])
    return driven / modulus + found.y[0]


@pytest.mark.parametrize(
    ("number", "usual", "largest"),
    # Relaxation, creep (its hold begins with a step of 100 s), tension, and a cycle with its two reversals.
    [
        (0, 1e-5, 1e-3),
        pytest.param(1, 3e-3, 3e-3, marks=pytest.mark.large),
        pytest.param(2, 1e-5, 2e-4, marks=pytest.mark.large),
        (3, 1e-3, 2e-2),
    ],
)
def test_perzyna_is_its_equations_integrated(number, usual, largest):
    values = (160e3, 80.0, 60.0, 40.0, 150.0, 4.0)
    history = list(_programmes(1000))[number]
    expected = _integrated(history, values)
    error = np.abs(PERZYNA.respond(history, np.array([values]))[0] - expected)
    assert np.quantile(error, 0.9) < usual * np.abs(expected).max()
    assert error.max() < largest * np.abs(expected).max()


@pytest.mark.parametrize("moved", ["noise", "drift"])
def test_a_hold_that_is_not_quite_held_relaxes_as_its_equations(moved):
    """Noise and drift of an extensometer leave the decay what it is; implicit steps would be 6 MPa off at its start."""
    values = (200e3, 150.0, 120.0, 25.0, 220.0, 6.0)
    ramp = np.linspace(0.0, 10.0, 401)
    time = np.concatenate([ramp, 10.0 + np.geomspace(0.5, 86400.0, 40)])
    held = time > 10.0
    strain = 0.01 * np.minimum(time / 10.0, 1.0)
    if moved == "noise":
        strain[held] += np.random.default_rng(0).normal(0.0, 1e-6, held.sum())
    else:
        strain[held] += 5e-6 * np.log10(time[held] / 10.0)
    history = History(strain=strain[None], time=time[None])
    expected = _integrated(history, values)
    error = np.abs(PERZYNA.respond(history, np.array([values]))[0] - expected)[held]
    assert error.max() < 0.5


def test_loading_is_of_second_order():
    values = (160e3, 80.0, 60.0, 40.0, 150.0, 4.0)
    errors = []
    for points in (200, 800):
        history = list(_programmes(points))[2]
        found = PERZYNA.respond(history, np.array([values]))[0]
        errors.append(np.abs(found - _integrated(history, values)).max())
    assert errors[1] < errors[0] / 8


def test_norton_relaxes_as_its_closed_form():
    """σ^(1-n) - σ0^(1-n) = (n - 1) E t / K^n from a strain that is applied at once, one point a decade."""
    modulus, drag, exponent, first = 150e3, 1000.0, 6.0, 200.0
    time = np.concatenate([[0.0], np.geomspace(1e-2, 1e6, 9)])
    history = History(strain=np.full((1, len(time)), first / modulus), time=time[None])
    stress = NORTON.respond(history, np.array([[modulus, drag, exponent]]))[0]
    powers = first ** (1 - exponent) + (exponent - 1) * modulus * time / drag**exponent
    np.testing.assert_allclose(stress, powers ** (1 / (1 - exponent)), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 40])
def test_an_exponent_of_one_is_a_linear_dashpot(count):
    """Maxwell's body, σ = E ε exp(-E t/K), and its derivatives; a power law's closed form divides by n - 1."""
    modulus, drag, strain = 150e3, 2e4, 1e-3
    time = np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 9)])
    history = History(strain=np.full((count, len(time)), strain), time=np.tile(time, (count, 1)))
    parameters = np.tile([modulus, drag, 1.0], (count, 1))
    expected = modulus * strain * np.exp(-modulus * time / drag)
    np.testing.assert_allclose(NORTON.respond(history, parameters)[-1], expected, rtol=1e-5)
    by_modulus, by_drag, by_exponent = NORTON.sensitivities(history, parameters)[-1].T
    np.testing.assert_allclose(by_modulus, expected * (1 / modulus - time / drag), rtol=1e-4)
    np.testing.assert_allclose(by_drag, expected * modulus * time / drag**2, rtol=1e-4)
    assert np.isfinite(by_exponent).all()


def test_norton_creeps_at_the_rate_of_its_formula():
    """Under a constant stress implicit steps of any length are exact."""
    modulus, drag, exponent, held = 150e3, 2000.0, 5.0, 120.0
    time = np.array([[0.0, 1.0, 50.0, 1e3, 1e5]])
    history = History(stress=np.full((1, 5), held), time=time)
    strain = NORTON.respond(history, np.array([[modulus, drag, exponent]]))
    np.testing.assert_allclose(
        strain, held / modulus + (held / drag) ** exponent * time, rtol=1e-12
    )


def test_a_search_ends_at_once_where_flow_alone_takes_the_stress():
    """Its answer is the end of what is searched; rounding beyond that once led to halving."""
    columns = np.array([[150e3], [0.0], [0.0], [0.0], [2000.0], [5.0]])
    quick, patient = (Specimens(columns, False, None) for _ in range(2))
    quick.most_steps = 4
    for rising in np.full(40, 3.7):
        found, expected = (
            each.advance(np.array([rising]), np.array([10.0])) for each in (quick, patient)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_tension_at_a_rate_ends_at_the_flow_stress():
    """Steady flow: σ = σ0 + Q + K rate^(1/n)."""
    values = (200e3, 100.0, 80.0, 200.0, 120.0, 5.0)
    strain = np.linspace(0.0, 0.1, 300)[None]
    for rate in (1e-5, 1e-3, 1e-1):
        stress = PERZYNA.respond(History(strain=strain, time=strain / rate), np.array([values]))
        assert stress[0, -1] == pytest.approx(180.0 + 120.0 * rate**0.2, rel=1e-6)


def test_nothing_flows_below_the_yield_stress():
    values = np.array([[200e3, 150.0, 50.0, 10.0, 100.0, 5.0]])
    time = np.linspace(0.0, 1e6, 20)[None]
    strain = 0.0007 * np.sin(time)
    np.testing.assert_allclose(
        PERZYNA.respond(History(strain=strain, time=time), values), 200e3 * strain, rtol=1e-12
    )


@pytest.mark.parametrize("law", [PERZYNA, NORTON])
def test_sensitivities_are_the_derivatives(law):
    """Against central differences of the response, away from the corners where flow begins or a start is 0."""
    parameters = law.from_labels(
        np.random.default_rng(3).uniform(0.2, 0.8, (2, len(law.parameters)))
    )
    for history in _programmes(60):
        found = law.sensitivities(history, parameters)
        for i in range(len(law.parameters)):
            step = 1e-6 * parameters[:, i]
            above, below = parameters.copy(), parameters.copy()
            above[:, i] += step
            below[:, i] -= step
            difference = law.respond(history, above) - law.respond(history, below)
            expected = difference / (2 * step[:, None])
            scale = np.abs(expected).max(axis=1, keepdims=True) + 1e-12
            error = np.abs(found[:, :, i] - expected) / scale
            assert np.quantile(error, 0.98) < 1e-5, law.parameters[i]


@pytest.mark.parametrize("law", [PERZYNA, NORTON])
def test_every_draw_is_finite_and_does_not_depend_on_its_neighbours(law):
    parameters = _draws(law, 60)
    for history in _programmes(60):
        answer = law.respond(history, parameters)
        assert np.isfinite(answer).all()
        assert np.isfinite(law.sensitivities(history, parameters)).all()
        for row in (0, 59, 119):
            alone = law.respond(history, parameters[row : row + 1])[0]
            np.testing.assert_allclose(alone, answer[row], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("law", [PERZYNA, NORTON])
def test_a_specimen_alone_answers_as_among_others_where_searches_go(law):
    """Far beyond the ranges, where some creep until numbers overflow."""
    log = [p.scale == "log" for p in law.parameters]
    parameters = law.from_labels(np.random.default_rng(7).uniform(-1.0, 2.0, (60, len(log))))
    parameters[:, np.logical_not(log)] = np.abs(parameters[:, np.logical_not(log)])
    time = np.concatenate([np.linspace(0.0, 10.0, 20), np.geomspace(11.0, 1e6, 20)])[None]
    stress = 400.0 * np.minimum(time / 10.0, 1.0)
    for history in (History(stress=stress, time=time), History(strain=stress / 2e4, time=time)):
        # So many that they are taken side by side.
        answer = law.respond(history, np.tile(parameters, (2, 1)))[: len(parameters)]
        alone = np.concatenate([law.respond(history, row[None]) for row in parameters])
        np.testing.assert_allclose(alone, answer, rtol=1e-6, atol=1e-9)
        slopes = law.sensitivities(history, parameters[:1])
        expected = law.sensitivities(history, np.tile(parameters, (2, 1)))[:1]
        np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-9)


def test_time_is_asked_for():
    with pytest.raises(InputError, match="law norton asks for the time"):
        NORTON.respond(History(strain=np.zeros((1, 3))), _draws(NORTON, 1))


def test_few_specimens_of_their_own_histories_answer_as_many():
    """Each specimen under its own strain; some of them rest while others are driven."""
    random = np.random.default_rng(6)
    time = np.tile(np.linspace(0.0, 100.0, 40), (80, 1))
    strain = 0.01 * np.cumsum(random.uniform(-0.3, 1.0, time.shape).clip(0.0), axis=1)
    history = History(strain=strain, time=time)
    parameters = PERZYNA.from_labels(random.random((80, 6)))
    many = PERZYNA.expanded(history, parameters)
    few = PERZYNA.expanded(history.rows(slice(0, 12)), parameters[:12])
    scale = np.abs(many[:12]).max(axis=1, keepdims=True)
    assert (np.abs(few - many[:12]) <= 1e-8 * scale).all()
    np.testing.assert_array_equal(PERZYNA.respond(history, parameters), many[..., 0])


# Prony's series against its closed forms, SciPy's integration and non-negative least squares.


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
    by_hand = 100 + sum(
        e * np.exp(-time / t) for e, t in zip(VALUES[0, 1:6], VALUES[0, 6:], strict=True)
    )
    np.testing.assert_allclose(stress[0, 1:], 0.01 * by_hand, rtol=1e-12)


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
    """Stress under a strain sin(ωt) in the end: storage in phase, loss a quarter ahead (J. D. Ferry 1980, ch. 3)."""
    values = VALUES.copy()
    values[0, 6:] = [0.1, 0.5, 1.0, 2.0, 5.0]
    for frequency in (0.3, 3.0):
        time = np.arange(0.0, 60.0, 2 * np.pi / frequency / 200)
        strain = np.sin(frequency * time)
        stress = LAW.respond(History(strain=strain[None], time=time[None]), values)[0]
        last = time > time[-1] - 2 * np.pi / frequency
        basis = np.stack([np.sin(frequency * time), np.cos(frequency * time)], axis=1)[last]
        fitted = np.linalg.lstsq(basis, stress[last], rcond=None)[0]
        moduli, turned = values[0, 1:6], frequency * values[0, 6:]
        storage = values[0, 0] + (moduli * turned**2 / (1 + turned**2)).sum()
        loss = (moduli * turned / (1 + turned**2)).sum()
        np.testing.assert_allclose(fitted, [storage, loss], rtol=1e-3)


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

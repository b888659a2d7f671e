"""Johnson and Cook's law against its published equation, solved to 40 digits in another way."""

import mpmath
import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import History, find_law

LAW = find_law("johnson_cook")


def _published(strain, rate, temperature, values):
    """By halving in the stress, where the law solves for the plastic strain: ε = σ/E + ((σ/F - A)/B)^(1/n)."""
    modulus, a, b, n, c, m, reference, room, melting = (mpmath.mpf(value) for value in values)
    strain, share = mpmath.mpf(strain), (mpmath.mpf(temperature) - room) / (melting - room)
    share = min(max(share, mpmath.mpf(0)), mpmath.mpf(1))
    factor = max(1 + c * mpmath.log(mpmath.mpf(rate) / reference), mpmath.mpf(0)) * (1 - share**m)
    if strain <= a * factor / modulus:
        return modulus * strain
    low, high = a * factor, modulus * strain
    while high - low > high * mpmath.mpf(10) ** -35:
        middle = (low + high) / 2
        excess = middle / modulus + ((middle / factor - a) / b) ** (1 / n) - strain
        low, high = (low, middle) if excess > 0 else (middle, high)
    return (low + high) / 2


def _cases(seed, count):
    """Random parameters with all nine free, strains, rates and temperatures."""
    random = np.random.default_rng(seed)
    columns = [parameter.from_unit_interval(random.random(count)) for parameter in LAW.parameters]
    parameters = np.stack(columns, axis=1)
    parameters[:, 8] = np.maximum(parameters[:, 8], 900.0)
    strain = 0.6 * random.random((count, 3)) ** 3
    rate = 10.0 ** random.uniform(-4, 4, (count, 1))
    temperature = random.uniform(-80.0, 800.0, (count, 1))
    return parameters, History(strain=strain, rate=rate, temperature=temperature)


def test_stress_is_the_published_equation():
    parameters, history = _cases(0, 40)
    stress = LAW.respond(history, parameters)
    with mpmath.workdps(40):
        expected = [
            [float(_published(strain, rate, temperature, values)) for strain in strains]
            for strains, (rate,), (temperature,), values in zip(
                history.strain, history.rate, history.temperature, parameters, strict=True
            )
        ]
    np.testing.assert_allclose(stress, expected, rtol=1e-12)


def test_4340_steel_of_the_paper():
    """By hand: at a plastic strain of 0.1, 1000/s and 500 °C, room temperature 25 °C and melting at 1520 °C."""
    values = (200e3, 792.0, 510.0, 0.26, 0.014, 1.03, 1.0, 25.0, 1520.0)
    stress = (792 + 510 * 0.1**0.26) * (1 + 0.014 * np.log(1000)) * (1 - (475 / 1495) ** 1.03)
    history = History(
        strain=np.array([[0.1 + stress / 200e3]]),
        rate=np.array([[1e3]]),
        temperature=np.array([[500.0]]),
    )
    assert LAW.respond(history, np.array([values]))[0, 0] == pytest.approx(stress, rel=1e-13)


@pytest.mark.parametrize(
    ("temperature", "factor"), [(-100.0, 1.0), (20.0, 1.0), (1500.0, 0.0), (1600.0, 0.0)]
)
def test_outside_of_room_and_melting_temperature(temperature, factor):
    parameters = LAW.from_labels(np.full((1, 6), 0.5))
    strain = np.linspace(0.0, 0.3, 20)[None]

    def at(value):
        history = History(strain=strain, rate=np.ones((1, 1)), temperature=np.full((1, 1), value))
        return LAW.respond(history, parameters), LAW.sensitivities(history, parameters)

    stress, derivatives = at(temperature)
    np.testing.assert_allclose(stress, factor * at(20.0)[0], atol=1e-12)
    assert np.isfinite(derivatives).all()
    assert (derivatives[:, :, 5] == 0.0).all()


def test_one_rate_leaves_c_open_and_one_temperature_m():
    """The columns of C and m are proportional to those of A and B together: the information has no full rank."""
    parameters = LAW.from_labels(np.full((1, 6), 0.5))
    strain = 0.3 * np.linspace(0.0, 1.0, 100)[None] ** 2

    def rank(tests):
        histories = [
            History(strain=strain, rate=np.full((1, 1), r), temperature=np.full((1, 1), t))
            for r, t in tests
        ]
        columns = [LAW.sensitivities(one, parameters)[0, :, :6] for one in histories]
        stacked = np.concatenate(columns) * np.abs(parameters[0, :6])
        return np.linalg.matrix_rank(stacked, rtol=1e-9)

    assert rank([(10.0, 200.0)]) == 4
    assert rank([(10.0, 200.0), (1e3, 200.0)]) == 5
    assert rank([(10.0, 200.0), (10.0, 500.0)]) == 5
    assert rank([(10.0, 200.0), (1e3, 200.0), (10.0, 500.0)]) == 6


def test_what_johnson_cook_asks_for():
    parameters = LAW.from_labels(np.full((1, 6), 0.5))
    with pytest.raises(InputError, match="asks for the strain rate and the temperature"):
        LAW.respond(History(strain=np.zeros((1, 3))), parameters)
    with pytest.raises(InputError, match="drives the stress"):
        LAW.respond(History(stress=np.zeros((1, 3))), parameters)

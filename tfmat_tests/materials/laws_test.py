"""Every law for monotonic loading against its published equation, solved here to 40 digits and in another way."""

import itertools

import mpmath
import numpy as np
import pytest

from tfmat.materials import find_law
from tfmat.materials.registry import LAWS, MONOTONIC_LAWS

_DIGITS = 40


def _bisected(function, low, high):
    """Root of a rising function between two mpmath numbers, by halving alone."""
    while high - low > high * mpmath.mpf(10) ** -35:
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2


def _hahn_tsai(strain, modulus, coefficient):
    return _bisected(
        lambda stress: stress / modulus + coefficient * stress**3 - strain, 0, modulus * strain * 2
    )


def _tanh_shear(strain, modulus, plateau):
    growth = mpmath.exp(2 * modulus * strain / plateau)
    return plateau * (growth - 1) / (growth + 1)


def _exponential_shear(strain, modulus, plateau):
    return plateau * (1 - mpmath.exp(-modulus * strain / plateau))


def _ramberg_osgood(strain, modulus, offset_stress, exponent):
    def excess(stress):
        return (
            stress / modulus + mpmath.mpf("0.002") * (stress / offset_stress) ** exponent - strain
        )

    elastic = modulus * strain
    plastic = offset_stress * (strain / mpmath.mpf("0.002")) ** (1 / exponent)
    high = min(elastic, plastic)
    return _bisected(excess, mpmath.mpf(0), 2 * high)


def _voce(strain, modulus, first_yield, gain, rate):
    """By Lambert's W: with y = b (σ0 + Q - σ)/E, y exp(y) = (b Q/E) exp(b ((σ0 + Q)/E - ε))."""
    if strain <= first_yield / modulus:
        return modulus * strain
    top = first_yield + gain
    argument = rate * gain / modulus * mpmath.exp(rate * (top / modulus - strain))
    return top - modulus / rate * mpmath.lambertw(argument).real


def _swift(strain, modulus, strength, pre_strain, exponent):
    first_yield = strength * pre_strain**exponent
    if strain <= first_yield / modulus:
        return modulus * strain

    # In the stress, where the law solves for the plastic strain: ε = σ/E + (σ/K)^(1/n) - ε0.
    def excess(stress):
        return stress / modulus + (stress / strength) ** (1 / exponent) - pre_strain - strain

    return _bisected(excess, mpmath.mpf(0), modulus * strain)


def _bisected_hardening(strain, modulus, hardening):
    """In the plastic strain's logarithm, by halving alone."""
    if strain <= hardening(mpmath.mpf(0)) / modulus:
        return modulus * strain

    def excess(shift):
        plastic = mpmath.exp(shift - 1000)
        return hardening(plastic) - modulus * (strain - plastic)

    return hardening(mpmath.exp(_bisected(excess, mpmath.mpf(0), 1000 + mpmath.log(strain)) - 1000))


def _hockett_sherby(strain, modulus, first_yield, gain, rate, power):
    saturated = first_yield + gain
    return _bisected_hardening(
        strain,
        modulus,
        lambda plastic: saturated - (saturated - first_yield) * mpmath.exp(-rate * plastic**power),
    )


def _swift_voce(strain, modulus, strength, pre_strain, exponent, gain, rate, weight):
    first_yield = strength * pre_strain**exponent

    def hardening(plastic):
        voce = first_yield + gain * (1 - mpmath.exp(-rate * plastic))
        return weight * strength * (pre_strain + plastic) ** exponent + (1 - weight) * voce

    return _bisected_hardening(strain, modulus, hardening)


def _ludwik(strain, modulus, first_yield, strength, exponent):
    return _bisected_hardening(
        strain, modulus, lambda plastic: first_yield + strength * plastic**exponent
    )


def _hollomon(strain, modulus, strength, exponent):
    meeting = (strength / modulus) ** (1 / (1 - exponent))
    return modulus * strain if strain < meeting else strength * strain**exponent


def _hognestad(strain, strength, peak_strain):
    if strain <= peak_strain:
        return strength * (2 * strain / peak_strain - (strain / peak_strain) ** 2)
    crushing, left = mpmath.mpf(0.0038), mpmath.mpf(0.85)
    return strength * (1 - (1 - left) * (strain - peak_strain) / (crushing - peak_strain))


EQUATIONS = {
    "hahn_tsai": _hahn_tsai,
    "tanh_shear": _tanh_shear,
    "exponential_shear": _exponential_shear,
    "ramberg_osgood": _ramberg_osgood,
    "voce": _voce,
    "swift": _swift,
    "hockett_sherby": _hockett_sherby,
    "swift_voce": _swift_voce,
    "ludwik": _ludwik,
    "hollomon": _hollomon,
    "hognestad": _hognestad,
}


# So many of a law's corners and random parameters are solved with 40 digits.
_MOST_CASES = 80


def _cases(law):
    """Parameters [cases, all] and strains [cases]: every corner of the ranges at several strains, then random ones."""
    count = len(law.parameters)
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=count)))
    strains = np.array([1e-9, 1e-5, 1e-3, *law.max_strain])
    generator = np.random.default_rng(1)
    labels = np.concatenate(
        [np.repeat(corners, len(strains), axis=0), generator.random((30, count))]
    )
    random_strains = law.max_strain[1] * generator.random(30) ** 2
    every = np.concatenate([np.tile(strains, len(corners)), random_strains])
    chosen = generator.permutation(len(every))[:_MOST_CASES]
    return law.from_labels(labels[chosen]), every[chosen]


def _published(name, strain, parameters):
    with mpmath.workdps(_DIGITS):
        return mpmath.mpf(EQUATIONS[name](mpmath.mpf(strain), *map(mpmath.mpf, parameters)))


def test_every_law_has_its_equation_here():
    assert set(EQUATIONS) == set(MONOTONIC_LAWS)
    assert [law.name for law in LAWS.values()] == list(LAWS)


@pytest.mark.parametrize("name", MONOTONIC_LAWS)
def test_stress_agrees_with_published_equation(name):
    law = find_law(name)
    parameters, strains = _cases(law)
    stress = law.stress(strains[:, None], parameters)[:, 0]
    expected = [float(_published(name, *case)) for case in zip(strains, parameters, strict=True)]
    np.testing.assert_allclose(stress, expected, rtol=1e-13)


@pytest.mark.parametrize("name", MONOTONIC_LAWS)
def test_stress_is_zero_at_zero_strain_and_does_not_depend_on_the_block(name):
    law = find_law(name)
    parameters = law.from_labels(np.random.default_rng(2).random((1000, len(law.parameters))))
    strain = np.linspace(0.0, law.max_strain[1], 60)[None, :]
    together = law.stress(strain, parameters)
    assert together.shape == (1000, 60)
    assert together.dtype == np.float64
    assert np.all(together[:, 0] == 0.0)
    for i in (0, 639, 999):
        np.testing.assert_allclose(
            law.stress(strain, parameters[i : i + 1])[0], together[i], rtol=1e-14
        )


@pytest.mark.parametrize("name", MONOTONIC_LAWS)
def test_derivatives_at_zero_strain_are_zero(name):
    law = find_law(name)
    parameters, _ = _cases(law)
    assert np.all(law.derivatives(np.zeros((1, 1)), parameters) == 0.0)


def test_hahn_tsai_without_cubic_term_is_linear():
    law = find_law("hahn_tsai")
    strain = np.array([[1e-300, 1e-8, 0.01, 0.05]])
    np.testing.assert_allclose(
        law.stress(strain, np.array([[5000.0, 0.0]])), 5000 * strain, rtol=1e-15
    )
    for coefficient in (1e-300, 1e-30, 1e-16):
        expected = float(_published("hahn_tsai", 0.05, (5000.0, coefficient)))
        assert law.stress(np.array([[0.05]]), np.array([[5000.0, coefficient]]))[
            0, 0
        ] == pytest.approx(expected, rel=1e-14)


def test_hahn_tsai_far_outside_its_ranges():
    law = find_law("hahn_tsai")
    for strain, coefficient in ((1.0, 1e-3), (1e-15, 1e-7), (10.0, 1.0)):
        expected = float(_published("hahn_tsai", strain, (8000.0, coefficient)))
        assert law.stress(np.array([[strain]]), np.array([[8000.0, coefficient]]))[
            0, 0
        ] == pytest.approx(expected, rel=1e-13)


def test_hahn_tsai_of_t300_976():
    """G0 = 6964 MPa, a = 2.44e-8 MPa⁻³: strain 0.03 by hand from γ = τ/G0 + a τ³ at τ = 90 MPa."""
    strain = 90 / 6964 + 2.44e-8 * 90**3
    assert find_law("hahn_tsai").stress(np.array([[strain]]), np.array([[6964, 2.44e-8]]))[
        0, 0
    ] == pytest.approx(90, rel=1e-14)


def test_ramberg_osgood_offset_stress_leaves_two_tenths_of_a_percent():
    law = find_law("ramberg_osgood")
    strain = np.array([[350 / 70e3 + 0.002]])
    for exponent in (3.0, 10.0, 30.0):
        assert law.stress(strain, np.array([[70e3, 350, exponent]]))[0, 0] == pytest.approx(
            350, rel=1e-14
        )


def test_swift_with_steep_and_with_convex_hardening():
    """User ranges reach further than ours: hardening steeper than E at first (n = 0.01), and n above 1."""
    for parameters in (
        (60e3, 2000.0, 1e-7, 0.01),
        (60e3, 2000.0, 1e-7, 0.3),
        (200e3, 5000.0, 0.05, 1.5),
    ):
        for strain in (0.003, 0.02, 0.6):
            expected = float(_published("swift", strain, parameters))
            stress = find_law("swift").stress(np.array([[strain]]), np.array([parameters]))[0, 0]
            assert stress == pytest.approx(expected, rel=1e-11)


def test_powers_that_overflow_on_the_way_to_the_root():
    """E in GPa instead of MPa, and exponents far from any metal's: still the published equation's root."""
    cases = (
        ("swift", (69.0, 400.0, 0.01, 0.1)),
        ("swift", (70e3, 400.0, 0.01, 375.0)),
        ("swift", (70e3, 400.0, 0.01, 1e4)),
        ("voce", (69.0, 250.0, 300.0, 10.0)),
        ("voce", (70e3, 250.0, 300.0, 1e6)),
        ("ramberg_osgood", (69.0, 250.0, 10.0)),
        ("ramberg_osgood", (70e3, 250.0, 1e4)),
        ("ramberg_osgood", (70e3, 250.0, 0.01)),
        ("ramberg_osgood", (70e3, 250.0, 0.5)),
        ("ludwik", (69.0, 250.0, 300.0, 0.3)),
        ("ludwik", (70e3, 250.0, 300.0, 0.01)),
        ("ludwik", (70e3, 250.0, 300.0, 1.5)),
    )
    for (name, parameters), strain in zip(cases, itertools.cycle((0.02, 5.0)), strict=False):
        expected = float(_published(name, strain, parameters))
        stress = find_law(name).stress(np.array([[strain]]), np.array([parameters]))[0, 0]
        assert stress == pytest.approx(expected, rel=1e-10), (name, parameters, strain)


@pytest.mark.parametrize("name", sorted(set(MONOTONIC_LAWS) - {"hognestad"}))
def test_no_positive_parameters_make_numpy_warn(name):
    """A thousand million times too large or too small, all together: finite, rising, no stiffer than elastic."""
    law = find_law(name)
    every = 5 ** len(law.parameters)
    chosen = np.random.default_rng(0).permutation(every)[:3125]
    powers = chosen[:, None] // 5 ** np.arange(len(law.parameters)) % 5
    factors = np.array([1e-9, 1e-3, 1, 1e3, 1e9])[powers]
    parameters = law.from_labels(np.full((1, len(law.parameters)), 0.5)) * factors
    for i, parameter in enumerate(law.parameters):
        limits = law.meaningful.get(parameter.name, (0, np.inf))
        parameters[:, i] = parameters[:, i].clip(*limits)
    strain = np.array([[0.0, 1e-12, 1e-6, 1e-4, 0.01, 0.3, 5.0]])
    with np.errstate(all="raise"):
        stress, derivatives = law.stress(strain, parameters), law.derivatives(strain, parameters)
    assert np.isfinite(stress).all() and np.isfinite(derivatives).all()
    assert np.all(np.diff(stress, axis=1) >= -1e-9 * stress[:, 1:])
    assert np.all((stress >= 0) & (stress <= parameters[:, :1] * strain * (1 + 1e-9)))


def test_hognestad_of_ordinary_concrete():
    """fc 30 MPa at 0.2 %: 3/4 of it at half the strain, 92.5 % half way down, 85 % at crushing and behind it."""
    strain = np.array([[0.001, 0.002, 0.0029, 0.0038, 0.005]])
    stress = find_law("hognestad").stress(strain, np.array([[30.0, 0.002]]))
    np.testing.assert_allclose(stress, [[22.5, 30.0, 27.75, 25.5, 25.5]], rtol=1e-14)

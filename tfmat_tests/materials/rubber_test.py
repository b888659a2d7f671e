"""Rubber laws against numerical differentiation of their published energies, and against tests of real rubber."""

import mpmath
import numpy as np
import pytest
import scipy.optimize

from tfmat.errors import InputError
from tfmat.materials import LAWS, History, find_law
from tfmat.materials.rubber import RubberLaw

RUBBER = [name for name, law in LAWS.items() if issubclass(law, RubberLaw)]
# The three principal stretches of an incompressible specimen, and how many of them the machine drives.
STRETCHES = {
    "uniaxial": (lambda x: (x, 1 / mpmath.sqrt(x), 1 / mpmath.sqrt(x)), 1),
    "equibiaxial": (lambda x: (x, x, x**-2), 2),
    "planar": (lambda x: (x, mpmath.mpf(1), 1 / x), 1),
}
AT = (0.35, 0.8, 0.999999, 1.0, 1.000001, 1.3, 2.5, 7.0)


def _invariants(stretches):
    a, b, c = (x**2 for x in stretches)
    return a + b + c, a * b + b * c + c * a


def _neo_hooke(stretches, mu):
    return mu / 2 * (_invariants(stretches)[0] - 3)


def _mooney_rivlin(stretches, c10, c01):
    first, second = _invariants(stretches)
    return c10 * (first - 3) + c01 * (second - 3)


def _yeoh(stretches, *coefficients):
    first = _invariants(stretches)[0] - 3
    return sum(c * first ** (i + 1) for i, c in enumerate(coefficients))


def _arruda_boyce(stretches, mu, locking):
    first = _invariants(stretches)[0]
    fractions = ((1, 2), (1, 20), (11, 1050), (19, 7000), (519, 673750))
    return mu * sum(
        mpmath.mpf(p) / q * (first**i - 3**i) / locking ** (2 * i - 2)
        for i, (p, q) in enumerate(fractions, start=1)
    )


def _ogden(stretches, *parameters):
    return sum(
        2 * mu / alpha**2 * (sum(x**alpha for x in stretches) - 3)
        for mu, alpha in zip(parameters[::2], parameters[1::2], strict=True)
    )


ENERGIES = {
    "neo_hooke": _neo_hooke,
    "mooney_rivlin": _mooney_rivlin,
    "yeoh": _yeoh,
    "arruda_boyce": _arruda_boyce,
    "ogden_1": _ogden,
    "ogden": _ogden,
    "ogden_3": _ogden,
}


def _expected(name, mode, stretch, parameters):
    """Work per driven direction: dW/dλ by a central difference of 60 digits."""
    stretches, driven = STRETCHES[mode]
    step = mpmath.mpf(10) ** -20
    ends = [ENERGIES[name](stretches(mpmath.mpf(stretch) + s * step), *parameters) for s in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step) / driven


@pytest.mark.parametrize("mode", STRETCHES)
@pytest.mark.parametrize("name", RUBBER)
def test_stress_is_the_derivative_of_the_energy(name, mode):
    law = find_law(name)
    labels = np.random.default_rng(0).random((6, len(law.parameters)))
    parameters = law.from_labels(np.concatenate([labels, np.rint(labels)]))
    history = History(mode, strain=np.array([AT]) - 1.0)
    stress = law.respond(history, parameters)
    with mpmath.workdps(60):
        for row, values in enumerate(parameters):
            exact = [mpmath.mpf(value) for value in values]
            expected = [
                float(_expected(name, mode, 1.0 + strain, exact)) for strain in history.strain[0]
            ]
            # Stress at rest is a difference of equal stresses: what rounding leaves of them.
            np.testing.assert_allclose(
                stress[row], expected, rtol=1e-9, atol=1e-13 * np.abs(expected).max()
            )


@pytest.mark.parametrize("mode", STRETCHES)
def test_special_cases(mode):
    """Ogden with exponents 2 and -2 is Neo-Hooke and Mooney-Rivlin; long chains of Arruda and Boyce are Neo-Hooke."""
    history = History(mode, strain=np.linspace(-0.6, 5.0, 30)[None])

    def stress(name, *values):
        return find_law(name).respond(history, np.array([values]))

    neo_hooke = stress("neo_hooke", 0.4)
    np.testing.assert_allclose(stress("ogden_1", 0.4, 2.0), neo_hooke, rtol=1e-12)
    np.testing.assert_allclose(stress("arruda_boyce", 0.4, 1e6), neo_hooke, rtol=1e-9)
    np.testing.assert_allclose(stress("mooney_rivlin", 0.2, 0.0), neo_hooke, rtol=1e-12)
    np.testing.assert_allclose(stress("yeoh", 0.2, 0.0, 0.0), neo_hooke, rtol=1e-12)
    np.testing.assert_allclose(
        stress("ogden", 0.4, 2.0, 0.1, -2.0), stress("mooney_rivlin", 0.2, 0.05), rtol=1e-12
    )
    logarithmic = stress("ogden_1", 0.4, 0.0)
    assert np.isfinite(logarithmic).all()
    np.testing.assert_allclose(stress("ogden_1", 0.4, 1e-9), logarithmic, rtol=1e-7)


@pytest.mark.parametrize("name", RUBBER)
def test_initial_modulus(name):
    """The small-strain stiffness is 3, 6 and 4 times the shear modulus in the three modes."""
    law = find_law(name)
    parameters = law.from_labels(np.full((1, len(law.parameters)), 0.5))
    slopes = [
        law.respond(History(mode, strain=np.array([[1e-7]])), parameters)[0, 0] / 1e-7
        for mode in ("uniaxial", "equibiaxial", "planar")
    ]
    np.testing.assert_allclose(np.divide(slopes, slopes[0]), [1.0, 2.0, 4 / 3], rtol=1e-5)


def test_what_rubber_does_not_answer():
    law = find_law("ogden")
    parameters = law.from_labels(np.full((1, 4), 0.5))
    with pytest.raises(InputError, match="uniaxial, equibiaxial, planar tests; this one is shear"):
        law.respond(History("shear", strain=np.zeros((1, 3))), parameters)
    with pytest.raises(InputError, match="drives the stress"):
        law.respond(History(stress=np.zeros((1, 3))), parameters)


def _fit(law, folder, starts):
    """Least sum of squares over the three tests in a folder of a real rubber, within the law's own ranges."""
    tests = []
    for file, mode in (("UT", "uniaxial"), ("ET", "equibiaxial"), ("PS", "planar")):
        stress, stretch = np.loadtxt(folder / f"{file}.txt").T
        tests.append((History(mode, strain=stretch[None] - 1.0), stress))

    def residual(labels):
        parameters = law.from_labels(labels[None])
        return np.concatenate([law.respond(one, parameters)[0] - y for one, y in tests])

    def jacobian(labels):
        parameters = law.from_labels(labels[None])
        columns = np.concatenate([law.sensitivities(one, parameters)[0] for one, _ in tests])
        return columns * law.label_slopes(parameters)

    random = np.random.default_rng(0)
    fits = [
        scipy.optimize.least_squares(
            residual, start, jacobian, bounds=(0, 1), x_scale="jac", max_nfev=300
        )
        for start in random.uniform(0.1, 0.9, (starts, len(law.parameters)))
    ]
    return 2 * min(fit.cost for fit in fits)


@pytest.mark.parametrize(
    ("source", "name", "squares"),
    [
        # Ogden: least squares from 200 starts with an independent code. The others: SciPy without ranges.
        ("treloar_1944", "ogden_1", 7.48),
        ("treloar_1944", "ogden", 1.577),
        ("treloar_1944", "ogden_3", 0.2085),
        ("treloar_1944", "neo_hooke", 21.17),
        ("treloar_1944", "yeoh", 1.009),
        ("treloar_1944", "arruda_boyce", 1.165),
        # Tension and compression, equibiaxial and planar tests of a silicone; sums of SciPy without ranges.
        ("meunier_2008", "ogden_1", 0.50377),
        ("meunier_2008", "ogden", 0.085584),
        ("meunier_2008", "ogden_3", 0.016286),
        ("meunier_2008", "neo_hooke", 0.53101),
        ("meunier_2008", "mooney_rivlin", 0.25239),
        ("meunier_2008", "yeoh", 0.059590),
        ("meunier_2008", "arruda_boyce", 0.090678),
    ],
)
def test_three_tests_of_real_rubber(real_curves, source, name, squares):
    found = _fit(find_law(name), real_curves / f"rubber_{source}", 6)
    assert found == pytest.approx(squares, rel=1e-3)


MODES = {
    "uniaxial": lambda x: (x, x**-0.5, x**-0.5),
    "equibiaxial": lambda x: (x, x, x**-2.0),
    "planar": lambda x: (x, 1.0, 1.0 / x),
}


def least_curvature(name, values, stretches):
    """The smaller eigenvalue of d²W/dε1dε2 at fixed volume, over the larger: by differences of the energy."""

    def energy(one, two):
        first, second = stretches[0] * mpmath.exp(one), stretches[1] * mpmath.exp(two)
        return ENERGIES[name]((first, second, 1 / (first * second)), *values)

    step = mpmath.mpf("1e-6")
    first = (energy(step, 0) - 2 * energy(0, 0) + energy(-step, 0)) / step**2
    second = (energy(0, step) - 2 * energy(0, 0) + energy(0, -step)) / step**2
    mixed = energy(step, step) - energy(step, -step) - energy(-step, step) + energy(-step, -step)
    mixed /= 4 * step**2
    eigenvalues = mpmath.eigsy(mpmath.matrix([[first, mixed], [mixed, second]]), eigvals_only=True)
    return min(eigenvalues) / max(abs(each) for each in eigenvalues)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mooney_rivlin", (0.2, -0.03)),
        ("yeoh", (0.5, -0.015, 1e-5)),
        ("yeoh", (0.2, -0.02, 1e-3)),
        ("arruda_boyce", (-0.1, 3.0)),
        ("ogden_1", (-0.1, 2.0)),
        ("ogden", (0.4, 2.0, -0.01, 4.0)),
        ("ogden_3", (0.4, 1.5, 2e-5, 7.0, -0.01, -3.0)),
    ],
)
def test_stability_ends_where_the_energy_is_no_longer_convex(name, values):
    """In the logarithmic strains: the first state that is not convex is the limit, and one step before all is well."""
    mpmath.mp.dps = 40
    limits = find_law(name).stability_limits(np.array(values))
    assert limits
    found = {(limit.mode, limit.direction): limit.strain for limit in limits}
    for mode, state in MODES.items():
        for direction, end in (("tension", 10.0), ("compression", 0.1)):
            stretch = 1.0 + found.get((mode, direction), end - 1.0)
            here = least_curvature(name, values, state(mpmath.mpf(stretch)))
            assert (here <= 0) == ((mode, direction) in found)
            if abs(stretch - 1.0) > 0.0 and (mode, direction) in found:
                before = stretch - 0.01 * np.sign(stretch - 1.0)
                assert least_curvature(name, values, state(mpmath.mpf(before))) > 0


@pytest.mark.parametrize("name", [name for name in RUBBER if name != "yeoh"])
def test_laws_of_positive_terms_are_stable(name):
    """Sums of convex functions are convex, also where one stretch outweighs the others by thirty decades."""
    law = find_law(name)
    labels = np.random.default_rng(0).uniform(size=(50, len(law.identified)))
    assert not any(law.stability_limits(values) for values in law.from_labels(labels))
    if name == "ogden":
        assert law.stability_limits(np.array([0.3248, 1.92, 2e-5, -16.06])) == []

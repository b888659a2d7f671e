"""Rubber: incompressible, elastic at large stretches, in uniaxial, equibiaxial and planar tests.

Strain is stretch - 1, stress is force over the undeformed section. Where the driven stretch is λ, that of the free
directions is λ^c: c is -1/2 in uniaxial, -2 in equibiaxial, -1 in planar tests. A stretch below 1 is compression.
"""

import abc
import dataclasses

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.blocks import in_blocks
from tfmat.materials.history import Array, History, Mode
from tfmat.materials.law import HistoryLaw, Parameter


@dataclasses.dataclass(frozen=True)
class _Kinematics:
    """How the specimen deforms: the exponent c, and how many directions have the stretches λ and λ^c."""

    exponent: float
    driven: int
    free: int


_KINEMATICS: dict[Mode, _Kinematics] = {
    "uniaxial": _Kinematics(-0.5, 1, 2),
    "equibiaxial": _Kinematics(-2.0, 2, 1),
    "planar": _Kinematics(-1.0, 1, 1),
}
_MODES = "c = −½ uniaxial, −2 equibiaxial, −1 planar"


class RubberLaw(HistoryLaw):
    """An incompressible elastic law; a subclass gives its nominal stress at given stretches."""

    strain_measure = "engineering"
    stress_measure = "engineering"
    # Below the engineering strength of most gums: sooner or later every draw of stiff terms passes it, and the record
    # ends there, as the machine's would. What would come after grows like a power of the stretch, without bounds.
    strength_mpa = (2.0, 20.0)
    noise_mpa = 0.02
    tests = ("uniaxial", "equibiaxial", "planar")
    modes = ("uniaxial", "equibiaxial", "planar")

    @abc.abstractmethod
    def nominal_stress(self, stretch: Array, columns: Array, kinematics: _Kinematics) -> Array:
        """Stress in MPa at stretch [curves, points]; columns are the parameters, each [curves, 1]."""

    @abc.abstractmethod
    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: _Kinematics
    ) -> tuple[Array, ...]:
        """d stress / d parameter, one array [curves, points] a parameter; arguments as of `nominal_stress`."""

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`."""
        strain, kinematics = self._driven(history)

        def fill(strain: Array, columns: Array, out: Array) -> None:
            out[:] = self.nominal_stress(1.0 + strain, columns, kinematics)

        return in_blocks(fill, strain, parameters)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; closed forms."""
        strain, kinematics = self._driven(history)

        def fill(strain: Array, columns: Array, out: Array) -> None:
            derivatives = self.nominal_derivatives(1.0 + strain, columns, kinematics)
            for i, derivative in enumerate(derivatives):
                out[:, :, i] = derivative

        return in_blocks(fill, strain, parameters, (len(self.parameters),))

    def _driven(self, history: History) -> tuple[Array, _Kinematics]:
        if history.mode not in _KINEMATICS:
            raise InputError(
                f"law {self.name} answers {', '.join(_KINEMATICS)} tests; this one is {history.mode}"
            )
        return self.driven_strain(history).driven, _KINEMATICS[history.mode]


class _LinearRubberLaw(RubberLaw):
    """A law whose stress is a sum of parameters times known functions of the stretch."""

    @abc.abstractmethod
    def basis(self, stretch: Array, kinematics: _Kinematics) -> tuple[Array, ...]:
        """The functions, each [curves, points], in the order of the parameters."""

    def nominal_stress(self, stretch: Array, columns: Array, kinematics: _Kinematics) -> Array:
        """See `RubberLaw.nominal_stress`."""
        functions = self.basis(stretch, kinematics)
        return np.asarray(sum(c * one for c, one in zip(columns, functions, strict=True)))

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: _Kinematics
    ) -> tuple[Array, ...]:
        """See `RubberLaw.nominal_derivatives`."""
        return self.basis(stretch, kinematics)


def _difference(stretch: Array, kinematics: _Kinematics) -> Array:
    """λ - λ^(2c - 1): half of dI1/dλ for each driven direction."""
    return np.asarray(stretch - stretch ** (2.0 * kinematics.exponent - 1.0))


def _first_invariant(stretch: Array, kinematics: _Kinematics) -> Array:
    """I1 - 3, the sum of the squared stretches less its value at rest."""
    squares = kinematics.driven * stretch**2 + kinematics.free * stretch ** (
        2.0 * kinematics.exponent
    )
    return np.asarray(squares - (kinematics.driven + kinematics.free))


class NeoHooke(_LinearRubberLaw):
    """One modulus, for moderate stretches. Treloar's rubber up to stretch 1.5: mu 0.4 MPa."""

    name = "neo_hooke"
    title = "Neo-Hooke"
    formula = f"P = μ·(λ − λ^(2c−1)),  {_MODES}"
    source = (
        "L. R. G. Treloar, The elasticity of a network of long-chain molecules II, "
        "Trans. Faraday Soc. 39 (1943) 241-246"
    )
    parameters = (Parameter("mu", "MPa", 0.02, 3.0, "log", "initial shear modulus μ"),)

    def basis(self, stretch: Array, kinematics: _Kinematics) -> tuple[Array, ...]:
        """See `_LinearRubberLaw.basis`."""
        return (_difference(stretch, kinematics),)


class MooneyRivlin(_LinearRubberLaw):
    """Two constants; mu = 2 (C10 + C01). One uniaxial test hardly tells them apart, an equibiaxial one does."""

    name = "mooney_rivlin"
    title = "Mooney-Rivlin"
    formula = f"P = 2·(λ − λ^(2c−1))·(C10 + C01·λ^(−2c−2)),  {_MODES}"
    source = (
        "M. Mooney, A theory of large elastic deformation, J. Appl. Phys. 11 (1940) 582-592; "
        "R. S. Rivlin, Phil. Trans. R. Soc. A 241 (1948) 379-397"
    )
    parameters = (
        Parameter("C10", "MPa", 0.01, 1.5, "log", "coefficient of I1 − 3"),
        Parameter("C01", "MPa", 0.0, 0.3, "linear", "coefficient of I2 − 3; 0 is Neo-Hooke"),
    )

    def basis(self, stretch: Array, kinematics: _Kinematics) -> tuple[Array, ...]:
        """See `_LinearRubberLaw.basis`."""
        first = 2.0 * _difference(stretch, kinematics)
        return first, first * stretch ** (-2.0 * kinematics.exponent - 2.0)


class Yeoh(_LinearRubberLaw):
    """A cubic in I1 - 3, stiffening at large stretches. Treloar's three tests: C10 0.185, C20 -0.00146, C30 4.0e-5 MPa.

    Stable at every stretch where C20 > -sqrt(3 C10 C30): the ranges leave that for 3 of a hundred draws, in their
    softest corner.
    """

    name = "yeoh"
    title = "Yeoh 1993"
    formula = f"P = 2·(λ − λ^(2c−1))·Σ i·Ci0·(I1 − 3)^(i−1),  {_MODES}"
    source = (
        "O. H. Yeoh, Some forms of the strain energy function for rubber, "
        "Rubber Chem. Technol. 66 (1993) 754-771"
    )
    parameters = (
        Parameter("C10", "MPa", 0.04, 1.5, "log", "half the initial shear modulus"),
        Parameter("C20", "MPa", -0.006, 0.006, "linear", "softening (negative) or stiffening"),
        Parameter("C30", "MPa", 1e-5, 5e-3, "log", "stiffening at large stretches"),
    )

    def basis(self, stretch: Array, kinematics: _Kinematics) -> tuple[Array, ...]:
        """See `_LinearRubberLaw.basis`."""
        first = 2.0 * _difference(stretch, kinematics)
        invariant = _first_invariant(stretch, kinematics)
        second = 2.0 * first * invariant
        return first, second, 1.5 * second * invariant


# Coefficients i C_i of ∂W/∂I1; C_i are those of the series of the inverse Langevin function in the paper.
_LANGEVIN = (1 / 2, 2 / 20, 3 * 11 / 1050, 4 * 19 / 7000, 5 * 519 / 673750)


class ArrudaBoyce(RubberLaw):
    """Eight chains in a cube, which lock near lambda_m: the five terms of its series, as solvers take it.

    The exact inverse Langevin function has a pole at I1 = 3 lambda_m² and no stress beyond; its series is finite
    everywhere and is what material cards mean. The initial shear modulus exceeds mu by the factor
    1 + 3/(5 lambda_m²) + 99/(175 lambda_m⁴) + ... Treloar's three tests: mu 0.271 MPa, lambda_m 4.63.
    """

    name = "arruda_boyce"
    title = "Arruda-Boyce 1993"
    formula = f"P = 2·(λ − λ^(2c−1))·μ·Σ i·Ci·(I1/λm²)^(i−1),  {_MODES}"
    source = (
        "E. M. Arruda, M. C. Boyce, A three-dimensional constitutive model for the large stretch behavior of rubber "
        "elastic materials, J. Mech. Phys. Solids 41 (1993) 389-412; C1 to C5 are 1/2, 1/20, 11/1050, 19/7000 and "
        "519/673750"
    )
    parameters = (
        Parameter("mu", "MPa", 0.02, 3.0, "log", "modulus μ of the series"),
        Parameter("lambda_m", "-", 1.5, 10.0, "log", "locking stretch λm of a chain"),
    )

    def nominal_stress(self, stretch: Array, columns: Array, kinematics: _Kinematics) -> Array:
        """See `RubberLaw.nominal_stress`."""
        modulus, locking = columns
        share = (_first_invariant(stretch, kinematics) + 3.0) / locking**2
        series = np.polynomial.polynomial.polyval(share, _LANGEVIN)
        return np.asarray(2.0 * modulus * _difference(stretch, kinematics) * series)

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: _Kinematics
    ) -> tuple[Array, ...]:
        """See `RubberLaw.nominal_derivatives`."""
        modulus, locking = columns
        share = (_first_invariant(stretch, kinematics) + 3.0) / locking**2
        first = 2.0 * _difference(stretch, kinematics)
        series = np.polynomial.polynomial.polyval(share, _LANGEVIN)
        slope = np.polynomial.polynomial.polyval(share, np.polynomial.polynomial.polyder(_LANGEVIN))
        return first * series, -2.0 * first * modulus * slope * share / locking


class _OgdenLaw(RubberLaw):
    """A sum of powers of the stretches. mu_i > 0 makes each term stable by itself, whatever the sign of alpha_i.

    Labels are unique because the ranges give every term a part of its own: the first carries most of the modulus, the
    second stiffens it at large stretches. That is also what keeps records sane: a term with a high exponent has a
    small modulus, since 1 MPa with an exponent of 12 is 350 MPa at stretch 2.
    """

    formula = f"P = Σ 2μi/αi·(λ^(αi−1) − λ^(c·αi−1)),  {_MODES}"
    source = (
        "R. W. Ogden, Large deformation isotropic elasticity: on the correlation of theory and experiment for "
        "incompressible rubberlike solids, Proc. R. Soc. A 326 (1972) 565-584; as solvers write it, "
        "W = Σ 2μi/αi²·(λ1^αi + λ2^αi + λ3^αi − 3)"
    )

    def nominal_stress(self, stretch: Array, columns: Array, kinematics: _Kinematics) -> Array:
        """See `RubberLaw.nominal_stress`; exact down to alpha = 0, where a term is 2 mu (1 - c) ln(λ) / λ."""
        log_stretch = np.log(stretch)
        terms = zip(columns[::2], columns[1::2], strict=True)
        return np.asarray(
            sum(
                modulus * _ogden_term(log_stretch, power, kinematics)[0] for modulus, power in terms
            )
        )

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: _Kinematics
    ) -> tuple[Array, ...]:
        """See `RubberLaw.nominal_derivatives`."""
        log_stretch = np.log(stretch)
        found = []
        for modulus, power in zip(columns[::2], columns[1::2], strict=True):
            term, ratio, factor = _ogden_term(log_stretch, power, kinematics)
            exponent = (1.0 - kinematics.exponent) * log_stretch
            slope = _ratio_slope(exponent * power, ratio)
            by_power = kinematics.exponent * log_stretch * ratio + exponent * slope
            found += [term, modulus * factor * by_power]
        return tuple(found)


def _ogden_term(
    log_stretch: Array, power: Array, kinematics: _Kinematics
) -> tuple[Array, Array, Array]:
    """2/α (λ^(α - 1) - λ^(cα - 1)), as the product of (e^x - 1)/x with x = (1 - c) α ln λ and of the last factor."""
    exponent = (1.0 - kinematics.exponent) * log_stretch
    argument = exponent * power
    ratio = np.expm1(argument) / argument
    np.copyto(ratio, 1.0, where=argument == 0.0)
    factor = 2.0 * exponent * np.exp((kinematics.exponent * power - 1.0) * log_stretch)
    return factor * ratio, ratio, factor


def _ratio_slope(argument: Array, ratio: Array) -> Array:
    """The derivative of (e^x - 1)/x, from its series where the closed form cancels."""
    small = np.abs(argument) < 1e-3
    series = 0.5 + argument * (1 / 3 + argument * (1 / 8 + argument / 30))
    return np.where(small, series, (1.0 + argument * ratio - ratio) / argument)


class Ogden1(_OgdenLaw):
    """One term. Treloar's three tests: mu1 0.144 MPa, alpha1 2.95; Meunier's silicone: 0.373 MPa, 2.25."""

    name = "ogden_1"
    title = "Ogden 1972, one term"
    parameters = (
        Parameter("mu1", "MPa", 0.02, 3.0, "log", "initial shear modulus μ1"),
        Parameter("alpha1", "-", -1.0, 8.0, "linear", "exponent α1"),
    )


class Ogden2(_OgdenLaw):
    """Two terms. Treloar's three tests: 0.388, -0.465; 0.0110, 4.45. Meunier's silicone: 0.348, 2.18; 0.00341, -4.58.

    The exponent of the second term has either sign: a positive one stiffens the uniaxial test, a negative one the
    equibiaxial test, and the two rubbers above want one of each.
    """

    name = "ogden"
    title = "Ogden 1972, two terms"
    parameters = (
        Parameter("mu1", "MPa", 0.05, 3.0, "log", "modulus μ1 of the main term"),
        Parameter("alpha1", "-", -2.0, 4.0, "linear", "its exponent α1"),
        Parameter("mu2", "MPa", 2e-4, 0.05, "log", "modulus μ2 of the stiffening term"),
        Parameter("alpha2", "-", -8.0, 12.0, "linear", "its exponent α2"),
    )


class Ogden3(_OgdenLaw):
    """Three terms. Treloar's tests: 0.348, 1.89; 4e-6, 8.45; 0.00554, -2.26. Meunier's: 0.322, 0.636; 0.0125, 7.15;
    0.000301, -6.34.
    """

    name = "ogden_3"
    title = "Ogden 1972, three terms"
    parameters = (
        Parameter("mu1", "MPa", 0.05, 3.0, "log", "modulus μ1 of the main term"),
        Parameter("alpha1", "-", -1.0, 4.0, "linear", "its exponent α1"),
        Parameter("mu2", "MPa", 1e-6, 0.05, "log", "modulus μ2 of the term that stiffens tension"),
        Parameter("alpha2", "-", 4.0, 12.0, "linear", "its exponent α2, positive"),
        Parameter(
            "mu3", "MPa", 1e-4, 0.05, "log", "modulus μ3 of the term that stiffens biaxial tests"
        ),
        Parameter("alpha3", "-", -8.0, -1.0, "linear", "its exponent α3, negative"),
    )

"""Rubber: incompressible, elastic at large stretches, in uniaxial, equibiaxial and planar tests.

Strain is stretch - 1, stress is force over the undeformed section. Where the driven stretch is λ, that of the free
directions is λ^c: c is -1/2 in uniaxial, -2 in equibiaxial, -1 in planar tests. A stretch below 1 is compression.
"""

import abc
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.blocks import in_blocks
from tfmat.materials.history import Array, History, Mode
from tfmat.materials.laboratories import RUBBER
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter


@dataclasses.dataclass(frozen=True)
class Kinematics:
    """How the specimen deforms: the exponent c, and how many directions have the stretches λ and λ^c."""

    exponent: float
    driven: int
    free: int


_KINEMATICS: dict[Mode, Kinematics] = {
    "uniaxial": Kinematics(-0.5, 1, 2),
    "equibiaxial": Kinematics(-2.0, 2, 1),
    "planar": Kinematics(-1.0, 1, 1),
}
MODES = "c = −½ uniaxial, −2 equibiaxial, −1 planar"
# Stretches at which stability is checked, from rest outwards, as in Abaqus (see `RubberLaw.stability_limits`).
_TENSION = np.linspace(1.0, 10.0, 901)
_COMPRESSION = np.linspace(1.0, 0.1, 91)
# _NEAR: a limit up to so many times the tested strain concerns the reader; the notches and edges of a part are strained
# about half as much again as the specimens that were chosen for it.
_NEAR = 1.5


@dataclasses.dataclass(frozen=True)
class Limit:
    """Where a law of rubber loses its stability.

    Attributes:
      mode: uniaxial, equibiaxial or planar; direction: tension or compression.
      strain: nominal strain of the first state that is not stable; negative in compression.
    """

    mode: Mode
    direction: str
    strain: float

    def __str__(self) -> str:
        return f"{self.mode} {self.direction} from nominal strain {self.strain:.3g}"

    def is_near(self, tested: float) -> bool:
        """Whether the material is stretched there no more than 1.5 times as far as in the tests, by nominal strain."""
        return elongation(self.mode, self.strain) <= _NEAR * tested


def elongation(mode: Mode, strain: float) -> float:
    """The largest nominal strain in any direction at a driven one; under compression the specimen bulges."""
    stretch = 1.0 + strain
    return max(stretch, float(stretch ** _KINEMATICS[mode].exponent)) - 1.0


class RubberLaw(HistoryLaw):
    """An incompressible elastic law; a subclass gives its nominal stress at given stretches."""

    strain_measure = "engineering"
    stress_measure = "engineering"
    # Below the engineering strength of most gums: sooner or later every draw of stiff terms passes it, and the record
    # ends there, as the machine's would. What would come after grows like a power of the stretch, without bounds.
    strength_mpa = (2.0, 20.0)
    noise_mpa = 0.02
    laboratory = RUBBER
    tests = ("uniaxial", "equibiaxial", "planar")
    modes = ("uniaxial", "equibiaxial", "planar")

    @abc.abstractmethod
    def nominal_stress(self, stretch: Array, columns: Array, kinematics: Kinematics) -> Array:
        """Stress in MPa at stretch [curves, points]; columns are the parameters, each [curves, 1]."""

    @abc.abstractmethod
    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: Kinematics
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

    @abc.abstractmethod
    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        """The energy as a sum of functions f of power sums S = λ1^α + λ2^α + λ3^α: α, α² f'(S), α² f''(S) of each.

        At most one of the functions bends (f'' is not 0).

        Args:
          stretches: [3, states]; parameters: [all], in the parameters' units.
        """

    def stability_limits(self, parameters: Array) -> list[Limit]:
        """Where the law is not stable after Drucker, at stretches from 0.1 to 10; empty where it is stable.

        An incompressible law is stable where dτ1 dε1 + dτ2 dε2 > 0 for every change of the logarithmic strains, τ the
        Kirchhoff stress with τ3 = 0: where the energy is convex in ε1 and ε2. States, stretches and steps are as in
        Abaqus: Abaqus Theory and Analysis User's Guides, hyperelastic behavior of rubberlike materials.

        Args:
          parameters: [all], in the parameters' units.
        """
        found = []
        for mode, kinematics in _KINEMATICS.items():
            for direction, stretch in (("tension", _TENSION), ("compression", _COMPRESSION)):
                free = stretch**kinematics.exponent
                others = {1: (free, free), 2: (stretch, free)}[kinematics.driven]
                if kinematics.free == kinematics.driven:
                    others = np.ones_like(stretch), free
                stable = self._is_stable(np.stack([stretch, *others]), parameters)
                if not stable.all():
                    strain = float(stretch[int(np.argmin(stable))]) - 1.0
                    found.append(Limit(mode, direction, strain))
        return found

    def _is_stable(self, stretches: Array, parameters: Array) -> NDArray[np.bool_]:
        """Whether the energy is convex in ε1 and ε2, [states]; see `energy_terms`."""
        convex, trace, determinant = np.zeros_like(stretches), 0.0, 0.0
        with np.errstate(all="ignore"):
            terms = [
                (slope, curvature, stretches**power)
                for power, slope, curvature in self.energy_terms(stretches, parameters)
            ]
            for slope, _, powers in terms:
                convex = convex + slope * powers
            one, two, three = convex
            for _, curvature, powers in terms:
                first, second = powers[0] - powers[2], powers[1] - powers[2]
                trace = trace + curvature * (first**2 + second**2)
                bent = two * first**2 + one * second**2 + three * (first - second) ** 2
                determinant = determinant + curvature * bent
            # Expanded, since a product less a square would lose all digits where one stretch outweighs the others.
            determinant = determinant + one * two + two * three + three * one
            return np.asarray((trace + one + two + 2.0 * three > 0) & (determinant > 0))

    def _driven(self, history: History) -> tuple[Array, Kinematics]:
        if history.mode not in _KINEMATICS:
            raise InputError(
                f"law {self.name} answers {', '.join(_KINEMATICS)} tests; this one is {history.mode}"
            )
        return self.driven_strain(history).driven, _KINEMATICS[history.mode]


class _LinearRubberLaw(RubberLaw):
    """A law whose stress is a sum of parameters times known functions of the stretch."""

    @abc.abstractmethod
    def basis(self, stretch: Array, kinematics: Kinematics) -> tuple[Array, ...]:
        """The functions, each [curves, points], in the order of the parameters."""

    def nominal_stress(self, stretch: Array, columns: Array, kinematics: Kinematics) -> Array:
        """See `RubberLaw.nominal_stress`."""
        functions = self.basis(stretch, kinematics)
        return np.asarray(sum(c * one for c, one in zip(columns, functions, strict=True)))

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: Kinematics
    ) -> tuple[Array, ...]:
        """See `RubberLaw.nominal_derivatives`."""
        return self.basis(stretch, kinematics)


def _difference(stretch: Array, kinematics: Kinematics) -> Array:
    """λ - λ^(2c - 1): half of dI1/dλ for each driven direction."""
    return np.asarray(stretch - stretch ** (2.0 * kinematics.exponent - 1.0))


def _first_invariant(stretch: Array, kinematics: Kinematics) -> Array:
    """I1 - 3, the sum of the squared stretches less its value at rest."""
    squares = kinematics.driven * stretch**2 + kinematics.free * stretch ** (
        2.0 * kinematics.exponent
    )
    return np.asarray(squares - (kinematics.driven + kinematics.free))


class NeoHooke(_LinearRubberLaw):
    """One modulus, for moderate stretches. Treloar's rubber up to stretch 1.5: mu 0.4 MPa."""

    name = "neo_hooke"
    title = "Neo-Hooke"
    formula = f"P = μ·(λ − λ^(2c−1)),  {MODES}"
    source = (
        "L. R. G. Treloar, The elasticity of a network of long-chain molecules II, "
        "Trans. Faraday Soc. 39 (1943) 241-246"
    )
    parameters = (Parameter("mu", "MPa", 0.02, 3.0, "log", "initial shear modulus μ"),)

    def basis(self, stretch: Array, kinematics: Kinematics) -> tuple[Array, ...]:
        """See `_LinearRubberLaw.basis`."""
        return (_difference(stretch, kinematics),)

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        """See `RubberLaw.energy_terms`."""
        return ((2.0, 2.0 * parameters[0], 0.0),)


class MooneyRivlin(_LinearRubberLaw):
    """Two constants; mu = 2 (C10 + C01). One uniaxial test hardly tells them apart, an equibiaxial one does.

    C01 is linear and begins at 0, where the law is Neo-Hooke's: a term that the tests do not ask for is known to be
    small, where a log scale would call it unknown. Below 0 the law softens without end in large equibiaxial tension.
    """

    name = "mooney_rivlin"
    title = "Mooney-Rivlin"
    formula = f"P = 2·(λ − λ^(2c−1))·(C10 + C01·λ^(−2c−2)),  {MODES}"
    source = (
        "M. Mooney, A theory of large elastic deformation, J. Appl. Phys. 11 (1940) 582-592; "
        "R. S. Rivlin, Phil. Trans. R. Soc. A 241 (1948) 379-397"
    )
    parameters = (
        Parameter("C10", "MPa", 0.01, 1.5, "log", "coefficient of I1 − 3"),
        Parameter("C01", "MPa", 0.0, 0.3, "linear", "coefficient of I2 − 3; 0 is Neo-Hooke"),
    )

    def basis(self, stretch: Array, kinematics: Kinematics) -> tuple[Array, ...]:
        """See `_LinearRubberLaw.basis`."""
        first = 2.0 * _difference(stretch, kinematics)
        return first, first * stretch ** (-2.0 * kinematics.exponent - 2.0)

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        """See `RubberLaw.energy_terms`; I2 of an incompressible solid is the sum of the stretches to the power -2."""
        return (2.0, 4.0 * parameters[0], 0.0), (-2.0, 4.0 * parameters[1], 0.0)


class Yeoh(_LinearRubberLaw):
    """A cubic in I1 - 3, stiffening at large stretches. Treloar's three tests: C10 0.185, C20 -0.00146, C30 4.0e-5 MPa.

    Stable at every stretch where C20 > -sqrt(3 C10 C30): the ranges leave that for 5 of a hundred draws, in their
    softest corner.
    """

    name = "yeoh"
    title = "Yeoh 1993"
    formula = f"P = 2·(λ − λ^(2c−1))·Σ i·Ci0·(I1 − 3)^(i−1),  {MODES}"
    source = (
        "O. H. Yeoh, Some forms of the strain energy function for rubber, "
        "Rubber Chem. Technol. 66 (1993) 754-771"
    )
    parameters = (
        Parameter("C10", "MPa", 0.04, 1.5, "log", "half the initial shear modulus"),
        Parameter("C20", "MPa", -0.006, 0.006, "linear", "softening (negative) or stiffening"),
        Parameter("C30", "MPa", 1e-5, 5e-3, "log", "stiffening at large stretches"),
    )

    def basis(self, stretch: Array, kinematics: Kinematics) -> tuple[Array, ...]:
        """See `_LinearRubberLaw.basis`."""
        first = 2.0 * _difference(stretch, kinematics)
        invariant = _first_invariant(stretch, kinematics)
        second = 2.0 * first * invariant
        return first, second, 1.5 * second * invariant

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        """See `RubberLaw.energy_terms`."""
        energy = np.polynomial.Polynomial([0.0, *parameters])
        invariant = np.square(stretches).sum(axis=0) - 3.0
        return ((2.0, 4.0 * energy.deriv()(invariant), 4.0 * energy.deriv(2)(invariant)),)


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
    formula = f"P = 2·(λ − λ^(2c−1))·μ·Σ i·Ci·(I1/λm²)^(i−1),  {MODES}"
    source = (
        "E. M. Arruda, M. C. Boyce, A three-dimensional constitutive model for the large stretch behavior of rubber "
        "elastic materials, J. Mech. Phys. Solids 41 (1993) 389-412; C1 to C5 are 1/2, 1/20, 11/1050, 19/7000 and "
        "519/673750"
    )
    parameters = (
        Parameter("mu", "MPa", 0.02, 3.0, "log", "modulus μ of the series"),
        Parameter("lambda_m", "-", 1.5, 10.0, "log", "locking stretch λm of a chain"),
    )

    def nominal_stress(self, stretch: Array, columns: Array, kinematics: Kinematics) -> Array:
        """See `RubberLaw.nominal_stress`."""
        modulus, locking = columns
        share = (_first_invariant(stretch, kinematics) + 3.0) / locking**2
        series = np.polynomial.polynomial.polyval(share, _LANGEVIN)
        return np.asarray(2.0 * modulus * _difference(stretch, kinematics) * series)

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: Kinematics
    ) -> tuple[Array, ...]:
        """See `RubberLaw.nominal_derivatives`."""
        modulus, locking = columns
        share = (_first_invariant(stretch, kinematics) + 3.0) / locking**2
        first = 2.0 * _difference(stretch, kinematics)
        series = np.polynomial.polynomial.polyval(share, _LANGEVIN)
        slope = np.polynomial.polynomial.polyval(share, np.polynomial.polynomial.polyder(_LANGEVIN))
        return first * series, -2.0 * first * modulus * slope * share / locking

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        """See `RubberLaw.energy_terms`."""
        modulus, locking = parameters
        series = np.polynomial.Polynomial(_LANGEVIN)
        share = np.square(stretches).sum(axis=0) / locking**2
        slope, curvature = series(share), series.deriv()(share) / locking**2
        return ((2.0, 4.0 * modulus * slope, 4.0 * modulus * curvature),)

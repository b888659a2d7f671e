"""Laws of rubber: hyperelastic in three modes, and relaxing. NumPy only."""

import abc
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import HELD_POLYMER, RUBBER, Array, History, HistoryLaw, Mode, Parameter
from tfmat.materials.numerics import in_blocks, in_steps

# --------------------------------------------------------------------------------------------------
# Rubber: incompressible, elastic at large stretches, in uniaxial, equibiaxial and planar tests.
#
# Strain is stretch - 1, stress is force over the undeformed section. Where the driven stretch is λ, the stretch of the
# free directions is λ^c: c is -1/2 in uniaxial, -2 in equibiaxial, -1 in planar tests. A stretch below 1 is
# compression.


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
    # ends there, as the machine's would. Beyond it the stress grows like a power of the stretch, without bounds.
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
        functions = self.basis(stretch, kinematics)
        return np.asarray(sum(c * one for c, one in zip(columns, functions, strict=True)))

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: Kinematics
    ) -> tuple[Array, ...]:
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
        return (_difference(stretch, kinematics),)

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        return ((2.0, 2.0 * parameters[0], 0.0),)


class MooneyRivlin(_LinearRubberLaw):
    """Two constants; mu = 2 (C10 + C01). One uniaxial test hardly tells them apart, an equibiaxial one does.

    C01 is linear and begins at 0, where the law is Neo-Hooke's. A term that the tests do not ask for is then known to
    be small; a log scale would call it unknown. Below 0 the law softens without end in large equibiaxial tension.
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
        first = 2.0 * _difference(stretch, kinematics)
        invariant = _first_invariant(stretch, kinematics)
        second = 2.0 * first * invariant
        return first, second, 1.5 * second * invariant

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        energy = np.polynomial.Polynomial([0.0, *parameters])
        invariant = np.square(stretches).sum(axis=0) - 3.0
        return ((2.0, 4.0 * energy.deriv()(invariant), 4.0 * energy.deriv(2)(invariant)),)


# Coefficients i C_i of ∂W/∂I1; the C_i belong to the series of the inverse Langevin function in the paper.
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
        modulus, locking = columns
        share = (_first_invariant(stretch, kinematics) + 3.0) / locking**2
        series = np.polynomial.polynomial.polyval(share, _LANGEVIN)
        return np.asarray(2.0 * modulus * _difference(stretch, kinematics) * series)

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: Kinematics
    ) -> tuple[Array, ...]:
        modulus, locking = columns
        share = (_first_invariant(stretch, kinematics) + 3.0) / locking**2
        first = 2.0 * _difference(stretch, kinematics)
        series = np.polynomial.polynomial.polyval(share, _LANGEVIN)
        slope = np.polynomial.polynomial.polyval(share, np.polynomial.polynomial.polyder(_LANGEVIN))
        return first * series, -2.0 * first * modulus * slope * share / locking

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        modulus, locking = parameters
        series = np.polynomial.Polynomial(_LANGEVIN)
        share = np.square(stretches).sum(axis=0) / locking**2
        slope, curvature = series(share), series.deriv()(share) / locking**2
        return ((2.0, 4.0 * modulus * slope, 4.0 * modulus * curvature),)


# --------------------------------------------------------------------------------------------------
# Rubber after Ogden: sums of powers of the principal stretches, in one to three terms.


class _OgdenLaw(RubberLaw):
    """A sum of powers of the stretches. mu_i > 0 makes each term stable by itself, whatever the sign of alpha_i.

    Labels are unique because the ranges give every term a part of its own: the first carries most of the modulus, the
    second stiffens it at large stretches. The same ranges keep records sane: a term with a high exponent has a small
    modulus, since 1 MPa with an exponent of 12 is 350 MPa at stretch 2.
    """

    formula = f"P = Σ 2μi/αi·(λ^(αi−1) − λ^(c·αi−1)),  {MODES}"
    source = (
        "R. W. Ogden, Large deformation isotropic elasticity: on the correlation of theory and experiment for "
        "incompressible rubberlike solids, Proc. R. Soc. A 326 (1972) 565-584; as solvers write it, "
        "W = Σ 2μi/αi²·(λ1^αi + λ2^αi + λ3^αi − 3)"
    )

    def nominal_stress(self, stretch: Array, columns: Array, kinematics: Kinematics) -> Array:
        """See `RubberLaw.nominal_stress`; exact down to alpha = 0, where a term is 2 mu (1 - c) ln(λ) / λ."""
        log_stretch = np.log(stretch)
        terms = zip(columns[::2], columns[1::2], strict=True)
        return np.asarray(
            sum(
                modulus * _ogden_term(log_stretch, power, kinematics)[0] for modulus, power in terms
            )
        )

    def nominal_derivatives(
        self, stretch: Array, columns: Array, kinematics: Kinematics
    ) -> tuple[Array, ...]:
        log_stretch = np.log(stretch)
        found = []
        for modulus, power in zip(columns[::2], columns[1::2], strict=True):
            term, ratio, factor = _ogden_term(log_stretch, power, kinematics)
            exponent = (1.0 - kinematics.exponent) * log_stretch
            slope = _ratio_slope(exponent * power, ratio)
            by_power = kinematics.exponent * log_stretch * ratio + exponent * slope
            found += [term, modulus * factor * by_power]
        return tuple(found)

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        terms = zip(parameters[::2], parameters[1::2], strict=True)
        return [(float(power), 2.0 * float(modulus), 0.0) for modulus, power in terms]


def _ogden_term(
    log_stretch: Array, power: Array, kinematics: Kinematics
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
    equibiaxial test. One of the rubbers above has a positive exponent, the other a negative one.
    """

    name = "ogden"
    title = "Ogden 1972, two terms"
    parameters = (
        Parameter("mu1", "MPa", 0.05, 3.0, "log", "modulus μ1 of the main term"),
        Parameter("alpha1", "-", -2.0, 4.0, "linear", "its exponent α1"),
        Parameter("mu2", "MPa", 2e-4, 0.05, "log", "modulus μ2 of the stiffening term"),
        Parameter("alpha2", "-", -8.0, 12.0, "linear", "its exponent α2"),
    )
    told_apart = (("mu1", "alpha1"), ("mu2", "alpha2"))


class Ogden3(_OgdenLaw):
    """Three terms. Treloar's tests: (0.348, 1.89), (4e-6, 8.45), (0.00554, -2.26). Meunier's: (0.322, 0.636),
    (0.0125, 7.15), (0.000301, -6.34).
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
    told_apart = (("mu1", "alpha1"), ("mu2", "alpha2"), ("mu3", "alpha3"))


# --------------------------------------------------------------------------------------------------
# Linear viscoelasticity: a spring beside Maxwell elements whose relaxation times are known.


# _TERMS: Maxwell elements of the Prony series.
_TERMS = 5


class Prony(HistoryLaw):
    """A Prony series with a relaxation time every decade from 1 s to 10,000 s; `fixed.tau1` and so on set others.

    With known times the stress is linear in the moduli, so that non-negative least squares (C. L. Lawson,
    R. J. Hanson, Solving Least Squares Problems, 1974) finds the best fit of a driven strain at once and for certain.
    It is the baseline here, and no network will be better; what a network adds are intervals.

    The integration is exact for strain that is linear between the points. A driven stress is answered by the strain
    that is linear between the points and gives that stress at each.
    """

    name = "prony"
    title = "Prony series"
    formula = "σ = E∞·ε + Σ hi,  dhi/dt = Ei·dε/dt − hi/τi,  i = 1…5"
    source = (
        "R. L. Taylor, K. S. Pister, G. L. Goudreau, Thermomechanical analysis of viscoelastic solids, "
        "Int. J. Numer. Meth. Eng. 2 (1970) 45-59"
    )
    parameters = (
        Parameter("E_inf", "MPa", 10.0, 5000.0, "log", "modulus E∞ after all relaxation"),
        *(
            Parameter(
                f"E{i + 1}", "MPa", 10.0, 3000.0, "log", f"modulus that relaxes with τ{i + 1}"
            )
            for i in range(_TERMS)
        ),
        *(
            Parameter(f"tau{i + 1}", "s", 1e-6, 1e9, "log", f"relaxation time τ{i + 1}", 10.0**i)
            for i in range(_TERMS)
        ),
    )
    strain_measure = "engineering"
    stress_measure = "engineering"
    noise_mpa = 0.05
    laboratory = HELD_POLYMER
    tests = ("relaxation",)

    def respond(self, history: History, parameters: Array) -> Array:
        kind = _UnderStrain if history.stress is None else _UnderStress
        return in_steps(kind, self._timed(history), parameters)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact where the strain is driven, since the same steps give the derivatives."""
        if history.strain is None:
            return super().sensitivities(history, parameters)
        return in_steps(_Tangents, self._timed(history), parameters, (len(self.parameters),))

    def _timed(self, history: History) -> History:
        if history.time is None:
            raise InputError(f"law {self.name} asks for the time of every point of a test")
        return history


class _UnderStrain:
    """Specimens side by side whose strain is driven: what each element holds, and the strain."""

    def __init__(self, parameters: Array):
        self.long_term, self.moduli, self.times = _columns(parameters)
        self.held = np.zeros_like(self.moduli)
        self.strain = np.zeros_like(self.long_term)

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.numerics.Specimens`; the stress."""
        kept, gained = _decay(duration / self.times)
        self.held = self.held * kept + self.moduli * gained * increment
        self.strain = self.strain + increment
        return np.asarray(self.long_term * self.strain + self.held.sum(axis=0))


class _UnderStress(_UnderStrain):
    """The same whose stress is driven."""

    def __init__(self, parameters: Array):
        super().__init__(parameters)
        self.stress = np.zeros_like(self.long_term)

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.numerics.Specimens`; the strain."""
        kept, gained = _decay(duration / self.times)
        self.stress = self.stress + increment
        stiffness = self.long_term + (self.moduli * gained).sum(axis=0)
        before = self.long_term * self.strain + (kept * self.held).sum(axis=0)
        super().advance((self.stress - before) / stiffness, duration)
        return self.strain


class _Tangents(_UnderStrain):
    """Elements of modulus 1 under a driven strain: what they hold, and its derivatives by their relaxation times."""

    def __init__(self, parameters: Array):
        super().__init__(parameters)
        self.by_time = np.zeros_like(self.moduli)

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.numerics.Specimens`; the derivatives of the stress by every parameter."""
        share = duration / self.times
        kept, gained = _decay(share)
        self.by_time = kept * self.by_time
        self.by_time += (kept * share * self.held + (gained - kept) * increment) / self.times
        self.held = kept * self.held + gained * increment
        self.strain = self.strain + increment
        return np.concatenate([self.strain[None], self.held, self.moduli * self.by_time])


def _columns(parameters: Array) -> tuple[Array, Array, Array]:
    """Long-term modulus [curves], moduli and relaxation times [terms, curves]."""
    columns = parameters.T
    return columns[0], columns[1 : 1 + _TERMS], columns[1 + _TERMS :]


def _decay(share: Array) -> tuple[Array, Array]:
    """Shares of a stress, and of one that grows evenly, that are left after a step of `share` relaxation times."""
    kept = np.exp(-share)
    gained = np.where(share > 0.0, -np.expm1(-share) / np.where(share > 0.0, share, 1.0), 1.0)
    return kept, gained

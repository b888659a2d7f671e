"""Rubber after Ogden: sums of powers of the principal stretches, in one to three terms."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tfmat.materials.history import Array
from tfmat.materials.parameter import Parameter
from tfmat.materials.rubber import MODES, Kinematics, RubberLaw


class _OgdenLaw(RubberLaw):
    """A sum of powers of the stretches. mu_i > 0 makes each term stable by itself, whatever the sign of alpha_i.

    Labels are unique because the ranges give every term a part of its own: the first carries most of the modulus, the
    second stiffens it at large stretches. That is also what keeps records sane: a term with a high exponent has a
    small modulus, since 1 MPa with an exponent of 12 is 350 MPa at stretch 2.
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

    def energy_terms(self, stretches: Array, parameters: Array) -> Iterable[tuple[float, Any, Any]]:
        """See `RubberLaw.energy_terms`."""
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

"""Hahn-Tsai: non-linear in-plane shear of a fibre-reinforced ply."""

import numpy as np

from tfmat.materials.blocks import in_blocks
from tfmat.materials.law import Array, Law, Parameter


class HahnTsai(Law):
    """Shear strain as a linear and a cubic term of the shear stress; `a` is the ALPH of LS-DYNA's MAT_022 and 054."""

    name = "hahn_tsai"
    title = "Hahn–Tsai 1973"
    formula = "γ = τ/G0 + a·τ³"
    source = (
        "H. T. Hahn, S. W. Tsai, Nonlinear elastic behavior of unidirectional composite laminae, "
        "J. Composite Materials 7 (1973) 102-118"
    )
    parameters = (
        Parameter("G0", "MPa", 2000.0, 8000.0, "linear", "initial shear modulus"),
        Parameter("a", "MPa^-3", 1e-9, 1e-7, "log", "coefficient of the cubic term"),
    )
    strain_measure = "engineering shear"
    stress_measure = "shear"
    max_strain = (0.01, 0.05)
    strength_mpa = (60.0, 140.0)

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`. Exact to rounding for every strain >= 0 and a >= 0, a = 0 included."""
        return in_blocks(_stress, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`: (τ/G0²)/D and -τ³/D with D = 1/G0 + 3aτ²."""
        return in_blocks(_derivatives, strain, parameters, (2,))


def _stress(strain: Array, columns: Array, out: Array) -> None:
    """Writes τ = G0 γ / h with h = (1 + 2 cosh(2/3 asinh x)) / 3, x = G0 γ √(27/4 a G0).

    The same root as the usual closed form (2 √(p/3) sinh(⅓ asinh …) with p = 1 / (a G0)), by x = sinh 3θ and
    h = 1 + 4/3 sinh² θ; but h lies between 1 and infinity and is well conditioned, so that small strains and
    a = 0 need no special case.
    """
    modulus, coefficient = columns
    np.multiply(strain, modulus, out=out)
    quotient = out * np.sqrt(6.75 * coefficient * modulus)
    np.arcsinh(quotient, out=quotient)
    quotient *= 2.0 / 3.0
    np.cosh(quotient, out=quotient)
    quotient *= 2.0 / 3.0
    quotient += 1.0 / 3.0
    out /= quotient


def _derivatives(strain: Array, columns: Array, out: Array) -> None:
    modulus, coefficient = columns
    stress = np.empty(strain.shape)
    _stress(strain, columns, stress)
    square = stress * stress
    compliance = 1.0 / modulus + 3.0 * coefficient * square
    np.divide(stress / modulus**2, compliance, out=out[:, :, 0])
    np.divide(-square * stress, compliance, out=out[:, :, 1])

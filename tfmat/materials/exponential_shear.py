"""Exponential saturation in shear."""

import numpy as np

from tfmat.materials.blocks import in_blocks
from tfmat.materials.law import Array, Law, Parameter


class ExponentialShear(Law):
    """Shear stress that rises with G0 and levels out at S, later than the hyperbolic tangent does."""

    name = "exponential_shear"
    title = "Exponential shear (Voce's form in total strain)"
    formula = "τ = S·(1 − exp(−G0·γ/S))"
    source = (
        "E. Voce, The relationship between stress and strain for homogeneous deformation, "
        "J. Institute of Metals 74 (1948) 537-562, with no initial yield stress"
    )
    parameters = (
        Parameter("G0", "MPa", 2000.0, 8000.0, "linear", "initial shear modulus"),
        Parameter("S", "MPa", 40.0, 150.0, "linear", "stress at which the curve levels out"),
    )
    strain_measure = "engineering shear"
    stress_measure = "shear"
    max_strain = (0.01, 0.05)

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""
        return in_blocks(_stress, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`."""
        return in_blocks(_derivatives, strain, parameters, (2,))


def _stress(strain: Array, columns: Array, out: Array) -> None:
    modulus, plateau = columns
    np.multiply(strain, -modulus / plateau, out=out)
    np.expm1(out, out=out)
    out *= -plateau


def _derivatives(strain: Array, columns: Array, out: Array) -> None:
    modulus, plateau = columns
    argument = strain * (-modulus / plateau)
    decay = np.exp(argument)
    np.multiply(strain, decay, out=out[:, :, 0])
    np.subtract(argument * decay, np.expm1(argument), out=out[:, :, 1])

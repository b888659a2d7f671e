"""Hyperbolic tangent in shear: the law that follows measured shear curves best up to their peak."""

import numpy as np

from tfmat.materials.blocks import in_blocks
from tfmat.materials.law import Array, Law, Parameter


class TanhShear(Law):
    """Shear stress that rises with G0 and levels out at S."""

    name = "tanh_shear"
    title = "Hyperbolic tangent shear (Prager 1938)"
    formula = "τ = S·tanh(G0·γ/S)"
    source = (
        "W. Prager, On isotropic materials with continuous transition from elastic to plastic state, "
        "Proc. 5th Int. Congress of Applied Mechanics (1938) 234-237"
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
    np.multiply(strain, modulus / plateau, out=out)
    np.tanh(out, out=out)
    out *= plateau


def _derivatives(strain: Array, columns: Array, out: Array) -> None:
    modulus, plateau = columns
    argument = strain * (modulus / plateau)
    # 1 / cosh² overflows nowhere in its divisor as exp(-2x) does nowhere: 4 e / (1 + e)² with e = exp(-2x).
    decay = np.exp(-2.0 * argument)
    slope = 4.0 * decay / (1.0 + decay) ** 2
    np.multiply(strain, slope, out=out[:, :, 0])
    np.subtract(np.tanh(argument), argument * slope, out=out[:, :, 1])

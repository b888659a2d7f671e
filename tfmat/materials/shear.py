"""Laws of the non-linear in-plane shear of a fibre-reinforced ply."""

import abc

import numpy as np

from tfmat.materials.blocks import in_blocks
from tfmat.materials.laboratories import PLY_SHEAR
from tfmat.materials.law import Array, Law
from tfmat.materials.parameter import Parameter

_MODULUS = Parameter("G0", "MPa", 2000.0, 8000.0, "linear", "initial shear modulus")
_PLATEAU = Parameter("S", "MPa", 40.0, 150.0, "linear", "stress at which the curve levels out")


class _ShearLaw(Law):
    """A law of two parameters; a subclass writes a block of stresses and of their derivatives."""

    strain_measure = "engineering shear"
    stress_measure = "shear"
    modes = ("shear",)
    laboratory = PLY_SHEAR
    max_strain = (0.01, 0.05)

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""
        return in_blocks(self._stress, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`."""
        return in_blocks(self._derivatives, strain, parameters, (2,))

    @staticmethod
    @abc.abstractmethod
    def _stress(strain: Array, columns: Array, out: Array) -> None:
        """Writes the stress; arguments as of the `fill` of `in_blocks`."""

    @staticmethod
    @abc.abstractmethod
    def _derivatives(strain: Array, columns: Array, out: Array) -> None:
        """Writes the derivatives; arguments as of the `fill` of `in_blocks`."""


class HahnTsai(_ShearLaw):
    """Shear strain as a linear and a cubic term of the shear stress; `a` is the ALPH of LS-DYNA's MAT_022 and 054."""

    name = "hahn_tsai"
    title = "Hahn–Tsai 1973"
    formula = "γ = τ/G0 + a·τ³"
    source = (
        "H. T. Hahn, S. W. Tsai, Nonlinear elastic behavior of unidirectional composite laminae, "
        "J. Composite Materials 7 (1973) 102-118"
    )
    parameters = (
        _MODULUS,
        Parameter("a", "MPa^-3", 1e-9, 1e-7, "log", "coefficient of the cubic term"),
    )
    strength_mpa = (60.0, 140.0)

    @staticmethod
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

    @staticmethod
    def _derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, coefficient = columns
        stress = np.empty(strain.shape)
        HahnTsai._stress(strain, columns, stress)
        square = stress * stress
        compliance = 1.0 / modulus + 3.0 * coefficient * square
        np.divide(stress / modulus**2, compliance, out=out[:, :, 0])
        np.divide(-square * stress, compliance, out=out[:, :, 1])


class TanhShear(_ShearLaw):
    """Shear stress that rises with G0 and levels out at S: follows measured shear curves best up to their peak."""

    name = "tanh_shear"
    title = "Hyperbolic tangent shear (Prager 1938)"
    formula = "τ = S·tanh(G0·γ/S)"
    source = (
        "W. Prager, On isotropic materials with continuous transition from elastic to plastic state, "
        "Proc. 5th Int. Congress of Applied Mechanics (1938) 234-237"
    )
    parameters = (
        _MODULUS,
        _PLATEAU,
    )

    @staticmethod
    def _stress(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        np.multiply(strain, modulus / plateau, out=out)
        np.tanh(out, out=out)
        out *= plateau

    @staticmethod
    def _derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        argument = strain * (modulus / plateau)
        # 1 / cosh² overflows nowhere in its divisor as exp(-2x) does nowhere: 4 e / (1 + e)² with e = exp(-2x).
        decay = np.exp(-2.0 * argument)
        slope = 4.0 * decay / (1.0 + decay) ** 2
        np.multiply(strain, slope, out=out[:, :, 0])
        np.subtract(np.tanh(argument), argument * slope, out=out[:, :, 1])


class ExponentialShear(_ShearLaw):
    """Shear stress that rises with G0 and levels out at S, later than the hyperbolic tangent does."""

    name = "exponential_shear"
    title = "Exponential shear (Voce's form in total strain)"
    formula = "τ = S·(1 − exp(−G0·γ/S))"
    source = (
        "E. Voce, The relationship between stress and strain for homogeneous deformation, "
        "J. Institute of Metals 74 (1948) 537-562, with no initial yield stress"
    )
    parameters = (
        _MODULUS,
        _PLATEAU,
    )

    @staticmethod
    def _stress(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        np.multiply(strain, -modulus / plateau, out=out)
        np.expm1(out, out=out)
        out *= -plateau

    @staticmethod
    def _derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        argument = strain * (-modulus / plateau)
        decay = np.exp(argument)
        np.multiply(strain, decay, out=out[:, :, 0])
        np.subtract(argument * decay, np.expm1(argument), out=out[:, :, 1])

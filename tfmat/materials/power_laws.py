"""Metals that harden with a power of the plastic or of the whole strain: Ramberg-Osgood, Ludwik, Hollomon."""

import numpy as np

from tfmat.materials.blocks import in_blocks
from tfmat.materials.laboratories import METAL_TENSION
from tfmat.materials.law import Array, Law
from tfmat.materials.parameter import Parameter

_OFFSET = 0.002
# Convergence is quadratic: after a step of this relative size the error is below rounding.
_TOLERANCE = 1e-10
_MOST_STEPS = 100
# Stands in for strain 0, where the logarithm is infinite.
_TINY_STRAIN = 1e-250
# Stands in for the stress of an exponent near 0 below 0.2 %, which no floating-point number can hold.
_TINY_STRESS = 1e-290


class RambergOsgood(Law):
    """Strain as an elastic term and a power of the stress; no sharp yield."""

    name = "ramberg_osgood"
    title = "Ramberg–Osgood 1943"
    formula = "ε = σ/E + 0.002·(σ/σ02)ⁿ"
    source = (
        "W. Ramberg, W. R. Osgood, NACA Technical Note 902 (1943); "
        "with the 0.2 % offset stress: H. N. Hill, NACA Technical Note 927 (1944)"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma02", "MPa", 10.0, 2000.0, "log", "stress at 0.2 % plastic strain, σ02"),
        Parameter("n", "-", 2.0, 40.0, "log", "exponent; high is a sharp knee"),
    )
    strain_measure = "true"
    stress_measure = "true"
    # Maximum load, where the slope equals the stress, comes at a strain near 1/n.
    max_strain = (0.005, 0.3)
    max_strain_scale = "log"
    strain_spacing = 2.0
    laboratory = METAL_TENSION

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            out[:] = _solve(strain, columns)

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`; the total differential of the formula."""
        return in_blocks(_derivatives, strain, parameters, (3,))


class Ludwik(Law):
    """Yield at sigma0, then a power of the plastic strain: the flow stress of Johnson-Cook at one rate and temperature.

    The stress above yield and the strain above the yield strain are those of a Ramberg-Osgood curve.
    """

    name = "ludwik"
    title = "Ludwik 1909"
    formula = "σ = σ0 + K·εpⁿ,  εp = ε − σ/E"
    source = "P. Ludwik, Elemente der technologischen Mechanik, Springer (1909)"
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 10.0, 2000.0, "log", "initial yield stress σ0"),
        Parameter("K", "MPa", 30.0, 3000.0, "log", "stress gained at a plastic strain of 1"),
        Parameter("n", "-", 0.1, 0.9, "linear", "hardening exponent"),
    )
    strain_measure = "true"
    stress_measure = "true"
    max_strain = (0.005, 0.6)
    max_strain_scale = "log"
    strain_spacing = 2.0
    laboratory = METAL_TENSION

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            modulus, first_yield, *_ = columns
            beyond, above = _above_yield(strain, columns)
            out[:] = np.where(beyond > 0.0, first_yield + above, modulus * strain)

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`; the total differential of ε = σ/E + ((σ - σ0)/K)^(1/n)."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            modulus, first_yield, strength, exponent = columns
            beyond, above = _above_yield(strain, columns)
            above = np.maximum(above, _TINY_STRESS)
            logarithm = np.log(above / strength) / exponent
            plastic_strain = np.exp(logarithm)
            slope = plastic_strain / (exponent * above)
            share = 1.0 / (1.0 / modulus + slope)
            elastic = beyond <= 0.0
            out[:, :, 0] = np.where(elastic, strain, (first_yield + above) / modulus**2 * share)
            out[:, :, 1] = np.where(elastic, 0.0, slope * share)
            out[:, :, 2] = np.where(elastic, 0.0, slope * above / strength * share)
            out[:, :, 3] = np.where(elastic, 0.0, plastic_strain * logarithm / exponent * share)

        return in_blocks(fill, strain, parameters, (4,))


class Hollomon(Law):
    """A power of the whole strain, after an elastic line to where the two meet."""

    name = "hollomon"
    title = "Hollomon 1945"
    formula = "σ = min(E·ε, K·εⁿ)"
    source = "J. H. Hollomon, Tensile deformation, Trans. AIME 162 (1945) 268-290"
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("K", "MPa", 100.0, 2000.0, "log", "stress at a strain of 1"),
        Parameter("n", "-", 0.05, 0.55, "linear", "hardening exponent"),
    )
    strain_measure = "true"
    stress_measure = "true"
    max_strain = (0.005, 0.6)
    max_strain_scale = "log"
    strain_spacing = 2.0
    laboratory = METAL_TENSION

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            modulus, strength, exponent = columns
            np.minimum(modulus * strain, strength * strain**exponent, out=out)

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            modulus, strength, exponent = columns
            power = strain**exponent
            elastic = modulus * strain <= strength * power
            logarithm = np.log(np.maximum(strain, _TINY_STRAIN))
            out[:, :, 0] = np.where(elastic, strain, 0.0)
            out[:, :, 1] = np.where(elastic, 0.0, power)
            out[:, :, 2] = np.where(elastic, 0.0, strength * power * logarithm)

        return in_blocks(fill, strain, parameters, (3,))


def _above_yield(strain: Array, columns: Array) -> tuple[Array, Array]:
    """Strain (negative before) and stress of Ludwik's law beyond those of first yield, each [curves, points]."""
    modulus, first_yield, strength, exponent = columns
    beyond = strain - first_yield / modulus
    offset_stress = np.maximum(strength * _OFFSET**exponent, _TINY_STRESS)
    return beyond, _solve(beyond, np.stack([modulus, offset_stress, 1.0 / exponent]))


def _solve(strain: Array, columns: Array) -> Array:
    """Stress [curves, points] of ε = σ/E + 0.002 (σ/σ02)^n.

    Of the elastic and the plastic strain one is a power of the other that is not below 1, x = a y^k. So y + a y^k = ε
    is solved by Newton in ln y: the logarithm of the left-hand side is convex there and rises with slopes from 1 to k,
    and nothing overflows. The start is the smaller of ε and (ε/a)^(1/k), above the root.
    """
    modulus, offset_stress, exponent = columns
    positive = np.log(np.maximum(strain, _TINY_STRAIN))
    elastic, plastic = np.log(offset_stress / modulus), np.log(_OFFSET)
    # Strains at the offset: the one whose power is sought, and the other.
    is_power = exponent >= 1.0
    own, other = np.where(is_power, elastic, plastic), np.where(is_power, plastic, elastic)
    power = np.where(is_power, exponent, 1.0 / exponent)
    factor = other - power * own
    found = np.minimum(positive, (positive - factor) / power)
    for _ in range(_MOST_STEPS):
        further = factor + power * found
        further -= found
        ratio = np.exp(-np.abs(further))
        # ln(y + a y^k), and its slope by the share of the power in the sum.
        step = np.maximum(further, 0.0)
        step += found
        step += np.log1p(ratio)
        step -= positive
        share = np.where(further > 0.0, 1.0, ratio) / (1.0 + ratio)
        share *= power - 1.0
        share += 1.0
        step /= share
        found -= step
        if (np.abs(step) <= _TOLERANCE).all():
            break
    stress = np.where(is_power, modulus * np.exp(found), 0.0)
    if not is_power.all():
        by_plastic = offset_stress * np.exp(power * (found - plastic))
        stress = np.where(is_power, stress, by_plastic)
    return np.where(strain > 0.0, stress, 0.0)


def _plastic_strain(stress: Array, columns: Array) -> Array:
    """0.002 (σ/σ02)^n for σ > 0; same shape."""
    _, offset_stress, exponent = columns
    power = np.log(stress / offset_stress)
    power *= exponent
    np.exp(power, out=power)
    power *= _OFFSET
    return power


def _derivatives(strain: Array, columns: Array, out: Array) -> None:
    modulus, offset_stress, exponent = columns
    stress = np.maximum(_solve(strain, columns), _TINY_STRAIN)
    plastic_strain = _plastic_strain(stress, columns)
    compliance = 1.0 / modulus + exponent * plastic_strain / stress
    out[:, :, 0] = stress / modulus**2 / compliance
    out[:, :, 1] = exponent * plastic_strain / offset_stress / compliance
    out[:, :, 2] = -plastic_strain * np.log(stress / offset_stress) / compliance
    out[strain == 0.0] = 0.0

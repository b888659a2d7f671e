"""Ramberg-Osgood: the three-parameter form for metals, with the 0.2 % offset stress as a parameter."""

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.blocks import bisected, in_blocks
from tfmat.materials.law import Array, Law, Parameter

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

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            out[:] = _solve(strain, columns)

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`; the total differential of the formula."""
        return in_blocks(_derivatives, strain, parameters, (3,))


def _solve(strain: Array, columns: Array) -> Array:
    """Stress [curves, points] by Newton from the smaller of the elastic and the plastic bound.

    The formula's right-hand side is convex and rising in σ, and the start lies above the root: no step overshoots.
    From the elastic bound alone the first power overflows at n = 30. Below n = 1 it is concave: what Newton does not
    find there is left to bisection.
    """
    modulus, offset_stress, exponent = columns
    positive = np.maximum(strain, _TINY_STRAIN)
    plastic_bound = offset_stress * (positive / _OFFSET) ** (1.0 / exponent)
    upper_bound = np.maximum(np.minimum(modulus * positive, plastic_bound), _TINY_STRESS)
    stress = upper_bound.copy()
    for _ in range(_MOST_STEPS):
        plastic_strain = _plastic_strain(stress, columns)
        step = stress / modulus
        step += plastic_strain
        step -= positive
        plastic_strain *= exponent
        plastic_strain /= stress
        plastic_strain += 1.0 / modulus
        step /= plastic_strain
        stress -= step
        converged = np.abs(step) <= _TOLERANCE * stress
        if converged.all():
            break
    else:

        def is_above(tried: Array) -> NDArray[np.bool_]:
            return tried / modulus + _plastic_strain(tried, columns) > positive

        stress = np.where(converged, stress, bisected(is_above, upper_bound))
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

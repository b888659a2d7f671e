"""Metals: strain = σ/E + plastic strain, elastic until the initial yield; the Newton solve that such laws share."""

import abc

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.blocks import bisected, in_blocks
from tfmat.materials.laboratories import METAL_TENSION
from tfmat.materials.law import Array, Law
from tfmat.materials.parameter import Parameter

# Convergence is quadratic: after a step of this relative size the error is below rounding.
_TOLERANCE = 1e-10
_MOST_STEPS = 100


class ElasticPlasticLaw(Law):
    """A law σ = H(εp), εp = ε - σ/E, given by its hardening curve H; the first parameter is E.

    A subclass defines `hardening` and `hardening_derivatives`; `columns` are its parameters after E, each [curves, 1].
    """

    strain_measure = "true"
    stress_measure = "true"
    strain_spacing = 2.0
    laboratory = METAL_TENSION

    @abc.abstractmethod
    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        """H and dH/dεp in MPa at plastic_strain [curves, points] >= 0; H rises and bends to one side only."""

    @abc.abstractmethod
    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        """dH/d parameter at fixed plastic strain, one array [curves, points] (or broadcastable) a column."""

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            out[:] = self._solve(strain, columns)[0]

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`; the total differential of σ = H(ε - σ/E)."""
        return self.stress_and_derivatives(strain, parameters)[1]

    def stress_and_derivatives(self, strain: Array, parameters: Array) -> tuple[Array, Array]:
        """See `Law.stress_and_derivatives`; stress is the first of the columns that are filled."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            modulus = columns[0]
            stress, slope, plastic_strain, elastic = self._solve(strain, columns)
            share = modulus / (modulus + slope)
            out[:, :, 0] = stress
            out[:, :, 1] = np.where(elastic, strain, slope * stress * share / modulus**2)
            by_column = self.hardening_derivatives(plastic_strain, columns[1:])
            for i, derivative in enumerate(by_column, start=2):
                out[:, :, i] = np.where(elastic, 0.0, derivative * share)

        found = in_blocks(fill, strain, parameters, (1 + len(self.parameters),))
        return found[:, :, 0], found[:, :, 1:]

    def _solve(self, strain: Array, columns: Array) -> tuple[Array, Array, Array, Array]:
        """Stress, the hardening curve's slope, plastic strain, and where the curve is elastic; each [curves, points].

        Newton on F(p) = H(p) - E (ε - p) from its upper bound p = ε - H(0)/E. F rises and bends to one side, so
        that after at most one step every iterate lies on the same side of the root and comes nearer. A power so high
        that it overflows at the upper bound, or comes down from there in too many steps, is left to bisection.
        """
        modulus, others = columns[0], columns[1:]
        first_yield = self.hardening(np.zeros_like(modulus), others)[0]
        yield_strain = first_yield / modulus
        elastic = strain <= yield_strain
        plastic_strain = np.maximum(strain - yield_strain, 0.0)
        total_strain = np.maximum(strain, yield_strain)
        tolerance = _TOLERANCE * total_strain
        for _ in range(_MOST_STEPS):
            flow_stress, slope = self.hardening(plastic_strain, others)
            step = total_strain - plastic_strain
            step *= modulus
            step -= flow_stress
            step /= slope + modulus
            step += plastic_strain
            moved = np.maximum(step, 0.0, out=step)
            plastic_strain -= moved
            converged = np.abs(plastic_strain, out=plastic_strain) <= tolerance
            plastic_strain = moved
            if converged.all():
                break
        else:

            def is_above(tried: Array) -> NDArray[np.bool_]:
                return self.hardening(tried, others)[0] > modulus * (total_strain - tried)

            root = bisected(is_above, total_strain - yield_strain)
            plastic_strain = np.where(converged, plastic_strain, root)
        flow_stress, slope = self.hardening(plastic_strain, others)
        return np.where(elastic, modulus * strain, flow_stress), slope, plastic_strain, elastic


class Voce(ElasticPlasticLaw):
    """Yield at sigma0, saturation at sigma0 + Q. 304L in true stress: sigma0 270 MPa, Q 1150-1560 MPa, b 1.2-1.8."""

    name = "voce"
    title = "Voce 1948"
    formula = "σ = σ0 + Q·(1 − exp(−b·εp)),  εp = ε − σ/E"
    source = (
        "E. Voce, The relationship between stress and strain for homogeneous deformation, "
        "J. Institute of Metals 74 (1948) 537-562"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 10.0, 2000.0, "log", "initial yield stress σ0"),
        Parameter("Q", "MPa", 5.0, 2000.0, "log", "stress gained until saturation"),
        Parameter("b", "-", 1.0, 300.0, "log", "rate of saturation with plastic strain"),
    )
    max_strain = (0.005, 0.6)
    max_strain_scale = "log"

    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        """See `ElasticPlasticLaw.hardening`."""
        first_yield, gain, rate = columns
        # In place: laying out memory anew takes longer than the arithmetic.
        share = plastic_strain * -rate
        np.expm1(share, out=share)
        slope = share + 1.0
        slope *= gain * rate
        share *= gain
        return np.subtract(first_yield, share, out=share), slope

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        """See `ElasticPlasticLaw.hardening_derivatives`."""
        _, gain, rate = columns
        share = np.expm1(-rate * plastic_strain)
        return np.ones_like(share), -share, gain * plastic_strain * (1.0 + share)


class Swift(ElasticPlasticLaw):
    """Yield at K epsilon0^n. 304L in true stress: K 1360-1380 MPa, epsilon0 0.05-0.08, n 0.57-0.66."""

    name = "swift"
    title = "Swift 1952"
    formula = "σ = K·(ε0 + εp)ⁿ,  εp = ε − σ/E"
    source = (
        "H. W. Swift, Plastic instability under plane stress, J. Mech. Phys. Solids 1 (1952) 1-18"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("K", "MPa", 30.0, 3000.0, "log", "stress at epsilon0 + plastic strain = 1"),
        Parameter("epsilon0", "-", 1e-4, 0.1, "log", "pre-strain ε0"),
        Parameter("n", "-", 0.02, 0.7, "linear", "hardening exponent"),
    )
    max_strain = (0.005, 0.6)
    max_strain_scale = "log"

    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        """See `ElasticPlasticLaw.hardening`."""
        strength, pre_strain, exponent = columns
        strain = pre_strain + plastic_strain
        flow_stress = strength * np.exp(exponent * np.log(strain))
        return flow_stress, exponent * flow_stress / strain

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        """See `ElasticPlasticLaw.hardening_derivatives`."""
        strength, pre_strain, _ = columns
        flow_stress, slope = self.hardening(plastic_strain, columns)
        return flow_stress / strength, slope, flow_stress * np.log(pre_strain + plastic_strain)

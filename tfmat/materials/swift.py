"""Swift: power-law hardening from a pre-strain."""

import numpy as np

from tfmat.materials.elastic_plastic import ElasticPlasticLaw
from tfmat.materials.law import Array, Parameter


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

"""Voce: hardening that saturates."""

import numpy as np

from tfmat.materials.elastic_plastic import ElasticPlasticLaw
from tfmat.materials.law import Array, Parameter


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
        share = np.expm1(-rate * plastic_strain)
        return first_yield - gain * share, (gain * rate) * (1.0 + share)

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        """See `ElasticPlasticLaw.hardening_derivatives`."""
        _, gain, rate = columns
        share = np.expm1(-rate * plastic_strain)
        return np.ones_like(share), -share, gain * plastic_strain * (1.0 + share)

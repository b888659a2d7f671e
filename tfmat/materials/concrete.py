"""Concrete in uniaxial compression; strain and stress are positive there."""

import numpy as np

from tfmat.materials.blocks import in_blocks
from tfmat.materials.law import Array, Law
from tfmat.materials.parameter import Parameter

# Where Hognestad's falling line ends, and the share of the strength that is left there; flat behind it.
_CRUSHING_STRAIN, _SHARE_LEFT = 0.0038, 0.85


class Hognestad(Law):
    """A parabola to the strength, then a line down to 85 % of it at a strain of 0.38 %."""

    name = "hognestad"
    title = "Hognestad 1951 (concrete in compression)"
    formula = "σ = fc·(2·ε/ε0 − (ε/ε0)²) to ε0, then linear to 0.85·fc at 0.0038"
    source = (
        "E. Hognestad, A study of combined bending and axial load in reinforced concrete members, "
        "University of Illinois Bulletin 399 (1951)"
    )
    parameters = (
        Parameter("fc", "MPa", 15.0, 60.0, "linear", "compressive strength"),
        Parameter("epsilon0", "-", 0.0015, 0.003, "linear", "strain at the strength, ε0"),
    )
    strain_measure = "engineering"
    stress_measure = "engineering"
    compression = True
    max_strain = (0.002, _CRUSHING_STRAIN)
    noise_mpa = 0.5

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            strength, peak_strain = columns
            to_peak = np.minimum(strain / peak_strain, 1.0)
            np.multiply(to_peak, 2.0 - to_peak, out=out)
            out -= (1.0 - _SHARE_LEFT) * _share_of_fall(strain, peak_strain)
            out *= strength

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            strength, peak_strain = columns
            to_peak = np.minimum(strain / peak_strain, 1.0)
            fall = _share_of_fall(strain, peak_strain)
            out[:, :, 0] = to_peak * (2.0 - to_peak) - (1.0 - _SHARE_LEFT) * fall
            rising = -2.0 * (1.0 - to_peak) * to_peak / peak_strain
            length = _CRUSHING_STRAIN - peak_strain
            on_line = (fall > 0.0) & (fall < 1.0)
            falling = np.where(on_line, (1.0 - _SHARE_LEFT) * (1.0 - fall) / length, 0.0)
            out[:, :, 1] = strength * (rising + falling)

        return in_blocks(fill, strain, parameters, (2,))


def _share_of_fall(strain: Array, peak_strain: Array) -> Array:
    """How far on the falling line: 0 at the strength, 1 at its end."""
    length = np.maximum(_CRUSHING_STRAIN - peak_strain, 1e-12)
    return np.clip((strain - peak_strain) / length, 0.0, 1.0)

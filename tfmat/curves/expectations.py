"""What tests of the materials that a law is for show: moduli, strengths and strains."""

import dataclasses
import math

import numpy as np

from tfmat.materials.law import Array, Law

_SAMPLES = 512


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What tests of a kind of material show.

    Attributes:
      name: of the material and test; modulus_mpa, strength_mpa: usual ranges; strain: range of the records' ends, -.
    """

    name: str
    modulus_mpa: tuple[float, float]
    strength_mpa: tuple[float, float]
    strain: tuple[float, float]

    def distance(self, modulus: float, strength: float, end: float) -> float:
        """How far outside of the ranges a curve lies: the sum of the logarithms; 0 inside.

        Strength is measured well and counts three times; the modulus hangs on a few points and on the machine.
        """
        return sum(
            weight * max(math.log(low / value), math.log(value / high), 0.0)
            for weight, value, (low, high) in (
                (1.0, modulus, self.modulus_mpa),
                (3.0, strength, self.strength_mpa),
                (1.0, end, self.strain),
            )
        )


# Aluminium, magnesium with the tolerance, to steel and nickel; aluminium and tin when hot to hardened steel.
METAL = Expectation("a metal", (55e3, 230e3), (8.0, 2500.0), (0.002, 2.0))
# Plies of unidirectional and woven laminates in their plane, and the polymers between them.
SHEAR = Expectation("a laminate in shear", (1.5e3, 10e3), (15.0, 300.0), (0.002, 0.5))


def expectation_of(law: Law) -> Expectation | None:
    """What a law of metals or of shear is for, by its measures and its range; None for any other law."""
    strain = np.array([1e-5])
    stiffness = float(
        np.median(law.stress(strain[None], sampled_parameters(law))[:, 0] / strain[0])
    )
    expectation = SHEAR if law.strain_measure == "engineering shear" else METAL
    low, high = expectation.modulus_mpa
    return expectation if low / 2 < stiffness < 2 * high and not law.compression else None


def secant_range(law: Law, strain: Array) -> tuple[float, float]:
    """The smallest and the largest secant modulus (MPa) of the law at a strain [1], over its ranges."""
    stress = law.stress(strain[None], sampled_parameters(law))[:, 0]
    secants = stress / strain[0]
    return float(secants.min()), float(secants.max())


def sampled_parameters(law: Law) -> Array:
    """Parameters that fill the ranges, corners included: [samples, all]."""
    random = np.random.default_rng(0)
    count = len(law.identified)
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * min(count, 6)), -1).reshape(-1, min(count, 6))
    labels = random.uniform(size=(_SAMPLES, count))
    if count <= 6:
        labels = np.concatenate([corners, labels])
    return law.from_labels(labels)

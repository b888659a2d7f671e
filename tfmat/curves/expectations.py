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
      elastic_strain: the largest strength over modulus of any such material, -.
    """

    name: str
    modulus_mpa: tuple[float, float]
    strength_mpa: tuple[float, float]
    strain: tuple[float, float]
    elastic_strain: float

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


# METAL: aluminium, magnesium with the tolerance, to steel and nickel; aluminium and tin when hot to hardened steel.
# Strength over modulus: 0.01 at the upper end of the metals in Ashby's chart of strength and modulus (M. F. Ashby,
# Materials Selection in Mechanical Design), 0.013 of maraging steel, 0.016 of music wire, 0.02 of metallic glasses.
METAL = Expectation("a metal", (55e3, 230e3), (8.0, 2500.0), (0.002, 2.0), 0.02)
# SHEAR: plies of unidirectional and woven laminates in their plane, and the polymers between them. Strength over
# modulus: 0.1 at the upper end of the polymers in the same chart.
SHEAR = Expectation("a laminate in shear", (1.5e3, 10e3), (15.0, 300.0), (0.002, 0.5), 0.1)
# CONCRETE: normal to ultra-high strength. Strength over the modulus at the start: half the strain at the peak of a
# parabola, which is 0.002 to 0.003 (fib Model Code 2010, table 5.1-8), with as much again.
CONCRETE = Expectation("concrete", (10e3, 60e3), (5.0, 250.0), (0.001, 0.02), 0.003)
# POSSIBLE: beyond the usual range by this factor a modulus is still possible, for a machine that gives way takes two.
POSSIBLE = 2.25
# First parameter, measure of the strain, and whether the law is for compression: the material of the law.
_BY_FIRST_PARAMETER = {
    ("E", "true", False): METAL,
    ("G0", "engineering shear", False): SHEAR,
    ("fc", "engineering", True): CONCRETE,
}
_AT_START = np.array([1e-5])


def expectation_of(law: Law) -> Expectation | None:
    """What a law of metals or of shear is for, by its measures and its range; None for any other law."""
    stiffness = float(
        np.median(law.stress(_AT_START[None], sampled_parameters(law))[:, 0] / _AT_START[0])
    )
    expectation = SHEAR if law.strain_measure == "engineering shear" else METAL
    low, high = expectation.modulus_mpa
    return expectation if low / 2 < stiffness < 2 * high and not law.compression else None


def check_answer(law: Law, parameters: Array, largest_mpa: float) -> tuple[str, str] | None:
    """What is implausible of an answer, and a sentence with its numbers; None where all of it is possible.

    A modulus and a strength may both be possible and yet belong to no one material: a strain that holds the machine's
    own gives a modulus that is too low for the strength.

    Args:
      parameters: [all], in the parameters' units; a modulus that was given is not judged.
      largest_mpa: the largest stress of the test.
    """
    first, modulus = law.parameters[0], float(parameters[0])
    key = first.name, law.strain_measure, law.compression
    expectation = _BY_FIRST_PARAMETER.get(key)
    if expectation is None or first.fixed is not None:
        return None
    if expectation is CONCRETE:
        modulus = float(law.stress(_AT_START[None], parameters[None])[0, 0] / _AT_START[0])
    low, high = expectation.modulus_mpa
    said = f"its modulus, {modulus / 1e3:.3g} GPa,"
    if not low / POSSIBLE <= modulus <= high * POSSIBLE:
        usual = f"{low / 1e3:.3g} to {high / 1e3:.3g} GPa"
        return "implausible modulus", f"{said} is far from the usual of {expectation.name}, {usual}"
    ratio = largest_mpa / modulus
    if ratio > expectation.elastic_strain:
        most = f"for {expectation.name} at most {expectation.elastic_strain:g}"
        said += f" does not go with a stress of {largest_mpa:.4g} MPa: their ratio is {ratio:.2g}, {most}"
        return "implausible modulus for the strength", said
    return None


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

"""What a tension test of a metal tells without any law: modulus, proof stress, strength and elongations.

Definitions: ISO 6892-1 (Rp0.2, Rm, Ag, Agt, A, At), ASTM E8 and E111 (chord modulus).
"""

import dataclasses
from typing import Any

# Field of `TensileProperties` -> its symbol and unit.
SYMBOLS = {
    "modulus_mpa": ("E", "MPa"),
    "proof_stress_mpa": ("Rp0.2", "MPa"),
    "tensile_strength_mpa": ("Rm", "MPa"),
    "uniform_elongation": ("Ag", "-"),
    "total_uniform_elongation": ("Agt", "-"),
    "elongation_after_fracture": ("A", "-"),
    "total_elongation": ("At", "-"),
}


@dataclasses.dataclass(frozen=True)
class Property:
    """One property of a test.

    Attributes:
      value: in the unit of its field, or None where the record cannot tell it.
      how: the way it was got, or why there is none.
      at_least: the record ends too early: the property is this or more.
    """

    value: float | None
    how: str
    at_least: bool = False


@dataclasses.dataclass(frozen=True)
class TensileProperties:
    """The properties of one tension test, in engineering stress and strain.

    Attributes:
      modulus_mpa: chord modulus E, MPa.
      proof_stress_mpa: Rp0.2, the stress at 0.2 % plastic extension, MPa.
      tensile_strength_mpa: Rm, the stress at maximum load, MPa.
      uniform_elongation: Ag, plastic strain at maximum load, -; total_uniform_elongation: Agt, the total strain there.
      elongation_after_fracture: A, plastic strain at the end, -; total_elongation: At, the total strain there.
    """

    modulus_mpa: Property
    proof_stress_mpa: Property
    tensile_strength_mpa: Property
    uniform_elongation: Property
    total_uniform_elongation: Property
    elongation_after_fracture: Property
    total_elongation: Property

    def to_json(self) -> dict[str, Any]:
        """Field -> its symbol, value, unit, how it was got, and `at_least` where it is only a bound."""
        content = {}
        for name, (symbol, unit) in SYMBOLS.items():
            found: Property = getattr(self, name)
            content[name] = {
                "symbol": symbol,
                "value": found.value,
                "unit": unit,
                "how": found.how,
            } | ({"at_least": True} if found.at_least else {})
        return content

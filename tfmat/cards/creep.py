"""Cards of metals that flow with time: power-law creep, alone or of the stress above a hardening yield stress."""

import dataclasses

from tfmat.cards.hardening import elastic, table_of_plasticity
from tfmat.cards.material import SOLVERS, Family, Material, listed
from tfmat.errors import InputError
from tfmat.materials import find_law

# _LEAST_OF_CALCULIX: A in the card's units; CalculiX 2.20 takes a smaller one as 1e-20 without a word, as runs of one
# element show.
_LEAST_OF_CALCULIX = 1e-20
# _LEAST_OF_ABAQUS: A in the card's units; a smaller one makes errors in the calculation (Abaqus Analysis User's Guide,
# Rate-dependent plasticity: creep and swelling).
_LEAST_OF_ABAQUS = 1e-27

_NOTE = (
    "true stress and strain; steps must be ones of creep (*VISCO), with increments that are short where the "
    "stress changes fast"
)


def _power(material: Material) -> list[float]:
    """A, n and m of A stress^n time^m."""
    return [material.values["K"] ** -material.values["n"], material.values["n"], 0.0]


def _for_calculix(material: Material, solver: str) -> Material:
    """In GPa and ms where A is too small in MPa and s: it gains a factor of 1000^(n - 1)."""
    if solver != "calculix" or _power(material)[0] >= _LEAST_OF_CALCULIX:
        return material
    values = {
        name: value if name in ("b", "n") else value / 1e3
        for name, value in material.values.items()
    }
    values["K"] *= 1e3 ** (1.0 / values["n"])
    small = material.values["K"] ** -material.values["n"]
    said = (
        f"this card is in GPa and ms: in MPa and s its A is {small:.3g}, which CalculiX takes as "
        f"{_LEAST_OF_CALCULIX:g}; the whole model must be in mm, kg, ms, GPa"
    )
    changed = dataclasses.replace(
        material,
        values=values,
        units="mm, kg, ms, GPa (kN, J, kg/mm3)",
        warnings=(said,),
    )
    if _power(changed)[0] < _LEAST_OF_CALCULIX:
        title = SOLVERS["calculix"].title
        raise InputError(
            f"{title} takes a creep constant A below {_LEAST_OF_CALCULIX:g} as that, and A is {small:.3g} here "
            f"({_power(changed)[0]:.3g} in GPa and ms); K is too large for its exponent: no card"
        )
    return changed


def _norton_of_calculix(material: Material) -> list[str]:
    """*CREEP, by default Norton's: CalculiX CrunchiX User's Manual."""
    return [*elastic(material), "*CREEP", listed(_power(material))]


def _norton_of_abaqus(material: Material) -> list[str]:
    """*CREEP, LAW=TIME with A, n and m, or TIME POWER LAW with q0, n, m and the rate at q0: Abaqus Keywords Guide."""
    if _power(material)[0] >= _LEAST_OF_ABAQUS:
        return [*elastic(material), "*CREEP, LAW=TIME", listed(_power(material))]
    drag, exponent = material.values["K"], material.values["n"]
    return [
        *elastic(material),
        "*CREEP, LAW=TIME POWER LAW",
        listed([drag, exponent, 0.0, 1.0]),
    ]


def _overstress(material: Material) -> list[str]:
    """*PLASTIC and *CREEP, which is of the stress above the yield surface: CalculiX CrunchiX User's Manual.

    Section "Incremental (visco)plasticity": the stress leaves the yield surface and regains it with time.
    """
    law = find_law("voce")
    values = {parameter.name: material.values[parameter.name] for parameter in law.parameters}
    table = table_of_plasticity(dataclasses.replace(material, law=law, values=values))
    return [*table, "*CREEP", listed(_power(material))]


NORTON = Family(
    {"abaqus": _norton_of_abaqus, "calculix": _norton_of_calculix}, 0.3, _NOTE, _for_calculix
)
PERZYNA = Family({"calculix": _overstress}, 0.3, _NOTE, _for_calculix)

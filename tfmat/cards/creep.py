"""Cards of metals that flow with time: power-law creep, alone or of the stress above a hardening yield stress."""

import dataclasses

from tfmat.cards.hardening import elastic, table_of_plasticity
from tfmat.cards.material import Family, Material, listed
from tfmat.materials import find_law

_NOTE = (
    "true stress and strain; time in s; steps must be ones of creep (*VISCO), with increments that are short where the "
    "stress changes fast"
)


def _power(material: Material) -> list[float]:
    """A, n and m of A stress^n time^m."""
    return [material.values["K"] ** -material.values["n"], material.values["n"], 0.0]


def _norton_of_calculix(material: Material) -> list[str]:
    """*CREEP, by default Norton's: CalculiX CrunchiX User's Manual."""
    return [*elastic(material), "*CREEP", listed(_power(material))]


def _norton_of_abaqus(material: Material) -> list[str]:
    """*CREEP, LAW=TIME with A, n and m: Abaqus Keywords Guide."""
    return [*elastic(material), "*CREEP, LAW=TIME", listed(_power(material))]


def _overstress(material: Material) -> list[str]:
    """*PLASTIC and *CREEP, which is of the stress above the yield surface: CalculiX CrunchiX User's Manual.

    Section "Incremental (visco)plasticity": the stress leaves the yield surface and regains it with time.
    """
    law = find_law("voce")
    values = {parameter.name: material.values[parameter.name] for parameter in law.parameters}
    table = table_of_plasticity(dataclasses.replace(material, law=law, values=values))
    return [*table, "*CREEP", listed(_power(material))]


NORTON = Family({"abaqus": _norton_of_abaqus, "calculix": _norton_of_calculix}, 0.3, _NOTE)
PERZYNA = Family({"calculix": _overstress}, 0.3, _NOTE)

"""Cards of the in-plane shear of plies: the part of a composite material that a shear test tells."""

import numpy as np

from tfmat.cards.material import (
    SOLVERS,
    Family,
    Fields,
    Material,
    comments,
    define_curve,
    keyword_fields,
    keyword_names,
    number,
)

_POINTS = 201
# The stress at which `ramberg_osgood_shear` has its permanent strain as a parameter, MPa.
_REFERENCE_MPA = 50.0


# What a shear test leaves open, whatever the solver.
_INCOMPLETE = "INCOMPLETE: a shear test tells the in-plane shear alone; "


def _ply(keyword: str, note: str, *lines: tuple[str, Fields]) -> list[str]:
    """The keyword with its lines, each the names of the fields and what is known of them."""
    incomplete = (
        f"{_INCOMPLETE}the density, moduli, Poisson's ratios, axes and "
        f"strengths that are blank or 0 are yours to fill in; MID is 1: change it to yours; {note}"
    )
    body = [*comments(SOLVERS["ls_dyna"], incomplete), keyword]
    for names, values in (("MID RO EA EB EC PRBA PRCA PRCB", ["1"]), *lines):
        body += [keyword_names(names), keyword_fields(values)]
    return body


def _mat_054(material: Material) -> list[str]:
    """*MAT_ENHANCED_COMPOSITE_DAMAGE, gamma = tau / GAB + ALPH tau³: LS-DYNA Keyword Manual, volume II."""
    return _ply(
        "*MAT_ENHANCED_COMPOSITE_DAMAGE",
        "ALPH is the law's a, in MPa^-3; *MAT_022 has the same ALPH",
        ("GAB GBC GCA KF AOPT 2WAY", [material.values["G0"]]),
        ("XP YP ZP A1 A2 A3 MANGLE", ["0.0"]),
        ("V1 V2 V3 D1 D2 D3 DFAILM DFAILS", ["0.0"]),
        ("TFAIL ALPH SOFT FBRT YCFAC DFAILT DFAILC EFS", [None, material.values["a"]]),
        ("XC XT YC YT SC CRIT BETA", [None, None, None, None, None, "54.0"]),
    )


def _mat_058(material: Material) -> list[str]:
    """*MAT_LAMINATED_COMPOSITE_FABRIC with GAB = -LCID: LS-DYNA Keyword Manual, volume II."""
    strain = 1.5 * material.tested * np.linspace(0.0, 1.0, _POINTS)
    return _ply(
        "*MAT_LAMINATED_COMPOSITE_FABRIC",
        f"GAB = -1 is curve 1, which goes on to a strain of {strain[-1]:g}",
        ("GAB GBC GCA SLIMT1 SLIMC1 SLIMT2 SLIMC2 SLIMS", ["-1.0"]),
        ("AOPT TSIZE ERODS SOFT FS EPSF EPSR TSMD", ["0.0"]),
        ("XP YP ZP A1 A2 A3 PRCA PRCB", ["0.0"]),
        ("V1 V2 V3 D1 D2 D3 BETA LCDFAIL", ["0.0"]),
        ("E11C E11T E22C E22T GMS", ["0.0"]),
        ("XC XT YC YT SC", ["0.0"]),
    ) + define_curve(strain, material.stress(strain))


def _compdam(material: Material) -> list[str]:
    """NASA's CompDam for Abaqus/Explicit: the Manual readme.md of github.com/nasa/CompDam_DGD, input file statements.

    γ12 = (τ + α_PL |τ|ⁿ)/G12 is plastic there, and unloads with G12. Constants 27 and 28 are α_PL (MPa^(1-n)) and n.
    """
    modulus, permanent, exponent = material.values.values()
    constants: list[str] = [""] * 40
    constants[0] = "010000"
    constants[10] = number(modulus)
    constants[26] = number(modulus * permanent / _REFERENCE_MPA**exponent)
    constants[27] = number(exponent)
    incomplete = (
        f"{_INCOMPLETE}fill in constants 3 (thickness), 9 (E1), 10 (E2), 12 (nu12), 13 (nu23) of this user material, "
        "and further ones for its damage; the feature flags 010000 ask for nonlinear shear in the 1-2 plane alone; "
        "it wants NASA's subroutine CompDam_DGD, NLGEOM=YES, double precision and *INITIAL CONDITIONS, TYPE=SOLUTION "
        "with 1 for state variable 11"
    )
    return [
        *comments(SOLVERS["abaqus"], incomplete),
        f"*MATERIAL, NAME={material.name}",
        "*DEPVAR, DELETE=11",
        "19,",
        "*CHARACTERISTIC LENGTH, DEFINITION=USER, COMPONENTS=3",
        "*USER MATERIAL, CONSTANTS=40",
        *(", ".join(constants[i : i + 8]) for i in range(0, 40, 8)),
    ]


_NOTE = "engineering shear strain gamma_12; unloading is the solver's, the test says nothing of it"
CUBIC_SHEAR = Family({"ls_dyna": _mat_054}, None, _NOTE)
PLASTIC_SHEAR = Family({"abaqus": _compdam}, None, "it unloads with G12")
CURVED_SHEAR = Family({"ls_dyna": _mat_058}, None, _NOTE)

"""Cards of the in-plane shear of plies: the part of an LS-DYNA composite material that a shear test tells."""

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
)

_POINTS = 201


def _ply(keyword: str, note: str, *lines: tuple[str, Fields]) -> list[str]:
    """The keyword with its lines, each the names of the fields and what is known of them."""
    incomplete = (
        "INCOMPLETE: a shear test tells the in-plane shear alone; the density, moduli, Poisson's ratios, axes and "
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


_NOTE = "engineering shear strain gamma_12; unloading is the solver's, the test says nothing of it"
CUBIC_SHEAR = Family({"ls_dyna": _mat_054}, None, _NOTE)
CURVED_SHEAR = Family({"ls_dyna": _mat_058}, None, _NOTE)

"""Cards of metals: yield and hardening, as a table of stress over plastic strain or as the solver's own parameters."""

import dataclasses

import numpy as np

from tfmat.cards.material import (
    MATERIAL_1,
    NO_DENSITY,
    SOLVERS,
    Family,
    Material,
    comments,
    define_curve,
    keyword_fields,
    keyword_names,
    listed,
    number,
)
from tfmat.materials import find_law
from tfmat.materials.elastic_plastic import ElasticPlasticLaw
from tfmat.materials.law import Array

# Rows up to the tested strain and beyond it. CalculiX keeps 200, Ansys 100; the straight lines between so many miss
# laws with a first yield by less than 1e-4, others by less than 3e-4 (less than 7e-4 with Ansys).
_ROWS, _ROWS_OF_ANSYS = (160, 40), (80, 20)
# Tables at so many temperatures above room temperature, with fewer rows; molten metal keeps this share of its strength.
_TEMPERATURES, _ROWS_OF_TEMPERATURES, _MOLTEN = 24, (80, 20), 1e-4
# Where a law has no first yield its card is elastic up to this plastic strain, and tables end at this one.
_FIRST, _LAST = 1e-7, 1.0
# Of strains at which such a law is looked at, evenly spaced in their logarithm.
_SAMPLES = 200_000


def flow_curve(material: Material, rows: tuple[int, int] = _ROWS) -> tuple[Array, Array]:
    """The table: plastic strain from 0, and stress in MPa."""
    law, modulus = material.law, material.values["E"]
    stress = float(material.stress(np.array([material.tested]))[0])
    tested = max(material.tested - stress / modulus, 1e-4)
    last = max(_LAST, 2.0 * tested)
    beyond = np.linspace(tested, last, rows[1] + 1)[1:]
    if isinstance(law, ElasticPlasticLaw):
        plastic = np.concatenate([tested * np.linspace(0.0, 1.0, rows[0]) ** 2, beyond])
        others = np.array(list(material.values.values()))[1:, None, None]
        return plastic, law.hardening(plastic[None], others)[0][0]
    sampled = np.geomspace(1e-6, 2.0 * last, _SAMPLES)
    flow = material.stress(sampled)
    sampled = sampled - flow / modulus
    before = max(int(np.argmax(sampled > _FIRST)) - 1, 0)
    plastic = np.concatenate([[0.0], np.geomspace(_FIRST, tested, rows[0] - 1), beyond])
    return plastic, np.interp(plastic, sampled[before:], flow[before:])


def table_of_plasticity(material: Material) -> list[str]:
    """*MATERIAL, *ELASTIC, *PLASTIC with rows of true stress and plastic logarithmic strain.

    CalculiX CrunchiX User's Manual, *PLASTIC; Abaqus Keywords Guide, *PLASTIC (HARDENING=ISOTROPIC).
    """
    plastic, flow = flow_curve(material)
    rows = [listed(row) for row in zip(flow, plastic, strict=True)]
    return [*elastic(material), "*PLASTIC", *rows]


def elastic(material: Material) -> list[str]:
    """*MATERIAL and *ELASTIC, as Abaqus and CalculiX have them."""
    return [
        f"*MATERIAL, NAME={material.name}",
        "*ELASTIC",
        listed([material.values["E"], material.poisson_ratio]),
    ]


def _mat_024(material: Material) -> list[str]:
    """*MAT_PIECEWISE_LINEAR_PLASTICITY with LCSS: LS-DYNA Keyword Manual, volume II; *DEFINE_CURVE, volume I."""
    plastic, flow = flow_curve(material)
    return [
        *comments(SOLVERS["ls_dyna"], f"{NO_DENSITY}; LCID is 1 too"),
        "*MAT_PIECEWISE_LINEAR_PLASTICITY",
        keyword_names("MID RO E PR SIGY ETAN FAIL TDEL"),
        keyword_fields(["1", None, material.values["E"], material.poisson_ratio, flow[0]]),
        keyword_names("C P LCSS LCSR VP"),
        keyword_fields([None, None, "1"]),
        *[keyword_fields(["0.0"])] * 2,
        *define_curve(plastic, flow),
    ]


def _mat_018(material: Material) -> list[str]:
    """*MAT_POWER_LAW_PLASTICITY: LS-DYNA Keyword Manual, volume II.

    Its stress is K (eps_yp + eps_p)^n with eps_yp = (SIGY / K)^(1/n) for SIGY above 0.02: Swift's law, without a table.
    """
    values = material.values
    first_yield = values["K"] * values["epsilon0"] ** values["n"]
    elastic = [values["E"], material.poisson_ratio]
    return [
        *comments(SOLVERS["ls_dyna"], f"{NO_DENSITY}; the law itself, without a table"),
        "*MAT_POWER_LAW_PLASTICITY",
        keyword_names("MID RO E PR K N SRC SRP"),
        keyword_fields(["1", None, *elastic, values["K"], values["n"]]),
        keyword_names("SIGY VP EPSF"),
        keyword_fields([first_yield]),
    ]


def _miso(material: Material) -> list[str]:
    """TB,PLASTIC,,,,MISO with TBPT: Mechanical APDL Command Reference, TB and TBPT; the first point is first yield."""
    plastic, flow = flow_curve(material, _ROWS_OF_ANSYS)
    rows = [f"TBPT,DEFI,{number(p)},{number(s)}" for p, s in zip(plastic, flow, strict=True)]
    return [
        *comments(SOLVERS["ansys"], MATERIAL_1),
        f"MP,EX,1,{number(material.values['E'])}",
        f"MP,PRXY,1,{number(material.poisson_ratio)}",
        "TB,PLASTIC,1,,,MISO",
        *rows,
    ]


def _traction(material: Material) -> list[str]:
    """DEFI_MATERIAU with TRACTION, over the total strain: Code_Aster U4.43.01; for RELATION='VMIS_ISOT_TRAC'."""
    plastic, flow = flow_curve(material)
    strain = plastic + flow / material.values["E"]
    rows = [f"        {number(e)}, {number(s)}," for e, s in zip(strain, flow, strict=True)]
    return [
        "traction = DEFI_FONCTION(",
        "    NOM_PARA='EPSI',",
        "    NOM_RESU='SIGM',",
        "    PROL_DROITE='CONSTANT',",
        "    VALE=(",
        *rows,
        "    ),",
        ")",
        "mater = DEFI_MATERIAU(",
        _elas(material),
        "    TRACTION=_F(SIGM=traction),",
        ")",
    ]


def _elas(material: Material) -> str:
    modulus = number(material.values["E"])
    return f"    ELAS=_F(E={modulus}, NU={number(material.poisson_ratio)}),"


_ISOTROPIC = {
    "abaqus": table_of_plasticity,
    "ls_dyna": _mat_024,
    "ansys": _miso,
    "calculix": table_of_plasticity,
    "code_aster": _traction,
}
_NOTE = (
    "a table's rows up to the tested strain follow the law, those beyond it are its extrapolation, and beyond the last "
    "row the solver goes on as it does (most with constant stress); plasticity is von Mises', isotropic"
)
HARDENING = Family(_ISOTROPIC, 0.3, _NOTE)
POWER_HARDENING = Family({**_ISOTROPIC, "ls_dyna": _mat_018}, 0.3, _NOTE)
SMOOTH_YIELD = Family(
    _ISOTROPIC,
    0.3,
    f"where the law has no first yield, the card is elastic below a plastic strain of {_FIRST:g}; {_NOTE}",
)


def _rate_and_temperature(material: Material) -> list[str]:
    """*PLASTIC, HARDENING=JOHNSON COOK (A, B, n, m, melting, transition) and *RATE DEPENDENT: Abaqus Keywords Guide."""
    values = material.values
    names = ("A", "B", "n", "m", "melting", "room")
    return [
        *elastic(material),
        "*PLASTIC, HARDENING=JOHNSON COOK",
        listed([values[name] for name in names]),
        "*RATE DEPENDENT, TYPE=JOHNSON COOK",
        listed([values["C"], values["reference_rate"]]),
    ]


def _mat_015(material: Material) -> list[str]:
    """*MAT_JOHNSON_COOK: LS-DYNA Keyword Manual, volume II; solids need an equation of state with it."""
    values, ratio = material.values, material.poisson_ratio
    names = ("A", "B", "n", "C", "m", "melting", "room", "reference_rate")
    return [
        *comments(
            SOLVERS["ls_dyna"],
            f"{NO_DENSITY}; solids need an *EOS and CP, which no test here tells",
        ),
        "*MAT_JOHNSON_COOK",
        keyword_names("MID RO G E PR DTF VP RATEOP"),
        keyword_fields(["1", None, values["E"] / (2 + 2 * ratio), values["E"], ratio]),
        keyword_names("A B N C M TM TR EPSO"),
        keyword_fields([values[name] for name in names]),
        *[keyword_fields(["0.0"])] * 2,
    ]


def _isothermal_tables(material: Material) -> list[str]:
    """*PLASTIC with a table for each of several temperatures: CalculiX CrunchiX User's Manual, *PLASTIC.

    Between temperatures CalculiX interpolates. T* = (i/N)^(2/m) makes the error of the factor the same between all of
    them, |m - 1| / (2 m N²).
    """
    values = material.values
    names = {"E": "E", "sigma0": "A", "K": "B", "n": "n"}
    cold = {name: values[own] for name, own in names.items()}
    plastic, flow = flow_curve(
        dataclasses.replace(material, law=find_law("ludwik"), values=cold), _ROWS_OF_TEMPERATURES
    )
    share = (np.arange(_TEMPERATURES + 1) / _TEMPERATURES) ** (2.0 / values["m"])
    factors = np.maximum(1.0 - share ** values["m"], _MOLTEN)
    temperatures = values["room"] + share * (values["melting"] - values["room"])
    rate = (
        f"the stress at a strain rate of {number(values['reference_rate'])} 1/s; at another it is "
        f"1 + {number(values['C'])} ln(rate/{number(values['reference_rate'])}) times as large"
    )
    return [
        *comments(SOLVERS["calculix"], rate),
        *elastic(material),
        "*PLASTIC",
        *(
            listed([factor * stress, strain, temperature])
            for factor, temperature in zip(factors, temperatures, strict=True)
            for stress, strain in zip(flow, plastic, strict=True)
        ),
    ]


JOHNSON_COOK = Family(
    {"abaqus": _rate_and_temperature, "ls_dyna": _mat_015, "calculix": _isothermal_tables},
    0.3,
    "temperatures in degrees Celsius, rates in 1/s; below the reference rate the law goes on falling where solvers "
    "keep the stress of that rate",
)


def _backstresses(material: Material) -> list[tuple[float, float]]:
    """(C, gamma) of each."""
    count = sum(name.startswith("gamma") for name in material.values)
    return [(material.values[f"C{k}"], material.values[f"gamma{k}"]) for k in range(1, count + 1)]


def _combined(material: Material) -> list[str]:
    """*PLASTIC, HARDENING=COMBINED, DATA TYPE=PARAMETERS and *CYCLIC HARDENING, PARAMETERS: Abaqus Keywords Guide."""
    values, terms = material.values, _backstresses(material)
    return [
        *elastic(material),
        f"*PLASTIC, HARDENING=COMBINED, DATA TYPE=PARAMETERS, NUMBER BACKSTRESSES={len(terms)}",
        listed([values["sigma0"], *np.ravel(terms)]),
        "*CYCLIC HARDENING, PARAMETERS",
        listed([values["sigma0"], values["Q"], values["b"]]),
    ]


def _chab(material: Material) -> list[str]:
    """DEFI_MATERIAU with CIN1_CHAB or CIN2_CHAB: Code_Aster U4.43.01.

    R(p) = R_I + (R_0 - R_I) exp(-B p), dX = 2/3 C deps_p - G X dp; K, W and A_I make C and G constant.
    """
    values, terms = material.values, _backstresses(material)
    single = len(terms) == 1
    keys = [("C_I", "G_0")] if single else [("C1_I", "G1_0"), ("C2_I", "G2_0")]
    pairs = [
        f"{key}={number(value)}"
        for names, term in zip(keys, terms, strict=True)
        for key, value in zip(names, term, strict=True)
    ]
    isotropic = {"R_0": values["sigma0"], "R_I": values["sigma0"] + values["Q"], "B": values["b"]}
    first = ", ".join(f"{key}={number(value)}" for key, value in isotropic.items())
    return [
        f"# for RELATION='VMIS_CIN{len(terms)}_CHAB'",
        "mater = DEFI_MATERIAU(",
        _elas(material),
        f"    CIN{len(terms)}_CHAB=_F(",
        f"        {first},",
        f"        {', '.join(pairs)},",
        "        K=1.0, W=0.0, A_I=1.0,",
        "    ),",
        ")",
    ]


_CYCLIC_NOTE = "the solver's own parameters, no table; plasticity is von Mises'"
CYCLIC = Family({"abaqus": _combined, "code_aster": _chab}, 0.3, _CYCLIC_NOTE)
CYCLIC_3 = Family({"abaqus": _combined}, 0.3, _CYCLIC_NOTE)

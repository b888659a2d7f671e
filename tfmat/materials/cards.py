"""Material cards: the parameters of an answer as a solver's input takes them."""

import dataclasses
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

import tfmat
from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array, Law
from tfmat.materials.metals import ElasticPlasticLaw
from tfmat.materials.registry import LAWS, find_law
from tfmat.materials.rubber import RubberLaw

# --------------------------------------------------------------------------------------------------
# The material of a card's writer, how each solver writes comments and numbers, and the head that all cards share.


# _WIDTH: columns of a comment; with its sign and a blank it fits the 80 columns of the oldest solvers.
_WIDTH = 77
# Solvers read their input as ASCII. Greek letters are spelled out; what is not here loses its accents.
_SIGNS = str.maketrans(
    dict(zip("−–·×⟨⟩", "--*x<>", strict=True))
    | {
        "ß": "ss",
        "Σ": "sum of",
        "½": "1/2",
        "…": "...",
        "⁻": "^-",
        "ⁿ": "^n",
        "≤": "<=",
        "²": "^2",
        "³": "^3",
        "ᵐ": "^m",
    }
)


@dataclasses.dataclass(frozen=True)
class Solver:
    """How a solver's files look: its own name, what begins a comment, and the ending of their names."""

    title: str
    comment: str
    suffix: str


SOLVERS: Mapping[str, Solver] = {
    "abaqus": Solver("Abaqus", "**", "inp"),
    "ls_dyna": Solver("LS-DYNA", "$", "k"),
    "ansys": Solver("Ansys Mechanical APDL", "!", "mac"),
    "calculix": Solver("CalculiX", "**", "inp"),
    "code_aster": Solver("Code_Aster", "#", "comm"),
}


NO_DENSITY = "RO is left blank: give the density in t/mm3; MID is 1: change it to yours"
MATERIAL_1 = "the material number is 1: change it to yours"


@dataclasses.dataclass(frozen=True)
class Material:
    """A law with its parameters, for one card.

    Attributes:
      name: of the material, letters, digits and _.
      law: the law.
      values: parameter -> value in its unit, in the order of the law.
      poisson_ratio: assumed, since no test here tells it; 0 where the card leaves it blank.
      tested: the largest strain of the test, in the law's measure.
      units: of the card, and so of the values.
      remarks: what is to be said of these very values.
      warnings: those of them that a user must not miss.
    """

    name: str
    law: Law
    values: Mapping[str, float]
    poisson_ratio: float
    tested: float
    units: str = "mm, t, s, MPa (N, mJ, t/mm3)"
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def stress(self, strain: Array) -> Array:
        """Stress of the law at strains [points]: [points], MPa."""
        return self.law.stress(strain[None], np.array([list(self.values.values())]))[0]


Writer = Callable[[Material], list[str]]
Fields = Sequence[float | str | None]


@dataclasses.dataclass(frozen=True)
class Family:
    """Laws that become cards in the same way.

    Attributes:
      writers: solver -> what writes the lines below the head.
      poisson_ratio: what is assumed where the user gives none; None where the card leaves it to the user.
      note: what a user of any of these cards should know.
      prepared: (material, solver) -> the material as the solver can take it, with what is to be said of it.
    """

    writers: Mapping[str, Writer]
    poisson_ratio: float | None
    note: str
    prepared: Callable[[Material, str], Material] = lambda material, solver: material


def head(
    solver: Solver, material: Material, facts: Iterable[str], notes: Iterable[str]
) -> list[str]:
    """Comment lines: what the card is, where it comes from, its units, and what it assumes."""
    law = material.law
    lines = [
        f"Material card for {solver.title}, written by tfmat {tfmat.__version__}",
        *facts,
        f"law {law.name}: {law.title}; {law.formula}; {law.source}",
        f"units: {material.units}",
        *(f"WARNING: {warning}" for warning in material.warnings),
        *notes,
        *material.remarks,
    ]
    return [part for line in lines for part in comments(solver, line)]


def comments(solver: Solver, text: str) -> list[str]:
    """The text as comment lines of at most 80 columns."""
    parts = textwrap.wrap(ascii_text(text), _WIDTH, subsequent_indent="  ")
    return [f"{solver.comment} {part}" for part in parts]


def ascii_text(text: str) -> str:
    """The text in one line of ASCII: Greek letters and signs spelled out, accents left off."""
    signs = " ".join(text.split()).translate(_SIGNS)
    simple = unicodedata.normalize("NFKD", signs)
    spelled = re.sub("[Α-ω]", lambda match: _greek(match[0]), simple)
    plain = spelled.encode("ascii", "ignore").decode()
    return plain or "-"


def _greek(letter: str) -> str:
    name = unicodedata.name(letter).rpartition(" ")[2].lower()
    return {"lamda": "lambda", "epsilon": "eps"}.get(name, name)


def material_name(name: str) -> str:
    """A name that every solver takes: at most 40 letters, digits and _, a letter first."""
    plain = re.sub(r"\W+", "_", ascii_text(name), flags=re.ASCII).strip("_").upper()
    return (plain if plain[:1].isalpha() else f"M_{plain}")[:40].rstrip("_")


def number(value: float) -> str:
    """Nine digits: what differs from the law is then not the card."""
    return f"{value:.9g}"


def listed(values: ArrayLike) -> str:
    """`1, 2.5, 3`."""
    return ", ".join(number(value) for value in np.ravel(values))


def keyword_fields(values: Fields) -> str:
    """A line of LS-DYNA: fields of ten columns, each with as many digits as fit; None is a blank field."""
    return "".join(_field(value) for value in values).rstrip()


def _field(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return f"{value or '':>10}"
    digits = next(d for d in range(9, 0, -1) if len(f"{value:.{d}g}") <= 10)
    return f"{value:>10.{digits}g}"


def keyword_names(names: str) -> str:
    """The comment above a line of LS-DYNA that names its fields, separated by blanks in `names`."""
    return "$#" + "".join(f"{name:>10}" for name in names.split())[2:]


def define_curve(x: Array, y: Array) -> list[str]:
    """*DEFINE_CURVE number 1: LS-DYNA Keyword Manual, volume I.

    LS-DYNA turns a curve into LCINT equal steps, by default 100: too few for a knee.
    """
    return [
        "*DEFINE_CURVE",
        keyword_names("LCID SIDR SFA SFO OFFA OFFO DATTYP LCINT"),
        keyword_fields(["1", None, None, None, None, None, None, "1000"]),
        *(f"{a:20.9g}{b:20.9g}" for a, b in zip(x, y, strict=True)),
    ]


# --------------------------------------------------------------------------------------------------
# Cards of metals: yield and hardening, as a table of stress over plastic strain or as the solver's own parameters.


# Rows up to the tested strain and beyond it. CalculiX keeps 200, Ansys 100; the straight lines between so many miss
# laws whose slope is finite at first yield by less than 1e-4, others by less than 3e-4 (less than 7e-4 with Ansys).
_ROWS, _ROWS_OF_ANSYS = (160, 40), (80, 20)
# Tables at so many temperatures above room temperature, with fewer rows; molten metal keeps this share of its strength.
_TEMPERATURES, _ROWS_OF_TEMPERATURES, _MOLTEN = 24, (80, 20), 1e-4
# Where a law has no first yield its card is elastic up to this plastic strain, and tables end at this one.
_FIRST, _LAST = 1e-7, 1.0
# Number of strains at which such a law is looked at, evenly spaced in their logarithm.
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
_HARDENING_NOTE = (
    "a table's rows up to the tested strain follow the law, those beyond it are its extrapolation, and beyond the last "
    "row the solver goes on as it does (most with constant stress); plasticity is von Mises', isotropic"
)
HARDENING = Family(_ISOTROPIC, 0.3, _HARDENING_NOTE)
POWER_HARDENING = Family({**_ISOTROPIC, "ls_dyna": _mat_018}, 0.3, _HARDENING_NOTE)


def _falling(material: Material, solver: str) -> Material:
    """Warns where the table falls: a law of one's own may soften, also beyond what was tested."""
    plastic, flow = flow_curve(material)
    falls = np.diff(flow) < -1e-9 * flow.max()
    if not falls.any():
        return material
    said = (
        f"the table falls from a plastic strain of {plastic[:-1][falls][0]:.3g} on: results of a law that softens "
        "depend on the mesh, and some solvers refuse such a table; end it before, or let it go on level"
    )
    return dataclasses.replace(material, warnings=(said,))


SMOOTH_YIELD = Family(
    _ISOTROPIC,
    0.3,
    f"where the law has no first yield, the card is elastic below a plastic strain of {_FIRST:g}; {_HARDENING_NOTE}",
    _falling,
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


# --------------------------------------------------------------------------------------------------
# Cards of metals that flow with time: power-law creep, alone or of the stress above a hardening yield stress.


# _LEAST_OF_CALCULIX: A in the card's units; CalculiX 2.20 takes a smaller one as 1e-20 without a word, as runs of one
# element show.
_LEAST_OF_CALCULIX = 1e-20
# _LEAST_OF_ABAQUS: A in the card's units; a smaller one makes errors in the calculation (Abaqus Analysis User's Guide,
# Rate-dependent plasticity: creep and swelling).
_LEAST_OF_ABAQUS = 1e-27

_CREEP_NOTE = (
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
    {"abaqus": _norton_of_abaqus, "calculix": _norton_of_calculix}, 0.3, _CREEP_NOTE, _for_calculix
)
PERZYNA = Family({"calculix": _overstress}, 0.3, _CREEP_NOTE, _for_calculix)


# --------------------------------------------------------------------------------------------------
# Cards of polymers that relax: a Prony series, relative to the modulus before all relaxation.


def _relative_terms(material: Material) -> tuple[float, list[tuple[float, float]]]:
    """The modulus E0 before all relaxation, and each term's share of it with its relaxation time in s."""
    values = material.values
    count = sum(name.startswith("tau") for name in values)
    terms = [(values[f"E{k}"], values[f"tau{k}"]) for k in range(1, count + 1)]
    first = values["E_inf"] + sum(modulus for modulus, _ in terms)
    return first, [(modulus / first, time) for modulus, time in terms]


def _prony_of_abaqus(material: Material) -> list[str]:
    """*ELASTIC, MODULI=INSTANTANEOUS and *VISCOELASTIC, TIME=PRONY with g, k and tau a line: Abaqus Keywords Guide."""
    first, terms = _relative_terms(material)
    return [
        f"*MATERIAL, NAME={material.name}",
        "*ELASTIC, MODULI=INSTANTANEOUS",
        listed([first, material.poisson_ratio]),
        "*VISCOELASTIC, TIME=PRONY",
        *(listed([share, share, time]) for share, time in terms),
    ]


def _prony_of_ansys(material: Material) -> list[str]:
    """TB,PRONY with SHEAR and BULK, MP,EX at the fast load limit: Mechanical APDL Structural Guide, Viscoelasticity.

    TBDATA takes six constants: three shares with their times.
    """
    first, terms = _relative_terms(material)
    lines = [
        *comments(SOLVERS["ansys"], MATERIAL_1),
        f"MP,EX,1,{number(first)}",
        f"MP,PRXY,1,{number(material.poisson_ratio)}",
    ]
    for part in ("SHEAR", "BULK"):
        lines.append(f"TB,PRONY,1,,{len(terms)},{part}")
        for i in range(0, len(terms), 3):
            constants = ",".join(number(value) for term in terms[i : i + 3] for value in term)
            lines.append(f"TBDATA,{2 * i + 1},{constants}")
    return lines


PRONY = Family(
    {"abaqus": _prony_of_abaqus, "ansys": _prony_of_ansys},
    0.4,
    "small strain; shear and bulk modulus relax alike, so that Poisson's ratio is constant in time; steps must be ones "
    "of time (Abaqus: *VISCO or dynamic)",
)


# --------------------------------------------------------------------------------------------------
# Cards of the in-plane shear of plies: the part of a composite material that a shear test tells.


# _POINTS: of a curve in a card, between which solvers go straight.
_POINTS = 201
# The stress at which `ramberg_osgood_shear` has its permanent strain as a parameter, MPa.
_REFERENCE_MPA = 50.0


# A shear test leaves the rest of a ply open, whatever the solver.
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


_PLY_NOTE = (
    "engineering shear strain gamma_12; unloading is the solver's, the test says nothing of it"
)
CUBIC_SHEAR = Family({"ls_dyna": _mat_054}, None, _PLY_NOTE)
PLASTIC_SHEAR = Family({"abaqus": _compdam}, None, "it unloads with G12")
CURVED_SHEAR = Family({"ls_dyna": _mat_058}, None, _PLY_NOTE)


# --------------------------------------------------------------------------------------------------
# Cards of rubber: the laws are incompressible, solvers want a bulk modulus, which Poisson's ratio stands for.


_ARRUDA_BOYCE = (1.0, 3 / 5, 99 / 175, 513 / 875, 42039 / 67375)


def compressibility(material: Material) -> float:
    """D1 = 2/K in 1/MPa, K the initial bulk modulus that goes with Poisson's ratio and the initial shear modulus."""
    modulus = _shear_modulus(material)
    if not modulus > 0:
        raise InputError(
            f"law {material.law.name} has an initial shear modulus of {modulus:.3g} MPa here; no solver takes that"
        )
    ratio = material.poisson_ratio
    return 3.0 * (1.0 - 2.0 * ratio) / (modulus * (1.0 + ratio))


def _shear_modulus(material: Material) -> float:
    values = material.values
    if "lambda_m" in values:
        powers = values["lambda_m"] ** (-2.0 * np.arange(len(_ARRUDA_BOYCE)))
        return float(values["mu"] * np.dot(_ARRUDA_BOYCE, powers))
    if "C10" in values:
        return 2.0 * (values["C10"] + values.get("C01", 0.0))
    return sum(value for name, value in values.items() if name.startswith("mu"))


def _polynomial(material: Material) -> tuple[float, float]:
    """C10 and C01 of Neo-Hooke or Mooney-Rivlin."""
    values = material.values
    return (values["mu"] / 2, 0.0) if "mu" in values else (values["C10"], values["C01"])


def _terms(material: Material) -> list[tuple[float, float]]:
    """(mu, alpha) of each term of Ogden's law, with the energy 2 mu / alpha² (sum of stretches^alpha - 3)."""
    count = sum(name.startswith("alpha") for name in material.values)
    return [(material.values[f"mu{k}"], material.values[f"alpha{k}"]) for k in range(1, count + 1)]


def _hyperelastic(options: str, constants: Sequence[str] = (), terms: int = 1) -> Writer:
    def write(material: Material) -> list[str]:
        """*HYPERELASTIC: CalculiX CrunchiX User's Manual; Abaqus Keywords Guide. At most eight values a line."""
        values = [material.values[name] for name in constants]
        if options.startswith("OGDEN"):
            values = [float(value) for value in np.ravel(_terms(material))]
        elif options == "NEO HOOKE":
            values = [_polynomial(material)[0]]
        data = [*values, *[compressibility(material)] * terms]
        rows = [listed(data[i : i + 8]) for i in range(0, len(data), 8)]
        return [f"*MATERIAL, NAME={material.name}", f"*HYPERELASTIC, {options}", *rows]

    return write


def _dyna(keyword: str, names: str, values: Sequence[float | str | None]) -> list[str]:
    return [
        *comments(SOLVERS["ls_dyna"], NO_DENSITY),
        keyword,
        keyword_names(names),
        keyword_fields(["1", None, *values]),
    ]


def _mat_027(material: Material) -> list[str]:
    """*MAT_MOONEY-RIVLIN_RUBBER, W = A (I1 - 3) + B (I2 - 3) + ...: LS-DYNA Keyword Manual, volume II."""
    values = [material.poisson_ratio, *_polynomial(material)]
    head = _dyna("*MAT_MOONEY-RIVLIN_RUBBER", "MID RO PR A B REF", values)
    return [*head, keyword_names("SGL SW ST LCID"), keyword_fields(["0.0"])]


def _mat_077_h(material: Material) -> list[str]:
    """*MAT_HYPERELASTIC_RUBBER with N = 0 and constants: LS-DYNA Keyword Manual, volume II."""
    values = material.values
    return [
        *_dyna("*MAT_HYPERELASTIC_RUBBER", "MID RO PR N", [material.poisson_ratio, "0"]),
        keyword_names("C10 C01 C11 C20 C02 C30"),
        keyword_fields([values["C10"], "0.0", "0.0", values["C20"], "0.0", values["C30"]]),
    ]


def _mat_077_o(material: Material) -> list[str]:
    """*MAT_OGDEN_RUBBER, W = sum mu / alpha (...), so that mu is 2 mu / alpha: LS-DYNA Keyword Manual, volume II."""
    terms = _terms(material)
    if any(power == 0.0 for _, power in terms):
        raise InputError("an exponent of Ogden's law is 0, which LS-DYNA's form of it cannot hold")
    return [
        *_dyna("*MAT_OGDEN_RUBBER", "MID RO PR N", [material.poisson_ratio, "0"]),
        keyword_names(" ".join(f"MU{k}" for k in range(1, 9))),
        keyword_fields([2.0 * modulus / power for modulus, power in terms]),
        keyword_names(" ".join(f"ALPHA{k}" for k in range(1, 9))),
        keyword_fields([power for _, power in terms]),
    ]


def _neo(material: Material) -> list[str]:
    """TB,HYPER,,,,NEO with mu and d = 2/K: Mechanical APDL Structural Analysis Guide, Neo-Hookean option."""
    return [
        *comments(SOLVERS["ansys"], MATERIAL_1),
        "TB,HYPER,1,,,NEO",
        f"TBDATA,1,{number(_shear_modulus(material))},{number(compressibility(material))}",
    ]


def _elas_hyper(material: Material) -> list[str]:
    """DEFI_MATERIAU with ELAS_HYPER: Code_Aster U4.43.01; for RELATION='ELAS_HYPER'."""
    first, second = (number(value) for value in _polynomial(material))
    ratio = number(material.poisson_ratio)
    return [
        "# for RELATION='ELAS_HYPER'",
        "mater = DEFI_MATERIAU(",
        f"    ELAS_HYPER=_F(C10={first}, C01={second}, NU={ratio}),",
        ")",
    ]


def _with_limits(material: Material, solver: str) -> Material:
    """Says where the law is not stable, and warns where that is near the tested strain."""
    assert isinstance(material.law, RubberLaw)
    limits = material.law.stability_limits(np.array(list(material.values.values())))
    if not limits:
        said = (
            "stable (Drucker) in uniaxial, equibiaxial and planar tests at stretches of 0.1 to 10"
        )
        return dataclasses.replace(material, remarks=(said,))
    said = f"not stable (Drucker): {', '.join(map(str, limits))}"
    if any(limit.is_near(material.tested) for limit in limits):
        return dataclasses.replace(material, warnings=(said,))
    return dataclasses.replace(material, remarks=(said,))


def _family(keyword: Writer, **others: Writer) -> Family:
    note = (
        "the law is incompressible; the solver's bulk modulus is that of Poisson's ratio, so near 0.5 take elements "
        "that do not lock (CalculiX has no hybrid ones: a lower ratio helps there); beyond the tested stretches the "
        "law extrapolates"
    )
    return Family({"abaqus": keyword, "calculix": keyword, **others}, 0.4995, note, _with_limits)


NEO_HOOKE = _family(
    _hyperelastic("NEO HOOKE"), ls_dyna=_mat_027, ansys=_neo, code_aster=_elas_hyper
)
MOONEY_RIVLIN = _family(
    _hyperelastic("MOONEY-RIVLIN", ("C10", "C01")), ls_dyna=_mat_027, code_aster=_elas_hyper
)
YEOH = _family(_hyperelastic("YEOH", ("C10", "C20", "C30"), 3), ls_dyna=_mat_077_h)
ARRUDA_BOYCE = _family(_hyperelastic("ARRUDA-BOYCE", ("mu", "lambda_m")))


def ogden(terms: int) -> Family:
    """The cards of Ogden's law with so many terms."""
    return _family(_hyperelastic(f"OGDEN, N={terms}", terms=terms), ls_dyna=_mat_077_o)


# --------------------------------------------------------------------------------------------------
# The solvers for which each law has a card, and the text of a card.


# Up to this strain tables of a specimen's material are as fine as tables of a tested strain.
_STRAIN_IN_SPECIMENS = 0.5

# A further law is a line here, with a family of its own where no other writes it.
CARDS: Mapping[str, Family] = {
    "voce": HARDENING,
    "swift": POWER_HARDENING,
    "hockett_sherby": HARDENING,
    "swift_voce": HARDENING,
    "ludwik": HARDENING,
    "hollomon": HARDENING,
    "ramberg_osgood": SMOOTH_YIELD,
    "johnson_cook": JOHNSON_COOK,
    "norton": NORTON,
    "perzyna": PERZYNA,
    "prony": PRONY,
    "voce_chaboche_1": CYCLIC,
    "voce_chaboche": CYCLIC,
    "voce_chaboche_3": CYCLIC_3,
    "hahn_tsai": CUBIC_SHEAR,
    "tanh_shear": CURVED_SHEAR,
    "ramberg_osgood_shear": PLASTIC_SHEAR,
    "exponential_shear": CURVED_SHEAR,
    "neo_hooke": NEO_HOOKE,
    "mooney_rivlin": MOONEY_RIVLIN,
    "yeoh": YEOH,
    "arruda_boyce": ARRUDA_BOYCE,
    "ogden_1": ogden(1),
    "ogden": ogden(2),
    "ogden_3": ogden(3),
}


def family_of(law: Law | None) -> Family:
    """How the law becomes cards; InputError where it has none."""
    if law is None:
        raise InputError(
            "the network was trained on curves of no known law; there is no card (a specimen's simulation has one by "
            "way of `tfmat emulate`)"
        )
    law = point_of(law)
    family = CARDS.get(law.name)
    if family is None and law.name not in LAWS and _is_of_metals(law):
        family = SMOOTH_YIELD  # a user's own, which may have a first yield or none
    if family is None:
        own = "" if law.name in LAWS else "; a specimen's simulation says `material` to have one"
        raise InputError(f"law {law.name} has no card; laws with cards: {', '.join(CARDS)}{own}")
    return family


def point_of(law: Law) -> Law:
    """The law of the material: that which a specimen's law has parameters of, or the law itself."""
    return find_law(law.material) if law.material else law


def _is_of_metals(law: Law) -> bool:
    """Whether a law of one rising curve can be a table of stress over plastic strain."""
    names = [parameter.name for parameter in law.parameters]
    measures = (law.strain_measure, law.stress_measure)
    return names[0] == "E" and measures == ("true", "true") and law.tests == ("monotonic",)


def check_card(law: Law | None, solver: str, poisson_ratio: float | None = None) -> None:
    """Raises InputError, in one line, unless there is such a card and Poisson's ratio makes sense."""
    if poisson_ratio is not None and not 0.0 <= poisson_ratio < 0.5:
        raise InputError(f"Poisson's ratio is {poisson_ratio:g}; give 0 or more, and less than 0.5")
    if solver not in SOLVERS:
        raise InputError(f"there is no card for a solver '{solver}'{nearest(solver, SOLVERS)}")
    writers = family_of(law).writers
    if solver not in writers:
        assert law is not None
        title = SOLVERS[solver].title
        raise InputError(
            f"{title} has no card for law {law.name}; this law has cards for: {', '.join(writers)}"
        )


def card_text(
    solver: str,
    law: Law,
    values: Mapping[str, float],
    *,
    tested: float,
    name: str = "material",
    poisson_ratio: float | None = None,
    facts: Iterable[str] = (),
) -> str:
    """The material card of a law for a solver, in mm, t, s, MPa.

    Args:
      solver: a key of `SOLVERS`.
      law: the law; values: parameter -> value in its unit, all of them.
      tested: the largest strain of the test, in the law's measure.
      name: of the material; it becomes letters, digits and _.
      poisson_ratio: between 0 and 0.5; None takes the law's default, 0.3 for metals, 0.4 for polymers and 0.4995 for
        rubber.
      facts: lines for the head, such as where the parameters come from.

    Raises:
      InputError: there is no such solver, no such card, or Poisson's ratio makes no sense.
    """
    check_card(law, solver, poisson_ratio)
    family, point = family_of(law), point_of(law)
    material = _material(solver, law, values, tested, name, poisson_ratio)
    ratio = material.poisson_ratio
    assumed = f"Poisson's ratio {ratio:g} (the test does not tell it); " if ratio else ""
    article = "an" if law.strain_measure.startswith("e") else "a"
    strain = f"{article} {law.strain_measure} strain of {tested:.6g}"
    if point is not law:
        # Where a specimen is strained most, its material has seen far more than the specimen's own strain.
        strain += f" of the specimen ({law.title})"
    notes = [
        f"assumed: {assumed}density is not included",
        f"tested up to {strain}; {family.note}",
    ]
    lines = [*head(SOLVERS[solver], material, facts, notes), *family.writers[solver](material)]
    return "\n".join(lines) + "\n"


def card_warnings(
    solver: str, law: Law, values: Mapping[str, float], tested: float
) -> tuple[str, ...]:
    """Warnings in the head of the card; arguments as of `card_text`."""
    check_card(law, solver)
    return _material(solver, law, values, tested, "material", None).warnings


def _material(
    solver: str,
    law: Law,
    values: Mapping[str, float],
    tested: float,
    name: str,
    poisson_ratio: float | None,
) -> Material:
    """The writer's material; arguments as of `card_text`."""
    family, point = family_of(law), point_of(law)
    ratio = family.poisson_ratio if poisson_ratio is None else poisson_ratio
    known = {**law.constants, **values}
    ordered = {parameter.name: float(known[parameter.name]) for parameter in point.parameters}
    seen = tested if point is law else _STRAIN_IN_SPECIMENS
    material = Material(material_name(name), point, ordered, ratio or 0.0, seen)
    return family.prepared(material, solver)

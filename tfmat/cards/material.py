"""What a card's writer is given, how each solver writes comments and numbers, and the head that all cards share."""

import dataclasses
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

import tfmat
from tfmat.materials.law import Array, Law

_WIDTH = 77
# Solvers read their input as ASCII. Greek letters are spelled out; what is not here loses its accents.
_SIGNS = str.maketrans(
    dict(zip("−–·×⟨⟩", "--*x<>", strict=True))
    | {
        "ß": "ss",
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

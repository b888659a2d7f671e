"""Which column is the strain and which the stress, in what unit: from what the user says, or what the header says.

Nothing is guessed that could be guessed in two ways: then the error says which flag decides.
"""

import dataclasses
import re
from typing import Literal

from tfmat.curves.tables import Table, shorten
from tfmat.curves.units import Unit, axis_unit, find_unit, split_header, word_set
from tfmat.errors import InputError, nearest

Measure = Literal["engineering", "true"]
Axis = Literal["strain", "stress"]
ASSUMED = "assumed"

# English, German, French and Spanish. A word also counts at the end of a longer one: Zugspannung, Standardkraft.
_WORDS: dict[str, set[str]] = {
    "strain": word_set(
        """
        strain gamma gamma12 γ γ12 epsilon eps ε epsilon12 eps12 ε12 eps_12 dehnung gleitung
        stauchung déformation deformation deformación stretch λ
        """
    ),
    "stress": word_set("stress tau tau12 τ τ12 sigma σ spannung contrainte esfuerzo tensión"),
    "displacement": word_set(
        """
        displacement extension elongation stroke crosshead position weg standardweg verlängerung
        verschiebung déplacement allongement desplazamiento
        """
    ),
    "load": {"load", "force", "kraft", "standardkraft", "charge", "fuerza", "carga"},
}
_GERMAN_ENDINGS = {
    "strain": ("dehnung", "gleitung", "stauchung"),
    "stress": ("spannung",),
    "displacement": ("weg", "verlängerung"),
    "load": ("kraft",),
}  # fmt: skip
# Columns that name a strain or a stress and are not the curve's own.
_OTHER_WORDS = word_set(
    """
    rate plastic elastic std error deviation transverse lateral width thickness gauge time modulus
    proof yield querdehnung plastisch
    """
)
_SPECIMEN_WORDS = word_set("specimen sample coupon probe specimenid sampleid éprouvette probeta")
_MEASURE_WORDS: dict[str, Measure] = {
    **dict.fromkeys(("engineering", "eng", "nominal", "technical", "technische"), "engineering"),
    **dict.fromkeys(("true", "cauchy", "log", "logarithmic", "hencky", "wahre"), "true"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Column:
    """A column that was chosen for an axis.

    Attributes:
      index: in the table; name: without its unit.
      unit: what its numbers are in; unit_source: where that is known from, in words.
    """

    index: int
    name: str
    unit: Unit
    unit_source: str

    @property
    def measure(self) -> Measure | None:
        """Engineering or true, where its name says so."""
        words = _words(self.name)
        found = {measure for word, measure in _MEASURE_WORDS.items() if word in words}
        return found.pop() if len(found) == 1 else None

    @property
    def assumed(self) -> str:
        """What was assumed of its unit, in short; empty where it was read."""
        if self.unit_source != ASSUMED:
            return ""
        return (
            "strain in mm/mm" if self.unit.quantity == "strain" else f"stress in {self.unit.name}"
        )

    @property
    def says(self) -> str:
        """The words of this column in a curve's steps."""
        return f"column '{self.name}' in {self.unit.name} ({self.unit_source})"


def find_axis(
    table: Table,
    axis: Axis,
    wanted: str | None,
    unit: str | None,
    measure: str | None,
    problems: list[str],
) -> Column | None:
    """The column of an axis, or None where there is none.

    Args:
      wanted: its name, or its number counted from 1; None finds it by its name.
      unit: what the user says of its unit; None is what the header says.
      measure: engineering or true, which decides between two columns that say so.
      problems: what is missing or doubtful is added to it; the column is then not to be read.
    """
    try:
        if wanted is not None:
            index = _wanted_column(table, axis, wanted)
        else:
            index = _named_column(table, axis, measure)
        return _with_unit(table, axis, index, unit, problems)
    except InputError as error:
        problems.append(str(error))
        return None


def columns_named(table: Table, quantity: str) -> list[int]:
    """The columns whose names say that they are a `strain`, `stress`, `displacement` or `load`."""
    return [i for i, name in enumerate(table.header) if _is_named(name, quantity)]


def _with_unit(
    table: Table, axis: Axis, index: int, unit: str | None, problems: list[str]
) -> Column:
    header = table.header[index] if table.header else f"{index + 1}"
    name, in_header = split_header(header)
    # A bracket with another unit than its axis has (`Load [kN]` for the stress) decides between stress and load.
    for text, source in (
        (unit, "as given"),
        (in_header, "from the header"),
        (table.units[index], "from the row of units"),
    ):
        if text is not None:
            return Column(index, name, axis_unit(text, axis), source)
    if axis == "strain" and _words(name) & {"stretch", "λ", "lambda"}:
        return Column(index, name, axis_unit("stretch", axis), "from its name")
    quantity = {"strain": "displacement", "stress": "load"}[axis]
    if _is_named(name, quantity) and not _is_named(name, axis):
        example = "mm or in" if axis == "strain" else "N, kN or lbf"
        problems.append(f"column '{name}' has no unit; set --{axis}_unit, {example}")
        return Column(index, name, axis_unit(example.split()[0].strip(","), axis), ASSUMED)
    return Column(index, name, axis_unit("-" if axis == "strain" else "MPa", axis), ASSUMED)


def find_specimen_column(table: Table, wanted: str | None) -> int | None:
    """The column that says which specimen a row belongs to: the one asked for, or one called specimen; or None."""
    if wanted is not None:
        return _wanted_column(table, "specimen", wanted)
    found = [i for i, name in enumerate(table.header) if _words(name) & _SPECIMEN_WORDS]
    return found[0] if len(found) == 1 else None


def _wanted_column(table: Table, axis: str, wanted: str) -> int:
    for form in (lambda name: name, _plain, lambda name: _plain(split_header(name)[0])):
        found = [i for i, name in enumerate(table.header) if name and form(name) == form(wanted)]
        if len(found) == 1:
            return found[0]
    width = len(table.header) or len(table.rows[0][1])
    if wanted.isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    hint = nearest(wanted, [name for name in table.header if name])
    if wanted.isdecimal() or not table.header:
        hint = f"; it has {width} columns, counted from 1"
    raise InputError(f"no column '{wanted}' for the {axis}{hint}")


def _named_column(table: Table, axis: Axis, measure: str | None) -> int:
    """The only column whose name says that it is a strain (stress), or else a displacement (load)."""
    if not table.header:
        raise InputError(
            f"it has no header (its first line is '{shorten(' '.join(map(str, table.rows[0][1])))}'); add a line that "
            "names the columns, e.g. strain,stress, or say --strain_column=1 --stress_column=2"
        )
    for quantity in (axis, {"strain": "displacement", "stress": "load"}[axis]):
        found = columns_named(table, quantity)
        if len(found) > 1 and measure is not None:
            of_measure = [i for i in found if _says(table.header[i], measure)]
            found = of_measure or found
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(table.header[i] for i in found)
            raise InputError(
                f"several columns could be the {axis} ({shorten(names)}); set --{axis}_column"
            )
    names = ", ".join(name for name in table.header if name)
    raise InputError(
        f"no column is named as a {axis} (columns: {shorten(names)}); set --{axis}_column"
    )


def _is_named(header: str, quantity: str) -> bool:
    words = _words(header)
    if {"e", "s"} & words and words & set(_MEASURE_WORDS):
        # The bare letters of the formulas count beside their measure only: `e_true`, `s_eng`.
        words |= {"strain"} if "e" in words else {"stress"}
    if words & _OTHER_WORDS or any(word.endswith("geschwindigkeit") for word in words):
        return False
    return bool(words & _WORDS[quantity]) or any(
        word.endswith(_GERMAN_ENDINGS[quantity]) for word in words
    )


def _says(header: str, measure: str) -> bool:
    return any(_MEASURE_WORDS.get(word) == measure for word in _words(header))


def _words(header: str) -> set[str]:
    name = re.sub(r"[\[({][^\])}]*[\])}]", " ", split_header(header)[0]) or header
    return set(re.split(r"[\W_]+", _plain(f"{name} {_remarks(header)}"))) - {""}


def _remarks(header: str) -> str:
    """What stands in brackets and is no unit: `Strain (true)`."""
    found = re.findall(r"[\[({]([^\[\](){}]*)[\])}]", header)
    return " ".join(text for text in found if not find_unit(text))


def _plain(name: str) -> str:
    return name.strip().casefold()

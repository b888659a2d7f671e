"""A file that a testing machine exported -> the two columns of a stress-strain curve, in MPa and plain strain.

The file is text with one line of names at its head and `,`, `;` or tab between the columns. Nothing is guessed that
could be guessed in two ways: then the error says which flag decides.
"""

import csv
import dataclasses
import os
import pathlib
import re
from typing import Literal

import numpy as np

from tfmat.curves import units
from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array

Measure = Literal["engineering", "true"]
MINIMUM_POINTS = 10

_STRAIN_WORDS = {"strain", "gamma", "gamma12", "γ", "γ12", "epsilon", "eps", "ε"}
_STRESS_WORDS = {"stress", "tau", "tau12", "τ", "τ12", "sigma", "σ"}
# Columns that name a strain or a stress and are not the curve's own.
_OTHER_WORDS = {
    "rate",
    "plastic",
    "elastic",
    "std",
    "error",
    "transverse",
    "lateral",
    "width",
    "thickness",
    "gauge",
}
_MEASURE_WORDS: dict[str, Measure] = {
    "engineering": "engineering",
    "eng": "engineering",
    "nominal": "engineering",
    "true": "true",
    "cauchy": "true",
    "log": "true",
    "logarithmic": "true",
    "hencky": "true",
}


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """What the user says about the file; None means: find out from its header.

    Attributes:
      strain_column, stress_column: names of the columns.
      strain_unit: `-` or `%`; stress_unit: one of `units.STRESS_UNITS`. They win over units in the header.
    """

    strain_column: str | None = None
    stress_column: str | None = None
    strain_unit: str | None = None
    stress_unit: str | None = None

    def __post_init__(self) -> None:
        if self.strain_unit is not None:
            units.strain_factor(self.strain_unit)
        if self.stress_unit is not None:
            units.stress_factor(self.stress_unit)


@dataclasses.dataclass(frozen=True)
class RawCurve:
    """The two columns of a file as they were measured, in plain strain and MPa.

    Attributes:
      name: for reports; the file's name without its ending.
      strain: [points], -; stress_mpa: [points], MPa.
      strain_measure, stress_measure: what the column's name says, or None where it does not say.
      tensor_strain: whether the strain column is called epsilon, which in shear would be half of gamma.
      steps: what was done, in words.
    """

    name: str
    strain: Array
    stress_mpa: Array
    strain_measure: Measure | None = None
    stress_measure: Measure | None = None
    tensor_strain: bool = False
    steps: tuple[str, ...] = ()


def read_curve(path: str | os.PathLike, options: ReadingOptions | None = None) -> RawCurve:
    """Reads one curve; raises InputError, in one line that names the file, for what cannot be a curve."""
    options = options or ReadingOptions()
    path = pathlib.Path(path)
    try:
        header, rows = _read_table(path)
        strain_index = _find_column(header, "strain", _STRAIN_WORDS, options.strain_column)
        stress_index = _find_column(header, "stress", _STRESS_WORDS, options.stress_column)
        if strain_index == stress_index:
            raise InputError(f"column '{header[strain_index]}' cannot be both strain and stress")
        strain = _numbers(header, rows, strain_index)
        stress = _numbers(header, rows, stress_index)
        strain_unit, strain_source = _unit(header[strain_index], options.strain_unit, "-")
        stress_unit, stress_source = _unit(header[stress_index], options.stress_unit, "MPa")
        strain = strain * units.strain_factor(strain_unit)
        stress = stress * units.stress_factor(stress_unit)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    strain_words = _words(header[strain_index])
    step = (
        f"read {len(rows)} points; strain from column '{header[strain_index]}' in {strain_unit} "
        f"({strain_source}), stress from column '{header[stress_index]}' in {stress_unit} ({stress_source})"
    )
    return RawCurve(
        name=path.stem,
        strain=strain,
        stress_mpa=stress,
        strain_measure=_measure(strain_words),
        stress_measure=_measure(_words(header[stress_index])),
        tensor_strain=any(word.startswith(("eps", "ε")) for word in strain_words),
        steps=(step,),
    )


def _read_table(path: pathlib.Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header and rows (line number, cells) of a text table; what is no table is refused."""
    text = _read_text(path)
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise InputError("the file is empty; a header line and a curve are expected")
    delimiter = max("\t;,", key=lines[first].count)
    if delimiter not in lines[first]:
        raise InputError(
            f"its first line '{_short(lines[first])}' is one column; "
            "strain and stress columns separated by comma, semicolon or tab are expected"
        )
    try:
        table = list(
            csv.reader(lines[first:], delimiter=delimiter, skipinitialspace=True, strict=True)
        )
    except csv.Error as error:
        raise InputError(f"not a readable table ({error})") from error
    header = _checked_header(table[0], lines[first])
    rows = [
        (first + 1 + i, row)
        for i, row in enumerate(table)
        if i and any(cell.strip() for cell in row)
    ]
    for line, row in rows:
        # A decimal comma in a comma-separated file shows only here.
        if any(cell.strip() for cell in row[len(header) :]):
            raise InputError(
                f"line {line} has {len(row)} values, the header names {len(header)} columns"
            )
    if len(rows) < MINIMUM_POINTS:
        raise InputError(f"it has {len(rows)} points; a curve needs at least {MINIMUM_POINTS}")
    return header, rows


def _checked_header(cells: list[str], line: str) -> list[str]:
    """The names of the columns; refused where they are numbers or not unique."""
    header = [cell.strip() for cell in cells]
    if sum(_is_number(cell) for cell in header) >= 2:
        raise InputError(
            f"it has no header (its first line is '{_short(line)}'); add a line that names the columns, "
            "e.g. strain,stress"
        )
    repeated = {name for name in header if name and header.count(name) > 1}
    if repeated:
        raise InputError(
            f"column '{sorted(repeated)[0]}' appears more than once in the header; rename one"
        )
    return header


def _read_text(path: pathlib.Path) -> str:
    if path.is_dir():
        raise InputError("it is a folder; give the file of a curve")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})") from error
    if b"\0" in content or re.search(rb"[\x01-\x08\x0e-\x1f]", content[:65536]):
        raise InputError("it is not a text file; a CSV table (UTF-8) is expected")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Older lab software writes headers such as N/mm² in this encoding.
        return content.decode("cp1252", errors="replace")


def _find_column(header: list[str], quantity: str, words: set[str], wanted: str | None) -> int:
    """Index of the strain or stress column: the one asked for, or the only one whose name says so."""
    if wanted is not None:
        for form in (lambda name: name, _plain, lambda name: _plain(units.split_header(name)[0])):
            found = [i for i, name in enumerate(header) if name and form(name) == form(wanted)]
            if len(found) == 1:
                return found[0]
        raise InputError(
            f"no column '{wanted}' for the {quantity}{nearest(wanted, [n for n in header if n])}"
        )
    found = [
        i
        for i, name in enumerate(header)
        if _words(name) & words and not _words(name) & _OTHER_WORDS
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        names = ", ".join(name for name in header if name)
        raise InputError(
            f"no column is named as a {quantity} (columns: {_short(names)}); set --{quantity}_column"
        )
    names = ", ".join(header[i] for i in found)
    raise InputError(
        f"several columns could be the {quantity} ({_short(names)}); set --{quantity}_column"
    )


def _numbers(header: list[str], rows: list[tuple[int, list[str]]], column: int) -> Array:
    """One column as finite numbers, [points]; the first cell that is none is refused with its line."""
    values = np.empty(len(rows))
    for i, (line, row) in enumerate(rows):
        cell = row[column].strip() if column < len(row) else ""
        if not _is_number(cell):
            found = f"'{_short(cell)}' is not a number" if cell else "no value"
            hint = (
                "; decimal commas are not read, use points"
                if re.fullmatch(r"[+-]?\d+,\d+", cell)
                else ""
            )
            raise InputError(f"line {line}, column '{header[column]}': {found}{hint}")
        values[i] = float(cell)
        if not np.isfinite(values[i]):
            raise InputError(
                f"line {line}, column '{header[column]}': '{cell}'; every value must be finite"
            )
    return values


def _unit(header: str, wanted: str | None, default: str) -> tuple[str, str]:
    """The unit of a column, and where it comes from."""
    if wanted is not None:
        return wanted, "as given"
    unit = units.split_header(header)[1]
    return (unit, "from the header") if unit else (default, "assumed")


def _words(header: str) -> set[str]:
    return set(re.split(r"[\W_]+", _plain(units.split_header(header)[0]))) - {""}


def _measure(words: set[str]) -> Measure | None:
    found = {measure for word, measure in _MEASURE_WORDS.items() if word in words}
    return found.pop() if len(found) == 1 else None


def _plain(name: str) -> str:
    return name.strip().casefold()


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"

"""A file that a testing machine exported -> its stress-strain curves, in MPa and plain strain.

Text files and Excel sheets. What is guessed is said in the curve's steps, and every guess can be replaced by a setting.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from tfmat.curves.columns import Axis, Column, Measure, find_axis, find_specimen_column
from tfmat.curves.numbers import DecimalMark, decimal_mark, number
from tfmat.curves.tables import MINIMUM_POINTS, Table, read_tables, shorten
from tfmat.curves.units import axis_unit
from tfmat.errors import InputError
from tfmat.materials.law import Array

_CHOICES = {
    "strain_measure": ("engineering", "true"),
    "stress_measure": ("engineering", "true"),
    "shear_strain": ("engineering", "tensor"),
    "decimal": ("point", "comma"),
}
# Notes before the table, as testing machines call them; mm² (mm) per unit.
_AREA_NOTE = r"(initial )?(cross.?section(al)?( area)?|area|querschnitt(sfläche)?|a0|s0)( a0| s0)?"
_LENGTH_NOTE = r"(initial |original )?(gau?ge.?length|messlänge|l0|le)( l0)?"
_AREA_UNITS = {
    "mm2": 1.0,
    "mm²": 1.0,
    "mm^2": 1.0,
    "cm2": 100.0,
    "in2": 645.16,
    "in²": 645.16,
    "in^2": 645.16,
}
_LENGTH_UNITS = {"mm": 1.0, "in": 25.4, "inch": 25.4, "cm": 10.0, "m": 1e3}


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """What the user says about the files; None means: find out. Checked on creation, InputError names the flag.

    Attributes:
      strain_column, stress_column: names of the columns, or their numbers counted from 1.
      strain_unit, stress_unit: see `units`; a length (force) says that the column is a displacement (load).
      specimen_column: name of the column that tells several curves of a file apart; `none` is one curve a table.
      sheet: name of a workbook's sheet; None is every sheet that holds a table.
      strain_measure, stress_measure: `engineering` or `true`.
      shear_strain: `engineering` (gamma) or `tensor` (epsilon12 = gamma / 2).
      area: cross-section in mm², for a load; gauge_length: in mm, for a displacement.
      decimal: `point` or `comma`.
    """

    strain_column: str | None = None
    stress_column: str | None = None
    strain_unit: str | None = None
    stress_unit: str | None = None
    specimen_column: str | None = None
    sheet: str | None = None
    strain_measure: str | None = None
    stress_measure: str | None = None
    shear_strain: str | None = None
    area: float | None = None
    gauge_length: float | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        for axis, unit in (("strain", self.strain_unit), ("stress", self.stress_unit)):
            if unit is not None:
                axis_unit(unit, axis)  # type: ignore[arg-type]
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise InputError(f"--{name} is '{value}'; give {' or '.join(choices)}")
        for name, unit in (("area", "mm²"), ("gauge_length", "mm")):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InputError(f"--{name} is {value:g}; give a positive number in {unit}")


@dataclasses.dataclass(frozen=True)
class RawCurve:
    """The two columns of a curve as they were measured, in plain strain and MPa.

    Attributes:
      name: for reports; the file's name without its ending, and the sheet and specimen where it holds several.
      strain: [points], -; stress_mpa: [points], MPa.
      strain_measure, stress_measure: what is said of them, or None where nothing is.
      shear_strain: how it counts where it is a shear strain: `engineering` (gamma), `tensor` (gamma / 2), `epsilon`
        (called epsilon without indices: probably gamma, perhaps not), or None where nothing is said.
      steps: what was done, in words.
      assumed: what was assumed and not read, in short.
      conditions: what head and file name say of the test, see `MeasuredCurve`.
    """

    name: str
    strain: Array
    stress_mpa: Array
    strain_measure: Measure | None = None
    stress_measure: Measure | None = None
    shear_strain: Literal["engineering", "tensor", "epsilon"] | None = None
    steps: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    conditions: Mapping[str, str] = dataclasses.field(default_factory=dict)


def read_curves(path: str | os.PathLike, options: ReadingOptions | None = None) -> list[RawCurve]:
    """Reads the curves of a file; raises InputError, in one line that names the file, for what cannot be a curve."""
    options = options or ReadingOptions()
    path = pathlib.Path(path)
    curves: list[RawCurve] = []
    try:
        tables = read_tables(path, options.sheet)
        skipped = []
        for table in tables:
            try:
                curves.extend(_curves_of(table, path.stem, options, len(tables) > 1))
            except InputError as error:
                where = f"sheet '{table.sheet}': " if table.sheet and options.sheet is None else ""
                # Sheets of results stand beside those of curves; only their columns tell them apart.
                if len(tables) == 1 or not str(error).startswith("no column is named"):
                    raise InputError(f"{where}{error}") from error
                skipped.append(table.sheet)
        if not curves:
            raise InputError("none of its sheets has a strain and a stress column; set --sheet")
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if skipped:
        said = f"skipped the sheets without strain and stress: {', '.join(map(str, skipped))}"
        curves = [dataclasses.replace(c, steps=(*c.steps, said)) for c in curves]
    return curves


def _curves_of(table: Table, stem: str, options: ReadingOptions, several: bool) -> list[RawCurve]:
    """The curves of one table, one a specimen."""
    axes: dict[Axis, Column] = {}
    for axis in ("strain", "stress"):
        wanted, unit = getattr(options, f"{axis}_column"), getattr(options, f"{axis}_unit")
        measure = getattr(options, f"{axis}_measure")
        axes[axis] = find_axis(table, axis, wanted, unit, measure)
    if axes["strain"].index == axes["stress"].index:
        raise InputError(f"column '{axes['strain'].name}' cannot be both strain and stress")
    table, mark = _with_decimal_mark(table, [column.index for column in axes.values()], options)
    groups, grouping = _groups(table, options)
    curves = []
    for label, rows in groups.items():
        name = "_".join(
            [stem, *([str(table.sheet)] if several else []), *([label] if label else [])]
        )
        if len(rows) < MINIMUM_POINTS:
            of = f"specimen '{label}'" if label else "it"
            raise InputError(
                f"{of} has {len(rows)} points; a curve needs at least {MINIMUM_POINTS}"
            )
        part = dataclasses.replace(table, rows=rows, steps=[*table.steps, *grouping])
        curves.append(_curve(name, part, axes, mark, options))
    return curves


def _with_decimal_mark(
    table: Table, columns: list[int], options: ReadingOptions
) -> tuple[Table, DecimalMark]:
    """The table without rows that are empty in these columns, and the decimal mark of the others."""
    rows = [row for row in table.rows if any(i < len(row[1]) and row[1][i] != "" for i in columns)]
    if options.decimal is not None:
        mark: DecimalMark = "," if options.decimal == "comma" else "."
        steps = table.steps
    else:
        mark = decimal_mark(cells[i] for _, cells in rows for i in columns if i < len(cells))
        steps = [*table.steps, *(["decimal commas"] if mark == "," else [])]
    return dataclasses.replace(table, rows=rows, steps=steps), mark


def _groups(table: Table, options: ReadingOptions) -> tuple[dict[str, list], list[str]]:
    """Specimen -> rows, and what to say of it; everything under '' where there is one specimen."""
    if options.specimen_column == "none":
        return {"": table.rows}, []
    column = find_specimen_column(table, options.specimen_column)
    if column is None:
        return {"": table.rows}, []
    groups: dict[str, list] = {}
    for line, cells in table.rows:
        cell = cells[column] if column < len(cells) else ""
        label = f"{cell:g}" if isinstance(cell, float) else cell.strip()
        if not label:
            raise InputError(f"line {line}, column '{table.header[column]}': no specimen")
        groups.setdefault(label, []).append((line, cells))
    if len(groups) == 1 and options.specimen_column is None:
        return {"": table.rows}, []
    name = table.header[column] if table.header else str(column + 1)
    return groups, [f"{len(groups)} specimens by column '{name}'"]


def _curve(
    name: str, table: Table, axes: dict[Axis, Column], mark: DecimalMark, options: ReadingOptions
) -> RawCurve:
    strain, how_strain = _strain(table, axes["strain"], mark, options)
    stress, how_stress = _stress(table, axes["stress"], mark, options)
    shear, how_shear = _shear_strain(axes["strain"].name, options.shear_strain)
    found = f" ({', '.join(table.steps)})" if table.steps else ""
    steps = [
        f"read {len(table.rows)} points{found}; strain from {how_strain}, stress from {how_stress}"
    ]
    return RawCurve(
        name=name,
        strain=strain,
        stress_mpa=stress,
        strain_measure=options.strain_measure or axes["strain"].measure,  # type: ignore[arg-type]
        stress_measure=options.stress_measure or axes["stress"].measure,  # type: ignore[arg-type]
        shear_strain=shear,
        steps=(*steps, *how_shear),
        assumed=tuple(column.assumed for column in axes.values() if column.assumed),
    )


def _strain(
    table: Table, column: Column, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    values = _numbers(table, column, mark) * column.unit.factor
    if column.unit.name == "stretch":
        return values - 1.0, f"{column.says}, less 1"
    if column.unit.quantity != "displacement":
        return values, column.says
    length, source = options.gauge_length, "as given"
    if length is None:
        length, source = _noted(table, _LENGTH_NOTE, _LENGTH_UNITS), "from the file's head"
    if length is None:
        raise InputError(
            f"column '{column.name}' is a displacement; give its length with --gauge_length=MM, or the strain with "
            "--strain_column"
        )
    return values / length, f"{column.says} over the gauge length of {length:g} mm ({source})"


def _stress(
    table: Table, column: Column, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    values = _numbers(table, column, mark) * column.unit.factor
    if column.unit.quantity != "load":
        return values, column.says
    area, source = options.area, "as given"
    if area is None:
        area, source = _noted(table, _AREA_NOTE, _AREA_UNITS), "from the file's head"
    if area is None:
        raise InputError(
            f"column '{column.name}' is a load; give its cross-section with --area=MM2, or the stress with "
            "--stress_column"
        )
    return values / area, f"{column.says} over the area of {area:g} mm² ({source})"


def _noted(table: Table, pattern: str, units: dict[str, float]) -> float | None:
    """A size that stands before the table with its unit, `Area: 24,5 mm²`; None where it is not plain to read."""
    for name, text in table.notes.items():
        unit_of_name = re.search(r"[\[(](.*?)[\])]", name)
        key = re.sub(r"[\[(].*?[\])]|_", " ", name)
        match = re.fullmatch(r"([\d.,]+)\s*(.*)", text)
        if not match or not re.fullmatch(pattern, " ".join(key.lower().split())):
            continue
        unit = (match[2] or (unit_of_name[1] if unit_of_name else "")).strip().lower().strip("[]()")
        value = number(match[1], "," if re.fullmatch(r"\d+,\d+", match[1]) else ".")
        if unit in units and value:
            return value * units[unit]
    return None


def _shear_strain(
    name: str, given: str | None
) -> tuple[Literal["engineering", "tensor", "epsilon"] | None, list[str]]:
    """What a strain column's name says about shear strain, and the step to tell."""
    if given is not None:
        return given, []  # type: ignore[return-value]
    text = name.casefold()
    if re.search(r"(eps|epsilon|ε|\be)[ _]?(12|xy)", text):
        return "tensor", []
    if "γ" in text or "gamma" in text:
        return "engineering", []
    return ("epsilon" if re.search(r"\b(eps|epsilon)|ε", text) else None), []


def _numbers(table: Table, column: Column, mark: DecimalMark) -> Array:
    """One column as finite numbers, [points]; the first cell that is none is refused with its line."""
    values = np.empty(len(table.rows))
    row_word = "line" if table.sheet is None else "row"
    for i, (line, row) in enumerate(table.rows):
        cell = row[column.index] if column.index < len(row) else ""
        value = number(cell, mark)
        if value is None or not np.isfinite(value):
            shown = shorten(str(cell).strip())
            found = f"'{shown}' is not a number" if shown else "no value"
            if value is not None:
                found = f"'{shown}'; every value must be finite"
            raise InputError(f"{row_word} {line}, column '{column.name}': {found}")
        values[i] = value
    return values

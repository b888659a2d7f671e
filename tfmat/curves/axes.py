"""The options of a user for a file, and the two columns that are a curve's axes, as plain strain and MPa."""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from tfmat.curves.columns import BEFORE_SIZE, Axis, Column, columns_named, find_axis
from tfmat.curves.conditions import find_time_unit
from tfmat.curves.tables import Table, shorten
from tfmat.curves.units import (
    AREA_UNITS,
    DISPLACEMENT_UNITS,
    Cell,
    DecimalMark,
    axis_unit,
    decimal_mark,
    find_size,
    number,
)
from tfmat.errors import InputError
from tfmat.materials.law import Array

_CHOICES = {
    "strain_measure": ("engineering", "true"),
    "stress_measure": ("engineering", "true"),
    "shear_strain": ("engineering", "tensor"),
    "decimal": ("point", "comma"),
}
# Notes before the table, as testing machines call them.
_AREA_NOTE = r"(initial )?(cross.?section(al)?( area)?|area|querschnitt(sfläche)?|a0|s0)( a0| s0)?"
_LENGTH_NOTE = r"(initial |original )?(gau?ge.?length|messlänge|l0)( l0)?"
# _EXTENSOMETER_NOTE: the length between the edges of an extensometer (Le of ISO 6892-1).
_EXTENSOMETER_NOTE = (
    r"(extensometer.?)?(gau?ge.?length|length|messlänge)( le)|le|extensometer.?(gau?ge.?)?length"
)
# _EXTENSOMETER: a column of a length that an extensometer measured.
_EXTENSOMETER = re.compile(r"extensom|längenänderung|^le\b", re.IGNORECASE)
# Quantity of a column that is no strain or stress yet -> option, note and units of its size, and what to give.
_SIZES: dict[str, tuple[str, str, dict[str, float], str]] = {
    "displacement": (
        "gauge_length",
        _LENGTH_NOTE,
        DISPLACEMENT_UNITS,
        "its length with --gauge_length=MM, or the strain with --strain_column",
    ),
    "load": (
        "area",
        _AREA_NOTE,
        AREA_UNITS,
        "its cross-section with --area=MM2, or the stress with --stress_column",
    ),
}
# _BLANK: cells of a channel that is no longer recorded.
_BLANK = {"", "nan", "-", "--", "---", "n/a", "na", "#n/a", "#nv", "none", "null"}
# _FEWEST_BLANK: blank cells at the end of a column; fewer are a damaged row, which is refused.
_FEWEST_BLANK = 3
# A stretch is so near to 1 at the least stress.
_AT_REST = 0.15


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """The options of a user for the files; None means: find out. Checked on creation, InputError names the flag.

    Attributes:
      strain_column, stress_column: names of the columns, or their numbers counted from 1.
      strain_unit, stress_unit: see `units`; a length (force) says that the column is a displacement (load).
      specimen_column: name of the column that tells several curves of a file apart; `none` is one curve a table.
      sheet: name of a workbook's sheet; None is every sheet that holds a table.
      strain_measure, stress_measure: `engineering` or `true`.
      shear_strain: `engineering` (gamma) or `tensor` (epsilon12 = gamma / 2).
      area: cross-section in mm², for a load; gauge_length: in mm, for a displacement.
      decimal: `point` or `comma`.
      time_column, time_unit: of a test that tells the time, as above; s, ms, min, h, d.
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
    time_column: str | None = None
    time_unit: str | None = None

    @property
    def given_units(self) -> frozenset[Axis]:
        """The axes whose unit the user says; it is believed."""
        given = {"strain": self.strain_unit, "stress": self.stress_unit}
        return frozenset(axis for axis, unit in given.items() if unit is not None)  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.time_unit is not None:
            find_time_unit(self.time_unit)
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


def find_axes(
    table: Table, options: ReadingOptions, measures: Mapping[str, str | None]
) -> dict[Axis, Column]:
    """The columns of strain and stress; InputError says everything that is missing or doubtful, in one line."""
    axes: dict[Axis, Column] = {}
    problems: list[str] = []
    for axis in ("strain", "stress"):
        wanted, unit = getattr(options, f"{axis}_column"), getattr(options, f"{axis}_unit")
        # One measure that the user gives counts for both axes, so that a pair stays a pair.
        given = options.strain_measure or options.stress_measure
        measure = getattr(options, f"{axis}_measure") or given or measures.get(axis)
        column = find_axis(table, axis, wanted, unit, measure, problems)
        if column is None:
            continue
        axes[axis] = column
        if column.unit.quantity in _SIZES:
            try:
                _size(table, column, options)
            except InputError as error:
                has_no_unit = bool(problems) and f"'{column.name}' has no unit" in problems[-1]
                about = f"column '{column.name}' is a {column.unit.quantity}; "
                if has_no_unit:
                    problems[-1] += f", and {str(error).removeprefix(about)}"
                else:
                    problems.append(str(error))
        candidates = {*columns_named(table, axis), *columns_named(table, BEFORE_SIZE[axis])}
        beside = [table.header[i] for i in sorted(candidates)]
        if wanted is None and len(beside) > 1:
            table.steps.append(f"of the columns {', '.join(beside)} took '{column.name}'")
    if len(axes) == 2 and axes["strain"].index == axes["stress"].index:
        problems.append(f"column '{axes['strain'].name}' cannot be both strain and stress")
    if problems:
        raise InputError(_joined(problems))
    return axes


def _joined(problems: list[str]) -> str:
    """All problems in one line; two axes without a named column are one problem."""
    unnamed = "no column is named as a"
    if len(problems) == 2 and all(problem.startswith(unnamed) for problem in problems):
        return (
            problems[0]
            .replace("named as a strain", "named as a strain or a stress")
            .replace("set --strain_column", "set --strain_column and --stress_column")
        )
    return "; ".join(dict.fromkeys(problems))


def read_strain(
    table: Table, column: Column, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    """The strain of every row, [rows], -, and where it is from, in words; InputError for a cell that is no number."""
    values = column_numbers(table, column, mark, may_end=True) * column.unit.factor
    if column.unit.name == "stretch":
        if np.nanmin(values) <= 0:
            raise InputError(
                f"column '{column.name}' is a stretch and goes down to {np.nanmin(values):.3g}; a stretch is 1 at "
                "rest: is it a strain (--strain_unit=-), or are the columns exchanged?"
            )
        return values - 1.0, f"{column.says}, less 1"
    if column.unit.quantity != "displacement":
        return values, column.says
    length, source = _size(table, column, options)
    return values / length, f"{column.says} over the gauge length of {length:g} mm ({source})"


def read_stress(
    table: Table, column: Column, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    """The stress of every row, [rows], MPa, and where it is from, in words; InputError for a cell that is no number."""
    values = column_numbers(table, column, mark) * column.unit.factor
    if column.unit.quantity != "load":
        return values, column.says
    area, source = _size(table, column, options)
    return values / area, f"{column.says} over the area of {area:g} mm² ({source})"


def options_without_header(table: Table, options: ReadingOptions) -> tuple[ReadingOptions, str]:
    """The columns of a table of two columns without a header, where only one reading is possible, and what it is.

    A stretch is 1 where the stress is 0, and above or below 1 as the stress is in tension or compression; a metal's
    strain is far smaller than its stress in MPa.
    """
    known = options.strain_column or options.stress_column
    if table.header or known or any(len(row) != 2 for _, row in table.rows):
        return options, ""
    mark: DecimalMark = "," if options.decimal == "comma" else "."
    if options.decimal is None:
        mark = decimal_mark(cell for _, row in table.rows for cell in row)
    columns = np.array(
        [
            [np.nan if (v := number(cell, mark)) is None else v for cell in row]
            for _, row in table.rows
        ]
    )
    readings = [
        (strain, stress, unit)
        for strain, stress in ((0, 1), (1, 0))
        if (unit := _strain_unit_of(columns[:, strain], columns[:, stress]))
    ]
    if len(readings) != 1:
        return options, ""
    strain, stress, unit = readings[0]
    found = dataclasses.replace(
        options,
        strain_column=str(strain + 1),
        stress_column=str(stress + 1),
        strain_unit=options.strain_unit or unit,
    )
    what = "stretch" if unit == "stretch" else "strain"
    return found, f"no header: {what} in column {strain + 1}, stress in column {stress + 1}"


def is_stretch(strain: Array, stress: Array) -> bool:
    """Whether values [points] behave as a stretch beside a stress [points]: 1 at rest, and never 0 or less."""
    if not np.isfinite(strain + stress).all() or strain.min() <= 0:
        return False
    at_rest = abs(float(strain[np.abs(stress).argmin()]) - 1.0) < _AT_REST
    loaded = np.abs(stress) > 0.02 * np.abs(stress).max()
    return at_rest and bool(
        np.mean(np.sign(strain - 1.0)[loaded] == np.sign(stress)[loaded]) > 0.95
    )


def _strain_unit_of(strain: Array, stress: Array) -> str:
    """`stretch`, `-` or nothing for two columns [points] that may be strain and stress in MPa."""
    if is_stretch(strain, stress):
        return "stretch"
    largest = float(np.abs(strain).max())
    return "-" if largest < 1.0 and np.abs(stress).max() > 100.0 * largest else ""


def _size(table: Table, column: Column, options: ReadingOptions) -> tuple[float, str]:
    """The gauge length (mm) of a displacement, the area (mm²) of a load, and where it is known from."""
    name, noted, units, missing = _SIZES[column.unit.quantity]
    value, source = getattr(options, name), "as given"
    if value is None:
        value, source = _noted(table, noted, units), "from the file's head"
        if name == "gauge_length":
            value = _length_of(table, column, value)
    if value is None:
        raise InputError(f"column '{column.name}' is a {column.unit.quantity}; give {missing}")
    return value, source


def is_of_an_extensometer(column: Column) -> bool:
    """Whether the name of a column of lengths says that an extensometer measured it."""
    return bool(_EXTENSOMETER.search(column.name))


def _length_of(table: Table, column: Column, gauge_length: float | None) -> float | None:
    """The length (mm) that a travel is of: an extensometer's own, where the head tells it beside the specimen's."""
    own = _noted(table, _EXTENSOMETER_NOTE, DISPLACEMENT_UNITS)
    if own is None or gauge_length is None or own == gauge_length:
        return own if gauge_length is None else gauge_length
    if is_of_an_extensometer(column):
        return own
    if column.is_of_the_machine:
        return gauge_length
    raise InputError(
        f"the head tells two lengths, {gauge_length:g} mm and the extensometer's {own:g} mm, and column "
        f"'{column.name}' may be of either; give the one that it is of with --gauge_length=MM"
    )


def _noted(table: Table, pattern: str, units: dict[str, float]) -> float | None:
    """A size that stands before the table with its unit, `Area: 24,5 mm²`; None where it is not plain to read."""
    for name, text in table.notes.items():
        unit_of_name = re.search(r"[\[(](.*?)[\])]", name)
        key = re.sub(r"[\[(].*?[\])]|_", " ", name)
        match = re.fullmatch(r"([\d.,]+)\s*(.*)", text)
        if not match or not re.fullmatch(pattern, " ".join(key.lower().split())):
            continue
        factor = find_size(match[2] or (unit_of_name[1] if unit_of_name else ""), units)
        value = number(match[1], "," if re.fullmatch(r"\d+,\d+", match[1]) else ".")
        if factor and value:
            return value * factor
    return None


def _is_blank(cell: Cell) -> bool:
    return cell.strip().casefold() in _BLANK if isinstance(cell, str) else bool(np.isnan(cell))


def column_numbers(table: Table, column: Column, mark: DecimalMark, may_end: bool = False) -> Array:
    """One column as finite numbers, [points]; the first cell that is none is refused with its line.

    Args:
      may_end: the column may be blank from a row to the end, as behind an extensometer that was taken off; NaN there.
    """
    values = np.full(len(table.rows), np.nan)
    row_word = "line" if table.sheet is None else "row"
    rows = table.rows
    if may_end:
        blank = [_is_blank(row[column.index] if column.index < len(row) else "") for _, row in rows]
        filled = len(blank) - next((i for i, b in enumerate(reversed(blank)) if not b), len(blank))
        rows = rows[:filled] if len(rows) - filled >= _FEWEST_BLANK else rows
    for i, (line, row) in enumerate(rows):
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

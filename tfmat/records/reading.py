"""A file that a testing machine exported -> its stress-strain curves, in MPa and plain strain.

Text files and Excel sheets. Guesses are told in the curve's steps, and every guess can be replaced by a setting.
"""

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.law import Array
from tfmat.records.columns import (
    ASSUMED,
    GIVEN,
    Axis,
    Column,
    Measure,
    ReadingOptions,
    column_numbers,
    columns_named,
    conditions_of,
    fahrenheit_of_rankine,
    find_axes,
    find_specimen_column,
    find_time_column,
    find_time_unit,
    is_of_an_extensometer,
    options_without_header,
    read_strain,
    read_stress,
    says_compression,
    side_by_side,
    split_time_header,
)
from tfmat.records.tables import (
    MINIMUM_POINTS,
    DecimalMark,
    Table,
    axis_unit,
    decimal_mark,
    find_unit,
    number,
    read_tables,
    split_header,
)

_SHEAR_WORDS = re.compile(
    r"shear|gamma|γ|(^|[\W_])tau|τ|gleitung|schub|(eps|ε|e|sigma|σ)_?(12|xy)", re.IGNORECASE
)
_US_UNITS = {"in", "lbf", "kip", "psi", "ksi"}
# _ENDS_AT: share of the largest strain before; a record that falls back from less was unloading.
_ENDS_AT = 0.5
# _BACK_AT: share of the strain before; a record that begins again is back below it in one step.
_BACK_AT = 0.1
# _UNLOADED: share of the largest stress; a specimen at the beginning of its record bears less.
_UNLOADED = 0.2
# _WHOLE_RUN: share of the largest stress; every record of a specimen reaches it.
_WHOLE_RUN = 0.3
# _FAR: share of the largest strain; every record of a specimen reaches it, and a preload does not.
_FAR = 0.05
# _GOES_ON: share of the strain before lost rows; the record is back above it in one step, but for noise.
_GOES_ON = 0.95
# _STILL_BEARS: share of the stress before lost rows, which the specimen bears behind them.
_STILL_BEARS = 0.8
# No extensometer and no specimen is that short in millimetres; in inches, 1 and 2 are the lengths of ASTM E8.
_SHORTEST_GAUGE_MM, _SHORTEST_GAUGE_INCH = 2.5, 0.05


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
      us_unit_hints: what speaks for US units where the stress has none, in words.
      is_shear: its columns are called shear, gamma or tau.
      time: [points], s, where it was asked for and the file tells it.
      columns: names of the columns of strain and stress.
      sure_units: the axes whose unit is in no doubt: it was given, or it is the read one of a load or a displacement.
      compression_in_head: the line before the table, or the file's name, that says compression.
      machine_travel: the strain is, or is made of, a travel that machine and grips have a share in.
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
    us_unit_hints: tuple[str, ...] = ()
    is_shear: bool = False
    time: Array | None = None
    columns: tuple[str, str] = ("strain", "stress")
    sure_units: frozenset[Axis] = frozenset()
    machine_travel: bool = False
    compression_in_head: str = ""


def read_curves(
    path: str | os.PathLike,
    options: ReadingOptions | None = None,
    measures: Mapping[str, str | None] | None = None,
    of_test: bool = False,
    needs_time: bool = False,
    one_loading: bool = True,
) -> list[RawCurve]:
    """Reads the curves of a file; raises InputError, in one line that names the file, for what cannot be a curve.

    Args:
      measures: axis -> engineering or true: which columns to take where a table holds both; None asks the user.
      of_test: of a law that takes tests: also reads the time, and tables of two columns without a header.
      needs_time: several columns that could be the time are refused; else none of them is read.
      one_loading: strain and stress that begin again at zero are another specimen, or another run, below the first.
    """
    options = options or ReadingOptions()
    how = _How(options, measures or {}, of_test, needs_time, one_loading)
    path = pathlib.Path(path)
    curves: list[RawCurve] = []
    try:
        tables = read_tables(path, options.sheet)
        several = len({table.sheet for table in tables}) > 1
        skipped = []
        for table in tables:
            try:
                curves.extend(_curves_of(table, path.stem, several, how))
            except InputError as error:
                where = f"sheet '{table.sheet}': " if table.sheet and options.sheet is None else ""
                # Sheets of results stand beside sheets of curves; only their columns tell them apart.
                if not several or not str(error).startswith("no column is named"):
                    where += f"specimen '{table.label}': " if table.label else ""
                    raise InputError(f"{where}{error}") from error
                skipped.append(table.sheet)
        if not curves:
            raise InputError("none of its sheets has a strain and a stress column; set --sheet")
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if skipped:
        named = ", ".join(map(str, dict.fromkeys(skipped)))
        said = f"skipped the sheets without strain and stress: {named}"
        curves = [dataclasses.replace(c, steps=(*c.steps, said)) for c in curves]
    return curves


@dataclasses.dataclass(frozen=True)
class _How:
    """The arguments of `read_curves`."""

    options: ReadingOptions
    measures: Mapping[str, str | None]
    of_test: bool
    needs_time: bool
    one_loading: bool


def _curves_of(table: Table, stem: str, several: bool, how: _How) -> list[RawCurve]:
    """The curves of one table, one a specimen, whether these stand side by side, below each other, or by a column."""
    numbers = (how.options.strain_column, how.options.stress_column)
    # A number counts the columns of the whole table.
    whole = any(number is not None and number.isdecimal() for number in numbers)
    parts = [table] if whole else side_by_side(table)
    name = "_".join([stem, *([str(table.sheet)] if several else [])])
    return [curve for part in parts for curve in _curves_of_part(part, name, stem, how)]


def _curves_of_part(table: Table, name: str, stem: str, how: _How) -> list[RawCurve]:
    table = dataclasses.replace(table, steps=list(table.steps))
    options, time, guess = how.options, None, ""
    if how.of_test:
        options, guess = options_without_header(table, options)
        time = find_time_column(table, options.time_column, how.needs_time)
    axes = find_axes(table, options, how.measures)
    table, mark = _with_decimal_mark(table, [column.index for column in axes.values()], options)
    groups, grouping = _groups(table, options)
    curves = []
    for label, rows in groups.items():
        label = "_".join(filter(None, (table.label, label)))
        if len(rows) < MINIMUM_POINTS:
            # The label of a table is said beside every error of it.
            of = f"specimen '{label}'" if label and label != table.label else "it"
            raise InputError(
                f"{of} has {len(rows)} points; a curve needs at least {MINIMUM_POINTS}"
            )
        part = dataclasses.replace(table, rows=rows, steps=[*table.steps, *grouping])
        curve = _curve("_".join(filter(None, (name, label))), part, axes, mark, options)
        if guess:
            assumed = (*curve.assumed, guess.partition(": ")[2])
            # Units that go with the guess, and not with what the user says.
            read = [step.replace("in stretch (as given)", "in stretch") for step in curve.steps]
            curve = dataclasses.replace(curve, steps=(guess, *read), assumed=assumed)
        if time is not None:
            seconds, said = _time(part, time, mark, options)
            curve = dataclasses.replace(curve, time=seconds, steps=(*curve.steps, said))
        found = conditions_of(table.notes, stem) | ({"specimen": label} if label else {})
        said_before = [f"{key}: {text}" for key, text in table.notes.items()]
        curve = dataclasses.replace(
            curve,
            conditions=found,
            compression_in_head=next(filter(_says_compression_test, [*said_before, stem]), ""),
        )
        runs = how.one_loading and options.specimen_column != "none"
        curves += _runs(curve, [number for number, _ in rows]) if runs else [curve]
    return curves


def _says_compression_test(text: str) -> bool:
    """Whether a line speaks of compression; plates are also compression moulded, and cells are for both."""
    return says_compression(text) and not re.search(
        r"mou?ld|cell|machine|both", text, re.IGNORECASE
    )


def _runs(curve: RawCurve, lines: list[int]) -> list[RawCurve]:
    """The curve, or each part of it where strain and stress begin again at zero: specimens below each other."""
    starts = [0, *begins_again(curve.strain, curve.stress_mpa), len(curve.strain)]
    if len(starts) == 2:
        return [curve]
    again = ", ".join(str(lines[i]) for i in starts[1:-1])
    fewest = min(end - start for start, end in itertools.pairwise(starts))
    if fewest < MINIMUM_POINTS:
        raise InputError(
            f"strain and stress begin again at zero in line {again}: a specimen or run has {fewest} points, and a "
            f"curve needs at least {MINIMUM_POINTS}; --specimen_column=none takes all rows as one"
        )
    said = (
        f"strain and stress begin again at zero in line {again}: {len(starts) - 1} specimens or runs below each other, "
        "each a curve (--specimen_column=none takes them as one)"
    )
    return [
        dataclasses.replace(
            curve,
            name=f"{curve.name}_{number}",
            strain=curve.strain[start:end],
            stress_mpa=curve.stress_mpa[start:end],
            time=None if curve.time is None else curve.time[start:end],
            steps=(*curve.steps, said),
            conditions={**curve.conditions, "specimen": str(number)},
        )
        for number, (start, end) in enumerate(itertools.pairwise(starts), start=1)
    ]


def begins_again(strain: Array, stress: Array) -> list[int]:
    """The points, but the first, at which a record of one loading begins again at zero strain and stress.

    Args:
      strain, stress: [points], in the order of the file. A fracture or an extensometer that is taken off is followed by
        no second loading, and a cycle comes back in more than one step.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        strain, stress = np.abs(strain - strain[0]), np.abs(stress)
    largest, strongest = float(np.nanmax(strain)), float(stress.max())
    fell = (strain[1:] < _BACK_AT * strain[:-1]) & (stress[1:] < _UNLOADED * strongest)
    starts = [0]
    farthest, strongest_yet = np.fmax.accumulate(strain), np.maximum.accumulate(stress)
    for i in (np.flatnonzero(fell) + 1).tolist():
        last = i - 1 - starts[-1]
        is_run = strongest_yet[last] > _WHOLE_RUN * strongest and farthest[last] > _FAR * largest
        ends = strain[i - 1] > _ENDS_AT * farthest[last]
        if is_run and ends and not _goes_on(strain, stress, i):
            starts.append(i)
            farthest = np.fmax.accumulate(strain[i:])
            strongest_yet = np.maximum.accumulate(stress[i:])
    # Noise after the last fracture belongs to that specimen.
    if stress[starts[-1] :].max() <= _WHOLE_RUN * strongest:
        starts.pop()
    return starts[1:]


def _goes_on(strain: Array, stress: Array, fell: int) -> bool:
    """Whether a fall of strain and stress [points] is of lost cells: one step later the record is where it was."""
    again = np.flatnonzero(strain[fell:] > _BACK_AT * strain[fell - 1])
    if not len(again):
        return False
    back = fell + int(again[0])
    is_there = strain[back] > _GOES_ON * strain[fell - 1]
    return bool(is_there and stress[back] > _STILL_BEARS * stress[fell - 1])


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
    strain, how_strain = read_strain(table, axes["strain"], mark, options)
    stress, how_stress = read_stress(table, axes["stress"], mark, options)
    shear, how_shear = _shear_strain(axes["strain"].name, options.shear_strain)
    strain, stress, turned = _compression_negative(strain, stress, axes)
    found = f" ({', '.join(table.steps)})" if table.steps else ""
    steps = [
        f"read {len(table.rows)} points{found}; strain from {how_strain}, stress from {how_stress}"
    ]
    return RawCurve(
        name=name,
        strain=strain,
        stress_mpa=stress,
        strain_measure=options.strain_measure or axes["strain"].own_measure,  # type: ignore[arg-type]
        stress_measure=options.stress_measure or axes["stress"].own_measure,  # type: ignore[arg-type]
        shear_strain=shear,
        steps=(*steps, *_whose_travel(axes["strain"]), *how_shear, *turned),
        assumed=tuple(column.assumed for column in axes.values() if column.assumed),
        is_shear=any(_SHEAR_WORDS.search(column.name) for column in axes.values()),
        us_unit_hints=us_unit_hints(table, strain, mark)
        if axes["stress"].unit_source == ASSUMED
        else (),
        columns=(axes["strain"].name, axes["stress"].name),
        sure_units=frozenset(
            axis
            for axis, column in axes.items()
            if column.unit_source == GIVEN
            or (column.unit.quantity != axis and column.unit_source != ASSUMED)
        ),
        machine_travel=axes["strain"].is_of_the_machine,
    )


def _whose_travel(column: Column) -> list[str]:
    """A travel that may be the specimen's or the machine's, and was taken for the specimen's."""
    if column.unit.quantity != "displacement" or column.is_of_the_machine:
        return []
    if is_of_an_extensometer(column):
        return []
    said = f"took column '{column.name}' as measured at the specimen"
    return [f"{said}; where it is the crosshead's, the modulus is the machine's"]


def _compression_negative(
    strain: Array, stress: Array, axes: dict[Axis, Column]
) -> tuple[Array, Array, list[str]]:
    """Strain and stress [rows] with compression negative, where a column's name says that it is compression."""
    name = next((column.name for column in axes.values() if column.is_compression), None)
    if name is None:
        return strain, stress, []
    strain, stress = (
        -values if np.nanmax(values) > abs(min(float(np.nanmin(values)), 0.0)) else values
        for values in (strain, stress)
    )
    return strain, stress, [f"took it as compression, as column '{name}' says"]


def _time(
    table: Table, index: int, mark: DecimalMark, options: ReadingOptions
) -> tuple[Array, str]:
    """The time of every row, [rows], s, and where it is from, in words."""
    name, in_header = split_time_header(table.header[index] if table.header else str(index + 1))
    said = next(filter(None, (options.time_unit, in_header, table.units[index])), None)
    unit, factor = find_time_unit(said or "s")
    column = Column(index, name, axis_unit("-", "strain"), "")
    source = "" if said else " (assumed)"
    return column_numbers(
        table, column, mark
    ) * factor, f"time from column '{name}' in {unit}{source}"


def _shear_strain(
    name: str, given: str | None
) -> tuple[Literal["engineering", "tensor", "epsilon"] | None, list[str]]:
    """The kind of shear strain by a column's name, and the step to tell."""
    if given is not None:
        return given, []  # type: ignore[return-value]
    text = name.casefold()
    if re.search(r"(eps|epsilon|ε|\be)[ _]?(12|xy)", text):
        return "tensor", []
    if "γ" in text or "gamma" in text:
        return "engineering", []
    return ("epsilon" if re.search(r"\b(eps|epsilon)|ε", text) else None), []


def us_unit_hints(table: Table, strain: Array, mark: DecimalMark) -> tuple[str, ...]:
    """The signs that a file is in US units, each in a few words; empty where there are none.

    Args:
      strain: [rows], plain, as read from the table.
    """
    hints = []
    for header, unit in zip(table.header, table.units, strict=False):
        text = unit or split_header(header)[1]
        known = find_unit(text) if text else None
        if known is not None and known.name in _US_UNITS:
            hints.append(f"column '{split_header(header)[0]}' is in {known.name}")
        elif re.search(r"temp", header, re.IGNORECASE) and (
            degrees := re.search(r"(?<!\w)°?[FR]\b", unit or header)
        ):
            hints.append(f"column '{header}' is in degrees {degrees[0]}")
    for name, text in table.notes.items():
        fahrenheit = fahrenheit_of_rankine(text) if "temp" in name.lower() else None
        if fahrenheit is not None:
            hints.append(f"the {name} {text} is {fahrenheit} °F in degrees Rankine")
    length = _gauge_length(table, strain, mark)
    if length is not None and _SHORTEST_GAUGE_INCH < length < _SHORTEST_GAUGE_MM:
        hints.append(
            f"displacement over strain is {length:.2g}, a gauge length in inches and not in mm"
        )
    return tuple(hints)


def _gauge_length(table: Table, strain: Array, mark: DecimalMark) -> float | None:
    """Displacement over strain where both are large, in the displacement's own numbers; None where it has a unit."""
    columns = [
        i
        for i in columns_named(table, "displacement")
        if not (table.units[i] or split_header(table.header[i])[1])
    ]
    if len(columns) != 1:
        return None
    cells = [
        number(row[columns[0]], mark) if columns[0] < len(row) else None for _, row in table.rows
    ]
    displacement = np.array([np.nan if value is None else value for value in cells])
    largest = float(np.nanmax(strain, initial=0.0))
    large = strain > 0.5 * largest
    if largest < 1e-3 or not np.isfinite(displacement[large]).all():
        return None
    return float(np.median(displacement[large] / strain[large]))

"""The table inside an exported file: where its numbers begin, the names and units above them, what stands before.

{'temperature': 293}           states (MatCal), or `name: value` lines of a testing machine
Gauge length: 50 mm
Strain;Stress                  the header; units may stand in it, `Strain [%]`
%;MPa                          or in a row of their own
0,01;12,5                      the data, to the end of the file
"""

import dataclasses
import pathlib
import re

from tfmat.curves.raw_files import Row, is_workbook, read_rows, read_sheets
from tfmat.curves.units import LONGEST_HEADER, Cell, find_unit, looks_like_a_number
from tfmat.errors import InputError
from tfmat.files import literal

MINIMUM_POINTS = 10


@dataclasses.dataclass
class Table:
    """One table of a file.

    Attributes:
      sheet: its sheet's name, or None in a text file.
      header: the columns' names; empty where the file has none.
      units: what a row of units says of each column, or None.
      rows: (line number, cells) of the data.
      notes: what the lines before it say, e.g. `Gauge length` -> `50 mm`.
      steps: what was found out, in words.
      above: the cells of the row above the names, which may label specimens side by side.
      label: which of several specimens side by side it is; '' where it is the only one.
    """

    sheet: str | None
    header: list[str]
    units: list[str | None]
    rows: list[Row]
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    steps: list[str] = dataclasses.field(default_factory=list)
    above: list[str] = dataclasses.field(default_factory=list)
    label: str = ""


def read_tables(path: pathlib.Path, sheet: str | None = None) -> list[Table]:
    """The table of a text file, or the tables of a workbook, one a sheet (only `sheet` where given).

    Raises:
      InputError: there is none; the message does not name the file.
    """
    if not is_workbook(path):
        if sheet is not None:
            raise InputError("it is a text file and has no sheets; leave --sheet out")
        rows, steps = read_rows(path)
        return [find_table(rows, steps)]
    tables: list[Table] = []
    errors: list[str] = []
    others: list[str] = []
    for name, rows in read_sheets(path, sheet).items():
        try:
            if not rows:
                raise InputError("the sheet is empty; a header row and a curve are expected")
            table = find_table(rows, [f"sheet '{name}'"], "row")
            table.sheet = name
            tables.append(table)
        except InputError as error:
            errors.append(f"sheet '{name}': {error}")
            others.append(name)
    if others:
        for table in tables:
            table.steps.append(f"sheets without a table: {', '.join(others)}")
    if not tables:
        raise InputError(errors[0] if errors else "the workbook has no sheet with cells")
    return tables


def find_table(rows: list[Row], steps: list[str], line: str = "line") -> Table:
    """Finds the table among the rows of a file; raises InputError where there is none."""
    first = _first_data_row(rows)
    if first is None:
        raise _no_table(rows)
    above, data = rows[:first], [row for row in rows[first:] if not _is_comment(row[1])]
    width = len(data[0][1])
    above = [(number, _uncommented(cells)) for number, cells in above]
    header, units, used = _header(above, width, line)
    before = above[: len(above) - used]
    notes = _notes(before)
    labels = [str(cell).strip() for cell in before[-1][1]] if before and used else []
    steps = list(steps)
    if notes:
        shown = ", ".join(f"{name} = {shorten(value)}" for name, value in list(notes.items())[:6])
        steps.append(f"notes before the table: {shown}{', …' if len(notes) > 6 else ''}")
    if any(units):
        steps.append("a row of units below the header")
    for number, cells in data:
        # A decimal comma in a comma-separated file shows only here.
        if any(cell != "" for cell in cells[max(len(header), 1) :]) and header:
            raise InputError(
                f"{line} {number} has {len(cells)} values, the header names {len(header)} columns "
                "(decimal commas between commas? then use semicolons)"
            )
    return Table(None, header, units, data, notes, steps, labels)


def shorten(text: str, length: int = 60) -> str:
    """`text`, with an ellipsis where it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _first_data_row(rows: list[Row]) -> int | None:
    """Index of the first row that is numbers for its larger part, as its successors are."""
    for i, (_, cells) in enumerate(rows):
        following = rows[i + 1 : i + 3]
        if _is_data(cells) and all(_is_data(other) for _, other in following[:1]):
            return i
    return None


def _is_data(cells: list[Cell]) -> bool:
    filled = [cell for cell in cells if cell != ""]
    numbers = sum(looks_like_a_number(cell) for cell in filled)
    return numbers >= 2 and 2 * numbers >= len(filled)


def _no_table(rows: list[Row]) -> InputError:
    first = " ".join(str(cell) for cell in rows[0][1])
    numeric = sum(any(looks_like_a_number(cell) for cell in cells) for _, cells in rows)
    if numeric > len(rows) / 2:
        return InputError(
            f"it has one column of numbers (its first line is '{shorten(first)}'); "
            "a strain and a stress column are expected"
        )
    if any(_named_columns(cells) >= 2 for _, cells in rows):
        return InputError(f"it has 0 points; a curve needs at least {MINIMUM_POINTS}")
    return InputError(
        f"no table of numbers was found in it (it begins with '{shorten(first)}'); a header and "
        "columns of strain and stress are expected"
    )


def _named_columns(cells: list[Cell]) -> int:
    return sum(
        isinstance(cell, str) and bool(cell) and not looks_like_a_number(cell) for cell in cells
    )


def _header(above: list[Row], width: int, line: str) -> tuple[list[str], list[str | None], int]:
    """Names, units of a row of units, and how many of the rows above the data they take."""
    units: list[str | None] = [None] * width
    used = 0
    if above and _is_unit_row(above[-1][1]):
        row = [str(cell).strip() for cell in above[-1][1]]
        units = [(row[i] or None) if i < len(row) else None for i in range(width)]
        used = 1
    if len(above) == used or _named_columns(above[-1 - used][1]) < 2:
        if used:
            raise InputError(
                f"{line} {above[-1][0]} holds units, but no line above it names columns"
            )
        return [], units, 0
    number, cells = above[-1 - used]
    names = [shorten(" ".join(str(cell).split()), LONGEST_HEADER) for cell in cells]
    while len(names) > width and not names[-1]:
        names.pop()
    if sum(map(looks_like_a_number, filter(None, names))):
        raise InputError(
            f"{line} {number}: '{shorten(' '.join(names))}' is neither the columns' names nor a row of numbers"
        )
    if len(names) < width:
        raise InputError(
            f"the header ({line} {number}) names {len(names)} columns, the rows below it have {width} values "
            "(decimal commas between commas? then use semicolons)"
        )
    return names, (units + [None] * len(names))[: len(names)], used + 1


def _is_unit_row(cells: list[Cell]) -> bool:
    """Whether a row holds units only, at least one of which cannot be mistaken for a name."""
    filled = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if not filled or any(not isinstance(cell, str) for cell in cells):
        return False
    units = [find_unit(cell) for cell in filled]
    plain_units = [
        u is not None and cell.strip(" []()").lower() not in ("strain", "stretch", "microstrain")
        for u, cell in zip(units, filled, strict=True)
    ]
    known = [
        u is not None or bool(re.fullmatch(r"[\[(<].*[\])>]", cell)) or _is_other_unit(cell)
        for u, cell in zip(units, filled, strict=True)
    ]
    return all(known) and any(plain_units)


def _is_other_unit(cell: str) -> bool:
    """Whether a cell is a unit of a time, a temperature, a rate or another quantity that is not read."""
    unit = cell.strip(" []()").lower()
    others = {
        "s",
        "sec",
        "ms",
        "min",
        "h",
        "°c",
        "c",
        "k",
        "°f",
        "hz",
        "v",
        "mv",
        "n/a",
        "#",
        "1/s",
    }
    above, slash, below = unit.rpartition("/")
    return unit in others or (
        bool(slash) and below in ("s", "sec", "min", "h") and bool(find_unit(above))
    )


def _is_comment(cells: list[Cell]) -> bool:
    """Whether a row begins with `#`, and not with an error that a spreadsheet has written, `#DIV/0!`."""
    first = cells[0].strip() if isinstance(cells[0], str) else ""
    return first.startswith("#") and not re.fullmatch(r"#[A-Z/0]+[!?]?", first)


def _uncommented(cells: list[Cell]) -> list[Cell]:
    """A row without the `#` that it begins with."""
    if not _is_comment(cells):
        return cells
    first = str(cells[0]).lstrip().lstrip("#").strip()
    return [first, *cells[1:]] if first else cells[1:]


def _notes(rows: list[Row]) -> dict[str, str]:
    """`name: value`, `name = value` or two cells -> name and value; and the dict that MatCal writes first."""
    notes: dict[str, str] = {}
    for _, cells in rows:
        texts = [str(cell).strip() for cell in cells if str(cell).strip()]
        text = " ".join(texts)
        if text.startswith("{"):
            notes.update(_states(", ".join(texts)) or _states(text))
        elif match := re.match(r"([^:=]{2,40}?)\s*[:=]\s*(.+)", text):
            notes[match[1].strip()] = match[2].strip()
        elif len(texts) >= 2 and any(c.isdigit() for c in texts[1]):
            notes[texts[0]] = " ".join(texts[1:3])
    return notes


def _states(text: str) -> dict[str, str]:
    try:
        states = literal(re.sub(r",\s*,", ",", text))
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in states.items()} if isinstance(states, dict) else {}

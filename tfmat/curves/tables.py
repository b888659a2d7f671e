"""The table inside an exported file: where its numbers begin, the names and units above them, what stands before.

{'temperature': 293}           states (MatCal), or `name: value` lines of a testing machine
Gauge length: 50 mm
Strain;Stress                  the header; units may stand in it, `Strain [%]`
%;MPa                          or in a row of their own
0,01;12,5                      the data, to the end of the file
"""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Sequence

from tfmat.curves.raw_files import Row, is_workbook, read_rows, read_sheets
from tfmat.curves.units import (
    LONGEST_HEADER,
    Cell,
    decimal_mark,
    find_unit,
    looks_like_a_number,
    number,
)
from tfmat.errors import InputError
from tfmat.files import literal

MINIMUM_POINTS = 10
# _NEAR: share of a column's range; rows behind lines of text go on where those before ended, so near.
_NEAR = 0.1
# _BEGUN: so many rows show what a table's rows begin with.
_BEGUN = 20
# _NO_WORDS: what stands for a number that is none.
_NO_WORDS = {"nan", "inf", "-inf", "n/a", "na", "null", "none"}
# _TITLE: how a line begins that names a specimen, or a run (the group) of a test.
_TITLE = re.compile(
    r"(?:specimen|sample|coupon|probe|prüfling|éprouvette|eprouvette|probeta|muestra|provino|provetta|campione"
    r"|試験片|試料|试样|(test|run|versuch|essai|ensayo|prova))(?![^\W\d_])",
    re.IGNORECASE,
)


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
      label: which of several specimens side by side or below each other it is; '' where it is the only one.
      titles: the lines above it that may name a specimen: `Specimen` -> `A1`.
    """

    sheet: str | None
    header: list[str]
    units: list[str | None]
    rows: list[Row]
    notes: dict[str, str] = dataclasses.field(default_factory=dict)
    steps: list[str] = dataclasses.field(default_factory=list)
    above: list[str] = dataclasses.field(default_factory=list)
    label: str = ""
    titles: dict[str, str] = dataclasses.field(default_factory=dict)


def read_tables(path: pathlib.Path, sheet: str | None = None) -> list[Table]:
    """The tables of a text file, or of a workbook (only `sheet` where given): one, or one a specimen below each other.

    Raises:
      InputError: there is none; the message does not name the file.
    """
    if not is_workbook(path):
        if sheet is not None:
            raise InputError("it is a text file and has no sheets; leave --sheet out")
        rows, steps = read_rows(path)
        return find_tables(rows, steps)
    tables: list[Table] = []
    errors: list[str] = []
    others: list[str] = []
    for name, rows in read_sheets(path, sheet).items():
        try:
            if not rows:
                raise InputError("the sheet is empty; a header row and a curve are expected")
            found = find_tables(rows, [f"sheet '{name}'"], "row")
            tables.extend(dataclasses.replace(table, sheet=name) for table in found)
        except InputError as error:
            errors.append(f"sheet '{name}': {error}")
            others.append(name)
    if others:
        for table in tables:
            table.steps.append(f"sheets without a table: {', '.join(others)}")
    if not tables:
        raise InputError(errors[0] if errors else "the workbook has no sheet with cells")
    return tables


def find_tables(rows: list[Row], steps: list[str], line: str = "line") -> list[Table]:
    """Finds the tables among the rows of a file; raises InputError where there is none.

    A table ends at lines of text that further rows of numbers follow: a title, notes, or names of columns. They
    may leave out what is as before. Rows that go on behind such lines are of the same table.
    """
    first = _first_data_row(rows)
    if first is None:
        raise _no_table(rows)
    blocks = []
    above = rows[:first]
    while found := _next_block(rows, first):
        end, following = found
        blocks.append((above, rows[first:end]))
        above, first = rows[end:following], following
    blocks.append((above, rows[first:]))
    tables = [find_table(*blocks[0], steps, line)]
    columns = _columns_of(tables[0].rows) if len(blocks) > 1 else []
    gaps: list[list[str]] = [[]]
    for above, data in blocks[1:]:
        before = tables[-1]
        table = find_table(*_named_as_before(above, data, before, line), [], line)
        table.notes = before.notes | table.notes
        further = _columns_of(table.rows)
        names = _shared_names(before, table)
        if names and before.notes == table.notes and _goes_on(columns, further):
            before.rows.extend(table.rows)
            columns = [
                a.and_then(b) if a and b else a or b for a, b in zip(columns, further, strict=False)
            ]
            gaps[-1].append(str(above[0][0]))
            continue
        table.steps[:0] = [*steps, f"the rows below the text in {line} {above[0][0]}"]
        tables.append(table)
        columns = further
        gaps.append([])
    for table, numbers in zip(tables, gaps, strict=True):
        if numbers:
            shown = f"{', '.join(numbers[:6])}{', …' if len(numbers) > 6 else ''}"
            table.steps.append(f"left out the text between the rows in {line} {shown}")
    return _of_specimens(tables, line)


def _of_specimens(tables: list[Table], line: str) -> list[Table]:
    """The tables that may be of specimens, with labels; short ones under other names are results beside the curves."""
    long = [table for table in tables if len(table.rows) >= MINIMUM_POINTS]
    others = [t for t in tables if not any(_shared_names(t, other) for other in long)]
    if long and others:
        tables = [table for table in tables if not any(table is other for other in others)]
        said = ", ".join(f"{line} {table.rows[0][0]}" for table in others)
        tables[0].steps.append(f"left out short tables with other columns, from {said} on")
    if len(tables) > 1:
        for table, label in zip(tables, _labels(tables), strict=True):
            table.label = label
            table.steps.append(f"specimen '{label}' of {len(tables)} below each other")
    return tables


def _labels(tables: list[Table]) -> list[str]:
    """Names of specimens: the titles of one kind that tell them all apart, or their numbers."""

    def certainty(kind: str) -> tuple[bool, int]:
        # `Specimen` or `Specimen ID` is more of a name than `Specimen width`, and than `Test date`.
        match = _TITLE.match(kind)
        return bool(match and match[1]), len(kind)

    for kind in sorted(tables[0].titles, key=certainty):
        names = [table.titles.get(kind, "") for table in tables]
        if all(names) and len(set(names)) == len(names):
            return names
    return [str(i + 1) for i in range(len(tables))]


def _next_block(rows: list[Row], first: int) -> tuple[int, int] | None:
    """Where the first lines of text between rows of numbers, from `first` on, begin and end; None without such."""
    start, is_clear = None, False
    for i in range(first, len(rows)):
        cells = rows[i][1]
        if _is_worded(cells):
            if start is None:
                start, is_clear = i, False
            is_clear = is_clear or _is_text(cells)
        elif start is None or _is_comment(cells):
            continue
        elif is_clear and _is_data(cells) and i + 1 < len(rows) and _is_data(rows[i + 1][1]):
            return start, i
        else:
            start = None
    return None


def _is_worded(cells: list[Cell]) -> bool:
    """Whether a row begins with a word and is no row of numbers; it may be a note or a damaged row."""
    first = next((cell for cell in cells if cell != ""), 0.0)
    if isinstance(first, float) or looks_like_a_number(first):
        return False
    if _is_comment(cells) or _is_data(cells):
        return False
    return any(letter.isalpha() for letter in first) or _is_unit_row(cells)


def _is_text(cells: list[Cell]) -> bool:
    """Whether a row that begins with a word is a title, names or units, and cannot be a damaged row of numbers."""
    filled = [cell for cell in cells if cell != ""]
    is_title = bool(_TITLE.match(str(filled[0]).strip()))
    return is_title or not any(map(looks_like_a_number, filled))


def _named_as_before(
    above: list[Row], data: list[Row], before: Table, line: str
) -> tuple[list[Row], list[Row]]:
    """The lines above a table and its rows, with the names of the table before where the lines hold none."""
    width = len(data[0][1])
    named = [row for row in above if _named_columns(row[1]) >= min(2, width)]
    if any(_plain_names(cells) == _plain_names(before.header) for _, cells in named):
        return above, data
    has_units = bool(above) and _is_unit_row(above[-1][1])
    rest = above[:-1] if has_units else above
    if rest and len(_plain_names(rest[-1][1])) == width and all(map(_is_name, rest[-1][1][:width])):
        return above, data
    names: list[Row] = [(above[-1][0], list(before.header))] if before.header else []
    units: list[Row] = [above[-1]] if has_units and names else []
    if not units and names and any(before.units):
        units = [(above[-1][0], [unit or "" for unit in before.units])]
    return [*rest, *names, *units], data


def _is_name(cell: Cell) -> bool:
    return isinstance(cell, str) and bool(cell.strip()) and not looks_like_a_number(cell)


def _plain_names(cells: Sequence[Cell]) -> list[str]:
    names = [" ".join(str(cell).split()).casefold() for cell in cells]
    while names and not names[-1]:
        names.pop()
    return names


def _shared_names(one: Table, other: Table) -> bool:
    """Whether two tables have the same columns."""
    return _plain_names(one.header) == _plain_names(other.header) and one.units == other.units


@dataclasses.dataclass(frozen=True)
class _Column:
    """The numbers of a column, as far as they show whether further rows go on from them.

    Attributes:
      first, last, low, high: of the numbers; step: the largest from one row to the next.
    """

    first: float
    last: float
    low: float
    high: float
    step: float

    def and_then(self, further: "_Column") -> "_Column":
        """The column with further rows below it."""
        return _Column(
            self.first,
            further.last,
            min(self.low, further.low),
            max(self.high, further.high),
            max(self.step, further.step, abs(further.first - self.last)),
        )


def _columns_of(rows: list[Row]) -> list[_Column | None]:
    """The numbers of each column, as `_Column`; None where one holds fewer than two."""
    try:
        mark = decimal_mark(cell for _, cells in rows for cell in cells)
    except InputError:
        mark = ","  # which one it is may be said with --decimal, and changes little here
    found: list[_Column | None] = []
    for i in range(max(len(cells) for _, cells in rows)):
        cells_here = (cells[i] for _, cells in rows if i < len(cells))
        values = [value for cell in cells_here if (value := number(cell, mark)) is not None]
        step = max((abs(b - a) for a, b in itertools.pairwise(values)), default=None)
        if step is None:
            found.append(None)
        else:
            found.append(_Column(values[0], values[-1], min(values), max(values), step))
    return found


def _goes_on(columns: list[_Column | None], further: list[_Column | None]) -> bool:
    """Whether rows are where those before ended, in every column, and not where those before began."""
    near, at_start = [], []
    for before, after in zip(columns, further, strict=False):
        if before is None or after is None:
            continue
        within = _NEAR * (before.high - before.low)
        near.append(abs(after.first - before.last) <= max(within, 2.0 * before.step))
        at_start.append(abs(after.first - before.first) <= within)
    return all(near) and not all(at_start)


def find_table(above: list[Row], rows: list[Row], steps: list[str], line: str = "line") -> Table:
    """The table of these rows, with the lines above it; raises InputError where they do not go together."""
    data = [row for row in rows if not _is_comment(row[1])]
    if not data:
        raise InputError(
            f"all rows of numbers begin with '#', from {line} {rows[0][0]} on, which makes them comments; take it away"
        )
    data, summary = _without_summary(data)
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
    if summary:
        shown = shorten(" ".join(str(cell) for cell in summary[0][1]), 30)
        steps.append(
            f"left out {len(summary)} rows of results at the end, from {line} {summary[0][0]} on ({shown})"
        )
    for row, cells in data:
        # A decimal comma in a comma-separated file shows only here.
        if any(cell != "" for cell in cells[max(len(header), 1) :]) and header:
            raise InputError(
                f"{line} {row} has {len(cells)} values, the header names {len(header)} columns "
                "(decimal commas between commas? then use semicolons)"
            )
    titles = dict(_title(cells) for _, cells in before)
    titles.pop("", None)
    return Table(None, header, units, data, notes, steps, labels, titles=titles)


def _title(cells: list[Cell]) -> tuple[str, str]:
    """The kind and the name of a line such as `Specimen: A1` or `Specimen 2`; '' for another."""
    text = " ".join(str(cell).strip() for cell in cells if str(cell).strip())
    match = _TITLE.match(text)
    if not match:
        return "", ""
    kind, _, name = text.partition(":")
    named = name.strip()
    return (kind if named else match[0]).casefold(), shorten(named or text, 30).replace("/", "-")


def _without_summary(data: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows without those at the end that a word begins, such as `Mean`, where numbers begin the others."""
    end = len(data)
    while end > 0 and _is_result(data[end - 1][1]):
        end -= 1
    begun = data[: min(end, _BEGUN)]
    if not begun or not all(cells and looks_like_a_number(cells[0]) for _, cells in begun):
        return data, []
    return data[:end], data[end:]


def _is_result(cells: list[Cell]) -> bool:
    """Whether a row is a word, and no blank value, with numbers behind it."""
    first = cells[0] if cells else ""
    if not isinstance(first, str) or first.strip().casefold() in _NO_WORDS:
        return False
    return any(map(str.isalpha, first)) and not looks_like_a_number(first) and _is_data(cells)


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

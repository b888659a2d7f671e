"""The files that hold curves: which are meant, and each as rows of cells, whatever its encoding, delimiter or form.

Text is split by the standard library's csv: pandas does not say in which line a word stands among the numbers, and
wants to know place, delimiter and decimal mark beforehand. Workbooks are read by openpyxl, row by row.
"""

import csv
import glob
import io
import os
import pathlib
import re
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

from tfmat.curves.units import Cell, looks_like_a_number
from tfmat.errors import InputError, nearest

# Files inside a folder that are taken for curves.
CURVE_FILES = (".csv", ".tsv", ".txt", ".dat", ".asc", ".xlsx", ".xlsm")
Row = tuple[int, list[Cell]]

DELIMITERS = {"\t": "tab", ";": "semicolon", " ": "whitespace", ",": "comma"}
# Lines that the delimiter is found from.
_SAMPLE = 300
# _LAST_NAMES: lines in which names with line breaks are looked for.
_LAST_NAMES = 49
# _MOST_BREAKS: line breaks inside the quotes of one line of names.
_MOST_BREAKS = 12
# _OPENS: a cell's quote that its line does not close; other quotes stand for inches.
_OPENS = re.compile(r"(?:^|[,;\t])\s*\"[^\"]*$")
# _JAPANESE: names of columns that no other text shows when it is read as Shift-JIS.
_JAPANESE = ("応力", "ひずみ", "荷重", "試験力", "変位", "ストローク", "時間")
# _LARGEST_FILE: bytes of a file, and of a workbook unpacked; more is no record of a test, and fills the memory.
_LARGEST_FILE = 200_000_000
# _LONGEST_LINE: letters of a line; some thousand columns have fewer.
_LONGEST_LINE = 200_000
# _LONGEST_CELL: letters of a cell; a spreadsheet's own limit.
_LONGEST_CELL = 32_767
# _MOST_CELLS: cells of a sheet that hold something; a hundred columns of a hundred thousand rows have as many.
_MOST_CELLS = 10_000_000
WORKBOOK_ENDINGS = (".xlsx", ".xlsm")
_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


def find_files(arguments: Sequence[str]) -> list[str]:
    """The files that the arguments mean, in order: a file itself, a folder's curves, or what a pattern matches.

    Raises:
      InputError: a folder without curves, or a pattern that matches nothing.
    """
    found: list[str] = []
    for argument in arguments:
        if os.path.isdir(argument):
            files = sorted(
                str(path)
                for path in pathlib.Path(argument).rglob("*")
                if path.is_file()
                and path.suffix.lower() in CURVE_FILES
                and not path.name.startswith((".", "~$"))
            )
            if not files:
                raise InputError(
                    f"folder {argument} holds no curves (files that end in {', '.join(CURVE_FILES)})"
                )
            found += files
        elif not os.path.exists(argument) and glob.has_magic(argument):
            files = sorted(
                path for path in glob.glob(argument, recursive=True) if os.path.isfile(path)
            )
            if not files:
                raise InputError(f"no file matches '{argument}'")
            found += files
        else:
            found.append(argument)
    # A file that two arguments mean is read once.
    return list(dict.fromkeys(found))


def read_rows(path: pathlib.Path) -> tuple[list[Row], list[str]]:
    """Rows of a text file as (line number, cells), blank ones left out; and what was found out, in words.

    Raises:
      InputError: not text, empty, or quotes that do not close.
    """
    text, encoding = _decoded(read_bytes(path))
    steps = [] if encoding == "UTF-8" else [f"read as {encoding} text"]
    lines = _numbered_lines(text)
    if not lines:
        raise InputError("the file is empty; a header line and a curve are expected")
    delimiter = _delimiter([line for _, line in lines])
    steps.append(f"columns separated by {DELIMITERS[delimiter]}")
    rows = [(number, _split(line, delimiter, number)) for number, line in lines]
    for (number, line), (_, cells) in zip(lines, rows, strict=True):
        if len(line) > _LONGEST_CELL:
            _check_cells(cells, f"line {number}")
    return rows, steps


def _check_cells(cells: Iterable[Cell], where: str) -> None:
    """Raises InputError for a cell that is longer than any name or number."""
    longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
    if longest > _LONGEST_CELL:
        raise _too_large(f"a cell of {where}", f"{longest:,} letters", f"{_LONGEST_CELL:,}")


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file; InputError, without its name, where it cannot be read."""
    if path.is_dir():
        raise InputError("it is a folder; give the file of a curve")
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise _too_large(
                "it", f"{size / 1e6:,.0f} million bytes", f"{_LARGEST_FILE / 1e6:,.0f}"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})") from error


def _too_large(what: str, size: str, most: str) -> InputError:
    return InputError(
        f"{what} has {size}, and at most {most} are read; export fewer channels, or fewer points a second"
    )


def _decoded(content: bytes) -> tuple[str, str]:
    """Text and the name of its encoding."""
    try:
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            return content.decode("utf-16"), "UTF-16"
        # UTF-16 without its mark: every other byte of plain text is zero.
        for encoding, zeros in (("utf-16-le", content[1:400:2]), ("utf-16-be", content[:400:2])):
            if len(zeros) > 20 and zeros.count(0) > 0.9 * len(zeros):
                return content.decode(encoding), "UTF-16"
    except UnicodeDecodeError:
        raise InputError("it begins as UTF-16 text but is damaged; export it again") from None
    if b"\0" in content or re.search(rb"[\x01-\x08\x0e-\x1f]", content[:65536]):
        raise InputError("it is not a text file; a CSV table or an Excel sheet (.xlsx) is expected")
    try:
        return content.decode("utf-8-sig"), "UTF-8"
    except UnicodeDecodeError:
        japanese = content.decode("cp932", errors="replace")
        if any(name in japanese for name in _JAPANESE):
            return japanese, "Shift-JIS"
        # Older lab software writes headers such as N/mm² in this encoding.
        return content.decode("cp1252", errors="replace"), "Windows-1252 (Latin-1)"


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    """(number, line) of the lines that hold something; a quoted name with a line break inside becomes one line."""
    found: list[tuple[int, str]] = []
    lines = re.split(r"\r\n|\r|\n", text)
    inside = 0
    for i, line in enumerate(lines):
        if len(line) > _LONGEST_LINE:
            raise _too_large(f"line {i + 1}", f"{len(line):,} letters", f"{_LONGEST_LINE:,}")
        if inside:
            found[-1] = found[-1][0], f"{found[-1][1]} {line}"
            inside -= 1
        elif line.strip():
            found.append((i + 1, line))
            if i < _LAST_NAMES and line.count('"') % 2 and _OPENS.search(line):
                inside = _breaks_in_quotes(lines[i : i + _MOST_BREAKS + 1])
    return found


def _breaks_in_quotes(lines: list[str]) -> int:
    """How many lines after the first one its quotes take to close; 0 where they do not."""
    quotes = 0
    for i, line in enumerate(lines):
        quotes += line.count('"')
        if i and quotes % 2 == 0:
            return i
    return 0


def _delimiter(lines: list[str]) -> str:
    """The delimiter with which most lines hold two numbers or more; in doubt the one that is rarer in numbers."""
    sample = lines[len(lines) // 5 :][:_SAMPLE]
    scores = dict.fromkeys(DELIMITERS, 0)
    for line in sample:
        for delimiter in scores:
            if delimiter == " " or delimiter in line:
                cells = line.split(None if delimiter == " " else delimiter)
                # `1, 2` split at its space would leave `1,`.
                usable = delimiter != " " or not any(c[0] == "," or c[-1] in ",;" for c in cells)
                scores[delimiter] += usable and sum(map(_is_number, cells)) >= 2
    best = max(scores.values())
    if best == 0:  # no table; the header, if there is one, decides for the message
        return max("\t;,", key="\n".join(lines[:50]).count)
    return next(delimiter for delimiter, score in scores.items() if score >= 0.9 * best)


def _is_number(cell: str) -> bool:
    return looks_like_a_number(cell.strip().strip('"'))


def _split(line: str, delimiter: str, number: int) -> list[Cell]:
    if line.lstrip("# ").startswith("{"):  # a dict of states
        return [line]
    if delimiter == " ":
        # A unit belongs to the name before it: `Stress (MPa)`, `Stress [N / mm²]`; so do quoted words.
        cells = re.findall(
            r'"[^"]*"|(?:\[[^\[\]]*\]|\([^()]*\)|[^\s])+(?:\s+[\[(][^\[\]()]*[\])])*', line
        )
        return [cell.strip('"') for cell in cells]
    try:
        (cells,) = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        return list(cells)
    except csv.Error as error:
        if looks_like_a_number(line.split(delimiter)[0].strip(' "')):
            raise InputError(f"line {number} is not a readable row ({error})") from error
        return [line]


def is_workbook(path: pathlib.Path) -> bool:
    """Whether a file is a workbook, by its ending or its first bytes; InputError for forms that are not read."""
    ending = path.suffix.lower()
    if not path.is_file():
        return False
    with path.open("rb") as file:
        beginning = file.read(4)
    if beginning == _OLD_EXCEL or ending in (".xls", ".xlsb", ".ods"):
        if beginning not in (_OLD_EXCEL, _ZIP):
            return False  # a text file with an Excel name, as many machines write
        raise InputError("this form of workbook is not read; save it as .xlsx or as CSV")
    return ending in WORKBOOK_ENDINGS or beginning == _ZIP


def read_sheets(path: pathlib.Path, wanted: str | None = None) -> dict[str, list[Row]]:
    """Sheet name -> rows as (row number, cells), blank rows left out; only the sheet `wanted` where it is given.

    Raises:
      InputError: it is damaged, or there is no such sheet.
    """
    content = read_bytes(path)
    if not content:
        raise InputError("the file is empty; a sheet with a header row and a curve is expected")
    import openpyxl

    try:
        unpacked = sum(part.file_size for part in zipfile.ZipFile(io.BytesIO(content)).infolist())
        if unpacked > _LARGEST_FILE:
            raise _too_large(
                "it", f"{unpacked / 1e6:,.0f} million bytes unpacked", f"{_LARGEST_FILE / 1e6:,.0f}"
            )
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        names = [sheet.title for sheet in book.worksheets]
        if wanted is not None and wanted not in names:
            raise InputError(f"it has no sheet '{wanted}'{nearest(wanted, names)}")
        return {
            sheet.title: _rows(sheet)
            for sheet in book.worksheets
            if wanted is None or sheet.title == wanted
        }
    except InputError:
        raise
    except Exception as error:  # anything, from BadZipFile to KeyError, for a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"it is not a readable Excel workbook ({reason})") from error


def _rows(sheet: Any) -> list[Row]:
    """Rows of a sheet that hold something, all as long as the longest."""
    # The size that the file states may be wrong, and blank cells up to there would fill the memory.
    sheet.reset_dimensions()
    rows: list[Row] = []
    count = 0
    for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        cells = [_cell(value) for value in values]
        while cells and cells[-1] == "":
            cells.pop()
        count += len(cells)
        if count > _MOST_CELLS:
            raise _too_large(f"sheet '{sheet.title}'", "more cells", f"{_MOST_CELLS:,}")
        if cells:
            _check_cells(cells, f"row {number} of sheet '{sheet.title}'")
            rows.append((number, cells))
    width = max((len(cells) for _, cells in rows), default=0)
    if width * len(rows) > _MOST_CELLS:
        raise _too_large(
            f"sheet '{sheet.title}'", f"{width * len(rows):,} cells", f"{_MOST_CELLS:,}"
        )
    return [(number, cells + [""] * (width - len(cells))) for number, cells in rows]


def _cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value == value else ""
    return "" if value is None else str(value).strip()

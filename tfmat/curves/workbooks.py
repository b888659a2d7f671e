"""Excel workbooks as rows of cells, by pandas and openpyxl."""

import io
import pathlib

from tfmat.curves.numbers import Cell
from tfmat.curves.text_files import Row, read_bytes
from tfmat.errors import InputError, nearest

WORKBOOK_ENDINGS = (".xlsx", ".xlsm")
_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"


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
    import pandas

    try:
        sheets = pandas.read_excel(
            io.BytesIO(content), sheet_name=None, header=None, dtype=object, na_filter=False
        )
    except Exception as error:  # anything, from BadZipFile to KeyError, for a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"it is not a readable Excel workbook ({reason})") from error
    if wanted is not None:
        names = {str(name): name for name in sheets}
        if wanted not in names:
            raise InputError(f"it has no sheet '{wanted}'{nearest(wanted, names)}")
        sheets = {names[wanted]: sheets[names[wanted]]}
    return {str(name): _rows(frame.to_numpy()) for name, frame in sheets.items()}


def _rows(values: list) -> list[Row]:
    rows = [(i, [_cell(value) for value in row]) for i, row in enumerate(values, start=1)]
    return [(i, row) for i, row in rows if any(cell != "" for cell in row)]


def _cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value == value else ""
    return "" if value is None else str(value).strip()

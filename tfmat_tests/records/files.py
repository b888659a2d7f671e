"""Files as laboratories export them, made for a test."""

import pathlib

import numpy as np

from tfmat.errors import InputError
from tfmat.records.files import RecordFiles, TestFile, load_records, load_test
from tfmat.records.reading import RawCurve
from tfmat.records.record import CurveTarget, MeasuredRecord

STRAIN = np.linspace(0.0, 0.05, 20)
STRESS = 1000.0 * STRAIN


def columns(header: str, *values, separator: str = "") -> str:
    """A text table of columns; what is no sequence stands in every row. The header tells the separator."""
    separator = separator or next((s for s in ";\t" if s in header.rpartition("\n")[2]), ",")
    count = max(np.size(value) for value in values)
    cells = [[value] * count if np.ndim(value) == 0 else value for value in values]
    rows = [
        separator.join(v if isinstance(v, str) else f"{v:.8g}" for v in row)
        for row in zip(*cells, strict=True)
    ]
    return "\n".join([header, *rows]) + "\n"


def table(header: str, separator: str = ",", strain=STRAIN, stress=STRESS) -> str:
    """A text table of two columns."""
    return columns(header, strain, stress, separator=separator)


def decimal_commas(text: str) -> str:
    """Every decimal point of a table as a comma; the table must not be separated by commas."""
    header, _, rows = text.partition("\n")
    return f"{header}\n{rows.replace('.', ',')}"


def write(folder: pathlib.Path, text: str | bytes, name: str = "curve.csv") -> pathlib.Path:
    """Writes a file and returns its path."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def write_workbook(path: pathlib.Path, sheets: dict[str, list]) -> pathlib.Path:
    """An Excel workbook from rows of cells."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def sheet_rows(header=("Strain", "Stress"), units=("%", "MPa")) -> list:
    """Rows of a sheet: names, units, and a curve in percent and MPa."""
    curve = [[100 * e, s] for e, s in zip(STRAIN.tolist(), STRESS.tolist(), strict=True)]
    return [list(header), list(units), *curve]


def checked(curve: RawCurve, strain=STRAIN, stress=STRESS, rtol=1e-7) -> RawCurve:
    """The curve, which has these strains and these stresses in MPa, to the digits of a table."""
    np.testing.assert_allclose(curve.strain, strain, rtol)
    np.testing.assert_allclose(curve.stress_mpa, stress, rtol)
    return curve


def load_measured_curves(
    paths, target: CurveTarget, options=None, cleaning=None
) -> tuple[list[MeasuredRecord], list[InputError]]:
    """The curves of files, and an error for each bad one."""
    files = [TestFile("monotonic", str(path)) for path in paths]
    records = [RecordFiles("", (file,), apart=True) for file in files]
    return load_records(records, target, options, cleaning=cleaning)


def load_file(path, target: CurveTarget, options=None, cleaning=None) -> list[MeasuredRecord]:
    """The curves of a file that can be read."""
    tests = load_test(TestFile("monotonic", str(path)), target, options, cleaning)
    return [MeasuredRecord(test.name, [test]) for test in tests]


def load_measured_curve(path, target: CurveTarget, options=None) -> MeasuredRecord:
    """The only curve of a file."""
    (curve,) = load_file(path, target, options)
    return curve

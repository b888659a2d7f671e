"""Files that fill the memory or the time: each is read at once, or refused in one line."""

import zipfile

import pytest

from tfmat.errors import InputError
from tfmat.records import tables
from tfmat.records.files import RecordFiles, TestFile, load_records
from tfmat.records.reading import read_curves
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import sheet_rows, table, write, write_workbook

LONG = 20_000
SHEAR = CurveTarget(200, 1.0, (0.01, 0.05), 140.0, "engineering shear", "shear")
OGDEN = CurveTarget.of_tests(CurveSettings(law="ogden").build_law())


def read(path, target):
    """Answers and errors of a file, for a law of curves or of tests."""
    test = "monotonic" if target is SHEAR else "uniaxial"
    return load_records([RecordFiles("a", (TestFile(test, str(path)),), apart=True)], target)


@pytest.mark.parametrize(
    "header",
    [
        "strain" + "_" * 60 + "x,stress",
        "strain" + "_" * LONG + "x,stress",
        "strain,stress" + " in" * LONG,
        "strain,stress" + "a/" * LONG,
        "strain " + "[" * LONG + ",stress",
        "strain " + "(a) " * LONG + ",stress",
        "strain" + " " * LONG + "%,stress",
        "strain,stress " + "1" * LONG + "x",
        "strain,stress x" + "10" * LONG,
        "note: " + "= " * LONG + "\nstrain,stress",
        "{" * LONG + "\nstrain,stress",
    ],
)
def test_any_header_is_split_at_once(tmp_path, header):
    """Searches that try every way to divide such a line would not end today."""
    path = write(tmp_path, table(header))
    for law in (SHEAR, OGDEN):
        answers, errors = read(path, law)
        assert len(answers) + len(errors) == 1
        assert all(len(str(error)) < len(str(path)) + 1000 for error in errors)


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        ("1" * LONG + "x", False),
        ("1." * LONG + "x", False),
        ("1e" * LONG, False),
        ("1d" * LONG, False),
        ("1" * LONG, True),
        (" 1" * LONG + ",", False),
        ("." * LONG, False),
        ("+1" * LONG, False),
    ],
)
def test_any_cell_is_a_number_or_none_at_once(cell, is_number):
    assert tables.looks_like_a_number(cell) == is_number


@pytest.mark.parametrize("opening", ["[", "(", '"', "[(", "a [", " ["])
def test_any_line_of_words_is_split_at_once(opening):
    assert tables._split(opening * LONG, " ", 1)


def test_a_cell_a_line_a_file_and_a_sheet_have_limits(tmp_path, monkeypatch):
    good = table("strain,stress")
    for name, most, text, said in (
        ("_LONGEST_CELL", 50, f"note,{'x' * 51}\n{good}", "a cell of line 1 has 51 letters"),
        ("_LONGEST_LINE", 100, f"{good}{'1,' * 60}\n", "line 22 has 120 letters"),
        ("_LARGEST_FILE", 300, good, "million bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(tables, name, most)
            with pytest.raises(InputError, match=said) as error:
                read_curves(write(tmp_path, text))
            assert "are read; export fewer channels" in str(error.value)
        assert len(read_curves(write(tmp_path, good))) == 1


def test_a_workbook_has_limits(tmp_path, monkeypatch):
    path = write_workbook(tmp_path / "a.xlsx", {"S": sheet_rows()})
    for name, most, said in (
        ("_MOST_CELLS", 20, "sheet 'S' has"),
        ("_LONGEST_CELL", 3, "a cell of row 1 of sheet 'S' has 6 letters"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(tables, name, most)
            with pytest.raises(InputError, match=said):
                read_curves(path)
    packed = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/sharedStrings.xml", "x" * 1_000_000)
    monkeypatch.setattr(tables, "_LARGEST_FILE", 500_000)
    with pytest.raises(InputError, match="million bytes unpacked"):
        read_curves(packed)


def test_a_sheet_with_one_cell_far_away_is_read_without_the_blank_ones(tmp_path):
    import openpyxl

    path = write_workbook(tmp_path / "far.xlsx", {"S": sheet_rows()})
    book = openpyxl.load_workbook(path)
    book["S"]["XFD1048576"] = None
    book["S"]["C300000"] = ""
    book.save(path)
    (curve,) = read_curves(path)
    assert len(curve.strain) == 20

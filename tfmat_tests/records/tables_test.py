"""Files as tables: each that is no curve gets one clear line, and none fills the memory or the time."""

import datetime
import json
import re
import zipfile

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records import reading, tables
from tfmat.records.files import RecordFiles, TestFile, load_records
from tfmat.records.reading import ReadingOptions, read_curves
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import (
    STRAIN,
    STRESS,
    checked,
    columns,
    load_measured_curves,
    sheet_rows,
    table,
    write,
    write_workbook,
)

# Each kind of file that is no curve gets one clear line that names the file and says what to do.


SHEAR = CurveTarget(200, 1.0, (0.01, 0.05), 140.0, "engineering shear", "shear")
GOOD = table("strain,stress")
ROWS = GOOD.split("\n", 1)[1]

BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "the file is empty"),
    "blank": ("\n \n", "the file is empty"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0\0", "not a text file"),
    "damaged utf-16": (b"\xff\xfes\0t\0r", "damaged"),
    "prose": ("Dear colleague,\nplease find the curve attached.\n", "no table of numbers"),
    "web page": ("<html><body><p>404</p></body></html>\n", "no table of numbers"),
    "one column": ("stress\n" + "1\n" * 20, "one column of numbers"),
    "no header, percent or not": (table("", strain=100 * STRAIN).strip(), "no header"),
    "header only": ("strain,stress\n", "0 points"),
    "nine points": ("\n".join(GOOD.splitlines()[:10]), "9 points"),
    "nan": (GOOD + "nan,3\n", "line 22, column 'strain': 'nan'; every value must be finite"),
    "infinite": (GOOD + "1,inf\n", "line 22, column 'stress': 'inf'"),
    "word": (GOOD + "0.06,broken\n", "line 22, column 'stress': 'broken' is not a number"),
    "remark": (f"{GOOD}0.06,60\npause\n0.07,70\n", "line 23, column 'strain': 'pause' is not"),
    "excel error": (GOOD + "#DIV/0!,3\n", "line 22"),
    "missing value": (GOOD + "0.06,\n", "line 22, column 'stress': no value"),
    "short row": (GOOD + "0.06\n", "line 22, column 'stress': no value"),
    "long row": (GOOD + "0,06,60,1\n", "line 22 has 4 values, the header names 2"),
    "commas between commas": (
        "strain,stress\n" + "".join(f"0,{i:02},{i},5\n" for i in range(20)),
        "use semicolons",
    ),
    "two decimal marks": (table("strain;stress", ";") + "0,06;60\n", "mixes decimal points"),
    "two decimal marks, the comma first": (
        table("strain;stress", ";").replace(".", ",") + "0.06;60\n",
        "mixes decimal points",
    ),
    "comma or thousands": (
        "strain;stress\n" + "".join(f"{i};{i},125\n" for i in range(1, 20)),
        "'1,125' may be a decimal comma or a separator of thousands",
    ),
    "units without names": ("mm,MPa\n" + ROWS, "line 1 holds units"),
    "unclosed quote": (GOOD + '"0.06,60\n', "line 22 is not a readable row"),
    "two strains": (table("strain a,strain b"), "several columns could be the strain (strain a, strain b)"),
    "two strains and no stress": (
        table("strain a,strain b"),
        "one of the numbers 1, 2; no column is named as a stress",
    ),
    "no stress": (table("strain,temperature"), "(columns: strain, temperature); set --stress_col"),
    "no strain": (table("time,stress"), "no column is named as a strain"),
    "repeated": (table("strain,strain"), "appears more than once"),
    "unknown unit": (table("strain,stress [psf]"), "unknown stress unit 'psf' in column"),
    "ton over an area": (table("strain,stress (t/cm2)"), "unknown stress unit 't/cm2'"),
    "factor in brackets": (table("strain (0.001),stress"), "'0.001' may be a factor"),
    "factor before a unit": (table("strain (0.1 %),stress"), "'0.1' may be a factor"),
    "unit of another quantity": (table("strain,stress [mm]"), "unknown stress unit 'mm'"),
    "load without area": (table("strain,load [kN]"), "--area=MM2"),
    "load without unit": (table("strain,load"), "column 'load' has no unit"),
    "displacement without length": (table("displacement [mm],stress"), "--gauge_length=MM"),
    "constant strain": (table("strain,stress", strain=0 * STRAIN + 0.01), "rises at 1 points"),
    "falling strain": (table("strain,stress", strain=0.06 - STRAIN), "rises at 1 points"),
    "no strain at all": (table("strain,stress", strain=0 * STRAIN), "never rise"),
    "constant stress": (table("strain,stress", stress=0 * STRESS + 5), "same at every point"),
    "pascals taken for MPa": (table("strain,stress", stress=1e6 * STRESS), "largest trained"),
    "percent taken for strain": (table("strain,stress", strain=1000 * STRAIN), "--strain_unit=%"),
    "short specimen": (
        "specimen,strain,stress\n"
        + "".join(f"A,{e},{s}\n" for e, s in zip(STRAIN, STRESS, strict=True))
        + "B,0,0\nB,1,1\n",
        "specimen 'B' has 2 points",
    ),
    "nameless specimen": (
        "specimen,strain,stress\n"
        + "".join(f"A,{e},{s}\n" for e, s in zip(STRAIN, STRESS, strict=True))
        + ",0.06,60\n",
        "line 22, column 'specimen': no specimen",
    ),
}  # fmt: skip
BAD_WORKBOOKS: dict[str, tuple[dict[str, list], str]] = {
    "empty sheet": ({"S": []}, "sheet 'S': the sheet is empty"),
    "no table": ({"S": [["a", "b"], ["c", "d"]]}, "sheet 'S': it has 0 points"),
    "word in a cell": (
        {"S": [*sheet_rows(), ["slipped", 3.0], [9.0, 95.0]]},
        "row 23, column 'Strain': 'slipped' is not a number",
    ),
    "no strain": ({"S": sheet_rows(("Time", "Stress"), ("s", "MPa"))}, "named as a strain"),
    "one column": ({"S": [[float(i)] for i in range(20)]}, "one column of numbers"),
    "no curve in any sheet": (
        {"A": sheet_rows(("Time", "Load"), ("s", "N")), "B": sheet_rows(("t", "F"), ("s", "N"))},
        "none of its sheets has a strain and a stress column",
    ),
}


def the_error(path, **options) -> str:
    curves, errors = load_measured_curves([path], SHEAR, ReadingOptions(**options))
    assert curves == []
    (error,) = errors
    text = str(error)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < len(str(path)) + 330
    return text


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file_gets_one_line_that_names_it(tmp_path, kind):
    content, expected = BAD_FILES[kind]
    assert expected in the_error(write(tmp_path, content))


@pytest.mark.parametrize("kind", BAD_WORKBOOKS)
def test_bad_workbook_gets_one_line_that_names_it(tmp_path, kind):
    sheets, expected = BAD_WORKBOOKS[kind]
    assert expected in the_error(write_workbook(tmp_path / "curve.xlsx", sheets))


def test_missing_file_folder_and_what_only_looks_like_excel(tmp_path):
    assert "no such file" in the_error(tmp_path / "none.csv")
    assert "no such file" in the_error(tmp_path / "none.xlsx")
    assert "is a folder" in the_error(tmp_path)
    assert "not a readable Excel" in the_error(write(tmp_path, b"PK\x03\x04 no zip", "a.xlsx"))
    assert "the file is empty" in the_error(write(tmp_path, b"", "b.xlsx"))
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100
    assert "save it as .xlsx" in the_error(write(tmp_path, old, "c.xls"))
    good = write_workbook(tmp_path / "d.xlsx", {"Curve": sheet_rows()})
    assert "no sheet 'Curvr'; did you mean 'Curve'?" in the_error(good, sheet="Curvr")
    assert "leave --sheet out" in the_error(write(tmp_path, GOOD), sheet="A")


GOOD_ROWS = GOOD.strip().split("\n")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([GOOD_ROWS[0], "------,-----", *GOOD_ROWS[1:]], ""),
        ([*GOOD_ROWS[:9], "---,---", *GOOD_ROWS[9:]], "1 rows without numbers, from line 10"),
        ([*GOOD_ROWS[:9], "OL,OL", "-1.#IND,-1.#IND", *GOOD_ROWS[9:]], "left out 2 rows"),
        ([*GOOD_ROWS[:9], "****,****", *GOOD_ROWS[9:]], "from line 10 on (**** ****)"),
        ([*GOOD_ROWS[:9], f"{GOOD_ROWS[9]},it creaks", *GOOD_ROWS[10:]], "remark in line 10 (it c"),
        ([*GOOD_ROWS, "", "End of test", "Greatest stress: 50 MPa", "% tested by,12,13"], ""),
        ([*GOOD_ROWS, "% end,,", "// 12 kN, 3 mm, 4"], ""),
        (["|".join(["", *row.split(","), ""]) for row in GOOD_ROWS], "separated by vertical bar"),
        ([f"|{row.replace(',', '|')}|" for row in (GOOD_ROWS[0], "---:,---:", *GOOD_ROWS[1:])], ""),
        (["strain\tstress", *[row.replace(",", " mm/mm\t") + " MPa" for row in GOOD_ROWS[1:]]], ""),
    ],
)
def test_lines_that_are_drawn_remarks_and_cells_without_numbers_are_left_out(tmp_path, rows, said):
    curve = checked(*read_curves(write(tmp_path, "\n".join(rows))))
    assert said in curve.steps[0]


def test_many_rows_without_numbers_are_refused(tmp_path):
    path = write(tmp_path, "\n".join([*GOOD_ROWS[:9], *["OL,OL"] * 3, *GOOD_ROWS[9:]]))
    assert "3 rows between its 20 others hold no numbers, from line 10 on (OL OL)" in the_error(
        path
    )


def test_wrong_choices_name_what_there_is(tmp_path):
    path = write(tmp_path, GOOD)
    found = the_error(path, strain_column="strian")
    assert "no column 'strian' for the strain; did you mean 'strain'?" in found
    assert "it has 2 columns, counted from 1" in the_error(path, strain_column="3")
    assert "cannot be both strain and stress" in the_error(path, strain_column="stress")
    assert "for the specimen" in the_error(path, specimen_column="name")


def test_a_broken_row_in_a_long_file_is_found_by_its_line(tmp_path):
    rows = [f"{i / 1e4:.4f};{i}" for i in range(500)]
    rows[300] = "0.03;3oo"
    text = "Head: 1\n\nstrain;stress\n%;MPa\n" + "\n".join(rows)
    assert "line 305, column 'stress': '3oo' is not a number" in the_error(write(tmp_path, text))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("a,b", "named as a strain or a stress (columns: a, b); set --strain_column and --stress_c"),
        ("Extension,Load", "--strain_unit, mm or in, and give its length with --gauge_length=MM"),
        ("Extension,Load", "--stress_unit, N, kN or lbf, and give its cross-section with --area=MM2"),
        ("Extension [mm],Load", "--gauge_length=MM, or the strain with --strain_column; column 'Load' has"),
    ],
)  # fmt: skip
def test_everything_that_is_missing_is_said_at_once(tmp_path, header, expected):
    assert expected in the_error(write(tmp_path, table(header)))


# Files that fill the memory or the time: each is read at once, or refused in one line.


LONG = 20_000
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


@pytest.mark.parametrize(
    "line", ["a:" + "1" * LONG, "a=1 " * LONG, "a: 1 b" + " " * LONG + "c", "a 1" + "1x" * LONG]
)
def test_any_line_of_sizes_is_read_at_once(line):
    tables._notes([(1, [line])])
    assert tables.find_size(line[4:], {"mm": 1.0}) is None
    assert reading._PRODUCT.match(f"1{' ' * LONG}b") is None


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


@pytest.mark.parametrize("header", [("Strain", "Stress (MPa)"), ("Strain (%)", "Stress (MPa)")])
@pytest.mark.parametrize("units", [None, ("%", "MPa")])
def test_a_number_that_a_sheet_shows_in_percent_is_one(tmp_path, header, units):
    """Excel keeps 0.05 where it shows 5 %: below `Strain (%)` it was taken for 0.05 %."""
    import openpyxl

    path = write_workbook(tmp_path / "shown.xlsx", {"S": sheet_rows(header, units or ())})
    book = openpyxl.load_workbook(path)
    for (cell,) in book["S"].iter_rows(min_row=3, max_col=1):
        cell.value, cell.number_format = 1e-6 + cell.value / 100, "0.00%"
    if units is None:
        book["S"].delete_rows(2)
    book.save(path)
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN + 1e-6, rtol=1e-9)
    assert not any(said.startswith("strain") for said in curve.assumed)


def test_a_number_that_a_sheet_shows_in_percent_may_stand_beside_a_time_of_the_day(tmp_path):
    import openpyxl

    start = datetime.datetime(2024, 3, 4, 10, 2)
    times = [start + datetime.timedelta(seconds=0.5 * i) for i in range(len(STRAIN))]
    rows = zip(times, STRAIN.tolist(), STRESS.tolist(), strict=True)
    path = write_workbook(tmp_path / "a.xlsx", {"S": [("Zeit", "Dehnung", "Spannung"), *rows]})
    book = openpyxl.load_workbook(path)
    for (cell,) in book["S"].iter_rows(min_row=2, min_col=2, max_col=2):
        cell.number_format = "0.000%"
    book.save(path)
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-9)


@pytest.mark.parametrize(
    "head",
    [
        "X_Value,Load,Strain\nunit,N,%",
        "Y_Unit_Label,N,%\nX_Dimension,Time,Time\n***End_of_Header***\nX_Value,Load,Strain",
        "Time,Load (N),Strain (%)\n,,",
        "Energy,Load,Strain\nJ,N,%",
    ],
)
def test_units_behind_a_word_and_rows_of_separators_alone(tmp_path, head):
    path = write(tmp_path, columns(head, 0, 20 * STRESS, 100 * STRAIN))
    checked(*read_curves(path, ReadingOptions(area=20.0)))


def test_units_behind_numbers_below_a_row_of_units(tmp_path):
    rows = "".join(f"{1e2 * e:.8e} %;{s:.8f}\n" for e, s in zip(STRAIN, STRESS, strict=True))
    checked(*read_curves(write(tmp_path, f"Strain;Stress\n%;kPa\n{rows}")), STRAIN, STRESS / 1000.0)


@pytest.mark.parametrize(
    ("header", "number_format", "factor"),
    [
        ("Strain", '0.000" %"', 100.0),  # a sign that a user wrote, and no factor
        ("Strain (%)", "0.00%", 1.0),
        ("Strain", '0.0" µm/m"', 1e6),
        ("Strain (%)", "0.000,", 1e5),  # shown in thousands
    ],
)
def test_numbers_are_read_as_their_sheet_shows_them(tmp_path, header, number_format, factor):
    import openpyxl

    rows = zip((factor * STRAIN).tolist(), STRESS.tolist(), strict=True)
    path = write_workbook(tmp_path / "a.xlsx", {"S": [(header, "Stress (MPa)"), *rows]})
    book = openpyxl.load_workbook(path)
    for (cell,) in book["S"].iter_rows(min_row=2, max_col=1):
        cell.number_format = number_format
    book.save(path)
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-9)


def test_a_column_of_percents_and_plain_numbers_is_refused(tmp_path):
    percent = [f"{100 * e:.6f}{' %' if i < 15 else ''}" for i, e in enumerate(STRAIN)]
    path = write(tmp_path, columns("Strain,Stress (MPa)", percent, STRESS))
    with pytest.raises(InputError, match="has no unit, and other numbers of its column are in '%'"):
        read_curves(path)


def test_hidden_rows_and_formulas_without_values_are_refused(tmp_path):
    import openpyxl

    path = write_workbook(tmp_path / "a.xlsx", {"S": sheet_rows()})
    book = openpyxl.load_workbook(path)
    book["S"].auto_filter.ref = "A2:B22"
    book["S"].auto_filter.add_filter_column(0, ["1"])
    book["S"].row_dimensions[5].hidden = True
    book.save(path)
    with pytest.raises(InputError, match="sheet 'S' hides 1 rows by a filter"):
        read_curves(path)
    book["S"].auto_filter.filterColumn.clear()
    book.save(path)
    with pytest.raises(InputError, match="sheet 'S' hides 1 rows of numbers; show them if they"):
        read_curves(path)
    book["S"].row_dimensions[5].hidden = False
    book["S"].row_dimensions[2].hidden = True  # the row of units
    book.save(path)
    read_curves(path)
    formulas = [(e, f"=A{i}*2e5") for i, e in enumerate(STRAIN.tolist(), start=2)]
    path = write_workbook(tmp_path / "b.xlsx", {"S": [("Strain", "Stress (MPa)"), *formulas]})
    with pytest.raises(InputError, match="holds formulas without their values; open it in"):
        read_curves(path)


def change_sheet(path, change) -> tuple[str, str]:
    """Changes the XML of a workbook's first sheet; the text before and after."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    before = parts[sheet].decode()
    parts[sheet] = change(before).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return before, parts[sheet].decode()


def test_formulas_that_show_nothing_are_blank_cells(tmp_path):
    """Excel writes an empty text as the value of `=IF(A2="","",A2)`."""
    points = zip(STRAIN.tolist(), STRESS.tolist(), strict=True)
    rows = [(e, s, f'=IF(A{i}="","","")') for i, (e, s) in enumerate(points, start=2)]
    path = write_workbook(tmp_path / "a.xlsx", {"S": [("Strain", "Stress (MPa)", "Note"), *rows]})
    change_sheet(path, lambda xml: xml.replace('"><f>', '" t="str"><f>'))
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN)


# Each changes a sheet's XML so that not all of its rows may be taken for what they look like.
CHANGES = {
    "as it is": lambda xml: xml,
    "cells without names": lambda xml: re.sub(r'<c r="[A-Z]+\d+"', "<c", xml),
    "rows and cells without names": lambda xml: re.sub(r'<(row|c) r="\w+"', r"<\1", xml),
    "comment": lambda xml: xml.replace(
        "<sheetData>", '<sheetData><!--<row r="1"><c r="A1"><v>9</v></c></row>-->'
    ),
    "other prefix": lambda xml: re.sub(r"<(/?)(?=\w)", r"<\1x:", xml).replace("xmlns=", "xmlns:x="),
    "formulas": lambda xml: xml.replace("<v>7</v>", "<f>3+4</f><v>7</v>"),
    "cells in another order": lambda xml: re.sub(
        r'(<c r="A9".*?</c>)(<c r="B9".*?</c>)', r"\2\1", xml
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_numbers_are_read_as_openpyxl_reads_them(tmp_path, change):
    """The reference is openpyxl's other reader, which makes a whole sheet of cells."""
    import openpyxl

    day = datetime.datetime(2024, 3, 4, 10, 2)
    rows = [["Time", "Strain", "Remark"], [], [1, 0.5], [-2.5e-7, 1e20, 7], [day, 3], [None, 4.5]]
    rows += [[None], [5, "text"], [7, 8, 7], [True, 1], [0.25, 7, 1.0]]
    path = write_workbook(tmp_path / "a.xlsx", {"S": rows, "Other": [[1, 2], [3, 4]]})
    book = openpyxl.load_workbook(path)
    book["S"]["B9"].number_format, book["S"]["A11"].number_format = "0.0%", "h:mm"
    book["S"]["AB20"] = 7
    book.save(path)
    before, after = change_sheet(path, CHANGES[change])
    assert (before == after) == (change == "as it is")
    for sheet in openpyxl.load_workbook(path, data_only=True):
        expected = {
            cell.coordinate: f"{100 * cell.value:g} %" if "%" in cell.number_format else cell.value
            for row in sheet.iter_rows()
            for cell in row
            if cell.value is not None
        }
        found = {
            f"{openpyxl.utils.get_column_letter(i)}{number}": cell
            for number, cells in tables.read_sheets(path)[sheet.title]
            for i, cell in enumerate(cells, start=1)
            if cell != ""
        }
        is_number = {key: isinstance(value, float) for key, value in found.items()}
        assert found == {k: v if is_number.get(k) else str(v) for k, v in expected.items()}


def test_a_sheet_of_another_namespace_is_not_read_in_part(tmp_path):
    """openpyxl finds none of its rows: its numbers alone would stand there without their names."""
    path = write_workbook(tmp_path / "a.xlsx", {"S": sheet_rows()})
    strict = "http://purl.oclc.org/ooxml/spreadsheetml/main"
    change_sheet(path, lambda xml: re.sub('xmlns="[^"]*"', f'xmlns="{strict}"', xml))
    with pytest.raises(InputError, match="empty"):
        read_curves(path)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("valid", "True", "False"),
        ("Exclude?", "", "x"),
        ("Status", "OK", "BAD"),
        ("Gültig", "1", "0"),
    ],
)
def test_rows_that_a_column_marks_are_left_out(tmp_path, name, good, bad):
    kept = np.arange(len(STRAIN)) % 7 > 0
    values = STRAIN, np.where(kept, STRESS, 3 * STRESS), np.where(kept, good, bad)
    path = write(tmp_path, columns(f"Strain,Stress (MPa),{name}", *values))
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.stress_mpa, STRESS[kept])
    assert f"left out 3 rows that column '{name}' marks" in curve.steps[0]
    path = write(tmp_path, path.read_text().replace(f",{bad}\n", ",Stage 2\n"))
    assert len(read_curves(path)[0].strain) == len(STRAIN)


@pytest.mark.parametrize(
    "head",
    [
        "  Axial Strain   Axial Stress\n     (mm/mm)          (MPa)",
        "strain      stress\n(x10^-3)    (MPa)",
        "# Axial Strain   Mean Stress (MPa)",
    ],
)
def test_names_of_several_words_over_a_table_of_blanks(tmp_path, head):
    factor = 1e3 if "10^-3" in head else 1.0
    rows = [f"{e:14.8g}  {s:14.8g}" for e, s in zip(factor * STRAIN, STRESS, strict=True)]
    checked(*read_curves(write(tmp_path, "\n".join([head, *rows]))))


def test_a_table_with_a_row_for_each_channel_is_turned(tmp_path):
    names = ["Strain (%)", "Stress (MPa)"]
    points = zip(100 * STRAIN, STRESS, strict=True)
    path = write(tmp_path, columns("Specimen: A1", names, *points, separator=";"))
    assert "took each line as a column" in checked(*read_curves(path)).steps[0]
    numbers = range(1, len(STRAIN) + 1)
    rows = [
        ["Channel", "Unit", *numbers],
        ["Load", "kN", *(0.08 * STRESS).tolist()],
        ["Strain", "%", *(100 * STRAIN).tolist()],
    ]
    path = write_workbook(tmp_path / "a.xlsx", {"S": rows})
    (curve,) = read_curves(path, ReadingOptions(area=80.0))
    np.testing.assert_allclose(curve.stress_mpa, STRESS)


def test_columns_that_the_head_lists_by_number(tmp_path):
    head = "Instrument\tDMA\nNsig\t2\nSig1\tStress (GPa)\nSig2\tStrain (%)\nStartOfData"
    path = write(tmp_path, table(head, "\t", STRESS, 100 * STRAIN))
    checked(*read_curves(path), STRAIN, 1000.0 * STRESS)


def test_units_that_another_sheet_tells(tmp_path):
    points = zip((100 * STRAIN).tolist(), (0.08 * STRESS).tolist(), strict=True)
    sheets = {
        "Info": [["Channel", "Unit", "Sensor"], ["Force", "kN", "LC 100"], ["Dehnung", "%", "B1"]],
        "Data": [["Dehnung", "Force"], *map(list, points)],
    }
    path = write_workbook(tmp_path / "a.xlsx", sheets)
    curve = checked(*read_curves(path, ReadingOptions(area=80.0)))
    assert "the unit of 'Force' from sheet 'Info'" in curve.steps[0]
    sheets["More"] = [["Force", "N"]]
    with pytest.raises(InputError, match="column 'Force' has no unit"):
        read_curves(write_workbook(tmp_path / "b.xlsx", sheets), ReadingOptions(area=80.0))


def test_a_latex_table_is_read(tmp_path):
    rows = [f"{100 * e:.8g} & {s:.8g} \\\\" for e, s in zip(STRAIN, STRESS, strict=True)]
    head = "\\begin{tabular}{cc}\n\\toprule\n$\\varepsilon$ (\\%) & $\\sigma$ (MPa) \\\\ \\midrule"
    text = "\n".join(["\\caption{Bar 7}", head, *rows, "\\bottomrule", "\\end{tabular}"])
    checked(*read_curves(write(tmp_path, text, "a.tex")))


_LISTS = {"strain": (100 * STRAIN).tolist(), "stress": (STRESS / 1000).tolist()}
_UNITS = {"strain": "%", "stress": "GPa"}


@pytest.mark.parametrize(
    "content",
    [
        {"strain (%)": _LISTS["strain"], "stress (GPa)": _LISTS["stress"]},
        {"name": "A1", "units": _UNITS, **_LISTS},
        {"test": {"data": {"Strain [%]": _LISTS["strain"], "Stress [GPa]": _LISTS["stress"]}}},
        [
            {"strain_%": e, "stress_GPa": s}
            for e, s in zip(_LISTS["strain"], _LISTS["stress"], strict=True)
        ],
        {f"{k} ({_UNITS[k]})": {str(i): v for i, v in enumerate(_LISTS[k])} for k in _LISTS},
        {
            "columns": ["strain_%", "stress_GPa"],
            "index": [*range(20)],
            "data": [*zip(*_LISTS.values(), strict=True)],
        },
        {
            str(i): {"strain_%": e, "stress_GPa": s}
            for i, (e, s) in enumerate(zip(*_LISTS.values(), strict=True))
        },
        {"test": "A1", **{k: {"unit": _UNITS[k], "values": _LISTS[k]} for k in _LISTS}},
    ],
    ids=["lists", "units", "deeper", "objects", "columns", "split", "index", "values"],
)
def test_lists_of_a_json_file_are_columns(tmp_path, content):
    checked(*read_curves(write(tmp_path, json.dumps(content), "a.json")))


def test_specimens_of_a_json_file_are_curves_of_their_own(tmp_path):
    one, two = ({"strain": STRAIN.tolist(), "stress": (k * STRESS).tolist()} for k in (1, 2))
    for content in ({"A1": one, "A2": two}, [{"name": "A1", **one}, {"name": "A2", **two}]):
        first, second = read_curves(write(tmp_path, json.dumps(content), "a.json"))
        assert (first.name, second.name) == ("a_A1", "a_A2")
        np.testing.assert_allclose(second.stress_mpa, 2 * STRESS)


@pytest.mark.parametrize(
    ("strain", "stress", "given", "measure"),
    [
        ("LE:LE22 PI: PART-1-1 E: 1 IP: 1", "S:S22 SP:1 PI: PART-1-1 E: 1", {}, "true"),
        ("NE:NE22 PI: P E: 1 IP: 1", "S:S22 PI: P E: 1", {}, "engineering"),
        ("E:E22 PI: P E: 1 IP: 1", "S:S22 PI: P E: 1", {}, None),
        (
            "U:U2 PI: P N: 5",
            "RF:RF2 PI: P N: 5",
            {"area": 1.0, "gauge_length": 1.0, "strain_unit": "mm", "stress_unit": "N"},
            "engineering",
        ),
    ],
)
def test_a_report_of_abaqus_is_read(tmp_path, strain, stress, given, measure):
    names = f"{'X':>17}{strain:>39}{stress:>39}"
    rows = [
        f"{i:>17.6E}{e:>39.6E}{s:>39.6E}"
        for i, (e, s) in enumerate(zip(STRAIN, STRESS, strict=True))
    ]
    path = write(tmp_path, "\n".join(["", names, "", *rows, ""]), "a.rpt")
    (curve,) = read_curves(path, ReadingOptions(**given))
    assert checked(curve, rtol=1e-6).strain_measure == measure


def force_and_travel(area: float) -> list:
    """Rows of a force (N) and a travel (mm) of a specimen of 50 mm."""
    return [list(row) for row in zip((area * STRESS).tolist(), (50 * STRAIN).tolist(), strict=True)]


@pytest.mark.parametrize(
    "head",
    [
        ["Thickness,Width,Gauge_Length", "2.0,6.0,50", "mm,mm,mm"],
        ["Name,Thickness,Width,Gauge_Length", "Unit,mm,mm,mm", "1 _ 1,2.0,6.0,50"],
        ["Prüfling,S0 [mm²],L0 [mm],Fm [N]", "A1,12,50,600"],
    ],
)
def test_sizes_of_a_table_in_the_head_are_read(tmp_path, head):
    rows = [",".join(f"{cell:.8g}" for cell in row) for row in force_and_travel(12.0)]
    lines = ["Test,7", *head, "Force,Extension", "N,mm", *rows]
    checked(*read_curves(write(tmp_path, "\n".join(lines))))


def test_every_specimen_has_the_sizes_of_its_row_of_results(tmp_path):
    sheets = {
        "Ergebnisse": [
            ["Legende", "S0", "L0", "Fm"],
            ["", "mm²", "mm", "N"],
            ["Probe 2", 24.0, 50.0, 1200.0],
            ["Probe 1", 12.0, 50.0, 600.0],
            ["Mittel", 18.0, 50.0, 900.0],
        ],
        **{
            f"Probe {n}": [["Standardkraft", "Standardweg"], ["N", "mm"], *force_and_travel(12 * n)]
            for n in (1, 2)
        },
    }
    curves = read_curves(write_workbook(tmp_path / "a.xlsx", sheets))
    assert len(curves) == 2
    for curve in curves:
        np.testing.assert_allclose(curve.strain, STRAIN)
        np.testing.assert_allclose(curve.stress_mpa, STRESS)
    # A row that names no sheet is of none of them.
    sheets["Ergebnisse"][2][0] = sheets["Ergebnisse"][3][0] = "Charge 7"
    with pytest.raises(InputError, match="give its length with --gauge_length=MM"):
        read_curves(write_workbook(tmp_path / "b.xlsx", sheets))


def test_segments_of_a_labview_file_are_one_table(tmp_path):
    parts = ["LabVIEW Measurement\nX_Columns\tMulti\n***End_of_Header***\n"]
    for i in (range(10), range(10, 20)):
        parts += [
            "Channels\t2\t\nSamples\t10\t10\nDate\t2026/11/28\t2026/11/28\nY_Unit_Label\t%\tGPa",
            "X0\t0\t0\nDelta_X\t1\t1\n***End_of_Header***\t\t\nX_Value\tStrain\tStress",
            *(f"{k}\t{100 * STRAIN[k]:.8g}\t{STRESS[k]:.8g}" for k in i),
        ]
    checked(*read_curves(write(tmp_path, "\n".join(parts), "a.lvm")), STRAIN, 1000.0 * STRESS)


@pytest.mark.parametrize(
    ("head", "separator", "strain", "stress"),
    [
        # Divided otherwise than the numbers.
        ("# strain [%], stress [MPa]", " ", 0.01, 1),
        ("Strain (%) ; Stress (MPa)", "\t", 0.01, 1),
        ("Strain, %,Stress, MPa", ",", 0.01, 1),
        ("% strain,stress\n%,MPa", ",", 0.01, 1),
        ("%;N/mm²", ";", 0.01, 1),
        # Names behind signs of comments, and as programs write them.
        ("% strain stress", " ", 1, 1),
        ("% Test 7\n% strain\tstress", "\t", 1, 1),
        ("// strain stress", " ", 1, 1),
        ("! strain;stress", ";", 1, 1),
        ("Strain..mm.mm.,Stress..N.mm2.", ",", 1, 1),
        ("Strain [mm·mm⁻¹],Stress [N·mm⁻²]", ",", 1, 1),
        # Units of lengths over lengths in powers.
        ("Strain [µm·m^-1],Stress [GN/m²]", ",", 1e-6, 1e3),
        # Comments below names and units.
        ("Strain\tStress\n%\tGPa\nP3\tP3", "\t", 0.01, 1e3),
        ("Strain\tStress\n%\tGPa\n\tP3", "\t", 0.01, 1e3),
    ],
)
def test_names_and_units_above_a_table(tmp_path, head, separator, strain, stress):
    curves = read_curves(write(tmp_path, table(head, separator)))
    checked(*curves, strain * STRAIN, stress * STRESS)


def test_numbers_of_rows_need_no_name(tmp_path):
    """R's `write.table` and pandas' `to_string` name one column less than they write."""
    points = list(enumerate(zip(STRAIN, STRESS, strict=True), start=1))
    rows = [f'"{i}" {e:.8g} {s:.8g}' for i, (e, s) in points]
    (curve,) = read_curves(write(tmp_path, "\n".join(['"strain" "stress"', *rows])))
    np.testing.assert_allclose(curve.strain, STRAIN)
    rows = [f"{7 * i} {e:.8g} {s:.8g}" for i, (e, s) in points]
    with pytest.raises(InputError, match="names 2 columns, the rows below it have 3 values"):
        read_curves(write(tmp_path, "\n".join(["strain stress", *rows])))


def test_rows_between_those_of_a_slower_channel_are_left_out(tmp_path):
    slower = [cell for e in STRAIN for cell in (f"{e:.8g}", "", "", "", "")]
    text = columns("Time,Strain,Stress (MPa)", range(100), slower, np.repeat(STRESS, 5))
    (curve,) = read_curves(write(tmp_path, text))
    np.testing.assert_allclose(curve.strain, STRAIN)
    assert "left out 80 rows between those that a slower channel has too" in curve.steps[0]


def test_a_factor_above_all_numbers_is_refused(tmp_path):
    with pytest.raises(InputError, match="line 2: '1.0e\\+03 \\*' multiplies the numbers below it"):
        read_curves(write(tmp_path, table("data =\n   1.0e+03 *", "   ")))


def test_rows_that_hold_either_a_strain_or_a_stress_are_refused(tmp_path):
    rows = [
        f"{i},{e},\n{i},,{s}" for i, (e, s) in enumerate(zip(STRAIN, STRESS, strict=True), start=1)
    ]
    with pytest.raises(InputError, match="no row holds both a strain and a stress"):
        read_curves(write(tmp_path, "\n".join(["Time,Strain,Stress (MPa)", *rows])))

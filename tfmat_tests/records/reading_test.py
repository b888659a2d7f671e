"""Reading measured curves: what is understood, and what is said of it."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records import tables
from tfmat.records.reading import ReadingOptions, read_curves
from tfmat_tests.records.files import (
    STRAIN,
    STRESS,
    decimal_commas,
    sheet_rows,
    table,
    write,
    write_workbook,
)


def read_one(path, **options):
    (curve,) = read_curves(path, ReadingOptions(**options))
    return curve


@pytest.mark.parametrize(
    ("header", "separator", "strain_factor", "stress_factor"),
    [
        ("strain,stress", ",", 1, 1),
        ("engineering_strain;engineering_stress", ";", 1, 1),
        ("Strain\tStress", "\t", 1, 1),
        ("strain stress", " ", 1, 1),
        ("  Strain (%)   Stress [MPa]", "    ", 0.01, 1),
        ("Strain (%),Stress (MPa)", ",", 0.01, 1),
        ("strain [-], stress [GPa]", ",", 1, 1000),
        ("gamma,tau [psi]", ",", 1, 0.00689475729),
        ("γ [%];τ [N/mm²]", ";", 0.01, 1),
        ("shear strain,shear stress [ksi]", ",", 1, 6.89475729),
        ("strain_percent,stress_ksi", ",", 0.01, 6.89475729),
        ("epsilon [mm/mm],sigma [Pa]", ",", 1, 1e-6),
        ("True strain,True stress [kPa]", ",", 1, 1e-3),
        ("\ufeffstrain,stress", ",", 1, 1),
        ('"Strain, µε","Stress, N/mm2"', ",", 1e-6, 1),
        ("ε in %;σ / MPa", ";", 0.01, 1),
        ("Dehnung (%);Zugspannung (N/mm²)", ";", 0.01, 1),
        ("Tensile strain (Extensometer 1),Tensile stress (MPa)", ",", 1, 1),
        ("microstrain strain [microstrain],stress", ",", 1e-6, 1),
        ("strain,stress\n%,ksi", ",", 0.01, 6.89475729),
        ("strain,stress\n(mm/mm),(GPa)", ",", 1, 1000),
        ("# made by a machine\n# strain stress", "  ", 1, 1),
        ('{"temperature": 293, "direction": "R1"}\nstrain,stress', ",", 1, 1),
        ("{'temperature': 293}\nstrain stress", " ", 1, 1),
        ("Operator: A. B.\nDate;2024-05-01\nWidth;12,5;mm\n\nStrain;Stress\n%;MPa", ";", 0.01, 1),
    ],
)
def test_columns_and_units_are_found(tmp_path, header, separator, strain_factor, stress_factor):
    curve = read_one(write(tmp_path, table(header, separator)))
    np.testing.assert_allclose(curve.strain, STRAIN * strain_factor, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS * stress_factor, rtol=1e-7)
    assert curve.name == "curve"
    assert len(curve.steps) == 1


def test_units_agree_with_their_definitions():
    pound_force, inch = 0.45359237 * 9.80665, 0.0254  # N, m; both exact by international agreement

    def factor(name):
        return tables.find_unit(name).factor

    assert factor("psi") == pytest.approx(pound_force / inch**2 / 1e6, rel=1e-14)
    assert factor("ksi") == pytest.approx(1000 * factor("psi"), rel=1e-14)
    assert factor("GPa") == 1000 * factor("n/mm²") == 1e9 * factor("Pa") == 1e6 * factor("kPa")
    assert factor("lbf") == pytest.approx(pound_force, rel=1e-14)
    assert factor("kN") == 1000 * factor("N")
    assert factor("in") == pytest.approx(1000 * inch, rel=1e-14)
    assert factor("%") == 1e4 * factor("µε") == 0.01 * factor("mm/mm")


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("stress [ksi]", "stress", "ksi"),
        ("Strain (true)", "Strain (true)", None),
        ("Load (kN) channel 1", "Load channel 1", "kN"),
        ("Kraft in kN", "Kraft", "kN"),
        ("σ/MPa", "σ", "MPa"),
        ("Displacement in", "Displacement", "in"),
        ("stress [bar]", "stress", "bar"),
        ("strain 1", "strain 1", None),
        ("Tensile strain", "Tensile strain", None),
        ("Strain in/in", "Strain", "in/in"),
    ],
)
def test_a_header_is_name_and_unit(header, name, unit):
    assert tables.split_header(header) == (name, unit)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_encodings(tmp_path, encoding):
    text = "\n" + decimal_commas(table("Déformation (%);Contrainte (N/mm²)", ";")) + "\r\n\n;\n"
    curve = read_one(write(tmp_path, text.encode(encoding)))
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)
    assert "decimal commas" in curve.steps[0]
    assert ("UTF-16" in curve.steps[0]) == encoding.startswith("utf-16")


def test_japanese_columns_in_their_old_encoding(tmp_path):
    text = table("時間,ひずみ(%),応力(MPa)").replace("\n", "\n0,").rstrip("0,")
    curve = read_one(write(tmp_path, text.encode("cp932")))
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)
    assert "Shift-JIS" in curve.steps[0]
    german = read_one(write(tmp_path, table("Längenänderung (%),Zugspannung").encode("cp1252")))
    assert "Windows-1252" in german.steps[0]


@pytest.mark.parametrize(
    ("separator", "strain", "stress"),
    [
        (";", "0,{0:02}", "1.{0:03},5"),
        ("\t", "0,{0:02}", "1.{0:03},5"),
        (" ", "0,{0:02}", "1.{0:03},5"),
        (",", "0.{0:02}", '"1,{0:03}.5"'),
        (";", "0.{0:02}", "1'{0:03}.5"),
        (";", "0.{0:02}", "1 {0:03}.5"),
        (",", '"0,{0:02}"', '"1.{0:03},5"'),
    ],
)
def test_decimal_marks_and_thousands(tmp_path, separator, strain, stress):
    rows = [separator.join([strain.format(i), stress.format(i)]) for i in range(20)]
    text = "\n".join([f"strain{separator}stress", *rows])
    curve = read_one(write(tmp_path, text))
    np.testing.assert_allclose(curve.strain, np.arange(20) / 100)
    np.testing.assert_allclose(curve.stress_mpa, 1000.5 + np.arange(20))


def test_a_mark_that_may_be_both_is_asked_for_and_can_be_given(tmp_path):
    rows = [f"{i};{i},125" for i in range(1, 20)]
    path = write(tmp_path, "\n".join(["strain;stress", *rows]))
    with pytest.raises(InputError, match="'1,125' may be a decimal comma or a separator"):
        read_curves(path)
    assert read_one(path, decimal="comma").stress_mpa[0] == 1.125
    assert read_one(path, decimal="point").stress_mpa[0] == 1125


def test_other_columns_do_not_confuse(tmp_path):
    rows = "\n".join(f"{i},{i / 100},{i * 2},0.1,{i * 3},9,a {i}" for i in range(20))
    header = "time,engineering_strain,load,strain_rate,engineering_stress,transverse strain,remark"
    curve = read_one(write(tmp_path, f"{header}\n{rows}\n"))
    assert (curve.strain_measure, curve.stress_measure) == ("engineering", "engineering")
    np.testing.assert_allclose(curve.stress_mpa, 3.0 * np.arange(20))


def test_two_measures_in_one_file_are_told_apart_by_the_flags(tmp_path):
    rows = "\n".join(f"{i},{i + 1},{i + 2},{i + 3}" for i in range(20))
    path = write(tmp_path, f"eng. strain,true strain,eng. stress,true stress\n{rows}\n")
    with pytest.raises(InputError, match="several columns could be the strain"):
        read_curves(path)
    curve = read_one(path, strain_measure="true", stress_measure="engineering")
    assert (curve.strain[0], curve.stress_mpa[0]) == (1, 2)
    assert (curve.strain_measure, curve.stress_measure) == ("true", "engineering")


def test_columns_and_units_can_be_given(tmp_path):
    path = write(tmp_path, table("Channel 1 [%],Channel 2 [MPa]"))
    curve = read_one(
        path, strain_column="channel 1", stress_column="Channel 2 [MPa]", stress_unit="KSI"
    )
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS * 6.894757293168361, rtol=1e-7)
    assert "as given" in curve.steps[0]
    assert "from the header" in curve.steps[0]
    bare = write(tmp_path, table("").lstrip(), "bare.txt")
    np.testing.assert_allclose(
        read_one(bare, strain_column="2", stress_column="1").strain, STRESS, rtol=1e-7
    )


def test_load_and_displacement(tmp_path):
    rows = table("Extension (mm),Load (kN)", strain=STRAIN * 50, stress=STRESS * 24.5 / 1000)
    curve = read_one(write(tmp_path, rows), area=24.5, gauge_length=50.0)
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-7)
    inches = table("stroke,force", strain=STRAIN, stress=STRESS)
    curve = read_one(
        write(tmp_path, inches), area=645.16, gauge_length=25.4, strain_unit="in", stress_unit="lbf"
    )
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS * 0.00689475729, rtol=1e-7)


def test_sizes_are_taken_from_the_head_of_the_file(tmp_path):
    head = "Prüfung 7\nMesslänge: 50 mm\nArea [mm²] = 24,5\n"
    text = decimal_commas(
        table("Standardweg;Standardkraft", ";", strain=STRAIN * 50, stress=STRESS * 24.5)
    )
    header, _, rows = text.partition("\n")
    curve = read_one(write(tmp_path, f"{head}{header}\nmm;N\n{rows}"))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-7)
    assert "gauge length of 50 mm (from the file's head)" in curve.steps[0]
    assert "area of 24.5 mm² (from the file's head)" in curve.steps[0]


def test_stretch_is_strain_and_one(tmp_path):
    curve = read_one(write(tmp_path, table("stretch,nominal stress [MPa]", strain=1 + STRAIN)))
    np.testing.assert_allclose(curve.strain, STRAIN, atol=1e-7)
    assert curve.stress_measure == "engineering"


@pytest.mark.parametrize(
    ("header", "given", "found"),
    [
        ("gamma12", None, "engineering"),
        ("eps12", None, "tensor"),
        ("ε_xy", None, "tensor"),
        ("epsilon", None, "epsilon"),
        ("shear strain", None, None),
        ("shear strain", "tensor", "tensor"),
    ],
)
def test_what_a_name_says_of_shear_strain(tmp_path, header, given, found):
    options = {"strain_column": header, "shear_strain": given}
    assert read_one(write(tmp_path, table(f"{header},stress")), **options).shear_strain == found


def test_several_curves_by_a_specimen_column(tmp_path):
    rows = [f"A{k};{e};{s * k}" for k in (1, 2, 3) for e, s in zip(STRAIN, STRESS, strict=True)]
    path = write(tmp_path, "\n".join(["Specimen ID;strain;stress", *rows]), "lab.csv")
    curves = read_curves(path)
    assert [curve.name for curve in curves] == ["lab_A1", "lab_A2", "lab_A3"]
    for factor, curve in enumerate(curves, start=1):
        np.testing.assert_allclose(curve.stress_mpa, factor * STRESS)
        assert "3 specimens by column 'Specimen ID'" in curve.steps[0]
    assert len(read_one(path, specimen_column="none").strain) == 60
    renamed = write(tmp_path, path.read_text().replace("Specimen ID", "batch"), "other.csv")
    assert [len(curve.strain) for curve in read_curves(renamed)] == [20, 20, 20]
    assert len(read_curves(renamed, ReadingOptions(specimen_column="batch"))) == 3


def test_workbooks(tmp_path):
    one = write_workbook(tmp_path / "one.xlsx", {"S": sheet_rows()})
    curve = read_one(one)
    np.testing.assert_allclose(curve.strain, STRAIN)
    np.testing.assert_allclose(curve.stress_mpa, STRESS)
    assert curve.name == "one"
    results = [["Specimen", "Rm"], ["A", 500.0], ["B", 510.0], ["C", 505.0]]
    summary = [["Load", "Time"], [1.0, 2.0], [2.0, 3.0]]
    sheets = {"Results": results, "A": sheet_rows(), "B": sheet_rows(), "T": summary, "Empty": []}
    many = write_workbook(tmp_path / "many.xlsx", sheets)
    curves = read_curves(many)
    assert [curve.name for curve in curves] == ["many_A", "many_B"]
    assert "without a table: Results, Empty" in curves[0].steps[0]
    assert "skipped the sheets without strain and stress: T" in curves[0].steps[1]
    assert read_one(many, sheet="B").name == "many"
    text = [["strain", "stress"], *[[f"0,{i:02}", f"{i},5"] for i in range(20)]]
    commas = read_one(write_workbook(tmp_path / "text.xlsx", {"S": text}))
    np.testing.assert_allclose(commas.stress_mpa, np.arange(20) + 0.5)


def test_options_are_checked():
    with pytest.raises(InputError, match=r"unknown stress unit 'kssi'; did you mean 'ksi'\?"):
        ReadingOptions(stress_unit="kssi")
    with pytest.raises(InputError, match="unknown strain unit 'MPa'"):
        ReadingOptions(strain_unit="MPa")
    with pytest.raises(InputError, match="--shear_strain is 'gamma'; give engineering or tensor"):
        ReadingOptions(shear_strain="gamma")
    with pytest.raises(InputError, match="--area is -1; give a positive number in mm²"):
        ReadingOptions(area=-1.0)


def test_an_assumed_unit_is_kept_apart_from_one_that_was_read(tmp_path):
    assumed = read_curves(write(tmp_path, table("strain,stress")))[0]
    assert assumed.assumed == ("strain in mm/mm", "stress in MPa")
    read = read_curves(write(tmp_path, table("strain [%],stress [MPa]")))[0]
    assert read.assumed == ()
    given = read_curves(
        write(tmp_path, table("strain,stress")), ReadingOptions(strain_unit="-", stress_unit="ksi")
    )[0]
    assert given.assumed == ()


def test_of_engineering_and_true_columns_the_law_s_pair_is_read(tmp_path):
    header = "time,load,engineering_strain,engineering_stress,temperature,true_stress,true_strain"
    rows = [
        f"{i},{100 * s:.8g},{e:.8g},{s:.8g},20,{s * (1 + e):.8g},{np.log1p(e):.8g},{e / 2:.8g}"
        for i, (e, s) in enumerate(zip(STRAIN, STRESS, strict=True))
    ]
    path = write(tmp_path, "\n".join([f"{header},plastic_strain", *rows]))
    true = read_curves(path, measures={"strain": "true", "stress": "true"})[0]
    np.testing.assert_allclose(true.strain, np.log1p(STRAIN), rtol=1e-7)
    np.testing.assert_allclose(true.stress_mpa, STRESS * (1 + STRAIN), rtol=1e-7)
    assert (true.strain_measure, true.stress_measure) == ("true", "true")
    assert "engineering_strain, true_strain took 'true_strain'" in true.steps[0]
    engineering = read_curves(path, measures={"strain": "engineering", "stress": "engineering"})[0]
    np.testing.assert_allclose(engineering.strain, STRAIN, rtol=1e-7)
    given = ReadingOptions(strain_measure="engineering")
    pair = read_curves(path, given, measures={"strain": "true", "stress": "true"})[0]
    np.testing.assert_allclose(pair.stress_mpa, STRESS, rtol=1e-7)
    with pytest.raises(InputError, match=r"could be the strain .*; several .* be the stress"):
        read_curves(path)


def test_letters_of_the_formulas_count_beside_their_measure(tmp_path):
    curve = read_curves(write(tmp_path, table("e_true,Sigma_true")))[0]
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    assert (curve.strain_measure, curve.stress_measure) == ("true", "true")
    with pytest.raises(InputError, match="no column is named as a strain"):
        read_curves(write(tmp_path, table("e,Sigma_true")))


@pytest.mark.parametrize(
    ("header", "measures"),
    [
        ("Hencky strain eps_y [-],Force [kN]", ("true", "engineering")),
        ("Extension (mm),True stress (MPa)", ("engineering", "true")),
        ("Deformazione vera [-],Sforzo ingegneristico [MPa]", ("true", "engineering")),
        ("Strain (-),Stress vero (MPa)", (None, "true")),
    ],
)
def test_a_load_over_an_area_is_an_engineering_stress_beside_a_true_strain(
    tmp_path, header, measures
):
    path = tmp_path / "curve.csv"
    rows = [f"{0.01 * i:g},{1.0 + i:g}" for i in range(1, 30)]
    path.write_text("\n".join([header, *rows]), "utf-8")
    (raw,) = read_curves(path, ReadingOptions(area=40.0, gauge_length=50.0))
    assert (raw.strain_measure, raw.stress_measure) == measures


@pytest.mark.parametrize(
    ("column", "length"),
    [("Extensometer (mm)", 25.0), ("Crosshead (mm)", 50.0), ("Extension (mm)", None)],
)
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_lengths_in_the_head_an_extensometer_has_its_own(tmp_path, column, length, turned):
    notes = ["L0;50;mm", "Le;25;mm"]
    path = tmp_path / "curve.csv"
    rows = [f"{0.1 * i:g};{100.0 + i:g}" for i in range(1, 30)]
    head = [*(notes[::-1] if turned else notes), "S0;40;mm²", f"{column};Stress (MPa)"]
    path.write_text("\n".join([*head, *rows]), "utf-8")
    if length is None:
        with pytest.raises(InputError, match=r"two lengths, 50 mm and the extensometer's 25 mm"):
            read_curves(path)
    else:
        (raw,) = read_curves(path)
        assert raw.strain[-1] == pytest.approx(2.9 / length)


def test_rows_of_results_at_the_end_are_no_points(tmp_path):
    rows = [f"{i};{e:.8g};{s:.8g}" for i, (e, s) in enumerate(zip(STRAIN, STRESS, strict=True))]
    results = ["Maximum;0.05;50", "Mean;0.025;25"]
    path = write(tmp_path, "\n".join(["Time;Strain;Stress", *rows, *results]))
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    assert "left out 2 rows of results at the end, from line 22 on" in curve.steps[0]
    blank = write(tmp_path, "\n".join(["Strain;Stress;Load", *rows, "nan;1;2"]))
    with pytest.raises(InputError, match="every value must be finite"):
        read_curves(blank)


def test_inches_in_the_head_join_no_lines(tmp_path):
    head = 'Width: 0.5"\nOperator: A\nGauge length: 2"\nExtensometer (in),Stress'
    (curve,) = read_curves(write(tmp_path, table(head, strain=2.0 * STRAIN)))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)


def test_rows_that_are_all_comments_are_refused_in_one_line(tmp_path):
    path = write(tmp_path, "\n".join(f"# {row}" for row in table("", " ").split("\n")[1:-1]))
    with pytest.raises(InputError, match=r"all rows of numbers begin with '#', from line 1 on"):
        read_curves(path)


def test_names_with_several_line_breaks_are_one_line(tmp_path):
    text = table('"Stress\n\n(MPa)","Strain\n(mm/mm)"', strain=STRESS, stress=STRAIN)
    (curve,) = read_curves(write(tmp_path, text))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-7)

"""From files to strain and stress: names, units and conditions as laboratories write them."""

import datetime

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.cleaning import clean
from tfmat.records.reading import (
    RawCurve,
    ReadingOptions,
    conditions_of,
    fahrenheit_of_rankine,
    rate_of,
    read_curves,
    split_time_header,
)
from tfmat.records.record import CurveTarget, reasons_not_to_use
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import (
    STRAIN,
    STRESS,
    checked,
    columns,
    decimal_commas,
    sheet_rows,
    table,
    write,
    write_workbook,
)

# Reading measured curves: what is understood, and what is said of it.


def read_one(path, **options):
    (curve,) = read_curves(path, ReadingOptions(**options))
    return curve


@pytest.mark.parametrize("first", ["0.0,", ",0.0", "0.0,\n1e-5,", "0.0,0.0\n1e-5,"])
def test_a_first_row_with_a_blank_cell_leaves_the_names_above_it(tmp_path, first):
    """They were lost: true ksi were taken for engineering MPa, without a word that the header was not heard."""
    head, *rows = table("True strain,True stress [ksi]").splitlines()
    curve = read_one(write(tmp_path, "\n".join([head, first, *rows[1:]])))
    plain = read_one(write(tmp_path, "\n".join([head, *rows[1:]])))
    assert (curve.strain_measure, curve.stress_measure) == ("true", "true")
    kept = slice(len(curve.strain) - len(plain.strain), None)
    np.testing.assert_allclose(curve.stress_mpa[kept], plain.stress_mpa)
    np.testing.assert_allclose(curve.strain[kept], plain.strain)


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
        ("%,ksi\nstrain,stress", ",", 0.01, 6.89475729),
        ("% strain;stress", ";", 0.01, 1),
        ("%strain;stress", ";", 0.01, 1),
        ("Microstrain;stress", ";", 1e-6, 1),
        ("micro strain;stress", ";", 1e-6, 1),
        ("strain,stress\n(mm/mm),(GPa)", ",", 1, 1000),
        ("# made by a machine\n# strain stress", "  ", 1, 1),
        ('{"temperature": 293, "direction": "R1"}\nstrain,stress', ",", 1, 1),
        ("{'temperature': 293}\nstrain stress", " ", 1, 1),
        ("Operator: A. B.\nDate;2024-05-01\nWidth;12,5;mm\n\nStrain;Stress\n%;MPa", ";", 0.01, 1),
    ],
)
def test_columns_and_units_are_found(tmp_path, header, separator, strain_factor, stress_factor):
    curve = read_one(write(tmp_path, table(header, separator)))
    checked(curve, STRAIN * strain_factor, STRESS * stress_factor)
    assert curve.name == "curve"
    assert len(curve.steps) == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_encodings(tmp_path, encoding):
    text = "\n" + decimal_commas(table("Déformation (%);Contrainte (N/mm²)", ";")) + "\r\n\n;\n"
    curve = read_one(write(tmp_path, text.encode(encoding)))
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)
    assert "decimal commas" in curve.steps[0]
    assert ("UTF-16" in curve.steps[0]) == encoding.startswith("utf-16")
    assert ("Windows-1252" in curve.steps[0]) == (encoding == "cp1252")


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
    checked(read_one(write(tmp_path, text)), np.arange(20) / 100, 1000.5 + np.arange(20))


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
    names = {"strain_column": "channel 1", "stress_column": "Channel 2 [MPa]"}
    curve = read_one(path, **names, stress_unit="KSI")
    checked(curve, STRAIN / 100, STRESS * 6.894757293168361)
    assert "as given" in curve.steps[0]
    assert "from the header" in curve.steps[0]
    bare = read_one(write(tmp_path, table("").lstrip()), strain_column="2", stress_column="1")
    np.testing.assert_allclose(bare.strain, STRESS, rtol=1e-7)


def test_load_and_displacement(tmp_path):
    rows = table("Extension (mm),Load (kN)", strain=STRAIN * 50, stress=STRESS * 24.5 / 1000)
    checked(read_one(write(tmp_path, rows), area=24.5, gauge_length=50.0))
    inches = write(tmp_path, table("stroke,force"))
    units = {"strain_unit": "in", "stress_unit": "lbf"}
    curve = read_one(inches, area=645.16, gauge_length=25.4, **units)
    checked(curve, STRAIN, STRESS * 0.00689475729)


def test_sizes_are_taken_from_the_head_of_the_file(tmp_path):
    head = "Prüfung 7\nMesslänge: 50 mm\nArea [mm²] = 24,5\n"
    text = decimal_commas(
        table("Standardweg;Standardkraft", ";", strain=STRAIN * 50, stress=STRESS * 24.5)
    )
    header, _, rows = text.partition("\n")
    curve = checked(read_one(write(tmp_path, f"{head}{header}\nmm;N\n{rows}")))
    assert "gauge length of 50 mm (from the file's head)" in curve.steps[0]
    assert "area of 24.5 mm² (from the file's head)" in curve.steps[0]


def load_under(tmp_path, head: list[str], **options):
    """The curve of a travel over 20 mm and a load over 30 mm², in a file with these lines before its table."""
    text = columns("\n".join([*head, "", "Extension [mm];Load [N]"]), 20 * STRAIN, 30 * STRESS)
    return read_one(write(tmp_path, text, "load.csv"), **options)


@pytest.mark.parametrize(
    "head",
    [
        ["Anfangsquerschnitt S0;30,0;mm²", "Anfangsmesslänge L0;20,0;mm"],
        ["S0 in mm²;30,0", "L0 in mm;20,0"],
        ["Original cross-sectional area;0.30;cm^2", "Original gauge length;2.0;cm"],
        ["Specimen area;30.0;mm2", "Gauge length (L0);20.0;mm"],
        ["Fläche;30,0;mm²", "Messlänge;20,0;mm", "Messlänge nach Bruch;31,0;mm"],
        ["Area after fracture;9.5;mm²", "Area: 30.0 mm²", "Extensometer gauge length;20.0;mm"],
        ["Area (initial);30.0;mm²", "Gauge length (grips);60;mm", "Gauge length (extensometer);20;mm"],
        ["Breite b0;10,0;mm", "Dicke a0;3,0;mm", "L0;20,0;mm"],
        ["Diameter;6.1803872;mm", "Final diameter;4.0;mm", "Length;60;mm", "Gauge length;20;mm"],
        ["Durchmesser d0;6,1803872;mm", "Endquerschnitt;9,5;mm²", "du;4,0;mm", "Anfangsmesslänge;20;mm"],
        ["Fläche;30,0;mm²", "Messlänge Standardweg;60,0;mm", "Messlänge Feindehnung;20,0;mm"],
        ["Section initiale S0;30;mm²", "Longueur initiale L0;20;mm"],
        ["Section;30;mm²", "Longueur de base extensomètre L0;20;mm"],
        ["Section;30;mm²", "Base de mesure de l'extensomètre;20;mm"],
        ["Sección;30;mm²", "Longitud de base del extensómetro;20;mm"],
        ["Sezione;30;mm²", "Tratto utile;20;mm"],
        ["Área;30;mm2", "Longitud inicial L0;20;mm"],
        ["Fläche;30;mm²", "Ausgangslänge L0;20;mm"],
        ["断面積;30;mm2", "標点距離;20;mm"],
        ["Breite b;10,0;mm", "Dicke a;3,0;mm", "L0;20,0;mm"],
        # Products, symbols, several sizes in a line, and lengths without a unit beside a load in newtons.
        ["Specimen size: 10 x 3.0 mm", "L0 = 20 mm"],
        ["Querschnitt: 10 x 3,0 mm", "L0 = 20 mm"],
        ["Width x Thickness: 10 × 3 mm", "L0 = 20 mm"],
        ["Dimensions (mm): 10 x 3", "L0 (mm): 20"],
        ["Probe: 1.0 cm x 0.3 cm, L0 = 20 mm"],
        ["b=10.0 h=3.0", "L0 = 20 mm"],
        ["b = 10 mm, t = 3 mm, L0 = 20 mm"],
        ["Width: 10 mm; Thickness: 3 mm; Gauge length: 20 mm"],
        ["b: 10, h: 3", "L0 = 20 mm"],
        ["Querschnitt 10 x 3,0 mm", "L0 = 20 mm"],
        ["Ø 6.18038723", "L0 = 20 mm"],
        ["Ø6.18038723 mm", "L0 = 20 mm"],
        ["diam. 6.18038723 mm", "L0 = 20 mm"],
        ["Specimen: round bar, d0 = 6.18038723 mm", "L0 = 20 mm"],
        ["Area 30 mm²", "Gauge length 20 mm"],
        ["Gauge length 20 mm, width 10 mm, thickness 3.0 mm"],
        ["A: 30 mm²", "L0: 20 mm"],
        ["Largura;10,0;mm", "Espessura;3,0;mm", "Lo;20,0;mm"],
        ["Oppervlakte;30;mm²", "Meetlengte;20;mm"],
        ["So (mm²);30,0", "Lo (mm);20"],
        ["bo (mm);10,0", "ao (mm);3", "Lo (mm);20"],
        ["幅;10.0;mm", "厚さ;3.0;mm", "標点距離;20.0;mm"],
    ],
)  # fmt: skip
def test_sizes_in_the_head_are_taken_in_a_laboratory_s_words(tmp_path, head):
    curve = checked(load_under(tmp_path, head))
    assert not curve.in_doubt


@pytest.mark.parametrize(
    ("header", "sizes"),
    [
        ("Strain;Load [N] (A0 = 30 mm²)", ()),
        ("Strain;Load [N];Area [mm²]", (30,)),
        ("Strain;Load [N];Width [mm];Thickness [mm]", (10, 3)),
        ("Strain;Load;Width;Thickness\n-;N;mm;mm", (10, 3)),
    ],
)
def test_a_size_in_a_column_s_name_or_the_same_in_all_rows_counts(tmp_path, header, sizes):
    text = columns(header, STRAIN, 30 * STRESS, *sizes)
    np.testing.assert_allclose(read_one(write(tmp_path, text)).stress_mpa, STRESS, rtol=1e-7)
    # A width that changes is a measurement, and not the specimen's.
    if sizes:
        with pytest.raises(InputError, match="--area"):
            read_one(write(tmp_path, f"{text[:-2]}9"))


LABVIEW = """LabVIEW Measurement\t
Separator\tTab
***End_of_Header***\t
\t
Channels\t2\t\t
Samples\t20\t20\t
Date\t2024/03/12\t2024/03/12\t
X_Dimension\tTime\tTime\t
X0\t0.0\t0.0\t
Delta_X\t0.1\t0.1\t
***End_of_Header***\t\t\t
X_Value\tStress (MPa)\tStrain (-)\tComment
"""


def test_a_file_of_labview_is_read_below_its_second_header(tmp_path):
    text = columns(LABVIEW[:-1], np.arange(20) / 10, STRESS, STRAIN, "")
    checked(read_one(write(tmp_path, text, "test.lvm")))


@pytest.mark.parametrize(
    "head",
    [
        [["Time", "Force", "Strain"], ["Channel 1", "Channel 2", "Channel 3"], ["s", "kN", "%"]],
        [["Время", "Нагрузка", "Деформация"], ["с", "кН", "%"]],
    ],
)
def test_numbered_channels_below_the_names_and_russian_units_are_read(tmp_path, head):
    times = 0.1 * np.arange(len(STRAIN))
    rows = zip(times.tolist(), (0.03 * STRESS).tolist(), (100 * STRAIN).tolist(), strict=True)
    path = write_workbook(tmp_path / "a.xlsx", {"Data": [["Area", 30, "mm2"], [], *head, *rows]})
    curve = checked(*read_curves(path, of_test=True, needs_time=True))
    np.testing.assert_allclose(curve.time, times)


def test_sizes_of_a_workbook_s_sheet_of_parameters_count(tmp_path):
    parameters = [["Parameter", "Value", "Unit"], ["Width", 10, "mm"], ["Thickness", 3, "mm"]]
    rows = [["Strain", "Load"], ["-", "N"], *zip(STRAIN, 30 * STRESS, strict=True)]
    path = write_workbook(tmp_path / "curve.xlsx", {"Parameters": parameters, "Data": rows})
    np.testing.assert_allclose(read_one(path).stress_mpa, STRESS, rtol=1e-7)


@pytest.mark.parametrize(
    "blank", ["", "#N/A", "#DIV/0!", "NaN", "---", "n.a.", "*****", "ERR", "#REF!", "overload"]
)
@pytest.mark.parametrize("form", ["{};{}", "{1};{0}"])
def test_a_single_cell_without_a_number_costs_its_row(tmp_path, blank, form):
    lines = table("strain;stress [MPa]", ";").splitlines()
    lines[8] = form.format(blank, "0.02" if form == "{1};{0}" else "20")
    curve = read_one(write(tmp_path, "\n".join(lines)))
    np.testing.assert_allclose(curve.strain, np.delete(STRAIN, 7), rtol=1e-7)
    assert "left out 1 rows without numbers, from line 9 on" in curve.steps[0]
    # A word is no blank cell.
    lines[8] = form.format("slipped", "20")
    with pytest.raises(InputError, match="line 9, column '.*': 'slipped' is not a number"):
        read_one(write(tmp_path, "\n".join(lines)))


def test_a_height_is_the_length_under_compression_alone(tmp_path):
    for names in ("Stauchung [mm];Druckkraft [N]", "Displacement [mm];Compressive load [N]"):
        head = f"Höhe h0;20;mm\nS0;30;mm²\n\n{names}"
        curve = read_one(write(tmp_path, columns(head, -20 * STRAIN, -30 * STRESS)))
        np.testing.assert_allclose(curve.strain, -STRAIN, rtol=1e-7)
    with pytest.raises(InputError, match="the head's 'Höhe h0: 20 mm' is not taken for it"):
        load_under(tmp_path, ["Höhe h0;20;mm", "S0;30;mm²"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Länge: 90 mm\nArea: 30.0", "the head's 'Area: 30.0' has no unit; give its cross-section with --area"),
        ("Area after fracture;9.5;mm²", "the head's 'Area after fracture: 9.5 mm²' is not taken"),
        ("Final diameter;4.0;mm", "the head's 'Final diameter: 4.0 mm' is not taken"),
        ("Diameter;20;mm\nThickness;2;mm", "the head's 'Diameter: 20 mm' is not taken"),
        ("Diameter;6.18;mm\nWall thickness;1.0;mm", "the head's 'Diameter: 6.18 mm' is not taken"),
        ("S0;30,0;mm²;S0;38,0;mm²", "the head's 'S0: 30,0 mm² S0 38,0 mm²' is not taken"),
        ("Area;30.0;mm²\nS0;38.0;mm²", "tells 'Area: 30.0 mm²' and 'S0: 38.0 mm²'"),
        ("Diameter;6.18;mm\nWidth;6.0;mm\nThickness;3.0;mm", "'Diameter: 6.18 mm' is not taken"),
        # The length and the width of a specimen, sizes after the test, and the edges of a block.
        ("Specimen size: 150 x 12.5 mm", "give its cross-section with --area"),
        ("Final width = 9 mm, final thickness = 2 mm", "give its cross-section with --area"),
        ("After fracture: width = 9 mm, thickness = 2 mm", "give its cross-section with --area"),
        ("Specimen: 5 x 25 mm", "give its cross-section with --area"),
        ("Type: tube\nDimensions: 20 x 2 mm", "give its cross-section with --area"),
        ("Fmax = 1200 N, d = 8.3 mm", "give its cross-section with --area"),
        ("Specimen: 10 x 20 x 30 mm", "give its cross-section with --area"),
        # A thickness beside, which is neither number.
        ("Specimen: 30 x 20 mm\nThickness: 4 mm", "the head's 'Thickness: 4 mm' is not taken"),
    ],
)  # fmt: skip
def test_a_size_in_the_head_that_is_not_plain_is_quoted(tmp_path, line, said):
    with pytest.raises(InputError) as error:
        load_under(tmp_path, [*line.splitlines(), "L0;20,0;mm"])
    assert said in str(error.value)


def test_an_area_from_dimensions_is_said_and_one_that_they_contradict_is_warned_about(tmp_path):
    length = "L0;20,0;mm"
    made = load_under(tmp_path, ["Diameter;10;mm", length])
    assert "area of 78.5398 mm² (from the diameter of 10 mm in the file's head)" in made.steps[0]
    head = ["S0;30,0;mm²", "Diameter;10;mm", length]
    two = load_under(tmp_path, head)
    np.testing.assert_allclose(two.stress_mpa, STRESS, rtol=1e-7)
    (warning,) = clean(two, CurveTarget(20)).warnings
    assert warning.kind == "two areas"
    assert "area of 30 mm², which was taken, and the diameter of 10 mm" in warning.text
    assert "gives 78.54 mm²" in warning.text
    assert not load_under(tmp_path, head, area=30.0).in_doubt


def test_a_stress_that_is_not_the_load_over_the_area_is_warned_about(tmp_path):
    def doubt_of(stress) -> str:
        text = columns("S0;30;mm²\n\nStrain;Stress [MPa];Load [N]", 2 * STRAIN, stress, 30 * STRESS)
        return read_one(write(tmp_path, text)).in_doubt.get("two areas", "")

    assert doubt_of(STRESS) == ""
    assert doubt_of(STRESS * (1 + 2 * STRAIN)) == ""  # a true stress
    said = doubt_of(0.5 * STRESS)
    assert "column 'Load' over it gives an area of 60 mm², and the area is 30 mm²" in said


@pytest.mark.parametrize("preload", [0.0, 25.0])
def test_a_load_that_holds_a_preload_which_its_stress_does_not_have_is_told(tmp_path, preload):
    text = columns("Strain,Stress [MPa],Force [kN]", STRAIN, STRESS, 0.08 * (STRESS + preload))
    raw = read_one(write(tmp_path, text))
    assert ("preload set to zero?" in raw.in_doubt) == bool(preload)
    if preload:
        (warning,) = clean(raw, CurveTarget(20)).warnings
        assert "reads 2000 N" in warning.text and "every stress is 25 MPa too low" in warning.text


@pytest.mark.parametrize(
    ("head", "measures", "contradicted"),
    [
        ("F (N),Strain,Stress (MPa)", (None, "engineering"), ""),
        ("F (N),True strain,Stress (MPa)", ("true", "engineering"), ""),
        ("F (N),Strain,True stress (MPa)", (None, "true"), "is in proportion to column 'F'"),
    ],
)
def test_a_load_tells_an_engineering_stress_beside_it(tmp_path, head, measures, contradicted):
    path = write(tmp_path, columns(head, 30 * STRESS, STRAIN, STRESS))
    curve = read_one(path)
    assert (curve.strain_measure, curve.stress_measure) == measures
    assert contradicted in curve.in_doubt.get("name and numbers differ", "")
    assert bool(contradicted) == bool(curve.in_doubt)
    assert not read_one(path, stress_measure="true").in_doubt


@pytest.mark.parametrize(
    ("head", "name", "measure"),
    [
        ("True stress-strain curve, bar 7\n", "a.csv", "true"),
        ("Strain type: true\n", "a.csv", "true"),
        ("", "P1_true_stress_strain.csv", "true"),
        ("# Fließkurve\n", "a.csv", "true"),
        ("Engineering stress vs. strain\n", "a.csv", "engineering"),
        ("Nenndehnung der Probe 3\n", "a.csv", "engineering"),
        ("", "sforzo_ingegneristico.csv", "engineering"),
        ("Engineering and true stress\n", "a.csv", None),
        ("Customer: True North\n", "a.csv", None),
    ],
)
def test_a_title_or_a_name_of_a_file_tells_the_measure(tmp_path, head, name, measure):
    text = table(f"{head}Strain,Stress (MPa)")
    curve = read_one(write(tmp_path, text, name))
    assert (curve.strain_measure, curve.stress_measure) == (measure, measure)
    text = table(f"{head}Eng. strain,Eng. stress (MPa)")
    assert read_one(write(tmp_path, text, name)).stress_measure == "engineering"


ENGINEERING_STRESSES = (
    "Nennspannung;Techn. Spannung;Ingenieurspannung;Nominalspannung;contrainte nominale;"
    "tensión ingenieril;sforzo ingegneristico;tensão de engenharia;nominell spänning;"
    "sforzo convenzionale"
)


@pytest.mark.parametrize(
    ("header", "stress_measure"),
    [
        *((f"log. strain,{name} (MPa)", "engineering") for name in ENGINEERING_STRESSES.split(";")),
        ("Flow strain,Flow stress (MPa)", "true"),
        ("Umformgrad,Fließspannung (MPa)", "true"),
        ("Umformgrad phi,Fließspannung kf (MPa)", "true"),
        ("Umformgrad φ,Fliessspannung k_f (MPa)", "true"),
        ("LE22,True stress (MPa)", "true"),  # of Abaqus
        ("Истинная деформация,Истинное напряжение (МПа)", "true"),
        ("Істинна деформація,Істинне напруження (МПа)", "true"),
        ("Πραγματική παραμόρφωση,Πραγματική τάση (MPa)", "true"),
        ("Todellinen venymä,Todellinen jännitys (MPa)", "true"),
        ("Deformación logarítmica,Esfuerzo verdadero (MPa)", "true"),
        ("Skutočné pretvorenie,Skutočné napätie (MPa)", "true"),
        ("TrueStrain,TrueStressMPa", "true"),
    ],
)
def test_stress_beside_true_strain_is_called_true_or_engineering(tmp_path, header, stress_measure):
    curve = read_one(write(tmp_path, table(header)))
    assert (curve.strain_measure, curve.stress_measure) == ("true", stress_measure)


@pytest.mark.parametrize("names", ["ε_w,σ_w", "T. Strain,T. Stress (MPa)", "eps_t,sig_t"])
def test_a_letter_behind_both_names_may_be_a_measure(tmp_path, names):
    curve = read_one(write(tmp_path, table(names)))
    (warning,) = [w for w in clean(curve, CurveTarget(20)).warnings if "true" in w.kind]
    assert "may mean true" in warning.text
    assert not read_one(write(tmp_path, table(names)), stress_measure="true").in_doubt


def test_a_load_tells_that_the_stress_beside_it_is_true_and_which_strain_goes_with_it(tmp_path):
    strain = np.linspace(0.0, 0.1, 40)
    load, true = 30e3 * strain**0.5, 1e3 * strain**0.5 * (1 + strain)
    text = columns("Force (kN),Strain,Stress (MPa)", load, np.log1p(strain), true)
    curve = read_one(write(tmp_path, text))
    assert (curve.strain_measure, curve.stress_measure) == ("true", "true")
    assert any("true: it grows over column 'Force'" in step for step in curve.steps)
    curve = read_one(write(tmp_path, columns("F (N),ε,σ (MPa)", load, strain, true)))
    assert (curve.strain_measure, curve.stress_measure) == ("engineering", "true")
    # Loads of two digits do not tell which strain it is.
    text = columns("F (kN),Strain,Stress (MPa)", np.round(load / 1e3, 2), strain, true)
    assert read_one(write(tmp_path, text)).stress_measure == "true"
    text = columns("F (N),Eng. strain,Eng. stress (MPa)", load, strain, true)
    assert "and by its numbers it is true" in str(read_one(write(tmp_path, text)).in_doubt)


def test_a_travel_tells_the_measure_of_the_strain_and_the_gauge_length(tmp_path):
    strain = np.linspace(0.0, 0.1, 100)
    head = "Gauge length (mm),25\nExtensometer (mm),Strain,Stress (MPa)"
    text = columns(head, 50 * strain, np.log1p(strain), 1e3 * strain)
    curve = read_one(write(tmp_path, text))
    assert curve.strain_measure == "true"
    (warning,) = [w for w in clean(curve, CurveTarget(20)).warnings if "lengths" in w.kind]
    assert "column 'Extensometer' over it gives a gauge length of 50 mm" in warning.text
    assert not read_one(write(tmp_path, text.replace(",25", ",50"))).in_doubt


@pytest.mark.parametrize(
    ("travels", "taken", "in_doubt"),
    [
        ("Längenänderung [mm]", 0, True),
        ("Längenänderung [mm];Standardweg [mm]", 0, False),
        ("Weg [mm];Ext1 [mm]", 1, False),
        ("Corsa (mm);Estens. (mm)", 1, False),
    ],
)
def test_a_change_of_length_alone_may_be_the_crossheads(tmp_path, travels, taken, in_doubt):
    values = [50 * STRAIN, 50 * STRAIN] if ";" in travels else [50 * STRAIN]
    values[taken] = 40 * STRAIN
    text = columns(f"{travels};Stress (MPa)".replace(";", ","), *values, STRESS)
    curve = read_one(write(tmp_path, text), gauge_length=40.0)
    np.testing.assert_allclose(curve.strain, STRAIN)
    assert curve.travel_in_doubt == in_doubt


@pytest.mark.parametrize(
    ("header", "given", "found"),
    [
        ("gamma12", None, "engineering"),
        ("eps12", None, "tensor"),
        ("ε_xy", None, "tensor"),
        ("epsilon", None, "epsilon"),
        ("shear strain", None, None),
        ("tensorial shear strain", None, "tensor"),
        ("shear strain (tensor)", None, "tensor"),
        ("γ/2", None, "tensor"),
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
    curve = checked(read_one(one))
    assert curve.name == "one"
    results = [["Specimen", "Rm"], ["A", 500.0], ["B", 510.0], ["C", 505.0]]
    summary = [["Load", "Time"], [1.0, 2.0], [2.0, 3.0]]
    sheets = {"Results": results, "A": sheet_rows(), "B": sheet_rows(), "T": summary, "Empty": []}
    many = write_workbook(tmp_path / "many.xlsx", sheets)
    curves = read_curves(many)
    assert [curve.name for curve in curves] == ["many_A", "many_B"]
    assert "without a table: Results, Empty" in curves[0].steps[0]
    assert "skipped the sheets without a curve of strain and stress: T" in curves[0].steps[1]
    assert read_one(many, sheet="B").name == "many"
    text = [["strain", "stress"], *[[f"0,{i:02}", f"{i},5"] for i in range(20)]]
    commas = read_one(write_workbook(tmp_path / "text.xlsx", {"S": text}))
    np.testing.assert_allclose(commas.stress_mpa, np.arange(20) + 0.5)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "header",
    [
        ["Specimen", "Rm", "Rp0.2", "A"],
        ["Specimen", "Strength", "Break stress [MPa]", "Break strain [%]"],
        ["Specimen", "Stress at Rm", "Strain at Rm", "A"],
        ["", "", "", ""],
    ],
)
def test_a_sheet_of_results_is_no_curve(tmp_path, header, place):
    sheets = [("Data", sheet_rows())]
    sheets.insert(place, ("Results", [header, ["S1", 575, 218, 60], ["S2", 570, 210, 61]]))
    curve = read_one(write_workbook(tmp_path / "lab.xlsx", dict(sheets)))
    np.testing.assert_allclose(curve.stress_mpa, STRESS)
    assert curve.steps[-1] == "skipped the sheets without a curve of strain and stress: Results"
    # A short sheet with the names of a curve is a curve that lacks rows.
    sheets[place] = ("Results", sheet_rows()[:6])
    with pytest.raises(InputError, match="sheet 'Results': it has 4 points"):
        read_curves(write_workbook(tmp_path / "short.xlsx", dict(sheets)))


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
    path = write(tmp_path, table("strain,stress"))
    assert read_one(path, strain_unit="-", stress_unit="ksi").assumed == ()


def test_of_engineering_and_true_columns_the_law_s_pair_is_read(tmp_path):
    header = "time,load,engineering_strain,engineering_stress,temperature,true_stress,true_strain"
    true = STRESS * (1 + STRAIN), np.log1p(STRAIN)
    values = np.arange(20), 100 * STRESS, STRAIN, STRESS, 20, *true, STRAIN / 2
    path = write(tmp_path, columns(f"{header},plastic_strain", *values))
    (true,) = read_curves(path, measures={"strain": "true", "stress": "true"})
    checked(true, np.log1p(STRAIN), STRESS * (1 + STRAIN))
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
def test_a_load_over_an_area_is_engineering_beside_a_true_strain(tmp_path, header, measures):
    raw = read_one(write(tmp_path, table(header)), area=40.0, gauge_length=50.0)
    assert (raw.strain_measure, raw.stress_measure) == measures


@pytest.mark.parametrize(
    ("column", "length"),
    [("Extensometer (mm)", 25.0), ("Crosshead (mm)", 50.0), ("Extension (mm)", None)],
)
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_lengths_in_the_head_an_extensometer_has_its_own(tmp_path, column, length, turned):
    notes = ["L0;50;mm", "Le;25;mm"]
    head = [*(notes[::-1] if turned else notes), "S0;40;mm²", f"{column};Stress (MPa)"]
    path = write(tmp_path, table("\n".join(head), ";"))
    if length is None:
        with pytest.raises(InputError, match=r"two lengths, 50 mm and the extensometer's 25 mm"):
            read_curves(path)
    else:
        np.testing.assert_allclose(read_one(path).strain, STRAIN / length, rtol=1e-7)


def test_rows_of_results_at_the_end_are_no_points(tmp_path):
    text = columns("Time;Strain;Stress", np.arange(20), STRAIN, STRESS)
    curve = read_one(write(tmp_path, f"{text}Maximum;0.05;50\nMean;0.025;25"))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    assert "left out 2 rows of results at the end, from line 22 on" in curve.steps[0]
    curve = read_one(write(tmp_path, f"{text}\nStatistics;Rm;Ag\nx;50;5"))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    blank = text.replace("Time;Strain;Stress", "Strain;Stress;Load")
    with pytest.raises(InputError, match="every value must be finite"):
        read_curves(write(tmp_path, f"{blank}nan;1;2"))


def test_inches_in_the_head_join_no_lines(tmp_path):
    head = 'Width: 0.5"\nOperator: A\nGauge length: 2"\nExtensometer (in),Stress'
    curve = read_one(write(tmp_path, table(head, strain=2.0 * STRAIN)))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)


def test_rows_that_are_all_comments_are_refused_in_one_line(tmp_path):
    path = write(tmp_path, "\n".join(f"# {row}" for row in table("", " ").split("\n")[1:-1]))
    with pytest.raises(InputError, match=r"all rows of numbers begin with '#', from line 1 on"):
        read_curves(path)


def test_names_with_several_line_breaks_are_one_line(tmp_path):
    text = table('"Stress\n\n(MPa)","Strain\n(mm/mm)"', strain=STRESS, stress=STRAIN)
    checked(*read_curves(write(tmp_path, text)))


# Names and units of columns as laboratories write them: understood, or refused by the word that is not.


# MPa or N of a unit, from the definitions: kilogram-force 9.80665 N, pound 0.45359237 kg, inch 25.4 mm.
KILOGRAM_FORCE = 9.80665
POUND_FORCE = 0.45359237 * KILOGRAM_FORCE
KSI = 1000.0 * POUND_FORCE / 25.4**2
STRESS_UNITS = {
    "kgf/mm2": KILOGRAM_FORCE,
    "kp/mm²": KILOGRAM_FORCE,
    "kgf/cm^2": KILOGRAM_FORCE / 100,
    "kg/cm2": KILOGRAM_FORCE / 100,
    "daN/mm²": 10,
    "kN/mm²": 1000,
    "kN/cm2": 10,
    "N/cm2": 0.01,
    "N·mm⁻²": 1,
    "MN/m²": 1,
    "bar": 0.1,
    "tsi": 2240 * POUND_FORCE / 25.4**2,
    "lb/in2": POUND_FORCE / 25.4**2,
    "psi": POUND_FORCE / 25.4**2,
    "ksi": 1e3 * POUND_FORCE / 25.4**2,
    "GPa": 1e3,
    "kPa": 1e-3,
    "Pa": 1e-6,
    "Mpa": 1,
}
STRAIN_UNITS = {
    "‰": 1e-3,
    "per mille": 1e-3,
    "mm/m": 1e-3,
    "10⁻³": 1e-3,
    "10^-6": 1e-6,
    "µε": 1e-6,
    "µm/m": 1e-6,
    "%": 1e-2,
    "per cent": 1e-2,
    "in/in": 1,
}


def read(tmp_path, header, separator=";", **options):
    (curve,) = read_curves(
        write(tmp_path, table(header, separator)),
        ReadingOptions(area=20.0, gauge_length=50.0, **options),
    )
    return curve


@pytest.mark.parametrize(
    "form", ["Stress ({})", "stress_{}", "Stress / {}", "stress in {}", "Stress {}"]
)
@pytest.mark.parametrize("unit", STRESS_UNITS)
def test_every_unit_of_stress_is_read_in_every_form(tmp_path, unit, form):
    curve = read(tmp_path, f"strain;{form.format(unit)}")
    np.testing.assert_allclose(curve.stress_mpa, STRESS * STRESS_UNITS[unit], rtol=1e-7)
    assert "stress in MPa" not in curve.assumed


@pytest.mark.parametrize("form", ["Strain ({})", "true strain {}", "Dehnung [{}]", "Strain, {}"])
@pytest.mark.parametrize("unit", STRAIN_UNITS)
def test_every_unit_of_strain_is_read_in_every_form(tmp_path, unit, form):
    curve = read(tmp_path, f"{form.format(unit)};stress")
    np.testing.assert_allclose(curve.strain, STRAIN * STRAIN_UNITS[unit], rtol=1e-7)


@pytest.mark.parametrize(
    ("header", "strain", "stress"),
    [
        ("Strain [µ-strain];Stress", 1e-6, 1),
        ("Strain [micro-strain];Stress", 1e-6, 1),
        ("Strain (µin/in);Stress", 1e-6, 1),
        ("Strain (*1E-6);Stress", 1e-6, 1),
        ("Strain (mε);Stress", 1e-3, 1),
        ("Strain (o/oo);Stress", 1e-3, 1),
        ("shear strain [mrad];shear stress", 1e-3, 1),
        ("Strain;Stress [psi·10³]", 1, KSI),
        ("Strain;Stress [10³ psi]", 1, KSI),
        ("Strain;Stress (psi x 10^3)", 1, KSI),
        ("Strain;Stress (kpsi)", 1, KSI),
        ("Strain;Stress (10⁶ Pa)", 1, 1),
        ("Strain;Stress psi 103", 1, KSI / 1000),
        ("Strain;Stress (hbar)", 1, 10),
        # Loads, over 20 mm².
        ("strain;Load (kgf)", 1, KILOGRAM_FORCE / 20),
        ("strain;Load (lbf)", 1, POUND_FORCE / 20),
        ("strain;Load (kN) channel 1", 1, 1000 / 20),
        ("strain;Kraft in daN", 1, 10 / 20),
        ("strain;Force [MN]", 1, 1e6 / 20),
        ("strain;Force [mN]", 1, 1e-3 / 20),
        # Names of many laboratories.
        ("True Strain;True Stress", 1, 1),
        ("Axial Strain;Axial Stress", 1, 1),
        ("Tensile strain (Strain 1);Tensile stress", 1, 1),
        ("Ext.1(Strain);Stress", 1, 1),
        ("Extensión (mm/mm);Tensión", 1, 1),
        ("strain (unitless);stress", 1, 1),
        ("Strain A12;Stress A12", 1, 1),
        ("strain_exp;stress_exp", 1, 1),
        ("Strain [mm/mm] DIC;Stress S355-2", 1, 1),
        ("Déformation;Contrainte", 1, 1),
        ("De\u0301formation;Contrainte", 1, 1),
        ("Deformazione;Sforzo", 1, 1),
        ("Deformación por tracción (Deformación 1);Esfuerzo de tracción", 1, 1),
        ("Deformação;Tensão", 1, 1),
        ("公称ひずみ;公称応力", 1, 1),
        ("ひずみ（－）;応力（MPa）", 1, 1),
        ("应变;应力", 1, 1),
        ("Strain;Load (N)", 1, 1 / 20),
        ("Dehnung;Standardkraft (N)", 1, 1 / 20),
        ("Strain;Force standard (N)", 1, 1 / 20),
        ("Strain;Carico [N]", 1, 1 / 20),
        ("Strain;荷重(N)", 1, 1 / 20),
    ],
)
def test_units_and_names_of_literature_and_laboratories(tmp_path, header, strain, stress):
    checked(read(tmp_path, header), STRAIN * strain, STRESS * stress)


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ("strain;stress psf", "psf"),
        ("strain;Stress (cN/dtex)", "cN/dtex"),
        ("strain;Stress torr", "torr"),
        ("strain;Stress*10 [MPa]", "*10"),
        ("strain;Stress in thousand psi", "thousand"),
        ("strain;Stress (MPa) *1e3", "*1"),
        ("strain;Stress 1e3 psi", "1e3"),
        ("strain;Stress (MPa) [psi]", "psi and MPa"),
        ("Strain (%) / 100;stress", "/ 100"),
        ("Strain [mm/mm] %;stress", "mm/mm and %"),
        ("strain;Stress, 1000 psi", "1000"),
        ("strain;Stress [10 MPa]", "MPa"),
        ("strain x1000;stress", "x1000"),
        ("ε×100 (-);σ (MPa)", "×100"),
        ("Strain (a.u.);stress", "a.u."),
        ("Strain (V/V);stress", "V/V"),
        ("Strain (E-3);stress", "E-3"),
        ("strain;Stress (N/m)", "N/m"),
        ("strain;Stress (g/den)", "g/den"),
        ("Strain (V);stress", "V"),
        ("Strain (10^3);stress", "10^3"),
        ("Strain*100;stress", "*100"),
        ("Strain (%/100);stress", "%/100"),
        ("Strain foo;stress", "foo"),
    ],
)
def test_a_word_that_may_be_a_unit_is_refused_and_a_given_unit_is_believed(tmp_path, header, word):
    with pytest.raises(InputError, match="--str(ess|ain)_unit") as error:
        read(tmp_path, header)
    assert word in str(error.value)
    # The most similar unit has another factor.
    assert "did you mean" not in str(error.value)
    curve = read(tmp_path, header, stress_unit="kgf/mm2", strain_unit="%")
    np.testing.assert_allclose(curve.stress_mpa, STRESS * KILOGRAM_FORCE, rtol=1e-7)
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)


# The head of a file of the German car makers' exchange of material data.
PUD = (
    "PROBENBREITE_IST <mm> = 10\nPROBENDICKE_IST <mm> = 2\nMESSLAENGE_IST <mm> = 50\nDATEN =\n"
    "ZEIT <s>; KRAFT <N>; WEG <mm>; WEG_FD <mm>"
)
# Letter -> a column of the curve, for a specimen of 20 mm² and 50 mm: C is a crosshead's travel.
COLUMNS = {
    "t": np.arange(20.0),
    "F": 20.0 * STRESS,
    "K": 0.02 * STRESS,
    "X": 50.0 * STRAIN,
    "C": 100.0 + 70.0 * STRAIN,
    "S": STRESS,
    "P": 100.0 * STRAIN,
    "E": STRAIN,
    "T": -0.3 * STRAIN,
    "G": STRAIN + STRAIN**2 / 2,
    "A": (1 - 1 / (1 + STRAIN) ** 2) / 2,
}


@pytest.mark.parametrize(
    ("head", "letters", "encoding"),
    [
        # Columns as testing machines export them: testXpert, Bluehill, TestSuite, Trapezium, Horizon, ARAMIS, VIC.
        ("Prüfzeit;Standardkraft;Traversenweg absolut;Dehnung\ns;N;mm;mm", "tFCX", "cp1252"),
        ("Time;Extension;Load;Tensile strain (Strain 1)\n(sec);(mm);(kN);(%)", "tCKP", "utf-8"),
        ("_Load;_Crosshead;_Time;_Extension_1\nN;mm;s;mm", "FCtX", "utf-8"),
        ('"1 _ 1"\n時間;試験力;ストローク;伸び計\nsec;N;mm;mm', "tFCX", "cp932"),
        ("Force\tPosition\tStrain\nN\tmm\t%", "FCP", "utf-8"),
        ("Stage; Time [s]; Facet point 1.epsilon Y [%]; analog.force [kN]", "ttPK", "utf-8"),
        ("Index;eyy [1] - Lagrange;Load [kN]", "tGK", "utf-8"),
        ("Green-Lagrange strain;Stress (MPa)", "GS", "utf-8"),
        ("Almansi strain;Stress (MPa)", "AS", "utf-8"),
        (PUD, "tFCX", "utf-8"),
        # Languages of laboratories, in today's and their older encodings.
        ("Przekrój S0;20,0;mm2\nDługość pomiarowa L0;50;mm\nSiła [N];Wydłużenie [mm]", "FX", "cp1250"),
        ("Czas [s];Naprężenie [MPa];Odkształcenie [%]", "tSP", "cp1250"),
        ("Doorsnede S0;20;mm²\nMeetlengte;50;mm\nKracht [N];Verlenging [mm]", "FX", "utf-8"),
        ("Tijd [s];Trekspanning [N/mm²];Rek [%]", "tSP", "utf-8"),
        ("Průřez S0;20;mm2\nMěřená délka;50;mm\nSíla [N];Prodloužení [mm]", "FX", "cp1250"),
        ("Napětí [MPa];Deformace [%]", "SP", "utf-8"),
        ("Zaman (s);Kuvvet (N);Uzama (mm);Gerilme (MPa);Birim Uzama (%)", "tFCSP", "cp1254"),
        ("Gerilme (MPa);Birim Şekil Değiştirme (mm/mm)", "SE", "cp1254"),
        ("试样面积(mm2);20\n标距(mm);50\n时间(s);力(N);变形(mm);位移(mm)", "tFXC", "gb18030"),
        ("试验力(kN);引伸计变形(mm);横梁位移(mm)", "KXC", "utf-16"),
        ("时间(s);应力(MPa);应变(%);应变速率(%/s)", "tSPt", "gb18030"),
        ("時間(s);應力(MPa);應變(%)", "tSP", "big5"),
        ("시간(s);응력(MPa);변형률(%)", "tSP", "cp949"),
        ("Время, с;Напряжение, МПа;Деформация, %", "tSP", "cp1251"),
        ("Spänning [MPa];Töjning [%]", "SP", "cp1252"),
        ("eps_long;eps_trans;sigma", "ETS", "utf-8"),
        ("Time;Axial Count;Axial Strain;Axial Stress\ns;cycles;%;MPa", "ttPS", "utf-8"),  # MTS
        ("Grip separation (mm);Load (kN)", "XK", "utf-8"),
        ("Force_N;Elong_mm", "FX", "utf-8"),
        ("Strain gauge 0°;Strain gauge 90°;Stress (MPa)", "ETS", "utf-8"),
        ("Major strain;Minor strain;Stress (MPa)", "ETS", "utf-8"),
        ("Strain amplitude [%];Stress amplitude (MPa)", "PS", "utf-8"),
    ],
)  # fmt: skip
def test_exports_of_machines_and_laboratories(tmp_path, head, letters, encoding):
    text = columns(head, *(COLUMNS[letter] for letter in letters))
    path = write(tmp_path, text.replace(".", ",").encode(encoding))
    says_sizes = "50" in head
    curve = read_one(path, **({} if says_sizes else {"area": 20.0, "gauge_length": 50.0}))
    np.testing.assert_allclose(curve.strain, STRAIN, atol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS, atol=1e-4)
    assert curve.strain_measure in (None, "engineering")


@pytest.mark.parametrize(
    ("text", "strain"),
    [
        ("strain,stress (MPa)\n{0}%,{1}", 0.01),
        ("strain;load\n{0} mm;{1} N", 1 / 50),
        ("Area: 1.234,5 mm²\nstrain [%];load [N]\n{0},0;{1},0", 0.01),
        ("Area: 1,234 mm²\nLength: 9.5 mm\nstrain [%];load [N]\n{0}.0;{1}.0", 0.01),
        ("strain [%];stress\n{0};{1}\nRm;500,2;MPa\nEnd of test", 0.01),
    ],
)
def test_numbers_with_units_and_sizes_with_thousands(tmp_path, text, strain):
    head, _, row = text.partition("{0}")
    row, _, end = f"{{0}}{row}".partition("\n")
    rows = [row.format(i, 1000 * i) for i in range(20)]
    path = write(tmp_path, head + "\n".join([*rows, end]))
    area = 1234.5 if "234,5" in head else 1234.0 if "1,234" in head else 20.0
    curve = read_one(path, **({} if "Area" in head else {"area": 20.0, "gauge_length": 50.0}))
    counted = np.arange(20)
    checked(curve, counted * strain, 1e3 * counted / (area if "load" in head else 1))


@pytest.mark.parametrize("name", ["Deformation", "Verformung", "DEFORMATION", "Deformace"])
def test_a_name_for_a_strain_and_for_a_travel_needs_its_unit(tmp_path, name):
    said = "has no unit; set --strain_unit, mm or in, or - or % for a strain"
    with pytest.raises(InputError, match=said):
        read(tmp_path, f"{name};stress")
    for unit, factor in (("mm", 1 / 50), ("%", 1 / 100)):
        strain = read(tmp_path, f"{name} [{unit}];stress").strain
        np.testing.assert_allclose(strain, STRAIN * factor, rtol=1e-7)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        # Strains across the load, or to be reached.
        ("Diametral strain [%];stress", "no column is named as a strain"),
        ("Minor strain [%];stress", "no column is named as a strain"),
        ("Breitendehnung [%];stress", "no column is named as a strain"),
        ("Dehnung quer [%];stress", "no column is named as a strain"),
        ("Déformation latérale [%];stress", "no column is named as a strain"),
        ("Sollwert Dehnung [%];stress", "no column is named as a strain"),
        # Units that other quantities have, too.
        ("Humidity (%);Stress (MPa)", "no column is named as a strain"),
        ("Strain (%);E (GPa)", "no column is named as a stress"),
        ("Strain (%);Pressure (bar)", "no column is named as a stress"),
        ("Strain (%);A (MPa);B (MPa)", "no column is named as a stress"),
        ("strain;σ/σ0", "is a stress over another one, which tells no stress"),
        ("strain;Normalized stress", "is a stress over another one, which tells no stress"),
        ("strain;Stress ratio", "is a stress over another one, which tells no stress"),
        ("strain;Stress/initial stress", "is a stress over another one, which tells no stress"),
        ("strain;Stress (norm.)", "is a stress over another one, which tells no stress"),
        ("ε/ε_y;stress [MPa]", "is a strain over another one, which tells no strain"),
        ("stretch (%);stress", "a stretch is 1 at rest"),
        ("stretch;stress", "a stretch is 1 at rest"),
    ],
)
def test_what_is_no_strain_along_the_load_and_no_stress_is_refused(tmp_path, header, said):
    path = write(tmp_path, columns(header, STRAIN, *[STRESS] * header.count(";")))
    with pytest.raises(InputError, match=said):
        read_one(path, area=20.0, gauge_length=50.0)
    assert read(tmp_path, "strain;Normal stress [MPa]").stress_mpa[1] > 0
    assert read(tmp_path, "stretch;stress", strain_unit="-").strain[-1] == pytest.approx(STRAIN[-1])


@pytest.mark.parametrize(
    ("name", "of_machine"),
    [
        ("Crosshead displacement (mm)", True),
        ("Displacement (mm)", True),
        ("Stroke (mm)", True),
        ("Traversenweg absolut (mm)", True),
        ("Standardweg (mm)", True),
        ("Course traverse (mm)", True),
        ("Spostamento (mm)", True),
        ("ストローク(mm)", True),
        ("Tensile strain (Displacement) (%)", True),
        ("Tensile strain (Extension) (%)", True),
        ("Disp. (mm)", True),
        ("Extension (mm)", False),
        ("Extensometer (mm)", False),
        ("Längenänderung (mm)", False),
        ("Displacement (Extensometer) (mm)", False),
        ("Dehnung (Feinweg) (%)", False),
        ("変位(伸び計) (mm)", False),
        ("Strain (mm/mm)", False),
    ],
)
def test_a_strain_made_of_a_machine_s_travel_is_warned_about(tmp_path, name, of_machine):
    raw = read(tmp_path, f"{name};stress (MPa)")
    curve = clean(raw, CurveTarget(200, 2.0, None, None, "true", "true"))
    found = [caveat for caveat in curve.warnings if caveat.kind == "strain of the crosshead"]
    assert len(found) == of_machine
    assert all("the machine's and the specimen's together" in caveat.text for caveat in found)


@pytest.mark.parametrize(
    ("header", "modulus", "said"),
    [
        ("Extension (mm);Load (N)", 110e3, True),
        ("Allongement (mm);Force (N)", 70e3, True),
        ("Elongation (-);Load (N)", 70e3, True),
        ("Extension (mm);Load (N)", 205e3, False),  # so stiff with a crosshead's give is no metal
        ("Extension (mm);Load (N)", 100.0, False),  # beside which no machine gives
        ("Extensometer (mm);Load (N)", 110e3, False),
        ("Extension (mm);Load (N);Crosshead (mm)", 110e3, False),
    ],
)
def test_an_extension_is_asked_about_unless_a_steel_s(tmp_path, header, modulus, said):
    strain = np.linspace(0, 0.05, 200)
    stress = np.minimum(modulus * strain, 0.002 * modulus + 0.01 * modulus * strain)
    length = 1.0 if "(-)" in header else 50.0
    values = [length * strain, 20.0 * stress, 80.0 * strain][: header.count(";") + 1]
    raw = read_one(write(tmp_path, columns(header, *values)), area=20.0, gauge_length=50.0)
    curve = clean(raw, CurveTarget(200, 2.0, None, None, "true", "true"))
    assert ("strain of the crosshead?" in {c.kind for c in curve.warnings}) == said


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("Traversenweg [mm];Längenänderung [mm];Standardkraft [kN]", 1),
        ("Crosshead [mm];Extensometer [mm];Load [N]", 1),
        ("Extensometer [mm];Stroke [mm];Load [N]", 0),
        ("Displacement [mm];Strain [%];Stress [MPa]", 1),
        ("Strain (Displacement) [%];Strain (Strain 1) [%];Stress [MPa]", 1),
        ("Deformation [mm];Strain [%];Stress [MPa]", 1),
    ],
)
def test_what_is_measured_at_the_specimen_counts_and_the_others_are_named(tmp_path, header, taken):
    text = columns(header, np.arange(20), np.arange(20) + 100, 10 * np.arange(20))
    curve = read_one(write(tmp_path, text), area=20.0, gauge_length=50.0)
    names = header.split(";")
    factor = 1 / 50 if "[mm]" in names[taken] else 1 / 100
    np.testing.assert_allclose(curve.strain, (np.arange(20) + 100 * taken) * factor)
    assert names[1 - taken] in curve.steps[0]
    assert f"took '{names[taken].partition(' [')[0]}'" in curve.steps[0]


@pytest.mark.parametrize(
    "name",
    [
        *("stretch", "stretch (-)", "Stretch λ [-]", "stretch ratio", "lambda", "stretch [mm/mm]"),
        *("stretch [%]", "λ in %", "Streckung [-]", "Verstreckung", "Streckverhältnis [-]"),
        "Dehnungsverhältnis",
    ],
)
@pytest.mark.parametrize(
    ("stress", "measure"), [("true stress", "true"), ("nominal stress", "engineering")]
)
def test_a_stretch_is_the_engineering_strain_and_one(tmp_path, name, stress, measure):
    scale = 100.0 if "%" in name else 1.0
    path = write(tmp_path, table(f"{name};{stress} (MPa)", ";", strain=scale * (1 + STRAIN)))
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN, atol=1e-7)
    assert (curve.strain_measure, curve.stress_measure) == ("engineering", measure)


def test_units_that_are_known_are_not_asked_about(tmp_path):
    """A polymer of 8 GPa: loads in N over an area are no stresses in ksi."""
    settings = CurveSettings(law="ramberg_osgood")
    target = CurveTarget.of(settings, settings.build_law())
    strain = np.linspace(0, 0.03, 200)
    stress = 60 * np.tanh(8e3 * strain / 60)
    load = write(tmp_path, columns("Extension (mm),Load (kN)", strain * 50, stress * 0.02))
    curve = clean(read_one(load, area=20.0, gauge_length=50.0), target)
    assert reasons_not_to_use(curve.warnings) == []
    assert "ksi" not in " ".join(map(str, curve.warnings))
    open_unit = write(tmp_path, columns("strain,stress", strain, stress), "open.csv")
    assert reasons_not_to_use(clean(read_one(open_unit), target).warnings) != []
    raw = read_one(open_unit, strain_unit="-", stress_unit="MPa")
    assert reasons_not_to_use(clean(raw, target).warnings) == []


def test_a_stress_in_kgf_without_its_unit_is_asked_about_by_both_units_that_explain_it(tmp_path):
    settings = CurveSettings(law="voce")
    strain = 0.1 * np.linspace(0, 1, 300) ** 2
    stress = np.minimum(200e3 * strain, 300 + 1500 * strain) / KILOGRAM_FORCE
    (raw,) = read_curves(write(tmp_path, table("strain [-],stress", strain=strain, stress=stress)))
    curve = clean(raw, CurveTarget.of(settings, settings.build_law()))
    (caveat,) = [caveat for caveat in curve.warnings if caveat.blocks]
    assert "in kgf/mm2 200 GPa" in caveat.text
    assert "--stress_unit=kgf/mm2" in caveat.advice


@pytest.mark.parametrize(
    ("header", "signs"),
    [
        ("Compressive strain;Compressive stress (MPa)", (1, 1)),
        ("Strain;Compressive stress (MPa)", (1, 1)),
        ("Compressive strain;Stress (MPa)", (-1, 1)),
        ("Compressive strain;Stress (MPa)", (-1, -1)),
        ("Stauchung;Druckspannung (MPa)", (1, 1)),
        ("Déformation en compression;Contrainte (MPa)", (1, 1)),
        ("Deformación;Tensión de compresión (MPa)", (1, 1)),
        ("圧縮ひずみ;圧縮応力(MPa)", (1, 1)),
        ("압축변형률;압축응력(MPa)", (1, 1)),
        ("Odkształcenie;Naprężenie ściskające (MPa)", (1, 1)),
        ("Деформация сжатия;Напряжение сжатия (МПа)", (1, 1)),
        ("Deformace (-);Napětí v tlaku (MPa)", (1, 1)),
        ("Rek;Drukspanning (MPa)", (1, 1)),
        ("Töjning;Tryckspänning (MPa)", (1, 1)),
        ("Birim şekil değiştirme;Basma gerilmesi (MPa)", (1, 1)),
    ],
)
def test_compression_by_a_column_s_name_is_negative(tmp_path, header, signs):
    text = table(header, ";", strain=signs[0] * STRAIN, stress=signs[1] * STRESS)
    curve = checked(*read_curves(write(tmp_path, text)), -STRAIN, -STRESS)
    assert any("took it as compression" in step for step in curve.steps)


def test_compression_in_the_head_alone_is_asked_about(tmp_path):
    target = CurveTarget(200, 2.0, None, None, "true", "true")
    for head, asked, taken in (
        ("Test type: Compression", True, "compression"),
        ("Compression test ISO 604", True, "compression"),
        ("Druckversuch", True, "compression"),
        ("Upsetting test", True, "compression"),
        # The pressure of grips is no test.
        ("Druck: 6 bar", True, "tension"),
        ("Druckdatum: 3.4.2026", False, "tension"),
        ("Load cell: tension/compression", False, "tension"),
    ):
        (raw,) = read_curves(write(tmp_path, f"{head}\n{table('Strain;Stress (MPa)', ';')}"))
        np.testing.assert_allclose(raw.strain, STRAIN, rtol=1e-7)
        curve = clean(raw, target)
        said = [caveat.text for caveat in curve.warnings if caveat.kind == "compression?"]
        assert len(said) == asked and all(f"taken for {taken}" in text for text in said)
        # ln(1 + e) in tension, -ln(1 - e) of the shortening in compression.
        sign = 1.0 if taken == "tension" else -1.0
        assert curve.strain[-1] == pytest.approx(sign * np.log1p(sign * STRAIN[-1]))
    (raw,) = read_curves(write(tmp_path, table("Tension/compression strain;Stress (MPa)", ";")))
    np.testing.assert_allclose(raw.strain, STRAIN, rtol=1e-7)


@pytest.mark.parametrize(
    "head",
    ["Flexural test ISO 178", "Test type: 3-point bending", "Biegeversuch nach DIN EN ISO 7438"],
)
def test_a_head_that_speaks_of_bending_forbids_an_answer(tmp_path, head):
    target = CurveTarget(200, 2.0, None, None, "true", "true")
    text = f"{{}}\n{table('Strain;Stress (MPa)', ';')}"
    (raw,) = read_curves(write(tmp_path, text.format(head)))
    assert "bending?" in reasons_not_to_use(clean(raw, target).warnings)
    (raw,) = read_curves(write(tmp_path, text.format("Bend radius of the grips: 3 mm")))
    assert "bending?" not in reasons_not_to_use(clean(raw, target).warnings)


@pytest.mark.parametrize(("header", "row"), [("%", "mm/mm"), ("-", "%"), ("mm/mm", "%")])
def test_a_header_and_a_row_of_units_must_not_disagree(tmp_path, header, row):
    text = f"Strain ({header});Stress (N/mm²)\n{{}};MPa"
    expected = STRAIN * {"%": 0.01}.get(header, 1.0)
    np.testing.assert_allclose(read(tmp_path, text.format(header)).strain, expected, rtol=1e-7)
    with pytest.raises(InputError, match=f"says {header} and {row}; say which holds with --strain"):
        read(tmp_path, text.format(row))
    curve = read(tmp_path, text.format(row), strain_unit="%")
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)


@pytest.mark.parametrize(
    "name",
    [
        "Plastic strain", "Plastic Strain, mm/mm", "Strain (plastic)", "plastische Dehnung [-]",
        "Dehnung plastisch", "déformation plastique", "deformación plástica",
        "deformazione plastica", "epsilon_p", "eps_pl", "εp", "PEEQ", "塑性ひずみ", "elastic strain",
        "Permanent strain", "inelastic strain", "bleibende Dehnung", "Пластическая деформация",
        "Упругая деформация", "Πλαστική παραμόρφωση", "소성변형률", "탄성변형률", "Odkształcenie sprężyste",
    ],
)  # fmt: skip
def test_a_part_of_the_strain_is_not_taken_for_the_total(tmp_path, name):
    path = write(tmp_path, table(f"{name};Stress", ";"))
    for options in ({}, {"strain_column": "1", "strain_unit": "-"}):
        with pytest.raises(InputError, match="is a part of the strain; the total strain is needed"):
            read_one(path, **options)
    beside = read_one(write(tmp_path, columns(f"{name};Strain P1;Stress P1", 0, STRAIN, STRESS)))
    np.testing.assert_allclose(beside.strain, STRAIN, rtol=1e-7)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Flexure strain (%);Flexure stress (MPa)", "is of a bending test"),
        ("Randfaserdehnung [%];Biegespannung [MPa]", "is of a bending test"),
        ("Flexure extension (mm);Flexure load (N)", "is of a bending test"),
        ("déformation en flexion (%);contrainte de flexion (MPa)", "is of a bending test"),
        ("Strain range (%);Stress range (MPa)", "is a range, which is twice an amplitude"),
        ("Angle [deg];Torque [Nm]", "is of a torsion or bending test"),
        ("Deflection [mm];Load (N)", "is of a torsion or bending test"),
        ("Max strain [%];Max stress [MPa]", "hold the ends of cycles and no points between them"),
        ("Strain SD (%);Stress SD (MPa)", "no column is named as a strain or a stress"),
        ("Bearing strain (%);Bearing stress (MPa)", "no column is named as a strain or a stress"),
        # Results of specimens, which sorted ones would make a curve.
        ("Strain at break (%);Stress at break (MPa)", "no column is named as a strain or a stress"),
        ("Ultimate strain (%);Ultimate stress (MPa)", "no column is named as a strain or a stress"),
        ("Bruchdehnung (%);Bruchspannung (MPa)", "no column is named as a strain or a stress"),
        ("断裂应变 (%);断裂应力 (MPa)", "no column is named as a strain or a stress"),
    ],
)
def test_a_strain_or_stress_of_no_law_is_refused(tmp_path, header, said):
    sizes = {"area": 30.0, "gauge_length": 20.0}
    with pytest.raises(InputError, match=said):
        read_one(write(tmp_path, table(header, ";")), **sizes)
    names = header.replace(";", ";Strain A (%);Stress A (MPa);")
    checked(read_one(write(tmp_path, columns(names, 0, 100 * STRAIN, STRESS, 0)), **sizes))


def test_components_of_tensors_are_no_specimens(tmp_path):
    text = columns("eps_11,sig_11,eps_22,sig_22", STRAIN, STRESS, -0.3 * STRAIN, 0)
    assert read_one(write(tmp_path, text)).columns == ("eps_11", "sig_11")


@pytest.mark.parametrize(
    ("header", "is_shear"),
    [
        ("Déformation de cisaillement (-);Contrainte de cisaillement (MPa)", True),
        ("Deformación cortante (-);Esfuerzo cortante (MPa)", True),
        ("Odkształcenie postaciowe;Naprężenie ścinające (MPa)", True),
        ("Деформация сдвига;Касательное напряжение (МПа)", True),
        ("剪应变;剪应力(MPa)", True),
        ("せん断ひずみ;せん断応力(MPa)", True),
        ("전단변형률;전단응력(MPa)", True),
        ("Scherdehnung;Scherspannung (MPa)", True),
        ("γ;τ (MPa)", True),
        ("Παραμόρφωση (-);Τάση (MPa)", False),  # letters of a word
    ],
)
def test_shear_is_understood_in_the_languages_of_strain_and_stress(tmp_path, header, is_shear):
    curve = read_one(write(tmp_path, table(header, ";")))
    assert curve.is_shear == is_shear
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)


def table_of_strains(header: str, *shares: float) -> str:
    """A table whose first columns are these shares of the strain, in %, and whose last one is the stress."""
    return columns(header, *(100.0 * share * STRAIN for share in shares), STRESS)


@pytest.mark.parametrize(
    ("header", "shares"),
    [
        ("SG front (%);SG back (%);Stress (MPa)", (1.2, 0.8)),
        ("DMS vorn [%];DMS hinten [%];Spannung [MPa]", (1.2, 0.8)),
        ("Extensometer left (%);Extensometer right (%);Stress (MPa)", (0.9, 1.1)),
        ("Strain 1 (%);Strain 2 (%);Mean strain (%);Stress (MPa)", (1.2, 0.8, 1.0)),
        ("Ext 1 (%);Ext 2 (%);Ext mean (%);Stress (MPa)", (1.2, 0.8, 1.0)),
        ("Average (%);Strain 1 (%);Strain 2 (%);Stress (MPa)", (1.0, 1.2, 0.8)),
        ("P1.epsY [%];P2.epsY [%];P3.epsY [%];epsY Mittelwert [%];Stress", (0.9, 1, 1.1, 1)),
        ("Grobe Dehnung [%];Feine Dehnung [%];Spannung [MPa]", (1.3, 1.0)),
        ("Stroke strain (%);Strain gauge (%);Stress (MPa)", (1.3, 1.0)),
    ],
)
def test_the_mean_of_several_strains_counts(tmp_path, header, shares):
    curve = read_one(write(tmp_path, table_of_strains(header, *shares)))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    assert "of the columns" in curve.steps[0]


@pytest.mark.parametrize(
    ("header", "shares", "said"),
    [
        ("Strain top (%);Strain bottom (%);Stress", (1.0, -1.0), "of different signs, as in bend"),
        ("SG front (%);SG back (µε);Stress", (1.0, 1.0), "differ in their unit"),
        ("Strain (%);SG back (%);Stress (MPa)", (1.2, 0.8), "several columns could be the strain"),
        ("Ext 1 (%);Strain 2 (%);Stress (MPa)", (1.2, 0.8), "several columns could be the strain"),
        ("SG1 (%);SG2 (%);Stress (MPa)", (1.2, 0.8), "several columns could be the strain"),
    ],
)
def test_one_of_several_strains_is_not_taken_alone(tmp_path, header, shares, said):
    with pytest.raises(InputError, match=said):
        read_curves(write(tmp_path, table_of_strains(header, *shares)))


# Conditions of a test from head and file name: what can be read in one way, and nothing else.


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("cleaned_6061-01-13-200C-L", {"temperature": "200 °C", "direction": "L"}),
        ("cleaned_6061-03-15-100C-ST", {"temperature": "100 °C", "direction": "ST"}),
        ("cleaned_CA-RD-02", {"direction": "RD"}),
        ("cleaned_SML4188-Ring1-17_Pull_0.0001", {"rate": "0.0001"}),
        ("steel_1e-3_293K_45deg", {"temperature": "293 K", "rate": "0.001", "direction": "45°"}),
        ("steel_-40C_500/s", {"temperature": "-40 °C", "rate": "500 1/s"}),
        ("steel_0.001s-1_20C", {"temperature": "20 °C", "rate": "0.001 1/s"}),
        ("DP600_1e-3_per_s", {"rate": "0.001 1/s"}),
        ("SHPB-2500 s^-1-2", {"rate": "2500 1/s"}),
        ("hold_300s-10", {}),
        # A grade, a hold time, a specimen called L, two temperatures, a thickness, a number: none is sure.
        ("7075-T6", {}),
        ("cleaned_SRI_500s_04_Ring3_06", {}),
        ("test-L", {}),
        ("from_100C_to_200C", {}),
        ("sheet_0.5", {}),
        ("heat_77K", {}),
    ],
)
def test_conditions_of_a_file_name(stem, expected):
    assert conditions_of({}, stem) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Tension test at 300 °C", {"temperature": "300 °C"}),
        ("Zugversuch bei -40 °C, Dehnrate 0,001 1/s", {"temperature": "-40 °C", "rate": "0.001 1/s"}),
        ("tested at T = 300 C and rate 5 /s", {"temperature": "300 °C", "rate": "5 1/s"}),
        ("Test at 392 deg. F, 6 %/min", {"temperature": "392 °F", "rate": "0.001 1/s"}),
        ("Test of sheet, 0.01 1/s", {"rate": "0.01 1/s"}),
        ("Tensile test at elevated temperature 300 °C", {"temperature": "300 °C"}),
        ("Tensile test, tempered 600 °C", {}),
        ("test" + "1 " * 50_000 + "300 °C", {}),  # and soon
        ("Tensile test of plate annealed at 900 °C", {}),  # what was done to the material
        ("Zugprobe wärmebehandelt 500 °C", {}),
        ("Prüfling ausgehärtet bei 180 °C", {}),
        ("Tension test at 300 °C, annealed at 900 °C", {}),
        ("Plate 7, 900 °C", {}),  # nothing says of what
        ("Test at 20 °C and 300 °C", {}),
    ],
)  # fmt: skip
def test_conditions_in_prose(line, expected):
    """Johnson-Cook's A was 310 MPa for 400 where 300 °C stood in a sentence, without a word."""
    assert conditions_of({}, "x", [line]) == expected


def test_conditions_of_the_lines_before_the_table():
    notes = {
        "Specimen ID": "A-07",
        "Test temperature [°C]": "23,5",
        "Strain rate": "1e-3 /s",
        "Material direction": "0°",
        "Temperature of the room": "20",
    }
    assert conditions_of(notes, "x") == {
        "specimen": "A-07",
        "temperature": "23.5 °C",
        "direction": "0°",
        "rate": "0.001 1/s",
    }
    matcal = {"temperature": "851.67", "direction": "R22", "engineering_strain_rate": "0.0001"}
    assert conditions_of(matcal, "x") == {
        "temperature": "851.67",
        "direction": "R22",
        "rate": "0.0001",
    }
    # A plain word or unit of the head stands; a bare number gives way to the name's temperature with its unit.
    assert conditions_of({"Temp": "150 °C", "direction": "TD"}, "6061-01-200C-L") == {
        "temperature": "150 °C",
        "direction": "TD",
    }
    assert conditions_of(matcal, "6061-01-200C-L")["temperature"] == "200 °C"


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ("0.1 %/s", "0.001 1/s"),
        ("0.6 1/min", "0.01 1/s"),
        ("6 %/min", "0.001 1/s"),
        ("0,25 1/s", "0.25 1/s"),
        ("10^-3 s-1", "0.001 1/s"),
        ("1.5 x 10^(3) /s", "1500 1/s"),
        ("1,000 1/s", "1,000 1/s"),  # a thousand, or one
        ("5 mm/min", "5 mm/min"),
    ],
)
def test_rates_in_units_of_machines_are_made_rates_in_1_s(said, rate):
    assert conditions_of({"Strain rate": said}, "x") == {"rate": rate}


def test_a_rate_that_is_not_understood_is_quoted():
    raw = RawCurve("a", STRAIN, STRESS)
    with pytest.raises(InputError, match="its rate '5 mm/min' is not understood; give it"):
        rate_of(raw, "5 mm/min")
    assert conditions_of({"温度": "200 °C"}, "x") == {"temperature": "200 °C"}


def test_a_whole_number_of_fahrenheit_in_rankine_is_recognised():
    assert fahrenheit_of_rankine("534.67") == 75
    assert fahrenheit_of_rankine("851.67") == 392  # 200 °C
    assert fahrenheit_of_rankine("293.15") is None
    assert fahrenheit_of_rankine("534.7") is None


def test_specimens_of_one_file_are_conditions_of_their_curves(tmp_path):
    rows = table("specimen,strain,stress").splitlines()
    both = [rows[0], *(f"{name},{row}" for name in "AB" for row in rows[1:])]
    curves = read_curves(write(tmp_path, "\n".join(["Temperature: 100 °C", *both])))
    assert [dict(curve.conditions) for curve in curves] == [
        {"temperature": "100 °C", "specimen": name} for name in "AB"
    ]


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("Time [min]", "Time", "min"),
        ("Zeit in h", "Zeit", "h"),
        ("time/s", "time", "s"),
        ("t_s", "t", "s"),
        ("Running Time", "Running Time", None),
        ("Time (sec)", "Time", "sec"),
        ("Time (fortnights)", "Time", "fortnights"),
        ("Время, ч", "Время", "ч"),
        ("Time, fortnights", "Time", "fortnights"),
        ("Date/Time", "Date/Time", None),
    ],
)
def test_a_time_is_name_and_unit(header, name, unit):
    assert split_time_header(header) == (name, unit)


def test_times_in_words_of_other_languages_and_a_factor_of_a_time(tmp_path):
    def seconds(name):
        path = write(tmp_path, columns(f"{name},strain,stress", np.arange(20), STRAIN, STRESS))
        return read_curves(path, of_test=True, needs_time=True)[0].time[1]

    for unit, factor in (("ч", 3600), ("saat", 3600), ("分", 60), ("minutos", 60), ("sn", 1)):
        assert seconds(f"time ({unit})") == factor
    with pytest.raises(InputError, match="'x10' may be a factor of its numbers"):
        seconds("time x10 (s)")


def test_two_columns_of_time_matter_only_where_the_time_does(tmp_path):
    head = "Time (s),Running time (s),strain,stress"
    path = write(tmp_path, columns(head, np.arange(20), np.arange(5, 25), STRAIN, STRESS))
    (curve,) = read_curves(path, of_test=True)
    assert curve.time is None
    with pytest.raises(InputError, match="several columns could be the time"):
        read_curves(path, of_test=True, needs_time=True)
    # The logarithm of a time is none.
    path.write_text(path.read_text().replace("Running time (s)", "log time"))
    np.testing.assert_allclose(read_curves(path, of_test=True)[0].time, np.arange(20.0))


# Seconds of a test that ends after two days, and how a clock writes them.
SECONDS = np.concatenate([np.arange(15) * 2.5, [3600.0, 43200.0, 86400.0, 90000.0, 172800.0]])
BEGUN = datetime.datetime(2026, 11, 12, 23, 30)


def clocked(form: str) -> list[str]:
    return [f"{BEGUN + datetime.timedelta(seconds=s):{form}}" for s in SECONDS.tolist()]


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("Time", [f"{int(s // 3600)}:{int(s // 60 % 60):02}:{s % 60:04.1f}" for s in SECONDS]),
        ("Zeit (hh:mm:ss.s)", [f"{s // 3600:.0f}:{s // 60 % 60:.0f}:{s % 60}" for s in SECONDS]),
        ("Time", [f"{int(s // 60)}:{s % 60:04.1f}" for s in SECONDS]),
        ("Time", [f"{datetime.timedelta(seconds=s)}" for s in SECONDS.tolist()]),
        ("Time", clocked("%Y-%m-%d %H:%M:%S.%f")),
        ("Timestamp", clocked("%Y-%m-%dT%H:%M:%SZ.%f")),
        ("Uhrzeit", clocked("%d.%m.%Y %H:%M:%S,%f")),
        ("Time", clocked("%m/%d/%Y %I:%M:%S.%f %p")),
        ("Datum;Uhrzeit", clocked("%d.%m.%Y;%H:%M:%S,%f")),
        ("hh:mm:ss", [f"{s // 3600:02.0f}:{s // 60 % 60:02.0f}:{s % 60:04.1f}" for s in SECONDS]),
    ],
)
def test_a_time_of_a_clock_is_read_as_seconds(tmp_path, header, cells):
    cells = [cell.replace("Z.000000", "Z").replace("Z.500000", ".5Z") for cell in cells]
    path = write(tmp_path, columns(f"{header};strain;stress", cells, STRAIN, STRESS))
    (curve,) = read_curves(path, of_test=True, needs_time=True)
    np.testing.assert_allclose(curve.time - curve.time[0], SECONDS)
    assert curve.time_assumed == ""
    assert "the time of a clock" in curve.steps[-1]


def test_times_of_a_workbook_are_read_as_seconds(tmp_path):
    import openpyxl.utils.datetime

    # Above 24 hours a workbook's time is a date of 1900.
    cells = [openpyxl.utils.datetime.from_excel(s / 86400.0) for s in SECONDS.tolist()]
    rows = [[cell, *row[:2]] for cell, row in zip(cells, sheet_rows()[2:], strict=True)]
    path = write_workbook(tmp_path / "t.xlsx", {"S": [["Time", "Strain (%)", "Stress"], *rows]})
    (curve,) = read_curves(path, of_test=True, needs_time=True)
    np.testing.assert_allclose(curve.time, SECONDS, atol=1e-3)


def test_a_clock_without_dates_passes_midnight_once(tmp_path):
    clock = [f"{BEGUN + datetime.timedelta(hours=i):%H:%M:%S}" for i in range(12)]
    path = write(tmp_path, columns("time,strain,stress", clock, range(12), range(12)))
    (curve,) = read_curves(path, of_test=True)
    np.testing.assert_allclose(np.diff(curve.time), 3600.0)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["0:01", "0:02"], "may be minutes and seconds, or hours and minutes"),
        (["11/02/2026 1:00:00", "11/03/2026 1:00:00"], "can be read in 2 ways"),
        (["0:00:01", "later"], "holds times such as '0:00:01', and 'later' is none"),
    ],
)
def test_a_clock_that_can_be_read_in_two_ways_is_refused(tmp_path, cells, said):
    path = write(tmp_path, columns("time,strain,stress", np.repeat(cells, 10), STRAIN, STRESS))
    with pytest.raises(InputError, match=said):
        read_curves(path, of_test=True)


@pytest.mark.parametrize("second", ["Time (s)", "Zeit 2 [s]"])
def test_a_strain_and_a_stress_that_were_measured_at_other_times_are_no_pair(tmp_path, second):
    time = np.arange(20.0)

    def path(delay):
        head = f"Time (s);Strain;{second};Stress"
        return write(tmp_path, columns(head, time, STRAIN, time + delay, STRESS))

    np.testing.assert_allclose(read_one(path(0.01)).strain, STRAIN, rtol=1e-7)
    with pytest.raises(InputError, match="times of their own .* which differ by up to 3 in a row"):
        read_curves(path(3.0))
    both = columns("Total time (s);Cycle time (s);Strain;Stress", time, time + 30, STRAIN, STRESS)
    np.testing.assert_allclose(read_one(write(tmp_path, both)).strain, STRAIN, rtol=1e-7)


@pytest.mark.parametrize(
    ("header", "wanted", "found"),
    [
        ("Strain;Stress;True stress", "true", ("engineering", "true")),
        ("Strain;True strain;Stress", "true", ("true", "engineering")),
        ("Strain;True strain;Stress;True stress", "true", ("true", "true")),
        ("Strain;True strain;Stress;True stress", "engineering", ("engineering", "engineering")),
        ("True strain;Stress", "true", ("true", None)),
    ],
)
def test_plain_columns_beside_true_ones_are_engineering(tmp_path, header, wanted, found):
    path = write(tmp_path, columns(header, *[STRAIN] * (header.count(";") + 1)))
    (curve,) = read_curves(path, measures={"strain": wanted, "stress": wanted})
    assert (curve.strain_measure, curve.stress_measure) == found
    names = header.split(";")
    of_axis = [[n for n in names if axis in n.lower()] for axis in ("strain", "stress")]
    for column, names_of_axis in zip(curve.columns, of_axis, strict=True):
        assert ("True" in column) == (wanted == "true" and any("True" in n for n in names_of_axis))


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        # A short name of an extensometer counts before the crosshead.
        *((f"{name} (mm);Stroke (mm);Stress (MPa)", (name, "Stress"))
          for name in ("Ext.", "Ext.1", "Extens.", "Axial Ext")),
        ("e (%);R (MPa)", ("e", "R")),
        ("Transverse (mm/mm);Axial (mm/mm);Channel 3 (MPa)", ("Axial", "Channel 3")),
        ("ΔL (mm);F (N);Oil pressure (bar)", ("ΔL", "F")),
        ("Position (mm);Ansetzaufnehmer (mm);F (N)", ("Ansetzaufnehmer", "F")),
        ("Stroke (mm);LVDT (mm);Load (N)", ("LVDT", "Load")),
        ("Stroke (mm);Ext.(Gauge) (mm);Force (N)", ("Ext.(Gauge)", "Force")),
        ("Disp. (in);Load (lbf)", ("Disp.", "Load")),
        ("Displ. (mm);Clip gauge (mm);Load (N)", ("Clip gauge", "Load")),
        ("Axial gauge (µm/m);Transverse gauge (µm/m);F (N)", ("Axial gauge", "F")),
        ("変位(mm);ひずみゲージ(µε);荷重(N)", ("ひずみゲージ", "荷重")),
        ("∆L [mm];F [N]", ("∆L", "F")),
        ("伸长mm;负荷kN", ("伸长", "负荷")),
        ("StrainPercent;AxialStressMPa", ("Strain", "AxialStress")),
        ("Деформація, %;Напруження, МПа", ("Деформація", "Напруження")),
    ],
)  # fmt: skip
def test_a_column_without_a_name_is_found_by_its_unit(tmp_path, header, taken):
    path = write(tmp_path, columns(header, *[STRAIN + 0.01] * (header.count(";") + 1)))
    assert read_one(path, area=1.0, gauge_length=1.0).columns == taken


def test_one_strain_in_two_units_is_one_strain_and_the_finer_column_counts(tmp_path):
    def path(share):
        rows = [
            f"{e:.4f};{100 * e * share:.6f};{s:.5f};{s / 6.894757:.5f}"
            for e, s in zip(STRAIN, STRESS, strict=True)
        ]
        header = "Strain (mm/mm);Strain (%);Stress (MPa);Stress (ksi)"
        return write(tmp_path, "\n".join([header, *rows]))

    curve = read_one(path(1.0))
    np.testing.assert_allclose(curve.strain, STRAIN, atol=1e-8)
    np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="several columns could be the strain"):
        read_curves(path(1.01))


# Signs of US units in a file whose stress has no unit.


def with_displacement(gauge_length: float, header: str) -> str:
    return columns(header, gauge_length * STRAIN, STRAIN, STRESS)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (table("strain,stress"), None),
        (f"{{'temperature':534.67}}\n{table('strain,stress')}", "75 °F in degrees Rankine"),
        (f"{{'temperature':293.15}}\n{table('strain,stress')}", None),
        (with_displacement(0.25, "displacement,strain,stress"), "0.25, a gauge length in inches"),
        (with_displacement(0.25, "displacement [in],strain,stress"), "'displacement' is in in"),
        (with_displacement(25.0, "displacement,strain,stress"), None),
        (with_displacement(25.0, "Load [lbf],strain,stress"), "'Load' is in lbf"),
        (with_displacement(25.0, "Load [kip],strain,stress"), "'Load' is in kip"),
        (with_displacement(25.0, "Bias [psi],strain,stress"), "'Bias' is in psi"),
        (with_displacement(25.0, "Bias [ksi],strain,stress"), "'Bias' is in ksi"),
        (with_displacement(25.0, "Load [kN],strain,stress"), None),
        (with_displacement(25.0, "Temperature [°F],strain,stress"), "in degrees °F"),
    ],
)
def test_hints(tmp_path, text, hint):
    path = write(tmp_path, text)
    found = " ".join(read_curves(path)[0].us_unit_hints)
    assert (hint in found) if hint else not found
    assert not read_curves(path, ReadingOptions(stress_unit="MPa"))[0].us_unit_hints


def test_every_real_file_in_ksi_shows_signs_of_it(real_curves):
    files = [*real_curves.glob("304L_*/*.[dc]*"), *real_curves.glob("6061T6_tension/*.csv")]
    assert len(files) == 16
    measures = {"strain": "true", "stress": "true"}
    for file in files:
        curve = read_curves(file, measures=measures)[0]
        assert any("inches" in hint for hint in curve.us_unit_hints), file
        assert np.isfinite(curve.stress_mpa).all()


@pytest.mark.parametrize(
    "names",
    [
        *(("exx", "eyy"), ("eyy", "exx"), ("epsilon_x", "epsilon_y"), ("eps_11", "eps_22")),
        ("Strain_x", "Strain_y"),
    ],
)
def test_of_two_directions_of_a_picture_the_strain_along_the_load_counts(tmp_path, names):
    head = f"{names[0]};{names[1]};exy;stress [MPa]"
    text = columns(head, STRAIN, -0.4 * STRAIN, 1e-5, STRESS)
    curve = read_one(write(tmp_path, text))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    assert f"took '{names[0]}' as the strain along the load" in curve.steps[0]
    # Beside a shear stress the shear strain counts, half of gamma.
    curve = read_one(write(tmp_path, text.replace("stress", "shear stress")))
    np.testing.assert_allclose(curve.strain, 1e-5)
    assert curve.shear_strain == "tensor"
    # In shear neither is, and a strain of the same sign is no transverse one.
    for other in (-1.0, 0.4):
        text = columns(f"{names[0]};{names[1]};stress [MPa]", STRAIN, other * STRAIN, STRESS)
        with pytest.raises(InputError, match="several columns could be the strain"):
            read_one(write(tmp_path, text))


@pytest.mark.parametrize(
    ("header", "time"),
    [
        ("log10(t/s)", 10.0**STRAIN),
        ("lg time [h]", 3600.0 * 10.0**STRAIN),
        ("ln(time)", np.exp(STRAIN)),
    ],
)
def test_a_logarithm_of_the_time_is_read_by_its_base(tmp_path, header, time):
    text = columns(f"{header};strain;stress", STRAIN, STRAIN, STRESS)
    (curve,) = read_curves(write(tmp_path, text), of_test=True, needs_time=True)
    np.testing.assert_allclose(curve.time, time, rtol=1e-6)
    path = write(tmp_path, text.replace(header, "log time [h]"))
    with pytest.raises(InputError, match="to base 10 or e; call it log10 or ln"):
        read_curves(path, of_test=True, needs_time=True)


def test_a_temperature_is_no_time_and_a_column_of_one_temperature_and_rate_is_a_condition(tmp_path):
    drift = 200.0 + 0.5 * np.sin(np.arange(20))
    text = columns("strain;stress;T [°C];Strain rate [1/s]", STRAIN, STRESS, drift, 0.01)
    (curve,) = read_curves(write(tmp_path, text), of_test=True, needs_time=True)
    assert curve.time is None
    assert curve.conditions["rate"] == "0.01 1/s"
    value, unit = curve.conditions["temperature"].split()
    assert (float(value), unit) == (pytest.approx(200.0, abs=0.5), "°C")
    # A specimen that becomes hot has no one temperature.
    text = columns("strain;stress;Temperature [°C]", STRAIN, STRESS, 20 + 1000 * STRAIN)
    (curve,) = read_curves(write(tmp_path, text), of_test=True)
    assert "temperature" not in curve.conditions
    # A rate that jumps is no new specimen.
    rate = np.where(STRAIN < 0.02, 0.001, 0.1)
    text = columns("strain;stress;Strain rate [1/s]", STRAIN, STRESS, rate)
    (curve,) = read_curves(write(tmp_path, text), of_test=True)
    assert len(curve.strain) == len(STRAIN) and "rate" not in curve.conditions


@pytest.mark.parametrize(("warmer", "specimens"), [(24, 1), (60, 2)])
def test_a_room_that_becomes_warmer_is_no_new_specimen(tmp_path, warmer, specimens):
    """Two loadings of rubber, below each other: of one specimen in a room, or at two temperatures."""
    strain = np.concatenate([np.linspace(0, 1, 40), np.linspace(1, 0, 40), np.linspace(0, 1, 40)])
    stress = strain + 1.0 - (strain + 1.0) ** -2.0
    temperature = np.repeat([23, warmer], [80, 40])
    text = columns("strain (-);stress (MPa);Temperature (°C)", strain, stress, temperature)
    found = read_curves(write(tmp_path, text), ReadingOptions(), of_test=True, needs_time=False)
    assert len(found) == specimens


@pytest.mark.parametrize(
    ("head", "header", "held", "value"),
    [
        ("Stress: 60 MPa", "Time [s];Strain", "stress_mpa", 60.0),
        ("Strain: 1 %", "Time [s];Stress [MPa]", "strain", 0.01),
    ],
)
def test_a_stress_or_strain_that_the_head_alone_tells_is_held(tmp_path, head, header, held, value):
    text = columns(header, np.arange(20), STRESS)
    path = write(tmp_path, f"{head}\n{text}")
    # The file's name says it as well, in one number.
    for file in (path, write(tmp_path, text, f"600C_{head.partition(' ')[2]}.csv")):
        (curve,) = read_curves(file, of_test=True, needs_time=True)
        np.testing.assert_allclose(getattr(curve, held), value)
    named = write(tmp_path, text, "60MPa_70MPa_1%_2%.csv")
    with pytest.raises(InputError, match="no column is named as a"):
        read_curves(named, of_test=True, needs_time=True)
    # A loading without it is refused: the head's value may be any.
    with pytest.raises(InputError, match=f"(creep|relaxation)=FILE .* {head}".replace("60", "200")):
        read_curves(path)


@pytest.mark.parametrize(
    ("quantity", "held", "values"),
    [
        ("Strain (%)", "stress_mpa", {"150 MPa": 150.0, "200 MPa": 200.0, "at 0.25 GPa": 250.0}),
        ("Stress (MPa)", "strain", {"0.5 %": 0.005, "@1 %": 0.01}),
        # The title alone names what was measured.
        ("", "stress_mpa", {"150 MPa": 150.0, "200 MPa": 200.0}),
    ],
)
def test_columns_named_by_what_is_held_are_tests(tmp_path, quantity, held, values):
    header = ",".join(["Time (h)", *(f"{quantity} {value}".strip() for value in values)])
    measured = [(1 + n) * STRESS / 1e3 for n in range(len(values))]
    # The last test ends earlier.
    shorter = [*(f"{cell:.8g}" for cell in measured[-1][:-2]), "", ""]
    title = "" if quantity else "Creep strain (%) of steel\n"
    text = columns(f"{title}{header}", np.arange(20), *measured[:-1], shorter)
    path = write(tmp_path, text)
    curves = read_curves(path, of_test=True, needs_time=True)
    if title:
        untitled = write(tmp_path, path.read_text().replace("(%)", ""))
        with pytest.raises(InputError, match="no column is named as a strain or a stress"):
            read_curves(untitled, of_test=True, needs_time=True)
    other = "strain" if held == "stress_mpa" else "stress_mpa"
    assert [len(curve.strain) for curve in curves[:-1]] == [len(STRESS)] * (len(values) - 1)
    assert len(curves[-1].strain) == len(STRESS) - 2
    for curve, column, value in zip(curves, measured, values.values(), strict=True):
        np.testing.assert_allclose(getattr(curve, held), value)
        scale = 0.01 if other == "strain" else 1.0
        expected = scale * column[: len(curve.strain)]
        np.testing.assert_allclose(getattr(curve, other), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "kind", "values"),
    [
        ("True stress (MPa) 0.001 1/s,True stress (MPa) 10 1/s", "rate", ["0.001 1/s", "10 1/s"]),
        ("0.001/s,1e1/s", "rate", ["0.001 1/s", "10 1/s"]),
        ("Stress [MPa] (6 1/min),Stress [MPa] (60 1/min)", "rate", ["0.1 1/s", "1 1/s"]),
        ("Stress (MPa) 20 °C,Stress (MPa) 300 °C", "temperature", ["20 °C", "300 °C"]),
        ("Stress_293K (MPa),Stress_573K (MPa)", "temperature", ["293 K", "573 K"]),
    ],
)
def test_columns_named_by_rate_or_temperature_are_curves(tmp_path, names, kind, values):
    curves = read_curves(write(tmp_path, columns(f"Strain,{names}", STRAIN, STRESS, 2 * STRESS)))
    assert [curve.conditions[kind] for curve in curves] == values
    for factor, curve in enumerate(curves, start=1):
        np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-6)
        np.testing.assert_allclose(curve.stress_mpa, factor * STRESS, rtol=1e-6)


@pytest.mark.parametrize("unit", ["mm/min", "mm·min⁻¹", "mm/s"])
def test_a_speed_over_the_gauge_length_is_a_rate_where_no_time_tells_it(tmp_path, unit):
    head = f"Prüfgeschwindigkeit;3;{unit}\nMesslänge L0;50;mm\n\n"
    text = table("Strain;Stress [MPa]", ";")
    (curve,) = read_curves(write(tmp_path, head + text), of_test=True)
    rate = 3 / 50 / (1 if unit == "mm/s" else 60)
    assert curve.conditions["rate"] == f"{rate:.6g} 1/s"
    assert "over the length of 50 mm" in curve.steps[1]
    # The speed of a recorder's paper, or without a length, tells none; nor does it beside a time.
    timed = head + columns("Time [s];Strain;Stress [MPa]", 1, STRAIN, STRESS)
    without_length = head.partition("\n")[0] + "\n\n" + text
    for other in (head.replace("Prüf", "Papier") + text, without_length, timed):
        (curve,) = read_curves(write(tmp_path, other), of_test=True)
        assert "rate" not in curve.conditions


@pytest.mark.parametrize(
    ("head", "length"),
    [
        ("Height;15;mm\nWidth;150;mm\nThickness;2;mm", 15.0),
        ("Height;12.5;mm\nArea;660;mm²", 12.5),
        # The height may be a side of the section.
        ("Area;30;mm²\nWidth;10;mm\nHeight;3;mm", None),
        ("Height;15;mm\nWidth;150;mm\nThickness;2;mm\nGauge length;20;mm", 20.0),
    ],
)
def test_a_height_beside_a_whole_section_is_the_length_of_a_test(tmp_path, head, length):
    text = f"{head}\n\n{table('Displacement (mm);Stress (MPa)', ';')}"
    path = write(tmp_path, text)
    if length is None:
        with pytest.raises(InputError, match="'Height: 3 mm' is not taken for it"):
            read_curves(path, of_test=True)
        return
    (curve,) = read_curves(path, of_test=True)
    np.testing.assert_allclose(curve.strain, STRAIN / length, rtol=1e-6)


@pytest.mark.parametrize(
    ("head", "names", "half"),
    [
        ("±45, ASTM D3518", "Axial strain (%),Transverse strain (%),Axial stress (MPa)", True),
        ("Layup: [+/-45]2s", "Längsdehnung (%),Querdehnung (%),Spannung (MPa)", True),
        ("ASTM D3518", "Strain long (%),Strain trans (%),Stress (MPa)", True),
        ("ASTM D3518", "Axial strain (%),Transverse strain (%),Shear stress (MPa)", False),
        ("Standard: ISO 14129", "eps_x (%),eps_y (%),Stress (MPa)", True),
        ("Laminate [+45°/-45°]4s", "eps_x (%),eps_y (%),Stress (MPa)", True),
        ("ASTM D5379", "Strain +45 (%),Strain -45 (%),Stress (MPa)", False),
        ("Iosipescu", "Strain -45° (%),Strain +45° (%),Stress (MPa)", False),
        # A tension test with Poisson's ratio, and the shear itself.
        ("0° tension, ASTM D3039", "Axial strain (%),Transverse strain (%),Stress (MPa)", None),
        ("ASTM D3518", "Shear strain (%),Transverse strain (%),Shear stress (MPa)", None),
        *(
            (head, "Axial strain (%),Transverse strain (%),Stress (MPa)", None)
            for head in (
                "[0/±45/90]s",
                "[±45/0]s",
                "[0_2/±45]",
                "Load: ±45 kN",
                "±450 N",
                "ID 3518",
            )
        ),
    ],
)
def test_shear_of_a_ply_is_made_of_two_gauges(tmp_path, head, names, half):
    """γ = εx - εy and τ = σx/2 (ASTM D3518, 10.2 and 11.1), γ = |ε+45| + |ε-45| (ASTM D5379, 11.3)."""
    one, other = 0.6 * STRAIN, -0.4 * STRAIN
    if "-45" in names.partition(",")[0]:
        one, other = other, one
    path = write(tmp_path, columns(f"{head}\n\n{names}", 100 * one, 100 * other, STRESS))
    wanted = {"strain": "engineering", "stress": "engineering", "shear": "engineering"}
    (curve,) = read_curves(path, measures=wanted)
    if half is None:
        np.testing.assert_allclose(curve.strain, one, rtol=1e-6)
        np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-6)
        return
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-6)
    np.testing.assert_allclose(curve.stress_mpa, STRESS * (0.5 if half else 1.0), rtol=1e-6)
    assert curve.is_shear and curve.shear_strain == "engineering"
    # Laws of tension take the strain along the load.
    if "45 (" not in names and "45°" not in names:
        np.testing.assert_allclose(read_curves(path)[0].strain, one, rtol=1e-6)


@pytest.mark.parametrize("names", ["x,y", "X,Y"])
def test_columns_called_x_and_y_are_read_as_those_without_names(tmp_path, names):
    curve = checked(read_one(write(tmp_path, table(names))))
    assert "names x and y: strain in column 1, stress in column 2" in curve.steps[0]
    in_percent = write(tmp_path, table(names, strain=100 * STRAIN))
    with pytest.raises(InputError, match="set --strain_column and --stress_column, or only --str"):
        read_one(in_percent)
    np.testing.assert_allclose(read_one(in_percent, strain_unit="%").strain, STRAIN)


def test_several_curves_of_a_digitized_figure(tmp_path):
    text = columns("Steel A,,Steel B,\nX,Y,X,Y", STRAIN, STRESS, STRAIN, 2 * STRESS)
    first, second = read_curves(write(tmp_path, text))
    assert (first.conditions["specimen"], second.conditions["specimen"]) == ("Steel A", "Steel B")
    np.testing.assert_allclose(second.stress_mpa, 2 * STRESS)


@pytest.mark.parametrize("names", ["U,RF", "U2,RF2"])
def test_displacement_and_force_of_abaqus_ask_for_their_units(tmp_path, names):
    path = write(tmp_path, table(names, strain=50 * STRAIN, stress=20 * STRESS))
    sizes = {"area": 20.0, "gauge_length": 50.0}
    with pytest.raises(InputError, match="'displacement.*' has no unit.*'force.*' has no unit"):
        read_one(path, **sizes)
    curve = read_one(path, strain_unit="mm", stress_unit="N", **sizes)
    np.testing.assert_allclose((curve.strain, curve.stress_mpa), (STRAIN, STRESS), rtol=1e-6)


@pytest.mark.parametrize("name", ["Compression (mm)", "Upsetting [mm]", "Druckverformung / mm"])
def test_a_length_called_compression_is_its_travel(tmp_path, name):
    head = f"Height: 20 mm\nDiameter: 10 mm\n{name},Stress (MPa)"
    curve = read_one(write(tmp_path, table(head, strain=20 * STRAIN)))
    np.testing.assert_allclose(curve.strain, -STRAIN)
    assert curve.travel_in_doubt


def test_a_height_beside_a_diameter_says_compression(tmp_path):
    head = "h0 (mm): 15\nd0 (mm): 10\nstrain,stress (MPa)"
    assert read_one(write(tmp_path, table(head))).compression_in_head == "h0 (mm): 15"
    with_length = f"Gauge length: 50 mm\n{head}"
    assert not read_one(write(tmp_path, table(with_length))).compression_in_head


@pytest.mark.parametrize("told", ["Preload: 400 N\nArea: 80 mm²", "Vorkraft [MPa]: 5"])
def test_a_preload_that_the_load_does_not_have_is_told(tmp_path, told):
    doubt = "preload set to zero?"
    # The first row may lie a little later.
    for later in (0.0, 1e-3 * STRAIN[-1]):
        text = table(f"{told}\nStrain,Stress (MPa)", strain=STRAIN + later)
        assert "preload of 5 MPa" in read_one(write(tmp_path, text)).in_doubt[doubt]
    loaded = read_one(write(tmp_path, table(f"{told}\nStrain,Stress (MPa)", stress=STRESS + 5.0)))
    assert doubt not in loaded.in_doubt
    # The load of the rows before the preload, whose strain is negative, tells nothing.
    before = table(f"{told}\nStrain,Stress (MPa)", strain=STRAIN - STRAIN[2], stress=2.5 * STRESS)
    assert doubt not in read_one(write(tmp_path, before)).in_doubt
    small = read_one(write(tmp_path, table(f"{told}\nStrain,Stress (MPa)", stress=20.0 * STRESS)))
    assert doubt not in small.in_doubt


@pytest.mark.parametrize(
    "name",
    [
        *("Mises strain", "von Mises strain", "Equivalent strain", "Effective strain", "eps_eq"),
        *("Vergleichsformänderung", "Vergleichsdehnung", "Déformation équivalente", "等效应变"),
    ],
)
@pytest.mark.parametrize("unit", [" [%]", " (-)"])
def test_an_equivalent_strain_is_not_the_strain_along_the_load(tmp_path, name, unit):
    """Elastic, with a Poisson's ratio of 0.3, it is 0.87 of the strain along the load: steel had 240 GPa."""
    mises = 0.867 * STRAIN
    path = write(tmp_path, columns(f"{name}{unit};Stress (MPa)", mises, STRESS))
    for options in ({}, {"strain_column": "1"}):
        said = "is an equivalent strain .* the strain along the load"
        with pytest.raises(InputError, match=said):
            read_one(path, **options)
    head = f"{name}{unit};Major strain{unit};von Mises stress (kPa);Stress (MPa)"
    path = write(tmp_path, columns(head, mises, STRAIN, STRESS, STRESS))
    assert read_one(path, stress_column="4").columns[0] == "Major strain"

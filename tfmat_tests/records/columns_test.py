"""Names and units of columns as laboratories write them: understood, or refused by the word that is not."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.cleaning import clean
from tfmat.records.reading import ReadingOptions, read_curves
from tfmat.records.record import CurveTarget, reasons_not_to_use
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import STRAIN, STRESS, table, write

# MPa or N of a unit, from the definitions: kilogram-force 9.80665 N, pound 0.45359237 kg, inch 25.4 mm.
KILOGRAM_FORCE = 9.80665
POUND_FORCE = 0.45359237 * KILOGRAM_FORCE
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
    ("header", "factor"),
    [("% strain", 1e-2), ("%strain", 1e-2), ("Microstrain", 1e-6), ("micro strain", 1e-6)],
)
def test_a_unit_may_stand_before_its_name(tmp_path, header, factor):
    np.testing.assert_allclose(
        read(tmp_path, f"{header};stress").strain, STRAIN * factor, rtol=1e-7
    )


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("Load (kgf)", KILOGRAM_FORCE),
        ("Kraft in daN", 10),
        ("Force [MN]", 1e6),
        ("Force [mN]", 1e-3),
    ],
)
def test_units_of_load(tmp_path, name, factor):
    curve = read(tmp_path, f"strain;{name}")
    np.testing.assert_allclose(curve.stress_mpa, STRESS * factor / 20.0, rtol=1e-7)


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


@pytest.mark.parametrize(
    "header",
    [
        "True Strain;True Stress",
        "Axial Strain;Axial Stress",
        "Tensile strain (Strain 1);Tensile stress",
        "Ext.1(Strain);Stress",
        "Extensión (mm/mm);Tensión",
        "strain (unitless);stress",
        "Strain A12;Stress A12",
        "strain_exp;stress_exp",
        "Strain [mm/mm] DIC;Stress S355-2",
        "Déformation;Contrainte",
        "De\u0301formation;Contrainte",
        "Deformazione;Sforzo",
        "Deformación por tracción (Deformación 1);Esfuerzo de tracción",
        "Deformação;Tensão",
        "公称ひずみ;公称応力",
        "ひずみ（－）;応力（MPa）",
        "应变;应力",
        "Strain;Load (N)",
        "Dehnung;Standardkraft (N)",
        "Strain;Force standard (N)",
        "Strain;Carico [N]",
        "Strain;荷重(N)",
    ],
)  # fmt: skip
def test_names_of_many_laboratories(tmp_path, header):
    curve = read(tmp_path, header)
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    factor = 1 / 20 if "(N)" in header or "[N]" in header else 1
    np.testing.assert_allclose(curve.stress_mpa, STRESS * factor, rtol=1e-7)


@pytest.mark.parametrize("name", ["Deformation", "Verformung", "DEFORMATION"])
def test_a_name_for_a_strain_and_for_a_travel_needs_its_unit(tmp_path, name):
    with pytest.raises(
        InputError, match="has no unit; set --strain_unit, mm or in, or - or % for a strain"
    ):
        read(tmp_path, f"{name};stress")
    np.testing.assert_allclose(read(tmp_path, f"{name} [mm];stress").strain, STRAIN / 50, rtol=1e-7)
    np.testing.assert_allclose(read(tmp_path, f"{name} [%];stress").strain, STRAIN / 100, rtol=1e-7)


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
    rows = "\n".join(f"{i};{i + 100};{10 * i}" for i in range(20))
    path = write(tmp_path, f"{header}\n{rows}")
    (curve,) = read_curves(path, ReadingOptions(area=20.0, gauge_length=50.0))
    factor = 1 / 50 if "[mm]" in header.split(";")[taken] else 1 / 100
    np.testing.assert_allclose(curve.strain, (np.arange(20) + 100 * taken) * factor)
    other = header.split(";")[1 - taken]
    assert other in curve.steps[0]
    assert f"took '{header.split(';')[taken].partition(' [')[0]}'" in curve.steps[0]


@pytest.mark.parametrize(
    "name",
    ["stretch", "stretch (-)", "Stretch λ [-]", "stretch ratio", "lambda", "stretch [mm/mm]"],
)
@pytest.mark.parametrize(
    ("stress", "measure"), [("true stress", "true"), ("nominal stress", "engineering")]
)
def test_a_stretch_is_the_engineering_strain_and_one(tmp_path, name, stress, measure):
    path = write(tmp_path, table(f"{name};{stress} (MPa)", ";", strain=1 + STRAIN))
    (curve,) = read_curves(path)
    np.testing.assert_allclose(curve.strain, STRAIN, atol=1e-7)
    assert (curve.strain_measure, curve.stress_measure) == ("engineering", measure)


def test_a_stretch_in_percent_or_below_zero_is_refused(tmp_path):
    with pytest.raises(InputError, match="may be a strain of 0.5 or 1.5"):
        read(tmp_path, "stretch (%);stress")
    with pytest.raises(InputError, match="a stretch is 1 at rest"):
        read(tmp_path, "stretch;stress")
    np.testing.assert_allclose(
        read(tmp_path, "stretch;stress", strain_unit="-").strain, STRAIN, rtol=1e-7
    )


def test_units_that_are_known_are_not_asked_about(tmp_path):
    """A polymer of 8 GPa: loads in N over an area are no stresses in ksi."""
    settings = CurveSettings(law="ramberg_osgood")
    target = CurveTarget.of(settings, settings.build_law())
    strain = np.linspace(0, 0.03, 200)
    stress = 60 * np.tanh(8e3 * strain / 60)
    load = write(
        tmp_path, table("Extension (mm),Load (kN)", strain=strain * 50, stress=stress * 0.02)
    )
    (raw,) = read_curves(load, ReadingOptions(area=20.0, gauge_length=50.0))
    curve = clean(raw, target)
    assert reasons_not_to_use(curve.warnings) == []
    assert "ksi" not in " ".join(map(str, curve.warnings))
    open_unit = write(tmp_path, table("strain,stress", strain=strain, stress=stress), "open.csv")
    (raw,) = read_curves(open_unit)
    assert reasons_not_to_use(clean(raw, target).warnings) != []
    (raw,) = read_curves(open_unit, ReadingOptions(strain_unit="-", stress_unit="MPa"))
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
    ],
)
def test_compression_by_a_column_s_name_is_negative(tmp_path, header, signs):
    text = table(header, ";", strain=signs[0] * STRAIN, stress=signs[1] * STRESS)
    (curve,) = read_curves(write(tmp_path, text))
    np.testing.assert_allclose(curve.strain, -STRAIN, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, -STRESS, rtol=1e-7)
    assert any("took it as compression" in step for step in curve.steps)


def test_compression_in_the_head_alone_is_asked_about(tmp_path):
    target = CurveTarget(200, 2.0, None, None, "true", "true")
    for head, asked in (
        ("Test type: Compression", True),
        ("Load cell: tension/compression", False),
    ):
        (raw,) = read_curves(write(tmp_path, f"{head}\n{table('Strain;Stress (MPa)', ';')}"))
        np.testing.assert_allclose(raw.strain, STRAIN, rtol=1e-7)
        kinds = [caveat.kind for caveat in clean(raw, target).warnings]
        assert ("compression?" in kinds) == asked
    (raw,) = read_curves(write(tmp_path, table("Tension/compression strain;Stress (MPa)", ";")))
    np.testing.assert_allclose(raw.strain, STRAIN, rtol=1e-7)


def test_a_header_and_a_row_of_units_must_not_disagree(tmp_path):
    header = "Strain (%);Stress (N/mm²)\n{};MPa"
    np.testing.assert_allclose(read(tmp_path, header.format("%")).strain, STRAIN / 100, rtol=1e-7)
    with pytest.raises(InputError, match="says % and mm/mm; say which holds with --strain_unit"):
        read(tmp_path, header.format("mm/mm"))
    curve = read(tmp_path, header.format("mm/mm"), strain_unit="%")
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)


@pytest.mark.parametrize(
    "name",
    [
        "Plastic strain",
        "Plastic Strain, mm/mm",
        "Strain (plastic)",
        "plastische Dehnung [-]",
        "Dehnung plastisch",
        "déformation plastique",
        "deformación plástica",
        "deformazione plastica",
        "epsilon_p",
        "eps_pl",
        "εp",
        "PEEQ",
        "塑性ひずみ",
        "elastic strain",
    ],
)
def test_a_part_of_the_strain_is_not_taken_for_the_total(tmp_path, name):
    for options in (ReadingOptions(), ReadingOptions(strain_column="1", strain_unit="-")):
        with pytest.raises(
            InputError, match=r"is a part of the strain; the total strain is needed"
        ):
            read_curves(write(tmp_path, table(f"{name};Stress", ";")), options)
    rows = [f"0;{e:.8g};{s:.8g}" for e, s in zip(STRAIN, STRESS, strict=True)]
    (beside,) = read_curves(write(tmp_path, "\n".join([f"{name};Strain P1;Stress P1", *rows])))
    np.testing.assert_allclose(beside.strain, STRAIN, rtol=1e-7)

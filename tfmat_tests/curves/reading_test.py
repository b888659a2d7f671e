"""Reading measured curves: what is understood, and that each thing that is no curve gets one clear line."""

import pathlib

import numpy as np
import pytest

from tfmat.curves import units
from tfmat.curves.reading import ReadingOptions, read_curve
from tfmat.errors import InputError

STRAIN = np.linspace(0.0, 0.05, 20)
STRESS = 1000.0 * STRAIN


def table(header: str, separator: str = ",", strain=STRAIN, stress=STRESS) -> str:
    rows = [f"{e:.8g}{separator}{s:.8g}" for e, s in zip(strain, stress, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def write(folder: pathlib.Path, text: str | bytes, name: str = "curve.csv") -> pathlib.Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("header", "separator", "strain_factor", "stress_factor"),
    [
        ("strain,stress", ",", 1, 1),
        ("engineering_strain;engineering_stress", ";", 1, 1),
        ("Strain\tStress", "\t", 1, 1),
        ("Strain (%),Stress (MPa)", ",", 0.01, 1),
        ("strain [-], stress [GPa]", ",", 1, 1000),
        ("gamma,tau [psi]", ",", 1, 0.00689475729),
        ("γ [%];τ [N/mm²]", ";", 0.01, 1),
        ("shear strain,shear stress [ksi]", ",", 1, 6.89475729),
        ("strain_percent,stress_ksi", ",", 0.01, 6.89475729),
        ("epsilon [mm/mm],sigma [Pa]", ",", 1, 1e-6),
        ("True strain,True stress [kPa]", ",", 1, 1e-3),
        ("\ufeffstrain,stress", ",", 1, 1),
    ],
)
def test_columns_and_units_are_found(tmp_path, header, separator, strain_factor, stress_factor):
    curve = read_curve(write(tmp_path, table(header, separator)))
    np.testing.assert_allclose(curve.strain, STRAIN * strain_factor, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS * stress_factor, rtol=1e-7)
    assert curve.name == "curve"
    assert len(curve.steps) == 1


def test_units_agree_with_their_definitions():
    pound_force, inch = 0.45359237 * 9.80665, 0.0254  # N, m; both exact by international agreement
    assert units.stress_factor("psi") == pytest.approx(pound_force / inch**2 / 1e6, rel=1e-14)
    assert units.stress_factor("ksi") == pytest.approx(1000 * units.stress_factor("psi"), rel=1e-14)
    assert (
        units.stress_factor("GPa")
        == 1000 * units.stress_factor("n/mm2")
        == 1e9 * units.stress_factor("Pa")
    )


def test_other_columns_do_not_confuse(tmp_path):
    rows = "\n".join(f"{i},{i / 100},{i * 2},0.1,{i * 3},9" for i in range(20))
    header = "time,engineering_strain,load,strain_rate,engineering_stress,transverse strain"
    curve = read_curve(write(tmp_path, f"{header}\n{rows}\n"))
    assert (curve.strain_measure, curve.stress_measure) == ("engineering", "engineering")
    np.testing.assert_allclose(curve.stress_mpa, 3.0 * np.arange(20))


def test_columns_and_units_can_be_given(tmp_path):
    path = write(tmp_path, table("Channel 1 [%],Channel 2 [MPa]"))
    options = ReadingOptions("channel 1", "Channel 2 [MPa]", stress_unit="KSI")
    curve = read_curve(path, options)
    np.testing.assert_allclose(curve.strain, STRAIN / 100, rtol=1e-7)
    np.testing.assert_allclose(curve.stress_mpa, STRESS * 6.894757293168361, rtol=1e-7)
    assert "as given" in curve.steps[0]
    assert "from the header" in curve.steps[0]


def test_old_encoding_and_blank_lines_are_read(tmp_path):
    text = "\n" + table("strain,stress [N/mm²]") + "\n\n,\n"
    assert len(read_curve(write(tmp_path, text.encode("cp1252"))).strain) == len(STRAIN)


GOOD = table("strain,stress")
BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "empty"),
    "blank": ("\n \n", "empty"),
    "binary": (b"\x89PNG\r\n\x1a\n\0\0\0", "not a text file"),
    "utf16": (GOOD.encode("utf-16"), "not a text file"),
    "one column": ("stress\n" + "1\n" * 20, "one column"),
    "spaces": (GOOD.replace(",", " "), "one column"),
    "no header": ("\n".join(GOOD.splitlines()[1:]), "no header"),
    "header only": ("strain,stress\n", "0 points"),
    "nine points": ("\n".join(GOOD.splitlines()[:10]), "9 points"),
    "nan": (GOOD + "nan,3\n", "line 22, column 'strain': 'nan'"),
    "infinite": (GOOD + "1,inf\n", "line 22, column 'stress': 'inf'"),
    "word": (GOOD + "0.06,broken\n", "line 22, column 'stress': 'broken' is not a number"),
    "missing value": (GOOD + "0.06,\n", "line 22, column 'stress': no value"),
    "short row": (GOOD + "0.06\n", "line 22, column 'stress': no value"),
    "decimal comma": (GOOD + "0,06,60,1\n", "line 22 has 4 values"),
    "decimal comma, semicolon": (table("strain;stress", ";") + "0,06;60\n", "decimal comma"),
    "units in a row": (GOOD.replace("stress\n", "stress\n-,MPa\n"), "line 2, column 'strain': '-'"),
    "two strains": (table("true strain,engineering strain"), "several columns could be the strain"),
    "no stress": (table("strain,load"), "no column is named as a stress (columns: strain, load)"),
    "repeated": (table("strain,strain"), "more than once"),
    "unknown unit": (table("strain,stress [bar]"), "unknown stress unit 'bar'"),
    "unclosed quote": (GOOD + '"0.06,60\n', "not a readable table"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file_gets_one_line_that_names_it(tmp_path, kind):
    content, expected = BAD_FILES[kind]
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_curve(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_curve(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_curve(tmp_path)


def test_unknown_column_and_unit_name_the_nearest(tmp_path):
    path = write(tmp_path, table("strain,stress"))
    with pytest.raises(
        InputError, match=r"no column 'strian' for the strain; did you mean 'strain'\?"
    ):
        read_curve(path, ReadingOptions(strain_column="strian"))
    with pytest.raises(InputError, match="cannot be both strain and stress"):
        read_curve(path, ReadingOptions(strain_column="stress"))
    with pytest.raises(InputError, match=r"unknown stress unit 'kssi'; did you mean 'ksi'\?"):
        ReadingOptions(stress_unit="kssi")
    with pytest.raises(InputError, match="unknown strain unit 'MPa'"):
        ReadingOptions(strain_unit="MPa")

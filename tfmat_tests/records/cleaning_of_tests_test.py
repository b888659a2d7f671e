"""What is done to a test before a law is identified from it: made records whose truth is known."""

import pathlib

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials.law import History
from tfmat.materials.registry import find_law
from tfmat.records.cleaning import CleaningOptions, slack_of
from tfmat.records.files import find_records, load_records
from tfmat.records.record import MOST_POINTS, CurveTarget
from tfmat_tests.records.files import write, write_workbook
from tfmat_tests.records.made_tests import (
    LAW,
    OGDEN,
    STRETCH,
    TRUTH,
    Viscous,
    cycles,
    only,
    read,
    refused,
    relaxation,
    rubber,
    saved,
)


def test_a_cyclic_file_keeps_its_history_and_counts_its_half_cycles(tmp_path):
    strain = cycles()
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    path = saved(tmp_path, "true strain,true stress (MPa)", strain, stress)
    record = only(LAW, path)
    (test,) = record.tests
    assert test.turns == [40, 80, 120]
    np.testing.assert_allclose(test.driven, strain, atol=1e-8)
    np.testing.assert_allclose(record.response, stress, atol=1e-5)
    assert test.settings == pytest.approx({"amplitude": 0.012, "cycles": 2.0})
    assert any("4 half cycles" in step for step in record.steps)
    assert record.test_set.joined(lambda history: history.driven).shape == (1, len(strain))


def cycles_of_a_file(folder: pathlib.Path, numbers, kind: str) -> str:
    """A file of these cycles of constant amplitude, numbered by a column, by lines between the rows, or by sheets."""
    strain = 0.01 * np.sin(np.linspace(0, 2 * np.pi, 41))
    stress = LAW.respond(History(strain=np.tile(strain, 9)[None]), TRUTH)[0]
    blocks = {n: zip(strain, stress[41 * (n - 1) : 41 * n], strict=True) for n in numbers}
    names = ["true strain", "true stress"]
    if kind == "sheets":
        sheets = {f"Cycle {n}": [names, *map(list, rows)] for n, rows in blocks.items()}
        return str(write_workbook(folder / "cycles.xlsx", sheets))
    lines = ["Cycle Count,true strain,true stress"] if kind == "column" else []
    for n, rows in blocks.items():
        lines += [f"Cycle {n}", ",".join(names)] if kind == "lines" else []
        lines += [f"{n},{e},{s}" if kind == "column" else f"{e},{s}" for e, s in rows]
    return str(write(folder, "\n".join(lines)))


@pytest.mark.parametrize("kind", ["column", "lines", "sheets"])
@pytest.mark.parametrize(
    ("numbers", "missing"), [((1, 2, 3), ""), ((1, 2, 5, 9), "(3 to 4, 6 to 8)"), ((2, 3), "(1)")]
)
def test_cycles_that_a_file_leaves_out_forbid_an_answer(tmp_path, kind, numbers, missing):
    records, errors = read(LAW, cycles_of_a_file(tmp_path, numbers, kind))
    assert not errors
    caveats = [c for record in records for c in record.warnings if c.kind == "cycles missing"]
    assert [caveat.text.partition(")")[0].partition(" (")[2] for caveat in caveats] == (
        [missing.strip("()")] if missing else []
    )
    assert all(caveat.blocks for caveat in caveats)


def test_a_long_noisy_record_is_averaged_and_keeps_its_turning_points(tmp_path):
    strain = cycles(points=1500)
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    random = np.random.default_rng(1)
    noisy = strain + 5e-6 * random.standard_normal(len(strain))
    path = saved(
        tmp_path, "true strain,true stress", noisy, stress + random.standard_normal(len(strain))
    )
    (test,) = only(LAW, path).tests
    assert MOST_POINTS - 4 <= len(test) <= MOST_POINTS
    np.testing.assert_allclose(test.driven[test.turns], [0.01, -0.01, 0.012], atol=3e-5)
    model = LAW.respond(test.history, TRUTH)[0]
    # Means of three points with noise of 1 MPa; 5e-6 of strain are another one in the elastic parts.
    assert np.sqrt(np.mean((model - test.response) ** 2)) < 1.2


def test_offset_is_taken_off_and_drift_is_told(tmp_path):
    strain = cycles((0.01, -0.01) * 5, points=20)
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    drifting = strain + 0.002 * np.linspace(0.0, 1.0, len(strain)) + 0.003
    record = only(LAW, saved(tmp_path, "true strain,true stress", drifting, stress))
    assert record.tests[0].driven[0] == 0.0
    assert any("took 0.003 off the strain" in step for step in record.steps)
    (drift,) = (caveat for caveat in record.warnings if caveat.kind == "drift")
    # Between the middles of the first and the last two turns lie seven of the ten half cycles.
    assert "0.0014" in drift.text


def test_drift_is_told_of_blocks_of_one_amplitude_in_any_history(tmp_path):
    blocks = (0.005, -0.005) * 4 + (0.01, -0.01) * 4
    for drift, told in ((0.0, 0), (0.003, 1)):
        strain = cycles(blocks, points=20)
        strain = strain + drift * np.linspace(0.0, 1.0, len(strain))
        stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
        record = only(LAW, saved(tmp_path, "true strain,true stress", strain, stress))
        assert [caveat.kind for caveat in record.warnings] == ["drift"] * told
    # A programme whose mean or amplitude moves is no drift.
    for turns in (
        (0.005, -0.005, 0.008, -0.008, 0.011, -0.011, 0.014),
        (0.01, 0.0, 0.02, 0.005, 0.03, 0.012),
    ):
        strain = cycles(turns, points=20)
        stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
        record = only(LAW, saved(tmp_path, "true strain,true stress", strain, stress))
        assert record.warnings == []


def test_a_window_takes_a_test_to_where_its_strain_leaves_it(tmp_path):
    strain = cycles((0.005, -0.005, 0.01, -0.01))
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    path = saved(tmp_path, "true strain,true stress", strain, stress)
    (test,) = windowed(LAW, ",0.006", path)
    assert any("its strain leaves the window, up to 0.006" in step for step in test.steps)
    (test,) = windowed(LAW, "-0.006,0.006", path)
    last = int((strain > 0.006).argmax())
    np.testing.assert_allclose(test.driven, strain[:last], atol=1e-8)
    assert test.turns == [40, 80]
    np.testing.assert_allclose(test.response, stress[:last], atol=1e-5)
    with pytest.raises(InputError, match="must know all that came before"):
        windowed(LAW, "0.002,0.006", path)
    with pytest.raises(InputError, match="--window leaves"):
        windowed(LAW, "-0.00001,0.00001", path)


def test_a_window_of_an_elastic_test_and_of_a_hold(tmp_path):
    (test,) = windowed(OGDEN, "0.5,1.5", f"uniaxial={rubber(tmp_path, -2, 'stress,stretch')}")
    expected = STRETCH[(STRETCH >= 1.5) & (STRETCH <= 2.5)] - 1.0
    np.testing.assert_allclose(test.driven, expected, atol=1e-8)
    with pytest.raises(InputError, match="relaxation is followed over the time"):
        windowed(Viscous(), "0,0.005", relaxation(tmp_path))


def windowed(law, window, argument):
    """The tests of one file with a window; its error is raised."""
    cleaning = CleaningOptions(window=window)
    records, errors = load_records(
        find_records([argument], law), CurveTarget.of_tests(law), cleaning=cleaning
    )
    for error in errors:
        raise error
    return records[0].tests


def test_one_loading_of_a_cyclic_law_must_not_be_used(tmp_path):
    strain = np.linspace(0.0, 0.02, 50)
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    record = only(LAW, saved(tmp_path, "true strain,true stress", strain, stress))
    (caveat,) = record.warnings
    assert caveat.kind == "no unloading" and caveat.blocks


def test_percent_and_a_wrong_unit_are_noticed(tmp_path):
    strain = cycles()
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    path = saved(tmp_path, "true strain,true stress", 100 * strain, stress)
    assert "--strain_unit=%" in refused(LAW, path)
    kinds = [caveat.kind for caveat in only(LAW, path, strain_unit="%").warnings]
    assert kinds == []
    in_ksi = saved(tmp_path, "true strain,true stress", strain, stress / 6.894757)
    (caveat,) = only(LAW, in_ksi).warnings
    assert caveat.kind == "implausible stiffness" and caveat.blocks


def test_a_stretch_that_is_called_strain(tmp_path):
    path = rubber(tmp_path, -2, "stress,strain")
    record = only(OGDEN, f"uniaxial={path}")
    np.testing.assert_allclose(record.tests[0].driven, STRETCH - 1.0)
    assert "stretch and not strain" in record.assumed
    read = rubber(tmp_path, -2, "stress,strain [-]", name="read.csv")
    assert "--strain_unit=stretch" in refused(OGDEN, f"uniaxial={read}")
    given = only(OGDEN, f"uniaxial={path}", strain_unit="-")
    assert "stretch and not strain" not in given.assumed
    assert "stretch?" in [caveat.kind for caveat in given.tests[0].warnings]
    zero = rubber(tmp_path, -2, "stress,stretch")
    text = pathlib.Path(zero).read_text().splitlines()
    strains = [f"{p},{float(s) - 1:.6g}" for p, s in (line.split(",") for line in text[1:])]
    wrong = str(write(tmp_path, "\n".join(["stress,stretch", "0,0", *strains]), "zero.csv"))
    assert "a stretch is 1 at rest" in refused(OGDEN, f"uniaxial={wrong}")


def test_true_stress_of_rubber_becomes_nominal(tmp_path):
    stress = 0.5 * (STRETCH - STRETCH**-2.0)
    path = saved(tmp_path, "stretch,true stress (MPa)", STRETCH, stress * STRETCH)
    record = only(OGDEN, f"uniaxial={path}", strain_measure="engineering", stress_measure="true")
    np.testing.assert_allclose(record.response, stress, rtol=1e-7)


@pytest.mark.parametrize("largest", [1.4, 3.0, 8.0])
@pytest.mark.parametrize("said", ["", "true "])
def test_strain_of_rubber_beside_true_stress_is_engineering_unless_it_says(tmp_path, largest, said):
    stretch = np.linspace(1.0, largest, 25)
    stress = 0.5 * (stretch - stretch**-2.0)
    strain = 100.0 * (np.log(stretch) if said else stretch - 1.0)
    true = "stress (MPa)" if said else "True stress (MPa)"
    path = saved(tmp_path, f"{said}strain (%),{true}", strain, stress * stretch)
    record = only(OGDEN, f"uniaxial={path}")
    np.testing.assert_allclose(record.response, stress, atol=1e-7)
    np.testing.assert_allclose(record.tests[0].driven, stretch - 1.0, atol=1e-7)
    (warning,) = record.warnings
    assert warning.kind == "one column called true"
    if not said:
        assert "engineering strain" in record.assumed
        assert f"goes to {largest:.3g}; if the strain is true, to" in warning.text


def test_compression_has_a_name_of_its_own(tmp_path):
    stretch = np.linspace(0.95, 0.5, 15)
    path = rubber(tmp_path, -2, "stress,stretch", stretch=stretch)
    assert "say compression=FILE" in refused(OGDEN, f"uniaxial={path}")
    assert only(OGDEN, f"compression={path}").tests[0].settings == {
        "max_strain": pytest.approx(-0.5)
    }
    for largest in (1.6, 6.0):
        pulled = np.linspace(1.0, largest, 15)
        tension = rubber(tmp_path, -2, "stress,stretch", stretch=pulled, name="tension.csv")
        assert "which is tension" in refused(OGDEN, f"compression={tension}")


def test_unloading_of_rubber_is_left_out_and_told(tmp_path):
    stretch = np.concatenate([STRETCH, STRETCH[::-1][1:]])
    record = only(OGDEN, f"uniaxial={rubber(tmp_path, -2, 'stress,stretch', stretch=stretch)}")
    assert len(record.tests[0]) == len(STRETCH)
    assert [caveat.kind for caveat in record.warnings] == ["unloading left out"]


def test_time_with_its_unit(tmp_path):
    record = only(Viscous(), relaxation(tmp_path))
    (test,) = record.tests
    assert test.time[-1] == pytest.approx(5010.0)
    assert test.settings == pytest.approx({"strain": 0.01, "rate": 1e-3, "hold": 5000.0}, rel=0.03)


def test_a_time_without_a_unit_is_taken_as_seconds_and_said_so(tmp_path):
    path = pathlib.Path(relaxation(tmp_path, unit="s"))
    assert "time in s" not in only(Viscous(), str(path)).assumed
    path.write_text(path.read_text().replace("Time [s]", "Time"))
    assert "time in s" in only(Viscous(), str(path)).assumed


def test_time_that_runs_backwards_or_is_missing(tmp_path):
    time = np.concatenate([np.linspace(0, 10, 20), 10 + np.geomspace(1, 5000, 50)])
    time[30] = 1.0
    assert "time runs backwards: 1 s after" in refused(
        Viscous(), relaxation(tmp_path, time, unit="s")
    )
    path = saved(tmp_path, "true strain,true stress", time, time, name="no_time.csv")
    assert "needs the time of every point" in refused(Viscous(), path, strain_unit="%")


def test_a_driven_stress_answers_with_strain(tmp_path):
    time = np.concatenate([np.linspace(0, 10, 20), 10 + np.geomspace(1, 5000, 50)])
    stress = np.minimum(time / 10, 1.0) * 100.0
    path = saved(tmp_path, "time (s),true strain,true stress", time, stress / 200e3, stress)
    (test,) = only(Viscous(), f"creep={path}").tests
    np.testing.assert_allclose(test.driven, stress, atol=1e-6)
    np.testing.assert_allclose(test.response, stress / 200e3, atol=1e-9)
    assert test.settings == pytest.approx({"stress": 100.0, "ramp": 10.0, "hold": 5000.0}, rel=0.03)


def cycles_of_rubber(peaks, points=40, softer=1.0, ends_unloaded=True, noise=0.0, pause=0):
    """Strain and stress of a Neo-Hookean rubber (mu 0.4 MPa) in cycles; it unloads with 0.8 of the stress.

    Args:
      softer: factor on the stress of reloading to strains that were reached before.
    """
    strain, stress, reached = [0.0], [0.0], 0.0
    for peak in peaks:
        up = np.linspace(0.0, peak, points)[1:]
        strain += [*up, *[peak] * pause]
        stress += [*neo_hookean(up) * np.where(up < reached, softer, 1.0)]
        stress += [*neo_hookean(peak) * np.exp(-np.arange(pause) / 200)]
        reached = max(reached, peak)
        down = np.linspace(peak, 0.0, points)[1:]
        if ends_unloaded or peak != peaks[-1]:
            strain += [*down]
            stress += [*0.8 * neo_hookean(down)]
    random = np.random.default_rng(3)
    return (
        np.array(strain) + random.normal(0, noise, len(strain)),
        np.array(stress) + random.normal(0, noise, len(stress)),
    )


def neo_hookean(strain):
    return 0.4 * ((1 + strain) - (1 + strain) ** -2.0)


@pytest.mark.parametrize("header", ["strain,stress (MPa)", "stretch,stress (MPa)"])
@pytest.mark.parametrize(
    "cycles",
    [
        {"peaks": (1, 2, 3)},
        {"peaks": (1, 2, 3), "ends_unloaded": False},
        {"peaks": (2.0, 2.0, 2.0)},
        {"peaks": (2, 2, 2, 2), "softer": 0.85},
        {"peaks": (0.5, 1, 2, 3), "softer": 0.85},
        {"peaks": (1, 2, 3), "points": 200, "noise": 0.003, "pause": 60},
        {"peaks": (2, 2, 2), "points": 200, "noise": 0.003, "pause": 60, "softer": 0.8},
        {"peaks": (3, 2, 1)},
        {"peaks": (1, 2, 3), "points": 12},
    ],
)
def test_of_rubber_in_cycles_the_first_loading_to_every_strain_counts(tmp_path, cycles, header):
    strain, stress = cycles_of_rubber(**cycles)
    at_rest = 1.0 if header.startswith("stretch") else 0.0
    record = only(OGDEN, f"uniaxial={saved(tmp_path, header, strain + at_rest, stress)}")
    (test,) = record.tests
    shape = neo_hookean(test.strain) / 0.4
    assert float(shape @ test.stress_mpa / (shape @ shape)) == pytest.approx(0.4, rel=1e-3)
    assert test.strain.max() == pytest.approx(max(cycles["peaks"]), rel=0.01)
    (caveat,) = record.warnings
    assert caveat.kind == "unloading left out"
    assert "reloading to strains reached before" in caveat.text
    softer = cycles.get("softer", 1.0)
    assert ("the reloading has" in caveat.text) == (softer < 1.0)


def test_sheets_of_cycles_are_one_test_in_the_order_of_their_numbers(tmp_path):
    """Each sheet was a specimen of its own, and the softer ones forbade the answer of rubber."""
    names, sheets = ["strain", "stress (MPa)"], {}
    for number in (10, 1, 2):
        strain = np.concatenate([np.linspace(0, 2, 40), np.linspace(2, 0, 40)])
        stress = neo_hookean(strain) * (1.0 if number == 1 else 0.8)
        stress[40:] *= 0.7
        sheets[f"Cycle {number}"] = [names, *map(list, zip(strain, stress, strict=True))]
    record = only(OGDEN, f"uniaxial={write_workbook(tmp_path / 'rubber.xlsx', sheets)}")
    (test,) = record.tests
    np.testing.assert_allclose(test.stress_mpa, neo_hookean(test.strain))
    assert "sheet 'Cycle 1 to Cycle 10'" in record.steps[0]
    (caveat,) = record.warnings
    assert "the reloading has 0.8 times" in caveat.text


def test_a_wild_cell_and_blank_strains_of_rubber(tmp_path):
    strain = np.linspace(0.0, 2.0, 60)
    stress = neo_hookean(strain)
    stress[30] *= 3.0
    path = saved(tmp_path, "strain,stress (MPa)", strain, stress)
    record = only(OGDEN, f"uniaxial={path}")
    assert any("point 31, stress" in step for step in record.steps)
    assert len(record.tests[0]) == 59
    strain[50:] = np.nan
    blank = only(OGDEN, f"uniaxial={saved(tmp_path, 'strain,stress (MPa)', strain, stress)}")
    assert [caveat.kind for caveat in blank.warnings] == ["strain not measured to the end"]
    assert blank.tests[0].strain.max() == pytest.approx(strain[49])


@pytest.mark.parametrize(
    ("head", "name", "asked"),
    [
        ("Planar tension\n", "UT.txt", "says 'Planar tension', and was taken as a test uniaxial"),
        ("", "pure_shear.txt", "says 'pure_shear', and was taken"),
        ("Test: equibiaxial\n", "UT.txt", "says 'Test: equibiaxial', and was taken"),
        ("Uniaxial tension\n", "UT.txt", ""),
        ("uniaxial and planar\n", "UT.txt", ""),
    ],
)
def test_a_mode_of_rubber_that_the_file_contradicts_is_told(tmp_path, head, name, asked):
    path = rubber(tmp_path, -2, f"{head}stress,stretch", name=name)
    said = [c.text for c in only(OGDEN, f"uniaxial={path}").warnings if c.kind == "another mode?"]
    assert len(said) == bool(asked) and asked in "".join(said)


@pytest.mark.parametrize("named", ["compression=", ""])
@pytest.mark.parametrize(
    "head", ["Compression test ISO 7743", "Diameter: 29 mm\nHeight: 12.5 mm", "Rubber"]
)
def test_a_disc_is_compressed_in_positive_numbers_where_the_head_says_so(tmp_path, head, named):
    stretch = np.linspace(1.0, 0.6, 15)
    stress = 0.5 * (stretch - stretch**-2.0)
    columns, header = [1 - stretch, -stress], "Strain (-),Stress (MPa)"
    if "Height" in head:
        area = np.pi * 29.0**2 / 4.0
        columns, header = [12.5 * (1 - stretch), -area * stress], "Displacement (mm),Force (N)"
    path = saved(tmp_path, f"{head}\n\n{header}", *columns)
    if head == "Rubber" and not named:
        assert "nothing says which this is" in refused(OGDEN, path)
        return
    (test,) = only(OGDEN, f"{named}{path}").tests
    assert test.programme.name == "compression"
    np.testing.assert_allclose(test.strain, stretch - 1.0, atol=1e-8)
    np.testing.assert_allclose(test.stress_mpa, stress, rtol=1e-6, atol=1e-9)


def test_a_column_called_compressive_is_compression(tmp_path):
    stretch = np.linspace(0.95, 0.5, 15)
    stress = 0.5 * (stretch - stretch**-2.0)
    path = saved(tmp_path, "Compressive strain (-),Compressive stress (MPa)", 1 - stretch, -stress)
    record = only(OGDEN, f"compression={path}")
    np.testing.assert_allclose(record.tests[0].driven, stretch - 1, rtol=1e-6)
    np.testing.assert_allclose(record.response, stress, rtol=1e-6)
    assert "say compression=FILE" in refused(OGDEN, f"uniaxial={path}")


def test_specimens_below_each_other_are_tests_of_one_material(tmp_path):
    stress = 0.5 * (STRETCH - STRETCH**-2.0)
    twice = [np.r_[0.0, STRETCH - 1], np.r_[0.0, stress]]
    path = saved(
        tmp_path, "strain (-),stress (MPa)", np.tile(twice[0], 2), np.r_[twice[1], 1.1 * twice[1]]
    )
    (record,), errors = read(OGDEN, f"uniaxial={path}")
    assert not errors
    assert [len(test.driven) for test in record.tests] == [21, 21]


@pytest.mark.parametrize(
    ("law", "test", "said"),
    [
        ("voce_chaboche", "cyclic", "the modulus is the machine's"),
        ("ogden", "uniaxial", "every strain, and so every parameter, holds it too"),
        ("ogden", "planar", "and of a specimen's shoulders"),
        ("ogden", "compression", ""),
    ],
)
def test_a_machine_s_travel_is_told_but_for_rubber_between_plates(tmp_path, law, test, said):
    stretch = np.linspace(0.95, 0.5, 20) if test == "compression" else STRETCH
    strain = 0.01 * np.sin(np.linspace(0.0, 12.0, 200)) if law != "ogden" else stretch - 1
    stress = 400 * np.tanh(500 * strain) if law != "ogden" else 0.5 * (stretch - stretch**-2.0)
    path = saved(tmp_path, "Stroke (mm),stress (MPa)", 50 * strain, stress)
    record = only(find_law(law), f"{test}={path}", gauge_length=50.0)
    found = [c for c in record.tests[0].warnings if c.kind == "strain of the crosshead"]
    assert len(found) == bool(said)
    assert all(said in caveat.text for caveat in found)
    assert all(("--fix" in caveat.advice) == (law != "ogden") for caveat in found)


@pytest.mark.parametrize(
    ("travel", "clamps", "is_told"),
    [
        ("Standardweg", "Einspannlänge;50;mm", True),
        ("Crosshead travel", "Grip separation;50;mm", True),
        ("Crosshead travel", "Einspannlänge;20;mm", False),
        ("Extensometer travel", "Einspannlänge;50;mm", False),
    ],
)
def test_a_travel_s_length_is_told_where_the_head_has_clamps_too(tmp_path, travel, clamps, is_told):
    stress = 0.5 * (STRETCH - STRETCH**-2.0)
    rows = [f"{20 * (x - 1):.6f};{s:.6f}" for x, s in zip(STRETCH, stress, strict=True)]
    path = write(tmp_path, "\n".join(["L0;20;mm", clamps, f"{travel} (mm);stress (MPa)", *rows]))
    record = only(OGDEN, f"uniaxial={path}")
    texts = [c.text for c in record.warnings if c.kind == "travel over a gauge length"]
    assert len(texts) == is_told
    assert all("the gauge length of 20 mm" in text and "50 mm" in text for text in texts)


@pytest.mark.parametrize("slack", [0.05, 0.3])
@pytest.mark.parametrize("noise", [0.0, 0.003])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_slack_specimen_counts_from_where_it_tightens(tmp_path, slack, noise, side):
    end = 1.5 if side > 0 else 0.5
    strain = np.linspace(0.0, end + slack, 400)
    stretch = 1.0 + side * np.maximum(strain - slack, 0.0)
    stress = 0.5 * (stretch - stretch**-2.0)
    stress += noise * np.random.default_rng(0).standard_normal(400)
    path = saved(tmp_path, "nominal strain,stress", side * strain, stress)
    test = "uniaxial" if side > 0 else "compression"
    record = only(OGDEN, f"{test}={path}")
    (said,) = [caveat for caveat in record.warnings if caveat.kind == "slack"]
    assert "was taken off" in said.text
    (found,) = record.tests
    assert found.driven[-1] == pytest.approx(side * end, abs=0.02)
    assert len(found) <= 400
    off = CleaningOptions(toe="off")
    ((left,), _) = load_records(
        find_records([f"{test}={path}"], OGDEN), CurveTarget.of_tests(OGDEN), cleaning=off
    )
    (kept,) = left.tests
    assert kept.driven[-1] == pytest.approx(side * (end + slack), abs=1e-6)


def test_rubber_that_is_soft_or_stiffens_is_not_slack():
    strain = np.linspace(0.0, 2.0, 300)
    noise = 0.005 * np.random.default_rng(0).standard_normal(300)
    for stress in (
        strain,
        1.0 + strain - (1.0 + strain) ** -2,
        np.expm1(3.0 * strain) / 400,
        strain + 20 * strain**3,
        np.tanh(3.0 * strain),
    ):
        assert slack_of(strain, stress / stress.max()) is None
        assert slack_of(strain, stress / stress.max() + noise) is None
        assert slack_of(strain[::30], stress[::30]) is None


def loops(amplitude=0.01, number=6):
    """Strain and stress of LAW from rest through loops, 40 points a half cycle."""
    strain = cycles([amplitude, -amplitude] * number)
    return strain, LAW.respond(History(strain=strain[None]), TRUTH)[0]


@pytest.mark.parametrize("first", [120, 140, 130, 126, 0, 3])
@pytest.mark.parametrize("offset", [0.0, 0.004])
def test_a_loop_at_half_life_is_no_first_loading_and_told(tmp_path, first, offset):
    strain, stress = loops()
    offset = 0.0 if first else offset  # a record from rest may not be zeroed
    path = saved(tmp_path, "true strain,true stress (MPa)", strain[first:] + offset, stress[first:])
    (test,) = only(LAW, path).tests
    assert ("loaded at the start" in [c.kind for c in test.warnings]) == (first > 100)
    if first > 100:
        np.testing.assert_allclose(test.strain, strain[first:], atol=1e-8)


@pytest.mark.parametrize("begins_at", [0.5, 0.0])
def test_a_relaxation_without_its_loading_is_told(tmp_path, begins_at):
    time = np.geomspace(0.5, 5000, 60) - 0.5 + begins_at
    path = relaxation(tmp_path, time, np.full(60, 0.01), unit="s")
    (test,) = only(Viscous(), path).tests
    assert "loaded before the first point" in [c.kind for c in test.warnings]
    (test,) = only(Viscous(), relaxation(tmp_path, unit="s")).tests
    assert "loaded before the first point" not in [c.kind for c in test.warnings]


@pytest.mark.parametrize(
    ("law", "share", "blocks"),
    [("norton", 0.8, True), ("norton", 0.999, False), ("prony", 0.8, False)],
)
def test_a_modulus_of_stress_that_relaxed_before_is_forbidden(tmp_path, law, share, blocks):
    """A stress that falls within ten steps has fallen as much during a loading as long, which the file leaves out."""
    time = np.arange(60.0)
    stress = 300.0 * (share + (1.0 - share) * np.exp(-time / 4.0))
    path = saved(tmp_path, "time (s),strain,stress (MPa)", time, np.full(60, 0.002), stress)
    (test,) = only(find_law(law), f"relaxation={path}").tests
    (caveat,) = [c for c in test.warnings if c.kind == "loaded before the first point"]
    assert caveat.blocks == blocks and ("E is too small" in str(caveat)) == blocks


@pytest.mark.parametrize(
    ("name", "test", "asked"),
    [
        ("Extension", "uniaxial", True),
        ("Extensometer", "uniaxial", False),
        # A wide strip is held along its edges, and has no shoulders.
        ("Extension", "planar", False),
    ],
)
def test_rubber_s_extension_that_may_be_the_crosshead_s_is_asked_about(tmp_path, name, test, asked):
    stretch = np.linspace(1.0, 2.0, 20)
    stress = 0.5 * (stretch - stretch**-2.0)
    head = f"Gauge length: 25 mm\n\n{name} (mm),Stress (MPa)"
    path = saved(tmp_path, head, 25.0 * (stretch - 1.0), stress)
    (read_test,) = only(OGDEN, f"{test}={path}").tests
    assert ("strain of the crosshead?" in [c.kind for c in read_test.warnings]) == asked


@pytest.mark.parametrize(("fall", "is_told"), [(0.0, False), (0.01, False), (0.06, True)])
def test_a_stress_that_relaxes_in_holds_is_told(tmp_path, fall, is_told):
    strain, stress = loops()
    end = int(np.argmax(strain))
    held = stress[end] * (1.0 - fall * np.linspace(0.0, 1.0, 30))
    strain = np.concatenate([strain[: end + 1], np.full(30, strain[end]), strain[end + 1 :]])
    stress = np.concatenate([stress[: end + 1], held, stress[end + 1 :]])
    (test,) = only(LAW, saved(tmp_path, "true strain,true stress (MPa)", strain, stress)).tests
    said = [c.text for c in test.warnings if c.kind == "stress relaxes in holds"]
    assert bool(said) == is_told and (not is_told or "by up to 6 %" in said[0])


@pytest.mark.parametrize(
    ("stands", "is_told"),
    [(0.0, False), (20.0, False), (60.0, False), (160.0, True), (8000.0, True)],
)
def test_a_time_that_goes_on_by_cycles_while_the_strain_stands_is_told(tmp_path, stands, is_told):
    strain, stress = loops()
    # A second a row: a cycle takes 80 s.
    time = np.arange(len(strain)) + np.where(np.arange(len(strain)) > 200, stands, 0.0)
    path = saved(tmp_path, "time (s),true strain,true stress (MPa)", time, strain, stress)
    (test,) = only(LAW, path).tests
    said = [c.text for c in test.warnings if c.kind == "cycles missing?"]
    assert bool(said) == is_told
    assert not is_told or f"{(stands + 1) / 80:.3g} cycles" in said[0]


def test_single_cycles_that_are_logged_are_told_by_their_times(tmp_path):
    strain, stress = loops(number=12)
    time = np.arange(len(strain))
    # A cycle takes 80 s; the 1st, 4th, 7th and 10th are logged.
    kept = time // 80 % 3 == 0
    columns = [column[kept] for column in (time, strain, stress)]
    path = saved(tmp_path, "time (s),true strain,true stress (MPa)", *columns)
    (test,) = only(LAW, path).tests
    (said,) = [c.text for c in test.warnings if c.kind == "cycles missing?"]
    assert "2.01 cycles" in said


def test_a_stress_that_is_one_at_the_start_of_a_relaxation_may_be_normalized(tmp_path):
    time = np.geomspace(1.0, 5000, 60) - 1.0
    stress = np.exp(-1e-4 * time)
    strain = np.full(60, 0.01)
    path = saved(tmp_path, "Time [s],true strain,true stress", time, strain, stress)
    (test,) = only(Viscous(), path).tests
    assert [c.blocks for c in test.warnings if c.kind == "normalized stress?"] == [True]
    (test,) = only(Viscous(), path, stress_unit="MPa").tests
    assert "normalized stress?" not in [c.kind for c in test.warnings]


def test_cycles_that_do_not_follow_each_other_are_told_by_the_stress_alone(tmp_path):
    strain, stress = loops()
    hardened = np.concatenate([stress[:81], 1.2 * stress[160:241]])
    several = np.concatenate([strain[:81], strain[160:241]])
    path = saved(tmp_path, "true strain,true stress (MPa)", several, hardened)
    (test,) = only(LAW, path).tests
    (said,) = [c for c in test.warnings if c.kind == "cycles missing"]
    assert said.blocks
    assert "from -300 to -360 MPa at strain -0.01" in said.text
    # Relaxation at the turns lowers the stress, and every row of whole loops follows the one before.
    held = (
        np.insert(strain, [81, 81, 81], strain[80]),
        np.insert(stress, [81] * 3, 0.8 * stress[80]),
    )
    for e, s in ((strain, stress), held):
        (test,) = only(LAW, saved(tmp_path, "true strain,true stress (MPa)", e, s)).tests
        assert "cycles missing" not in [c.kind for c in test.warnings]


def test_a_record_of_turns_alone_says_what_is_missing(tmp_path):
    strain, stress = loops(number=20)
    path = saved(tmp_path, "true strain,true stress (MPa)", strain[40::40], stress[40::40])
    (test,) = only(LAW, path).tests
    (said,) = [c for c in test.warnings if c.kind == "no unloading"]
    assert "the turns of its cycles alone" in said.text
    assert said.blocks


def hardening_cycles(late: float = 0.0, points: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """True strain and stress of a steel's cycles at one speed; `late`: delay of the stress, in strain."""
    law = find_law("voce_chaboche")
    truth = np.array([[200e3, 280.0, 90.0, 6.0, 40e3, 300.0, 4e3, 20.0]])
    fine = cycles((0.01, -0.01) * 4, 50 * points)
    way = np.cumsum(np.abs(np.diff(fine, prepend=0.0)))
    stress = law.respond(History(strain=fine[None]), truth)[0]
    stress = np.interp(way - late, way, stress)[::50]
    return fine[::50], stress + np.random.default_rng(1).normal(0.0, 0.3, len(stress))


def warned(law, path: str) -> dict[str, bool]:
    """Kind of a warning of the only test -> whether it forbids the answer."""
    return {caveat.kind: caveat.blocks for caveat in only(law, path).tests[0].warnings}


@pytest.mark.parametrize("measure", ["engineering", "true"])
def test_a_load_at_its_limit_forbids_the_answer_of_a_law_that_remembers(tmp_path, measure):
    law, (true, stress) = find_law("voce_chaboche"), hardening_cycles()
    load = stress / np.exp(true)
    for limit, expected in ((np.inf, {}), (0.85 * load.max(), {"load at its limit": True})):
        capped = np.minimum(load, limit)
        columns = {"engineering": (np.expm1(true), capped), "true": (true, capped * np.exp(true))}
        header = f"{measure} strain,{measure} stress (MPa)"
        assert warned(law, saved(tmp_path, header, *columns[measure])) == expected


@pytest.mark.parametrize(
    ("late", "is_told"), [(0.0, False), (2e-5, False), (2e-4, True), (6e-4, True)]
)
def test_a_stress_that_is_late_at_the_turns_is_told(tmp_path, late, is_told):
    path = saved(tmp_path, "true strain,true stress (MPa)", *hardening_cycles(late))
    assert warned(find_law("voce_chaboche"), path) == (
        {"stress lags behind strain": False} if is_told else {}
    )


def test_rubber_goes_without_the_rows_at_a_limit_of_the_load(tmp_path):
    stretch = np.linspace(1.0, 3.0, 120)
    stress = 0.8 * (stretch - stretch**-2.0) + np.random.default_rng(1).normal(0.0, 0.003, 120)
    path = saved(
        tmp_path, "Strain,Engineering stress (MPa)", stretch - 1.0, np.minimum(stress, 1.7)
    )
    (test,) = only(find_law("neo_hooke"), f"uniaxial={path}").tests
    assert {c.kind: c.blocks for c in test.warnings} == {"load at its limit": False}
    assert test.stress_mpa.max() < 1.7

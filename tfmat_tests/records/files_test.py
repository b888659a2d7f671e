"""Files of tests: which is which, and what stands in them; examples are what they say they are."""

import pathlib

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials.law import History
from tfmat.materials.registry import LAWS, MONOTONIC_LAWS, find_law
from tfmat.records.files import (
    example_curve,
    find_records,
    load_records,
    write_example_curve,
    write_example_tests,
)
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_measured_curve, write, write_workbook
from tfmat_tests.records.made_tests import (
    LAW,
    OGDEN,
    STEEL,
    STEEL_VALUES,
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
    tension,
)

# Files of tests: which is which, and what stands in them; with made records whose truth is known.


def test_two_files_are_two_materials_unless_they_are_named(tmp_path):
    strain = cycles()
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    files = [
        saved(tmp_path, "true strain,true stress", strain, stress, name=f"{n}.csv") for n in "ab"
    ]
    assert [record.name for record in find_records(files, LAW)] == ["a", "b"]
    (one,) = find_records([f"cyclic={file}" for file in files], LAW)
    assert one.name == "a+b" and len(one.files) == 2


def test_files_of_one_name_from_different_folders_are_called_by_their_paths(tmp_path):
    strain = cycles()
    stress = np.clip(200e3 * strain, -300.0, 300.0)
    files = []
    for name in "xy":
        (tmp_path / name).mkdir()
        files.append(saved(tmp_path / name, "true strain,true stress", strain, stress))
    records, errors = read(LAW, *files)
    assert not errors and [record.name for record in records] == list(map(str, files))


def test_specimens_of_one_file_are_materials_unless_they_are_named(tmp_path):
    strain = cycles()
    stress = np.clip(200e3 * strain, -300.0, 300.0)
    rows = [f"{n},{e:.8g},{s:.8g}" for n in "AB" for e, s in zip(strain, stress, strict=True)]
    path = write(tmp_path, "\n".join(["specimen,true strain,true stress (MPa)", *rows]) + "\n")
    records, _ = read(LAW, str(path))
    assert [(record.name, len(record.tests)) for record in records] == [
        ("curve_A", 1),
        ("curve_B", 1),
    ]
    assert len(only(LAW, f"cyclic={path}").tests) == 2


def test_rubber_files_without_a_header_stress_first(tmp_path):
    files = [
        f"{test}={rubber(tmp_path, exponent, name=f'{test}.txt')}"
        for test, exponent in (("uniaxial", -2), ("equibiaxial", -5), ("planar", -3))
    ]
    record = only(OGDEN, *files)
    assert [test.programme.mode for test in record.tests] == ["uniaxial", "equibiaxial", "planar"]
    for test in record.tests:
        np.testing.assert_allclose(test.driven, STRETCH - 1.0, atol=1e-8)
    assert "stretch in column 2, stress in column 1" in record.assumed
    exchanged = saved(tmp_path, "", STRETCH, 0.5 * (STRETCH - STRETCH**-2.0), name="other.txt")
    np.testing.assert_allclose(only(OGDEN, f"uniaxial={exchanged}").tests[0].driven, STRETCH - 1.0)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("uniaxal={}", "did you mean 'uniaxial'"),
        ("cyclic_shear={}", "does not answer a test cyclic_shear"),
        ("creep={}", "does not answer a test creep"),
    ],
)
def test_a_wrong_mode_is_named(tmp_path, argument, says):
    path = rubber(tmp_path, -2)
    with pytest.raises(InputError, match=says):
        find_records([argument.format(path)], OGDEN)


@pytest.mark.parametrize(
    ("head", "mode"),
    [
        *((head, "uniaxial") for head in ("Zugversuch S2 nach ISO 37", "Essai de traction")),
        ("Equibiaxial tension test", "equibiaxial"),
        ("Tension test of rubber: planar or biaxial", None),
        ("Tensile testing machine", None),
        ("Specimen ID 412", None),
    ],
)
def test_a_head_of_tension_says_uniaxial_where_it_names_no_other_mode(tmp_path, head, mode):
    header = f"{head}\n\nNominal strain (-),Nominal stress (MPa)"
    path = saved(tmp_path, header, STRETCH - 1.0, 0.5 * (STRETCH - STRETCH**-2), name="a.csv")
    if mode is None:
        assert "nothing says which this is" in str(read(OGDEN, str(path))[1][0])
        return
    (test,) = only(OGDEN, str(path)).tests
    assert test.programme.mode == mode


MODES = {"uniaxial": -2, "equibiaxial": -5, "planar": -3}


@pytest.mark.parametrize(
    "said",
    [
        ("rubber_uniaxial", "Rubber Biaxial 2", "wide_pureshear"),
        ("UT", "ET", "PS"),
        ("Zug", "biax_3", "PT-1"),
    ],
)
@pytest.mark.parametrize("place", ["name", "sheet", "head", "column", "above"])
def test_rubber_that_says_its_test_needs_no_word_of_the_user(tmp_path, said, place):
    columns = [(STRETCH - 1.0, 0.5 * (STRETCH - STRETCH**power)) for power in MODES.values()]
    header = "Nominal strain (-),Nominal stress (MPa)"
    given = tmp_path
    if place in ("name", "head"):
        for name, (strain, stress) in zip(said, columns, strict=True):
            head = f"Test: {name}\n" if place == "head" else ""
            file = "abc"[said.index(name)] if place == "head" else name
            saved(tmp_path, head + header, strain, stress, name=f"{file}.csv")
    elif place == "sheet":
        sheets = {
            name: [header.split(","), *zip(*pair, strict=True)]
            for name, pair in zip(said, columns, strict=True)
        }
        given = write_workbook(tmp_path / "uniaxial and biaxial.xlsx", sheets)
    elif place == "column":
        rows = [
            f"{name},{e},{s}"
            for name, pair in zip(said, columns, strict=True)
            for e, s in zip(*pair, strict=True)
        ]
        given = write(tmp_path, "\n".join([f"Mode,{header}", *rows]))
    else:
        rows = [",".join(map(str, row)) for row in zip(*sum(columns, ()), strict=True)]
        above = ",".join(f"{name}," for name in said)
        given = write(tmp_path, "\n".join([above, ",".join([header] * 3), *rows]))
    told_by_words = place not in ("head", "column") or "uniaxial" in said[0]
    if not told_by_words:
        # Letters in a remark, or in any column, are no name.
        assert "nothing says which this is" in str(read(OGDEN, str(given))[1][0])
        return
    record = only(OGDEN, str(given))
    found = {test.programme.mode: test for test in record.tests}
    assert set(found) == set(MODES) and len(record.tests) == 3
    for mode, (strain, stress) in zip(MODES, columns, strict=True):
        np.testing.assert_allclose(found[mode].strain, strain, atol=1e-8)
        np.testing.assert_allclose(found[mode].stress_mpa, stress, rtol=1e-6, atol=1e-9)


def test_files_that_name_no_test_or_two_are_refused(tmp_path):
    for name in ("test", "UT_and_PS"):
        path = rubber(tmp_path, -2, "stretch,stress", name=f"{name}.csv")
        assert "say uniaxial=FILE" in refused(OGDEN, path)


class Crept(Viscous):
    """Told what is held by a relaxation or by a creep test."""

    tests = ("relaxation", "creep")


def test_what_a_test_holds_says_whether_it_creeps_or_relaxes(tmp_path):
    time = np.append(0.0, np.geomspace(1.0, 1e4, 50))
    columns = (time, 0.001 + 1e-6 * time**0.5, np.full(51, 200.0))
    crept = saved(tmp_path, "time (s),true strain,true stress (MPa)", *columns, name="a.csv")
    relaxed = relaxation(tmp_path, unit="s")
    record = only(Crept(), crept, relaxed)
    assert [test.programme.name for test in record.tests] == ["creep", "relaxation"]


def test_a_table_names_test_rate_temperature_and_material(tmp_path):
    for number, (rate, temperature) in enumerate([(1e-3, 20.0), (10.0, 20.0), (1e-3, 300.0)]):
        tension(tmp_path, rate, temperature, f"{number}.csv")
    table = "file;test;rate;temperature;material\n" + "".join(
        f"{n}.csv;rate_and_temperature;{rate};{temperature};{material}\n"
        for n, rate, temperature, material in (
            (0, "0,001", 20, "A"),
            (1, 10, 20, "A"),
            (2, "1e-3", 300, "B"),
        )
    )
    write(tmp_path, table, "tests.csv")
    records, errors = read(STEEL, str(tmp_path))
    assert not errors
    assert [(record.name, len(record.tests)) for record in records] == [("A", 2), ("B", 1)]
    assert [(t.rate, t.temperature) for r in records for t in r.tests] == [
        (1e-3, 20.0),
        (10.0, 20.0),
        (1e-3, 300.0),
    ]
    model = STEEL.respond(records[0].tests[0].history, STEEL_VALUES)[0]
    np.testing.assert_allclose(records[0].tests[0].response, model, rtol=1e-6)


@pytest.mark.parametrize(("start", "rise", "is_told"), [(300.0, 40.0, True), (20.0, 1.5, False)])
def test_a_test_that_heats_itself_counts_at_its_first_temperature(tmp_path, start, rise, is_told):
    path = pathlib.Path(tension(tmp_path, 1e-3, 20.0, "plain.csv"))
    header, *rows = path.read_text().split("\n")
    rows = [row for row in rows if row]
    heat = np.linspace(start, start + rise, len(rows))
    text = "\n".join(
        [
            "Strain rate: 0.001 1/s",
            f"{header},Temperature (°C)",
            *(f"{row},{celsius}" for row, celsius in zip(rows, heat, strict=True)),
        ]
    )
    (test,) = only(STEEL, str(write(tmp_path, text, "heated.csv"))).tests
    assert abs(test.temperature - start) <= 1.0
    said = [c.text for c in test.warnings if c.kind == "temperature changes"]
    assert bool(said) == is_told
    assert not is_told or "from 300 °C to 340 °C" in said[0]


def test_rate_and_temperature_of_head_name_or_time(tmp_path):
    files = [
        tension(tmp_path, 0.01, 200.0, "steel_200C.csv"),
        tension(tmp_path, 1.0, 293.15 - 273.15, "b.csv", head="strain rate: 1 1/s\ntemperature: 293.15 K\n"),
        tension(tmp_path, 0.1, 20.0, "c.csv"),
    ]  # fmt: skip
    record = only(STEEL, *files)
    assert [t.rate for t in record.tests] == pytest.approx([0.01, 1.0, 0.1], rel=1e-3)
    assert [t.temperature for t in record.tests] == pytest.approx([200.0, 20.0, 20.0])
    assert "temperature of 20 °C" in record.assumed
    assert "time in s" not in record.assumed
    bare = tmp_path / "bare.csv"
    bare.write_text((tmp_path / "c.csv").read_text().replace("time (min)", "time"))
    assert "time in s" in only(STEEL, *files[:2], str(bare)).assumed


@pytest.mark.parametrize(
    ("name", "text", "celsius", "asked"),
    [
        ("temperature", "293", 293.0, True),
        ("temperature", "298.15", 298.15, True),
        ("temperature", "293.15 K", 20.0, False),
        ("temperature [K]", "293.15", 20.0, False),
        ("temperature", "20", 20.0, False),
        ("temperature", "300 °C", 300.0, False),
        ("temperature (°C)", "250", 250.0, False),
        ("Temperatur", "250", 250.0, False),
        ("Temp_K", "523.15", 250.0, False),
    ],
)
def test_a_room_s_temperature_in_kelvin_is_asked_about(tmp_path, name, text, celsius, asked):
    tension(tmp_path, 1e-3, 20.0, "a.csv")
    rows = f"file;test;rate;{name}\na.csv;rate_and_temperature;0,001;{text}\n"
    write(tmp_path, rows, "tests.csv")
    (record,), errors = read(STEEL, str(tmp_path))
    assert not errors
    (test,) = record.tests
    assert test.temperature == pytest.approx(celsius)
    assert any("kelvin" in str(caveat) for caveat in test.warnings) == asked


def test_sheets_say_rate_and_temperature(tmp_path):
    sheets = {}
    for rate, celsius in ((0.001, 20), (1500, 300)):
        path = pathlib.Path(tension(tmp_path, rate, celsius, "a.csv"))
        rows = [row.split(",")[:2] for row in path.read_text().splitlines()[1:]]
        numbers = [[float(cell) for cell in row] for row in rows]
        sheets[f"{rate:g} per s {celsius}C"] = [["True strain", "True stress (MPa)"], *numbers]
    record = only(STEEL, str(write_workbook(tmp_path / "steel.xlsx", sheets)))
    found = [(test.rate, test.temperature) for test in record.tests]
    assert found == [(0.001, 20.0), (1500.0, 300.0)]


def test_a_file_that_says_kelvin_is_believed(tmp_path):
    (test,) = only(STEEL, tension(tmp_path, 1e-3, 299.85, "steel_573K.csv")).tests
    assert test.temperature == pytest.approx(299.85)
    assert not any("kelvin" in str(caveat) for caveat in test.warnings)


@pytest.mark.parametrize(
    ("header", "rate"),
    [
        ("Datei;Versuch;Dehnrate", "0,06 1/min"),
        ("file;test;rate [1/min]", "0,06"),
        ("Filename;Test;Strain rate (%/s)", "0,1"),
        ("file;test;strain rate", "0,001"),
    ],
)
def test_a_table_may_have_german_names_and_other_units(tmp_path, header, rate):
    tension(tmp_path, 1e-3, 20.0, "a.csv")
    write(tmp_path, f"{header}\na.csv;rate_and_temperature;{rate}\n", "tests.csv")
    (test,) = only(STEEL, str(tmp_path)).tests
    assert test.rate == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("file,tset\na.csv,cyclic\n", "did you mean 'test'"),
        ("file,test\na.csv,cyclyc\n", "row 2: there is no test 'cyclyc'; did you mean 'cyclic'"),
        ("test\ncyclic\n", "needs a column 'file'"),
        ("file,test,rate\na.csv,cyclic,-1\n", "give a positive number in 1/s"),
        ("file,test,rate\na.csv,cyclic,1 mm/min\n", "rate is '1 mm/min'; give a positive number"),
    ],
)
def test_a_bad_table(tmp_path, table, says):
    path = write(tmp_path, table, "tests.csv")
    with pytest.raises(InputError, match=says):
        find_records([str(path)], LAW)


# The shipped examples are what they say they are, and every law can have one made.


SHIPPED = {
    "hahn_tsai": ({"G0": 6964.0, "a": 2.44e-8}, 0.04),
    "voce": ({"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0}, 0.2),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_example_is_the_law_with_the_values_in_its_name(name, tmp_path):
    path = example_curve(name)
    assert path is not None
    parameters, max_strain = SHIPPED[name]
    strain, stress = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    assert len(strain) == 150
    assert strain[-1] == max_strain
    for parameter, value in parameters.items():
        assert f"_{parameter}_{value:.10g}".replace("e-0", "e-") in path.stem
    residual = (
        stress - find_law(name).stress(strain[None], np.array([list(parameters.values())]))[0]
    )
    assert np.std(residual) == pytest.approx(1.0, rel=0.2)
    assert abs(np.mean(residual)) < 0.3
    again = write_example_curve(
        find_law(name),
        tmp_path / "again.csv",
        parameters=parameters,
        max_strain=max_strain,
        noise_mpa=1.0,
    )
    np.testing.assert_allclose(
        np.loadtxt(again, delimiter=",", skiprows=1), np.stack([strain, stress], 1), rtol=1e-4
    )


@pytest.mark.parametrize("name", MONOTONIC_LAWS)
def test_an_example_of_every_law_is_read_back_as_its_own_curve(name, tmp_path):
    law = find_law(name)
    settings = CurveSettings(law=name)
    path = write_example_curve(law, tmp_path / "example.csv")
    curve = load_measured_curve(path, CurveTarget.of(settings, law))
    assert curve.warnings == []
    middle = np.array([[float(p.from_unit_interval(0.5)) for p in law.parameters]])
    residual = curve.stress_mpa - law.stress(curve.strain[None], middle)[0]
    assert np.std(residual) == pytest.approx(law.noise_mpa, rel=0.25)


# Laws without terms that are alike: all their parameters stand in the middle.
WITHOUT_TERMS = ("johnson_cook", "perzyna", "norton", "ladeveze_shear", "neo_hooke", "arruda_boyce")


@pytest.mark.parametrize("name", [name for name in LAWS if name not in MONOTONIC_LAWS])
def test_example_tests_of_every_law_are_read_back_as_its_own(name, tmp_path):
    settings = CurveSettings(
        law=name, num_points=100, missing_tests=0.5 if name == "ogden" else 0.0
    )
    law = settings.build_law()
    folder = write_example_tests(settings, tmp_path / "tests")
    (record,), errors = load_records(find_records([str(folder)], law), CurveTarget.of_tests(law))
    assert errors == [] and not any(caveat.blocks for caveat in record.warnings)
    assert [test.programme.name for test in record.tests] == list(law.tests)
    if name in WITHOUT_TERMS:
        middle = np.array(
            [
                [
                    float(p.from_unit_interval(0.5)) if p.fixed is None else p.fixed
                    for p in law.parameters
                ]
            ]
        )
        for test in record.tests:
            noise = law.noise_mpa if test.programme.drives == "strain" else law.noise_strain
            residual = test.response - law.respond(test.history, middle)[0]
            assert np.std(residual) == pytest.approx(noise, rel=0.4), test.programme.name


def test_no_example_for_an_unknown_law_and_no_unknown_parameter(tmp_path):
    assert example_curve("no_such_law") is None
    with pytest.raises(InputError, match="did you mean 'G0'"):
        write_example_curve(find_law("hahn_tsai"), tmp_path / "x.csv", parameters={"G": 1.0})
    assert list(tmp_path.iterdir()) == []

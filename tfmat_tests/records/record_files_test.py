"""Files of tests: which is which, and what stands in them; with made records whose truth is known."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials.law import History
from tfmat.materials.registry import find_law
from tfmat.records.files import find_records
from tfmat_tests.records.files import write
from tfmat_tests.records.made_tests import (
    LAW,
    OGDEN,
    STEEL,
    STEEL_VALUES,
    STRETCH,
    TRUTH,
    cycles,
    only,
    read,
    rubber,
    saved,
    tension,
)


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
        ("{}", "takes several tests of one material"),
    ],
)
def test_a_wrong_mode_is_named(tmp_path, argument, says):
    path = rubber(tmp_path, -2)
    with pytest.raises(InputError, match=says):
        find_records([argument.format(path)], OGDEN)


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


def test_rate_and_temperature_of_head_name_or_time(tmp_path):
    files = [
        tension(tmp_path, 0.01, 200.0, "steel_200C.csv"),
        tension(
            tmp_path,
            1.0,
            293.15 - 273.15,
            "b.csv",
            head="strain rate: 1 1/s\ntemperature: 293.15 K\n",
        ),
        tension(tmp_path, 0.1, 20.0, "c.csv"),
    ]
    record = only(STEEL, *files)
    assert [t.rate for t in record.tests] == pytest.approx([0.01, 1.0, 0.1], rel=1e-3)
    assert [t.temperature for t in record.tests] == pytest.approx([200.0, 20.0, 20.0])
    assert "temperature of 20 °C" in record.assumed


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
    assert any("kelvin" in str(caveat) for caveat in test.curve.warnings) == asked


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("file,tset\na.csv,cyclic\n", "did you mean 'test'"),
        ("file,test\na.csv,cyclyc\n", "row 2: there is no test 'cyclyc'; did you mean 'cyclic'"),
        ("test\ncyclic\n", "needs a column 'file'"),
        ("file,test,rate\na.csv,cyclic,-1\n", "give a positive number in 1/s"),
    ],
)
def test_a_bad_table(tmp_path, table, says):
    path = write(tmp_path, table, "tests.csv")
    with pytest.raises(InputError, match=says):
        find_records([str(path)], LAW)


def test_real_records(real_curves):
    law = find_law("ogden")
    folder = real_curves / "rubber_treloar_1944"
    record = only(
        law, *(f"{t}={folder / f}" for t, f in (("uniaxial", "UT.txt"), ("planar", "PS.txt")))
    )
    assert [t.settings["max_strain"] for t in record.tests] == pytest.approx([6.6, 3.97], abs=0.01)
    steel = real_curves / "resspylab_cyclic_steel"
    first, second = read(LAW, *(str(steel / f"example_{i}.csv") for i in (1, 2)))[0]
    assert len(first.tests[0].turns) >= 21 and first.tests[0].settings[
        "amplitude"
    ] == pytest.approx(0.0203, abs=1e-4)
    assert len(second.tests[0].turns) >= 16

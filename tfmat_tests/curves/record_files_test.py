"""Files of tests: which is which, and what stands in them; with made records whose truth is known."""

import itertools
import pathlib

import numpy as np
import pytest

from tfmat.curves.measured_tests import MOST_POINTS
from tfmat.curves.reading import ReadingOptions
from tfmat.curves.record_files import find_records, load_records
from tfmat.errors import InputError
from tfmat.materials.history import Array, History
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter
from tfmat.materials.registry import find_law
from tfmat_tests.curves.files import write


class Plastic(HistoryLaw):
    """Elastic, perfectly plastic: the simplest law that remembers."""

    name = "plastic"
    title = "elastic, perfectly plastic"
    formula = "-"
    source = "-"
    parameters = (
        Parameter("E", "MPa", 100e3, 300e3, "log"),
        Parameter("yield_stress", "MPa", 100.0, 600.0, "log"),
    )
    strain_measure = "true"
    stress_measure = "true"
    max_strain = (0.01, 0.1)
    tests = ("cyclic",)

    def respond(self, history: History, parameters: Array) -> Array:
        strain = np.broadcast_to(history.driven, (len(parameters), history.driven.shape[1]))
        modulus, limit = parameters.T
        stress, answer = np.zeros(len(parameters)), np.empty(strain.shape)
        for i, step in enumerate(np.diff(strain, axis=1, prepend=0.0).T):
            stress = np.clip(stress + modulus * step, -limit, limit)
            answer[:, i] = stress
        return answer


LAW = Plastic()
TRUTH = np.array([[200e3, 300.0]])


def cycles(amplitudes=(0.01, -0.01, 0.012, -0.012), points=40) -> Array:
    """Strain through these turning points, evenly."""
    knots = [0.0, *amplitudes]
    parts = [np.linspace(a, b, points + 1)[1:] for a, b in itertools.pairwise(knots)]
    return np.concatenate([[0.0], *parts])


def saved(folder: pathlib.Path, header: str, *columns, name: str = "test.csv") -> str:
    rows = "\n".join(
        ",".join(f"{value:.9g}" for value in row) for row in zip(*columns, strict=True)
    )
    return str(write(folder, f"{header}\n{rows}\n", name))


def read(law, *arguments, **options):
    """The records of arguments, and the errors of their files."""
    return load_records(find_records(arguments, law), law, ReadingOptions(**options))


def only(law, *arguments, **options):
    (record,), errors = read(law, *arguments, **options)
    assert not errors
    return record


def refused(law, *arguments, **options) -> str:
    records, errors = read(law, *arguments, **options)
    assert not records and len(errors) == 1
    assert "\n" not in str(errors[0])
    return str(errors[0])


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


def test_two_files_are_two_materials_unless_they_are_named(tmp_path):
    strain = cycles()
    stress = LAW.respond(History(strain=strain[None]), TRUTH)[0]
    files = [
        saved(tmp_path, "true strain,true stress", strain, stress, name=f"{n}.csv") for n in "ab"
    ]
    assert [record.name for record in find_records(files, LAW)] == ["a", "b"]
    (one,) = find_records([f"cyclic={file}" for file in files], LAW)
    assert one.name == "a+b" and len(one.files) == 2


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


# Rubber: a Neo-Hookean one, whose answers are P = mu (λ - λ^-2), mu (λ - λ^-5) and mu (λ - λ^-3).
OGDEN = find_law("ogden")
STRETCH = np.linspace(1.05, 3.0, 20)


def rubber(folder: pathlib.Path, exponent: int, header="", name="UT.txt", stretch=STRETCH) -> str:
    return saved(folder, header, 0.5 * (stretch - stretch ** float(exponent)), stretch, name=name)


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


def test_a_stretch_that_is_called_strain(tmp_path):
    path = rubber(tmp_path, -2, "stress,strain")
    record = only(OGDEN, f"uniaxial={path}")
    np.testing.assert_allclose(record.tests[0].driven, STRETCH - 1.0)
    assert "stretch and not strain" in record.assumed
    assert "--strain_unit=stretch" in refused(OGDEN, f"uniaxial={path}", strain_unit="-")
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


def test_compression_has_a_name_of_its_own(tmp_path):
    stretch = np.linspace(0.95, 0.5, 15)
    path = rubber(tmp_path, -2, "stress,stretch", stretch=stretch)
    assert "say compression=FILE" in refused(OGDEN, f"uniaxial={path}")
    assert only(OGDEN, f"compression={path}").tests[0].settings == {
        "max_strain": pytest.approx(-0.5)
    }
    tension = rubber(tmp_path, -2, "stress,stretch", name="tension.csv")
    assert "which is tension" in refused(OGDEN, f"compression={tension}")


def test_unloading_of_rubber_is_left_out_and_told(tmp_path):
    stretch = np.concatenate([STRETCH, STRETCH[::-1][1:]])
    record = only(OGDEN, f"uniaxial={rubber(tmp_path, -2, 'stress,stretch', stretch=stretch)}")
    assert len(record.tests[0]) == len(STRETCH)
    assert [caveat.kind for caveat in record.warnings] == ["unloading left out"]


# Johnson-Cook's 4340 steel.
STEEL = find_law("johnson_cook")
STEEL_VALUES = np.array([[200e3, 792.0, 510.0, 0.26, 0.014, 1.03, 1.0, 20.0, 1500.0]])


def tension(
    folder: pathlib.Path, rate: float, temperature: float, name: str, head: str = ""
) -> str:
    strain = 0.2 * np.linspace(0.0, 1.0, 60) ** 2
    history = History(
        strain=strain[None], rate=np.array([[rate]]), temperature=np.array([[temperature]])
    )
    stress = STEEL.respond(history, STEEL_VALUES)[0]
    header = f"{head}true strain,true stress (MPa),time (min)"
    return saved(folder, header, strain, stress, strain / rate / 60.0, name=name)


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


class Viscous(Plastic):
    """Told the time, and nothing else: enough to read its tests."""

    tests = ("relaxation",)

    def respond(self, history: History, parameters: Array) -> Array:
        assert history.time is not None
        if history.strain is None:
            return np.asarray(history.driven / parameters[:, :1])
        return parameters[:, :1] * history.strain * np.exp(-1e-4 * history.time)


def relaxation(folder: pathlib.Path, time=None, strain=None, unit="min") -> str:
    time = (
        np.concatenate([np.linspace(0, 10, 20), 10 + np.geomspace(1, 5000, 50)])
        if time is None
        else time
    )
    strain = np.minimum(time / 10, 1.0) * 0.01 if strain is None else strain
    factor = {"min": 60.0, "s": 1.0}[unit]
    stress = 200e3 * strain * np.exp(-1e-4 * time)
    return saved(folder, f"Time [{unit}],true strain,true stress", time / factor, strain, stress)


def test_time_with_its_unit(tmp_path):
    record = only(Viscous(), relaxation(tmp_path))
    (test,) = record.tests
    assert test.time[-1] == pytest.approx(5010.0)
    assert test.settings == pytest.approx({"strain": 0.01, "rate": 1e-3, "hold": 5000.0}, rel=0.03)


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

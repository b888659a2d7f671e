"""Several specimens in one table: side by side, below each other, or told apart by a column."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records import tables
from tfmat.records.reading import ReadingOptions, begins_again, read_curves
from tfmat_tests.records.files import STRAIN, STRESS, columns, table, write, write_workbook

FACTORS = (1.0, 1.2)
SIDE_BY_SIDE = {
    "the same names": ("Strain;Stress;Strain;Stress", "1 2"),
    "units in the header": ("Strain [-];Stress [MPa];Strain [-];Stress [MPa]", "1 2"),
    "letters": ("Strain A;Stress A;Strain B;Stress B", "A B"),
    "letters in front": ("A_strain;A_stress;B_strain;B_stress", "A B"),
    "numbers": ("strain1;stress1;strain2;stress2", "1 2"),
    "numbers in the middle": ("Specimen 1 Strain;Specimen 1 Stress;Specimen 2 Strain;Specimen 2 Stress", "1 2"),
    "numbers of a spreadsheet": ("Strain;Stress;Strain.1;Stress.1", "1 2"),
    "numbers of pandas behind units": ("Strain;Stress (MPa);Strain.1;Stress (MPa).1", "1 2"),
    "directions": ("Strain RD;Stress RD;Strain TD;Stress TD", "RD TD"),
    "a row of labels": ("S7;;S9;\nStrain;Stress;Strain;Stress", "S7 S9"),
    "a row of labels above rows of sizes": (
        ";S7;;S9;\nS0;80;;60;mm²\nL0;50;;50;mm\nStrain;Stress (MPa);Strain;Stress (MPa)",
        "S7 S9",
    ),
    "a row of labels and one of units": ("S7;;S9;\nStrain;Stress;Strain;Stress\n-;MPa;-;MPa", "S7 S9"),
}  # fmt: skip


def wide(header: str, lengths=(20, 20), before=(), between=()) -> str:
    """Two specimens side by side, with cells before both and behind each."""
    rows = []
    for i in range(20):
        cells = [str(i) for _ in before]
        for factor, length in zip(FACTORS, lengths, strict=True):
            pair = (f"{STRAIN[i]:.8g}", f"{factor * STRESS[i]:.8g}") if i < length else ("", "")
            cells += [*pair, *between]
        rows.append(";".join(cells))
    return "\n".join([header, *rows])


def check(curves, lengths=(20, 20)):
    for curve, factor, length in zip(curves, FACTORS, lengths, strict=True):
        np.testing.assert_allclose(curve.strain, STRAIN[:length], rtol=1e-7)
        np.testing.assert_allclose(curve.stress_mpa, factor * STRESS[:length], rtol=1e-7)


@pytest.mark.parametrize("kind", SIDE_BY_SIDE)
def test_specimens_side_by_side_are_curves_with_their_labels(tmp_path, kind):
    header, labels = SIDE_BY_SIDE[kind]
    curves = read_curves(write(tmp_path, wide(header)))
    check(curves)
    assert [curve.conditions["specimen"] for curve in curves] == labels.split()
    assert [curve.name for curve in curves] == [f"curve_{label}" for label in labels.split()]


def test_specimens_side_by_side_may_differ_in_length_share_a_column_and_stand_apart(tmp_path):
    header = "Strain;Stress;Strain;Stress"
    check(read_curves(write(tmp_path, wide(header, (12, 20)))), (12, 20))
    shared = read_curves(write(tmp_path, wide(f"Time;{header}", before=("time",))))
    check(shared)
    check(read_curves(write(tmp_path, wide("Strain;Stress;;Strain;Stress;", between=("",)))))
    behind = wide(f"{header};Remark").splitlines()
    check(
        read_curves(write(tmp_path, "\n".join([behind[0], *(f"{row};ok" for row in behind[1:])])))
    )


def test_a_workbook_of_loads_side_by_side(tmp_path):
    rows = [
        [e * 50, s * 0.02, "", e * 50, 1.2 * s * 0.02]
        for e, s in zip(STRAIN.tolist(), STRESS.tolist(), strict=True)
    ]
    names, units = ["Extension", "Force"], ["mm", "kN"]
    sheet = [["S 1", "", "", "S 2", ""], [*names, "", *names], [*units, "", *units], *rows]
    path = write_workbook(tmp_path / "book.xlsx", {"Data": sheet})
    curves = read_curves(path, ReadingOptions(area=20.0, gauge_length=50.0))
    check(curves)
    assert [curve.name for curve in curves] == ["book_S 1", "book_S 2"]


@pytest.mark.parametrize(
    "sizes",
    [
        ["Area (mm²);20;;24", "Gauge length (mm);50;;50"],
        ["Area;20;24;mm²", "Gauge length;50;50;mm"],
        ["Area;20;mm²;Area;24;mm²", "Gauge length;50;mm"],
    ],
)
def test_each_of_two_specimens_side_by_side_has_its_own_area(tmp_path, sizes):
    names = "Extension [mm];Load [N];Extension [mm];Load [N]"
    head = "\n".join(["Specimen;A1;;A2", *sizes, names])
    text = columns(head, 50 * STRAIN, 20 * STRESS, 50 * STRAIN, 1.2 * 24 * STRESS)
    curves = read_curves(write(tmp_path, text))
    check(curves)
    assert [curve.conditions["specimen"] for curve in curves] == ["A1", "A2"]


def test_numbers_of_columns_choose_one_specimen(tmp_path):
    path = write(tmp_path, wide("Strain;Stress;Strain;Stress"))
    (second,) = read_curves(path, ReadingOptions(strain_column="3", stress_column="4"))
    np.testing.assert_allclose(second.stress_mpa, 1.2 * STRESS, rtol=1e-7)
    check(read_curves(path, ReadingOptions(strain_column="Strain", stress_column="Stress")))
    said = r"'Stress' appears more than once .*columns 2 and 4.*--stress_column=2"
    with pytest.raises(InputError, match=said):
        read_curves(path, ReadingOptions(strain_column="3"))


@pytest.mark.parametrize(
    "header",
    [
        "Strain;Stress 1;Other strain;Stress 2",
        "Strain 1;Strain 2;Stress 1;Stress 2",
        "eng strain;eng stress;true strain;true stress",
        "Strain (front);Stress;Strain (back);Stress (back)",
    ],
)
def test_columns_that_are_no_specimens_are_refused_with_their_numbers(tmp_path, header):
    with pytest.raises(InputError, match="one of the numbers"):
        read_curves(write(tmp_path, wide(header)))


def below(*curves, names=None) -> str:
    header = "Strain;Stress" if names is None else f"{names[0]};Strain;Stress"
    parts = [
        columns("", *([names[1][k]] if names else []), *pair, separator=";")
        for k, pair in enumerate(curves)
    ]
    return header + "".join(parts).replace("\n\n", "\n").rstrip("\n")


PAIR = [(STRAIN, factor * STRESS) for factor in FACTORS]


def test_a_test_that_was_stopped_goes_on_where_it_was_though_its_time_begins_again(tmp_path):
    header = "Time (s);Strain;Stress"
    _, *rows = columns(header, np.tile(range(10), 2), STRAIN, STRESS).splitlines()
    text = "\n".join([header, *rows[:10], "Test resumed", header, *rows[10:]])
    (curve,) = read_curves(write(tmp_path, text))
    np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-7)


@pytest.mark.parametrize("sign", [1, -1])
def test_specimens_below_each_other_are_curves(tmp_path, sign):
    path = write(tmp_path, below(*[(sign * e, sign * s) for e, s in PAIR]))
    curves = read_curves(path)
    for curve, (strain, stress) in zip(curves, PAIR, strict=True):
        np.testing.assert_allclose(curve.strain, sign * strain, rtol=1e-7)
        np.testing.assert_allclose(curve.stress_mpa, sign * stress, rtol=1e-7)
        assert "begin again at zero in line 22: 2 specimens" in curve.steps[-1]
    (whole,) = read_curves(path, ReadingOptions(specimen_column="none"))
    assert len(whole.strain) == 40
    # A test that turns or is held comes back to zero by itself.
    assert len(read_curves(path, of_test=True, one_loading=False)) == 1


@pytest.mark.parametrize("points", [12, 20, 400])
@pytest.mark.parametrize("ends", [(0.02, 0.2), (0.2, 0.02), (0.1, 0.3)])
@pytest.mark.parametrize("preload", [0.0, 0.1])
def test_specimens_of_any_length_density_and_preload_are_told_apart(points, ends, preload):
    strains = [np.linspace(0.0, end, points) for end in ends]
    stresses = [preload * 300 + 300 * np.tanh(300 * strain) for strain in strains]
    assert begins_again(np.concatenate(strains), np.concatenate(stresses)) == [points]


@pytest.mark.parametrize("cut_off", [0.25, 0.45])
def test_a_specimen_whose_first_rows_are_cut_off_is_told_apart(cut_off):
    """A load of a fifth and more of the largest at its first row was taken for a necking specimen's."""
    strain = np.linspace(0.0, 0.15, 400)
    stress = 300 * np.tanh(300 * strain)
    later = stress > cut_off * 300
    both = np.r_[strain, strain[later]], np.r_[stress, 0.9 * stress[later]]
    assert begins_again(*both) == [400]
    # An extensometer that is taken off while the load falls measures nothing any more.
    end = np.linspace(0.95, 0.0, 60)
    after = np.where(end < cut_off, 1e-4, 0.15 + 0.02 * (1.0 - end))
    assert begins_again(np.r_[strain, after], np.r_[stress, 300 * end]) == []


@pytest.mark.parametrize("points", [10, 40])
def test_a_crosshead_that_comes_back_without_a_load_ends_a_specimen(points):
    """The broken specimen bears noise while the crosshead returns, and the next one is put in."""
    random = np.random.default_rng(1)
    strain = np.r_[STRAIN, np.linspace(STRAIN[-1], 0.0, points), STRAIN[1:]]
    stress = np.r_[STRESS, 0.3 * random.standard_normal(points), 1.1 * STRESS[1:]]
    assert begins_again(strain, stress) == [len(STRAIN) + points - 1]
    # Nothing follows the return, or the specimen was unloaded and loaded again.
    end = len(STRAIN) + points
    assert begins_again(strain[:end], stress[:end]) == []
    unloaded = np.r_[STRESS, np.linspace(STRESS[-1], 0.0, points), STRESS[1:]]
    assert begins_again(strain, unloaded) == []


def test_noise_and_fracture_between_specimens_make_no_further_ones():
    random = np.random.default_rng(0)
    strain = np.r_[np.zeros(5), np.linspace(0.0, 0.1, 200), np.full(5, 0.1)]
    stress = np.r_[np.zeros(5), 300 * np.tanh(300 * np.linspace(0.0, 0.1, 200)), np.zeros(5)]
    strain = np.tile(strain, 3) + 1e-5 * random.standard_normal(630)
    stress = np.tile(stress, 3) + random.standard_normal(630)
    assert begins_again(strain, stress) == [210, 420]


UNITS = "-;MPa"
BETWEEN = {
    "a title": ("", "Specimen 2", "1 2"),
    "a title in cells": ("", "Probe;2", "1 2"),
    "titles": ("Specimen A\n", "Specimen B", "Specimen A|Specimen B"),
    "names": ("", "Strain;Stress", "1 2"),
    "names and units": ("", f"Strain;Stress\n{UNITS}", "1 2"),
    "units": ("", UNITS, "1 2"),
    "a title, notes, names and units": (
        "Specimen: A\n",
        f"\nSpecimen: B\nThickness;2.5;mm\nStrain;Stress\n{UNITS}\n",
        "A B",
    ),
    "notes that differ": (
        "Test date: 1.2.2020\nSpecimen: A\nSpecimen width: 5.01\n",
        "Test date: 2.2.2020\nSpecimen: B\nSpecimen width: 5.02",
        "A B",
    ),
}


@pytest.mark.parametrize("kind", BETWEEN)
def test_specimens_below_each_other_with_lines_between_are_curves(tmp_path, kind):
    first, between, labels = BETWEEN[kind]
    one, other = (table("", ";", *pair).lstrip("\n") for pair in PAIR)
    names = labels.split("|") if "|" in labels else labels.split()
    path = write(tmp_path, f"{first}Strain;Stress\n{UNITS}\n{one}{between}\n{other}")
    curves = read_curves(path)
    check(curves)
    assert [curve.conditions["specimen"] for curve in curves] == names


def test_specimens_below_each_other_have_their_own_columns_units_and_sizes(tmp_path):
    one, other = (table("", ";", e, 20.0 * k * s) for k, (e, s) in enumerate(PAIR, start=1))
    text = f"Area: 20 mm²\nStrain;Load [N]{one}Area: 40 mm²\nStrain;Load [N]{other}"
    check(read_curves(write(tmp_path, text)))
    swapped = table("Stress [kPa];Strain [%]", ";", 1e3 * FACTORS[1] * STRESS, 100.0 * STRAIN)
    check(read_curves(write(tmp_path, f"Strain;Stress{table('', ';')}{swapped}")))


def test_lines_between_rows_that_go_on_divide_no_specimen_and_results_above_are_none(tmp_path):
    rows = table("", ";").splitlines()[1:]
    pages = ["Strain;Stress", *rows[:12], "Strain;Stress", *rows[12:]]
    (curve,) = read_curves(write(tmp_path, "\n".join(pages)))
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    assert "left out the text between the rows in line 14" in curve.steps[0]
    (curve,) = read_curves(
        write(tmp_path, "\n".join([*pages[:13], "Acquisition: Timed", *pages[13:]]))
    )
    np.testing.assert_allclose(curve.strain, STRAIN, rtol=1e-7)
    results = ["Specimen;Rm;A", "1;450;12", "2;460;13"]
    (curve,) = read_curves(write(tmp_path, "\n".join([*results, "Strain;Stress", *rows])))
    np.testing.assert_allclose(curve.stress_mpa, STRESS, rtol=1e-7)
    with pytest.raises(InputError, match=r"line 14, column 'Strain': 'slipped' is not a number"):
        read_curves(
            write(tmp_path, "\n".join(["Strain;Stress", *rows[:12], "slipped;3", *rows[12:]]))
        )
    with pytest.raises(InputError, match=r"specimen '2': it has 4 points"):
        read_curves(write(tmp_path, "\n".join(["Strain;Stress", *rows, "Specimen 2", *rows[:4]])))


@pytest.mark.parametrize("title", ["", "Cycle 2\n"])
def test_cycles_below_each_other_are_one_test_of_a_law_that_remembers(tmp_path, title):
    """Each begins where the one before ended, which is where that began."""
    around = np.r_[np.linspace(0, 1, 10), np.linspace(1, -1, 20), np.linspace(-1, 0, 10)]
    names = "Strain;Stress"
    block = table("", ";", 0.01 * around, 300.0 * around).lstrip("\n")
    path = write(tmp_path, f"{names}\n{block}{title}{names}\n{block}")
    (whole,) = read_curves(path, of_test=True, one_loading=False)
    np.testing.assert_allclose(whole.strain, 0.01 * np.r_[around, around], atol=1e-9)
    named = write(tmp_path, f"Specimen 1\n{names}\n{block}Specimen 2\n{names}\n{block}")
    assert len(read_curves(named, of_test=True, one_loading=False)) == 2


def test_pages_with_decimal_commas_that_may_be_thousands_go_by_the_user_s_word(tmp_path):
    rows = [f"{i},125;{10 * i},125" for i in range(1, 25)]
    path = write(
        tmp_path, "\n".join(["Strain [%];Stress", *rows[:12], "Strain [%];Stress", *rows[12:]])
    )
    (curve,) = read_curves(path, ReadingOptions(decimal="comma"))
    np.testing.assert_allclose(curve.strain, (np.arange(1, 25) + 0.125) / 100.0)


def test_rows_that_go_on_at_the_load_with_another_strain_are_no_second_specimen(tmp_path):
    rows = columns("Strain;Stress", STRAIN + 0.01 * (np.arange(20) > 9), STRESS).splitlines()
    text = "\n".join([*rows[:11], "extensometer taken off", *rows[11:]])
    with pytest.raises(InputError, match="they are one specimen, whose strain goes from 0.0236"):
        read_curves(write(tmp_path, text))


def test_many_pages_are_looked_at_once(tmp_path, monkeypatch):
    read, number = [], tables.number
    monkeypatch.setattr(tables, "number", lambda *cell: read.append(1) or number(*cell))
    rows = [f"{i};{10 * i}" for i in range(300)]
    pages = ["\n".join(["Strain [%];Stress", *rows[i : i + 10]]) for i in range(0, 300, 10)]
    (curve,) = read_curves(write(tmp_path, "\n".join(pages)))
    assert len(curve.strain) == 300
    assert len(read) <= 2 * 600
    assert "left out the text between the rows in line 12, 23, 34, 45, 56, 67, …" in curve.steps[0]


def test_specimens_of_few_points_below_each_other_are_refused(tmp_path):
    short = [(strain[::3], stress[::3]) for strain, stress in PAIR]
    said = r"begin again at zero in line 9: a specimen .* has 7 points"
    with pytest.raises(InputError, match=said):
        read_curves(write(tmp_path, below(*short)))


def test_no_single_record_is_taken_for_two():
    rising, stress = np.linspace(0.0, 0.1, 50), 400 * np.tanh(100 * np.linspace(0.0, 0.1, 50))
    back = rising[::-1]
    zeros = np.zeros(20)
    tail = np.full(20, 0.1)
    for strain, load in {
        "one loading": (rising, stress),
        "fracture": (np.r_[rising, tail], np.r_[stress, zeros]),
        "fracture, and an extensometer that springs back": (np.r_[rising, zeros], np.r_[stress, zeros]),
        "an extensometer taken off": (np.r_[rising, zeros], np.r_[stress, stress[-20:]]),
        "rows that are zero": (np.r_[rising, zeros, rising + 0.1], np.r_[stress, zeros, stress + 400]),
        "a lost row where the sampling becomes coarse": (
            np.r_[0.02 * rising, 0.0, rising[2:]],
            np.r_[stress[20] * 10 * rising, 0.0, np.maximum(stress[2:], stress[20])],
        ),
        "a check within the elastic part": (np.r_[0.02 * rising, rising], np.r_[2000 * rising, stress]),
        "cycles that grow": (
            np.concatenate([k * np.r_[rising[::5], rising[::-5]] for k in (1, 2, 3)]),
            np.concatenate([k * np.r_[stress[::5], stress[::-5]] for k in (1, 2, 3)]),
        ),
        "a cell that is zero": (np.r_[rising, 0.0, rising + 0.1], np.r_[stress, 0.0, stress + 400]),
        "loading and unloading": (np.r_[rising, back, rising], np.r_[stress, stress[::-1], stress]),
        "a preload": (np.r_[rising[:15], rising], np.r_[0.2 * stress[:15], stress]),
    }.values():  # fmt: skip
        assert begins_again(strain, load) == []


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("Specimen", ("P1", "P2")),
        ("Sample number", ("1", "2")),
        ("Probe Nr.", ("1", "2")),
        ("Probennummer", ("A", "B")),
        ("Éprouvette", ("a", "b")),
        ("Test", ("t 1", "t 2")),
        ("試験片", ("1", "2")),
    ],
)
def test_a_column_of_specimens_tells_them_apart(tmp_path, name, labels):
    curves = read_curves(write(tmp_path, below(*PAIR, names=(name, labels))))
    check(curves)
    assert [curve.conditions["specimen"] for curve in curves] == list(labels)


@pytest.mark.parametrize("again", ["", "〃", "ditto"])
def test_a_label_in_the_first_row_of_each_specimen_alone_counts_for_all(tmp_path, again):
    labels = ["A1", *[again] * 19, "B7", *[again] * 19]
    values = np.tile(STRAIN, 2), np.r_[STRESS, 1.1 * STRESS]
    curves = read_curves(write(tmp_path, columns("Specimen;Strain;Stress", labels, *values)))
    assert [curve.name for curve in curves] == ["curve_A1", "curve_B7"]
    np.testing.assert_allclose(curves[1].stress_mpa, 1.1 * STRESS, rtol=1e-7)


def test_a_counter_of_rows_and_a_specimen_s_strain_are_no_specimens(tmp_path):
    counted = columns("Sample;Strain;Stress", range(20), STRAIN, STRESS)
    named = columns("Specimen strain;Specimen stress", STRAIN, STRESS)
    for text in (counted, named):
        assert len(read_curves(write(tmp_path, text))) == 1


def test_two_columns_that_divide_the_rows_differently_are_asked_about(tmp_path):
    values = np.tile(STRAIN, 2), np.concatenate([stress for _, stress in PAIR])
    names = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    path = write(tmp_path, columns("Specimen;Run;Strain;Stress", *names, *values))
    with pytest.raises(InputError, match="several columns could be the specimen"):
        read_curves(path)
    check(read_curves(path, ReadingOptions(specimen_column="Specimen")))


def test_specimens_whose_rows_take_turns_are_refused(tmp_path):
    strain = np.repeat(np.linspace(0, 0.1, 100), 3)
    stress = np.tile([400.0, 415.0, 440.0], 100) * (1 - np.exp(-60 * strain))
    path = write(tmp_path, table("Strain,Stress (MPa)", strain=strain, stress=stress))
    with pytest.raises(InputError, match="rows belong to 3 curves in turn, row by row"):
        read_curves(path)
    (curve,) = read_curves(path, ReadingOptions(specimen_column="none"))
    assert len(curve.strain) == 300
    # Coarse steps of a load that stand for two rows each fall nowhere.
    stress = 10 * np.round(40 * (1 - np.exp(-60 * strain)))
    read_curves(write(tmp_path, table("Strain,Stress (MPa)", strain=strain, stress=stress)))
    noise = np.random.default_rng(1).normal(0, 8.0, 300)
    read_curves(write(tmp_path, table("Strain,Stress (MPa)", strain=strain, stress=stress + noise)))

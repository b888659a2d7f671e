"""Conditions of a test from head and file name: what can be read in one way, and nothing else."""

import pytest

from tfmat.errors import InputError
from tfmat.records.reading import (
    conditions_of,
    fahrenheit_of_rankine,
    read_curves,
    split_time_header,
)
from tfmat_tests.records.files import table, write


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("cleaned_6061-01-13-200C-L", {"temperature": "200 °C", "direction": "L"}),
        ("cleaned_6061-03-15-100C-ST", {"temperature": "100 °C", "direction": "ST"}),
        ("cleaned_CA-RD-02", {"direction": "RD"}),
        ("cleaned_SML4188-Ring1-17_Pull_0.0001", {"rate": "0.0001"}),
        ("steel_1e-3_293K_45deg", {"temperature": "293 K", "rate": "0.001", "direction": "45°"}),
        ("steel_-40C_500/s", {"temperature": "-40 °C", "rate": "500 1/s"}),
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
    ],
)
def test_a_time_is_name_and_unit(header, name, unit):
    assert split_time_header(header) == (name, unit)


def test_two_columns_of_time_matter_only_where_the_time_does(tmp_path):
    rows = [f"{i},{i + 5},{row}" for i, row in enumerate(table("x,y").splitlines()[1:])]
    path = write(tmp_path, "\n".join(["Time (s),Running time (s),strain,stress", *rows]))
    (curve,) = read_curves(path, of_test=True)
    assert curve.time is None
    with pytest.raises(InputError, match="several columns could be the time"):
        read_curves(path, of_test=True, needs_time=True)

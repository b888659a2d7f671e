"""Numbers as people read them."""

import math

import pytest

from tfmat.report.tables import (
    duration_text,
    format_limits,
    format_power,
    format_unit,
    format_value,
    with_unit,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (6964.4, "6964"),
        (193012.0, "193000"),
        (0.01234, "0.01234"),
        (0.25, "0.2500"),
        (2.44e-8, "2.440e-8"),
        (9.9999e-8, "1.000e-7"),
        (999999.0, "1.000e6"),
        (99.996, "100.0"),
        (-12.345, "-12.35"),
        (0.0, "0"),
        (None, "–"),
        (math.inf, "inf"),
    ],
)
def test_values(value, text):
    assert format_value(value) == text


def test_values_keep_their_digits():
    for exponent in range(-12, 12):
        for mantissa in (1.0, 1.2345, 9.9949):
            assert float(format_value(mantissa * 10.0**exponent)) == pytest.approx(
                mantissa * 10.0**exponent, rel=5.1e-4
            )


def test_units():
    assert format_unit("MPa^-3") == "MPa⁻³"
    assert format_unit("-") == ""
    assert with_unit("a", "MPa^-3") == "a (MPa⁻³)"
    assert with_unit("n", "-") == "n"


def test_limits_of_bins():
    assert format_limits("max_strain", 0.01, 0.0234) == "0.0100 – 0.0234"
    assert format_limits("num_points", 37.2, 99.0) == "37 – 99"
    assert format_limits("num_points", 200.0, 200.0) == "200"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "10⁻⁵"),
        (2e-9, "2·10⁻⁹"),
        (3.5e6, "3.5·10⁶"),
        (0.01, "0.01"),
        (500.0, "500"),
        (1.0, "1"),
    ],
)
def test_places_on_a_logarithmic_axis(value, text):
    assert format_power(value) == text


def test_durations_in_words():
    assert [duration_text(s) for s in (58.2, 192, 7500)] == ["58 s", "3 min 12 s", "2 h 5 min"]

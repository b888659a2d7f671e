"""Fit windows, and where a true curve is cut at its maximum load."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.reading import RawCurve
from tfmat.records.record import CurveTarget

METAL = CurveTarget(200, 2.0, (0.02, 0.6), None, "true", "true")
STRAIN = np.linspace(0, 0.3, 601)


def voce(strain):
    """E 70 GPa, σ0 200, Q 200 MPa, b 15: stress over plastic strain in closed form, total strain within 1e-9."""
    stress = np.zeros_like(strain)
    for _ in range(60):
        plastic = np.maximum(strain - stress / 70e3, 0.0)
        stress = np.where(
            70e3 * strain < 200, 70e3 * strain, 200 + 200 * (1 - np.exp(-15 * plastic))
        )
    return stress


def curve_of(window=None, stress=None, **options):
    stress = voce(STRAIN) if stress is None else stress
    return clean(
        RawCurve("a", STRAIN, stress, "true", "true"),
        METAL,
        CleaningOptions(window=window, **options),
    )


def test_a_true_curve_is_cut_where_its_load_has_its_maximum():
    # Considère, the slope over the total strain equals the stress: h / (1 + h / E) = 400 - 200 x with h = 3000 x and
    # x = exp(-15 p): x = 0.12563, p = 0.13829, stress 374.9 MPa.
    expected = 0.13829 + 374.9 / 70e3
    random = np.random.default_rng(0)
    for noise, tolerance in ((0.0, 0.001), (1.0, 0.015)):
        curve = curve_of(stress=voce(STRAIN) + random.normal(0, noise, len(STRAIN)))
        assert curve.strain[-1] == pytest.approx(expected, abs=tolerance)
        (necking,) = [caveat for caveat in curve.warnings if caveat.kind == "necking"]
        assert "--nocut_after_failure" in str(necking)
    assert curve_of(cut_after_failure=False).strain[-1] == STRAIN[-1]


def test_engineering_and_true_columns_of_one_test_end_at_the_same_point():
    true = voce(STRAIN)
    engineering = np.expm1(STRAIN), true * np.exp(-STRAIN)
    curves = [
        curve_of(),
        clean(RawCurve("a", *engineering, "engineering", "engineering"), METAL),
        clean(RawCurve("a", engineering[0], true, "engineering", "true"), METAL),
        clean(RawCurve("a", STRAIN, engineering[1], "true", "engineering"), METAL),
    ]
    for curve in curves:
        np.testing.assert_allclose(curve.strain[-1], curves[0].strain[-1], atol=0.0016)
        np.testing.assert_allclose(curve.stress_mpa, voce(curve.strain), rtol=1e-6, atol=1e-6)


def test_a_true_curve_that_hardens_to_its_end_is_left_whole():
    curve = curve_of(stress=np.minimum(70e3 * STRAIN, 200 + 900 * STRAIN))
    assert curve.strain[-1] == STRAIN[-1]
    assert curve.warnings == []


@pytest.mark.parametrize(
    ("window", "low", "high"), [("0.01,0.1", 0.01, 0.1), (",0.1", 0.0, 0.1), ("0.01,", 0.01, 0.144)]
)
def test_only_points_inside_the_window_count(window, low, high):
    curve = curve_of(window)
    assert curve.strain[0] == pytest.approx(low, abs=6e-4)
    assert curve.strain[-1] == pytest.approx(high, abs=6e-4)
    assert any(step.startswith("kept the points of the window, strain") for step in curve.steps)
    assert ("window without the start" in [c.kind for c in curve.warnings]) == (low > 0)


@pytest.mark.parametrize("window", ["", ",", "a,b", "0.1", "0.1,0.05", "1,2,3", "nan,1", ",-1"])
def test_a_window_that_is_none_is_refused(window):
    with pytest.raises(InputError, match="--window is '.*give LOW,HIGH in plain strain"):
        CleaningOptions(window=window)


def test_a_window_with_too_few_points_is_refused():
    with pytest.raises(
        InputError, match=r"--window leaves 3 of its \d+ points, from strain 0\.1 to"
    ):
        curve_of("0.1,0.101")

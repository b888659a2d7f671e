"""Toe, preload and the noise estimate: found where they are, and nowhere else."""

import numpy as np
import pytest

from tfmat.materials import find_law
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.reading import RawCurve
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings, Simulator
from tfmat.records.tensile import StrainError, elastic_line, noise_of, toe_shift

SHEAR = CurveTarget(200, 1.0, (0.01, 0.05), None, "engineering shear", "shear")
METAL = CurveTarget(200, 2.0, (0.02, 0.6), None, "true", "true")


def with_toe(strain, stress, length):
    """Strain of a machine with slack: it lags by `length` until the load has taken it up."""
    return strain + length * (1 - np.exp(-stress / (0.03 * stress.max())))


@pytest.mark.parametrize(
    ("law", "parameters", "end", "length"),
    [
        ("tanh_shear", [5000.0, 80.0], 0.04, 0.002),
        ("tanh_shear", [5000.0, 80.0], 0.04, 0.004),
        ("hahn_tsai", [5000.0, 3e-8], 0.04, 0.003),
        ("voce", [70e3, 200.0, 150.0, 12.0], 0.05, 0.002),
    ],
)
@pytest.mark.parametrize("num_points", [400, 4000])
def test_a_toe_is_taken_off(law, parameters, end, length, num_points):
    true = np.linspace(0, end, num_points)
    stress = find_law(law).stress(true[None], np.array([parameters]))[0]
    noise = np.random.default_rng(0).normal(0, 0.002 * stress.max(), num_points)
    target = METAL if law == "voce" else SHEAR
    raw = RawCurve("a", with_toe(true, stress, length), stress + noise, "true", "true")
    curve = clean(raw, target)
    (said,) = [step for step in curve.steps if step.startswith("took a toe of ")]
    assert float(said.split()[4]) == pytest.approx(length, rel=0.15)
    middle = (stress > 0.3 * stress.max()) & (stress < 0.8 * stress.max())
    expected = np.interp(true[middle], true, stress)
    found = np.interp(true[middle], curve.strain, curve.stress_mpa)
    np.testing.assert_allclose(found, expected, atol=0.03 * stress.max())
    kept = clean(raw, target, CleaningOptions(toe="off"))
    assert not any("toe" in step for step in kept.steps)


@pytest.mark.parametrize("law", ["hahn_tsai", "tanh_shear", "exponential_shear", "voce", "swift"])
def test_simulated_curves_have_no_toe(law):
    """Noise of a few percent included: at most one in a hundred is moved, and that by little."""
    curves = Simulator(CurveSettings(law=law), seed=3).curves(0, 200)
    shifts = []
    for curve in np.array(curves.features, np.float64):
        strain, stress = curve[curve[:, 2] == 0, :2].T
        shifts.append(toe_shift(strain, stress, elastic_line(strain, stress)).shift / strain[-1])
    moved = np.abs(shifts) > 0
    assert moved.mean() <= 0.01
    assert np.abs(shifts).max() < 0.02


def test_a_preload_with_zeroed_strain_is_put_back():
    true = np.linspace(0, 0.04, 300)
    stress = 80 * np.tanh(5000 * true / 80)
    loaded = stress > 6.0
    zeroed = true[loaded] - true[loaded][0]
    curve = clean(RawCurve("a", zeroed, stress[loaded]), SHEAR)
    assert any("for the load at its start" in step for step in curve.steps)
    np.testing.assert_allclose(curve.strain, true[loaded], atol=1e-4)


def test_plastic_strain_is_pointed_out():
    strain = np.linspace(0, 0.2, 100)
    curve = clean(RawCurve("a", strain, 250 + 800 * strain, "true", "true"), METAL)
    assert any("if this is plastic strain" in str(line) for line in curve.warnings)


def test_rubber_like_upturn_is_no_toe():
    strain = np.linspace(0, 6, 60)
    stress = 0.4 * (1 + strain - (1 + strain) ** -2) + 0.0004 * np.exp(1.4 * strain)
    assert toe_shift(strain, stress, elastic_line(strain, stress)).kind == ""


def test_noise_is_estimated_on_a_smooth_curve():
    strain = np.linspace(0, 0.04, 2000)
    noise = np.random.default_rng(0).normal(0, 0.7, len(strain))
    assert noise_of(80 * np.tanh(60 * strain) + noise) == pytest.approx(0.7, rel=0.08)
    assert noise_of(80 * np.tanh(60 * strain)) < 1e-3


def voce_tension(spacing=(60, 200)):
    """Engineering strain and stress of a metal (E 200 GPa), dense to 0.4 % and coarser beyond."""
    true = np.concatenate(
        [np.linspace(0, 0.004, spacing[0]), np.linspace(0.0042, 0.12, spacing[1])]
    )
    stress = find_law("voce").stress(true[None], np.array([[200e3, 300.0, 250.0, 12.0]]))[0]
    noise = np.random.default_rng(0).normal(0, 0.3, len(true))
    return np.expm1(true), stress * np.exp(-true) + noise


def found_in(strain, stress, **options):
    raw = RawCurve("a", strain, stress, "engineering", "engineering")
    return clean(raw, METAL, CleaningOptions(**options))


@pytest.mark.parametrize("slack", [5e-4, 1e-3, 1.5e-3, 4e-3])
@pytest.mark.parametrize("scale", [15.0, 30.0, 80.0])
@pytest.mark.parametrize("spacing", [(20, 80), (60, 200), (200, 400)])
def test_every_toe_is_a_caveat_and_its_size_is_known(slack, scale, spacing):
    """The strain lags by slack (1 - exp(-s / scale)): of the longest bend the elastic part shows a half."""
    strain, stress = voce_tension(spacing)
    curve = found_in(strain + slack * (1 - np.exp(-stress / scale)), stress)
    (caveat,) = [caveat for caveat in curve.warnings if caveat.kind == "toe"]
    assert ("was taken off" in caveat.text) == curve.toe_removed
    assert 0.5 * slack < curve.toe < 1.1 * slack
    left = found_in(strain + slack * (1 - np.exp(-stress / scale)), stress, toe="off")
    assert "toe" in [caveat.kind for caveat in left.warnings] and not left.toe_removed


@pytest.mark.parametrize("spacing", [(12, 200), (20, 80), (60, 200), (200, 400)])
def test_no_toe_no_caveat(spacing):
    curve = found_in(*voce_tension(spacing))
    assert curve.warnings == [] and curve.toe == 0.0 and not curve.toe_removed


@pytest.mark.parametrize("offset", [0.004, -0.004, 0.0005, -0.002, 0.3])
@pytest.mark.parametrize("spacing", [(12, 200), (60, 200), (400, 400)])
def test_a_strain_that_was_not_zeroed_is_taken_off_and_told(offset, spacing):
    strain, stress = voce_tension(spacing)
    curve = found_in(strain + offset, stress)
    assert [caveat.kind for caveat in curve.warnings] == ["strain not zeroed"]
    assert f"reads {offset:.3g} before the load" in curve.warnings[0].text
    straight = found_in(strain, stress)
    np.testing.assert_allclose(curve.strain[3:100], straight.strain[3:100], atol=1.5e-5)
    left = found_in(strain + offset, stress, toe="off")
    assert "strain not zeroed" not in [caveat.kind for caveat in left.warnings]


@pytest.mark.parametrize("offset", [18.0, -18.0, 30.0])
@pytest.mark.parametrize("spacing", [(12, 200), (400, 400)])
def test_a_load_at_zero_strain_is_told(offset, spacing):
    strain, stress = voce_tension(spacing)
    curve = found_in(strain, stress + offset)
    (caveat,) = curve.warnings
    assert caveat.kind == "load at zero strain"
    assert f"MPa too {'high' if offset > 0 else 'low'}" in caveat.advice
    yielded = np.interp(0.0008, curve.strain, curve.stress_mpa)
    assert yielded == pytest.approx(160.0, abs=3.0)


@pytest.mark.parametrize("load", [-15.0, 15.0, 40.0])
@pytest.mark.parametrize("spacing", [(12, 200), (60, 200), (400, 400)])
def test_a_load_that_was_not_zeroed_is_told(load, spacing):
    strain, stress = voce_tension(spacing)
    curve = found_in(strain, stress + load)
    (caveat,) = [caveat for caveat in curve.warnings if caveat.kind == "load at zero strain"]
    assert f"too {'high' if load > 0 else 'low'}" in caveat.advice


@pytest.mark.parametrize("step", [1e-4, 3e-4])
def test_coarse_steps_of_strain_and_load_make_no_toe_and_no_load_at_the_start(step):
    strain, stress = voce_tension((60, 400))
    curve = found_in(np.round(strain / step) * step, np.round(stress / 1.25) * 1.25)
    assert curve.warnings == []
    assert curve.strain_error.step == pytest.approx(step)
    # Rows at one step are one point.
    assert np.diff(curve.strain).min() > 0.8 * step


@pytest.mark.parametrize("digits", [6, 9])
def test_even_points_are_no_coarse_strain(digits):
    even = np.linspace(0.0, 0.12, 150)
    pieces = np.r_[np.linspace(0.0, 0.005, 51), np.linspace(0.006, 0.12, 115)]
    for strain in (even, np.delete(even, [40, 41, 90]), pieces):
        found = StrainError.of_rounding(np.round(strain, digits))
        assert found.step <= 1.01 * 10.0**-digits

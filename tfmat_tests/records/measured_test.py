"""Cleaning and resampling of measured curves, also of the real 304L tests."""

import dataclasses

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import CurveTarget, resample
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_measured_curve, load_measured_curves

SHEAR = CurveTarget(200, 1.0, (0.01, 0.05), 140.0, "engineering shear", "shear")
METAL = CurveTarget(200, 2.0, (0.02, 0.6), None, "true", "true")


def shear_stress(strain):
    """Any smooth softening curve, MPa; 100 MPa at the most."""
    return 100.0 * np.tanh(50.0 * strain)


def metal_load(strain):
    """Engineering stress with its maximum, 400 MPa, at strain 0.2."""
    return 400.0 - 8000.0 * (strain - 0.2) ** 2


def test_a_clean_curve_is_left_alone():
    strain = np.linspace(0, 0.04, 50)
    curve = clean(RawCurve("a", strain, shear_stress(strain), steps=("read",)), SHEAR)
    np.testing.assert_array_equal(curve.strain, strain)
    assert curve.steps[:-1] == ["read", "took the strain as the engineering shear strain gamma"]
    assert "200 points" in curve.steps[-1]
    assert curve.warnings == []


def test_an_unloading_is_dropped():
    strain = np.array([0, 1, 2, 3, 2, 1.5, 2.9, 3, 3.5, 4, 5, 6, 7, 8, 9, 10]) * 1e-3
    stress = np.where(np.isin(np.arange(16), [4, 5, 6]), 2.0, shear_stress(strain))
    curve = clean(RawCurve("a", strain, stress), SHEAR)
    np.testing.assert_allclose(
        curve.strain, np.array([0, 1, 2, 3, 3.5, 4, 5, 6, 7, 8, 9, 10]) * 1e-3
    )
    assert "dropped unloadings and slips, where strain falls (3 points dropped)" in curve.steps


def test_noise_of_the_strain_is_averaged_without_bias():
    random = np.random.default_rng(1)
    true = np.linspace(0, 0.04, 4000)
    strain = true + random.normal(0, 1e-4, len(true))
    raw = RawCurve("a", strain, shear_stress(true) + random.normal(0, 0.2, len(true)))
    averaged = clean(raw, SHEAR)
    assert any("monotonic envelope of noisy strain: " in step for step in averaged.steps)
    assert (np.diff(averaged.strain) > 0).all()
    inner = (averaged.strain > 0.005) & (averaged.strain < 0.035)

    def bias(curve, inner=slice(None)):
        return np.mean((curve.stress_mpa - shear_stress(curve.strain))[inner])

    assert abs(bias(averaged, inner)) < 0.05
    # Only points above all before: those whose strain the noise has raised, so the stress seems too low.
    highest = clean(raw, SHEAR, CleaningOptions(envelope=False))
    assert "kept the points where strain exceeds all before" in " ".join(highest.steps)
    assert bias(highest) < -0.25


def test_offset_of_an_extensometer_that_was_not_zeroed_is_taken_off():
    strain = np.linspace(0, 0.04, 400)
    curve = clean(RawCurve("a", strain + 0.02, shear_stress(strain)), SHEAR)
    np.testing.assert_allclose(curve.strain, strain, atol=1e-15)
    assert "took 0.02 off the strain" in curve.steps[0]
    raw = RawCurve("a", strain + 0.02, shear_stress(strain))
    off = clean(raw, SHEAR, CleaningOptions(toe="off"))
    assert off.strain[0] == pytest.approx(0.02)
    late = strain[strain > 0.005]
    kept = clean(RawCurve("a", late, shear_stress(late)), SHEAR)
    np.testing.assert_array_equal(kept.strain, late)


def test_negative_start_is_dropped_and_one_point_is_one_point():
    strain = np.linspace(-1e-5, 0.04, 50)
    curve = clean(RawCurve("a", strain, shear_stress(strain)), SHEAR)
    assert len(curve.strain) == 49
    assert curve.steps[0] == "dropped negative strains before the start (1 point dropped)"


def test_shear_curve_is_cut_after_failure_only():
    strain = np.linspace(0, 0.04, 80)
    stress = shear_stress(strain) + np.where(np.arange(80) % 2, 1.0, -1.0)
    stress[70:] = 5.0
    curve = clean(RawCurve("a", strain, stress), SHEAR)
    assert len(curve.strain) == 70
    assert "cut after failure, a drop of load (10 points dropped)" in curve.steps
    left = clean(RawCurve("a", strain, stress), SHEAR, CleaningOptions(cut_after_failure=False))
    assert len(left.strain) == 80


@pytest.mark.parametrize("sign", [1, -1])
def test_concrete_keeps_its_falling_branch_and_may_be_negative(sign):
    """It is no tension test: nothing necks, and there are no tensile properties."""
    strain = np.linspace(0, 0.0038, 60)
    stress = find_law("hognestad").stress(strain[None], np.array([[30.0, 0.002]]))[0]
    target = CurveTarget.of(CurveSettings("hognestad"), find_law("hognestad"))
    curve = clean(RawCurve("a", sign * strain, sign * stress), target)
    np.testing.assert_allclose(curve.strain, strain)
    np.testing.assert_allclose(curve.stress_mpa, stress)
    assert curve.warnings == [] and curve.tensile is None


def test_shear_of_the_other_sign_and_tensor_components():
    strain = np.linspace(0, 0.04, 80)
    raw = RawCurve("a", -strain / 2, -shear_stress(strain), shear_strain="tensor")
    curve = clean(raw, SHEAR)
    np.testing.assert_allclose(curve.strain, strain)
    np.testing.assert_allclose(curve.stress_mpa, shear_stress(strain))
    assert curve.steps[:2] == ["changed the sign of the strain", "changed the sign of the stress"]
    assert "doubled it" in curve.steps[2]
    doubtful = RawCurve("a", strain, shear_stress(strain), shear_strain="epsilon")
    assert "--shear_strain=tensor" in str(clean(doubtful, SHEAR).warnings[0])


def test_engineering_metal_curve_is_cut_at_maximum_load_and_converted():
    engineering = np.linspace(0, 0.3, 301)
    load = metal_load(engineering)
    curve = clean(RawCurve("a", engineering, load, "engineering", "engineering"), METAL)
    kept = engineering[:201]  # up to 0.2
    np.testing.assert_allclose(curve.strain, np.log(1 + kept), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(curve.stress_mpa, load[:201] * (1 + kept), rtol=1e-14)
    assert curve.steps[0].startswith("cut after the maximum load at strain 0.2, where")
    assert len(curve.steps) == 4
    assert "the specimen necks" in str(curve.warnings[0])
    left = clean(
        RawCurve("a", engineering, load, "engineering", "engineering"),
        METAL,
        CleaningOptions(cut_after_failure=False),
    )
    assert len(left.strain) == 301


def test_true_metal_curve_is_not_converted_and_comes_back_from_engineering():
    engineering = np.linspace(0, 0.2, 201)
    true = np.log(1 + engineering), metal_load(engineering) * (1 + engineering)
    curve = clean(RawCurve("a", *true, "true", "true"), METAL)
    np.testing.assert_array_equal(curve.strain, true[0])
    np.testing.assert_array_equal(curve.stress_mpa, true[1])
    to_engineering = CurveTarget(200, 2.0, (0.02, 0.6), None, "engineering", "engineering")
    back = clean(RawCurve("a", *true, "true", "true"), to_engineering)
    np.testing.assert_allclose(back.strain, engineering, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(back.stress_mpa, metal_load(engineering), rtol=1e-12)


def test_columns_that_do_not_name_their_measure_are_taken_as_engineering_and_said_so():
    engineering = np.linspace(0, 0.2, 201)
    curve = clean(RawCurve("a", engineering, metal_load(engineering)), METAL)
    assert curve.strain[-1] == pytest.approx(np.log(1.2))
    assert any("taken as engineering" in step for step in curve.steps)


def test_strain_beyond_the_trained_range_is_cut_and_warned_about():
    strain = np.linspace(0, 0.1, 101)
    curve = clean(RawCurve("a", strain, shear_stress(strain)), SHEAR)
    assert curve.strain[-1] == pytest.approx(0.05)
    assert "cut at strain 0.05" in curve.steps[1]
    assert "beyond 0.05" in str(curve.warnings[0])


def test_stress_beyond_the_trained_strength_is_cut_and_warned_about():
    strain = np.linspace(0, 0.04, 101)
    curve = clean(RawCurve("a", strain, 2 * shear_stress(strain)), SHEAR)
    assert curve.stress_mpa[-2] <= 140 < curve.stress_mpa[-1]
    assert "140 MPa" in str(curve.warnings[0])
    with pytest.raises(InputError, match="is --stress_unit right"):
        clean(RawCurve("a", strain, 1000 * shear_stress(strain)), SHEAR)


def test_percent_taken_for_plain_strain_is_pointed_out():
    strain = np.linspace(0, 4.0, 101)
    with pytest.raises(InputError, match=r"--strain_unit=%"):
        clean(RawCurve("a", strain, shear_stress(strain / 100)), SHEAR)


@pytest.mark.parametrize(
    ("strain", "stress", "message"),
    [
        (np.linspace(0, 0.04, 9), np.arange(9.0), "it has 9 points"),
        (np.zeros(20), np.arange(20.0), "never rise"),
        (np.linspace(0, 0.04, 20), np.ones(20), "same at every point"),
        (np.full(20, 0.01), np.arange(20.0), "rises at 1 points only"),
        (np.linspace(0.04, 0, 20), np.arange(20.0), "rises at 1 points only"),
    ],
)
def test_what_cannot_be_a_curve_is_refused(strain, stress, message):
    with pytest.raises(InputError, match=message):
        clean(RawCurve("a", strain, stress), SHEAR)


@pytest.mark.parametrize("measure", ["engineering", "true"])
def test_compression_of_a_metal_is_converted_as_compression(measure):
    """A true curve, and the engineering one of its compression: e = 1 - exp(-ε), s = σ / (1 - e)."""
    true_strain = 0.3 * np.linspace(0, 1, 300) ** 2
    true_stress = np.minimum(193e3 * true_strain, 270 + 1500 * true_strain)
    shortening = 1 - np.exp(-true_strain)
    strain, stress = {
        "engineering": (shortening, true_stress / (1 - shortening)),
        "true": (true_strain, true_stress),
    }[measure]
    curve = clean(RawCurve("a", -strain, -stress, measure, measure), METAL)
    np.testing.assert_allclose(curve.strain, true_strain, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(curve.stress_mpa, true_stress, rtol=1e-12, atol=1e-9)
    assert curve.tensile is None
    assert any("took them as compression" in step for step in curve.steps)


@pytest.mark.parametrize(("signs", "turned"), [((-1, 1), "travel"), ((1, -1), "load")])
def test_one_negative_column_is_refused_with_the_sign_that_is_turned(signs, turned):
    strain = np.linspace(0, 0.04, 20)
    raw = RawCurve("a", signs[0] * strain, signs[1] * 1e4 * strain, columns=("Weg", "Kraft"))
    with pytest.raises(InputError, match=f"the sign of the {turned} is turned round") as error:
        clean(raw, METAL)
    assert f"column '{'Weg' if turned == 'travel' else 'Kraft'}' is negative" in str(error.value)


def test_compressive_strain_in_percent_is_asked_about():
    strain = np.linspace(0, 25.0, 50)
    with pytest.raises(InputError, match="--strain_unit=%"):
        clean(RawCurve("a", -strain, -200 * np.tanh(strain)), METAL)


def test_names_of_curves_are_unique(tmp_path):
    strain = np.linspace(0, 0.04, 30)
    rows = "".join(f"A,{e},{s}\n" for e, s in zip(strain, shear_stress(strain), strict=True))
    rows += rows.replace("A", "B")
    paths = [tmp_path / "x" / "lab.csv", tmp_path / "y" / "lab.csv", tmp_path / "z.csv"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"specimen,strain,stress\n{rows}")
    curves, errors = load_measured_curves(paths, SHEAR)
    assert errors == []
    expected = [f"{path}_{specimen}" for path in paths[:2] for specimen in "AB"] + ["z_A", "z_B"]
    assert [curve.name for curve in curves] == expected


@pytest.mark.parametrize(
    "target", [SHEAR, dataclasses.replace(SHEAR, num_points=120, strain_spacing=2.0)]
)
@pytest.mark.parametrize("num_points", [60, 150, 20_000])
def test_resampled_points_lie_on_the_law_s_grid_and_on_the_curve(target, num_points):
    strain = 0.04 * np.linspace(0, 1, num_points) ** 1.3
    curve = clean(RawCurve("a", strain, shear_stress(strain)), target)
    grid, stress, valid = resample(curve.strain, curve.stress_mpa, target)
    expected = (
        0.04 * (np.arange(target.num_points) / (target.num_points - 1)) ** target.strain_spacing
    )
    np.testing.assert_allclose(grid, expected, rtol=1e-12)
    assert valid.all()
    # Straight lines between 60 points of this curve miss it by 0.06 MPa at the most.
    np.testing.assert_allclose(stress, shear_stress(grid), atol=0.1 if num_points == 60 else 0.02)


def test_many_measured_points_average_their_noise():
    random = np.random.default_rng(0)
    strain = np.linspace(0, 0.04, 200 * 25)
    stress = shear_stress(strain) + random.normal(0, 1.0, len(strain))
    grid, resampled, _ = resample(strain, stress, SHEAR)
    deviation = np.std((resampled - shear_stress(grid))[1:-1])
    assert deviation == pytest.approx(1 / np.sqrt(25), rel=0.2)


def test_a_short_curve_is_padded():
    strain = np.linspace(0, 0.005, 100)
    curve = clean(RawCurve("a", strain, shear_stress(strain)), SHEAR)
    grid, stress, valid = resample(curve.strain, curve.stress_mpa, SHEAR)
    assert np.count_nonzero(valid) == 100  # 0.01 * i / 199 <= 0.005
    assert not stress[~valid].any()
    assert not grid[~valid].any()
    very_short = clean(RawCurve("a", strain / 20, shear_stress(strain / 20)), SHEAR)
    with pytest.raises(InputError, match=r"far before 0\.01"):
        resample(very_short.strain, very_short.stress_mpa, SHEAR)


def test_without_a_law_a_curve_is_taken_as_it_is():
    strain = np.linspace(0, 3.0, 50)
    curve = clean(RawCurve("a", strain, strain**2), CurveTarget(30))
    grid, stress, valid = resample(curve.strain, curve.stress_mpa, CurveTarget(30))
    np.testing.assert_allclose(grid, np.linspace(0, 3, 30))
    np.testing.assert_allclose(stress, grid**2, atol=0.02)
    assert valid.all()


def test_the_eight_304l_curves_are_read_and_plausible(real_curves):
    files = sorted(real_curves.glob("304L_astm_e8/*.dat"))
    assert len(files) == 8
    slopes: list[float] = []
    for file in files:
        curve = load_measured_curve(file, METAL, ReadingOptions(stress_unit="ksi"))
        assert any("maximum load" in step for step in curve.steps), curve.steps
        # 304L: tensile strength about 580 MPa at 55-67 % engineering strain, so about 900 MPa at 0.44-0.51 true.
        assert 0.43 < curve.strain[-1] < 0.52
        assert 850 < curve.stress_mpa.max() < 1000
        assert 570 < (curve.stress_mpa * np.exp(-curve.strain)).max() < 590
        elastic = (curve.strain > 5e-5) & (curve.strain < 5e-4) & (curve.stress_mpa > 15)
        slopes.extend(curve.stress_mpa[elastic] / curve.strain[elastic])
        grid, stress, valid = resample(curve.strain, curve.stress_mpa, METAL)
        assert valid.all()
        assert np.all(np.isfinite(stress))
        assert grid[-1] == pytest.approx(curve.strain[-1])
        assert (
            180 < np.interp(0.002 + 220 / 193e3, grid, stress) < 260
        )  # stress at about 0.2 % plastic strain
    # Young's modulus of 304L is 193 GPa. One curve has few elastic points and no toe correction: all together.
    assert 150e3 < np.median(slopes) < 240e3, sorted(slopes)

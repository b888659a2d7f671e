"""Cleaning of measured curves: every step, and what is refused; also of real tests."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.optimize

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.reading import RawCurve
from tfmat.records.record import CurveTarget, resample
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_file, load_measured_curves

# Cleaning and resampling of measured curves, also of the real 304L tests.


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


def test_strain_that_seldom_falls_becomes_the_nearest_that_rises():
    true = np.linspace(0.001, 0.04, 400)
    strain = true + np.random.default_rng(2).normal(0.0, 2.5e-5, 400)
    curve = clean(RawCurve("a", strain, shear_stress(true)), SHEAR)
    expected = scipy.optimize.isotonic_regression(strain).x
    starts = np.diff(expected, prepend=0.0) > 1e-12
    assert len(curve.strain) == starts.sum() < 400
    np.testing.assert_allclose(curve.strain, expected[starts], rtol=1e-12)


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
    assert [caveat.kind for caveat in curve.warnings] == ["load at zero strain"]


def test_a_true_column_beside_one_that_does_not_say_is_warned_about():
    strain = np.linspace(0, 0.1, 201)
    stress = np.minimum(200e3 * strain, 300.0 + 500.0 * strain)
    (warning,) = clean(RawCurve("a", strain, stress, strain_measure="true"), METAL).warnings
    assert warning.kind == "one column called true"
    assert "the stress at the end differs by 11 %" in warning.text
    small = strain < 0.04
    assert not clean(RawCurve("a", strain[small], stress[small], "true"), METAL).warnings
    assert not clean(RawCurve("a", strain, stress, "true", "true"), METAL).warnings


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


def test_nine_points_are_no_curve():
    with pytest.raises(InputError, match="it has 9 points"):
        clean(RawCurve("a", np.linspace(0, 0.04, 9), np.arange(9.0)), SHEAR)


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


@pytest.mark.parametrize(("signs", "turned"), [((-1, 1), "Dehnung"), ((1, -1), "Kraft")])
def test_one_negative_column_is_refused_with_the_sign_that_is_turned(signs, turned):
    strain = np.linspace(0, 0.04, 20)
    raw = RawCurve("a", signs[0] * strain, signs[1] * 1e4 * strain, columns=("Dehnung", "Kraft"))
    with pytest.raises(InputError, match=f"the sign of '{turned}' is turned round") as error:
        clean(raw, METAL)
    assert f"column '{turned}' is negative" in str(error.value)


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


# Fit windows, and where a true curve is cut at its maximum load.


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
        assert "--stress_measure" not in str(necking)
    assert curve_of(cut_after_failure=False).strain[-1] == STRAIN[-1]


def test_a_stress_that_was_taken_for_true_beside_a_true_strain_may_be_engineering():
    curve = clean(RawCurve("a", STRAIN, voce(STRAIN) * np.exp(-STRAIN), "true"), METAL)
    (necking,) = [caveat for caveat in curve.warnings if caveat.kind == "necking"]
    assert "say --stress_measure=engineering" in str(necking)


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
    ("window", "low", "high"),
    [
        ("0.01,0.1", 0.01, 0.1),
        (" ,0.1", 0.0, 0.1),
        ("0.01,", 0.01, 0.144),
        ((0.01, None), 0.01, 0.144),
    ],
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
    said = r"--window leaves 3 of its \d+ points, from strain 0\.1 to"
    with pytest.raises(InputError, match=said):
        curve_of("0.1,0.101")


# Cyclic records are refused or cut to their first loading; unload loops of a tension test are not cyclic.


VOCE = CurveTarget.of(CurveSettings(law="voce"), CurveSettings(law="voce").build_law())
MODULUS, YIELD, HARDENING = 200e3, 300.0, 1500.0


def bilinear_record(*turns: float, points: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Kinematic hardening steel that is strained from zero through all turns: strain and stress, MPa."""
    ends = np.array([0.0, *turns])
    strain = np.concatenate(
        [np.linspace(a, b, points, endpoint=False) for a, b in itertools.pairwise(ends)]
    )
    stress, plastic = np.zeros_like(strain), 0.0
    for i, total in enumerate(strain):
        trial = MODULUS * (total - plastic)
        over = abs(trial - HARDENING * plastic) - YIELD
        if over > 0:
            plastic += np.sign(trial - HARDENING * plastic) * over / (MODULUS + HARDENING)
        stress[i] = MODULUS * (total - plastic)
    return strain, stress


def cleaned(strain, stress, **options):
    return clean(RawCurve("a", strain, stress, "true", "true"), VOCE, CleaningOptions(**options))


def test_cycles_through_compression_are_refused_with_what_can_be_done():
    record = bilinear_record(0.02, -0.02, 0.02, -0.02, 0.02)
    said = r"cyclic record: the load turns 4 times.*--window=,0\.02 "
    with pytest.raises(InputError, match=said):
        cleaned(*record)
    first = cleaned(*record, window="0,0.02")
    assert first.strain[-1] == pytest.approx(0.02, rel=0.02)
    assert "took the first loading of a cyclic record" in " ".join(first.steps)
    np.testing.assert_allclose(first.stress_mpa, record[1][: len(first.strain)])
    with pytest.raises(InputError, match="cyclic"):
        cleaned(*record, window="0,0.03")
    with pytest.raises(InputError, match="cyclic"):
        cleaned(*record, window="0.001,")


def test_many_cycles_in_tension_are_refused_and_a_few_loops_are_not():
    peaks = np.linspace(0.004, 0.02, 4)
    loops = [turn for peak in peaks for turn in (peak, peak - 0.0012)]
    few = cleaned(*bilinear_record(*loops, 0.03))
    assert few.strain[-1] == pytest.approx(0.03, rel=0.02)
    assert "dropped unloadings" in " ".join(few.steps)
    with pytest.raises(InputError, match="cyclic record"):
        cleaned(*bilinear_record(*[0.01, 0.0088] * 12))


def test_a_record_that_is_mostly_its_first_loading_is_cut_and_warned_about():
    strain, stress = bilinear_record(0.04)
    back = bilinear_record(0.04, 0.02, points=30)
    record = np.append(strain, back[0][30:]), np.append(stress, back[1][30:])
    curve = cleaned(*record)
    assert [caveat.kind for caveat in curve.warnings] == ["load reversal"]
    assert len(curve.strain) == 61


def test_a_first_loading_in_compression_cannot_be_taken():
    strain, stress = bilinear_record(0.02, -0.02, 0.02, -0.02)
    with pytest.raises(InputError, match="its first loading is compression"):
        cleaned(-strain, -stress, window="0,0.02")


@pytest.mark.parametrize("law", ["voce", "hahn_tsai"])
def test_the_real_cyclic_records_are_refused(real_curves, law):
    settings = CurveSettings(law=law)
    target = CurveTarget.of(settings, settings.build_law())
    folder = real_curves / "resspylab_cyclic_steel"
    for name in ("example_1.csv", "example_2.csv"):
        with pytest.raises(InputError, match="it is a cyclic record: the load turns"):
            load_file(folder / name, target)


def test_the_first_loading_of_a_real_cyclic_record(real_curves):
    path = real_curves / "resspylab_cyclic_steel" / "example_2.csv"
    (curve,) = load_file(path, VOCE, cleaning=CleaningOptions(window=",0.0105"))
    # The record rises to 340 MPa at 0.0105 with an upper yield point, and the load turns there (looked up in it).
    assert 0.0095 < curve.strain[-1] <= 0.0105
    assert curve.stress_mpa[-1] == pytest.approx(340.0, abs=2.0)
    assert curve.strain.min() >= 0


# Records with numbers of any size, constant columns and noise end in a curve or in one line, never in an overflow.


TARGETS = [
    CurveTarget.of(CurveSettings(law=law), CurveSettings(law=law).build_law())
    for law in ("voce", "hahn_tsai")
] + [CurveTarget(50)]
EXTREMES = [1e308, -1e308, 5e-324, 1e5]


def record(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Strain and stress, [points]: curves, noise or constants, then scaled, rounded or with one wild value."""
    num_points, kind, damage = (int(i) for i in random.integers((10, 0, 0), (120, 8, 9)))
    size = 10.0 ** random.uniform(-320, 300)
    strain = np.cumsum(random.uniform(0, 1, num_points)) / num_points * 10 ** random.uniform(-6, 0)
    stress = np.tanh(strain * random.uniform(1, 300)) * 10.0 ** random.uniform(-3, 4)
    if kind >= 5:
        strain = random.normal(0, 1, num_points) * 10.0 ** random.uniform(-8, 2)
    if kind % 2 == 0:
        stress = random.normal(0, 1, num_points) * 10.0 ** random.uniform(-3, 6)
    if kind == 6:
        strain = np.full(num_points, random.choice([0.0, 1e-3, 0.5]))
    if kind == 7:
        stress = np.full(num_points, random.choice([0.0, 1e-3, 500.0]))
    if damage == 0:
        strain = strain * size
    elif damage == 1:
        stress = stress * size
    elif damage == 2:
        strain = np.round(strain, int(random.integers(0, 5)))
    elif damage == 3:
        stress = np.round(stress, int(random.integers(-2, 3)))
    elif damage in (4, 5):
        (strain, stress)[damage - 4][random.integers(num_points)] = random.choice(EXTREMES)
    elif damage == 6:
        strain = np.sort(strain)
    return strain, stress


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.large) for block in range(1, 6))]
)
def test_any_record_is_a_finite_curve_or_one_line(block):
    answered, lines = 0, []
    for seed in range(block * 400, (block + 1) * 400):
        random = np.random.default_rng(seed)
        with np.errstate(all="ignore"):
            strain, stress = record(random)
        if not (np.isfinite(strain).all() and np.isfinite(stress).all()):
            continue  # refused by its line when it is read
        measure = (None, "true", "engineering")[int(random.integers(3))]
        target = TARGETS[seed % 3]
        try:
            with np.errstate(all="raise"):
                curve = clean(RawCurve("a", strain, stress, measure, measure), target)
                points = resample(curve.strain, curve.stress_mpa, target)
        except InputError as error:
            lines.append(str(error))
            continue
        answered += 1
        assert all(np.isfinite(values).all() for values in points)
    # About a sixth are curves, the others are refused.
    assert answered > 40
    assert not [line for line in lines if "nan" in line or "\n" in line]


@pytest.mark.parametrize(("axis", "column"), [(0, "strain"), (1, "stress")])
def test_a_number_that_no_unit_explains_is_refused(axis, column):
    record = [np.linspace(0, 0.04, 50), np.linspace(0, 100, 50)]
    record[axis] = record[axis] * 1e200
    with pytest.raises(InputError, match=f"which no unit makes a {column}; is --{column}_column"):
        clean(RawCurve("a", *record), TARGETS[0])

"""The start of a curve and its noise; tensile properties against closed forms and SciPy."""

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
import scipy.stats

from tfmat.materials import find_law
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings, Simulator
from tfmat.records.tensile import (
    SYMBOLS,
    StrainError,
    elastic_line,
    noise_of,
    running_mean,
    tensile_properties,
    toe_shift,
)
from tfmat_tests.records.files import load_file

# Toe, preload and the noise estimate: found where they are, and nowhere else.


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
    (said,) = [step for step in curve.steps if "for its toe" in step]
    assert float(said.split()[1]) == pytest.approx(length, rel=0.15)
    middle = (stress > 0.3 * stress.max()) & (stress < 0.8 * stress.max())
    expected = np.interp(true[middle], true, stress)
    found = np.interp(true[middle], curve.strain, curve.stress_mpa)
    np.testing.assert_allclose(found, expected, atol=0.03 * stress.max())
    kept = clean(raw, target, CleaningOptions(toe="off"))
    assert not any("toe" in step for step in kept.steps)


def test_running_means_are_those_of_each_window_and_a_plateau_stays_level():
    values = np.append(np.random.default_rng(0).normal(250.1, 3.0, 600), np.full(5400, 250.1))
    means = running_mean(values)
    windows = [values[i - 30 : i + 31].mean() for i in range(30, 5970)]
    np.testing.assert_allclose(means[30:5970], windows, rtol=1e-8)
    ends = [*range(30), *range(5970, 6000)]
    assert np.array_equal(means[ends], values[ends])
    assert set(means[630:5970]) == {means[630]}


@pytest.mark.parametrize("law", ["hahn_tsai", "voce"])
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


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.25])
@pytest.mark.parametrize("spacing", [(60, 200), (200, 400)])
def test_a_strain_zeroed_under_a_high_preload_is_put_right_and_told(held, share, spacing):
    strain, stress = voce_tension(spacing)
    zero = int(np.argmax(stress > share * stress.max()))
    zeroed = np.maximum(strain - strain[zero], 0.0) if held else strain[zero:] - strain[zero]
    curve = found_in(zeroed, stress if held else stress[zero:])
    assert [caveat.kind for caveat in curve.warnings] == ["load at zero strain"]
    assert curve.strain[0] == pytest.approx(np.log1p(strain[zero]), abs=3e-5)
    # From there on a plastic strain, which has no elastic part, is left and told.
    plastic = found_in(
        np.linspace(0.0, 0.1, 200), 100.0 + 300.0 * np.linspace(0.0, 1.0, 200) ** 0.5
    )
    assert [caveat.kind for caveat in plastic.warnings] == ["load at zero strain"]
    assert plastic.strain[0] == 0.0 and "left in the stress" in plastic.warnings[0].text


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
@pytest.mark.parametrize("spacing", [(20, 80), (200, 400)])
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
    assert curve.strain_error.shift < 2e-5


def test_slack_that_noise_of_the_strain_hides_makes_the_zero_of_the_strain_uncertain():
    """Slack of 0.04 % in noise of 0.012 %: where no toe is told, the strain's zero may be off by it."""
    told, shifts = 0, []
    for seed in range(20):
        strain, stress = voce_tension((60, 300))
        strain = strain + np.random.default_rng(seed).normal(0, 1.2e-4, len(strain))
        curve = found_in(strain + 4e-4 * (1 - np.exp(-stress / 30.0)), stress)
        told += curve.toe > 0.0
        shifts += [curve.strain_error.shift] * (curve.toe == 0.0)
    assert told < 10 and np.median(shifts) > 2e-4


@pytest.mark.parametrize("noise", [3e-5, 6e-5, 1.2e-4])
def test_noise_of_the_strain_is_no_toe_and_hides_none_of_ten_times_it(noise):
    """An origin's own error alone let two or three of these 20 curves without a toe have one."""
    false, found = 0, 0
    for seed in range(20):
        strain, stress = voce_tension((60, 300))
        noisy = strain + np.random.default_rng(seed).normal(0, noise, len(strain))
        false += found_in(noisy, stress).toe > 0.0
        slack = max(10.0 * noise, 4e-4)
        found += found_in(noisy + slack * (1 - np.exp(-stress / 30.0)), stress).toe > 0.0
    assert false <= 1 and found >= 18


@pytest.mark.parametrize("zero", [-0.02, 0.02, 0.04])
@pytest.mark.parametrize("offset", [0.0, 0.001])
def test_a_load_that_was_not_zeroed_is_told_beside_a_strain_that_was_not(offset, zero):
    """Both were blamed on the strain, or neither was found."""
    strain, stress = voce_tension((200, 400))
    first = zero * stress.max()
    curve = found_in(strain + offset, stress + first)
    kinds = [caveat.kind for caveat in curve.warnings]
    assert ("strain not zeroed" in kinds) == (offset > 0.0)
    (caveat,) = [caveat for caveat in curve.warnings if caveat.kind == "load at zero strain"]
    assert float(caveat.text.split()[3]) == pytest.approx(first, abs=1.0)
    assert caveat.advice.endswith("too high" if zero > 0 else "too low")


@pytest.mark.parametrize("offset", [0.004, -0.004, 0.0005, -0.002, 0.3])
@pytest.mark.parametrize("spacing", [(12, 200), (400, 400)])
def test_a_strain_that_was_not_zeroed_is_taken_off_and_told(offset, spacing):
    strain, stress = voce_tension(spacing)
    curve = found_in(strain + offset, stress)
    assert [caveat.kind for caveat in curve.warnings] == ["strain not zeroed"]
    assert f"reads {offset:.3g} before the load" in curve.warnings[0].text
    # A load that was set to zero under a preload within the elastic part looks the same.
    assert ("under a preload" in curve.warnings[0].text) == (offset == 0.0005)
    straight = found_in(strain, stress)
    np.testing.assert_allclose(curve.strain[3:100], straight.strain[3:100], atol=1.5e-5)
    left = found_in(strain + offset, stress, toe="off")
    assert "strain not zeroed" not in [caveat.kind for caveat in left.warnings]


@pytest.mark.parametrize(("share", "told"), [(0.018, False), (0.022, True), (-0.022, True)])
def test_an_offset_of_a_fiftieth_of_the_strain_is_told_whatever_the_elastic_part(share, told):
    """A brittle test is elastic to its end: a tenth of the strain of its elastic part is more."""
    strain = np.linspace(0.0, 0.01, 100)
    stress = 200e3 * strain + np.random.default_rng(0).normal(0, 0.3, 100)
    curve = found_in(strain + share * 0.01, stress)
    assert [caveat.kind for caveat in curve.warnings] == ["strain not zeroed"] * told


@pytest.mark.parametrize("offset", [15.0, -15.0, 18.0, -18.0, 30.0, 40.0])
@pytest.mark.parametrize("spacing", [(12, 200), (60, 200), (400, 400)])
def test_a_load_at_zero_strain_is_told(offset, spacing):
    strain, stress = voce_tension(spacing)
    curve = found_in(strain, stress + offset)
    (caveat,) = curve.warnings
    assert caveat.kind == "load at zero strain"
    assert f"MPa too {'high' if offset > 0 else 'low'}" in caveat.advice
    yielded = np.interp(0.0008, curve.strain, curve.stress_mpa)
    assert yielded == pytest.approx(160.0, abs=3.0)


def test_a_load_that_few_elastic_points_cannot_shift_is_told_with_its_size():
    """A steel of 200 GPa and 400 MPa yield stress, with two points in its elastic part."""

    def warnings_of(first: float, load: float):
        strain = first + 0.1 * np.linspace(0, 1, 12) ** 2
        stress = np.minimum(200e3 * strain, 400 + 240 * (1 - np.exp(-12 * (strain - 0.002))))
        return found_in(strain, stress + load).warnings

    (caveat,) = warnings_of(first=0.0, load=30.0)
    assert caveat.kind == "load at zero strain"
    assert "the load is 30 MPa at the start, 30 MPa more than its strain of 0 tells" in caveat.text
    assert caveat.advice.endswith("if the load was not zeroed, every stress is 30 MPa too high")
    assert warnings_of(first=0.0, load=5.0) == []  # below 1 % of the largest stress
    assert warnings_of(first=1.5e-4, load=0.0) == []  # a load that its strain tells


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


# Tensile properties against closed forms, and of real records against an independent evaluation with SciPy.


VOCE = CurveTarget.of(CurveSettings(law="voce"), CurveSettings(law="voce").build_law())
KSI = 6.894757


def test_a_bilinear_curve_has_its_closed_form():
    """E 200 GPa, yield 400 MPa, slope T 2 GPa: R = 400 + T (e - 400 / E) meets E (e - 0.002) where solved below."""
    strain = np.linspace(0, 0.1, 20_001)
    stress = np.minimum(200e3 * strain, 400 + 2e3 * (strain - 0.002))
    found = tensile_properties(strain, stress)
    crossing = (200e3 * 0.002 + 400 - 2e3 * 0.002) / (200e3 - 2e3)
    assert found.modulus_mpa.value == pytest.approx(200e3, rel=1e-6)
    assert found.proof_stress_mpa.value == pytest.approx(200e3 * (crossing - 0.002), rel=1e-6)
    # It hardens to its end: the strength is only a lower bound.
    assert found.tensile_strength_mpa.at_least
    assert found.tensile_strength_mpa.value == pytest.approx(stress[-1])
    assert found.uniform_elongation.at_least
    assert found.total_elongation.value is None
    assert "without a fracture" in found.total_elongation.how


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_ramberg_osgood_curve_has_its_rp02(noise):
    """e = s / E + 0.002 (s / Rp)^n: its 0.2 % offset stress is Rp by definition."""
    modulus, proof, exponent = 70e3, 276.0, 12.0
    stress = np.linspace(0, 330, 3001)
    strain = stress / modulus + 0.002 * (stress / proof) ** exponent
    stress = stress + np.random.default_rng(3).normal(0, noise, len(stress))
    found = tensile_properties(strain, stress)
    assert found.modulus_mpa.value == pytest.approx(modulus, rel=1e-4 if not noise else 6e-3)
    assert found.proof_stress_mpa.value == pytest.approx(proof, rel=1e-4 if not noise else 5e-3)
    assert "10 to 40 % of Rp0.2" in found.modulus_mpa.how


def necking_record(points=4001):
    """Engineering stress: 70 GPa to 250 MPa, a parabola to Rm 310 MPa at 0.1, down to 200 MPa at 0.16, then broken."""
    strain = np.linspace(0, 0.165, points)
    knee = 250 / 70e3
    top = 310 - 60 * ((0.1 - strain) / (0.1 - knee)) ** 2
    down = 310 - 110 * ((strain - 0.1) / 0.06) ** 2
    stress = np.where(strain < knee, 70e3 * strain, np.where(strain < 0.1, top, down))
    return strain, np.where(strain > 0.16, 5.0, stress)


def test_elongations_to_maximum_load_and_to_fracture():
    found = tensile_properties(*necking_record())
    assert found.tensile_strength_mpa.value == pytest.approx(310, abs=0.01)
    assert not found.tensile_strength_mpa.at_least
    assert found.total_uniform_elongation.value == pytest.approx(0.1, abs=1e-4)
    assert found.uniform_elongation.value == pytest.approx(0.1 - 310 / 70e3, abs=1e-4)
    assert found.total_elongation.value == pytest.approx(0.16, abs=1e-4)
    assert found.elongation_after_fracture.value == pytest.approx(0.16 - 200 / 70e3, abs=1e-4)


def test_true_and_engineering_columns_give_the_same_and_the_whole_record_counts():
    strain, stress = necking_record()
    records = {"engineering": (strain, stress), "true": (np.log1p(strain), stress * (1 + strain))}
    both = [
        clean(RawCurve("a", *record, measure, measure), VOCE) for measure, record in records.items()
    ]
    for curve in both:
        assert curve.strain[-1] < 0.1  # the law's part ends at maximum load
        assert curve.tensile is not None
        assert curve.tensile.total_elongation.value == pytest.approx(0.16, abs=2e-4)
        assert curve.tensile.tensile_strength_mpa.value == pytest.approx(310, abs=0.01)
    content = both[0].tensile.to_json()
    assert list(content) == list(SYMBOLS)
    assert content["proof_stress_mpa"]["symbol"] == "Rp0.2"
    assert content["proof_stress_mpa"]["unit"] == "MPa"


def test_an_upper_yield_point_is_not_the_strength():
    """Mild steel: 350 MPa at the upper yield point, a plateau of 300 MPa to 0.02, then up to 340 MPa at 0.15."""
    strain = np.linspace(0, 0.2, 8001)
    hardening = 340 - 40 * ((0.15 - strain) / 0.13) ** 2
    stress = np.where(strain < 350 / 205e3, 205e3 * strain, np.where(strain < 0.02, 300, hardening))
    found = tensile_properties(strain, stress)
    assert found.tensile_strength_mpa.value == pytest.approx(340, abs=0.01)
    assert found.total_uniform_elongation.value == pytest.approx(0.15, abs=1e-3)
    assert found.upper_yield_strength_mpa.value == pytest.approx(350, abs=205e3 * strain[1])
    assert found.lower_yield_strength_mpa.value == pytest.approx(300, abs=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("end", [0.012, 0.2], ids=["extensometer taken off", "whole test"])
def test_upper_and_lower_yield_strength(noise, end):
    """ISO 6892-1, 3.10.2: the initial transient, here 263 MPa for 0.03 % of strain, is not the lower one, 270 MPa."""
    strain = np.linspace(0, end, 4001)
    plateau = np.where(strain < 0.0017, 263.0, np.where(strain < 0.009, 275.0, 270.0))
    hardening = 270 + 150 * (1 - np.exp(-(strain - 0.02) / 0.05))
    stress = np.where(strain < 0.02, plateau, hardening)
    stress = np.where(strain < 290 / 207e3, 207e3 * strain, stress)
    stress = stress + np.random.default_rng(3).normal(0, noise, len(stress))
    found = tensile_properties(strain, stress)
    assert found.upper_yield_strength_mpa.value == pytest.approx(
        290, abs=207e3 * strain[1] + 3 * noise
    )
    assert found.lower_yield_strength_mpa.value == pytest.approx(270, abs=0.1 + 2 * noise)


@pytest.mark.parametrize("points", [100, 4000])
@pytest.mark.parametrize("noise", [0.0, 1.0, 5.0])
def test_no_yield_point_where_the_load_does_not_fall_to_a_plateau(noise, points):
    plastic = np.linspace(0, 0.1, points)
    serrations = 8 * (plastic % 0.003 / 0.003 - 0.5) * (plastic > 0.005)
    curves = {
        "hardens": 250 + 200 * (1 - np.exp(-15 * plastic)),
        "perfectly plastic": np.full(points, 250.0),
        "serrated, from 0.5 % on": 250 + 200 * (1 - np.exp(-15 * plastic)) + serrations,
        "necks at once": 250 - 900 * plastic,
    }
    for name, flow in curves.items():
        stress = np.concatenate([np.linspace(0, flow[0], 50, endpoint=False), flow])
        strain = stress / 207e3 + np.concatenate([np.zeros(50), plastic])
        measured = stress + np.random.default_rng(1).normal(0, noise, len(stress))
        found = tensile_properties(strain, measured)
        assert found.upper_yield_strength_mpa.value is None, name
        assert found.lower_yield_strength_mpa.value is None, name


def test_what_a_short_record_cannot_tell_is_none_with_a_reason():
    strain = np.linspace(0, 0.0015, 60)
    found = tensile_properties(strain, 70e3 * strain)
    assert found.modulus_mpa.value == pytest.approx(70e3)
    assert found.proof_stress_mpa.value is None
    assert "before 0.2 % plastic strain" in found.proof_stress_mpa.how
    few = tensile_properties(np.array([0, 0.05, 0.1]), np.array([0, 300.0, 310.0]))
    assert few.modulus_mpa.value is None
    assert few.uniform_elongation.value is None


@pytest.mark.parametrize("points", [26, 60, 200, 400])
def test_without_elastic_points_modulus_and_proof_stress_are_lower_bounds(points):
    """Annealed copper, which yields at 9 MPa: a chord of 3 to 13 GPa made Rp0.2 half as large again."""
    strain = np.linspace(0.0, 0.3, points)
    stress = np.minimum(118e3 * strain, 480.0 * strain**0.42)
    found = tensile_properties(np.expm1(strain), stress / np.exp(strain))
    assert found.modulus_mpa.value is None or found.modulus_mpa.at_least
    proof = found.proof_stress_mpa
    if found.modulus_mpa.value is None:
        assert proof.value is None
    else:
        engineering = scipy.optimize.brentq(
            lambda e: 480.0 * np.log1p(e) ** 0.42 / (1.0 + e) - 118e3 * (e - 0.002), 0.002, 0.01
        )
        truth = 118e3 * (engineering - 0.002)
        assert proof.at_least and 0.5 * truth < proof.value <= truth
    raw = RawCurve("copper", strain, stress, "true", "true")
    settings = CurveSettings(law="swift")
    curve = clean(raw, CurveTarget.of(settings, settings.build_law()))
    assert not [caveat for caveat in curve.warnings if caveat.blocks]


def test_bounds_behind_a_gap_of_the_rows_and_of_a_load_that_swings():
    """Rp0.2 was 217 MPa for 278 in a gap of the rows, and Ag 9.7 % for 13.8 where hum of the load falls at the end."""
    law = find_law("voce")

    def found(parameters, kept=None, hum=0.0):
        true = np.concatenate([np.linspace(0, 0.004, 120), np.linspace(0.0042, 0.1, 280)])
        stress = law.stress(true[None], np.array([parameters]))[0] * np.exp(-true)
        stress = stress + hum * np.sin(0.7 * np.arange(400))
        rows = np.ones(400, bool) if kept is None else ~((true > kept[0]) & (true < kept[1]))
        return tensile_properties(np.expm1(true)[rows], stress[rows])

    aluminium, steel = [69e3, 276.0, 75.0, 22.0], [206e3, 355.0, 240.0, 14.0]
    whole, gap = found(aluminium), found(aluminium, (0.003, 0.015))
    assert gap.proof_stress_mpa.at_least and not whole.proof_stress_mpa.at_least
    assert gap.proof_stress_mpa.value < 0.9 * whole.proof_stress_mpa.value
    # The neck of aluminium begins at 8 %, of this steel at 14 %.
    assert not whole.tensile_strength_mpa.at_least
    for hum in (0.0, 4.0):
        short = found(steel, hum=hum)
        assert short.tensile_strength_mpa.at_least and short.uniform_elongation.at_least


def independent(strain, stress, low, high):
    """Modulus by SciPy's linear regression between two stresses, and the root of the offset line by Brent's method."""
    until = int(np.argmax(stress > high))
    held = np.flatnonzero((stress >= low) & (stress <= high))
    held = held[held < until + 1]
    fit = scipy.stats.linregress(strain[held], stress[held])
    curve = scipy.interpolate.interp1d(strain, stress)
    start = strain[until]
    root = scipy.optimize.brentq(
        lambda e: curve(e) - fit.slope * (e - 0.002) - fit.intercept,
        start,
        min(start + 0.01, strain[-1]),
    )
    return fit.slope, float(curve(root))


@pytest.mark.parametrize(
    ("name", "literature", "modulus"),
    [
        # The Aluminum Association's typical yield strengths of 6061-T6 are 276 MPa at 24 °C, 262 at 100 and 214 at 149
        # after 10,000 hours, 103 at 204; a short test at 200 °C lies below that at 100 °C. Modulus 68.9 GPa at 24 °C.
        ("cleaned_6061-01-13-200C-L.csv", (200, 250), (56e3, 66e3)),
        ("cleaned_6061-03-15-100C-ST.csv", (240, 280), (62e3, 69e3)),
    ],
)
def test_the_real_6061(real_curves, name, literature, modulus):
    path = real_curves / "6061T6_tension" / name
    (curve,) = load_file(path, VOCE, ReadingOptions(stress_unit="ksi"))
    columns = np.genfromtxt(path, delimiter=",", skip_header=2)
    strain, stress = columns[:, 3], columns[:, 4] * KSI
    rising = strain >= np.maximum.accumulate(strain)
    assert curve.tensile is not None
    proof = curve.tensile.proof_stress_mpa.value
    slope, expected = independent(strain[rising], stress[rising], 0.1 * proof, 0.4 * proof)
    assert curve.tensile.modulus_mpa.value == pytest.approx(slope, rel=0.01)
    assert proof == pytest.approx(expected, rel=0.002)
    assert literature[0] < proof < literature[1]
    assert modulus[0] < slope < modulus[1]
    assert curve.tensile.tensile_strength_mpa.value == pytest.approx(stress.max(), rel=1e-6)


def test_the_real_304l(real_curves):
    files = sorted(real_curves.glob("304L_astm_e8/*.dat"))
    moduli = []
    for file in files:
        (curve,) = load_file(file, VOCE, ReadingOptions(stress_unit="ksi"))
        columns = np.genfromtxt(file, delimiter=",", skip_header=1)
        strain, stress = columns[:, 3], columns[:, 4] * KSI
        assert curve.tensile is not None
        found = curve.tensile
        assert found.tensile_strength_mpa.value == pytest.approx(stress.max(), rel=0.005)
        assert found.total_uniform_elongation.value == pytest.approx(
            strain[stress.argmax()], abs=0.01
        )
        # By hand: where the points meet the offset line of the published modulus, 193 GPa, which few points decide.
        above = scipy.interpolate.interp1d(strain, stress - 193e3 * (strain - 0.002))
        root = scipy.optimize.brentq(above, 0.0022, 0.01)
        expected = 193e3 * (root - 0.002)
        assert found.proof_stress_mpa.value == pytest.approx(expected, rel=0.05)
        # 304L plate, annealed: Rp0.2 210 to 260 MPa, Rm 560 to 600 MPa (ASM, typical).
        assert 205 < found.proof_stress_mpa.value < 260
        assert 560 < found.tensile_strength_mpa.value < 600
        moduli.append(found.modulus_mpa.value)
    assert 140e3 < np.median(moduli) < 210e3

"""Wild cells and extensometers that stop: found in records of a known law, and not found in what specimens do."""

import os
import pathlib

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.records.cleaning import (
    clean,
    end_of_measured_strain,
    jump_of_strain,
    start_of_capped_load,
    step_of_stress,
    without_wild_cells,
)
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_file, table, write

VOCE = CurveTarget.of(CurveSettings(law="voce"), find_law("voce"))
TRUTH = np.array([[200e3, 300.0, 250.0, 12.0]])
# Greatest engineering stress of TRUTH: s exp(-e) has its maximum where ds/de = s (Considère).
STRENGTH = 436.7
NOT_MEASURED = "strain not measured to the end"


def tension(points=600, end=0.1765, noise=0.3, seed=0):
    """Engineering strain and stress of a tension test of TRUTH."""
    strain = np.linspace(0.0, end, points)
    true = np.log1p(strain)
    stress = find_law("voce").stress(true[None], TRUTH)[0] / (1 + strain)
    return strain, stress + np.random.default_rng(seed).normal(0, noise, points)


def cleaned(strain, stress, measure="engineering"):
    return clean(RawCurve("a", strain, stress, measure, measure), VOCE)


def off(curve):
    """The largest distance from TRUTH beyond the first yield, MPa."""
    inner = curve.strain > 0.004
    expected = find_law("voce").stress(curve.strain[None], TRUTH)[0]
    return float(np.abs(expected - curve.stress_mpa)[inner].max())


def kinds(curve):
    return [caveat.kind for caveat in curve.warnings]


def test_the_strength_of_the_truth():
    assert tension(20_000, noise=0.0)[1].max() == pytest.approx(STRENGTH, abs=0.1)


@pytest.mark.parametrize("points", [60, 600])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.97, 1.0])
@pytest.mark.parametrize(
    ("axis", "wild"),
    [
        ("strain", lambda value: 0.26),
        ("strain", lambda value: -999.0),
        ("strain", lambda value: value + 0.08),
        ("stress", lambda value: 1.25 * value + (700.0 if value < 50.0 else 0.0)),
        ("stress", lambda value: 10.0 * value + 600.0),
    ],
)
def test_one_wild_cell_is_left_out_and_named(points, place, axis, wild):
    strain, stress = tension(points)
    row = min(int(place * points), points - 1)
    values = strain if axis == "strain" else stress
    values[row] = wild(values[row])
    curve = cleaned(strain, stress)
    (said,) = [step for step in curve.steps if "wild cell" in step]
    assert f"left out 1 row with a wild cell, unlike its neighbours: point {row + 1}, " in said
    assert off(curve) < 6.0
    assert len(curve.strain) > 0.75 * points
    assert curve.tensile.tensile_strength_mpa.value == pytest.approx(STRENGTH, rel=0.01)


@pytest.mark.parametrize("place", [0.3, 0.7])
@pytest.mark.parametrize(
    "wild", [lambda value: 0.0, lambda value: -value, lambda value: value / 10]
)
def test_a_lost_load_cell_is_left_out(place, wild):
    strain, stress = tension()
    row = int(place * len(strain))
    stress[row] = wild(stress[row])
    curve = cleaned(strain, stress)
    assert any(f"point {row + 1}, stress" in step for step in curve.steps)
    assert "load reversal" not in kinds(curve)
    assert len(curve.strain) > 500


def test_neighbours_and_wild_cells_near_each_other():
    strain, stress = tension()
    strain[100:103] = 0.3
    stress[[400, 405]] *= 1.25
    curve = cleaned(strain, stress)
    assert any(step.startswith("left out 5 rows with a wild cell") for step in curve.steps)
    assert off(curve) < 2.0


def test_the_rest_of_a_row_goes_with_its_wild_cell():
    strain, stress = tension()
    stress[300] *= 1.25
    raw = RawCurve("a", strain, stress, time=np.arange(600.0))
    found = without_wild_cells(raw)
    np.testing.assert_array_equal(found.time, np.delete(np.arange(600.0), 300))
    clean_raw = RawCurve("a", *tension())
    assert without_wild_cells(clean_raw) is clean_raw


def features():
    """Name -> strain and stress of a record without a fault."""
    random = np.random.default_rng(1)
    strain, stress = tension()
    yielded = strain > 0.02
    later = np.clip((strain - 0.02) / 0.14, 0, 1)
    plateau = 300 + 40 * np.sin(later * 1.5)
    lueders = np.where(strain < 350 / 205e3, 205e3 * strain, plateau)
    rising = np.flatnonzero(strain > 350 / 205e3)[0]
    found = {
        "upper yield point": (strain, lueders),
        "Lüders serrations": (
            strain,
            lueders - np.where((lueders == 300.0), random.uniform(0, 20, 600), 0.0),
        ),
        "one point at the upper yield": (strain, np.where(np.arange(600) == rising, 345.0, lueders)),
        "serrations of type B": (strain, stress - np.where(yielded, 12 * ((strain * 200) % 1), 0)),
        "serrations of type C": (strain, stress - 15 * (yielded & (random.random(600) < 0.25))),
        "fracture": (strain, np.where(np.arange(600) > 570, 3.0 * (-1.0) ** np.arange(600), stress)),
        "noise of the strain": (strain + random.normal(0, 2e-4, 600), stress),
        "strain of few digits": (np.round(strain, 4), stress),
        "uneven rows": tuple(
            np.interp(np.sort(random.uniform(0, 1, 600)), strain / strain[-1], v)
            for v in (strain, stress)
        ),
    }  # fmt: skip
    pause = np.full(40, strain[300])
    relaxed = stress[300] * (1 - 0.04 * (1 - np.exp(-np.arange(40) / 3)))
    found["pause"] = (np.insert(strain, 300, pause), np.insert(stress, 300, relaxed))
    for rows in (3, 40):
        way = 1 - np.abs(np.linspace(-1, 1, 2 * rows + 1))[1:-1]
        load = stress[300] * (1 - 0.9 * way)
        found[f"loop of {len(way)} rows"] = (
            np.insert(strain, 300, strain[300] - 0.9 * stress[300] / 200e3 * way),
            np.insert(stress, 300, load),
        )
    back = np.linspace(0, 1, 60)
    found["unloading at the end"] = (
        np.append(strain, strain[-1] - stress[-1] / 200e3 * back),
        np.append(stress, stress[-1] * (1 - back)),
    )
    found["neck outside of the gauge"] = (
        np.append(strain, strain[-1] - 8e-4 * back),
        np.append(stress, stress[-1] * (1 - 0.35 * back**2)),
    )
    return found


@pytest.mark.parametrize("name", features())
def test_what_a_specimen_does_is_no_fault(name):
    strain, stress = features()[name]
    curve = cleaned(strain, stress)
    assert not any("wild cell" in step for step in curve.steps)
    assert set(kinds(curve)) <= {"necking"}


def test_cycles_and_peaks_at_their_turns_stay():
    strain = np.interp(np.arange(241), np.arange(0, 241, 40), [0, 2, 0, 2, 0, 2, 0])
    stress = strain * np.where(np.arange(241) < 41, 1.0, np.where(strain == 2.0, 1.0, 0.8))
    raw = RawCurve("a", strain, stress)
    assert without_wild_cells(raw, ends=False) is raw


def faults(strain, row):
    """Name -> a strain that is not measured from a row on."""
    rest = len(strain) - row
    noise = np.random.default_rng(2).normal(0, 1, rest)
    last = strain[row - 1]
    ends = {
        "held": np.full(rest, last),
        "held with noise": last + 2e-6 * noise,
        "creeps": last + 1e-4 * (1 - np.exp(-np.linspace(0, 5, rest))),
        "zero": np.zeros(rest),
        "near zero": 1e-3 + 5e-6 * noise,
        "negative": np.full(rest, -0.02),
        "pulled off": np.interp(np.arange(rest), [0, 6], [last, 0.0]),
        "slipped": strain[row:] - 0.03,
        "blank": np.full(rest, np.nan),
        "-999": np.full(rest, -999.0),
        "9999": np.full(rest, 9999.0),
    }
    return {name: np.append(strain[:row], end) for name, end in ends.items()}


@pytest.mark.parametrize("measure", ["engineering", "true"])
@pytest.mark.parametrize("necks", [False, True])
@pytest.mark.parametrize("fault", faults(tension()[0], 170))
def test_an_extensometer_that_stops_at_five_percent(fault, necks, measure):
    strain, stress = tension()
    if necks:
        down = np.linspace(0, 1, 200)
        strain = np.append(strain, strain[-1] + 0.1 * down)
        stress = np.append(stress, stress[-1] * (1 - 0.25 * down**2))
    seen = faults(strain, 170)[fault]
    if measure == "true":
        stress = stress * (1 + np.where(np.abs(seen) < 1, seen, 0.0))
        seen = np.where(np.abs(seen) < 1, np.log1p(np.where(np.abs(seen) < 1, seen, 0.0)), seen)
    curve = cleaned(seen, stress, measure)
    assert NOT_MEASURED in kinds(curve) and "necking" not in kinds(curve)
    assert not any("neck" in step for step in curve.steps)
    assert 160 <= len(curve.strain) <= 180
    assert off(curve) < 6.0
    found = curve.tensile
    strength = found.tensile_strength_mpa
    if measure == "engineering":
        assert strength.value == pytest.approx(STRENGTH, rel=0.005)
        assert strength.at_least != necks
        assert found.total_uniform_elongation.value is None
        assert "before the maximum load" in found.uniform_elongation.how
    else:
        # A true stress beside no strain gives no engineering one.
        assert strength.at_least or strength.value == pytest.approx(STRENGTH, rel=0.06)
    assert found.total_elongation.value is None


def test_a_held_strain_after_the_maximum_load_loses_the_elongation_only():
    strain, stress = tension()
    down = np.linspace(0, 1, 300)
    strain = np.append(strain, strain[-1] + 0.1 * down)
    stress = np.append(stress, stress[-1] * (1 - 0.25 * down**2))
    whole, held = cleaned(strain, stress), cleaned(np.minimum(strain, 0.2), stress)
    np.testing.assert_array_equal(whole.strain, held.strain)
    assert NOT_MEASURED not in kinds(held)
    assert held.tensile.uniform_elongation == whole.tensile.uniform_elongation
    assert "not to the fracture" in held.tensile.total_elongation.how


def test_an_early_end_of_the_strain_is_refused_in_one_line():
    strain, stress = tension()
    strain[6:] = np.nan
    with pytest.raises(InputError, match="the strain is blank, from point 7 of 600 on: 6 points"):
        cleaned(strain, stress)


def test_a_strain_that_is_touched_and_comes_back_goes_on():
    strain, stress = tension()
    strain[200:220] -= 0.03
    assert end_of_measured_strain(strain, stress) is None


@pytest.mark.parametrize(
    ("blank", "separator"), [("", ","), ("", "\t"), ("-", ";"), ("NaN", ","), ("n/a", "\t")]
)
def test_blank_cells_at_the_end_of_a_file(tmp_path, blank, separator):
    strain, stress = tension()
    header = separator.join(("Engineering strain", "Engineering stress [MPa]"))
    lines = table(header, separator, strain, stress).splitlines()
    lines[171:] = [separator.join((blank, line.split(separator)[1])) for line in lines[171:]]
    (curve,) = load_file(write(tmp_path, "\n".join(lines)), VOCE)
    assert NOT_MEASURED in kinds(curve)
    assert curve.tensile.tensile_strength_mpa.value == pytest.approx(STRENGTH, rel=0.005)
    lines[20:22] = [separator.join((blank, "100.0"))] * 2
    (without,) = load_file(write(tmp_path, "\n".join(lines)), VOCE)
    assert "left out 2 rows without numbers, from line 21 on" in without.steps[0]
    lines[20:23] = [separator.join((blank, "100.0"))] * 3
    with pytest.raises(InputError, match="line 21, column 'Engineering strain'"):
        load_file(write(tmp_path, "\n".join(lines)), VOCE)


def test_many_points_that_are_dropped_are_a_caveat():
    strain, stress = tension()
    for first in range(100, 500, 100):
        strain[first : first + 25] -= np.linspace(0.001, 0.02, 25)
    curve = cleaned(strain, stress)
    assert "many points dropped" in kinds(curve)


@pytest.mark.parametrize(
    ("name", "parameters", "strength"),
    [
        ("01_spike_late", TRUTH[0], 437.1),
        ("03_extensometer_limit", TRUTH[0], 437.7),
        ("04_extensometer_taken_off", TRUTH[0], 437.7),
        ("20_zwick_extensometer_held", (205e3, 320.0, 260.0, 11.0), 455.6),
        ("21_zwick_extensometer_blank", (205e3, 320.0, 260.0, 11.0), 455.6),
    ],
)
def test_the_records_of_laboratories(name, parameters, strength):
    if not os.environ.get("TFMAT_CASES"):
        pytest.skip("TFMAT_CASES names no folder of small inputs that once failed")
    cases = pathlib.Path(os.environ["TFMAT_CASES"])
    column = "Längenänderung" if "zwick" in name else None
    options = ReadingOptions(strain_column=column)
    (curve,) = load_file(cases / "measured" / f"{name}.csv", VOCE, options)
    assert curve.tensile.tensile_strength_mpa.value == pytest.approx(strength, rel=0.002)
    inner = curve.strain > 0.005
    expected = find_law("voce").stress(curve.strain[None], np.array([parameters]))[0]
    np.testing.assert_allclose(curve.stress_mpa[inner], expected[inner], rtol=0.01)


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_rows_from_the_largest_strain_down_are_turned_round(noise):
    strain, stress = tension(200, end=0.15, noise=0.0)
    strain = strain + np.random.default_rng(0).normal(0.0, noise, len(strain))
    expected, found = cleaned(strain, stress), cleaned(strain[::-1], stress[::-1])
    assert found.steps == [
        "the rows go from the largest strain down to rest: turned them round",
        *expected.steps,
    ]
    assert kinds(found) == kinds(expected) == []
    np.testing.assert_array_equal(found.strain, expected.strain)
    # Unloading leaves a plastic strain.
    with pytest.raises(InputError):
        cleaned(0.1 + strain[::-1], stress[::-1])


AT_LIMIT = "load at its limit"


@pytest.mark.parametrize("points", [150, 600])
@pytest.mark.parametrize("cap", [350.0, 420.0])
@pytest.mark.parametrize(("noise", "digits"), [(0.0, 3), (0.3, 3), (0.3, 1), (2.0, 2)])
@pytest.mark.parametrize("end", [0.1765, 0.26])
def test_a_load_at_a_limit_is_left_out_and_nothing_necks(points, cap, noise, digits, end):
    strain, stress = tension(points, end, noise)
    # Beyond the maximum load this specimen bears less than the limit again.
    capped = np.round(np.minimum(stress - np.maximum(strain - 0.2, 0.0) * 2e3, cap), digits)
    curve = cleaned(strain, capped)
    assert AT_LIMIT in kinds(curve)
    assert "necking" not in kinds(curve)
    assert curve.stress_mpa.max() < cap * np.exp(curve.strain[-1]) + 1e-6
    assert off(curve) < 4.0 * noise + 0.1
    strength = curve.tensile.tensile_strength_mpa
    assert strength.at_least
    assert strength.value == pytest.approx(cap, abs=0.06)
    assert curve.tensile.uniform_elongation.value is None


@pytest.mark.parametrize("digits", [6, 3, 1, 0])
@pytest.mark.parametrize("points", [60, 600, 5000])
def test_no_smooth_maximum_plateau_or_saturating_shear_is_a_limit_of_the_load(points, digits):
    part = np.linspace(0.0, 1.0, points)
    plateau = np.minimum(200e3 * 0.05 * part, 300.0) + np.maximum(part - 0.5, 0.0) * 100.0
    # It hardly hardens: the maximum load lies just behind the yield point.
    hard = np.array([[128e3, 523.0, 19.6, 31.0]])
    flat = find_law("voce").stress(np.log1p(0.17 * part)[None], hard)[0] / (1.0 + 0.17 * part)
    for shape in (
        tension(points, 0.3, 0.0)[1],
        tension(points, 0.1765, 0.3)[1],
        plateau,
        flat,
        100.0 * np.tanh(6.0 * part),
        100.0 * (1.0 - np.exp(-15.0 * part)),
    ):
        assert start_of_capped_load(0.05 * part, np.round(shape, digits)) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("points", "cap", "level"), [(300, 380.0, 0.3), (600, 400.0, 1.0)])
def test_a_limit_of_the_load_below_noise_is_left_out_and_nothing_necks(points, cap, level, seed):
    strain, stress = tension(points, noise=0.0)
    noise = np.random.default_rng(seed).normal(0.0, level, points)
    curve = cleaned(strain, np.minimum(stress, cap) + noise)
    assert AT_LIMIT in kinds(curve)
    assert "necking" not in kinds(curve)
    assert off(curve) < 4.0 * level
    strength = curve.tensile.tensile_strength_mpa
    assert strength.at_least
    assert strength.value == pytest.approx(cap, abs=level)


@pytest.mark.parametrize("end", [0.015, 0.02, 0.03])
@pytest.mark.parametrize("knee", [0.0, 5e-4, 2e-3])
@pytest.mark.parametrize("points", [100, 400, 1500])
def test_a_yield_plateau_in_noise_is_no_limit_of_the_load_and_no_neck(points, knee, end):
    plastic = np.linspace(0.0, 0.05, 20_000)
    stress = 300.0 - (120.0 * np.exp(-plastic / knee) if knee else 0.0)
    stress = stress + 250.0 * -np.expm1(-10.0 * np.maximum(plastic - 0.02, 0.0))
    strain = np.linspace(0.0, end, points)
    record = np.interp(strain, [0.0, *(plastic + stress / 200e3)], [0.0, *stress])
    record += np.random.default_rng(1).normal(0.0, 0.5, points)
    found = kinds(cleaned(strain, record))
    assert AT_LIMIT not in found
    assert "necking" not in found


@pytest.mark.parametrize("height", [0.02, 0.05, -0.03])
@pytest.mark.parametrize("points", [150, 600])
def test_a_change_of_speed_in_the_middle_is_warned_about(points, height):
    strain, stress = tension(points, end=0.1)
    curve = cleaned(strain, stress * np.where(strain > 0.05, 1.0 + height, 1.0))
    (said,) = [c.text for c in curve.warnings if c.kind == "stress jumps"]
    jump = height * float(np.interp(0.05, *tension(points, 0.1, 0.0)))
    assert float(said.split(" by ")[1].split()[0]) == pytest.approx(jump, abs=0.5)


def test_a_change_of_speed_is_found_where_the_material_hardens_steeply_too():
    stress = np.linspace(0.0, 110.0, 300)
    strain = stress / 5000.0 + 1.2e-8 * stress**3
    jumped = stress * np.where(strain > 0.02, 1.04, 1.0)
    (found, height) = step_of_stress(strain, jumped + np.random.default_rng(1).normal(0, 0.1, 300))
    assert found == pytest.approx(0.02, abs=2e-4)
    assert height == pytest.approx(0.04 * np.interp(0.02, strain, stress), rel=0.1)


def test_pauses_serrations_missing_rows_and_a_fracture_are_no_change_of_speed():
    strain, stress = tension(600, end=0.1765)
    pause = np.where(np.abs(np.arange(600) - 300) < 6, 0.95, 1.0)
    serrated = 1.0 - 0.02 * (300.0 * strain % 1.0) * (strain > 0.02)
    some = np.r_[0:200, 240:600]
    broken = np.where(np.arange(600) < 590, stress, 0.0)
    for e, s in (
        (strain, stress * pause),
        (strain, stress * serrated),
        (strain[some], stress[some]),
        (strain, broken),
    ):
        assert "stress jumps" not in kinds(cleaned(e, s))


@pytest.mark.parametrize(("preload", "lowest"), [(25.0, 0.0), (0.0, 0.0), (25.0, 30.0)])
def test_an_unloading_below_zero_tells_a_load_that_was_zeroed_under_a_preload(preload, lowest):
    """A tension test with one unloading: to no load, or to a part of it."""
    strain = np.linspace(0.0, 0.08, 400)
    stress = np.minimum(200e3 * strain, 350.0 + 800.0 * strain)
    down = np.linspace(stress[150], lowest, 50)
    back = strain[150] - (stress[150] - down) / 200e3
    strain = np.r_[strain[:151], back, back[::-1], strain[151:]]
    stress = np.r_[stress[:151], down, down[::-1], stress[151:]] - preload
    noise = np.random.default_rng(0).normal(0.0, 0.3, len(stress))
    curve = cleaned(strain, stress + noise)
    told = [line.text for line in curve.warnings if line.kind == "load below zero"]
    assert bool(told) == (preload > lowest)
    assert not told or (
        float(told[0].split()[4]) == pytest.approx(-preload, abs=1.5)
        and curve.load_in_doubt > 0.9 * preload
    )


NOT_ZERO = "load not zero after fracture"


@pytest.mark.parametrize("drift", [0.005, 0.01, -0.01])
@pytest.mark.parametrize("rows", [5, 40])
def test_a_load_that_is_not_zero_after_the_fracture_is_warned_about(drift, rows):
    strain, stress = tension(600, end=0.2)
    broken = np.random.default_rng(1).normal(0.0, 0.3, rows)
    strain = np.concatenate([strain, np.full(rows, 0.203)])
    stress = np.concatenate([stress, broken])
    assert NOT_ZERO not in kinds(cleaned(strain, stress))
    drifted = stress + drift * STRENGTH * np.linspace(0.0, 1.0, len(stress))
    (said,) = [c.text for c in cleaned(strain, drifted).warnings if c.kind == NOT_ZERO]
    level = float(said.split("reads ")[1].split()[0])
    assert level == pytest.approx(drift * STRENGTH, rel=0.1)


def test_a_record_that_ends_by_unloading_or_in_a_neck_says_nothing_of_the_zero_of_the_load():
    strain, stress = tension(600, end=0.1)
    down = np.linspace(1.0, 0.01, 60)
    unloaded = strain[-1] - (1.0 - down) * stress[-1] / 200e3
    whole = np.concatenate([strain, unloaded]), np.concatenate([stress, down * stress[-1]])
    for e, s in (whole, tension(600, end=0.3)):
        assert NOT_ZERO not in kinds(cleaned(e, s))


def test_a_load_at_its_limit_from_the_first_points_on_or_behind_the_extensometer():
    strain, stress = tension(300)
    with pytest.raises(InputError, match=r"stays at 20 MPa .*; 1 points lie before"):
        cleaned(strain, np.minimum(stress, 20.0))
    blank = np.where(strain < 0.03, strain, np.nan)
    curve = cleaned(blank, np.minimum(stress, 420.0))
    assert AT_LIMIT in kinds(curve)
    assert curve.tensile.tensile_strength_mpa.at_least
    assert curve.strain[-1] == pytest.approx(np.log1p(0.03), rel=0.03)


@pytest.mark.parametrize("points", [14, 40, 300])
def test_rows_in_no_order_are_sorted_by_their_strain(points):
    strain, stress = tension(points, end=0.12)
    stress[0] = -0.4  # noise about zero
    order = np.random.default_rng(1).permutation(points)
    curve, sorted_one = cleaned(strain[order], stress[order]), cleaned(strain, stress)
    np.testing.assert_array_equal(curve.stress_mpa, sorted_one.stress_mpa)
    assert "its rows stand in no order of a test: sorted them by the strain" in curve.steps


def test_loops_and_two_curves_are_not_sorted():
    strain, stress = tension(40, end=0.12)
    down = strain[-1] - (stress[-1] - np.linspace(stress[-1], 0.0, 3)) / 200e3
    loops = np.concatenate([strain, np.tile([*down, strain[-1]], 30)])
    loads = np.concatenate([stress, np.tile([stress[-1], stress[-1] / 2, 0.0, stress[-1]], 30)])
    order = np.random.default_rng(1).permutation(80)
    both = np.tile(strain, 2)[order], np.concatenate([stress, 0.6 * stress])[order]
    for e, s in ((loops, loads), both):
        try:
            said = cleaned(e, s).steps
        except InputError as error:
            said = [str(error)]
        assert not any("sorted" in step for step in said)


@pytest.mark.parametrize("measure", ["engineering", "true"])
@pytest.mark.parametrize("place", [0.3, 0.6])
def test_a_strain_that_jumps_and_leaves_the_load_behind_is_warned_about(place, measure):
    strain, stress = tension(300, end=0.1)
    row = int(300 * place)
    jumped = strain + 0.006 * (np.arange(300) >= row)
    curve = cleaned(jumped, stress, measure)
    (said,) = [c.text for c in curve.warnings if c.kind == "strain jumps"]
    assert f"jumps by 0.006 at {strain[row - 1]:.3g}" in said


def with_a_travel(name, digits, switch=None, measure=""):
    """What is said of a strain that is a crosshead's travel over 50 mm, from a row on, in a file with both."""
    strain, stress = tension(300, end=0.1)
    travel = 50.0 * (strain + 3.0 * stress / 200e3)
    own = strain + 2e-6 * np.random.default_rng(1).standard_normal(300)
    row = len(own) if switch is None else switch
    over_length = travel / 50.0 if row == 0 else own[row - 1] + (travel - travel[row - 1]) / 60.0
    given = np.where(np.arange(300) < row, own, over_length)
    given = np.log1p(given) if measure == "true" else given
    numbers = np.c_[travel, 100.0 * given, stress * (1.0 + given if measure == "true" else 1.0)]
    rows = "\n".join(";".join(f"{value:.{digits}f}" for value in row) for row in numbers)
    return f"{name} (mm);{measure} strain (%);{measure} stress (MPa)\n{rows}"


TRAVELS = {"strain of the crosshead", "strain goes on as a travel"}


@pytest.mark.parametrize("measure", ["engineering", "true"])
@pytest.mark.parametrize("digits", [3, 5])
def test_a_strain_that_repeats_a_crosshead_of_its_file_is_its_own(tmp_path, digits, measure):
    path = write(tmp_path, with_a_travel("Crosshead", digits, 0, measure))
    curve = load_file(path, VOCE)[0]
    (said,) = [c.text for c in curve.warnings if c.kind in TRAVELS]
    assert "made of column 'Crosshead'" in said
    # A displacement may be the extensometer's own.
    path = write(tmp_path, with_a_travel("Displacement", digits, 0, measure))
    curve = load_file(path, VOCE)[0]
    assert not TRAVELS & set(kinds(curve))
    assert any("'Displacement', over a length the strain" in step for step in curve.steps)


@pytest.mark.parametrize("name", ["Crosshead", "Displacement", "Extension"])
@pytest.mark.parametrize("switch", [40, 200])
def test_a_strain_that_goes_on_as_the_crosshead_is_warned_about(tmp_path, name, switch):
    path = write(tmp_path, with_a_travel(name, 5, switch))
    curve = load_file(path, VOCE)[0]
    (caveat,) = [c for c in curve.warnings if c.kind in TRAVELS]
    strain = float(caveat.text.removeprefix("from strain ").split()[0])
    assert strain == pytest.approx(0.1 * switch / 299, rel=0.05)
    assert f"column '{name}' over a length" in caveat.text
    assert caveat.advice.endswith(f"--window=,{strain:.3g}")


def test_an_extensometer_beside_a_crosshead_is_not_warned_about(tmp_path):
    for digits in (3, 5):
        path = write(tmp_path, with_a_travel("Crosshead", digits))
        assert not TRAVELS & set(kinds(load_file(path, VOCE)[0]))


def test_missing_rows_a_plateau_and_bursts_are_no_jumps():
    strain, stress = tension(300, end=0.1)
    some = np.r_[0:100, 130:300]
    assert jump_of_strain(strain[some], stress[some]) is None
    plateau = strain + 0.015 * np.clip(np.arange(300) - 30, 0, 1)
    assert jump_of_strain(plateau, np.maximum.accumulate(stress)) is not None
    steps = np.cumsum(np.where(np.arange(300) % 40 == 39, 0.004, 0.0003))
    assert jump_of_strain(steps, 300 + 1500 * steps.round(3)) is None

"""What a laboratory adds to simulated curves, against closed forms, root finding and statistics."""

import dataclasses

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.signal
import scipy.stats

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.materials.law import History
from tfmat.records.laboratory import (
    Apparatus,
    Laboratory,
    Observation,
    recorded_strain,
    resample_rows,
    rises_from_zero,
    rounded_stress,
    smooth_deviation,
    specimen_strain,
    thinned,
)
from tfmat.records.programmes import along_path
from tfmat.records.record import CurveTarget, resample
from tfmat.records.simulation import BLOCK, CurveSettings, NoisyCopies, Simulator

# What stands between a specimen and its record, against closed forms, root finding and statistics.


MODULUS, YIELD = 2e5, 400.0


def _perfectly_plastic(strain):
    """Stress (MPa) of a specimen that yields at 400 MPa to both sides, point by point: [rows, points]."""
    stress, before = np.zeros_like(strain), np.zeros(len(strain))
    now = np.zeros(len(strain))
    for i in range(strain.shape[1]):
        now = np.clip(now + MODULUS * (strain[:, i] - before), -YIELD, YIELD)
        stress[:, i], before = now, strain[:, i]
    return stress


def _turning(rows, points, seed=0):
    random = np.random.default_rng(seed)
    turns = random.uniform(0.002, 0.02, (rows, 6)) * (-1.0) ** np.arange(6)
    return along_path(turns, points)


def test_rows_that_turn_have_no_toe():
    rising = np.linspace(0.0, 1.0, 9)
    held = np.minimum(rising, 0.5)
    turning = np.abs(rising - 0.7) - 0.7
    rows = np.stack([rising, -rising, held, turning, rising + 0.1])
    assert rises_from_zero(rows).tolist() == [True, True, True, False, False]
    history = History(strain=np.stack([rising, -rising, turning]))
    answer = Apparatus(slack=np.full(3, 0.1)).answer(history, lambda one: one.driven)
    # By hand: |e| - s (1 - exp(-|e| / s)).
    slack = rising - 0.1 * (1 - np.exp(-rising / 0.1))
    np.testing.assert_allclose(answer, [slack, -slack, turning], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("stiffness", [2e5, 1e6])
def test_specimen_and_machine_share_the_strain_through_reversals(stiffness):
    """An elastic, perfectly plastic bar and a spring in series are such a bar with a smaller modulus: by hand."""
    strain = _turning(7, 120)
    found = specimen_strain(_perfectly_plastic, strain, np.full(7, stiffness))
    stress = _perfectly_plastic(found)
    np.testing.assert_allclose(found + stress / stiffness, strain, rtol=0, atol=2.1e-8)
    together = 1.0 / (1.0 / MODULUS + 1.0 / stiffness)
    now, before = np.zeros(7), np.zeros(7)
    for i in range(120):
        now = np.clip(now + together * (strain[:, i] - before), -YIELD, YIELD)
        before = strain[:, i]
        np.testing.assert_allclose(stress[:, i], now, atol=0.02)


def test_a_held_machine_lets_the_specimen_creep_on():
    """Maxwell's element in series with a spring: the stress relaxes with the time of both springs together."""
    modulus, viscosity, stiffness = 1000.0, 5e4, 4000.0
    time = np.linspace(0.0, 100.0, 4001)[None]
    strain = np.minimum(time / 0.1, 1.0) * 0.01

    def respond(found):
        stress = np.zeros_like(found)
        step = time[0, 1]
        for i in range(1, found.shape[1]):  # implicit Euler
            rise = modulus * (found[:, i] - found[:, i - 1])
            stress[:, i] = (stress[:, i - 1] + rise) / (1.0 + modulus * step / viscosity)
        return stress

    own = specimen_strain(respond, strain, np.array([stiffness]))
    stress = respond(own)[0]
    assert own[0, -1] > own[0, 10] + 1e-4
    together = 1.0 / (1.0 / modulus + 1.0 / stiffness)
    expected = stress[10] * np.exp(-together / viscosity * (time[0] - time[0, 10]))
    np.testing.assert_allclose(stress[10:], expected[10:], rtol=1e-3)


def test_a_machine_that_lets_the_specimen_snap_is_refused():
    def softening(strain):
        return np.where(strain < 0.01, 1e5 * strain, 1000.0 - 5e4 * (strain - 0.01))

    strain = np.linspace(0.0, 0.06, 50)[None]
    with pytest.raises(InputError, match="machine stiffness of 30000 MPa is too soft"):
        specimen_strain(softening, strain, np.array([3e4]))


def test_points_are_left_out_but_for_ends_and_turning_points():
    strain = _turning(50, 100, seed=3)
    time = np.broadcast_to(np.arange(100.0), strain.shape)
    history = History(strain=strain, time=time, rate=np.ones((50, 1)))
    counts = np.array([8, 40, 99, 100, 200] * 10)
    found, valid = thinned(history, counts, np.random.default_rng(0))
    # Six turning points (the last is the end) and the start.
    np.testing.assert_array_equal(valid.sum(axis=1), np.clip(counts, 7, 100))
    assert found.rate.shape == (50, 1)
    turning = np.diff(np.sign(np.diff(strain, axis=1)), axis=1) != 0
    for row in range(50):
        places = found.time[row, valid[row]].astype(int)
        assert places[0] == 0 and places[-1] == 99 and (np.diff(places) > 0).all()
        assert set(1 + np.flatnonzero(turning[row])) <= set(places)
        np.testing.assert_array_equal(found.strain[row, valid[row]], strain[row, places])
        assert (found.strain[row, ~valid[row]] == strain[row, -1]).all()
    # Irregular: what is left out differs from row to row.
    assert len({tuple(found.time[row]) for row in range(1, 50, 5)}) == 10


def test_offsets_are_those_of_the_machine_s_zeroes():
    strain = np.linspace(0.0, 0.01, 5)[None]
    history = History(strain=strain)
    apparatus = Apparatus(strain_offset=np.array([1e-3]), stress_offset=np.array([7.0]))
    answer = apparatus.answer(history, lambda one: 1000.0 * one.strain)
    np.testing.assert_allclose(answer, 1000.0 * (strain + 1e-3))
    np.testing.assert_allclose(apparatus.shown(history, answer), answer + 7.0)
    held = dataclasses.replace(history, strain=None, stress=np.full((1, 5), 50.0))
    driven = Apparatus(stress_offset=np.array([7.0]), stiffness=np.array([1e4]))
    answer = driven.answer(held, lambda one: one.stress / 1000.0)
    np.testing.assert_allclose(answer, 0.057)
    # What the machine gives is measured with the specimen's strain.
    np.testing.assert_allclose(driven.shown(held, answer), 0.057 + 0.005)


# The observation model against computations of its own: curve by curve, from the definitions.


SILENT = {"noise_mpa": 0.0, "law": "voce"}


def _curves(start=0, stop=BLOCK, **settings):
    return Simulator(CurveSettings(**{**SILENT, **settings}), 0).curves(start, stop)


def test_rows_are_resampled_as_a_measured_file_is():
    random = np.random.default_rng(0)
    counts = np.array([8, 15, 61, 200, 400, 1500])
    strain = recorded_strain(random.uniform(0.005, 0.6, 6), counts, random.uniform(1, 3, 6))
    stress = 300 * np.tanh(strain / 0.003) + random.normal(0, 2, strain.shape)
    for spacing in (1.0, 2.0):
        grid = np.linspace(0, 1, 200) ** spacing
        found = resample_rows(strain, stress, counts, grid)
        for i, count in enumerate(counts):
            target = CurveTarget(200, strain_spacing=spacing)
            expected = resample(strain[i, :count], stress[i, :count], target)[1]
            np.testing.assert_allclose(found[i], expected, rtol=1e-9, atol=1e-8)


def test_a_machine_records_at_so_many_strains():
    strain = recorded_strain(np.array([0.5, 0.1]), np.array([4, 2]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(
        strain, [[0.125, 0.25, 0.375, 0.5], [0.025, 0.1, 0.1, 0.1]], rtol=1e-14
    )


@pytest.mark.parametrize("spread", [0.05, 1.0])
@pytest.mark.parametrize("law", ["voce", "swift"])
def test_the_knee_is_rounded_by_elements_that_yield_one_after_the_other(law, spread):
    """The overlay of elements by quadrature, at strains before, in and after the knee."""
    law = find_law(law)
    values = {"voce": (2e5, 300.0, 400.0, 20.0), "swift": (2e5, 900.0, 0.005, 0.2)}[law.name]
    parameters = np.array([values])
    strain = np.geomspace(1e-4, 0.3, 16)
    found = rounded_stress(law.stress, strain[None], parameters, np.array([spread]))[0]
    shift = np.log(np.sinh(spread) / spread)

    def element(x, e):
        return law.stress(np.array([[e * np.exp(x)]]), parameters)[0, 0] * np.exp(-x)

    for e, stress in zip(strain, found, strict=True):
        whole = scipy.integrate.quad(element, shift - spread, shift + spread, (e,), limit=200)[0]
        assert stress == pytest.approx(whole / (2 * spread), rel=0.005)
    assert found[0] == pytest.approx(2e5 * strain[0], rel=1e-9)  # the modulus stays
    ideal = np.array([[2e5, 300.0, 1e-9, 1.0]])
    flat = rounded_stress(find_law("voce").stress, strain[None], ideal, np.array([spread]))[0]
    assert flat[-1] == pytest.approx(300, rel=1e-3)  # and so does the plateau


def test_the_deviation_has_the_asked_size_and_correlation():
    random = np.random.default_rng(1)
    draws, strain = 20_000, np.geomspace(1e-4, 0.5, 30)
    deviation = smooth_deviation(
        np.broadcast_to(strain, (draws, 30)),
        random.standard_normal((draws, 4)),
        random.random((draws, 4)),
    )
    # Five standard errors of 20,000 values each: mean 0.035, standard deviation about as much.
    assert np.abs(deviation.mean(axis=0)).max() < 0.04
    assert np.abs(deviation.std(axis=0) - 1).max() < 0.04
    lag = np.log(strain / strain[0])
    np.testing.assert_allclose(np.corrcoef(deviation.T)[0], np.exp(-(lag**2) / 2), atol=0.04)


def test_misfit_is_relative_and_as_large_as_asked():
    plain, with_misfit = _curves(), _curves(misfit=(0.01, 0.01))
    np.testing.assert_array_equal(plain.labels, with_misfit.labels)
    stress = plain.features[:, 1:, 1]
    relative = with_misfit.features[:, 1:, 1] / stress - 1
    assert relative.std(axis=0) == pytest.approx(0.01, rel=0.15)
    # Smooth: from point to point far less than itself.
    assert np.diff(relative[:, 50:], axis=1).std() < 0.05 * relative.std()
    assert np.all(with_misfit.features[:, 0, 1] == 0)
    spread = _curves(misfit=(0.001, 0.1)).features[:, -1, 1] / stress[:, -1] - 1
    # A normal deviation of log-uniform size: E[d²] = (b² - a²) / (2 ln(b / a)).
    assert np.mean(spread**2) == pytest.approx((0.1**2 - 0.001**2) / 2 / np.log(100), rel=0.3)


def test_the_zero_of_the_strain_is_off():
    """Recomputed where the record is the curve's own points: the law at strains that are moved by the offset."""
    size = 1e-4
    curves = _curves(strain_offset=(size, size), fixed={"sigma0": 1500.0, "E": 100e3})
    strain, stress = np.moveaxis(curves.features[..., :2].astype(float), 2, 0)
    law = find_law("voce")
    # Elastic up to 1.5 %: the first points of short curves say what the offset is.
    short = strain[:, -1] < 0.015
    found = stress[short, -1] / 100e3 - strain[short, -1]
    assert found.mean() == pytest.approx(0, abs=5 * size / np.sqrt(short.sum()))
    assert found.std() == pytest.approx(size, rel=0.15)
    moved = np.maximum(strain[short] + found[:, None], 0) * (strain[short] > 0)
    expected = law.stress(moved, curves.parameters[short])
    np.testing.assert_allclose(stress[short], expected, atol=0.01)


def test_noise_of_each_curve_is_log_uniform_over_its_largest_stress():
    limits = (0.001, 0.01)
    plain, noisy = _curves(), _curves(noise_of_maximum=limits)
    noise = noisy.features[..., 1].astype(float) - plain.features[..., 1]
    share = noise.std(axis=1) / plain.features[..., 1].max(axis=1)
    drawn = np.log(share / limits[0]) / np.log(limits[1] / limits[0])
    # A standard deviation from 200 values is 5 % uncertain, 0.02 on this scale.
    assert scipy.stats.kstest(drawn, "uniform").statistic < 0.05
    both = _curves(noise_of_maximum=limits, noise_mpa=50.0)
    total = (both.features[..., 1].astype(float) - plain.features[..., 1]).std(axis=1)
    expected = np.hypot(50, share * plain.features[..., 1].max(axis=1))
    assert np.mean(total / expected) == pytest.approx(1, abs=0.01)


def test_a_record_of_few_points_is_straight_between_them():
    curves = _curves(measured_points=(8, 8))
    stress, strain = curves.features[..., 1].astype(float), curves.features[..., 0].astype(float)
    slope = np.diff(stress, axis=1) / np.diff(strain, axis=1)
    bends = np.abs(np.diff(slope, axis=1)) > 1e-3 * np.abs(slope).max(axis=1)[:, None]
    # Ten straight lines at most: eight points, (0, 0), the end; each bends in one grid cell, or over two.
    assert bends.sum(axis=1).max() <= 18
    # On them it is the law: the end is a measured point.
    law = find_law("voce")
    ends = law.stress(strain[:, -1:], curves.parameters)[:, 0]
    np.testing.assert_allclose(stress[:, -1], ends, rtol=1e-5)


def test_the_number_of_points_is_log_uniform():
    settings = CurveSettings(law="voce", measured_points=(15, 400))
    generators = (np.random.default_rng([stream, 5]) for stream in range(8))
    counts = [
        Observation.draw(settings, lambda _, one=generator: one, BLOCK).counts
        for generator in generators
    ]
    drawn = np.log(np.concatenate(counts) / 14.5) / np.log(400.5 / 14.5)
    assert np.concatenate(counts).min() >= 15 and np.concatenate(counts).max() <= 400
    assert scipy.stats.kstest(drawn, "uniform").statistic < 0.03


def test_a_curve_still_breaks_at_its_strength():
    settings = {"law": "hahn_tsai", "noise_mpa": 0.0}
    plain = _curves(**settings)
    record = _curves(**settings, measured_points=(50, 400), misfit=(0.001, 0.01))
    np.testing.assert_array_equal(plain.features[..., 2], record.features[..., 2])
    assert np.all(record.features[record.features[..., 2] == 1][:, :2] == 0)


def test_a_machine_that_gives_way_and_slack_are_between_the_record_and_the_law():
    """Recomputed: what the specimen sees is the record's strain less the slack and less stress / stiffness."""
    curves = _curves(stop=200, toe=(2e-3, 2e-3), machine_stiffness=(1e5, 1e5))
    strain, stress = np.moveaxis(curves.features[..., :2].astype(float), 2, 0)
    seen = strain - 2e-3 * (1 - np.exp(-strain / 2e-3)) - stress / 1e5
    expected = find_law("voce").stress(np.maximum(seen, 0.0), curves.parameters)
    # The specimen's strain is solved for to 1e-6 of the largest; its modulus is up to 220 GPa.
    np.testing.assert_allclose(stress, expected, atol=2 * 220e3 * 1e-6 * strain.max(), rtol=1e-3)
    assert np.all(stress[:, 0] == 0) and (np.diff(stress, axis=1) > -0.1).all()


@pytest.mark.parametrize("law", ["voce", "voce_chaboche_1"])
def test_the_zero_of_the_stress_is_off_and_noise_is_correlated(law):
    settings = {"law": law, "num_points": 80}
    plain = _curves(**settings).features[..., 1].astype(float)
    offset = _curves(**settings, stress_offset=(5.0, 5.0)).features[..., 1] - plain
    np.testing.assert_allclose(offset, np.repeat(offset[:, :1], 80, axis=1), atol=2e-3)
    assert scipy.stats.kstest(offset[:, 0] / 5.0, "norm").pvalue > 1e-3
    settings["noise_mpa"] = 2.0
    error = _curves(**settings, noise_correlation=(0.8, 0.8)).features[..., 1] - plain
    assert error.std() == pytest.approx(2.0, rel=0.02)
    for lag in (1, 3, 8):
        assert np.mean(error[:, lag:] * error[:, :-lag]) / 4.0 == pytest.approx(0.8**lag, abs=0.02)
    # Drawn log-uniformly: the mean correlation of neighbours is the distribution's.
    error = _curves(**settings, noise_correlation=(0.2, 0.9)).features[..., 1] - plain
    mean = np.mean(error[:, 1:] * error[:, :-1]) / 4.0
    assert mean == pytest.approx(0.7 / np.log(4.5), abs=0.03)


# Noisy copies of curves, beside closed forms of lines.


# Two bars of two straight lines: modulus, hardening modulus, yield stress (MPa), end. The second ends early.
MODULUS_COPIES, HARDENING, YIELD_COPIES, END = np.array(
    [(100e3, 2e3, 200.0, 0.05), (60e3, 1e3, 300.0, 0.03)]
).T
NUM_POINTS = 50


def stress_of(strain, curve, compliance=0.0):
    """Stress of a bar in series with a machine (strain over stress, 1/MPa)."""
    knee = YIELD_COPIES[curve] * (1 / MODULUS_COPIES[curve] + compliance)
    elastic = 1 / (1 / MODULUS_COPIES[curve] + compliance)
    plastic = 1 / (1 / HARDENING[curve] + compliance)
    return np.where(
        strain < knee, elastic * strain, YIELD_COPIES[curve] + plastic * (strain - knee)
    )


def curves():
    strain = np.full((2, 4), np.nan)
    stress = strain.copy()
    for i in range(2):
        knee = YIELD_COPIES[i] / MODULUS_COPIES[i]
        points = [0.0, knee, END[i]] if i else [0.0, knee, 0.02, END[i]]
        strain[i, : len(points)] = points
        stress[i, : len(points)] = stress_of(np.array(points), i)
    return strain, stress


def copied(laboratory, rows=6, seed=0):
    of_row = np.arange(rows) % 2
    copies = NoisyCopies(*curves(), of_row, laboratory, seed=seed, num_points=NUM_POINTS)
    features = np.empty((rows, NUM_POINTS, 3), np.float32)
    copies.fill(0, rows, features)
    return copies, features


@pytest.mark.parametrize("stiffness", [None, 4e3])  # a twenty-fifth of the first bar's
def test_a_copy_is_the_curve_up_to_its_own_end_and_a_machine_has_its_closed_form(stiffness):
    limits = stiffness and (stiffness, stiffness)
    _, features = copied(Laboratory(noise_mpa=1e-6, machine_stiffness=limits))
    for row, (strain, stress, flag) in enumerate(np.moveaxis(features, 2, 1)):
        assert strain[-1] == pytest.approx(END[row % 2]) and not flag.any()
        expected = stress_of(strain, row % 2, 1 / stiffness if stiffness else 0.0)
        np.testing.assert_allclose(stress, expected, rtol=1e-5, atol=1e-4)


def test_rows_do_not_depend_on_which_are_asked_for_and_noise_has_its_size():
    laboratory = Laboratory(
        noise_of_maximum=(1e-3, 1e-2), measured_points=(20, 90), max_strain=(0.02, 0.06),
        strain_offset=(1e-4, 1e-3), machine_stiffness=(1e4, 1e5), toe=(1e-4, 1e-3),
    )  # fmt: skip
    copies, features = copied(laboratory, rows=1500)
    part = np.empty((300, NUM_POINTS, 3), np.float32)
    copies.fill(900, 1200, part)
    np.testing.assert_array_equal(part, features[900:1200])
    # Another seed is other noise; ends are drawn, but never beyond the curve's own.
    assert not np.array_equal(copied(laboratory, seed=1)[1], features[:6])
    ends = features[:, -1, 0]
    assert ends[::2].min() < 0.025 and 0.049 < ends[::2].max() <= np.float32(END[0])
    assert ends[1::2].min() < 0.025 and ends[1::2].max() == np.float32(END[1])
    rows = copied(Laboratory(noise_mpa=2.0, noise_relative=0.01), rows=2000)[1][::2].astype(float)
    true = stress_of(rows[0, :, 0], 0)
    np.testing.assert_allclose(rows[:, :, 1].std(axis=0), np.hypot(2.0, 0.01 * true), rtol=0.12)
    np.testing.assert_allclose(rows[:, :, 1].mean(axis=0), true, atol=0.5)


def test_a_machine_under_which_a_falling_specimen_jumps_is_refused():
    strain, stress = np.array([[0.0, 0.01, 0.02]]), np.array([[0.0, 300.0, 200.0]])
    for stiffness, jumps in ((2e4, False), (5e3, True)):
        laboratory = Laboratory(machine_stiffness=(stiffness, stiffness))
        copies = NoisyCopies(
            strain, stress, np.zeros(4, int), laboratory, seed=0, num_points=NUM_POINTS
        )
        features = np.empty((4, NUM_POINTS, 3), np.float32)
        if jumps:
            with pytest.raises(InputError, match="5000 MPa is too soft"):
                copies.fill(0, 4, features)
        else:
            copies.fill(0, 4, features)

"""The observation model against computations of its own: curve by curve, from the definitions."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from tfmat.materials import find_law
from tfmat.records.laboratory import (
    Observation,
    recorded_strain,
    resample_rows,
    rounded_stress,
    smooth_deviation,
)
from tfmat.records.record import CurveTarget, resample
from tfmat.records.simulation import BLOCK, CurveSettings, Simulator

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


@pytest.mark.parametrize("spread", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("law", ["voce", "swift"])
def test_the_knee_is_rounded_by_elements_that_yield_one_after_the_other(law, spread):
    """The overlay of elements by quadrature, at strains before, in and after the knee."""
    law = find_law(law)
    values = {"voce": (2e5, 300.0, 400.0, 20.0), "swift": (2e5, 900.0, 0.005, 0.2)}[law.name]
    parameters = np.array([values])
    strain = np.geomspace(1e-4, 0.3, 40)
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


def test_each_option_leaves_the_rest_as_it_was():
    every = {
        "noise_of_maximum": (0.001, 0.005),
        "measured_points": (15, 60),
        "strain_offset": (1e-5, 2e-4),
        "misfit": (0.001, 0.02),
        "yield_spread": (0.05, 0.7),
        "noise_correlation": (0.2, 0.9),
        "stress_offset": (0.1, 1.0),
        "toe": (1e-5, 1e-3),
        "machine_stiffness": (1e5, 1e6),
    }
    plain, whole = _curves(stop=300), _curves(stop=300, **every)
    np.testing.assert_array_equal(plain.labels, whole.labels)
    np.testing.assert_array_equal(plain.features[..., 0], whole.features[..., 0])
    np.testing.assert_array_equal(plain.features[..., 2], whole.features[..., 2])
    assert np.isfinite(whole.features).all()
    # A curve is the same in every range, as without the options.
    simulator = Simulator(CurveSettings(**SILENT, **every), 0)
    for start, stop in ((0, 1), (1000, 1100), (BLOCK - 1, BLOCK + 1)):
        part = simulator.curves(start, stop)
        longer = simulator.curves(0, 2 * BLOCK)
        np.testing.assert_array_equal(part.features, longer.features[start:stop])


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


def test_the_zero_of_the_stress_is_off_and_noise_is_correlated():
    plain = _curves()
    moved = _curves(stress_offset=(5.0, 5.0))
    offset = moved.features[..., 1].astype(float) - plain.features[..., 1]
    np.testing.assert_allclose(offset, np.repeat(offset[:, :1], 200, axis=1), atol=2e-3)
    assert scipy.stats.kstest(offset[:, 0] / 5.0, "norm").pvalue > 1e-3
    noisy = _curves(noise_mpa=2.0, noise_correlation=(0.6, 0.6))
    error = noisy.features[..., 1].astype(float) - plain.features[..., 1]
    assert error.std() == pytest.approx(2.0, rel=0.02)
    for lag in (1, 4):
        found = np.mean(error[:, lag:] * error[:, :-lag]) / 4.0
        assert found == pytest.approx(0.6**lag, abs=0.02)

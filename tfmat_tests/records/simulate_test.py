"""Simulated curves: what they hold, and that curve i depends on nothing but (law, settings, seed, i)."""

import threading

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials.registry import MONOTONIC_LAWS
from tfmat.records.simulation import BLOCK, CurveSettings, Simulator, features_of

# Curve 123,456 of the default settings and seed 0: labels; points 1, 100 and 199.
FROZEN_LABELS = [[0.30755335, 0.5156101]]
FROZEN_FEATURES = [
    [0.00016025885, 1.1695998, 0.0],
    [0.016025886, 55.915474, 0.0],
    [0.03189151, 93.163811, 0.0],
]


def _curves(start=0, stop=BLOCK, seed=0, **settings):
    return Simulator(CurveSettings(**settings), seed).curves(start, stop)


@pytest.mark.parametrize("law", MONOTONIC_LAWS)
def test_shapes_types_and_labels(law):
    simulator = Simulator(CurveSettings(law=law), 0)
    curves = simulator.curves(0, 300)
    assert curves.features.shape == (300, 200, 3)
    assert curves.features.dtype == np.float32
    assert curves.labels.shape == (300, len(simulator.law.identified))
    assert curves.labels.dtype == np.float32
    assert np.all((curves.labels >= 0) & (curves.labels <= 1))
    np.testing.assert_allclose(simulator.law.to_labels(curves.parameters), curves.labels, atol=1e-7)
    np.testing.assert_array_equal(simulator.parameters(0, 300), curves.parameters)
    assert np.isfinite(curves.features).all()


@pytest.mark.parametrize("law", MONOTONIC_LAWS)
def test_noise_free_curve_is_the_law_on_its_grid(law):
    """Recomputed here from the definition: grid, law, cut-off."""
    simulator = Simulator(CurveSettings(law=law, noise_mpa=0, strength_cut_off=False), 3)
    curves = simulator.curves(10, 60)
    strain = curves.features[:, :, 0].astype(np.float64)
    grid = np.linspace(0, 1, 200) ** simulator.law.strain_spacing
    np.testing.assert_allclose(strain, strain[:, -1:] * grid, rtol=1e-6)
    low, high = simulator.law.max_strain
    assert np.all((strain[:, -1] >= low) & (strain[:, -1] <= high))
    stress = simulator.law.stress(strain, curves.parameters)
    np.testing.assert_allclose(curves.features[:, :, 1], stress, rtol=1e-5, atol=1e-6)
    assert np.all(curves.features[:, :, 2] == 0)


def test_a_curve_is_the_same_in_every_range():
    simulator = Simulator(CurveSettings(), 7)
    whole = simulator.curves(0, 3 * BLOCK)
    for start, stop in (
        (0, 1),
        (5, 6),
        (1000, 1100),
        (BLOCK, 2 * BLOCK),
        (BLOCK - 1, 2 * BLOCK + 1),
        (3071, 3072),
    ):
        part = simulator.curves(start, stop)
        np.testing.assert_array_equal(part.features, whole.features[start:stop])
        np.testing.assert_array_equal(part.labels, whole.labels[start:stop])
        np.testing.assert_array_equal(part.parameters, whole.parameters[start:stop])
    assert simulator.curves(5, 5).features.shape == (0, 200, 3)


def test_curve_123456_is_frozen():
    """Recorded from SIMULATION_VERSION 1; if this fails, raise that number, since old data sets are other data now."""
    curve = _curves(123_456, 123_457)
    np.testing.assert_allclose(curve.labels, FROZEN_LABELS, rtol=1e-6)
    np.testing.assert_allclose(curve.features[0, [1, 100, 199]], FROZEN_FEATURES, rtol=1e-5)


def test_threads_that_share_a_simulator_make_the_same_curves():
    simulator = Simulator(CurveSettings(law="voce"), 1)
    whole = simulator.curves(0, 2 * BLOCK)
    features, labels = np.empty_like(whole.features), np.empty_like(whole.labels)
    threads = [
        threading.Thread(
            target=simulator.fill,
            args=(start, start + BLOCK, features[start:][:BLOCK], labels[start:][:BLOCK]),
        )
        for start in (0, BLOCK)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(features, whole.features)
    np.testing.assert_array_equal(labels, whole.labels)


def test_seeds_and_blocks_differ():
    curves = Simulator(CurveSettings(), 0).curves(0, 2 * BLOCK)
    assert not np.any(curves.labels[:BLOCK] == curves.labels[BLOCK:])
    assert not np.any(curves.labels[:BLOCK] == _curves(seed=1).labels)


def test_each_setting_changes_nothing_else():
    plain = _curves(strength_cut_off=False)
    other = _curves(strength_cut_off=False, noise_mpa=2.5)
    np.testing.assert_array_equal(plain.labels, other.labels)
    np.testing.assert_array_equal(plain.features[:, :, 0], other.features[:, :, 0])
    clean = _curves(strength_cut_off=False, noise_mpa=0).features[:, :, 1]
    np.testing.assert_allclose(
        other.features[:, :, 1] - clean, 2.5 * (plain.features[:, :, 1] - clean), atol=1e-3
    )
    cut = _curves()
    valid = cut.features[:, :, 2] == 0
    np.testing.assert_array_equal(cut.features[valid], plain.features[valid])
    fixed = Simulator(CurveSettings(fixed={"G0": 5000}, strength_cut_off=False), 0).curves(0, BLOCK)
    np.testing.assert_array_equal(fixed.labels[:, 0], plain.labels[:, 1])
    assert np.all(fixed.parameters[:, 0] == 5000)


def test_draws_are_uniform():
    """Mean and spread of 16,384 uniform draws; five standard errors are 0.011 and 0.006."""
    curves = _curves(0, 16 * BLOCK, law="tanh_shear", noise_mpa=0)
    ends = (curves.features[:, -1, 0] - 0.01) / 0.04
    for sample in (curves.labels[:, 0], curves.labels[:, 1], ends):
        assert sample.mean() == pytest.approx(0.5, abs=0.0113)
        assert sample.std() == pytest.approx(12**-0.5, abs=0.006)
    correlation = np.corrcoef([curves.labels[:, 0], curves.labels[:, 1], ends])
    assert np.abs(correlation - np.eye(3)).max() < 0.04


def test_noise_has_the_asked_spread():
    clean = _curves(strength_cut_off=False, noise_mpa=0).features[:, :, 1]
    noise = _curves(strength_cut_off=False, noise_mpa=2).features[:, :, 1] - clean
    assert noise.mean() == pytest.approx(0, abs=0.023)  # five standard errors of 204,800 values
    assert noise.std() == pytest.approx(2, rel=0.008)
    assert np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1] == pytest.approx(
        0, abs=0.012
    )
    mixed = (
        _curves(strength_cut_off=False, noise_mpa=2, noise_relative=0.05).features[:, :, 1] - clean
    )
    scaled = mixed / np.sqrt(4 + (0.05 * clean) ** 2)
    assert scaled.std() == pytest.approx(1, rel=0.008)
    relative = _curves(strength_cut_off=False, noise_mpa=0, noise_relative=0.05).features[:, :, 1]
    assert np.all(relative[:, 0] == 0)


def test_points_after_the_first_above_the_strength_are_padding():
    settings = CurveSettings(noise_mpa=0, strength_mpa=(80, 80))
    cut = Simulator(settings, 0).curves(0, BLOCK).features
    full = _curves(noise_mpa=0, strength_cut_off=False).features
    broken = 0
    for cut_curve, full_curve in zip(cut, full, strict=True):
        above = np.flatnonzero(full_curve[:, 1] > 80)
        last = above[0] if len(above) else 199
        np.testing.assert_array_equal(cut_curve[: last + 1], full_curve[: last + 1])
        np.testing.assert_array_equal(cut_curve[last + 1 :], np.tile([0, 0, 1], (199 - last, 1)))
        broken += last < 199
    assert 0 < broken < BLOCK
    assert not np.signbit(cut).any()


def test_noise_does_not_move_the_break():
    assert np.array_equal(
        _curves(noise_mpa=0).features[:, :, 2], _curves(noise_mpa=5).features[:, :, 2]
    )


def test_features_of_pads_whatever_stands_there():
    valid = np.array([[True, True, False]])
    features = features_of(np.array([[0, 0.1, np.nan]]), np.array([[1.0, 2.0, np.inf]]), valid)
    np.testing.assert_array_equal(
        features, np.array([[[0, 1, 0], [0.1, 2, 0], [0, 0, 1]]], np.float32)
    )
    assert features.dtype == np.float32


def test_law_that_is_not_finite_is_named(tmp_path):
    path = tmp_path / "my_law.py"
    path.write_text(
        "from tfmat.materials.cyclic import TanhShear\n\n\nclass Bad(TanhShear):\n    name = 'bad'\n\n"
        "    def stress(self, strain, parameters):\n        return strain / (parameters[:, :1] > 2100)\n"
    )
    with (
        np.errstate(all="ignore"),
        pytest.raises(InputError, match=r"not finite at G0=20.*narrow its ranges"),
    ):
        _curves(law=f"{path}:Bad")


def test_negative_seed_is_refused():
    with pytest.raises(InputError, match="--seed is -1"):
        Simulator(CurveSettings(), -1)

"""Noisy copies of curves, beside closed forms of lines."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.laboratory import Laboratory
from tfmat.records.simulation import NoisyCopies

# Two bars of two straight lines: modulus, hardening modulus, yield stress (MPa), end. The second ends early.
MODULUS, HARDENING, YIELD, END = np.array([(100e3, 2e3, 200.0, 0.05), (60e3, 1e3, 300.0, 0.03)]).T
NUM_POINTS = 50


def stress_of(strain, curve, compliance=0.0):
    """Stress of a bar in series with a machine (strain over stress, 1/MPa)."""
    knee = YIELD[curve] * (1 / MODULUS[curve] + compliance)
    elastic = 1 / (1 / MODULUS[curve] + compliance)
    plastic = 1 / (1 / HARDENING[curve] + compliance)
    return np.where(strain < knee, elastic * strain, YIELD[curve] + plastic * (strain - knee))


def curves():
    strain = np.full((2, 4), np.nan)
    stress = strain.copy()
    for i in range(2):
        knee = YIELD[i] / MODULUS[i]
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


def test_a_copy_is_the_curve_up_to_its_own_end():
    _, features = copied(Laboratory(noise_mpa=1e-6))
    for row, (strain, stress, flag) in enumerate(np.moveaxis(features, 2, 1)):
        assert strain[-1] == pytest.approx(END[row % 2]) and not flag.any()
        np.testing.assert_allclose(stress, stress_of(strain, row % 2), rtol=1e-5, atol=1e-4)


def test_a_machine_in_series_has_its_closed_form():
    stiffness = 4e3  # a twenty-fifth of the first bar's
    _, features = copied(Laboratory(noise_mpa=1e-6, machine_stiffness=(stiffness, stiffness)))
    for row, (strain, stress, _) in enumerate(np.moveaxis(features, 2, 1)):
        np.testing.assert_allclose(
            stress, stress_of(strain, row % 2, 1 / stiffness), rtol=1e-5, atol=1e-4
        )


def test_rows_do_not_depend_on_which_are_asked_for():
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


def test_the_noise_has_its_size():
    _, features = copied(Laboratory(noise_mpa=2.0, noise_relative=0.01), rows=2000)
    rows = features[::2].astype(np.float64)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 1}, "a laboratory has no 'noise'; did you mean 'noise_mpa'?"),
        ({"noise_mpa": -1.0}, "noise_mpa is -1.0; give 0"),
        ({"noise_relative": 1.0}, "noise_relative is 1.0; give a fraction below 1"),
        ({"toe": (0.0, 0.1)}, "toe is .*; give 0 < low <= high"),
        ({"max_strain": (0.2, 0.1)}, "max_strain is .*; give 0 < low <= high"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        Laboratory.of(options)

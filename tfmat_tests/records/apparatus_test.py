"""What stands between a specimen and its record, against closed forms, root finding and statistics."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import scipy.signal

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.materials.law import History
from tfmat.records.laboratory import (
    Apparatus,
    after_toe,
    correlated,
    rises_from_zero,
    specimen_strain,
    thinned,
)
from tfmat.records.programmes import along_path

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


def test_slack_moves_the_elastic_line_by_its_size():
    strain = np.linspace(0.0, 0.02, 201)[None]
    found = after_toe(strain, np.array([0.001]))
    # By hand: |e| - s (1 - exp(-|e| / s)).
    assert found[0, 10] == pytest.approx(0.001 - 0.001 * (1 - np.exp(-1.0)))
    assert found[0, 0] == 0.0 and (np.diff(found) > 0).all()
    # Far from the toe: the strain less the slack. At the start: the parabola e² / 2s.
    np.testing.assert_allclose(found[0, 150:], strain[0, 150:] - 0.001, rtol=1e-6)
    small = np.array([[1e-5]])
    np.testing.assert_allclose(after_toe(small, np.array([0.01])), 1e-10 / 0.02, rtol=1e-3)
    np.testing.assert_array_equal(after_toe(-strain, np.array([0.001])), -found)


def test_rows_that_turn_have_no_toe():
    rising = np.linspace(0.0, 1.0, 9)
    held = np.minimum(rising, 0.5)
    turning = np.abs(rising - 0.7) - 0.7
    rows = np.stack([rising, -rising, held, turning, rising + 0.1])
    assert rises_from_zero(rows).tolist() == [True, True, True, False, False]
    history = History(strain=np.stack([rising, turning]))
    answer = Apparatus(slack=np.array([0.1, 0.1])).answer(history, lambda one: one.driven)
    np.testing.assert_array_equal(answer[0], after_toe(rising[None], np.array([0.1]))[0])
    np.testing.assert_array_equal(answer[1], turning)


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


def test_a_smooth_law_and_a_machine_are_solved_point_by_point():
    law, parameters = find_law("voce"), np.array([[2e5, 300.0, 200.0, 15.0]])
    strain = np.linspace(0.0, 0.05, 60)[None] ** 1.5
    found = specimen_strain(lambda e: law.stress(e, parameters), strain, np.array([8e4]))
    for measured, own in zip(strain[0, 1:], found[0, 1:], strict=True):

        def too_much(e, measured=measured):
            return e + law.stress(np.array([[e]]), parameters)[0, 0] / 8e4 - measured

        assert own == pytest.approx(scipy.optimize.brentq(too_much, 0.0, measured), abs=5e-8)


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


def test_neighbours_err_alike_as_a_first_order_autoregression():
    random = np.random.default_rng(0)
    normal = random.standard_normal((4000, 60)).astype(np.float32)
    ρ = np.where(np.arange(4000) < 2000, 0.3, 0.9)
    found = correlated(normal, ρ)
    for rows, value in ((slice(0, 2000), 0.3), (slice(2000, 4000), 0.9)):
        part = found[rows]
        # Variance 1 at every point, ρ^|i - j| between two: five standard errors of 2,000 values.
        assert np.abs(part.var(axis=0) - 1).max() < 5 * np.sqrt(2 / 2000)
        correlation = np.corrcoef(part.T)
        for first, second in ((0, 1), (10, 13), (40, 59)):
            error = 5 * (1 - value ** (2 * (second - first))) / np.sqrt(2000)
            assert correlation[first, second] == pytest.approx(value ** (second - first), abs=error)
    # The same recursion as a filter of SciPy's.
    filtered = scipy.signal.lfilter(
        [np.sqrt(1 - 0.9**2)], [1, -0.9], normal[3000, 1:].astype(float)
    )
    start = normal[3000, 0] * 0.9 ** np.arange(1, 60)
    np.testing.assert_allclose(found[3000, 1:], filtered + start, rtol=1e-6, atol=1e-9)


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

"""Test programmes: the histories that they draw, and what a user may change."""

import pathlib

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.programmes import MOST_CYCLES, PROGRAMMES, Cyclic, along_path, find_programmes

OWN = """
import pathlib

import numpy as np
from tfmat.records.programmes import Programme
from tfmat.materials import History, Parameter


class Step(Programme):
    name = "step"
    title = "a step of strain"
    settings = (Parameter("height", "-", 0.1, 0.2),)

    def history(self, settings, points, random):
        return History(self.mode, strain=np.broadcast_to(settings, (len(settings), points)))
"""


@pytest.mark.parametrize("name", PROGRAMMES)
def test_every_programme_draws_histories_within_its_ranges(name):
    programme = PROGRAMMES[name]()
    history = programme.draw(np.random.default_rng(0), 200, 64)
    assert history.driven.shape == (200, 64) and np.isfinite(history.driven).all()
    assert (history.driven[:, 0] == 0).all() and history.mode == programme.mode
    assert (history.stress is None) == (programme.drives == "strain")
    for channel in ("time", "rate", "temperature"):
        told = getattr(history, channel)
        assert (told is not None) == (channel in programme.channels)
    if history.time is not None:
        assert (np.diff(history.time, axis=1) >= 0).all() and (history.time[:, 0] == 0).all()
    first = programme.settings[0]
    largest = np.abs(history.driven).max(axis=1)
    limits = sorted((abs(first.low), abs(first.high)))
    assert largest.max() <= limits[1] * (1 + 1e-12)
    if name != "cyclic":  # irregular cycles need not reach the largest strain
        assert largest.min() >= limits[0] * (1 - 1e-12)


def test_the_path_holds_its_turning_points_and_is_even():
    turning = np.array([[1.0, -1.0, 1.0, -1.0], [0.5, 0.5, 0.2, 0.2], [0.1, 0.1, 0.1, 0.1]])
    path = along_path(turning, 50)
    for row, turns in zip(path, turning, strict=True):
        assert row[0] == 0 and row[-1] == turns[-1]
        assert all((row == turn).any() for turn in turns)
        # The way along the points is the way from one turning point to the next.
        way = np.abs(np.diff(np.concatenate([[0.0], turns]))).sum()
        steps = np.abs(np.diff(row))
        np.testing.assert_allclose(steps.sum(), way, rtol=1e-12)
        assert steps.max() < 1.2 * way / 49


def test_too_few_points_for_the_turns_are_refused():
    with pytest.raises(InputError, match="10 points are too few for a history that turns 6 times"):
        along_path(np.ones((1, 6)), 10)


def test_a_constant_amplitude_stays_what_it_is():
    settings = {"irregularity": (0.0, 0.0), "mean": (0.0, 0.0), "first": (1.0, 1.0)}
    cyclic = Cyclic({**settings, "amplitude": (0.02, 0.02), "cycles": (3.0, 3.0)})
    strain = cyclic.draw(np.random.default_rng(0), 50, 200).driven
    turns = np.diff(np.sign(np.diff(strain, axis=1)), axis=1) != 0
    assert (turns.sum(axis=1) == 5).all()
    np.testing.assert_allclose(np.abs(strain[:, 1:-1][turns]), 0.02, rtol=1e-12)


def test_the_number_of_cycles_is_drawn_up_to_the_most():
    strain = Cyclic().draw(np.random.default_rng(0), 2000, 200).driven
    turns = (np.diff(np.sign(np.diff(strain, axis=1)), axis=1) != 0).sum(axis=1)
    assert turns.min() == 0 or turns.min() == 1
    assert 2 * MOST_CYCLES - 3 <= turns.max() <= 2 * MOST_CYCLES - 1


def test_ranges_go_to_every_programme_that_has_them_or_to_one():
    both = find_programmes(["uniaxial", "planar"], {"max_strain": (1.0, 2.0)})
    assert [one.settings[0].high for one in both] == [2.0, 2.0]
    one = find_programmes(["uniaxial", "planar"], {"planar_max_strain": (1.0, 2.0)})
    assert [one.settings[0].high for one in one] == [7.0, 2.0]


@pytest.mark.parametrize(
    ("names", "ranges", "message"),
    [
        (["cyclc"], {}, "there is no test 'cyclc'; did you mean 'cyclic'?"),
        (["cyclic"], {"amplitud": (1, 2)}, "no test of this record has a setting 'amplitud'"),
        (["cyclic"], {"amplitude": (0.0, 2.0)}, "range of amplitude .test cyclic. is 0 to 2 -; give 0 < low <= high"),
    ],
)  # fmt: skip
def test_what_is_refused(names, ranges, message):
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        find_programmes(names, ranges)


def test_a_users_own_programme_is_one_file(tmp_path):
    file = tmp_path / "my_tests.py"
    file.write_text(OWN)
    (step,) = find_programmes([f"{file}:Step"], {"height": (0.15, 0.15)})
    np.testing.assert_array_equal(step.draw(np.random.default_rng(0), 3, 4).driven, 0.15)
    with pytest.raises(InputError, match="has no class 'Stap'; did you mean 'Step'"):
        find_programmes([f"{file}:Stap"])


def test_the_programme_of_the_guide_runs(tmp_path):
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "adding_a_law.md").read_text()
    (code,) = [part for part in guide.split("```py\n")[1:] if "(Programme)" in part]
    file = tmp_path / "my_test.py"
    file.write_text(code.partition("```")[0])
    (ratchet,) = find_programmes([f"{file}:Ratchet"], {"unloading": (0.5, 0.5)})
    strain = ratchet.draw(np.random.default_rng(0), 20, 100).driven
    steps = np.diff(strain, axis=1)
    ways = np.stack(
        [np.where(steps > 0, steps, 0).sum(axis=1), -np.where(steps < 0, steps, 0).sum(axis=1)]
    )
    # Five steps up, four unloadings of half a step each.
    np.testing.assert_allclose(ways, strain[:, -1] * np.array([[1.4], [0.4]]), rtol=1e-9)


def test_more_cycles_than_by_default_are_drawn_where_the_points_hold_them():
    cyclic = Cyclic({"cycles": (20.0, 30.0), "irregularity": (0.0, 0.0), "mean": (0.0, 0.0)})
    strain = cyclic.draw(np.random.default_rng(0), 50, 200).driven
    turns = (np.diff(np.sign(np.diff(strain, axis=1)), axis=1) != 0).sum(axis=1)
    assert turns.min() >= 39 and turns.max() <= 59
    said = "100 points are too few for a history that turns 60 times"
    with pytest.raises(InputError, match=said):
        cyclic.draw(np.random.default_rng(0), 50, 100)

"""Which baseline a point is divided by, and how sure a ratio is."""

import dataclasses

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.scaling.model import added_worker, median_with_interval, series, summarise
from tfmat.scaling.study import Measurements, Model, Point, Repetition

BASE = Point("single", 1, 75, 75, "weak", "here", Model("m", 10, 40), 1000)
TWO = Point("horovod", 2, 150, 75, "weak", "here", Model("m", 10, 40), 1000, collectives="mpi")


def repeat(point, *seconds):
    return [Repetition(point, number, 10, 10 * value) for number, value in enumerate(seconds)]


def summary_of(point, *repetitions, **arguments):
    found = summarise(Measurements(tuple(sum(repetitions, []))), **arguments)  # noqa: RUF017
    return next(each for each in found if each.point == point)


def test_a_ratio_is_formed_within_a_round():
    """A machine that is twice as slow in a round is so for both."""
    summary = summary_of(TWO, repeat(BASE, 1.0, 2.0, 3.0), repeat(TWO, 1.25, 2.5, 3.75))
    assert summary.speedup.value == pytest.approx(1.6)
    assert summary.speedup.low == pytest.approx(summary.speedup.high)
    assert summary.efficiency.value == pytest.approx(0.8)
    assert (summary.step_seconds.low, summary.step_seconds.value) == (1.25, 2.5)


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": "there"},
        {"processors_a_worker": 2},
        {"dataset_size": 2000},
        {"model": Model("other", 10, 40)},
        {"collectives": "mpi"},
        {"batch_a_worker": 150, "global_batch_size": 150},
    ],
)
def test_nothing_is_divided_by_what_is_not_its_baseline(change):
    other = dataclasses.replace(BASE, **change)
    assert summary_of(TWO, repeat(other, 1.0), repeat(TWO, 1.0)).speedup is None


def test_strong_scaling_is_divided_by_one_worker_with_the_whole_batch():
    strong = dataclasses.replace(TWO, scaling="strong", global_batch_size=75, batch_a_worker=38)
    summary = summary_of(strong, repeat(BASE, 1.0), repeat(strong, 0.625))
    assert summary.speedup.value == pytest.approx(1.6)


def test_another_machine_s_baseline_only_where_it_is_asked_for_by_name():
    there = dataclasses.replace(BASE, hardware="there")
    runs = repeat(BASE, 1.0), repeat(there, 4.0), repeat(TWO, 1.25)
    assert not summary_of(TWO, *runs).foreign
    summary = summary_of(TWO, *runs, baseline_hardware="there")
    assert summary.foreign
    assert summary.speedup.value == pytest.approx(6.4)
    with pytest.raises(InputError, match="measured: here, there"):
        summary_of(TWO, *runs, baseline_hardware="nowhere")


def test_oversubscribed_points_bend_no_regression():
    eight = dataclasses.replace(TWO, workers=8, global_batch_size=600, oversubscribed=True)
    runs = repeat(BASE, 1.0, 1.0), repeat(TWO, 1.25, 1.25), repeat(eight, 8.0, 8.0)
    summaries = summarise(Measurements(tuple(sum(runs, []))))  # noqa: RUF017
    (group,) = series(summaries, "weak").values()
    assert [each.point.workers for each in group] == [1, 2, 8]
    assert added_worker(group).value == pytest.approx(0.6)


@pytest.mark.parametrize(("rounds", "known"), [(1, False), (2, False), (3, True)])
def test_a_slope_of_less_than_three_ratios_has_no_interval(rounds, known):
    runs = repeat(BASE, *[1.0] * rounds), repeat(TWO, *(1.25, 1.0, 1.6)[:rounds])
    (group,) = series(summarise(Measurements(tuple(sum(runs, [])))), "weak").values()  # noqa: RUF017
    slope = added_worker(group)
    assert slope.value == pytest.approx(np.mean([0.6, 1.0, 0.25][:rounds]))
    assert bool(slope.low < slope.value < slope.high) == known
    assert known or slope.low == slope.value == slope.high


def test_the_interval_holds_the_median_about_as_often_as_it_says():
    """Percentile bootstrap of ten values, nominally 95 %; for so few it is known to hold a little less often."""
    random = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        found = median_with_interval(random.normal(1.0, 0.1, 10))
        held += found.low <= 1.0 <= found.high
    assert 0.88 <= held / 200 <= 1.0
    assert dataclasses.astuple(median_with_interval([3.0, 1.0])) == (1.0, 2.0, 3.0)

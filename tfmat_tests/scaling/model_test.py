"""What measurements say: baselines, ratios, costs of exchanges by theory, sums between sizes, losses over time."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tfmat.errors import InputError
from tfmat.scaling.measure import MeteredLine, training_lines
from tfmat.scaling.model import (
    added_worker,
    expected_maximum,
    line_fits,
    median_with_interval,
    series,
    summarise,
)
from tfmat.scaling.study import AllReduce, Measurements, Model, Point, Repetition
from tfmat.training.run_folder import LineUse

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


# Harter (1961), Expected values of normal order statistics, Biometrika 48, table 1.
@pytest.mark.parametrize(("workers", "value"), [(1, 0.0), (2, 0.56419), (100, 2.50759)])
def test_the_slowest_of_normal_workers_waits_as_tabulated(workers, value):
    assert expected_maximum(workers) == pytest.approx(value, abs=2e-5)


def test_the_slowest_of_1024_against_drawn_ones():
    drawn = stats.norm.rvs(size=(4000, 1024), random_state=0).max(axis=1)
    error = 4 * drawn.std() / np.sqrt(len(drawn))
    assert expected_maximum(1024) == pytest.approx(drawn.mean(), abs=error)


def _allreduces(law: Callable[[int], float]) -> list[AllReduce]:
    """Three times 1 kB to 64 MB; the median follows the law."""
    return [
        AllReduce("mpi", 2, num_bytes, factor * law(num_bytes), 1e-9, 1.0, 3, "one")
        for num_bytes in (1024 * 4**i for i in range(9))
        for factor in (0.5, 1.0, 1.5)
    ]


def test_two_algorithms_with_a_latency_and_a_bandwidth_each():
    def law(num_bytes: float) -> float:
        # Continuous at 1 MB, where the second algorithm becomes the faster one.
        return min(1e-5 + 1e-9 * num_bytes, 1e-5 + 0.75e-9 * 2**20 + 0.25e-9 * num_bytes)

    (fit,) = line_fits(_allreduces(law))
    errors = dict(zip([1024 * 4**i for i in range(1, 8)], fit.left_out_between, strict=True))
    # The line through 256 kB and 4 MB at 1 MB, in closed form; on both sides of it every stretch is a line.
    at_change = (law(2**18) + (law(2**22) - law(2**18)) * 0.2) / law(2**20) - 1
    assert errors.pop(2**20) == pytest.approx(at_change)
    assert list(errors.values()) == pytest.approx(np.zeros(6), abs=1e-12)
    assert np.max(np.abs(fit.left_out)) > 0.2  # one line for all sizes
    for num_bytes in (1024, 5000, 613_764, 3 * 2**20, 64 * 2**20):
        assert fit.seconds(num_bytes) == pytest.approx(law(num_bytes))
    for num_bytes in (100, 2**30):  # nothing measured on the other side
        assert fit.seconds(num_bytes) == fit.on_line(num_bytes)


def test_sizes_beside_a_jump_are_missed_and_said_to_be():
    (fit,) = line_fits(_allreduces(lambda num_bytes: 1e-5 if num_bytes < 100_000 else 1e-3))
    # 64 kB by 16 kB and 256 kB, 256 kB by 64 kB and 1 MB: a fifth of the way up the jump each.
    fifth = 1e-5 + 0.2 * (1e-3 - 1e-5)
    expected = [0, 0, fifth / 1e-5 - 1, fifth / 1e-3 - 1, 0, 0, 0]
    assert fit.left_out_between == pytest.approx(expected)


STEP = 0.005


def records(steps, compiling):
    """An epoch of so many steps a record; each step takes 5 ms, and compiling what is given beyond that."""
    ends = np.cumsum(steps)
    return [
        MeteredLine(
            step=int(end),
            epoch=float(i + 1),
            loss=1.0,
            training_seconds=end * STEP + sum(compiling[: i + 1]),
            use=LineUse(
                first_call_seconds=compiling[i] + (steps[i] * STEP if compiling[i] else 0.0)
            ),
        )
        for i, end in enumerate(ends)
    ]


@pytest.mark.parametrize(
    ("steps", "compiling", "untimed", "mean", "expected"),
    [
        # An epoch within the call that compiles takes as long as the others.
        ([100, 100, 100], [20.0, 0.0, 0.0], 100, STEP, [0.5, 1.0, 1.5]),
        # Nothing compiled.
        ([100, 100], [0.0, 0.0], 0, STEP, [0.5, 1.0]),
        # 400 steps an epoch, 100 of them in the call that compiles.
        ([400, 400], [20.0, 0.0], 100, STEP, [2.0, 4.0]),
        # A single epoch has the mean of its timed steps.
        ([400], [20.0], 100, 0.006, [300 * STEP + 0.6]),
    ],
)
def test_seconds_of_a_training_are_those_of_its_steps(steps, compiling, untimed, mean, expected):
    found = records(steps, compiling)
    if compiling[0]:
        found[0].use = LineUse(first_call_seconds=compiling[0] + untimed * STEP)
    lines = training_lines(found, untimed, mean)
    assert [line.seconds for line in lines] == pytest.approx(expected)
    assert (lines[0].epoch, lines[0].loss, lines[0].val_loss) == (1.0, 1.0, None)


def test_the_median_of_the_later_records_is_taken():
    """One that something disturbed, and a mean that says so."""
    disturbed = records([100, 100, 100, 100], [20.0, 0.0, 0.0, 0.0])
    for record in disturbed[3:]:
        record.training_seconds += 7.0
    lines = training_lines(disturbed, 100, 0.03)
    assert [line.seconds for line in lines] == pytest.approx([0.5, 1.0, 1.5, 9.0])

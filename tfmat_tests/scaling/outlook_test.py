"""Predictions, costs and the choice, against arithmetic done here."""

import dataclasses

import numpy as np
import pytest

from tfmat.scaling.model import (
    Link,
    analyse,
    choose,
    fastest,
    fit_network,
    last_worthwhile,
    options,
    reached,
    smallest_good_batch,
)
from tfmat.scaling.study import (
    AllReduce,
    Assumptions,
    Measurements,
    Model,
    read_assumptions,
    write_assumptions,
)
from tfmat_tests.scaling.synthetic import MODEL, SIZES, WEIGHTS, Truth, study

TRAINED = study(Truth(), workers=(2, 4), batches=(75, 150), rounds=3, trained=True)


@pytest.fixture(scope="module")
def analysis():
    return analyse(TRAINED, Assumptions(price_per_hour=3.0, watts_a_worker=200.0))


def test_where_it_stops_paying_is_where_the_efficiency_crosses(analysis):
    model, weak = analysis.forecast.model, analysis.forecast.weak
    last = last_worthwhile(weak)
    assert model.efficiency(last, 75) >= 0.5 > model.efficiency(2 * last, 75)
    steps = [model.seconds(2**k, -(-600 // 2**k)) for k in range(10)]
    assert fastest(analysis.forecast.strong).workers == 2 ** int(np.argmin(steps))
    batch = smallest_good_batch(model, 64)
    assert model.efficiency(64, batch) >= 0.8 > model.efficiency(64, batch - 1)
    assert smallest_good_batch(dataclasses.replace(model, deviation=1.0), 64) is None


def test_a_hundred_times_the_network_is_a_hundred_times_the_bytes_and_the_work(analysis):
    truth = Truth()
    found = analysis.forecast.weak_larger[3]
    assert found.workers == 8
    alone = truth.fixed + 100 * truth.an_example * 75
    step = alone * (1 + 0.05 * 1.4236) + truth.ring(8, 61_376_400) + truth.own
    assert found.efficiency.value == pytest.approx(alone / step, rel=0.03)


def test_device_hours_energy_and_money_are_products(analysis):
    for cost in analysis.costs:
        hours = cost.point.workers * cost.seconds.value / 3600
        assert cost.device_hours == pytest.approx(hours)
        assert cost.money == pytest.approx(3.0 * hours)
        assert cost.kilowatt_hours == pytest.approx(0.2 * hours)
    # Every trained repetition reached the default target; the times are in the lines.
    for summary in analysis.summaries:
        for repetition in summary.repetitions:
            if repetition.training:
                seconds, epochs = reached(repetition, analysis.target)
                assert seconds == repetition.training[int(epochs) - 1].seconds
    assert reached(TRAINED.repetitions[0], 1e-9) is None


def test_measured_power_goes_before_an_assumed_one():
    repetitions = tuple(
        dataclasses.replace(each, ranks=tuple(dataclasses.replace(rank, power_watts=50.0) for rank in each.ranks))
        for each in TRAINED.repetitions
    )  # fmt: skip
    measured = dataclasses.replace(TRAINED, repetitions=repetitions)
    for cost in analyse(measured, Assumptions(watts_a_worker=200.0)).costs:
        assert cost.kilowatt_hours == pytest.approx(0.05 * cost.device_hours)


def test_the_right_law_of_the_all_reduce_is_chosen():
    """Times of a tree, and of halving and doubling, by their formulas."""
    for name, seconds in {
        "tree": lambda p, n: 2 * np.log2(p) * (3e-5 + n * 1e-9),
        "halving": lambda p, n: 2 * np.log2(p) * 3e-5 + 2 * (p - 1) / p * n * 1e-9,
    }.items():
        lines = [
            AllReduce("mpi", p, n, seconds(p, n), seconds(p, n), seconds(p, n), 9, "x")
            for p in (2, 4, 8, 16)
            for n in SIZES
        ]
        network = fit_network(lines)
        assert network.algorithm == name
        assert network.seconds(1024, 1e6) == pytest.approx(seconds(1024, 1e6), rel=0.01)


def test_beyond_a_node_the_measured_or_the_assumed_network_counts():
    slow = tuple(
        dataclasses.replace(line, nodes=2, workers=2 * line.workers, median_seconds=20 * line.median_seconds)
        for line in TRAINED.allreduces
    )  # fmt: skip
    both = dataclasses.replace(TRAINED, allreduces=(*TRAINED.allreduces, *slow))
    inside = analyse(TRAINED, Assumptions()).forecast.model
    measured = analyse(both, Assumptions()).forecast.model
    assumed = analyse(
        TRAINED, Assumptions(network_latency=1e-3, network_bytes_per_second=1e9)
    ).forecast.model
    assert inside.exchange(4) == pytest.approx(measured.exchange(4))
    assert measured.exchange(8) > 8 * inside.exchange(8)
    n = 613764
    outside = 2 * 1e-3 + 2 / 2 * n / 1e9
    ring = Truth().ring(4, n)
    assert assumed.exchange(8) == pytest.approx(ring + outside, rel=0.02)


def test_one_gradient_s_exchange_is_the_measured_one_where_its_size_was_measured():
    """Three rounds at the gradient's size, three times as slow as the line through the others says."""
    line = TRAINED.allreduces[0]
    seconds = 3 * Truth().ring(4, 613764)
    here = [
        dataclasses.replace(line, workers=4, bytes=613764, round=i, median_seconds=factor * seconds)
        for i, factor in enumerate((0.9, 1.0, 1.3))
    ]
    of_line = analyse(TRAINED, Assumptions())
    found = analyse(dataclasses.replace(TRAINED, allreduces=(*TRAINED.allreduces, *here)), Assumptions())  # fmt: skip
    assert found.best.point.workers == 4
    assert found.exchange_seconds == pytest.approx(seconds)
    assert of_line.exchange_seconds == pytest.approx(Truth().ring(4, 613764), rel=0.03)


def test_the_choice_follows_bytes_latency_and_memory():
    link = Link(20e-6, 0.5e-9)
    small = options(MODEL, 8, 75, link)
    data, tensor, sharded = small
    assert not tensor.divides  # 125 hidden units by 8
    assert data.exchange_seconds == pytest.approx(14 * 20e-6 + 14 / 8 * 613764 * 0.5e-9, rel=1e-3)
    assert data.memory_bytes == 4 * 613764
    assert sharded.memory_bytes < data.memory_bytes / 6
    assert choose(small, 8, 75, None).startswith("Choose data parallelism with 8 workers of 75")

    # 16.8 million weights in two layers, one example a worker: few activations, many weights.
    wide = Model("wide", 1, 1, (
        dataclasses.replace(WEIGHTS[4], path="a/kernel", shape=(2048, 4096)),
        dataclasses.replace(WEIGHTS[4], path="b/kernel", shape=(4096, 2048)),
        dataclasses.replace(WEIGHTS[4], path="c/kernel", shape=(2048, 2)),
    ))  # fmt: skip
    found = options(wide, 8, 1, link)
    assert choose(found, 8, 1, None).startswith("Choose tensor parallelism")
    # Not enough memory for whole copies.
    least = min(option.memory_bytes for option in found)
    assert "Choose data" not in choose(found, 8, 1, least + 1)
    assert choose(found, 8, 1, least - 1).startswith("None of data, tensor and sharded")
    assert options(dataclasses.replace(MODEL, weights=()), 8, 75, link) == []


def test_without_all_reduces_or_baselines_less_is_said_but_nothing_fails():
    without = analyse(dataclasses.replace(TRAINED, allreduces=()), Assumptions())
    assert without.forecast is None
    assert without.best is not None
    lonely = tuple(each for each in TRAINED.repetitions if each.point.workers > 1)
    assert analyse(dataclasses.replace(TRAINED, repetitions=lonely), Assumptions()).best is None
    assert analyse(Measurements(), Assumptions()).summaries == []


def test_assumptions_are_kept_and_checked(tmp_path):
    assert read_assumptions(tmp_path) == Assumptions()
    write_assumptions(tmp_path, Assumptions(price_per_hour=2.0))
    assert read_assumptions(tmp_path) == Assumptions(price_per_hour=2.0)
    with pytest.raises(ValueError, match="price_per_hour is -1"):
        Assumptions(price_per_hour=-1)

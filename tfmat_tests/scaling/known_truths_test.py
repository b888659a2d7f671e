"""Studies whose answer is known, drawn from stated numbers or published; predictions, costs and the choice of them."""

import dataclasses

import numpy as np
import pytest

from tfmat.scaling.model import (
    GOAL,
    Analysis,
    Link,
    Predictor,
    added_worker,
    amdahl_share,
    choose,
    fastest,
    fit_network,
    last_worthwhile,
    options,
    reached,
    series,
    smallest_good_batch,
    summarise,
)
from tfmat.scaling.study import (
    AllReduce,
    Assumptions,
    Measurements,
    Model,
    Point,
    Repetition,
    read_assumptions,
    write_assumptions,
)
from tfmat_tests.scaling.synthetic import MODEL, SIZES, WEIGHTS, Truth, study

NONE = Assumptions()


def analysis_of(truth, **changes):
    return Analysis(study(truth, **changes), NONE)


@pytest.mark.parametrize(
    "truth",
    [
        Truth(),
        Truth(latency=200e-6, byte_seconds=8e-9, fixed=0.2e-3, deviation=0.02),
        Truth(latency=5e-6, byte_seconds=0.05e-9, deviation=0.15, own=0.5e-3),
    ],
)
def test_a_formula_s_numbers_are_found_again_within_5_percent(truth):
    analysis = analysis_of(truth)
    model = analysis.forecast.model
    assert model.inside.algorithm == "ring"
    assert model.inside.link.latency == pytest.approx(truth.latency, rel=0.05)
    assert model.inside.link.byte_seconds == pytest.approx(truth.byte_seconds, rel=0.05)
    assert model.compute.values[1] == pytest.approx(truth.an_example, rel=0.05)
    assert model.alone(75) == pytest.approx(truth.alone(75), rel=0.02)
    assert model.deviation == pytest.approx(truth.deviation, rel=0.05)

    # Efficiency: of the points as measured, and of one beyond them, against the slowest of P drawn in its thousands.
    random = np.random.default_rng(1)
    for workers, batch in [(2, 75), (8, 300), (64, 150)]:
        alone = truth.alone(batch)
        steps = random.normal(alone, truth.deviation * alone, (4000, workers)).max(axis=1)
        step = steps.mean() + truth.ring(workers, 613764) + truth.own
        assert model.efficiency(workers, batch) == pytest.approx(alone / step, rel=0.05)
        measured = [
            each.efficiency.value
            for each in analysis.summaries
            if (each.point.workers, each.point.batch_a_worker) == (workers, batch)
            and each.point.scaling == "weak"
        ]
        assert measured == pytest.approx([alone / step] * len(measured), rel=0.05)


def test_the_intervals_hold_the_truth_and_the_checks_are_near():
    analysis = analysis_of(Truth())
    prediction = Predictor(analysis.forecast.model).weak(75)[3]
    assert (
        prediction.step_seconds.low < prediction.step_seconds.value < prediction.step_seconds.high
    )
    found = analysis.checks
    assert {check.left_out for check in found} == {"its batch"}
    assert len(found) == 12
    assert max(abs(check.error) for check in found) < 0.05 < GOAL
    for line in analysis.lines:
        assert np.nanmax(np.abs(line.left_out)) < 0.1


def test_a_wrong_model_is_seen_by_its_checks():
    """One batch that costs twice what the line through the others says."""
    measurements = study(Truth())
    slow = tuple(
        dataclasses.replace(each, seconds=2 * each.seconds) if each.point.batch_a_worker == 150 else each
        for each in measurements.repetitions
    )  # fmt: skip
    found = Analysis(dataclasses.replace(measurements, repetitions=slow), NONE).checks
    wrong = [check.error for check in found if check.summary.point.batch_a_worker == 150]
    assert min(np.abs(wrong)) > GOAL


def test_one_worker_count_leaves_the_growth_of_the_latency_open():
    of_one = analysis_of(Truth(), workers=(2,)).forecast.model
    of_three = analysis_of(Truth()).forecast.model
    assert of_one.inside.growth == "logarithmic"
    widths = []
    for model in (of_one, of_three):
        last = Predictor(model).weak(75)[-1]
        assert last.workers == 1024
        widths.append(last.efficiency.high / last.efficiency.low)
        # The true step at 1,024 workers, by the ring's own formula.
        truth = 75 * 20e-6 + 0.5e-3
        step = truth * (1 + 0.05 * 3.2) + Truth().ring(1024, 613764) + 1e-4
        assert last.efficiency.low < 1.05 * truth / step
        assert last.efficiency.high > 0.95 * truth / step
    assert widths[0] > 3 * widths[1]


# Cho, Finkler, Kumar, Kung, Saxena and Sreedhar (2017), PowerAI DDL, arXiv:1708.02188, table of ResNet-50 with Caffe:
# GPUs -> (speed-up over one node of 4 GPUs, scaling efficiency as printed).
IBM = {
    4: (1.0, 1.00), 8: (2.0, 1.00), 16: (3.9, 0.98), 32: (7.9, 0.99), 64: (15.5, 0.97), 128: (30.5, 0.95),
    256: (60.6, 0.95),
}  # fmt: skip


def test_the_published_table_of_ibm_gives_the_published_efficiencies():
    """Its unit is the node of four GPUs: that is the one worker which everything is divided by."""
    repetitions = []
    for gpus, (speedup, _) in IBM.items():
        nodes = gpus // 4
        point = Point(
            backend="single" if nodes == 1 else "ddl",
            workers=nodes,
            global_batch_size=128 * nodes,
            batch_a_worker=128,
            scaling="weak",
            hardware="S822LC, 4 × P100",
            model=Model("ResNet-50", 25_557_032, 102_228_128),
            dataset_size=1_281_167,
            nodes=nodes,
            collectives="" if nodes == 1 else "ddl",
        )
        repetitions.append(Repetition(point, 0, 100, 100 * nodes / speedup))
    summaries = summarise(Measurements(tuple(repetitions)))
    assert len(summaries) == len(IBM)
    for summary in summaries:
        speedup, efficiency = IBM[4 * summary.point.workers]
        assert summary.speedup.value == pytest.approx(speedup)
        assert summary.efficiency.value == pytest.approx(efficiency, abs=0.0051)  # as printed
    (group,) = series(summaries, "weak").values()
    # As a line: each node added brings 95 % of a node.
    assert added_worker(group).value == pytest.approx(0.95, abs=0.005)


def test_amdahl_s_share_and_the_worth_of_a_worker_are_those_put_in():
    """Times by Amdahl's law with 8 % that stays, and weak scaling in which each worker adds 0.7."""

    def of(workers, scaling, seconds):
        batch = 100 if scaling == "weak" else 800 // workers
        point = Point(
            "single" if workers == 1 else "horovod", workers, workers * batch, batch, scaling, "x",
            Model("m", 1, 4), 1000, collectives="" if workers == 1 else "mpi",
        )  # fmt: skip
        return [Repetition(point, number, 10, 10 * seconds) for number in range(3)]

    strong = [of(p, "strong", 0.08 + 0.92 / p) for p in (1, 2, 4, 8)]
    weak = [of(p, "weak", p / (1 + 0.7 * (p - 1))) for p in (1, 2, 4, 8)]
    summaries = summarise(Measurements(tuple(each for group in strong + weak for each in group)))
    (group,) = series(summaries, "strong").values()
    share = amdahl_share(group)
    assert (share.low, share.value, share.high) == pytest.approx((0.08, 0.08, 0.08))
    (group,) = series(summaries, "weak").values()
    assert added_worker(group).value == pytest.approx(0.7)


TRAINED = study(Truth(), workers=(2, 4), batches=(75, 150), rounds=3, trained=True)


@pytest.fixture(scope="module")
def analysis():
    return Analysis(TRAINED, Assumptions(price_per_hour=3.0, watts_a_worker=200.0))


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
    for cost in Analysis(measured, Assumptions(watts_a_worker=200.0)).costs:
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
    inside = Analysis(TRAINED, Assumptions()).forecast.model
    measured = Analysis(both, Assumptions()).forecast.model
    assumed = Analysis(
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
    of_line = Analysis(TRAINED, Assumptions())
    found = Analysis(dataclasses.replace(TRAINED, allreduces=(*TRAINED.allreduces, *here)), Assumptions())  # fmt: skip
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
    assert choose(small, 8, 75, None).startswith(
        "Data parallelism exchanges fastest among 8 workers of 75"
    )

    # 16.8 million weights in two layers, one example a worker: few activations, many weights.
    wide = Model("wide", 1, 1, (
        dataclasses.replace(WEIGHTS[4], path="a/kernel", shape=(2048, 4096)),
        dataclasses.replace(WEIGHTS[4], path="b/kernel", shape=(4096, 2048)),
        dataclasses.replace(WEIGHTS[4], path="c/kernel", shape=(2048, 2)),
    ))  # fmt: skip
    found = options(wide, 8, 1, link)
    assert choose(found, 8, 1, None).startswith("Tensor parallelism")
    # Not enough memory for whole copies.
    least = min(option.memory_bytes for option in found)
    assert "Data parallelism" not in choose(found, 8, 1, least + 1)
    assert choose(found, 8, 1, least - 1).startswith("None of data, tensor and sharded")
    assert options(dataclasses.replace(MODEL, weights=()), 8, 75, link) == []


def test_without_all_reduces_or_baselines_less_is_said_but_nothing_fails():
    without = Analysis(dataclasses.replace(TRAINED, allreduces=()), Assumptions())
    assert without.forecast is None
    assert without.best is not None
    lonely = tuple(each for each in TRAINED.repetitions if each.point.workers > 1)
    assert Analysis(dataclasses.replace(TRAINED, repetitions=lonely), Assumptions()).best is None
    assert Analysis(Measurements(), Assumptions()).summaries == []


def test_assumptions_are_kept_and_checked(tmp_path):
    assert read_assumptions(tmp_path) == Assumptions()
    write_assumptions(tmp_path, Assumptions(price_per_hour=2.0))
    assert read_assumptions(tmp_path) == Assumptions(price_per_hour=2.0)
    with pytest.raises(ValueError, match="price_per_hour is -1"):
        Assumptions(price_per_hour=-1)

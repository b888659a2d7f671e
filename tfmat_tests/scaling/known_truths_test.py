"""Studies whose answer is known: drawn from stated numbers, or published."""

import dataclasses

import numpy as np
import pytest

from tfmat.scaling.model import (
    GOAL,
    Predictor,
    added_worker,
    amdahl_share,
    checks,
    line_fits,
    main_model,
    series,
    summarise,
)
from tfmat.scaling.study import Assumptions, Measurements, Model, Point, Repetition
from tfmat_tests.scaling.synthetic import Truth, study

NONE = Assumptions()


def fitted(truth, **changes):
    measurements = study(truth, **changes)
    summaries = summarise(measurements)
    return measurements, summaries, main_model(measurements, summaries, NONE)


@pytest.mark.parametrize(
    "truth",
    [
        Truth(),
        Truth(latency=200e-6, byte_seconds=8e-9, fixed=0.2e-3, deviation=0.02),
        Truth(latency=5e-6, byte_seconds=0.05e-9, deviation=0.15, own=0.5e-3),
    ],
)
def test_a_formula_s_numbers_are_found_again_within_5_percent(truth):
    _, summaries, (_, model) = fitted(truth)
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
            for each in summaries
            if (each.point.workers, each.point.batch_a_worker) == (workers, batch)
            and each.point.scaling == "weak"
        ]
        assert measured == pytest.approx([alone / step] * len(measured), rel=0.05)


def test_the_intervals_hold_the_truth_and_the_checks_are_near():
    truth = Truth()
    measurements, _, (combination, model) = fitted(truth)
    prediction = Predictor(model).weak(75, workers=[8])[0]
    assert (
        prediction.step_seconds.low < prediction.step_seconds.value < prediction.step_seconds.high
    )
    found = checks(combination, measurements.allreduces, NONE)
    assert {check.left_out for check in found} == {"its batch"}
    assert len(found) == 12
    assert max(abs(check.error) for check in found) < 0.05 < GOAL
    for line in line_fits(measurements.allreduces):
        assert np.nanmax(np.abs(line.left_out)) < 0.1


def test_a_wrong_model_is_seen_by_its_checks():
    """One batch that costs twice what the line through the others says."""
    measurements = study(Truth())
    slow = tuple(
        dataclasses.replace(each, seconds=2 * each.seconds) if each.point.batch_a_worker == 150 else each
        for each in measurements.repetitions
    )  # fmt: skip
    measurements = dataclasses.replace(measurements, repetitions=slow)
    combination, _ = main_model(measurements, summarise(measurements), NONE)
    found = checks(combination, measurements.allreduces, NONE)
    wrong = [check.error for check in found if check.summary.point.batch_a_worker == 150]
    assert min(np.abs(wrong)) > GOAL


def test_one_worker_count_leaves_the_growth_of_the_latency_open():
    _, _, (_, of_one) = fitted(Truth(), workers=(2,))
    _, _, (_, of_three) = fitted(Truth())
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

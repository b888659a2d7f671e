"""What pays on a network: against a study that is drawn from stated numbers, and bytes counted by hand."""

import dataclasses

import pytest

from tfmat.backends.registry import EXCHANGES
from tfmat.scaling.model import GOAL, LOSS, Analysis, recommend
from tfmat.scaling.study import Assumptions, Measurements, Meeting, RankUse, Repetition, messages
from tfmat_tests.scaling.synthetic import WEIGHTS, Truth, study

# What is not in the two large kernels: all else of 153,441 numbers travels as it is.
WHOLE, LARGE, ROWS, COLUMNS = 613_764, 150_000, 1_200, 125


@pytest.mark.parametrize(
    ("exchange", "sizes", "every"),
    [
        ("", [WHOLE], 1),
        ("local_steps=16,overlap_meetings=true", [WHOLE], 16),
        ("compression=fp16", [WHOLE / 2], 1),
        (
            "compression=bf16",
            [WHOLE],
            1,
        ),  # of four workers each sends three parts, a sum one and a half
        ("compression=int8", [LARGE, WHOLE - 4 * LARGE], 1),
        ("compression=topk", [1_500 * 8 * 2, WHOLE - 4 * LARGE], 1),
        ("compression=powersgd", [WHOLE - 4 * LARGE + 16 * ROWS, 16 * COLUMNS], 1),
        ("local_steps=50,compression=fp16", [WHOLE / 2], 50),
    ],
)
def test_messages_are_counted_by_hand(exchange, sizes, every):
    overlaps = "overlap" in exchange
    assert messages("averaging=true", WEIGHTS, 4) is None
    assert messages(exchange, WEIGHTS, 4) == (sizes, every, overlaps)


def test_messages_of_every_exchange_are_known():
    """A new exchange needs its sizes in `messages`, too: without them the model of times cannot predict it."""
    for name in EXCHANGES:
        assert messages(f"compression={name}", WEIGHTS, 4) is not None


# A slow network, and one that is none.
SLOW = Truth(latency=5e-3, byte_seconds=80e-9, noise=0.001, deviation=0.0)
FAST = Truth(latency=1e-6, byte_seconds=0.01e-9, noise=0.001, deviation=0.0, own=0.0)


def with_local_steps(truth, every):
    """The study with a way that meets once in so many steps, by the formula that the times are drawn from."""
    found = study(truth, workers=(4,), batches=(75,), rounds=3)
    step = truth.alone(75) + (truth.ring(4, WHOLE) + truth.own) / every
    point = next(e.point for e in found.repetitions if e.point.workers == 4 and e.point.scaling == "weak")  # fmt: skip
    local = dataclasses.replace(point, exchange=f"local_steps={every}")
    return Measurements(
        (*found.repetitions, *(Repetition(local, i, 100, 100 * step) for i in range(3))),
        found.allreduces,
    )


def test_a_way_is_predicted_from_messages_and_what_is_left_of_exact_sums():
    analysis = Analysis(with_local_steps(SLOW, 50), Assumptions())
    (group,) = analysis.ways
    of = {way.exchange: way for way in group}
    # Nothing is predicted by MPI, whose sums were not measured.
    assert set(of) == {text for text in LOSS if "overlap" not in text}
    assert abs(of["local_steps=50"].error) < 0.02 < GOAL
    # Half the bytes: the same messages in a ring of four, at half the time for bytes.
    step = SLOW.alone(75) + SLOW.ring(4, WHOLE // 2) + SLOW.own
    assert of["compression=fp16"].predicted == pytest.approx(step, rel=0.05)
    text = recommend(group)
    assert "--config.local_steps=16 makes" in text
    assert "--config.local_steps=50 --config.compression=fp16" in text and "13 % more" in text


def test_what_a_sum_costs_in_a_step_is_counted_for_each_sum():
    """A sum of n bytes takes n seconds by itself: more or less in a step, never less than nothing, by hand."""
    two, alone = Meeting([3.0, 1.0], 1, False), 10.0
    assert two.seconds(alone, 0.5, float) == 10 + 3.5 + 1.5
    assert two.seconds(alone, -0.5, float) == 10 + 2.5 + 0.5
    assert two.seconds(alone, -2.0, float) == 10 + 1
    overlapped = Meeting([30.0], 2, True)
    assert overlapped.seconds(alone, 1.0, float) == 15 + 0.5
    assert overlapped.seconds(alone, -12.0, float) == 10


OVERLAP = "local_steps=16,overlap_meetings=true"
# Beside Horovod's: MPI starts a message in half the time.
MPI = dataclasses.replace(SLOW, latency=2.5e-3)


def with_other_backends():
    """The study with exact sums and overlapped meetings over MPI, and averaging, by the formulas of their times."""
    found = with_local_steps(SLOW, 16)
    point = next(e.point for e in found.repetitions if e.point.exchange)
    exact = dataclasses.replace(point, backend="mpi", collectives="bare mpi", exchange="")
    alone, sums = SLOW.alone(75), MPI.ring(4, WHOLE)
    times = {
        exact: alone + sums + 0.3e-3,
        dataclasses.replace(exact, exchange=OVERLAP): max(alone, sums / 16) + 0.3e-3 / 16,
        dataclasses.replace(
            exact,
            backend="asynchronous",
            collectives="",
            transport="tcp",
            exchange="averaging=true",
        ): alone,
    }
    sent = (RankUse(0, bytes_sent_per_step=1000), RankUse(1, bytes_sent_per_step=3000))
    repetitions = [
        Repetition(each, i, 100, 100 * step, ranks=sent)
        for each, step in times.items()
        for i in range(3)
    ]
    lines = [
        dataclasses.replace(
            line,
            library="bare mpi",
            **dict.fromkeys(
                ("median_seconds", "low_seconds", "high_seconds"), MPI.ring(4, line.bytes)
            ),
        )
        for line in found.allreduces
    ]
    return Measurements((*found.repetitions, *repetitions), (*found.allreduces, *lines)), times


def test_mpi_is_predicted_from_its_own_sums_and_averaging_is_not():
    measurements, times = with_other_backends()
    (group,) = Analysis(measurements, Assumptions()).ways
    of = {(way.backend, way.exchange): way for way in group}
    assert group[0] is of["horovod", ""] and group[0].times_faster == 1
    by_mpi, overlapped = of["mpi", ""], of["mpi", OVERLAP]
    assert by_mpi.predicted is None and by_mpi.loss_ratio == 1
    assert by_mpi.times_faster == pytest.approx(group[0].measured / by_mpi.measured)
    assert abs(overlapped.error) < 0.02
    # Of MPI's sums and steps alone, with half the bytes: not measured, so predicted.
    half = of["mpi", OVERLAP + ",compression=fp16"]
    step = max(SLOW.alone(75), MPI.ring(4, WHOLE // 2) / 16)
    assert half.measured is None and half.predicted == pytest.approx(step, rel=0.05)
    averaging = of["asynchronous", "averaging=true"]
    assert (averaging.predicted, averaging.loss_ratio, averaging.bytes_per_step) == (
        None,
        None,
        2000,
    )
    assert averaging.times_faster == pytest.approx(
        group[0].measured / list(times.values())[-1], rel=1e-6
    )
    text = recommend(group)
    assert "--backend=horovod --config.local_steps=16 makes" in text
    assert "--backend=mpi --config.local_steps=16 --config.overlap_meetings=true makes" in text
    assert "averaging" not in text  # its loss is not known


def test_where_only_mpi_was_measured_its_sums_are_what_others_are_compared_with():
    measurements, _ = with_other_backends()
    of_mpi = [e for e in measurements.repetitions if e.point.backend in ("single", "mpi")]
    (group,) = Analysis(dataclasses.replace(measurements, repetitions=tuple(of_mpi)), Assumptions()).ways  # fmt: skip
    assert (group[0].backend, group[0].exchange, group[0].times_faster) == ("mpi", "", 1)
    assert next(way for way in group if way.exchange == OVERLAP).times_faster > 5


def test_where_the_network_costs_nothing_sums_stay_exact():
    (group,) = Analysis(with_local_steps(FAST, 50), Assumptions()).ways
    assert "leave the sums of 4 workers" in recommend(group)


def test_a_study_within_one_machine_recommends_nothing():
    assert Analysis(study(SLOW, workers=(2,), batches=(75,), rounds=2), Assumptions()).ways == []

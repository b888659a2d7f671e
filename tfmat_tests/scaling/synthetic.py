"""A study whose truth is known: times drawn from a stated model, in the form in which real ones are measured."""

import dataclasses

import numpy as np

from tfmat.backends.layouts import Weight
from tfmat.launch.machine import Machine
from tfmat.launch.machine import Session as Start
from tfmat.scaling.study import (
    AllReduce,
    Measurements,
    Model,
    Point,
    RankUse,
    Repetition,
    Session,
    TrainingLine,
)

# The kernels and biases of the project's default network: 153,441 parameters for two labels.
WEIGHTS = (
    Weight("conv1/kernel", (7, 3, 16)), Weight("conv1/bias", (16,)),
    Weight("conv2/kernel", (7, 16, 24)), Weight("conv2/bias", (24,)),
    Weight("hidden/kernel", (1200, 125)), Weight("hidden/bias", (125,)),
    Weight("labels/kernel", (125, 2)), Weight("labels/bias", (2,)),
)  # fmt: skip
MODEL = Model("default", 153441, 613764, WEIGHTS)
SIZES = tuple(2**k for k in range(10, 27, 2))  # 1 kB to 64 MB
SESSION = Session(
    0,
    Start(
        started="2026-01-02T03:04:05+00:00",
        command="made by tfmat_tests/scaling/synthetic.py",
        versions={"tfmat": "0.1.0"},
        machine=Machine("nowhere", "none", "a formula", 8, 16.0, []),
    ),
)


@dataclasses.dataclass(frozen=True)
class Truth:
    """What the times are drawn from: seconds, seconds a byte, seconds an example, σ over a step, relative noise."""

    latency: float = 20e-6
    byte_seconds: float = 0.5e-9
    fixed: float = 0.5e-3
    an_example: float = 20e-6
    deviation: float = 0.05
    own: float = 0.1e-3
    noise: float = 0.01

    def alone(self, batch: int) -> float:
        return self.fixed + self.an_example * batch

    def ring(self, workers: int, num_bytes: int) -> float:
        """Thakur et al. (2005): 2(P - 1)(α + N/P β)."""
        return 2 * (workers - 1) * (self.latency + num_bytes / workers * self.byte_seconds)


def study(
    truth: Truth,
    *,
    workers: tuple[int, ...] = (2, 4, 8),
    batches: tuple[int, ...] = (75, 150, 300),
    rounds: int = 5,
    label: str = "synthetic: made by a formula, not measured",
    trained: bool = False,
) -> Measurements:
    """Weak scaling at each batch, strong scaling of 600 examples, all-reduces; the last worker count on two nodes."""
    random = np.random.default_rng(7)
    repetitions = []
    for number in range(rounds):
        for batch in sorted({*batches, 600}):
            repetitions.append(
                _repetition(truth, random, _point(1, batch, "weak"), number, trained)
            )
        for batch in batches:
            for count in workers:
                point = _point(count, batch, "weak")
                repetitions.append(_repetition(truth, random, point, number, trained))
        for count in workers:
            point = _point(count, 600 // count, "strong")
            repetitions.append(_repetition(truth, random, point, number, False))
    lines = [
        _allreduce(truth, random, count, size, number)
        for number in range(rounds)
        for count in workers
        for size in SIZES
    ]
    return Measurements(tuple(repetitions), tuple(lines), (SESSION,), label)


def _point(workers: int, batch: int, scaling: str) -> Point:
    several = workers > 1
    return Point(
        backend="horovod" if several else "single",
        workers=workers,
        global_batch_size=workers * batch,
        batch_a_worker=batch,
        scaling=scaling,
        hardware="synthetic",
        model=MODEL,
        dataset_size=75000,
        ranks_per_node=workers,
        collectives="mpi" if several else "",
        transport="shared memory" if several else "",
    )


def _repetition(
    truth: Truth, random: np.random.Generator, point: Point, number: int, trained: bool
) -> Repetition:
    """200 steps, each as slow as its slowest worker."""
    steps, alone = 200, truth.alone(point.batch_a_worker)
    deviation = truth.deviation * alone
    times = random.normal(alone, deviation, (steps, point.workers))
    slowest = times.max(axis=1)
    moving = truth.ring(point.workers, point.model.gradient_bytes) if point.workers > 1 else 0.0
    own = truth.own if point.workers > 1 else 0.0
    step = (float(slowest.mean()) + moving + own) * float(np.exp(random.normal(0, truth.noise)))
    ranks = tuple(
        RankUse(
            rank=rank,
            node="nowhere",
            forward_backward=round(0.9 * float(times[:, rank].mean()), 9),
            optimizer=round(0.1 * float(times[:, rank].mean()), 9),
            waiting=round(float((slowest - times[:, rank]).mean()), 9) if moving else None,
            moving=round(moving, 9) if moving else None,
            host=own or None,
            step_deviation=round(float(times[:, rank].std()), 9),
            cpu_utilisation=0.9,
            memory_bytes=300_000_000,
        )
        for rank in range(point.workers)
    )
    training = _training(point, step, random) if trained and number < 2 else ()
    return Repetition(
        point,
        number,
        steps,
        round(steps * step, 9),
        started=SESSION.content.started,
        ranks=ranks,
        training=training,
        peak_memory_bytes=300_000_000 * point.workers,
    )


def _training(point: Point, step: float, random: np.random.Generator) -> tuple[TrainingLine, ...]:
    """Losses that fall as a power of the epoch, the slower the larger the batch."""
    lines = []
    for epoch in range(1, 9):
        loss = 0.05 * (1 + point.global_batch_size / 600) * epoch**-1.2
        seconds = epoch * point.steps_an_epoch * step
        val = 1.1 * loss * float(np.exp(random.normal(0, 0.02)))
        lines.append(TrainingLine(round(seconds, 6), float(epoch), round(loss, 8), round(val, 8)))
    return tuple(lines)


def _allreduce(
    truth: Truth, random: np.random.Generator, workers: int, size: int, number: int
) -> AllReduce:
    seconds = truth.ring(workers, size) * float(np.exp(random.normal(0, truth.noise)))
    return AllReduce(
        library="mpi", workers=workers, bytes=size, median_seconds=seconds, low_seconds=0.98 * seconds,
        high_seconds=1.03 * seconds, repetitions=50, hardware="synthetic", transport="shared memory",
        ranks_per_node=workers, round=number,
    )  # fmt: skip

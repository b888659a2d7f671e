"""Compressed gradients against the papers' algorithms in NumPy: workers as threads, and under real mpirun."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends.base import Collectives
from tfmat.backends.exchange import Exchange
from tfmat.backends.local_steps import Meetings, OverlappedMeetings
from tfmat.backends.registry import make_exchange
from tfmat.config import Parallelism
from tfmat.errors import InputError
from tfmat_tests.backends.numpy_exchange import SHAPES, NumpyExchange, some_gradients
from tfmat_tests.backends.threads import Threads

WORKERS = 3
WITH_FEEDBACK = ("int8", "sign", "topk", "powersgd")


def _exchange_all(name, gradients, workers=WORKERS):
    """(totals[step][i], kept values by name) of each worker."""
    weights = [tf.zeros(shape, tf.float64) for shape in SHAPES]

    def work(rank, collectives):
        exchange = make_exchange(collectives, weights, Parallelism(compression=name))
        kept = [tf.constant(each.initial) for each in exchange.kept]
        found = []
        for own in gradients:
            mine = [tf.constant(g) for g in own[rank]]
            totals, (loss,), kept = exchange(mine, [tf.constant(0.5)], kept)
            assert float(loss) == 0.5 * workers  # never compressed
            found.append([total.numpy() for total in totals])
        names = [each.name for each in exchange.kept]
        return found, dict(zip(names, [k.numpy() for k in kept], strict=True))

    return Threads(workers).run(work)


@pytest.mark.parametrize("name", WITH_FEEDBACK)
def test_sums_of_the_papers_algorithm(name):
    gradients = some_gradients(6, WORKERS)
    workers = _exchange_all(name, gradients)
    reference = NumpyExchange(name, SHAPES, WORKERS)
    assert reference.large == [0, 2, 3]
    for step, own in enumerate(gradients):
        for i, expected in enumerate(reference.sum(own)):
            for found, _ in workers:
                np.testing.assert_allclose(
                    found[step][i], expected, rtol=1e-9, atol=1e-9, err_msg=f"{step} {i}"
                )
                np.testing.assert_array_equal(found[step][i], workers[0][0][step][i])


@pytest.mark.parametrize(("name", "bits"), [("fp16", 11), ("bf16", 8)])
def test_halves_are_right_to_their_bits(name, bits):
    gradients = some_gradients(1, WORKERS)
    for found, kept in _exchange_all(name, gradients):
        assert not kept
        for i, total in enumerate(found[0]):
            exact = sum(own[i] for own in gradients[0])
            # Each of the workers' numbers is rounded once, and in fp16 each partial sum: WORKERS - 1 of them.
            bound = 2.0**-bits * sum(abs(own[i]) for own in gradients[0]) * WORKERS
            assert (abs(total - exact) <= 1.01 * bound + 2.0**-24).all()
            assert abs(total - exact).max() > 0


# What a worker sends, by arithmetic: of the 22,080 numbers in large tensors, and of 220 others and the loss as they
# are; a ring sends sums 2 (R - 1) / R times and collections R - 1 times.
LARGE, REST, SUM, COLLECTION = 7 * 16 * 40 + 200 * 60 + 60 * 90, 40 + 180, 4 / 3, 2
RANK_4 = 4 * (7 * 16 + 40 + 200 + 60 + 60 + 90)
BYTES = {
    "none": SUM * (8 * (LARGE + REST) + 4),
    "fp16": SUM * (2 * (LARGE + REST) + 4),
    "bf16": COLLECTION * 2 * (LARGE + REST) + SUM * 4,
    "int8": SUM * (LARGE + 8 * REST + 4 + 3 * 8),
    "sign": COLLECTION * (LARGE // 8 + 3 * 8) + SUM * (8 * REST + 4),
    "topk": COLLECTION * (8 + 4) * (45 + 120 + 54) + SUM * (8 * REST + 4),
    "powersgd": SUM * (8 * (RANK_4 + REST) + 4),
}


def _collectives(workers):
    """To others who have nothing, or the same."""
    made = Collectives()
    made.size = workers
    made._collect = lambda tensors: [tf.stack([tensor] * workers) for tensor in tensors]
    return made


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name):
    weights = [tf.zeros(shape, tf.float64) for shape in SHAPES]
    collectives = _collectives(WORKERS)
    exchange = make_exchange(collectives, weights, Parallelism(compression=name))
    exchange(weights, [tf.constant(0.5)], [tf.constant(each.initial) for each in exchange.kept])
    assert collectives.bytes == pytest.approx(BYTES[name], rel=1e-12)


def test_a_matrix_that_is_zero_comes_to_life_again():
    """Gradients of layers behind a dead one vanish for some steps: no number may become none, or stay zero."""
    gradients = some_gradients(6, WORKERS)
    for own in gradients[1:3]:
        for worker in own:
            worker[2] = np.zeros(SHAPES[2])
    for found, kept in _exchange_all("powersgd", gradients):
        assert all(np.isfinite(value).all() for value in kept.values())
        assert np.linalg.norm(found[-1][2]) > 1


def test_int8_of_too_many_workers_is_refused():
    with pytest.raises(InputError, match="up to 31 workers.*there are 32"):
        make_exchange(_collectives(32), [tf.zeros([100, 100])], Parallelism(compression="int8"))


def test_a_worker_that_is_alone_compresses_nothing():
    exchange = make_exchange(
        Collectives(), [tf.zeros([100, 100])], Parallelism(compression="powersgd")
    )
    assert not exchange.kept


@pytest.mark.parametrize("name", ["none", "powersgd"])
def test_an_outer_step_is_nesterov_on_the_mean(name):
    """Against PyTorch's formulas of SGD with Nesterov momentum, which DiLoCo uses, on what the workers moved."""
    rate, momentum = 0.7, 0.9
    moved = some_gradients(4, WORKERS)
    start = [np.full(shape, 0.3) for shape in SHAPES]
    variables = [tf.Variable(value) for value in start]

    def work(rank, collectives):
        exchange = make_exchange(collectives, variables, Parallelism(compression=name))
        meetings = Meetings(variables, WORKERS, 16, rate, momentum, exchange)
        kept = [tf.constant(each.initial) for each in meetings.kept]
        anchors = [tf.constant(value) for value in start]
        for step in moved:
            own = [tf.constant(m / WORKERS) for m in step[rank]]
            anchors, _, kept = meetings.outer_step(anchors, own, kept)
        return [anchor.numpy() for anchor in anchors]

    found = Threads(WORKERS).run(work)
    reference = NumpyExchange("powersgd", SHAPES, WORKERS)
    expected, velocities = start, [np.zeros(shape) for shape in SHAPES]
    for step in moved:
        parts = [[part / WORKERS for part in own] for own in step]
        totals = [sum(each) for each in zip(*parts, strict=True)]
        gradients = totals if name == "none" else reference.sum(parts)
        velocities = [momentum * v + g for v, g in zip(velocities, gradients, strict=True)]
        expected = [
            w - rate * (g + momentum * v)
            for w, g, v in zip(expected, gradients, velocities, strict=True)
        ]
    for mine in found:
        for a, b in zip(mine, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("steps", "asked", "expected"),
    [
        (15, {}, (1.0, 0.0)),
        (16, {}, (0.7, 0.9)),
        (25, {}, (0.7, 0.9)),
        (26, {}, (1.0, 0.5)),
        (16, {"outer_momentum": 0.0}, (1.0, 0.0)),
        (16, {"overlap_meetings": True}, (0.5, 0.8)),
        (50, {"overlap_meetings": True}, (1.0, 0.5)),
        (16, {"outer_learning_rate": 0.8}, (0.8, 0.5)),
        (50, {"outer_momentum": 0.9}, (1.0, 0.9)),
    ],
)
def test_the_outer_step_follows_the_number_of_local_steps(steps, asked, expected):
    assert Parallelism(local_steps=steps, **asked).outer_step == expected


def test_an_overlapped_exchange_is_under_way_while_steps_are_taken():
    """Each waits for the other to begin, so that one after the other would break the barrier."""
    both = threading.Barrier(2)

    def meet(value):
        both.wait(30)
        return value

    def waiting(tensor):
        return tf.ensure_shape(tf.numpy_function(meet, [tensor], tensor.dtype), tensor.shape)

    weights = [tf.Variable([1.0, 2.0])]
    others = Collectives()
    others._sum = lambda tensors: list(map(waiting, tensors))
    meetings = OverlappedMeetings(weights, 2, 1, 1.0, 0.0, Exchange(others))
    kept = [tf.Variable(each.initial) for each in meetings.kept]
    kept[-1].assign(True)

    @tf.function(autograph=False)
    def run():
        meetings.begin(kept)
        # In a loop, as the steps of a round are: TensorFlow keeps Python's functions side by side in their order.
        step = lambda i, _: (i + 1, waiting(tf.convert_to_tensor(weights[0])))  # noqa: E731
        start = [tf.constant(0), tf.zeros([2])]
        steps = lambda: tf.while_loop(lambda i, _: i < 1, step, start)[1]  # noqa: E731
        return meetings.round(kept, steps)

    np.testing.assert_array_equal(run(), [1.0, 2.0])


def test_meetings_overlap_with_nothing_where_there_are_no_local_steps():
    with pytest.raises(InputError, match="overlap_meetings needs steps between two meetings"):
        Parallelism(overlap_meetings=True)


def test_momentum_with_few_local_steps_is_refused():
    with pytest.raises(InputError, match=r"outer_momentum=0\.5 with local_steps=4 diverges"):
        Parallelism(local_steps=4, outer_momentum=0.5)

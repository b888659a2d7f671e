"""Two workers that compress their gradients, or take steps alone, end with what NumPy and Keras make of the two."""

import numpy as np
import pytest

from tfmat_tests.backends.horovod_rank import WAYS, by_mpi, train_cases
from tfmat_tests.backends.numpy_exchange import SHAPES, NumpyExchange, some_gradients
from tfmat_tests.backends.problem import (
    BATCH_OF_TWO,
    DENSE,
    NUM_EXAMPLES,
    STEPS,
    PlainWorkers,
    keeping_precision,
    relative_error,
    set_precision,
)

pytestmark = pytest.mark.usefixtures("float64")

LOCAL_STEPS = {"compression": "powersgd", "local_steps": 4, "outer_learning_rate": 0.7}
# In the hidden layer there is enough to compress; convolutions would only make the graphs larger.
APART = {
    name: {
        "name": name,
        "precision": "float64",
        "num_examples": NUM_EXAMPLES,
        "batch": BATCH_OF_TWO,
        "optimizer": "nesterov",
        "model": {**DENSE, "hidden_units": (100,)},
        "options": options,
    }
    for name, options in {
        "powersgd": {"compression": "powersgd"},
        "local steps": LOCAL_STEPS,
        "overlapped": {**LOCAL_STEPS, "overlap_meetings": True},
        "overlapped momentum": {"local_steps": 16, "overlap_meetings": True},
    }.items()
}
# Calls are of 5, 9, 3 and 3 steps, since an epoch has 17: they meet after every fourth step of a call and at its end,
# and settle after the second call and every later one.
MEETINGS, SETTLING = (4, 5, 9, 13, 14, 17, 20), (14, 17, 20)


# Exchanges go over the wire by both, alone. Of trainings each has two: one whose meetings overlap, and one that
# compresses gradients, or what workers did alone. --all takes all by both.
BY_MPI = ("powersgd", "overlapped")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run_all):
    """Name of a case, and `exchange-<backend>` of sums without any training -> arrays of rank 0."""
    cases = [by_mpi(case) if name in BY_MPI else case for name, case in APART.items()]
    if run_all:
        cases = [*APART.values(), *map(by_mpi, APART.values())]
    return train_cases(2, cases, tmp_path_factory.mktemp("apart"), *WAYS)


@pytest.fixture(scope="module")
def two_workers():
    with keeping_precision():
        set_precision("float64")
        yield PlainWorkers()


def check(trained, name, weights, sums):
    """All who trained this ended with these weights, and had these sums of losses on the way."""
    several = [trained[key] for key in (name, f"{name}, mpi") if key in trained]
    assert several
    for found in several:
        for i, weight in enumerate(weights):
            assert relative_error(found[f"arr_{i}"], weight) < 1e-9, i
        np.testing.assert_allclose(found["sums"][:, 0], sums, rtol=1e-9)


@pytest.mark.parametrize(
    ("backend", "name"), [(backend, name) for backend, names in WAYS.items() for name in names]
)
def test_exchanges_over_the_wire(name, backend, trained):
    """Four of them one after the other, against NumPy; every rank has the same sums, as each has checked."""
    gradients, found = some_gradients(4, workers=2), trained[f"exchange-{backend}"]
    exact = name in ("fp16", "bf16")
    reference = NumpyExchange(name, SHAPES[:0] if exact else SHAPES, workers=2)
    for step, own in enumerate(gradients):
        for i, expected in enumerate(reference.sum(own)):
            # Each number is rounded once, and an fp16 sum once more.
            most = {"fp16": 2**-10, "bf16": 2**-8}.get(name, 1e-9)
            bound = most * sum(abs(worker[i]) for worker in own) + 1e-7 * exact + 1e-9
            difference = abs(found[f"{name}-{i}"][step] - expected)
            assert (difference <= bound).all(), (step, i)
            assert not exact or difference.max() > 1e-6  # or nothing was rounded on the way


def test_compressed_training_is_that_of_the_paper(trained, two_workers):
    """Twenty steps over two ranks, a batch among them of which the second rank has no example."""
    plain, sums = two_workers.anew(), []
    for step in range(STEPS):
        gradients, total = plain.gradients(step, alone=False)
        totals = plain.exchange.sum(gradients)
        for worker in range(2):
            plain.apply(worker, totals)
        sums.append(total)
    check(trained, "powersgd", plain.models[0].get_weights(), sums)


def test_local_steps_are_those_of_workers_that_are_alone(trained, two_workers):
    plain, sums = two_workers.anew(), []
    anchors = plain.models[0].get_weights()
    for step in range(STEPS):
        sums.append(plain.step_alone(step))
        if step + 1 in MEETINGS:
            mean = plain.mean(plain.moved([anchors, anchors]))
            anchors = [anchor - 0.7 * m for anchor, m in zip(anchors, mean, strict=True)]
            for model in plain.models:
                model.set_weights(anchors)
    check(trained, "local steps", anchors, sums)


@pytest.mark.parametrize("name", ["overlapped", "overlapped momentum"])
def test_overlapped_meetings_bring_the_round_before(name, trained, two_workers):
    """By flat vectors in NumPy.

    With w what a worker has and m the mean over the workers, both at the end of the round before: each adds 0.7 (m - w)
    to what it has now. On top comes what Nesterov's step goes beyond the mean's own way d: d - rate (d + momentum v).
    """
    several = name == "overlapped"
    rate, momentum = (0.7, 0.0) if several else (0.5, 0.8)
    plain, sums = two_workers.anew(), []
    begun = plain.models[0].get_weights()
    zero = [0.0 * weight for weight in begun]
    velocity, beyond, under_way = zero, zero, None

    def combined(function, *lists):
        return [function(*each) for each in zip(*lists, strict=True)]

    for step in range(STEPS):
        sums.append(plain.step_alone(step))
        if step + 1 not in (MEETINGS if several else (5, *SETTLING)):
            continue
        at = [model.get_weights() for model in plain.models]
        way, further = zero, zero
        if under_way:
            way = plain.mean(under_way, compressed=several)
            velocity = combined(lambda v, d: momentum * v + d, velocity, way)
            further = combined(lambda d, v: d - rate * (d + momentum * v), way, velocity)
            own = [combined(lambda u, d: 0.7 * (u - d), each, way) for each in under_way]
        else:
            own = [zero, zero]
        begun = combined(lambda b, d, s: b - d + s, begun, way, beyond)
        under_way = plain.moved([begun, begun])
        at = [
            combined(lambda w, o, s: w + o + s, w, o, further) for w, o in zip(at, own, strict=True)
        ]
        beyond = further
        if step + 1 in SETTLING:
            way = plain.mean(under_way, compressed=several)
            velocity = combined(lambda v, d: momentum * v + d, velocity, way)
            begun = combined(
                lambda b, d, v, s: b - rate * (d + momentum * v) + s, begun, way, velocity, beyond
            )
            at, beyond, under_way = [begun, begun], zero, None
        for model, weights in zip(plain.models, at, strict=True):
            model.set_weights(weights)
    check(trained, name, begun, sums)

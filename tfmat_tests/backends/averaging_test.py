"""Averaging with single other workers, against NumPy and Keras's own loop, in one process and by real ones.

The thresholds were written down before the first run: 1e-9 of a tensor's norm against the simulations, 1e-12 for the
sum of all weights, and nine tenths of what synchronous training takes off the loss in 20 steps.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.backends import make_backend
from tfmat.backends.asynchronous import Peer
from tfmat.launch.processes import Processes
from tfmat.optimizers import make_functional
from tfmat_tests.backends.problem import (
    BATCH,
    OPTIMIZERS,
    STEPS,
    PlainKerasLoop,
    contract_rows,
    keeping_precision,
    make_data,
    make_model,
    relative_error,
    set_precision,
)
from tfmat_tests.mpi import mpirun

# Of two workers one asks the other; of three two ask one, and one part of a batch is often nobody's.
TWO = pytest.param(2, marks=pytest.mark.large)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """(case, workers) -> what these found."""

    @functools.cache
    def of(workers):
        folder = tmp_path_factory.mktemp("averaging")
        done = mpirun(workers, "-m", "tfmat_tests.backends.averaging_rank", folder)
        assert done.returncode == 0, done.stderr
        return {path.stem: np.load(path) for path in folder.glob("*.npz")}

    return lambda case, workers: of(workers)[f"{case}-{workers}"]


@pytest.fixture(scope="module")
def loop():
    """One network and its optimizer, which Keras traces once."""
    with keeping_precision():
        set_precision("float64")
        yield PlainKerasLoop(make_model(), OPTIMIZERS["adam"]())


# Numbers that float32 holds exactly, which Keras makes of them.
ADAM = {"learning_rate": 2**-7, "beta_1": 1 - 2**-3, "beta_2": 1 - 2**-5, "epsilon": 2**-20}


class NumpyWorker:
    """Weights of a worker, Adam (Kingma and Ba 2015, algorithm 1) and a quadratic loss (x - b)' A (x - b) / 2."""

    def __init__(self, random, start):
        factor = random.normal(size=(4, 4))
        self.matrix, self.minimum = factor @ factor.T, random.normal(size=4)
        self.x, self.m, self.v = start.copy(), np.zeros(4), np.zeros(4)

    def gradient(self, at):
        return self.matrix @ (at - self.minimum)

    def step(self, number, gradient):
        rate, beta_1, beta_2, epsilon = ADAM.values()
        self.m = beta_1 * self.m + (1 - beta_1) * gradient
        self.v = beta_2 * self.v + (1 - beta_2) * gradient**2
        rate *= np.sqrt(1 - beta_2 ** (number + 1)) / (1 - beta_1 ** (number + 1))
        self.x = self.x - rate * self.m / (np.sqrt(self.v) + epsilon)


def peer(start):
    """With the same Adam, at step 0."""
    variable = keras.Variable(start, dtype="float64")
    optimizer = make_functional(keras.optimizers.Adam(**ADAM))
    optimizer.build([variable])
    made = Peer(optimizer, [variable])
    made.begin([variable.value], [tf.identity(slot.value) for slot in optimizer.variables])
    return made


class Meanwhile:
    """A partner that answers after something else has happened."""

    def __init__(self, partner, happens):
        self._partner, self._happens = partner, happens

    def average(self, theirs):
        answer = self._partner.average(theirs)
        self._happens()
        return answer


def test_a_given_order_of_exchanges_is_that_of_numpy(float64):
    """Gradients of weights before an averaging, steps while an averaging is under way, three workers, 200 steps."""
    random = np.random.default_rng(0)
    start = random.normal(size=4)
    plain = [NumpyWorker(random, start) for _ in range(3)]
    peers = [peer(start) for _ in range(3)]

    def step(worker, number, version, gradients):
        peers[worker].step(number, version, gradients[0])
        plain[worker].step(number, gradients[1])

    stale = 0
    for number in range(200):
        asker, asked = 2 * int(random.integers(2)), 1
        fetched, gradients = [], []
        for worker, each in enumerate(plain):
            version, flat = peers[worker].fetch(0)
            fetched.append(version)
            gradients.append((each.gradient(flat), each.gradient(each.x)))
        steps = [worker for worker in range(3) if random.uniform() < 0.7]
        # Each step comes before the averaging, while the question or the answer is under way, or after it.
        before, between, after = (
            [w for w, when in zip(steps, moments, strict=True) if when == part]
            for moments in [random.integers(3, size=len(steps))]
            for part in range(3)
        )
        for worker in before:
            step(worker, number, fetched[worker], gradients[worker])

        def meanwhile(number=number, between=between, fetched=fetched, gradients=gradients):
            for worker in between:
                step(worker, number, fetched[worker], gradients[worker])

        mean = (plain[asker].x + plain[asked].x) / 2
        # The one that asked is half way to the answer once it has that; a step in between is added to it.
        moved = mean - plain[asker].x
        plain[asked].x = mean
        peers[asker].average_with(Meanwhile(peers[asked], meanwhile))
        plain[asker].x = plain[asker].x + moved
        for worker in after:
            step(worker, number, fetched[worker], gradients[worker])
            stale += worker in (asker, asked)
    for mine, each in zip(peers, plain, strict=True):
        assert relative_error(mine.fetch(0)[1], each.x) < 1e-9
    assert stale > 20 and sum(each.done.staleness for each in peers) >= stale
    assert max(each.done.largest for each in peers) == 1


def simulate(exchanges, workers, loop):
    """Weights after 20 steps of Keras's train_on_batch on each part, by turns, averaged as `exchanges` says."""
    states = [list(loop.start) for _ in range(workers)]
    partners = {(call, part): (worker, other) for call, part, worker, other in exchanges}
    features, labels = (array.astype("float64") for array in make_data())

    def average(some):
        for i in range(loop.num_weights):
            mean = np.mean([state[i] for state in some], axis=0)
            for state in some:
                state[i] = mean

    first, width = 0, BATCH // workers
    for call, steps in enumerate([5, 9, 6]):
        for part in range(steps * workers):
            step, worker = first + part // workers, part % workers
            rows = contract_rows(step)[worker * width : (worker + 1) * width]
            if len(rows):
                states[worker] = loop.step(states[worker], step, features[rows], labels[rows])
            if (call, part) in partners:
                asker, asked = partners[call, part]
                assert asker == worker and len(rows)
                average([states[asker], states[asked]])
        average(states)
        first += steps
    return states[0][: loop.num_weights]


@pytest.mark.parametrize(
    ("case", "workers"),
    [pytest.param("turns", 2, marks=pytest.mark.large), ("turns", 3), ("every second", 3)],
)
def test_ranks_that_take_turns_are_a_keras_loop(case, workers, found, loop):
    """Real ranks; the 14th batch has parts without examples, which nobody takes a step for."""
    run = found(case, workers)
    exchanges = [tuple(each) for each in run["exchanges"]]
    askers = {2: {0}, 3: {0, 2}}[workers]
    assert {worker for _, _, worker, _ in exchanges} == askers
    assert {partner for _, _, _, partner in exchanges} == {1}
    if case == "turns":
        whole = 19 * len(askers) + 1  # worker 0 alone has examples of the short batch
        assert len(exchanges) == whole
    expected = simulate(exchanges, workers, loop)
    for i, weight in enumerate(expected):
        assert relative_error(run[f"arr_{i}"], weight) < 1e-9
    assert run["steps"] == STEPS


@pytest.mark.parametrize("workers", [TWO, 3])
def test_free_ranks_learn_as_synchronous_ones_do(workers, found, loop, float64):
    model = make_model()
    features, labels = (array.astype("float64") for array in make_data())

    def loss(weights):
        model.set_weights(weights)
        return float(np.mean((model(features).numpy() - labels) ** 2))

    start = loss(model.get_weights())
    synchronous = loss(loop.train(make_data()))
    run = found("free", workers)
    averaged = loss([run[f"arr_{i}"] for i in range(len(model.weights))])
    assert start - averaged > 0.9 * (start - synchronous)
    assert run["steps"] == STEPS and run["sums"].shape[0] == STEPS
    assert 0 < run["figure-consensus_distance"] < 1
    assert 0 < run["figure-averagings_per_step"] <= 1
    assert run["figure-fewest_steps"] <= run["figure-most_steps"]


def test_nobody_waits_for_a_worker_that_does_not_answer(found):
    """Of 15 parts the worker that answers nobody before all are taken has one, and the others had no averaging."""
    run = found("no answer", 3)
    assert run["figure-fewest_steps"] == 1
    assert run["figure-most_steps"] >= 7
    # Each of the two that ask has one question under way, however many steps it takes meanwhile.
    assert run["figure-averagings_per_step"] == pytest.approx(2 / 15, abs=1e-3)
    assert run["steps"] == 5


@pytest.mark.parametrize("workers", [TWO, 3])
def test_parts_that_are_asked_for_ahead_are_each_computed_once(workers, found):
    """In each of three calls, though each worker asks for three parts beyond the call's end."""
    run = found("ahead", workers)
    expected = [(call, part) for call, n in enumerate([5, 9, 6]) for part in range(n * workers)]
    assert [tuple(each) for each in run["exchanges"]] == expected
    assert run["steps"] == STEPS


def test_one_worker_alone_is_the_single_backend():
    """Adam with gradients clipped by the norm of all of them."""
    from tfmat_tests.backends.horovod_rank import build, train

    case = {"precision": "float32", "optimizer": "clipped", "num_examples": 2000}
    states = []
    for name, options in (("single", {}), ("asynchronous", {"averaging": True})):
        with make_backend(name, processes=Processes(), **options) as backend:
            _, start = build(case, backend)
            train(case, backend, make_data(), start)
            states.append(backend.read())
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array)

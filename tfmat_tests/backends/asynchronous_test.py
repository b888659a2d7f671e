"""Asynchronous training and quorums, by real processes, against Keras's own loop and against NumPy."""

import concurrent.futures
import queue
import socket
import time
from unittest import mock

import keras
import numpy as np
import pytest

from tfmat.backends import asynchronous
from tfmat.backends.asynchronous import Shard, divide
from tfmat.data.order import ExampleOrder
from tfmat.launch import watchdog
from tfmat.launch.processes import Processes
from tfmat.launch.watchdog import ByNote, Link, meet, wait_for
from tfmat.optimizers import make_functional
from tfmat_tests.backends.problem import (
    BATCH,
    NUM_EXAMPLES,
    OPTIMIZERS,
    STEPS,
    make_data,
    make_model,
    plain_keras_loop,
    relative_error,
)
from tfmat_tests.mpi import mpirun


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Case -> what three ranks found, of which one is slow."""
    folder = tmp_path_factory.mktemp("asynchronous")
    done = mpirun(3, "-m", "tfmat_tests.backends.asynchronous_rank", folder)
    assert done.returncode == 0, done.stderr
    return {path.stem: np.load(path) for path in folder.glob("*.npz")}


def test_a_quorum_of_all_is_synchronous_training(found, float64):
    """Of LAMB, whose servers must hold whole tensors."""
    expected = plain_keras_loop(make_model(), OPTIMIZERS["lamb"](), make_data())
    for i, weight in enumerate(expected):
        assert relative_error(found["all"][f"arr_{i}"], weight) < 1e-9
    assert found["all"]["figure-dropped_gradients"] == 0


def test_every_example_is_used_once_an_epoch(found):
    run = found["asynchronous"]
    rows = np.concatenate([run[f"rows-{worker}"] for worker in range(3)])
    second = ExampleOrder(NUM_EXAMPLES, seed=5, shard_size=1024).indices(1, 0, 6 * BATCH)
    expected = np.ones(NUM_EXAMPLES, int)  # the first epoch, and six batches of the second
    expected[second] += 1
    np.testing.assert_array_equal(np.bincount(rows, minlength=NUM_EXAMPLES), expected)
    assert run["steps"] == STEPS
    assert 0 < run["figure-mean_staleness"] <= run["figure-max_staleness"] < STEPS
    assert np.isfinite(run["sums"]).all() and (run["sums"] > 0).all()


def test_late_gradients_are_dropped(found):
    run = found["two of three"]
    assert run["steps"] == STEPS
    assert run["figure-dropped_gradients"] >= 1
    assert np.isfinite(run["sums"]).all() and (run["sums"] > 0).all()


def shard(optimizer, quorum=None, scaling="none"):
    """Of one variable [1, 2, 3] in float64, at the begin of a call."""
    variable = keras.Variable(np.array([1.0, 2, 3]), dtype="float64")
    functional = make_functional(optimizer)
    functional.build([variable])
    made = Shard(functional, [variable], quorum, scaling)
    made.begin([variable.value], [slot.value for slot in functional.variables])
    return made


@pytest.mark.parametrize(
    ("scaling", "scales"),
    [
        ("none", (1, 1, 1)),
        ("inverse", (1, 1 / 2, 1 / 3)),
        ("sqrt", (1, (1 / 2) ** 0.5, (1 / 3) ** 0.5)),
    ],
)
def test_gradients_of_older_weights(scaling, scales):
    """Three workers fetched the same weights; SGD at a rate of 0.1 by hand."""
    made = shard(keras.optimizers.SGD(0.1), scaling=scaling)
    gradients = np.random.default_rng(0).normal(size=(3, 3))
    for gradient in gradients:
        made.push(0, 1, 1, gradient)
    expected = [1, 2, 3] - 0.1 * np.asarray(scales) @ gradients
    np.testing.assert_allclose(made.fetch(3)[1], expected, rtol=1e-6)  # the rate is float32
    assert made.figures == (3, 0 + 1 + 2, 2, 0)


def test_the_schedule_goes_by_the_updates_of_the_server():
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    made = shard(keras.optimizers.SGD(rates))
    for _ in range(2):
        made.push(0, 1, 1, np.ones(3))
    np.testing.assert_allclose(made.fetch(2)[1], np.array([1.0, 2, 3]) - 0.75, rtol=1e-12)


def test_the_mean_is_that_of_the_examples_that_came():
    """Parts of 2, 3 and 5 of 10 examples: the first two make the step, the third comes too late."""
    made = shard(keras.optimizers.SGD(0.5), quorum=2)
    parts = np.random.default_rng(0).normal(size=(3, 3))
    for part, examples in zip(parts, (2, 3, 5), strict=True):
        made.push(0, examples, 10, part)
    version, weights = made.fetch(1)
    assert version == 1
    np.testing.assert_allclose(
        weights, [1, 2, 3] - 0.5 * (parts[0] + parts[1]) * 10 / 5, rtol=1e-12
    )
    assert made.figures.dropped == 1


def test_a_silent_stranger_keeps_nobody_from_connecting(monkeypatch, tmp_path):
    """Somebody connects to every port at once, and says nothing; a request between the ranks still has its answer."""
    strangers = []

    def listen(one_node):
        listener, place = watchdog.listen(one_node)
        strangers.append(socket.create_connection(listener.getsockname()))
        return listener, place

    def join(rank):
        processes = Processes(rank, 2, rank, 2, "horovodrun")
        star = meet(processes, ByNote(processes, ""), time.monotonic() + 60)
        asking, asked = asynchronous.connect_all(star)
        asking[1 - rank].send_bytes(b"question")
        said = asked[1 - rank].receive_bytes()
        for connection in (*asking.values(), *asked.values()):
            connection.close()
        star.close()
        return said

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(asynchronous, "listen", listen)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(join, range(2), timeout=60)) == [b"question"] * 2
    for stranger in strangers:
        stranger.close()


def test_a_gradient_that_comes_twice_ends_the_run():
    """Somebody on the way sends a worker's gradient again: the server takes it once, and says what happened."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = Link(socket.create_connection(server.getsockname()), "secret", listens=False)
        link = Link(server.accept()[0], "secret", listens=True)
    for end in (worker, link):
        assert wait_for(end, lambda message: True, time.monotonic() + 60) == ["challenge"]
    star, told = mock.Mock(), queue.SimpleQueue()
    star.fail = told.put
    served = asynchronous.Served(star, {1: link})
    served.shard = shard(keras.optimizers.SGD(0.5))
    connection = worker._connection
    worker._connection = mock.Mock(fileno=connection.fileno)
    worker._connection.send = lambda data: connection.send(data) and connection.send(data)
    remote = asynchronous.RemoteShard(worker)
    remote.push(0, 1, 1, np.ones(3))
    assert isinstance(told.get(timeout=60), watchdog.ForgedMessageError)
    np.testing.assert_array_equal(served.shard.fetch(1)[1], [0.5, 1.5, 2.5])
    assert served.shard.figures.updates == 1
    for end in (worker, link):
        end.close()


@pytest.mark.parametrize(
    ("sizes", "ranks", "expected"),
    [
        # The default network: one tensor is nearly all of it, so another server would relieve the first of nothing.
        ([336, 16, 2_688, 24, 150_000, 125, 250, 2], 4, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ([100, 100, 100, 100], 2, [[0, 2], [1, 3]]),
        ([100, 100, 100, 100], 3, [[0, 2], [1, 3]]),  # three would leave somebody with 200, too
        ([60, 50, 40, 30, 20], 4, [[0], [1], [2], [3, 4]]),
    ],
)
def test_no_more_servers_than_relieve_the_busiest(sizes, ranks, expected):
    assert divide(sizes, ranks) == expected

"""The baselines of tf.distribute really train: against plain Keras, with their real processes."""

import json
import pathlib

import numpy as np
import pytest

from tfmat_tests import mpi
from tfmat_tests.scaling import server_rank, strategies_rank


def keras_adam(steps: int) -> tuple[list[np.ndarray], list[float]]:
    """Weights and losses of Keras' own Adam on the example that all batches consist of."""
    import keras
    import tensorflow as tf

    model, (features, labels) = server_rank.make_model(), server_rank.make_examples()
    optimizer, losses = keras.optimizers.Adam(server_rank.RATE), []
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features[:1]) - labels[:1]) ** 2)
        losses.append(float(loss))
        optimizer.apply(tape.gradient(loss, [v.value for v in model.weights]), model.weights)
    return [v.numpy() for v in model.weights], losses


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("server")
    script = pathlib.Path(server_rank.__file__)
    done = mpi.mpirun(
        server_rank.WORKERS + 2, str(script), str(folder), environment={"PYTHONPATH": mpi.PROJECT}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "chief.json").read_text())


def check_is_keras_adam(answer: dict) -> None:
    """Weights and losses of two calls are those of Keras' Adam: every worker's batch has the same gradient."""
    steps = server_rank.STEPS
    weights, losses = keras_adam(2 * steps)
    for ours, theirs in zip(answer["weights"], weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)
    expected = [np.mean(losses[:steps]), np.mean(losses[steps:])]
    np.testing.assert_allclose(answer["losses"], expected, rtol=1e-3)


def test_synchronous_updates_are_those_of_keras_adam(answer: dict) -> None:
    check_is_keras_adam(answer["synchronous"])


@pytest.mark.parametrize("several", [False, True], ids=["mirrored", "multi_worker_mirrored"])
def test_mirrored_updates_are_those_of_keras_adam(tmp_path: pathlib.Path, several: bool) -> None:
    script, kind = pathlib.Path(strategies_rank.__file__), ["multi"] * several
    processes = server_rank.WORKERS if several else 1
    done = mpi.mpirun(
        processes, str(script), str(tmp_path), *kind, environment={"PYTHONPATH": mpi.PROJECT}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["workers"] == server_rank.WORKERS
    check_is_keras_adam(answer)


def test_asynchronous_workers_update_each_by_itself(answer: dict) -> None:
    first, last = answer["asynchronous"]["losses"]
    assert last < first
    # Twice as many updates as synchronous steps, some with gradients of older weights.
    _, losses = keras_adam(4 * server_rank.STEPS)
    assert losses[-1] / 2 < last < losses[0]
    assert answer["asynchronous"]["weights"] != answer["synchronous"]["weights"]


def test_strangers_knock_in_vain(answer: dict) -> None:
    if "knocks" not in answer:
        pytest.skip("only root can knock as another user")
    assert set(answer["knocks"]) == {"dropped"}
    assert len(answer["knocks"]) == server_rank.WORKERS + 2

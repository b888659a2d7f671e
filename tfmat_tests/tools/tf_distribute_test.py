"""tools/benchmark --part=tf_distribute: TensorFlow's strategies train as plain Keras does; how fast is not asserted."""

import functools
import itertools

import numpy as np
import pytest

from tfmat.config import default_config
from tfmat.scaling import measure
from tfmat_tests.processes import forked_python

BATCH, WORKERS = 4, 2


def keras_losses(config, dataset, steps):
    """Losses of Keras's own Adam on the example that all batches consist of."""
    import keras
    import tensorflow as tf

    from tfmat.networks.factory import build_for

    keras.utils.set_random_seed(0)
    model, losses = build_for(config, dataset), []
    features, labels = dataset.features[:1], dataset.labels[:1]
    optimizer = keras.optimizers.Adam(config.optimizer.learning_rate)
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features, training=True) - labels) ** 2)
        losses.append(float(loss))
        optimizer.apply(tape.gradient(loss, [v.value for v in model.weights]), model.weights)
    return np.array(losses)


@pytest.mark.parametrize(
    "name",
    [
        "mirrored",
        *(pytest.param(name, marks=pytest.mark.large) for name in (
            "multi_worker_mirrored", "synchronous", "asynchronous",
        )),
    ],
)  # fmt: skip
def test_a_strategy_trains_as_keras_does(part, tmp_path, monkeypatch, name):
    """All examples are the same, and so is the gradient of every batch, whoever draws it."""
    command = functools.partial(measure.worker_command, python=forked_python())
    monkeypatch.setattr(measure, "worker_command", command)
    workers = part("workers")
    dataset = workers.make_data(tmp_path, 20)
    for path in dataset.folder.glob("shard-*"):
        rows = np.fromfile(path, "<f4").reshape(len(dataset.labels), -1)
        np.repeat(rows[:1], len(rows), axis=0).tofile(path)
    config = default_config()
    config.model.conv_filters, config.model.kernel_sizes, config.model.hidden_units = (
        (2,),
        (3,),
        (4,),
    )
    config.optimizer.learning_rate = 1e-2
    launches = workers.strategies_of(tmp_path, dataset, WORKERS, [BATCH], 0.0, 0, [name], config)
    answers = []

    def samples_of(launch, found):
        answers.extend(found)
        return workers.samples_of_strategies(launch, found)

    samples, skipped = part("rounds").measure_variants(lambda _: launches, 1, samples_of)
    assert not skipped and samples[0]["rate"] > 0
    losses = answers[0][0]["losses"]
    steps = np.cumsum([0, 10, 10, 10, answers[0][0]["steps"]])
    plain = keras_losses(config, dataset, 2 * steps[-1])
    expected = [plain[i:j].mean() for i, j in itertools.pairwise(steps)]
    if name == "asynchronous":
        # Twice as many updates as there are steps, some with gradients of older weights.
        assert plain[-1] / 2 < losses[-1] < losses[0] < plain[0]
        return
    np.testing.assert_allclose(losses, expected, rtol=1e-3)

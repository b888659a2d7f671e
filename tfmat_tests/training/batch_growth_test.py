"""A batch that grows from epoch to epoch: the same weights as Keras over the same examples, and a resume to the bit."""

import keras
import numpy as np
import pytest

import tfmat
from tfmat.data.order import ExampleOrder
from tfmat.errors import InputError, Interrupted
from tfmat.files import read_json
from tfmat.training import run
from tfmat.training.run_folder import read_metrics

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(1000, 6)).astype(np.float32)
LABELS = (FEATURES @ RANDOM.normal(size=(6, 2))).astype(np.float32)
GROWTH = "1epochs:2,3epochs:5"
BATCHES = (64, 128, 128, 320)


def _model():
    keras.utils.set_random_seed(4)
    layers = keras.layers
    return keras.Sequential([layers.Input((6,)), layers.Dense(16, "tanh"), layers.Dense(2)])


def _fit(model, train_for="4epochs", callbacks=(), **arguments):
    reading = arguments.pop("reading", "auto")
    trainer = tfmat.Trainer(
        model, optimizer=keras.optimizers.SGD(0.05, momentum=0.9), quiet=True, callbacks=callbacks,
        **arguments,
    )  # fmt: skip
    return trainer.fit(
        FEATURES, LABELS, global_batch_size=64, batch_growth=GROWTH, train_for=train_for,
        reading=reading, shard_size=300, validation=(FEATURES[:100], LABELS[:100]),
    )  # fmt: skip


def _keras_loop():
    model = _model()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss="mse")
    order = ExampleOrder(1000, seed=0, shard_size=300)
    for epoch, batch in enumerate(BATCHES):
        for start in range(0, 1000, batch):
            rows = order.indices(epoch, start, min(start + batch, 1000))
            model.train_on_batch(FEATURES[rows], LABELS[rows])
    return model.get_weights()


@pytest.mark.parametrize("reading", ["memory", "stream"])
def test_weights_of_a_plain_keras_loop(reading, tmp_path):
    model = _model()
    result = _fit(model, reading=reading, workdir=str(tmp_path))
    assert result.step == result.total_steps == 16 + 8 + 8 + 4
    for found, expected in zip(model.get_weights(), _keras_loop(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["epoch"]) for line in lines] == [(16, 1), (24, 2), (32, 3), (36, 4)]
    plan = read_json(tmp_path / "config.json")["plan"]
    assert plan["steps"] == 36 and plan["steps_per_epoch"] == 16 and plan["epochs"] == 4
    assert plan["batch_from_epoch"] == {"0": 64, "1": 128, "3": 320}
    assert plan["first_checkpoint_at_step"] == 16
    assert (plan["backend"], plan["processes"], "mesh" in plan) == ("single", 1, False)


def test_a_run_that_was_stopped_in_a_later_epoch_goes_on_to_the_same_bits(tmp_path):
    whole = _model()
    _fit(whole)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch >= 26:  # in the third epoch
                raise Interrupted("enough")

    arguments = {"workdir": str(tmp_path), "checkpoint_every": "0.5epochs", "steps_per_call": 3}
    with pytest.raises(Interrupted):
        _fit(_model(), callbacks=[Stop()], **arguments)
    resumed = _model()
    _fit(resumed, **arguments)
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_time_counts_epochs_of_the_first_batch(monkeypatch):
    """32 steps at the measured rate are two epochs of 16 at the first batch's."""
    monkeypatch.setattr(run, "measure_steps_per_second", lambda *arguments: 8.0)
    assert _fit(_model(), train_for="4s").step == 16 + 8


def test_a_set_with_its_own_batches_is_refused():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(64)
    trainer = tfmat.Trainer(_model(), quiet=True)
    with pytest.raises(InputError, match="batch_growth is for arrays"):
        trainer.fit(dataset, global_batch_size=64, batch_growth=GROWTH)

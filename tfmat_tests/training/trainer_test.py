"""The public trainer with models and data that are not ours: what it learns, for how long, and what callbacks see."""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat
from tfmat.config import Duration, EpochPlan, OptimizerSection
from tfmat.errors import InputError
from tfmat.optimizers import build_optimizer, build_schedule
from tfmat_tests.training.regression import (
    FEATURES,
    LABELS,
    TRAIN,
    VALIDATION,
    flat_weights,
    make_model,
    make_trainer,
)


def test_losses_are_those_of_keras_evaluate():
    trainer = make_trainer(metrics={"mae": "mae"})
    result = trainer.fit(*TRAIN, global_batch_size=64, train_for="3epochs", validation=VALIDATION)
    assert result.step == 3 * 13  # 800 / 64 rounded up: the partial batch trains too
    model = trainer.model
    model.compile(loss="mse", metrics=["mae"])
    mse, mae = model.evaluate(*VALIDATION, verbose=0)
    assert result.history["val_loss"][-1] == pytest.approx(mse, rel=1e-5)
    assert result.history["val_mae"][-1] == pytest.approx(mae, rel=1e-5)
    assert trainer.evaluate(*VALIDATION)["loss"] == pytest.approx(mse, rel=1e-5)
    assert result.history["loss"][2] < result.history["loss"][0]


def test_every_example_counts_once_an_epoch():
    """With learning rate zero the epoch's loss is the plain mean over all examples, the partial batch included."""
    model = make_model()
    expected = float(np.mean((model.predict(TRAIN[0], verbose=0) - TRAIN[1]) ** 2))
    result = make_trainer(model, optimizer=keras.optimizers.SGD(0.0)).fit(
        *TRAIN, global_batch_size=300
    )
    assert result.history["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_a_compiled_model_is_taken_as_it_is(tmp_path, capfd):
    """Loss, optimizer and metrics as in `fit`, on a batch of all examples; what is given to the Trainer goes before."""
    classes = (TRAIN[1][:, :1] > 0).astype("f")
    models = make_model(), make_model()
    for model in models:
        model.compile(keras.optimizers.SGD(0.1), "mae", metrics=["accuracy"])
    trainer = tfmat.Trainer(models[0], workdir=tmp_path)
    result = trainer.fit(TRAIN[0], TRAIN[1], global_batch_size=800, train_for="3epochs")
    history = models[1].fit(*TRAIN, batch_size=800, epochs=3, verbose=0).history
    np.testing.assert_allclose(*map(flat_weights, models), rtol=1e-5, atol=1e-6)
    assert result.history["accuracy"] == pytest.approx(history["accuracy"], abs=1e-6)
    first, *later = [line for line in capfd.readouterr().err.splitlines() if "epoch " in line]
    assert first.endswith(
        " examples/s with compiling"
    )  # not curves, and no time left by such a rate
    assert all(re.search(r" examples/s  0:\d\d left$", line) for line in later) and len(later) == 2
    other = tfmat.Trainer(make_model(), loss="mae", metrics=["accuracy"], quiet=True)
    assert "accuracy" in other.evaluate(TRAIN[0], np.repeat(classes, 2, axis=1))
    with pytest.raises(InputError, match="SGD is built already"):
        tfmat.Trainer(models[1])
    models[1].compile("adam", "mse", loss_weights=[0.5])
    with pytest.raises(InputError, match="compiled with loss_weights.*; give it a loss"):
        tfmat.Trainer(models[1])


@pytest.mark.parametrize("every", [None, 4])
def test_a_run_ends_with_averages_as_fit_does(every):
    """A batch of all examples, so that their order is all one."""
    models = make_model(), make_model()
    optimizers = [
        keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=every)
        for _ in models
    ]
    make_trainer(models[0], optimizer=optimizers[0]).fit(
        *TRAIN, global_batch_size=800, train_for="6epochs"
    )
    models[1].compile(optimizers[1], "mse")
    models[1].fit(*TRAIN, batch_size=800, epochs=6, verbose=0)
    np.testing.assert_allclose(*map(flat_weights, models), rtol=1e-4, atol=1e-5)


def test_steps_in_a_call_and_reading_change_nothing():
    weights = []
    for reading, calls in (("memory", 7), ("stream", 1), ("stream", 5), ("stream", 100)):
        trainer = make_trainer(steps_per_call=calls)
        trainer.fit(
            *TRAIN, global_batch_size=64, train_for="2epochs", reading=reading, shard_size=128
        )
        weights.append(flat_weights(trainer.model))
    for other in weights[1:]:
        np.testing.assert_array_equal(other, weights[0])


def test_structures_of_features_and_labels():
    left, right = keras.Input((4,), name="left"), keras.Input((2,), name="right")
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()([left, right]))
    model = keras.Model({"left": left, "right": right}, outputs)
    features = {"left": FEATURES[:, :4].copy(), "right": FEATURES[:, 4:].copy()}
    trainer = make_trainer(model, optimizer=keras.optimizers.Adam(0.05))
    result = trainer.fit(features, LABELS, global_batch_size=50, train_for="20epochs")
    assert result.history["loss"][-1] < 0.05  # least squares leaves the noise, 0.1 ** 2


def test_classification_with_a_keras_loss_object():
    labels = (LABELS[:, 0] > 0).astype(np.int32)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = make_trainer(model, loss=loss, optimizer=keras.optimizers.Adam(0.05))
    trainer.fit(FEATURES, labels, global_batch_size=100, train_for="15epochs")
    model.compile(loss=loss)
    assert trainer.evaluate(FEATURES, labels)["loss"] == pytest.approx(
        model.evaluate(FEATURES, labels, verbose=0), rel=1e-4
    )
    assert np.mean(model.predict(FEATURES, verbose=0).argmax(1) == labels) > 0.95


def test_a_tf_data_set_trains_in_its_own_order():
    """Against Keras fit on the same set, its partial batch included."""
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).batch(64)
    reference = make_model()
    reference.compile(keras.optimizers.SGD(0.05), loss="mse")
    reference.fit(dataset, epochs=2, shuffle=False, verbose=0)
    trainer = make_trainer(optimizer=keras.optimizers.SGD(0.05))
    result = trainer.fit(dataset, global_batch_size=64, train_for="2epochs")
    assert result.step == 26
    np.testing.assert_allclose(
        flat_weights(trainer.model), flat_weights(reference), rtol=1e-4, atol=1e-6
    )


def test_a_tf_data_set_of_unknown_length_is_refused():
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).filter(lambda x, y: True).batch(64)
    with pytest.raises(InputError, match="does not know its length"):
        make_trainer().fit(dataset, global_batch_size=64)
    result = make_trainer().fit(
        dataset, global_batch_size=64, steps_per_epoch=13, train_for="2epochs"
    )
    assert result.step == 26


def lower_by_one(labels, outputs):
    return tf.reduce_mean(tf.square(labels - outputs), axis=-1) - 1.0


@pytest.mark.parametrize(("loss", "target"), [("mse", 0.05), (lower_by_one, -0.95)])
def test_the_target_ends_the_run(loss, target):
    trainer = make_trainer(optimizer=keras.optimizers.Adam(0.02), loss=loss)
    result = trainer.fit(
        *TRAIN,
        global_batch_size=50,
        train_for="500epochs",
        validation=VALIDATION,
        target_val_loss=target,
    )
    assert result.step < 8000 and f"reached the target {target}" in result.reason
    assert result.history["val_loss"][-1] <= target < result.history["val_loss"][-2]


def test_a_time_is_turned_into_steps_once_also_for_a_schedule(tmp_path, monkeypatch):
    """The trial that measures the rate leaves no trace, and its own length is not taken for the run's."""
    section, epochs = OptimizerSection(warmup=Duration(1, "epochs")), EpochPlan(800, 64)
    lengths = []
    monkeypatch.setattr("tfmat.training.run._PROBE_SECONDS", 0.1)

    def optimizer(total_steps, steps_per_epoch):
        lengths.append(total_steps)
        return build_optimizer(section, build_schedule(section, epochs, total_steps))

    trainer = make_trainer(workdir=tmp_path, optimizer=optimizer)
    result = trainer.fit(*TRAIN, global_batch_size=64, train_for="0.3s")
    # More than one call of the graph.
    assert json.loads((tmp_path / "config.json").read_text())["total_steps"] == result.step > 13
    assert lengths[-1] == result.step
    same = make_trainer(optimizer=optimizer)
    same.fit(*TRAIN, global_batch_size=64, train_for=f"{result.step}steps")
    np.testing.assert_array_equal(flat_weights(trainer.model), flat_weights(same.model))


def test_callbacks_that_change_the_learning_rate_are_refused():
    plateau = keras.callbacks.ReduceLROnPlateau()
    said = "ReduceLROnPlateau cannot be used here; use a schedule in the optimizer"
    with pytest.raises(InputError, match=said):
        make_trainer(callbacks=[plateau]).fit(*TRAIN, global_batch_size=64)

    class Changes(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.1

    with pytest.raises(InputError, match="changed the learning rate in on_epoch_end"):
        make_trainer(callbacks=[Changes()]).fit(*TRAIN, global_batch_size=64)


def test_keras_callbacks_see_what_fit_shows_them(tmp_path):
    seen = []

    class Records(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.append(("train begin", self.params["epochs"], self.params["steps"]))

        def on_epoch_begin(self, epoch, logs=None):
            seen.append(("epoch begin", epoch))

        def on_epoch_end(self, epoch, logs=None):
            seen.append(("epoch end", epoch, sorted(logs)))

        def on_train_end(self, logs=None):
            seen.append(("train end",))

    callbacks = [
        Records(),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", save_best_only=True),
        keras.callbacks.TensorBoard(tmp_path / "tensorboard", write_graph=False),
    ]
    make_trainer(callbacks=callbacks).fit(
        *TRAIN, global_batch_size=64, train_for="2epochs", validation=VALIDATION
    )
    keys = ["loss", "val_loss"]
    assert seen == [
        ("train begin", 2, 13),
        ("epoch begin", 0),
        ("epoch end", 0, keys),
        ("epoch begin", 1),
        ("epoch end", 1, keys),
        ("train end",),
    ]
    assert (tmp_path / "log.csv").read_text().count("\n") == 3
    assert (tmp_path / "best.keras").exists() and any((tmp_path / "tensorboard").rglob("events*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"global_batch_size": 900}, "global_batch_size is 900, there are 800"),
        ({"global_batch_size": 10, "train_for": "0epochs"}, "less than one step"),
        ({"global_batch_size": 10, "train_for": "3"}, "is not a duration"),
        ({"global_batch_size": 10, "batch_growth": "4:2"}, "'4:2' is no growth of the batch"),
        ({"global_batch_size": 0}, "global_batch_size is 0; it must be 1 or more"),
        ({"global_batch_size": 2, "labels": LABELS[:7]}, "differ in length"),
    ],
)
def test_impossible_runs_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        make_trainer().fit(**{"features": TRAIN[0], "labels": TRAIN[1], **arguments})
    with pytest.raises(InputError, match="trace_steps needs a workdir"):
        make_trainer(trace_steps=3)

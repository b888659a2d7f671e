"""The public trainer with models and data that are not ours."""

import json
import signal
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfmat
from tfmat.config import apply_override, default_config
from tfmat.data.order import ExampleOrder
from tfmat.errors import DivergedError, InputError, Interrupted
from tfmat.optimizers import build_optimizer

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(1000, 6)).astype(np.float32)
LABELS = (FEATURES @ RANDOM.normal(size=(6, 2)) + 0.1 * RANDOM.normal(size=(1000, 2))).astype(
    np.float32
)
TRAIN, VALIDATION = (FEATURES[:800], LABELS[:800]), (FEATURES[800:], LABELS[800:])


def _model(dropout=0.0):
    keras.utils.set_random_seed(4)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((6,)),
            layers.Dense(16, activation="tanh"),
            layers.Dropout(dropout, seed=1),
            layers.Dense(2),
        ]
    )


def _trainer(model=None, **arguments):
    return tfmat.Trainer(model or _model(), **{"optimizer": "adam", "quiet": True, **arguments})


def _weights(model):
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


def test_losses_are_those_of_keras_evaluate():
    trainer = _trainer(metrics={"mae": "mae"})
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
    model = _model()
    expected = float(np.mean((model.predict(TRAIN[0], verbose=0) - TRAIN[1]) ** 2))
    result = _trainer(model, optimizer=keras.optimizers.SGD(0.0)).fit(*TRAIN, global_batch_size=300)
    assert result.history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("reading", ["memory", "stream"])
def test_steps_in_a_call_change_nothing(reading):
    weights = []
    for steps_per_call in (1, 5, 100):
        trainer = _trainer(steps_per_call=steps_per_call)
        trainer.fit(
            *TRAIN, global_batch_size=64, train_for="2epochs", reading=reading, shard_size=128
        )
        weights.append(_weights(trainer.model))
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])


def test_memory_and_stream_see_the_same_examples():
    weights = []
    for reading in ("memory", "stream"):
        trainer = _trainer()
        trainer.fit(
            *TRAIN, global_batch_size=64, train_for="30steps", reading=reading, shard_size=128
        )
        weights.append(_weights(trainer.model))
    np.testing.assert_array_equal(*weights)


def test_structures_of_features_and_labels():
    left, right = keras.Input((4,), name="left"), keras.Input((2,), name="right")
    outputs = keras.layers.Dense(2)(keras.layers.Concatenate()([left, right]))
    model = keras.Model({"left": left, "right": right}, outputs)
    features = {"left": FEATURES[:, :4].copy(), "right": FEATURES[:, 4:].copy()}
    trainer = _trainer(model, optimizer=keras.optimizers.Adam(0.05))
    result = trainer.fit(features, LABELS, global_batch_size=50, train_for="20epochs")
    assert result.history["loss"][-1] < 0.05  # least squares leaves the noise, 0.1 ** 2


def test_classification_with_a_keras_loss_object():
    labels = (LABELS[:, 0] > 0).astype(np.int32)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = _trainer(model, loss=loss, optimizer=keras.optimizers.Adam(0.05))
    trainer.fit(FEATURES, labels, global_batch_size=100, train_for="15epochs")
    model.compile(loss=loss)
    assert trainer.evaluate(FEATURES, labels)["loss"] == pytest.approx(
        model.evaluate(FEATURES, labels, verbose=0), rel=1e-4
    )
    assert np.mean(model.predict(FEATURES, verbose=0).argmax(1) == labels) > 0.95


def test_a_tf_data_set_trains_in_its_own_order():
    """Against Keras fit on the same set, its partial batch included."""
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).batch(64)
    reference = _model()
    reference.compile(keras.optimizers.SGD(0.05), loss="mse")
    reference.fit(dataset, epochs=2, shuffle=False, verbose=0)
    trainer = _trainer(optimizer=keras.optimizers.SGD(0.05))
    result = trainer.fit(dataset, global_batch_size=64, train_for="2epochs")
    assert result.step == 26
    np.testing.assert_allclose(_weights(trainer.model), _weights(reference), rtol=1e-4, atol=1e-6)


def test_a_tf_data_set_with_weights():
    weights = RANDOM.uniform(0, 2, 800).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((*TRAIN, weights)).batch(100)
    reference = _model()
    reference.compile(keras.optimizers.SGD(0.05), loss="mse")
    reference.fit(dataset, shuffle=False, verbose=0)
    trainer = _trainer(optimizer=keras.optimizers.SGD(0.05))
    trainer.fit(dataset, global_batch_size=100)
    np.testing.assert_allclose(_weights(trainer.model), _weights(reference), rtol=1e-4, atol=1e-6)


def test_a_tf_data_set_of_unknown_length_is_refused():
    dataset = tf.data.Dataset.from_tensor_slices(TRAIN).filter(lambda x, y: True).batch(64)
    with pytest.raises(InputError, match="does not know its length"):
        _trainer().fit(dataset, global_batch_size=64)
    result = _trainer().fit(dataset, global_batch_size=64, steps_per_epoch=13, train_for="2epochs")
    assert result.step == 26


def test_the_run_folder(tmp_path):
    trainer = _trainer(workdir=tmp_path / "run")
    result = trainer.fit(*TRAIN, global_batch_size=64, train_for="4epochs", validation=VALIDATION)
    folder = tmp_path / "run"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [13, 26, 39, 52]
    assert {"epoch", "seconds", "curves_per_second", "loss", "val_loss"} <= set(records[0])
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["resumed_from_steps"]) == ("done", [])
    assert (
        json.loads((folder / "config.json").read_text())["total_steps"] == result.total_steps == 52
    )
    assert len(list((folder / "checkpoints").iterdir())) == 3
    final = keras.models.load_model(folder / "final.keras")
    np.testing.assert_array_equal(_weights(final), _weights(trainer.model))
    best = keras.models.load_model(folder / "model.keras")
    best.compile(loss="mse")
    assert best.evaluate(*VALIDATION, verbose=0) == pytest.approx(
        min(r["val_loss"] for r in records), rel=1e-5
    )


def test_a_finished_run_says_so_and_gives_its_weights(tmp_path):
    first = _trainer(workdir=tmp_path)
    result = first.fit(*TRAIN, global_batch_size=64, train_for="2epochs")
    second = _trainer(workdir=tmp_path)
    again = second.fit(*TRAIN, global_batch_size=64, train_for="2epochs")
    assert (again.step, again.reason) == (result.step, result.reason)
    np.testing.assert_array_equal(_weights(first.model), _weights(second.model))
    with pytest.raises(InputError, match="started with global_batch_size=64, not 32"):
        _trainer(workdir=tmp_path).fit(*TRAIN, global_batch_size=32, train_for="2epochs")


class _StopAfter(keras.callbacks.Callback):
    """Sends a signal to this process after some blocks. Its counter is no number, so no checkpoint brings it back."""

    def __init__(self, blocks, number=signal.SIGTERM):
        super().__init__()
        self._blocks, self._number = iter(range(blocks - 1, -1, -1)), number

    def on_train_batch_end(self, batch, logs=None):
        if next(self._blocks, None) == 0:
            signal.raise_signal(self._number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_stopped_by_a_signal_and_started_again_is_bit_identical(tmp_path, number):
    arguments = {"steps_per_call": 5}
    fit = {"global_batch_size": 64, "train_for": "4epochs", "validation": VALIDATION}
    patient = [keras.callbacks.EarlyStopping(patience=100)]
    whole = _trainer(_model(0.2), workdir=tmp_path / "whole", callbacks=patient, **arguments)
    expected = whole.fit(*TRAIN, **fit)
    for blocks in (4, 5):  # in the middle of the second epoch, then later
        stopping = [keras.callbacks.EarlyStopping(patience=100), _StopAfter(blocks, number)]
        stopped = _trainer(_model(0.2), workdir=tmp_path / "parts", callbacks=stopping, **arguments)
        with pytest.raises(Interrupted, match=f"{number.name} received; saved at step"):
            stopped.fit(*TRAIN, **fit)
    resumed = _trainer(
        _model(0.2),
        workdir=tmp_path / "parts",
        callbacks=[keras.callbacks.EarlyStopping(patience=100)],
        **arguments,
    )
    result = resumed.fit(*TRAIN, **fit)
    np.testing.assert_array_equal(_weights(resumed.model), _weights(whole.model))
    assert result.record["val_loss_all"] == expected.record["val_loss_all"]
    status = json.loads((tmp_path / "parts" / "status.json").read_text())
    assert status["resumed_from_steps"] == [18, 39]

    def losses(name):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [
            {k: v for k, v in json.loads(line).items() if "loss" in k or k == "step"}
            for line in lines
        ]

    assert losses("parts") == losses("whole")


def test_a_damaged_checkpoint_costs_only_its_own_steps(tmp_path):
    fit = {"global_batch_size": 64, "train_for": "4epochs"}
    whole = _trainer(workdir=tmp_path / "whole")
    whole.fit(*TRAIN, **fit)
    stopped = _trainer(workdir=tmp_path / "run", callbacks=[_StopAfter(3)], steps_per_call=13)
    with pytest.raises(Interrupted):
        stopped.fit(*TRAIN, **fit)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    content = bytearray(newest.read_bytes())
    with np.load(newest) as archive:
        place = content.find(archive["weights/0"].tobytes())
    content[place + 5] ^= 1
    newest.write_bytes(content)
    resumed = _trainer(workdir=tmp_path / "run", steps_per_call=13)
    resumed.fit(*TRAIN, **fit)
    assert f"checkpoint {newest} is damaged" in (tmp_path / "run" / "log.txt").read_text()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["resumed_from_steps"] == [26]
    np.testing.assert_array_equal(_weights(resumed.model), _weights(whole.model))


def test_a_nan_names_the_step_and_the_last_good_checkpoint(tmp_path):
    """A label that is infinite poisons the batch that it stands in; which one, the order says."""
    order = ExampleOrder(800, seed=0, shard_size=131_072)
    labels = TRAIN[1].copy()
    labels[order.indices(0, 7 * 64 + 3, 7 * 64 + 4)] = np.inf

    def run():
        _trainer(workdir=tmp_path, checkpoint_every="3steps").fit(
            TRAIN[0], labels, global_batch_size=64
        )

    with pytest.raises(
        DivergedError, match=r"became inf at step 7 \(epoch 1\); .*step-0000000006.npz"
    ) as caught:
        run()
    assert caught.value.exit_status == 3
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "diverged"
    with pytest.raises(DivergedError, match="became inf at step 7"):
        run()


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    """The loss of step 6 is still finite, but its update is not."""

    class Poison(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5:
                self.model.layers[0].kernel.assign(self.model.layers[0].kernel * np.nan)

    trainer = _trainer(workdir=tmp_path, checkpoint_every="3steps", callbacks=[Poison()])
    with pytest.raises(
        DivergedError, match=r"weights are not finite after step 5 .*step-0000000003.npz"
    ):
        trainer.fit(*TRAIN, global_batch_size=64)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_early_stopping_remembers_its_patience_over_a_stop(tmp_path):
    """val_loss cannot improve with learning rate zero: patience 4 ends after epoch 5, however often it is stopped."""

    def run(*more):
        stopping = keras.callbacks.EarlyStopping(patience=4)
        trainer = _trainer(
            optimizer=keras.optimizers.SGD(0.0),
            workdir=tmp_path,
            callbacks=[stopping, *more],
            steps_per_call=13,
        )
        return trainer.fit(
            *TRAIN, global_batch_size=64, train_for="50epochs", validation=VALIDATION
        )

    with pytest.raises(Interrupted):
        run(_StopAfter(3))
    result = run()
    assert (result.step, result.reason) == (5 * 13, "a callback stopped the run after epoch 5")


def test_the_target_ends_the_run():
    trainer = _trainer(optimizer=keras.optimizers.Adam(0.02))
    result = trainer.fit(
        *TRAIN,
        global_batch_size=50,
        train_for="500epochs",
        validation=VALIDATION,
        target_val_loss=0.05,
    )
    assert result.step < 8000 and "reached the target 0.05" in result.reason
    assert result.history["val_loss"][-1] <= 0.05 < result.history["val_loss"][-2]


def test_a_time_is_turned_into_steps_once(tmp_path):
    model = _model()
    trainer = _trainer(model, workdir=tmp_path, optimizer=keras.optimizers.SGD(0.0))
    before = _weights(model)
    started = time.monotonic()
    result = trainer.fit(*TRAIN, global_batch_size=64, train_for="2s")
    assert json.loads((tmp_path / "config.json").read_text())["total_steps"] == result.step > 100
    assert time.monotonic() - started < 30
    np.testing.assert_array_equal(_weights(model), before)  # the trial left no trace


def test_a_time_and_a_schedule_that_needs_the_length(tmp_path):
    """The trial that measures the rate must not take its own length for that of the run."""
    config = default_config()
    apply_override(config, "optimizer.warmup", "1epochs")
    lengths = []

    def optimizer(total_steps, steps_per_epoch):
        lengths.append(total_steps)
        return build_optimizer(
            config.optimizer, total_steps=total_steps, steps_per_epoch=steps_per_epoch
        )

    result = _trainer(optimizer=optimizer).fit(*TRAIN, global_batch_size=64, train_for="2s")
    assert lengths[-1] == result.step > 100


def test_callbacks_that_change_the_learning_rate_are_refused():
    plateau = keras.callbacks.ReduceLROnPlateau()
    with pytest.raises(
        InputError, match="ReduceLROnPlateau cannot be used here; use optimizer.schedule=cosine"
    ):
        _trainer(callbacks=[plateau]).fit(*TRAIN, global_batch_size=64)

    class Changes(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.1

    with pytest.raises(InputError, match="changed the learning rate in on_epoch_end"):
        _trainer(callbacks=[Changes()]).fit(*TRAIN, global_batch_size=64)


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
    _trainer(callbacks=callbacks).fit(
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


def test_two_trainings_in_one_folder_are_refused(tmp_path):
    entered, leave = threading.Event(), threading.Event()

    class Waits(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(
        target=_trainer(workdir=tmp_path, callbacks=[Waits()]).fit,
        args=TRAIN,
        kwargs={"global_batch_size": 64},
    )
    thread.start()
    try:
        assert entered.wait(30)
        with pytest.raises(InputError, match="another process is training in"):
            _trainer(workdir=tmp_path).fit(*TRAIN, global_batch_size=64)
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"global_batch_size": 900}, "global_batch_size is 900, there are 800"),
        ({"global_batch_size": 10, "train_for": "0epochs"}, "less than one step"),
        ({"global_batch_size": 10, "train_for": "3"}, "is not a duration"),
    ],
)
def test_impossible_runs_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        _trainer().fit(*TRAIN, **arguments)


def test_features_and_labels_of_different_length_are_refused():
    with pytest.raises(InputError, match="differ in length"):
        _trainer().fit(FEATURES, LABELS[:7], global_batch_size=2)

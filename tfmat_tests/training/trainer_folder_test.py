"""The public trainer's run folder: what it holds, and how a stopped, damaged or diverged run goes on from it."""

import json
import re
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfmat.data.order import ExampleOrder
from tfmat.errors import DivergedError, InputError, Interrupted
from tfmat_tests.training.regression import (
    TRAIN,
    VALIDATION,
    flat_weights,
    make_model,
    make_trainer,
)


def test_the_run_folder(tmp_path):
    """What it holds; the same again says that it is done, and gives its weights."""
    folder, fit = tmp_path / "run", {"global_batch_size": 64, "train_for": "4epochs"}
    trainer = make_trainer(workdir=folder)
    result = trainer.fit(*TRAIN, **fit, validation=VALIDATION)
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
    np.testing.assert_array_equal(flat_weights(final), flat_weights(trainer.model))
    best = keras.models.load_model(folder / "model.keras")
    best.compile(loss="mse")
    assert best.evaluate(*VALIDATION, verbose=0) == pytest.approx(
        min(r["val_loss"] for r in records), rel=1e-5
    )
    second = make_trainer(workdir=folder)
    again = second.fit(*TRAIN, **fit, validation=VALIDATION)
    assert (again.step, again.reason) == (result.step, result.reason)
    assert again.history == result.history
    np.testing.assert_array_equal(flat_weights(trainer.model), flat_weights(second.model))
    with pytest.raises(InputError, match="started with global_batch_size=64, not 32"):
        make_trainer(workdir=folder).fit(*TRAIN, global_batch_size=32, train_for="4epochs")
    faster = {"optimizer": keras.optimizers.Adam(0.25)}
    with pytest.raises(InputError, match=r"started with optimizer.learning_rate=0.001, not 0.25;"):
        make_trainer(workdir=folder, **faster).fit(*TRAIN, **fit)
    with pytest.raises(InputError, match="started with loss=.*, not mae"):
        make_trainer(workdir=folder, loss="mae").fit(*TRAIN, **fit)
    # The same optimizer in other words, and numbers that JSON does not have.
    endless = keras.optimizers.Adam(0.001, clipnorm=float("inf"))
    with pytest.raises(InputError, match="started with optimizer.clipnorm=None, not inf"):
        make_trainer(workdir=folder, optimizer=endless).fit(*TRAIN, **fit)
    same = make_trainer(workdir=folder, optimizer=keras.optimizers.Adam(0.001))
    assert same.fit(*TRAIN, **fit).history == result.history
    with pytest.raises(InputError, match="started with network="):
        make_trainer(make_model(dropout=0.1), workdir=folder).fit(*TRAIN, **fit)
    # Earlier versions noted none of these.
    noted = json.loads((folder / "config.json").read_text())
    older = {key: noted[key] for key in noted.keys() - {"optimizer", "loss", "network"}}
    (folder / "config.json").write_text(json.dumps(older))
    assert make_trainer(workdir=folder, **faster).fit(*TRAIN, **fit).history == result.history


@keras.saving.register_keras_serializable("tfmat_tests")
class _OfOwnClass(keras.Model):
    """Its config says nothing of its layers."""

    activation = "tanh"

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(2, activation=self.activation)

    def call(self, inputs):
        return self.layer(inputs)


def test_another_activation_in_a_class_of_ones_own_is_another_network(tmp_path, monkeypatch):
    def trainer():
        model = _OfOwnClass()
        model(TRAIN[0][:1])
        return make_trainer(model, workdir=tmp_path)

    fit = {"global_batch_size": 100, "train_for": "1steps"}
    result = trainer().fit(*TRAIN, **fit)
    assert trainer().fit(*TRAIN, **fit).history == result.history
    monkeypatch.setattr(_OfOwnClass, "activation", "relu")
    with pytest.raises(InputError, match="started with network="):
        trainer().fit(*TRAIN, **fit)


class _StopAfter(keras.callbacks.Callback):
    """Sends SIGTERM to this process after some blocks. Its counter is no number, so no checkpoint brings it back."""

    def __init__(self, blocks):
        super().__init__()
        self._blocks = iter(range(blocks - 1, -1, -1))

    def on_train_batch_end(self, batch, logs=None):
        if next(self._blocks, None) == 0:
            signal.raise_signal(signal.SIGTERM)


def test_stopped_by_a_signal_and_started_again_is_bit_identical(tmp_path):
    arguments = {"steps_per_call": 5}
    fit = {"global_batch_size": 64, "train_for": "4epochs", "validation": VALIDATION}
    patient = [keras.callbacks.EarlyStopping(patience=100)]
    whole = make_trainer(
        make_model(0.2), workdir=tmp_path / "whole", callbacks=patient, **arguments
    )
    expected = whole.fit(*TRAIN, **fit)
    for blocks in (4, 5):  # in the middle of the second epoch, then later
        stopping = [keras.callbacks.EarlyStopping(patience=100), _StopAfter(blocks)]
        stopped = make_trainer(
            make_model(0.2), workdir=tmp_path / "parts", callbacks=stopping, **arguments
        )
        with pytest.raises(Interrupted, match="SIGTERM received; saved at step"):
            stopped.fit(*TRAIN, **fit)
    resumed = make_trainer(
        make_model(0.2),
        workdir=tmp_path / "parts",
        callbacks=[keras.callbacks.EarlyStopping(patience=100)],
        **arguments,
    )
    result = resumed.fit(*TRAIN, **fit)
    np.testing.assert_array_equal(flat_weights(resumed.model), flat_weights(whole.model))
    assert result.record["val_loss_all"] == expected.record["val_loss_all"]
    assert result.history == expected.history
    status = json.loads((tmp_path / "parts" / "status.json").read_text())
    assert status["resumed_from_steps"] == [18, 39]

    def losses(name):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [
            {k: v for k, v in json.loads(line).items() if "loss" in k or k == "step"}
            for line in lines
        ]

    assert losses("parts") == losses("whole")


def _shuffled(seed):
    return tf.data.Dataset.from_tensor_slices(TRAIN).shuffle(800, seed=seed).batch(200)


def _fit_shuffled(workdir, seed, *callbacks):
    trainer = make_trainer(
        workdir=workdir, callbacks=callbacks, steps_per_call=1, checkpoint_every="1steps"
    )
    trainer.fit(_shuffled(seed), global_batch_size=200, train_for="3epochs")
    return flat_weights(trainer.model)


@pytest.mark.parametrize("stop_after", [8, 10])
def test_a_shuffled_tf_data_set_goes_on_in_its_order(tmp_path, stop_after):
    """Stopped after its second epoch, and in its third."""
    whole = _fit_shuffled(tmp_path / "whole", 3)
    with pytest.raises(Interrupted):
        _fit_shuffled(tmp_path / "parts", 3, _StopAfter(stop_after))
    np.testing.assert_array_equal(_fit_shuffled(tmp_path / "parts", 3), whole)
    assert "warning" not in (tmp_path / "parts/log.txt").read_text()


def test_a_tf_data_set_in_another_order_says_so(tmp_path):
    with pytest.raises(Interrupted):
        _fit_shuffled(tmp_path, 3, _StopAfter(5))
    _fit_shuffled(tmp_path, 4)
    log = (tmp_path / "log.txt").read_text()
    assert log.count("the tf.data set yields other examples than before the restart") == 1


def test_a_damaged_checkpoint_costs_only_its_own_steps(tmp_path):
    fit = {"global_batch_size": 64, "train_for": "4epochs"}
    whole = make_trainer(workdir=tmp_path / "whole")
    whole.fit(*TRAIN, **fit)
    stopped = make_trainer(workdir=tmp_path / "run", callbacks=[_StopAfter(3)], steps_per_call=13)
    with pytest.raises(Interrupted):
        stopped.fit(*TRAIN, **fit)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    content = bytearray(newest.read_bytes())
    with np.load(newest) as archive:
        place = content.find(archive["weights/0"].tobytes())
    content[place + 5] ^= 1
    newest.write_bytes(content)
    resumed = make_trainer(workdir=tmp_path / "run", steps_per_call=13)
    resumed.fit(*TRAIN, **fit)
    assert f"checkpoint {newest} is damaged" in (tmp_path / "run" / "log.txt").read_text()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["resumed_from_steps"] == [26]
    np.testing.assert_array_equal(flat_weights(resumed.model), flat_weights(whole.model))


def test_a_nan_names_the_step_and_the_last_good_checkpoint(tmp_path):
    """A label that is infinite poisons the batch that it stands in; which one, the order says."""
    order = ExampleOrder(800, seed=0, shard_size=131_072)
    labels = TRAIN[1].copy()
    labels[order.indices(0, 7 * 64 + 3, 7 * 64 + 4)] = np.inf

    def run():
        make_trainer(workdir=tmp_path, checkpoint_every="3steps").fit(
            TRAIN[0], labels, global_batch_size=64
        )

    said = r"became inf at step 7 \(epoch 1\); .*step-0000000006.npz"
    with pytest.raises(DivergedError, match=said) as caught:
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

    trainer = make_trainer(workdir=tmp_path, checkpoint_every="3steps", callbacks=[Poison()])
    said = r"weights are not finite after step 5 .*step-0000000003.npz"
    with pytest.raises(DivergedError, match=said):
        trainer.fit(*TRAIN, global_batch_size=64)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_early_stopping_remembers_its_patience_over_a_stop(tmp_path):
    """val_loss cannot improve with learning rate zero: patience 4 ends after epoch 5, however often it is stopped."""

    def run(*more):
        stopping = keras.callbacks.EarlyStopping(patience=4)
        trainer = make_trainer(
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


def _lose_the_end(workdir):
    """The folder as a SIGKILL leaves it between the last checkpoint and final.keras."""
    (workdir / "final.keras").unlink()
    status = json.loads((workdir / "status.json").read_text())
    (workdir / "status.json").write_text(json.dumps({**status, "state": "running"}))


@pytest.mark.parametrize("why", ["target", "patience", "steps"])
def test_a_run_that_had_ended_trains_no_further(tmp_path, why):
    def fit():
        patient = keras.callbacks.EarlyStopping(
            min_delta=0.5, patience=2, restore_best_weights=True
        )
        trainer = make_trainer(
            optimizer=keras.optimizers.Adam(0.02),
            workdir=tmp_path,
            callbacks=[patient] if why == "patience" else [],
        )
        result = trainer.fit(
            *TRAIN,
            global_batch_size=100,
            train_for="13steps" if why == "steps" else "40epochs",
            validation=VALIDATION,
            target_val_loss=2.0 if why == "target" else None,
        )
        return flat_weights(trainer.model), result

    weights, result = fit()
    assert result.step == 13 if why == "steps" else 0 < result.step < 40 * 8
    _lose_the_end(tmp_path)
    again, second = fit()
    assert (second.step, second.reason) == (result.step, result.reason)
    assert weights.tobytes() == again.tobytes()
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "done" and status["resumed_from_steps"] == [result.step]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == -(-result.step // 8)


def test_a_run_that_is_done_says_how_its_network_trains_further(tmp_path):
    def fit(trainer, train_for):
        return trainer.fit(*TRAIN, global_batch_size=100, train_for=train_for)

    trainer = make_trainer(workdir=tmp_path / "first")
    first = fit(trainer, "1epochs")
    with pytest.raises(InputError, match="train_for=1epochs, not 2epochs; it has ended") as refused:
        fit(make_trainer(workdir=tmp_path / "first"), "2epochs")
    (path,) = re.findall(r"load_model\('(.*)'\)", str(refused.value))
    further = make_trainer(keras.models.load_model(path), workdir=tmp_path / "second")
    assert further.evaluate(*VALIDATION) == trainer.evaluate(*VALIDATION)
    assert fit(further, "1epochs").history["loss"][0] < first.history["loss"][0]


def test_a_validation_loss_that_is_not_finite_ends_the_run(tmp_path):
    labels = VALIDATION[1].copy()
    labels[7] = 1e30  # its square is beyond float32
    with pytest.raises(DivergedError, match=r"val_loss became inf after step 7 \(epoch 1\)"):
        make_trainer(workdir=tmp_path).fit(
            *TRAIN, global_batch_size=100, validation=(VALIDATION[0], labels)
        )
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "diverged"


class _Remembers(keras.callbacks.Callback):
    """A setting, and what it learned; and how often any of these began."""

    begun = 0

    def __init__(self, place):
        super().__init__()
        self.place, self.epochs = place, 0

    def on_train_begin(self, logs=None):
        _Remembers.begun += 1

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1


def test_a_folder_that_was_moved_keeps_no_path_of_the_old_place(tmp_path):
    """Callbacks have the new process's settings and the old one's memory; a lost checkpoint is said before them."""

    def fit(place):
        remembers = _Remembers(place)
        trainer = make_trainer(workdir=tmp_path / place, callbacks=[remembers])
        trainer.fit(*TRAIN, global_batch_size=100, train_for="2epochs")
        return remembers

    fit("old")
    _lose_the_end(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    remembers = fit("new")
    assert remembers.place == "new" and remembers.epochs == 2
    _lose_the_end(tmp_path / "new")
    for path in (tmp_path / "new" / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match="no checkpoint of this run can be read"):
        fit("new")
    assert _Remembers.begun == 2

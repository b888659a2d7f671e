"""The public trainer's run folder: what it holds, and how a stopped, damaged or diverged run goes on from it."""

import json
import signal
import threading

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
    trainer = make_trainer(workdir=tmp_path / "run")
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
    np.testing.assert_array_equal(flat_weights(final), flat_weights(trainer.model))
    best = keras.models.load_model(folder / "model.keras")
    best.compile(loss="mse")
    assert best.evaluate(*VALIDATION, verbose=0) == pytest.approx(
        min(r["val_loss"] for r in records), rel=1e-5
    )


def test_a_finished_run_says_so_and_gives_its_weights(tmp_path):
    first = make_trainer(workdir=tmp_path)
    result = first.fit(*TRAIN, global_batch_size=64, train_for="2epochs")
    second = make_trainer(workdir=tmp_path)
    again = second.fit(*TRAIN, global_batch_size=64, train_for="2epochs")
    assert (again.step, again.reason) == (result.step, result.reason)
    np.testing.assert_array_equal(flat_weights(first.model), flat_weights(second.model))
    with pytest.raises(InputError, match="started with global_batch_size=64, not 32"):
        make_trainer(workdir=tmp_path).fit(*TRAIN, global_batch_size=32, train_for="2epochs")


class _StopAfter(keras.callbacks.Callback):
    """Sends a signal to this process after some blocks. Its counter is no number, so no checkpoint brings it back."""

    def __init__(self, blocks, number=signal.SIGTERM):
        super().__init__()
        self._blocks, self._number = iter(range(blocks - 1, -1, -1)), number

    def on_train_batch_end(self, batch, logs=None):
        if next(self._blocks, None) == 0:
            signal.raise_signal(self._number)


@pytest.mark.parametrize(
    "number",
    # `tfmat train` is stopped by each of them in stopping_test.py.
    [
        signal.SIGTERM,
        *(pytest.param(each, marks=pytest.mark.large) for each in (signal.SIGUSR1, signal.SIGINT)),
    ],
)
def test_stopped_by_a_signal_and_started_again_is_bit_identical(tmp_path, number):
    arguments = {"steps_per_call": 5}
    fit = {"global_batch_size": 64, "train_for": "4epochs", "validation": VALIDATION}
    patient = [keras.callbacks.EarlyStopping(patience=100)]
    whole = make_trainer(
        make_model(0.2), workdir=tmp_path / "whole", callbacks=patient, **arguments
    )
    expected = whole.fit(*TRAIN, **fit)
    for blocks in (4, 5):  # in the middle of the second epoch, then later
        stopping = [keras.callbacks.EarlyStopping(patience=100), _StopAfter(blocks, number)]
        stopped = make_trainer(
            make_model(0.2), workdir=tmp_path / "parts", callbacks=stopping, **arguments
        )
        with pytest.raises(Interrupted, match=f"{number.name} received; saved at step"):
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

    trainer = make_trainer(workdir=tmp_path, checkpoint_every="3steps", callbacks=[Poison()])
    with pytest.raises(
        DivergedError, match=r"weights are not finite after step 5 .*step-0000000003.npz"
    ):
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


def test_two_trainings_in_one_folder_are_refused(tmp_path):
    entered, leave = threading.Event(), threading.Event()

    class Waits(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(
        target=make_trainer(workdir=tmp_path, callbacks=[Waits()]).fit,
        args=TRAIN,
        kwargs={"global_batch_size": 64},
    )
    thread.start()
    try:
        assert entered.wait(30)
        with pytest.raises(InputError, match="another process is training in"):
            make_trainer(workdir=tmp_path).fit(*TRAIN, global_batch_size=64)
    finally:
        leave.set()
        thread.join()

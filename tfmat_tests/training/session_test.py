"""How a run ends, and what happens when it was stopped right there."""

import json
import pathlib
from typing import Any

import keras
import numpy as np
import pytest

import tfmat
from tfmat.errors import DivergedError

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(600, 6)).astype(np.float32)
LABELS = (FEATURES @ RANDOM.normal(size=(6, 2))).astype(np.float32)
TRAIN, VALIDATION = (FEATURES[:400], LABELS[:400]), (FEATURES[400:], LABELS[400:])


def _fit(
    workdir: pathlib.Path, callbacks: Any = (), validation: Any = VALIDATION, **arguments: Any
):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(2)])
    trainer = tfmat.Trainer(
        model,
        optimizer=keras.optimizers.Adam(0.02),
        workdir=str(workdir),
        callbacks=callbacks,
        quiet=True,
    )
    arguments = {"global_batch_size": 50, "train_for": "40epochs", **arguments}
    return model, trainer.fit(*TRAIN, validation=validation, **arguments)


def _lose_the_end(workdir: pathlib.Path) -> None:
    """The folder as a SIGKILL leaves it between the last checkpoint and final.keras."""
    (workdir / "final.keras").unlink()
    status = json.loads((workdir / "status.json").read_text())
    (workdir / "status.json").write_text(json.dumps({**status, "state": "running"}))


@pytest.mark.parametrize("why", ["target", "patience", "steps"])
def test_a_run_that_had_ended_trains_no_further(tmp_path: pathlib.Path, why: str) -> None:
    def fit():
        if why == "target":
            return _fit(tmp_path, target_val_loss=0.8)
        if why == "steps":
            return _fit(tmp_path, train_for="13steps")
        stop = keras.callbacks.EarlyStopping(min_delta=0.5, patience=2, restore_best_weights=True)
        return _fit(tmp_path, callbacks=[stop])

    model, result = fit()
    assert result.step == 13 if why == "steps" else 0 < result.step < 40 * 8
    _lose_the_end(tmp_path)
    again, second = fit()
    assert (second.step, second.reason) == (result.step, result.reason)
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        assert one.tobytes() == other.tobytes()
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "done" and status["resumed_from_steps"] == [result.step]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == -(-result.step // 8)


def test_a_validation_loss_that_is_not_finite_ends_the_run(tmp_path: pathlib.Path) -> None:
    labels = VALIDATION[1].copy()
    labels[7] = 1e30  # its square is beyond float32
    with pytest.raises(DivergedError, match=r"val_loss became inf after step 7 \(epoch 1\)"):
        _fit(tmp_path, validation=(VALIDATION[0], labels))
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "diverged"


def test_a_checkpoint_that_cannot_be_read_is_said_before_callbacks_begin(
    tmp_path: pathlib.Path,
) -> None:
    class Begins(keras.callbacks.Callback):
        count = 0

        def on_train_begin(self, logs: Any = None) -> None:
            Begins.count += 1

    _fit(tmp_path, callbacks=[Begins()], train_for="8steps")
    _lose_the_end(tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(tfmat.errors.InputError, match="no checkpoint of this run can be read"):
        _fit(tmp_path, callbacks=[Begins()], train_for="8steps")
    assert Begins.count == 1


def test_a_folder_that_was_moved_keeps_no_path_of_the_old_place(tmp_path: pathlib.Path) -> None:
    """What callbacks hold of settings is that of the new process; what they learned is the old one's."""

    class Remembers(keras.callbacks.Callback):
        def __init__(self, place: str):
            super().__init__()
            self.place = place
            self.epochs = 0

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.epochs += 1

    _fit(tmp_path / "old", callbacks=[Remembers("old")], train_for="2epochs")
    _lose_the_end(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    remembers = Remembers("new")
    _fit(tmp_path / "new", callbacks=[remembers], train_for="2epochs")
    assert remembers.place == "new" and remembers.epochs == 2

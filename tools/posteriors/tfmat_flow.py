"""tfmat: its network with the posterior head behind fits, trained by its own loop on one processor."""

import contextlib
from typing import Any

import keras
import numpy as np

from posteriors.frozen import EPOCHS, SAMPLES, STEPS_PER_CALL, Answer, Clock, Task, main
from tfmat.backends import make_backend
from tfmat.config import Config, RunSteps, default_config
from tfmat.curves.resampling import CurveTarget
from tfmat.data.dataset import PackedDataset
from tfmat.identification.identifier import Identifier
from tfmat.identification.networks import Sidecar
from tfmat.networks import build_for
from tfmat.optimizers import build_optimizer
from tfmat.training.trainer import Trainer
from tfmat.workflow.fronts import parted
from tfmat.workflow.job import compiles_loss, losses_and_metrics

# The same for every task: two dense layers behind the law's own fit of each record, a posterior around it.
SETTINGS: dict[str, Any] = {
    "global_batch_size": 100,
    "optimizer.learning_rate": 2e-3,
    "optimizer.clip_norm": 1.0,
    "model.representation": "fit",
    "model.hidden_units": (128, 128),
    "model.activation": "gelu",
    "jit_compile": True,
}
# Fewer fitted records than these are learnt by heart without so much dropout. Chosen on other records than those that
# judge (docs/accuracy.md).
DROPOUT = {10_000: 0.2, 100_000: 0.05}
# What that page found for many fits: taken where there is time for all epochs of it, so many seconds a fit and epoch.
LARGE = {
    "model.hidden_units": (256, 256),
    "model.couplings": 10,
    "model.coupling_units": 64,
    "model.dropout": 0.05,
}
LARGE_FITS, LARGE_SECONDS = 100_000, 1e-4


class TimeIsUp(Exception):
    """Raised out of a training whose seconds are over; the weights are those of its last step."""


class Timed(keras.callbacks.Callback):
    """Follows a clock after each call of the graph; `schedule`, from a peak on, is what the optimizer takes."""

    def __init__(self, clock: Clock, peak: float):
        super().__init__()
        self._clock, self._peak = clock, peak
        _Rate.variable = keras.Variable(clock.rate(peak), trainable=False, name="rate")
        self.schedule = _Rate()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._clock.step_is_over(STEPS_PER_CALL):
            raise TimeIsUp
        _Rate.variable.assign(self._clock.rate(self._peak))


@keras.saving.register_keras_serializable(package="posteriors")
class _Rate(keras.optimizers.schedules.LearningRateSchedule):
    variable: Any = None  # of the one training of this process: copies of an optimizer share it

    def __call__(self, step: Any) -> Any:
        return keras.ops.convert_to_tensor(self.variable)

    def get_config(self) -> dict[str, Any]:
        return {}


def configured(task: Task, seed: int) -> tuple[Config, PackedDataset]:
    """The config of a task's training, and its data set."""
    dataset = PackedDataset.open(task.folder / "dataset")
    config = default_config()
    config.law, config.seed, config.model.uncertainty = dataset.manifest["law"], seed, "flow"
    config.update_from_flattened_dict(SETTINGS)
    return config, dataset


def train(task: Task, clock: Clock, seed: int):
    config, dataset = configured(task, seed)
    settings, fits = dataset.settings, task.fits
    assert settings is not None and fits is not None
    enough = [dropout for few, dropout in DROPOUT.items() if len(fits.mode) < few]
    config.model.dropout = max(enough, default=0.0)
    needed = LARGE_SECONDS * EPOCHS * len(fits.mode)
    if len(fits.mode) >= LARGE_FITS and clock.seconds - clock.spent >= needed:
        config.update_from_flattened_dict(LARGE)
    backend = make_backend("single")
    backend.start()
    model = build_for(config, dataset)
    trained = parted(model)[1]
    features = np.concatenate([fits.numbers, fits.mode, np.log(fits.precision)], axis=1)
    clock.most_steps = EPOCHS * len(features) // config.global_batch_size
    timed = Timed(clock, config.optimizer.learning_rate)
    trainer = Trainer(
        trained,
        **losses_and_metrics(config, dataset, model, compiled=compiles_loss(config, backend)),
        optimizer=build_optimizer(config.optimizer, RunSteps(1), schedule=timed.schedule),
        backend=backend,
        jit_compile=config.jit_compile,
        callbacks=[timed],
        seed=seed,
        steps_per_call=STEPS_PER_CALL,
        quiet=True,
    )
    with contextlib.suppress(TimeIsUp):
        trainer.fit(
            features,
            task.labels[: len(features)],
            global_batch_size=config.global_batch_size,
            train_for="1000000epochs",
        )
    backend.sync_model()

    def answer() -> Answer:
        law = settings.build_law()
        target = CurveTarget.of(settings, law)
        about = Sidecar(None, dataset.parameters, settings, law, target, uncertainty="flow")
        identifier = Identifier(model, about)
        draws = identifier.draws(task.test_features, SAMPLES, seed=seed)
        log_score = identifier.log_density(task.test_features, task.test_labels)
        return Answer(draws.labels, log_score)

    return answer


if __name__ == "__main__":
    main(train)

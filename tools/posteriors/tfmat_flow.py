"""tfmat: its network with the posterior head, trained by its own loop on one processor."""

import contextlib
from typing import Any

import keras
import numpy as np

from posteriors.frozen import SAMPLES, STEPS_PER_CALL, Answer, Clock, Task, main
from tfmat.backends import make_backend
from tfmat.config import default_config
from tfmat.curves.resampling import CurveTarget
from tfmat.data.kept import Kept
from tfmat.data.packed import PackedDataset
from tfmat.durations import RunSteps
from tfmat.identification.identifier import Identifier
from tfmat.identification.networks import Sidecar
from tfmat.models import build_for
from tfmat.optimizers import build_optimizer
from tfmat.training.trainer import Trainer
from tfmat.workflow.fronts import parted, represented
from tfmat.workflow.train import compiles_loss, losses_and_metrics

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
# Records are fitted, so many at a time, as long as there is time for the next ones and for the seconds of training that
# each is given, some twenty epochs, after which training ends; the others are left out.
_TOGETHER, _TRAINING, _EPOCHS = 1024, 4e-4, 25


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


def train(task: Task, clock: Clock, seed: int):
    dataset = PackedDataset.open(task.folder / "dataset")
    settings = dataset.settings
    assert settings is not None
    config = default_config()
    config.law, config.seed, config.model.uncertainty = settings.law, seed, "flow"
    config.update_from_flattened_dict(SETTINGS)
    backend = make_backend("single")
    backend.start()
    nothing_kept = Kept(None)  # what a fit costs counts anew for each training
    with clock.running():
        started = clock.now()
        model = build_for(config, dataset, nothing_kept)
        front, trained = parted(model)
        assert front is not None
        fits: list[np.ndarray] = []
        took = 0.0
        for first in range(0, len(task.features), _TOGETHER):
            before = clock.now()
            if before - started + took + first * _TRAINING > clock.seconds:
                break
            few = task.features[first : first + _TOGETHER]
            fits.append(represented(front, few, backend.collectives, nothing_kept))
            took = clock.now() - before
        features = np.concatenate(fits)
    clock.most_steps = _EPOCHS * len(features) // config.global_batch_size
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

"""tfmat: its network with the posterior head, trained by its own loop on one processor."""

import contextlib
from typing import Any

import keras
import numpy as np

from posteriors.frozen import SAMPLES, STEPS_PER_CALL, Answer, Clock, Task, main
from tfmat.backends import make_backend
from tfmat.config import default_config
from tfmat.curves.resampling import CurveTarget
from tfmat.data.packed import PackedDataset
from tfmat.durations import RunSteps
from tfmat.identification.identifier import Identifier
from tfmat.identification.networks import Sidecar
from tfmat.models import build_for
from tfmat.optimizers import build_optimizer
from tfmat.training.trainer import Trainer
from tfmat.workflow.train import compiles_loss, losses_and_metrics, parted, represented

_SHORT = {"global_batch_size": 300, "optimizer.learning_rate": 4e-3, "model.activation": "gelu"}
_SPECTRUM = {
    **_SHORT,
    "model.representation": "plastic_spectrum",
    "model.hidden_units": (256, 256, 128),
    "jit_compile": True,
}
_CONVOLUTION = {
    **_SHORT,
    "model.conv_filters": (10,),
    "model.kernel_sizes": (7,),
    "model.pool_size": 4,
    "model.hidden_units": (256, 128),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "hahn_tsai": _CONVOLUTION,
    "voce": _SPECTRUM,
    "voce_chaboche": _SPECTRUM,
    "voce_chaboche_fixed": _SPECTRUM,
    "ogden": {**_CONVOLUTION, "model.input_scaling": "curve"},
}


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
    config.update_from_flattened_dict(SETTINGS[task.folder.name])
    backend = make_backend("single")
    backend.start()
    model = build_for(config, dataset)
    front, trained = parted(model)
    features = np.asarray(task.features)
    if front is not None:
        with clock.running():
            features = represented(front, features, backend.collectives)
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
            task.labels,
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

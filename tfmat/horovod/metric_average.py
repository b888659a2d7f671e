"""MetricAverageCallback: the metrics of an epoch over the examples of all ranks."""

from typing import Any

import horovod.tensorflow as horovod
import keras
import numpy as np


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces an epoch's metrics by those over the examples of all ranks, whatever part of them each rank has.

    A metric's state, its sums and counts, is added up over the ranks, and the metric computed from that: this is what
    one process would have found, also for metrics that are no means (AUC, RootMeanSquaredError, R2Score). State that
    Keras declares not to be additive, and what is in the logs but is no metric of the model, is averaged over the ranks
    with their numbers of examples as weights.

    It comes before callbacks that read the logs (ReduceLROnPlateau, EarlyStopping, ModelCheckpoint, TensorBoard).
    """

    def __init__(self, device: str = "") -> None:
        """`device` is there for Horovod's signature: states are small, and reduced on the host."""
        super().__init__()
        self.device = device
        self._in_epoch = False
        self._training: _States | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forgets the last epoch."""
        self._in_epoch, self._training = True, None

    def on_test_begin(self, logs: Any = None) -> None:
        """Keeps the training metrics' state: validation uses the same metrics, from zero."""
        if self._in_epoch:
            self._training = _States(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Overwrites the logs in place."""
        self._in_epoch = False
        if logs is None or horovod.size() == 1:
            return
        now = _States(self.model)
        training, validation = (now, None) if self._training is None else (self._training, now)
        mine = (training.content(), validation.content() if validation else None, dict(logs))
        every = horovod.allgather_object(mine, name="metrics")
        found = now.result_of([states for states, _, _ in every])
        with_validation = [states for _, states, _ in every if states is not None]
        if with_validation:
            results = now.result_of(with_validation)
            found |= {f"val_{name}": value for name, value in results.items()}
        now.restore()
        examples = [states["examples"] for states, _, _ in every]
        for name in logs:
            logs[name] = found[name] if name in found else _average(name, every, examples)


class _States:
    """The state of a model's metrics.

    Attributes:
      examples: that the loss was averaged over; 1 where the model keeps no such loss.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        unique = {
            id(variable): variable for metric in model.metrics for variable in metric.variables
        }
        self._variables = list(unique.values())
        self._values = [variable.numpy() for variable in self._variables]
        losses = [metric for metric in model.metrics if metric.name == "loss"]
        self.examples = float(losses[0].count.numpy()) if losses else 1.0

    def content(self) -> dict[str, Any]:
        """What other ranks need of it."""
        return {"values": self._values, "examples": self.examples}

    def result_of(self, every: list[dict[str, Any]]) -> dict[str, Any]:
        """The metrics' values from several ranks' states; leaves the metrics with that state."""
        weights = [each["examples"] for each in every]
        for i, variable in enumerate(self._variables):
            values = np.stack([each["values"][i] for each in every]).astype(np.float64)
            if variable.aggregation == "sum":
                variable.assign(values.sum(0))
            else:
                variable.assign(np.average(values, axis=0, weights=weights))
        return {name: _plain(value) for name, value in self._model.get_metrics_result().items()}

    def restore(self) -> None:
        """Gives the metrics back the state that they had."""
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return float(array) if array.ndim == 0 else array


def _average(name: str, every: list[Any], examples: list[float]) -> Any:
    """Mean over the ranks that have `name` in their logs, weighted by their examples."""
    have = [
        (logs[name], weight)
        for (_, _, logs), weight in zip(every, examples, strict=True)
        if name in logs
    ]
    values, weights = zip(*have, strict=True)
    return _plain(np.average(np.asarray(values, np.float64), axis=0, weights=weights))

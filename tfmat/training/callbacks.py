"""Drives ordinary `keras.callbacks`, once a block, and keeps in the checkpoint what they remember."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfmat.backends.saved_arrays import SavedArrays
from tfmat.errors import InputError

_REFUSED = {
    keras.callbacks.LearningRateScheduler: "a schedule in the optimizer (keras.optimizers.schedules)",
    keras.callbacks.ReduceLROnPlateau: "optimizer.schedule=cosine, or any schedule in the optimizer",
    keras.callbacks.BackupAndRestore: "workdir=..., which resumes to the exact example",
}


class Callbacks:
    """A Keras CallbackList whose members' counters and bests can be saved and restored.

    Args:
      callbacks: Keras callbacks. Those that change the learning rate are refused: it is a function of the step.
      model: given to each of them; its `optimizer` attribute is the run's.
      params: as Keras passes them: `epochs`, `steps`, `verbose`.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        params: dict[str, Any],
    ):
        for callback in callbacks:
            for refused, instead in _REFUSED.items():
                if isinstance(callback, refused):
                    raise InputError(
                        f"callback {type(callback).__name__} cannot be used here; use {instead} instead"
                    )
        self._model = model
        self._list = keras.callbacks.CallbackList(
            list(callbacks), add_history=True, model=model, **params
        )
        self._learning_rate = _constant_learning_rate(model)

    @property
    def history(self) -> dict[str, list[float]]:
        """Logs of each epoch of this process, as from `fit`."""
        return self._model.history.history

    def call(self, event: str, *arguments: Any) -> None:
        """Calls e.g. `on_epoch_end` of every callback; refuses a change of the learning rate."""
        getattr(self._list, event)(*arguments)
        if _constant_learning_rate(self._model) != self._learning_rate:
            raise InputError(
                f"a callback changed the learning rate in {event}; "
                "put a schedule (a function of the step) into the optimizer instead"
            )

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(plain values, arrays) that the callbacks hold, by place, class and attribute."""
        values: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for i, callback in enumerate(self._list.callbacks):
            for name, value in vars(callback).items():
                key = f"callbacks/{i}:{type(callback).__name__}/{name}"
                if isinstance(value, bool | None):  # texts are settings, such as a folder
                    values[key] = value
                elif isinstance(value, numbers.Integral):
                    values[key] = int(value)
                elif isinstance(value, numbers.Real):
                    values[key] = float(value)
                elif _is_array_list(value):
                    arrays |= {f"{key}/{j}": array for j, array in enumerate(value)}
        return values, arrays

    def restore(self, values: Mapping[str, Any], arrays: SavedArrays) -> None:
        """Undoes what `on_train_begin` reset."""
        members = {
            f"{i}:{type(callback).__name__}": callback
            for i, callback in enumerate(self._list.callbacks)
        }
        lists: dict[tuple[str, str], list[np.ndarray]] = {}
        for key in sorted(arrays, key=lambda key: int(key.rsplit("/", 1)[1])):
            _, member, name, _ = key.split("/")
            lists.setdefault((member, name), []).append(np.asarray(arrays[key]))
        plain = {tuple(key.split("/")[1:]): value for key, value in values.items()}
        for (member, name), value in (plain | lists).items():
            if member in members:
                setattr(members[member], name, value)


def _is_array_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, np.ndarray) for item in value)
    )


def _constant_learning_rate(model: keras.Model) -> float | None:
    """The learning rate where it is a plain variable; None where a schedule computes it."""
    rate = getattr(model.optimizer, "_learning_rate", None)
    return float(rate) if isinstance(rate, keras.Variable) else None

"""Callbacks that set the learning rate, as functions of the step from the start of training."""

import math
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as horovod
import keras

from tfmat.errors import InputError
from tfmat.optimizers.schedules import warmup_done


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` between two epochs.

    The epoch counts from the start of training, also in a run that goes on: `fit(initial_epoch=)`, or what follows from
    the optimizer's step, whichever is more. With `steps_per_execution=k` the rate is set once for k steps, at its value
    for the first of them.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: float = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Creates the callback.

        Args:
          initial_lr: the rate that is multiplied.
          multiplier: a function of the epoch, or a number m for `m ** (epoch - start_epoch)`, as in Horovod 0.28.
          start_epoch: the first epoch that is changed.
          end_epoch: the first that is not any more; None for no end.
          staircase: set the rate once an epoch; else at every batch, with a fraction of the epoch.
          momentum_correction: where the rate changes, scale the velocities of SGD and RMSprop with it (Goyal et al.
            2017, https://arxiv.org/abs/1706.02677, Remark 2), since they hold the old rate.
          steps_per_epoch: where Keras cannot know the number of batches.

        Raises:
          InputError: there is no `initial_lr`.
        """
        super().__init__()
        if initial_lr is None:
            raise InputError("initial_lr is needed: the learning rate that is multiplied")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.multiplier: Callable[[float], float] = (
            multiplier
            if callable(multiplier)
            else lambda epoch: multiplier ** (epoch - start_epoch)
        )
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the number of batches in an epoch.

        Raises:
          InputError: it cannot be known, or the optimizer's learning rate is a schedule.
        """
        self.steps_per_epoch = self.steps_per_epoch or self.params.get("steps")
        if not self.steps_per_epoch and not self.staircase:
            raise InputError(
                f"{type(self).__name__} cannot know the number of batches in an epoch; give it steps_per_epoch="
            )
        if not isinstance(self._optimizer()._learning_rate, keras.Variable):
            raise InputError(
                f"{type(self).__name__} cannot set the learning rate of an optimizer that has a schedule; "
                "give the optimizer a number"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate where it is this callback's to set."""
        position = self._position(batch)
        if self._covers(position) and (batch == 0 or not self.staircase):
            self._set_rate(self.rate(math.floor(position) if self.staircase else position))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Logs the rate as `lr`."""
        if logs is not None:
            logs["lr"] = float(self._optimizer().learning_rate)

    def rate(self, epoch: float) -> float:
        """The learning rate at `epoch`, whole or with the fraction of it that is done."""
        return self.initial_lr * self.multiplier(epoch)

    def _covers(self, epoch: float) -> bool:
        return epoch >= self.start_epoch and (self.end_epoch is None or epoch < self.end_epoch)

    def _position(self, batch: int) -> float:
        """Epochs done before this batch, from the start of training."""
        if not self.steps_per_epoch:
            return self._epoch
        # `iterations` counts updates; its variable counts batches.
        done = int(self._optimizer()._iterations)
        return max(self._epoch * self.steps_per_epoch + batch, done) / self.steps_per_epoch

    def _set_rate(self, rate: float) -> None:
        optimizer = self._optimizer()
        before = float(optimizer.learning_rate)
        optimizer.learning_rate = rate
        after = float(optimizer.learning_rate)  # as its variable rounds it
        if self.momentum_correction and after != before and before:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * (after / before))

    def _optimizer(self) -> Any:
        """The optimizer that holds the learning rate: inside LossScaleOptimizer there is another."""
        return getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)


def _velocities(optimizer: Any) -> list[Any]:
    """The slots that are sums of past gradients times the learning rate of their time; Adam's are not."""
    if isinstance(optimizer, keras.optimizers.SGD):
        return list(optimizer.momentums) if optimizer.built else []
    if isinstance(optimizer, keras.optimizers.RMSprop):
        return list(optimizer._momentums) if optimizer.built else []
    return []


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate, batch by batch, from `initial_lr / size` to `initial_lr` in `warmup_epochs`.

    `initial_lr` is the rate for all ranks together: `0.01 * hvd.size()`. At the b-th batch from the start of training
    (from 1), of n in an epoch, it is

        initial_lr / size * (1 + (size - 1) * b / (n * warmup_epochs))

    as in Horovod 0.28 (Goyal et al. 2017, https://arxiv.org/abs/1706.02677). Afterwards the rate is left alone.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        scaling: str = "linear",
    ) -> None:
        """Creates the callback.

        Args:
          initial_lr: the rate at the end of the warm-up.
          warmup_epochs: its length.
          momentum_correction: see LearningRateScheduleCallback.
          steps_per_epoch: where Keras cannot know the number of batches.
          verbose: 1 to print a line when it is done.
          scaling: "linear", or "sqrt" where `initial_lr` is `0.01 * math.sqrt(hvd.size())`: the ramp then begins at
            `initial_lr / sqrt(size)`.

        Raises:
          InputError: an argument cannot be used.
        """
        if scaling not in ("linear", "sqrt"):
            raise InputError(f"scaling is {scaling!r}; it is 'linear' or 'sqrt'")
        if warmup_epochs < 0:
            raise InputError(f"warmup_epochs is {warmup_epochs}; it is a number from 0")

        def multiplier(epoch: float) -> float:
            factor = math.sqrt(horovod.size()) if scaling == "sqrt" else horovod.size()
            done = warmup_done(epoch + 1.0 / (self.steps_per_epoch or 1), warmup_epochs)
            return (1.0 + (factor - 1.0) * done) / factor

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose
        self._last: float | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate during the warm-up, and to its end value once after it."""
        position = self._position(batch)
        if self._covers(position):
            self._last = self.rate(position)
            self._set_rate(self._last)
            return
        # The last execution may have been of several steps. A rate that another callback has set since is left alone.
        current = float(self._optimizer().learning_rate)
        left_by_us = self._last is not None and math.isclose(current, self._last, rel_tol=1e-6)
        resumed = self._last is None and self.warmup_epochs and position == self.warmup_epochs
        if left_by_us or resumed:
            self._set_rate(self.initial_lr)
        self._last = math.nan

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Logs the rate as `lr`."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch == self.warmup_epochs - 1 and horovod.rank() == 0:
            rate = float(self._optimizer().learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")

"""Horovod's callbacks for `model.fit`, under Horovod's names.

Their order in the list: what restores state when training begins, then BroadcastGlobalVariablesCallback,
MetricAverageCallback, the learning rate's, and then what reads the logs.
"""

import math
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf
from horovod.tensorflow.mpi_ops import join

from tfmat.errors import InputError
from tfmat.horovod.optimizer import GradientReduction, broadcast_variables
from tfmat.networks.factory import plain_normalizations
from tfmat.optimizers import warmup_done

# --------------------------------------------------------------------------------------------------
# Callbacks that set the learning rate, as functions of the step from the start of training.


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

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
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

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Logs the rate as `lr`."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch == self.warmup_epochs - 1 and horovod.rank() == 0:
            rate = float(self._optimizer().learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


# --------------------------------------------------------------------------------------------------
# Callbacks that keep the ranks alike.

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

# _PATIENCE: seconds in which all ranks stop within an epoch, where one did; as long as a slow callback may take.
_PATIENCE = 60.0


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces an epoch's metrics by those over the examples of all ranks, whatever part of them each rank has.

    A metric's state, its sums and counts, is added up over the ranks, and the metric is computed from the sum. One
    process would have found the same, also for metrics that are no means (AUC, RootMeanSquaredError, R2Score). State
    that Keras declares not to be additive is averaged, with the ranks' numbers of examples as weights. So are logs that
    are no metric of the model.

    Logs that some ranks do not have, such as logs of validation on rank 0 alone, come to all.

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

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
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
        examples = [examples for (_, examples), _, _ in every]
        # A rank without validation data learns what the others found, so that all stop and save alike.
        for name in dict.fromkeys(name for _, _, theirs in every for name in theirs):
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

    def content(self) -> tuple[list[Any], float]:
        """The state that other ranks need: the variables' values, and `examples`."""
        return self._values, self.examples

    def result_of(self, every: list[tuple[list[Any], float]]) -> dict[str, float]:
        """The metrics' values from several ranks' states; leaves the metrics with that state."""
        weights = [examples for _, examples in every]
        for i, variable in enumerate(self._variables):
            values = np.stack([values[i] for values, _ in every]).astype(np.float64)
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


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives every rank the state of one, when training begins and before step 0, also after a restore.

    State is all that training changes: weights, moving statistics, random states, and the slots, learning rate and step
    of the optimizer and of others that the model has as attributes. Slots are made first. Random states then differ by
    rank, as functions of the root's, or ranks would all drop out the same places of their batches.

    It also refuses what would leave ranks waiting for each other. At each epoch they compare where they are and their
    learning rates, which differ where a callback that stops, restores or changes the rate is not on every rank. It
    switches `jit_compile` off, which Keras switches on by itself on GPUs: Horovod's operation is not built for XLA.

    Callbacks that restore something when training begins (BackupAndRestore) come before it in the list.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Sequence[Any] | None = None
    ) -> None:
        """`device`: of the operations, "" for Horovod's choice; `local_variables`: each rank keeps its own of these."""
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, (list, tuple, set)):
            local_variables = [local_variables]
        self._local = {id(_native(variable)) for variable in local_variables}

    def register_local_var(self, var: Any) -> None:
        """Lets each rank keep its own value of the variable."""
        self._local.add(id(_native(var)))

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts, or sees to it that the first batch does where only that can build the model.

        Raises:
          InputError: `root_rank` does not exist, or ranks differ in their models, epochs or batches an epoch.
        """
        if not 0 <= self.root_rank < horovod.size():
            raise InputError(f"root_rank is {self.root_rank}, but there are {horovod.size()} ranks")
        self._check_lengths()
        if horovod.size() > 1:
            self._prepare_reductions()
        self._synchronized = False
        if self.model.jit_compile:
            warnings.warn(
                "jit_compile is switched off: Horovod's XLA operation is not built", stacklevel=2
            )
            self.model.jit_compile = False
            self.model.make_train_function(force=True)
        if all(layer.built for layer in self.model._flatten_layers()):
            self._synchronize()
        else:
            self.model.train_function = self._build_first(self.model.train_function)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """InputError where another rank is elsewhere, or has another learning rate."""
        self._check_place(f"begins epoch {epoch + 1}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts."""
        self._batches = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """InputError where ranks had different numbers of batches, which Keras may not know before, or one stopped."""
        if horovod.size() == 1:
            return
        every = self._numbers_of_batches(epoch)
        if len(set(every)) > 1:
            raise InputError(
                f"the ranks had different numbers of batches ({', '.join(map(str, every))}, from rank 0) in epoch "
                f"{epoch + 1}; give each of them as many, such as by repeat() and fit(steps_per_epoch=), and the same "
                "callbacks"
            )

    def _numbers_of_batches(self, epoch: int) -> list[int]:
        """The numbers of batches in the epoch, of all ranks, also of ranks that are still in it."""
        early = self._batches < (self.params.get("steps") or 0)
        if not early or not any(each.gathers for each in self._reductions()):
            # Others that still reduce gradients get zeros from this rank. TensorFlow 2.21 calls an operation without
            # inputs only once, and keeps its result: a new function is called. Traced here, it brings no warnings.
            tf.function(join, autograph=False).get_concrete_function()()
            found: list[int] = horovod.allgather_object(self._batches, name="batches")
            return found
        # Others that still gather rows would wait for this rank's for ever, unless all have stopped alike.
        every = _within(_PATIENCE, lambda: horovod.allgather_object(self._batches, name="batches"))
        if every is None:
            raise InputError(
                f"rank {horovod.rank()} stopped after {self._batches} batches of epoch {epoch + 1}, and others did not "
                f"within {_PATIENCE:g} s; give every rank the same callbacks"
            )
        return list(every)

    def _reductions(self) -> list[GradientReduction]:
        optimizers = [self.model.optimizer, *_other_optimizers(self.model)]
        return [each._reduction for each in optimizers if hasattr(each, "_reduction")]

    def on_train_end(self, logs: Any = None) -> None:
        """InputError where another rank goes on."""
        self._check_place("ends training")

    def _check_place(self, where: str) -> None:
        if horovod.size() == 1:
            return
        rate = float(self.model.optimizer.learning_rate) if self._synchronized else None
        every = horovod.allgather_object((where, rate), name="place")
        for rank, (there, other) in enumerate(every):
            if there != every[0][0]:
                raise InputError(
                    f"rank {rank} {there}, but rank 0 {every[0][0]}: one of them would wait forever; give every rank "
                    "the same callbacks (EarlyStopping, BackupAndRestore, and MetricAverageCallback before them)"
                )
            if other != every[0][1]:
                raise InputError(
                    f"rank {rank} has learning rate {other}, but rank 0 has {every[0][1]} when it {where}; give every "
                    "rank the same callbacks (ReduceLROnPlateau, and MetricAverageCallback before it)"
                )

    def _prepare_reductions(self) -> None:
        """Has rows of embeddings sent whole where Keras does not know the number of batches.

        One rank may then end an epoch before the others. Horovod's join adds zeros to sums, and gathers no rows.

        Raises:
          InputError: ranks have other optimizers, and would wait for each other's sums.
        """
        reductions = self._reductions()
        mine = [reduction.name for reduction in reductions]
        every = horovod.allgather_object(mine, name="optimizers")
        for rank, theirs in enumerate(every):
            if theirs != every[0]:
                raise InputError(
                    f"rank {rank} reduces the gradients of {_listed(theirs)}, but rank 0 those of {_listed(every[0])}; "
                    "compile the same model with the same optimizer on every rank"
                )
        rows = [reduction for reduction in reductions if not reduction.sparse_as_dense]
        if rows and self.params.get("steps") is None:
            for reduction in rows:
                reduction.sparse_as_dense = True
            self.model.make_train_function(force=True)

    def _build_first(self, train_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The train function of a model without an Input: what its batches look like is known with the first."""

        def build_and_train(iterator: Any) -> Any:
            self.model.train_function = train_function
            # Symbolically: nothing is computed and no batch is used up.
            self.model._symbolic_build(data_batch=iterator.element_spec)
            self._synchronize()
            return train_function(iterator)

        return build_and_train

    def _synchronize(self) -> None:
        optimizer = self.model.optimizer
        normalizations = [each for each in plain_normalizations(self.model) if each.trainable]
        if normalizations and horovod.size() > 1 and horovod.rank() == self.root_rank:
            warnings.warn(
                f"layer '{normalizations[0].name}': each rank normalizes its own part of a batch and keeps moving "
                "statistics of its own, of which the file has those of the rank that saves it; tfmat.Trainer "
                "takes them over the whole batch",
                stacklevel=2,
            )
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = [*self.model.variables, *optimizer.variables]
        for other in _other_optimizers(self.model):
            variables += other.variables
        with tf.device(self.device or None):
            broadcast_variables(
                [each for each in variables if id(_native(each)) not in self._local], self.root_rank
            )
        self._synchronized = True
        distance = (horovod.rank() - self.root_rank) % horovod.size()
        for variable in self.model.variables:
            if variable.path.endswith("seed_generator_state") and distance:
                # (seed, counter): another seed is another sequence.
                variable.assign(variable.numpy() + np.array([distance, 0], np.uint32))

    def _check_lengths(self) -> None:
        """Ranks with fewer batches than others would leave those waiting at the end of the epoch."""
        mine = {name: self.params.get(name) for name in ("epochs", "steps")}
        every = horovod.allgather_object(mine, name="lengths")
        for name, what in (("epochs", "epochs"), ("steps", "batches an epoch")):
            numbers = [each[name] for each in every]
            if len(set(numbers)) > 1:
                raise InputError(
                    f"the ranks have different numbers of {what} ({', '.join(map(str, numbers))}, from rank 0): "
                    "some would wait for the others forever; give fit the same epochs= and steps_per_epoch= everywhere"
                )
        self._batches = 0


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no optimizer"


def _within(seconds: float, function: Callable[[], Any]) -> Any:
    """Returns the function's value, or None where it fails or takes longer; a longer one is left to itself."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            found.put(function())
        except tf.errors.OpError:
            found.put(None)

    threading.Thread(target=run, daemon=True).start()
    try:
        return found.get(timeout=seconds)
    except queue.Empty:
        return None


def _other_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Optimizers that a model has as attributes, alone or in lists and dictionaries, as a pair of networks has."""
    found = []
    for value in vars(model).values():
        several = value.values() if isinstance(value, dict) else value
        found += list(several) if isinstance(value, dict | list | tuple) else [value]
    unique = {id(each): each for each in found if isinstance(each, keras.optimizers.Optimizer)}
    unique.pop(id(model.optimizer), None)
    return list(unique.values())


def _native(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable

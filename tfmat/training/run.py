"""A run from its first step to its last: sources of batches, callbacks, progress; and `Run`, which is all of it.

`Trainer` gives it a Keras model of the caller's own.
"""

import contextlib
import dataclasses
import math
import numbers
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rich.progress import BarColumn, Progress, TextColumn

from tfmat.backends.base import Backend, SavedArrays, from_rank_0
from tfmat.backends.losses import (
    GivenMetrics,
    make_metrics,
    num_sums,
    per_example_function,
    values_of,
)
from tfmat.backends.registry import make_backend
from tfmat.backends.step import check_model, choose_for, chosen_layers
from tfmat.config import CheckpointSection, DataSection, Duration, Settings, Span, parse_growth
from tfmat.console import bar_console, clock_text, log
from tfmat.data.dataset import digest
from tfmat.data.order import ExampleOrder
from tfmat.data.pipeline import (
    DatasetSource,
    MemorySource,
    Source,
    StreamSource,
    fits_in_memory,
    sequential_blocks,
)
from tfmat.errors import DivergedError, InputError, Interrupted, TfmatError
from tfmat.files import plain, write_json
from tfmat.optimizers import (
    build_optimizer,
    build_schedule,
    check_optimizer,
    find_optimizer,
    make_functional,
    slots_of,
)
from tfmat.training.meter import Meter, Trace, write_profile
from tfmat.training.run_folder import Checkpoint, RunFolder, Status, read_metrics

# --------------------------------------------------------------------------------------------------
# The examples of a run as backends take them: with their weights, as batches, and all of them for an evaluation.


# Examples in a shard of stored data where nothing else says so; part of their order.
SHARD_SIZE = 131_072
# Examples per worker in one batch of an evaluation.
_EVALUATION_BATCH_SIZE = 500
# Seconds of steps from which the rate of a run is measured.
_PROBE_SECONDS = 1.5
# About half a second of the default network on two cores: short enough for Ctrl-C, long enough to cost nothing.
_EXAMPLES_PER_CALL = 15_000
_STEPS_PER_CALL = 200


def num_examples(data: Any) -> int:
    """Length of the first axis, which is the same for all arrays or tensors of a structure."""
    return len(tf.nest.flatten(data)[0])


def with_weights(
    features: Any, labels: Any, sample_weight: Any = None, class_weight: Any = None
) -> tuple[Any, ...]:
    """(features, labels), or with the weights behind them, as backends take data.

    Args:
      features, labels: arrays or structures of them [examples, ...].
      sample_weight: [examples], or None for 1.
      class_weight: class -> weight of its examples; labels are classes [examples] or one-hot [examples, classes].

    Raises:
      InputError: these are no weights of these examples.
    """
    if sample_weight is None and class_weight is None:
        return features, labels
    count = num_examples((features, labels))
    weights = np.ones(count, np.float32)
    if sample_weight is not None:
        weights = _checked(sample_weight, count)
    if class_weight is not None:
        weights = weights * _of_classes(labels, class_weight)
    return features, labels, weights


def unpack(name: str, data: Any) -> tuple[Any, ...]:
    """(features, labels) or (features, labels, weights) as a user gave them; InputError where they are neither."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise InputError(f"{name} is (features, labels) or (features, labels, sample_weight)")
    return examples_of(*data)


def examples_of(features: Any, labels: Any, *weights: Any) -> tuple[Any, ...]:
    """A user's examples as arrays of one length, as `with_weights` returns them; InputError for what is none."""
    features, labels = _arrays("features", features), _arrays("labels", labels)
    lengths = [len(array) for array in tf.nest.flatten((features, labels))]
    if len(set(lengths)) != 1:
        raise InputError(f"features and labels differ in length: {lengths}")
    return with_weights(features, labels, *weights)


def _arrays(name: str, given: Any) -> Any:
    """Arrays [examples, ...] in their structure, of tensors and DataFrames too."""

    def array(one: Any) -> np.ndarray:
        if not hasattr(one, "__array__") or np.ndim(one) == 0:
            raise InputError(
                f"{name} has a {type(one).__name__}; give arrays [examples, ...] (of lists np.asarray makes one), or a "
                "batched tf.data.Dataset of (features, labels)"
            )
        found = one if isinstance(one, np.ndarray) else np.asarray(one)
        words = found.dtype == object and all(
            isinstance(value, str | bytes) for value in found.flat
        )
        if found.dtype.kind in "OMm" and not words:
            raise InputError(
                f"{name} has the dtype {found.dtype}; give numbers, of a DataFrame its numerical columns alone"
            )
        return found

    return tf.nest.map_structure(array, given)


def make_source(
    features: Any,
    labels: Any,
    settings: Settings,
    backend: Backend,
    *,
    shard_size: int = SHARD_SIZE,
    steps_per_epoch: int | None = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
) -> Source:
    """Arrays in memory or streamed, or a user's tf.data set; see `Trainer.fit` for the arguments.

    Raises:
      InputError: where lengths differ, or a batch is larger than the set.
    """
    batch_size = settings.global_batch_size
    columns = backend.training_columns(batch_size)
    if isinstance(features, tf.data.Dataset):
        if settings.batch_growth:
            raise InputError("batch_growth is for arrays; a tf.data set makes its own batches")
        if sample_weight is not None or class_weight is not None:
            raise InputError(
                "sample_weight and class_weight are for arrays; let the tf.data set yield (features, labels, weights)"
            )
        return DatasetSource(features, batch_size, steps_per_epoch, columns)
    examples = examples_of(features, labels, sample_weight, class_weight)
    arrays, count = tf.nest.flatten(examples[:2]), num_examples(examples)
    if batch_size > count:
        raise InputError(
            f"global_batch_size is {batch_size}, there are {count} training examples; "
            "use a smaller batch or more examples"
        )
    # Each for itself: every worker takes its columns of batches of its own order over the whole set.
    alone = settings.data.sharding == "independent" and backend.world_size > 1
    order = ExampleOrder(
        count, settings.seed, shard_size, worker=backend.replica if alone else None
    )
    fits = all(backend.collectives.gather(fits_in_memory(sum(array.nbytes for array in arrays))))
    if settings.data.reading == "stream" or (settings.data.reading == "auto" and not fits):
        with tf.device("CPU:0"):
            data = backend.host_tensors(examples)
            return StreamSource(data, order, settings.epochs(count), backend.training_columns)
    return MemorySource(
        backend.place(examples), order, settings.epochs(count), backend.training_columns
    )


def build_to_measure(
    backend: Backend,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    settings: Settings,
    loss: Any,
    auxiliary_loss: Any = None,
) -> None:
    """Builds the backend's step as a run does, but without metrics: in the settings' precision, for their batch."""
    choice = choose_for(backend, settings.precision, model, settings.global_batch_size)
    backend.build(
        model,
        optimizer,
        per_example_function(loss),
        {},
        auxiliary_loss=per_example_function(auxiliary_loss) if auxiliary_loss else None,
        bfloat16=chosen_layers(model, choice),
    )


def check_same_everywhere(backend: Backend, config: Mapping[str, Any]) -> None:
    """Refuses workers that would not do the same steps: the others would wait for them forever."""
    names = (
        "num_examples",
        "steps_per_epoch",
        "global_batch_size",
        "batch_growth",
        "seed",
        "train_for",
    )
    answers = backend.collectives.gather({name: config.get(name) for name in names})
    for rank, answer in enumerate(answers):
        for name in names:
            if answer[name] != answers[0][name]:
                raise InputError(
                    f"rank {rank} has {name}={answer[name]}, rank 0 has {name}={answers[0][name]}; "
                    "give every worker the same data and the same settings"
                )


def steps_per_call(source: Source, wanted: int | None, world_size: int) -> int:
    """Steps in one call of the graph: what the user wants, or about half a second's worth."""
    examples_per_step = max(1, source.num_examples // source.steps_per_epoch)
    examples_per_call = _EXAMPLES_PER_CALL * world_size
    automatic = max(1, min(_STEPS_PER_CALL, examples_per_call // examples_per_step))
    return min(wanted or automatic, source.max_steps)


def measure_steps_per_second(backend: Backend, source: Source, count: int) -> float:
    """Trains for a moment on a built backend, then puts its state back. The first call, which compiles, is left out."""
    before = backend.read()
    count = min(count, source.steps_per_epoch)
    starts = range(0, source.steps_per_epoch - count + 1, count)
    spans = [Span(0, first, count) for first in starts]
    steps, elapsed = -count, 0.0
    while elapsed < _PROBE_SECONDS:
        for block in source.blocks(iter(spans)):
            started = time.monotonic()
            backend.train(*block)
            if steps >= 0:
                elapsed += time.monotonic() - started
            steps += count
            # Rank 0's clock decides, or the others would wait for steps that it does not do.
            elapsed = backend.collectives.broadcast(elapsed)
            if elapsed >= _PROBE_SECONDS:
                break
    backend.write(before)
    return steps / elapsed


def _checked(sample_weight: Any, count: int) -> np.ndarray:
    several = tf.nest.is_nested(sample_weight) and not all(
        np.isscalar(weight) for weight in tf.nest.flatten(sample_weight)
    )
    if several or isinstance(sample_weight, Mapping):
        raise InputError(
            "sample_weight for each of several outputs is not supported; give one array [examples], or weight the "
            "outputs in a loss function of (labels, outputs)"
        )
    weights = np.asarray(sample_weight)
    if weights.dtype.kind not in "fiub":
        raise InputError(f"sample_weight has type {weights.dtype}; give numbers [{count}]")
    if weights.shape == (count, 1):
        weights = weights[:, 0]
    if weights.shape != (count,):
        raise InputError(
            f"sample_weight has shape {list(weights.shape)}; give one number for each of the {count} examples"
        )
    return weights.astype(np.float32)


def _of_classes(labels: Any, class_weight: Mapping[int, float]) -> np.ndarray:
    if len(tf.nest.flatten(labels)) != 1 or isinstance(labels, Mapping):
        raise InputError("class_weight is for a model with one output; give sample_weight instead")
    classes = np.asarray(labels)
    if classes.ndim == 2:
        classes = classes[:, 0] if classes.shape[1] == 1 else classes.argmax(axis=1)
    if classes.ndim != 1:
        raise InputError(
            f"class_weight is for labels [examples] or [examples, classes], not {list(classes.shape)}; give "
            "sample_weight"
        )
    classes = np.round(classes).astype(int)
    weights = np.ones(len(classes), np.float32)
    for number, weight in class_weight.items():
        weights[classes == number] = weight
    return weights


# --------------------------------------------------------------------------------------------------
# Drives ordinary `keras.callbacks`, once a block, and keeps in the checkpoint what they remember.


_REFUSED = {
    keras.callbacks.LearningRateScheduler: "a schedule in the optimizer (keras.optimizers.schedules)",
    keras.callbacks.ReduceLROnPlateau: "a schedule in the optimizer (keras.optimizers.schedules)",
    keras.callbacks.BackupAndRestore: "workdir=..., which resumes to the exact example",
}


# Attributes of callbacks that are saved as numbers.
Plain = bool | int | float | None


class Callbacks:
    """A Keras CallbackList whose members' counters and bests can be saved and restored.

    Callbacks that change the learning rate are refused: it is a function of the step.
    """

    def __init__(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        params: dict[str, int],
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

    def state(self) -> tuple[dict[str, Plain], dict[str, np.ndarray]]:
        """(plain values, arrays) that the callbacks hold, by place, class and attribute."""
        values: dict[str, Plain] = {}
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

    def restore(self, values: Mapping[str, Plain], arrays: SavedArrays) -> None:
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


# --------------------------------------------------------------------------------------------------
# Progress of a training run: a bar with rate, remaining time and losses on a terminal, a line an epoch elsewhere.


class TrainingProgress:
    """Context manager around a run. It shows nothing for workers other than rank 0, and for quiet runs.

    Attributes:
      total_steps: of the whole run; set before the run begins.
    """

    total_steps = 0

    def __init__(self, shown: bool = True):
        self._shown = shown
        self._bar: Progress | None = None
        if shown and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f} %  {task.fields[text]}"),
                console=bar_console(),
                transient=True,
            )

    def __enter__(self) -> "TrainingProgress":
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task("training", total=self.total_steps, text="first step")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, line: str) -> None:
        """Prints a line above the bar."""
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        elif self._shown:
            # A terminal that was closed, or a reader that has gone, does not end a run of hours; log.txt has the line.
            log(line)

    def update(self, *, step: int, description: str, text: str) -> None:
        """Moves the bar, and writes beside it."""
        if self._bar:
            self._bar.update(self._task, completed=step, description=description, text=text)


# --------------------------------------------------------------------------------------------------
# The signals that ask a run to stop.


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Context manager; inside it `received` is the signal that came, 0 for none.

    A second Ctrl-C stops at once, without saving. Outside the main thread, where Python takes no signals, it does
    nothing.
    """

    def __init__(self) -> None:
        self.received: int = 0
        self._at_once = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        # TensorFlow makes a TypeError of what is raised while it looks at the arguments of a graph.
        expected = isinstance(error, TfmatError | KeyboardInterrupt)
        if self._at_once and error is not None and not expected:
            raise KeyboardInterrupt from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            self._at_once = True
            raise KeyboardInterrupt
        self.received = number


# Steps of the whole run and of an epoch -> the optimizer.
OptimizerFactory = Callable[[int, int], keras.optimizers.Optimizer]

# --------------------------------------------------------------------------------------------------
# A run from its data to its result: takes up a checkpoint, trains, and leaves the status true whatever happens.


# A total number of steps, for the trial that measures the rate: no schedule may find it too short.
_ENDLESS = 2**40
# With profile=true, after the first calls of the graph: stamps within the steps cost a few per cent of them.
_ONE_CALL_IN = 8
# Figures of asynchronous workers, which log.txt tells of each epoch.
_TOLD_FIGURES = (
    "mean_staleness",
    "max_staleness",
    "dropped_gradients",
    "averagings_per_step",
    "consensus_distance",
)


@dataclasses.dataclass
class Position:
    """Where a run stands; saved with every checkpoint, so that nothing about the run is lost by stopping."""

    step: int = 0
    epoch_sums: list[float] = dataclasses.field(default_factory=list)
    epoch_examples: float = 0.0
    best_val_loss: float = math.inf
    seconds: float = 0.0
    training_seconds: float = 0.0
    validation_seconds: float = 0.0
    last_record: dict[str, Any] = dataclasses.field(default_factory=dict)
    end_reason: str = ""  # why training ended, once it has


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The answer of `Trainer.fit`.

    Attributes:
      reason: why the run ended, in words.
      step: global steps done.
      total_steps: global steps that were planned.
      history: logs by name, one value per epoch of the whole run, as from Keras `fit`.
      record: the last line of metrics.jsonl, and `val_..._all` over all validation examples.
    """

    reason: str
    step: int
    total_steps: int
    history: dict[str, list[float]]
    record: dict[str, Any]


class Run:
    """A model, what it learns by, and one process's part of its training. It decides; the backend computes.

    `tfmat.Trainer` describes the arguments that are not here.

    Args:
      model: built; its weights are the start.
      backend: runs the steps; started before `train`.
      whole: what is saved: the model, or one that holds its layers.
      optimizer: None: as the settings say.
      counted: what the examples are called in rates.
    """

    def __init__(
        self,
        model: keras.Model,
        settings: Settings,
        backend: Backend,
        *,
        whole: keras.Model | None = None,
        loss: Any = "mean_squared_error",
        optimizer: str | keras.optimizers.Optimizer | OptimizerFactory | None = None,
        metrics: GivenMetrics = None,
        auxiliary_loss: Any = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        sidecar: Any = None,
        counted: str = "examples",
        workdir: str | None = None,
        quiet: bool = False,
    ):
        check_model(model)
        self.settings, self._backend = settings, backend
        self._model, self._whole, self._sidecar = model, whole or model, sidecar
        self._loss = per_example_function(loss, getattr(model, "output_names", ()))
        self._metrics = make_metrics(metrics, model)
        self._auxiliary_loss = per_example_function(auxiliary_loss) if auxiliary_loss else None
        self._optimizer, self._keras_callbacks = optimizer, callbacks
        check_optimizer(optimizer)
        self._workdir, self._quiet, self._counted = workdir, quiet, counted
        self._is_built = False

    def train(self, source: Source, validation: Any, config: Mapping[str, Any]) -> RunResult:
        """Trains to the end, from the last checkpoint of the workdir if there is one.

        Args:
          source: training examples.
          validation: (features, labels), where the backend wants them; None for none.
          config: saved as config.json; a run goes on only with the same one.

        Raises:
          InputError, Interrupted, DivergedError, or whatever a callback raises; status.json says which.
        """
        backend, settings = self._backend, self.settings
        self._collectives = backend.collectives
        self._source, self._validation, self._epochs = source, validation, source.plan
        lengths = {"num_examples": source.num_examples, "steps_per_epoch": source.steps_per_epoch}
        self._config = {**config, **lengths}
        self._progress = TrainingProgress(not self._quiet and backend.rank == 0)
        self._log: Callable[[str], None] = self._progress.show
        self._folder: RunFolder | None = None  # rank 0 alone has one
        self._position = Position()
        self._is_under_way = self._sent_told = False
        self._last_saved_step = self._first_step = 0
        if settings.profile:
            backend.time_steps(_ONE_CALL_IN)
        with contextlib.ExitStack() as stack:
            if self._workdir is not None and backend.rank == 0:
                folder = stack.enter_context(RunFolder(self._workdir, settings.checkpoint.keep))
                self._folder, self._log = folder, folder.logger(self._progress.show)
                self._collectives.when_lost(lambda message: folder.set_status("failed", message))
            # Rank 0 knows what was done before, and all do as it says.
            saved, told = self._collectives.broadcast(
                (self._folder.check_config(self._config), plain(self._folder.status()))
                if self._folder
                else (None, {})
            )
            status = Status(**told)
            if saved and status.ended:
                return self._ended(status, saved)
            check_same_everywhere(backend, self._config)
            self._prepare(saved)
            self._progress.total_steps = self._total
            with self._progress:
                return self._train()

    def _ended(self, status: Status, saved: dict[str, Any]) -> RunResult:
        """The result of a run that had ended before; its weights are put into the model."""
        workdir, model = self._workdir, self._whole
        if status.state == "diverged":
            raise DivergedError(f"the run in {workdir} diverged: {status.reason}")
        if self._folder:
            model.optimizer = None  # or Keras would look for its slots in the file
            model.load_weights(self._folder.path / "final.keras")
        self._collectives.broadcast_variables(v.value for v in model.variables)
        late = RunFolder.too_late(saved, self._config)
        more = f"; {late} changes nothing any more, give another workdir to train with it"
        self._progress.show(f"the run in {workdir} is done: {status.reason}{more if late else ''}")
        history = self._recorded_history()
        return RunResult(
            status.reason, status.step, saved["total_steps"], history, status.last_record
        )

    def _recorded_history(self) -> dict[str, list[float]]:
        """The logs of the epochs in metrics.jsonl, which rank 0 tells all others."""
        history: dict[str, list[float]] = {}
        path = self._folder.path / "metrics.jsonl" if self._folder else None
        for record in read_metrics(path) if path else []:
            for name, value in record.items():
                if name.removeprefix("val_") in ("loss", *self._metrics):
                    history.setdefault(name, []).append(math.nan if value is None else value)
        return self._collectives.broadcast(history)

    # Lengths and precision are found, the step is built.

    def _prepare(self, saved: dict[str, Any] | None) -> None:
        settings, backend = self.settings, self._backend
        if saved:
            self._total, bfloat16 = saved["total_steps"], saved.get("plan", {}).get("bfloat16")
            if bfloat16 and settings.precision == "float32":
                raise InputError(
                    f"the run in {self._workdir} was started with another precision than float32; use the same one to "
                    "go on, or another workdir"
                )
        else:
            bfloat16 = choose_for(
                backend,
                settings.precision,
                self._model,
                settings.global_batch_size,
                jit_compile=settings.jit_compile,
                log=self._log,
            )
            self._total = self._count_steps(bfloat16)
        if self._folder and not saved:
            resolved = self._resolved()
            if bfloat16:
                resolved["bfloat16"] = bfloat16
            self._folder.start(
                {**self._config, "total_steps": self._total, "plan": resolved}, self._sidecar
            )
        self.build(self._total, self._source.steps_per_epoch, bfloat16)
        if backend.note:
            self._log(backend.note)
        self._model.stop_training = False

    def build(
        self, total: int, steps_per_epoch: int, bfloat16: Mapping[str, bool] | None = None
    ) -> None:
        """Hands the model, and its optimizer for a run of that length, to the backend.

        `bfloat16` says which layers compute in it, see `tfmat.backends.step.choose`.
        """
        optimizer = self._optimizer
        if optimizer is None:
            optimizer = self._optimizer_of_settings(total)
        elif callable(optimizer) and not isinstance(optimizer, keras.optimizers.Optimizer):
            optimizer = optimizer(total, steps_per_epoch)
        optimizer = make_functional(optimizer)
        self._backend.build(
            self._model,
            optimizer,
            self._loss,
            self._metrics,
            auxiliary_loss=self._auxiliary_loss,
            jit_compile=self.settings.jit_compile,
            bfloat16=chosen_layers(self._model, bfloat16 or {}),
        )
        # Where Keras callbacks look for it.
        self._model.optimizer = optimizer
        self._is_built = True

    def _optimizer_of_settings(self, total: int) -> keras.optimizers.Optimizer:
        settings, epochs, section = self.settings, self._epochs, self.settings.optimizer
        taken, asked = section.warmup_steps(epochs, total), epochs.steps(section.warmup)
        if taken < asked:
            self._log(
                f"note: optimizer.warmup={section.warmup} takes {asked} steps, the whole run {total}; "
                f"the warm-up is cut to a tenth of the run (steps: {taken})"
            )
        batch_size = self._backend.examples_of_a_step(settings.global_batch_size)
        schedule = build_schedule(section, epochs, total, batch_size)
        return build_optimizer(section, schedule, seed=settings.seed)

    def _count_steps(self, bfloat16: Mapping[str, bool] | None) -> int:
        """Steps of the whole run. A time is measured once and then fixed: schedules stay functions of the step."""
        duration, epochs = self.settings.train_for, self._epochs
        if duration.seconds is None:
            total = epochs.steps(duration)
        else:
            self.build(_ENDLESS, self._source.steps_per_epoch, bfloat16)
            rate = measure_steps_per_second(self._backend, self._source, self._steps_per_call)
            # Larger batches later on are done in no less time an epoch: count epochs, not steps.
            total = int(duration.seconds * rate)
            if epochs.growth:
                total = epochs.steps(Duration(total / epochs.steps_in(0), "epochs"))
            self._log(f"{duration} are {total} steps at the measured {rate:.1f} steps/s")
        if total < 1:
            raise InputError(f"train_for is '{duration}', which is less than one step; give more")
        return total

    @property
    def _steps_per_call(self) -> int:
        """Steps in one call of the graph, and no more than are to be traced."""
        wanted, traced = self.settings.steps_per_call, self.settings.trace_steps
        if traced and self._workdir is not None:
            wanted = min(wanted or traced, traced)
        return steps_per_call(self._source, wanted, self._backend.world_size)

    def _resolved(self) -> dict[str, Any]:
        """The plan for people: the lengths in steps, and where they are done. Part of config.json."""
        settings, backend, epochs, total = self.settings, self._backend, self._epochs, self._total
        mesh = dict(backend.options.mesh.axes) if backend.uses_mesh else None
        optimizer, every = settings.optimizer, settings.checkpoint.every
        return {
            "backend": backend.name,
            "processes": self._collectives.size,
            **({"mesh": mesh} if mesh else {}),
            "steps": total,
            "epochs": round(epochs.epochs(total), 6),
            "steps_per_epoch": epochs.steps_in(0),
            "batch_from_epoch": {
                first: epochs.batch_size(first) for first in (0, *dict(settings.batch_growth))
            },
            "warmup_steps": optimizer.warmup_steps(epochs, total),
            **(
                {"rate_falls_at_steps": optimizer.falls(epochs, total)}
                if optimizer.schedule == "step"
                else {}
            ),
            "first_checkpoint_at_step": None
            if every.seconds is not None
            else min(total, epochs.next_multiple(every, 0)),
        }

    # From the last checkpoint to the end, or to where it is stopped.

    def _train(self) -> RunResult:
        self._num_epochs = math.ceil(self._epochs.epochs(self._total))
        params = {
            "epochs": self._num_epochs,
            "steps": self._source.steps_per_epoch,
            "verbose": 0,
        }
        self._callbacks = Callbacks(self._keras_callbacks, self._model, params)
        trace = None
        if self._folder and self.settings.trace_steps:
            trace = Trace(self._folder.path, self.settings.trace_steps, self._backend, self._log)
        self._meter = Meter(self._backend, trace)
        # Every worker of a run that keeps files takes part in what leads to one.
        self._keeps = self._collectives.broadcast(self._folder is not None)
        checkpoint = self._latest_checkpoint()
        if self._keeps and self._backend.name == "dtensor":
            self._report_devices(self._backend.bytes_per_device())  # type: ignore[attr-defined]
        self._callbacks.call("on_train_begin")
        self._resume(checkpoint)
        del checkpoint  # which has its file open
        try:
            with StopRequest() as stop:
                reason = self._loop(stop)
            return self._finish(reason)
        except (Interrupted, KeyboardInterrupt) as error:
            self._set_status("interrupted", str(error) or "Ctrl-C")
            raise
        except DivergedError as error:
            self._set_status("diverged", str(error))
            raise
        except BaseException as error:
            with contextlib.suppress(Exception):
                self._set_status("failed", f"{type(error).__name__}: {error}")
            raise

    def _report_devices(self, held: Mapping[str, Sequence[int]]) -> None:
        """Tells what each device of a mesh holds: logged, and in `devices.json`."""
        if not self._folder:
            return
        mesh, notices = self._backend.options.mesh, list(self._backend.plan.notices)  # type: ignore[attr-defined]
        write_json(
            self._folder.path / "devices.json",
            {"mesh": str(mesh), "bytes_per_device": held, "notices": notices},
        )
        for notice in notices:
            self._log(f"note: {notice}")
        parts = ", ".join(f"{part} {max(values):,}" for part, values in held.items() if values)
        self._log(f"bytes on each device of mesh {mesh}: {parts}")

    def _set_status(self, state: str, reason: str) -> None:
        if self._folder:
            self._folder.set_status(state, reason)

    def _latest_checkpoint(self) -> Checkpoint | None:
        """The newest one; its arrays are rank 0's, and too much to tell all others at once."""
        checkpoint = None
        if self._folder:
            checkpoint, complaints = self._folder.latest_checkpoint()
            for complaint in complaints:
                self._log(f"warning: {complaint}")
        mine: Any = (checkpoint.step, {}, checkpoint.meta) if checkpoint else None
        told: Any = self._collectives.broadcast(mine)
        return checkpoint or (Checkpoint(*told) if told else None)

    def _resume(self, checkpoint: Checkpoint | None) -> None:
        """Takes up the state, the position and the callbacks' memory of a checkpoint, whose arrays rank 0 has."""
        if checkpoint:
            arrays = checkpoint.arrays
            own = {name: array for name, array in arrays.items() if name[:10] == "callbacks/"}
            self._backend.restore({name: a for name, a in arrays.items() if name not in own})
            self._callbacks.restore(
                checkpoint.meta["callbacks"], from_rank_0(own, self._collectives)
            )
            self._position = Position(**checkpoint.meta["position"])
            self._source.resume(checkpoint.meta.get("data", {}), self._log)
            self._last_saved_step = self._first_step = self._position.step
        self._backend.synchronize()
        if self._folder:
            step, status = self._first_step, self._folder.status()
            resumed = status.resumed_from_steps
            if status.state:
                resumed = [*resumed, step]
                self._log(f"going on from step {step}")
            self._folder.truncate_metrics(step)
            self._folder.set_status("running", resumed_from_steps=resumed, under_way=None)
        self._earlier = self._recorded_history()

    def _loop(self, stop: StopRequest) -> str:
        """Trains to the end; returns why it ended.

        Raises:
          Interrupted: a signal came; the state is saved.
          DivergedError: the loss is not finite any more.
        """
        position = self._position
        self._clock = time.monotonic() - position.seconds
        self._checkpoint_clock = time.monotonic()
        if position.end_reason:
            return position.end_reason
        self._meter.start()
        self._begin_epoch()
        for block in self._meter.each(self._source.blocks(self._spans())):
            self._callbacks.call("on_train_batch_begin", position.step)
            self._collectives.announce("training", position.step)
            with self._meter.call(block):
                sums = self._backend.train(*block)
            position.training_seconds += self._meter.call_seconds
            self._accumulate(sums, block.num_examples)
            self._tell_under_way()
            self._callbacks.call("on_train_batch_end", position.step - 1, self._epoch_logs())
            self._show()
            reason = None
            if self._epochs.locate(position.step)[1] == 0 or position.step == self._total:
                reason = self._end_epoch()
                if reason is None and position.step < self._total:
                    self._begin_epoch()
            if reason or position.step == self._total:
                position.end_reason = reason or f"all {self._total} steps done"
                return position.end_reason
            # A signal to any worker stops all of them, after the same step.
            with self._meter.time("agreement"):
                received = self._collectives.maximum(stop.received)
                due = not received and self._checkpoint_is_due()
            if received or due:
                self._save()
            if received:
                raise self._interrupted(received)
        return f"all {self._total} steps were done already"

    def _spans(self) -> Iterator[Span]:
        step, every, checkpoints = (
            self._position.step,
            self._backend.meets_every,
            self.settings.checkpoint.every,
        )
        steps_per_call = self._steps_per_call
        while step < self._total:
            epoch, first = self._epochs.locate(step)
            meetings = steps_per_call // self._epochs.factor(epoch) // every
            left = self._epochs.steps_in(epoch) - first
            # A call ends with a meeting of the workers, which must not depend on how long a call is.
            count = min(max(1, meetings) * every, left, self._total - step)
            if checkpoints.seconds is None:
                due = self._epochs.next_multiple(checkpoints, step)
                count = min(count, -(-(due - step) // every) * every)
            yield Span(epoch, first, count)
            step += count

    def _accumulate(self, sums: np.ndarray, num_examples: np.ndarray) -> None:
        """Adds a block's sums step by step, so that the result does not depend on how steps fall into blocks."""
        position = self._position
        bad = np.flatnonzero(~np.isfinite(sums[:, 0]))
        if bad.size:
            raise self._diverged(
                f"the loss became {sums[bad[0], 0]} at", position.step + int(bad[0])
            )
        if not position.epoch_sums:
            position.epoch_sums = [0.0] * sums.shape[1]
        total = np.asarray(position.epoch_sums)
        for row in sums.astype(np.float64):
            total = total + row
        position.epoch_sums = total.tolist()
        position.epoch_examples += float(num_examples.sum(dtype=np.float64))
        position.step += len(sums)

    def _tell_under_way(self) -> None:
        """Once: the start is over, the graph compiled and a block of steps done, which a launcher may wait for."""
        if self._folder and not self._is_under_way:
            self._folder.set_status("running", under_way=time.monotonic() - self._clock)
        self._is_under_way = True

    def _begin_epoch(self) -> None:
        self._meter.begin_epoch()
        self._callbacks.call("on_epoch_begin", self._epochs.locate(self._position.step)[0])

    def _end_epoch(self) -> str | None:
        """Validates, records, keeps the best model, calls the callbacks; returns a reason to end, if there is one."""
        position = self._position
        logs = self._epoch_logs()
        with self._meter.time("agreement"):
            self._backend.settle()
            self._backend.check_replicas(position.step)
        if self._validation is not None:
            self._collectives.announce("validation", position.step)
            started = time.monotonic()
            with self._meter.time("validation"):
                validated = self._validate(self.settings.data.num_validation)
            logs |= {f"val_{name}": value for name, value in validated.items()}
            position.validation_seconds += time.monotonic() - started
            if not math.isfinite(logs["val_loss"]):
                raise self._diverged(f"val_loss became {logs['val_loss']} after", position.step - 1)
        epoch = self._epochs.locate(position.step - 1)[0]
        position.seconds = time.monotonic() - self._clock
        record = {
            "step": position.step,
            "epoch": self._epochs.epochs(position.step),
            "seconds": round(position.seconds, 3),
            "training_seconds": round(position.training_seconds, 3),
            "validation_seconds": round(position.validation_seconds, 3),
            "curves_per_second": round(self._meter.rate(), 1),
            **logs,
            "use": self._meter.take(),
        }
        position.last_record = record
        self._log_epoch(epoch, record)
        monitored = logs.get("val_loss", logs["loss"])
        improved = monitored < position.best_val_loss
        position.best_val_loss = min(monitored, position.best_val_loss)
        if improved and self._keeps:
            self._backend.sync_model()
        if self._folder:
            self._folder.append_metrics(record)
            if improved:
                with self._meter.time("checkpoint"):
                    self._folder.save_model(self._whole, "model.keras")
        self._callbacks.call("on_epoch_end", epoch, logs)
        position.epoch_sums, position.epoch_examples = [], 0.0
        reason, target = None, self.settings.target_val_loss
        if target is not None and logs.get("val_loss", math.inf) <= target:
            reason = f"val_loss {logs['val_loss']:.4g} reached the target {target:.4g}"
        elif self._model.stop_training:
            reason = f"a callback stopped the run after epoch {epoch + 1}"
        return self._collectives.broadcast(reason)

    def _epoch_logs(self) -> dict[str, float]:
        position = self._position
        return values_of(self._metrics, position.epoch_sums, max(position.epoch_examples, 1.0))

    def _validate(self, most: int | None = None) -> dict[str, float]:
        """Loss and metrics over the first `most` (None: all) validation examples; empty where there are none."""
        count = 0 if self._validation is None else num_examples(self._validation)
        return self._evaluate(self._validation, min(most or count, count)) if count else {}

    def evaluate(self, data: Any) -> dict[str, float]:
        """Loss and metrics over all examples of `data`, in inference mode, with the present weights; by name.

        Every worker calls it, with (features, labels), or with weights behind them.
        """
        if not self._is_built:
            self.build(1, 1)
        data = self._backend.place(data)
        return self._evaluate(data, num_examples(data))

    def _evaluate(self, data: Any, count: int) -> dict[str, float]:
        """`evaluate` over the first `count` examples of data that is placed."""
        backend, sums = self._backend, np.zeros(num_sums(list(self._metrics.values())))
        batch_size = min(
            _EVALUATION_BATCH_SIZE * backend.world_size, max(count, backend.world_size)
        )
        columns = backend.columns(batch_size)
        for block in sequential_blocks(data, 0, count, batch_size, columns=columns):
            sums += backend.evaluate(*block).sum(axis=0, dtype=np.float64)
        return values_of(self._metrics, sums, count)

    def _checkpoint_is_due(self) -> bool:
        step, every = self._position.step, self.settings.checkpoint.every
        if every.seconds is None:
            # Not always at that step itself: it may lie between two meetings of the workers.
            return self._epochs.next_multiple(every, self._last_saved_step) <= step
        waited = time.monotonic() - self._checkpoint_clock
        return self._collectives.broadcast(waited >= every.seconds)  # by rank 0's clock

    def _save(self) -> None:
        """Writes a checkpoint of the present position."""
        position = self._position
        if not self._keeps or self._last_saved_step == position.step:
            return
        with self._meter.time("checkpoint"):
            self._collectives.announce("checkpoint", position.step)
            state = self._backend.read_for_file()
            # A rank may have a part of the state only.
            bad = not all(np.isfinite(np.asarray(array)).all() for array in state.values())
            if self._collectives.maximum(int(bad)):
                raise self._diverged("the weights are not finite after", position.step - 1)
            values, arrays = self._callbacks.state()
            position.seconds = time.monotonic() - self._clock
            if self._folder:
                meta = {
                    "position": dataclasses.asdict(position),
                    "callbacks": values,
                    "data": self._source.memory(),
                }
                self._folder.save_checkpoint(position.step, {**state, **arrays}, meta)
            self._last_saved_step = position.step
            self._checkpoint_clock = time.monotonic()

    def _finish(self, reason: str) -> RunResult:
        """Ends a run after the last step: averages become the weights, and all validation examples are asked."""
        step = self._position.step
        self._save()  # first, so that an interruption from here on costs no step
        path = self._folder.path if self._folder else None
        for line in write_profile(path, self._meter.summary(), self._backend, self._first_step):
            self._log(line)
        self._take_averages()
        self._callbacks.call("on_train_end")
        self._collectives.announce("validation", step)
        record = self._position.last_record | {
            f"val_{name}_all": value for name, value in self._validate().items()
        }
        self._backend.sync_model()
        # A step's loss can be finite where a NaN of the features went into the weights: ReLU makes 0 of it.
        if not self._keeps:
            weights = self._whole.trainable_variables
            bad = not all(np.isfinite(np.asarray(each)).all() for each in weights)
            if self._collectives.maximum(int(bad)):  # a pipeline's rank may see its own stage alone
                raise self._diverged("the weights are not finite after", step - 1)
        if self._folder:
            self._folder.save_model(self._whole, "final.keras")
            self._folder.remove_old_checkpoints()  # where an earlier process was killed before it could
            self._folder.set_status("done", reason, step=step, last_record=record)
        self._log(f"done: {reason}")
        history = self._callbacks.history
        history |= {name: values + history.get(name, []) for name, values in self._earlier.items()}
        return RunResult(reason, step, self._total, history, record)

    def _take_averages(self) -> None:
        """Averages that the optimizer keeps (`use_ema`) become the weights, as at the end of Keras's `fit`."""
        backend, model = self._backend, self._model
        optimizer = model.optimizer
        if not optimizer.use_ema:
            return
        arrays = dict(backend.read())
        if backend.rank == 0:
            averages: dict[int, str] = {}  # of each weight Keras makes it before other slots
            for i, (owner, _) in enumerate(slots_of(optimizer, model.trainable_variables)):
                if owner is not None:
                    averages.setdefault(owner, f"slots/{i}")
            arrays |= {f"weights/{weight}": arrays[slot] for weight, slot in averages.items()}
        backend.restore(arrays)
        backend.synchronize()

    # What it says.

    def _interrupted(self, received: int) -> Interrupted:
        name = signal.Signals(received).name
        return Interrupted(
            f"{name} received; saved at step {self._position.step} of {self._total}: "
            "start the same command again to go on"
            if self._keeps
            else f"{name} received; nothing is saved without a workdir"
        )

    def _diverged(self, what: str, step: int) -> DivergedError:
        saved = self._folder.saved_steps() if self._folder else []
        last = (
            f"the last good checkpoint is {self._folder.checkpoint_file(saved[-1])}"
            if self._folder and saved
            else "there is no checkpoint yet"
        )
        return DivergedError(
            f"{what} step {step} (epoch {self._epochs.locate(step)[0] + 1}); {last}; look for NaN in the data, lower "
            "optimizer.learning_rate, or give optimizer.warmup or optimizer.clip_norm, in a new workdir"
        )

    def _log_epoch(self, epoch: int, record: dict[str, Any]) -> None:
        val_loss = f"  val_loss {record['val_loss']:.4g}" if "val_loss" in record else ""
        self._log(
            f"epoch {epoch + 1}/{self._num_epochs}  loss {record['loss']:.4g}{val_loss}  "
            f"{self._pace()}"
        )
        for name in _TOLD_FIGURES:
            if name in record["use"]:
                self._log(f"{name.replace('_', ' ')}: {record['use'][name]:g}")
        sent = record["use"].get("bytes_sent_per_step")
        if sent and not self._sent_told:
            self._sent_told = True
            self._log(f"each worker sends {sent / 1e3:,.1f} kB a step to the others")

    def _show(self) -> None:
        position = self._position
        loss = position.epoch_sums[0] / max(position.epoch_examples, 1.0)
        self._progress.update(
            step=position.step,
            description=f"epoch {self._epochs.locate(position.step - 1)[0] + 1}/{self._num_epochs}",
            text=f"{self._pace()}  loss {loss:.3g}",
        )

    def _pace(self) -> str:
        """This epoch's rate in words, and the time to the end of the run where calls that compile nothing tell it."""
        rate = self._meter.rate()
        text = f"{rate:,.0f} {self._counted}/s"
        if self._meter.always_compiled:
            return f"{text} with compiling"
        epochs = self._epochs.epochs(self._total) - self._epochs.epochs(self._position.step)
        return f"{text}  {clock_text(epochs * self._source.num_examples / rate)} left"


# --------------------------------------------------------------------------------------------------
# The public trainer: any Keras model, loss, optimizer and data; resumable, on any backend.


class Trainer:
    """Trains a Keras model, resumably and with many steps in one call of the graph.

    Examples:
      >>> trainer = tfmat.Trainer(model, loss="mse", optimizer="adam", workdir="runs/mine")  # doctest: +SKIP
      >>> trainer.fit(x, y, global_batch_size=256, train_for="5epochs", validation=(x_val, y_val))  # doctest: +SKIP

    With a `workdir` the same program, started again, goes on after a stop: Ctrl-C, SIGTERM, SIGKILL or a power failure.
    It ends with bit-identical weights, except on a GPU, whose sums have no fixed order.

    Args:
      model: built Keras model; its weights are the start and, after `fit`, the result.
      loss: name, Keras loss, or function (labels, outputs) -> one value an example. For several outputs also a list in
        their order, or a dictionary by their names; these losses are added up. None: what the model was compiled with,
        or mean_squared_error.
      optimizer: name, Keras optimizer that is not built yet, or a function (total_steps, steps_per_epoch) -> optimizer
        for schedules that depend on the length of the run. None: what the model was compiled with, or adam.
      metrics: a list as in Keras, or name -> what `loss` may be, or a keras.metrics object (or its name); logged beside
        the loss, for validation as `val_NAME`. Of several outputs also as in Keras: {"digit": ["accuracy"]} is logged
        as `digit_accuracy`. Weights of examples count in the loss alone, as with Keras's `metrics`.
        None: what the model was compiled with, or none.
      auxiliary_loss: what `loss` may be; minimised together with it, but no part of the logged loss.
      backend: a name (see `tfmat train --help`), or a backend made by `tfmat.backends.make_backend`.
      workdir: folder of the run; None leaves no files.
      callbacks: `keras.callbacks`, one or several, called once a block (batch events), and at epoch and run ends.
      seed: of the order of examples.
      steps_per_call: steps in one call of the graph; None for about half a second's worth.
      checkpoint_every: a duration, such as `500steps`, `1epochs` or `60s`.
      keep_checkpoints: how many of the newest stay.
      jit_compile: compile the step with XLA.
      precision: of dense layers in training steps: `float32`, `bfloat16` (weights, slots and sums stay float32), or
        `auto`: bfloat16 for those layers that a trial finds faster in it.
      config: saved as config.json; a run goes on only with the same one.
      sidecar: saved as model.json: what the numbers that go into and come out of the model mean.
      quiet: no progress and no lines (log.txt has them).
      profile: measure the parts of steps, in one call of the graph in eight; a table at the end, and profile.json.
      trace_steps: record every operation of so many steps (and no more than these in a call) in trace.json.gz.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        loss: Any = None,
        optimizer: str | keras.optimizers.Optimizer | OptimizerFactory | None = None,
        metrics: GivenMetrics = None,
        auxiliary_loss: Any = None,
        backend: str | Backend = "single",
        workdir: str | None = None,
        callbacks: keras.callbacks.Callback | Sequence[keras.callbacks.Callback] = (),
        seed: int = 0,
        steps_per_call: int | None = None,
        checkpoint_every: str = "1epochs",
        keep_checkpoints: int = 3,
        jit_compile: bool = False,
        precision: str = "float32",
        config: Mapping[str, Any] | None = None,
        sidecar: Mapping[str, Any] | None = None,
        quiet: bool = False,
        profile: bool = False,
        trace_steps: int | None = None,
    ):
        self.model = model
        given = {"loss": loss, "optimizer": optimizer, "metrics": metrics}
        given = {name: value for name, value in given.items() if value is not None}
        if trace_steps and workdir is None:
            raise InputError("trace_steps needs a workdir for its files")
        self._config = config
        chosen = {"optimizer": "adam", **_compiled(model, set(given)), **given}
        self._backend = make_backend(backend) if isinstance(backend, str) else backend
        self._run = Run(
            model,
            Settings(
                seed=seed,
                steps_per_call=steps_per_call,
                checkpoint=CheckpointSection(keep_checkpoints, Duration.parse(checkpoint_every)),
                jit_compile=jit_compile,
                precision=precision,
                profile=profile,
                trace_steps=trace_steps,
            ),
            self._backend,
            **chosen,
            auxiliary_loss=auxiliary_loss,
            callbacks=keras.tree.flatten(callbacks),
            sidecar=sidecar,
            workdir=workdir,
            quiet=quiet,
        )
        named = chosen["optimizer"]
        self._chosen = {
            "optimizer": _described(find_optimizer(named) if isinstance(named, str) else named),
            "loss": _described(chosen.get("loss")),
            "network": _network(model),
        }
        if isinstance(backend, str):
            self._backend.start_to_the_end()

    def fit(
        self,
        features: Any,
        labels: Any = None,
        *,
        global_batch_size: int,
        train_for: str = "1epochs",
        validation: tuple[Any, ...] | None = None,
        num_validation: int | None = None,
        target_val_loss: float | None = None,
        reading: str = "auto",
        shard_size: int = SHARD_SIZE,
        steps_per_epoch: int | None = None,
        sharding: str = "partition",
        batch_growth: str = "",
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
    ) -> RunResult:
        """Trains to the end of `train_for`, from the last checkpoint of the workdir if there is one.

        Args:
          features: array, tensor or DataFrame (or a structure of these) [examples, ...], or a batched tf.data.Dataset
            of (features, labels) or (features, labels, weights).
          labels: array (or structure) [examples, ...]; None with a tf.data set.
          global_batch_size: examples per step. The last batch of an epoch may be smaller; no example is dropped.
          train_for: `20steps`, `8epochs`, `90s`, `10m` or `2h`. A time is turned into steps once, from a measured rate.
          validation: (features, labels) or (features, labels, sample_weight), arrays.
          num_validation: how many of them are used after every epoch; all are used at the end.
          target_val_loss: end as soon as val_loss is at or below it.
          reading: memory, stream, or auto: memory where the set fits. Mapped files, np.load(..., mmap_mode="r"), are
            read where they are, without a copy in memory.
          shard_size: examples in a shard of stored data; part of the order of examples.
          steps_per_epoch: for tf.data sets that do not know their length.
          sharding: `partition`: the workers share each global batch, whose examples are the same for any number of
            them; `independent`: each worker draws for itself from the whole set.
          batch_growth: `4epochs:2,6epochs:4`: from the fifth epoch on batches of twice the size, from the seventh four
            times. A `train_for` in time counts the epochs that fit at the first batch's rate.
          sample_weight: [examples]; multiplies an example's loss, which is still divided by the number of examples.
          class_weight: class -> weight of its examples, where labels are classes or one-hot.

        Returns:
          Why and where the run ended, and its history.

        Raises:
          InputError, DivergedError, Interrupted.
        """
        self._backend.collectives.check_build(self._run.settings.jit_compile)
        data = DataSection(reading=reading, sharding=sharding)
        if validation is not None:
            validation = unpack("validation", validation)
            count = num_validation or num_examples(validation)
            data = dataclasses.replace(data, num_validation=count)
        settings = dataclasses.replace(
            self._run.settings,
            global_batch_size=global_batch_size,
            train_for=Duration.parse(train_for),
            batch_growth=parse_growth(batch_growth),
            target_val_loss=target_val_loss,
            data=data,
        )
        source = make_source(
            features,
            labels,
            settings,
            self._backend,
            shard_size=shard_size,
            steps_per_epoch=steps_per_epoch,
            sample_weight=sample_weight,
            class_weight=class_weight,
        )
        config = self._config or {
            "global_batch_size": global_batch_size,
            "train_for": train_for,
            "seed": settings.seed,
            **({"batch_growth": batch_growth} if batch_growth else {}),
            **({"precision": settings.precision} if settings.precision != "float32" else {}),
            **self._chosen,
        }
        self._run.settings = settings
        placed = None if validation is None else self._backend.place(validation)
        return self._run.train(source, placed, config)

    def evaluate(self, features: Any, labels: Any, sample_weight: Any = None) -> dict[str, float]:
        """Loss and metrics over all examples, in inference mode, with the present weights."""
        return self._run.evaluate(examples_of(features, labels, sample_weight))


def _described(given: Any) -> Any:
    """An optimizer or loss in config.json, without which a changed one would go unseen; of functions the name."""
    match given:
        case Mapping():
            # Keras numbers the names of objects.
            return {key: _described(value) for key, value in given.items() if key != "name"}
        case list() | tuple():
            return [_described(each) for each in given]
        case float():  # a rate is one of float32
            return float(f"{given:.7g}") if math.isfinite(given) else str(given)
        case None | str() | int():
            return given
    name = getattr(given, "__qualname__", type(given).__name__)
    if not hasattr(given, "get_config"):
        return name
    with contextlib.suppress(NotImplementedError):
        return {"class": name, **_described(given.get_config())}
    return name


def _network(model: keras.Model) -> str:
    """A digest of the layers and what joins them, for config.json: an activation could be another with equal shapes."""
    # Keras numbers names as it makes layers. Starts and seeds have no part in what a run that goes on computes, and
    # what is off or None may be a key of another version of Keras.
    layers = {layer.name: place for place, layer in enumerate(model._flatten_layers())}

    def known(value: Any) -> Any:
        match value:
            case Mapping():
                left_out = {key for key in value if key in ("seed", "code") or "initializer" in key}
                each = {key: known(value[key]) for key in value.keys() - left_out}
                return {key: what for key, what in each.items() if what not in (None, False)}
            case list() | tuple():
                return [known(each) for each in value]
            case str():
                return layers.get(value, value)
        return _described(value)

    def config(layer: keras.layers.Layer) -> Any:
        with contextlib.suppress(Exception):  # a caller's own layer may have none
            return known(layer.get_config())
        return type(layer).__qualname__

    # A model of the caller's own class may have a config that says nothing of its layers.
    return digest({"network": [config(layer) for layer in model._flatten_layers()]})


def _compiled(model: keras.Model, given: Collection[str]) -> dict[str, Any]:
    """Loss, optimizer and metrics of a compiled model; InputError where they are not `given`, and cannot be taken."""
    if not getattr(model, "compiled", False):
        return {}
    compiled = model._compile_config.config
    for name in ("loss_weights", "weighted_metrics"):
        if compiled[name] is not None and "loss" not in given:
            raise InputError(
                f"the model was compiled with {name}, which the Trainer does not take; give it a loss (and metrics), "
                "functions of (labels, outputs), which weight outputs as you like"
            )
    if isinstance(compiled["metrics"], Mapping) and "metrics" not in given:
        raise InputError(
            "the model was compiled with metrics by outputs; give the Trainer metrics, functions of (labels, outputs)"
        )
    names = ("loss", "optimizer", "metrics")
    return {name: compiled[name] for name in names if compiled[name] is not None}

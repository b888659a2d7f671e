"""The public trainer: any Keras model, loss, optimizer and data; resumable, on any backend."""

import atexit
import contextlib
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras

from tfmat.backends import Backend, make_backend
from tfmat.backends.losses import per_example_function
from tfmat.backends.metrics import Summary, make_metrics
from tfmat.batch_growth import parse_growth
from tfmat.data.pipeline import Source
from tfmat.durations import Duration
from tfmat.errors import DivergedError, InputError
from tfmat.optimizers.functional import check_optimizer, make_functional
from tfmat.training.callbacks import Callbacks
from tfmat.training.evaluation import evaluate_all, num_examples
from tfmat.training.loop import Loop
from tfmat.training.meter import Meter
from tfmat.training.progress import TrainingProgress
from tfmat.training.run_folder import RunFolder
from tfmat.training.session import RunResult, Session
from tfmat.training.sources import (
    Examples,
    check_same_everywhere,
    make_source,
    measure_steps_per_second,
    steps_per_call,
    total_steps,
)
from tfmat.training.trace import Trace
from tfmat.training.weights import unpack, with_weights

_ENDLESS = 2**40
# With profile=true, after the first calls of the graph: stamps within the steps cost a few per cent of them.
_ONE_CALL_IN = 8

OptimizerFactory = Callable[[int, int], keras.optimizers.Optimizer]


class Trainer:
    """Trains a Keras model, resumably and with many steps in one call of the graph.

    Examples:
      >>> trainer = tfmat.Trainer(model, loss="mse", optimizer="adam", workdir="runs/mine")  # doctest: +SKIP
      >>> trainer.fit(x, y, global_batch_size=256, train_for="5epochs", validation=(x_val, y_val))  # doctest: +SKIP

    With a `workdir`, the same program started again goes on where it was stopped (by Ctrl-C, SIGTERM, SIGKILL or a
    power failure) and ends with bit-identical weights.

    Args:
      model: built Keras model; its weights are the start and, after `fit`, the result.
      loss: name, Keras loss, or function (labels, outputs) -> one value an example; for several outputs also a list of
        these in their order or a dictionary by their names, which are added up.
      optimizer: name, Keras optimizer that is not built yet, or a function (total_steps, steps_per_epoch) -> optimizer
        for schedules that depend on the length of the run.
      metrics: name -> what `loss` may be, or a keras.metrics object (or its name); logged beside the loss, for
        validation as `val_NAME`. Weights of examples count in the loss alone, as with Keras's `metrics`.
      auxiliary_loss: what `loss` may be; minimised together with it, but no part of the logged loss.
      backend: a name (see `tfmat train --help`), or a backend made by `tfmat.backends.make_backend`.
      workdir: folder of the run; None leaves no files.
      callbacks: `keras.callbacks`, called once a block (batch events), and at epoch and run ends.
      seed: of the order of examples.
      steps_per_call: steps in one call of the graph; None for about half a second's worth.
      checkpoint_every: a duration, such as `500steps`, `1epochs` or `60s`.
      keep_checkpoints: how many of the newest stay.
      jit_compile: compile the step with XLA.
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
        loss: Any = "mean_squared_error",
        optimizer: str | keras.optimizers.Optimizer | OptimizerFactory = "adam",
        metrics: Mapping[str, Any] | None = None,
        auxiliary_loss: Any = None,
        backend: str | Backend = "single",
        workdir: str | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        seed: int = 0,
        steps_per_call: int | None = None,
        checkpoint_every: str = "1epochs",
        keep_checkpoints: int = 3,
        jit_compile: bool = False,
        config: Mapping[str, Any] | None = None,
        sidecar: Mapping[str, Any] | None = None,
        quiet: bool = False,
        profile: bool = False,
        trace_steps: int | None = None,
    ):
        if not model.built:
            raise InputError(
                "the model is not built; call model.build(input_shape) or give it an Input layer"
            )
        self.model = model
        self._loss = per_example_function(loss, getattr(model, "output_names", ()))
        self._metrics = make_metrics(metrics, model)
        self._summary = Summary(self._metrics)
        self._optimizer = optimizer
        self._auxiliary_loss = per_example_function(auxiliary_loss) if auxiliary_loss else None
        check_optimizer(optimizer)
        if isinstance(backend, str):
            backend = make_backend(backend)
            backend.start()
            atexit.register(lambda: backend.close(getattr(sys, "last_value", None)))
        self._backend = backend
        self._workdir = workdir
        self._callbacks = list(callbacks)
        self._seed = seed
        self._steps_per_call = steps_per_call
        self._checkpoint_every = Duration.parse(checkpoint_every)
        self._keep_checkpoints = keep_checkpoints
        self._jit_compile = jit_compile
        self._config = config
        self._sidecar = sidecar
        self._quiet = quiet
        if trace_steps and workdir is None:
            raise InputError("trace_steps needs a workdir for its files")
        self._trace_steps = trace_steps
        if trace_steps:
            self._steps_per_call = min(steps_per_call or trace_steps, trace_steps)
        if profile:
            self._backend.time_steps(_ONE_CALL_IN)
        self._built = False
        self._progress: TrainingProgress | None = None

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
        shard_size: int = 131_072,
        steps_per_epoch: int | None = None,
        sharding: str = "partition",
        batch_growth: str = "",
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
    ) -> RunResult:
        """Trains to the end of `train_for`, from the last checkpoint of the workdir if there is one.

        Args:
          features: array (or structure of arrays) [examples, ...], or a batched tf.data.Dataset of (features, labels)
            or (features, labels, weights).
          labels: array (or structure) [examples, ...]; None with a tf.data set.
          global_batch_size: examples a step. The last batch of an epoch may be smaller; no example is dropped.
          train_for: `20steps`, `8epochs`, `90s`, `10m` or `2h`. A time is turned into steps once, from a measured rate.
          validation: (features, labels) or (features, labels, sample_weight), arrays.
          num_validation: how many of them are used after every epoch; all are used at the end.
          target_val_loss: end as soon as val_loss is at or below it.
          reading: memory, stream, or auto.
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
        source = make_source(
            features,
            labels,
            backend=self._backend,
            global_batch_size=global_batch_size,
            seed=self._seed,
            reading=reading,
            shard_size=shard_size,
            steps_per_epoch=steps_per_epoch,
            sharding=sharding,
            growth=parse_growth(batch_growth),
            sample_weight=sample_weight,
            class_weight=class_weight,
        )
        if validation is not None:
            validation = self._backend.place(unpack("validation", validation))
        config = self._config or {
            "global_batch_size": global_batch_size,
            "train_for": train_for,
            "seed": self._seed,
            **({"batch_growth": batch_growth} if batch_growth else {}),
        }
        config = {
            **config,
            "num_examples": source.num_examples,
            "steps_per_epoch": source.steps_per_epoch,
        }
        examples = Examples(source, validation, num_validation, target_val_loss)
        with self._run_folder() as folder:
            return self._train(examples, train_for, config, folder)

    def _train(
        self,
        examples: Examples,
        train_for: str,
        config: dict[str, Any],
        folder: RunFolder | None,
    ) -> RunResult:
        log = folder.logger(self._show) if folder else self._show
        # Rank 0 knows what was done before, and all do as it says.
        saved = self._backend.broadcast(folder.check_config(config) if folder else None)
        status = self._backend.broadcast(folder.status() if folder else {})
        if saved and status.get("state") in ("done", "diverged"):
            return self._ended(status, saved)
        check_same_everywhere(self._backend, config)
        source = examples.source
        if saved:
            steps = saved["total_steps"]
        else:
            steps = total_steps(train_for, source, lambda: self._measure_rate(source), log)
        if folder and not saved:
            folder.start({**config, "total_steps": steps}, self._sidecar)
        self._build(steps, source.steps_per_epoch)
        visible = not self._quiet and self._backend.rank == 0
        with TrainingProgress(steps, visible) as progress:
            self._progress = progress
            return self._session(examples, steps, folder, log, progress).run()

    def evaluate(self, features: Any, labels: Any, sample_weight: Any = None) -> dict[str, float]:
        """Loss and metrics over all examples, in inference mode, with the present weights."""
        if not self._built:
            self._build(1, 1)
        data = self._backend.place(with_weights(features, labels, sample_weight))
        return self._evaluate(data, num_examples(data))

    @contextlib.contextmanager
    def _run_folder(self) -> Iterator[RunFolder | None]:
        if self._workdir is None or self._backend.rank != 0:
            yield None
            return
        folder = RunFolder(self._workdir, self._keep_checkpoints)
        self._backend.when_lost(lambda message: folder.set_status("failed", message))
        try:
            yield folder
        finally:
            folder.close()

    def _ended(self, status: dict[str, Any], saved: dict[str, Any]) -> RunResult:
        """The result of a run that had ended before; its weights are put into the model."""
        if status["state"] == "diverged":
            raise DivergedError(f"the run in {self._workdir} diverged: {status['reason']}")
        if self._backend.rank == 0:
            self.model.optimizer = None  # or Keras would look for its slots in the file
            self.model.load_weights(pathlib.Path(self._workdir or "") / "final.keras")
        self.model.set_weights(self._backend.broadcast(self.model.get_weights()))
        self._show(f"the run in {self._workdir} is done: {status['reason']}")
        return RunResult(
            status["reason"], status["step"], saved["total_steps"], {}, status["last_record"]
        )

    def _build(self, total_steps: int, steps_per_epoch: int) -> None:
        optimizer = self._optimizer
        if callable(optimizer) and not isinstance(optimizer, keras.optimizers.Optimizer):
            optimizer = optimizer(total_steps, steps_per_epoch)
        optimizer = make_functional(optimizer)
        self._backend.build(
            self.model,
            optimizer,
            self._loss,
            self._metrics,
            auxiliary_loss=self._auxiliary_loss,
            jit_compile=self._jit_compile,
        )
        self._built = True
        # Where Keras callbacks look for it.
        self.model.optimizer = optimizer

    def _measure_rate(self, source: Source) -> float:
        """Steps a second."""
        # For the trial the run is as good as endless: no schedule may find it too short.
        self._build(_ENDLESS, source.steps_per_epoch)
        count = steps_per_call(source, self._steps_per_call, self._backend.world_size)
        return measure_steps_per_second(self._backend, source, count)

    def _session(
        self,
        examples: Examples,
        total_steps: int,
        folder: RunFolder | None,
        log: Callable[[str], None],
        progress: TrainingProgress,
    ) -> Session:
        source, validation, available = examples.source, examples.validation, examples.available
        epochs = math.ceil(source.plan.epochs(total_steps))
        self.model.stop_training = False
        params = {"epochs": epochs, "steps": source.steps_per_epoch, "verbose": 0}
        callbacks = Callbacks(self._callbacks, self.model, params)
        loop = Loop(
            backend=self._backend,
            source=source,
            total_steps=total_steps,
            steps_per_call=steps_per_call(source, self._steps_per_call, self._backend.world_size),
            summary=self._summary,
            callbacks=callbacks,
            model=self.model,
            validate=(lambda: self._evaluate(validation, examples.used)) if available else None,
            folder=folder,
            checkpoint_every=self._checkpoint_every,
            target_val_loss=examples.target_val_loss,
            progress=progress,
            log=log,
            meter=Meter(self._backend, self._trace(log)),
        )
        return Session(
            loop=loop,
            backend=self._backend,
            model=self.model,
            callbacks=callbacks,
            total_steps=total_steps,
            validate_all=lambda: self._evaluate(validation, available) if available else {},
            folder=folder,
            log=log,
        )

    def _trace(self, log: Callable[[str], None]) -> Trace | None:
        if not self._trace_steps or self._workdir is None or self._backend.rank != 0:
            return None
        return Trace(self._workdir, self._trace_steps, self._backend, log)

    def _evaluate(self, data: Any, count: int) -> dict[str, float]:
        return evaluate_all(self._backend, data, count, self._summary)

    def _show(self, line: str) -> None:
        if not self._quiet and self._backend.rank == 0:
            (self._progress or TrainingProgress(1)).show(line)

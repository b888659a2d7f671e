"""`tfmat.Trainer`: a Keras model of the caller's own, trained as `tfmat train` trains."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Backend
from tfmat.backends.losses import GivenMetrics, make_metrics, per_example_function, values_of
from tfmat.backends.registry import make_backend
from tfmat.backends.step import check_model
from tfmat.config import CheckpointSection, DataSection, Duration, Settings, parse_growth
from tfmat.data.dataset import digest
from tfmat.errors import InputError
from tfmat.optimizers import find_optimizer, make_functional
from tfmat.training.run import (
    SHARD_SIZE,
    OptimizerFactory,
    Run,
    RunResult,
    examples_of,
    make_source,
    num_examples,
    unpack,
    with_weights,
)

# --------------------------------------------------------------------------------------------------
# Training steps of any Keras model on any backend, one call at a time, for loops of one's own.


Results = dict[str, Any]


class ParallelSteps:
    """`train`, `evaluate` and `predict` for a Keras model whose state lives on the devices of a backend.

    For whole runs (epochs, checkpoints, going on after a stop) use `tfmat.Trainer`, which takes the same backend.

    Examples:
      >>> backend = tfmat.mesh_backend("batch:2,model:2")  # first of all  # doctest: +SKIP
      >>> steps = tfmat.ParallelSteps(model, "adam", "mse", backend)  # doctest: +SKIP
      >>> steps.train(features, labels)["loss"]  # doctest: +SKIP
      >>> steps.sync_model(); model.save("model.keras")  # doctest: +SKIP

    Args:
      model: built; its weights are the start. They change only at `sync_model`.
      optimizer: name, or a Keras optimizer that is not built yet.
      loss, metrics: see `tfmat.Trainer`.
      backend: see `tfmat.mesh_backend` and `tfmat.backends.make_backend`; started.

    Raises:
      InputError: the model is not built, or a layout cannot be followed.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: str | keras.optimizers.Optimizer,
        loss: Any,
        backend: Backend,
        *,
        metrics: GivenMetrics = None,
    ):
        check_model(model)
        self.model = model
        self.backend = backend
        self._metrics = make_metrics(metrics, model)
        loss = per_example_function(loss, getattr(model, "output_names", ()))
        backend.build(model, make_functional(optimizer), loss, self._metrics)
        backend.synchronize()

    def place(self, features: Any, labels: Any) -> tuple[Any, Any]:
        """A data set on the devices, once, for `train` and `evaluate` with `rows`."""
        _num_examples(features, labels)
        placed: tuple[Any, Any] = self.backend.place((features, labels))
        return placed

    def train(
        self, features: Any, labels: Any, rows: Any = None, *, sample_weight: Any = None
    ) -> Results:
        """One step on a global batch, or on rows of a larger set; see the class for what a step is.

        A new number of examples or steps compiles anew: keep to few.

        Args:
          features, labels: arrays (or structures of them) [examples, ...], or what `place` gave.
          rows: None for all; whole numbers [batch] for one step; [steps, batch] for as many steps in one call.
          sample_weight: [examples] in the loss; see `tfmat.Trainer.fit`.

        Returns:
          `loss` and the metrics over the batch: numbers, or arrays [steps] where `rows` has steps.

        Raises:
          InputError: also where a layer has no form on a mesh; before the first step then.
        """
        return self._run(
            self.backend.train, self.backend.training_columns, features, labels, rows, sample_weight
        )

    def evaluate(
        self, features: Any, labels: Any, rows: Any = None, *, sample_weight: Any = None
    ) -> Results:
        """Does as `train`, in inference mode, and nothing changes."""
        return self._run(
            self.backend.evaluate, self.backend.columns, features, labels, rows, sample_weight
        )

    def predict(self, features: Any) -> Any:
        """The model's outputs with the present weights."""
        return self.backend.predict(features)

    def sync_model(self) -> None:
        """Brings the model's own weights up to date, to save it or to use it without the backend."""
        self.backend.sync_model()

    def bytes_per_device(self) -> dict[str, list[int]]:
        """`weights`, `non_trainable`, `slots` -> bytes that each device of a mesh holds, counted in its own shards."""
        count = getattr(self.backend, "bytes_per_device", None)
        if count is None:
            raise InputError(
                f"--backend={self.backend.name} has no mesh whose bytes could be counted"
            )
        counted: dict[str, list[int]] = count()
        return counted

    def _run(
        self,
        call: Any,
        part: Callable[[int], slice],
        features: Any,
        labels: Any,
        rows: Any,
        sample_weight: Any,
    ) -> Results:
        count = _num_examples(features, labels)
        data = with_weights(features, labels, sample_weight)
        indices = np.asarray(np.arange(count) if rows is None else rows)
        if indices.dtype.kind not in "iu":
            raise InputError(
                f"rows has numbers of type {indices.dtype}; give whole numbers, which say where the examples of a "
                "batch stand; weights go into sample_weight="
            )
        if indices.ndim not in (1, 2) or not indices.size:
            raise InputError(
                f"rows has shape {list(indices.shape)}; give [batch] or [steps, batch]"
            )
        if indices.min() < 0 or indices.max() >= count:
            raise InputError(
                f"rows goes from {indices.min()} to {indices.max()}; valid: 0 to {count - 1}"
            )
        blocks = np.atleast_2d(indices).astype(np.int32)
        weights = np.ones(blocks.shape, np.float32)
        columns = part(blocks.shape[1])
        sums = call(data, blocks[:, columns], weights[:, columns], weights.sum(axis=1))
        count = blocks.shape[1]
        steps = [values_of(self._metrics, row, count) for row in sums.astype(np.float64)]
        if indices.ndim == 1:
            return steps[0]
        return {name: np.array([step[name] for step in steps]) for name in steps[0]}


def _num_examples(features: Any, labels: Any) -> int:
    counts = {int(tensor.shape[0]) for tensor in tf.nest.flatten((features, labels))}
    if len(counts) != 1:
        raise InputError(
            f"features and labels have different numbers of examples: {sorted(counts)}"
        )
    return counts.pop()


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

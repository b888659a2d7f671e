"""Training steps of any Keras model on any backend, one call at a time, for loops of one's own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends import Backend
from tfmat.backends.losses import per_example_function
from tfmat.backends.metrics import Summary, make_metrics
from tfmat.backends.refusals import check_model
from tfmat.errors import InputError
from tfmat.optimizers.functional import make_functional
from tfmat.training.sources import with_weights

Results = dict[str, Any]


class ParallelSteps:
    """`train`, `evaluate` and `predict` for a Keras model whose state lives on the devices of a backend.

    Whole runs (epochs, checkpoints, going on after a stop) are what `tfmat.Trainer` is for; it takes the same backend.

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
        metrics: Mapping[str, Any] | Sequence[Any] | None = None,
    ):
        check_model(model)
        self.model = model
        self.backend = backend
        made = make_metrics(metrics, model)
        self._summary = Summary(made)
        loss = per_example_function(loss, getattr(model, "output_names", ()))
        backend.build(model, make_functional(optimizer), loss, made)
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
        steps = [self._summary.values(row, blocks.shape[1]) for row in sums.astype(np.float64)]
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

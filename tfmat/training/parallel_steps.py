"""Training steps of any Keras model on any backend, one call at a time, for loops of one's own."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends import Backend
from tfmat.backends.step import per_example_function
from tfmat.errors import InputError
from tfmat.optimizers.functional import make_functional

Results = dict[str, Any]


class ParallelSteps:
    """`train`, `evaluate` and `predict` for a Keras model whose state lives on the devices of a backend.

    Whole runs (epochs, checkpoints, going on after a stop) are what `tfmat.Trainer` is for; it takes the same backend.

    Example:
      >>> backend = tfmat.mesh_backend("batch:2,model:2")  # first of all  # doctest: +SKIP
      >>> steps = tfmat.ParallelSteps(model, "adam", "mse", backend)  # doctest: +SKIP
      >>> steps.train(features, labels)["loss"]  # doctest: +SKIP
      >>> steps.sync_model(); model.save("model.keras")  # doctest: +SKIP

    Args:
      model: built; its weights are the start. They change only at `sync_model`.
      optimizer: name, or a Keras optimizer that is not built yet.
      loss: name, Keras loss, or function (labels, outputs) -> one value an example.
      backend: see `tfmat.mesh_backend` and `tfmat.backends.make_backend`.
      metrics: name -> what `loss` may be.

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
        metrics: Mapping[str, Any] | None = None,
    ):
        if not model.built:
            raise InputError(
                "the model is not built; call model.build(input_shape) or give it an Input layer"
            )
        self.model = model
        self.backend = backend
        self._names = ["loss", *(metrics or {})]
        backend.build(
            model,
            make_functional(optimizer),
            per_example_function(loss),
            {name: per_example_function(value) for name, value in (metrics or {}).items()},
        )

    def place(self, features: Any, labels: Any) -> tuple[Any, Any]:
        """A data set on the devices, once, for `train` and `evaluate` with `rows`."""
        _num_examples(features, labels)
        placed: tuple[Any, Any] = self.backend.place((features, labels))
        return placed

    def train(self, features: Any, labels: Any, rows: Any = None) -> Results:
        """One step on a global batch, or on rows of a larger set; see the class for what a step is.

        A new number of examples or steps compiles anew: keep to few.

        Args:
          features, labels: arrays (or structures of them) [examples, ...], or what `place` gave.
          rows: None for all; [batch] for one step; [steps, batch] for as many steps in one call.

        Returns:
          Means over the batch, `loss` and the metrics: numbers, or arrays [steps] where `rows` has steps.

        Raises:
          InputError: also where a layer has no form on a mesh; before the first step then.
        """
        return self._run(self.backend.train, features, labels, rows)

    def evaluate(self, features: Any, labels: Any, rows: Any = None) -> Results:
        """As `train`, in inference mode, and nothing changes."""
        return self._run(self.backend.evaluate, features, labels, rows)

    def predict(self, features: Any) -> np.ndarray:
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

    def _run(self, call: Any, features: Any, labels: Any, rows: Any) -> Results:
        count = _num_examples(features, labels)
        indices = np.asarray(np.arange(count) if rows is None else rows, np.int32)
        if indices.ndim not in (1, 2) or not indices.size:
            raise InputError(
                f"rows has shape {list(indices.shape)}; give [batch] or [steps, batch]"
            )
        if indices.min() < 0 or indices.max() >= count:
            raise InputError(
                f"rows goes from {indices.min()} to {indices.max()}; valid: 0 to {count - 1}"
            )
        blocks = np.atleast_2d(indices)
        weights = np.ones(blocks.shape, np.float32)
        sums = call((features, labels), blocks, weights, weights.sum(axis=1))
        means = np.asarray(sums) / blocks.shape[1]
        if indices.ndim == 1:
            return dict(zip(self._names, means[0].tolist(), strict=True))
        return dict(zip(self._names, means.T, strict=True))


def _num_examples(features: Any, labels: Any) -> int:
    counts = {int(tensor.shape[0]) for tensor in tf.nest.flatten((features, labels))}
    if len(counts) != 1:
        raise InputError(
            f"features and labels have different numbers of examples: {sorted(counts)}"
        )
    return counts.pop()

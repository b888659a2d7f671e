"""The training step as a pure function: state and batch in, new state and sums out. Every backend runs this one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import PerExample
from tfmat.errors import InputError
from tfmat.models.normalization import batch_context

Reduce = Callable[[list[tf.Tensor]], list[tf.Tensor]]
# Between the dropout seeds of two workers.
_SEED_SHIFT = 1_000_003


class State(NamedTuple):
    """All that training changes. The global step is the first of `slots`, Keras's `iterations`."""

    weights: list[Any]
    non_trainable: list[Any]
    slots: list[Any]

    @classmethod
    def variables_of(cls, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> "State":
        """The TensorFlow variables behind a Keras model and its built optimizer."""
        return cls(
            [variable.value for variable in model.trainable_variables],
            [variable.value for variable in model.non_trainable_variables],
            [variable.value for variable in optimizer.variables],
        )

    def named(self) -> dict[str, Any]:
        """Everything by its name in files: `weights/0`, ..., `slots/0`, ..."""
        return {
            f"{part}/{i}": value
            for part, values in self._asdict().items()
            for i, value in enumerate(values)
        }

    def assign(
        self, arrays: Mapping[str, np.ndarray], assign: Callable[[str, np.ndarray], None]
    ) -> None:
        """Calls `assign(name, array)` for each variable; InputError before that where one has another shape."""
        for name, variable in self.named().items():
            array = arrays.get(name)
            if array is None or array.shape != tuple(variable.shape):
                saved = "nothing" if array is None else f"shape {list(array.shape)}"
                raise InputError(
                    f"the saved state does not fit this model: {name} ({variable.name}) has shape "
                    f"{list(variable.shape)}, saved is {saved}; use the config that the run was started with"
                )
        for name in self.named():
            assign(name, arrays[name])


class Batch(NamedTuple):
    """One worker's part of a global batch, or a piece of it.

    Attributes:
      features, labels: structures of tensors [batch, ...].
      weights: [batch], 0 for padding.
      num_examples: scalar, true examples of the GLOBAL batch.
    """

    features: Any
    labels: Any
    weights: tf.Tensor
    num_examples: tf.Tensor


class Step:
    """`compute` and `evaluate` for one model, optimizer, loss and set of metrics."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, PerExample],
        auxiliary_loss: PerExample | None = None,
        *,
        worker: int = 0,
        compression: str = "none",
    ):
        self._compression = compression
        self._model = model
        self._optimizer = optimizer
        self._loss = loss
        self._auxiliary_loss = auxiliary_loss
        self._metrics = dict(metrics)
        # Workers see different examples, so their dropout must differ too: a function of (seed, step, worker).
        self._seed_shifts = [
            worker * _SEED_SHIFT if "seed_generator_state" in variable.path else 0
            for variable in model.non_trainable_variables
        ]
        self._training_argument = {"training": True} if model._call_has_training_arg else {}
        self._inference_argument = {"training": False} if model._call_has_training_arg else {}

    def compute(
        self, state: State, pieces: Sequence[Batch], reduce: Reduce
    ) -> tuple[State, tf.Tensor]:
        """One training step.

        The loss is the weighted sum over this worker's examples divided by the number of examples of the GLOBAL
        batch, so gradients of unequal shards simply add up. Nothing is assigned: the caller writes the new state
        after every read.

        Args:
          state: tensors.
          pieces: this worker's part of the batch, whole or in pieces that may run side by side; several only for
            models without non-trainable state, which would have to go from one piece to the next.
          reduce: sums a list of tensors over the workers; identity on one.

        Returns:
          The new state, and [1 + metrics] sums over the global batch of loss and metrics.
        """
        results = [self._gradients(state, piece, reduce) for piece in pieces]
        gradients = [_total(list(parts)) for parts in zip(*(r[0] for r in results), strict=True)]
        sums = _total([result[1] for result in results])
        return self._update(state, gradients, sums, results[0][2], reduce)

    def compute_in_parts(
        self,
        state: State,
        part: Callable[[tf.Tensor], Batch],
        num_parts: int,
        reduce: Reduce,
    ) -> tuple[State, tf.Tensor]:
        """As `compute`, with the parts of the batch one after the other: only one is in memory at a time.

        Args:
          state, reduce: as for `compute`.
          part: j -> part j of this worker's batch, all of one width.
          num_parts: how many there are.
        """

        def add(j: tf.Tensor, totals: Any, non_trainable: Any) -> Any:
            gradients, sums, non_trainable = self._gradients(
                state._replace(non_trainable=non_trainable), part(j), reduce
            )
            return (
                j + 1,
                [total + new for total, new in zip(totals, [*gradients, sums], strict=True)],
                non_trainable,
            )

        zeros = [tf.zeros_like(weight) for weight in state.weights]
        zero_sums = tf.zeros([1 + len(self._metrics)], keras.backend.floatx())
        _, (*gradients, sums), non_trainable = tf.while_loop(
            lambda j, *_: j < num_parts,
            add,
            (tf.constant(0), [*zeros, zero_sums], list(state.non_trainable)),
        )
        return self._update(state, gradients, sums, non_trainable, reduce)

    def _update(
        self,
        state: State,
        gradients: list[tf.Tensor],
        sums: tf.Tensor,
        non_trainable: list[tf.Tensor],
        reduce: Reduce,
    ) -> tuple[State, tf.Tensor]:
        if self._compression == "fp16":
            halves = reduce([tf.cast(gradient, tf.float16) for gradient in gradients])
            gradients = [tf.cast(half, g.dtype) for half, g in zip(halves, gradients, strict=True)]
            (sums,) = reduce([sums])
            # The next step must not sum before this one has: nothing else of it needs the sums.
            with tf.control_dependencies([sums]):
                gradients = [tf.identity(gradient) for gradient in gradients]
        else:
            # Gradients and sums travel together: one collective a step where workers must meet.
            *gradients, sums = reduce([*gradients, sums])
        weights, slots = self._optimizer.stateless_apply(state.slots, gradients, state.weights)
        return State(weights, non_trainable, slots), sums

    def _gradients(
        self, state: State, batch: Batch, reduce: Reduce
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
        """Gradients, [1 + metrics] sums, and the new non-trainable state of one piece."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(state.weights)
            with batch_context(batch.weights, reduce):
                outputs, non_trainable, penalties = self._model.stateless_call(
                    state.weights,
                    self._shift_seeds(state.non_trainable, 1),
                    batch.features,
                    return_losses=True,
                    **self._training_argument,
                )
            sums = self._sums(batch, outputs)
            objective = sums[0]
            if self._auxiliary_loss:
                objective += _weighted_sum(self._auxiliary_loss, batch, outputs)
            objective /= tf.cast(batch.num_examples, objective.dtype)
            if penalties:
                # Regularisers hold once a batch: each piece adds the share of its examples.
                share = tf.reduce_sum(batch.weights) / batch.num_examples
                objective += tf.cast(share, objective.dtype) * tf.add_n(penalties)
        gradients = tape.gradient(
            objective, state.weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return gradients, tf.stack(sums), self._shift_seeds(non_trainable, -1)

    def _shift_seeds(self, non_trainable: list[tf.Tensor], sign: int) -> list[tf.Tensor]:
        """The state with this worker's seeds (sign 1), or the common ones back from them (sign -1)."""
        return [
            value + tf.cast([sign * shift, 0], value.dtype) if shift else value
            for value, shift in zip(non_trainable, self._seed_shifts, strict=True)
        ]

    def evaluate(self, state: State, pieces: Sequence[Batch], reduce: Reduce) -> tf.Tensor:
        """[1 + metrics] sums over the global batch of loss and metrics, in inference mode."""
        sums = [
            tf.stack(self._sums(piece, self.predict(state, piece.features))) for piece in pieces
        ]
        (total,) = reduce([_total(sums)])
        return total

    def predict(self, state: State, features: Any) -> Any:
        """Outputs in inference mode."""
        outputs, _ = self._model.stateless_call(
            state.weights, state.non_trainable, features, **self._inference_argument
        )
        return outputs

    def _sums(self, batch: Batch, outputs: Any) -> list[tf.Tensor]:
        functions = (self._loss, *self._metrics.values())
        sums = [_weighted_sum(function, batch, outputs) for function in functions]
        return [tf.cast(value, sums[0].dtype) for value in sums]


def _weighted_sum(function: PerExample, batch: Batch, outputs: Any) -> tf.Tensor:
    values = function(batch.labels, outputs)
    if values.shape.rank > 1:
        values = tf.reduce_mean(values, axis=range(1, values.shape.rank))
    return tf.reduce_sum(tf.cast(batch.weights, values.dtype) * values)


def _total(parts: list[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.add_n(parts)


def per_example_function(function: Any) -> PerExample:
    """A Keras loss (object, name) or any function of (labels, outputs) as a function that keeps the batch axis."""
    if isinstance(function, str):
        function = keras.losses.get(function)
    call = function.call if isinstance(function, keras.losses.Loss) else function

    def per_example(labels: Any, outputs: Any) -> Any:
        if tf.is_tensor(outputs) and tf.is_tensor(labels) and labels.dtype.is_floating:
            labels = tf.cast(labels, outputs.dtype)
        return call(labels, outputs)

    return per_example

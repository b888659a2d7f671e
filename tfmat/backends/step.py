"""The training step as a pure function: state and batch in, new state and sums out. Every backend runs this one."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.base import Metric, PerExample
from tfmat.backends.batches import Batch
from tfmat.backends.exchange import Collect, Exchange, Reduce, Scatter
from tfmat.backends.losses import per_example_mean
from tfmat.backends.metrics import num_sums, sums_of, weighted_sum
from tfmat.backends.precision import computing_in_bfloat16
from tfmat.backends.recomputation import Recomputation
from tfmat.backends.refusals import check_outputs, check_penalties, connected
from tfmat.backends.state import Gradients, State
from tfmat.models.normalization import batch_context, plain_normalizations
from tfmat.optimizers.stateless import Scope, call_layer

# Between the dropout seeds of two workers.
_SEED_SHIFT = 1_000_003


class Step:
    """`compute` and `evaluate` for one model, optimizer, loss and set of metrics.

    Attributes:
      model: see the arguments.
      functions: loss, auxiliary loss, and metrics but for keras.metrics objects.
      num_sums: that each step gives.
      signature: specs of (labels, outputs) of the last batch that was traced.
    """

    signature: Any = None

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        auxiliary_loss: PerExample | None = None,
        *,
        worker: int = 0,
        exchange: Exchange | None = None,
        gather: Callable[[list[Any]], list[Any]] = list,
        bfloat16: Sequence[keras.layers.Layer] = (),
        recomputation: Recomputation | None = None,
    ):
        self._exchange = exchange or Exchange()
        self._gather = gather
        self._bfloat16 = bfloat16
        self._recomputation = recomputation
        self.model = model
        self._optimizer = optimizer
        self._loss = loss
        self._auxiliary_loss = auxiliary_loss
        self._metrics = list(metrics.values())
        others = [each for each in self._metrics if not isinstance(each, keras.metrics.Metric)]
        self.functions = [loss, *([auxiliary_loss] if auxiliary_loss else []), *others]
        self.num_sums = num_sums(self._metrics)
        self._normalizations = plain_normalizations(model)
        # Workers see different examples, so their dropout must differ too: a function of (seed, step, worker).
        self._seed_shifts = [
            worker * _SEED_SHIFT if "seed_generator_state" in variable.path else 0
            for variable in model.non_trainable_variables
        ]
        self._training_argument = {"training": True} if model._call_has_training_arg else {}
        self._inference_argument = {"training": False} if model._call_has_training_arg else {}

    def compute(
        self,
        state: State,
        pieces: Sequence[Batch],
        reduce: Reduce,
        collect: Collect = list,
        scatter: Scatter | None = None,
    ) -> tuple[State, tf.Tensor]:
        """One training step.

        The loss is the weighted sum over this worker's examples divided by the number of examples of the GLOBAL
        batch, so gradients of unequal shards simply add up. Nothing is assigned: the caller writes the new state
        after every read.

        Args:
          state: tensors.
          pieces: this worker's part of the batch, whole or in pieces that may run side by side; several only for
            models without non-trainable state, which would have to go from one piece to the next.
          reduce, collect, scatter: see Exchange; on one worker nothing is summed.

        Returns:
          The new state, and [num_sums] sums over the global batch of loss and metrics.
        """
        gradients, sums, non_trainable = self.gradients(state, pieces, reduce)
        return self._update(state, gradients, sums, non_trainable, reduce, collect, scatter)

    def gradients(self, state: State, pieces: Sequence[Batch], reduce: Reduce) -> Gradients:
        """Gradients, sums and new state of this worker's part; see `compute`."""
        results = [self._gradients(state, piece, reduce) for piece in pieces]
        gradients = [_total(list(parts)) for parts in zip(*(r[0] for r in results), strict=True)]
        return gradients, _total([result[1] for result in results]), results[0][2]

    def compute_in_parts(
        self,
        state: State,
        part: Callable[[tf.Tensor], Batch],
        num_parts: int,
        reduce: Reduce,
        collect: Collect = list,
        scatter: Scatter | None = None,
    ) -> tuple[State, tf.Tensor]:
        """Does as `compute`, with the parts of the batch one after the other: only one is in memory at a time.

        Args:
          state, reduce, collect, scatter: as for `compute`.
          part: j -> part j of this worker's batch, all of one width.
          num_parts: how many there are.
        """
        gradients, sums, non_trainable = self.gradients_in_parts(state, part, num_parts, reduce)
        return self._update(state, gradients, sums, non_trainable, reduce, collect, scatter)

    def gradients_in_parts(
        self, state: State, part: Callable[[tf.Tensor], Batch], num_parts: int, reduce: Reduce
    ) -> Gradients:
        """Gradients, sums and new state of this worker's part; see `compute_in_parts`."""

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
        zero_sums = tf.zeros([self.num_sums], keras.backend.floatx())
        _, (*gradients, sums), non_trainable = tf.while_loop(
            lambda j, *_: j < num_parts,
            add,
            (tf.constant(0), [*zeros, zero_sums], list(state.non_trainable)),
            parallel_iterations=1,  # or the activations of several parts are in memory
        )
        return gradients, sums, non_trainable

    def _update(
        self,
        state: State,
        gradients: list[tf.Tensor],
        sums: tf.Tensor,
        non_trainable: list[tf.Tensor],
        reduce: Reduce,
        collect: Collect,
        scatter: Scatter | None,
    ) -> tuple[State, tf.Tensor]:
        weights, slots, sums, kept = self._exchange.update(
            self._optimizer, state, gradients, sums, reduce, collect, scatter
        )
        return State(weights, non_trainable, slots, kept), sums

    def _gradients(self, state: State, batch: Batch, reduce: Reduce) -> Gradients:
        """Gradients, sums and new state of one piece."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(state.weights)
            weights = self._gather(state.weights)
            outputs, non_trainable, penalties = self.forward(
                weights, state.non_trainable, batch, reduce
            )
            loss, objective = self.objective(weights, batch, outputs)
            if penalties:
                objective += tf.cast(self.penalty(batch, penalties), objective.dtype)
            objective = self._optimizer.scale_loss(objective)
        gradients = tape.gradient(objective, state.weights)
        gradients = connected(gradients, state.weights, self.model.trainable_variables)
        # Those of embeddings come as rows, some of them twice, which Keras's Adam would square one by one.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return gradients, self.sums_of(weights, batch, outputs, loss), non_trainable

    def forward(
        self, weights: list[Any], non_trainable: list[Any], batch: Batch, reduce: Reduce
    ) -> tuple[Any, list[Any], list[Any]]:
        """Outputs in training, the new non-trainable state, and the regularisers' penalties."""

        @contextlib.contextmanager
        def context() -> Iterator[None]:
            with (
                batch_context(batch.weights, reduce, self._normalizations),
                computing_in_bfloat16(self._bfloat16),
            ):
                yield

        non_trainable = self._shift_seeds(non_trainable, 1)
        if self._recomputation:
            outputs, non_trainable, penalties = self._recomputation(
                weights, non_trainable, batch.features, context
            )
        else:
            with context():
                outputs, non_trainable, penalties = call_layer(
                    self.model, weights, non_trainable, batch.features, **self._training_argument
                )
        check_outputs(outputs)
        if penalties:
            check_penalties(penalties, self.model.trainable_variables)
        return outputs, self._shift_seeds(non_trainable, -1), penalties

    def outcome(self, state: State, batch: Batch) -> tuple[Any, list[Any], list[tf.Tensor]]:
        """Outputs in training, the new non-trainable state, and [batch] of each loss and metric that is a function."""
        weights = self._gather(state.weights)
        outputs, non_trainable, _ = self.forward(weights, state.non_trainable, batch, list)
        with self._scope(weights):
            losses = [per_example_mean(each(batch.labels, outputs)) for each in self.functions]
        return outputs, non_trainable, losses

    def objective(
        self, weights: list[Any], batch: Batch, outputs: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The sum of the loss over a piece of the batch, and its part of what is minimised but for penalties."""
        with self._scope(weights):
            loss = self._weighted(self._loss, batch, outputs)
            objective = loss
            if self._auxiliary_loss:
                objective += self._weighted(self._auxiliary_loss, batch, outputs)
        return loss, objective / tf.cast(batch.num_examples, objective.dtype)

    def penalty(self, batch: Batch, penalties: list[Any]) -> tf.Tensor:
        """A piece's part of the penalties, which hold once a batch: the share of its examples."""
        share = tf.reduce_sum(batch.weights) / batch.num_examples
        return tf.cast(share, penalties[0].dtype) * tf.add_n(penalties)

    def _shift_seeds(self, non_trainable: list[tf.Tensor], sign: int) -> list[tf.Tensor]:
        """The state with this worker's seeds (sign 1), or the common ones back from them (sign -1)."""
        return [
            value + tf.cast([sign * shift, 0], value.dtype) if shift else value
            for value, shift in zip(non_trainable, self._seed_shifts, strict=True)
        ]

    def evaluate(self, state: State, pieces: Sequence[Batch], reduce: Reduce) -> tf.Tensor:
        """[num_sums] sums over the global batch of loss and metrics, in inference mode."""
        return reduce([_total([self._evaluated(state, piece) for piece in pieces])])[0]

    def _evaluated(self, state: State, batch: Batch) -> tf.Tensor:
        state = state._replace(weights=self._gather(state.weights))
        return self.sums_of(state.weights, batch, self._predict(state, batch.features))

    def predict(self, state: State, features: Any) -> Any:
        """Outputs in inference mode."""
        return self._predict(state._replace(weights=self._gather(state.weights)), features)

    def _predict(self, state: State, features: Any) -> Any:
        outputs, _, _ = call_layer(
            self.model, state.weights, state.non_trainable, features, **self._inference_argument
        )
        return outputs

    @contextlib.contextmanager
    def _scope(self, weights: list[Any]) -> Iterator[None]:
        """The model's layers have these weights in here: a loss may call them, as that of a density does."""
        with Scope(zip(self.model.trainable_variables, weights, strict=True)) as scope:
            yield
        scope.check("a loss or metric")

    def sums_of(
        self, weights: list[Any], batch: Batch, outputs: Any, loss: tf.Tensor | None = None
    ) -> tf.Tensor:
        """[num_sums] sums over a piece of the batch; `loss` is that of the loss, where it is known."""
        with self._scope(weights):
            if loss is None:
                loss = self._weighted(self._loss, batch, outputs)
            return self._sums(loss, batch, outputs)

    def _sums(self, loss: tf.Tensor, batch: Batch, outputs: Any) -> tf.Tensor:
        self.signature = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), (batch.labels, outputs)
        )
        sums = [loss]
        for metric in self._metrics:
            values = sums_of(metric, batch.labels, outputs, batch.weights)
            sums.append(tf.cast(values, loss.dtype))
        if all(each.shape.rank == 0 for each in sums):
            return tf.stack(sums)
        return tf.concat([tf.reshape(each, [-1]) for each in sums], 0)

    @staticmethod
    def _weighted(function: PerExample, batch: Batch, outputs: Any) -> tf.Tensor:
        return weighted_sum(function, batch.labels, outputs, batch.loss_weights)


def _total(parts: list[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.add_n(parts)

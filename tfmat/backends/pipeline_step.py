"""One stage's part of a training step, in a graph: micro-batches forward and backward, in the order of a schedule."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfmat.backends.batches import Batch
from tfmat.backends.exchange import num_bytes
from tfmat.backends.messages import Messages
from tfmat.backends.refusals import connected
from tfmat.backends.schedule import Place, Work
from tfmat.backends.state import State
from tfmat.backends.step import Step


class Passed(NamedTuple):
    """What a micro-batch's forward pass leaves for its backward pass: tape, what went in, what is differentiated."""

    tape: tf.GradientTape
    inputs: Any
    targets: list[tf.Tensor]


class Ordered:
    """What happens in a graph one after the other: activations of no more micro-batches than meant are in memory."""

    def __init__(self) -> None:
        self._last: list[Any] = []
        self.waited: list[tf.Tensor] = []

    def begin(self, tensors: Any) -> Any:
        """The same tensors (a structure), once what was before has ended."""
        with tf.control_dependencies(self._last):
            return tf.nest.map_structure(tf.identity, tensors)

    def receive(self, receive: Callable[[], tf.Tensor]) -> tf.Tensor:
        """What `receive` gives, which waits for it; the seconds are noted."""
        with tf.control_dependencies(self._last):
            before = tf.timestamp()
        with tf.control_dependencies([before]):
            tensor = receive()
        with tf.control_dependencies([tensor]):
            after = tf.timestamp()
        self.waited.append(after - before)
        # Or what the tensor is for would be computed first where there is one thread, and counted as waiting.
        with tf.control_dependencies([after]):
            tensor = tf.identity(tensor)
        self._last = [tensor]
        return tensor

    def end(self, complete: list[Any]) -> None:
        """What comes next waits for these."""
        with tf.control_dependencies([*self._last, *complete]):
            self._last = [tf.no_op()]


class StageStep:
    """What one process does in a step.

    Args:
      step: of this stage's segment as a model.
      place: of this process.
      messages: between all processes.
      specs: of what comes from the stage before and goes to the next one, for one example; None at the ends.

    Attributes:
      bytes: that this process sends to other stages in a step, once one was made.
    """

    def __init__(
        self,
        step: Step,
        place: Place,
        messages: Messages,
        specs: tuple[tf.TensorSpec | None, tf.TensorSpec | None],
    ):
        self._step, self._messages = step, messages
        before, after = place.stage - 1, place.stage + 1
        self._before, self._after = specs
        self._rank_before = place.chain[before] if self._before else None
        self._rank_after = place.chain[after] if self._after else None
        self.bytes = 0

    def gradients(
        self,
        state: State,
        micro_batch: Callable[[int], Batch],
        work: Sequence[Work],
        variables: Sequence[keras.Variable],
        optimizer: keras.optimizers.Optimizer,
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor], tf.Tensor]:
        """Forward and backward passes of a step.

        Args:
          state: tensors of this stage.
          micro_batch: i -> examples, labels and weights of micro-batch i, all of one width.
          work: in order.
          variables: the stage's trainable ones.
          optimizer: whose scale of the loss holds.

        Returns:
          Gradients of this stage's weights, [num_sums] sums (zeros but on the last stage), the new non-trainable state,
          and the seconds that this stage waited for others.
        """
        ordered, passed = Ordered(), {}
        totals: list[tf.Tensor] = []
        sums: list[tf.Tensor] = []
        non_trainable = state.non_trainable
        self.bytes = 0
        for is_forward, i in work:
            if is_forward:
                passed[i], non_trainable = self._forward(
                    state.weights, non_trainable, micro_batch(i), ordered, sums, optimizer
                )
                continue
            gradients = self._backward(passed.pop(i), state.weights, variables, ordered)
            totals = [
                gradient if not totals else totals[k] + gradient
                for k, gradient in enumerate(gradients)
            ]
            ordered.end(totals)
        total = tf.add_n(sums) if sums else tf.zeros([self._step.num_sums], keras.backend.floatx())
        waited = tf.add_n(ordered.waited) if ordered.waited else tf.zeros([], tf.float64)
        return totals, total, non_trainable, waited

    def _forward(
        self,
        weights: list[tf.Tensor],
        non_trainable: list[tf.Tensor],
        batch: Batch,
        ordered: Ordered,
        sums: list[tf.Tensor],
        optimizer: keras.optimizers.Optimizer,
    ) -> tuple[Passed, list[tf.Tensor]]:
        inputs = self._inputs(batch, ordered)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            if self._before:
                tape.watch(inputs)
            outputs, non_trainable, penalties = self._step.forward(
                weights, non_trainable, batch._replace(features=inputs), list
            )
            targets = []
            if penalties:
                targets.append(optimizer.scale_loss(self._step.penalty(batch, penalties)))
            if not self._after:
                loss, objective = self._step.objective(weights, batch, outputs)
                targets.append(optimizer.scale_loss(objective))
        if self._after:
            targets.append(outputs)
            ordered.end([*self._send(outputs, self._after, self._rank_after), outputs])
        else:
            sums.append(self._step.sums_of(weights, batch, outputs, loss))
            ordered.end([*targets, sums[-1]])
        return Passed(tape, inputs, targets), non_trainable

    def _backward(
        self,
        passed: Passed,
        weights: list[tf.Tensor],
        variables: Sequence[keras.Variable],
        ordered: Ordered,
    ) -> list[tf.Tensor]:
        tape, inputs, targets = passed
        factors = [tf.ones_like(target) for target in targets]
        if self._after:
            width = targets[-1].shape[0]
            factors[-1] = self._receive(width, self._after, self._rank_after, ordered)
        else:
            factors = ordered.begin(factors)
        sources = [*weights, *([inputs] if self._before else [])]
        found = tape.gradient(targets, sources, output_gradients=factors)
        gradients = connected(found[: len(weights)], weights, list(variables))
        if self._before:
            back = tf.zeros_like(inputs) if found[-1] is None else found[-1]
            ordered.end(self._send(back, self._before, self._rank_before))
        # Those of embeddings come as rows.
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def evaluated(self, state: State, batch: Batch) -> tf.Tensor:
        """[num_sums] sums over a batch in inference mode; zeros but on the last stage."""
        outputs = self.predicted(state, batch.features)
        if self._after:
            with tf.control_dependencies([outputs]):
                return tf.zeros([self._step.num_sums], keras.backend.floatx())
        return self._step.sums_of(state.weights, batch, outputs)

    def predicted(self, state: State, features: Any) -> Any:
        """The model's outputs in inference mode on the last stage, what others send on otherwise."""
        ordered = Ordered()
        inputs = features
        if self._before:
            first = tf.nest.flatten(features)[0]
            width = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
            inputs = self._receive(width, self._before, self._rank_before, ordered)
        outputs = self._step.predict(state, inputs)
        if not self._after:
            return outputs
        sent = self._send(outputs, self._after, self._rank_after, one_at_a_time=True)
        with tf.control_dependencies(sent):
            return tf.identity(outputs)

    def _inputs(self, batch: Batch, ordered: Ordered) -> Any:
        if self._before:
            return self._receive(batch.weights.shape[0], self._before, self._rank_before, ordered)
        return ordered.begin(batch.features)

    def _receive(
        self, width: Any, spec: tf.TensorSpec, rank: int | None, ordered: Ordered
    ) -> tf.Tensor:
        assert rank is not None
        shape = [width, *spec.shape]
        tensor = ordered.receive(lambda: self._messages.receive(tf.stack(shape), spec.dtype, rank))
        rows = width if isinstance(width, int) else None
        return tf.ensure_shape(tensor, [rows, *spec.shape])

    def _send(
        self, tensor: tf.Tensor, spec: tf.TensorSpec, rank: int | None, one_at_a_time: bool = False
    ) -> list[Any]:
        assert rank is not None
        tensor = tf.ensure_shape(tf.cast(tensor, spec.dtype), [None, *spec.shape])
        self.bytes += num_bytes([tensor])
        return [self._messages.send(tensor, rank, one_at_a_time=one_at_a_time)]

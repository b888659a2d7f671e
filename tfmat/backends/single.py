"""Data parallel training: each worker holds the whole state and computes its part of the global batch.

Many steps run in one call of a graph, the data gathered by index inside it. A worker takes its columns of each global
batch and sums over the others where the step says `reduce`; alone, that is the identity. The loss is divided by the
global batch, so unequal parts are right without further ado.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Arrays, Backend, Metric, PerExample
from tfmat.backends.batches import (
    Stamps,
    each_batch,
    each_batch_in_parts,
    each_timed_batch,
    row_spec,
    share_or_copy,
)
from tfmat.backends.refusals import check_parts, check_precision
from tfmat.backends.step import Batch, State, Step
from tfmat.backends.step_times import StepTimes
from tfmat.errors import InputError
from tfmat.models.normalization import is_synchronized

# Examples in a piece of a batch: beyond the first its activations leave the cache, below the second its operations
# are too small to be worth starting. Further rounds would only make the graph larger.
_PIECE, _SMALLEST_PIECE, _LARGEST_ROUNDS = 250, 16, 4


class SingleBackend(Backend):
    """The state lives in the model's own variables."""

    name = "single"

    def time_steps(self, one_call_in: int = 1) -> None:
        """See Backend.time_steps."""
        if self.options.accumulate > 1:
            raise InputError("profile=true does not work with accumulate; leave out one of them")
        if tf.config.list_logical_devices("GPU"):
            raise InputError(
                "profile=true does not work on GPUs, which say when work was given to them, not when it was done; "
                "leave it out and use trace_steps"
            )
        self.timed_calls = one_call_in
        self.collectives.compare_clocks()

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, Metric],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
    ) -> None:
        """See Backend.build."""
        self.collectives.check_build(jit_compile)
        if jit_compile and self.timed_calls:
            raise InputError("profile=true does not work with jit_compile; leave out one of them")
        check_precision(model, optimizer)
        check_parts(model, self.options.accumulate)
        optimizer.build(model.trainable_variables)
        self._step = Step(
            model,
            optimizer,
            loss,
            metrics,
            auxiliary_loss,
            worker=self.rank,
            compression=self.options.compression if self.world_size > 1 else "none",
        )
        self._variables = State.variables_of(model, optimizer)
        compute = self._step.compute
        self._compute = (
            tf.function(compute, jit_compile=True, autograph=False) if jit_compile else compute
        )
        self._functions: dict[Any, Any] = {}
        self._num_calls = 0
        self._local_statistics = _local_statistics(model)

    def place(self, data: Any) -> Any:
        """See Backend.place."""
        tensors = self.host_tensors(data)
        if tf.config.list_logical_devices("GPU"):
            with tf.device("GPU:0"):
                return tf.nest.map_structure(tf.identity, tensors)
        return tensors

    def host_tensors(self, data: Any) -> Any:
        """See Backend.host_tensors."""
        return tf.nest.map_structure(share_or_copy, data)

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.train."""
        missing = -indices.shape[1] % self.options.accumulate
        if missing:  # the parts of a batch have one width
            indices, weights = (np.pad(a, ((0, 0), (0, missing))) for a in (indices, weights))
        self.step_times = None
        if not self._is_timed_call():
            return self._run(self._train_steps, data, indices, weights, num_examples)
        sums, moments = self._run(self._train_timed_steps, data, indices, weights, num_examples)
        self.step_times = StepTimes(moments)
        return sums

    def _is_timed_call(self) -> bool:
        """The same on every rank, since all make the same calls."""
        number, every = self._num_calls, self.timed_calls
        self._num_calls += 1
        return every > 0 and (number < every or number % every == every - 1)

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.evaluate."""
        return self._run(self._evaluate_steps, data, indices, weights, num_examples)

    def predict(self, features: Any) -> Any:
        """See Backend.predict."""
        if "predict" not in self._functions:
            self._functions["predict"] = tf.function(
                lambda features: self._step.predict(self._read(), features),
                reduce_retracing=True,
                autograph=False,
            )
        outputs = self._functions["predict"](features)
        return tf.nest.map_structure(lambda output: output.numpy(), outputs)

    def columns(self, global_batch_size: int) -> slice:
        """See Backend.columns."""
        if global_batch_size < self.world_size:
            raise InputError(
                f"global_batch_size is {global_batch_size}, fewer than the {self.world_size} workers; "
                "use a larger batch or fewer workers"
            )
        start, stop = (
            global_batch_size * rank // self.world_size for rank in (self.rank, self.rank + 1)
        )
        return slice(start, stop)

    def synchronize(self) -> None:
        """See Backend.synchronize."""
        self.collectives.broadcast_variables(self._variables.named())

    def check_replicas(self, step: int) -> None:
        """See Backend.check_replicas."""
        if self.world_size == 1:
            return
        self.collectives.announce("comparing weights", step)
        digest = hashlib.blake2b(digest_size=16)
        for array in self.read().values():
            digest.update(np.ascontiguousarray(array).data)
        digests = self.collectives.gather(digest.hexdigest())
        differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
        self._report_differing("rank", differing, step)

    def read(self) -> Arrays:
        """See Backend.read; statistics that each worker keeps for itself are averaged first."""
        if self.world_size > 1 and self._local_statistics:
            self.collectives.begin_graph("statistics")
            for variable in self._local_statistics:
                (total,) = self.collectives.reduce([tf.convert_to_tensor(variable)])
                variable.assign(total / self.world_size)
        return {name: variable.numpy() for name, variable in self._variables.named().items()}

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """See Backend.write."""
        variables = self._variables.named()
        self._variables.assign(arrays, lambda name, array: variables[name].assign(array))
        self._note_common_state(arrays)

    def sync_model(self) -> None:
        """Nothing to do: the state lives in the model's own variables."""

    def _run(
        self,
        steps: Any,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> Any:
        """Runs `steps`, compiled once for each kind of rows and width of batch, whatever the number of steps."""
        width = indices.shape[1]
        rows = tf.nest.map_structure(row_spec, data)
        key = (steps.__name__, width, str(rows))
        if key not in self._functions:
            signature = [
                rows,
                tf.TensorSpec([None, width], tf.int32),
                tf.TensorSpec([None, width], tf.float32),
                tf.TensorSpec([None], tf.float32),
            ]
            # No autograph: the loop is written out, and nothing is left in the folder of temporary files.
            self._functions[key] = tf.function(steps, input_signature=signature, autograph=False)
        with self.collectives.losses_told():
            results = self._functions[key](data, indices, weights, num_examples)
            return tf.nest.map_structure(lambda result: result.numpy(), results)

    def _train_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> Any:
        def step(pieces: list[Batch]) -> tf.Tensor:
            return self._assign(*self._compute(self._read(), pieces, self.collectives.reduce))

        def step_in_parts(part: Callable[[tf.Tensor], Batch]) -> tf.Tensor:
            return self._assign(
                *self._step.compute_in_parts(self._read(), part, num_parts, self.collectives.reduce)
            )

        self.collectives.begin_graph("train")
        num_parts = self.options.accumulate
        if num_parts > 1:
            return each_batch_in_parts(
                step_in_parts, num_parts, data, indices, weights, num_examples
            )
        return each_batch(step, self._num_pieces, data, indices, weights, num_examples)

    def _train_timed_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> Any:
        def step(pieces: list[Batch], stamps: Stamps) -> tf.Tensor:
            reduce = stamps.around(self.collectives.reduce)
            state, sums = self._compute(self._read(), pieces, reduce)
            return self._assign(state, sums, stamps)

        self.collectives.begin_graph("train")
        several = self.world_size > 1
        return each_timed_batch(
            step, self._num_pieces, several, data, indices, weights, num_examples
        )

    def _assign(self, state: State, sums: tf.Tensor, stamps: Stamps | None = None) -> tf.Tensor:
        # Every write after every read: see contracts on DTensor, which runs the same step.
        assigned = [
            variable.assign(value, read_value=False)
            for variables, values in zip(self._variables, state, strict=True)
            for variable, value in zip(variables, values, strict=True)
        ]
        if stamps:
            stamps.note(assigned)
        return sums

    def _evaluate_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tf.Tensor:
        def step(pieces: list[Batch]) -> tf.Tensor:
            return self._step.evaluate(self._read(), pieces, lambda tensors: tensors)

        self.collectives.begin_graph("evaluate")
        sums = each_batch(step, self._num_pieces, data, indices, weights, num_examples)
        # One collective a call, not one a batch: nothing here waits for the other workers' sums.
        return self.collectives.reduce([sums])[0]

    def _num_pieces(self, width: int) -> int:
        """Pieces of a batch that run side by side, one on each processor.

        Only where TensorFlow runs each operation on one thread (see `prepare_tensorflow`): a piece then stays in the
        cache of its processor and waits for no other, which makes a step of the default network on two cores 1.6 times
        faster at batch 75 and 1.2 times at 750. State such as moving statistics must go through in one piece.
        """
        threads = tf.config.threading
        if threads.get_intra_op_parallelism_threads() != 1 or self._variables.non_trainable:
            return 1
        processors = threads.get_inter_op_parallelism_threads() or 1
        rounds = min(_LARGEST_ROUNDS, -(-width // (processors * _PIECE)))
        return max(1, min(processors * rounds, width // _SMALLEST_PIECE))

    def _read(self) -> State:
        return State(*([tf.convert_to_tensor(v) for v in part] for part in self._variables))


def _local_statistics(model: keras.Model) -> list[Any]:
    """State that each worker changes by what it alone sees: moving statistics, where not synchronised."""
    synchronized = {
        id(variable)
        for layer in model._flatten_layers()
        if is_synchronized(layer)
        for variable in layer.non_trainable_variables
    }
    return [
        variable.value
        for variable in model.non_trainable_variables
        if id(variable) not in synchronized and variable.value.dtype.is_floating
    ]

"""One process, one device: many steps in one call of a graph, the data gathered by index inside it."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Arrays, Backend, PerExample
from tfmat.backends.step import Batch, State, Step
from tfmat.errors import InputError

# Examples in a piece of a batch: beyond the first its activations leave the cache, below the second its operations
# are too small to be worth starting. Further rounds would only make the graph larger.
_PIECE, _SMALLEST_PIECE, _LARGEST_ROUNDS = 250, 16, 4


class SingleBackend(Backend):
    """The seam's identity: `reduce` returns what it is given, the state lives in the model's own variables."""

    name = "single"

    def build(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: PerExample,
        metrics: Mapping[str, PerExample],
        *,
        auxiliary_loss: PerExample | None = None,
        jit_compile: bool = False,
    ) -> None:
        """See Backend.build."""
        optimizer.build(model.trainable_variables)
        self._step = Step(model, optimizer, loss, metrics, auxiliary_loss)
        self._variables = State.variables_of(model, optimizer)
        compute = self._step.compute
        self._compute = (
            tf.function(compute, jit_compile=True, autograph=False) if jit_compile else compute
        )
        self._functions: dict[Any, Any] = {}

    def place(self, data: Any) -> Any:
        """See Backend.place."""
        tensors = self.share(data)
        if tf.config.list_logical_devices("GPU"):
            with tf.device("GPU:0"):
                return tf.nest.map_structure(tf.identity, tensors)
        return tensors

    def share(self, data: Any) -> Any:
        """See Backend.share."""
        return tf.nest.map_structure(_share_or_copy, data)

    def train(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.train."""
        return self._run(self._train_steps, data, indices, weights, num_examples)

    def evaluate(
        self, data: Any, indices: np.ndarray, weights: np.ndarray, num_examples: np.ndarray
    ) -> np.ndarray:
        """See Backend.evaluate."""
        return self._run(self._evaluate_steps, data, indices, weights, num_examples)

    def predict(self, features: Any) -> np.ndarray:
        """See Backend.predict."""
        if "predict" not in self._functions:
            self._functions["predict"] = tf.function(
                lambda features: self._step.predict(self._read(), features),
                reduce_retracing=True,
                autograph=False,
            )
        return self._functions["predict"](features).numpy()

    def read(self) -> Arrays:
        """See Backend.read."""
        return {
            f"{part}/{i}": variable.numpy()
            for part, variables in self._variables._asdict().items()
            for i, variable in enumerate(variables)
        }

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """See Backend.write."""
        pairs = []
        for part, variables in self._variables._asdict().items():
            for i, variable in enumerate(variables):
                array = arrays.get(f"{part}/{i}")
                if array is None or array.shape != tuple(variable.shape):
                    found = "nothing" if array is None else f"shape {list(array.shape)}"
                    raise InputError(
                        f"the saved state does not fit this model: {part} {i} ({variable.name}) has shape "
                        f"{list(variable.shape)}, saved is {found}; use the config that the run was started with"
                    )
                pairs.append((variable, array))
        for variable, array in pairs:
            variable.assign(array)

    def sync_model(self) -> None:
        """Nothing to do: the state lives in the model's own variables."""

    def _run(
        self,
        steps: Any,
        data: Any,
        indices: np.ndarray,
        weights: np.ndarray,
        num_examples: np.ndarray,
    ) -> np.ndarray:
        """Runs `steps`, compiled once for each kind of rows and width of batch, whatever the number of steps."""
        width = indices.shape[1]
        rows = tf.nest.map_structure(_row_spec, data)
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
        return self._functions[key](data, indices, weights, num_examples).numpy()

    def _train_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tf.Tensor:
        def step(pieces: list[Batch]) -> tf.Tensor:
            state, sums = self._compute(self._read(), pieces, _identity)
            # Every write after every read: see contracts on DTensor, which runs the same step.
            for variables, values in zip(self._variables, state, strict=True):
                for variable, value in zip(variables, values, strict=True):
                    variable.assign(value)
            return sums

        return _each_batch(step, self._num_pieces, data, indices, weights, num_examples)

    def _evaluate_steps(
        self, data: Any, indices: tf.Tensor, weights: tf.Tensor, num_examples: tf.Tensor
    ) -> tf.Tensor:
        def step(pieces: list[Batch]) -> tf.Tensor:
            return self._step.evaluate(self._read(), pieces, _identity)

        return _each_batch(step, self._num_pieces, data, indices, weights, num_examples)

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


def _identity(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    return tensors


def _each_batch(
    step: Callable[[list[Batch]], tf.Tensor],
    num_pieces: Callable[[int], int],
    data: Any,
    indices: tf.Tensor,
    weights: tf.Tensor,
    num_examples: tf.Tensor,
) -> tf.Tensor:
    """Runs `step` on one batch after the other, in the graph; what it returns, stacked: [steps, ...]."""
    num_steps, width = tf.shape(indices)[0], indices.shape[1]
    pieces = num_pieces(width)
    cuts = [width * i // pieces for i in range(pieces + 1)]

    def piece(i: tf.Tensor, start: int, stop: int) -> Batch:
        rows = indices[i, start:stop]
        features, labels = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), data)
        return Batch(features, labels, weights[i, start:stop], num_examples[i])

    def body(i: tf.Tensor, records: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        sums = step([piece(i, *cut) for cut in itertools.pairwise(cuts)])
        return i + 1, records.write(i, tf.cast(sums, records.dtype))

    records = tf.TensorArray(keras.backend.floatx(), size=num_steps)
    _, records = tf.while_loop(lambda i, _: i < num_steps, body, [tf.constant(0), records])
    return records.stack()


def _row_spec(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def _share_or_copy(array: Any) -> tf.Tensor:
    """A tensor over the array's own memory where TensorFlow can share it (CPU, aligned), else a copy of it."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable:
        aligned = array.ctypes.data % 64 == 0
        if aligned and array.dtype != np.bool_ and array.size:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)

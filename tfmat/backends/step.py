"""The training step: a pure function of state and batch."""

import contextlib
import copy
import functools
import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Backend, Metric, PerExample, SavedArray, SavedArrays
from tfmat.backends.exchange import Apply, Exchange, Tensors
from tfmat.backends.losses import num_sums, per_example_mean, sums_of, weighted_sum
from tfmat.errors import InputError, nearest
from tfmat.networks.factory import (
    batch_context,
    is_synchronized,
    plain_normalizations,
)
from tfmat.optimizers import Scope

# --------------------------------------------------------------------------------------------------
# All that training changes, as one value: what a step takes and gives.


class State(NamedTuple):
    """All that training changes. The global step is the first of `slots`, Keras's `iterations`.

    Values that a worker keeps between exchanges (`kept`) are its own, and no part of `named` and `assign`.
    """

    weights: list[Any]
    non_trainable: list[Any]
    slots: list[Any]
    kept: Sequence[Any] = ()

    @classmethod
    def variables_of(cls, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> "State":
        """The TensorFlow variables behind a Keras model and its built optimizer."""
        return cls(
            [variable.value for variable in model.trainable_variables],
            [variable.value for variable in model.non_trainable_variables],
            [variable.value for variable in optimizer.variables],
        )

    @classmethod
    def paths_of(cls, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> dict[str, str]:
        """Names as of `named` -> these with the path of the variable, for people."""
        parts = model.trainable_variables, model.non_trainable_variables, optimizer.variables
        paths = cls(*([variable.path for variable in part] for part in parts)).named()
        return {name: f"{name} ({path})" for name, path in paths.items()}

    def named(self) -> dict[str, Any]:
        """Everything by its name in files: `weights/0`, ..., `slots/0`, ..."""
        return {
            f"{part}/{i}": value
            for part, values in zip(self._fields[:3], self[:3], strict=True)
            for i, value in enumerate(values)
        }

    def assign(self, arrays: SavedArrays, assign: Callable[[str, np.ndarray], None]) -> None:
        """Calls `assign(name, array)` for each variable; InputError before that where one has another shape.

        One array is in memory at a time, where the arrays are not there already.
        """
        for name, variable in self.named().items():
            array = arrays.get(name)
            if array is None or array.shape != tuple(variable.shape):
                saved = "nothing" if array is None else f"shape {list(array.shape)}"
                raise InputError(
                    f"the saved state does not fit this model: {name} ({variable.name}) has shape "
                    f"{list(variable.shape)}, saved is {saved}; use the config that the run was started with"
                )
        for name in self.named():
            assign(name, np.asarray(arrays[name]))


# Gradients, [num_sums] sums and the new non-trainable state of one worker's part of a batch.
Gradients = tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]


def tensors_of(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The present values, in a graph or outside."""
    return [tf.convert_to_tensor(variable) for variable in variables]


def assign_all(variables: Sequence[Any], values: Sequence[tf.Tensor]) -> list[Any]:
    """The operations of a graph by which the variables get these values."""
    # Every write after every read: see contracts on DTensor, which runs the same step.
    return [
        variable.assign(value, read_value=False)
        for variable, value in zip(variables, values, strict=True)
    ]


def put(variable: tf.Variable, array: np.ndarray) -> None:
    """Gives a variable's memory other contents, of the variable's shape or of none."""
    value = tf.cast(tf.convert_to_tensor(array), variable.dtype)
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value, validate_shape=False)


def place_in_state(name: str) -> tuple[int, int]:
    """A key that sorts the names of a state into its order."""
    part, place = name.split("/")
    return State._fields.index(part), int(place)


# --------------------------------------------------------------------------------------------------
# One batch after the other inside a graph, and stamps of its times.


# Examples in a piece of a batch: beyond the first its activations leave the cache, below the second its operations
# are too small to be worth starting. Further rounds would only make the graph larger.
_PIECE, _SMALLEST_PIECE, _LARGEST_ROUNDS = 250, 16, 4


class Batch(NamedTuple):
    """One worker's part of a global batch, or a piece of it.

    Attributes:
      features, labels: structures of tensors [batch, ...].
      weights: [batch], 0 for padding.
      num_examples: scalar, true examples of the GLOBAL batch.
      sample_weights: ([batch],), the examples' own in the loss; nothing where each counts 1.
    """

    features: Any
    labels: Any
    weights: tf.Tensor
    num_examples: tf.Tensor
    sample_weights: tuple[tf.Tensor, ...] = ()

    @classmethod
    def gather(cls, data: Any, rows: Any, weights: Any, num_examples: Any) -> "Batch":
        """The rows of `data`, which is (features, labels) or (features, labels, sample weights)."""
        features, labels, *own = tf.nest.map_structure(lambda t: tf.gather(t, rows), data)
        return cls(features, labels, weights, num_examples, tuple(own))

    @property
    def loss_weights(self) -> tf.Tensor:
        """[batch], of each example in the loss."""
        weights = self.weights
        for own in self.sample_weights:
            weights *= tf.cast(own, weights.dtype)
        return weights


class Parts(NamedTuple):
    """One worker's part of a global batch in parts that come one after the other: one at a time is in memory.

    Attributes:
      part: j -> part j, all of one width.
      number: how many there are.
    """

    part: Callable[[Any], Batch]
    number: int


def part_of_batch(global_batch_size: int, worker: int, workers: int) -> slice:
    """One worker's contiguous part of each global batch; InputError where a worker would have none."""
    if global_batch_size < workers:
        raise InputError(
            f"global_batch_size is {global_batch_size}, fewer than the {workers} workers; use a larger batch or fewer "
            "workers"
        )
    return slice(*(global_batch_size * part // workers for part in (worker, worker + 1)))


def num_pieces(width: int) -> int:
    """Pieces of a batch of that width that run side by side, one on each processor.

    Only where TensorFlow runs each operation on one thread (see `prepare_tensorflow`) of a CPU. A piece then stays in
    the cache of its processor and waits for no other. A step of the default network on two cores is 1.6 times faster by
    it at batch 75 and 1.2 times at 750. A GPU fills itself with one large operation.
    """
    threads = tf.config.threading
    if threads.get_intra_op_parallelism_threads() != 1 or tf.config.list_logical_devices("GPU"):
        return 1
    processors = threads.get_inter_op_parallelism_threads() or 1
    rounds = min(_LARGEST_ROUNDS, -(-width // (processors * _PIECE)))
    return max(1, min(processors * rounds, width // _SMALLEST_PIECE))


def rows_of_a_piece(model: keras.Model, width: int, num_parts: int) -> int:
    """Examples of a worker's batch of that width that go through the model at a time; `num_parts` is `accumulate`."""
    if num_parts > 1:
        return -(-width // num_parts)
    return width if model.non_trainable_variables else -(-width // num_pieces(width))


# Steps of a round, and what takes a function that runs them in the graph and returns what that returns.
Rounds = tuple[int, Callable[[Callable[[], Any]], Any]]


class Block(NamedTuple):
    """The batches of some steps, of one worker and in a graph; see `Backend.train` for the attributes."""

    data: Any
    indices: Any
    weights: Any
    num_examples: Any

    def pieces(self, i: Any, number: int) -> list[Batch]:
        """Batch i in so many pieces, which may run side by side."""
        width = self.indices.shape[1]
        cuts = itertools.pairwise(width * j // number for j in range(number + 1))

        # TensorFlow forgets the width inside a loop, and adds the biases of convolutions of unknown width apart.
        def cut(tensor: tf.Tensor, start: int, stop: int) -> tf.Tensor:
            return tf.ensure_shape(tensor[i, start:stop], [stop - start])

        return [
            Batch.gather(
                self.data, cut(self.indices, *at), cut(self.weights, *at), self.num_examples[i]
            )
            for at in cuts
        ]

    def parts(self, i: Any, number: int) -> Parts:
        """Batch i, whose width is a multiple of `number`, in parts that are gathered when their turn comes."""
        rows, weights = (tf.reshape(each[i], [number, -1]) for each in (self.indices, self.weights))

        def part(j: Any) -> Batch:
            return Batch.gather(self.data, rows[j], weights[j], self.num_examples[i])

        return Parts(part, number)

    def each(
        self, step: Callable[[Any], Any], dtypes: Any = None, rounds: Rounds | None = None
    ) -> Any:
        """`step(i)` for one batch after the other, stacked: [steps, ...].

        Args:
          step: returns a tensor, or a structure of tensors as `dtypes` is one of their types.
          dtypes: None for Keras's.
          rounds: in which the steps are run, in the graph.
        """
        num_steps = tf.shape(self.indices)[0]
        dtypes = dtypes or keras.backend.floatx()

        def one(i: tf.Tensor, records: list[tf.TensorArray]) -> Any:
            values = tf.nest.flatten(step(i))
            return i + 1, [
                record.write(i, tf.cast(value, record.dtype))
                for record, value in zip(records, values, strict=True)
            ]

        def several(i: tf.Tensor, records: list[tf.TensorArray]) -> Any:
            assert rounds
            every, take = rounds
            stop = tf.minimum(i + every, num_steps)
            return take(lambda: tf.while_loop(lambda i, _: i < stop, one, [i, records]))

        records = [tf.TensorArray(dtype, size=num_steps) for dtype in tf.nest.flatten(dtypes)]
        body = several if rounds else one
        _, records = tf.while_loop(lambda i, _: i < num_steps, body, [tf.constant(0), records])
        return tf.nest.pack_sequence_as(dtypes, [record.stack() for record in records])


class Stamps:
    """Notes in the graph of a training step when its parts are complete; see `StepTimes`."""

    def __init__(self, several: bool):
        self._several = several
        self._times: list[tf.Tensor] = []

    def after(self, tensors: Any) -> Any:
        """The same tensors (a structure); nothing that uses them begins before all are there and the time is noted."""
        self.note(tf.nest.flatten(tensors))
        with tf.control_dependencies(self._times[-1:]):
            return tf.nest.map_structure(tf.identity, tensors)

    def note(self, complete: list[Any]) -> None:
        """Notes the time at which these tensors and operations are complete."""
        with tf.control_dependencies([*complete, *self._times[-1:]]):
            self._times.append(tf.timestamp())

    def around(self, reduce: Callable[[Tensors], Tensors]) -> Callable[[Tensors], Tensors]:
        """`reduce`, with the times at which its tensors are ready and their sums are back."""
        if not self._several:

            def ready(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
                tensors = self.after(tensors)
                self._times.append(self._times[-1])
                return reduce(tensors)

            return ready

        @tf.custom_gradient
        def summed(*tensors: tf.Tensor) -> Any:
            totals = tuple(self.after(list(reduce(self.after(list(tensors))))))
            # A sum's gradient is the sum of the gradients, and another barrier of the workers.
            return totals, lambda *gradients: summed(*gradients)

        return lambda tensors: list(summed(*tensors))

    def stack(self) -> tf.Tensor:
        """float64 [moments]; see StepTimes."""
        return tf.stack(self._times)


def compiled(
    function: Callable[..., Any], data: Any, shape: Sequence[int | None], *more: Any
) -> Any:
    """`function(block, ...)` as one graph for all such data of any number of rows.

    Indices and weights have the `shape` [steps, batch]; `more` are specs of further arguments.
    """
    block = Block(
        tf.nest.map_structure(row_spec, data),
        tf.TensorSpec(shape, tf.int32),
        tf.TensorSpec(shape, tf.float32),
        tf.TensorSpec(shape[:1], tf.float32),
    )
    # No autograph: the loop is written out, and nothing is left in the folder of temporary files. Traced here: several
    # trainers in one process are no reason for TensorFlow to warn of graphs that are made again.
    signature = [block, *more]
    return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()


def row_spec(tensor: tf.Tensor) -> tf.TensorSpec:
    """The tensor's type and shape, whatever its number of rows."""
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def call_layer(
    layer: keras.layers.Layer,
    weights: Sequence[Any],
    non_trainable: Sequence[Any],
    inputs: Any,
    **arguments: Any,
) -> tuple[Any, list[Any], list[Any]]:
    """Does as `layer.stateless_call` with return_losses=True; InputError where an assignment would be lost.

    Args:
      layer: built; also a model.
      weights, non_trainable: values of its variables.
      inputs: of the layer.
      arguments: of its call.

    Returns:
      Outputs, new values of the non-trainable variables, and losses that layers added.
    """
    variables = layer.non_trainable_variables
    mapping = [
        *zip(layer.trainable_variables, weights, strict=True),
        *zip(variables, non_trainable, strict=True),
    ]
    # Metrics of a layer change nothing about the training.
    metrics = layer.metrics_variables
    with Scope(mapping, [*variables, *metrics], collect_losses=True) as scope:
        outputs = layer.call(inputs, **arguments)
        losses = list(layer.losses)
    scope.check("the model")
    if any(id(variable) in scope.state_mapping for variable in metrics):
        warnings.warn(
            "metrics that a layer updates in its call are not logged; give metrics as functions of (labels, outputs)",
            stacklevel=2,
        )
    return outputs, [scope.get_current_value(variable) for variable in variables], losses


# --------------------------------------------------------------------------------------------------
# Models that cannot be trained, or only to other weights than in Keras's own loop: one line says what to use instead.


# Methods by which Keras's `fit` and `evaluate` of a model can do something else.
_OWN_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def check_model(model: keras.Model) -> None:
    """InputError for a model that is not built, or that Keras trains in another way than by its loss function."""
    if not model.built:
        raise InputError(
            "the model is not built; call model.build(input_shape) or give it an Input layer"
        )
    for name in _OWN_STEPS:
        if name in vars(model) or getattr(type(model), name) is not getattr(keras.Model, name):
            raise InputError(
                f"the model {type(model).__name__} has its own {name}, which would not be used; give what it computes "
                "as loss, auxiliary_loss or metrics, functions of (labels, outputs), or use Keras's fit (with several "
                "workers: tfmat.horovod)"
            )


def check_precision(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """InputError where gradients would vanish: float16 holds nothing below 6e-8."""
    if optimizer.loss_scale_factor is not None:
        return
    for layer in model._flatten_layers(include_self=False):
        if layer.compute_dtype == "float16" and layer.trainable_variables:
            raise InputError(
                f"layer '{layer.name}' computes in float16, in which small gradients vanish without loss scaling; use "
                "mixed_bfloat16, which needs none, or give the optimizer loss_scale_factor=1024.0"
            )


def check_whole_batch(model: keras.Model, key: str, num_parts: int | None = None) -> None:
    """InputError where a layer normalizes the whole batch, and `key` has it go through in parts, or by workers apart.

    `num_parts` is None where workers take steps by themselves.
    """
    for layer in model._flatten_layers(include_self=False) if num_parts != 1 else ():
        if is_synchronized(layer) and layer.trainable:
            value, each = (
                (f"={num_parts}", "it take parts")
                if num_parts
                else ("", "each worker normalize its part")
            )
            raise InputError(
                f"{key}{value} does not work with layer '{layer.name}', which normalizes the whole batch; leave {key} "
                f"out, or let {each}: synchronized=False (model.batch_normalization=local)"
            )


def check_outputs(outputs: Any) -> None:
    """InputError where Keras would leave masked places out of the loss and count those that are left."""
    for output in tf.nest.flatten(outputs):
        if getattr(output, "_keras_mask", None) is not None:
            raise InputError(
                "the model's outputs carry a mask (of Embedding(mask_zero=True) or Masking), by which Keras would "
                "weight the loss over the whole batch; end the mask in the model, such as by pooling, or use "
                "mask_zero=False and a loss function that leaves padding out"
            )


def connected(
    gradients: list[Any], weights: list[tf.Tensor], variables: list[keras.Variable]
) -> list[Any]:
    """The gradients, with zeros for weights on which the loss does not depend; warns of these, as Keras does.

    InputError where the loss depends on no weight at all.
    """
    apart = [v.path for v, g in zip(variables, gradients, strict=True) if g is None]
    if apart and len(apart) == len(variables):
        raise InputError(
            "the loss depends on none of the model's weights, so that nothing would be learned; compute it from the "
            "outputs by operations that have gradients (no rounding, no comparison, no NumPy)"
        )
    if apart:
        warnings.warn(
            f"the loss does not depend on {', '.join(apart)}, which will learn nothing; leave such layers out, or set "
            "trainable=False",
            stacklevel=2,
        )
    return [tf.zeros_like(w) if g is None else g for w, g in zip(weights, gradients, strict=True)]


def check_penalties(penalties: list[Any], variables: list[keras.Variable]) -> None:
    """InputError where a loss inside the model depends on the batch: it is no sum over examples that could be divided.

    Each regulariser of a trainable variable gives one of the penalties that the model's call added.
    """
    regularized = sum(variable.regularizer is not None for variable in variables)
    if len(penalties) > regularized:
        raise InputError(
            "a layer adds a loss of its own (activity_regularizer, or add_loss in its call), which would depend on how "
            "a batch is divided; give it to the Trainer as auxiliary_loss, a function of (labels, outputs)"
        )


# --------------------------------------------------------------------------------------------------
# Dense layers computed in bfloat16 within training steps; weights, slots, sums and losses stay float32.
#
# Processors with 16-bit units (AVX512-BF16, AMX) and GPUs multiply such matrices faster. The layers get Keras's
# policy `mixed_bfloat16` only while a step is traced, so that no file of the model knows of it.


PRECISIONS = ("float32", "bfloat16", "auto")
# Smaller matrices gain nothing, and heads of few outputs would round their answers to three digits.
_FEWEST_NUMBERS = 4096
# _PAYS: share of float32's time that a trial must find at most, so that a layer computes in bfloat16.
_PAYS = 0.95
_TRIAL_SECONDS, _TRIALS = 0.02, 7
_Count = tf.TensorSpec([], tf.int32)


def dense_layers(model: keras.Model) -> dict[str, keras.layers.Dense]:
    """The dense layers of a model that can compute in bfloat16, by their paths in the model's order.

    They hold at least 4,096 float32 weights each. Dense layers that give the answers are left out: no other dense layer
    comes after them. In a model that keeps its graph to itself it is the last one.
    """
    answering = {id(layer) for layer in _answering(model)}
    return {
        layer.path: layer
        for layer in _dense_in(model)
        if layer.built
        and layer.compute_dtype == layer.variable_dtype == "float32"
        and math.prod(layer.kernel.shape) >= _FEWEST_NUMBERS
        and id(layer) not in answering
    }


def choose(
    precision: str,
    model: keras.Model,
    num_rows: int,
    *,
    jit_compile: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, bool]:
    """Chooses the dense layers that compute in bfloat16.

    Args:
      precision: `float32`: none; `bfloat16`: all; `auto`: those that a trial of a second or two finds faster.
      model: built.
      num_rows: examples that go through the model at a time.
      jit_compile: whether the step is compiled with XLA.
      log: for one line about the trial.

    Returns:
      For each path of `dense_layers` whether it does; empty for `float32`.

    Raises:
      InputError: another precision, or `bfloat16`, and no layer can.
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision is '{precision}'{nearest(precision, PRECISIONS)}")
    if precision == "float32":
        return {}
    layers = dense_layers(model)
    if precision == "bfloat16":
        if not layers:
            raise InputError(
                f"precision=bfloat16 changes nothing: no dense layer before the last has {_FEWEST_NUMBERS:,} float32 "
                "weights or more; leave it out, or use wider layers"
            )
        return dict.fromkeys(layers, True)
    ratios: dict[Any, float] = {}
    found = {}
    for path, layer in layers.items():
        rows = num_rows * _places(layer)
        key = (*layer.kernel.shape, rows)
        if key not in ratios:
            ratios[key] = _time_ratio(layer, rows, jit_compile)
        found[path] = ratios[key]
    told = ", ".join(f"{path} takes {ratio:.2f}" for path, ratio in found.items())
    log(
        f"precision=auto: bfloat16 where it takes at most {_PAYS:.2f} of float32's time; {told or 'no layer can'}"
    )
    return {path: ratio <= _PAYS for path, ratio in found.items()}


def choose_for(
    backend: Backend, precision: str, model: keras.Model, global_batch_size: int, **options: Any
) -> dict[str, bool]:
    """The choice of layers by rank 0 for all, see `choose`; every rank calls it, before `build`."""
    choice: dict[str, bool] = {}
    if precision != "float32" and backend.rank == 0:
        columns = backend.training_columns(global_batch_size)
        width = columns.stop - columns.start
        rows = rows_of_a_piece(model, width, backend.parts_of_a_batch)
        choice = choose(precision, model, rows, **options)
    found: dict[str, bool] = backend.collectives.broadcast(choice)
    return found


def chosen_layers(model: keras.Model, choice: Mapping[str, bool]) -> list[keras.layers.Dense]:
    """The layers of a choice, by their order: a model that was made anew may have other names.

    Raises:
      InputError: the model has another number of layers that could be chosen.
    """
    layers = list(dense_layers(model).values()) if choice else []
    if len(layers) != len(choice):
        raise InputError(
            f"the run was started with {len(choice)} dense layers that could compute in bfloat16 "
            f"({', '.join(choice)}), and this model has {len(layers)}; use the model and the tfmat that it was started "
            "with, or another workdir"
        )
    return [layer for layer, chosen in zip(layers, choice.values(), strict=True) if chosen]


@contextlib.contextmanager
def computing_in_bfloat16(layers: Sequence[keras.layers.Layer]) -> Iterator[None]:
    """Has these layers' products traced in bfloat16, from float32 weights and to float32 gradients.

    Their outputs are float32 too, or a model that adds its inputs to them by itself would fail.
    """
    before = [(layer.dtype_policy, vars(layer).get("call")) for layer in layers]
    try:
        for layer in layers:
            layer.dtype_policy = keras.DTypePolicy("mixed_bfloat16")
            layer.call = _giving_float32(layer.call)
        yield
    finally:
        for layer, (policy, call) in zip(layers, before, strict=True):
            layer.dtype_policy = policy
            vars(layer).pop("call", None)  # that of its class again
            if call:
                layer.call = call


def _giving_float32(call: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    @functools.wraps(call)
    def converted(*args: Any, **options: Any) -> tf.Tensor:
        return tf.cast(call(*args, **options), tf.float32)

    return converted


def _dense_in(layer: keras.layers.Layer) -> list[keras.layers.Dense]:
    """The dense layers in a layer or model, itself included."""
    return [each for each in layer._flatten_layers() if isinstance(each, keras.layers.Dense)]


def _answering(model: keras.Model) -> list[keras.layers.Dense]:
    """The dense layers from which the outputs come without another dense layer between."""
    tensors = list(tf.nest.flatten(getattr(model, "outputs", None) or []))
    if not tensors:
        return _dense_in(model)[-1:]
    found: list[keras.layers.Dense] = []
    seen: set[tuple[int, int]] = set()
    while tensors:
        operation, node, _ = tensors.pop()._keras_history
        last = []
        if isinstance(operation, keras.Model):
            last = _answering(operation)
        elif isinstance(operation, keras.layers.Layer):
            last = _dense_in(operation)[-1:]
        found += last
        if not last and (id(operation), node) not in seen:
            seen.add((id(operation), node))
            tensors += operation._inbound_nodes[node].input_tensors
    return found


def _places(layer: keras.layers.Dense) -> int:
    """Rows that one example is for the layer: more than one where it is used on every point of a record."""
    try:
        shape = layer.input.shape
    except (AttributeError, ValueError):  # used several times, or in a subclassed model
        return 1
    return math.prod(size or 1 for size in shape[1:-1])


def _time_ratio(layer: keras.layers.Dense, rows: int, jit_compile: bool) -> float:
    """The time of the layer's products, forward and backward, in bfloat16 as a fraction of that in float32.

    The two are timed in turns, and on processors it is this process's own time that counts, so that what else a busy
    machine does decides nothing.
    """
    start = tf.random.stateless_normal([rows, layer.kernel.shape[0]], (1, 2))
    kinds = [_passes(layer, half, start, jit_compile) for half in ([], [layer])]
    for run in kinds:
        run(tf.constant(1))
    count = max(1, round(_TRIAL_SECONDS / max(_seconds(kinds[0], 1), 1e-6)))
    ratios = []
    for trial in range(_TRIALS):
        first = trial % 2  # a neighbour of the machine that comes or goes meets both kinds
        seconds = {i: _seconds(kinds[i], count) for i in (first, 1 - first)}
        ratios.append(seconds[1] / seconds[0])
    return statistics.median(ratios)


def _passes(
    layer: keras.layers.Dense,
    half: Sequence[keras.layers.Layer],
    start: tf.Tensor,
    jit_compile: bool,
) -> Callable[[tf.Tensor], Any]:
    """A function that runs the layer forward and backward so many times, each upon the results of the last."""
    variables = layer.trainable_variables

    def once(x: tf.Tensor) -> tf.Tensor:
        weights = [variable.value.read_value() for variable in variables]
        with computing_in_bfloat16(half), tf.GradientTape() as tape:
            tape.watch([x, *weights])
            # Not `layer.stateless_call`, which leaves the layer's policy out.
            with keras.StatelessScope(zip(variables, weights, strict=True)):
                outputs = layer(x)
        dx, *gradients = tape.gradient(outputs, [x, *weights], output_gradients=outputs)
        # Nothing but the products takes time, and nothing is left out: each pass waits for the gradients of the last.
        with tf.control_dependencies(gradients):
            return x - 1e-6 * dx

    @tf.function(input_signature=[_Count], jit_compile=jit_compile, autograph=False)
    def run(count: tf.Tensor) -> Any:
        return tf.while_loop(
            lambda i, _: i < count,
            lambda i, x: (i + 1, once(x)),
            (tf.constant(0), start),
            parallel_iterations=1,
        )[1]

    return run


def _seconds(run: Callable[[tf.Tensor], Any], count: int) -> float:
    clock = time.perf_counter if tf.config.list_logical_devices("GPU") else time.process_time
    begin = clock()
    run(tf.constant(count)).numpy()  # GPUs are waited for
    return clock() - begin


# --------------------------------------------------------------------------------------------------
# The training step as a pure function: state and batch in, new state and sums out. Every backend runs this one.


class SlotDivision(Protocol):
    """How the optimizer's slots are divided over the workers.

    Attributes:
      divided: names of these slots in a state.
    """

    divided: Mapping[str, int]

    def saved(self, name: str, rows: tf.Tensor) -> np.ndarray:
        """The whole slot of that name for a checkpoint, from its parts: [workers, numbers]."""

    def own(self, name: str, array: np.ndarray | SavedArray) -> np.ndarray | SavedArray:
        """This worker's part of a saved slot, which is whole or that part already."""


# Between the dropout seeds of two workers.
_SEED_SHIFT = 1_000_003


class Step:
    """`compute` and `evaluate` for one model, optimizer, loss and set of metrics.

    Extras (`tfmat.backends.registry`) change some of what it is made of, one after the other.

    Attributes:
      model: built; of a pipeline its stage.
      optimizer: functional. An extra may build it for other variables than the model's.
      apply: slots, gradients, weights -> new weights and slots; the optimizer's, unless an extra has another.
      exchange: when and how the workers come together.
      division: of the slots over the workers; None where they are whole.
      slots_differ: whether each worker has slots of its own.
      slots_in_memory: slots -> those that a step is given; None for all.
      recomputation: calls the model in training; None for its own call.
      whole_model: of which `model` is a stage; None where it is no stage.
      gradients_follow: whether a stage's gradients are computed right after its outputs.
      note: for people.
      functions: loss, auxiliary loss, and metrics but for keras.metrics objects.
      num_sums: that each step gives.
      signature: specs of (labels, outputs) of the last batch that was traced.
    """

    division: SlotDivision | None = None
    slots_differ = False
    slots_in_memory: Callable[[list[Any]], list[Any]] | None = None
    recomputation: Any = None
    whole_model: keras.Model | None = None
    gradients_follow = True
    note = ""
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
    ):
        self.exchange = exchange or Exchange()
        self._gather = gather
        self._bfloat16 = bfloat16
        self.model, self.optimizer = model, optimizer
        self.apply: Apply = optimizer.stateless_apply
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

    def compute(self, state: State, batch: Sequence[Batch] | Parts) -> tuple[State, tf.Tensor]:
        """One training step.

        The loss is the weighted sum over this worker's examples divided by the number of examples of the GLOBAL
        batch, so gradients of unequal shards simply add up. Nothing is assigned: the caller writes the new state
        after every read.

        Args:
          state: tensors.
          batch: this worker's part of the batch, in pieces that may run side by side (several only for models without
            non-trainable state, which would have to go from one piece to the next), or in parts.

        Returns:
          The new state, and [num_sums] sums over the global batch of loss and metrics.
        """
        gradients, sums, non_trainable = self.gradients(state, batch)
        weights, slots, sums, kept = self.exchange.update(self.apply, state, gradients, sums)
        return State(weights, non_trainable, slots, kept), sums

    def gradients(self, state: State, batch: Sequence[Batch] | Parts) -> Gradients:
        """Gradients, sums and new state of this worker's part; see `compute`."""
        if isinstance(batch, Parts):
            return self._gradients_of_parts(state, batch)
        results = [self._gradients(state, piece) for piece in batch]
        gradients = [_total(list(parts)) for parts in zip(*(r[0] for r in results), strict=True)]
        return gradients, _total([result[1] for result in results]), results[0][2]

    def _gradients_of_parts(self, state: State, batch: Parts) -> Gradients:
        def add(j: tf.Tensor, totals: Any, non_trainable: Any) -> Any:
            gradients, sums, non_trainable = self._gradients(
                state._replace(non_trainable=non_trainable), batch.part(j)
            )
            return (
                j + 1,
                [total + new for total, new in zip(totals, [*gradients, sums], strict=True)],
                non_trainable,
            )

        zeros = [tf.zeros_like(weight) for weight in state.weights]
        zero_sums = tf.zeros([self.num_sums], keras.backend.floatx())
        _, (*gradients, sums), non_trainable = tf.while_loop(
            lambda j, *_: j < batch.number,
            add,
            (tf.constant(0), [*zeros, zero_sums], list(state.non_trainable)),
            parallel_iterations=1,  # or the activations of several parts are in memory
        )
        return gradients, sums, non_trainable

    def _gradients(self, state: State, batch: Batch) -> Gradients:
        """Gradients, sums and new state of one piece."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(state.weights)
            weights = self._gather(state.weights)
            outputs, non_trainable, penalties = self.forward(weights, state.non_trainable, batch)
            loss, objective = self.objective(weights, batch, outputs)
            if penalties:
                objective += tf.cast(self.penalty(batch, penalties), objective.dtype)
            objective = self.optimizer.scale_loss(objective)
        gradients = tape.gradient(objective, state.weights)
        gradients = connected(gradients, state.weights, self.model.trainable_variables)
        # Embeddings give rows, some of them twice, which Keras's Adam would square one by one.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return gradients, self.sums_of(weights, batch, outputs, loss), non_trainable

    def forward(
        self, weights: list[Any], non_trainable: list[Any], batch: Batch
    ) -> tuple[Any, list[Any], list[Any]]:
        """Outputs in training, the new non-trainable state, and the regularisers' penalties."""

        @contextlib.contextmanager
        def context() -> Iterator[None]:
            with (
                batch_context(batch.weights, self.exchange.collectives.sum, self._normalizations),
                computing_in_bfloat16(self._bfloat16),
            ):
                yield

        non_trainable = self._shift_seeds(non_trainable, 1)
        if self.recomputation:
            outputs, non_trainable, penalties = self.recomputation(
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
        """Outputs in training, the new non-trainable state, and [batch] of each loss and metric that is a function.

        This worker's batch alone counts, whatever the others do.
        """
        alone = copy.copy(self)
        alone.exchange = Exchange()
        weights = self._gather(state.weights)
        outputs, non_trainable, _ = alone.forward(weights, state.non_trainable, batch)
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

    def evaluate(self, state: State, pieces: Sequence[Batch]) -> tf.Tensor:
        """[num_sums] sums over this worker's part of loss and metrics, in inference mode."""
        return _total([self._evaluated(state, piece) for piece in pieces])

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
        """The model's layers have these weights in here: a loss may call them, as a density does."""
        with Scope(zip(self.model.trainable_variables, weights, strict=True)) as scope:
            yield
        scope.check("a loss or metric")

    def sums_of(
        self, weights: list[Any], batch: Batch, outputs: Any, loss: tf.Tensor | None = None
    ) -> tf.Tensor:
        """[num_sums] sums over a piece of the batch; `loss` is the first of them, where it is known."""
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


# --------------------------------------------------------------------------------------------------
# Sharpness-aware minimisation: the training step with the gradient at the worst place nearby.


class SharpnessAwareStep(Step):
    """Takes the gradient at w + ρ g / |g| and steps from w (SAM; Foret et al. 2021, arXiv:2010.01412, algorithm 1).

    g is the gradient of the global batch at w, summed over the workers too, so that their number changes nothing. Where
    workers take steps by themselves (local steps), it is each one's own, like their gradients. Both passes see
    the same dropout masks. Losses and metrics are those at w, and so are the moving statistics, which move once.
    Regularisers are part of both gradients. A step costs two passes, and two sums over the workers.
    """

    def gradients(self, state: State, batch: Sequence[Batch] | Parts) -> Gradients:
        gradients, *others = super().gradients(state, batch)
        there, *_ = super().gradients(self._ascended(state, gradients), batch)
        return there, *others

    def _ascended(self, state: State, gradients: list[tf.Tensor]) -> State:
        """The state with the weights at which the loss is about the largest within ρ."""
        gradients = self.exchange.collectives.sum(gradients)
        length = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients]))
        # A cast would make float32 of Python's number first.
        radius = tf.constant(self.optimizer.sam_rho, length.dtype)
        scale = tf.math.divide_no_nan(radius, length)
        moved = [
            weight + tf.cast(scale, weight.dtype) * gradient
            for weight, gradient in zip(state.weights, gradients, strict=True)
        ]
        return state._replace(weights=moved)


def make_step(model: Any, optimizer: Any, *arguments: Any, **options: Any) -> Step:
    """A Step, sharpness-aware where the optimizer asks for that (see `make_functional`)."""
    kind = SharpnessAwareStep if optimizer.sam_rho else Step
    return kind(model, optimizer, *arguments, **options)


# --------------------------------------------------------------------------------------------------
# Whether the examples of a batch change each other's results.
#
# Then padding would change them too, and a worker that sees its own part of the batch alone has others.


# Examples that a trial computes, half of them with weight zero: enough for losses that compare classes.
_EXAMPLES = 8
# Difference of results, relative to the largest: far above float32's rounding.
_DIFFERENCE = 1e-5


def what_couples(step: Step, variables: State, features: Any, labels: Any) -> str | None:
    """Finds out whether examples of weight zero change the results of others; returns what does that, None for nothing.

    Batch normalisation knows these weights, and takes no part of such examples. A model whose results differ anyway,
    as with random numbers of TensorFlow's own, cannot be tried. The step is computed without a graph and slots.
    """
    if any(getattr(function, "couples", False) for function in step.functions):
        return "a loss or metric"
    if all(getattr(function, "stands_alone", False) for function in step.functions) and (
        _layers_stand_alone(step.model)
    ):
        return None
    state = State(tensors_of(variables.weights), tensors_of(variables.non_trainable), [])
    rows = np.arange(len(tf.nest.flatten(features)[0]))
    weights = tf.constant(rows % 2 == 0, tf.float32)

    def outcome(rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
        batch = Batch.gather((features, labels), rows, weights, tf.reduce_sum(weights))
        outputs, non_trainable, losses = step.outcome(state, batch)
        found = [("the model", np.asarray(output)[::2]) for output in tf.nest.flatten(outputs)]
        found += [("the model", np.asarray(value)) for value in non_trainable]
        return found + [("a loss or metric", np.asarray(loss)[::2]) for loss in losses]

    def first_difference(one: Any, other: Any) -> str | None:
        for (name, mine), (_, theirs) in zip(one, other, strict=True):
            mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
            limit = _DIFFERENCE * np.max(np.abs(mine), initial=0.0)
            if not np.allclose(mine, theirs, rtol=0.0, atol=limit, equal_nan=True):
                return name
        return None

    begun = outcome(rows)
    name = first_difference(begun, outcome(rows - rows % 2))
    return None if name is None or first_difference(begun, outcome(rows)) else name


def _layers_stand_alone(model: Any) -> bool:
    """Whether the model is made of Keras's and tfmat's own layers, none of which works over the examples.

    Most models are, and a trial would take half a second.
    """
    parts = [model]
    while parts:
        part = parts.pop()
        activation = getattr(part, "activation", None)
        if not _is_known(part) or (activation is not None and not _is_known(activation)):
            return False
        parts += getattr(part, "operations", None) or []
        parts += getattr(part, "_layers", None) or []
        name = type(part).__name__
        axis = getattr(part, "axis", None)
        over_examples = 0 in (axis if isinstance(axis, list | tuple) else [axis])
        if over_examples or name in ("Lambda", "MixUp", "CutMix", "RandAugment", "Dot"):
            return False
        if not isinstance(part, keras.layers.Layer):
            return False
    return True


def _is_known(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or type(thing).__module__
    return module.split(".")[0] in ("keras", "tfmat")


def examples_to_try(model: Any, data: Any, indices: np.ndarray) -> tuple[Any, Any]:
    """Features and labels for `what_couples`: some of the first batch, or all where the model has batches of one size.

    `data` and `indices` [steps, batch] are as for `Backend.train`.
    """
    inputs: Sequence[Any] = tf.nest.flatten(getattr(model, "inputs", None) or [])
    has_one_size = any(tensor.shape[0] is not None for tensor in inputs)
    rows = indices[0] if has_one_size else indices[0, :_EXAMPLES]
    features, labels, *_ = tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), data)
    return features, labels


def check_coupling(what: str | None, divided_by: str) -> None:
    """InputError where `what` couples examples, and batches are divided."""
    if what:
        raise InputError(
            f"{what} gives an example other results where the rest of its batch is another, but {divided_by}; use "
            "--backend=single without it, or let each example's results depend on that example alone"
        )

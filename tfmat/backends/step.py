"""The training step: a pure function of state and batch."""

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.base import Backend, Metric, PerExample
from tfmat.backends.batches import Batch, rows_of_a_piece
from tfmat.backends.exchange import Collect, Exchange, Reduce, Scatter
from tfmat.backends.losses import num_sums, per_example_mean, sums_of, weighted_sum
from tfmat.backends.refusals import check_outputs, check_penalties, connected
from tfmat.backends.state import Gradients, State
from tfmat.errors import InputError, nearest
from tfmat.networks.factory import batch_context, plain_normalizations
from tfmat.networks.segments import Segment, segments, segments_of_stage
from tfmat.optimizers.stateless import Scope, call_layer

# --------------------------------------------------------------------------------------------------
# Dense layers computed in bfloat16 within training steps; weights, slots, sums and losses stay float32.
#
# Processors with 16-bit units (AVX512-BF16, AMX) and GPUs multiply such matrices faster. The layers get Keras's
# policy `mixed_bfloat16` only while a step is traced, so that no file of the model knows of it.


PRECISIONS = ("float32", "bfloat16", "auto")
# Smaller matrices gain nothing, and heads of few outputs would round their answers to three digits.
_FEWEST_NUMBERS = 4096
# What a trial must find, of the time in float32, that a layer computes in bfloat16.
_PAYS = 0.95
_TRIAL_SECONDS, _TRIALS = 0.02, 7
_Count = tf.TensorSpec([], tf.int32)


def dense_layers(model: keras.Model) -> dict[str, keras.layers.Dense]:
    """The dense layers of a model that can compute in bfloat16, by their paths in the model's order.

    They hold at least 4,096 float32 weights each. Dense layers that give the answers are none of them: those after
    which no other dense layer comes, and in a model that keeps its graph to itself the last one.
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
    """Which dense layers compute in bfloat16.

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
    """Which layers compute in bfloat16, as rank 0 finds it for all; every rank calls it, before `build`.

    Args:
      backend: started.
      precision, model, options: see `choose`.
      global_batch_size: of the steps.
    """
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
    """What is traced in here has these layers' products in bfloat16, from float32 weights and to float32 gradients.

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
# Recomputation: a training step keeps what goes from one segment of a model to the next, and computes the rest twice.
#
# Chen et al. 2016, Training deep nets with sublinear memory cost, arXiv:1604.06174.


class Recomputation:
    """A model that is called as in a training step, and whose gradients compute its segments a second time.

    Args:
      parts: of the model, in the order in which they run.
      gradients_follow: whether its gradients are computed before anything else, so that the last part need not be
        computed again.
    """

    def __init__(self, parts: Sequence[Segment], gradients_follow: bool = True):
        self._parts, self._kept = parts, parts[-1] if gradients_follow else None

    def __call__(
        self,
        weights: Sequence[tf.Tensor],
        non_trainable: Sequence[tf.Tensor],
        features: Any,
        context: Callable[[], AbstractContextManager],
    ) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
        """Does as the model's `stateless_call` with training=True and return_losses=True.

        Args:
          weights, non_trainable: values of the model's variables.
          features: of the model.
          context: makes what layers are called within, now and when they are called again.
        """
        state, penalties, value = list(non_trainable), [], features
        for part in self._parts:
            inputs = (
                [weights[i] for i in part.trainable_places],
                [state[i] for i in part.non_trainable_places],
                value,
            )
            if part is self._kept:  # its gradients come first, while everything is still there
                with context():
                    value, new, own = _call(part, *inputs)
            else:
                value, new, own = _computed_again(part, inputs, context)
            penalties += own
            for i, tensor in zip(part.non_trainable_places, new, strict=True):
                state[i] = tensor
        return value, state, penalties


def recomputation_of(model: keras.Model, where: str) -> Recomputation | None:
    """The recomputation of a built model that is cut as `where` says, see `tfmat.networks.segments`; `none`: None.

    Raises:
      InputError: `where` cannot be read, or the model cannot be cut there, or not at all.
    """
    if where == "none":
        return None
    parts = segments(model, where, "recompute")
    if len(parts) == 1:
        raise InputError(
            f"recompute={where} leaves the model in one piece, of which nothing is computed again; give cuts "
            "nearer to each other, such as every:2, or leave it out"
        )
    return Recomputation(parts)


def recomputation_of_stage(
    stage: Segment, model: keras.Model, where: str, gradients_follow: bool
) -> Recomputation | None:
    """The recomputation of a pipeline stage, which computes also its last part again, or a stage in one piece.

    Other micro-batches come between a stage's forward and backward pass (Huang et al. 2019, arXiv:1811.06965, 2.3).

    Args:
      stage: of the model.
      model: in which `where` names layers, of this stage or of others.
      where: the model is cut; `none`: nothing is computed again.
      gradients_follow: whether no micro-batch comes between.

    Raises:
      InputError: see `recomputation_of`; a stage may be in one piece.
    """
    if where == "none":
        return None
    return Recomputation(segments_of_stage(stage, model, where, "recompute"), gradients_follow)


def _call(part: Segment, weights: Any, state: Any, value: Any) -> Any:
    return call_layer(part, weights, state, value, training=True)


def _computed_again(
    part: Segment, inputs: Any, context: Callable[[], AbstractContextManager]
) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
    """What `_call` gives; nothing within is kept for the gradients.

    Seeds and moving statistics come from the first time. The second time starts from the same ones, so that the masks
    of dropout are the same, and its own new ones are dropped.
    """
    flat = tf.nest.flatten(inputs)
    moved: list[tf.Tensor] = []

    def forward(*tensors: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        with context():
            value, state, penalties = _call(part, *tf.nest.pack_sequence_as(inputs, tensors))
        return [value, *penalties], state

    @tf.custom_gradient
    def run(*tensors: tf.Tensor) -> Any:
        with tf.GradientTape() as tape, tape.stop_recording():
            outputs, state = forward(*tensors)
        moved.extend(state)

        def gradients(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            # Without waiting for what comes from behind, all segments would be computed again at once.
            with tf.control_dependencies(upstream):
                starts = [tf.identity(tensor) for tensor in tensors]
                floats = [start for start in starts if start.dtype.is_floating]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(floats)
                    again, _ = forward(*starts)
                found = iter(tape.gradient(again, floats, output_gradients=list(upstream)))
            return [next(found) if start.dtype.is_floating else None for start in starts]

        return outputs, gradients

    value, *penalties = run(*flat)
    return value, moved, penalties


# --------------------------------------------------------------------------------------------------
# The training step as a pure function: state and batch in, new state and sums out. Every backend runs this one.


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


# --------------------------------------------------------------------------------------------------
# Sharpness-aware minimisation: the training step with the gradient at the worst place nearby.


class SharpnessAwareStep(Step):
    """Takes the gradient at w + ρ g / |g| and steps from w (SAM; Foret et al. 2021, arXiv:2010.01412, algorithm 1).

    g is the gradient of the global batch at w, summed over the workers too, so that their number changes nothing. Where
    workers take steps by themselves (local steps), it is each one's own, as it is of their gradients. Both passes see
    the same dropout masks. Losses and metrics are those at w, and so are the moving statistics, which move once.
    Regularisers are part of both gradients. A step costs two passes, and two sums over the workers.
    """

    def gradients(self, state: State, pieces: Sequence[Batch], reduce: Reduce) -> Gradients:
        """See Step.gradients."""
        first = super().gradients(state, pieces, reduce)
        there, _, _ = super().gradients(self._ascended(state, first[0], reduce), pieces, reduce)
        return there, *first[1:]

    def gradients_in_parts(
        self, state: State, part: Callable[[tf.Tensor], Batch], num_parts: int, reduce: Reduce
    ) -> Gradients:
        """See Step.gradients_in_parts."""
        first = super().gradients_in_parts(state, part, num_parts, reduce)
        worst = self._ascended(state, first[0], reduce)
        there, _, _ = super().gradients_in_parts(worst, part, num_parts, reduce)
        return there, *first[1:]

    def _ascended(self, state: State, gradients: list[tf.Tensor], reduce: Reduce) -> State:
        """The state with the weights at which the loss is about the largest within ρ."""
        gradients = reduce(gradients)
        length = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients]))
        # A cast would make float32 of Python's number first.
        radius = tf.constant(self._optimizer.sam_rho, length.dtype)
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

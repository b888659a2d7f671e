"""Dense layers computed in bfloat16 within training steps; weights, slots, sums and losses stay float32.

Processors with 16-bit units (AVX512-BF16, AMX) and GPUs multiply such matrices faster. The layers get Keras's policy
`mixed_bfloat16` only while a step is traced, so that no file of the model knows of it.
"""

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.base import Backend
from tfmat.backends.batches import rows_of_a_piece
from tfmat.errors import InputError, nearest

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

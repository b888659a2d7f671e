"""What cannot be trained, or only to other weights than in Keras's own loop: one line that says what to use instead.

What DTensor says about an operation that it cannot divide becomes a line that names the layer and what works.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.base import Metric
from tfmat.backends.losses import sums_of
from tfmat.backends.options import BackendOptions, check_slots_on_disk, check_zero
from tfmat.errors import InputError
from tfmat.networks.factory import ExampleWeightedBatchNormalization, is_synchronized

# DTensor says the first where an operation has no rule at all, the second where its rule does not fit the layouts.
_NO_RULE = re.compile(r"'tf\.(\w+)' op does not implement layout propagation")
_FAILED = re.compile(r"error: (.*?)(?: tensorflow/dtensor|\n|$)")
_OPERATION = re.compile(r'see current operation: .*?"tf\.(\w+)"')

# The first part of a layer's class name that matches -> the nearest thing that works.
_INSTEAD = (
    (r"LSTM|GRU|RNN|Bidirectional", "use Conv1D or MultiHeadAttention instead of a loop over points"),
    (r"Depthwise|Separable", "use Conv1D or Conv2D"),
    (r"^Random", "change the examples before training instead"),
    (r"SpectralNormalization", "leave it out, or use weight decay"),
)  # fmt: skip


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


def check_parts(model: keras.Model, num_parts: int, key: str = "accumulate") -> None:
    """InputError where a batch that goes through in parts would be normalised part by part."""
    if num_parts == 1:
        return
    for layer in model._flatten_layers(include_self=False):
        if is_synchronized(layer) and layer.trainable:
            raise InputError(
                f"{key}={num_parts} does not work with layer '{layer.name}', which normalizes the whole batch; "
                f"leave {key} out, or let it take parts: synchronized=False (model.batch_normalization=local)"
            )


def check_data_parallel(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    options: BackendOptions,
    backend: str,
    jit_compile: bool,
) -> None:
    """InputError where workers that each hold the whole model cannot train it so."""
    check_zero(options, backend)
    check_precision(model, optimizer)
    check_parts(model, options.accumulate)
    check_slots_on_disk(options, backend)
    for key, value in (("recompute", options.recompute), ("offload", options.offload)):
        if jit_compile and value != "none":
            raise InputError(
                f"jit_compile does not work with {key}={value}, whose order of operations XLA does not keep; leave out "
                "one of them"
            )


def check_timing(options: BackendOptions) -> None:
    """InputError where the parts of steps cannot be timed."""
    for key in ("accumulate", "local_steps", "bucket_mb"):
        if getattr(options, key) != getattr(BackendOptions, key):
            raise InputError(f"profile=true does not work with {key}; leave out one of them")
    if tf.config.list_logical_devices("GPU"):
        raise InputError(
            "profile=true does not work on GPUs, which say when work was given to them, not when it was done; leave it "
            "out and use trace_steps"
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

    Args:
      gradients: None for such weights.
      weights: values of the variables.
      variables: trainable ones.

    Raises:
      InputError: the loss depends on no weight at all.
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

    Args:
      penalties: what the model's call added.
      variables: trainable ones; each of their regularisers gives one penalty.
    """
    regularized = sum(variable.regularizer is not None for variable in variables)
    if len(penalties) > regularized:
        raise InputError(
            "a layer adds a loss of its own (activity_regularizer, or add_loss in its call), which would depend on how "
            "a batch is divided; give it to the Trainer as auxiliary_loss, a function of (labels, outputs)"
        )


def check_layers_for_mesh(model: keras.Model) -> None:
    """InputError where a layer would give other numbers on a mesh than on one device."""
    for layer in model._flatten_layers():
        if isinstance(layer, ExampleWeightedBatchNormalization) and not layer.synchronized:
            raise InputError(
                "local batch normalization does not work with --backend=dtensor, whose layers see the global batch; "
                "use model.batch_normalization=synchronized"
            )


def explain(
    error: Exception, model: keras.Model, functions: Mapping[str, Metric], signature: Any
) -> InputError | None:
    """DTensor's refusal of an operation in one line; None where the error is another one.

    The step is compiled as a whole, so that DTensor knows no layer: each one is traced again, alone, until the
    operation is found, and then the loss and metrics.

    Args:
      error: of TensorFlow.
      model: in which it came.
      functions: loss and metrics, by what they are called in the message.
      signature: specs of the (labels, outputs) that they get.
    """
    text = str(error)
    without_rule = _NO_RULE.search(text)
    if not without_rule and "SPMD expansion" not in text:
        return None
    operation = without_rule or _OPERATION.search(text)
    name = operation[1] if operation else ""
    reason = f"DTensor has no rule for {name}"
    if not without_rule:
        failed = _FAILED.search(text)
        reason = f"DTensor cannot divide {name or 'an operation'}: {failed[1] if failed else ''}"
    layer = next((layer for layer in _innermost(model) if name in _operations(layer)), None)
    where = f"layer '{layer.name}' ({type(layer).__name__})" if layer else "the model"
    instead = "use another layer"
    if not layer:
        for called, function in functions.items():
            if signature and name in _operations_of_sums(function, *signature):
                where, instead = called, "compute it from the predictions, or use another one"
                break
    for pattern, advice in _INSTEAD:
        if layer and re.search(pattern, type(layer).__name__):
            instead = advice
            break
    return InputError(
        f"{where} does not run on a mesh: {reason.rstrip()}; {instead}, or backend='single' or 'horovod'"
    )


def _innermost(model: keras.Model) -> list[keras.layers.Layer]:
    """Layers that were called with inputs known here; of nested ones the outer where the inner were not."""
    return [
        layer
        for layer in model._flatten_layers(include_self=False)
        if getattr(layer, "_inbound_nodes", None)
        and not isinstance(layer, keras.Model | keras.layers.InputLayer)
    ]


def _operations(layer: keras.layers.Layer) -> set[str]:
    """Types of the operations of a layer, forward and backward."""
    arguments = layer._inbound_nodes[0].arguments

    def forward_and_backward(*inputs: Any) -> Any:
        weights = [variable.value for variable in layer.trainable_variables]
        floats = [tensor for tensor in inputs if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch([*floats, *weights])
            given, options = arguments.fill_in(
                dict(zip(map(id, arguments.keras_tensors), inputs, strict=True))
            )
            if layer._call_has_training_arg:
                options["training"] = True
            total = tf.add_n([tf.reduce_sum(y) for y in tf.nest.flatten(layer(*given, **options))])
        return tape.gradient(total, [*floats, *weights])

    specs = [tf.TensorSpec([2, *t.shape[1:]], t.dtype) for t in arguments.keras_tensors]
    return _traced(forward_and_backward, *specs)


def _operations_of_sums(function: Metric, labels: Any, outputs: Any) -> set[str]:
    """The same of a loss or metric."""

    def forward_and_backward(labels: Any, outputs: Any) -> Any:
        weights = tf.ones(tf.shape(tf.nest.flatten(outputs)[0])[:1])
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            total = sums_of(function, labels, outputs, weights)
        return total, tape.gradient(total, outputs)

    return _traced(forward_and_backward, labels, outputs)


def _traced(function: Callable[..., Any], *specs: Any) -> set[str]:
    """Types of all operations of a function."""
    try:
        graph = tf.function(function, autograph=False).get_concrete_function(*specs)
    except (TypeError, ValueError):
        return set()  # then another layer is found, or none
    definition = graph.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return {node.op for node in nodes}

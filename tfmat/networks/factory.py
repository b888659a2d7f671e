"""The Keras networks, made from a config."""

import contextlib
import contextvars
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

from tfmat.config import Config, Settings, check_layers
from tfmat.errors import InputError
from tfmat.networks.flow import POSTERIOR, ArgumentsLayer, PosteriorFlow, with_posterior
from tfmat.networks.law_fit import (
    RECORDS_FOR_START,
    AroundFit,
    LawFit,
    PlasticSpectrum,
    PoolTests,
    SeenTests,
    SettingChannels,
    SplitTests,
    TestTokens,
    num_residuals,
    numbers_of,
)

# --------------------------------------------------------------------------------------------------
# Batch normalisation that knows which examples of a batch are padding, and whose batch it belongs to.


_Batch = tuple[Any, Callable[[list], list]]
_BATCH: contextvars.ContextVar[_Batch | None] = contextvars.ContextVar("tfmat_batch", default=None)


@contextlib.contextmanager
def batch_context(
    weights: Any,
    reduce: Callable[[list], list],
    plain: Sequence[keras.layers.BatchNormalization] = (),
) -> Iterator[None]:
    """Hands a training step's values to the normalisation layers while the model is traced.

    Args:
      weights: [batch], 1 for an example and 0 for padding.
      reduce: sums a list of tensors over the workers that share the global batch.
      plain: Keras's own layers, see `plain_normalizations`; they take the moments of the global batch too.
    """
    token = _BATCH.set((weights, reduce))
    for layer in plain:
        vars(layer)["_moments"] = functools.partial(_batch_moments, layer, synchronized=True)
    try:
        yield
    finally:
        for layer in plain:
            del vars(layer)["_moments"]
        _BATCH.reset(token)


def plain_normalizations(model: Any) -> list[keras.layers.BatchNormalization]:
    """Keras's own BatchNormalization layers of a model, which know nothing of padding and of other workers."""
    layers = keras.layers
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, layers.BatchNormalization)
        and type(layer)._moments is layers.BatchNormalization._moments
    ]


def is_synchronized(layer: Any) -> bool:
    """Whether a layer's moving statistics come from the whole global batch in a training step."""
    if isinstance(layer, ExampleWeightedBatchNormalization):
        return layer.synchronized
    return bool(plain_normalizations(layer))


def _batch_moments(
    layer: keras.layers.BatchNormalization, inputs: Any, mask: Any, *, synchronized: bool
) -> tuple[Any, Any]:
    """Mean and variance of `inputs` over the true examples of the step's batch, and over the mask if there is one."""
    batch = _BATCH.get()
    assert batch is not None  # the caller's promise, not the user's
    weights, reduce = batch
    rank = len(inputs.shape)
    axes = [axis for axis in range(rank) if axis != layer.axis % rank]
    weights = ops.reshape(ops.cast(weights, inputs.dtype), (-1,) + (1,) * (rank - 1))
    if mask is None:
        positions = 1.0
        for axis in axes[1:]:
            size = inputs.shape[axis]
            positions *= ops.cast(ops.shape(inputs)[axis], inputs.dtype) if size is None else size
        examples = ops.sum(weights) * positions
    else:
        weights = weights * ops.expand_dims(ops.cast(mask, inputs.dtype), -1)
        examples = ops.sum(weights)
    sums = [examples, ops.sum(weights * inputs, axis=axes)]
    count, total = reduce(sums) if synchronized else sums
    mean = total / ops.maximum(count, 1.0)
    # Second pass around the mean: the difference of two large sums would lose digits in float32.
    squares = [ops.sum(weights * ops.square(inputs - mean), axis=axes)]
    (squares,) = reduce(squares) if synchronized else squares
    return mean, squares / ops.maximum(count, 1.0)


@keras.saving.register_keras_serializable(package="tfmat")
class ExampleWeightedBatchNormalization(keras.layers.BatchNormalization):
    """Keras's BatchNormalization with moments over the true examples of the batch.

    Outside a tfmat training step (Keras `fit`, inference) it is exactly Keras's layer.

    Args:
      synchronized: moments of the whole global batch; False: of each worker's part ("ghost" batches).
      ghost_batch_size: not synchronised, and of so many examples at a time of a worker's part, also on one worker and
        in Keras's `fit` (Hoffer, Hubara, Soudry 2017, arXiv:1705.08741, algorithm 1); the last one may be smaller.
        The moving statistics take the mean over a step's ghost batches.
    """

    def __init__(
        self, *, synchronized: bool = True, ghost_batch_size: int | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        if ghost_batch_size and (synchronized or self.axis not in (-1, [-1]) or self.renorm):
            raise ValueError("ghost_batch_size goes with synchronized=False, axis=-1, renorm=False")
        self.synchronized = synchronized
        self.ghost_batch_size = ghost_batch_size

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if not (self.ghost_batch_size and training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        if mask is not None:
            raise ValueError("ghost batches take no mask")
        return self._normalize_ghosts(inputs, self.ghost_batch_size)

    def _normalize_ghosts(self, inputs: Any, size: int) -> Any:
        """`inputs` [batch, ..., channels], normalised within each `size` examples."""
        inputs = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        batch = _BATCH.get()
        rank = len(inputs.shape)
        ghost = ops.arange(ops.shape(inputs)[0]) // size
        weights = ops.ones_like(ghost) if batch is None else batch[0]
        weights = ops.reshape(ops.cast(weights, inputs.dtype), (-1,) + (1,) * (rank - 1))

        def total(values: Any) -> Any:  # [batch, ..., channels] -> [ghosts, channels]
            return ops.segment_sum(ops.sum(values, axis=range(1, rank - 1)), ghost, sorted=True)

        def spread(values: Any) -> Any:  # [ghosts, channels] -> [batch, 1..., channels]
            shape = (-1, *[1] * (rank - 2), values.shape[-1])
            return ops.reshape(ops.take(values, ghost, axis=0), shape)

        count = total(weights * ops.ones_like(inputs[:, ..., :1]))
        divisor = ops.maximum(count, 1.0)
        mean = total(weights * inputs) / divisor
        centred = inputs - spread(mean)
        variance = total(weights * ops.square(centred)) / divisor
        self._move_statistics(mean, variance, ops.cast(count > 0, inputs.dtype))
        outputs = centred * spread(ops.rsqrt(variance + self.epsilon))
        if self.scale:
            outputs *= ops.cast(self.gamma, outputs.dtype)
        if self.center:
            outputs += ops.cast(self.beta, outputs.dtype)
        return ops.cast(outputs, self.compute_dtype)

    def _move_statistics(self, mean: Any, variance: Any, used: Any) -> None:
        """Moves the moving statistics towards the mean over the ghosts [ghosts, channels] that hold an example."""
        number = ops.maximum(ops.sum(used), 1.0)
        for moving, values in ((self.moving_mean, mean), (self.moving_variance, variance)):
            new = ops.cast(ops.sum(used * values, axis=0) / number, moving.dtype)
            moving.assign(moving * self.momentum + new * (1.0 - self.momentum))

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        if _BATCH.get() is None:
            return super()._moments(inputs, mask)
        return _batch_moments(self, inputs, mask, synchronized=self.synchronized)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "synchronized": self.synchronized,
            "ghost_batch_size": self.ghost_batch_size,
        }


# --------------------------------------------------------------------------------------------------
# A convolution and its pooling in forms that a mesh can divide over channels.
#
# DTensor (TensorFlow 2.21) wants the filters of a convolution whole on every device, and pooling wants whole
# channels. The same sums as shifted copies of the curve and one matrix product have no such limit. On one device the
# library's own convolution is faster, see docs/dtensor.md.


@keras.saving.register_keras_serializable(package="tfmat")
class UnfoldedConvolution1D(keras.layers.Conv1D):
    """Keras's Conv1D, same variables and same numbers up to rounding, as one matrix product.

    The kernel [points, channels, filters] may be divided over filters, and the next one's over channels. Nothing is
    exchanged between them then, and the sums over the channels meet once, behind the second.

    Attributes:
      divides_over_channels: says so to the layouts of a mesh.

    Raises:
      ValueError: for settings other than `padding="same"`, and strides, dilation and groups of 1.
    """

    divides_over_channels = True

    def __init__(self, filters: int, kernel_size: Any, **kwargs: Any):
        super().__init__(filters, kernel_size, **kwargs)
        steps = (*self.strides, *self.dilation_rate, self.groups)
        if self.padding != "same" or set(steps) != {1} or self.data_format != "channels_last":
            raise ValueError(
                "UnfoldedConvolution1D needs padding='same', and strides, dilation and groups of 1; use Conv1D"
            )

    def call(self, inputs: Any) -> Any:
        """[batch, points, channels] -> [batch, points, filters]."""
        size, channels = self.kernel_size[0], inputs.shape[2]
        points = inputs.shape[1]
        before = (size - 1) // 2
        padded = ops.pad(inputs, ((0, 0), (before, size - 1 - before), (0, 0)))
        # Channels first: a reshape keeps the division of its leading dimension only. The other way round DTensor
        # collects the channels on every device, and says nothing.
        shifted = ops.stack([padded[:, i : i + points] for i in range(size)], axis=3)
        kernel = ops.reshape(ops.transpose(self.kernel, (1, 0, 2)), (channels * size, self.filters))
        outputs = ops.matmul(ops.reshape(shifted, (-1, points, channels * size)), kernel)
        if self.use_bias:
            outputs = outputs + self.bias
        return self.activation(outputs)


@keras.saving.register_keras_serializable(package="tfmat")
class ReshapedMaxPooling1D(ArgumentsLayer):
    """Keras's MaxPooling1D with stride `pool_size`, as a reshape and a maximum: works on divided channels.

    Args:
      pool_size: points; what is left of the last window is dropped, as Keras does.
    """

    arguments = ("pool_size",)

    def __init__(self, pool_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.pool_size = pool_size

    def call(self, inputs: Any) -> Any:
        """[batch, points, channels] -> [batch, points // pool_size, channels]."""
        points, channels = inputs.shape[1:]
        windows = points // self.pool_size
        inputs = inputs[:, : windows * self.pool_size]
        return ops.max(ops.reshape(inputs, (-1, windows, self.pool_size, channels)), axis=2)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (input_shape[0], input_shape[1] // self.pool_size, input_shape[2])


# --------------------------------------------------------------------------------------------------
# Curves by their shape and their extent: of soft and strong, brittle and ductile materials alike.


# Logarithms are divided by this: over the metals they run over some 5.
_LOG_RANGE = 2.5
_TINY = 1e-12


def _largest(inputs: Any) -> Any:
    """Largest strain and stress of each curve: [batch, points, 3] -> [batch, 2], positive."""
    return ops.maximum(ops.max(ops.abs(inputs[:, :, :2]), axis=1), _TINY)


@keras.saving.register_keras_serializable(package="tfmat")
class CurveShape(ArgumentsLayer):
    """Strain and stress over the curve's own largest, and the flag: [batch, points, 3], as the inputs."""

    def call(self, inputs: Any) -> Any:
        scaled = inputs[:, :, :2] / _largest(inputs)[:, None, :]
        return ops.concatenate([scaled, inputs[:, :, 2:]], axis=2)


@keras.saving.register_keras_serializable(package="tfmat")
class CurveExtent(ArgumentsLayer):
    """Logarithms of a curve's largest strain and stress: [batch, points, 3] -> [batch, 2].

    Args:
      input_scale: largest strain (-) and stress (MPa) of the data set, where the logarithms are 0.
    """

    arguments = ("input_scale",)

    def __init__(self, input_scale: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.input_scale = [float(scale) for scale in input_scale][:2]

    def call(self, inputs: Any) -> Any:
        scale = ops.convert_to_tensor(self.input_scale, inputs.dtype)
        return ops.log(_largest(inputs) / scale) / _LOG_RANGE

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (input_shape[0], 2)


# --------------------------------------------------------------------------------------------------
# A mean-and-variance head: how far off the network expects each of its answers to be.
#
# D. A. Nix, A. S. Weigend, Estimating the mean and variance of the target probability distribution, ICNN (1994)
# 55-60. Here the variance learns beside the mean and never changes it: the features and the mean that it sees are
# taken as given, so that the mean trains on the mean squared error alone, as without a head; only
# `optimizer.clip_norm`, a norm over all gradients, would let it feel the head. (M. Seitzer et al., On the pitfalls of
# heteroscedastic uncertainty estimation with probabilistic neural networks, ICLR 2022, show what the joint likelihood
# does to the mean.)


PerExample = Callable[[Any, Any], Any]

# Enough for a coverage within a point of what is said; with two outputs 4,098 parameters more.
_UNITS = 32


def with_log_variance(features: Any, mean: Any, activation: str, told: Callable[[Any], Any]) -> Any:
    """The model's output [batch, 2n]: n means (labels scaled 0-1), then the logarithms of n variances.

    Args:
      features: [batch, units], of the last hidden layer.
      mean: [batch, n].
      activation: of the head's hidden layer.
      told: called on what the head makes of the features, and gives the logarithms of the variances.
    """
    seen = ops.stop_gradient(features)
    hidden = layers.Dense(_UNITS, activation=activation, name="uncertainty_hidden")(seen)
    log_variance = told(layers.Dense(mean.shape[-1], name="log_variance")(hidden))
    return layers.Concatenate(name="labels_and_log_variances")([mean, log_variance])


def squared_error_of_mean(num_outputs: int, weights: Sequence[float] | None = None) -> PerExample:
    """The loss of the mean: (labels [batch, n], outputs [batch, n or 2n]) -> [batch].

    Args:
      num_outputs: n.
      weights: of the n squared errors; only their ratios count. None weighs them alike.
    """
    if weights is None:
        weights = [1.0] * num_outputs
    shares = [weight / sum(weights) for weight in weights]

    def squared_error(labels: Any, outputs: Any) -> Any:
        square = ops.square(labels - outputs[:, :num_outputs])
        return ops.sum(square * ops.cast(shares, square.dtype), axis=-1)

    return squared_error


def negative_log_likelihood(num_outputs: int) -> PerExample:
    """The loss of the variance: (labels [batch, n], outputs [batch, 2n]) -> [batch, n], on the labels' scale.

    Minus the logarithm of the Gaussian density of the label; the mean is taken as given.
    """

    def likelihood(labels: Any, outputs: Any) -> Any:
        error = labels - ops.stop_gradient(outputs[:, :num_outputs])
        log_variance = outputs[:, num_outputs:]
        square = ops.square(error) * ops.exp(-log_variance)
        return 0.5 * (log_variance + square + math.log(2.0 * math.pi))

    return likelihood


class Losses(NamedTuple):
    """The losses and metrics of a network; see `tfmat.Trainer`."""

    loss: Any
    auxiliary_loss: Any = None
    metrics: Mapping[str, Any] = {}


def losses_and_metrics(
    config: Settings | Config,
    dataset: Any,
    model: keras.Model,
    *,
    compiled: bool = False,
) -> Losses:
    """The mean squared error, one more a parameter where there are several, and `nll` of a variance.

    A model with a posterior head has one loss: the mean of minus the logarithm of the density of the labels, which can
    be compiled by itself.
    """

    def squared_error(column: int) -> Callable[[Any, Any], Any]:
        return lambda labels, outputs: (labels[:, column] - outputs[:, column]) ** 2

    count, metrics = len(dataset.parameters), {}
    if count > 1:
        metrics = {f"mse_{p.name}": squared_error(i) for i, p in enumerate(dataset.parameters)}
    weights = config.loss_weights
    if weights is not None and len(weights) != count:
        raise InputError(
            f"loss_weights has {len(weights)} numbers, the law has {count} parameters to identify; give one for each"
        )
    if config.model.uncertainty == "flow":
        flow = model.get_layer(POSTERIOR)
        return Losses(flow.compiled_loss() if compiled else flow.loss)
    loss = squared_error_of_mean(count, weights)
    if config.model.uncertainty == "none":
        return Losses(loss, metrics=metrics)
    likelihood = negative_log_likelihood(count)
    return Losses(loss, likelihood, {**metrics, "nll": likelihood})


# --------------------------------------------------------------------------------------------------
# Makes of the config's `model` section a plain Keras 3 model, curve [points, 3] -> scaled parameters.


# Standard deviations of a fit from which on posteriors around it have heavy tails: searches miss some modes, and where
# the law is bent a posterior is many times as wide as its fit says. Half of it learns a little more, but begins too far
# from the fit.
_TAIL = 1.0
# A posterior of more interchangeable terms is not folded: a step computes the density of each of their orders.
_MOST_TERMS = 4
# Training records by which the numbers of a plastic spectrum are scaled.
_RECORDS_FOR_SPREAD = 2048
# max(f(x)) == f(max(x)) for these, exactly, because they never fall. Pooling first then costs nothing in
# accuracy and halves the work of the activation and of its gradient (measured: 10 % of a training step).
_NON_DECREASING = {"relu", "leaky_relu", "elu", "selu", "softplus", "tanh", "sigmoid", "linear"}


def build_for(config: Config, dataset: Any) -> keras.Model:
    """The config's network for a data set (`PackedDataset`), with seeded initial weights; see `build_model`."""
    spread = fit = None
    law = dataset.settings and dataset.settings.build_law()
    terms = law.label_columns_of_terms if law else []
    if config.model.representation == "fit":
        fit = _fit_for(dataset)
    if config.model.representation == "plastic_spectrum":
        tests = np.asarray(dataset.features[: min(dataset.num_train, _RECORDS_FOR_SPREAD)])
        tests = tests.reshape(-1, dataset.form.points, tests.shape[2])
        spread = numbers_of(tests, dataset.input_scale)
    return build_model(
        config.model,
        num_outputs=len(dataset.parameters),
        **dataset.form.network(),
        input_scale=dataset.input_scale,
        spread=spread,
        fit=fit,
        terms=terms if len(terms) <= _MOST_TERMS else (),
        seed=config.seed,
    )


def parted(model: keras.Model) -> tuple[keras.Model | None, keras.Model]:
    """The network's front that has no weights and takes most of its time, where it has one, and what trains behind it.

    The same record gives the same numbers in every epoch, so they are computed once. The parts share their layers.
    """
    for layer in model.layers:
        alone = isinstance(layer, PlasticSpectrum | LawFit) and layer.input is model.inputs[0]
        if alone or isinstance(layer, SeenTests):
            front = keras.Model(model.inputs[0], layer.output)
            return front, keras.Model(layer.output, model.outputs[0], name=model.name)
    return None, model


def _fit_for(dataset: Any) -> LawFit:
    """The fit whose starts are learnt of a data set, once for all of its runs: that takes seconds."""
    kept = dataset.kept
    records, labels = (
        np.asarray(array[: min(dataset.num_train, RECORDS_FOR_START)])
        for array in (dataset.features, dataset.labels)
    )
    scale, settings = list(dataset.input_scale), dataset.settings
    key = kept.key("start", json.dumps([settings.to_json(), scale]), records, labels)
    found = kept.read(key)
    if found is not None:
        return LawFit.from_config(json.loads(str(found)))
    fit = LawFit.learned(settings, records, labels, scale, name="fit")
    kept.write(key, np.array(json.dumps(fit.get_config())))
    return fit


def build_model(
    model_config: Config,
    *,
    num_outputs: int,
    num_points: int = 200,
    input_scale: Sequence[float] = (1.0, 1.0, 1.0),
    channels: Sequence[str] = ("strain", "stress", "flag"),
    tokens: Sequence[Sequence[float]] = (),
    more_than_noise: bool = False,
    spread: tuple[Sequence[float], Sequence[float]] | None = None,
    fit: LawFit | None = None,
    terms: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> keras.Model:
    """Builds the network with seeded initial weights.

    The default config gives 153,441 parameters for two outputs: 352 + 2,712 in two convolutions, 150,125 + 252 in
    two dense layers (input scaling has none). `model.uncertainty="gaussian"` adds a variance head of 4,098 beside them;
    the others start from the same weights then.

    Records of several tests go through the convolutions and a first dense layer test by test, with the same weights and
    a token for the kind of the test. The mean over the tests that are there goes on.

    Args:
      model_config: the `model` section of a config.
      num_outputs: parameters to identify.
      num_points: points of a record: of all its tests.
      input_scale: divides the channels strain (-), stress (MPa) and flag; with
        `model.input_scaling="curve"` it moves the logarithms of the curves' extents, see `CurveExtent`.
      channels: their names, where there are more than those three: `time`, `rate`, `temperature`.
      tokens: what kind each test is, [tests, token]; fewer than two are one test.
      more_than_noise: whether records depart from their law by more than noise; see `LawFit`.
      spread: mean and standard deviation of the numbers of a plastic spectrum, see `PlasticSpectrum`.
      fit: of the law to each record, with `model.representation="fit"`; None where only the network's shapes matter.
      terms: the labels' columns of interchangeable terms, see `PosteriorFlow`.
      seed: of the initial weights and of dropout.

    Returns:
      A built model: float [batch, num_points, channels] in physical units -> [batch, num_outputs], labels scaled to
      0-1. With `model.uncertainty="gaussian"` as many columns follow: the logarithms of the labels' variances. With
      `"flow"` the outputs are instead what the layer `posterior` needs to know of a record, see `PosteriorFlow`.

    Raises:
      InputError: where pooling leaves no point, or filters and kernels differ in number.
    """
    num_tests = max(1, len(tokens))
    check_layers(model_config, num_points // num_tests)
    keras.utils.set_random_seed(seed)
    curve = layers.Input((num_points, len(channels)), name="curve")
    input_scale = [*input_scale, *[1.0] * (len(channels) - len(input_scale))]
    encoder = _encoder(model_config, input_scale, spread)
    hidden: list[layers.Layer] = []
    for i, units in enumerate(model_config.hidden_units, start=1):
        suffix = "" if len(model_config.hidden_units) == 1 else str(i)
        hidden.append(layers.Dense(units, name=f"hidden{suffix}"))
        hidden += _normalization(model_config, f"hidden{suffix}_normalization")
        hidden.append(layers.Activation(model_config.activation, name=f"hidden{suffix}_activation"))
        if model_config.dropout:
            name = f"hidden{suffix}_dropout"
            hidden.append(layers.Dropout(model_config.dropout, seed=seed + i, name=name))
    labels = layers.Dense(num_outputs, name="labels")
    mode = None
    if model_config.representation == "fit":
        with keras.name_scope("curve_to_parameters"):
            seen = num_residuals(num_tests, more_than_noise)
            fitted = (fit or LawFit(None, num_outputs, residuals=seen, name="fit"))(curve)
            features, mode = fitted[:, : -2 * num_outputs], fitted[:, -2 * num_outputs :]
            for layer in hidden:
                features = layer(features)
    elif num_tests > 1 or model_config.input_scaling == "curve" or len(channels) > 3:
        features = _features(model_config, curve, channels, encoder, hidden, input_scale, tokens)
    else:
        stack = [curve, *encoder, *hidden]
        if model_config.uncertainty == "none":
            return keras.Sequential([*stack, labels], name="curve_to_parameters")
        body = keras.Sequential(stack, name="curve_to_parameters")
        curve, features = body.inputs[0], body.outputs[0]
    with keras.name_scope("curve_to_parameters"):  # as in a Sequential model's paths
        if model_config.uncertainty == "flow":
            tail = None if mode is None else _TAIL
            size = {"couplings": model_config.couplings, "units": model_config.coupling_units}
            flow = PosteriorFlow(num_outputs, **size, tail=tail, terms=terms, name=POSTERIOR)
            outputs = with_posterior(features, flow, _around(mode, "posterior"))
        else:
            outputs = _around(mode, "labels")(labels(features))
        if model_config.uncertainty == "gaussian":
            told = _around(mode, "log_variances")
            outputs = with_log_variance(features, outputs, model_config.activation, told)
    return keras.Model(curve, outputs, name="curve_to_parameters")


def _around(mode: Any, kind: str) -> Callable[[Any], Any]:
    """How a head tells its outputs: around the mode of a fit where there is one, and else as they are."""
    if mode is None:
        return lambda outputs: outputs
    return lambda outputs: AroundFit(kind, name=f"{kind}_around_fit")(outputs, mode)


def _encoder(
    model_config: Config,
    input_scale: Sequence[float],
    spread: tuple[Sequence[float], Sequence[float]] | None,
) -> list[layers.Layer]:
    """The layers before the dense ones, which end in one vector for each record or test."""
    if model_config.representation == "plastic_spectrum":
        return [PlasticSpectrum(input_scale, *(spread or ()), name="plastic_spectrum")]
    encoder: list[layers.Layer] = []
    if model_config.input_scaling == "data_set":
        encoder.append(layers.Rescaling([1.0 / scale for scale in input_scale], name="scale"))
    for i, (filters, kernel) in enumerate(
        zip(model_config.conv_filters, model_config.kernel_sizes, strict=True), start=1
    ):
        encoder += _convolution(model_config, i, filters, kernel)
    return [*encoder, layers.Flatten(name="flatten")]


def _told(curve: Any, channels: Sequence[str]) -> Any:
    """The record with time, rate and temperature on scales for a network, where it has them."""
    return SettingChannels(channels, name="settings")(curve) if len(channels) > 3 else curve


def _features(
    model_config: Config,
    curve: Any,
    channels: Sequence[str],
    encoder: Sequence[layers.Layer],
    hidden: Sequence[layers.Layer],
    input_scale: Sequence[float],
    tokens: Sequence[Sequence[float]],
) -> Any:
    """Features [batch, units] of records of one test or several; with `input_scaling="curve"` [batch, units + 2].

    The curve's shape goes through all layers then, its extent in behind the convolutions. A parameter on a log scale is
    the logarithm of the extent plus a function of the shape, so that the extent goes beside the features too.
    """
    num_tests, extent = max(1, len(tokens)), None
    with keras.name_scope("curve_to_parameters"):
        tests = _told(curve, channels)
        if num_tests > 1:
            tests = SplitTests(num_tests, name="tests")(tests)
        features = tests
        if model_config.input_scaling == "curve":
            features = CurveShape(name="shape")(tests)
            extent = CurveExtent(input_scale, name="extent")(tests)
        for layer in encoder:
            features = layer(features)
        if extent is not None:
            features = layers.Concatenate(name="flat_shape_and_extent")([features, extent])
        if num_tests > 1:
            flag = channels.index("flag")
            if model_config.representation == "plastic_spectrum":
                flag = features.shape[1]
                seen = SeenTests(num_tests, name="seen_tests")(features, tests)
                tests = SplitTests(num_tests, name="seen")(seen)
                features = tests[:, 0, :flag]
            features = TestTokens(tokens, name="tokens")(features)
            features = layers.Dense(model_config.hidden_units[0], name="test")(features)
            features = layers.Activation(model_config.activation, name="test_activation")(features)
            features = PoolTests(num_tests, flag, name="pool")(features, tests)
        for layer in hidden:
            features = layer(features)
        if extent is None:
            return features
        if num_tests > 1:
            extent = PoolTests(num_tests, name="pooled_extent")(extent, tests)
        return layers.Concatenate(name="features_and_extent")([features, extent])


def _convolution(model_config: Config, i: int, filters: int, kernel: int) -> list[layers.Layer]:
    unfolded = model_config.convolution == "unfolded"
    convolution = UnfoldedConvolution1D if unfolded else layers.Conv1D
    pooling = ReshapedMaxPooling1D if unfolded else layers.MaxPooling1D
    stack: list[layers.Layer] = [convolution(filters, kernel, padding="same", name=f"conv{i}")]
    stack += _normalization(model_config, f"conv{i}_normalization")
    tail: list[layers.Layer] = [
        layers.Activation(model_config.activation, name=f"conv{i}_activation")
    ]
    if model_config.pool_size > 1:
        tail.append(pooling(model_config.pool_size, name=f"conv{i}_pool"))
    if model_config.activation in _NON_DECREASING:
        tail.reverse()
    return stack + tail


def _normalization(model_config: Config, name: str) -> list[layers.Layer]:
    if model_config.batch_normalization == "none":
        return []
    synchronized = model_config.batch_normalization == "synchronized"
    return [
        ExampleWeightedBatchNormalization(
            synchronized=synchronized, ghost_batch_size=model_config.ghost_batch_size, name=name
        )
    ]

"""Makes of the config's `model` section a plain Keras 3 model, curve [points, 3] -> scaled parameters."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers

from tfmat.config import Config, check_layers
from tfmat.models.convolution import ReshapedMaxPooling1D, UnfoldedConvolution1D
from tfmat.models.curve_scaling import CurveExtent, CurveShape
from tfmat.models.flow import POSTERIOR, PosteriorFlow, with_posterior
from tfmat.models.law_fit import RECORDS_FOR_START, AroundFit, LawFit, num_residuals
from tfmat.models.normalization import ExampleWeightedBatchNormalization
from tfmat.models.plastic_spectrum import PlasticSpectrum, numbers_of
from tfmat.models.test_sets import PoolTests, SeenTests, SettingChannels, SplitTests, TestTokens
from tfmat.models.uncertainty import with_log_variance

# Standard deviations of a fit from which on posteriors around it have heavy tails: searches miss some modes, and where
# the law is bent a posterior is many times as wide as its fit says. Half of it learns a little more, but begins too far
# from the fit.
_TAIL = 1.0
# Of more interchangeable terms a posterior is not folded: a step computes the density of each of their orders.
_MOST_TERMS = 4
# Training records by which the numbers of a plastic spectrum are scaled.
_RECORDS_FOR_SPREAD = 2048
# max(f(x)) == f(max(x)) for these, exactly, because they never fall. Pooling first then costs nothing in
# accuracy and halves the work of the activation and of its gradient (measured: 10 % of a training step).
_NON_DECREASING = {"relu", "leaky_relu", "elu", "selu", "softplus", "tanh", "sigmoid", "linear"}


def build_for(config: Config, dataset: Any, kept: Any = None) -> keras.Model:
    """The config's network for a data set (`PackedDataset`), with seeded initial weights; see `build_model`.

    `kept` (`Kept`) is where fits are kept, by default the data set's folder.
    """
    spread = fit = None
    law = dataset.settings and dataset.settings.build_law()
    terms = law.label_columns_of_terms if law else []
    if config.model.representation == "fit":
        fit = _fit_for(dataset, kept or dataset.kept)
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


def _fit_for(dataset: Any, kept: Any) -> LawFit:
    """The fit whose starts are learnt of a data set, once for all of its runs: that takes seconds."""
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

    Records of several tests go through the convolutions and a first dense layer test by test, with the same weights
    and a token for the kind of the test; the mean over those that are there goes on.

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
    elif num_tests > 1:
        features = _pooled(model_config, curve, channels, encoder, hidden, input_scale, tokens)
    elif model_config.input_scaling == "curve":
        told = _told(curve, channels)
        features = _shape_and_extent(told, encoder, hidden, input_scale)
    elif len(channels) > 3:
        with keras.name_scope("curve_to_parameters"):
            features = _told(curve, channels)
            for layer in (*encoder, *hidden):
                features = layer(features)
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


def _pooled(
    model_config: Config,
    curve: Any,
    channels: Sequence[str],
    encoder: Sequence[layers.Layer],
    hidden: Sequence[layers.Layer],
    input_scale: Sequence[float],
    tokens: Sequence[Sequence[float]],
) -> Any:
    """Features [batch, units] of records of several tests."""
    num_tests, by_curve = len(tokens), model_config.input_scaling == "curve"
    with keras.name_scope("curve_to_parameters"):
        tests = features = SplitTests(num_tests, name="tests")(_told(curve, channels))
        extent = None
        if by_curve:
            features = CurveShape(name="shape")(tests)
            extent = CurveExtent(input_scale, name="extent")(tests)
        for layer in encoder:
            features = layer(features)
        if extent is not None:
            features = layers.Concatenate(name="flat_shape_and_extent")([features, extent])
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
        extent = PoolTests(num_tests, name="pooled_extent")(extent, tests)
        return layers.Concatenate(name="features_and_extent")([features, extent])


def _shape_and_extent(
    curve: Any,
    encoder: Sequence[layers.Layer],
    hidden: Sequence[layers.Layer],
    input_scale: Sequence[float],
) -> Any:
    """Features [batch, units + 2]: the curve's shape goes through all layers, its extent in behind the convolutions.

    A parameter on a log scale is the logarithm of the extent plus a function of the shape, so that the extent goes
    beside the features too.
    """
    with keras.name_scope("curve_to_parameters"):
        features = CurveShape(name="shape")(curve)
        extent = CurveExtent(input_scale, name="extent")(curve)
        for layer in encoder:
            features = layer(features)
        features = layers.Concatenate(name="flat_shape_and_extent")([features, extent])
        for layer in hidden:
            features = layer(features)
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

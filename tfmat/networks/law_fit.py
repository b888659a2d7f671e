"""Layers that know the law: a fit of the law in the network, and one encoder for every test of a record."""

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import threadpoolctl
from keras import ops

from tfmat.materials.law import Array, Law, TestSet
from tfmat.materials.numerics import LogitResiduals, likely_modes, residuals_at
from tfmat.networks.flow import MOST_LOG_SCALE
from tfmat.networks.plastic_spectrum import NUMBERS, PlasticSpectrum, numbers_of
from tfmat.records.simulation import CurveSettings, RecordForm, observed

# --------------------------------------------------------------------------------------------------
# Where the search for a record's fit begins: a regression of labels, by NumPy alone.


# Groups of a record's points, random hidden units, ridge.
_GROUPS, _UNITS, _RIDGE = 48, 256, 1e-4
_TINY = 1e-9


def inputs_of_start(records: np.ndarray, spectra: np.ndarray) -> Array:
    """The regression's inputs from records [n, points, channels] and their spectra [n, numbers]: [n, inputs].

    Group means, extents, spectra, and random functions of these.
    """
    described = np.concatenate([_described(records), spectra], axis=1)
    random = np.random.RandomState(0)  # the one generator that is the same in every version
    kernel = random.standard_normal((described.shape[1], _UNITS)) / math.sqrt(described.shape[1])
    hidden = np.tanh(described @ kernel + random.standard_normal(_UNITS))
    return np.concatenate([described, hidden, np.ones((len(records), 1))], axis=1)


def ridge(inputs: Array, labels: Array) -> Array:
    """The regression of labels [n, p] on inputs [n, k]: [k, p]."""
    square = inputs.T @ inputs
    square[np.diag_indices(len(square))] += _RIDGE * len(inputs)
    return np.linalg.solve(square, inputs.T @ labels)


def _described(records: np.ndarray) -> Array:
    """Means of groups of neighbouring points of each channel, extents and steepest slopes: [n, inputs], of order 1."""
    there = 1.0 - records[:, :, 2:3]
    values = np.asarray(records, np.float64) * there
    values[:, :, 2] = records[:, :, 2]
    extents = np.abs(values).max(axis=1) + _TINY
    shown = values / extents[:, None, :]
    count, points, channels = records.shape
    groups = min(_GROUPS, points)
    ends = np.arange(groups + 1) * points // groups
    means = np.add.reduceat(shown, ends[:-1], axis=1) / np.diff(ends)[None, :, None]
    steps = np.abs(np.diff(shown[:, :, :2], axis=1))
    slopes = np.sort(steps[:, :, 1] / (steps[:, :, 0] + 3e-3), axis=1)
    steepest = slopes[:, [-1 - min(place, points - 2) for place in (0, 4, 14, 39)]]
    logs = np.log(np.concatenate([steepest + 1e-2, extents], axis=1)) / 3.0
    return np.concatenate([means.reshape(count, groups * channels), logs], axis=1)


# --------------------------------------------------------------------------------------------------
# Layers for records of tests: channels on scales that a network likes, one encoder for every test, masked pooling.


# Seconds below which times are all alike to the network, and decades that stand for 1.
_SHORTEST, _DECADES = 1e-3, 5.0
_ROOM_TEMPERATURE, _HOT = 20.0, 500.0


@keras.saving.register_keras_serializable(package="tfmat")
class SettingChannels(keras.layers.Layer):
    """Time, rate and noise as logarithms, temperature in hundreds of degrees: [batch, points, channels], as the inputs.

    Strain, stress and flag pass; padded points stay zero.

    Args:
      channels: names, the first three of which are strain, stress and flag.
    """

    def __init__(self, channels: Sequence[str], **kwargs: Any):
        super().__init__(**kwargs)
        self.channels = list(channels)

    def call(self, inputs: Any) -> Any:
        there = 1.0 - inputs[:, :, 2]
        scaled = [inputs[:, :, :3]]
        for i, name in enumerate(self.channels[3:], start=3):
            value = inputs[:, :, i]
            if name == "time":
                value = ops.log(1.0 + value / _SHORTEST) / (_DECADES * 2.302585)
            elif name in ("rate", "noise"):
                value = ops.log(ops.maximum(value, 1e-12)) / (_DECADES * 2.302585)
            else:
                value = (value - _ROOM_TEMPERATURE) / _HOT
            scaled.append((value * there)[:, :, None])
        return ops.concatenate(scaled, axis=2)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "channels": self.channels}


class _OfTests(keras.layers.Layer):
    """A layer that knows how many tests a record has, `num_tests`."""

    def __init__(self, num_tests: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tests = num_tests

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_tests": self.num_tests}


@keras.saving.register_keras_serializable(package="tfmat")
class SplitTests(_OfTests):
    """Each test as an example of its own: [batch, tests * points, channels] -> [batch * tests, points, channels]."""

    def call(self, inputs: Any) -> Any:
        points, channels = inputs.shape[1:]
        return ops.reshape(inputs, (-1, points // self.num_tests, channels))

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        batch, points, channels = input_shape
        batch = None if batch is None else batch * self.num_tests
        return (batch, points // self.num_tests, channels)


@keras.saving.register_keras_serializable(package="tfmat")
class SeenTests(_OfTests):
    """A record of one point for each test: what a front without weights makes of it, and whether it is missing.

    Called on the features [batch * tests, units] and on the tests [batch * tests, points, channels]; gives [batch,
    tests, units + 1], of which the last is 1 for a missing test. Layers behind it need no more of the record.
    """

    def call(self, inputs: Any, tests: Any) -> Any:
        missing = ops.min(tests[:, :, 2], axis=1, keepdims=True)
        seen = ops.concatenate([inputs, ops.cast(missing, inputs.dtype)], axis=1)
        return ops.reshape(seen, (-1, self.num_tests, inputs.shape[1] + 1))

    def compute_output_shape(self, input_shape: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
        batch = None if input_shape[0] is None else input_shape[0] // self.num_tests
        return (batch, self.num_tests, input_shape[1] + 1)


@keras.saving.register_keras_serializable(package="tfmat")
class TestTokens(keras.layers.Layer):
    """Adds to each test's features a token for its kind: [batch * tests, units] -> [batch * tests, units + token].

    Args:
      tokens: [tests, token], the same for every record.
    """

    __test__ = False  # no case of pytest's

    def __init__(self, tokens: Sequence[Sequence[float]], **kwargs: Any):
        super().__init__(**kwargs)
        self.tokens = [[float(value) for value in token] for token in tokens]

    def call(self, inputs: Any) -> Any:
        tests, units = len(self.tokens), inputs.shape[1]
        records = ops.reshape(inputs, (-1, tests, units))
        tokens = ops.convert_to_tensor(self.tokens, inputs.dtype)
        shown = ops.zeros_like(records[:, :, :1]) + tokens[None]
        joined = ops.concatenate([records, shown], axis=2)
        return ops.reshape(joined, (-1, units + len(self.tokens[0])))

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (input_shape[0], input_shape[1] + len(self.tokens[0]))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "tokens": self.tokens}


@keras.saving.register_keras_serializable(package="tfmat")
class PoolTests(keras.layers.Layer):
    """The mean over the tests of a record that are there: [batch * tests, units] -> [batch, units].

    Called on the features and on the tests [batch * tests, points, channels], whose flags say which are there: a
    missing test is one whose points are all padding.

    Args:
      num_tests: tests of a record.
      flag: the channel that tells padding.
    """

    def __init__(self, num_tests: int, flag: int = 2, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tests, self.flag = num_tests, flag

    def call(self, inputs: Any, tests: Any) -> Any:
        there = 1.0 - ops.min(tests[:, :, self.flag], axis=1)
        there = ops.reshape(there, (-1, self.num_tests, 1))
        there = ops.cast(there, inputs.dtype)
        records = ops.reshape(inputs, (-1, self.num_tests, inputs.shape[1]))
        count = ops.maximum(ops.sum(there, axis=1), 1.0)
        return ops.sum(records * there, axis=1) / count

    def compute_output_shape(self, input_shape: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
        batch = None if input_shape[0] is None else input_shape[0] // self.num_tests
        return (batch, input_shape[1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_tests": self.num_tests, "flag": self.flag}


# --------------------------------------------------------------------------------------------------
# A record's fit by its law, before any weight, and a network's answer around that fit.
#
# The mode of the posterior, how sharply it is known and what it leaves are nearly all that a record tells (quasi
# maximum likelihood estimates as summaries: J. Alsing, B. Wandelt, Generalized massive optimal data compression,
# MNRAS Letters 476 (2018), arXiv:1712.00012). A network that answers around the mode, in units of its standard
# deviations, begins with the Laplace approximation and learns where that fails: bent and leaning posteriors, modes
# that the search has missed, errors that are more than noise.


# Records that a start is learnt of, and of these those that judge it; records and tests that scale the numbers.
RECORDS_FOR_START, _JUDGES = 10_000, 0.2
_RECORDS_FOR_SCALES, _TESTS_FOR_SCALES = 512, 2048
# A label's distance from the ends of its range where a search begins.
_EDGE = 0.01
# Ratio of errors, in their geometric mean, below which a spectrum is worth its time.
_WORTH = 0.8
# Groups of neighbouring points of each test whose residuals are told, and the largest that is told, in standard errors.
# They are smaller at the beginning of a test, where a few points tell modulus and yield stress.
_RESIDUALS, _LARGEST_RESIDUAL, _SMALLER_FIRST = 32, 30.0, 1.5
# Standard deviations of the numbers, factors e of a standard deviation, and its share of a label's range.
_FARTHEST, _MOST_CHANGE, _WIDEST = 6.0, 6.0, 0.3


def num_numbers(num_labels: int, residuals: int) -> int:
    """How many numbers of a fit the dense layers see; behind them stand as many logits and logarithms as labels."""
    return num_labels * (num_labels + 3) // 2 + 3 + residuals


def num_residuals(num_tests: int, more_than_noise: bool) -> int:
    """How many sums of residuals are told: none where all that is left is noise, which could be learnt by heart."""
    return _RESIDUALS * num_tests if more_than_noise else 0


@keras.saving.register_keras_serializable(package="tfmat")
class LawFit(keras.layers.Layer):
    """The fit of a law to each record: [batch, points, channels] -> [batch, numbers + 2 labels].

    The numbers are the mode's logits, their precisions (logarithms of 1 / standard deviation) and correlations
    (Fisher's z), the root mean square residual in units of the noise, points and largest response. Where records depart
    from their law by more than noise, sums of residuals of neighbouring points show how. All are given as deviations
    from a mean in units of a standard deviation, none beyond six. Behind them stand logits and precisions themselves,
    for `AroundFit`. NumPy fits, and holds the interpreter: give `fits` many records in several processes.

    Args:
      settings: of the simulated records (`CurveSettings.to_json`); None, like `start`, of a network of which only the
        shapes matter.
      num_labels: parameters that are identified.
      start: of the regression that gives the labels where a search begins, [inputs, labels].
      spread: standard deviation of its errors, [labels].
      spectrum: None, or arguments of the `PlasticSpectrum` of each test that the regression sees too.
      mean, deviation: of the numbers; None leaves them as they are.
      residuals: how many sums of residuals are told, the same number of each test.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None,
        num_labels: int,
        start: Sequence[Sequence[float]] | None = None,
        spread: Sequence[float] | None = None,
        spectrum: Sequence[Sequence[float]] | None = None,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        residuals: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.residuals = residuals
        self.settings = None if settings is None else dict(settings)
        self.num_labels, self.start, self.spread = num_labels, start, spread
        self.spectrum = spectrum
        self.mean, self.deviation = mean, deviation
        self._spectrum = PlasticSpectrum(*spectrum) if spectrum else None

    @classmethod
    def learned(
        cls,
        settings: CurveSettings,
        features: Any,
        labels: Any,
        input_scale: Sequence[float],
        **kwargs: Any,
    ) -> "LawFit":
        """The fit with starts and scales from training records [n, points, channels], labels [n, p]."""
        count = min(len(features), RECORDS_FOR_START)
        records = np.asarray(features[:count])
        labels = np.asarray(labels[:count], np.float64)
        content, p, form = settings.to_json(), labels.shape[1], RecordForm.of(settings)
        given: list[Any] = [None]
        if len(form.channels) == 3 and all(each.drives == "strain" for each in form.programmes):
            tests = records.reshape(-1, form.points, 3)[:_TESTS_FOR_SCALES]
            given.append([list(input_scale), *numbers_of(tests, input_scale)])
        learnt = []
        judges = max(1, int(_JUDGES * count))
        for spectrum in given:
            layer = cls(content, p, spectrum=spectrum)
            spectra = np.asarray(layer.spectra_of(records))
            with _one_thread():
                seen = inputs_of_start(records, spectra)
                wrong = seen[:judges] @ ridge(seen[judges:], labels[judges:]) - labels[:judges]
                start = _rounded(ridge(seen, labels))
            learnt.append((start, _rounded(np.sqrt(np.mean(wrong**2, axis=0))), spectrum))
        errors = [np.exp(np.mean(np.log(spread))) for _, spread, _ in learnt]
        chosen = learnt[-1 if errors[-1] < _WORTH * errors[0] else 0]
        told = num_residuals(form.num_tests, form.more_than_noise)
        plain = cls(content, p, *chosen, residuals=told)
        first = records[:_RECORDS_FOR_SCALES]
        spectra = np.asarray(plain.spectra_of(first))
        with _one_thread():
            numbers = plain.fits(first, spectra)[:, : num_numbers(p, told)]
        mean, deviation = numbers.mean(axis=0), np.maximum(numbers.std(axis=0), 1e-2)
        return cls(content, p, *chosen, _rounded(mean), _rounded(deviation), told, **kwargs)

    @functools.cached_property
    def _known(self) -> tuple[CurveSettings, Law, RecordForm]:
        settings = CurveSettings.from_json(self.settings or {}).resolved()
        return settings, settings.build_law(), RecordForm.of(settings)

    def call(self, inputs: Any) -> Any:
        import tensorflow as tf

        fitted = tf.numpy_function(
            lambda records, spectra: self.fits(records, spectra).astype(np.float32),
            [inputs, self.spectra_of(inputs)],
            tf.float32,
        )
        fitted.set_shape(self.compute_output_shape(inputs.shape))
        return fitted

    def spectra_of(self, records: Any) -> Any:
        """Further numbers that `fits` needs of records [n, points, channels]: [n, numbers], often none."""
        if self._spectrum is None:
            return records[:, :0, 0]
        num_tests = self._known[2].num_tests
        tests = SplitTests(num_tests)(records)
        there = 1.0 - ops.min(tests[:, :, 2], axis=1, keepdims=True)
        return ops.reshape(self._spectrum(tests) * there, (-1, num_tests * NUMBERS))

    @functools.cached_property
    def graph_of_spectra(self) -> Any:
        """`spectra_of` as a graph, which is what a training sees: rounding decides which points count as elastic.

        Made once: that takes longer than what it then computes for hundreds of records.
        """
        import tensorflow as tf

        record = tf.TensorSpec(self.input.shape, tf.float32)
        return tf.function(self.spectra_of, input_signature=[record], autograph=False)

    def fits(self, records: np.ndarray, spectra: np.ndarray) -> np.ndarray:
        """The same as `call`, by NumPy alone: records [n, points, channels] and their `spectra_of`."""
        settings, law, _ = self._known
        residuals = _residuals(settings, law, records)
        labels = inputs_of_start(records, spectra) @ np.asarray(self.start)
        logits, covariance, left = likely_modes(
            residuals, np.clip(labels, _EDGE, 1.0 - _EDGE), np.asarray(self.spread)
        )
        std = np.sqrt(np.einsum("cii->ci", covariance))
        points = np.maximum((residuals.weights > 0).sum(axis=1), 1)
        left = 0.5 * np.log(np.clip(left / points, 1e-4, 1e12))
        # The rest, more or less than the noise that was meant, is taken for the noise's size.
        precision = -np.log(std) - left[:, None]
        upper = np.tril_indices(self.num_labels, -1)
        correlations = (covariance / (std[:, :, None] * std[:, None, :]))[:, *upper]
        largest = np.log(np.abs(residuals.stress).max(axis=1, initial=0.0) + 1.0)
        told = [
            logits,
            precision,
            np.arctanh(np.clip(correlations, -1.0, 1.0) * 0.9999),
            np.stack([left, np.log(points), largest], axis=1),
        ]
        if self.residuals:
            told.append(self._sums(residuals, residuals_at(residuals, logits), left))
        numbers = np.concatenate(told, axis=1)
        if self.mean is not None and self.deviation is not None:
            numbers = np.clip((numbers - self.mean) / self.deviation, -_FARTHEST, _FARTHEST)
        return np.concatenate([numbers, logits, precision], axis=1)

    def _sums(self, residuals: LogitResiduals, values: Array, left: Array) -> Array:
        """Sums of residuals `values` [n, points] of neighbouring points, in standard errors of what is left [n]."""
        tests = self._known[2].num_tests
        groups, points = self.residuals // tests, values.shape[1] // tests
        within = (points * (np.arange(groups) / groups) ** _SMALLER_FIRST).astype(int)
        begins = points * np.arange(tests)[:, None] + within
        there = residuals.weights > 0
        counts, sums = (
            np.add.reduceat(each, begins.ravel(), axis=1)
            for each in (there.astype(float), np.where(there, values, 0.0))
        )
        errors = sums / np.sqrt(np.maximum(counts, 1.0)) * np.exp(-left)[:, None]
        return np.clip(errors, -_LARGEST_RESIDUAL, _LARGEST_RESIDUAL)

    def build(self, input_shape: Any) -> None:
        """There are no weights."""
        self.built = True

    def compute_output_shape(self, input_shape: Sequence[Any]) -> tuple[Any, ...]:
        numbers = num_numbers(self.num_labels, self.residuals)
        return (input_shape[0], numbers + 2 * self.num_labels)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """See keras.layers.Layer; nothing is fitted."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), "float32")

    def get_config(self) -> dict[str, Any]:
        names = ("settings", "num_labels", "start", "spread", "spectrum", "mean", "deviation")
        own = {name: getattr(self, name) for name in (*names, "residuals")}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="tfmat")
class AroundFit(keras.layers.Layer):
    """A head's outputs [batch, n], told around a fit [batch, 2 labels], which are the last columns of `LawFit`.

    Args:
      kind: `labels`: from the mode's labels, in their standard deviations; `log_variances`: over those of the fit;
        `posterior`: means and scales of a `PosteriorFlow` in the same way, and all the rest as it is.
    """

    def __init__(self, kind: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.kind = kind

    def call(self, outputs: Any, fit: Any) -> Any:
        logits, precision = ops.split(fit, 2, axis=1)
        if self.kind == "posterior":
            p = logits.shape[1]
            mean, scale, rest = ops.split(outputs, [p, 2 * p], axis=1)
            scale = precision + _MOST_CHANGE * ops.tanh(scale / _MOST_CHANGE)
            # A flow bends its logarithms of scales by this function's inverse, so that none is too large.
            scale = ops.arctanh(ops.clip(scale / MOST_LOG_SCALE, -0.99, 0.99)) * MOST_LOG_SCALE
            return ops.concatenate([logits + ops.exp(-precision) * mean, scale, rest], axis=1)
        labels = ops.sigmoid(logits)
        std = ops.clip(ops.exp(-precision) * labels * (1.0 - labels), 1e-6, _WIDEST)
        if self.kind == "labels":
            return labels + std * outputs
        return outputs + 2.0 * ops.log(std)

    def compute_output_shape(self, input_shape: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "kind": self.kind}


def _one_thread() -> contextlib.AbstractContextManager[Any]:
    """Products in one thread, which round alike on every rank."""
    return threadpoolctl.threadpool_limits(1, "blas")


def _residuals(settings: CurveSettings, law: Law, records: np.ndarray) -> LogitResiduals:
    """The records in units of their noise, as far as that is known."""
    driven, response, valid = observed(settings, records)
    response = np.where(valid, response, 0.0)
    noise = np.ones_like(response)  # of tests, whose responses are in units of it
    if not isinstance(driven, TestSet):
        driven = np.where(valid, driven, 0.0)
        largest = np.abs(response).max(axis=1, keepdims=True)
        drawn = math.sqrt(math.prod(settings.noise_of_maximum or (0.0, 0.0)))
        noise = np.broadcast_to(
            np.hypot(settings.noise_mpa or 0.0, drawn * largest), response.shape
        )
    noise = np.hypot(noise, settings.noise_relative * response)
    least = 1e-3 * np.abs(response).max(axis=1, keepdims=True) + _TINY
    noise = np.where(noise > 0.0, noise, least)
    return LogitResiduals(law, driven, response, np.where(valid, 1.0 / noise, 0.0))


def _rounded(values: Array) -> list[Any]:
    """Four digits, alike everywhere, as lists."""
    digits = [float(f"{value:.4g}") for value in np.ravel(values)]
    return np.reshape(digits, np.shape(values)).tolist()

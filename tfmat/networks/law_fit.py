"""Layers that know the law: a fit of the law, the plastic spectrum of a test, one encoder for all tests of a record."""

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
from tfmat.networks.flow import MOST_LOG_SCALE, ArgumentsLayer
from tfmat.records.simulation import CurveSettings, RecordForm, observed

# --------------------------------------------------------------------------------------------------
# Flow stress beyond yield as a sum of fading memories of the direction of flow, of hardening, and of first yield.


# Rates per unit of plastic strain, each twice the one before, so that one exponential gives all: of the memories that
# fade (a metal's knee is at the fast end), and of the gain. The slowest, and how many.
_FADING = (2.0, 10)
_GAINING = (0.5, 7)
# Ridges of regressions whose terms are of the order of one for each point: the first is spoilt least by noise, the last
# resolves most.
_RIDGES = (1e-1, 1e-2, 1e-3)
# The first yield stress is in every record, so it is held back less.
_RIDGE_OF_YIELD = 0.1
# Points of one link of a chain; links go side by side.
LINK = 20
_TERMS = _FADING[1] + _GAINING[1] + 1
# How many numbers `spectrum_of` tells.
SPECTRUM_NUMBERS = len(_RIDGES) * (_TERMS + 1) + _TERMS + 1


def before(values: Any, first: float = 0.0) -> Any:
    """The point before each point, and one before the first: [batch, points]."""
    return ops.concatenate([ops.full_like(values[:, :1], first), values[:, :-1]], axis=1)


def terms_of(flow: Any, path: Any, direction: Any) -> Any:
    """Terms whose sum is the flow stress, for an amount of one each: [batch, terms, points]."""
    left = ops.stack(_powers(path, *_GAINING), axis=1)
    memories = memories_of(flow, direction)
    direction = direction[:, None, :]
    return ops.concatenate([memories, direction - direction * left, direction], axis=1)


def _powers(path: Any, slowest: float, count: int) -> list[Any]:
    """exp(-rate path) of rates that double, each as `path`."""
    powers = [ops.exp(-slowest * path)]
    while len(powers) < count:
        powers.append(ops.square(powers[-1]))
    return powers


def memories_of(flow: Any, direction: Any) -> Any:
    """Fading memories of the direction of flow, [batch, rates, points]: dm = rate (direction - m) dp, from 0.

    Exact for steps of one direction. A memory's deficit jumps where the direction does, and fades. The chain of points
    is cut into links that are computed side by side from 0, and then joined.

    Args:
      flow, direction: [batch, points].
    """
    links = flow.shape[1] // LINK

    def across(values: Any) -> Any:
        """[batch, points] -> [points of a link, links, batch]: operations on long rows are quick."""
        return ops.transpose(ops.reshape(values, (-1, links, LINK)), (2, 1, 0))

    keep = ops.stack(_powers(across(flow), *_FADING), axis=1)
    jumps = across(direction - before(direction))
    lack: Any = 0.0
    kept: Any = 1.0
    lacks, keeps = [], []
    for i in range(LINK):
        lack = (lack + jumps[i]) * keep[i]
        kept = kept * keep[i]
        lacks.append(lack)
        keeps.append(kept)
    start = ops.zeros_like(lack[:, 0])
    starts = []
    for link in range(links):
        starts.append(start)
        start = start * kept[:, link] + lack[:, link]
    start = ops.stack(starts, axis=1)
    lacks = [lack + kept * start for lack, kept in zip(lacks, keeps, strict=True)]
    # The points in their order again.
    whole = ops.transpose(ops.stack(lacks, axis=2), (3, 0, 1, 2))
    return direction[:, None, :] - ops.reshape(whole, (-1, _FADING[1], links * LINK))


def spectrum_of(terms: Any, stress: Any, weight: Any) -> list[Any]:
    """Amounts of the terms in the stress for each ridge, how well each term is seen, and what is left, in [batch, ...].

    Args:
      terms: [batch, terms, points].
      stress, weight: [batch, points].
    """
    count = terms.shape[1]
    rooted = ops.concatenate([terms, stress[:, None, :]], axis=1) * ops.sqrt(weight)[:, None, :]
    moments = ops.matmul(rooted, ops.transpose(rooted, (0, 2, 1)))
    gram, seen, square = moments[:, :-1, :-1], moments[:, :-1, -1:], moments[:, -1, -1:]
    held = np.ones(count)
    held[-1] = _RIDGE_OF_YIELD
    ridges = ops.convert_to_tensor(np.multiply.outer(_RIDGES, np.diag(held)), terms.dtype)
    gram = gram[:, None, :, :]  # not gram[:, None], which ends a process on a mesh
    seen = seen[:, None, :, :] + ops.zeros((len(_RIDGES), 1, 1), terms.dtype)
    amounts = _solved(gram + ridges, seen)
    explained = ops.sum(amounts * (2.0 * seen - ops.matmul(gram, amounts)), axis=2)[:, :, 0]
    points = ops.sum(weight, axis=1, keepdims=True) + 1.0
    left = ops.maximum(square - explained, 0.0) / points
    shown = ops.sum(gram[:, 0] * ops.eye(count, dtype=terms.dtype), axis=2)
    return [
        ops.reshape(ops.arcsinh(60.0 * amounts) / 2.0, (-1, len(_RIDGES) * count)),
        ops.log(shown + 1e-2) / 5.0,
        ops.log(left + 1e-8) / 6.0,
        ops.log(points) / 3.0,
    ]


def _solved(matrices: Any, right: Any) -> Any:
    """Solutions of positive definite systems [batch, ridges, size, size] and [batch, ridges, size, 1], as the latter.

    Records stand last while rows are eliminated, so that every operation goes along long rows. This takes a third of
    the time with records first, and half the time of Keras's own `solve`, for which DTensor has no rule.
    """
    rest = ops.transpose(ops.concatenate([matrices, right], axis=-1), (2, 3, 1, 0))
    rows = []
    for _ in range(matrices.shape[-1]):
        row = rest[:1, 1:] / rest[:1, :1]
        rows.append(row[0])
        rest = rest[1:, 1:] - rest[1:, :1] * row
    solution = rows.pop()
    for row in reversed(rows):
        known = ops.sum(row[:-1] * solution, axis=0, keepdims=True)
        solution = ops.concatenate([row[-1:] - known, solution], axis=0)
    return ops.transpose(solution, (2, 1, 0))[..., None]


# --------------------------------------------------------------------------------------------------
# The plasticity of a record with unloading, before any weight: its moduli, its plastic path, and its spectrum.
#
# Beyond yield the stress of a law of the Chaboche kind is a sum over rates of fading memories of the direction of flow,
# of what hardening has gained, and of the first yield stress. On a fixed grid of rates that sum is linear, so that a
# ridge regression finds the amounts: a spectrum, like the spectrum of relaxation times in viscoelasticity. From a
# hundred such numbers a few dense layers learn in minutes what convolutions over the points do not find in an hour.


# Numbers of steps over which a modulus is looked for: noise wants many, a short elastic range few.
_LAGS = (1, 3, 9, 27)
# Rise of stress, as a share of the largest, that noise might feign: between any two points, and since a turn.
_NOISE, _NOISE_SINCE = 0.025, 0.004
# A point is elastic while less than this share of the strain since the last turn is plastic. The modulus is found anew
# from time to time, which tells elastic points better.
_PLASTIC_SHARES = (0.05, 0.02, 0.01, 0.005)
# No modulus is this far from the steepest slope.
_NEAR = (0.7, 1.3)
# Plastic strains up to which the largest stress is told: yield stresses of more and more plastic strain.
_OFFSETS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
# An increment belongs to the flow stress where this share of it is plastic, over four steps and by itself; weights
# rise over the span behind the first. Elastic points among them cost far more than plastic ones left out.
_FLOWING, _SPAN, _FLOWING_ALONE, _STEPS = 0.35, 0.3, 0.4, 4
_TINY = 1e-12
_NOWHERE = -1e3
# How far numbers lie from their mean at most, in standard deviations.
_FARTHEST = 6.0
# How many numbers come of a record.
NUMBERS = SPECTRUM_NUMBERS + 3 * len(_LAGS) + 2 + len(_OFFSETS) + 4


@keras.saving.register_keras_serializable(package="tfmat")
class PlasticSpectrum(ArgumentsLayer):
    """Moduli, plastic path and spectrum of strain-driven tests: [batch, points, channels] -> [batch, numbers].

    Args:
      input_scale: largest strain (-) and stress (MPa) of the data set.
      mean, deviation: of the numbers, [numbers] each: they are told as deviations from the mean in units of the other,
        none beyond six. None leaves them as they are.
    """

    arguments = ("input_scale", "mean", "deviation")

    def __init__(
        self,
        input_scale: Sequence[float],
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.input_scale = [float(scale) for scale in input_scale][:2]
        self.mean, self.deviation = mean, deviation

    def call(self, inputs: Any) -> Any:
        """See the class; the channels after strain, stress and flag are left alone."""
        largest_strain, largest_stress = self.input_scale
        padding = ((0, 0), (0, -inputs.shape[1] % LINK))
        there = ops.pad(1.0 - inputs[:, :, 2], padding)
        strain = ops.pad(inputs[:, :, 0] / largest_strain, padding)
        stress = ops.pad(inputs[:, :, 1] / largest_stress, padding)
        steps = (strain - before(strain)) * there
        path_of_strain = _sums(ops.abs(steps))
        direction = _held(ops.sign(steps))
        turns = ops.not_equal(direction, before(direction))
        branch = _sums(ops.cast(turns, steps.dtype))
        modulus, about_modulus = _modulus(
            path_of_strain, _sums(direction * (stress - before(stress)) * there), turns, branch,
            there * ops.cast(ops.not_equal(steps, 0.0), steps.dtype), _largest(stress),
        )  # fmt: skip
        flow = _flow(strain - stress / modulus, steps, direction, turns, branch)
        path = _sums(flow)
        weight = _flowing(flow, path, steps, path_of_strain) * there
        terms = terms_of(flow * largest_strain, path * largest_strain, direction)
        numbers = [*spectrum_of(terms, stress, weight), *about_modulus]
        yields = [
            ops.max(ops.abs(stress) * ops.cast(path <= offset / largest_strain, path.dtype), 1, keepdims=True)
            for offset in _OFFSETS
        ]  # fmt: skip
        numbers += [2.0 * ops.log(stress + 1e-3) for stress in yields]
        extents = [_largest(strain), _largest(stress), path[:, -1:] + 1e-4]
        numbers += [ops.log(extent) for extent in extents]
        numbers = ops.concatenate([*numbers, 4.0 * ops.log(modulus / 10.0)], axis=1)
        if self.mean is None or self.deviation is None:
            return numbers
        mean, deviation = (
            ops.convert_to_tensor(values, numbers.dtype) for values in (self.mean, self.deviation)
        )
        return ops.clip((numbers - mean) / deviation, -_FARTHEST, _FARTHEST)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (input_shape[0], NUMBERS)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PlasticSpectrum":
        """See keras.layers.Layer; raises ValueError for a network that learnt from other numbers."""
        if "mean" not in config:
            raise ValueError("its plastic spectrum is that of an earlier tfmat")
        return cls(**config)


def numbers_of(
    features: np.ndarray, input_scale: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of the numbers of some tests, for `PlasticSpectrum`; three digits, alike everywhere.

    Args:
      features: [tests, points, channels]; tests that are missing count for nothing.
    """
    there = features[features[:, 0, 2] == 0]
    numbers = np.asarray(PlasticSpectrum(input_scale)(there), np.float64)
    mean, deviation = numbers.mean(axis=0), np.maximum(numbers.std(axis=0), 1e-3)
    return [[float(f"{value:.3g}") for value in values] for values in (mean, deviation)]  # type: ignore[return-value]


def _largest(values: Any) -> Any:
    return ops.maximum(ops.max(ops.abs(values), axis=1, keepdims=True), _TINY)


def _sums(values: Any) -> Any:
    """Sums up to each point, [batch, points]: of a link, and of those before it; `cumsum` takes four times as long."""
    links = values.shape[1] // LINK
    within = ops.reshape(values, (-1, links, LINK))
    upper = np.triu(np.ones((LINK, LINK)))
    within = ops.matmul(within, ops.convert_to_tensor(upper, values.dtype))
    earlier = np.triu(np.ones((links, links)), 1)
    behind = ops.matmul(within[:, :, -1], ops.convert_to_tensor(earlier, values.dtype))
    return ops.reshape(within + behind[:, :, None], (-1, links * LINK))


def _modulus(
    way: Any, rise: Any, turns: Any, branch: Any, moving: Any, largest: Any
) -> tuple[Any, list[Any]]:
    """The modulus of each record, [batch, 1], and numbers about it and its slopes, [batch, 1] each.

    The steepest slope between two points with no turn between them is a first guess. A rise that noise might add is
    taken off, so that a short step does not win by its noise. This modulus says which points are elastic, whose mean is
    the next modulus, and so on. The last one is taken from pairs of elastic points.

    Args:
      way, rise: sums of the steps' strain and stress along the direction of the strain, [batch, points].
      turns, branch: whether the strain goes another way from here on, and how often it did so far.
      moving: 1 where the strain is driven on.
      largest: stress, [batch, 1].
    """
    steepest, pairs = _TINY, []
    for lag in _LAGS:
        # The first of the points may be the turn itself.
        alike = ops.equal(branch[:, lag:], branch[:, 1 : branch.shape[1] - lag + 1])
        same = ops.cast(alike, way.dtype) * moving[:, lag:]
        run, up = ((sums[:, lag:] - sums[:, :-lag]) * same for sums in (way, rise))
        slope = ops.max(ops.maximum(up - _NOISE * largest, 0.0) / (run + 1e-7), 1, keepdims=True)
        steepest = ops.maximum(steepest, slope)
        pairs.append((lag, run, up, slope))
    strain = way - _running_maximum(ops.where(turns, before(way), 0.0))
    stress = rise - _running_maximum(ops.where(turns, before(rise), _NOWHERE))
    modulus = steepest
    for share in _PLASTIC_SHARES:
        plastic = strain - stress / modulus
        elastic = plastic < share * strain + _NOISE_SINCE * largest / modulus
        elastic = ops.cast(elastic, way.dtype) * moving
        if share == _PLASTIC_SHARES[-1]:
            break
        weighted = elastic * strain
        over = ops.sum(weighted * strain, 1, keepdims=True) + 1e-5
        modulus = (ops.sum(weighted * stress, 1, keepdims=True) + 1e-5 * modulus) / over
        modulus = ops.clip(modulus, _NEAR[0] * steepest, _NEAR[1] * steepest)
    numbers, above, below = [], 1e-5 * modulus, 1e-5
    for lag, run, up, slope in pairs:
        weighted = run * elastic[:, lag:]
        over = ops.sum(weighted * run, 1, keepdims=True)
        mean = ops.sum(weighted * up, 1, keepdims=True)
        above, below = above + mean, below + over
        mean = (mean + 1e-7 * modulus) / (over + 1e-7) / modulus
        numbers += [ops.log(slope / modulus + 0.05), 4.0 * ops.log(ops.maximum(mean, 0.05))]
        numbers.append(ops.log(over + 1e-7) / 5.0)
    modulus = ops.clip(above / below, _NEAR[0] * steepest, _NEAR[1] * steepest)
    return modulus, [*numbers, ops.log(steepest / modulus), ops.log(below) / 5.0]


def _flow(plastic: Any, steps: Any, direction: Any, turns: Any, branch: Any) -> Any:
    """How much plastic strain each step adds, [batch, points].

    Within a branch, from one turn to the next, plastic strain never goes back: where noise says so, it waits until the
    largest so far is passed. Branches are told apart by an offset, so that one running maximum serves all of them.
    """
    start = direction * before(plastic) + 8.0 * branch
    reach = direction * plastic + 8.0 * branch
    reach = ops.where(turns, ops.maximum(reach, start), reach)
    moves = ops.not_equal(steps, 0.0)
    top = _running_maximum(ops.where(moves, reach, _NOWHERE))
    flow = ops.maximum(top - ops.where(turns, start, before(top)), 0.0)
    return flow * ops.cast(moves, steps.dtype)


def _held(direction: Any) -> Any:
    """Where the strain rests, the direction in which it went before."""
    places = np.arange(1, direction.shape[1] + 1) * 4.0
    places = ops.convert_to_tensor(places, direction.dtype)
    last = _running_maximum(ops.where(ops.equal(direction, 0.0), 0.0, places + direction))
    return last - 4.0 * ops.round(last / 4.0)


def _running_maximum(values: Any) -> Any:
    step = 1
    while step < values.shape[1]:
        later = ops.maximum(values[:, step:], values[:, :-step])
        values = ops.concatenate([values[:, :step], later], axis=1)
        step *= 2
    return values


def _flowing(flow: Any, path: Any, steps: Any, way: Any) -> Any:
    """Weight of each point in the regression: 1 where the specimen flows, 0 where it is elastic."""
    # Not + _TINY, which a graph may add to one of the two sums, where it is lost: 0 / 0 in the padding.
    gone = ops.maximum(way[:, _STEPS:] - way[:, :-_STEPS], _TINY)
    share = (path[:, _STEPS:] - path[:, :-_STEPS]) / gone
    weight = ops.clip((share - _FLOWING) / _SPAN, 0.0, 1.0)
    weight = ops.concatenate([ops.zeros_like(flow[:, :_STEPS]), weight], axis=1)
    return weight * ops.cast(flow > _FLOWING_ALONE * ops.abs(steps), flow.dtype)


# --------------------------------------------------------------------------------------------------
# Where the search for a record's fit begins: a regression of labels, by NumPy alone.


# Groups of a record's points, random hidden units, ridge.
_GROUPS, _UNITS, _RIDGE = 48, 256, 1e-4
_LEAST = 1e-9


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
    extents = np.abs(values).max(axis=1) + _LEAST
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
class SettingChannels(ArgumentsLayer):
    """Time, rate and noise as logarithms, temperature in hundreds of degrees: [batch, points, channels], as the inputs.

    Strain, stress and flag pass; padded points stay zero.

    Args:
      channels: names, the first three of which are strain, stress and flag.
    """

    arguments = ("channels",)

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


class _OfTests(ArgumentsLayer):
    """A layer that knows how many tests a record has, `num_tests`."""

    arguments: tuple[str, ...] = ("num_tests",)

    def __init__(self, num_tests: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_tests = num_tests


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
class TestTokens(ArgumentsLayer):
    """Adds to each test's features a token for its kind: [batch * tests, units] -> [batch * tests, units + token].

    Args:
      tokens: [tests, token], the same for every record.
    """

    __test__ = False  # no case of pytest's
    arguments = ("tokens",)

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


@keras.saving.register_keras_serializable(package="tfmat")
class PoolTests(_OfTests):
    """The mean over the tests of a record that are there: [batch * tests, units] -> [batch, units].

    Called on the features and on the tests [batch * tests, points, channels], whose flags say which are there: a
    missing test is one whose points are all padding.

    Args:
      num_tests: tests of a record.
      flag: the channel that tells padding.
    """

    arguments = ("num_tests", "flag")

    def __init__(self, num_tests: int, flag: int = 2, **kwargs: Any):
        super().__init__(num_tests, **kwargs)
        self.flag = flag

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
# Factors e of a standard deviation, and its share of a label's range.
_MOST_CHANGE, _WIDEST = 6.0, 0.3


def num_numbers(num_labels: int, residuals: int) -> int:
    """How many numbers of a fit the dense layers see; behind them stand as many logits and logarithms as labels."""
    return num_labels * (num_labels + 3) // 2 + 3 + residuals


def num_residuals(num_tests: int, more_than_noise: bool) -> int:
    """How many sums of residuals are told: none where all that is left is noise, which could be learnt by heart."""
    return _RESIDUALS * num_tests if more_than_noise else 0


@keras.saving.register_keras_serializable(package="tfmat")
class LawFit(ArgumentsLayer):
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

    arguments = (
        "settings", "num_labels", "start", "spread", "spectrum", "mean", "deviation", "residuals",
    )  # fmt: skip

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


@keras.saving.register_keras_serializable(package="tfmat")
class AroundFit(ArgumentsLayer):
    """A head's outputs [batch, n], told around a fit [batch, 2 labels], which are the last columns of `LawFit`.

    Args:
      kind: `labels`: from the mode's labels, in their standard deviations; `log_variances`: over those of the fit;
        `posterior`: means and scales of a `PosteriorFlow` in the same way, and all the rest as it is.
    """

    arguments = ("kind",)

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
    least = 1e-3 * np.abs(response).max(axis=1, keepdims=True) + _LEAST
    noise = np.where(noise > 0.0, noise, least)
    return LogitResiduals(law, driven, response, np.where(valid, 1.0 / noise, 0.0))


def _rounded(values: Array) -> list[Any]:
    """Four digits, alike everywhere, as lists."""
    digits = [float(f"{value:.4g}") for value in np.ravel(values)]
    return np.reshape(digits, np.shape(values)).tolist()

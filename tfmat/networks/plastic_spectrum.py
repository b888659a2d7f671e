"""Features of a history with a memory: the plastic spectrum, and memories that fade."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

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

    Records stand last while rows are eliminated, so that every operation goes along long rows. That takes a third of
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
# Standard deviations.
_FARTHEST = 6.0
# How many numbers come of a record.
NUMBERS = SPECTRUM_NUMBERS + 3 * len(_LAGS) + 2 + len(_OFFSETS) + 4


@keras.saving.register_keras_serializable(package="tfmat")
class PlasticSpectrum(keras.layers.Layer):
    """Moduli, plastic path and spectrum of strain-driven tests: [batch, points, channels] -> [batch, numbers].

    Args:
      input_scale: largest strain (-) and stress (MPa) of the data set.
      mean, deviation: of the numbers, [numbers] each: they are told as deviations from the mean in units of the other,
        none beyond six. None leaves them as they are.
    """

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

    def get_config(self) -> dict[str, Any]:
        own = {"input_scale": self.input_scale, "mean": self.mean, "deviation": self.deviation}
        return {**super().get_config(), **own}

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

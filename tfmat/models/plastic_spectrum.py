"""What a record with unloading tells of plasticity, before any weight: its moduli, its plastic path, and its spectrum.

Beyond yield the stress of a law of the Chaboche kind is a sum over rates of fading memories of the direction of flow,
of what hardening has gained, and of the first yield stress. On a fixed grid of rates that sum is linear, so that a
ridge regression finds the amounts: a spectrum, as that of relaxation times in viscoelasticity. From a hundred such
numbers a few dense layers learn in minutes what convolutions over the points do not find in an hour.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

# Rates per unit of plastic strain: of the memories that fade (a metal's knee is at the fast end), and of the gain.
_FADING = (1.0, 1000.0, 10)
_GAINING = (0.5, 50.0, 6)
# Of regressions whose terms are of the order of one for each point: what noise spoils least, and what resolves most.
_RIDGES = (1e-1, 1e-2, 1e-3)
# The first yield stress is in every record, so it is held back less.
_RIDGE_OF_YIELD = 0.1
# Numbers of steps over which a modulus is looked for: noise wants many, a short elastic range few.
_LAGS = (1, 2, 4, 8, 16, 32)
# Rise of stress, as a share of the largest, that noise might feign.
_NOISE = 0.01
# An increment belongs to the flow stress where this share of it is plastic, over four steps and by itself; weights
# rise over the span behind the first. Elastic points among them cost far more than plastic ones left out.
_FLOWING, _SPAN, _FLOWING_ALONE, _STEPS = 0.35, 0.3, 0.4, 4
# Points of one link of the chain of memories; links go side by side.
_LINK = 20
_TINY = 1e-12
_NOWHERE = -1e3


@keras.saving.register_keras_serializable(package="tfmat")
class PlasticSpectrum(keras.layers.Layer):
    """Moduli, plastic path and spectrum of strain-driven tests: [batch, points, channels] -> [batch, numbers].

    Args:
      input_scale: largest strain (-) and stress (MPa) of the data set.
    """

    def __init__(self, input_scale: Sequence[float], **kwargs: Any):
        super().__init__(**kwargs)
        self.input_scale = [float(scale) for scale in input_scale][:2]

    def call(self, inputs: Any) -> Any:
        """See the class; the channels after strain, stress and flag are left alone."""
        largest_strain, largest_stress = self.input_scale
        there = 1.0 - inputs[:, :, 2]
        strain = inputs[:, :, 0] / largest_strain
        stress = inputs[:, :, 1] / largest_stress
        steps = (strain - _before(strain)) * there
        way = ops.cumsum(ops.abs(steps), axis=1)
        modulus, moduli = _moduli(strain, stress, way, there)
        flow, direction = _flow(strain - stress / modulus, steps)
        path = ops.cumsum(flow, axis=1)
        weight = _flowing(flow, path, steps, way) * there
        terms = self._terms(flow * largest_strain, path * largest_strain, direction)
        spectrum = _spectrum(terms, stress, weight)
        extents = [_largest(strain), _largest(stress), path[:, -1:] + 1e-4, modulus / 10.0]
        numbers = [*spectrum, *moduli, *(ops.log(extent) for extent in extents)]
        return ops.concatenate(numbers, axis=1)

    def _terms(self, flow: Any, path: Any, direction: Any) -> Any:
        """What the flow stress is a sum of, for an amount of one each: [batch, points, terms]."""
        gaining = ops.convert_to_tensor(-np.geomspace(*_GAINING), flow.dtype)
        gained = -direction[:, :, None] * ops.expm1(path[:, :, None] * gaining)
        return ops.concatenate([_memories(flow, direction), gained, direction[:, :, None]], axis=2)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """See keras.layers.Layer."""
        terms = _FADING[2] + _GAINING[2] + 1
        return (input_shape[0], len(_RIDGES) * (terms + 1) + terms + 1 + 4 * len(_LAGS) + 4)

    def get_config(self) -> dict[str, Any]:
        """See keras.layers.Layer."""
        return {**super().get_config(), "input_scale": self.input_scale}


def _before(values: Any) -> Any:
    """The point before each point, 0 before the first: [batch, points]."""
    return ops.concatenate([ops.zeros_like(values[:, :1]), values[:, :-1]], axis=1)


def _largest(values: Any) -> Any:
    return ops.maximum(ops.max(ops.abs(values), axis=1, keepdims=True), _TINY)


def _moduli(strain: Any, stress: Any, way: Any, there: Any) -> tuple[Any, list[Any]]:
    """The steepest slope of each record, [batch, 1], and for each lag four numbers about it, [batch, 1] each.

    A slope is that between two points with no turn between them. What noise might add to the rise of stress is taken
    off first, so that a short step does not win by its noise.
    """
    largest, extent = _largest(stress), _largest(strain)
    steepest, numbers = _TINY, []
    for lag in _LAGS:
        run = ops.abs(strain[:, lag:] - strain[:, :-lag])
        straight = (
            ops.cast(run > 0.999 * (way[:, lag:] - way[:, :-lag]), run.dtype) * there[:, lag:]
        )
        run *= straight
        rise = ops.abs(stress[:, lag:] - stress[:, :-lag]) * straight
        sure = ops.maximum(rise - _NOISE * largest, 0.0) / (run + 1e-7)
        slope = ops.max(sure, axis=1, keepdims=True)
        steepest = ops.maximum(steepest, slope)
        elastic = ops.cast(sure > 0.9 * slope, run.dtype)
        over = ops.sum(run * elastic, axis=1, keepdims=True)
        mean = ops.sum(rise * elastic, axis=1, keepdims=True) / (over + 1e-7)
        numbers += [ops.log(slope / 10.0 + 0.01), ops.log(mean / 10.0 + 0.01)]
        numbers += [ops.log(over / extent + 1e-3) / 3.0, ops.log(_largest(run) * 10.0 + 1e-3) / 3.0]
    return (1.0 + _NOISE) * steepest, numbers


def _flow(plastic: Any, steps: Any) -> tuple[Any, Any]:
    """How much plastic strain each step adds, and the direction that the strain goes there: [batch, points] each.

    Within a branch, from one turn to the next, plastic strain never goes back: where noise says so, it waits until the
    largest so far is passed. Branches are told apart by an offset, so that one running maximum serves all of them.
    """
    direction = _held(ops.sign(steps))
    begins = ops.not_equal(direction, _before(direction))
    branch = 8.0 * ops.cumsum(ops.cast(begins, steps.dtype), axis=1)
    start = direction * _before(plastic) + branch
    reach = direction * plastic + branch
    reach = ops.where(begins, ops.maximum(reach, start), reach)
    moves = ops.not_equal(steps, 0.0)
    top = _running_maximum(ops.where(moves, reach, _NOWHERE))
    flow = ops.maximum(top - ops.where(begins, start, _before(top)), 0.0)
    return flow * ops.cast(moves, steps.dtype), direction


def _held(direction: Any) -> Any:
    """Where the strain rests, the direction in which it went before."""
    step = 1
    while step < direction.shape[1]:
        earlier = ops.concatenate([ops.zeros_like(direction[:, :step]), direction[:, :-step]], 1)
        direction = ops.where(ops.equal(direction, 0.0), earlier, direction)
        step *= 2
    return direction


def _running_maximum(values: Any) -> Any:
    step = 1
    while step < values.shape[1]:
        first = ops.full_like(values[:, :step], _NOWHERE)
        values = ops.maximum(values, ops.concatenate([first, values[:, :-step]], axis=1))
        step *= 2
    return values


def _flowing(flow: Any, path: Any, steps: Any, way: Any) -> Any:
    """Weight of each point in the regression: 1 where the specimen flows, 0 where it is elastic."""
    share = (path[:, _STEPS:] - path[:, :-_STEPS]) / (way[:, _STEPS:] - way[:, :-_STEPS] + _TINY)
    weight = ops.clip((share - _FLOWING) / _SPAN, 0.0, 1.0)
    weight = ops.concatenate([ops.zeros_like(flow[:, :_STEPS]), weight], axis=1)
    return weight * ops.cast(flow > _FLOWING_ALONE * ops.abs(steps), flow.dtype)


def _memories(flow: Any, direction: Any) -> Any:
    """Fading memories of the direction of flow, [batch, points, rates]: dm = rate (direction - m) dp, from 0.

    Exact for steps of one direction. The chain of points is cut into links that are computed side by side from 0, and
    then joined.
    """
    points = flow.shape[1]
    links = -(-points // _LINK)
    padding = ((0, 0), (0, links * _LINK - points))
    flow, direction = (
        ops.reshape(ops.pad(values, padding), (-1, links, _LINK, 1)) for values in (flow, direction)
    )
    rates = ops.convert_to_tensor(-np.geomspace(*_FADING), flow.dtype)
    memory, kept = 0.0, 1.0
    memories, keeps = [], []
    for i in range(_LINK):
        keep, towards = ops.exp(flow[:, :, i] * rates), direction[:, :, i]
        memory = (memory - towards) * keep + towards
        kept = kept * keep
        memories.append(memory)
        keeps.append(kept)
    start = ops.zeros_like(memories[0][:, 0])
    starts = []
    for link in range(links):
        starts.append(start)
        start = start * keeps[-1][:, link] + memories[-1][:, link]
    start = ops.stack(starts, axis=1)
    joined = [memory + kept * start for memory, kept in zip(memories, keeps, strict=True)]
    whole = ops.reshape(ops.stack(joined, axis=2), (-1, links * _LINK, _FADING[2]))
    return whole[:, :points]


def _spectrum(terms: Any, stress: Any, weight: Any) -> list[Any]:
    """Amounts of the terms in the stress for each ridge, how well each term is seen, and what is left, in [batch, ...].

    Args:
      terms: [batch, points, terms].
      stress, weight: [batch, points].
    """
    count = terms.shape[2]
    rooted = ops.concatenate([terms, stress[:, :, None]], axis=2) * ops.sqrt(weight)[:, :, None]
    moments = ops.einsum("bpj,bpk->bjk", rooted, rooted)
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
        ops.reshape(ops.arcsinh(6.0 * amounts) / 3.0, (-1, len(_RIDGES) * count)),
        ops.log(shown + 1e-2) / 5.0,
        ops.log(left + 1e-8) / 6.0,
        ops.log(points) / 3.0,
    ]


def _solved(matrices: Any, right: Any) -> Any:
    """Solutions of positive definite systems [..., size, size] and [..., size, 1] by elimination, [..., size, 1].

    Keras's own `solve` is quicker by a tenth of this layer's time, but DTensor has no rule for it.
    """
    rest = ops.concatenate([matrices, right], axis=-1)
    rows = []
    for _ in range(matrices.shape[-1]):
        row = rest[..., :1, 1:] / rest[..., :1, :1]
        rows.append(row)
        rest = rest[..., 1:, 1:] - rest[..., 1:, :1] * row
    solution = rows.pop()
    for row in reversed(rows):
        known = ops.sum(row[..., :-1] * ops.swapaxes(solution, -1, -2), axis=-1, keepdims=True)
        solution = ops.concatenate([row[..., -1:] - known, solution], axis=-2)
    return solution

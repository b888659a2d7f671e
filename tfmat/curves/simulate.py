"""Simulated curves: curve i is a pure function of (law, settings, seed, i), however many are made and by whom."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.curves.apparatus import log_uniform
from tfmat.curves.laboratory import Laboratory
from tfmat.curves.observation import LawStress, Observation, before_break
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulated_tests import fill_tests
from tfmat.errors import InputError
from tfmat.materials import History, Law
from tfmat.materials.law import Array
from tfmat.materials.numerics import rows_in_block

# Goes up with every change that makes another curve i from the same settings and seed.
SIMULATION_VERSION = 1
# Curves of a block share their random generators and are always made together.
BLOCK = 1024
# One generator for each thing that is drawn, so that more noise, say, leaves everything else as it was.
# `Observation` has more, and each test, from `_TESTS` on.
_PARAMETERS, MAX_STRAIN_STREAM, _STRENGTH, _NOISE = range(4)
_TESTS, _STREAMS_OF_TEST = 16, 8
_HISTORY, _TEST_NOISE, _MISFIT, _OFFSET, _MISSING = range(5)

Float32Array = NDArray[np.float32]


@dataclasses.dataclass
class SimulatedCurves:
    """Curves with their labels.

    Attributes:
      features: [curves, points, 3] float32: strain (-), noisy stress (MPa), flag (1 where the point is padding); for
        tests of other kinds see `tfmat.curves.records`.
      labels: [curves, identified parameters] float32, 0-1.
      parameters: [curves, all parameters] float64, in their units.
    """

    features: Float32Array
    labels: Float32Array
    parameters: Array


@dataclasses.dataclass
class _Draws:
    """What is drawn once a curve, for a whole block; [BLOCK] or [BLOCK, parameters]."""

    labels: Array
    parameters: Array
    max_strain: Array | None
    strength: Array | None


class Simulator:
    """Makes the curves of some settings and a seed. Threads may share one."""

    def __init__(self, settings: CurveSettings, seed: int):
        """Raises InputError on a negative seed."""
        if seed < 0:
            raise InputError(f"--seed is {seed}; give 0 or a positive whole number")
        self.settings = settings.resolved()
        self.seed = seed
        self.law: Law = self.settings.build_law()
        self.form = RecordForm.of(self.settings)
        spacing = self.law.strain_spacing
        self._grid = np.linspace(0.0, 1.0, self.settings.num_points) ** spacing
        self._identified = [
            i for i, parameter in enumerate(self.law.parameters) if parameter.fixed is None
        ]

    def curves(self, start: int, stop: int) -> SimulatedCurves:
        """Curves number `start` to `stop` - 1."""
        count = stop - start
        features = np.empty((count, *self.form.shape), np.float32)
        labels = np.empty((count, len(self._identified)), np.float32)
        self.fill(start, stop, features, labels)
        return SimulatedCurves(features, labels, self.parameters(start, stop))

    def parameters(self, start: int, stop: int) -> Array:
        """The parameters of these curves alone: [stop - start, all parameters] float64, in their units."""
        parameters = np.empty((stop - start, len(self.law.parameters)))
        for block, inside, outside in blocks_of(start, stop):
            parameters[outside] = self._draw(block).parameters[inside]
        return parameters

    def fill(self, start: int, stop: int, features: Float32Array, labels: Float32Array) -> None:
        """Writes curves number `start` to `stop` - 1 into given arrays; whole blocks of BLOCK cost no copy.

        Args:
          features: [stop - start, points, 3] float32, C-contiguous or not.
          labels: [stop - start, identified parameters] float32.

        Raises:
          InputError: the law gave stresses that are not finite.
        """
        for block, inside, outside in blocks_of(start, stop):
            draws = self._draw(block)
            labels[outside] = draws.labels[inside]
            if inside == slice(0, BLOCK):
                self._fill_block(block, draws, features[outside])
            else:
                whole = np.empty((BLOCK, *features.shape[1:]), np.float32)
                self._fill_block(block, draws, whole)
                features[outside] = whole[inside]

    def _generator(self, stream: int, block: int) -> np.random.Generator:
        return generator_of(self.seed, block, stream)

    def _draw(self, block: int) -> _Draws:
        # Fixed parameters are drawn too, and not used: fixing one leaves the others as they were.
        drawn = self._generator(_PARAMETERS, block).random((BLOCK, len(self.law.parameters)))
        labels = self.law.sorted_labels(drawn[:, self._identified])
        max_strain = self._draw_ends(block) if self.settings.max_strain else None
        strength = None
        if self.settings.strength_mpa is not None:
            strength = self._generator(_STRENGTH, block).uniform(*self.settings.strength_mpa, BLOCK)
        return _Draws(labels, self.law.from_labels(labels), max_strain, strength)

    def _draw_ends(self, block: int) -> Array:
        """The largest strain of each curve, [BLOCK]."""
        assert self.settings.max_strain is not None
        low, high = self.settings.max_strain
        ends = self._generator(MAX_STRAIN_STREAM, block)
        if self.settings.max_strain_scale == "log":
            return log_uniform((low, high), ends.random(BLOCK))
        return ends.uniform(low, high, BLOCK)

    def _fill_block(self, block: int, draws: _Draws, features: Float32Array) -> None:
        """Writes a whole block, a few rows at a time so that the working set stays in the cache."""
        if self.form.programmes:
            self._fill_tests(block, draws, features)
            return
        assert draws.max_strain is not None
        if self.settings.is_observed:
            fill_observed(
                self.settings,
                functools.partial(generator_of, self.seed, block),
                self._stress,
                draws.max_strain,
                draws.parameters,
                draws.strength,
                self._grid,
                features,
            )
            return
        noise = self._generator(_NOISE, block)
        rows = rows_in_block(self.settings.num_points)
        for first in range(0, BLOCK, rows):
            part = slice(first, min(first + rows, BLOCK))
            strain = draws.max_strain[part, None] * self._grid
            stress = self._stress(strain, draws.parameters[part])
            valid = None if draws.strength is None else before_break(stress, draws.strength[part])
            _write(features[part], strain, self._noisy(stress, noise), valid)

    def _fill_tests(self, block: int, draws: _Draws, features: Float32Array) -> None:
        """Writes a whole block of records of one or several tests."""

        def respond(history: History) -> Array:
            answer = self.law.respond(history, draws.parameters)
            return self._checked(answer, history.driven.shape, "respond()", draws.parameters)

        fill_tests(
            self.settings,
            self.form,
            lambda stream: self._generator(stream, block),
            respond,
            draws.strength,
            features,
        )

    def _stress(self, strain: Array, parameters: Array) -> Array:
        """The law's stress, checked."""
        stress = self.law.stress(strain, parameters)
        return self._checked(stress, strain.shape, "stress()", parameters)

    def _checked(
        self, answer: ArrayLike, shape: tuple[int, ...], method: str, parameters: Array
    ) -> Array:
        """The law's answer, since laws may be a user's own: a NaN here would spoil a training much later."""
        stress = np.asarray(answer)
        if stress.shape != shape:
            raise InputError(
                f"law {self.settings.law}: {method} returned shape {stress.shape} for strain of shape {shape}"
            )
        if not np.isfinite(stress.sum()):
            worst = parameters[~np.isfinite(stress).all(axis=1)][0]
            values = ", ".join(
                f"{parameter.name}={value:g}"
                for parameter, value in zip(self.law.parameters, worst, strict=True)
            )
            raise InputError(
                f"law {self.settings.law} gives a stress that is not finite at {values}; narrow its ranges"
            )
        return stress

    def _noisy(self, stress: Array, generator: np.random.Generator) -> Float32Array:
        """Stress with this block's next noise; the same normal numbers whatever their standard deviation."""
        absolute, relative = self.settings.noise_mpa or 0.0, self.settings.noise_relative
        noisy = stress.astype(np.float32)
        if absolute == 0.0 and relative == 0.0:
            return noisy
        normal = generator.standard_normal(stress.shape, np.float32)
        if relative == 0.0:
            normal *= np.float32(absolute)
        else:
            normal *= np.hypot(np.float32(absolute), np.float32(relative) * noisy)
        noisy += normal
        return noisy


def generator_of(seed: int, block: int, stream: int) -> np.random.Generator:
    """The random numbers of one thing that is drawn, for one block of curves."""
    seeds = np.random.SeedSequence(seed, spawn_key=(stream, block))
    return np.random.Generator(np.random.SFC64(seeds))


def fill_observed(
    settings: CurveSettings | Laboratory,
    generator: Callable[[int], np.random.Generator],
    stress: LawStress,
    ends: Array,
    parameters: Array,
    strength: Array | None,
    grid: Array,
    features: Float32Array,
) -> None:
    """Writes a whole block with the observation model: curves of similarly many recorded points go together.

    Args:
      settings: options of the observation model.
      generator: of a stream of random numbers.
      stress: (strain [rows, points], parameters [rows, p]) -> MPa.
      ends: largest strain of each curve, [BLOCK]; parameters: [BLOCK, p].
      strength: stress at which each curve breaks off, [BLOCK], MPa; None for never.
      grid: places of a curve's points as shares of its largest strain, [points].
      features: [BLOCK, points, 3], written to.
    """
    noise = generator(_NOISE)
    observation = Observation.draw(settings, generator, BLOCK)
    order, points = np.arange(BLOCK), len(grid)
    if observation.counts is not None:
        order = np.argsort(observation.counts, kind="stable")
        points = max(points, int(observation.counts.max()))
    rows = rows_in_block(points)
    for first in range(0, BLOCK, rows):
        chosen = order[first : first + rows]
        strain = ends[chosen, None] * grid
        valid = None
        if strength is not None:
            valid = before_break(stress(strain, parameters[chosen]), strength[chosen])
        part = np.empty((len(chosen), *features.shape[1:]), np.float32)
        observed = observation.stress(stress, strain, parameters[chosen], chosen, noise, grid)
        _write(part, strain, observed.astype(np.float32), valid)
        features[chosen] = part


def _write(
    features: Float32Array, strain: Array, stress: Float32Array, valid: NDArray[np.bool_] | None
) -> None:
    """Writes strain, stress and flag, each [curves, points], into features [curves, points, 3]; None is all valid."""
    if valid is None:
        features[:, :, 0] = strain
        features[:, :, 1] = stress
        features[:, :, 2] = 0.0
        return
    # Products, since masked assignment takes four times as long; adding 0.0 turns -0.0 into 0.0.
    np.multiply(strain, valid, out=features[:, :, 0], casting="same_kind")
    masked = stress * valid
    masked += np.float32(0.0)
    features[:, :, 1] = masked
    np.logical_not(valid, out=features[:, :, 2], casting="unsafe")


def blocks_of(start: int, stop: int) -> list[tuple[int, slice, slice]]:
    """Every block that [start, stop) touches: its number, the rows wanted of it, and where they go."""
    if not 0 <= start <= stop:
        raise ValueError(f"curves {start} to {stop} do not exist")
    pieces = []
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first, last = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
        if first < last:
            inside = slice(first - block * BLOCK, last - block * BLOCK)
            pieces.append((block, inside, slice(first - start, last - start)))
    return pieces

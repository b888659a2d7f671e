"""Noisy copies of curves that hold no noise, such as those of finite-element runs: cheap where runs are not."""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.apparatus import log_uniform
from tfmat.curves.laboratory import Laboratory
from tfmat.curves.observation import STIFFNESS_STREAM
from tfmat.curves.simulate import (
    BLOCK,
    MAX_STRAIN_STREAM,
    Float32Array,
    blocks_of,
    fill_observed,
    generator_of,
)
from tfmat.errors import InputError
from tfmat.materials.law import Array


class NoisyCopies:
    """Rows that are copies of curves; row i is a pure function of (curves, laboratory, seed, i).

    Threads may share one.
    """

    def __init__(
        self,
        strain: Array,
        stress: Array,
        of_row: NDArray[np.int64],
        laboratory: Laboratory,
        *,
        seed: int,
        num_points: int,
    ):
        """
        Args:
          strain, stress: [curves, points], - and MPa, strain rising; NaN beyond the end of a curve.
          of_row: [rows], which curve each row copies.
          laboratory: what it adds.
          num_points: of a copy.
        """
        self._laboratory, self._of_row, self._seed = laboratory, of_row, seed
        self._grid = np.linspace(0.0, 1.0, num_points)
        valid = ~(np.isnan(strain) | np.isnan(stress))
        last = valid.sum(axis=1) - 1
        self._ends = strain[np.arange(len(strain)), last]
        self._strain, self._stress = _continued(strain, stress, last)

    def fill(self, start: int, stop: int, features: Float32Array) -> None:
        """Writes rows `start` to `stop` - 1 into features [rows, points, 3] float32: strain, stress (MPa), flag.

        Raises:
          InputError: a machine is so soft that a specimen would jump.
        """
        for block, inside, outside in blocks_of(start, stop):
            whole = np.empty((BLOCK, *features.shape[1:]), np.float32)
            # Rows beyond the last are made and not used.
            rows = np.arange(block * BLOCK, (block + 1) * BLOCK) % len(self._of_row)
            curves = self._of_row[rows]
            generator = functools.partial(generator_of, self._seed, block)
            ends: Array = self._ends[curves]
            compliance: Array = np.zeros(BLOCK)
            if (limits := self._laboratory.max_strain) is not None:
                ends = np.minimum(ends, generator(MAX_STRAIN_STREAM).uniform(*limits, BLOCK))
            if (limits := self._laboratory.machine_stiffness) is not None:
                compliance = 1.0 / log_uniform(limits, generator(STIFFNESS_STREAM).random(BLOCK))
            fill_observed(
                # The curve with its machine is exact here, where the observation model would have to search.
                dataclasses.replace(self._laboratory, machine_stiffness=None),
                generator,
                self._answer,
                ends,
                np.stack([curves, compliance], axis=1),
                None,
                self._grid,
                whole,
            )
            features[outside] = whole[inside]

    def _answer(self, strain: Array, parameters: Array) -> Array:
        """Stress (MPa) at strains [rows, points] of a curve and its machine: lines between points.

        Args:
          parameters: [rows, 2], the curve and the machine's strain over stress (1/MPa).
        """
        number = parameters[:, 0].astype(np.int64)
        stress = self._stress[number]
        both = self._strain[number] + parameters[:, 1:] * stress
        if (np.diff(both, axis=1) <= 0.0).any():
            raise InputError(
                f"a machine stiffness of {1 / parameters[:, 1].max():g} MPa is too soft for some of the curves, whose "
                "specimens would jump; give a larger --config.data.machine_stiffness"
            )
        first, span = both[:, :1], both[:, -1:] - both[:, :1]
        # One call of `interp` for all: row i stands at 2 i to 2 i + 1.
        row = 2.0 * np.arange(len(strain))[:, None]
        place = np.clip((strain - first) / span, 0.0, 1.0) + row
        found = np.interp(place.ravel(), ((both - first) / span + row).ravel(), stress.ravel())
        return found.reshape(strain.shape)


def _continued(strain: Array, stress: Array, last: NDArray[np.int64]) -> tuple[Array, Array]:
    """The curves with their first line drawn on to zero strain, and their last beyond the end: no NaN is left.

    Args:
      strain, stress: [curves, points]; last: of each curve the place of its end, [curves].

    Returns:
      Strain and stress, [curves, points + 2]; strain rises.
    """
    rows = np.arange(len(strain))
    end, answer = strain[rows, last], stress[rows, last]
    slope = (answer - stress[rows, last - 1]) / (end - strain[rows, last - 1])
    # Twice the end, in as many steps as there are places left.
    step = np.arange(1, strain.shape[1] + 2) / (strain.shape[1] + 1)
    beyond = end[:, None] * (1.0 + step)
    places = np.arange(strain.shape[1] + 1)
    inside = places <= last[:, None]
    index = np.where(inside, 0, places - last[:, None] - 1)
    beyond = np.take_along_axis(beyond, index, axis=1)
    pad = ((0, 0), (0, 1))
    strains = np.where(inside, np.pad(strain, pad, constant_values=np.nan), beyond)
    drawn_on = answer[:, None] + slope[:, None] * (beyond - end[:, None])
    stresses = np.where(inside, np.pad(stress, pad, constant_values=np.nan), drawn_on)
    first_slope = (stress[:, 1] - stress[:, 0]) / (strain[:, 1] - strain[:, 0])
    # A curve that begins at zero gets a point that no strain reaches.
    zero = np.where(strain[:, 0] > 0.0, 0.0, strain[:, 0] - end)
    begin = stress[:, 0] + first_slope * (zero - strain[:, 0])
    return np.column_stack([zero, strains]), np.column_stack([begin, stresses])

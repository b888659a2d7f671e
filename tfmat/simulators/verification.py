"""Runs of the simulation at draws from a specimen's posterior, laid over what was measured of it."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.optimize

from tfmat.curves.laboratory import Laboratory
from tfmat.materials.law import Array
from tfmat.simulators.campaign import Progress, run_campaign
from tfmat.simulators.description import Description
from tfmat.simulators.runs import Outcome

# A zero is normally distributed; it is looked for within so many standard deviations.
_DEVIATIONS = 3.0


@dataclasses.dataclass(frozen=True)
class VerifiedRun:
    """A run at one draw, as the laboratory would have recorded it.

    Attributes:
      values: of all parameters and nuisances.
      failure: why there is no curve; empty where there is one.
      stress: at the measured strains, MPa, with the machine and the zero that fit best.
      rmse_percent: root mean square distance from the measured stress, % of its maximum.
    """

    values: dict[str, float]
    failure: str
    stress: Array | None
    rmse_percent: float | None

    def to_json(self) -> dict[str, Any]:
        """Everything but the curve."""
        return {
            "values": self.values,
            "failure": self.failure,
            "rmse_percent": self.rmse_percent,
        }


def verify(
    description: Description,
    folder: pathlib.Path,
    strain: Array,
    stress: Array,
    samples: Mapping[str, Array],
    *,
    seed: int = 0,
    processes: int = 1,
    progress: Progress | None = None,
) -> list[VerifiedRun]:
    """Runs the simulation at the samples; what these do not tell is drawn from its range, as in training.

    A measured curve has the machine and the zero of its laboratory in it, and a run has neither: those that the
    description knows are fitted to each run, within its ranges.

    Args:
      folder: where runs are stored, so that none is made twice.
      strain, stress: measured, [points], - and MPa.
      samples: of the posterior, name -> values [runs] in the unit; all parameters, and nuisances where they are told.
      seed: of the other nuisances.
    """
    runs = len(next(iter(samples.values())))
    shares = np.random.default_rng(seed).random((runs, len(description.nuisances)))
    nuisances = {
        p.name: p.from_unit_interval(share)
        for p, share in zip(description.nuisances, shares.T, strict=True)
    }
    columns = {**nuisances, **samples}
    drawn = np.column_stack([columns[parameter.name] for parameter in description.drawn])
    campaign = run_campaign(
        description, folder, range(len(drawn)), drawn, processes=processes, progress=progress
    )
    names = [parameter.name for parameter in description.drawn]
    return [
        _verified(
            dict(zip(names, map(float, row), strict=True)),
            outcome,
            description.laboratory,
            strain,
            stress,
        )
        for row, outcome in zip(drawn, campaign.outcomes, strict=True)
        if outcome is not None
    ]


def _verified(
    values: dict[str, float], outcome: Outcome, laboratory: Laboratory, strain: Array, stress: Array
) -> VerifiedRun:
    if outcome.strain is None:
        return VerifiedRun(values, outcome.failure, None, None)
    found = _as_recorded(*outcome.curve(), laboratory, strain, stress)
    rmse = float(np.sqrt(np.mean((found - stress) ** 2)) / np.abs(stress).max())
    return VerifiedRun(values, "", found, 100 * rmse)


def _as_recorded(
    run_strain: Array, run_stress: Array, laboratory: Laboratory, strain: Array, stress: Array
) -> Array:
    """A run's stress at the measured strains with the best machine and zero, where the laboratory has these."""
    ranges: list[Sequence[float]] = [(0.0, 0.0), (0.0, 0.0)]
    if laboratory.machine_stiffness is not None:
        low, high = laboratory.machine_stiffness
        ranges[0] = (1.0 / high, 1.0 / low)
    if laboratory.strain_offset is not None:
        most = _DEVIATIONS * laboratory.strain_offset[1]
        ranges[1] = (-most, most)
    lower, upper = np.array(ranges).T
    free = np.flatnonzero(upper > lower)

    def recorded(shares: Array) -> Array:
        fitted = lower.copy()
        fitted[free] += shares * (upper - lower)[free]
        compliance, zero = fitted
        return np.interp(strain, run_strain + compliance * run_stress + zero, run_stress)

    if not len(free):
        return recorded(np.empty(0))
    fit = scipy.optimize.least_squares(
        lambda shares: recorded(shares) - stress,
        np.full(len(free), 0.5),
        bounds=(0.0, 1.0),
        diff_step=1e-3,
    )
    return recorded(fit.x)

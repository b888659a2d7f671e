"""A cleaned curve put on the points that a model's training curves have."""

import dataclasses

import numpy as np

from tfmat.curves.settings import CurveSettings
from tfmat.curves.tables import MINIMUM_POINTS
from tfmat.errors import InputError
from tfmat.materials.law import Array, Law


@dataclasses.dataclass(frozen=True)
class CurveTarget:
    """The form of the curves that a model was trained on.

    Attributes:
      num_points: points a curve.
      strain_spacing: point i of n stands at max_strain * (i / (n - 1)) ** strain_spacing.
      max_strain: range of the trained curves' ends (-), or None where nothing is known of them.
      max_stress_mpa: the largest strength at which a trained curve broke off, or None without a cut-off.
      strain_measure, stress_measure: the law's own (see Law), or None where there is no law: nothing is converted.
      law: with the trained ranges; what is implausible for it is warned about. None checks nothing.
    """

    num_points: int
    strain_spacing: float = 1.0
    max_strain: tuple[float, float] | None = None
    max_stress_mpa: float | None = None
    strain_measure: str | None = None
    stress_measure: str | None = None
    law: Law | None = None

    @classmethod
    def of(cls, settings: CurveSettings, law: Law) -> "CurveTarget":
        """The form of the curves that these settings make."""
        settings = settings.resolved()
        form = cls(
            num_points=settings.num_points,
            strain_spacing=law.strain_spacing,
            max_strain=settings.max_strain,
            max_stress_mpa=settings.strength_mpa[1] if settings.strength_mpa else None,
        )
        if law.strain_measure == "nominal":
            return form
        return dataclasses.replace(
            form, strain_measure=law.strain_measure, stress_measure=law.stress_measure, law=law
        )

    @classmethod
    def of_tests(cls, law: Law) -> "CurveTarget":
        """The form of tests as they are measured, for a law that takes tests."""
        return cls(2, strain_measure=law.strain_measure, stress_measure=law.stress_measure, law=law)


def resample(
    strain: Array, stress_mpa: Array, target: CurveTarget
) -> tuple[Array, Array, np.ndarray]:
    """Puts a cleaned curve on the points of the trained curves.

    Where several measured points share a grid cell (reaching half-way to the neighbouring grid points) their mean
    strain and mean stress stand for them, so that the noise of a densely measured curve falls as it should; cells
    without a point are bridged by straight lines. The curve begins at (0, 0) and is drawn on straight from its last
    two means to its very end. A curve that ends before the shortest trained one is padded.

    Returns:
      strain [num_points], -; stress [num_points], MPa; valid [num_points], bool, False where padded.
    """
    end = float(strain[-1])
    low, high = target.max_strain or (end, end)
    grid = (
        min(max(end, low), high) * np.linspace(0.0, 1.0, target.num_points) ** target.strain_spacing
    )
    valid = grid <= end * (1 + 1e-12)
    if np.count_nonzero(valid) < MINIMUM_POINTS:
        raise InputError(
            f"it ends at strain {end:.3g}, far before {low:.3g} where the shortest trained curves end; "
            "measure further or choose a model for smaller strains"
        )
    cell = np.searchsorted((grid[1:] + grid[:-1]) / 2, strain)
    count = np.bincount(cell, minlength=len(grid))
    held = count > 0
    strain = np.bincount(cell, strain, len(grid))[held] / count[held]
    stress = np.bincount(cell, stress_mpa, len(grid))[held] / count[held]
    if strain[0] > 0:
        strain, stress = np.insert(strain, 0, 0.0), np.insert(stress, 0, 0.0)
    slope = (stress[-1] - stress[-2]) / (strain[-1] - strain[-2]) if len(strain) > 1 else 0.0
    strain, stress = (
        np.append(strain, end),
        np.append(stress, stress[-1] + slope * (end - strain[-1])),
    )
    return np.where(valid, grid, 0.0), np.where(valid, np.interp(grid, strain, stress), 0.0), valid

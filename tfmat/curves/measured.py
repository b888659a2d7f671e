"""A measured curve made into what a law and its network expect: cleaned, converted, on the law's own points.

Every step is recorded in words. The cleaning is deliberately small: nothing is smoothed but by averaging points that
share a grid cell, and nothing is fitted.
"""

import collections
import dataclasses
import os
from collections.abc import Callable, Sequence

import numpy as np

from tfmat.curves.reading import MINIMUM_POINTS, RawCurve, ReadingOptions, read_curve
from tfmat.curves.resampling import CurveTarget, resample
from tfmat.errors import InputError
from tfmat.materials.law import Array

# A stress that stays this far under the maximum until the end is taken for what follows failure.
FAILED_BELOW = 0.95


@dataclasses.dataclass
class MeasuredCurve:
    """A cleaned curve in the law's own strain and stress.

    Attributes:
      name: for reports.
      strain: [points], -, rising, within the trained range; stress_mpa: [points], MPa.
      steps: what was done to it, in words, in order.
      warnings: what should make the reader of an answer careful.
    """

    name: str
    strain: Array
    stress_mpa: Array
    steps: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)


def load_measured_curve(
    path: str | os.PathLike, target: CurveTarget, options: ReadingOptions | None = None
) -> MeasuredCurve:
    """Reads and cleans one file; raises InputError, one line that names the file, for what cannot be a curve."""
    raw = read_curve(path, options)
    try:
        curve = clean(raw, target)
        resample(curve.strain, curve.stress_mpa, target)
        return curve
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def load_measured_curves(
    paths: Sequence[str | os.PathLike],
    target: CurveTarget,
    options: ReadingOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[MeasuredCurve], list[InputError]]:
    """Reads every file, and goes on after a bad one, so that a user sees all of them at once.

    Args:
      progress: called with (done, total) after each file.

    Returns:
      The curves of the good files, and one error for each bad one. Curves whose files have the same name in
      different folders are called by their paths.
    """
    curves, errors = [], []
    for done, path in enumerate(paths, start=1):
        try:
            curve = load_measured_curve(path, target, options)
            curves.append((path, curve))
        except InputError as error:
            errors.append(error)
        if progress:
            progress(done, len(paths))
    names = collections.Counter(curve.name for _, curve in curves)
    for path, curve in curves:
        if names[curve.name] > 1:
            curve.name = os.fspath(path)
    return [curve for _, curve in curves], errors


def clean(raw: RawCurve, target: CurveTarget) -> MeasuredCurve:
    """Cleans a curve as it was measured; raises InputError for what cannot be a curve."""
    curve = MeasuredCurve(raw.name, raw.strain, raw.stress_mpa, list(raw.steps))
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"it has {len(curve.strain)} points; a curve needs at least {MINIMUM_POINTS}"
        )
    if curve.strain.max() <= 0 or curve.stress_mpa.max() <= 0:
        raise InputError(
            "strain and stress never rise above zero; compression is given with positive numbers"
        )
    _start_at_zero(curve)
    _keep_rising_strain(curve)
    if target.strain_measure == "engineering shear":
        _cut_after_failure(curve)
        if raw.tensor_strain:
            curve.warnings.append(
                "its strain column is called epsilon but was taken as the engineering shear strain gamma; "
                "if it is the tensor component (gamma / 2), double it"
            )
    elif target.strain_measure is not None:
        _cut_metal(curve, raw, target)
    _cut_to_trained_stress(curve, target)
    _cut_to_trained_range(curve, target)
    curve.steps.append(
        f"put it on {target.num_points} points: means where measured points are dense, lines between"
    )
    return curve


def _keep(curve: MeasuredCurve, kept: np.ndarray, step: str) -> None:
    """Keeps some points; says so only where points were dropped."""
    dropped = np.count_nonzero(~kept)
    if dropped:
        curve.strain, curve.stress_mpa = curve.strain[kept], curve.stress_mpa[kept]
        curve.steps.append(f"{step} ({dropped} point{'s' if dropped > 1 else ''} dropped)")


def _start_at_zero(curve: MeasuredCurve) -> None:
    """Takes off the reading of an extensometer that was not zeroed, then drops what lies before zero strain."""
    offset = curve.strain[0]
    unloaded = abs(curve.stress_mpa[:3].mean()) < 0.01 * curve.stress_mpa.max()
    if unloaded and abs(offset) > 0.02 * np.ptp(curve.strain):
        curve.strain = curve.strain - offset
        curve.steps.append(f"took {offset:.4g} off the strain, its reading before the load")
    _keep(curve, curve.strain >= 0, "dropped negative strains before the start")


def _keep_rising_strain(curve: MeasuredCurve) -> None:
    """Keeps the points whose strain exceeds that of every earlier point."""
    if len(curve.strain):
        earlier = np.maximum.accumulate(np.concatenate([[-np.inf], curve.strain[:-1]]))
        _keep(curve, curve.strain > earlier, "kept the points where strain rises")
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"its strain rises at {len(curve.strain)} points only; a curve needs at least {MINIMUM_POINTS} "
            "points of rising strain (are the columns the right ones?)"
        )


def _cut_after_failure(curve: MeasuredCurve) -> None:
    standing = np.flatnonzero(curve.stress_mpa >= FAILED_BELOW * curve.stress_mpa.max())
    _keep(curve, np.arange(len(curve.strain)) <= standing[-1], "cut after failure")


def _cut_metal(curve: MeasuredCurve, raw: RawCurve, target: CurveTarget) -> None:
    """Cuts a tension test where the specimen necks and converts it to the law's strain and stress."""
    named = raw.strain_measure or raw.stress_measure
    strain_measure = raw.strain_measure or named or "engineering"
    stress_measure = raw.stress_measure or named or "engineering"
    engineering_strain = np.expm1(curve.strain) if strain_measure == "true" else curve.strain
    if stress_measure == "engineering":
        # Beyond the maximum load the strain is no longer the same along the specimen.
        last = int(curve.stress_mpa.argmax())
        kept = np.arange(len(curve.strain)) <= last
        engineering_strain = engineering_strain[kept]
        _keep(curve, kept, f"cut after the maximum load at strain {curve.strain[last]:.4g}")
    else:
        kept = (
            np.arange(len(curve.strain))
            <= np.flatnonzero(curve.stress_mpa >= FAILED_BELOW * curve.stress_mpa.max())[-1]
        )
        engineering_strain = engineering_strain[kept]
        _keep(curve, kept, "cut after failure")
    _convert(curve, engineering_strain, (strain_measure, stress_measure), target)
    if named is None and target.stress_measure != "engineering":
        curve.steps.append(
            "the columns do not say so, but were taken as engineering strain and stress"
        )


def _convert(
    curve: MeasuredCurve, engineering_strain: Array, measures: tuple[str, str], target: CurveTarget
) -> None:
    """Converts strain and stress to the law's measures, at constant volume."""
    strain_measure, stress_measure = measures
    if strain_measure != target.strain_measure:
        to_true = target.strain_measure == "true"
        curve.strain = np.log1p(engineering_strain) if to_true else engineering_strain
        formula = "ln(1 + e)" if to_true else "exp(e) - 1"
        curve.steps.append(
            f"converted {strain_measure} strain e to {target.strain_measure} strain {formula}"
        )
    if stress_measure != target.stress_measure:
        to_true = target.stress_measure == "true"
        stretch = 1 + engineering_strain
        curve.stress_mpa = curve.stress_mpa * stretch if to_true else curve.stress_mpa / stretch
        formula = "s (1 + e)" if to_true else "s / (1 + e)"
        curve.steps.append(
            f"converted {stress_measure} stress s to {target.stress_measure} stress {formula}"
        )


def _cut_to_trained_stress(curve: MeasuredCurve, target: CurveTarget) -> None:
    if target.max_stress_mpa is None or curve.stress_mpa.max() <= target.max_stress_mpa:
        return
    largest, limit = float(curve.stress_mpa.max()), target.max_stress_mpa
    # Like the trained curves, which hold the first point above their strength.
    kept = np.arange(len(curve.strain)) <= int((curve.stress_mpa > limit).argmax())
    _keep(curve, kept, f"cut at {limit:.4g} MPa, the largest trained strength")
    curve.warnings.append(
        f"the stress goes on to {largest:.4g} MPa, beyond {limit:.4g} MPa, the largest trained strength; "
        "only the part before was used"
    )
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"{len(curve.strain)} of its points lie below {limit:.4g} MPa, the largest trained strength; at least "
            f"{MINIMUM_POINTS} are needed (its stress goes to {largest:.4g} MPa; is --stress_unit right?)"
        )


def _cut_to_trained_range(curve: MeasuredCurve, target: CurveTarget) -> None:
    end = float(curve.strain[-1])
    if target.max_strain is not None:
        low, high = target.max_strain
        far = "; if it is in percent, say --strain_unit=%" if end > 10 * high else ""
        if end > high:
            _keep(
                curve,
                curve.strain <= high,
                f"cut at strain {high:.4g}, the end of the trained range",
            )
            curve.warnings.append(
                f"the curve goes on to strain {end:.4g}, beyond {high:.4g} where the trained range ends; "
                f"only the part before was used{far}"
            )
        elif end < low:
            curve.warnings.append(
                f"the curve ends at strain {end:.4g}, before {low:.4g} where the shortest trained curves end; "
                "the rest is padding and the answer is less certain"
            )
        if len(curve.strain) < MINIMUM_POINTS:
            raise InputError(
                f"{len(curve.strain)} of its points lie below strain {high:.4g}, the end of the trained range; "
                f"at least {MINIMUM_POINTS} are needed (its strain goes to {end:.4g}{far})"
            )
    if len(curve.strain) < MINIMUM_POINTS:
        raise InputError(
            f"{len(curve.strain)} points are left of it; a curve needs at least {MINIMUM_POINTS}"
        )

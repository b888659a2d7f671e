"""Where a tension specimen necks: there a curve ends for every law."""

import numpy as np

from tfmat.curves.caveats import Caveat
from tfmat.curves.cleaning import MeasuredCurve, cut_after_failure, keep
from tfmat.materials.law import Array

# A true curve whose load falls by no more than this share is left whole: such a record ends about at its maximum load.
_CLEAR_FALL = 0.02
# No specimen strains so far without a neck: the strain is in percent, or the material is none of metal.
_LONGEST_TRUE_STRAIN = 1.5
# An upper yield point: the load falls by a share of it within this strain, and stays there for as much again.
_LATEST_YIELD, _YIELD_DROP, _DEEPEST_YIELD_DROP = 0.03, 0.005, 0.35
_NOT_NECKING = (
    "if it is compression or torsion, or was corrected for necking, say --nocut_after_failure"
)


def cut_at_maximum_load(curve: MeasuredCurve, measures: tuple[str, str]) -> None:
    """Cuts a tension test where the specimen necks: beyond, the strain is no longer the same along it.

    With true stress the load has its maximum where stress over stretch, the engineering stress, has it (Considère).

    Args:
      measures: of its strain and its stress, `engineering` or `true`.
    """
    advice, load = "", curve.stress_mpa
    if measures[1] == "true":
        if curve.strain.max() > _LONGEST_TRUE_STRAIN:
            cut_after_failure(curve)
            return
        advice, load = _NOT_NECKING, engineering_stress(curve.strain, curve.stress_mpa, measures)
        last = index_of_maximum_load(curve.strain, load, running_mean(load))
    else:
        last = index_of_maximum_load(curve.strain, load, load)
    if measures[1] == "true" and _falls_little(running_mean(load)[last:]):
        return
    strain, end = curve.strain[last], curve.strain.max()
    if end > 1.05 * strain:
        curve.warnings.append(
            Caveat(
                "necking",
                f"from the maximum load at strain {strain:.3g} to the end at {end:.3g} the specimen necks, which the "
                "law does not describe; only the part before was used",
                advice,
            )
        )
    keep(
        curve,
        np.arange(len(curve.strain)) <= last,
        f"cut after the maximum load at strain {strain:.4g}, where necking starts",
    )


def engineering_stress(strain: Array, stress: Array, measures: tuple[str, str]) -> Array:
    """Load over the first cross-section, [points], of a curve in these measures, at constant volume."""
    if measures[1] == "engineering":
        return stress
    return stress * np.exp(-strain) if measures[0] == "true" else stress / (1.0 + strain)


def _falls_little(load: Array) -> bool:
    return bool(load.min() > (1.0 - _CLEAR_FALL) * load[0])


def index_of_maximum_load(strain: Array, load: Array, smooth: Array) -> int:
    """The point of maximum load; an upper yield point, from which the load falls to a plateau, is none (ISO 6892-1).

    Args:
      strain, load: [points], in the order in which they were measured; smooth: the load without its noise, [points].
    """
    top = int(load.argmax())
    end = strain[top] + _YIELD_DROP
    later = np.flatnonzero((strain > end) & (np.arange(len(strain)) > top))
    if strain[top] > _LATEST_YIELD or not len(later):
        return int(smooth.argmax())
    plateau = load[later[strain[later] < end + _YIELD_DROP]]
    fall = load[top] - plateau[0] if len(plateau) else 0.0
    drops = _CLEAR_FALL * load[top] < fall < _DEEPEST_YIELD_DROP * load[top]
    if drops and np.abs(plateau - plateau[0]).max() < 0.25 * fall:
        return int(later[smooth[later].argmax()])
    return int(smooth.argmax())


def running_mean(values: Array) -> Array:
    """Running means over a fiftieth of the points, [points]; the ends as they are."""
    half = len(values) // 100
    if not half:
        return values
    smooth = values.copy()
    windows = np.lib.stride_tricks.sliding_window_view(values, 2 * half + 1)
    smooth[half : len(values) - half] = windows.mean(axis=1)
    return smooth

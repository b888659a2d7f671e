"""Where a tension specimen necks: there a curve ends for every law."""

import numpy as np

from tfmat.curves.caveats import Caveat
from tfmat.curves.cleaning import MeasuredCurve, cut_after_failure, keep
from tfmat.curves.load_maximum import engineering_stress, index_of_maximum_load, running_mean
from tfmat.materials.law import Array

# A true curve whose load falls by no more than this share is left whole: such a record ends about at its maximum load.
_CLEAR_FALL = 0.02
# No specimen strains so far without a neck: the strain is in percent, or the material is none of metal.
_LONGEST_TRUE_STRAIN = 1.5
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


def _falls_little(load: Array) -> bool:
    return bool(load.min() > (1.0 - _CLEAR_FALL) * load[0])

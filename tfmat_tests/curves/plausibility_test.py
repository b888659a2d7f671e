"""A modulus that no curve of the law has is warned about, with the unit that would explain it."""

import numpy as np
import pytest

from tfmat.curves.caveats import reasons_not_to_use
from tfmat.curves.measured import clean
from tfmat.curves.reading import RawCurve
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator

TARGETS = {
    law: CurveTarget.of(settings := CurveSettings(law=law), settings.build_law())
    for law in ("voce", "hahn_tsai", "ramberg_osgood")
}


def steel(strain):
    """E = 193 GPa, yield at 270 MPa, MPa in true measures."""
    return np.minimum(193e3 * strain, 270 + 1500 * strain)


@pytest.mark.parametrize(
    ("strain_factor", "stress_factor", "hint"),
    [
        (1, 1, None),
        (1, 1e-3, "--stress_unit=GPa"),
        (1, 1 / 6.894757, "--stress_unit=ksi"),
        (1, 145.04, "--stress_unit=psi"),
        (1, 1e6, "--stress_unit=Pa"),
        (100, 1, "--strain_unit=%"),
        (1, 1e-5, "a unit is wrong, or the law is not for this material"),
    ],
)
def test_mistaken_units_of_steel(strain_factor, stress_factor, hint):
    strain = 0.3 * np.linspace(0, 1, 300) ** 2
    raw = RawCurve("a", strain * strain_factor, steel(strain) * stress_factor, "true", "true")
    curve = clean(raw, TARGETS["voce"])
    assert bool(reasons_not_to_use(curve.warnings)) == (hint is not None)
    if hint:
        assert any(hint in str(line) for line in curve.warnings)


@pytest.mark.parametrize("law", TARGETS)
def test_curves_of_the_law_are_plausible(law):
    for curve in np.array(Simulator(CurveSettings(law=law), 5).curves(0, 150).features, float):
        strain, stress = curve[curve[:, 2] == 0, :2].T
        cleaned = clean(RawCurve("a", strain, stress, "true", "true"), TARGETS[law])
        assert reasons_not_to_use(cleaned.warnings) == []

"""The example of a bent beam in a real CalculiX, beside beam theory."""

import numpy as np
import pytest

from tfmat.specimens.campaign import run_campaign
from tfmat.specimens.description import read_description
from tfmat_tests.specimens.calculix import EXAMPLES, needs_ccx

WIDTH, HEIGHT, INNER, OUTER, POISSON = 6.0, 6.0, 20.0, 60.0, 0.3
ARM, INERTIA = (OUTER - INNER) / 2, WIDTH * HEIGHT**3 / 12
# Cowper, J. Appl. Mech. 33 (1966) 335: a rectangular section.
SHEAR = 10 * (1 + POISSON) / (12 + 11 * POISSON)


@pytest.fixture(scope="module")
def nearly_perfect(tmp_path_factory):
    """Displacement (mm) and force (N) of a beam with E 100 GPa that yields at 400 MPa and hardens by 1 kPa."""
    description = read_description(EXAMPLES / "four_point_bend")
    names = [parameter.name for parameter in description.drawn]
    assert names == ["E", "sigma0", "Q", "b", "height", "inner_span"]
    drawn = np.array([[100e3, 400.0, 1e-3, 50.0, HEIGHT, INNER]])
    folder = tmp_path_factory.mktemp("runs")
    (outcome,) = run_campaign(description, folder, [0], drawn, processes=1).outcomes
    assert outcome.failure == "" and outcome.strain[0] == outcome.stress[0] == 0.0
    curve = description.curve
    return outcome.strain * curve.gauge_length, outcome.stress * curve.area


@needs_ccx
def test_the_elastic_stiffness_is_that_of_a_beam_with_shear(nearly_perfect):
    displacement, force = nearly_perfect
    youngs = 100e3
    bending = ARM * (ARM**2 / 3 + ARM * INNER / 2) / (youngs * INERTIA)
    shear = ARM / (SHEAR * WIDTH * HEIGHT * youngs / (2 * (1 + POISSON)))
    elastic = displacement < 0.3
    assert elastic.sum() > 5
    expected = displacement[elastic] * 2 / (bending + shear)
    np.testing.assert_allclose(force[elastic], expected, rtol=3e-3, atol=1e-9)


@needs_ccx
def test_the_curve_is_that_of_an_elastic_perfectly_plastic_beam(nearly_perfect):
    """M = 3/2 M_e (1 - (κ_e/κ)²/3), the moment of a rectangular section; deflections by integrating the curvature."""
    displacement, force = nearly_perfect
    youngs, yields = 100e3, 400.0
    first_moment = yields * WIDTH * HEIGHT**2 / 6
    first_curvature = 2 * yields / (youngs * HEIGHT)
    share = np.linspace(0, 1, 2001)  # from the outer roller to the inner one
    forces = 2 * first_moment / ARM * np.linspace(0, 1.495, 400)
    moments = forces[:, None] / 2 * ARM * share / first_moment
    plastic = np.sqrt(np.maximum(3 - 2 * moments, 1e-12))
    curvature = first_curvature * np.where(moments < 1, moments, 1 / plastic)
    beyond = ARM**2 * np.trapezoid(curvature * share, share, axis=1)
    shear = forces / 2 * ARM / (SHEAR * WIDTH * HEIGHT * youngs / (2 * (1 + POISSON)))
    deflection = beyond + curvature[:, -1] * ARM * INNER / 2 + shear
    # Beyond 1.5 mm the slope of the beam makes its arm shorter, which this theory does not know.
    compared = displacement < 1.5
    assert compared.sum() > 20 and deflection[-1] > 1.5
    expected = np.interp(displacement[compared], deflection, forces)
    np.testing.assert_allclose(force[compared], expected, rtol=0.015)
    # Nearly the whole section yields at the end: one and a half times the moment at which the first fibre does.
    assert force[-1] / 2 * ARM / first_moment == pytest.approx(1.5, rel=0.03)

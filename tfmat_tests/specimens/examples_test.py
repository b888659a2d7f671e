"""The examples of simulated specimens in a real CalculiX, beside beam theory."""

import dataclasses
import re
import shutil

import msgspec
import numpy as np
import pytest

from tfmat.materials import find_law
from tfmat.materials.cards import card_text
from tfmat.specimens.campaign import Solver, read_description, run_campaign, try_once
from tfmat.specimens.emulator import write_law
from tfmat_tests.mpi import PROJECT
from tfmat_tests.specimens.calculix import EXAMPLES, needs_ccx
from tfmat_tests.specimens.forward_test import FACTS, a_network

# What the examples of simulated specimens have in common, in a real CalculiX.


STATIC = re.compile(r"(?<=\*STATIC\n)([^,]+),([^,]+),([^,]+),(\S+)")


def patient(folder):
    """The description of a folder, for a machine that has much else to do."""
    return msgspec.structs.replace(read_description(folder), time_limit=500.0)


# Each stands for both, and with --all each test has both.
BAR_WITH_ALL, BEND_WITH_ALL = (
    pytest.param(name, marks=pytest.mark.large) for name in ("notched_bar", "four_point_bend")
)


@pytest.fixture(scope="module")
def example(request, tmp_path_factory):
    """A description, and what its run ended with."""
    description = patient(EXAMPLES / request.param)
    return description, try_once(description, tmp_path_factory.mktemp("runs"))


@needs_ccx
@pytest.mark.parametrize("example", [BAR_WITH_ALL, "four_point_bend"], indirect=True)
def test_finer_increments_change_a_curve_by_less_than_noise(tmp_path, example):
    """Four times as many increments move it by 0.1 % of the maximum, root mean square, and nowhere by 0.4 %."""
    description, outcome = example
    finer = tmp_path / description.name
    shutil.copytree(description.folder, finer)
    (deck,) = finer.glob("*.inp")
    text, steps = STATIC.subn(
        lambda found: f"{float(found[1]) / 4:g},{found[2]},1e-8,{float(found[4]) / 4:g}",
        deck.read_text(),
    )
    assert steps == 2
    deck.write_text(text)
    outcomes = (outcome, try_once(patient(finer), tmp_path / "runs"))
    # At the end of the knee lines between the increments would be off by more.
    assert min(len(each.strain) for each in outcomes) > 40
    one, two = (each.curve()[1] for each in outcomes)
    off = (one - two)[20:] / two.max()
    assert np.sqrt(np.mean(off**2)) < 1e-3 and np.abs(off).max() < 4e-3


@needs_ccx
@pytest.mark.parametrize("example", ["notched_bar", BEND_WITH_ALL], indirect=True)
def test_the_card_of_a_specimen_makes_the_specimen(tmp_path, example):
    """In place of the deck's own material the card gives the same curve within 0.2 % of the maximum."""
    of, outcome = example
    facts = dataclasses.replace(FACTS, material=of.material, constants=of.constants)
    spec = write_law(tmp_path / "a_law.py", a_network(), of.drawn, of.laboratory, facts)
    law = find_law(spec)
    values = {p.name: float(p.from_unit_interval(0.5)) for p in law.parameters}
    card = card_text("calculix", law, values, tested=0.03, name="metal")
    assert "law voce: " in card and "a nominal strain of 0.03 of the specimen (A bar)" in card
    other = tmp_path / of.name
    shutil.copytree(of.folder, other)
    (deck,) = other.glob("*.inp")
    text = deck.read_text()
    begin, end = text.index("*MATERIAL"), text.index("*PLASTIC")
    end = text.index("*", text.index("{% endfor -%}", end))
    # A comment holds the values, as a deck that no value changes would be refused.
    values_in = "** {{ E }} {{ hardening[5][0] }}\n"
    deck.write_text(values_in + text[:begin] + card + text[end:])
    own = outcome.curve()[1]
    by_card = try_once(patient(other), tmp_path / "others").curve()[1]
    assert np.abs(own - by_card).max() < 2e-3 * own.max()


# The example of a bent beam in a real CalculiX, beside beam theory.


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


# The example of a notched bar in a real CalculiX.


@needs_ccx
def test_the_peak_force_is_that_of_the_published_mesh_study(tmp_path):
    """89.7 N in a sector of 2 degrees for E 200 GPa, Voce 300, 300 MPa, 8; 89.7 N again with 800 elements."""
    description = read_description(EXAMPLES / "notched_bar")
    assert [parameter.name for parameter in description.drawn] == [
        "sigma0",
        "Q",
        "b",
        "notch_radius",
    ]
    drawn = np.array([[300.0, 300.0, 8.0, 3.0]])
    (outcome,) = run_campaign(description, tmp_path, [0], drawn, processes=1).outcomes
    assert outcome.failure == "" and outcome.strain[0] == outcome.stress[0] == 0.0
    assert outcome.strain[-1] == pytest.approx(1.2 / 30) and len(outcome.strain) > 25
    force = outcome.stress * description.curve.area / description.curve.force_factor
    assert force.max() == pytest.approx(89.7, abs=0.1)


@needs_ccx
def test_the_page_shows_a_description_that_works(tmp_path):
    example = EXAMPLES / "notched_bar"
    page = (PROJECT / "docs" / "finite_elements.md").read_text("utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    for name in ("bar.inp", "simulator.py"):
        shutil.copy(example / name, tmp_path)
    # The page leaves two of the three parameters out.
    others = "".join(
        f'[parameters.{name}]\nunit = "MPa"\nlow = 1\nhigh = 2\n' for name in ("Q", "b")
    )
    (tmp_path / "simulator.toml").write_text(shown + others)
    found, shipped = read_description(tmp_path), read_description(example)
    assert Solver(found).deck(np.ones(4)).texts and found.curve == shipped.curve
    assert found.command == shipped.command and found.laboratory.noise_of_maximum

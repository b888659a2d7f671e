"""The example of a notched bar in a real CalculiX."""

import re
import shutil

import numpy as np
import pytest

from tfmat.specimens.campaign import run_campaign
from tfmat.specimens.description import read_description
from tfmat.specimens.runs import Solver
from tfmat_tests.mpi import PROJECT
from tfmat_tests.specimens.calculix import EXAMPLES, needs_ccx


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

"""What the examples of simulated specimens have in common, in a real CalculiX."""

import re
import shutil

import numpy as np
import pytest

from tfmat.simulators.campaign import try_once
from tfmat.simulators.description import read_description
from tfmat_tests.simulators.calculix import EXAMPLES, needs_ccx

STATIC = re.compile(r"(?<=\*STATIC\n)([^,]+),([^,]+),([^,]+),(\S+)")


@needs_ccx
@pytest.mark.parametrize("name", ["notched_bar", "four_point_bend"])
def test_finer_increments_change_a_curve_by_less_than_noise(tmp_path, name):
    """Four times as many increments move it by 0.1 % of the maximum, root mean square, and nowhere by 0.4 %."""
    example, finer = EXAMPLES / name, tmp_path / name
    shutil.copytree(example, finer)
    (deck,) = finer.glob("*.inp")
    text, steps = STATIC.subn(
        lambda found: f"{float(found[1]) / 4:g},{found[2]},1e-8,{float(found[4]) / 4:g}",
        deck.read_text(),
    )
    assert steps == 2
    deck.write_text(text)
    curves = []
    for folder in (example, finer):
        outcome = try_once(read_description(folder), tmp_path / "runs")
        curves.append(outcome.curve()[1])
        # At the end of the knee lines between the increments would be off by more.
        assert len(outcome.strain) > 40
    one, two = curves
    off = (one - two)[20:] / two.max()
    assert np.sqrt(np.mean(off**2)) < 1e-3 and np.abs(off).max() < 4e-3

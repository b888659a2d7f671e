"""What the examples of simulated specimens have in common, in a real CalculiX."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

from tfmat.cards.registry import card_text
from tfmat.materials import find_law
from tfmat.simulators.campaign import try_once
from tfmat.simulators.description import read_description
from tfmat.simulators.law_file import write_law
from tfmat_tests.simulators.calculix import EXAMPLES, needs_ccx
from tfmat_tests.simulators.forward_test import FACTS, a_network

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


@needs_ccx
@pytest.mark.parametrize("name", ["notched_bar", "four_point_bend"])
def test_the_card_of_a_specimen_makes_the_specimen(tmp_path, name):
    """In place of the deck's own material the card gives the same curve within 0.2 % of the maximum."""
    example = read_description(EXAMPLES / name)
    facts = dataclasses.replace(FACTS, material=example.material, constants=example.constants)
    spec = write_law(tmp_path / "a_law.py", a_network(), example.drawn, example.laboratory, facts)
    law = find_law(spec)
    values = {p.name: float(p.from_unit_interval(0.5)) for p in law.parameters}
    card = card_text("calculix", law, values, tested=0.03, name="metal")
    assert "law voce: " in card and "a nominal strain of 0.03 of the specimen (A bar)" in card
    other = tmp_path / name
    shutil.copytree(EXAMPLES / name, other)
    (deck,) = other.glob("*.inp")
    text = deck.read_text()
    begin, end = text.index("*MATERIAL"), text.index("*PLASTIC")
    end = text.index("*", text.index("{% endfor -%}", end))
    # A comment holds the values, as a deck that no value changes would be refused.
    values_in = "** {{ E }} {{ hardening[5][0] }}\n"
    deck.write_text(values_in + text[:begin] + card + text[end:])
    own = try_once(example, tmp_path / "runs").curve()[1]
    by_card = try_once(read_description(other), tmp_path / "others").curve()[1]
    assert np.abs(own - by_card).max() < 2e-3 * own.max()

"""What the examples of simulated specimens have in common, in a real CalculiX."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

from tfmat.materials import find_law
from tfmat.materials.cards import card_text
from tfmat.specimens.campaign import try_once
from tfmat.specimens.description import read_description
from tfmat.specimens.emulator import write_law
from tfmat_tests.specimens.calculix import EXAMPLES, needs_ccx
from tfmat_tests.specimens.forward_test import FACTS, a_network

STATIC = re.compile(r"(?<=\*STATIC\n)([^,]+),([^,]+),([^,]+),(\S+)")


def patient(folder):
    """The description of a folder, for a machine that has much else to do."""
    return dataclasses.replace(read_description(folder), time_limit=500.0)


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

"""Which cards there are, what is refused, and the head that every card has."""

import pytest

import tfmat
from tfmat.errors import InputError
from tfmat.materials import Parameter, find_law
from tfmat.materials.cards import CARDS, SOLVERS, card_text, check_card, family_of
from tfmat.materials.metals import Voce

VOCE = {"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0}


def test_every_writer_names_its_manual_and_every_solver_has_one():
    writers = {writer for family in CARDS.values() for writer in family.writers.values()}
    assert all("Guide" in doc or "Manual" in doc or "Reference" in doc or "U4.43.01" in doc
               for doc in (writer.__doc__ or "" for writer in writers))  # fmt: skip
    assert {solver for family in CARDS.values() for solver in family.writers} == set(SOLVERS)


def test_every_card_of_calculix_is_run_in_it():
    """By the other tests of this folder, whose `VALUES` name the laws."""
    metals = "voce swift ramberg_osgood ludwik hollomon johnson_cook norton perzyna"
    rubber = "neo_hooke mooney_rivlin yeoh arruda_boyce ogden_1 ogden ogden_3"
    written = {law for law, family in CARDS.items() if "calculix" in family.writers}
    assert written == {*metals.split(), *rubber.split()}


@pytest.mark.parametrize("name", CARDS)
def test_cards_of_every_law_are_ascii_and_not_too_wide(name):
    law = find_law(name)
    values = {p.name: float(p.from_unit_interval(0.5)) for p in law.parameters}
    for solver in family_of(law).writers:
        text = card_text(solver, law, values, tested=0.05, name="Prüfling №3", facts=["größer ½ µ"])
        assert text.isascii() and text.endswith("\n")
        assert max(map(len, text.splitlines())) <= 90
        assert f"written by tfmat {tfmat.__version__}" in text
        assert f"law {name}:" in text and "mm, t, s, MPa" in text and "density is not" in text


@pytest.mark.parametrize(
    ("solver", "law", "ratio", "message"),
    [
        ("abacus", "voce", None, "no card for a solver 'abacus'; did you mean 'abaqus'"),
        ("calculix", "hahn_tsai", None, "CalculiX has no card for law hahn_tsai; .*: ls_dyna$"),
        ("abaqus", "voce", 0.5, "Poisson's ratio is 0.5; give 0 or more, and less than 0.5"),
        ("abaqus", "voce", float("nan"), "Poisson's ratio is nan"),
    ],
)
def test_a_card_that_is_not_there_is_refused_in_one_line(solver, law, ratio, message):
    with pytest.raises(InputError, match=message) as error:
        check_card(find_law(law), solver, ratio)
    assert "\n" not in str(error.value)


def test_laws_without_cards_are_refused_and_own_hardening_curves_are_tables():
    class Own(Voce):
        name = "own"
        parameters = (*Voce.parameters[:3], Parameter("b", "-", 1.0, 20.0))

    text = card_text("calculix", Own(), VOCE, tested=0.1)
    assert text.count("\n300, 0\n") == 1

    class Other(type(find_law("tanh_shear"))):
        name = "other"

    with pytest.raises(InputError, match="law other has no card; laws with cards: voce, swift"):
        check_card(Other(), "abaqus")
    with pytest.raises(InputError, match="no known law"):
        check_card(None, "abaqus")

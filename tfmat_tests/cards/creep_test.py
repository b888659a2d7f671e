"""Cards of metals that flow with time: relaxation of one element in the real CalculiX against the laws."""

import numpy as np
import pytest

from tfmat.cards.registry import card_text
from tfmat.materials import History, find_law
from tfmat_tests.cards.one_element import need_calculix, pull

STEPS = 200
VALUES = {
    "norton": {"E": 200e3, "K": 2000.0, "n": 5.0},
    "perzyna": {"E": 200e3, "sigma0": 200.0, "Q": 100.0, "b": 20.0, "K": 300.0, "n": 5.0},
}


def text_of(solver, name):
    return card_text(solver, find_law(name), VALUES[name], tested=0.05)


@pytest.mark.parametrize(("name", "strain"), [("norton", 0.001), ("perzyna", 0.01)])
def test_one_element_in_calculix_relaxes_as_the_law_does(name, strain, tmp_path):
    need_calculix()
    ends = np.exp([strain, strain])
    pulled = pull(tmp_path, text_of("calculix", name), ends, steps=STEPS, seconds=[10.0, 100.0])
    time = np.concatenate([np.linspace(0, 10, STEPS + 1), np.linspace(10, 110, STEPS + 1)[1:]])
    history = History(strain=np.log([[1.0, *pulled.stretch]]), time=time[None])
    expected = find_law(name).respond(history, np.array([[*VALUES[name].values()]]))[0, 1:]
    # CalculiX's steps are of first order; written down before: 0.3 %, without the first quarter of the pull, where
    # its loads are small and converge to no more than some percent.
    late = slice(STEPS // 4, None)
    np.testing.assert_allclose(pulled.true_stress[late], expected[late], rtol=3e-3)
    assert expected[-1] < 0.97 * expected[STEPS - 1]


def test_the_lines_are_those_of_the_manuals():
    for solver, keyword in (("abaqus", "*CREEP, LAW=TIME"), ("calculix", "*CREEP")):
        lines = text_of(solver, "norton").splitlines()[-2:]
        assert lines == [keyword, "3.125e-17, 5, 0"]
    assert text_of("calculix", "perzyna").count("\n*PLASTIC\n200, 0\n") == 1

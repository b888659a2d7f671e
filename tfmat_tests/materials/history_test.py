"""Loading histories, and laws that answer them: unique labels, and differences against exact derivatives."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import History, HistoryLaw, Parameter, find_law
from tfmat.materials.cyclic import HahnTsai
from tfmat.materials.metals import Voce
from tfmat.materials.registry import check_definition


class TwoSprings(HistoryLaw):
    """Stress of two stiffening terms that can change places; every derivative is known in closed form."""

    name = "two_springs"
    title = "two springs"
    formula = "σ = c1 sinh(k1 ε) + c2 sinh(k2 ε)"
    source = "this test"
    parameters = (
        Parameter("c1", "MPa", 1.0, 100.0, "log"),
        Parameter("k1", "-", 0.5, 3.0),
        Parameter("c2", "MPa", 1.0, 100.0, "log"),
        Parameter("k2", "-", 0.5, 3.0),
    )
    strain_measure = "engineering"
    stress_measure = "engineering"
    interchangeable = (("k1", "c1"), ("k2", "c2"))
    tests = ("uniaxial",)

    def respond(self, history, parameters):
        c1, k1, c2, k2 = parameters.T[:, :, None]
        return c1 * np.sinh(k1 * history.driven) + c2 * np.sinh(k2 * history.driven)


def test_labels_of_interchangeable_terms_are_unique():
    law = TwoSprings()
    labels = np.random.default_rng(0).random((50, 4))
    swapped = labels[:, [2, 3, 0, 1]]
    unique = law.sorted_labels(labels)
    np.testing.assert_array_equal(unique, law.sorted_labels(swapped))
    assert (unique[:, 1] >= unique[:, 3]).all()
    strain = History(strain=np.linspace(0, 1, 7)[None])
    np.testing.assert_allclose(
        law.respond(strain, law.from_labels(unique)),
        law.respond(strain, law.from_labels(labels)),
        rtol=1e-12,
    )
    np.testing.assert_array_equal(
        TwoSprings(fixed={"c2": 5.0}).sorted_labels(labels[:, :3]), labels[:, :3]
    )


def test_interchangeable_terms_need_one_range():
    with pytest.raises(InputError, match="k1 and k2 of law two_springs can change places"):
        TwoSprings(ranges={"k1": (0.5, 2.0)})
    assert TwoSprings(ranges={"k1": (0.5, 2.0), "k2": (0.5, 2.0)}).parameters[3].high == 2.0


def test_differences_are_the_derivatives():
    law = TwoSprings()
    parameters = law.from_labels(np.random.default_rng(1).random((5, 4)))
    strain = np.linspace(0, 1, 9)[None]
    c1, k1, c2, k2 = parameters.T[:, :, None]
    exact = np.stack(
        [
            np.sinh(k1 * strain),
            c1 * strain * np.cosh(k1 * strain),
            np.sinh(k2 * strain),
            c2 * strain * np.cosh(k2 * strain),
        ],
        axis=2,
    )
    np.testing.assert_allclose(law.derivatives(strain, parameters), exact, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("law", [HahnTsai(), Voce()])
def test_a_law_for_monotonic_loading_answers_a_history(law):
    parameters = law.from_labels(np.full((2, len(law.identified)), 0.5))
    strain = np.linspace(0, 0.02, 11)[None]
    history = History(law.modes[0], strain=strain)
    np.testing.assert_array_equal(law.respond(history, parameters), law.stress(strain, parameters))
    np.testing.assert_array_equal(
        law.sensitivities(history, parameters), law.derivatives(strain, parameters)
    )


def test_rows_of_a_history_keep_what_all_curves_share():
    history = History(strain=np.arange(12.0).reshape(4, 3), temperature=np.array([[20.0]]))
    chosen = history.rows(np.array([2, 0]))
    np.testing.assert_array_equal(chosen.driven, [[6, 7, 8], [0, 1, 2]])
    assert chosen.temperature.tolist() == [[20.0]] and len(chosen) == 2


def test_a_history_drives_one_thing():
    with pytest.raises(ValueError, match="give one of them"):
        History(strain=np.zeros((1, 2)), stress=np.zeros((1, 2)))


@pytest.mark.parametrize("name", ["ogden", "johnson_cook", "voce_chaboche", "ladeveze_shear"])
def test_laws_without_an_answer_to_a_driven_stress_say_so(name):
    law = find_law(name)
    parameters = law.from_labels(np.full((1, len(law.identified)), 0.5))
    history = History(law.modes[0], stress=np.zeros((1, 3)))
    for answer in (law.respond, law.sensitivities):
        with pytest.raises(InputError, match=f"law {name} answers a driven strain"):
            answer(history, parameters)


def test_a_law_that_remembers_must_name_its_tests():
    check_definition(TwoSprings, "two.py:TwoSprings")
    silent = type("Silent", (TwoSprings,), {"tests": HistoryLaw.tests})
    with pytest.raises(InputError, match="two.py:Silent does not define tests"):
        check_definition(silent, "two.py:Silent")

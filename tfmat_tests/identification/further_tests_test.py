"""Tests that a law knows and a specimen did not have."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.identification.next_test import asked_for, candidates, last_answer, predictions
from tfmat.materials.law import History
from tfmat.materials.registry import LAWS, find_law
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import measured_records
from tfmat.records.reading import ReadingOptions
from tfmat_tests.records.made_tests import cycles


def record_of(law, tests):
    (record,) = measured_records(tests, None, law, ReadingOptions(), CleaningOptions())
    return record


def rubber(law):
    strain = np.linspace(0.05, 2.0, 20)
    return record_of(law, {"uniaxial": (strain, 0.5 * (1 + strain - (1 + strain) ** -2.0))})


def test_candidates_are_a_handful_of_different_tests():
    law = find_law("ogden")
    found = candidates(law, rubber(law))
    names = [test.name for test in found]
    assert len(set(names)) == len(names) and 5 <= len(names) <= 10
    assert found[0].text == "the same test again" and names[0] == "uniaxial:max_strain=2"
    kinds = [test.programme.name for test in found]
    assert kinds.count("equibiaxial") == 3 and kinds.count("planar") == 3
    assert "uniaxial:max_strain=7" in names


def test_a_record_of_more_cycles_than_a_programme_holds_has_candidates():
    """Steps of three cycles each and half a one back to zero: 25 half cycles, where a programme has 24."""
    law = find_law("voce_chaboche_1")
    steps = np.repeat([0.003, 0.006, 0.01, 0.015], 6) * np.tile([1.0, -1.0], 12)
    strain = cycles([*steps, 0.0], points=6)
    truth = np.array([[200e3, 250.0, 80.0, 8.0, 20e3, 150.0]])
    stress = law.respond(History(strain=strain[None]), truth)[0]
    record = record_of(law, {"cyclic": (strain, stress)})
    assert record.tests[0].settings["cycles"] == 12.5
    assert all(np.isfinite(each.history().strain).all() for each in candidates(law, record))


@pytest.mark.parametrize("name", [name for name in LAWS if LAWS[name].tests != ("monotonic",)])
def test_every_law_answers_what_it_is_asked_by_default(name):
    law = find_law(name)
    middle = np.full((3, len(law.identified)), 0.5)
    for test in dict.fromkeys(law.tests):
        asked = asked_for(test, law, "predict")
        assert np.isfinite(last_answer(law, asked, middle)).all()
        assert asked.name == test


def test_predictions_are_of_the_tests_that_were_not_done():
    law = find_law("ogden")
    found = predictions(law, rubber(law))
    assert [test.name for test in found] == ["equibiaxial:max_strain=1", "planar:max_strain=1"]
    assert found[0].title == "equibiaxial tension, max_strain 1"
    labels = np.full((1, 4), 0.5)
    history = History("equibiaxial", strain=np.array([[1.0]]))
    expected = law.respond(history, law.from_labels(labels))
    np.testing.assert_allclose(last_answer(law, found[0], labels), expected[0])


def test_cycles_that_are_asked_for_are_plain():
    law = find_law("voce_chaboche")
    test = asked_for("cyclic:amplitude=0.01,cycles=2", law, "candidate")
    driven = np.abs(test.history(100).driven)
    assert driven.max() == pytest.approx(0.01)
    assert np.sum(np.isclose(driven, 0.01)) == 4


def test_a_setting_without_a_number_is_refused():
    with pytest.raises(InputError, match="--predict=planar:max_strain=-1: max_strain is '-1'"):
        asked_for("planar:max_strain=-1", find_law("ogden"), "predict")

"""Which test of a specimen to do next: on made records, on Treloar's rubber, and what is refused."""

import json

import numpy as np
import pytest
from msgspec import convert

import tfmat
from tfmat.errors import InputError
from tfmat.identification.networks import law_alone
from tfmat.identification.next_test import check_next_test
from tfmat.identification.results import NextTest
from tfmat.materials.law import History
from tfmat.materials.registry import find_law
from tfmat.report.figures import next_test_figure
from tfmat.report.tables import next_test_table
from tfmat_tests.records.made_tests import cycles

RUBBER = find_law("mooney_rivlin")


def rubber(mode, end, points, seed=0, law=RUBBER, values=(0.3, 0.06)):
    strain = np.linspace(0.0, end, points + 1)[1:]
    stress = law.respond(History(mode, strain=strain[None]), np.array([values]))[0]
    return strain, stress + 0.02 * np.random.default_rng(seed).standard_normal(points)


@pytest.fixture(scope="module")
def found():
    return tfmat.identify(
        {"uniaxial": rubber("uniaxial", 1.0, 20)},
        law="mooney_rivlin",
        next_test=True,
        predict=["equibiaxial:max_strain=1"],
        candidate=["uniaxial:max_strain=1", "equibiaxial:max_strain=1", "planar:max_strain=1"],
    )


def test_the_other_mode_tells_what_the_first_did_not(found):
    next_test = found.next_test
    assert [q.name for q in next_test.quantities] == ["C10", "C01", "equibiaxial:max_strain=1"]
    names = [test.name for test, _ in next_test.tests]
    assert names[0] == "equibiaxial:max_strain=1" and names[-1] == "uniaxial:max_strain=1"
    gains = {test.name: gain for test, gain in next_test.tests}
    best, again = gains[names[0]], gains[names[-1]]
    assert best.nats > again.nats > 0.0
    assert np.exp(best.log_ratio[2]) < 0.4 < np.exp(again.log_ratio[2]) < 1.0
    assert next_test.sentences()[0].startswith(
        "an equibiaxial test (max_strain 1) would narrow the 95 % interval of the stress at the end of "
        "equibiaxial tension, max_strain 1 "
    )


def test_the_noise_is_that_of_the_model_or_of_the_fit(found):
    assert 0.02 <= found.next_test.noise[0] < 0.035
    assert found.next_test.points == 20


def test_the_json_file_the_table_and_the_picture_have_it(found):
    plain = json.loads(json.dumps(found.to_json()))["next_test"]
    content = convert(plain, NextTest)
    first = content.tests[0]
    assert first.name == plain["tests"][0]["name"] == "equibiaxial:max_strain=1"
    assert first.gain_error < 0.5 and first.by in ("weights", "sampling")
    assert set(first.interval_ratio) == {"C10", "C01", "equibiaxial:max_strain=1"}
    table = next_test_table("made", content)
    assert table.row_count == 3 and "95 % intervals now, by independent noise alone" in str(
        table.caption
    )
    figure = next_test_figure("made", content)
    (panel,) = figure.axes
    lengths = [np.ptp(line.get_xdata()) for line in panel.lines]
    assert len(lengths) == 4 and lengths[0] == max(lengths)


def test_an_answer_without_it_is_what_it_was():
    answer = tfmat.identify({"uniaxial": rubber("uniaxial", 1.0, 20)}, law="mooney_rivlin")
    assert answer.next_test is None and "next_test" not in answer.to_json()


@pytest.mark.parametrize(
    ("law", "options", "message"),
    [
        ("voce", {}, "law voce knows one test, a curve of rising strain"),
        ("mooney_rivlin", {"predict": ["shear"]}, "there is no test 'shear'"),
        ("mooney_rivlin", {"candidate": ["cyclic"]}, "law mooney_rivlin does not answer test cyclic"),
        ("mooney_rivlin", {"predict": ["planar:strain=1"]}, "test planar has no setting 'strain'"),
        ("mooney_rivlin", {"predict": ["planar:max_strain=x"]}, "max_strain is 'x'; give a number"),
        (
            "voce_chaboche_1",
            {"candidate": ["cyclic:cycles=50"]},
            "cycles is '50'; give a number, such as .*, at most 12$",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_one_line(law, options, message):
    source = law_alone(law)
    with pytest.raises(InputError, match=message) as error:
        check_next_test(source.law, source.settings, **options)
    assert "\n" not in str(error.value)


def test_laws_without_a_likelihood_are_refused():
    from tfmat.records.simulation import CurveSettings

    settings = CurveSettings(law="mooney_rivlin", misfit=(0.001, 0.02))
    with pytest.raises(InputError, match="needs the law's likelihood: curves with data.misfit"):
        check_next_test(settings.build_law(), settings)
    with pytest.raises(InputError, match="no known law"):
        check_next_test(None, None)
    with pytest.raises(InputError, match="give that too"):
        tfmat.identify("none.csv", law="mooney_rivlin", predict=["planar"])


def test_a_second_amplitude_of_steel():
    law = find_law("voce_chaboche_1")
    strain = cycles((0.005, -0.005, 0.005), points=20)
    truth = np.array([[200e3, 250.0, 80.0, 8.0, 20e3, 150.0]])
    stress = law.respond(History(strain=strain[None]), truth)[0]
    stress = stress + np.random.default_rng(0).standard_normal(len(stress))
    answer = tfmat.identify(
        {"cyclic": (strain, stress)},
        law="voce_chaboche_1",
        fixed={"E": 200e3, "Q": 80.0, "b": 8.0, "gamma1": 150.0},
        next_test=True,
        candidate=["cyclic:amplitude=0.005,cycles=1", "cyclic:amplitude=0.03,cycles=1"],
    )
    names = [test.name for test, _ in answer.next_test.tests]
    assert names[0] == "cyclic:amplitude=0.03,cycles=1"


def test_treloar_s_equibiaxial_test_narrows_what_was_open(real_curves):
    """Of a uniaxial test alone; written down before: what then happens is within a factor of 3 of what is expected."""
    folder = real_curves / "rubber_treloar_1944"
    asked = {"law": "ogden", "next_test": True, "predict": ["equibiaxial:max_strain=1"]}
    alone = tfmat.identify(
        {"uniaxial": str(folder / "UT.txt")},
        candidate=["uniaxial:max_strain=6.6", "equibiaxial:max_strain=3.45"],
        **asked,
    )
    both = tfmat.identify(
        {"uniaxial": str(folder / "UT.txt"), "equibiaxial": str(folder / "ET.txt")},
        candidate=["uniaxial:max_strain=6.6"],
        **asked,
    )
    (test, gain), *_ = alone.next_test.tests
    assert test.programme.name == "equibiaxial"
    before, after = (each.next_test.quantities[-1].ci95 for each in (alone, both))
    realised = (after[1] - after[0]) / (before[1] - before[0])
    expected = float(np.exp(gain.log_ratio[-1]))
    assert expected < 0.5 and realised < 0.5
    assert 1 / 3 < realised / expected < 3

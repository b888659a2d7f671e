"""Records of tests: simulated as the law answers, written into arrays, and read back."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials.law import History
from tfmat.records.simulation import FLAG, CurveSettings, RecordForm, Simulator

LAWS = '''
import numpy as np
from tfmat.materials import HistoryLaw, Parameter


class Rubber(HistoryLaw):
    """Neo-Hooke: nominal stress mu (L - L^(2 e - 1)) with e = -1/2, -2, -1 for the three modes."""

    name = "rubber"
    title = formula = source = "for a test"
    parameters = (Parameter("mu", "MPa", 0.1, 2.0, "log"),)
    strain_measure = stress_measure = "engineering"
    modes = ("uniaxial", "equibiaxial", "planar")
    tests = ("uniaxial", "equibiaxial", "planar")
    noise_mpa = 0.01

    def respond(self, history, parameters):
        stretch = 1.0 + history.strain
        power = {"uniaxial": -2.0, "equibiaxial": -5.0, "planar": -3.0}[history.mode]
        return parameters[:, :1] * (stretch - stretch**power)


class Maxwell(HistoryLaw):
    """A spring and a dashpot; only its creep is needed: strain = stress / E + integral of stress / eta."""

    name = "maxwell"
    title = formula = source = "for a test"
    parameters = (Parameter("E", "MPa", 1e3, 1e4, "log"), Parameter("eta", "MPa s", 1e5, 1e7, "log"))
    strain_measure = stress_measure = "engineering"
    tests = ("creep",)

    def respond(self, history, parameters):
        steps = np.diff(history.time, axis=1, prepend=0.0)
        before = np.concatenate([history.stress[:, :1], history.stress[:, :-1]], axis=1)
        viscous = np.cumsum(0.5 * (history.stress + before) * steps, axis=1)
        return history.stress / parameters[:, :1] + viscous / parameters[:, 1:]
'''


@pytest.fixture
def laws(tmp_path):
    (tmp_path / "laws.py").write_text(LAWS)
    return str(tmp_path / "laws.py")


def test_a_record_holds_what_the_law_answers(laws):
    settings = CurveSettings(law=f"{laws}:Rubber", num_points=40, noise_mpa=0.0, missing_tests=0.3)
    simulator = Simulator(settings, seed=1)
    curves = simulator.curves(0, 1500)
    assert curves.features.shape == (1500, 120, 3)
    tests, stress, valid = simulator.form.split(curves.features)
    assert [history.mode for history in tests.histories] == ["uniaxial", "equibiaxial", "planar"]
    there = valid.reshape(1500, 3, 40)
    assert (there.all(axis=2) | ~there.any(axis=2)).all() and there.any(axis=(1, 2)).all()
    # One test is chosen that stays; each other is missing with probability 0.3.
    np.testing.assert_allclose((~there.any(axis=2)).mean(), 0.2, atol=0.02)
    for test, power in enumerate((-2.0, -5.0, -3.0)):
        stretch = 1.0 + tests.histories[test].strain
        expected = curves.parameters * (stretch - stretch**power)
        part = slice(40 * test, 40 * (test + 1))
        np.testing.assert_allclose(
            stress[:, part][valid[:, part]], expected[valid[:, part]], rtol=1e-5, atol=1e-6
        )
    assert (curves.features[~valid] == [0, 0, 1]).all()


def test_a_driven_stress_and_its_time_stand_in_the_record(laws):
    settings = CurveSettings(law=f"{laws}:Maxwell", num_points=50, noise_strain=0.0)
    simulator = Simulator(settings, seed=0)
    features = simulator.curves(0, 10).features
    assert simulator.form.channels == ("strain", "stress", "flag", "time")
    tests, strain, valid = simulator.form.split(features)
    (history,) = tests.histories
    assert history.strain is None and valid.all()
    modulus, viscosity = simulator.parameters(0, 10).T[:, :, None]
    # Closed form of a ramp of length t1 to a held stress: the integral of the stress is s (t - t1 / 2).
    held = history.stress == history.stress[:, -1:]
    ramp = np.where(held, history.time, np.inf).min(axis=1, keepdims=True)
    expected = history.stress / modulus + history.stress * (history.time - ramp / 2) / viscosity
    np.testing.assert_allclose(strain[held], expected[held], rtol=1e-5)


def test_a_record_is_a_pure_function_of_its_number(laws):
    settings = CurveSettings(
        law=f"{laws}:Rubber", num_points=16, misfit=(0.01, 0.02), strain_offset=(1e-4, 1e-3)
    )
    simulator = Simulator(settings, seed=3)
    whole = simulator.curves(0, 2100).features
    np.testing.assert_array_equal(simulator.curves(1000, 1100).features, whole[1000:1100])
    assert np.isfinite(whole).all()


def test_a_further_test_leaves_those_before_it_as_they_were(laws):
    one, two = (
        Simulator(CurveSettings(law=f"{laws}:Rubber", num_points=16, tests=tests), seed=3)
        .curves(0, 9)
        .features
        for tests in (("planar",), ("planar", "uniaxial"))
    )
    np.testing.assert_array_equal(one, two[:, :16])


def test_settings_of_tests_survive_json(laws):
    settings = CurveSettings(
        law=f"{laws}:Rubber",
        tests=("planar",),
        test_ranges={"max_strain": (1.0, 2.0)},
        missing_tests=0.1,
    )
    content = settings.to_json()
    assert content["tests"] == ["planar"] and content["test_ranges"] == {"max_strain": [1.0, 2.0]}
    assert CurveSettings.from_json(content) == settings.resolved()
    assert not {"tests", "test_ranges", "missing_tests", "noise_strain"} & set(
        CurveSettings().to_json()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"law": "voce", "tests": ("cyclic",)},
            "law voce is for one curve of rising strain; leave tests=cyclic out",
        ),
        (
            {"law": "Rubber", "tests": ("cyclic_shear",)},
            "test cyclic_shear is shear; law rubber answers uniaxial",
        ),
        (
            {"law": "Rubber", "max_strain": (0.1, 0.2)},
            "data.max_strain is for one curve of rising strain",
        ),
        (
            {"law": "Rubber", "missing_tests": 1.0},
            "data.missing_tests is 1.0; give a probability below 1",
        ),
    ],
)
def test_what_is_refused(laws, arguments, message):
    if arguments["law"] == "Rubber":
        arguments = {**arguments, "law": f"{laws}:Rubber"}
    with pytest.raises(InputError, match=message):
        CurveSettings(**arguments)


def test_the_form_tells_padding_by_its_flag(laws):
    form = RecordForm.of(CurveSettings(law=f"{laws}:Rubber", num_points=16, tests=("uniaxial",)))
    features = np.zeros((2, *form.shape), np.float32)
    strain = np.linspace(0, 1, 16)[None].repeat(2, axis=0)
    valid = np.arange(16) < np.array([[16], [5]])
    form.write(features, 0, History(strain=strain), strain * 2, valid)
    assert features[1, 5:, FLAG].all() and not features[:, :5, FLAG].any()
    tests, _, found = form.split(features)
    np.testing.assert_array_equal(found, valid)
    np.testing.assert_allclose(tests.histories[0].driven[1, 5:], strain[1, 4], rtol=1e-6)


def test_a_creep_record_ends_before_its_specimen_breaks():
    """A soft draw of Norton's law under a high stress creeps by any number; the record holds what a test would."""
    simulator = Simulator(CurveSettings(law="norton", noise_mpa=0, noise_strain=0), 0)
    form = simulator.form
    creep = [one.name for one in form.programmes].index("creep")
    features = simulator.curves(0, 300).features[:, form.part(creep)]
    valid = features[:, :, 2] == 0
    assert (np.abs(features[:, :, 0]) < simulator.law.rupture_strain).all()
    assert 0.02 < (~valid[:, -1]).mean() < 0.5
    assert (np.diff(valid.astype(int), axis=1) <= 0).all()

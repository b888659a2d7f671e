"""What every law inherits; histories; the trial of a law; laws by name and in a user's file."""

import re

import numpy as np
import pytest
import scipy.optimize

from tfmat.errors import InputError
from tfmat.materials import LAWS, History, HistoryLaw, Law, Parameter, find_law, law_class
from tfmat.materials.cyclic import HahnTsai
from tfmat.materials.law import check_law
from tfmat.materials.metals import HockettSherby, Voce
from tfmat.materials.registry import check_definition

# Labels and the user's ranges: what every law inherits.


def test_unit_interval_of_linear_and_log_ranges():
    linear, log = Parameter("x", "-", 2.0, 6.0), Parameter("a", "-", 1e-9, 1e-7, "log")
    np.testing.assert_allclose(linear.to_unit_interval([2, 4, 6]), [0, 0.5, 1])
    np.testing.assert_allclose(log.to_unit_interval([1e-9, 1e-8, 1e-7]), [0, 0.5, 1], atol=1e-15)
    values = np.linspace(-0.2, 1.2, 9)
    np.testing.assert_allclose(
        log.to_unit_interval(log.from_unit_interval(values)), values, atol=1e-14
    )


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if len(law.parameters) > 1])
def test_labels_and_parameters_are_inverse(name):
    law = find_law(name, fixed={LAWS[name].parameters[0].name: 5000.0})
    labels = np.random.default_rng(0).random((50, len(law.identified)))
    parameters = law.from_labels(labels)
    assert parameters.shape == (50, len(law.parameters))
    assert np.all(parameters[:, 0] == 5000.0)
    np.testing.assert_allclose(law.to_labels(parameters), labels, atol=1e-13)


def test_wrong_ranges_are_refused_by_name():
    with pytest.raises(InputError, match="no parameter 'g0'; did you mean 'G0'"):
        find_law("hahn_tsai", ranges={"g0": (1, 2)})
    with pytest.raises(InputError, match=r"range of a .* 0 < low < high"):
        find_law("hahn_tsai", ranges={"a": (0, 1e-7)})
    with pytest.raises(InputError, match=r"fixed E .* positive"):
        find_law("voce", fixed={"E": -1})
    with pytest.raises(InputError, match="every parameter"):
        find_law("hahn_tsai", fixed={"G0": 5000, "a": 1e-8})


@pytest.mark.parametrize(("scale", "width"), [("linear", 90.0), ("log", np.log(10.0))])
def test_slope_is_the_derivative_of_the_value_by_the_label(scale, width):
    parameter = Parameter("p", "MPa", 10.0, 100.0, scale)
    label, step = np.array([0.1, 0.5, 0.9]), 1e-6
    ends = [parameter.from_unit_interval(label + side * step) for side in (-1, 1)]
    slope = parameter.slope(parameter.from_unit_interval(label))
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-8)
    assert parameter.width == pytest.approx(width)


# Loading histories, and laws that answer them: unique labels, and differences against exact derivatives.


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


# The trial that `tfmat laws NAME` makes: it passes our laws and finds planted mistakes.


def _failure(**methods):
    law = type("Wrong", (LAWS["tanh_shear"],), methods)()
    finding = check_law(law)[-1]
    assert not finding.passed
    return finding


def test_wrong_derivative_is_named():
    def derivatives(self, strain, parameters):
        return LAWS["tanh_shear"].derivatives(self, strain, parameters) * [1.0, 1.001]

    finding = _failure(derivatives=derivatives)
    assert finding.check == "derivatives"
    assert "d stress / d S" in finding.detail


def test_derivatives_that_are_not_finite_name_the_place():
    def derivatives(self, strain, parameters):
        found = LAWS["tanh_shear"].derivatives(self, strain, parameters)
        found[3, 7, 1] = np.nan
        return found

    detail = _failure(derivatives=derivatives).detail
    assert re.search(r"d stress / d S is not finite at strain 0\.\d+ with G0=[\d.]+, S=", detail)


def test_hardening_with_an_infinite_slope_at_zero():
    values = modulus, first_yield, gain, rate, exponent = 35e3, 10.0, 2990.0, 50.0, 0.3
    strain = np.linspace(0.001, 0.1, 9)
    (stress,) = find_law("hockett_sherby").stress(strain[None], np.array([values]))
    plastic = strain - stress / modulus
    # The root is well-conditioned in the plastic strain, which the equation gives of the stress.
    left = 1.0 - (stress - first_yield) / gain
    expected = (-np.log(left) / rate) ** (1 / exponent)
    np.testing.assert_allclose(plastic, expected, rtol=1e-6, atol=1e-14)


def test_hardening_that_falls_within_the_ranges_is_refused():
    gain = Parameter("Q", "MPa", -980.0, 1000.0)
    parameters = tuple(gain if p.name == "Q" else p for p in HockettSherby.parameters)
    finding = check_law(type("Falls", (HockettSherby,), {"parameters": parameters})())[-1]
    assert not finding.passed
    assert re.match(r"falls at strain 0\.\d+ with E=35000, sigma0=10, Q=-980, ", finding.detail)


def test_stress_that_is_not_finite_names_the_parameters():
    def stress(self, strain, parameters):
        return np.where(parameters[:, :1] > 7999, np.nan, strain * parameters[:, :1])

    assert "not finite at G0=8000, S=" in _failure(stress=stress).detail


def test_curves_that_depend_on_each_other_are_found():
    def stress(self, strain, parameters):
        return strain * parameters.mean(axis=0)[0] * np.ones((len(parameters), 1))

    assert _failure(stress=stress).check == "independence"


def test_wrong_shape_and_exceptions_are_findings():
    assert "shape (1, 50)" in _failure(stress=lambda self, strain, parameters: strain[:1]).detail
    finding = _failure(stress=lambda self, strain, parameters: strain + 0j * parameters[:, :1])
    assert finding.detail == "holds complex128; give real numbers"  # a traceback in the fit
    finding = _failure(stress=lambda self, strain, parameters: parameters["S"])
    assert "IndexError" in finding.detail
    assert "line" in finding.detail


# The ranges of laws hold the materials that people have.


@pytest.mark.parametrize(
    ("modulus", "yield_stress", "tensile_strength", "uniform_strain"),
    [
        # Engineering handbooks' round numbers, MPa and -: EN AW-6061-O at 300 °C as measured by a crosshead, EN AW-1050
        # at room temperature, 7075-T6, OF copper annealed, Ti-6Al-4V, S235, 304L, 300M.
        (40e3, 20.0, 26.0, 0.05),
        (70e3, 30.0, 80.0, 0.25),
        (71e3, 500.0, 570.0, 0.08),
        (115e3, 50.0, 220.0, 0.4),
        (114e3, 880.0, 950.0, 0.08),
        (206e3, 235.0, 380.0, 0.2),
        (193e3, 250.0, 580.0, 0.45),
        (205e3, 1650.0, 1980.0, 0.05),
    ],
)
@pytest.mark.parametrize("name", ["voce", "swift", "ramberg_osgood", "ludwik"])
def test_metals_lie_inside_the_ranges(
    name, modulus, yield_stress, tensile_strength, uniform_strain
):
    """True stress through yield at 0.2 % and the maximum load, where the slope equals the stress (Considere)."""
    law = find_law(name)
    strain = np.log1p(uniform_strain)
    strength = tensile_strength * (1 + uniform_strain)
    wanted = np.array([yield_stress, strength])
    at = np.array([[yield_stress / modulus + 0.002, strain]])
    low, high = (np.array([getattr(p, end) for p in law.parameters]) for end in ("low", "high"))

    def away(labels):
        values = np.concatenate([[modulus], law.from_labels([[0.5, *labels]])[0, 1:]])
        return law.stress(at, values[None])[0] / wanted - 1

    count = len(law.parameters) - 1
    fits = (
        scipy.optimize.least_squares(away, np.full(count, start), bounds=(0, 1))
        for start in (0.5, 0.3, 0.7)
    )
    assert low[0] < modulus < high[0]
    assert any(np.abs(fit.fun).max() < 0.02 for fit in fits)


# Finding laws by name and in a user's file, and the one line for everything that can be wrong.


_GOOD = '''
import numpy as np
from tfmat.materials import Law, Parameter

class Linear(Law):
    """Hooke."""

    name = "linear"
    title = "Hooke"
    formula = "σ = E·ε"
    source = "R. Hooke, 1678"
    parameters = (Parameter("E", "MPa", 1e3, 2e3), Parameter("c", "MPa", 1e-3, 1.0, "log"))
    strain_measure = "engineering"
    stress_measure = "engineering"
    max_strain = (0.01, 0.02)

    def stress(self, strain, parameters):
        return strain * parameters[:, :1] + 0 * parameters[:, 1:]

    def derivatives(self, strain, parameters):
        first = np.broadcast_to(strain, (len(parameters), strain.shape[1]))
        return np.stack([first, np.zeros_like(first)], axis=2)
'''


def _spec(tmp_path, text, name="Linear"):
    path = tmp_path / "my_law.py"
    path.write_text(text, "utf-8")
    return f"{path}:{name}"


def _error(spec):
    with pytest.raises(InputError) as caught:
        find_law(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_ranges_and_fixed_values_reach_the_law():
    law = find_law("voce", ranges={"Q": (100, 800)}, fixed={"E": 193e3})
    assert [parameter.name for parameter in law.identified] == ["sigma0", "Q", "b"]
    assert law.parameters[2].high == 800
    assert np.all(law.from_labels(np.full((2, 3), 0.5))[:, 0] == 193e3)


@pytest.mark.parametrize(
    ("spec", "code", "expected"),
    [
        ("hahn_tasi", "", "did you mean 'hahn_tsai'"),
        ("Voce", "", "did you mean 'voce'"),
        ("none.py:Linear", "", "none.py: No such file"),
        ("my_law.py:Liner", _GOOD, "did you mean 'Linear'"),
        ("voce,my_law.py:Linear", _GOOD, "names 2 laws; give one"),
        ("my_law.py:Linear", "x = 1", "defines no subclass"),
        ("my_law.py", _GOOD, "--law=my_law.py:Linear"),
        ("my_law.py:Linear", "class Linear:\n    pass", "not a subclass"),
        ("my_law.py:Linear", "Linear = 3", "not a subclass"),
        ("my_law.py:Linear", "\n\nx = nothing", "'nothing' is not defined (line 3)"),
        ("my_law.py:Linear", "x = = 3", "SyntaxError"),
        ("my_law.py:Linear", "raise SystemExit(3)", "SystemExit"),
        ("my_law.py:Linear", "import no_such_module_at_all", "ModuleNotFoundError"),
    ],
)
def test_what_is_no_law_is_refused_with_what_to_write(tmp_path, monkeypatch, spec, code, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_law.py").write_text(code, "utf-8")
    assert expected in _error(spec)


_METAL = """
import numpy as np
from tfmat.materials import Parameter
from tfmat.materials.metals import ElasticPlasticLaw

class Linear(ElasticPlasticLaw):
    name, title, formula, source = "linear", "linear hardening", "σ = σ0 + c·εp", "none"
    parameters = (
        Parameter("E", "MPa", 50e3, 250e3, "log"),
        Parameter("sigma0", "MPa", 50.0, 800.0, "log"),
        Parameter("c", "MPa", 50.0, 800.0, "log"),
    )

    def hardening(self, plastic_strain, columns):
        return columns[0] + columns[1] * plastic_strain, columns[1] + 0.0 * plastic_strain

    def hardening_derivatives(self, plastic_strain, columns):
        return 1.0, plastic_strain
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"MPa", 50e3, 250e3', '"GPa", 50.0, 250.0', "give Young's modulus and its range in MPa"),
        ("return 1.0, plastic_strain", "return (1.0,)", r"returns 1 arrays for 2 parameters"),
    ],
)
def test_a_metal_that_would_be_solved_wrongly_is_refused(tmp_path, old, new, expected):
    strain, values = np.array([[0.0, 0.01]]), np.array([[200e3, 300.0, 500.0]])
    find_law(_spec(tmp_path, _METAL)).derivatives(strain, values)
    with pytest.raises(InputError, match=expected):
        find_law(_spec(tmp_path, _METAL.replace(old, new))).derivatives(strain, values)


def test_user_law_is_loaded_and_works(tmp_path):
    law = find_law(_spec(tmp_path, _GOOD), fixed={"c": 0.5})
    assert isinstance(law, Law)
    np.testing.assert_array_equal(
        law.stress(np.array([[0.0, 0.01]]), np.array([[1e3, 0.5]])), [[0.0, 10.0]]
    )


def test_user_law_is_loaded_once_and_again_when_its_file_changed(tmp_path):
    spec = _spec(tmp_path, _GOOD)
    first = law_class(spec)
    assert law_class(spec) is first
    assert (
        law_class(_spec(tmp_path, _GOOD.replace("Hooke", "Robert Hooke"))).title == "Robert Hooke"
    )


def test_user_law_relative_to_the_current_folder(tmp_path, monkeypatch):
    _spec(tmp_path, _GOOD)
    monkeypatch.chdir(tmp_path)
    assert find_law("my_law.py:Linear").name == "linear"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    title =", "    other =", "does not define title"),
        ("    max_strain = (0.01, 0.02)", "", "does not define max_strain"),
        ("(0.01, 0.02)", "0.02", "max_strain is 0.02; give two numbers"),
        ("(0.01, 0.02)", "(0.03, 0.02)", "max_strain is 0.03 to 0.02"),
        ('name = "linear"', 'name = "a/b"', "name is 'a/b'"),
        ("1e3, 2e3", "2e3, 1e3", "parameter E: range is 2000 to 1000"),
        ("1e-3, 1.0", "0.0, 1.0", "parameter c: range is 0 to 1; give 0 < low < high"),
        ('"log"', '"lgo"', "scale 'lgo'"),
        ('strain_measure = "engineering"', 'strain_measure = "tru"', "strain_measure is 'tru'; give one of 'true'"),
        ('"c"', '"E"', "same name"),
        ('"c"', '"two words"', "ASCII"),
        ("parameters = (", "parameters = 3 or (", "must be a tuple of Parameter"),
    ],
)  # fmt: skip
def test_wrong_definition_is_named(tmp_path, old, new, expected):
    assert old in _GOOD
    assert expected in _error(_spec(tmp_path, _GOOD.replace(old, new)))


@pytest.mark.parametrize(
    "given", [{"fixed": {"alpha": 1.2}}, {"ranges": {"alpha": (-0.1, 0.5)}}], ids=str
)
def test_a_value_without_meaning_is_refused(given):
    with pytest.raises(InputError, match=r"alpha of law swift_voce is (1\.2|-0\.1); give 0 to 1"):
        find_law("swift_voce", **given)

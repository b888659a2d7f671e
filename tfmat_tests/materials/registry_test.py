"""Finding laws by name and in a user's file, and the one line for everything that can be wrong."""

import subprocess
import sys

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import LAWS, Law, find_law, law_class

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


def test_registered_names_find_their_class():
    for name, law in LAWS.items():
        assert law_class(name) is law
        assert isinstance(find_law(name), law)


def test_unknown_name_gets_the_nearest():
    assert "did you mean 'hahn_tsai'" in _error("hahn_tasi")
    assert "did you mean 'voce'" in _error("Voce")


def test_ranges_and_fixed_values_reach_the_law():
    law = find_law("voce", ranges={"Q": (100, 800)}, fixed={"E": 193e3})
    assert [parameter.name for parameter in law.identified] == ["sigma0", "Q", "b"]
    assert law.parameters[2].high == 800
    assert np.all(law.from_labels(np.full((2, 3), 0.5))[:, 0] == 193e3)


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


def test_missing_file(tmp_path):
    message = _error(f"{tmp_path}/none.py:Linear")
    assert "none.py" in message
    assert "No such file" in message


def test_missing_class_gets_the_nearest(tmp_path):
    assert "did you mean 'Linear'" in _error(_spec(tmp_path, _GOOD, "Liner"))
    assert "defines no subclass" in _error(_spec(tmp_path, "x = 1\n"))


def test_file_without_class_says_what_to_write(tmp_path):
    spec = _spec(tmp_path, _GOOD).removesuffix(":Linear")
    assert f"--law={spec}:Linear" in _error(spec)


def test_not_a_law(tmp_path):
    assert "not a subclass" in _error(_spec(tmp_path, "class Linear:\n    pass\n"))
    assert "not a subclass" in _error(_spec(tmp_path, "Linear = 3\n"))


def test_exception_on_import_names_error_and_line(tmp_path):
    message = _error(_spec(tmp_path, "import numpy\n\nx = nothing\n"))
    assert "NameError: name 'nothing' is not defined (line 3)" in message
    assert "SyntaxError" in _error(_spec(tmp_path, "x = = 3\n"))
    assert "SystemExit" in _error(_spec(tmp_path, "raise SystemExit(3)\n"))
    assert "ModuleNotFoundError" in _error(_spec(tmp_path, "import no_such_module_at_all\n"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    title =", "    other =", "does not define title"),
        ("def derivatives", "def other", "does not define derivatives()"),
        ("    max_strain = (0.01, 0.02)", "", "does not define max_strain"),
        ("(0.01, 0.02)", "0.02", "max_strain is 0.02; give two numbers"),
        ("(0.01, 0.02)", "(0.03, 0.02)", "max_strain is 0.03 to 0.02"),
        ('name = "linear"', 'name = "a/b"', "name is 'a/b'"),
        ("1e3, 2e3", "2e3, 1e3", "parameter E: range is 2000 to 1000"),
        ("1e-3, 1.0", "0.0, 1.0", "parameter c: range is 0 to 1; give 0 < low < high"),
        ('"log"', '"lgo"', "scale 'lgo'"),
        ('"c"', '"E"', "same name"),
        ('"c"', '"two words"', "ASCII"),
        ("parameters = (", "parameters = 3 or (", "must be a tuple of Parameter"),
    ],
)
def test_wrong_definition_is_named(tmp_path, old, new, expected):
    assert old in _GOOD
    assert expected in _error(_spec(tmp_path, _GOOD.replace(old, new)))


def test_materials_import_neither_tensorflow_nor_scipy():
    code = "import sys, tfmat.materials; sys.exit(bool({'tensorflow', 'scipy', 'keras'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

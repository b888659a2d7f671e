"""Files of laws that stored runs and data sets name run only where their user has named them, too."""

import hashlib
import json

import pytest

from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.materials import find_law, registry
from tfmat.records.simulation import CurveSettings

LINEAR = """
import numpy as np

from tfmat.materials import Law, Parameter

class Linear(Law):
    name, title, formula, source = "linear", "Hooke", "σ = E·ε", "R. Hooke, 1678"
    parameters = (Parameter("E", "MPa", 1e3, 2e3),)
    strain_measure = stress_measure = "engineering"
    max_strain = (0.01, 0.02)

    def stress(self, strain, parameters):
        return strain * parameters

    def derivatives(self, strain, parameters):
        return strain[:, :, None] * np.ones((len(parameters), 1, 1))
"""


def test_a_stored_law_runs_only_after_its_user_has_named_it(tmp_path, monkeypatch, capsys, refused):
    """A run's folder from anybody may name a file, with its right hash; naming it holds for this content alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path, mark = tmp_path / "evil.py", tmp_path / "mark"
    path.write_text(LINEAR + f"open({str(mark)!r}, 'a').write('ran ')\n")
    settings = CurveSettings().to_json() | {
        "law": f"{path}:Linear",
        "law_file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "ranges": {},
    }
    sidecar = {
        "format": 1,
        "parameters": [],
        "num_points": settings["num_points"],
        "curves": settings,
    }
    (tmp_path / "model.json").write_text(json.dumps(sidecar))
    (tmp_path / "model.keras").touch()
    command = ["evaluate", f"--workdir={tmp_path}"]
    assert refused(*command).endswith(f"add --trust={path}")
    assert not mark.exists()
    assert main([*command, f"--trust={path}"]) == 2  # its parameters are not those of the law
    assert mark.read_text() == "ran " and "--trust" not in capsys.readouterr().err
    monkeypatch.setattr(registry, "_named", {})  # as in another process
    assert CurveSettings.from_json(settings).law == settings["law"]
    with path.open("a") as file:
        file.write("# changed\n")
    with pytest.raises(InputError, match="or it has changed since you named it"):
        CurveSettings.from_json(settings)
    find_law(settings["law"])  # named by its user
    assert CurveSettings.from_json(settings).law == settings["law"]


def test_a_data_set_is_repaired_with_a_law_that_its_user_names(tmp_path, monkeypatch, refused):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    (tmp_path / "law.py").write_text(LINEAR)
    assert main(["generate", "--law=law.py:Linear", "--num_curves=40", "--num_test=0"]) == 0
    (folder,) = (tmp_path / "data").glob("linear-*")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    monkeypatch.setattr(registry, "_named", {})
    again = ["generate", f"--data_dir={folder}"]
    assert refused(*again).endswith("add --trust=law.py")
    assert main([*again, "--trust=law.py"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "is checked and repaired from the folder in which law.py:Linear is" in refused(*again)

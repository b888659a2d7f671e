"""`tfmat laws`: text at 80 columns, JSON, one law, a user's law; and the example of docs/adding_a_law.md."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from tfmat.cli.data import laws
from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.materials import LAWS, History, find_law

_GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "adding_a_law.md"


def _run(capsys, *arguments):
    """Exit status and standard output of `tfmat laws ARGUMENTS`."""
    flag_values = laws.define()
    status = laws.run(flag_values, flag_values(["laws", *arguments])[1:])
    return status or 0, capsys.readouterr().out


def test_list_has_formula_parameters_and_source_of_every_law(capsys):
    status, text = _run(capsys)
    assert status == 0
    for name, law in LAWS.items():
        assert name in text
        assert law.formula in text
        for parameter in law.parameters:
            assert re.search(
                rf"^ {parameter.name} +{re.escape(parameter.unit)} .*({parameter.scale}|fixed)",
                text,
                re.MULTILINE,
            )
    for author in ("Hahn", "Prager", "Voce", "Ramberg", "Swift", "Ludwik", "Chaboche", "Johnson"):
        assert author in text
    assert "\x1b" not in text
    assert not re.search("[─│┃━]", text)


def test_one_law_in_detail_is_tried_out(capsys):
    status, text = _run(capsys, "voce")
    assert status == 0
    assert "strain 0.005 to 0.6" in text
    assert text.count("passed") == 3


@pytest.mark.parametrize(
    "name",
    # Perzyna's takes as long as all others; norton stands for rates.
    [pytest.param(name, marks=pytest.mark.large) if name == "perzyna" else name for name in LAWS],
)
def test_every_law_passes_when_it_is_tried_out_over_its_tests(capsys, name):
    status, text = _run(capsys, name)
    assert status == 0
    assert text.count("passed") == 3 * len(set(LAWS[name].tests))


def test_json_is_complete(capsys):
    listed = json.loads(_run(capsys, "--json")[1])["laws"]
    assert [law["law"] for law in listed] == list(LAWS)
    assert listed[0]["parameters"][1] == {
        "name": "a",
        "unit": "MPa^-3",
        "low": 1e-9,
        "high": 1e-7,
        "scale": "log",
        "description": "coefficient of the cubic term",
    }
    (swift,) = json.loads(_run(capsys, "swift", "--json")[1])["laws"]
    assert all(check["passed"] for check in swift["checks"])


def test_wrong_arguments_are_refused(capsys):
    with pytest.raises(InputError, match="did you mean 'swift'"):
        _run(capsys, "swif")
    with pytest.raises(InputError, match="takes one law, and got 2"):
        _run(capsys, "swift", "voce")


def _guide_law(folder):
    (code,) = re.findall(r"```python\n(.*?)```", _GUIDE.read_text("utf-8"), re.DOTALL)
    path = folder / "my_law.py"
    path.write_text(code, "utf-8")
    return f"{path}:DesayiKrishnan"


def test_example_of_the_guide_runs_and_passes_its_own_check(capsys, tmp_path):
    spec = _guide_law(tmp_path)
    status, text = _run(capsys, spec)
    assert status == 0
    assert "σ = 2·fc·(ε/ε0)/(1 + (ε/ε0)²)" in text
    assert text.count("passed") == 3
    law = find_law(spec)
    # The strength at its strain; 4/5 of it at half and at twice that strain.
    stress = law.stress(np.array([[0.0, 0.001, 0.002, 0.004]]), np.array([[30.0, 0.002]]))
    np.testing.assert_allclose(stress, [[0.0, 24.0, 30.0, 24.0]], rtol=1e-15)


def test_the_law_of_the_guide_that_remembers_runs_and_passes_its_check(capsys, tmp_path):
    examples = re.findall(r"```py\n(.*?)```", _GUIDE.read_text("utf-8"), re.DOTALL)
    (code,) = [example for example in examples if "(HistoryLaw)" in example]
    path = tmp_path / "maxwell.py"
    path.write_text(code, "utf-8")
    status, text = _run(capsys, f"{path}:Maxwell")
    assert status == 0
    assert text.count("passed  relaxation") == 3
    # Exact for strain that is even between points: half of a sudden stress is left after ln 2 relaxation times.
    law = find_law(f"{path}:Maxwell")
    history = History(strain=np.full((1, 2), 0.01), time=np.array([[0.0, 100 * np.log(2)]]))
    stress = law.respond(history, np.array([[1000.0, 100.0]]))
    np.testing.assert_allclose(stress, [[10.0, 5.0]], rtol=1e-12)


@pytest.mark.pictures
@pytest.mark.parametrize(("name", "panels"), [("voce", 1), ("ogden", 3), ("norton", 2)])
def test_plot_draws_records_test_by_test(capsys, tmp_path, name, panels):
    path = tmp_path / "law.svg"
    status, text = _run(capsys, name, f"--plot={path}")
    assert status == 0 and text.endswith(f"picture: {path}\n")
    assert len(set(re.findall(r'id="axes_\d+"', path.read_text("utf-8")))) == panels


def test_plot_wants_a_law(capsys, tmp_path):
    with pytest.raises(InputError, match="--plot draws one law; name it"):
        _run(capsys, f"--plot={tmp_path / 'law.png'}")
    with pytest.raises(InputError, match="plot"):
        _run(capsys, "voce", f"--plot={tmp_path / 'nowhere' / 'law.png'}")


def test_user_law_that_fails_its_check_ends_with_status_2(capsys, tmp_path):
    spec = _guide_law(tmp_path)
    path = tmp_path / "my_law.py"
    path.write_text(path.read_text("utf-8").replace("-by_share * share", "-by_share"), "utf-8")
    status, text = _run(capsys, spec)
    assert status == 2
    assert "FAILED  derivatives: d stress / d epsilon0 differs" in " ".join(
        text.split("\n")
    ).replace("check ", "")
    (described,) = json.loads(_run(capsys, spec, "--json")[1])["laws"]
    assert not described["checks"][-1]["passed"]


def test_a_law_is_tried_over_tests_of_ones_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path would break the lines
    examples = re.findall(r"```py\n(.*?)```", _GUIDE.read_text("utf-8"), re.DOTALL)
    (code,) = [example for example in examples if "(Programme)" in example]
    path = tmp_path / "my_test.py"
    path.write_text(code, "utf-8")
    spec = "my_test.py:Ratchet"
    status, text = _run(capsys, "--tests", spec)
    assert status == 0 and "tension in steps" in text and "share of a step that is unloaded" in text
    assert "uniaxial" not in text  # only what is named
    status, text = _run(capsys, "--tests", spec, "--law=voce_chaboche_1")
    assert status == 0 and text.count("passed  ratchet") == 3
    assert f"tfmat train --law=voce_chaboche_1 --config.tests={spec}" in " ".join(text.split())
    for flags, said in (
        (["--law=voce"], "law voce is for one curve of rising strain; leave tests=ratchet out"),
        (["--json"], "name some and a law that answers them"),
    ):
        with pytest.raises(InputError, match=said):
            _run(capsys, "--tests", spec, *flags)
    path.write_text(code.replace('"ratchet"', '"cyclic"'), "utf-8")
    with pytest.raises(InputError, match="'cyclic', which is a test that comes with tfmat"):
        _run(capsys, "--tests", spec)


def test_the_law_is_a_flag_as_everywhere(capsys):
    assert _run(capsys, "--law=voce") == _run(capsys, "voce")


# Mistakes in the guide's law: the right text, the wrong one, and what is said of it.
_MISTAKES = [
    ("strain / peak\n        return", "strain / peak.mean()\n        return", "independence: a curve alone differs"),
    ("-by_share * share / peak", "-by_share * share", "derivatives: d stress / d epsilon0 differs"),
    ('"desayi_krishnan"', '"voce"', "its name is 'voce', which is a law that comes with tfmat"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "said"), _MISTAKES)
def test_a_wrong_law_answers_nothing_and_makes_no_data(refused, tmp_path, right, wrong, said):
    spec = _guide_law(tmp_path)
    curve = tmp_path / "curve.csv"
    strain = np.linspace(0.0, 0.003, 40)
    stress = find_law(spec).stress(strain[None], np.array([[40.0, 0.002]]))[0]
    rows = "".join(f"{e},{s}\n" for e, s in zip(strain, stress, strict=True))
    curve.write_text(f"strain [-],stress [MPa]\n{rows}")
    commands = (
        ["identify", str(curve), f"--law={spec}"],
        ["generate", f"--law={spec}", "--num_curves=8", f"--data_dir={tmp_path}/data"],
        ["train", f"--law={spec}", f"--data_dir={tmp_path}/data", f"--workdir={tmp_path}/run"],
    )
    assert main(commands[0]) == 0
    path = tmp_path / "my_law.py"
    path.write_text(path.read_text("utf-8").replace(right, wrong), "utf-8")
    for command in commands:
        assert said in refused(*command)


def test_terminal_of_80_columns_holds_every_line():
    """Under a terminal (a pty) no line is longer than its 80 columns."""
    import pty

    code = "from tfmat.cli.main import main; main(['laws'])"
    leader, follower = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "TERM": "xterm-256color",
        "PYTHONIOENCODING": "utf-8",
    }
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=follower, env=environment
    ) as process:
        os.close(follower)
        output = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            output += piece
    os.close(leader)
    assert process.returncode == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output.decode("utf-8"))
    assert "hahn_tsai (default)" in plain
    assert "─" in plain
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= 80


def test_the_tests_are_listed_with_their_settings_and_laws(capsys):
    from tfmat.records.programmes import PROGRAMMES

    status, printed = _run(capsys, "--tests")
    assert status == 0
    for name, programme in PROGRAMMES.items():
        assert f"{name}  {programme.title}" in printed
        assert all(setting.name in printed for setting in programme.settings)
    assert "The record tells the rate and the temperature." in " ".join(printed.split())
    with pytest.raises(InputError, match="there is no test 'voce'"):
        _run(capsys, "--tests", "voce")

"""Laws and labelled curves that are not tfmat's own, from their file to the identified parameters."""

import json
import pathlib
import re
import shutil
import tempfile

import numpy as np

from tfmat_tests.end_to_end.runs import leftovers, status
from tfmat_tests.pictures import BLANK
from tfmat_tests.processes import PROJECT, Ended, ForkServer
from tfmat_tests.specimens.bar import AREA, END, LENGTH, MODULUS, bar_folder

# A run of seconds whose network learns what is asked of it here.
SMALL_NETWORK = (
    "--config.model.conv_filters=4",
    "--config.model.kernel_sizes=5",
    "--config.model.hidden_units=30",
)
SHORT = (
    "--config=configs/smoke.py",
    *SMALL_NETWORK,
    "--config.optimizer.learning_rate=5e-3",
    "--config.global_batch_size=25",
    "--config.train_for=180steps",
    "--workdir=run",
)


def _succeed(programs: ForkServer, folder: pathlib.Path, *arguments: str) -> Ended:
    ended = programs.run(*arguments, cwd=folder)
    assert ended.status == 0, ended.err
    assert not leftovers(folder)
    assert "Traceback" not in ended.err and "tensorflow" not in ended.err.lower()
    return ended


def _write_hardening_curves(file: pathlib.Path, num_curves: int) -> None:
    """A formula that tfmat does not have: stress = K (1 - exp(-strain / c)), both drawn at random, 80 points."""
    random = np.random.default_rng(0)
    strength = random.uniform(200.0, 800.0, num_curves)
    constant = random.uniform(0.01, 0.05, num_curves)
    strain = np.linspace(0.0, 0.1, 80)
    stress = strength[:, None] * (1 - np.exp(-strain / constant[:, None]))
    np.savez(
        file,
        strain=strain,
        stress=stress + random.normal(0.0, 1.0, stress.shape),
        parameters=np.stack([strength, constant], axis=1),
        names=["K", "c"],
        units=["MPa", "-"],
    )


def _write_curve(file: pathlib.Path, strain: np.ndarray, stress: np.ndarray) -> None:
    lines = [
        "strain,stress [MPa]",
        *(f"{e:.6g},{s:.6g}" for e, s in zip(strain, stress, strict=True)),
    ]
    file.write_text("\n".join(lines) + "\n")


def test_own_labelled_curves_of_no_law(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    _write_hardening_curves(tmp_path / "mine.npz", 1000)
    _succeed(programs, tmp_path, "generate", "--from=mine.npz")
    (folder,) = (tmp_path / "data").iterdir()
    data = f"--data_dir={folder.relative_to(tmp_path)}"
    ended = _succeed(programs, tmp_path, "train", *SHORT, data)
    assert re.search(r"\bK\b.* MPa", ended.out) and "re-simulated" not in ended.out
    run = tmp_path / "run"
    assert status(run)["state"] == "done"
    config = json.loads((run / "config.json").read_text())
    assert config["law"] == "imported" and config["data"]["num_points"] == 200
    scores = json.loads((run / "evaluation.json").read_text())
    assert scores["parameters"]["K"]["r2"] > 0.5  # it learns
    _succeed(programs, tmp_path, "evaluate", "--workdir=run")
    strain = np.linspace(0.0, 0.1, 60)
    _write_curve(tmp_path / "curve.csv", strain, 500 * (1 - np.exp(-strain / 0.03)))
    ended = _succeed(
        programs, tmp_path, "identify", "curve.csv", "--workdir=run", "--json=out.json"
    )
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert abs(answer["parameters"]["K"]["value"] - 500) < 150
    # The same again goes on with nothing to do.
    ended = _succeed(programs, tmp_path, "train", *SHORT, data)
    assert "is done: all" in ended.err and "changes nothing" not in ended.err
    # Nor does a setting of the steps that are over, which could be taken for tried.
    ended = _succeed(programs, tmp_path, "train", *SHORT, data, "--config.offload=slots")
    assert "offload=slots changes nothing any more, give another workdir" in ended.err


def test_the_guide_to_labelled_curves(programs, tmp_path, monkeypatch):
    """Program and commands of docs/finite_elements.md on labelled curves in turn; only the training is small."""
    text = (PROJECT / "docs" / "finite_elements.md").read_text("utf-8")
    section = text.partition("## Labelled curves from elsewhere")[2]
    guide = re.sub(r" \\\n +", " ", section)
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(compile(program, "finite_elements.md", "exec"), {})
    generate, train, identify = re.findall(r"^    tfmat (.*)", guide, re.MULTILINE)

    ended = _succeed(programs, tmp_path, *generate.split())
    (folder,) = (tmp_path / "data").iterdir()
    # The digits come from the file's bytes, in which another NumPy may round otherwise.
    shown = re.search(r"data/(\S+)", train)
    assert shown and re.sub(r"\w{8}$", "", shown[1]) == re.sub(r"\w{8}$", "", folder.name)
    train, identify = (line.replace(shown[1], folder.name) for line in (train, identify))
    assert train.startswith(ended.out.splitlines()[-1].partition("tfmat ")[2])

    ended = _succeed(
        programs, tmp_path, *train.split(), *SMALL_NETWORK, "--config.train_for=20steps"
    )
    assert "the warm-up is cut to a tenth of the run (steps: 2)" in ended.err
    assert not (tmp_path / "runs" / "quickstart").exists()
    strain = np.linspace(0.0, 0.02, 100)
    _write_curve(tmp_path / "my_curve.csv", strain, np.minimum(200e3 * strain, 300.0))
    ended = _succeed(programs, tmp_path, *identify.split())
    assert "sigma_y (MPa)" in ended.out


def test_own_labelled_curves_of_a_law(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    """Curves of Voce's law with E known, computed here; answers can be simulated again."""
    random = np.random.default_rng(1)
    count, strain = 800, np.linspace(0.0, 0.3, 120)
    yield_stress, gain = random.uniform(100, 400, count), random.uniform(100, 600, count)
    rate = random.uniform(3, 20, count)
    plastic = np.linspace(0.0, 0.3, 400)
    stress = np.empty((count, 120))
    for i in range(count):
        curve = yield_stress[i] + gain[i] * (1 - np.exp(-rate[i] * plastic))
        total = plastic + curve / 200_000.0
        stress[i] = np.where(strain < total[0], 200_000.0 * strain, np.interp(strain, total, curve))
    np.savez(
        tmp_path / "voce.npz",
        strain=strain,
        stress=stress,
        parameters=np.stack([yield_stress, gain, rate], axis=1),
        names=["sigma0", "Q", "b"],
        units=["MPa", "MPa", "-"],
    )
    _succeed(programs, tmp_path, "generate", "--from=voce.npz", "--law=voce", "--fix=E=200000")
    (folder,) = (tmp_path / "data").iterdir()
    ended = _succeed(programs, tmp_path, "train", *SHORT, f"--data_dir={folder}", "--law=voce")
    assert "re-simulated curves:" in ended.out and "sigma0" in ended.out
    _write_curve(tmp_path / "curve.csv", strain, stress[0])
    ended = _succeed(
        programs, tmp_path, "identify", "curve.csv", "--workdir=run", "--json=out.json"
    )
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert answer["rmse_percent"] < 30


def test_the_law_of_the_guide(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    """The file that docs/adding_a_law.md prints, and the commands that it gives for it."""
    guide = (PROJECT / "docs" / "adding_a_law.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "my_law.py").write_text(code)
    ended = _succeed(programs, tmp_path, "laws", "my_law.py:DesayiKrishnan")
    assert "FAILED" not in ended.out
    assert "tfmat train --law=my_law.py:DesayiKrishnan" in guide
    small = (
        "--config.data.num_curves=400",
        "--config.data.num_test=20",
        "--config.data.num_points=32",
    )
    train = ("train", *SHORT, *small, "--law=my_law.py:DesayiKrishnan")
    _succeed(programs, tmp_path, *train)
    shutil.copy(tmp_path / "run" / "example_curve.csv", tmp_path / "curve.csv")
    ended = _succeed(programs, tmp_path, "identify", "curve.csv", "--workdir=run")
    assert "fc (MPa)" in ended.out
    # From another folder, and where the run lies elsewhere and its law is told.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = ("identify", "../curve.csv", "--workdir=../run", "--json=out.json")
    _succeed(programs, elsewhere, *again)
    answers = json.loads((elsewhere / "out.json").read_text())
    with tempfile.TemporaryDirectory() as away:
        shutil.move(tmp_path / "my_law.py", away)
        ended = programs.run(*again, cwd=elsewhere)
        assert ended.status == 2
        assert "nor in ../run or a folder above it; say where it is: --trust=" in ended.err
        _succeed(programs, elsewhere, *again, f"--law={away}/my_law.py:DesayiKrishnan")
        assert json.loads((elsewhere / "out.json").read_text()) == answers
        _succeed(programs, elsewhere, "evaluate", "--workdir=../run", f"--trust={away}/my_law.py")
    # Another law of the same name is not that of the network.
    (tmp_path / "my_law.py").write_text(code)
    (elsewhere / "my_law.py").write_text(code.replace("80.0", "90.0"))
    ended = programs.run(*again, "--law=my_law.py:DesayiKrishnan", cwd=elsewhere)
    assert ended.status == 2 and "in another file than my_law.py" in ended.err
    # A changed law is another law: what was trained on the old one is not used for it.
    (tmp_path / "my_law.py").write_text(code.replace("80.0", "90.0"))
    ended = programs.run(*train, cwd=tmp_path)
    assert ended.status == 2 and "was started with" in ended.err


def test_a_specimen_that_a_program_simulates(programs, tmp_path, monkeypatch):
    """From the folder that describes it to the posterior of a measured force over displacement."""
    bar = bar_folder(tmp_path)
    description = bar / "simulator.toml"
    nuisance = "[nuisances.friction]\nlow = 0.1\nhigh = 0.2\n[curve]"
    description.write_text(description.read_text().replace("[curve]", nuisance))
    with (bar / "bar.in").open("a") as file:
        file.write("friction={{ friction }}\n")
    ended = _succeed(
        programs,
        tmp_path,
        "generate",
        "--simulator=bar",
        "--num_runs=60",
        "--num_threads=2",
        "--copies=8",
    )
    data = ended.out.splitlines()[1].split()[-1]
    assert f"tfmat train --config=configs/specimen.py --data_dir={data} " in ended.out
    flow = ("--config.model.uncertainty=flow", "--config.model.couplings=1")
    _succeed(programs, tmp_path, "train", *SHORT, *flow, f"--data_dir={data}")
    displacement = np.linspace(0.0, END, 80)
    elastic = np.minimum(displacement / LENGTH, 200.0 / MODULUS)
    force = ((MODULUS - 1000.0) * elastic + 1000.0 * displacement / LENGTH) * AREA
    lines = [f"{u:.6g},{f:.6g}" for u, f in zip(displacement, force, strict=True)]
    (tmp_path / "bar.csv").write_text("\n".join(["displacement [mm],force [N]", *lines]) + "\n")
    answers = ("identify", "bar.csv", "--workdir=run", "--samples=500", "--json=out.json")
    monkeypatch.setenv(BLANK, "")
    verified = ("--simulator=bar", "--verify=3", "--plot_dir=plots")
    ended = _succeed(programs, tmp_path, *answers, *verified)
    said = " ".join(ended.out.split())
    assert "from the posterior of bar, with friction drawn from its range, are" in said
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    assert answer["posterior"]["status"] == "amortised"
    assert "no likelihood" in answer["posterior"]["reason"]
    low, high = answer["parameters"]["yields"]["ci95"]
    assert 100 <= low < high <= 300 and abs(answer["parameters"]["yields"]["value"] - 200) < 60
    with np.load(tmp_path / "samples.npz") as samples:
        assert samples["samples"].shape == (1, 500, 2)
    errors = [run["rmse_percent"] for run in answer["verification"]]
    assert len(errors) == 3 and 0 < min(errors) <= max(errors) < 60
    assert (tmp_path / "plots" / "bar.verified.png").stat().st_size > 10_000
    for wrong, message in (
        (("--verify=3",), "--verify runs a program; say which: --simulator=FOLDER"),
        (("--card=abaqus",), "law"),
        (("--fix=slope=1000", "--simulator=bar"), "nothing can be fixed"),
    ):
        ended = programs.run(*answers[:3], *wrong, cwd=tmp_path)
        assert ended.status == 2 and ended.err.count("\n") == 1 and message in ended.err

"""Files that an older tfmat left open today and go on: a run, a data set, a search and a scaling study.

The code of commit a093ac8 made what lies in older_files/, with the two configs there:

    tfmat train --config=small.py --workdir=finished --data_dir=data
    tfmat train --config=small.py --workdir=interrupted --data_dir=data     SIGTERM after epoch 2 of 4
    tfmat tune --config=small.py --workdir=search --data_dir=data --num_workers=1     SIGINT in trial 1 of 0 and 1
    tfmat scale --config=study.py --workdir=study     SIGINT before the last repetition

Figures, pages and TensorBoard's files are left out, and so are the networks of the search.
"""

import importlib
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

from tfmat.cli.main import main
from tfmat.config import load_config
from tfmat.files import read_json
from tfmat_tests.end_to_end.runs import metrics, status, weights
from tfmat_tests.processes import forked_python

EXAMPLE = "hahn_tsai_simulated_G0_6964_a_2.44e-8"
PROJECT = pathlib.Path(__file__).resolve().parents[1]
OLDER = PROJECT / "tfmat_tests" / "older_files"
DATASET = "data/hahn_tsai-160-0ff9d9be"


@pytest.fixture
def older(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A copy of the files in the working directory."""
    shutil.copytree(OLDER, tmp_path / "older")
    monkeypatch.chdir(tmp_path / "older")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    # What a search and a study start.
    monkeypatch.setattr(sys, "executable", forked_python())
    return tmp_path / "older"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of `tfmat ARGUMENTS`, which must succeed."""
    capsys.readouterr()
    returned = main(list(arguments))
    captured = capsys.readouterr()
    assert returned == 0, captured.err
    return captured.out + captured.err


def test_an_interrupted_run_ends_as_it_would_have_ended(older, capsys):
    said = call(capsys, "train", "--config=small.py", "--workdir=interrupted", "--data_dir=data")
    assert "going on from step 12" in said and "simulating" not in said
    assert status(older / "interrupted")["state"] == "done"
    assert status(older / "interrupted")["resumed_from_steps"] == [12]
    # The same four epochs without the interruption, trained by the older code.
    found, expected = metrics(older / "interrupted"), metrics(older / "finished")
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected, strict=True):
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=1e-4), key
    ours = weights(older / "interrupted" / "final.keras")
    for name, array in weights(older / "finished" / "model.keras").items():
        assert np.linalg.norm(ours[name] - array) <= 1e-4 * np.linalg.norm(array) + 1e-7, name
    assert (older / "interrupted" / "report.html").exists()


def test_a_finished_run_answers_and_is_reported(older, capsys):
    before = read_json(older / "finished" / "evaluation.json")
    call(capsys, "evaluate", "--workdir=finished", f"--data_dir={DATASET}")
    after = read_json(older / "finished" / "evaluation.json")
    assert after["law"] == before["law"] == "hahn_tsai"
    for key in ("num_curves", "mse", "rmse_percent"):
        assert after[key] == pytest.approx(before[key], rel=1e-4), key
    curve = PROJECT / "tfmat" / "examples" / f"{EXAMPLE}.csv"
    call(capsys, "identify", str(curve), "--workdir=finished", "--json=answer.json")
    (ours,), (theirs,) = (
        read_json(older / "answer.json"),
        read_json(older / "finished" / "example.json"),
    )
    for name, parameter in theirs["parameters"].items():
        # What the network says was the headline then.
        assert ours["parameters"][name]["network"] == pytest.approx(parameter["value"], rel=1e-4)
        best = ours["parameters"][name]["least_squares"]
        assert best == pytest.approx(parameter["least_squares"], rel=1e-3)
    call(capsys, "report", "--workdir=finished")
    page = (older / "finished" / "report.html").read_text()
    assert EXAMPLE in page and "hahn_tsai" in page


def test_a_data_set_trains(older, capsys):
    call(capsys, "train", "--config=small.py", "--workdir=new", f"--data_dir={DATASET}")
    assert [path.name for path in (older / "data").iterdir()] == [pathlib.Path(DATASET).name]
    # The order of the examples and the first weights are the older code's.
    for ours, theirs in zip(metrics(older / "new"), metrics(older / "finished"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_a_search_is_read_and_goes_on(older, capsys):
    said = call(capsys, "tune", "--status", "--workdir=search")
    assert "2 of 2: 1 waiting, 1 done" in said and "trial 0000, val_loss 0.3267" in said
    first = older / "search" / "trials" / "0000" / "seed-0" / "metrics.jsonl"
    before = first.read_bytes()
    arguments = ("--config=small.py", "--workdir=search", "--data_dir=data", "--num_workers=1")
    assert "1 of 2 trials have ended" in call(capsys, "tune", *arguments)
    state = read_json(older / "search" / "search.json")
    assert state["end_order"] == ["0000", "0001"]
    assert {trial["state"] for trial in state["trials"].values()} == {"done"}
    assert first.read_bytes() == before
    assert status(older / "search" / "trials" / "0001" / "seed-0")["state"] == "done"
    assert load_config("search/best.py").data.num_curves == 160


def test_a_study_is_drawn_and_goes_on(older, capsys):
    file = older / "study" / "measurements.jsonl"
    # Studies of that time also measured TensorFlow's own strategies.
    one = json.loads(file.read_text().splitlines()[-1])
    for backend, collectives in (
        ("parameter_server", "asynchronous updates"),
        ("mirrored", ""),
        ("multi_worker_mirrored", ""),
    ):
        point = {**one["point"], "backend": backend, "collectives": collectives}
        with file.open("a") as lines:
            print(json.dumps({**one, "point": point, "ranks": []}), file=lines)
    measured = file.read_text().splitlines()
    call(capsys, "report", "--workdir=study")
    first_page = (older / "study" / "scaling_report.html").read_text()
    assert "2 workers" in first_page
    assert "The parameter server&#39;s chief and server are two more processes" in first_page
    table = (older / "study" / "scaling_points.csv").read_text()
    for backend in ("parameter_server", "mirrored", "multi_worker_mirrored"):
        assert f"\n{backend},2,50,25,weak," in table
    # It goes on as if here, whatever this machine is: what was measured on another one would be measured anew.
    machine = json.loads(measured[-1])["point"]["hardware"]
    config = (older / "study.py").read_text()
    (older / "study.py").write_text(
        config.replace("Matrix(\n", f"Matrix(\n        hardware={machine!r},\n")
    )
    call(capsys, "scale", "--config=study.py", "--workdir=study")
    lines = file.read_text().splitlines()
    assert set(measured) <= set(lines)
    new = [json.loads(line) for line in lines if line not in measured]
    assert [each["number"] for each in new if each["kind"] == "session"] == [1]
    (added,) = [each for each in new if each["kind"] in ("repetition", "allreduce")]
    assert (added["kind"], added["point"]["backend"], added["round"]) == ("repetition", "single", 1)


def test_modules_that_files_of_users_name_are_found():
    """Laws that `tfmat emulate` wrote, and programmes and models of their own, name modules of their time."""
    from tfmat.networks.factory import ExampleWeightedBatchNormalization
    from tfmat.records.programmes import Programme, along_path
    from tfmat.specimens.emulator import ForwardLaw

    found: dict[str, object] = {}
    exec(
        "from tfmat.simulators.forward import ForwardLaw\n"
        "from tfmat.curves.programmes import Programme\n"
        "from tfmat.curves.paths import along_path\n"
        "from tfmat.models.normalization import ExampleWeightedBatchNormalization as Normalization\n",
        found,
    )
    assert (found["ForwardLaw"], found["Programme"]) == (ForwardLaw, Programme)
    assert found["along_path"] is along_path
    assert found["Normalization"] is ExampleWeightedBatchNormalization
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tfmat.curves.nothing")

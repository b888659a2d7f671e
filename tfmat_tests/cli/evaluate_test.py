"""`tfmat evaluate` as a user calls it."""

import json
import shutil

import pytest

from tfmat.cli.main import main
from tfmat.data.dataset import generate_dataset
from tfmat.records.simulation import CurveSettings


@pytest.fixture
def workdir(trained_run, tmp_path):
    return shutil.copytree(trained_run.workdir, tmp_path / "run")


def test_table_json_and_pictures(workdir, tmp_path, capsys):
    arguments = [f"--workdir={workdir}", f"--json={tmp_path / 'copy.json'}", "--noreference"]
    assert main(["evaluate", *arguments]) == 0
    captured = capsys.readouterr()
    for expected in (
        "1,000 test curves",
        "G0",
        "decades",
        "R²",
        "of the maximum stress",
        "× the noise",
    ):
        assert expected in captured.out
    assert captured.err == ""
    content = json.loads((workdir / "evaluation.json").read_text())
    assert content == json.loads((tmp_path / "copy.json").read_text())
    assert content["num_curves"] == 1000
    assert content["reference"] is None
    assert "Bayes" not in captured.out
    page = (workdir / "report.html").read_text("utf-8")
    assert f"report: {workdir / 'report.html'}" in captured.out
    assert "left out because they take a minute" in page
    assert 0 < content["mse"] < 0.05
    for name in ("predicted_against_true.png", "kinds_of_curves.png", "losses.png"):
        assert (workdir / "figures" / name).read_bytes().startswith(b"\x89PNG")
    assert not list(workdir.rglob("*.tmp"))


def test_another_data_dir(workdir, trained_run):
    (workdir / "config.json").unlink()
    (workdir / "metrics.jsonl").unlink()
    arguments = [f"--data_dir={trained_run.dataset.folder}", "--reference=false"]
    assert main(["evaluate", f"--workdir={workdir}", *arguments]) == 0
    assert not (workdir / "figures" / "losses.png").exists()


def test_the_reference_is_in_table_json_and_picture(
    workdir, trained_run, tmp_path, capsys, refused
):
    folder = shutil.copytree(trained_run.dataset.folder, tmp_path / "data")
    arguments = [f"--workdir={workdir}", f"--data_dir={folder}"]
    assert main(["evaluate", *arguments, "--num_reference=60"]) == 0
    captured = capsys.readouterr()
    for expected in ("reference, 60 test curves", "Bayes risk", "η", "curves/s", "maximum strain"):
        assert expected in captured.out
    assert captured.err == ""
    content = json.loads((workdir / "evaluation.json").read_text())
    assert content["reference"]["num_curves"] == 60
    assert (workdir / "figures" / "kinds_of_curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Bayes risk" in (workdir / "report.html").read_text("utf-8")
    assert (folder / "bayes_risk.json").is_file()
    assert "--num_reference is of the reference" in refused(
        "evaluate", *arguments, "--noreference", "--num_reference=60"
    )
    assert "num_reference" in refused("evaluate", *arguments, "--num_reference=1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"misfit": (0.001, 0.02)}, "no reference: the data set's curves depart from their law"),
        ({"noise_mpa": 0.0}, "no reference: "),
    ],
)
def test_curves_without_noise_or_a_law_have_no_reference(workdir, tmp_path, capsys, options, said):
    data = generate_dataset(
        CurveSettings(**options), seed=1, num_curves=8, num_test=20, data_dir=tmp_path
    )
    assert main(["evaluate", f"--workdir={workdir}", f"--data_dir={data.folder}"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(said)
    assert len(captured.err.splitlines()) == 1
    assert "20 test curves" in captured.out
    assert "η" not in captured.out and "× the noise" not in captured.out
    content = json.loads((workdir / "evaluation.json").read_text())
    assert content["reference"] is None and content["rmse_over_noise"] is None
    assert not (data.folder / "bayes_risk.json").exists()


def test_a_wrong_call_gets_one_line_and_status_2(workdir, tmp_path, refused):
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ([f"--workdir={tmp_path / 'none'}"], "holds no trained model"),
        ([f"--workdir={workdir}", f"--data_dir={tmp_path / 'empty'}"], "is not there"),
        ([f"--workdir={workdir}", f"--json={tmp_path / 'none' / 'out.json'}"], "there is no folder"),
    ):  # fmt: skip
        assert message in refused("evaluate", *arguments)

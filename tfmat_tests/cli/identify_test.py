"""`tfmat identify` as a user calls it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tfmat.cli.main import main
from tfmat.curves.example import example_curve, write_example_curve
from tfmat.materials import find_law


@pytest.fixture
def curve(tmp_path) -> pathlib.Path:
    path = example_curve("hahn_tsai")
    assert path is not None
    return pathlib.Path(shutil.copy(path, tmp_path / "curve.csv"))


def test_one_curve(trained_run, curve, capsys):
    assert main(["identify", str(curve), f"--workdir={trained_run.workdir}"]) == 0
    captured = capsys.readouterr()
    for expected in (
        "law hahn_tsai",
        "G0 (MPa)",
        "a (MPa⁻³)",
        "curve",
        "read 150 points",
        "put it on 200 points",
    ):
        assert expected in captured.out
    assert captured.err == ""
    assert sorted(file.name for file in curve.parent.iterdir()) == ["curve.csv"]


def test_several_curves_with_json_and_plots(trained_run, curve, capsys):
    folder = curve.parent
    (folder / "b").mkdir()
    same_name = write_example_curve(find_law("hahn_tsai"), folder / "b" / "curve.csv", seed=3)
    other = write_example_curve(find_law("hahn_tsai"), folder / "other specimen.csv", seed=4)
    flags = [
        f"--workdir={trained_run.workdir}",
        f"--json={folder / 'out.json'}",
        f"--plot_dir={folder / 'plots'}",
    ]
    assert main(["identify", str(curve), str(same_name), str(other), *flags]) == 0
    results = json.loads((folder / "out.json").read_text())
    assert [result["curve"] for result in results] == [str(curve), str(same_name), "other specimen"]
    assert {result["law"] for result in results} == {"hahn_tsai"}
    assert results[0]["parameters"]["G0"]["unit"] == "MPa"
    plots = list((folder / "plots").iterdir())
    assert len(plots) == 3
    assert all(plot.read_bytes().startswith(b"\x89PNG") for plot in plots)
    assert (folder / "plots" / "other_specimen.png").is_file()
    assert capsys.readouterr().out.count("MPa⁻³") == 1  # one table


def test_units_and_columns_are_settable(trained_run, curve, capsys):
    strain, stress = np.loadtxt(curve, delimiter=",", skiprows=1, unpack=True)
    rows = zip(strain * 100, stress / 6.894757293168361, strict=True)
    curve.with_name("lab.csv").write_text(
        "ch1;ch2\n" + "".join(f"{e:.9g};{s:.9g}\n" for e, s in rows)
    )
    for name, flags in {
        "curve.csv": [],
        "lab.csv": [
            "--strain_column=ch1",
            "--stress_column=ch2",
            "--strain_unit=%",
            "--stress_unit=ksi",
        ],
    }.items():
        output = curve.with_name(f"{name}.json")
        arguments = [
            str(curve.with_name(name)),
            f"--workdir={trained_run.workdir}",
            f"--json={output}",
            *flags,
        ]
        assert main(["identify", *arguments]) == 0
    plain, lab = (
        json.loads(curve.with_name(f"{name}.json").read_text())[0]
        for name in ("curve.csv", "lab.csv")
    )
    for name, entry in plain["parameters"].items():
        assert lab["parameters"][name]["value"] == pytest.approx(entry["value"], rel=1e-3)
    capsys.readouterr()


def test_every_bad_file_is_named_and_nothing_is_written(trained_run, curve, capsys):
    (curve.parent / "bad.csv").write_text("stress\n1\n2\n")
    before = sorted(curve.parent.iterdir())
    outputs = [f"--json={curve.parent / 'out.json'}", f"--plot_dir={curve.parent / 'plots'}"]
    files = [str(curve), str(curve.parent / "bad.csv"), str(curve.parent / "none.csv")]
    assert main(["identify", *files, f"--workdir={trained_run.workdir}", *outputs]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert "bad.csv: its first line 'stress' is one column" in first
    assert "none.csv: no such file" in second
    assert sorted(curve.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no curve given"),
        (["curve.csv", "--workdir=none"], "none holds no trained model"),
        (["curve.csv", "--stress_unit=kssi"], "unknown stress unit 'kssi'; did you mean 'ksi'?"),
        (["curve.csv", "--json=none/out.json"], "there is no folder none"),
        (["curve.csv", "--json=."], "is a folder"),
        (["curve.csv", "--plot_dir=curve.csv"], "is a file"),
        (["curve.csv", "--stress_units=ksi"], "did you mean '--stress_unit'?"),
    ],
)
def test_a_wrong_call_gets_one_line_and_status_2(arguments, message, curve, monkeypatch, capsys):
    monkeypatch.chdir(curve.parent)
    assert main(["identify", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""
    assert [file.name for file in curve.parent.iterdir()] == ["curve.csv"]


def test_a_bad_file_is_refused_before_tensorflow_is_loaded(trained_run, tmp_path):
    program = (
        "import sys; from tfmat.cli.main import main; "
        f"status = main(['identify', 'none.csv', '--workdir={trained_run.workdir}']); "
        "sys.exit(status if 'tensorflow' not in sys.modules else 99)"
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2])}
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert process.returncode == 2, process.stderr
    assert process.stderr == "tfmat: none.csv: no such file\n"


def test_real_metal_curves_in_ksi_are_refused_by_a_shear_model_with_a_reason(
    trained_run, real_curves, capsys
):
    files = sorted(map(str, real_curves.glob("304L_astm_e8/*.dat")))
    assert main(["identify", *files, f"--workdir={trained_run.workdir}", "--stress_unit=ksi"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 8
    assert all("largest trained strength" in line for line in lines)

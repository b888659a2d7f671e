"""`tfmat identify` as a user calls it."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pandas
import pytest

from tfmat.cli.main import main
from tfmat.materials import find_law
from tfmat.records.files import write_example_curve
from tfmat_tests.processes import real_python


def test_one_curve(trained_run, curve, capsys):
    assert main(["identify", str(curve), f"--workdir={trained_run.workdir}"]) == 0
    captured = capsys.readouterr()
    for expected in (
        "law hahn_tsai",
        "least squares",
        "95 % interval",
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


def test_units_and_columns_are_settable(trained_run, curve):
    strain, stress = np.loadtxt(curve, delimiter=",", skiprows=1, unpack=True)
    rows = zip(strain * 100, stress / 6.894757293168361, strict=True)
    curve.with_name("lab.csv").write_text(
        "ch1;ch2\n" + "".join(f"{e:.9g};{s:.9g}\n" for e, s in rows)
    )
    for name, flags in {
        "curve.csv": [],
        "lab.csv": ["--strain_column=ch1", "--stress_column=ch2", "--strain_unit=%", "--stress_unit=ksi"],
    }.items():  # fmt: skip
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


def test_every_bad_file_is_named_and_nothing_is_written(trained_run, curve, capsys):
    (curve.parent / "bad.csv").write_text("stress\n1\n2\n")
    before = sorted(curve.parent.iterdir())
    outputs = [f"--json={curve.parent / 'out.json'}", f"--plot_dir={curve.parent / 'plots'}"]
    files = [str(curve), str(curve.parent / "bad.csv"), str(curve.parent / "none.csv")]
    assert main(["identify", *files, f"--workdir={trained_run.workdir}", *outputs]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert "bad.csv: it has one column of numbers" in first
    assert "none.csv: no such file" in second
    assert sorted(curve.parent.iterdir()) == before
    flags = [f"--workdir={trained_run.workdir}", "--skip_bad_files", *outputs]
    assert main(["identify", *files, *flags]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert [r["curve"] for r in json.loads((curve.parent / "out.json").read_text())] == ["curve"]


def test_folders_and_patterns(trained_run, tmp_path, refused):
    law = find_law("hahn_tsai")
    for name in ("a/1.csv", "a/deep/2.txt", "a/.hidden.csv", "b/3.csv", "b/[4].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_example_curve(law, tmp_path / name)
    (tmp_path / "a" / "notes.md").write_text("no curve")
    output = tmp_path / "out.json"
    arguments = [tmp_path / "a", tmp_path / "b" / "*.csv", tmp_path / "b" / "[4].csv"]
    flags = [f"--workdir={trained_run.workdir}", f"--json={output}", "--noleast_squares"]
    assert main(["identify", *map(str, arguments), *flags]) == 0
    results = json.loads(output.read_text())
    assert [result["curve"] for result in results] == ["1", "2", "3", "[4]"]
    assert results[0]["parameters"]["G0"]["least_squares"] is None
    (tmp_path / "empty").mkdir()
    for wrong, message in (("empty", "holds no curves"), ("b/*.xlsx", "no file matches")):
        assert message in refused("identify", tmp_path / wrong, *flags)


def test_pooled_and_given_parameters_in_table_json_and_csv(trained_run, tmp_path, done):
    law = find_law("hahn_tsai")
    paths = [str(write_example_curve(law, tmp_path / f"{i}.csv", seed=i)) for i in range(3)]
    flags = [
        f"--workdir={trained_run.workdir}",
        "--fix=G0=5000",
        "--pool",
        f"--json={tmp_path / 'out.json'}",
        f"--csv={tmp_path / 'out.csv'}",
        f"--plot_dir={tmp_path / 'plots'}",
    ]
    printed = done("identify", *paths, *flags)
    for expected in ("pooled (3 specimens)", "given", "scatter (std)", "mean of specimens"):
        assert expected in printed
    results = json.loads((tmp_path / "out.json").read_text())
    assert [result["curve"] for result in results] == ["0", "1", "2", "pooled (3 specimens)"]
    frame = pandas.read_csv(tmp_path / "out.csv")
    assert list(frame["curve"].astype(str)) == [result["curve"] for result in results]
    for column, key in (("a [MPa^-3]", "value"), ("a std [MPa^-3]", "std")):
        np.testing.assert_allclose(
            frame[column], [result["parameters"]["a"][key] for result in results]
        )
    assert (frame["G0 [MPa]"] == 5000).all()
    assert (tmp_path / "plots" / "pooled_3_specimens.png").is_file()


def test_excel_and_cleaning_flags(trained_run, curve, done):
    strain, stress = np.loadtxt(curve, delimiter=",", skiprows=1, unpack=True)
    frame = pandas.DataFrame({"Strain [%]": 100 * strain + 0.1, "Stress [MPa]": stress})
    frame.to_excel(curve.with_name("lab.xlsx"), index=False)
    flags = [f"--workdir={trained_run.workdir}", "--toe=off", "--cut_after_failure=false"]
    assert "sheet 'Sheet1'" in done("identify", curve.with_name("lab.xlsx"), *flags)


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
        (["curve.csv", "--toe=on"], "--toe is 'on'; give auto or off"),
        (["curve.csv", "--fix=E"], "--fix=E is not understood"),
        (["curve.csv", "--fix=G1=5000"], "has no parameter 'G1'; did you mean 'G0'?"),
        (["curve.csv", "--pool"], "--pool needs at least two curves"),
        (["curve.csv", "--pool_by=temperature"], "--pool needs at least two curves"),
        (["curve.csv", "--fix=G0=5"], "G0 = 5 MPa is far from the 2000 to 8000 MPa"),
        (["curve.csv", "--fix=G0=5000", "--noleast_squares"], "needs least squares"),
        (["curve.csv", "--csv=none/out.csv"], "there is no folder none"),
        (["curve.csv", "--area=-3"], "--area is -3"),
    ],
)
def test_a_wrong_call_gets_one_line_and_status_2(arguments, message, curve, refused, trained_run):
    if not any(argument.startswith("--workdir") for argument in arguments):
        arguments = [*arguments, f"--workdir={trained_run.workdir}"]
    assert message in refused("identify", *arguments)


def test_what_has_no_part_is_refused_or_said(curve, refused, tmp_path, done):
    """The curve's columns are strain and stress already, and least squares draws no samples."""
    assert "--nocorrect is of samples" in refused("identify", "curve.csv", "--nocorrect")
    file = tmp_path / "out.json"
    flags = ["--law=hahn_tsai", "--area=20", "--gauge_length=50", f"--json={file}"]
    said = " ".join(done("identify", curve, *flags).split())
    assert "20 given as area has no part: no column is a load" in said
    assert "50 given as gauge_length has no part: no column is a displacement" in said
    strain = np.linspace(0.0, 0.05, 60)
    stress = find_law("voce").stress(strain[None], np.array([[200e3, 300.0, 200.0, 20.0]]))[0]
    table = pandas.DataFrame({"time [s]": strain, "strain [-]": strain, "stress [MPa]": stress})
    table.to_csv(tmp_path / "tension.csv", index=False)
    flags = ["--law=voce", "--time_column=time", "--shear_strain=tensor"]
    said = " ".join(done("identify", tmp_path / "tension.csv", *flags).split())
    assert "the time has no part" in said and "(tensor) was not doubled" in said


def _own_python(program: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """A program in a Python of its own, which has loaded nothing yet."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2])}
    return real_python("-c", program, cwd=folder, env=environment)


def test_a_bad_file_is_refused_before_tensorflow_is_loaded(trained_run, tmp_path):
    program = (
        "import sys; from tfmat.cli.main import main; "
        f"status = main(['identify', 'none.csv', '--workdir={trained_run.workdir}']); "
        "sys.exit(status if 'tensorflow' not in sys.modules else 99)"
    )
    process = _own_python(program, tmp_path)
    assert process.returncode == 2, process.stderr
    assert process.stderr == "tfmat: none.csv: no such file\n"


@pytest.mark.parametrize("flags", [["--law=voce", "--json=a.json", "--csv=a.csv"], []])
def test_least_squares_wait_for_no_heavy_library(tmp_path, flags):
    """Without a picture or a sheet, of a noisy strain that is cleaned; voce has a network that comes with tfmat."""
    strain = np.linspace(0.0, 0.1, 200)
    voce = find_law("voce").stress(strain[None], np.array([[2e5, 200.0, 300.0, 20.0]]))[0]
    random = np.random.default_rng(0)
    points = np.stack([strain + random.normal(0.0, 3e-4, 200), voce + random.normal(0, 1, 200)], 1)
    np.savetxt(tmp_path / "a.csv", points, delimiter=",", header="strain,stress (MPa)", comments="")
    heavy = "{'tensorflow', 'keras', 'pandas', 'matplotlib', 'scipy.special', 'scipy.stats', 'scipy.optimize'}"
    program = (
        f"import sys; from tfmat.cli.main import main; status = main(['identify', 'a.csv', *{flags}]); "
        f"sys.exit(', '.join(sorted({heavy} & set(sys.modules))) or status)"
    )
    process = _own_python(program, tmp_path)
    assert process.returncode == 0, process.stderr
    assert "E (MPa)" in process.stdout and "network" not in process.stdout
    assert "monotonic envelope of noisy strain" in process.stdout
    if not flags:
        assert "laws for tension of a metal" in process.stdout
        return
    (answer,) = json.loads((tmp_path / "a.json").read_text())
    assert len(answer["parameters"]["Q"]["ci95"]) == 2

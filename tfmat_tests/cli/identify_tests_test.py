"""`tfmat identify` for laws that take tests, as a user calls it."""

import csv
import json
import pathlib

import numpy as np
import pytest

from tfmat.cli.main import main
from tfmat_tests.records.files import write
from tfmat_tests.records.made_tests import relaxation, rubber


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with three tests of one rubber, stress first and without a header."""
    monkeypatch.chdir(tmp_path)
    for name, exponent in (("UT.txt", -2), ("ET.txt", -5), ("PS.txt", -3)):
        rubber(tmp_path, exponent, name=name)
    return tmp_path


def test_tests_of_one_material_with_json_csv_and_picture(files, done):
    arguments = ["uniaxial=UT.txt", "equibiaxial=ET.txt", "planar=PS.txt", "--law=neo_hooke"]
    said = done("identify", *arguments, "--json=o.json", "--csv=o.csv", "--plot_dir=plots")
    for expected in ("UT+ET+PS, law neo_hooke", "equibiaxial", "max_strain 2", "no header"):
        assert expected in said
    (entry,) = json.loads(pathlib.Path("o.json").read_text())
    assert entry["parameters"]["mu"]["value"] == pytest.approx(0.5, rel=1e-6)
    assert [test["name"] for test in entry["tests"]] == ["UT", "ET", "PS"]
    assert entry["tests"][1]["settings"]["max_strain"] == {"value": pytest.approx(2.0), "unit": "-"}
    (row,) = csv.DictReader(pathlib.Path("o.csv").read_text().splitlines())
    assert float(row["mu [MPa]"]) == pytest.approx(0.5, rel=1e-6)
    assert [path.name for path in pathlib.Path("plots").iterdir()] == ["UT+ET+PS.png"]
    # The files' names say the same.
    done("identify", "UT.txt", "ET.txt", "PS.txt", "--law=neo_hooke", "--json=names.json")
    (by_names,) = json.loads(pathlib.Path("names.json").read_text())
    assert by_names["parameters"] == entry["parameters"]


def test_the_next_test_is_a_table_a_sentence_and_a_picture(files, done):
    arguments = ["uniaxial=UT.txt", "--law=neo_hooke", "--next_test", "--plot_dir=plots"]
    tests = ["--candidate=uniaxial:max_strain=2", "--candidate=planar:max_strain=0.5"]
    said = done("identify", *arguments, *tests, "--json=o.json")
    assert "which test of UT next" in said and "planar tension, max_strain 0.5" in said
    assert "interval of the stress at the end of equibiaxial tension, max_strain 1" in said
    (entry,) = json.loads(pathlib.Path("o.json").read_text())
    assert [test["test"] for test in entry["next_test"]["tests"]] == ["uniaxial", "planar"]
    drawn = sorted(path.name for path in pathlib.Path("plots").iterdir())
    assert drawn == ["UT.next_test.png", "UT.png"]


def test_a_folder_with_a_table_holds_several_materials(files, capsys):
    write(
        files,
        "file,test,material\nUT.txt,uniaxial,soft\nET.txt,equibiaxial,hard\nPS.txt,planar,hard\n",
        "tests.csv",
    )
    assert main(["identify", str(files), "--law=neo_hooke", "--json=o.json"]) == 0
    entries = json.loads(pathlib.Path("o.json").read_text())
    assert [(entry["curve"], len(entry["tests"])) for entry in entries] == [
        ("soft", 1),
        ("hard", 2),
    ]
    assert "soft" in capsys.readouterr().out


def test_specimens_of_a_table_are_pooled(files, capsys):
    rubber(files, -2, name="other.txt", stretch=np.linspace(1.1, 2.5, 15))
    table = "file,test,material\nUT.txt,uniaxial,a\nET.txt,equibiaxial,a\nother.txt,uniaxial,b\n"
    write(files, table, "tests.csv")
    call = ["identify", str(files), "--law=neo_hooke", "--pool", "--json=o.json"]
    assert main([*call, "--plot_dir=plots", "--card=calculix"]) == 0
    *_, pooled = json.loads(pathlib.Path("o.json").read_text())
    assert pooled["curve"] == "pooled (2 specimens)" and len(pooled["tests"]) == 3
    assert pooled["parameters"]["mu"]["value"] == pytest.approx(0.5, rel=1e-5)
    assert "scatter" in capsys.readouterr().out
    names = {path.name for path in pathlib.Path("plots").iterdir()}
    assert names == {"a.png", "b.png", "pooled_2_specimens.png"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["uniaxal=UT.txt", "--law=ogden"], "did you mean 'uniaxial'"),
        (["rubber.txt", "--law=ogden"], "uniaxial=FILE equibiaxial=FILE planar=FILE"),
        (["uniaxial=UT.txt", "ET.txt", "--law=ogden"], "ET.txt has no test"),
        (["relaxation=UT.txt", "--law=voce_chaboche"], "(it knows no time); it takes cyclic"),
        (["uniaxial=UT.txt", "--law=voce"], "is identified from one curve of rising strain"),
        (["uniaxial=none.txt", "--law=ogden"], "none.txt: no such file"),
        (
            ["uniaxial=UT.txt", "equibiaxial=ET.txt", "--law=ogden", "--pool"],
            "--pool needs at least two curves; one was given; each material of a table of tests is a specimen",
        ),
        (["UT.txt", "--law=voce", "--next_test"], "law voce knows one test"),
        (["uniaxial=UT.txt", "--law=ogden", "--predict=planar"], "--predict is of --next_test"),
        (
            ["uniaxial=UT.txt", "--law=ogden", "--next_test", "--candidate=planar:end=1"],
            "--candidate=planar:end=1: test planar has no setting 'end'",
        ),
    ],
)
def test_a_wrong_call_gets_one_line_and_status_2(files, refused, arguments, says):
    pathlib.Path("rubber.txt").write_text(pathlib.Path("UT.txt").read_text())
    assert says in refused("identify", *arguments)


def test_time_columns_are_settable(tmp_path, refused):
    path = pathlib.Path(relaxation(tmp_path))
    text = path.read_text().replace("Time [min]", "clock")
    path.write_text(text)
    call = ["identify", "relaxation=test.csv", "--law=prony", "--json=o.json"]
    assert "needs the time of every point" in refused(*call)
    assert main([*call, "--time_column=clock", "--time_unit=min"]) == 0
    (entry,) = json.loads(pathlib.Path("o.json").read_text())
    assert entry["tests"][0]["settings"]["hold"]["value"] == pytest.approx(5000.0, rel=0.02)

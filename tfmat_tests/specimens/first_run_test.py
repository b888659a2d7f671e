"""What users get wrong in a deck and its description: each in one line that says what to do, before a campaign."""

import pytest

from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.specimens.campaign import Solver, read_description, refuse_without_effect, try_once
from tfmat_tests.specimens.calculix import EXAMPLES, needs_ccx

# A bar of one element, in one increment: CalculiX needs a tenth of a second.
DECK = """*NODE, NSET=ALL
1,0,0,0
2,1,0,0
3,1,1,0
4,0,1,0
5,0,0,1
6,1,0,1
7,1,1,1
8,0,1,1
*ELEMENT, TYPE=C3D8, ELSET=BAR
1,1,2,3,4,5,6,7,8
*NSET, NSET=TOP
5,6,7,8
*NSET, NSET=BOTTOM
1,2,3,4
*MATERIAL, NAME=METAL
*ELASTIC
{{ E }},0.
*SOLID SECTION, ELSET=BAR, MATERIAL=METAL
*BOUNDARY
ALL,1,2
BOTTOM,3,3
*STEP
*STATIC
1.,1.
*BOUNDARY
TOP,3,3,0.01
*NODE PRINT, NSET=TOP, TOTALS=ONLY
RF
*END STEP
"""
DESCRIPTION = """
command = ["ccx", "bar"]
templates = ["bar.inp"]
finished = "Job finished"
[parameters.E]
low = 100e3
high = 200e3
[curve]
reader = "calculix"
file = "bar.dat"
node_set = "TOP"
displacement = 0.01
force = 3
gauge_length = 1
area = 1
end = 0.01
[laboratory]
noise_of_maximum = [1e-3, 5e-3]
"""


@pytest.fixture
def cube(tmp_path):
    (tmp_path / "bar.inp").write_text(DECK)
    (tmp_path / "simulator.toml").write_text(DESCRIPTION)
    return tmp_path


def broken(folder, name, old, new):
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


@needs_ccx
def test_a_sound_deck_passes(cube):
    outcome = try_once(read_description(cube), cube / "store")
    assert outcome.stress[-1] == pytest.approx(1500.0, rel=1e-4)


IN, OF = "bar.inp", "simulator.toml"


@needs_ccx
@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (OF, '"TOP"', '"TOPP"', "holds the total forces of TOP; curve.node_set is 'TOPP' (at"),
        (IN, "BOTTOM,3,3", "BOTOM,3,3", "exit status 201; its output says: *ERROR"),
        (IN, ", TOTALS=ONLY", "", "needs *NODE PRINT, NSET=TOP, TOTALS=ONLY and RF"),
        (IN, "\nRF\n", "\nU\n", "needs *NODE PRINT, NSET=TOP, TOTALS=ONLY and RF"),
        (IN, "1.,1.", "0.5,0.5", "ended at 0.005 mm, before 0.01 mm; curve.end is"),
        (IN, "1.,1.", "1.,2.", "the time goes to 2; curve.displacement is the one at the time 1"),
        (IN, "3,3,0.01", "3,3,-0.01", "give curve.force_factor the other sign"),
        (OF, "force = 3", "force = 1", "below 1% of component 3, so that"),
        (OF, "gauge_length = 1", "gauge_length = 1e-4", "the nominal strain reaches 100, with"),
        (OF, "area = 1", "area = 1e-6", "the nominal stress reaches 1.5e+09 MPa, with"),
        (OF, "= 0.01", "= 0.00001", "rises with 1.5e+08 MPa: are lengths in mm"),
        (OF, "Job finished", "JOB COMPLETED", "`finished` is a text that the program prints"),
        (OF, '"ccx", "bar"', '"ccx", "bar.inp"', "templates` and `files` name: bar.inp; its"),
        (IN, "*MATERIAL", "*INCLUDE, INPUT=mesh.inp\n*MATERIAL", "cannot open file mesh.inp"),
    ],
)
def test_a_wrong_deck_is_told_in_one_line(cube, capsys, name, old, new, message):
    broken(cube, name, old, new)
    check_refused(cube, cube, capsys, message)


def check_refused(simulator, folder, capsys, message):
    data = f"--data_dir={folder / 'data'}"
    assert main(["generate", f"--simulator={simulator}", "--num_runs=10", data]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gauge_length = 50.0", "", "curve: gauge_length is missing"),
        ("time_limit", "timelimit", "there is no key timelimit; did you mean 'time_limit'"),
        ('unit = "MPa"\nlow = 100\nhigh = 300', "lo = 1\nlow = 0\nhigh = 1", "no key lo; did you"),
        ('["sh", "solve.sh"]', '"sh solve.sh"', 'write a list, ["ccx", "bar"]'),
        ('["sh", "solve.sh"]', '["sh solve.sh"]', 'by itself: ["sh", "solve.sh"]'),
        ('["sh", "solve.sh"]', '["ccx", "bar"]', "apt-get install calculix-ccx"),
        (
            'file = "curve.csv"',
            'reader = "csv"',
            "curve.reader: 'csv' is not known; give one of table, calculix, python",
        ),
        ('scale = "log"', 'scale = "ln"', "slope.scale: 'ln' is not known; give one of linear, log"),
        (
            '["sh", "solve.sh"]',
            '["sh", "-c", "echo a; echo singular >&2; echo node 7 >&2; echo b; exit 1"]',
            "exit status 1; its output says: b / singular / node 7",
        ),
        (
            '["sh", "solve.sh"]\ntemplates = ["bar.in"]\nfiles = ["solve.sh"]\nfinished = "all done"\ntime_limit = 20',
            '["sleep", "60"]\ntemplates = ["bar.in"]\nfiles = ["solve.sh"]\nfinished = "all done"\ntime_limit = 0.1',
            "not finished after 0.1 s; raise time_limit",
        ),
        ("finished", 'material = "voce"\nfinished', "law voce has E, which is neither drawn nor"),
        ("finished", 'material = "voice"\nfinished', "'voice'; did you mean 'voce'"),
        ("noise_of_maximum = [1e-3, 5e-3]", "", "where a laboratory adds nothing; give its noise"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_one_line(bar, tmp_path, capsys, monkeypatch, old, new, message):
    broken(bar, OF, old, new)
    if "ccx" in new:
        (tmp_path / "empty").mkdir()
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    check_refused(bar, tmp_path, capsys, message)


def test_a_template_in_another_encoding_names_its_line(bar):
    (bar / "bar.in").write_bytes("yields={{ yields }}\n# Länge\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"bar.in, line 2: this is no UTF-8"):
        read_description(bar)


def test_values_that_change_no_file_are_refused(bar):
    """`derive` takes all of them; what it makes of them decides."""
    broken(bar, "bar.in", "{{ slope }}", "{{ hardening }}")
    functions = "def derive(values):\n    return {'hardening': 2 * values['slope'] + values['k']}\n"
    (bar / "simulator.py").write_text(functions)
    broken(bar, OF, "[curve]", "[constants]\nk = 3\n[curve]")
    refuse_without_effect(Solver(read_description(bar)))
    for old, new, message in (
        ("values['slope']", "7", "on 'slope', so that it has the same value in every run"),
        ("+ values['k']", "+ 0 * values.get('k', 0)", "on 'k', so that it is a constant that"),
    ):
        (bar / "simulator.py").write_text(functions.replace(old, new))
        with pytest.raises(InputError, match=message):
            refuse_without_effect(Solver(read_description(bar)))


@needs_ccx
@pytest.mark.parametrize("name", ["notched_bar", "four_point_bend"])
def test_the_examples_use_all_of_their_values(name):
    refuse_without_effect(Solver(read_description(EXAMPLES / name)))

"""`tfmat emulate` as a user calls it: runs of a program, the law in its file, and a record that it fits."""

import numpy as np

from tfmat.materials import find_law
from tfmat_tests.specimens.bar import bar_folder


def test_runs_become_a_law_that_every_command_takes(tmp_path, done):
    bar = bar_folder(tmp_path)
    flags = (f"--simulator={bar}", f"--data_dir={tmp_path / 'data'}", "--num_runs=60")
    out = done("emulate", *flags, "--train_for=600steps")
    spec = f"{tmp_path / 'data' / 'bar_60.py'}:Bar"
    assert "runs      60 of bar" in out and "60 made" in out
    assert "42 runs trained it; it is off by 0." in out
    assert f"tfmat train --law={spec} --config=configs/forward.py --workdir=runs/bar_60\n" in out
    assert done("laws", spec).count("check passed") == 3
    # The same command again makes no run and trains nothing.
    assert "all were there already" in done("emulate", *flags, "--train_for=600steps")

    # Least squares with the law identifies a record; no network is needed.
    law = find_law(spec)
    strain = np.linspace(0.0, 0.019, 80)
    stress = law.stress(strain[None], np.array([[180.0, 900.0]]))[0]
    file = tmp_path / "record.csv"
    rows = [f"{e:.8g},{s:.8g}" for e, s in zip(strain, stress, strict=True)]
    file.write_text("\n".join(["strain [-],stress [MPa]", *rows]))
    out = done("identify", file, f"--law={spec}")
    assert "yields (MPa)" in out and "slope (MPa)" in out
    assert "law bar is itself off by" in " ".join(out.split())


def test_what_is_not_there_is_said_in_one_line(tmp_path, refused):
    said = "say what to emulate: --simulator=FOLDER, with a simulator.toml in it"
    assert refused("emulate") == said
    bar = bar_folder(tmp_path)
    # Before a run is made.
    for flag, message in (("--num_runs=30", "30 is not integer >= 50"), ("--train_for=5x", "5x")):
        said = refused("emulate", f"--simulator={bar}", f"--data_dir={tmp_path}", flag)
        assert message in said

"""Data sets of a described simulation, and the command that makes them."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tfmat.cli.main import main
from tfmat.data.dataset import PackedDataset
from tfmat.data.imported import repair_dataset
from tfmat.errors import InputError
from tfmat.specimens.campaign import (
    FAILURES,
    Outcome,
    draw,
    make_runs,
    pack_runs,
    parts_of,
    read_description,
)
from tfmat_tests.specimens.bar import END, LENGTH, MODULUS, trouble


def generate(capsys, bar, *arguments):
    """Exit status, standard output and standard error of `tfmat generate --simulator`."""
    data = f"--data_dir={bar.parent / 'data'}"
    status = main(["generate", f"--simulator={bar}", "--num_threads=2", data, *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def runs_of(dataset, rows, drawn):
    """The number of the run that each row is of, by its labels."""
    wanted = np.stack(
        [p.to_unit_interval(drawn[:, i]) for i, p in enumerate(dataset.parameters)], axis=1
    )
    far = np.abs(np.asarray(dataset.labels)[rows, None] - wanted[None]).max(axis=2)
    assert far.min(axis=1).max() < 1e-6
    return far.argmin(axis=1)


def test_between_increments_a_curve_bends():
    """Cubics are within a fifth of what lines are off, and keep to a curve that does not bend."""
    places = 0.04 * np.linspace(0, 1, 25) ** 1.5
    run = Outcome(1.0, places, 500 * np.tanh(100 * places))
    strain, stress = run.curve()
    true = 500 * np.tanh(100 * strain)
    off = [np.abs(found - true).max() for found in (stress, np.interp(strain, places, run.stress))]
    assert off[0] < 0.2 * off[1] and strain[0] == 0 and strain[-1] == places[-1]
    straight = Outcome(1.0, places, 7e4 * places)
    np.testing.assert_allclose(straight.curve(0.02)[1], 7e4 * straight.curve(0.02)[0], rtol=1e-12)


def test_copies_stay_in_the_part_of_their_run_however_many_there_are(bar):
    description = read_description(bar)
    data = bar.parent / "data"
    parts = np.array(parts_of(40, 7))
    assert [(parts == name).sum() for name in ("train", "validation", "test")] == [28, 8, 4]
    for count in (20, 40):
        campaign = make_runs(description, data, count, seed=7, processes=2)
        dataset = pack_runs(campaign, data, seed=7, copies=3)
        assert dataset.num_train == 3 * 7 * count // 10 and dataset.num_test == count // 10
        drawn, start = draw(description, 7, 40), 0
        for name in ("train", "validation", "test"):
            number = getattr(dataset, f"num_{name}")
            found = runs_of(dataset, slice(start, start + number), drawn)
            assert set(parts[found]) == {name} and found.max() < count
            start += number
    # Of the run itself but for noise of 0.1 to 0.5 %, on nominal strain and stress.
    yields, slope = drawn[found[-1]]
    strain, stress, _ = dataset.features[-1].T.astype(np.float64)
    elastic = np.minimum(strain, yields / MODULUS)
    true = (MODULUS - slope) * elastic + slope * strain
    assert strain[-1] == pytest.approx(END / LENGTH)
    assert 5e-4 < (stress - true).std() / true.max() < 7e-3
    (shard,) = dataset.folder.glob("*.labels")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    repair_dataset(dataset.folder)
    assert shard.read_bytes() == whole


def test_failed_runs_are_told_where_they_lie(bar, capsys):
    trouble(bar.parent / "data" / "bar.runs", "if [ ${slope%.*} -ge 3000 ]; then exit 3; fi")
    status, out, err = generate(capsys, bar, "--num_runs=30", "--copies=2", "--seed=1")
    assert status == 0, err
    drawn = draw(read_description(bar), 1, 30)
    failed = np.flatnonzero(drawn[:, 1] >= 3000)
    assert f"failed    {len(failed)} ({len(failed) / 30:.1%}): {len(failed)} exit status 3" in out
    (line,) = [line for line in out.splitlines() if line.strip().startswith("slope")]
    # The range is two decades: its high third begins at 100 * 10^(4/3) MPa, below what fails.
    high = (drawn[:, 1] >= 100 * 10 ** (4 / 3)).sum()
    assert line.split()[1:3] == ["0", "of"] and line.split()[-3:-1] == [str(len(failed)), "of"]
    assert int(line.split()[-1]) == high
    with open(bar.parent / "data" / "bar.runs" / FAILURES) as file:
        rows = list(csv.DictReader(file))
    assert [int(row["run"]) for row in rows] == failed.tolist()
    assert float(rows[0]["slope"]) == pytest.approx(drawn[failed[0], 1], rel=1e-5)
    (bar.parent / "data" / "bar.runs" / "trouble").unlink()
    status, out, _ = generate(capsys, bar, "--num_runs=30", "--copies=2", "--seed=1")
    assert status == 0 and "all were there already" in out and "failed " in out
    status, out, _ = generate(
        capsys, bar, "--num_runs=30", "--copies=2", "--seed=1", "--retry_failed"
    )
    assert status == 0 and f"{len(failed)} made in" in out and "failed " not in out


def test_the_command_says_what_it_made_and_takes_other_noise(bar, capsys, refused):
    status, out, _ = generate(capsys, bar, "--num_runs=10", "--noise_of_maximum=1e-5,1e-5")
    assert status == 0 and "runs      10 of bar" in out
    folder = out.splitlines()[1].split()[-1]
    assert out.endswith(
        f"tfmat train --config=configs/specimen.py --data_dir={folder} --workdir=runs/{folder.split('/')[-1]}\n"
    )
    dataset = PackedDataset.open(folder)
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (350, 100, 1)
    manifest = json.loads((dataset.folder / "manifest.json").read_text())
    assert manifest["copies"] == 50 and manifest["laboratory"] == {"noise_of_maximum": [1e-5, 1e-5]}
    assert "is a data set itself; leave out --simulator" in refused(
        "generate", f"--simulator={bar}", f"--data_dir={folder}"
    )
    status, _, err = generate(capsys, bar, "--num_runs=10", "--noise_of_maximum=none")
    assert status == 2 and "give its noise, --noise_of_maximum=" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--num_runs=5",), "--num_runs=5"),
        (("--law=voce",), "--simulator runs a program; leave out --law"),
        (("--noise_of_maximum=2,3",), "--noise_of_maximum is (2.0, 3.0); give 0.5 at most"),
        (("--simulator=nowhere",), "nowhere describes no simulation: there is no simulator.toml"),
    ],
)
def test_one_line_for_each_mistake(bar, refused, arguments, message):
    assert message in refused("generate", f"--simulator={bar}", *arguments)


def test_flags_of_a_simulator_are_refused_without_one(refused):
    for flag, message in (
        ("--num_runs=20", "--num_runs is of --simulator; give that too"),
        ("--retry_failed", "--retry_failed is of --simulator"),
        ("--copies=2", "--copies is of --simulator or --from"),
    ):
        assert message in refused("generate", flag)


def test_too_few_runs_succeed(bar, capsys):
    trouble(bar.parent / "data" / "bar.runs", "if [ ${slope%.*} -ge 1010 ]; then exit 3; fi")
    status, out, err = generate(capsys, bar, "--num_runs=12")
    assert status == 2 and "exit status 3; each stands in" in out
    assert err.endswith("of 12 runs have a curve; at least 10 are needed\n")


def test_wrong_options_of_the_laboratory_name_the_file(bar):
    text = (bar / "simulator.toml").read_text()
    for wrong, message in (
        ("toe = [0.1, 0.01]", "simulator.toml: laboratory.toe is"),
        ("noise_mpa = -1", "simulator.toml: laboratory.noise_mpa is -1"),
        ("nois_mpa = 1", "has no 'nois_mpa'; did you mean 'noise_mpa'"),
    ):
        (bar / "simulator.toml").write_text(f"{text}{wrong}\n")
        with pytest.raises(InputError, match=message):
            read_description(bar)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_the_same_command_goes_on(bar, capsys, number):
    runs = bar.parent / "data" / "bar.runs"
    # After six runs it waits for its end, however late that comes.
    trouble(runs, "if [ $(wc -l < ../../started) -gt 6 ]; then sleep 300; fi")
    command = ["generate", f"--simulator={bar}", "--num_runs=30", "--num_threads=2", "--copies=1"]
    command.append(f"--data_dir={bar.parent / 'data'}")
    with subprocess.Popen(
        [sys.executable, "-m", "tfmat", *command], stderr=subprocess.PIPE, text=True
    ) as program:
        while len(list((runs / "runs").glob("*.npz") if (runs / "runs").is_dir() else [])) < 4:
            time.sleep(0.01)
        program.send_signal(number)
        _, err = program.communicate(timeout=300)
    before, *progress, line = err.splitlines()
    assert all(" runs/s, " in each for each in progress), err  # on a slow machine
    assert program.returncode == 75 and "the same command" in line
    assert before.startswith("30 runs are to be made, 2 at once")
    assert os.listdir(runs / "running") == [] and not list((bar.parent / "data").glob("bar_*"))
    stored = len(list((runs / "runs").glob("*.npz")))
    (runs / "trouble").unlink()
    status, out, _ = generate(capsys, bar, "--num_runs=30", "--copies=1")
    # The run in the middle of the ranges is stored too.
    assert status == 0 and f"{30 - (stored - 1)} made in" in out


def test_where_nobody_sees_a_bar_lines_tell_rate_and_remaining_time(bar, capsys, monkeypatch):
    monkeypatch.setattr("tfmat.console._LINE_EVERY", 0.0)
    status, _, err = generate(capsys, bar, "--num_runs=10", "--copies=1")
    assert status == 0
    lines = [line for line in err.splitlines() if " runs/s, " in line]
    assert len(lines) == 10 and lines[-1].startswith("10 of 10 runs (0 failed), ")
    assert all(line.endswith(" left") for line in lines) and lines[-1].endswith("0:00 left")

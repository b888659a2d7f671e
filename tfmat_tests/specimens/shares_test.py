"""Several workers of one campaign, each a process, and a program that ends with the process that started it."""

import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.specimens.campaign import Share, draw, read_description, run_campaign
from tfmat_tests.processes import forked_python, wait_for
from tfmat_tests.specimens.bar import bar_folder, trouble

# A share's runs, as a process; "again" on its input makes it start.
WORKER = """
import pathlib, sys
from tfmat_tests.specimens.shares_test import make
input()
print(make(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])).new, flush=True)
"""
RUNS = 30


def make(folder, worker=None, workers=None):
    """The campaign of one worker, or of nobody else."""
    description = read_description(folder)
    share = None if worker is None else Share(worker, workers)
    numbers = range(RUNS) if share is None else share.numbers(RUNS)
    store, drawn = folder.parent / "store", draw(description, 0, RUNS)
    return run_campaign(description, store, numbers, drawn, processes=2, share=share)


def start(folder, worker, workers):
    command = [forked_python(), "-c", WORKER, *map(str, (folder, worker, workers))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write("again\n")
    process.stdin.flush()
    return process


def sleepers(seconds):
    """The processes that wait so long."""
    found = psutil.process_iter(["cmdline", "status"])
    return [
        one
        for one in found
        if seconds in (one.info["cmdline"] or []) and one.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_shares_are_all_runs_once_and_more_runs_leave_them():
    for workers in (1, 3, 7):
        shares = [Share(worker, workers) for worker in range(workers)]
        assert sorted(i for one in shares for i in one.numbers(100)) == [*range(100)]
        assert all(set(one.numbers(50)) <= set(one.numbers(100)) for one in shares)


def test_workers_side_by_side_refuse_who_would_run_the_same(bar):
    running, runs = bar.parent / "store" / "running", bar.parent / "store" / "runs"
    # The first run of each worker hangs until it is told to go on; so all are at work.
    trouble(running, "while [ ! -f ../../go ]; do sleep 0.01; done")
    workers = [start(bar, worker, 2) for worker in range(2)]
    for worker in range(2):
        wait_for(lambda place=running / f"{worker}_of_2": len([*place.glob("*-*")]) == 2)
    wait_for(lambda: len(begun(running)) == 4)
    with pytest.raises(InputError, match="another process, here or in a job, runs bar in"):
        make(bar)
    with pytest.raises(InputError, match="a share of 2 of bar, .* give --num_workers=2"):
        make(bar, 0, 3)
    # A third has the share of one that lives: it waits, and finds all done.
    waits = start(bar, 1, 2)
    dead = workers.pop(0)
    dead.kill()
    dead.communicate()
    left = len([*(running / "0_of_2").glob("*-*")])
    again = start(bar, 0, 2)
    (running / "go").touch()
    made = [int(one.communicate(timeout=300)[0]) for one in (again, *workers, waits)]
    assert left == 2 and made == [15, 15, 0] and len([*runs.glob("*.npz")]) == RUNS
    # Two of the dead one came to nothing; nothing else ran twice.
    started = begun(running)
    assert len(started) == RUNS + 2 and len(set(started)) == RUNS
    assert not [one for place in running.glob("*_of_2") for one in place.glob("*-*")]
    other = bar_folder_elsewhere(bar)
    alone, shared = make(other), make(bar)
    assert alone.new == RUNS and shared.new == 0
    for one, two in zip(alone.outcomes, shared.outcomes, strict=True):
        np.testing.assert_array_equal(one.stress, two.stress)


def begun(running):
    """The runs that the program noted."""
    path = running / "started"
    return path.read_text().splitlines() if path.exists() else []


def bar_folder_elsewhere(bar):
    folder = bar.parent / "elsewhere"
    folder.mkdir()
    return bar_folder(folder)


@pytest.mark.parametrize("command", ["sleep 765.4", "sh -c 'sleep 765.4; true'"])
def test_a_program_ends_with_a_killed_campaign(bar, command):
    trouble(bar.parent / "store", command)
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER.replace("*map(int, sys.argv[2:])", ""), str(bar)],
        stdin=subprocess.PIPE,
        text=True,
    )
    worker.stdin.write("again\n")
    worker.stdin.flush()
    wait_for(lambda: len(sleepers("765.4")) == 2)
    os.kill(worker.pid, signal.SIGKILL)
    worker.communicate()
    wait_for(lambda: not sleepers("765.4"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--num_workers=3"], "--num_workers is for a job array: add --launcher=slurm, or"),
        (["--worker=3", "--num_workers=3"], "--worker=3: with --num_workers=3 they are 0 to 2"),
        (["--worker=1"], "--worker=1: of how many? Give --num_workers too"),
        (["--partition=x"], "--partition describes a SLURM job; add --launcher=slurm"),
        (["--launcher=slurm", "--nodes=2"], "--nodes: an element of the array is one process"),
        (["--launcher=slurm", "--worker=0"], "--worker: each element of the array gets its own"),
        (["--launcher=slurm", "--num_workers=21"], "--num_workers=21 are more than 20 runs"),
    ],
)
def test_flags_that_do_not_fit_are_refused(bar, refused, flags, says):
    command = "generate", f"--simulator={bar}", "--data_dir=data", "--num_runs=20"
    assert refused(*command, *flags).startswith(says)


def test_the_script_of_an_array(bar, done, refused):
    command = ["generate", f"--simulator={bar}", f"--data_dir={bar.parent}", "--launcher=slurm"]
    for flags, array, processors in (
        (["--num_runs=250"], "0-2", 1),
        ([], "0-9", 1),
        (["--num_runs=40", "--num_workers=4", "--cpus_per_rank=3"], "0-3", 3),
        (["--num_runs=40", "--num_workers=4", "--num_threads=2"], "0-3", 2),
    ):
        out = done(*command, "--dry_run", *flags)
        assert f"#SBATCH --array={array}\n" in out
        assert f"#SBATCH --cpus-per-task={processors}\n" in out
        assert f'--worker="$SLURM_ARRAY_TASK_ID" --num_threads={processors} &' in out
        assert out.count("--num_threads") == out.count("--num_workers") == 1
    assert not (bar.parent / "bar.runs").exists()
    assert "--launcher is of --simulator" in refused(command[0], "--law=voce", "--launcher=slurm")


def test_how_many_runs_and_how_long_is_said_before_they_begin(bar, capsys):
    data = bar.parent / "data"
    trouble(data / "bar.runs", "sleep 0.1")
    flags = [f"--simulator={bar}", f"--data_dir={data}", "--num_threads=2", "--copies=1"]
    assert main(["generate", *flags, "--num_runs=20"]) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("20 runs are to be made, 2 at once: about 0:0")
    assert main(["generate", *flags, "--num_runs=20"]) == 0
    assert "to be made" not in capsys.readouterr().err
    trouble(data / "bar.runs", "exit 3")
    assert main(["generate", *flags, "--seed=1"]) == 2  # the first twenty fail
    error = capsys.readouterr().err.splitlines()
    assert error[0] == "making 1,000 runs, 2 at once; --num_runs=N makes more or fewer"
    assert error[1].startswith("1,000 runs are to be made")

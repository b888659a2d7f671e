"""`tfmat train --launcher=slurm` under a real SLURM: saved, put back, taken up again, done; on one rank and on two."""

import importlib.util
import os
import pathlib
import subprocess

import pytest

from tfmat_tests.end_to_end.runs import SMALL_RUN, assert_same_weights, status
from tfmat_tests.processes import forked_python, wait_for
from tfmat_tests.slurm import trial_slurm

__all__ = ["trial_slurm"]

PROJECT = pathlib.Path(__file__).resolve().parents[2]
# Long enough to be met while it trains.
LONG_RUN = (
    *SMALL_RUN,
    "--config.train_for=20epochs",
    "--config.callbacks.early_stopping_patience=20",
)
TOTAL = 20 * 31  # steps


def tfmat(*arguments, cwd):
    """`tfmat ARGUMENTS` on the login node."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [forked_python(), "-m", "tfmat", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


def submit(*arguments, cwd):
    """The number of the submitted job."""
    done = tfmat(*arguments, "--launcher=slurm", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[1].rstrip(":")


def trains(workdir):
    """Whether a checkpoint is there."""
    return any((workdir / "checkpoints").glob("*")) if workdir.is_dir() else False


def outputs(workdir):
    return "".join(path.read_text() for path in sorted(workdir.glob("job-*.out")))


def test_a_run_survives_the_time_limit_and_scancel(trial_slurm, tmp_path, request, run_all):
    run = tmp_path / "run"
    command = (*LONG_RUN, "--time_limit=30")
    job_id = submit(*command, cwd=tmp_path)
    wait_for(lambda: trains(run), lambda: outputs(run))

    # A second job would train in the same folder.
    refused = tfmat(*command, "--launcher=slurm", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"tfmat: job {job_id} is RUNNING in run already; watch it with squeue, or end it first: scancel {job_id}\n"
    )

    trial_slurm.ask_to_save(job_id)
    wait_for(lambda: status(run)["state"] == "interrupted")
    trial_slurm.start_again(job_id)
    wait_for(lambda: status(run)["state"] == "running", lambda: outputs(run))
    trial_slurm.run("scancel", job_id)
    wait_for(lambda: status(run)["state"] == "interrupted", lambda: outputs(run))
    assert trial_slurm.wait_for_end(job_id) == "CANCELLED"

    other = submit(*command, cwd=tmp_path)
    assert trial_slurm.wait_for_end(other) == "COMPLETED", outputs(run)
    assert status(run)["state"] == "done"
    first, second = status(run)["resumed_from_steps"]
    assert 0 < first <= second < TOTAL
    assert (run / "report.html").exists()
    if run_all:
        # The signals cost nothing: the same numbers as without them.
        assert_as_if_never_stopped(run, request.getfixturevalue("programs"))


@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="./tools/setup horovod")
@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.large)])
def test_two_ranks_on_two_nodes(trial_slurm, tmp_path, stopped):
    run = tmp_path / "run"
    command = LONG_RUN if stopped else SMALL_RUN
    two = ("--backend=horovod", "--ranks=2", "--nodes=2", "--noreport")
    job_id = submit(*command, *two, cwd=tmp_path)
    if stopped:
        wait_for(lambda: trains(run), lambda: outputs(run))
        trial_slurm.ask_to_save(job_id)
        trial_slurm.start_again(job_id)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED", outputs(run)
    assert status(run)["state"] == "done"
    assert len(status(run)["resumed_from_steps"]) == stopped
    assert outputs(run).count("horovod: 2 workers share each batch of 20") == 1 + stopped


def assert_as_if_never_stopped(run, programs):
    alone = programs.run(*LONG_RUN, "--workdir=alone", cwd=run.parent)
    assert alone.status == 0, alone.err
    assert_same_weights(run / "final.keras", run.parent / "alone" / "final.keras")

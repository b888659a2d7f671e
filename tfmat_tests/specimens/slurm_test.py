"""`tfmat generate --simulator --launcher=slurm` under a real SLURM: elements die, are cancelled, and go on."""

import os
import pathlib
import signal

import numpy as np
import psutil
import pytest

from tfmat.cli.main import main
from tfmat.data.dataset import is_dataset
from tfmat.launch.slurm import job_states
from tfmat.specimens.campaign import draw, load, read_description, run_campaign
from tfmat_tests.processes import real_python, wait_for
from tfmat_tests.slurm import PROJECT, trial_slurm
from tfmat_tests.specimens.bar import bar_folder, trouble

__all__ = ["trial_slurm"]

RUNS = 60


class Submitted:
    """A campaign in a folder of its own, as an array of two elements with two runs at once each."""

    def __init__(self, folder: pathlib.Path):
        self.bar, self.data = bar_folder(folder), folder / "data"
        description = self.bar / "simulator.toml"
        description.write_text(
            description.read_text().replace("time_limit = 20", "time_limit = 300")
        )
        self.store = self.data / "bar.runs"
        self.flags = (f"--simulator={self.bar}", f"--data_dir={self.data}", f"--num_runs={RUNS}")

    def submit(self, status: int = 0) -> str:
        """What the command says."""
        slurm = ("--launcher=slurm", "--num_workers=2", "--cpus_per_rank=2", "--time_limit=30")
        flags, environment = (*self.flags, "--copies=2", *slurm), {"PYTHONPATH": str(PROJECT)}
        how = {"cwd": self.bar.parent, "env": os.environ | environment}
        done = real_python("-m", "tfmat", "generate", *flags, **how)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def stored(self) -> list[pathlib.Path]:
        return [*(self.store / "runs").glob("*.npz")]

    def started(self) -> list[str]:
        """What the programs of the array noted of their runs."""
        file = self.store / "running" / "started"
        return file.read_text().splitlines() if file.exists() else []

    def outputs(self) -> str:
        """What the jobs said."""
        files = sorted((self.store / "jobs").glob("job-*.out"))
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in files)

    def processes(self, worker: int) -> list[int]:
        """The numbers of the processes that make a share: one, or none."""
        flags = {f"--worker={worker}", self.flags[1], "-m"}
        found = [
            one.info
            for one in psutil.process_iter(["pid", "ppid", "cmdline"])
            if flags <= set(one.info["cmdline"] or ())
        ]
        # A program that it starts has its words for a moment, between fork and exec.
        pids = {one["pid"] for one in found}
        return [one["pid"] for one in found if one["ppid"] not in pids]


@pytest.fixture
def campaign(tmp_path):
    return Submitted(tmp_path)


def test_a_killed_and_a_cancelled_element_then_the_same_command(trial_slurm, campaign, capsys):
    # Twenty runs are made before the elements are ended, however late that comes; the next ones wait for it.
    wait = "while [ $(wc -l < ../../started) -gt 20 ]; do sleep 0.05; done; sleep 0.1"
    trouble(campaign.store / "running", wait)
    said = campaign.submit()
    job_id = said.split()[1].rstrip(":")
    assert f"{RUNS} runs, 30 an element, 2 at once" in said
    wait_for(
        lambda: len(campaign.stored()) > 8 and campaign.processes(0) and campaign.processes(1),
        campaign.outputs,
    )
    assert main(["generate", *campaign.flags]) == 2
    assert "another process, here or in a job, runs bar in" in capsys.readouterr().err
    # The last element has the number of the whole array, which is not to be put back into the queue with it.
    os.kill(*campaign.processes(1), signal.SIGKILL)
    wait_for(lambda: "element 1 waits in the queue again" in campaign.outputs(), campaign.outputs)
    # Its two minutes in the queue are over soon on a busy machine.
    trial_slurm.run("scontrol", "update", f"JobId={job_id}_1", "StartTime=now+1hour")
    assert job_states([job_id])[f"{job_id}_0"] == "RUNNING"
    trial_slurm.run("scancel", f"{job_id}_0")
    wait_for(lambda: job_states([job_id])[f"{job_id}_0"] == "CANCELLED", campaign.outputs)
    wait_for(lambda: not campaign.processes(0), campaign.outputs)
    before = {path: path.stat().st_mtime_ns for path in campaign.stored()}
    started_before = len(campaign.started())
    assert 8 < len(before) < RUNS and started_before <= len(before) + 4
    # Runs wait for the test, so that none of them is over before the command was given once more.
    trouble(campaign.store / "running", "while [ ! -f ../../go ]; do sleep 0.05; done")
    said = campaign.submit()
    assert f"element 0 of 2 starts again; {job_id}_1 go on" in said
    again = said.split()[1].rstrip(":")
    assert "already; watch it with squeue" in campaign.submit(status=2)
    (campaign.store / "running" / "go").touch()
    trial_slurm.start_again(f"{job_id}_1")
    for one in (job_id, again):
        wait_for(lambda one=one: "COMPLETED" in job_states([one]).values(), campaign.outputs)

    # Each run is there once; those that were there before were not touched, and no other was begun.
    after = {path: path.stat().st_mtime_ns for path in campaign.stored()}
    assert len(after) == RUNS + 1 and before.items() <= after.items()
    assert len(campaign.started()) - started_before == len(after) - len(before)
    assert len(set(campaign.started())) == RUNS + 1
    sets = [folder for folder in campaign.data.iterdir() if is_dataset(folder)]
    assert len(sets) == 1 and f"data set  {sets[0]}" in campaign.outputs()

    # The same curves, and the same data set, as those of one process.
    description, local = read_description(campaign.bar), campaign.bar.parent / "local"
    drawn = draw(description, 0, RUNS)
    alone = run_campaign(description, local, range(RUNS), drawn, processes=2)
    assert alone.new == RUNS and not alone.failed
    for path in (local / "runs").glob("*.npz"):
        one, two = load(path), load(campaign.store / "runs" / path.name)
        np.testing.assert_array_equal(one.stress, two.stress)
        np.testing.assert_array_equal(one.strain, two.strain)
    assert main(["generate", *campaign.flags, "--copies=2"]) == 0
    out = capsys.readouterr().out
    assert "all were there already" in out and f"data set  {sets[0]}\n" in out

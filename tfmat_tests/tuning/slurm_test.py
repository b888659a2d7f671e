"""`tfmat tune --launcher=slurm` under a real SLURM: workers die, jobs are cancelled and requeued, a node goes down."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest

from tfmat.launch.slurm import job_states
from tfmat_tests.processes import forked_python, wait_for
from tfmat_tests.slurm import PROJECT, trial_slurm
from tfmat_tests.tuning.conftest import HERE, Search

__all__ = ["trial_slurm"]


class SubmittedSearch(Search):
    """A search whose workers are the elements of a job array."""

    def submit(self, *flags: str, says: str = "") -> str:
        """The job's number; the command says this, among other things."""
        python = shlex.quote(sys.executable)
        trial = f"{python} -S -E {HERE / 'synthetic_trial.py'} {{config}} {{workdir}} 0.15"
        command = [
            *(forked_python(), "-m", "tfmat", "tune", "--launcher=slurm", "--num_workers=2"),
            *(f"--config={HERE / 'space.py'}", f"--workdir={self.workdir}"),
            *(f"--trial_command={trial}", "--time_limit=30", "--lease=5s", *flags),
        ]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        done = subprocess.run(
            command, cwd=self.workdir.parent, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert says in done.stdout
        return done.stdout.split()[1].rstrip(":")

    def outputs(self) -> str:
        """What the jobs and the workers said."""
        files = sorted([*self.workdir.glob("job-*.out"), *self.workdir.glob("workers/*.log")])
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in files)

    def wait_until_busy(self) -> None:
        """Both workers have a trial."""
        wait_for(lambda: self.running() == 2, self.outputs)


@pytest.fixture
def submitted(tmp_path):
    """A search in a folder of its own."""
    return SubmittedSearch(None, tmp_path / "search", HERE / "space.py")


def wait_for_end(cluster, job_id: str, search: SubmittedSearch) -> set[str]:
    """The states in which the elements of a job end."""
    over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
    wait_for(lambda: set(job_states([job_id]).values()) <= over, search.outputs)
    return set(job_states([job_id]).values())


def test_killed_worker_then_scancel_then_the_same_command(trial_slurm, submitted):
    with submitted.held():
        job_id = submitted.submit()
        submitted.wait_until_busy()
        os.kill(submitted.worker_pid("0"), signal.SIGKILL)
        submitted.hold_after("0000")
        wait_for(lambda: submitted.state().end_order, submitted.outputs)
        submitted.wait_until_busy()
        trial_slurm.run("scancel", job_id)
        assert wait_for_end(trial_slurm, job_id, submitted) == {"CANCELLED"}
    submitted.check_nobody_left()
    before = submitted.state()
    again = submitted.submit()
    assert wait_for_end(trial_slurm, again, submitted) == {"COMPLETED"}, submitted.outputs()
    submitted.check(6, repeated=3)
    after = submitted.state()
    assert after.end_order[: len(before.end_order)] == before.end_order
    assert after.best().value <= before.best().value


def test_a_cancelled_element_starts_again_beside_the_living_one(trial_slurm, submitted):
    with submitted.held():
        job_id = submitted.submit()
        submitted.wait_until_busy()
        trial_slurm.run("scancel", f"{job_id}_1")
        wait_for(lambda: job_states([job_id])[f"{job_id}_1"] == "CANCELLED", submitted.outputs)
        assert job_states([job_id])[f"{job_id}_0"] == "RUNNING"
        again = submitted.submit(says=f"element 1 of 2 starts again; {job_id}_0 go on")
        assert list(job_states([again])) == [f"{again}_1"]
        with pytest.raises(AssertionError, match="already; watch it with squeue"):
            submitted.submit()
        submitted.wait_until_busy()
    assert wait_for_end(trial_slurm, again, submitted) == {"COMPLETED"}, submitted.outputs()
    assert "COMPLETED" in wait_for_end(trial_slurm, job_id, submitted), submitted.outputs()
    submitted.check(6, repeated=2)
    assert (
        len({name for trial in submitted.state().trials.values() for name, *_ in trial.intervals})
        == 2
    )


@pytest.mark.large
def test_the_time_limit_saves_requeues_and_goes_on(trial_slurm, submitted):
    with submitted.held():
        job_id = submitted.submit()
        submitted.wait_until_busy()
        elements = sorted(job_states([job_id]))
        for element in elements:
            trial_slurm.ask_to_save(element)
        for element in elements:
            trial_slurm.start_again(element)
    assert wait_for_end(trial_slurm, job_id, submitted) == {"COMPLETED"}, submitted.outputs()
    submitted.check(6, repeated=2)
    assert all(trial.lost == 0 for trial in submitted.state().trials.values())


@pytest.mark.large
def test_an_element_whose_supervisor_was_killed_is_replaced_by_itself(trial_slurm, submitted):
    with submitted.held():
        job_id = submitted.submit()
        submitted.wait_until_busy()
        parent = pathlib.Path(f"/proc/{submitted.worker_pid('0')}/stat").read_text()
        os.kill(int(parent.rpartition(")")[2].split()[1]), signal.SIGKILL)
        trial_slurm.start_again(f"{job_id}_0")
    assert wait_for_end(trial_slurm, job_id, submitted) == {"COMPLETED"}, submitted.outputs()
    assert "lost (status 137); element 0 waits in the queue again" in submitted.outputs()
    submitted.check(6, repeated=2)

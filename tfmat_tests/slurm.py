"""A real SLURM for tests: the trial cluster of tools/slurm, one for each folder of tests that asks for it."""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from tfmat.launch.slurm import SlurmJob, job_script, job_states, submit
from tfmat_tests.processes import wait_for

PROJECT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = PROJECT / "tools" / "slurm"
PATIENCE = 300.0  # seconds; two cores may be shared by many


def need_slurm():
    """Skips a test where SLURM is not installed; CI must have it."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    programs = ("slurmctld", "slurmd", "munged", "sbatch")
    missing = [name for name in programs if not shutil.which(name, path=path)]
    if missing:
        message = (
            f"SLURM is not installed ({', '.join(missing)}); tools/system_packages slurm gets it"
        )
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)


def call(*arguments, **options):
    """A finished `tools/slurm ARGUMENTS`: returncode, stdout, stderr."""
    return subprocess.run(
        [SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, **options
    )


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A running one; `environment` is what its users export."""

    folder: pathlib.Path
    environment: dict[str, str]

    def run(self, *command):
        """Standard output of one of SLURM's programs."""
        done = subprocess.run(
            list(map(str, command)), env={**os.environ, **self.environment}, timeout=PATIENCE,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, job: SlurmJob, *site) -> str:
        """Writes the job's script and submits it."""
        job.folder.mkdir(exist_ok=True)
        script = job.folder / "job.sh"
        script.write_text(job_script(job, *site))
        return submit(script)

    def state(self, job_id: str) -> str:
        """SLURM's word for a job that is no array."""
        return job_states([job_id])[job_id]

    def wait_for_state(self, job_id: str, *states: str) -> str:
        """The first of these states that the job comes to."""
        wait_for(
            lambda: self.state(job_id) in states,
            lambda: self.run("scontrol", "show", "job", job_id),
        )
        return self.state(job_id)

    def wait_for_end(self, job_id: str) -> str:
        """The state of a job that has ended."""
        return self.wait_for_state(
            job_id, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"
        )

    def facts(self, job_id: str) -> dict[str, str]:
        """What `scontrol show job` says: Restarts, NodeList, …"""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", job_id)))

    def ask_to_save(self, job_id: str) -> None:
        """What SLURM does some time before the limit."""
        self.run("scancel", "--signal=USR1", "--batch", job_id)

    def start_again(self, job_id: str) -> None:
        """Ends the two minutes for which a job that was put back into the queue has to wait."""
        self.wait_for_state(job_id, "PENDING")
        # A node refuses a job that starts within the second in which it was told to end it: SLURM's times are whole
        # seconds, and that is what the two minutes are for.
        time.sleep(2)
        self.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")


@contextlib.contextmanager
def cluster(*options: str) -> Iterator[Cluster]:
    """A cluster that ends with the block; this process's environment leads to it meanwhile."""
    need_slurm()
    # The folder that pytest gives has too long a name for a socket.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfmat-slurm-test-", dir="/tmp"))
    started = call("start", f"--folder={folder}", *options)
    assert started.returncode == 0, started.stderr
    environment = dict(re.findall(r"(\w+)=(\S+)", started.stdout))
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield Cluster(folder, environment)
    finally:
        os.environ.clear()
        os.environ.update(before)
        stopped = call("stop", f"--folder={folder}")
        shutil.rmtree(folder)
        assert stopped.returncode == 0, stopped.stderr


@pytest.fixture(scope="session")
def trial_slurm() -> Iterator[Cluster]:
    """Two nodes of four processors and two GPUs that are not there."""
    with cluster("--nodes=2", "--cpus=4", "--gpus=2") as running:
        yield running

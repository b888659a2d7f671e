"""Runs launches as SLURM jobs: a round is submitted together, and its answers are collected from files."""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Sequence

from tfmat.errors import InputError
from tfmat.files import read_json, write_json, write_text
from tfmat.launch.site import Site
from tfmat.launch.slurm_job import ENDED, cancel, job_states, submit
from tfmat.launch.slurm_script import SlurmJob, job_script
from tfmat.scaling.laboratory import Finished, Launch, end_of_log, worker_command
from tfmat.scaling.matrix import Matrix
from tfmat.scaling.planning import Machine

JOBS = "jobs.json"
_SECONDS_BETWEEN_LOOKS = 2.0
# For a shared file system to show what a job that has ended wrote.
_FOR_FILES = 20.0


def slurm_machine(
    site: Site,
    matrix: Matrix,
    sums_with: set[str],
    *,
    partition: str | None,
    most_nodes: int | None,
) -> Machine:
    """The nodes that a study's jobs get.

    Args:
      site: says processors and GPUs of a node.
      matrix: says what a worker gets of them.
      sums_with: as runner.py finds it; the nodes have the same software.
      partition: of the jobs; None for the site's.
      most_nodes: that a job may have; None for any number.

    Raises:
      InputError: nobody says how many workers a node takes.
    """
    workers = matrix.workers_per_node
    if workers is None and matrix.gpus_a_worker and site.gpus_per_node:
        workers = site.gpus_per_node // matrix.gpus_a_worker
    elif workers is None and site.cores_per_node:
        workers = site.cores_per_node // matrix.processors_a_worker
    if not workers:
        raise InputError(
            "how many workers a node takes is not known; give workers_per_node in get_scaling(), or cores_per_node "
            "(with GPUs gpus_per_node) in the site file"
        )
    name = partition or site.partition or "default partition"
    return Machine(
        hardware=matrix.hardware or f"SLURM, {name}",
        processors=site.cores_per_node or workers * matrix.processors_a_worker,
        workers_per_node=workers,
        sums_with=frozenset(sums_with),
        infiniband=True,  # not to be seen from here
        gpus=matrix.gpus_a_worker,
        slurm=True,
        most_nodes=most_nodes,
    )


def job_of(launch: Launch, template: SlurmJob, site: Site) -> SlurmJob:
    """The job of a launch: `template` has what the command line says of all of them."""
    return dataclasses.replace(
        template,
        name=f"scale-{launch.folder.name}"[:60],
        command=worker_command(launch.folder, *([site.python] if site.python else [])),
        folder=launch.folder,
        ranks=launch.num_processes,
        nodes=launch.nodes,
        cpus_per_rank=launch.processors,
        gpus=launch.gpus,
        requeue=False,  # it is measured again instead
    )


class SlurmLaunches:
    """Submits, watches and, where the study ends early, cancels.

    Args:
      template, site: see job_of.
      folder: of jobs.json, by which jobs that a killed study left are cancelled.
    """

    def __init__(self, template: SlurmJob, site: Site, folder: pathlib.Path):
        self._template, self._site = template, site
        self._jobs_file = folder / JOBS
        self._cancel(self._known())

    def run(self, launches: Sequence[Launch], finished: Finished) -> None:
        """Submits all of them in their order; says of each how it went, as soon as it has ended."""
        jobs: dict[str, Launch] = {}
        try:
            for launch in launches:
                jobs[self._submit(launch)] = launch
                write_json(self._jobs_file, {"jobs": list(jobs)})
            while jobs:
                for job_id, state in job_states(jobs).items():
                    if state in ENDED:
                        launch = jobs.pop(job_id)
                        finished(launch, self._failure(launch, job_id, state))
                if jobs:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
        finally:
            self._cancel(jobs)
            write_json(self._jobs_file, {"jobs": []})

    def _submit(self, launch: Launch) -> str:
        path = launch.folder / "job.sh"
        text = job_script(job_of(launch, self._template, self._site), self._site)
        write_text(path, text)
        return submit(path)

    def _failure(self, launch: Launch, job_id: str, state: str) -> tuple[str, str] | None:
        deadline = time.monotonic() + (_FOR_FILES if state in ("COMPLETED", "UNKNOWN") else 0.0)
        while launch.answers is None:
            if time.monotonic() > deadline:
                log = end_of_log(launch.folder / f"job-{job_id}.out")
                return f"job {job_id} ended as {state} without an answer", log
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return None

    def _known(self) -> list[str]:
        if not self._jobs_file.exists():
            return []
        with contextlib.suppress(InputError, KeyError, TypeError):
            return [str(job) for job in read_json(self._jobs_file)["jobs"]]
        return []

    def _cancel(self, jobs: Sequence[str] | dict[str, Launch]) -> None:
        for job in jobs:
            with contextlib.suppress(InputError):  # it has ended, or nobody answers
                cancel(job)

"""`--launcher=slurm` and what goes with it: the flags, the job that they describe, and handing it to SLURM."""

import os
import pathlib
import sys
from collections.abc import Collection
from typing import NotRequired, TypedDict

from absl.flags import FlagValues

from tfmat.cli.flags import choice, overrides, switch, text, whole
from tfmat.errors import InputError
from tfmat.files import check_json, make_folder, read_json, write_json, write_text
from tfmat.launch.slurm import ENDED, Site, job_states, read_site, submit, with_size_of_nodes
from tfmat.launch.slurm_script import SlurmJob, job_script

_JOB_FILE = "job.json"
_TEXTS = {
    "account": "account that pays for the job",
    "partition": "partition (queue) of the cluster",
    "time_limit": "of the job: minutes (90), hours (1:30:00) or days (2-12); shortly before it the job saves and "
    "goes into the queue again",
    "site": "file on what a cluster wants of every job (docs/slurm.md) [~/.config/tfmat/site.toml]",
}
_NUMBERS = {
    "nodes": "nodes [as many as the GPUs fill, or SLURM's choice]",
    "ranks": "processes [one a GPU with backends of several processes, else 1]",
    "cpus_per_rank": "processors of each process [with GPUs, their share of the node's]",
    "gpus": "GPUs of the whole job, taken node by node",
}
_SWITCHES = {"dry_run": "print the job instead of submitting it", "exclusive": "share no node"}
LAUNCHER_FLAGS = ("launcher", *_TEXTS, *_NUMBERS, *_SWITCHES)
JOB = (
    *(text(name, None, meaning) for name, meaning in _TEXTS.items()),
    *(whole(name, None, meaning, 0 if name == "gpus" else 1) for name, meaning in _NUMBERS.items()),
    *(switch(name, False, meaning) for name, meaning in _SWITCHES.items()),
)  # fmt: skip
LAUNCHER = (
    choice("launcher", ["local", "slurm"], "where it runs: in this process, or as a job of a SLURM cluster"),
    *JOB,
)  # fmt: skip


def wants_slurm(flag_values: FlagValues) -> bool:
    """Whether `--launcher=slurm` was given; InputError where a flag of a job was given without it."""
    if flag_values.launcher == "slurm":
        return True
    for name in LAUNCHER_FLAGS[1:]:
        if flag_values[name].present:
            raise InputError(f"--{name} describes a SLURM job; add --launcher=slurm")
    return False


def number_of_ranks(flag_values: FlagValues, backend: str) -> int:
    """`--ranks`, or one a GPU where the backend has a process for each."""
    if flag_values.ranks is not None:
        return int(flag_values.ranks)
    return 1 if backend in ("single", "dtensor") else max(1, flag_values.gpus or 0)


def job_of_flags(
    flag_values: FlagValues,
    *,
    name: str,
    folder: pathlib.Path,
    site: Site,
    command: tuple[str, ...],
    ranks: int = 1,
    data: pathlib.Path | None = None,
    array: int | None = None,
    starts_ranks: bool = False,
) -> SlurmJob:
    """The job of the command line's flags; it starts where this command was started."""
    return SlurmJob(
        name=name,
        command=command,
        folder=folder.resolve(),
        start_in=pathlib.Path.cwd(),
        data=data.resolve() if data else None,
        ranks=ranks,
        starts_ranks=starts_ranks,
        nodes=flag_values.nodes,
        cpus_per_rank=flag_values.cpus_per_rank,
        gpus=flag_values.gpus or 0,
        account=flag_values.account,
        partition=flag_values.partition,
        time_limit=flag_values.time_limit,
        exclusive=flag_values.exclusive,
        array=array,
    )


def site_of_flags(flag_values: FlagValues) -> Site:
    """The site of `--site`, or the user's own; what it does not say about nodes with GPUs is asked of SLURM."""
    site = read_site(flag_values.site)
    if flag_values.gpus and not (site.cores_per_node and site.gpus_per_node):
        return with_size_of_nodes(site, flag_values.partition or site.partition)
    return site


def own_command(
    command: str,
    flag_values: FlagValues,
    python: str | None = None,
    left_out: Collection[str] = LAUNCHER_FLAGS,
) -> tuple[str, ...]:
    """`tfmat COMMAND` with the flags of this command line, without those that describe the job."""
    arguments = []
    for name in sorted(flag_values):
        if not flag_values[name].present or name in left_out:
            continue
        if name == "config_override":
            arguments += [f"--config.{key}={value}" for key, value in overrides(flag_values)]
        else:
            arguments.append(flag_values[name].serialize())
    return (python or sys.executable, "-P", "-m", "tfmat", command, *arguments)


def launch(job: SlurmJob, site: Site, *, dry_run: bool) -> None:
    """Writes job.sh and submits it, and says how to watch it; with `dry_run` it prints the script only.

    Of an array some of whose elements wait or run already, the others are submitted.

    Raises:
      InputError: no cluster can run the job, SLURM refuses it, or all of it waits or runs in this folder already.
    """
    script = job_script(job, site)
    if dry_run:
        print(script, end="")
        return
    living = _living(job.folder)
    elements = _missing_elements(job, living)
    make_folder(job.folder)
    path = job.folder / "job.sh"
    write_text(path, script)
    job_id = submit(path, elements)
    others = sorted({state.partition("_")[0] for state in living})
    write_json(job.folder / _JOB_FILE, {"format": 1, "job": job_id, "others": others})
    first = elements[0] if elements else 0
    output = f"job-{job_id}.out" if job.array is None else f"job-{job_id}_{first}.out"
    print(f"job {job_id}: {job.name}, submitted with {os.path.relpath(path)}")
    if elements:
        again = ", ".join(map(str, elements))
        print(f"  element {again} of {job.array} starts again; {', '.join(sorted(living))} go on")
    print(f"  watch   squeue --jobs={job_id}; tail -F {os.path.relpath(job.folder / output)}")
    print(f"  cancel  scancel {job_id}     (the same command then goes on where it was)")


class _JobRecord(TypedDict):
    """job.json: the last job of a folder, and those before it of which elements lived when it was submitted."""

    job: str
    others: NotRequired[list[str]]


def _living(folder: pathlib.Path) -> dict[str, str]:
    """Job or element (`12`, `12_0`) of this folder -> its state, of those that are not over."""
    path = folder / _JOB_FILE
    if not path.exists():
        return {}
    record: _JobRecord = check_json(read_json(path), _JobRecord, path)
    states = job_states([record["job"], *record.get("others", [])])
    return {job: state for job, state in states.items() if state not in ENDED}


def _missing_elements(job: SlurmJob, living: dict[str, str]) -> list[int]:
    """The elements of an array of which no job waits or runs; [] where none lives, so that all are submitted.

    Raises:
      InputError: nothing is missing, or the folder's job is no array.
    """
    if not living:
        return []
    numbers = {int(job_id.partition("_")[2] or -1) for job_id in living}
    missing = [] if job.array is None or -1 in numbers else [
        number for number in range(job.array) if number not in numbers
    ]  # fmt: skip
    if missing:
        return missing
    job_id, state = next(iter(living.items()))
    raise InputError(
        f"job {job_id} is {state} in {os.path.relpath(job.folder)} already; watch it with squeue, or end it first: "
        f"scancel {' '.join(sorted({each.partition('_')[0] for each in living}))}"
    )
